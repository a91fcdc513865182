"""Checkpoints: everything a run is, put aside between two iterations; complete or not there, and never believed unseen.

    checkpoints/
      lock                                       who works on this run
      metrics/000000000-000000120.safetensors    the metrics of these iterations, written once; a copy in metrics-copy/
      step-000000120/
        arrays/                                  the state after 120 iterations, by Orbax
        step.json                                whose state it is, and a digest of every array and metrics file

A step is made in a hidden folder and renamed, which is the moment from which it exists. Orbax's manager of steps is not
used: arrays and digests must appear by one and the same rename.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import CheckpointError, OutputError
from .._files import digest, write_whole
from .arrays import array_digest, write_arrays
from .step import (
    ARRAYS,
    COPIES,
    STEP,
    Kinds,
    Snapshot,
    file_digests,
    kinds,
    read_segment,
    read_step,
    sealed,
    step_name,
    unsealed,
)

CHECKPOINTS = "checkpoints"
RESTORE = "Restore the folder from a copy, or remove it to begin anew."
STEP_NAME = re.compile(r"step-(\d{9,})")

LOCK, HOLDER, FINISHED = "lock", "holder.txt", ".finished"
#: What a step is called, damaged, being written or being removed; and what may be in one.
STEP_LIKE = re.compile(
    r"step-\d{9,}|damaged-step-\d{9,}-[0-9a-f]{4}|\.writing-[0-9a-f]{8}|\.old-step-\d{9,}-[0-9a-f]{8}"
)
IN_STEP = re.compile(r"arrays|step\.json|\.step\.json-\w{8}")
#: What a finished run is put together of, aside.
IN_FINISHED = re.compile(
    r"(manifest\.json|metrics\.parquet|agents\.json|agents\.safetensors)|\.(manifest|metrics|agents)\.\w+-\w{8}"
)
#: A file of metrics, and one that is being written.
SEGMENT_NAME = re.compile(r"\d{9,}-\d{9,}\.safetensors|\.\d{9,}-\d{9,}\.safetensors-\w{8}")

HostMetrics = Mapping[str, np.ndarray]


class Checkpoints:
    """The checkpoints of one run, below one folder, written by one process at a time."""

    def __init__(self, folder: Path, identity: Mapping[str, Any], keep: int) -> None:
        self.folder, self.identity, self.keep = folder, dict(identity), keep
        #: The metrics files so far: `(first, last, name, digest)`, `last` exclusive.
        self.segments: list[dict[str, Any]] = []
        #: The names and kinds of the metrics in them, as far as they were read.
        self.kinds: Kinds = {}

    @property
    def done(self) -> int:
        """Iterations whose metrics are on the disk."""
        return self.segments[-1]["last"] if self.segments else 0

    def save(self, snapshot: Snapshot, parts: Sequence[HostMetrics]) -> None:
        """One more step: the metrics since the last one, then the state; the oldest step goes."""
        for segment in self.segments:
            if not any((self.folder / copy / segment["name"]).exists() for copy in COPIES):
                raise CheckpointError(f"{segment['name']}, which holds metrics of before, has vanished. {RESTORE}")
        self._add_metrics(snapshot.iteration, parts)
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
            if is_ours(old):
                discard(old)

    def _add_metrics(self, last: int, parts: Sequence[HostMetrics]) -> None:
        import safetensors.numpy

        if last == self.done:
            return
        data = safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in joined(parts).items()})
        name = f"{self.done:09d}-{last:09d}.safetensors"
        for copy in COPIES:
            (self.folder / copy).mkdir(exist_ok=True)
            write_whole(self.folder / copy / name, data)
        self.segments = [*self.segments, {"first": self.done, "last": last, "name": name, "digest": digest(data)}]

    def metrics(self) -> list[dict[str, np.ndarray]]:
        """The metrics of all steps so far, in order."""
        try:
            return [read_segment(self.folder, segment) for segment in self.segments]
        except CheckpointError as error:
            raise CheckpointError(f"the metrics in {self.folder} cannot be used: {error}. {RESTORE}") from None

    def layout(self) -> int | None:
        """How many devices a run was begun with; None for a new one. Refuses the steps of another run.

        Reads no arrays: JAX's devices, which must be chosen before any array exists, are chosen by it.
        """
        others = []
        for step in steps_in(self.folder)[::-1]:
            try:
                body = unsealed(step / STEP)
            except CheckpointError:
                continue
            if body["identity"] == self.identity:
                return max(body["facts"]["layout"], body["facts"].get("team", 1))
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
            self.kinds = kinds(read_segment(self.folder, segments[-1]))
            self._clean()
            return snapshot
        if damaged:
            raise CheckpointError(
                f"no checkpoint in {self.folder} is sound: "
                + "; ".join(f"{path.name}: {why}" for path, why in damaged)
                + f". Nothing was touched. {RESTORE}"
            )
        self._clean()
        return None

    def _clean(self) -> None:
        """Remove what a killed process left half done, and metrics beyond the step that is continued."""
        for path in self.folder.iterdir():
            if path.name.startswith((".writing-", ".old-")) and is_ours(path):
                shutil.rmtree(path, ignore_errors=True)
        known = {segment["name"] for segment in self.segments}
        for folder in (self.folder / copy for copy in COPIES):
            for path in folder.iterdir() if folder.is_dir() else ():
                if path.name not in known and is_segment(path):
                    path.unlink(missing_ok=True)


def steps_in(folder: Path) -> list[Path]:
    """The steps in a folder of checkpoints, oldest first; somebody else's folder of such a name holds none of it."""
    if not folder.is_dir():
        return []
    found = [
        path
        for path in folder.iterdir()
        if STEP_NAME.fullmatch(path.name) and any((path / part).exists() for part in (STEP, ARRAYS))
    ]
    return sorted(found, key=lambda path: int(path.name.partition("-")[2]))


def foreign(folder: Path) -> list[Path]:
    """What lies in a folder of checkpoints and was not put there by Curiax."""
    if not folder.is_dir():
        return [folder] if folder.exists() or folder.is_symlink() else []
    found = []
    for path in folder.iterdir():
        if path.name in COPIES and is_folder(path):
            found += [inner for inner in path.iterdir() if not is_segment(inner)]
        elif not is_ours(path):
            found.append(path)
    return found


def is_folder(path: Path) -> bool:
    """A folder, and no link to one."""
    return path.is_dir() and not path.is_symlink()


def is_segment(path: Path) -> bool:
    """Whether a file in a folder of metrics was made by Curiax."""
    return bool(SEGMENT_NAME.fullmatch(path.name)) and path.is_file() and not path.is_symlink()


def is_ours(path: Path) -> bool:
    """Whether something in a folder of checkpoints was made by Curiax, by its name and by the names of all in it."""
    if path.name in (LOCK, HOLDER):
        return path.is_file() and not path.is_symlink()
    inside = IN_STEP if STEP_LIKE.fullmatch(path.name) else IN_FINISHED if path.name == FINISHED else None
    return inside is not None and is_folder(path) and all(inside.fullmatch(inner.name) for inner in path.iterdir())


def discard(path: Path) -> None:
    """Remove a folder so that it is never seen half removed."""
    hidden = path.with_name(f".old-{path.name}-{uuid.uuid4().hex[:8]}")
    os.replace(path, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def synced(path: Path) -> None:
    """Wait until a file or the entries of a folder are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The names of what differs between two identities."""
    names = [key for key in new if key != "settings" and old.get(key) != new[key]]
    before, after = old.get("settings") or {}, new.get("settings") or {}
    names += [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


def joined(parts: Iterable[HostMetrics]) -> dict[str, np.ndarray]:
    """Metrics of consecutive iterations as one; zeros where one has no such metric, as counts of masked steps."""
    listed = list(parts)
    examples = {name: array for one in listed for name, array in one.items()}
    lengths = [next(iter(one.values())).shape[1] for one in listed]

    def part(one: HostMetrics, name: str, length: int) -> np.ndarray:
        example = examples[name]
        return one[name] if name in one else np.zeros((len(example), length, *example.shape[2:]), example.dtype)

    return {
        name: np.concatenate([part(one, name, k) for one, k in zip(listed, lengths, strict=True)], axis=1)
        for name in examples
    }
