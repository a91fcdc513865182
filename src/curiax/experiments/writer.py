"""Writes a run's checkpoints beside its training, and holds the metrics that none of them has yet."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from .._errors import CheckpointError, CuriaxError, NonFiniteError
from .._sound import ADVICE
from .store import Checkpoints, HostMetrics, Snapshot, kinds, reason, steps_in

#: What the first checkpoint of a process is taken to need, in seconds.
FIRST = 1.0
#: The least that a checkpoint is taken to need, as a share of `seconds`: most take milliseconds, but disks hesitate.
MARGIN = 0.1


class CheckpointWriter:
    """Holds the metrics of a run and writes checkpoints beside training, in one thread, never two at a time.

    Metrics that a checkpoint holds leave the memory; without a store all stay there, and no checkpoint is ever due.

    No more than `seconds` of work shall be lost to a kill. What is lost is what came after the newest checkpoint that
    is on the disk, so the next one must be there, not begun, when they are over: it is due earlier by the time that
    it will need, which is taken to be twice what the last one needed, at least a tenth of `seconds` and at most half. A
    state can be had at the next border at the earliest, so it is asked for when the one after that would be too late.
    """

    def __init__(self, store: Checkpoints | None, seconds: float, exempt: frozenset[str] = frozenset()) -> None:
        self._store, self._seconds, self._exempt = store, seconds, exempt
        self._parts: list[HostMetrics] = []
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="curiax-checkpoint")
        self._writing: Future[None] | None = None
        self._last, self._needs = time.monotonic(), min(FIRST, seconds / 2.0)
        #: When the last iteration ended, and how long it took.
        self._border, self._pace = self._last, 0.0
        #: The newest iteration that is safe on the disk.
        self.saved = 0 if store is None else store.done

    def add(self, metrics: HostMetrics) -> None:
        """The metrics of one more iteration; raises what went wrong with the last checkpoint."""
        known, found = {} if self._store is None else self._store.kinds, kinds(metrics)
        if self._store is not None and known and known != found:
            strange = sorted(name for name in {**known, **found} if known.get(name) != found.get(name))
            raise CheckpointError(f"{self._store.folder} has other metrics than this run ({', '.join(strange[:3])}).")
        self._parts.append(metrics)
        now = time.monotonic()
        self._border, self._pace = now, now - self._border
        if self._writing is not None and self._writing.done():
            self.wait()

    @property
    def due(self) -> bool:
        """Whether it is time for another checkpoint, and the last one is written."""
        due_at = self._last + self._seconds - self._needs
        return self._store is not None and self._writing is None and time.monotonic() + 2.0 * self._pace >= due_at

    def save(self, snapshot: Snapshot, judged: Mapping[str, np.ndarray] | None = None) -> None:
        """Begin to write a checkpoint; the state is checked at once, the rest happens beside training.

        No checkpoint holds NaN or infinity in what is `judged`, by default all of it: one that would ends the run.
        """
        if name := unsound(snapshot.arrays if judged is None else judged, self._exempt):
            raise NonFiniteError(
                f"NaN or infinity in {name} after iteration {snapshot.iteration}: no checkpoint was written. {ADVICE}"
            )
        self.wait()
        parts, self._parts, self._last = self._parts, [], time.monotonic()
        self._writing = self._pool.submit(self._save, snapshot, parts, self._last)

    def _save(self, snapshot: Snapshot, parts: Sequence[HostMetrics], begun: float) -> None:
        assert self._store is not None
        try:
            self._store.save(snapshot, parts)
        except CheckpointError as error:
            raise CheckpointError(
                f"no checkpoint could be written to {self._store.folder} after iteration {snapshot.iteration}: {error}"
            ) from error
        except Exception as error:
            left = steps_in(self._store.folder)
            kept = f"{left[-1].name} is intact" if left else "None is there from before"
            raise CuriaxError(
                f"the checkpoint of iteration {snapshot.iteration} could not be written to {self._store.folder}: "
                f"{reason(error)}. {kept}; see to the disk, then the same command continues."
            ) from error
        self.saved = snapshot.iteration
        needed = time.monotonic() - begun
        likely = max(2.0 * needed, self._needs / 2.0, MARGIN * self._seconds)
        self._needs = min(likely, self._seconds / 2.0)

    def wait(self) -> None:
        """Until the last checkpoint is written; raises what went wrong with it."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def metrics(self) -> list[HostMetrics]:
        """All metrics so far, in order."""
        return [*(self._store.metrics() if self._store is not None else ()), *self._parts]

    def close(self) -> None:
        """End the thread, when what it writes is written."""
        self._pool.shutdown()


def initially_infinite(arrays: Mapping[str, np.ndarray]) -> frozenset[str]:
    """The arrays that hold infinity from the beginning: a constant that a method or a task wants. Nobody wants NaN."""
    return frozenset(
        name
        for name, array in arrays.items()
        if not finite(array) and not np.isnan(array).any() and not name.endswith(("envs.obs", "host.obs", "fleet/obs"))
    )


def finite(array: np.ndarray) -> bool:
    """Whether every entry is; whole numbers and text always are."""
    return array.dtype.kind in "biuSU" or bool(np.isfinite(array).all())


def unsound(arrays: Mapping[str, np.ndarray], exempt: frozenset[str]) -> str:
    """The first array that no checkpoint may hold; empty where there is none."""

    def wrong(name: str, array: np.ndarray) -> bool:
        return not finite(array) and (name not in exempt or bool(np.isnan(array).any()))

    return next((name for name, array in arrays.items() if wrong(name, array)), "")
