"""The maps of the bonus: what a probe asks, where the bonus was paid, and how much of it the noise earned."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import SMALL

import curiax
from curiax.envs import NoisyRemote, RemoteSettings
from curiax.experiments.spec import Plan, resolve
from curiax.train.batch import first_states
from curiax.train.loop import collect, evaluate, iterate


class NoiseMeter(curiax.AbstractCuriosity):
    """Pays for how far the last entry of the observation moved: for noise, and for noise alone."""

    def __init__(self, spec: curiax.Spec, *, key: Any) -> None:
        pass

    def reward(self, memory: Any, t: curiax.Transition, *, key: Any) -> tuple[Any, Any]:
        return memory, jnp.abs(t.next_obs[-1] - t.obs[-1])

    def loss(self, t: curiax.Transition, *, draw: Any) -> tuple[Any, dict[str, Any]]:
        return jnp.zeros(()), {}


class SpeedMeter(NoiseMeter):
    """Pays for the change of velocity."""

    def reward(self, memory: Any, t: curiax.Transition, *, key: Any) -> tuple[Any, Any]:
        return memory, jnp.abs(t.next_obs[1] - t.obs[1])


@functools.cache
def iterated(task: str, method: type[curiax.AbstractCuriosity]) -> tuple[Plan, Any, Any]:
    """A plan, a seed's first state and the metrics of its first iteration."""
    plan = resolve(curiax.Experiment(task, method, seeds=1, steps=128, settings={**SMALL, "loop.normalise_obs": False}))
    state = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, first_states(plan.setup, [3]))
    arrays, static = eqx.partition(state, eqx.is_array)
    run = jax.jit(lambda arrays: iterate(plan.setup, eqx.combine(arrays, static))[1].metrics)
    return plan, state, jax.tree.map(np.asarray, run(arrays))


@pytest.mark.parametrize("task", ["mountain-car-frozen", "mountain-car-evolving"])
def test_a_probe_tells_noise_from_the_car(task: str) -> None:
    """A bonus that pays for noise alone gives 0 for the car and, from 0 to U(−1, 1), about ½ for the remote."""
    _, _, found = iterated(task, NoiseMeter)
    assert np.all(found["probe/car"] == 0)
    assert found["probe/noise"].mean() == pytest.approx(0.5, abs=0.05)
    assert found["probe/noise"].shape == (100,)


def test_a_probe_pushes_the_car_by_the_laws_of_motion() -> None:
    """At bin (i, j) the probe starts in its middle and pushes with ±1; |Δv| follows from the card's equation."""
    _, _, found = iterated("mountain-car", SpeedMeter)
    x = -1.2 + 1.8 * (np.arange(10) + 0.5) / 10
    v = -0.07 + 0.14 * (np.arange(10) + 0.5) / 10
    for i in range(10):
        for j in range(10):
            changes = []
            for force in (-1.0, 1.0):
                speed = np.clip(v[j] + 0.0015 * force - 0.0025 * np.cos(3 * x[i]), -0.07, 0.07)
                place = np.clip(x[i] + speed, -1.2, 0.6)
                speed = 0.0 if place <= -1.2 and speed < 0 else speed
                changes.append(abs(speed - v[j]))
            assert found["probe/car"][10 * i + j] == pytest.approx(np.mean(changes), abs=1e-6)


def test_pressing_the_remote_lets_an_evolving_car_coast_and_stops_a_frozen_one() -> None:
    coasting = iterated("mountain-car-evolving", SpeedMeter)[2]["probe/noise"].reshape(10, 10)
    x = -1.2 + 1.8 * (np.arange(10) + 0.5) / 10
    np.testing.assert_allclose(coasting[4:7, 5], np.abs(0.0025 * np.cos(3 * x[4:7])), atol=1e-6)
    assert np.all(iterated("mountain-car-frozen", SpeedMeter)[2]["probe/noise"] == 0)


def test_what_was_paid_is_counted_where_it_was_paid() -> None:
    """Brute force over the rollout; and the noise earned all of a bonus that pays for noise alone."""
    plan, state, found = iterated("mountain-car-frozen", NoiseMeter)
    rollout = eqx.filter_jit(collect)(plan.setup, state)[1]
    agent: Any = plan.setup.agent
    seen = agent.model_transitions(rollout).step
    raw = np.abs(np.asarray(seen.next_obs)[:, 0, -1] - np.asarray(seen.obs)[:, 0, -1])
    pressed = np.asarray(rollout.step.action)[:, 0, -1] > 0
    for grid in plan.setup.task.grids:
        paid, visits = np.zeros(grid.size), np.zeros(grid.size)
        for cell, bonus in zip(np.asarray(grid.index(rollout.points))[:, 0], raw, strict=True):
            paid[cell] += bonus
            visits[cell] += 1
        np.testing.assert_allclose(found[f"paid/{grid.name}"], paid, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(found[f"occupancy/{grid.name}"], visits)
    assert found["noise/steps"] == pytest.approx(pressed.mean())
    ended = np.asarray(rollout.step.ended)[:, 0]
    assert found["noise/bonus"] == pytest.approx(raw[pressed].sum() / raw.sum(), rel=1e-5)
    assert np.all(raw[~pressed & ~ended] == 0)


def test_maps_are_of_the_model_that_paid_for_the_rollout() -> None:
    """Not of the one trained on it since."""
    plan, state, found = iterated("mountain-car", curiax.experiments.registry.METHODS["icm"].cls)
    stats = eqx.filter_jit(collect)(plan.setup, state)[0].obs_stats
    expected = eqx.filter_jit(evaluate)(plan.setup, replace(state, obs_stats=stats))
    np.testing.assert_allclose(found["probe/car"], expected["probe/car"], rtol=1e-3, atol=1e-6)


def test_a_memory_has_no_probe_and_a_quiet_task_no_noise() -> None:
    found = iterated("mountain-car", curiax.experiments.registry.METHODS["ride"].cls)[2]
    assert not [name for name in found if name.startswith(("probe/", "noise/"))]


def test_fresh_noise_is_unlearnable_at_every_step() -> None:
    car = curiax.experiments.registry.TASKS["mountain-car"].cls()
    untouched = jnp.array([0.5, -1.0])
    assert not NoisyRemote(car, RemoteSettings("frozen")).unlearnable(untouched)
    assert NoisyRemote(car, RemoteSettings("frozen", between="fresh")).unlearnable(untouched)
    assert car.unlearnable(untouched[:1]) is None


def test_a_discrete_task_is_probed_too() -> None:
    """Pulling is one choice more; the task's own actions are asked with the remote untouched."""

    class Line(curiax.AbstractTask):
        spec: curiax.Spec = eqx.field(static=True, default=curiax.Spec((1,), curiax.Discrete(2), 10))
        grids: tuple[curiax.Grid, ...] = eqx.field(
            static=True, default=(curiax.Grid("bins", (curiax.Axis("x", 0.0, 4.0, 4),), "floor"),)
        )

        def reset(self, *, key: Any) -> Any:
            return jnp.zeros(())

        def step(self, state: Any, action: Any, *, key: Any) -> Any:
            return state + jnp.where(action == 1, 1.0, -1.0), jnp.zeros(()), jnp.zeros((), bool)

        def observe(self, state: Any) -> Any:
            return state[None]

        def track(self, state: Any) -> Any:
            return state[None]

        def probe(self) -> Any:
            return curiax.envs.Probe("bins", jnp.arange(4) + 0.5, {"walk": jnp.array([0, 1])})

    task = NoisyRemote(Line(), RemoteSettings("frozen"))
    plan, state, _ = iterated("mountain-car-frozen", NoiseMeter)
    setup = replace(plan.setup, task=task)
    found = eqx.filter_jit(evaluate)(setup, replace(state, obs_stats=curiax._stats.Moments.start((2,))))
    assert np.all(found["probe/walk"] == 0)
    assert np.all(found["probe/noise"] > 0)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda probe: 3, "must return a curiax.envs.Probe or None, not int"),
        (lambda probe: replace(probe, grid="bens"), "names the grid 'bens'; the task has cells, bins"),
        (lambda probe: replace(probe, grid="cells"), "one for each of the 121 cells of 'cells'"),
        (lambda probe: replace(probe, actions={}), "must be a dict of names"),
        (lambda probe: replace(probe, actions={"a": jnp.zeros((3, 2))}), r"must be float32\[3, 1\]"),
    ],
)
def test_a_wrong_probe_is_refused_before_anything_is_compiled(spoil: Any, message: str) -> None:
    class Wrong(curiax.envs.MountainCar):
        def probe(self) -> Any:
            return spoil(super().probe())

    with pytest.raises(curiax._errors.ContractError, match=message):
        curiax._contract.check_task_shapes(Wrong(), "Wrong")


def test_the_built_in_probes_keep_the_contract() -> None:
    for name in ("mountain-car", "mountain-car-frozen", "mountain-car-evolving"):
        task = resolve(curiax.Experiment(name, "random")).setup.task
        curiax._contract.check_task_shapes(task, name)
