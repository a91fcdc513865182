"""Curiax's tasks as Gymnasium environments, so that any library's agent can run on them.

`import curiax` registers them: `gymnasium.make("curiax/MountainCarSparse-v0")`; without that import,
`gymnasium.make("curiax:curiax/MountainCarSparse-v0")`.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import numpy as np

from .._types import Box
from ..envs import AbstractTask
from ..experiments.registry import TASKS
from ..experiments.spec import Experiment, resolve


def register() -> None:
    """Tell Gymnasium about every task that has a Gymnasium id."""
    for entry in TASKS.values():
        if entry.gymnasium_id is not None and entry.gymnasium_id not in gymnasium.registry:
            gymnasium.register(
                entry.gymnasium_id,
                entry_point="curiax.integrations.gymnasium:TaskEnv",
                kwargs={"task": entry.name},
            )


class TaskEnv(gymnasium.Env[np.ndarray, Any]):
    """One instance of a pure-JAX task behind Gymnasium's interface, time limit included.

    `info["point"]` holds the tracked coordinates that coverage is counted on.
    """

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
        task_value = self.task
        self._reset = jax.jit(lambda key: _seen(task_value, task_value.reset(key=key)))

        def step(state: Any, action: Any, key: Any) -> Any:
            after, reward, terminated = task_value.step(state, spec.action.executed(action), key=key)
            return *_seen(task_value, after), reward, terminated

        self._step = jax.jit(step)
        self._split = jax.jit(jax.random.split)
        self._key: Any = None
        self._state: Any = None
        self._elapsed = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; a seed makes everything that follows repeatable."""
        super().reset(seed=seed)
        if seed is not None or self._key is None:
            self._key = jax.random.key(int(self.np_random.integers(2**32)))
        self._key, key = self._split(self._key)
        self._state, obs, point = self._reset(key)
        self._elapsed = 0
        return np.array(obs), {"point": np.array(point)}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step of the task."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset() before step().")
        self._key, key = self._split(self._key)
        self._state, obs, point, reward, terminated = self._step(self._state, np.asarray(action), key)
        self._elapsed += 1
        horizon = self.task.spec.horizon
        truncated = not bool(terminated) and horizon is not None and self._elapsed >= horizon
        # Copies: agents may write into what they are given, JAX arrays must not be written to.
        return np.array(obs), float(reward), bool(terminated), truncated, {"point": np.array(point)}


def _seen(task: AbstractTask, state: Any) -> tuple[Any, Any, Any]:
    """A state with what is seen and tracked of it."""
    return state, task.observe(state), task.track(state)
