"""The contract of a task on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._errors import ContractError
from .._types import Discrete, Grid, Spec
from ..envs import AbstractFleet, AbstractHostTask
from ._demand import demand

STEPS, COUNT = 48, 3


class FleetCase:
    """One task on the host, with a walk of random actions through a fleet of it."""

    def __init__(self, task: AbstractHostTask) -> None:
        self.task, self.name = task, type(task).__name__
        rng, space = np.random.default_rng(0), task.spec.action
        if isinstance(space, Discrete):
            self.actions = rng.integers(0, space.n, (STEPS, COUNT)).astype(np.int32)
        else:
            low, high = np.asarray(space.low), np.asarray(space.high)
            self.actions = rng.uniform(low, high, (STEPS, COUNT, space.size)).astype(np.float32)
        self.seeds = rng.integers(0, 2**32, (STEPS + 1, COUNT), dtype=np.uint32)

    def begin(self, rows: list[int], threads: int = 1) -> AbstractFleet:
        """A fleet of some of the walk's environments, reset."""
        fleet = self.task.open(len(rows), threads)
        fleet.reset(self.seeds[0, rows])
        return fleet

    def walk(self, fleet: AbstractFleet, rows: list[int], start: int = 0, stop: int = STEPS) -> np.ndarray:
        """What the fleet shows at every step `[T, M, ...]`: observation, point, reward, ends."""
        shown = []
        for t in range(start, stop):
            fleet.step(self.actions[t, rows], self.seeds[t + 1, rows])
            ended = fleet.terminated | fleet.truncated
            flat = fleet.obs.reshape(len(rows), -1)
            columns = (flat, fleet.points, fleet.reward[:, None], fleet.terminated[:, None], ended[:, None])
            shown.append(np.concatenate([np.asarray(column, np.float64) for column in columns], axis=1))
            if ended.any():
                fleet.reset(self.seeds[t + 1, rows], ended)
        return np.stack(shown)

    @cached_property
    def walked(self) -> np.ndarray:
        """The whole walk of everyone, which several checks look at: simulators may be slow."""
        return self.walk(self.begin(EVERYONE), EVERYONE)


EVERYONE = list(range(COUNT))


def fleet_shapes(case: FleetCase) -> None:
    """Observations, points, rewards and ends have the shapes that spec and grids promise."""
    task, name = case.task, case.name
    demand(isinstance(task.spec, Spec), f"task {name!r}: spec must be a curiax.Spec.")
    grids = task.grids
    demand(isinstance(grids, tuple) and all(isinstance(g, Grid) for g in grids), f"{name}: grids must be Grids.")
    fleet = case.begin(EVERYONE)
    live = fleet.obs, fleet.record
    fleet.step(case.actions[0], case.seeds[1])
    wanted = (COUNT, *task.spec.obs_shape)
    demand(fleet.obs.shape == wanted, f"obs of {name}'s fleet must be {wanted}, not {fleet.obs.shape}.")
    demand(fleet.record.ndim == 2 and len(fleet.record) == COUNT, f"record of {name}'s fleet must be [M, entries].")
    axes = len(grids[0].axes) if grids else fleet.points.shape[-1]
    demand(fleet.points.shape == (COUNT, axes), f"measure() of {name}'s fleet must give points [M, {axes}].")
    demand(fleet.reward.shape == (COUNT,), f"measure() of {name}'s fleet must give rewards [M].")
    for what in ("terminated", "truncated"):
        flags = getattr(fleet, what)
        demand(flags.shape == (COUNT,) and flags.dtype == bool, f"{what} of {name}'s fleet must be bool[M].")
    same = live[0] is fleet.obs and live[1] is fleet.record
    demand(same, f"{name}'s fleet must renew obs and record in place, not replace the arrays.")


def fleet_finite(case: FleetCase) -> None:
    """Random actions lead to finite observations, rewards and tracked points."""
    demand(np.isfinite(case.walked).all(), f"random actions lead {case.name} to numbers that are not finite.")


def fleet_repeatable(case: FleetCase) -> None:
    """The same seeds and actions give the same walk to the last bit; others give another."""
    again = case.walk(case.begin(EVERYONE), EVERYONE)
    demand(np.array_equal(case.walked, again), f"{case.name} is not repeatable.")
    other = FleetCase(case.task)
    other.actions, other.seeds = case.actions[::-1], case.seeds[::-1]
    moved = other.walk(other.begin(EVERYONE), EVERYONE)
    demand(not np.array_equal(case.walked, moved), f"{case.name} ignores its seeds and actions.")


def fleet_independent(case: FleetCase) -> None:
    """An environment does the same wherever it stands in the row, beside whomever, on however many threads."""
    part = case.walk(case.begin([2, 0], threads=2), [2, 0])
    demand(np.array_equal(part, case.walked[:, [2, 0]]), f"{case.name} depends on an environment's place in the row.")


def fleet_restores(case: FleetCase) -> None:
    """A state taken out and put into a fresh fleet continues to the same bits."""
    for cut in (0, 1, STEPS // 2):
        fleet = case.begin(EVERYONE)
        if cut:
            case.walk(fleet, EVERYONE, 0, cut)
        state = fleet.state()
        plain = all(isinstance(value, np.ndarray) and value.dtype != object for value in state.values())
        demand(plain, f"state() of {case.name}'s fleet must hold plain arrays.")
        expected = case.walk(fleet, EVERYONE, cut)
        again = case.task.open(COUNT)
        again.reset(case.seeds[-1])
        again.restore(state)
        same = np.array_equal(case.walk(again, EVERYONE, cut), expected)
        demand(same, f"{case.name} does not continue to the same bits from a state put back after {cut} steps.")


def fleet_holds_still(case: FleetCase) -> None:
    """An environment that is told to stay still does not move, and the others do."""
    fleet, free = case.begin(EVERYONE), case.begin(EVERYONE)
    still, before = np.array([False, True, False]), fleet.obs.copy()
    fleet.step(case.actions[0], case.seeds[1], still)
    free.step(case.actions[0], case.seeds[1])
    demand(np.array_equal(fleet.obs[1], before[1]), f"{case.name}: an environment told to stay still moved.")
    demand(np.array_equal(fleet.obs[~still], free.obs[~still]), f"{case.name}: others were disturbed by a still one.")


def fleet_grids(case: FleetCase) -> None:
    """Tracked points fall into cells of every grid."""
    size = case.task.spec.obs_size
    for grid in case.task.grids:
        cells = np.asarray(grid.index(jnp.asarray(case.walked[..., size : size + len(grid.axes)], jnp.float32)))
        demand((cells >= 0).all() and (cells < grid.size).all(), f"grid {grid.name!r} of {case.name} has no such cell.")


FLEET_CHECKS: tuple[Callable[[FleetCase], None], ...] = (
    fleet_shapes,
    fleet_finite,
    fleet_repeatable,
    fleet_independent,
    fleet_restores,
    fleet_holds_still,
    fleet_grids,
)


def fleet_checks(cls: Callable[..., Any], **settings: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    """Each check of a host task's contract as a sentence and a call that raises `ContractError` if it is broken."""
    case = FleetCase(cls(**settings))
    for check in FLEET_CHECKS:

        def run(check: Callable[[FleetCase], None] = check) -> None:
            try:
                check(case)
            except (AttributeError, IndexError, TypeError, ValueError) as error:
                raise ContractError(f"{case.name}: {type(error).__name__}: {error}") from error

        yield (check.__doc__ or "").strip().split("\n")[0], run


def check_host_task(cls: Callable[..., Any], **settings: Any) -> None:
    """Run the whole contract on a task on the host; raises `ContractError` at the first broken promise."""
    for _, check in fleet_checks(cls, **settings):
        check()
