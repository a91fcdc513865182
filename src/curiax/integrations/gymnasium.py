"""Curiax's tasks as Gymnasium environments, so that any library's agent can run on them.

`import curiax` registers them: `gymnasium.make("curiax/MountainCarSparse-v0")`; without that import,
`gymnasium.make("curiax:curiax/MountainCarSparse-v0")`.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from .._types import Box
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
        self._single = self.task.single()
        self._elapsed: int | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; a seed makes everything that follows repeatable."""
        super().reset(seed=seed)
        self._single.begin(self._word())
        self._elapsed = 0
        return self._single.obs, {"point": self._single.point}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step of the task."""
        if self._elapsed is None:
            raise gymnasium.error.ResetNeeded("call reset() before step().")
        now = self._single
        now.step(np.asarray(action), self._word())
        self._elapsed += 1
        horizon = self.task.spec.horizon
        truncated = not now.terminated and (now.truncated or (horizon is not None and self._elapsed >= horizon))
        return now.obs, now.reward, now.terminated, truncated, {"point": now.point}

    def _word(self) -> int:
        """A seed for the task."""
        return int(self.np_random.integers(2**32))

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A picture of the task as it is now, where `render_mode` asks for pictures."""
        if self.render_mode != "rgb_array":
            return None
        picture = self._single.picture(640, 480)
        if picture is None:
            raise gymnasium.error.UnsupportedMode(f"{type(self.task).__name__} has no drawing of itself.")
        return picture

    def close(self) -> None:
        """Free what the simulator holds."""
        self._single.close()
