"""The contract suite: every registered method and task keeps it, and broken ones are caught by it."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import curiax
from curiax._errors import ContractError
from curiax.envs import AbstractHostTask, MountainCar
from curiax.experiments.registry import METHODS, TASKS
from curiax.experiments.spec import Experiment, resolve
from curiax.testing import NoisyArm, ProbeTask, check_curiosity, check_task


@pytest.mark.parametrize("name", sorted(name for name, entry in METHODS.items() if entry.cls is not None))
def test_every_method_keeps_the_contract(name: str) -> None:
    entry = METHODS[name]
    check_curiosity(entry.method, **{key.removeprefix("method."): value for key, value in entry.settings.items()})


def test_every_task_keeps_the_contract() -> None:
    for name in TASKS:
        task = resolve(Experiment(name, "random")).setup.task
        if not isinstance(task, AbstractHostTask):  # tests/test_hosted.py holds those to theirs
            check_task(lambda task=task: task)
    for build in (MountainCar, NoisyArm, ProbeTask):
        check_task(build)


# --- methods that break one promise each ------------------------------------------------------------------


class Good(curiax.AbstractCuriosity):
    """Keeps every promise; the broken ones below differ from it in one line."""

    weight: Any

    def __init__(self, spec: curiax.Spec, *, key: curiax.PRNGKey) -> None:
        self.weight = jax.random.normal(key, (spec.obs_size,))

    def reward(self, memory: Any, t: curiax.Transition, *, key: curiax.PRNGKey) -> Any:
        return memory, jnp.abs(jnp.sum(self.weight * jnp.ravel(t.obs)))

    def loss(self, t: curiax.Transition, *, draw: Any) -> Any:
        return jnp.mean((self.weight - jnp.ravel(t.next_obs)) ** 2), {}


class IgnoresKey(curiax.AbstractCuriosity):
    weight: Any

    def __init__(self, spec: curiax.Spec, *, key: curiax.PRNGKey) -> None:
        self.weight = jnp.ones(spec.obs_size)

    reward, loss = Good.reward, Good.loss


class Negative(curiax.AbstractCuriosity):
    weight: Any
    nonnegative = True
    __init__, loss = Good.__init__, Good.loss

    def reward(self, memory: Any, t: curiax.Transition, *, key: curiax.PRNGKey) -> Any:
        return memory, jnp.sum(self.weight * jnp.ravel(t.obs))


class Overflows(curiax.AbstractCuriosity):
    weight: Any
    __init__, loss = Good.__init__, Good.loss

    def reward(self, memory: Any, t: curiax.Transition, *, key: curiax.PRNGKey) -> Any:
        return memory, jnp.exp(jnp.sum(jnp.abs(t.obs)))


class RemembersTooMuch(curiax.AbstractCuriosity):
    weight: Any
    __init__, loss = Good.__init__, Good.loss

    def memory(self) -> Any:
        return jnp.zeros(())

    def forget(self, memory: Any) -> Any:
        return memory + 1.0

    def reward(self, memory: Any, t: curiax.Transition, *, key: curiax.PRNGKey) -> Any:
        return memory + 1.0, memory


class NeverLearns(curiax.AbstractCuriosity):
    weight: Any
    __init__, reward = Good.__init__, Good.reward

    def loss(self, t: curiax.Transition, *, draw: Any) -> Any:
        return jnp.sum(t.obs), {}


class LearnsTheWrongWay(curiax.AbstractCuriosity):
    """A gradient that points uphill, by a custom derivative of the wrong sign."""

    weight: Any
    __init__, reward = Good.__init__, Good.reward

    def loss(self, t: curiax.Transition, *, draw: Any) -> Any:
        right = jnp.mean((self.weight - jnp.ravel(t.next_obs)) ** 2)
        return 2 * jax.lax.stop_gradient(right) - right, {}


class HiddenState(curiax.AbstractCuriosity):
    weight: Any
    __init__, loss = Good.__init__, Good.loss

    def reward(self, memory: Any, t: curiax.Transition, *, key: curiax.PRNGKey) -> Any:
        return memory, jnp.sum(t.obs) ** 2 + float(np.random.default_rng().random())


def test_the_good_one_passes() -> None:
    check_curiosity(Good)


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (IgnoresKey, "ignores its key"),
        (Negative, "never negative"),
        (Overflows, "not finite for observations of size 1e\\+06"),
        (RemembersTooMuch, "not what forget\\(\\) leaves"),
        (NeverLearns, "changed no parameter"),
        (LearnsTheWrongWay, "did not lower the loss"),
        (HiddenState, "HiddenState"),
    ],
)
def test_a_broken_promise_is_found(cls: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        check_curiosity(cls)


# --- tasks that break one promise each --------------------------------------------------------------------


class Drift(curiax.AbstractTask):
    """Keeps every promise unless told to break one."""

    spec: curiax.Spec = eqx.field(static=True)
    grids: tuple[curiax.Grid, ...] = eqx.field(static=True)
    fault: str = eqx.field(static=True)

    def __init__(self, *, fault: str = "") -> None:
        self.fault = fault
        bound = 0.1 if fault == "bounds" else 100.0
        action = curiax.Box((-1.0,), (1.0,))
        self.spec = curiax.Spec(
            (2 if fault == "shape" else 1,), action, 10, *([(-bound,), (bound,)] if fault != "shape" else [])
        )
        axes = (curiax.Axis("x", -1.0, 1.0, 4),) * (2 if fault == "track" else 1)
        self.grids = (curiax.Grid("bins", axes, "floor", 99 if fault == "reachable" else 4),)

    def reset(self, *, key: curiax.PRNGKey) -> Any:
        return jnp.zeros(1)

    def step(self, state: Any, action: Any, *, key: curiax.PRNGKey) -> Any:
        after = state if self.fault == "dead" else state + action
        reward = jnp.log(state[0]) if self.fault == "nan" else state[0]
        ended = jnp.zeros(()) if self.fault == "flag" else jnp.zeros((), bool)
        return (after.astype(jnp.int32) if self.fault == "state" else after), reward, ended

    def observe(self, state: Any) -> Any:
        return state

    def track(self, state: Any) -> Any:
        return state


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("shape", r"observe\(\) must be float32\[2\], not float32\[1\]"),
        ("state", "the state of Drift changes from float32"),
        ("flag", "terminated of .* must be bool"),
        ("track", r"track\(\) must be float32\[2\]"),
        ("nan", "rewards that are not finite"),
        ("dead", "ignores its keys and actions"),
        ("bounds", "left the bounds"),
        ("reachable", "reachable must be 1..size"),
    ],
)
def test_a_broken_task_is_found(fault: str, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        check_task(Drift, fault=fault)


def test_the_good_task_passes() -> None:
    check_task(Drift)
