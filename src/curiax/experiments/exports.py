"""Trained agents on disk, format 2: two files that say everything needed to act and to pay bonuses.

`agents.safetensors` holds the arrays of all seeds, stacked along their first axis; `agents.json` describes them: the
spaces, how observations are normalised, what the policy and the method are, and digests of everything. Reading needs
neither the task nor training code nor JAX.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from .._errors import OutputError, UsageError
from .._files import MOST_JSON, damaged, digest, digest_of_json, pack, parsed, unpack, write_whole
from .manifest import Digest, ExperimentSchema, Name, Seeds, Settings, Text, checked, read_listed, read_manifest

FORMAT, FAMILY = "curiax-agents-2", "curiax-agents-"
AGENTS, TENSORS = "agents.json", "agents.safetensors"
REMEDY = "copy it again from where it was whole, or remove its folder and run the experiment again."
#: Room for the names in a tensor file, beside the tensors themselves.
HEADER = 1 << 20
#: A setting that is no larger needs no memory worth a word.
FLOOR = 1 << 20
#: Types of numbers that networks have here.
DTYPES = ("float32", "float64", "float16", "int32", "int64", "uint32", "uint8", "int8", "int16", "uint16", "uint64")
DTYPES += ("bool",)

Count = Annotated[int, Field(ge=1, le=1 << 40)]
Bound = Annotated[float, Field(allow_inf_nan=False)]


class Exact(BaseModel):
    """Part of `agents.json`: these fields, of these types, and no others."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class BoxSchema(Exact):
    """Continuous actions between bounds."""

    kind: Literal["box"]
    low: Annotated[list[Bound], Field(min_length=1, max_length=65_536)]
    high: Annotated[list[Bound], Field(min_length=1, max_length=65_536)]

    @model_validator(mode="after")
    def _ordered(self) -> BoxSchema:
        if len(self.low) != len(self.high) or any(not a < b for a, b in zip(self.low, self.high, strict=False)):
            raise ValueError("low is not below high")
        return self


class DiscreteSchema(Exact):
    """One of so many actions."""

    kind: Literal["discrete"]
    n: Annotated[int, Field(ge=1, le=1 << 24)]


class SpecSchema(Exact):
    """The spaces of a task; a bound that is null is none."""

    obs_shape: Annotated[list[Count], Field(max_length=8)]
    action: Annotated[BoxSchema | DiscreteSchema, Field(discriminator="kind")]
    horizon: Count | None
    obs_low: list[Bound | None] | None
    obs_high: list[Bound | None] | None
    fillers: bool

    @model_validator(mode="after")
    def _consistent(self) -> SpecSchema:
        for bound in (self.obs_low, self.obs_high):
            if bound is not None and len(bound) != math.prod(self.obs_shape):
                raise ValueError("its bounds do not fit obs_shape")
        return self


class Seen(Exact):
    """How observations are normalised: clip((x - mean) / sqrt(var + epsilon), -clip, clip), or not at all."""

    normalised: bool
    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class NetworkSchema(Exact):
    """A policy that is a chain of layers `x @ weight + bias`, tanh between them; the last gives mean or logits."""

    kind: Literal["mlp"]
    activation: Literal["tanh"]
    layers: Annotated[list[Name], Field(min_length=1, max_length=64)]
    #: The tensor of log-deviations; null for discrete actions.
    log_std: Name | None


class ConvolutionSchema(Exact):
    """A convolution without padding: `patches @ weight + bias` of squares of `side` pixels, `stride` apart.

    A patch is laid out as (column, row, channel).
    """

    layer: Name
    side: Annotated[int, Field(ge=1, le=1 << 16)]
    stride: Annotated[int, Field(ge=1, le=1 << 16)]


class VisionSchema(Exact):
    """A policy of images: convolutions, LeakyReLU of this slope after each; `features`, a linear layer; then a chain.

    Nothing follows `features`; ReLU is between the layers of the chain, and the last gives mean or logits.
    """

    kind: Literal["vision"]
    convolutions: Annotated[list[ConvolutionSchema], Field(min_length=1, max_length=64)]
    slope: Annotated[float, Field(ge=0, le=1)]
    features: Name
    activation: Literal["relu"]
    layers: Annotated[list[Name], Field(min_length=1, max_length=64)]
    log_std: Name | None


class UniformSchema(Exact):
    """A policy that draws every action uniformly."""

    kind: Literal["uniform"]


class AgentSchema(Exact):
    """A policy that only its own agent's class can act by, in JAX."""

    kind: Literal["agent"]


class BonusSchema(Exact):
    """The method, and whether its model sees the action as `sampled` or as `executed`, clipped to the bounds."""

    method: Name
    settings: Settings
    action: Literal["sampled", "executed"]


class TensorSchema(Exact):
    """One array."""

    shape: Annotated[list[Annotated[int, Field(ge=0, le=1 << 40)]], Field(max_length=16)]
    dtype: Literal[DTYPES]  # pyright: ignore[reportInvalidTypeForm]
    blake2b: Digest

    @property
    def bytes(self) -> int:
        """Its size in the file."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class FileSchema(Exact):
    """The file of tensors as a whole."""

    bytes: Count
    blake2b: Digest


class About(Exact):
    """What `agents.json` says."""

    format: Literal["curiax-agents-2"]
    curiax: Name
    versions: Annotated[dict[Name, Text], Field(max_length=64)]
    run_id: Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]
    task: Name
    method: Name
    experiment: ExperimentSchema
    settings: Settings
    seeds: Seeds
    spec: SpecSchema
    observations: Seen
    policy: Annotated[NetworkSchema | VisionSchema | UniformSchema | AgentSchema, Field(discriminator="kind")]
    bonus: BonusSchema
    tensors: Annotated[dict[Name, TensorSchema], Field(max_length=65_536)]
    file: FileSchema

    @model_validator(mode="after")
    def _consistent(self) -> About:
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError("a seed occurs twice")
        for name, tensor in self.tensors.items():
            if tensor.shape[:1] != [len(self.seeds)]:
                raise ValueError(f"{name} has not one entry for each seed")
        return self


def write(folder: Path, body: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """The two files, into a folder that is there; `body` is all of `About` but the tensors and their file.

    The description comes last and names the digest of the other file: a pair that does not match is found.
    """
    data = pack(arrays, {"format": FORMAT})
    listed = {
        name: {"shape": list(array.shape), "dtype": array.dtype.name, "blake2b": digest(array.tobytes())}
        for name, array in arrays.items()
    }
    about = {**body, "tensors": listed, "file": {"bytes": len(data), "blake2b": digest(data)}}
    About.model_validate(about)  # never write what could not be read
    text = json.dumps({**about, "digest": digest_of_json(about)}, indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(folder / TENSORS, data)
    write_whole(folder / AGENTS, (text + "\n").encode())


def described(folder: Path) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
    """`agents.json` of either format, not yet checked but for its own digest, and the run's manifest beside it."""
    manifest, file = read_manifest(folder), folder / AGENTS
    if not file.exists():
        if manifest is None:
            raise OutputError(f"{folder} is not a finished run, and no export: neither has Curiax's files in it.")
        raise OutputError(
            f"{folder} holds no trained agents: it was run before Curiax kept them. Remove the folder and run it "
            f"again: {manifest.get('command') or 'curiax run ...'}"
        )
    data = parsed(read_listed(folder, AGENTS, manifest, MOST_JSON), file, REMEDY)
    tag = data.get("format") if isinstance(data, dict) else None
    if not isinstance(tag, str) or not tag.startswith(FAMILY):
        raise OutputError(f"{file} has the format {tag!r}; this version of Curiax reads {FORMAT!r} and older ones.")
    version = tag.removeprefix(FAMILY)
    if tag != FORMAT and version != "1":
        newer = version.isdecimal() and len(version) < 9 and int(version) > 2
        remedy = "it was written by a newer Curiax: update with pip install -U curiax" if newer else "it is damaged"
        raise OutputError(f"{file} has the format {tag[:80]!r}; this version reads {FORMAT!r}: {remedy}.")
    if tag == FORMAT:
        own_digest = data.pop("digest", None)
        if own_digest != digest_of_json(data):
            raise damaged(file, "its text is not what its own digest says", REMEDY)
    if manifest is not None and data.get("run_id") != manifest["run_id"]:
        raise OutputError(f"{file} belongs to another run ({data.get('run_id')}, not {manifest['run_id']}).")
    return data, manifest


def about_of(folder: Path, data: Mapping[str, Any]) -> About:
    """The description, of the right form throughout."""
    return checked(About, data, lambda why: damaged(folder / AGENTS, why, REMEDY))


def tensors_of(folder: Path, about: About, manifest: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    """The arrays: those that the description lists, bit for bit."""
    file = folder / TENSORS
    if about.file.bytes > sum(tensor.bytes for tensor in about.tensors.values()) + HEADER:
        raise damaged(folder / AGENTS, "the size of its tensors is not that of their file", REMEDY)
    data = read_listed(folder, TENSORS, manifest, about.file.bytes)
    arrays = unpacked(file, data)
    expected = {name: (tensor.shape, tensor.dtype) for name, tensor in about.tensors.items()}
    refuse_other_names(file, arrays, expected)
    for name, array in arrays.items():
        if digest(array.tobytes()) != about.tensors[name].blake2b:
            raise damaged(file, f"{name} is not what its digest in {AGENTS} says", REMEDY)
    if len(data) != about.file.bytes or digest(data) != about.file.blake2b:
        raise damaged(file, f"its header is not what its digest in {AGENTS} says", REMEDY)
    return arrays


def refuse_large_settings(file: Path, settings: Mapping[str, Any], most: int) -> None:
    """Refuse settings of methods and remotes far beyond the numbers that a file's arrays hold.

    Whoever builds what they describe would need the memory first. Only whole numbers are sizes, and up to a million any
    may be one.
    """
    for name, value in settings.items():
        entries = value if isinstance(value, list) else [value]
        sizes = [len(entries), *(abs(entry) for entry in entries if isinstance(entry, int))]
        if max(sizes) > (most if name == "remote.noise_dims" else max(most, FLOOR)):
            raise damaged(file, f"{name[:80]} is larger than all of its arrays", REMEDY)


def unpacked(file: Path, data: bytes, remedy: str = REMEDY) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, whose header the library holds against its size."""
    try:
        return unpack(data)
    except ValueError as error:
        raise damaged(file, str(error), remedy) from None


def refuse_other_names(
    file: Path, arrays: Mapping[str, np.ndarray], expected: Mapping[str, tuple[Sequence[int], str]]
) -> None:
    """Refuse arrays of other names, shapes or types than are listed."""
    found = {name: (list(array.shape), array.dtype.name) for name, array in arrays.items()}
    for name in sorted({*found, *expected}):
        if found.get(name) != (expected.get(name) and (list(expected[name][0]), expected[name][1])):
            here, there = (in_words(listed.get(name)) for listed in (found, expected))
            raise damaged(file, f"{name[:200]} is {here}, where {AGENTS} says {there}", REMEDY)


def in_words(entry: tuple[Sequence[int], str] | None) -> str:
    """A tensor's shape and type."""
    return "missing" if entry is None else f"{entry[1]}{list(entry[0])}"


def chosen(about: About, seeds: Sequence[int] | None) -> list[int]:
    """The rows of some seeds; None is all of them."""
    wanted = about.seeds if seeds is None else seeds
    for seed in wanted:
        if seed not in about.seeds:
            raise UsageError(f"seed {seed} is not in this run; there are: {', '.join(map(str, about.seeds))}.")
    return [about.seeds.index(seed) for seed in wanted]
