"""A task on the host, in one file: a simulator that JAX does not trace.

A boat drifts in a square basin whose water turns; it can push, gusts push it too, and it must not touch the walls. The
simulator is plain NumPy here; it could be any library that steps many environments. Coverage is counted on a 20 x 20
grid of positions.

    curiax check new_host_task:Boat                                   # in this folder: does it keep the contract?
    curiax run new_host_task:Boat --method lbs --steps 20480          # train on it
    curiax run new_host_task:Boat --method lbs --remote.mode frozen   # with a noisy TV
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import numpy as np

import curiax


class Boat(curiax.AbstractHostTask):
    """A drifting boat in a basin."""

    spec: curiax.Spec = eqx.field(static=True)
    grids: tuple[curiax.Grid, ...] = eqx.field(static=True)
    whirl: float = eqx.field(static=True)
    budget: ClassVar[int] = 51_200
    stochastic: ClassVar[bool] = True  # nobody can learn the gusts

    def __init__(self, *, whirl: float = 0.02, horizon: int = 100) -> None:
        """Set up the task.

        Args:
            whirl: how fast the water turns.
            horizon: steps of one episode.
        """
        axes = (curiax.Axis("x", -1.0, 1.0, 20), curiax.Axis("y", -1.0, 1.0, 20))
        self.spec = curiax.Spec((4,), curiax.Box((-1.0, -1.0), (1.0, 1.0)), horizon)
        self.grids = (curiax.Grid("bins", axes, "floor"),)
        self.whirl = whirl

    def open(self, count, threads=1):
        """The simulator is opened here, and imported here if it is a heavy one."""
        return Boats(count, self.whirl)


class Boats(curiax.AbstractFleet):
    """Many boats that move in lock-step, each in a basin of its own."""

    def __init__(self, count: int, whirl: float) -> None:
        self.whirl = whirl
        self.obs = np.zeros((count, 4))  # position and velocity: here that is all there is
        self.record = np.zeros((count, 2))  # what `measure` needs of a step
        self.terminated, self.truncated = np.zeros(count, bool), np.zeros(count, bool)

    def reset(self, seeds, who=None):
        """At rest near the middle; each boat from its own seed."""
        for k in range(len(seeds)) if who is None else np.flatnonzero(who):
            self.obs[k, :2], self.obs[k, 2:] = np.random.default_rng(int(seeds[k])).uniform(-0.05, 0.05, 2), 0.0
            self.record[k] = self.obs[k, :2]

    def step(self, actions, seeds, still=None):
        """Push and drift; hitting a wall ends the episode."""
        moving = np.ones(len(seeds), bool) if still is None else ~still
        position, velocity = self.obs[:, :2], self.obs[:, 2:]
        water = self.whirl * np.stack([-position[:, 1], position[:, 0]], axis=1)
        gusts = np.stack([seeds & 0xFFFF, seeds >> 16], axis=1) / 32768 - 1.0  # the seed's two halves, in [-1, 1)
        push = 0.004 * np.clip(actions, -1.0, 1.0) + 0.0005 * gusts
        velocity = velocity + 0.1 * (water - velocity) + push
        position = position + velocity
        self.obs[moving] = np.concatenate([position, velocity], axis=1)[moving]
        self.record[moving] = position[moving]
        self.terminated[:] = moving & (np.abs(position) > 1.0).any(axis=1)

    def measure(self, record):
        """Of recorded steps: where coverage is counted, and the reward, 1 in the upper right corner."""
        return record, (record > 0.9).all(axis=-1).astype(np.float64)

    def state(self):
        """All that decides what comes next."""
        return {"obs": self.obs.copy(), "record": self.record.copy()}

    def restore(self, state):
        """Put it back."""
        self.obs[:], self.record[:] = state["obs"], state["record"]


def main() -> None:
    """Check the task, train two methods on it for a moment, and say how much they covered."""
    from curiax.testing import check_host_task

    check_host_task(Boat)
    for method in ("lbs", "random"):
        result = curiax.run(curiax.Experiment(Boat, method, seeds=2, steps=20_480))
        print(f"{method:8s} coverage of each seed: {result.final()}")


if __name__ == "__main__":
    main()
