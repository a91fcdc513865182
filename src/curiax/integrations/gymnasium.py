"""Curiax's tasks as Gymnasium environments, so that any library's agent can run on them.

`import curiax` registers them: `gymnasium.make("curiax/MountainCarSparse-v0")`; without that import,
`gymnasium.make("curiax:curiax/MountainCarSparse-v0")`.
"""

from __future__ import annotations

import abc
import functools
from typing import Any

import gymnasium
import jax
import numpy as np

from .._types import Box
from ..envs import AbstractAnyTask, AbstractHostTask, AbstractTask
from ..experiments.spec import Experiment, resolve


class TaskEnv(gymnasium.Env[np.ndarray, Any]):
    """One instance of a task behind Gymnasium's interface, time limit included.

    `info["point"]` holds the tracked coordinates that coverage is counted on.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(self, task: str = "mountain-car", render_mode: str | None = None, **settings: Any) -> None:
        self.render_mode = render_mode
        names = {name if "." in name else f"task.{name}": value for name, value in settings.items()}
        self.task = resolve(Experiment(task, "random", seeds=1, settings=names)).setup.task
        spec = self.task.spec
        low = np.broadcast_to(-np.inf if spec.obs_low is None else spec.obs_low, spec.obs_size).reshape(spec.obs_shape)
        high = np.broadcast_to(np.inf if spec.obs_high is None else spec.obs_high, spec.obs_size).reshape(
            spec.obs_shape
        )
        self.observation_space = gymnasium.spaces.Box(low.astype(np.float32), high.astype(np.float32))
        if isinstance(spec.action, Box):
            low, high = np.asarray(spec.action.low, np.float32), np.asarray(spec.action.high, np.float32)
            self.action_space = gymnasium.spaces.Box(low, high)
        else:
            self.action_space = gymnasium.spaces.Discrete(spec.action.n)
        self._instance = HostInstance(self.task) if isinstance(self.task, AbstractHostTask) else PureInstance(self.task)
        self._elapsed: int | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; a seed makes everything that follows repeatable."""
        super().reset(seed=seed)
        if seed is not None or self._elapsed is None:
            self._instance.seed(int(self.np_random.integers(2**32)))
        obs, point = self._instance.reset()
        self._elapsed = 0
        return obs, {"point": point}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step of the task."""
        if self._elapsed is None:
            raise gymnasium.error.ResetNeeded("call reset() before step().")
        obs, point, reward, terminated, truncated = self._instance.step(np.asarray(action))
        self._elapsed += 1
        horizon = self.task.spec.horizon
        over = horizon is not None and self._elapsed >= horizon
        return obs, reward, terminated, not terminated and (truncated or over), {"point": point}

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A picture of the task as it is now, where `render_mode` asks for pictures."""
        return self._instance.picture() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Free what the simulator holds."""
        self._instance.close()


class AbstractInstance(abc.ABC):
    """One environment of either family."""

    @abc.abstractmethod
    def seed(self, number: int) -> None:
        """Make everything that follows repeatable."""

    @abc.abstractmethod
    def reset(self) -> tuple[np.ndarray, np.ndarray]:
        """Begin an episode: observation and tracked point."""

    @abc.abstractmethod
    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, bool, bool]:
        """Observation, tracked point, reward, terminated, and truncated by the simulator itself."""

    @abc.abstractmethod
    def picture(self) -> np.ndarray:
        """What it looks like."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free what it holds."""


class PureInstance(AbstractInstance):
    """One environment in JAX. What it returns are copies: agents may write into them, JAX arrays must not be."""

    def __init__(self, task: AbstractAnyTask) -> None:
        assert isinstance(task, AbstractTask)
        self.task = task

        try:
            self._reset, self._step = _programs(task)
        except TypeError:  # a task that holds arrays cannot be looked up: it is compiled for this instance alone
            self._reset, self._step = _programs.__wrapped__(task)
        self._key: Any = None
        self._state: Any = None

    def seed(self, number: int) -> None:
        self._key = jax.random.key(number)

    def reset(self) -> tuple[np.ndarray, np.ndarray]:
        self._key, self._state, obs, point = self._reset(self._key)
        return np.array(obs), np.array(point)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, bool, bool]:
        self._key, self._state, obs, point, reward, terminated = self._step(self._key, self._state, action)
        return np.array(obs), np.array(point), float(reward), bool(terminated), False

    def picture(self) -> np.ndarray:
        drawn = self.task.draw(self._state, 640, 480)
        if drawn is None:
            raise gymnasium.error.UnsupportedMode(f"{type(self.task).__name__} has no drawing of itself.")
        return drawn

    def close(self) -> None:
        pass


@functools.lru_cache(maxsize=16)
def _programs(task: AbstractTask) -> tuple[Any, Any]:
    """Reset and step, compiled once for all instances of a task: a vector of 16 would else compile them 16 times."""

    # The next key comes out of the same program: calling one costs more than what these compute.
    def reset(key: Any) -> Any:
        key, now = jax.random.split(key)
        return key, *_seen(task, task.reset(key=now))

    def step(key: Any, state: Any, action: Any) -> Any:
        key, now = jax.random.split(key)
        after, reward, terminated = task.step(state, task.spec.action.executed(action), key=now)
        return key, *_seen(task, after), reward, terminated

    return jax.jit(reset), jax.jit(step)


class HostInstance(AbstractInstance):
    """A fleet of one."""

    def __init__(self, task: AbstractHostTask) -> None:
        self.fleet = task.open(1)
        self._box = task.spec.action if isinstance(task.spec.action, Box) else None
        self._random = np.random.default_rng()

    def seed(self, number: int) -> None:
        self._random = np.random.default_rng(number)

    def _draw(self) -> np.ndarray:
        return self._random.integers(2**32, size=1, dtype=np.uint32)

    def _shown(self) -> tuple[np.ndarray, np.ndarray]:
        return self.fleet.obs[0].astype(np.float32), self.fleet.points[0].astype(np.float32)

    def reset(self) -> tuple[np.ndarray, np.ndarray]:
        self.fleet.reset(self._draw())
        return self._shown()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, bool, bool]:
        kind = np.int32 if self._box is None else np.float32
        self.fleet.step(action.astype(kind)[None], self._draw())
        ended = bool(self.fleet.terminated[0]), bool(self.fleet.truncated[0])
        return *self._shown(), float(self.fleet.reward[0]), *ended

    def picture(self) -> np.ndarray:
        drawn = self.fleet.render(0, 640, 480)
        if drawn is None:
            raise gymnasium.error.UnsupportedMode("this task has no drawing of itself.")
        return drawn

    def close(self) -> None:
        self.fleet.close()


def _seen(task: AbstractTask, state: Any) -> tuple[Any, Any, Any]:
    """A state with what is seen and tracked of it."""
    return state, task.observe(state), task.track(state)
