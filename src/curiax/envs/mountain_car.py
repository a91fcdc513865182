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
from jaxtyping import Array, Bool, Float

from .._settings import Count
from .._types import Axis, Box, Grid, PRNGKey, Scalar, Spec
from ._base import AbstractTask, Probe

MIN_POSITION, MAX_POSITION, MAX_SPEED = -1.2, 0.6, 0.07
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
        reward = jnp.where((position >= 0.45) & (velocity >= 0), 1.0, 0.0)
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
