"""Gymnasium's spaces for a bonus: what may come in, how it is kept, and what a method sees of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Int, Shaped

from .._errors import UsageError
from .._sound import FROM_OUTSIDE, HUGE
from .._types import Box, Discrete

Space = spaces.Space[Any]
BOUNDS = ("low", "high")
#: The largest share of a bounded action's range by which rounding may carry it outside.
SLACK = 1e-4


def array_of(what: str, value: Any) -> np.ndarray:
    """Anything like an array as NumPy's; a tensor of PyTorch is taken off its graph and its device."""
    try:
        # Asked by name, so that torch is never imported here.
        if hasattr(value, "detach"):
            value = value.detach().cpu()
            # NumPy has no such numbers.
            value = value.float() if str(getattr(value, "dtype", "")) == "torch.bfloat16" else value
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"{what}: not an array of numbers ({error}).") from None
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    # By the letter: `np.issubdtype` takes ten times as long, and this is asked at every step.
    if array.dtype.kind == "c":
        raise UsageError(f"{what}: complex numbers; real ones were expected.")
    if array.dtype.kind not in "fiub":
        raise UsageError(f"{what}: not an array of numbers but of {array.dtype}.")
    return array


def spread(mask: Any, like: Any) -> Any:
    """A mask of steps, ready to be held against what belongs to each of them; of NumPy's arrays or JAX's."""
    return mask.reshape(mask.shape + (1,) * (like.ndim - mask.ndim))


def counting(array: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """The array with zeros where a step is none."""
    return array if valid.all() else np.where(spread(valid, array), array, 0)


def place(wrong: np.ndarray, lead: int) -> str:
    """Where the first wrong entry is, in words."""
    first = [int(k) for k in np.argwhere(wrong)[0]]
    step, inside = first[:lead], first[lead:]
    names = {0: [], 1: ["environment"], 2: ["step", "environment"]}[lead]
    parts = [f"{name} {k}" for name, k in zip(names, step, strict=True)]
    return ", ".join(parts + ([f"entry {inside if len(inside) > 1 else inside[0]}"] if inside else []))


def refuse_unsound(what: str, array: np.ndarray, lead: int) -> None:
    """Refuse NaN, infinity and values beyond all bounds."""
    # The extremes of an array with NaN in it are NaN, and not within.
    if array.dtype.kind in "fiu" and array.size and not (array.min() > -HUGE and array.max() < HUGE):
        sound = (array > -HUGE) & (array < HUGE)
        raise UsageError(f"{what}: holds {FROM_OUTSIDE} (at {place(~sound, lead) or 'its only entry'}).")


def refuse_fractions(what: str, array: np.ndarray, space: Space) -> None:
    """Refuse fractions where a space has whole numbers."""
    if space.dtype is not None and space.dtype.kind in "iu" and array.dtype.kind == "f" and (array % 1).any():
        raise UsageError(f"{what}: {array[array % 1 != 0][0]:g} is not a whole number, as all of {space} are.")


def whole(what: str, array: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Whole numbers, kept as such; floats that are none are refused."""
    if array.dtype.kind == "f":
        wrong = spread(valid, array) & (array != np.rint(np.where(np.isfinite(array), array, 0.5)))
        if wrong.any():
            raise UsageError(f"{what}: must be whole numbers; {array[wrong][0]} is none.")
        array = counting(array, valid)
    return array.astype(np.int64)


@dataclass(frozen=True)
class Choices:
    """Whole numbers of a space: the k-th lies in `starts[k]` to `starts[k] + sizes[k] - 1`."""

    sizes: tuple[int, ...]
    starts: tuple[int, ...]

    @staticmethod
    def of(space: Space) -> Choices | None:
        """The choices of a space; None for a space of other things."""
        if isinstance(space, spaces.MultiBinary):
            return Choices((2,) * math.prod(space.shape), (0,) * math.prod(space.shape))
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            sizes = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec).tolist()
            return Choices(tuple(map(int, sizes)), tuple(map(int, np.ravel(space.start).tolist())))
        return None

    def read(self, what: str, space: Space, array: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """The numbers counted from 0, one row for each step; where a step is not valid, zeros."""
        lead = array.ndim - len(space.shape or ())
        starts, sizes = (np.reshape(x, space.shape or ()) for x in (self.starts, self.sizes))
        number = counting(whole(what, array, valid) - starts, valid)
        outside = (number < 0) | (number >= sizes)
        if outside.any():
            at = place(outside, lead)
            raise UsageError(f"{what}: {array[outside][0]} lies outside {space}{f' (at {at})' if at else ''}.")
        return number.reshape(*array.shape[:lead], len(self.sizes)).astype(np.int32)

    def vector(self, numbers: Int[Array, "*lead parts"]) -> Float[Array, "*lead size"]:
        """One-hot vectors side by side; traced by JAX."""
        return jnp.concatenate([jax.nn.one_hot(numbers[..., k], n) for k, n in enumerate(self.sizes)], axis=-1)


@dataclass(frozen=True)
class Observations:
    """The observations of a space: kept as they came, seen by a method as `shape`.

    A `vector` is a box of any form, flattened. An `image` is a box of bytes, or of bounded floats with three axes; a
    method sees it as (height, width, channels) between 0 and 1. `choices` become one-hot vectors side by side.
    """

    space: Space
    kind: Literal["vector", "image", "choices"]
    shape: tuple[int, ...]
    #: Of images: whether the channels come first in the space.
    channels_first: bool = False
    choices: Choices | None = None

    @staticmethod
    def of(space: Any) -> Observations:
        """The reader of a space, or an error if no method can learn from it."""
        if not isinstance(space, spaces.Space):
            raise UsageError(
                f"observation_space = {space!r}: give a Gymnasium space; of a vector environment the single one "
                "(envs.single_observation_space)."
            )
        choices = Choices.of(space)
        if choices is not None:
            return Observations(space, "choices", (sum(choices.sizes),), choices=choices)
        if not isinstance(space, spaces.Box) or 0 in space.shape:
            raise UsageError(
                f"observation_space: {space} is not supported; supported are Box, Discrete, MultiDiscrete and "
                "MultiBinary. Wrap the environment in gymnasium.wrappers.FlattenObservation, or in an "
                "ObservationWrapper of yours that returns one array."
            )
        bytes_ = space.dtype == np.uint8
        bounded = bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())
        if (bytes_ and len(space.shape) == 2) or ((bytes_ or bounded) and len(space.shape) == 3):
            shape = space.shape if len(space.shape) == 3 else (*space.shape, 1)
            # (channels, height, width): what PyTorch's users have. There are fewer channels than rows.
            first = len(space.shape) == 3 and shape[0] < min(shape[1:])
            return Observations(space, "image", (shape[1], shape[2], shape[0]) if first else shape, first)
        return Observations(space, "vector", (math.prod(space.shape),))

    def read(self, what: str, array: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Observations with the leading axes of `valid`, checked, as they are kept."""
        if self.choices is not None:
            return self.choices.read(what, self.space, array, valid)
        if self.kind == "image" and self.space.dtype == np.uint8 and array.dtype != np.uint8:
            raise UsageError(
                f"{what}: images of {array.dtype}, where {self.space} has bytes (uint8, 0 to 255): give them as they "
                "come from the environment, not scaled."
            )
        bytes_ = self.space.dtype == np.uint8
        if not (bytes_ and array.dtype == np.uint8):
            array = counting(array, valid)
            refuse_unsound(what, array, valid.ndim)
            refuse_fractions(what, array, self.space)
        if self.kind == "image" and not (bytes_ and self.any_byte):
            self._refuse_outside(what, array, valid)
        return array if array.dtype == np.uint8 and bytes_ else array.astype(np.float32, copy=False)

    def _refuse_outside(self, what: str, images: np.ndarray, valid: np.ndarray) -> None:
        """Refuse images beyond the bounds that they are scaled by: bytes, most often, where the space is of 0 to 1."""
        low, high = self.bounds
        slack = SLACK * (high - low)
        outside = spread(valid, images) & ((images < low - slack) | (images > high + slack))
        if outside.any():
            at = place(outside, valid.ndim)
            raise UsageError(
                f"{what}: a pixel of {images[outside][0]:g} lies outside {self.space} (at {at}); "
                "give images as the environment does, or make the Bonus with their space."
            )

    @cached_property
    def any_byte(self) -> bool:
        """Of images: whether the bounds are those of bytes, so that none can be outside."""
        low, high = self.bounds
        return bool((low == 0).all() and (high == 255).all())

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Of images: the lowest and the highest value of each pixel."""
        assert isinstance(self.space, spaces.Box)
        low, high = (bound.astype(np.float32) for bound in (self.space.low, self.space.high))
        return low, np.where(high > low, high, low + 1)

    def seen(self, kept: Shaped[Array, "..."]) -> Float[Array, "..."]:
        """What a method sees of the observations that were kept; traced by JAX."""
        lead = kept.shape[: kept.ndim - (1 if self.choices else len(self.space.shape or ()))]
        if self.choices is not None:
            return self.choices.vector(kept)
        x = kept.astype(jnp.float32)
        if self.kind == "image":
            low, high = self.bounds
            x = (x - low) / (high - low)
            x = jnp.moveaxis(x, -3, -1) if self.channels_first else x
        return x.reshape(*lead, *self.shape)


@dataclass(frozen=True)
class Actions:
    """The actions of a space, as a method knows them.

    Several choices at once (MultiDiscrete, MultiBinary) are known as a box of one-hot vectors side by side: what a
    method guesses of them it guesses by squared error.
    """

    space: Space
    known: Box | Discrete
    choices: Choices | None = None

    @staticmethod
    def of(space: Any) -> Actions:
        """The reader of a space, or an error if no method can learn from it."""
        if not isinstance(space, spaces.Space):
            raise UsageError(
                f"action_space = {space!r}: give a Gymnasium space; of a vector environment the single one "
                "(envs.single_action_space)."
            )
        choices = Choices.of(space)
        try:
            if isinstance(space, spaces.Discrete):
                return Actions(space, Discrete(int(space.n)), choices)
            if choices is not None:
                size = sum(choices.sizes)
                return Actions(space, Box((0.0,) * size, (1.0,) * size), choices)
            if isinstance(space, spaces.Box):
                # An action without bounds may be anything that is sound.
                low, high = (
                    tuple(np.clip(np.ravel(bound).astype(np.float64), -HUGE, HUGE).tolist())
                    for bound in (space.low, space.high)
                )
                return Actions(space, Box(low, high))
        except ValueError as error:
            raise UsageError(f"action_space: {space} leaves nothing to choose: {error}.") from None
        raise UsageError(
            f"action_space: {space} is not supported; supported are Box, Discrete, MultiDiscrete and MultiBinary. Wrap "
            "the environment in a gymnasium.ActionWrapper of yours that takes one of these."
        )

    def read(self, what: str, array: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Actions with the leading axes of `valid`, checked, as they are kept."""
        if self.choices is not None:
            return self.choices.read(what, self.space, array, valid)
        assert isinstance(self.known, Box)
        array = counting(array, valid).reshape(*valid.shape, self.known.size)
        refuse_unsound(what, array, valid.ndim)
        refuse_fractions(what, array, self.space)
        low, high = np.asarray(self.known.low), np.asarray(self.known.high)
        slack = SLACK * (high - low)
        outside = spread(valid, array) & ((array < low - slack) | (array > high + slack))
        if outside.any():
            at = place(outside, valid.ndim)
            raise UsageError(
                f"{what}: {array[outside][0]:g} lies outside {self.space} (at {at}); give the action that the "
                "environment carried out, clipped to its space."
            )
        return array.astype(np.float32, copy=False)

    def taken(self, kept: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        """The actions as a method takes them; traced by JAX."""
        if self.choices is None:
            return kept
        return kept[..., 0] if isinstance(self.known, Discrete) else self.choices.vector(kept)


def steps_of(what: str, value: Any, space: Space, envs: int) -> np.ndarray:
    """An array of a space's elements with leading axes `[N]`, `[T, N]`, or, for a single environment, none."""
    array, shape = array_of(what, value), space.shape or ()
    lead = array.shape[: array.ndim - len(shape)] if array.ndim >= len(shape) else None
    fits = lead is not None and array.shape[len(lead) :] == shape and len(lead) <= 2
    if fits and ((lead == () and envs == 1) or (lead and lead[-1] == envs and 0 not in lead)):
        return array
    tail = "".join(f", {size}" for size in shape)
    wanted = f"[{envs}{tail}] for one step or [T, {envs}{tail}] for a rollout"
    if fits and lead and lead[-1] != envs and lead[0] != envs:
        raise UsageError(
            f"{what}: shape {list(array.shape)} has {lead[-1]} environments, this Bonus was made for num_envs={envs}; "
            f"expected {wanted}."
        )
    raise UsageError(f"{what}: shape {list(array.shape)}; expected {wanted}, an element of {space} for each.")


def flags(what: str, value: Any, lead: tuple[int, ...], each: str = "step") -> Bool[np.ndarray, "..."]:
    """True or False for each step, or whatever else there is one of for each."""
    array = array_of(what, value)
    if array.shape != lead:
        raise UsageError(f"{what}: shape {list(array.shape)}; expected {list(lead)}, one flag for each {each}.")
    if array.dtype != bool and not ((array == 0) | (array == 1)).all():
        raise UsageError(f"{what}: must be True or False for each {each} (or 1 and 0).")
    return array.astype(bool, copy=False)


def data_of(space: Space) -> dict[str, Any]:
    """A space as plain data, complete: two spaces are equal exactly if this is."""
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": np.asarray(space.start).tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.n)}
    assert isinstance(space, spaces.Box)

    def bound(values: np.ndarray) -> Any:
        # One number where all are the same: an image has tens of thousands. JSON knows no infinity.
        plain = [x if math.isfinite(x) else str(x) for x in np.ravel(values).astype(np.float64).tolist()]
        return plain[0] if len(set(plain)) == 1 else plain

    shape, dtype = list(space.shape), np.dtype(space.dtype).name
    return {"kind": "Box", "shape": shape, "dtype": dtype, "low": bound(space.low), "high": bound(space.high)}


def space_of(data: Mapping[str, Any]) -> Space:
    """The space that `data_of` described; a `ValueError` of any kind where it describes none."""
    if data["kind"] == "Discrete":
        return spaces.Discrete(data["n"], start=data["start"])
    if data["kind"] == "MultiDiscrete":
        return spaces.MultiDiscrete(np.asarray(data["nvec"]), start=np.asarray(data["start"]))
    if data["kind"] == "MultiBinary":
        return spaces.MultiBinary(data["n"])
    shape, dtype = tuple(data["shape"]), np.dtype(data["dtype"])
    low, high = (np.broadcast_to(np.ravel(np.asarray(data[name], np.float64)), math.prod(shape)) for name in BOUNDS)
    return spaces.Box(low.reshape(shape).astype(dtype), high.reshape(shape).astype(dtype), shape, dtype.type)
