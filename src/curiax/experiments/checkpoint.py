"""Checkpoints: everything a run is, put aside between two iterations; complete or not there, and never believed unseen.

    checkpoints/
      lock                                       who works on this run
      metrics/000000000-000000120.safetensors    the metrics of these iterations, written once; a copy in metrics-copy/
      step-000000120/
        arrays/                                  the state after 120 iterations, by Orbax
        step.json                                whose state it is, and a digest of every array and metrics file

A step is made in a hidden folder and renamed, which is the moment from which it exists. Orbax does not notice a
flipped bit in its files, and where it notices damage it does so with pages of noise, so every file is compared with its
digest before Orbax reads it, every array with its own afterwards, and `step.json` with the digest of its own text.
Orbax's manager of steps is not used: arrays and digests must appear by one and the same rename.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from .._errors import CheckpointError, CuriaxError, NonFiniteError, OutputError
from .._files import digest, digest_of_json, read_bytes, read_json, write_whole
from .manifest import Digest, Name, Said, checked

FORMAT = "curiax-checkpoint-1"
CHECKPOINTS, ARRAYS, STEP = "checkpoints", "arrays", "step.json"
#: Metrics are written once and belong to all later steps, so a single file would be as good as all of them: two copies.
COPIES = ("metrics", "metrics-copy")
#: Bytes of one metrics file: far above what is gathered between two checkpoints.
MOST_METRICS = 4 << 30
STEP_NAME = re.compile(r"step-(\d{9,})")

HostMetrics = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Snapshot:
    """The state of a run after so many iterations: arrays on the host by name, and plain facts beside them."""

    iteration: int
    arrays: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The names of what differs between two identities."""
    names = [key for key in new if key != "settings" and old.get(key) != new[key]]
    before, after = old.get("settings") or {}, new.get("settings") or {}
    names += [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


def array_digest(array: np.ndarray) -> dict[str, Any]:
    """An array's shape, type and digest."""
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "digest": digest(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data),
    }


def state_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """One digest of a whole state: two runs with the same one ended with the same bits."""
    text = json.dumps({name: array_digest(array) for name, array in arrays.items()}, sort_keys=True)
    return digest(text.encode())


def file_digests(folder: Path) -> dict[str, str]:
    """A digest of every file in a folder, by its path in it."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): digest(path.read_bytes()) for path in found}


def step_name(iteration: int) -> str:
    """The folder of a step; names sort as numbers do."""
    return f"step-{iteration:09d}"


def synced(path: Path) -> None:
    """Wait until a file or the entries of a folder are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def discard(path: Path) -> None:
    """Remove a folder so that it is never seen half removed."""
    hidden = path.with_name(f".old-{path.name}-{uuid.uuid4().hex[:8]}")
    os.replace(path, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


# --- writing ----------------------------------------------------------------------------------------------


def finite(array: np.ndarray) -> bool:
    """Whether every entry is; whole numbers and text always are."""
    return array.dtype.kind in "biuSU" or bool(np.isfinite(array).all())


def refuse_nonfinite(snapshot: Snapshot, exempt: frozenset[str]) -> None:
    """No checkpoint holds NaN or infinity, but for arrays that were begun with one on purpose."""
    for name, array in snapshot.arrays.items():
        if name not in exempt and not finite(array):
            raise NonFiniteError(
                f"NaN or infinity in {name} after iteration {snapshot.iteration}: no checkpoint was written. Look for "
                "divisions by 0, logarithms, overflow, or a learning rate that is too high."
            )


def by_type(listed: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The names of arrays for each of their types, in a fixed order."""
    found: dict[str, list[str]] = {}
    for name, kind in sorted(listed):
        found.setdefault(kind, []).append(name)
    return found


def write_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Arrays by Orbax, those of one type joined in one row: it takes time and memory for each array it writes."""
    import orbax.checkpoint as ocp

    groups = by_type((name, array.dtype.name) for name, array in arrays.items())
    rows = {kind: np.concatenate([arrays[name].reshape(-1) for name in names]) for kind, names in groups.items()}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as writer:
        # Nothing is lost with an empty row, which Orbax refuses: the names and shapes are in `step.json`.
        writer.save(folder.absolute(), args=ocp.args.PyTreeSave({kind: row for kind, row in rows.items() if row.size}))


def read_arrays(folder: Path, listed: Mapping[str, Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """The arrays that a `step.json` lists."""
    import orbax.checkpoint as ocp

    sizes = {name: math.prod(about["shape"]) for name, about in listed.items()}
    groups = by_type((name, about["dtype"]) for name, about in listed.items())
    wanted = {
        kind: ocp.RestoreArgs(restore_type=np.ndarray) for kind, names in groups.items() if any(map(sizes.get, names))
    }
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        rows = reader.restore(folder.absolute(), args=ocp.args.PyTreeRestore(restore_args=wanted))
    found = {}
    for kind, names in groups.items():
        row = rows.get(kind, np.zeros(0, kind))
        if row.size != sum(sizes[name] for name in names):
            raise CheckpointError(f"holds {row.size} entries of {kind}, not as many as it should")
        ends = np.cumsum([sizes[name] for name in names])
        for name, part in zip(names, np.split(row, ends[:-1]), strict=True):
            found[name] = part.reshape(listed[name]["shape"])
    return found


class Checkpoints:
    """The checkpoints of one run, below one folder, written by one process at a time."""

    def __init__(self, folder: Path, identity: Mapping[str, Any], keep: int) -> None:
        self.folder, self.identity, self.keep = folder, dict(identity), keep
        #: The metrics files so far: `(first, last, name, digest)`, `last` exclusive.
        self.segments: list[dict[str, Any]] = []

    @property
    def done(self) -> int:
        """Iterations whose metrics are on the disk."""
        return self.segments[-1]["last"] if self.segments else 0

    def save(self, snapshot: Snapshot, chunks: Sequence[HostMetrics]) -> None:
        """One more step: the metrics since the last one, then the state; the oldest step goes."""
        self._add_metrics(snapshot.iteration, chunks)
        stage = self.folder / f".writing-{uuid.uuid4().hex[:8]}"
        try:
            stage.mkdir()
            write_arrays(stage / ARRAYS, snapshot.arrays)
            body = {
                "iteration": snapshot.iteration,
                "identity": self.identity,
                "facts": dict(snapshot.facts),
                "arrays": {name: array_digest(array) for name, array in snapshot.arrays.items()},
                "files": file_digests(stage / ARRAYS),
                "metrics": self.segments,
            }
            write_whole(stage / STEP, sealed(body))
            target = self.folder / step_name(snapshot.iteration)
            if target.exists():
                discard(target)
            os.replace(stage, target)
            synced(self.folder)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
        for old in steps_in(self.folder)[: -self.keep]:
            discard(old)

    def _add_metrics(self, last: int, chunks: Sequence[HostMetrics]) -> None:
        import safetensors.numpy

        if last == self.done:
            return
        data = safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in joined(chunks).items()})
        name = f"{self.done:09d}-{last:09d}.safetensors"
        for copy in COPIES:
            (self.folder / copy).mkdir(exist_ok=True)
            write_whole(self.folder / copy / name, data)
        self.segments = [*self.segments, {"first": self.done, "last": last, "name": name, "digest": digest(data)}]

    def metrics(self) -> list[dict[str, np.ndarray]]:
        """The metrics of all steps so far, in order."""
        return [read_segment(self.folder, segment) for segment in self.segments]

    def layout(self) -> int | None:
        """The layout of devices that a run was begun with; None for a new one. Refuses the steps of another run.

        Reads no arrays: JAX's devices, which must be chosen before any array exists, are chosen by it.
        """
        others = []
        for step in steps_in(self.folder)[::-1]:
            try:
                body = unsealed(step / STEP)
            except CheckpointError:
                continue
            if body["identity"] == self.identity:
                return body["facts"]["layout"]
            others.append(body["identity"])
        if others:
            raise OutputError(
                f"{self.folder.parent} holds another run, which is not finished and is left untouched (it differs in "
                f"{difference(others[0], self.identity)}): choose another --out."
            )
        return None

    def newest(self, tell: Callable[[str], None]) -> Snapshot | None:
        """The newest sound step; damaged ones are named, set aside, and the one before is used.

        None where no step was ever written. Where there are some and none is sound, the run is refused and nothing
        is touched.
        """
        found = steps_in(self.folder)[::-1]
        damaged: list[tuple[Path, str]] = []
        for step in found:
            try:
                snapshot, segments = read_step(self.folder, step, self.identity)
            except CheckpointError as error:
                damaged.append((step, str(error)))
                continue
            for path, why in damaged:
                set_aside = path.with_name(f"damaged-{path.name}-{uuid.uuid4().hex[:4]}")
                os.replace(path, set_aside)
                tell(
                    f"checkpoint {path} is damaged ({why}): set aside as {set_aside.name}, {step.name} is used instead."
                )
            self.segments = segments
            self._clean()
            return snapshot
        if damaged:
            raise CheckpointError(
                f"no checkpoint in {self.folder} is sound: "
                + "; ".join(f"{path.name}: {why}" for path, why in damaged)
                + ". Nothing was touched. Restore the folder from a copy, or remove it to begin anew."
            )
        self._clean()
        return None

    def _clean(self) -> None:
        """Remove what a killed process left half done, and metrics beyond the step that is continued."""
        for path in self.folder.iterdir():
            if path.name.startswith((".writing-", ".old-")):
                shutil.rmtree(path, ignore_errors=True)
        known = {segment["name"] for segment in self.segments}
        for folder in (self.folder / copy for copy in COPIES):
            for path in folder.iterdir() if folder.is_dir() else ():
                if path.name not in known:
                    path.unlink(missing_ok=True)


def steps_in(folder: Path) -> list[Path]:
    """The steps in a folder of checkpoints, oldest first."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if STEP_NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(path.name.partition("-")[2]))


# --- reading ----------------------------------------------------------------------------------------------


class ArraySaid(Said):
    """An array in a `step.json`."""

    shape: list[Annotated[int, Field(ge=0)]]
    dtype: Annotated[str, Field(pattern=r"^(bool|bfloat16|(float|u?int)\d{1,2})$")]
    digest: Digest


class SegmentSaid(Said):
    """A file of metrics; its name is no path."""

    first: Annotated[int, Field(ge=0)]
    last: Annotated[int, Field(ge=1)]
    name: Annotated[str, Field(pattern=r"^\d{9,12}-\d{9,12}\.safetensors$")]
    digest: Digest


class SecondsSaid(Said):
    """Times of the sessions so far."""

    start: float
    train: float
    cpu: float


class FactsSaid(Said):
    """What a later session must know."""

    layout: Annotated[int, Field(ge=1)]
    lost: dict[Annotated[str, Field(pattern=r"^\d{1,10}$")], str]
    versions: dict[str, str]
    platform: Name
    started: Name
    seconds: SecondsSaid
    continued: list[dict[str, Any]]
    on_nonfinite: list[str]


class StepSaid(Said):
    """What a `step.json` must say."""

    iteration: Annotated[int, Field(ge=1)]
    identity: dict[str, Any]
    facts: FactsSaid
    arrays: dict[str, ArraySaid]
    files: dict[str, Digest]
    metrics: list[SegmentSaid]

    @model_validator(mode="after")
    def _whole(self) -> StepSaid:
        borders = [0, *(segment.last for segment in self.metrics)]
        if [segment.first for segment in self.metrics] != borders[:-1] or borders[-1] != self.iteration:
            raise ValueError("the metrics are not those of all iterations")
        return self


def sealed(body: Mapping[str, Any]) -> bytes:
    """A JSON file that holds the digest of its own body."""
    return json.dumps({"format": FORMAT, "digest": digest_of_json(body), "body": body}).encode()


def unsealed(path: Path) -> dict[str, Any]:
    """The body of a `step.json`, whole and unchanged."""
    try:
        outer = read_json(path, "")
    except OutputError as error:
        raise CheckpointError(f"{path.name} cannot be read ({reason(error)})") from None
    if not isinstance(outer, dict) or outer.get("format") != FORMAT or not isinstance(outer.get("body"), dict):
        raise CheckpointError(f"{path.name} is not of the format {FORMAT}")
    if digest_of_json(outer["body"]) != outer.get("digest"):
        raise CheckpointError(f"{path.name} does not match its digest")
    checked(StepSaid, outer["body"], lambda why: CheckpointError(f"{path.name} is not what Curiax writes ({why})"))
    return outer["body"]


def read_step(folder: Path, step: Path, identity: Mapping[str, Any]) -> tuple[Snapshot, list[dict[str, Any]]]:
    """The state of a step and the list of its metrics files, every digest compared."""
    body = unsealed(step / STEP)
    if body["identity"] != dict(identity):
        raise CheckpointError(f"{STEP} belongs to another run")
    if step.name != step_name(body["iteration"]):
        raise CheckpointError(f"{STEP} belongs to {step_name(body['iteration'])}")
    found = file_digests(step / ARRAYS)
    for name in sorted({*found, *body["files"]}):
        if found.get(name) != body["files"].get(name):
            raise CheckpointError(f"{ARRAYS}/{name} {'does not match its digest' if name in found else 'is missing'}")
    try:
        arrays = read_arrays(step / ARRAYS, body["arrays"])
    except CheckpointError:
        raise
    except Exception as error:  # Orbax and TensorStore raise whatever their parsers do
        raise CheckpointError(f"{ARRAYS} cannot be read ({reason(error)})") from None
    for name, about in body["arrays"].items():
        if array_digest(arrays[name]) != about:
            raise CheckpointError(f"{ARRAYS}: {name} does not match its digest")
    for segment in body["metrics"]:
        check_segment(folder, segment)
    return Snapshot(body["iteration"], arrays, body["facts"]), body["metrics"]


def check_segment(folder: Path, segment: Mapping[str, Any]) -> bytes:
    """The bytes of a metrics file, compared with its digest: of the first of its copies that matches."""
    trouble = []
    for copy in COPIES:
        try:
            data = read_bytes(folder / copy / segment["name"], MOST_METRICS, "")
        except OutputError:
            trouble.append(f"{copy}/{segment['name']} cannot be read")
            continue
        if digest(data) == segment["digest"]:
            return data
        trouble.append(f"{copy}/{segment['name']} does not match its digest")
    raise CheckpointError(", ".join(trouble))


def read_segment(folder: Path, segment: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of a metrics file."""
    import safetensors.numpy

    return safetensors.numpy.load(check_segment(folder, segment))


def reason(error: BaseException) -> str:
    """An exception in a few words."""
    said = getattr(error, "strerror", None) or (str(error).strip().splitlines() or [""])[0][:200]
    return f"{type(error).__name__}: {said}"


# --- keeping ----------------------------------------------------------------------------------------------


class Keeper:
    """Keeps the metrics of a run and writes checkpoints beside training, in one thread, never two at a time.

    Metrics that a checkpoint holds leave the memory; without a store all stay there, and no checkpoint is ever due.
    """

    def __init__(self, store: Checkpoints | None, seconds: float, exempt: frozenset[str] = frozenset()) -> None:
        self._store, self._seconds, self._exempt = store, seconds, exempt
        self._chunks: list[HostMetrics] = []
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="curiax-checkpoint")
        self._writing: Future[None] | None = None
        self._last = time.monotonic()
        #: The newest iteration that is safe on the disk.
        self.saved = 0 if store is None else store.done

    def add(self, metrics: HostMetrics) -> None:
        """The metrics of one more chunk; raises what went wrong with the last checkpoint."""
        self._chunks.append(metrics)
        if self._writing is not None and self._writing.done():
            self.wait()

    @property
    def due(self) -> bool:
        """Whether it is time for another checkpoint, and the last one is written."""
        waited = time.monotonic() - self._last
        return self._store is not None and self._writing is None and waited >= self._seconds

    def save(self, snapshot: Snapshot) -> None:
        """Begin to write a checkpoint; the state is checked at once, the rest happens beside training."""
        refuse_nonfinite(snapshot, self._exempt)
        self.wait()
        chunks, self._chunks, self._last = self._chunks, [], time.monotonic()
        self._writing = self._pool.submit(self._save, snapshot, chunks)

    def _save(self, snapshot: Snapshot, chunks: Sequence[HostMetrics]) -> None:
        assert self._store is not None
        try:
            self._store.save(snapshot, chunks)
        except Exception as error:
            left = steps_in(self._store.folder)
            kept = f"{left[-1].name} is intact" if left else "None is there from before"
            raise CuriaxError(
                f"the checkpoint of iteration {snapshot.iteration} could not be written to {self._store.folder}: "
                f"{reason(error)}. {kept}; see to the disk, then the same command continues."
            ) from error
        self.saved = snapshot.iteration

    def wait(self) -> None:
        """Until the last checkpoint is written; raises what went wrong with it."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def metrics(self) -> list[HostMetrics]:
        """All metrics so far, in order."""
        return [*(self._store.metrics() if self._store is not None else ()), *self._chunks]

    def close(self) -> None:
        """End the thread, when what it writes is written."""
        self._pool.shutdown()


def exempt_from(arrays: Mapping[str, np.ndarray]) -> frozenset[str]:
    """The arrays that hold NaN or infinity from the beginning: a constant that a method wants so."""
    return frozenset(name for name, array in arrays.items() if not finite(array))


def joined(chunks: Iterable[HostMetrics]) -> dict[str, np.ndarray]:
    """Metrics of consecutive chunks as one; zeros where a chunk has no such metric, as counts of masked steps."""
    listed = list(chunks)
    examples = {name: array for chunk in listed for name, array in chunk.items()}
    lengths = [next(iter(chunk.values())).shape[1] for chunk in listed]

    def part(chunk: HostMetrics, name: str, length: int) -> np.ndarray:
        example = examples[name]
        return chunk[name] if name in chunk else np.zeros((len(example), length, *example.shape[2:]), example.dtype)

    return {
        name: np.concatenate([part(chunk, name, k) for chunk, k in zip(listed, lengths, strict=True)], axis=1)
        for name in examples
    }
