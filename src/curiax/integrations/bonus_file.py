"""A `Bonus` in a file: one safetensors file whose header says what it is of, as plain data.

Nothing in it can run code. A method that is not Curiax's is only named: whoever reads it says which class that is.
Every array and the description have digests, so that a flipped bit is found.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from .._errors import OutputError, UsageError
from .._files import MOST_HEADER, damaged, digest, digest_of_json, pack, parsed, read_bytes, sync_folder, write_whole
from .._version import __version__
from ..curiosity import AbstractCuriosity
from ..experiments.exports import DTYPES, HEADER, Exact, refuse_large_settings, unpacked
from ..experiments.manifest import Digest, Name, Settings, checked
from ..experiments.registry import METHODS, builtin_method, class_name, whence
from ..experiments.store import difference
from ..experiments.tensors import filled, tensors
from ..nn import at_most
from . import spaces
from .bonus import Bonus

FORMAT, FAMILY = "curiax-bonus-1", "curiax-bonus-"
REMEDY = "copy it again from where it was whole, or save the Bonus again."
#: The most that a file may have: what fits into a large machine's memory.
MOST_BYTES = 1 << 36
WAITING = "waiting."

Size = Annotated[int, Field(ge=1, le=1 << 24)]
Whole = Annotated[int, Field(ge=0, le=1 << 40)]
Number = float | int | Literal["inf", "-inf"]


class BoxSpace(Exact):
    """A box with its bounds, one number where all are the same."""

    kind: Literal["Box"]
    shape: Annotated[list[Size], Field(max_length=8)]
    dtype: Literal[DTYPES]  # pyright: ignore[reportInvalidTypeForm]
    low: Number | list[Number]
    high: Number | list[Number]


class DiscreteSpace(Exact):
    """One choice."""

    kind: Literal["Discrete"]
    n: Size
    start: int


class MultiDiscreteSpace(Exact):
    """Several choices."""

    kind: Literal["MultiDiscrete"]
    nvec: list[Any]
    start: list[Any]


class MultiBinarySpace(Exact):
    """Bits."""

    kind: Literal["MultiBinary"]
    n: Size | Annotated[list[Size], Field(min_length=1, max_length=8)]


SpaceSchema = Annotated[BoxSpace | DiscreteSpace | MultiDiscreteSpace | MultiBinarySpace, Field(discriminator="kind")]


class BonusSchema(Exact):
    """What a file's header says."""

    format: Literal["curiax-bonus-1"]
    curiax: Name
    method: Name
    settings: Settings
    observation_space: SpaceSchema
    action_space: SpaceSchema
    num_envs: Annotated[int, Field(ge=1, le=1 << 24)]
    seed: Whole
    learner: Settings
    normalise_obs: bool
    horizon: Annotated[int, Field(ge=1, le=1 << 40)] | None
    waiting: Annotated[int, Field(ge=1, le=1 << 40)]
    tensors: Annotated[dict[Name, Digest], Field(max_length=65_536)]


def write(file: Path, bonus: Bonus) -> None:
    """The file, complete or not at all."""
    refuse_to_replace(file)
    arrays = tensors(bonus.state)
    arrays |= {f"{WAITING}{name}": np.asarray(array) for name, array in bonus.waiting_steps().items()}
    about = {"format": FORMAT, "curiax": __version__, **bonus.about()}
    about["tensors"] = {name: digest(array.tobytes()) for name, array in arrays.items()}
    BonusSchema.model_validate(about)  # never write what could not be read
    text = json.dumps({**about, "digest": digest_of_json(about)}, ensure_ascii=True, allow_nan=False)
    data = pack(arrays, {"format": FORMAT, "curiax": text})
    try:
        write_whole(file, data)
        sync_folder(file.parent)
    except OSError as error:
        raise OutputError(f"cannot write {file}: {error.strerror or error}. Choose another path.") from None


def refuse_to_replace(file: Path) -> None:
    """Refuse a place where anything lies but a Bonus that was saved there before; a link is somebody's too."""
    if not os.path.lexists(file):
        return
    try:
        if not stat.S_ISREG(file.lstat().st_mode):
            raise OutputError(f"{file} is no regular file")
        with open(file, "rb") as stream:
            size = stream.read(8)
            header(file, size + stream.read(min(int.from_bytes(size, "little"), MOST_HEADER)))
    except (OSError, OutputError):
        raise OutputError(f"{file} is there already and is no Bonus: choose another path, or remove it.") from None


def opened(file: Path) -> tuple[BonusSchema, dict[str, np.ndarray]]:
    """The description and the arrays of a file, bit for bit what was written."""
    if not file.exists():
        raise OutputError(f"{file} is not there.")
    if file.is_dir():
        raise OutputError(f"{file} is a folder; Bonus.save writes a file.")
    data = read_bytes(file, MOST_BYTES, REMEDY)
    about = header(file, data)
    arrays = unpacked(file, data, REMEDY)
    for name in sorted({*arrays, *about.tensors}):
        if name not in arrays or name not in about.tensors:
            raise damaged(file, f"{name[:200]} is not both in its header and in its data", REMEDY)
        if digest(arrays[name].tobytes()) != about.tensors[name]:
            raise damaged(file, f"{name} is not what its digest says", REMEDY)
    return about, arrays


def header(file: Path, data: bytes) -> BonusSchema:
    """The description in a safetensors file's header, checked."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(len(data) - 8, MOST_HEADER):
        raise damaged(file, "it is no safetensors file", REMEDY)
    document = parsed(data[8 : 8 + size], file, REMEDY)
    notes = document.get("__metadata__") if isinstance(document, dict) else None
    tag = notes.get("format") if isinstance(notes, dict) else None
    if not isinstance(notes, dict) or not isinstance(tag, str) or not tag.startswith(FAMILY):
        raise OutputError(f"{file} was not written by Bonus.save: its format is {str(tag)[:80]!r}, not {FORMAT!r}.")
    if tag != FORMAT:
        version = tag.removeprefix(FAMILY)
        newer = version.isdecimal() and len(version) < 9 and int(version) > 1
        remedy = "it was written by a newer Curiax: update with pip install -U curiax" if newer else "it is damaged"
        raise OutputError(f"{file} has the format {tag[:80]!r}; this version reads {FORMAT!r}: {remedy}.")
    text = notes.get("curiax")
    about = parsed(text.encode() if isinstance(text, str) else b"", file, REMEDY)
    if not isinstance(about, dict) or about.pop("digest", None) != digest_of_json(about):
        raise damaged(file, "its description is not what its own digest says", REMEDY)
    return checked(BonusSchema, about, lambda why: damaged(file, why, REMEDY))


def restore(file: Path, bonus: Bonus) -> None:
    """Put a file's state into a Bonus of the same kind; the Bonus changes whole or not at all."""
    about, arrays = opened(file)
    there = about.model_dump(include=set(bonus.about()))
    if there["method"] != bonus.method:
        raise OutputError(f"{file} is of the method {there['method']!r}, this Bonus of {bonus.method!r}.")
    # How many may wait is a matter of this machine's memory.
    mine, theirs = ({k: v for k, v in data.items() if k != "waiting"} for data in (bonus.about(), there))
    if mine != theirs:
        raise OutputError(
            f"{file} is of another Bonus than this one: they differ in {difference(theirs, mine)}. Make this one like "
            "it, or read the file with Bonus.load."
        )
    put(file, bonus, arrays)


def read(file: Path, method: str | type[AbstractCuriosity] | None) -> Bonus:
    """The Bonus of a file."""
    about, arrays = opened(file)
    method_name = about.method
    own = builtin_method(method_name)
    if method is not None:
        given = method if isinstance(method, str) else class_name(method)
        if given != method_name:
            raise UsageError(f"method = {given!r}: {file} is of the method {method_name!r}.")
    elif own is None:
        raise UsageError(
            f"{file} is of the method {method_name!r}, which is not Curiax's: reading it imports and runs "
            f"{whence(method_name)}. If you trust it, give it: Bonus.load(path, method=...), with its class or its "
            "name."
        )
    else:
        method = method_name if method_name in METHODS else own.method
    data = about.model_dump()
    most = sum(array.size for array in arrays.values())
    refuse_too_large(file, data, most)
    refuse_large_settings(file, about.settings, most)
    try:
        seen, taken = (spaces.space_of(data[name]) for name in ("observation_space", "action_space"))
        with at_most(most, str(file)):
            bonus = Bonus(
                method,
                seen,
                taken,
                num_envs=about.num_envs,
                seed=about.seed,
                learner=about.learner,
                normalise_obs=about.normalise_obs,
                horizon=about.horizon,
                waiting=min(about.waiting, 2**31 - 1),
                **about.settings,
            )
    except (UsageError, TypeError, ValueError, OverflowError, AssertionError) as error:
        raise OutputError(f"{file}: its Bonus cannot be made again: {error}") from None
    put(file, bonus, arrays)
    return bonus


def refuse_too_large(file: Path, data: Mapping[str, Any], most: int) -> None:
    """Refuse spaces far beyond what the file holds, before anything is made of them."""
    for name in ("observation_space", "action_space"):
        if math.prod(np.ravel(data[name].get("shape", data[name].get("n", ()))).tolist()) > most + HEADER:
            raise damaged(file, f"its {name} is larger than all of its arrays", REMEDY)


def put(file: Path, bonus: Bonus, arrays: Mapping[str, np.ndarray]) -> None:
    """Fill the arrays in: state and waiting transitions, all checked before the Bonus changes."""
    learnt = {name: array for name, array in arrays.items() if not name.startswith(WAITING)}
    waiting = {name.removeprefix(WAITING): array for name, array in arrays.items() if name.startswith(WAITING)}
    state = filled(file, bonus.state, learnt, REMEDY)
    expected = bonus.waiting_steps(example=True)
    if waiting:
        lengths = {array.shape[:1] for array in waiting.values()}
        fits = {*waiting} == {*expected} and len(lengths) == 1
        if not fits or any(
            (array.dtype, array.shape[1:]) != (expected[name].dtype, expected[name].shape[1:])
            or (array.dtype.kind == "f" and not np.isfinite(array).all())
            for name, array in waiting.items()
        ):
            raise damaged(file, "the transitions that wait in it are not those of this Bonus", REMEDY)
    bonus.put(state, waiting)
