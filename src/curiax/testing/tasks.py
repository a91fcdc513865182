"""The contract of a task."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._contract import check_task_shapes
from .._errors import ContractError
from .._types import Discrete, PRNGKey, Spec
from ..envs import AbstractTask
from ._demand import close, demand


class TaskCase:
    """One task, with a compiled walk through it."""

    def __init__(self, task: AbstractTask) -> None:
        self.task, self.name = task, type(task).__name__
        check_task_shapes(task, self.name)
        spec = task.spec

        def walk(key: PRNGKey) -> tuple[Array, Array, Array, Array]:
            reset_key, keys = jax.random.fold_in(key, 0), jax.random.split(jax.random.fold_in(key, 1), 64)

            def step(state: Any, key: PRNGKey) -> tuple[Any, tuple[Array, Array, Array, Array]]:
                draw_key, step_key = jax.random.split(key)
                state, reward, terminated = task.step(state, random_action(spec, draw_key), key=step_key)
                return state, (task.observe(state), reward, terminated, task.track(state))

            return jax.lax.scan(step, task.reset(key=reset_key), keys)[1]

        self.walk = jax.jit(walk)


def random_action(spec: Spec, key: PRNGKey) -> Array:
    """A uniformly random action."""
    if isinstance(spec.action, Discrete):
        return jax.random.randint(key, (), 0, spec.action.n, jnp.int32)
    return jax.random.uniform(
        key, spec.action.shape, minval=jnp.array(spec.action.low), maxval=jnp.array(spec.action.high)
    )


def task_finite(case: TaskCase) -> None:
    """Random actions lead to finite observations, rewards and tracked points."""
    obs, reward, _, point = case.walk(jax.random.key(0))
    for what, value in (("observations", obs), ("rewards", reward), ("tracked points", point)):
        demand(np.isfinite(value).all(), f"random actions lead {case.name} to {what} that are not finite.")


def task_repeatable(case: TaskCase) -> None:
    """The same key gives the same walk to the last bit; other keys give others."""

    def equal(a: tuple[Array, ...], b: tuple[Array, ...]) -> bool:
        return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))

    first, again, *others = (case.walk(jax.random.key(seed)) for seed in (0, 0, *range(1, 9)))
    demand(equal(first, again), f"{case.name} is not repeatable.")
    demand(not all(equal(first, other) for other in others), f"{case.name} ignores its keys and actions.")


def task_vmap(case: TaskCase) -> None:
    """Many instances side by side do what one does alone."""
    keys = jax.random.split(jax.random.key(3), 3)
    together = jax.vmap(case.walk)(keys)
    alone = case.walk(keys[1])
    same = all(close(a[1], b) for a, b in zip(together, alone, strict=True))
    demand(same, f"{case.name} behaves differently beside other instances than alone.")


def task_bounds(case: TaskCase) -> None:
    """Observations stay within the bounds the task declares, if it declares any."""
    spec, obs = case.task.spec, np.asarray(case.walk(jax.random.key(0))[0]).reshape(64, -1)
    low = np.asarray(spec.obs_low or (-math.inf,), np.float32)
    high = np.asarray(spec.obs_high or (math.inf,), np.float32)
    inside = (obs >= low).all() and (obs <= high).all()
    demand(inside, f"an observation of {case.name} left the bounds that its spec declares.")


def task_grids(case: TaskCase) -> None:
    """Tracked points fall into cells of every grid."""
    points = case.walk(jax.random.key(0))[3]
    for grid in case.task.grids:
        cells = np.asarray(grid.index(points))
        demand((cells >= 0).all() and (cells < grid.size).all(), f"grid {grid.name!r} of {case.name} has no such cell.")
        limit = grid.reachable
        demand(
            limit is None or 0 < limit <= grid.size, f"grid {grid.name!r} of {case.name}: reachable must be 1..size."
        )


TASK_CHECKS: tuple[Callable[[TaskCase], None], ...] = (task_finite, task_repeatable, task_vmap, task_bounds, task_grids)


def task_checks(cls: Callable[..., AbstractTask], **settings: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    """Each check of a task's contract as a sentence and a call that raises `ContractError` if it is broken."""
    try:
        task = cls(**settings)
    except (Exception, SystemExit) as error:
        raise ContractError(f"constructing {cls} failed: {type(error).__name__}: {error}") from error
    cases: list[TaskCase] = []
    yield "reset, step, observe and track return what spec and grids promise.", lambda: cases.append(TaskCase(task))
    for check in TASK_CHECKS:
        yield (check.__doc__ or "").strip().split("\n")[0], lambda check=check: check(cases[0])


def check_task(cls: Callable[..., AbstractTask], **settings: Any) -> None:
    """Run the whole contract on a task; raises `ContractError` at the first broken promise."""
    for _, check in task_checks(cls, **settings):
        check()
