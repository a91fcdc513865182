"""Checkpoints on the disk: everything a run is, put aside between two iterations; complete or not there.

    checkpoints/
      made-by-curiax.txt                         without it nothing is removed from here
      lock, holder.txt                           who works on this run
      metrics/000000000-000000120.safetensors    the metrics of these iterations, written once; a copy in metrics-copy/
      step-000000120/
        state.safetensors                        the state after 120 iterations
        step.json                                whose state it is; digests of the state, of all metrics, of itself

A step is made in a hidden folder and renamed: from then on it exists, and all that it relies on is on the disk. Before
anything of it is used, every file is compared with its digest.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from .._errors import CheckpointError, OutputError
from .._files import MARK, digest, digest_of_json, marked, pack, read_bytes, read_json, sync_folder, unpack, write_whole
from .manifest import Digest, Name, Notes, Schema, Seconds, checked
from .options import OnNonfinite

FORMAT = "curiax-checkpoint-3"
CHECKPOINTS, LOCK, HOLDER = "checkpoints", "lock", "holder.txt"
STATE, STEP = "state.safetensors", "step.json"
#: Metrics are written once and belong to all later steps, so a single file would be as good as all of them: two copies.
COPIES = ("metrics", "metrics-copy")
#: Bytes of a state, and of the metrics between two checkpoints: far above what they are.
MOST_STATE, MOST_METRICS = 64 << 30, 4 << 30
RESTORE = "Restore the folder from a copy, or remove it to begin anew."
OLDER = "was written by Curiax 0.4 or older"

STEP_NAME = re.compile(r"step-(\d{9,})")
#: Everything that Curiax puts into a folder of checkpoints, by its path in it; what a killed write leaves included.
FOLDERS = re.compile(
    r"metrics(-copy)?|(\.old-|damaged-)?step-\d{9,}(-[0-9a-f]{4,8})?|\.(writing|old)-[0-9a-f]{8}|\.finished"
)
FILES = re.compile(
    r"lock|holder\.txt|made-by-curiax\.txt|\.made-by-curiax\.txt-\w{8}"
    r"|metrics(-copy)?/(\d{9,}-\d{9,}\.safetensors|\.\d{9,}-\d{9,}\.safetensors-\w{8})"
    r"|((damaged-|\.)?(step|writing|old)-[\w-]+|\.finished)/"
    r"((state|agents)\.safetensors|(step|manifest|agents)\.json|metrics\.parquet"
    r"|\.(state\.safetensors|agents\.safetensors|(step|manifest|agents)\.json|metrics\.parquet)-\w{8})"
)
#: What Orbax wrote for versions before 0.5, in a step or where one was made: their finished runs may still have some.
ORBAX = re.compile(
    r"(step-\d{9,}|\.writing-[0-9a-f]{8}|\.old-step-\d{9,}-[0-9a-f]{8})/arrays(\.orbax-checkpoint-tmp(-\d+)?)?"
    r"(/(ocdbt\.process_\d+|array_metadatas|d|[0-9a-f]{32}|process_\d+|manifest\.ocdbt|_[A-Z_a-z]+|commit_success\.txt))*"
)

HostMetrics = Mapping[str, np.ndarray]
#: Of each metric that every iteration has: its type, and its shape beyond seeds and iterations.
Kinds = dict[str, tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class Snapshot:
    """The state of a run after so many iterations: arrays on the host by name, and plain facts beside them."""

    iteration: int
    arrays: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]


class StateSchema(Schema):
    """The file of a state."""

    bytes: Annotated[int, Field(ge=1, le=MOST_STATE)]
    digest: Digest
    #: Arrays whose types safetensors has no NumPy name for: they lie in it as whole numbers of the same width.
    types: dict[Name, Annotated[str, Field(pattern=r"^(bfloat16|float8_\w{1,16})$")]]


class SegmentSchema(Schema):
    """A file of metrics; its name is no path."""

    first: Annotated[int, Field(ge=0)]
    last: Annotated[int, Field(ge=1)]
    name: Annotated[str, Field(pattern=r"^\d{9,12}-\d{9,12}\.safetensors$")]
    digest: Digest


class SecondsSchema(Schema):
    """Times of the sessions so far."""

    start: Seconds
    train: Seconds
    cpu: Seconds


class FactsSchema(Schema):
    """What a later session must know."""

    layout: Annotated[int, Field(ge=1, le=65_536)]
    team: Annotated[int, Field(ge=1, le=65_536)]
    lost: dict[Annotated[str, Field(pattern=r"^\d{1,10}$")], str]
    versions: dict[str, str]
    notes: Notes
    code: Digest
    platform: Name
    started: Name
    seconds: SecondsSchema
    continued: list[dict[str, Any]]
    on_nonfinite: list[OnNonfinite]


class StepSchema(Schema):
    """What a `step.json` must say."""

    iteration: Annotated[int, Field(ge=1)]
    identity: dict[str, Any]
    facts: FactsSchema
    state: StateSchema
    metrics: list[SegmentSchema]

    @model_validator(mode="after")
    def _whole(self) -> StepSchema:
        borders = [0, *(segment.last for segment in self.metrics)]
        if [segment.first for segment in self.metrics] != borders[:-1] or borders[-1] != self.iteration:
            raise ValueError("the metrics are not those of all iterations")
        seeds = self.identity.get("seeds")
        if not isinstance(seeds, list) or self.facts.layout > len(seeds):
            raise ValueError("it has more devices than seeds")
        if not set(self.facts.lost) <= set(map(str, seeds)):
            raise ValueError("a lost seed is not one of its seeds")
        return self


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
        """Write one more step: the metrics since the last one, then the state; then the oldest step goes."""
        for segment in self.segments:
            if not any((self.folder / copy / segment["name"]).exists() for copy in COPIES):
                raise CheckpointError(f"{segment['name']}, which holds metrics of before, has vanished. {RESTORE}")
        self._add_metrics(snapshot.iteration, parts)
        data, types = packed_state(snapshot.arrays)
        body = {
            "iteration": snapshot.iteration,
            "identity": self.identity,
            "facts": dict(snapshot.facts),
            "state": {"bytes": len(data), "digest": digest(data), "types": types},
            "metrics": self.segments,
        }
        target = self.folder / f"step-{snapshot.iteration:09d}"
        with staged(self.folder) as stage:
            write_whole(stage / STATE, data)
            write_whole(stage / STEP, sealed(body))
            sync_folder(stage)
            # Damaged steps were set aside: what has this name now is somebody else's.
            if os.path.lexists(target):
                raise CheckpointError(f"{target} is there already and was not put there by Curiax: move it away")
            sync_folder(self.folder)
            os.replace(stage, target)
            sync_folder(self.folder)
        ours = [step for step in steps_in(self.folder) if step <= target and not foreign(self.folder, step)]
        for old in ours[: -self.keep]:
            discard(old)

    def _add_metrics(self, last: int, parts: Sequence[HostMetrics]) -> None:
        if last == self.done:
            return
        data, name = pack(joined(parts)), f"{self.done:09d}-{last:09d}.safetensors"
        for copy in COPIES:
            self._write_metrics(copy, name, data)
        self.segments = [*self.segments, {"first": self.done, "last": last, "name": name, "digest": digest(data)}]

    def _write_metrics(self, copy: str, name: str, data: bytes) -> None:
        folder = self.folder / copy
        if folder.is_symlink():
            raise CheckpointError(f"{folder} is a link, and Curiax makes none: remove it")
        folder.mkdir(exist_ok=True)
        write_whole(folder / name, data)
        sync_folder(folder)

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
                return max(body["facts"]["layout"], body["facts"]["team"])
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
        damaged: list[tuple[Path, str]] = []
        snapshot, used = None, ""
        for step in steps_in(self.folder)[::-1]:
            try:
                snapshot, self.segments, self.kinds = read_step(self.folder, step, self.identity)
                used = step.name
                break
            except CheckpointError as error:
                damaged.append((step, str(error)))
        if damaged and all(OLDER in why for _, why in damaged):
            raise CheckpointError(
                f"{self.folder} holds checkpoints of Curiax 0.4 or older, and only that version can go on with them: "
                "finish the run with it, or choose another --out. Nothing was touched."
            )
        if damaged and not used:
            raise CheckpointError(
                f"no checkpoint in {self.folder} is sound: "
                + "; ".join(f"{path.name}: {why}" for path, why in damaged)
                + f". Nothing was touched. {RESTORE}"
            )
        for path, why in damaged:
            aside = path.with_name(f"damaged-{path.name}-{uuid.uuid4().hex[:4]}")
            os.replace(path, aside)
            tell(f"checkpoint {path} is damaged ({why}): set aside as {aside.name}, {used} is used instead.")
        self._mend_metrics(tell)
        clear(self.folder, self._needed)
        return snapshot

    def _mend_metrics(self, tell: Callable[[str], None]) -> None:
        """Write a damaged copy of metrics again, from the other one: that may be damaged later."""
        for segment in self.segments:
            name = segment["name"]
            copies = {copy: sound_copy(self.folder / copy / name, segment) for copy in COPIES}
            (good, *_) = [data for data in copies.values() if data is not None]
            for copy in (copy for copy, data in copies.items() if data is None):
                self._write_metrics(copy, name, good)
                tell(f"{self.folder / copy / name} was damaged or gone: it was written again from its other copy.")

    def _needed(self, name: str) -> bool:
        """Whether a path below the folder is more than what a killed process left half done."""
        top, _, file = name.partition("/")
        if top in COPIES:
            return not file or file in {segment["name"] for segment in self.segments}
        return not top.startswith(".")


def packed_state(arrays: Mapping[str, np.ndarray]) -> tuple[bytes, dict[str, str]]:
    """A state as a safetensors file, and the types of the arrays that it holds as whole numbers of their width."""
    types = {name: array.dtype.name for name, array in arrays.items() if array.dtype.kind == "V"}
    plain = {name: a.view(f"u{a.dtype.itemsize}") if name in types else a for name, a in arrays.items()}
    return pack(plain), types


def sealed(body: Mapping[str, Any]) -> bytes:
    """A JSON file that holds the digest of its own body."""
    return json.dumps({"format": FORMAT, "digest": digest_of_json(body), "body": body}).encode()


def unsealed(path: Path) -> dict[str, Any]:
    """The body of a `step.json`, whole and unchanged."""
    try:
        outer = read_json(path, "")
    except OutputError as error:
        raise CheckpointError(f"{path.name} cannot be read ({reason(error)})") from None
    tag = outer.get("format") if isinstance(outer, dict) else None
    if tag in ("curiax-checkpoint-1", "curiax-checkpoint-2"):
        raise CheckpointError(f"{path.name} {OLDER}")
    if tag != FORMAT or not isinstance(outer.get("body"), dict):
        raise CheckpointError(f"{path.name} is not of the format {FORMAT}")
    if digest_of_json(outer["body"]) != outer.get("digest"):
        raise CheckpointError(f"{path.name} does not match its digest")
    checked(StepSchema, outer["body"], lambda why: CheckpointError(f"{path.name} is not what Curiax writes ({why})"))
    return outer["body"]


def read_step(folder: Path, step: Path, identity: Mapping[str, Any]) -> tuple[Snapshot, list[dict[str, Any]], Kinds]:
    """The state of a step, the list of its metrics files and the kinds of these metrics; every digest compared."""
    body = unsealed(step / STEP)
    if body["identity"] != dict(identity):
        raise CheckpointError(f"{STEP} belongs to another run")
    if step.name != f"step-{body['iteration']:09d}":
        raise CheckpointError(f"{STEP} belongs to step-{body['iteration']:09d}")
    about = body["state"]
    try:
        data = read_bytes(step / STATE, about["bytes"], "", holes=True)
    except OutputError as error:
        raise CheckpointError(f"{STATE} cannot be read ({reason(error)})") from None
    if digest(data) != about["digest"]:
        raise CheckpointError(f"{STATE} does not match its digest")
    try:
        arrays = unpack(data)
        arrays |= {name: arrays[name].view(np.dtype(kind)) for name, kind in about["types"].items()}
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{STATE} is not what Curiax writes ({reason(error)})") from None
    known: Kinds = {}
    for segment in body["metrics"]:
        segment_kinds = check_metrics(read_segment(folder, segment), segment, len(body["identity"]["seeds"]))
        if known and segment_kinds != known:
            raise CheckpointError(f"{segment['name']} has other metrics than those before it")
        known = segment_kinds
    return Snapshot(body["iteration"], arrays, body["facts"]), body["metrics"], known


def read_segment(folder: Path, segment: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of a metrics file: of the first of its copies that matches its digest."""
    name = segment["name"]
    for copy in COPIES:
        if (data := sound_copy(folder / copy / name, segment)) is not None:
            try:
                return unpack(data)
            except ValueError as error:
                raise CheckpointError(f"{name} cannot be read ({reason(error)})") from None
    raise CheckpointError(f"neither copy of {name} is there and matches its digest")


def sound_copy(file: Path, segment: Mapping[str, Any]) -> bytes | None:
    """The bytes of one copy of a metrics file, if they are what was written."""
    try:
        data = read_bytes(file, MOST_METRICS, "")
    except OutputError:
        return None
    return data if digest(data) == segment["digest"] else None


def check_metrics(arrays: HostMetrics, segment: Mapping[str, Any], seeds: int) -> Kinds:
    """The kinds of a file's metrics; all must have something for every seed and iteration."""
    length = segment["last"] - segment["first"]
    for name, array in arrays.items():
        if array.shape[:2] != (seeds, length):
            raise CheckpointError(f"{segment['name']}: {name[:100]} is not of {seeds} seeds and {length} iterations")
    found = kinds(arrays)
    if not found:
        raise CheckpointError(f"{segment['name']} is empty")
    return found


def kinds(metrics: HostMetrics) -> Kinds:
    """The names and kinds of the metrics that every iteration has."""
    return {name: (array.dtype.name, array.shape[2:]) for name, array in metrics.items()}


def joined(parts: Iterable[HostMetrics]) -> dict[str, np.ndarray]:
    """Metrics of consecutive iterations as one."""
    listed = list(parts)
    return {name: np.concatenate([one[name] for one in listed], axis=1) for name in (listed[0] if listed else ())}


def state_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """One digest of a whole state: two runs with the same one ended with the same bits."""

    def about(array: np.ndarray) -> dict[str, Any]:
        row = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return {"shape": list(array.shape), "dtype": array.dtype.name, "digest": digest(row.data)}

    return digest(json.dumps({name: about(array) for name, array in arrays.items()}, sort_keys=True).encode())


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A hidden folder to make something in that is then renamed, or moved file by file; gone afterwards."""
    stage = folder / f".writing-{uuid.uuid4().hex[:8]}"
    try:
        stage.mkdir()
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def discard(path: Path) -> None:
    """Remove a folder so that it is never seen half removed."""
    hidden = path.with_name(f".old-{uuid.uuid4().hex[:8]}")
    os.replace(path, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def steps_in(folder: Path) -> list[Path]:
    """The steps in a folder of checkpoints, oldest first; somebody else's folder of such a name holds none of it."""
    if not folder.is_dir():
        return []
    found = [
        path
        for path in folder.iterdir()
        if STEP_NAME.fullmatch(path.name) and any((path / part).exists() for part in (STEP, STATE))
    ]
    return sorted(found, key=lambda path: int(path.name.partition("-")[2]))


def begun(folder: Path) -> bool:
    """Whether Curiax made a folder of checkpoints: it has its mark or, of versions before 0.5, what only they leave."""

    def ours(step: Path) -> bool:
        try:
            return bool(unsealed(step / STEP))
        except CheckpointError as error:
            return OLDER in str(error)

    if folder.is_symlink() or not folder.is_dir():
        return False
    if marked(folder) or any(map(ours, steps_in(folder))):
        return True
    try:
        held = re.fullmatch(rb"process \d+ on .*", read_bytes(folder / HOLDER, 4096, "")) is not None
    except OutputError:
        held = False
    return held or any(ORBAX.fullmatch(name) for name, _, _ in contents(folder, folder))


def contents(folder: Path, start: Path) -> Iterator[tuple[str, Path, bool]]:
    """Everything below `start`, the deepest first: its name in the folder of checkpoints, and whether it is ours."""
    for place, folders, files in os.walk(start, topdown=False):
        for path in (Path(place, name) for name in (*files, *folders)):
            name = path.relative_to(folder).as_posix()
            forms = (FOLDERS if path.is_dir() else FILES, ORBAX)
            yield name, path, not path.is_symlink() and any(form.fullmatch(name) for form in forms)


def foreign(folder: Path, start: Path | None = None) -> list[Path]:
    """What lies in a folder of checkpoints, or below `start` in it, and was not put there by Curiax."""
    if not folder.is_dir():
        return [folder] if folder.exists() or folder.is_symlink() else []
    return [path for _, path, ours in contents(folder, start or folder) if not ours]


def clear(folder: Path, needed: Callable[[str], bool]) -> None:
    """Remove what Curiax has put into a folder of checkpoints and is not needed; what others put there stays.

    The marks go last: a process may be killed meanwhile.
    """
    for name, path, ours in sorted(contents(folder, folder), key=lambda one: one[0] in (HOLDER, MARK)):
        if ours and not needed(name):
            with contextlib.suppress(OSError):  # a folder that others have put something into stays
                path.rmdir() if path.is_dir() else path.unlink()


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The names of what differs between two identities."""
    names = [key for key in new if key != "settings" and old.get(key) != new[key]]
    before, after = old.get("settings") or {}, new.get("settings") or {}
    names += [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


def reason(error: BaseException) -> str:
    """An exception in a few words."""
    message = getattr(error, "strerror", None) or (str(error).strip().splitlines() or [""])[0][:200]
    return f"{type(error).__name__}: {message}"
