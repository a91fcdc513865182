"""The values that travel through Curiax, and the letters of their axes.

`S` seeds, `T` time, `N` environments, `B` batch: only these, only in this order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from ._frames import FrameStore, map_in_chunks
from ._text import checked_name

__all__ = [
    "Axis",
    "Box",
    "Discrete",
    "Grid",
    "PRNGKey",
    "Rewards",
    "Rollout",
    "Scalar",
    "Spec",
    "Transition",
    "Vector",
    "materialise",
    "stream_keys",
]

#: Sides that leave at least one pixel after two convolutions of 3 x 3 and a pooling of 2 x 2.
SMALLEST_IMAGE = 6

PRNGKey = Key[Array, ""]
Scalar = Float[Array, ""]
Vector = Float[Array, " _"]


def stream_keys(key: PRNGKey, streams: type[IntEnum]) -> Key[Array, " streams"]:
    """The keys of an iteration, by the number of the stream; made together, they compile to one small kernel."""
    return jax.vmap(lambda stream: jax.random.fold_in(key, stream))(jnp.arange(max(streams) + 1))


@dataclass(frozen=True)
class Box:
    """A vector of continuous actions between `low` and `high`."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, tuple(float(bound) for bound in getattr(self, name)))
        if len(self.low) != len(self.high) or not self.low:
            raise ValueError(f"Box needs as many lows as highs, at least one; got {self.low}, {self.high}")
        if not all(map(math.isfinite, (*self.low, *self.high))):
            raise ValueError(f"Box needs finite bounds; got {self.low}, {self.high}")
        if any(not low < high for low, high in zip(self.low, self.high, strict=True)):
            raise ValueError(f"Box needs low < high in every dimension; got {self.low}, {self.high}")

    @property
    def size(self) -> int:
        """Length of the action as a network sees it."""
        return len(self.low)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action."""
        return (len(self.low),)

    def vector(self, action: Shaped[Array, "*lead size"]) -> Float[Array, "*lead size"]:
        """The action as a network sees it."""
        return action

    def executed(self, action: Float[Array, "*lead size"]) -> Float[Array, "*lead size"]:
        """What the task carries out: the action clipped to the box."""
        return jnp.clip(action, jnp.asarray(self.low, action.dtype), jnp.asarray(self.high, action.dtype))


@dataclass(frozen=True)
class Discrete:
    """One of `n` actions, numbered from 0; a task with a single one leaves nothing to choose."""

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"Discrete needs at least one action; got n={self.n}")

    @property
    def size(self) -> int:
        """Length of the action as a network sees it (one-hot)."""
        return self.n

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action."""
        return ()

    def vector(self, action: Int[Array, "*lead"]) -> Float[Array, "*lead n"]:
        """The action as a network sees it: one-hot."""
        return jax.nn.one_hot(action, self.n)

    def executed(self, action: Int[Array, "*lead"]) -> Int[Array, "*lead"]:
        """What the task carries out: the action itself."""
        return action


@dataclass(frozen=True)
class Spec:
    """What a method or an agent must know of a task.

    Args:
        obs_shape: shape of one observation.
        action: the action space.
        horizon: time limit of an episode in steps; None if it has none.
        obs_low, obs_high: bounds of each observation entry, where they are known.
        fillers: True if some steps are none, because the simulator spends them on resets; they are marked as not
            `valid` and nobody learns from them.
    """

    obs_shape: tuple[int, ...]
    action: Box | Discrete
    horizon: int | None = None
    obs_low: tuple[float, ...] | None = None
    obs_high: tuple[float, ...] | None = None
    fillers: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "obs_shape", tuple(self.obs_shape))
        if any(not isinstance(size, int) or size < 1 for size in self.obs_shape):
            raise ValueError(f"Spec.obs_shape needs positive whole numbers; got {self.obs_shape}")
        if not isinstance(self.action, Box | Discrete):
            raise ValueError(f"Spec.action must be a curiax.Box or curiax.Discrete; got {type(self.action).__name__}")
        for name, bound in (("obs_low", self.obs_low), ("obs_high", self.obs_high)):
            if bound is not None and len(bound) != self.obs_size:
                raise ValueError(f"Spec.{name} needs {self.obs_size} entries, one for each of the observation's")
        if self.horizon is not None and (not isinstance(self.horizon, int) or self.horizon < 1):
            raise ValueError(f"Spec.horizon must be a whole number of at least 1, or None; got {self.horizon}")

    @property
    def obs_size(self) -> int:
        """Number of entries in one observation."""
        return math.prod(self.obs_shape)

    @property
    def image(self) -> bool:
        """Whether an observation is an image, (height, width, channels), with sides that a convolution can work on.

        Its values are expected in 0..1. Anything smaller or of other axes is seen as a vector.
        """
        return len(self.obs_shape) == 3 and min(self.obs_shape[:2]) >= SMALLEST_IMAGE


@dataclass(frozen=True)
class Axis:
    """One tracked coordinate, cut into `parts` equal ranges between `low` and `high`."""

    name: str
    low: float
    high: float
    parts: int

    def __post_init__(self) -> None:
        checked_name("the name of an axis", self.name)
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high and self.parts >= 1):
            raise ValueError(
                f"Axis {self.name!r} needs finite low < high and at least one part; "
                f"got {self.low}, {self.high}, {self.parts}"
            )

    @property
    def edges(self) -> np.ndarray:
        """The `parts + 1` borders, each the float nearest to the exact decimal.

        Exact fractions keep 0 at 0: a border of 7e-18 would put a resting car in another cell.
        """
        low, high = Fraction(str(self.low)), Fraction(str(self.high))
        return np.array([float(low + (high - low) * k / self.parts) for k in range(self.parts + 1)])

    @property
    def middles(self) -> np.ndarray:
        """The middle of each part."""
        return (self.edges[:-1] + self.edges[1:]) / 2


@dataclass(frozen=True)
class Grid:
    """A partition of the tracked coordinates whose visited cells are counted.

    `rule="floor"` gives honest bins: `parts` per axis, borders clamped inside. `rule="ceil"` gives the
    cells of the paper's released code: index `ceil((x - low) / width)`, so a value exactly on the lower
    border gets an index 0 of its own, there are `parts + 1` indices per axis, and the count is still
    divided by the number of honest bins.

    Indices come from comparing with borders, not from a division: in float32 `0.6` lies above the
    float64 border and a rounded quotient would invent cells that cannot exist.

    `closed` lists cells that are solid, as the walls of a maze: a point there is not counted, and neither are
    they in what makes 100 %.
    """

    name: str
    axes: tuple[Axis, ...]
    rule: Literal["floor", "ceil"]
    reachable: int | None = None
    closed: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        checked_name("the name of a grid", self.name)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of indices along each axis."""
        return tuple(axis.parts + (self.rule == "ceil") for axis in self.axes)

    @property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    @property
    def nominal(self) -> int:
        """The number that coverage is divided by."""
        return math.prod(axis.parts for axis in self.axes) - len(self.closed)

    @property
    def counted(self) -> np.ndarray:
        """Which cells count, all but the closed ones."""
        return ~np.isin(np.arange(self.size), self.closed)

    def index(self, point: Float[Array, "*lead axes"]) -> Int[Array, "*lead"]:
        """Cell number of each point."""
        cell = jnp.zeros(point.shape[:-1], jnp.int32)
        for k, (axis, parts) in enumerate(zip(self.axes, self.shape, strict=True)):
            value = point[..., k : k + 1]
            edges = jnp.asarray(axis.edges, point.dtype)
            passed = value > edges[:-1] if self.rule == "ceil" else value >= edges[1:-1]
            cell = cell * parts + jnp.sum(passed, axis=-1, dtype=jnp.int32)
        return cell


class Transition(eqx.Module):
    """One transition, or many under any leading axes."""

    obs: Shaped[Array, "..."]
    action: Shaped[Array, "..."]
    next_obs: Shaped[Array, "..."]
    reward: Float[Array, "*lead"]
    terminated: Bool[Array, "*lead"]
    truncated: Bool[Array, "*lead"]
    valid: Bool[Array, "*lead"]

    @property
    def ended(self) -> Bool[Array, "*lead"]:
        """True where the episode ended with this transition."""
        return self.terminated | self.truncated


def materialise(frames: FrameStore | None, t: Transition) -> Transition:
    """One transition with what is seen in the place of the numbers of frames, if it is made of frames."""
    if frames is None:
        return t
    return eqx.tree_at(lambda t: (t.obs, t.next_obs), t, (frames(t.obs), frames(t.next_obs)))


class Rollout(eqx.Module):
    """`T` steps of `N` environments: what collection hands to learning.

    `step.next_obs` is the true successor; `acted_next` is the observation the agent acted on next, which
    at an episode's end is the first one of the next episode. Whether observations are arrays or numbers of `frames`
    only this class knows: `see`, `seen` and `map` hand them out as networks see them.
    """

    step: Transition
    acted_next: Shaped[Array, "T N ..."]
    points: Float[Array, "T N axes"]
    frames: FrameStore | None = None
    #: Where an observation that was acted on begins an episode; None where nobody knows.
    first: Bool[Array, "T N"] | None = None
    #: The agent's memory `[N, ...]` when the rollout began; () for an agent without any.
    carry: Any = ()

    @staticmethod
    def of(steps: Transition | Rollout) -> Rollout:
        """A rollout of bare transitions `[T, N]`, or the rollout itself."""
        if isinstance(steps, Rollout):
            return steps
        return Rollout(steps, steps.next_obs, jnp.zeros((*steps.reward.shape, 0)))

    def see(self, obs: Shaped[Array, "..."]) -> Float[Array, "..."]:
        """One observation, as agents and methods see it."""
        return obs if self.frames is None else self.frames(obs)

    def seen(self, t: Transition) -> Transition:
        """One transition, as agents and methods see it."""
        return materialise(self.frames, t)

    def map(self, each: Any, *columns: Any) -> Any:
        """`each` of one environment's columns at every step `[T, N]`; of those made of frames a few times at once."""
        return jax.vmap(jax.vmap(each))(*columns) if self.frames is None else map_in_chunks(each, *columns)

    def some_times(self, one_in: int) -> slice:
        """One time step in so many where observations are made of frames, as each look costs much; otherwise all."""
        return slice(None, None, None if self.frames is None else one_in)

    def at(self, times: slice) -> Rollout:
        """Some of its time steps."""
        step, acted_next, points = jax.tree.map(lambda x: x[times], (self.step, self.acted_next, self.points))
        return Rollout(step, acted_next, points, self.frames)

    def shared(self, batches: Any) -> Any:
        """Minibatches of its steps `[number, B, ...]`, dealt out over the devices that share its frames."""
        return batches if self.frames is None else self.frames.shared(batches)


class Rewards(eqx.Module):
    """What the steps of a rollout earned: the task's reward and the bonus, as they are paid, and the weight of each."""

    task: Float[Array, "T N"]
    bonus: Float[Array, "T N"]
    task_weight: float = eqx.field(static=True, default=1.0)
    bonus_weight: float = eqx.field(static=True, default=1.0)

    @property
    def total(self) -> Float[Array, "T N"]:
        """The weighted sum."""
        return self.task_weight * self.task + self.bonus_weight * self.bonus
