"""One step of the checkpoints on the disk: what it says of itself, and how it is read: never believed unseen.

Orbax does not notice a flipped bit in its files, and where it notices damage it does so with pages of noise, so every
file is compared with its digest before Orbax reads it, every array with its own afterwards, and `step.json` with the
digest of its own text.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from .._errors import CheckpointError, OutputError
from .._files import digest, digest_of_json, read_bytes, read_json
from .arrays import array_digest, read_arrays
from .manifest import Digest, Name, Notes, Said, Seconds, checked
from .options import OnNonfinite

FORMAT = "curiax-checkpoint-2"
ARRAYS, STEP = "arrays", "step.json"
#: Metrics are written once and belong to all later steps, so a single file would be as good as all of them: two copies.
COPIES = ("metrics", "metrics-copy")
#: Bytes of one metrics file: far above what is gathered between two checkpoints.
MOST_METRICS = 4 << 30


@dataclass(frozen=True)
class Snapshot:
    """The state of a run after so many iterations: arrays on the host by name, and plain facts beside them."""

    iteration: int
    arrays: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]


def step_name(iteration: int) -> str:
    """The folder of a step; names sort as numbers do."""
    return f"step-{iteration:09d}"


def file_digests(folder: Path) -> dict[str, str]:
    """A digest of every file in a folder, by its path in it."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): digest(path.read_bytes()) for path in found}


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

    start: Seconds
    train: Seconds
    cpu: Seconds


class FactsSaid(Said):
    """What a later session must know."""

    layout: Annotated[int, Field(ge=1, le=65_536)]
    team: Annotated[int, Field(ge=1, le=65_536)] = 1
    lost: dict[Annotated[str, Field(pattern=r"^\d{1,10}$")], str]
    versions: dict[str, str]
    notes: Notes = Field(default_factory=dict)
    code: Digest | None = None
    platform: Name
    started: Name
    seconds: SecondsSaid
    continued: list[dict[str, Any]]
    on_nonfinite: list[OnNonfinite]


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
        seeds = self.identity.get("seeds")
        if not isinstance(seeds, list) or self.facts.layout > len(seeds):
            raise ValueError("it has more devices than seeds")
        if not set(self.facts.lost) <= set(map(str, seeds)):
            raise ValueError("a lost seed is not one of its seeds")
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
    # Files that something else has put beside them are none of ours.
    for name in sorted(body["files"]):
        if found.get(name) != body["files"][name]:
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
    known: Kinds = {}
    for segment in body["metrics"]:
        told = check_metrics(read_segment(folder, segment), segment, len(body["identity"]["seeds"]))
        if known and told != known:
            raise CheckpointError(f"{segment['name']} has other metrics than those before it")
        known = told
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


def check_metrics(arrays: Mapping[str, np.ndarray], segment: Mapping[str, Any], seeds: int) -> Kinds:
    """The kinds of a file's metrics; all must have something for every seed and iteration."""
    length = segment["last"] - segment["first"]
    for name, array in arrays.items():
        counted = name not in MASKED or (array.ndim == 2 and array.dtype.kind in "iu")
        if array.shape[:2] != (seeds, length) or not counted:
            raise CheckpointError(f"{segment['name']}: {name[:100]} is not of {seeds} seeds and {length} iterations")
    found = kinds(arrays)
    if not found:
        raise CheckpointError(f"{segment['name']} is empty")
    return found


#: Metrics that only iterations have in which unsound values are masked.
MASKED = ("masked/steps", "masked/updates")
#: Of each metric that every iteration has: its type, and its shape beyond seeds and iterations.
Kinds = dict[str, tuple[str, tuple[int, ...]]]


def kinds(metrics: Mapping[str, np.ndarray]) -> Kinds:
    """The names and kinds of the metrics that every iteration has, whatever is done about unsound values."""
    return {name: (array.dtype.name, array.shape[2:]) for name, array in metrics.items() if name not in MASKED}


def read_segment(folder: Path, segment: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of a metrics file."""
    import safetensors
    import safetensors.numpy

    data = check_segment(folder, segment)
    try:
        return safetensors.numpy.load(data)
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError, OverflowError) as error:
        raise CheckpointError(f"{segment['name']} cannot be read ({reason(error)})") from None


def reason(error: BaseException) -> str:
    """An exception in a few words."""
    text = str(error)
    if deeper := re.search(r"os_error_code='(\d+)'", text):  # TensorStore's, at the end of many words
        return os.strerror(int(deeper[1]))
    said = getattr(error, "strerror", None) or (text.strip().splitlines() or [""])[0][:200]
    return f"{type(error).__name__}: {said}"
