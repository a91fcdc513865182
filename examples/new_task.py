"""A task of your own, in one file.

A point on a plane is pushed by a two-dimensional force and slides on; the walls stop it. Coverage is counted on
a 20 x 20 grid of positions.

    curiax check new_task:Puck                                   # in this folder: does it keep the contract?
    curiax run new_task:Puck --method lbs --steps 20480          # train on it
    curiax run new_task:Puck --method lbs --remote.mode frozen   # with a noisy TV
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

import curiax


class Sliding(eqx.Module):
    """Where the puck is and how it moves."""

    position: Float[Array, " 2"]
    velocity: Float[Array, " 2"]


class Puck(curiax.AbstractTask):
    """A sliding puck in a box."""

    spec: curiax.Spec = eqx.field(static=True)
    grids: tuple[curiax.Grid, ...] = eqx.field(static=True)
    friction: float = eqx.field(static=True)
    budget: ClassVar[int] = 51_200

    def __init__(self, *, friction: float = 0.1, horizon: int = 50) -> None:
        """Set up the task.

        Args:
            friction: share of the speed lost in each step.
            horizon: steps of one episode.
        """
        axes = (curiax.Axis("x", -1.0, 1.0, 20), curiax.Axis("y", -1.0, 1.0, 20))
        self.spec = curiax.Spec((4,), curiax.Box((-1.0, -1.0), (1.0, 1.0)), horizon)
        self.grids = (curiax.Grid("bins", axes, "floor"),)
        self.friction = friction

    def reset(self, *, key):
        """At rest in the middle."""
        return Sliding(jnp.zeros(2), jnp.zeros(2))

    def step(self, state, action, *, key):
        """Push, slide, stop at the walls; reward 1 in the upper right corner."""
        velocity = (1 - self.friction) * state.velocity + 0.004 * action
        position = jnp.clip(state.position + velocity, -1.0, 1.0)
        velocity = jnp.where(jnp.abs(position) >= 1.0, 0.0, velocity)
        reward = jnp.where(jnp.all(position > 0.9), 1.0, 0.0)
        return Sliding(position, velocity), reward, jnp.zeros((), bool)

    def observe(self, state):
        """Position and velocity."""
        return jnp.concatenate([state.position, state.velocity])

    def track(self, state):
        """Coverage is counted on positions."""
        return state.position


def main() -> None:
    """Check the task, train two methods on it for a moment, and say how much they covered."""
    from curiax.testing import check_task

    check_task(Puck)
    for method in ("lbs", "random"):
        result = curiax.run(curiax.Experiment(Puck, method, seeds=2, steps=20_480))
        print(f"{method:8s} coverage of each seed: {result.final()}")


if __name__ == "__main__":
    main()
