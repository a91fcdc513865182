"""Half-Cheetah without a goal: how many combinations of running speed and tumbling speed are found?

Wawrzyński 2009; the body and its dynamics are Gymnasium's HalfCheetah-v5, the task is that of the released LBS
code: episodes of 500 steps, coverage over the mean x-velocity and pitch velocity of each step,

    (Δx / 0.05, Δpitch / 0.05),   10 × 10 parts of [−9, 9] × [−18, 18].
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Float

from .._settings import Count
from .._types import Axis, Box, Grid, Spec
from ._host import AbstractHostTask, Mask
from ._mujoco import AbstractMuJoCoFleet, gymnasium_model, import_mujoco
from ._picture import fixed_camera

AXES = (Axis("x-velocity", -9.0, 9.0, 10), Axis("pitch velocity", -18.0, 18.0, 10))


class HalfCheetah(AbstractHostTask):
    """A planar cheetah with six joints; reward 1 beyond x = 10, which only `none` looks at.

    It observes everything but its own x: 8 positions and 9 velocities. Values beyond the axes count in the
    outermost parts; in the paper's cells those at or below the lower end have an index 0 of their own.
    """

    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)
    budget: ClassVar[int] = 501_760

    def __init__(self, *, horizon: Count = 500) -> None:
        """Set up the task.

        Args:
            horizon: steps of one episode.
        """
        self.spec = Spec((17,), Box((-1.0,) * 6, (1.0,) * 6), horizon)
        self.grids = (Grid("cells", AXES, "ceil"), Grid("bins", AXES, "floor"))

    @property
    def packages(self) -> tuple[str, ...]:
        return ("mujoco", "gymnasium")

    def require(self) -> None:
        import_mujoco("half-cheetah")

    def open(self, count: int, threads: int = 1) -> Cheetahs:
        mujoco = import_mujoco("half-cheetah")
        return Cheetahs(mujoco, load(mujoco), count, threads)


def load(mujoco: Any) -> Any:
    """Gymnasium's model. Its total mass is set afterwards, to the same bits: MuJoCo deprecates doing so in the file."""
    spec = mujoco.MjSpec.from_file(str(gymnasium_model("half_cheetah.xml")))
    mass, spec.compiler.settotalmass = spec.compiler.settotalmass, -1
    model = spec.compile()
    mujoco.mj_setTotalmass(model, mass)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


class Cheetahs(AbstractMuJoCoFleet):
    """Simulated cheetahs."""

    def __init__(self, mujoco: Any, model: Any, count: int, threads: int) -> None:
        super().__init__(mujoco, model, count, threads)
        # Positions but x, then velocities, stand side by side in a row of the state: nothing is copied.
        self.obs = self.batch.state[:, 2:19]
        self._tracked = self.qpos[:, 0:3:2]  # x and pitch
        self.record = np.zeros((count, 4))
        self._before, self._after = self.record[:, :2], self.record[:, 2:]

    def measure(self, record: Float[np.ndarray, "*lead 4"]) -> tuple[np.ndarray, np.ndarray]:
        before, after = record[..., :2], record[..., 2:]
        return (after - before) / self.interval, (after[..., 0] > 10.0).astype(np.float64)

    def _begun(self, who: Mask | slice) -> None:
        self._before[who] = self._after[who] = self._tracked[who]

    def _mark(self) -> None:
        np.copyto(self._before, self._tracked)

    def _look(self) -> None:
        np.copyto(self._after, self._tracked)

    def _camera(self, model: Any) -> Any:
        return fixed_camera(self.mujoco, model, "track")
