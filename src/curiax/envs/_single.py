"""One environment of a task outside of training, of any family: for films, and for other libraries' loops."""

from __future__ import annotations

import abc
import functools
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Float, Shaped, UInt8

if TYPE_CHECKING:
    from ._base import AbstractTask
    from ._host import AbstractFleet


class Single(abc.ABC):
    """One environment and what it shows now, as arrays of its own. All randomness comes in as 32-bit seeds.

    Time limits are the caller's.
    """

    obs: Float[np.ndarray, "..."]
    #: The tracked coordinates.
    point: Float[np.ndarray, " axes"]
    reward: float = 0.0
    terminated: bool = False
    #: Whether the simulator ended the episode by a time limit of its own.
    truncated: bool = False
    #: False where the last step was none: a simulator that resets itself one step late spent it on that.
    valid: bool = True

    @abc.abstractmethod
    def begin(self, seed: int) -> None:
        """Begin an episode."""

    @abc.abstractmethod
    def step(self, action: Shaped[np.ndarray, "..."], seed: int) -> None:
        """Carry out an action; continuous ones are clipped to the action space."""

    @abc.abstractmethod
    def picture(self, width: int, height: int) -> UInt8[np.ndarray, "height width 3"] | None:
        """What it looks like; None if it cannot be drawn."""

    def close(self) -> None:
        """Free what it holds."""
        return None


class TracedSingle(Single):
    """One environment of a task in JAX. What it shows are copies: JAX's own arrays must not be written into."""

    def __init__(self, task: AbstractTask) -> None:
        self._task, self._state = task, None
        try:
            self._begin, self._step = programs(task)
        except TypeError:  # a task that holds arrays cannot be looked up: it is compiled for this one alone
            self._begin, self._step = programs.__wrapped__(task)

    def begin(self, seed: int) -> None:
        self._state, *seen = self._begin(np.uint32(seed))
        self.obs, self.point = map(np.array, seen)
        self.reward, self.terminated = 0.0, False

    def step(self, action: Shaped[np.ndarray, "..."], seed: int) -> None:
        self._state, *seen, reward, terminated = self._step(self._state, action, np.uint32(seed))
        self.obs, self.point = map(np.array, seen)
        self.reward, self.terminated = float(reward), bool(terminated)

    def picture(self, width: int, height: int) -> UInt8[np.ndarray, "height width 3"] | None:
        return self._task.draw(self._state, width, height)


@functools.lru_cache(maxsize=16)
def programs(task: AbstractTask) -> tuple[Any, Any]:
    """Reset and step, compiled once for all single environments of a task: 16 would else compile them 16 times."""

    # Keys are made inside: calling another program costs more than what these compute.
    def begin(seed: Any) -> Any:
        return seen(task.reset(key=jax.random.key(seed)))

    def step(state: Any, action: Any, seed: Any) -> Any:
        after, reward, terminated = task.step(state, task.spec.action.executed(action), key=jax.random.key(seed))
        return *seen(after), reward, terminated

    def seen(state: Any) -> tuple[Any, Any, Any]:
        return state, task.observe(state), task.track(state)

    return jax.jit(begin), jax.jit(step)


class FleetSingle(Single):
    """One environment on the host: a fleet of one."""

    def __init__(self, fleet: AbstractFleet, draws: bool = True) -> None:
        self.fleet, self.draws = fleet, draws

    def _look(self) -> None:
        fleet = self.fleet
        self.obs, self.point = fleet.obs[0].astype(np.float32), fleet.points[0].astype(np.float32)
        self.reward, self.terminated = float(fleet.reward[0]), bool(fleet.terminated[0])
        self.truncated = bool(fleet.truncated[0])
        self.valid = fleet.filler is None or not fleet.filler[0]

    def begin(self, seed: int) -> None:
        self.fleet.reset(np.asarray([seed], np.uint32))
        self._look()

    def step(self, action: Shaped[np.ndarray, "..."], seed: int) -> None:
        kind = np.int32 if np.issubdtype(action.dtype, np.integer) else np.float32
        self.fleet.step(action.astype(kind)[None], np.asarray([seed], np.uint32))
        self._look()

    def picture(self, width: int, height: int) -> UInt8[np.ndarray, "height width 3"] | None:
        picture = self.fleet.render(0, width, height) if self.draws else None
        return None if picture is None else np.asarray(picture, np.uint8)

    def close(self) -> None:
        self.fleet.close()
