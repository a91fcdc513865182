"""Mountain Car with continuous force, without a goal to end the episode.

Moore 1990; constants as in Gymnasium's MountainCarContinuous and in the released LBS code:

    v ← clip(v + 0.0015 clip(a, −1, 1) − 0.0025 cos 3x, ±0.07)
    x ← clip(x + v, −1.2, 0.6);   v ← 0 where x = −1.2 and v < 0
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, UInt8

from .._settings import Count
from .._types import Axis, Box, Grid, PRNGKey, Scalar, Spec
from ._base import AbstractTask
from ._evaluation import Probe

MIN_POSITION, MAX_POSITION, MAX_SPEED = -1.2, 0.6, 0.07
#: Where the reward begins.
GOAL = 0.45
AXES = (Axis("position", MIN_POSITION, MAX_POSITION, 10), Axis("velocity", -MAX_SPEED, MAX_SPEED, 10))


class Car(eqx.Module):
    """Position and velocity."""

    position: Scalar
    velocity: Scalar


class MountainCar(AbstractTask):
    """The car starts at rest in the valley; reward 1 on the right hill, which only `none` looks at.

    A search over forces finds 96 of the paper's cells and 91 of the honest bins reachable
    within one episode of 100 steps, so neither metric can reach 100 %.
    """

    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)
    budget: ClassVar[int] = 102_400

    def __init__(self, *, horizon: Count = 100) -> None:
        """Set up the task.

        Args:
            horizon: steps of one episode.
        """
        low, high = (MIN_POSITION, -MAX_SPEED), (MAX_POSITION, MAX_SPEED)
        self.spec = Spec((2,), Box((-1.0,), (1.0,)), horizon, low, high)
        # The counts were searched for the paper's episode length; another length has other limits.
        cells, bins = (96, 91) if horizon == 100 else (None, None)
        self.grids = (Grid("cells", AXES, "ceil", cells), Grid("bins", AXES, "floor", bins))

    def reset(self, *, key: PRNGKey) -> Car:
        return Car(jax.random.uniform(key, (), minval=-0.6, maxval=-0.4), jnp.zeros(()))

    def step(self, state: Car, action: Float[Array, " 1"], *, key: PRNGKey) -> tuple[Car, Scalar, Bool[Array, ""]]:
        force = jnp.clip(action[0], -1.0, 1.0)
        velocity = state.velocity + 0.0015 * force - 0.0025 * jnp.cos(3.0 * state.position)
        velocity = jnp.clip(velocity, -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(state.position + velocity, MIN_POSITION, MAX_POSITION)
        velocity = jnp.where((position <= MIN_POSITION) & (velocity < 0), 0.0, velocity)
        reward = jnp.where((position >= GOAL) & (velocity >= 0), 1.0, 0.0)
        return Car(position, velocity), reward, jnp.zeros((), bool)

    def observe(self, state: Car) -> Float[Array, " 2"]:
        return jnp.stack([state.position, state.velocity])

    def track(self, state: Car) -> Float[Array, " 2"]:
        return self.observe(state)

    def probe(self) -> Probe:
        """The middle of every bin, with full force to either side."""
        position, velocity = jnp.meshgrid(*(jnp.asarray(axis.middles) for axis in AXES), indexing="ij")
        states = jax.vmap(Car)(position.reshape(-1), velocity.reshape(-1))
        return Probe("bins", states, {"car": jnp.array([[-1.0], [1.0]])})

    def draw(self, state: Car, width: int, height: int) -> UInt8[np.ndarray, "height width 3"]:
        """The valley, a flag where the reward begins, the car."""
        from PIL import Image, ImageDraw

        fine = 3  # drawn larger and shrunk, for smooth edges
        size = np.array([width, height]) * fine
        unit = float(min(size[0] / 2.0, size[1] / 1.35))
        ground = 0.93 * size[1] - 0.08 * unit

        def spot(position: np.ndarray | float) -> np.ndarray:
            """Where on the picture the hill is at a position."""
            across = size[0] / 2 + unit * (np.asarray(position) - (MIN_POSITION + MAX_POSITION) / 2)
            return np.stack([across, ground - unit * (0.45 * np.sin(3 * np.asarray(position)) + 0.45)], axis=-1)

        picture = Image.new("RGB", (width * fine, height * fine), "#eef3f8")
        pen = ImageDraw.Draw(picture)
        edge = (size[0] / 2) / unit
        middle = (MIN_POSITION + MAX_POSITION) / 2
        for low, high, earth, grass in (
            (middle - edge, middle + edge, "#e3e6e4", "#c9cfd3"),
            (MIN_POSITION, MAX_POSITION, "#cfd8cc", "#5f7f66"),
        ):
            hill = [tuple(point) for point in spot(np.linspace(low, high, 300))]
            pen.polygon([*hill, (hill[-1][0], size[1]), (hill[0][0], size[1])], fill=earth)
            pen.line(hill, fill=grass, width=round(0.016 * unit), joint="curve")
        x, y = spot(GOAL)
        pen.line([(x, y), (x, y - 0.26 * unit)], fill="#444b54", width=round(0.012 * unit))
        cloth = [(x, y - 0.26 * unit), (x + 0.13 * unit, y - 0.215 * unit), (x, y - 0.17 * unit)]
        pen.polygon(cloth, fill="#12693d")

        at, slope = spot(float(state.position)), 1.35 * np.cos(3 * float(state.position))
        along = np.array([1.0, -slope]) / np.hypot(1.0, slope)
        turn = np.stack([along, [along[1], -along[0]]]) * unit  # the road ahead, and up from it

        def part(*points: tuple[float, float]) -> list[tuple[float, float]]:
            return [tuple(at + np.array(point) @ turn) for point in points]

        pen.polygon(part((-0.1, 0.04), (0.1, 0.04), (0.1, 0.085), (-0.1, 0.085)), fill="#D55E00")
        pen.polygon(part((-0.065, 0.08), (0.055, 0.08), (0.03, 0.125), (-0.045, 0.125)), fill="#D55E00")
        pen.polygon(part((-0.047, 0.085), (0.036, 0.085), (0.02, 0.114), (-0.035, 0.114)), fill="#fbe9dc")
        for wheel in (-0.058, 0.058):
            centre = part((wheel, 0.036))[0]
            for radius, colour in ((0.034, "#1c2127"), (0.014, "#dcdfe3")):
                pen.circle(centre, radius * unit, fill=colour)
        return np.asarray(picture.resize((width, height), Image.Resampling.BOX))
