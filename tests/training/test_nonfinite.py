"""Values that no computation should see: found within their iteration, named, and contained as the user asked."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import nonfinite
import numpy as np
import optax
import pytest
from faults import Injection, inject
from small import SMALL
from trials import Trial, caught, expected_place, leaves_unsound, possible_fields

import curiax
from curiax._sound import HUGE, LIMIT, Check, Checks, all_within, first, spot, unsound
from curiax._stats import Moments
from curiax._tree import adam, descend
from curiax.experiments import run as running
from curiax.experiments.options import RunOptions
from curiax.experiments.progress import Silent
from curiax.experiments.soundness import find_faults
from curiax.experiments.spec import resolve
from curiax.experiments.writer import CheckpointWriter
from curiax.train.batch import HostReport, first_states
from curiax.train.hosted import Lane
from curiax.train.loop import iterate, rollout_checks

pytestmark = pytest.mark.usefixtures("compiled_once")
SETTINGS = {**SMALL, "loop.rollout": 64, "loop.envs": 2, "ppo.minibatch_size": 32}
VALUES = (math.nan, math.inf, -math.inf, 1e30)


def plan_for(task: Any, method: str, **settings: Any) -> Any:
    settings = {**SETTINGS, **{name.replace("__", "."): value for name, value in settings.items()}}
    return resolve(curiax.Experiment(task, method, seeds=(3, 5), steps=384, settings=settings))


@functools.cache
def trial(task: str, method: str, mode: str = "stop") -> Trial:
    return Trial(plan_for(task, method), mode)


def places(plan: Any) -> list[Injection]:
    """Every field once, each with another value, of the second seed's second environment in the second iteration."""
    steps = {"model": 1, "policy": 2, "start": 0}
    return [
        Injection(
            field, VALUES[k % 4], 5, int(field != "start"), steps.get(field.split("_")[0], 17), int("_" not in field)
        )
        for k, field in enumerate(possible_fields(plan))
    ]


# --- found and named --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "method"), [("mountain-car", "ngu"), ("half-cheetah", "lbs")])
def test_every_field_is_caught_in_its_iteration_and_named(task: str, method: str) -> None:
    """Seed, environment, field and step, or the gradient step; nothing is said of the other seed."""
    tried = trial(task, method)
    assert len(places(tried.plan)) == 10
    for injection in places(tried.plan):
        assert caught(tried, injection) == (True, True), injection


def test_every_value_is_caught_in_every_field() -> None:
    tried = trial("mountain-car", "ngu")
    for injection in places(tried.plan):
        for value in VALUES:
            moved = dataclasses.replace(injection, value=value, seed=3, step=injection.step and injection.step - 1)
            assert caught(tried, moved) == (True, True), moved


def test_a_fault_in_the_last_step_is_of_its_own_iteration() -> None:
    """Its observation is acted on in the next one only."""
    tried = trial("mountain-car", "ngu")
    for value in VALUES:
        assert caught(tried, Injection("observation", value, 3, 1, 63, 0)) == (True, True)


def rollout_of(**wrong: tuple[int, int]) -> Any:
    """A rollout of 40 steps of two environments, unsound at these steps and environments."""
    lead = (40, 2)
    values = {name: np.zeros((*lead, 1), np.float32) for name in ("obs", "action", "next_obs", "point")}
    values["reward"] = np.zeros(lead, np.float32)
    for name, place in wrong.items():
        values[name][place] = np.nan
    arrays, no = {name: jnp.asarray(value) for name, value in values.items()}, jnp.zeros(lead, bool)
    point = arrays.pop("point")
    return curiax.Rollout(curiax.Transition(**arrays, terminated=no, truncated=no, valid=~no), point, point)


def named(found: Checks) -> dict[str, int]:
    """The checks that found something, and where."""
    return {check.name: int(at) for check, at in zip(found.each, found.places, strict=True) if at >= 0}


def test_the_first_fault_of_a_rollout_is_its_cause() -> None:
    """By steps, then by what spreads within one, then by environments."""
    fine, nowhere = jnp.zeros(2, bool), jnp.zeros((), bool)
    assert named(rollout_checks(rollout_of(), fine, nowhere)) == {}
    later = rollout_of(next_obs=(10, 1), action=(11, 1))
    assert named(rollout_checks(later, fine, nowhere)) == {"observation": 21}
    together = rollout_of(next_obs=(10, 1), action=(10, 0))
    assert named(rollout_checks(together, fine, nowhere)) == {"action": 20}, "an action comes before what it leads to"
    three = rollout_of(next_obs=(10, 1), reward=(10, 0), point=(15, 0))
    assert named(rollout_checks(three, fine, nowhere)) == {"observation": 21}
    started = jnp.asarray([False, True])
    assert named(rollout_checks(together, started, nowhere)) == {"start": 1}
    raw = jnp.zeros((40, 2), bool).at[10, 0].set(True)
    assert named(rollout_checks(rollout_of(next_obs=(10, 1)), fine, raw)) == {"observation": 20}, (
        "its statistics spread"
    )


def test_the_first_check_that_found_something_is_reported() -> None:
    """Each seed's earliest iteration; within it the order of the checks, which is that in which faults spread."""
    plan = plan_for("mountain-car", "lbs")
    each = (
        Check("start", "the observations of task {task!r}", "starts", outside=True),
        Check("reward", "the reward of task {task!r}", "steps", outside=True),
        Check("policy_loss", "the loss given {method!r}", "updates"),
        Check("model", "what {method!r} keeps", "nothing"),
    )

    def found(*places: list[list[int]]) -> list[Any]:
        return find_faults(plan, HostReport({}, np.asarray(places), each), 4)

    none = [-1] * 4
    assert found([none, none], [none, none]) == []
    (fault,) = found([none, none], [none, [-1, 21, 0, 0]])
    assert (fault.seed, fault.iteration, fault.field) == (5, 5, "reward")
    assert spot(5, 1, 5 * 64 + 11, 2, 5) in fault.message
    assert "5, environment 1, step 331 of that environment (iteration 5, after 662 steps" in fault.message
    assert fault.message.startswith("NaN, infinity or a value beyond 1e10 in the reward of task 'mountain-car': ")
    first, second = found([none, [0, -1, -1, -1]], [[-1, -1, 2, 0], [1, -1, -1, -1]])
    assert (first.seed, first.iteration, first.field) == (5, 4, "policy_loss")
    assert (
        "beyond 1e19 in the loss given 'lbs': seed 5, gradient step 2 of iteration 4 (steps 512 to 640" in first.message
    )
    assert (second.seed, second.field) == (3, "start")
    assert spot(3, 0, 5 * 64, 2, 5) in second.message
    (last,) = found([none, [-1, -1, -1, 0]], [none, none])
    assert "what 'lbs' keeps: seed 3, iteration 5 (" in last.message


def test_bounds_are_where_they_are_said_to_be() -> None:
    below, at = np.nextafter(np.float32(HUGE), np.float32(0)), np.float32(HUGE)
    np.testing.assert_array_equal(
        unsound(jnp.asarray([[below, 0.0], [-at, 0.0], [0.0, jnp.nan]]), 1), [False, True, True]
    )
    assert not unsound(jnp.full((1,), 2**31 - 1, jnp.int32), 1)[0], "whole numbers are always sound"
    with np.errstate(over="ignore"):
        assert np.isfinite(np.float32(LIMIT) ** 2)
        assert np.isinf(np.float32(2 * LIMIT) ** 2)
    assert all_within({"fine": jnp.asarray(9e18), "count": jnp.asarray(3)})
    assert not all_within((jnp.ones(2), jnp.asarray([0.0, -jnp.inf])))
    assert [int(first(jnp.asarray(flags))) for flags in ([[False, False], [True, True]], [False])] == [2, -1]


@pytest.mark.parametrize("method", ["lbs"])
def test_no_false_alarm(method: str) -> None:
    """Observations up to ±1e6, not normalised; one that never changes; every episode one step long."""
    plan = plan_for(Wild, method, loop__normalise_obs=False, loop__extrinsic_weight=1.0)
    state = first_states(plan.setup, plan.seeds)
    step = eqx.filter_jit(eqx.filter_vmap(lambda state: iterate(plan.setup, state)))
    for _ in range(3):
        state, report = step(state)
        assert len(report.checks.each) == 13
        np.testing.assert_array_equal(report.checks.places, -1)
    assert leaves_unsound(state) == []


class Wild(curiax.AbstractTask):
    """Far away, constant, and over at once."""

    spec: curiax.Spec = eqx.field(static=True)
    grids: tuple[curiax.Grid, ...] = eqx.field(static=True)

    def __init__(self) -> None:
        self.spec, self.grids = curiax.Spec((2,), curiax.Box((-1.0,), (1.0,))), ()

    def reset(self, *, key: Any) -> Any:
        return 1e6 * jax.random.uniform(key, minval=-1.0)

    def step(self, state: Any, action: Any, *, key: Any) -> Any:
        return -state, state, jnp.ones((), bool)

    def observe(self, state: Any) -> Any:
        return jnp.stack([state, 3.0])

    def track(self, state: Any) -> Any:
        return jnp.zeros(0)


@pytest.mark.parametrize("bad", VALUES)
def test_the_first_unsound_gradient_step_is_named(bad: float) -> None:
    def loss(weight: Any, batch: Any) -> Any:
        value = jnp.sum((weight - batch) ** 2)
        return value, {"loss": value}

    optimiser, weight = adam(0.1, 1e-8, None), jnp.zeros(1)
    batches = jnp.asarray([[1.0], [bad], [3.0], [bad]])
    places = descend(loss, weight, optimiser, optimiser.init(weight), batches)[3]
    assert places.tolist() == [1, -1], "its gradient only follows from it"
    assert descend(loss, weight, optimiser, optimiser.init(weight), jnp.ones((4, 1)))[3].tolist() == [-1, -1]


def test_a_gradient_is_watched_where_the_loss_is_sound() -> None:
    """A slope of 1e30 in a loss of 1: Adam's second moment would be infinite and training dead, without a NaN."""

    def loss(weight: Any, batch: Any) -> Any:
        return 1.0 + batch * jnp.sum(weight), {}

    optimiser, weight = adam(0.1, 1e-8, None), jnp.zeros(1)
    after, state, _, places = descend(loss, weight, optimiser, optimiser.init(weight), jnp.asarray([1e30, 1.0]))
    assert np.isfinite(after).all()
    assert np.isinf(optax.tree.get(state, "nu")).any()
    assert places.tolist() == [-1, 0]


def test_moments_of_what_is_named() -> None:
    """Merging with a mask is merging what it leaves; nothing is left, nothing changes."""
    batch = jnp.asarray([[1.0, 2.0], [jnp.nan, 1e30], [5.0, -1.0]])
    start = Moments.start((2,)).merge(jnp.ones((4, 2)))
    some, rest = start.merge(batch, jnp.asarray([True, False, True])), start.merge(batch[::2])
    none = start.merge(batch, jnp.zeros(3, bool))
    for mine, theirs in zip(jax.tree.leaves((some, none)), jax.tree.leaves((rest, start)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


# --- whole runs -------------------------------------------------------------------------------------------


def run_with(monkeypatch: Any, injection: Injection, mode: str, method: str = "rnd") -> Any:
    plan = plan_for("mountain-car", method)
    monkeypatch.setattr(running, "resolve", lambda experiment: inject(resolve(experiment), injection))
    return curiax.run(plan.experiment, options=RunOptions(on_nonfinite=mode))


def test_a_run_stops_and_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    injection = Injection("reward", 1e30, 5, 1, 9, 1)
    place = re.escape(expected_place(plan_for("mountain-car", "none"), injection))
    message = (
        f"NaN, infinity or a value beyond 1e10 in the reward of task 'mountain-car': {place}.*nonfinite drop goes on"
    )
    with pytest.raises(curiax.NonFiniteError, match=message):
        run_with(monkeypatch, injection, "stop", "none")


def test_a_dropped_seed_leaves_the_others_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit; what happened is in the manifest, and later faults of a lost seed are ignored."""
    sound = run_with(monkeypatch, Injection("observation", math.nan, 5, 1000, 9, 1), "drop")
    with pytest.warns(UserWarning, match=r"seed 5, environment 1, step 74 of that environment \(iteration 1"):
        left = run_with(monkeypatch, Injection("observation", math.nan, 5, 1, 9, 1), "drop")
    assert list(left.manifest["lost"]) == ["5"]
    assert "observations of task 'mountain-car'" in left.manifest["lost"]["5"]
    assert left.metrics.equals(sound.metrics.filter(sound.metrics["seed"] == 3))
    assert not [name for name in left.metrics.columns if name.startswith("unsound/")]


def test_a_dropped_seed_stays_dropped_when_the_run_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does afterwards may be sound again: only the checkpoint knows."""

    class Crash(Silent):
        def advance(self, iteration: int, latest: Any) -> None:
            if iteration == 3:
                raise MemoryError

    fault = Injection("reward", math.nan, 5, 0, 9, 1)
    what = plan_for("mountain-car", "none").experiment
    drop = RunOptions(on_nonfinite="drop", checkpoint_seconds=0.0)
    monkeypatch.setattr(running.saved, "write", lambda *_: None)  # which would not know the poisoned method
    monkeypatch.setattr(running, "resolve", lambda experiment: inject(resolve(experiment), fault))
    with pytest.raises(MemoryError):
        curiax.run(what, tmp_path / "run", progress=Crash(), options=drop)
    with pytest.warns(UserWarning, match="seed 5"):
        again = curiax.run(what, tmp_path / "run", options=drop)
    assert again.manifest["continued"][0]["iteration"] > 0
    assert list(again.manifest["lost"]) == ["5"]
    assert again.metrics["seed"].unique().to_list() == [3]


def test_dropping_seeds_compiles_nothing_more() -> None:
    """`stop` and `drop` are the same program."""
    plan = plan_for("mountain-car", "rnd")
    texts = {}
    for mode in ("stop", "drop"):
        setup = dataclasses.replace(plan.setup, on_nonfinite=mode)
        arrays, static = eqx.partition(first_states(setup, plan.seeds), eqx.is_array)

        def one(arrays: Any, setup: Any = setup, static: Any = static) -> Any:
            after, report = iterate(setup, eqx.combine(arrays, static))
            return eqx.filter(after, eqx.is_array), report

        texts[mode] = jax.jit(jax.vmap(one)).lower(arrays).as_text()
    assert texts["stop"] == texts["drop"]


@pytest.mark.parametrize("field", ["observation", "start"])
def test_a_lane_stops_at_once(field: Any) -> None:
    """Before it learns from anything: the rollout does not even end."""
    tried = trial("half-cheetah", "lbs")
    iteration = int(field == "observation")
    outcome = tried.run(Injection(field, math.inf, 3, iteration, 5 * iteration, 1), 3)
    assert outcome.faults == []
    assert len(outcome.metrics) == iteration
    assert tried.lane is not None
    assert tried.lane.now == 70 * iteration
    assert "entry 0 became inf" in outcome.error
    assert "--on-nonfinite drop" in outcome.error


class NeverSound(curiax.AbstractTask):
    """Every observation is NaN, from the first reset on."""

    spec: curiax.Spec = eqx.field(static=True)
    grids: tuple[curiax.Grid, ...] = eqx.field(static=True)

    def __init__(self) -> None:
        self.spec = curiax.Spec((2,), curiax.Box((-1.0,), (1.0,)), 20)
        self.grids = (curiax.Grid("bins", (curiax.Axis("x", 0.0, 1.0, 4),), "floor"),)

    def reset(self, *, key: Any) -> Any:
        return jnp.zeros(())

    def step(self, state: Any, action: Any, *, key: Any) -> Any:
        return state, jnp.asarray(jnp.inf), jnp.zeros((), bool)

    def observe(self, state: Any) -> Any:
        return jnp.full(2, jnp.nan)

    def track(self, state: Any) -> Any:
        return jnp.full(1, jnp.nan)


def test_a_task_with_nothing_sound_leaves_no_seed() -> None:
    experiment = curiax.Experiment(NeverSound, "none", seeds=2, steps=256, settings=SETTINGS)
    with pytest.raises(curiax.SimulatorError, match=r"observations of task '.*NeverSound': seed 0.*No seed is left"):
        curiax.run(experiment, options=RunOptions(on_nonfinite="drop"))


def test_no_checkpoint_is_unsound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the faults that soak/nonfinite.py sends through `curiax.run`, with a checkpoint after every iteration."""
    save = CheckpointWriter.save

    def save_and_wait(writer: CheckpointWriter, *args: Any) -> None:
        save(writer, *args)
        writer.wait()

    monkeypatch.setattr(CheckpointWriter, "save", save_and_wait)
    plan = nonfinite.plan_for("mountain-car", "rnd")
    fault = Injection("bonus", 1e30, 7, 2, 9, 1)
    assert nonfinite.caught_by_run(plan, fault, tmp_path / "run") == (True, True)
    written, unsound = nonfinite.unsound_checkpoints(plan, tmp_path / "run")
    assert written > 0
    assert unsound == 0


def test_the_soaks_faults_are_everywhere() -> None:
    plan = plan_for("mountain-car", "ngu")
    rng = np.random.default_rng(0)
    for field in possible_fields(plan):
        injection = nonfinite.somewhere(rng, plan, field)
        assert injection.field == field
        assert 0 <= injection.step < 64


def test_lanes_know_their_actions_from_their_observations() -> None:
    """Where an action ran away and the simulation followed in the same step, the action is named."""
    plan = plan_for("half-cheetah", "random")
    lane = Lane(plan.setup, plan.seeds, jax.devices()[:1])
    lane.tape.action[4, 1, 0, 2] = np.nan
    lane.fleet.obs[2, 0] = np.inf
    lane.now = 5
    with pytest.raises(curiax.NonFiniteError, match=r"the policy's actions: seed 5, environment 0, step 5 of that"):
        lane._blame(np.array([[False, False], [True, False]]), 4)
