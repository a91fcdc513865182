"""Ant Maze: a four-legged robot in a C-shaped corridor of seven cells.

Shyam, Jaśkowski, Gomez 2019 (MAX), as the released LBS code uses it. The ant is Gymnasium's; the maze is ours:

    y=4   7 6 5      cells of 2 × 2, numbered along the corridor
    y=2   ■ ■ 4      ■ walls, as is the ring around; 2 wide and 6 high
    y=0   1 2 3      the ant starts in cell 1
    x=    0 2 4
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

#: Centres of the corridor's cells from start to end.
CORRIDOR = ((0, 0), (2, 0), (4, 0), (4, 2), (4, 4), (2, 4), (0, 4))
#: Centres of the wall blocks: whatever of the 5 × 5 grid is not corridor.
WALLS = tuple((x, y) for x in range(-2, 8, 2) for y in range(-2, 8, 2) if (x, y) not in CORRIDOR)
WALL_HALF_SIZE = (1.0, 1.0, 3.0)
LOW, HIGH = -1.0, 5.0


def maze_grid(name: str, parts: int) -> Grid:
    """The inside of the maze in `parts` × `parts` squares, those inside walls closed."""
    axes = (Axis("x", LOW, HIGH, parts), Axis("y", LOW, HIGH, parts))
    middles = axes[0].middles
    closed = tuple(
        i * parts + j
        for i, x in enumerate(middles)
        for j, y in enumerate(middles)
        if any(abs(x - wx) < 1 and abs(y - wy) < 1 for wx, wy in WALLS)
    )
    return Grid(name, axes, "floor", closed=closed)


class AntMaze(AbstractHostTask):
    """The ant observes its torso's velocity along x and y over the step, its 15 positions and its 14 velocities.

    It has no reward and no end but the time limit. Coverage: the paper's seven cells, and honest bins of half a
    unit, 16 in each cell.
    """

    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)
    budget: ClassVar[int] = 251_904

    def __init__(self, *, horizon: Count = 300) -> None:
        """Set up the task.

        Args:
            horizon: steps of one episode.
        """
        self.spec = Spec((31,), Box((-1.0,) * 8, (1.0,) * 8), horizon)
        self.grids = (maze_grid("cells", 3), maze_grid("bins", 12))

    @property
    def packages(self) -> tuple[str, ...]:
        return ("mujoco", "gymnasium")

    def require(self) -> None:
        import_mujoco("ant-maze")

    def open(self, count: int, threads: int = 1) -> Ants:
        mujoco = import_mujoco("ant-maze")
        return Ants(mujoco, build(mujoco), count, threads)


def build(mujoco: Any) -> Any:
    """Gymnasium's ant with walls around it."""
    spec = mujoco.MjSpec.from_file(str(gymnasium_model("ant.xml")))
    for x, y in WALLS:
        spec.worldbody.add_geom(
            name=f"wall {x} {y}",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            size=WALL_HALF_SIZE,
            pos=(x, y, WALL_HALF_SIZE[2]),
            contype=1,
            conaffinity=1,
            condim=3,
            rgba=(0.45, 0.5, 0.58, 1.0),
        )
    return spec.compile()


class Ants(AbstractMuJoCoFleet):
    """Simulated ants."""

    def __init__(self, mujoco: Any, model: Any, count: int, threads: int) -> None:
        super().__init__(mujoco, model, count, threads)
        self.obs = np.zeros((count, 31))
        self.record = np.zeros((count, 2))  # where the torsos are
        self._place, self._speed = self.qpos[:, :2], self.obs[:, :2]
        # Positions and velocities stand side by side in a row of the state, after the time.
        self._rest, self._row = self.obs[:, 2:], self.batch.state[:, 1:30]

    def measure(self, record: Float[np.ndarray, "*lead 2"]) -> tuple[np.ndarray, np.ndarray]:
        return record, np.zeros(record.shape[:-1])

    def _begun(self, who: Mask | slice) -> None:
        self._speed[who] = 0.0
        self._rest[who], self.record[who] = self._row[who], self._place[who]

    def _mark(self) -> None:
        pass  # the record is where the torsos were

    def _look(self) -> None:
        np.subtract(self._place, self.record, out=self._speed)
        np.divide(self._speed, self.interval, out=self._speed)
        np.copyto(self._rest, self._row)
        np.copyto(self.record, self._place)

    def _camera(self, model: Any) -> Any:
        # Drawn low, so that one can look over them; and from far away, so that they hide little.
        walls = [model.geom(f"wall {x} {y}").id for x, y in WALLS]
        model.geom_size[walls, 2] = model.geom_pos[walls, 2] = 0.3
        camera = self.mujoco.MjvCamera()
        camera.lookat[:], camera.azimuth, camera.elevation, camera.distance = (2.0, 2.0, 0.0), 90.0, -68.0, 30.0
        model.vis.global_.fovy = 14.5
        return camera
