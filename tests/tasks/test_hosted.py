"""Training on host tasks: what lanes collect, how it meets the pure-JAX family, what is exact, what may fail."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import SMALL

import curiax
from curiax._stats import Moments
from curiax._types import Rewards
from curiax.agents import PPO, CuriousAgent, PPOSettings, RewardSettings, Uniform
from curiax.agents._base import AbstractAgent
from curiax.curiosity import Learner, LearnerSettings
from curiax.envs import AbstractFleet, AbstractHostTask, AbstractTask, HostRemote, RemoteSettings
from curiax.envs.remote import uniform
from curiax.experiments.options import RunOptions
from curiax.experiments.progress import Silent
from curiax.experiments.reproduce import experiments
from curiax.experiments.spec import resolve
from curiax.experiments.training import Training
from curiax.paper.suites import find_suite
from curiax.testing import check_host_task, fleet_checks
from curiax.train.batch import first_states
from curiax.train.hosted import Lane
from curiax.train.lanes import open_lanes, run_lanes
from curiax.train.loop import iterate
from curiax.train.moments import HostMoments

pytestmark = pytest.mark.usefixtures("compiled_once")
GRID = curiax.Grid("cells", (curiax.Axis("position", -2.0, 2.0, 8), curiax.Axis("speed", -1.0, 1.0, 4)), "floor")
SPEC = curiax.Spec((2,), curiax.Box((-1.0,), (1.0,)), 50)


class Sled(AbstractTask):
    """A sled on a line, always started at rest: speed ← 0.9 speed + 0.1 push, position ← position + speed."""

    spec: curiax.Spec = eqx.field(static=True)
    grids: tuple[curiax.Grid, ...] = eqx.field(static=True)

    def __init__(self) -> None:
        self.spec, self.grids = SPEC, (GRID,)

    def reset(self, *, key: Any) -> Any:
        return jnp.zeros(2)

    def step(self, state: Any, action: Any, *, key: Any) -> Any:
        speed = 0.9 * state[1] + 0.1 * action[0]
        after = jnp.stack([state[0] + speed, speed])
        return after, after[0], jnp.abs(after[0]) > 3.0

    def observe(self, state: Any) -> Any:
        return state

    def track(self, state: Any) -> Any:
        return state


class HostSled(AbstractHostTask):
    """The same sled in NumPy; `breaks` names a seed row and step at which its simulation runs away."""

    spec: curiax.Spec = eqx.field(static=True)
    grids: tuple[curiax.Grid, ...] = eqx.field(static=True)
    budget: ClassVar[int] = 1024
    breaks: str = eqx.field(static=True)
    at: int = eqx.field(static=True)

    def __init__(self, *, breaks: str = "0", at: int = -1) -> None:
        self.spec, self.grids, self.breaks, self.at = SPEC, (GRID,), breaks, at

    def open(self, count: int, threads: int = 1) -> Sleds:
        return Sleds(count, float(self.breaks), self.at)


class Sleds(AbstractFleet):
    def __init__(self, count: int, breaks: float = 0.0, at: int = -1) -> None:
        self.obs, self.record = np.zeros((count, 2)), np.zeros((count, 2))
        self.terminated, self.truncated = np.zeros(count, bool), np.zeros(count, bool)
        self.breaks, self.at, self.steps = breaks, at, 0

    def reset(self, seeds: np.ndarray, who: np.ndarray | None = None) -> None:
        self.obs[slice(None) if who is None else who] = 0.0
        self.record[:] = self.obs

    def step(self, actions: np.ndarray, seeds: np.ndarray, still: np.ndarray | None = None) -> None:
        moving = slice(None) if still is None else ~still
        speed = 0.9 * self.obs[:, 1] + 0.1 * np.clip(actions[:, 0], -1, 1)
        self.obs[moving] = np.stack([self.obs[:, 0] + speed, speed], axis=1)[moving]
        self.terminated[:] = np.abs(self.obs[:, 0]) > 3.0
        self.steps += 1
        if self.steps == self.at:
            self.obs[0, 1] = self.breaks
        self.record[:] = self.obs

    def measure(self, record: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return record, record[..., 0]

    def state(self) -> dict[str, np.ndarray]:
        return {"obs": self.obs.copy(), "steps": np.asarray(self.steps)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.obs[:], self.steps = state["obs"], int(state["steps"])
        self.record[:] = self.obs


def plan_for(task: Any, method: str = "lbs", seeds: int = 2, **changes: Any) -> Any:
    settings = {**SMALL, **{name.replace("__", "."): value for name, value in changes.items()}}
    return resolve(curiax.Experiment(task, method, seeds=seeds, steps=1024, settings=settings))


def lane_for(plan: Any, seeds: Any = (0, 1)) -> Lane:
    lane = Lane(plan.setup, seeds, jax.devices()[:1])
    lane.compile()
    return lane


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"loop__envs": 3, "loop__normalise_obs": False},
        {"loop__successor": "true", "ppo__episode_ends": "bootstrap"},
    ],
    ids=str,
)
def test_the_two_families_meet(changes: dict[str, Any]) -> None:
    """The same task in JAX and on the host: the same random numbers lead to the same training, to rounding."""
    pure, host = plan_for(Sled, **changes), plan_for(HostSled, **changes)
    lane = lane_for(host)
    state = first_states(pure.setup, (0, 1))
    arrays, static = eqx.partition(state, eqx.is_array)

    @jax.jit
    @jax.vmap
    def step(arrays: Any) -> Any:
        after, report = iterate(pure.setup, eqx.combine(arrays, static))
        return eqx.filter(after, eqx.is_array), report.metrics

    for _ in range(3):
        arrays, expected = step(arrays)
        found = lane.iterate().metrics
    for name in ("coverage/cells", "bonus/mean", "bonus/border_share", "reward/episodes_ended", "policy/entropy"):
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-3, atol=1e-5, err_msg=name)
    np.testing.assert_array_equal(found["occupancy/cells"], expected["occupancy/cells"])
    after = eqx.combine(arrays, static)
    if host.setup.loop.normalise_obs:
        np.testing.assert_allclose(lane.obs_stats.mean, after.obs_stats.mean, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(lane.obs_stats.var, after.obs_stats.var, rtol=1e-3)
    for mine, theirs in zip(
        jax.tree.leaves(lane.train_state.agent.policy), jax.tree.leaves(after.agent.policy), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=5e-3, atol=5e-4)


def test_true_successors_and_fresh_starts() -> None:
    """At an episode's end the rollout holds where the step led, and, beside it, where the next one began."""
    lane = lane_for(plan_for(HostSled, loop__normalise_obs=False))
    lane.iterate()
    tape = lane.tape
    ended = tape.terminated | tape.truncated
    assert tape.truncated.any()
    assert np.abs(tape.next_obs[ended]).sum(-1).min() > 0
    np.testing.assert_array_equal(tape.obs[1:][ended], 0)
    np.testing.assert_array_equal(tape.next_obs[~ended], tape.obs[1:][~ended])
    speed = 0.9 * tape.obs[:-1][..., 1] + 0.1 * np.clip(tape.action[..., 0], -1, 1)
    np.testing.assert_allclose(tape.next_obs[..., 1], speed, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(tape.next_obs[..., 0], tape.obs[:-1][..., 0] + speed, rtol=1e-6, atol=1e-7)
    # Time limits fall every 50 steps of an episode, however long the rollout; the clock runs on between rollouts.
    lane.iterate()
    both = np.concatenate([ended, tape.terminated | tape.truncated])[:, 0, 0]
    gaps = np.diff(np.flatnonzero(both), prepend=-1)
    assert gaps.max() == 50
    assert lane.now == 256


def test_a_lane_continues_to_the_same_bits() -> None:
    """State taken out after some iterations and put into a fresh lane: training goes on exactly as it would have."""
    plan = plan_for(HostSled, loop__envs=2)
    lane, again = lane_for(plan), lane_for(plan)
    for _ in range(2):
        lane.iterate()
    state = lane.state()
    arrays = jax.tree.map(lambda x: jnp.array(x, copy=True), lane.arrays)
    assert all(isinstance(value, np.ndarray) for value in state.values())
    again.restore(state)
    again.arrays = arrays
    for _ in range(2):
        expected, found = lane.iterate().metrics, again.iterate().metrics
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    for mine, theirs in zip(jax.tree.leaves(again.arrays), jax.tree.leaves(lane.arrays), strict=True):
        if not jnp.issubdtype(mine.dtype, jax.dtypes.prng_key):
            np.testing.assert_array_equal(mine, theirs)


def test_cheetahs_lane_continues_to_the_same_bits() -> None:
    """The same with MuJoCo, across an episode's end."""
    plan = plan_for("half-cheetah", task__horizon=150)
    lane, again = lane_for(plan), lane_for(plan)
    lane.iterate()
    again.restore(lane.state())
    again.arrays = jax.tree.map(lambda x: jnp.array(x, copy=True), lane.arrays)
    expected, found = lane.iterate().metrics, again.iterate().metrics
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    np.testing.assert_array_equal(again.fleet.obs, lane.fleet.obs)


WAYS = pytest.mark.parametrize("way", ["numba", "numpy"])


def moments_for(way: str, seeds: int, envs: int, size: int) -> HostMoments:
    moments = HostMoments(seeds, envs, (size,), 1e-8, 10.0)
    if way == "numpy":
        moments._compiled = None
    assert (moments._compiled is None) == (way == "numpy")
    return moments


@WAYS
@pytest.mark.parametrize("envs", [1, 3])
def test_host_moments(envs: int, way: str) -> None:
    """Mean and variance of everything seen, plus the pseudo-observation all start with, by NumPy on the whole."""
    rng = np.random.default_rng(0)
    data = rng.normal(3.0, 2.0, (40, 2, envs, 5))
    moments, reference = moments_for(way, 2, envs, 5), Moments.start((5,))
    out = np.zeros((2, envs, 5), np.float32)
    for obs in data:
        assert moments.merge(obs, out)
        reference = reference.merge(jnp.asarray(obs[1], jnp.float32))
    seen = data[:, 1].reshape(-1, 5)
    count = 1e-4 + len(seen)
    mean = seen.sum(0) / count
    var = (1e-4 * (1 + mean**2) + ((seen - mean) ** 2).sum(0)) / count
    np.testing.assert_allclose(moments.mean[1, 0], mean, rtol=1e-12)
    np.testing.assert_allclose(moments.spread[1, 0] / moments.count, var, rtol=1e-10)
    np.testing.assert_allclose(reference.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(out[1], np.clip((data[-1, 1] - mean) / np.sqrt(var + 1e-8), -10, 10), rtol=1e-5)
    np.testing.assert_allclose(moments.normalise(data[-1]), out, rtol=1e-5)


@WAYS
def test_far_observations_are_clipped(way: str) -> None:
    moments, out = moments_for(way, 1, 1, 2), np.zeros((1, 1, 2), np.float32)
    for step in range(300):
        assert moments.merge(np.full((1, 1, 2), 0.001 * (step % 2)), out)
    assert moments.merge(np.array([[[50.0, -50.0]]]), out)
    np.testing.assert_array_equal(out, [[[10.0, -10.0]]])


@WAYS
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_moments_refuse_what_ran_away(bad: float, way: str) -> None:
    """And nothing of it enters them."""
    moments, out = moments_for(way, 2, 1, 3), np.zeros((2, 1, 3), np.float32)
    obs = np.ones((2, 1, 3))
    assert moments.merge(obs, out)
    before = moments.state()
    obs[1, 0, 2] = bad
    assert not moments.merge(obs, out)
    assert not moments.sound(obs)
    for name, value in moments.state().items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize("space", [curiax.Box((-1.0,) * 3, (1.0,) * 3), curiax.Discrete(4)], ids=["box", "discrete"])
@pytest.mark.parametrize("agent", [PPO(PPOSettings(width=16)), Uniform()], ids=["ppo", "uniform"])
def test_acting_on_the_host_is_acting_in_jax(space: Any, agent: Any) -> None:
    """The NumPy actors and the default, which calls the compiled one, choose what `act` chooses."""
    spec = curiax.Spec((5,), space)
    seeds, envs = 3, 2
    states = [agent.build(spec, key=jax.random.key(k)) for k in range(seeds)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x) if eqx.is_array(x[0]) else x[0], *states)
    noise = np.stack([np.asarray(agent.noise(spec, (4, envs), key=jax.random.key(k))) for k in range(seeds)], axis=1)
    obs = np.random.default_rng(0).normal(size=(4, seeds, envs, 5)).astype(np.float32)
    kind = np.int32 if isinstance(space, curiax.Discrete) else np.float32
    out = np.zeros((4, seeds, envs, *space.shape), kind)
    curious = CuriousAgent(spec, agent, Learner(LearnerSettings()), None, RewardSettings())
    first = np.zeros((seeds, envs), bool)
    for actor in (curious.host_actor(stacked, (), noise), AbstractAgent.host_actor(curious, stacked, (), noise)):
        for t in range(4):
            actor(t, obs[t], first, out[t])
        for t, s, n in np.ndindex(4, seeds, envs):
            expected = agent.act(spec, states[s], jnp.asarray(obs[t, s, n]), jnp.asarray(noise[t, s, n]))
            np.testing.assert_allclose(out[t, s, n], expected, rtol=1e-5, atol=1e-6)


def test_nobody_learns_from_filler_steps() -> None:
    """Whatever action and bonus stand on a step that was none, policy and value come out the same."""
    spec = curiax.Spec((2,), curiax.Box((-1.0,), (1.0,)), fillers=True)
    agent = PPO(PPOSettings(width=8, epochs=2, minibatch_size=16, episode_ends="terminate"))
    state = agent.start(agent.build(spec, key=jax.random.key(0)))
    rng = np.random.default_rng(0)
    obs = jnp.asarray(rng.normal(size=(65, 1, 2)), jnp.float32)
    reward = jnp.asarray(rng.normal(size=(64, 1)), jnp.float32)
    action = jnp.asarray(rng.normal(size=(64, 1, 1)), jnp.float32)
    no = jnp.zeros((64, 1), bool)
    valid = ~no.at[20].set(True).at[41].set(True)
    # The step before a filler ends its episode, so that no advantage is traced back through it.
    ended = no.at[19].set(True).at[40].set(True)
    outcomes = []
    for odd in (0.0, 1e3):
        strange = jnp.where(valid[..., None], action, action + odd)
        step = curiax.Transition(obs[:-1], strange, obs[1:], reward, ended, no, valid)
        rollout = curiax.Rollout(step, obs[1:], jnp.zeros((64, 1, 0)))
        paid = Rewards(jnp.zeros_like(reward), jnp.where(valid, reward, odd))
        outcomes.append(agent.learn(spec, state, rollout, paid, key=jax.random.key(1))[0].policy)
    for one, other in zip(*map(jax.tree.leaves, outcomes), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize(("value", "method"), [("nan", "lbs"), ("1e12", "random")])
def test_a_simulation_that_runs_away_costs_its_own_seed_only(value: str, method: str, tmp_path: Any) -> None:
    """Where it is to be dropped, with environment, step and remedy; the others' results are those of a sound run."""
    experiment = curiax.Experiment(HostSled, method, seeds=4, steps=512, settings=SMALL)
    sound = curiax.run(experiment)
    broken = curiax.Experiment(
        HostSled, method, seeds=4, steps=512, settings={**SMALL, "task.breaks": value, "task.at": 200}
    )
    message = r"seed 0, environment 0, step 200 of that environment \(iteration 1, .*\): entry 1 became"
    with pytest.raises(curiax.NonFiniteError, match=message.replace("seed 0", "seed [02]")):
        curiax.run(broken, tmp_path / "run")
    drop = RunOptions(on_nonfinite="drop")
    with pytest.warns(UserWarning, match=message) as caught:
        result = curiax.run(broken, tmp_path / "run", options=drop)
    assert "seed 2" in str(caught[0].message)  # each of the two lanes has such a sled in its first row
    assert "learning_rate" in str(caught[0].message)
    assert sorted(result.final()) == [1, 3]
    assert set(result.manifest["lost"]) == {"0", "2"}
    left = sound.metrics.filter(sound.metrics["seed"].is_in([1, 3]))
    assert result.metrics.equals(left.select(result.metrics.columns))
    reread = curiax.run(broken, tmp_path / "run", options=drop)
    assert reread.reused
    assert sorted(reread.final()) == [1, 3]


class Wrecks(Sleds):
    """The first one never recovers, whatever is done. All share what they keep, and hold infinity on purpose."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.best = np.full((1, len(self.obs)), np.inf)

    def state(self) -> dict[str, np.ndarray]:
        return {**super().state(), "best": self.best.copy()}

    def restore(self, state: Any) -> None:
        super().restore(state)
        self.best[:] = state["best"]

    def _wreck(self) -> None:
        if self.steps >= self.at:
            self.obs[0] = np.nan
            self.record[:] = self.obs

    def reset(self, seeds: np.ndarray, who: np.ndarray | None = None) -> None:
        super().reset(seeds, who)
        self._wreck()

    def step(self, actions: np.ndarray, seeds: np.ndarray, still: np.ndarray | None = None) -> None:
        super().step(actions, seeds, still)
        # What the others do depends on it.
        self.obs[:, 1] += np.where(np.isinf(self.best[0]), 0.0, 0.05)
        self._wreck()


class WreckedSled(HostSled):
    def open(self, count: int, threads: int = 1) -> Any:
        return Wrecks(count, 0.0, self.at)


class Crash(Silent):
    """After the fifth iteration: lanes may be two ahead when the first checkpoint is asked for, and it comes then."""

    def advance(self, iteration: int, latest: Any) -> None:
        if iteration == 5:
            raise MemoryError


def test_a_wreck_that_never_recovers_does_not_keep_the_others_from_being_saved(tmp_path: Any) -> None:
    sound = curiax.run(curiax.Experiment(HostSled, "random", seeds=4, steps=768, settings=SMALL))
    broken = curiax.Experiment(WreckedSled, "random", seeds=4, steps=768, settings={**SMALL, "task.at": 200})
    drop = RunOptions(on_nonfinite="drop", checkpoint_seconds=0.0)
    with pytest.raises(MemoryError):
        curiax.run(broken, tmp_path / "run", options=drop, progress=Crash())
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*")]
    with pytest.warns(UserWarning, match="seed 0"):
        result = curiax.run(broken, tmp_path / "run", options=drop)
    assert result.manifest["continued"][0]["iteration"] >= 2
    assert "step 200" in result.manifest["lost"]["0"], "where it was lost first"
    left = sound.metrics.filter(sound.metrics["seed"].is_in([1, 3]))
    assert result.metrics.equals(left.select(result.metrics.columns))


def test_simulators_of_lost_seeds_are_kept_as_they_are_and_judged_by_nobody() -> None:
    """They may share what they keep with others, or be made anew from a record of what was done with them."""
    training = Training(resolve(curiax.Experiment(WreckedSled, "rnd", seeds=2, steps=512, settings=SMALL)), 1)
    try:
        snapshot = training.snapshot()
        envs = training.plan.setup.loop.envs
        arrays = {name: array.copy() for name, array in snapshot.arrays.items()}
        obs, shared = (next(name for name in arrays if name.endswith(part)) for part in ("fleet/obs", "fleet/best"))
        arrays[obs][envs:], arrays[shared][0, 0] = np.nan, np.nan
        broken = dataclasses.replace(snapshot, arrays=arrays)
        assert np.isnan(training.judged(training.settled(broken))[obs]).any(), "nobody is lost"
        training.faulty[training.plan.seeds[1]] = "why"
        settled = training.settled(broken)
        for name in (obs, shared):
            np.testing.assert_array_equal(settled.arrays[name], arrays[name])
        judged = training.judged(settled)
        np.testing.assert_array_equal(judged[obs], arrays[obs][:envs])
        assert judged[shared].size == 0, "nobody knows whose it is"
        arrays[obs][0] = np.nan
        assert np.isnan(training.judged(settled)[obs]).any(), "a seed that is left is judged"
        learnt = next(name for name in arrays if ".learnt." in name and arrays[name].dtype.kind == "f")
        assert not settled.arrays[learnt][1].any()
    finally:
        training.close()


class Late(Sleds):
    """Resets itself only at its next step, which is then no step."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.waiting, self.filler = np.zeros(count, bool), np.zeros(count, bool)

    def reset(self, seeds: np.ndarray, who: np.ndarray | None = None) -> None:
        if who is None:
            super().reset(seeds)
        else:
            self.waiting |= who

    def step(self, actions: np.ndarray, seeds: np.ndarray, still: np.ndarray | None = None) -> None:
        self.filler[:], self.waiting[:] = self.waiting, False
        super().step(actions, seeds)
        super().reset(seeds, self.filler)
        self.terminated[self.filler] = False


class LateSled(HostSled):
    def open(self, count: int, threads: int = 1) -> Any:
        return Late(count)


def test_a_late_reset_costs_a_step_that_counts_for_nothing() -> None:
    """The filler is not valid, and the time limit counts from the first step after it."""
    lane = lane_for(plan_for(LateSled, loop__normalise_obs=False))
    lane.iterate()
    lane.iterate()
    tape = lane.tape
    ended = np.flatnonzero((tape.terminated | tape.truncated)[:, 0, 0])
    fillers = np.flatnonzero(~tape.valid[:, 0, 0])
    inside = ended[ended < 127]
    assert len(inside) >= 2
    np.testing.assert_array_equal(fillers[fillers > inside[0]], inside + 1)
    # 50 steps of its own, and the one that was none.
    assert np.diff(ended).max() == 51
    np.testing.assert_array_equal(tape.next_obs[inside + 1, 0, 0], 0)


def test_no_seed_left_stops_the_run() -> None:
    broken = curiax.Experiment(
        HostSled, "random", seeds=2, steps=128 * 4000, settings={**SMALL, "task.breaks": "inf", "task.at": 3}
    )
    with pytest.raises(curiax.SimulatorError, match=r"No seed is left"):
        curiax.run(broken, options=RunOptions(on_nonfinite="drop"))


def test_lanes_share_the_seeds_out() -> None:
    """Three seeds on two devices: each seed trains as in any other company, to rounding; metrics in seed order."""
    plan = plan_for(HostSled, seeds=3)
    lanes = open_lanes(plan.setup, plan.seeds)
    assert [lane.seeds for lane in lanes] == [(0, 1), (2,)]
    *_, (report, _) = run_lanes(lanes, 2)
    last = report.metrics
    alone = lane_for(plan, (2,))
    for _ in range(2):
        expected = alone.iterate().metrics
    np.testing.assert_allclose(last["bonus/mean"][2], expected["bonus/mean"][0], rtol=1e-3)
    assert last["bonus/mean"].shape == (3,)


def test_an_error_in_one_lane_stops_all() -> None:
    plan = plan_for(HostSled, seeds=2)
    lanes = open_lanes(plan.setup, plan.seeds)

    def fail(*_: Any) -> None:
        raise curiax.SimulatorError("the simulator is gone")

    lanes[1].fleet.step = fail  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(curiax.SimulatorError, match="the simulator is gone"):
        list(run_lanes(lanes, 50))


def test_a_simulator_that_raises_is_named() -> None:
    lane = lane_for(plan_for(HostSled, seeds=2))

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("in the sled")

    lane.iterate()
    lane.fleet.step = fail  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(curiax.SimulatorError, match=r"seeds 0, 1 failed at step 129 of each: ZeroDivision"):
        lane.iterate()


class Remoted(HostRemote):
    def __init__(self, *, mode: str = "frozen") -> None:
        super().__init__(HostSled(), RemoteSettings(mode=mode, noise_dims=2))


def test_the_frozen_remote_needs_environments_that_stop() -> None:
    settings = {"task.autoreset": "next-step", "remote.mode": "frozen"}
    with pytest.raises(curiax.UsageError, match=r"cannot stop one by one; take remote.mode=evolving"):
        resolve(curiax.Experiment("gymnasium:CartPole-v1", "icm", settings=settings))


def test_what_is_missing_is_said_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(curiax.UsageError, match=r"pip install 'curiax\[mujoco\]'"):
        experiments(find_suite("continuous"), methods=None, seeds=2, steps=None, preset=None)
    with pytest.raises(curiax.UsageError, match=r"'ant-maze' needs MuJoCo 3.17"):
        curiax.run(curiax.Experiment("ant-maze", "lbs", settings={"remote.mode": "frozen"}))


def test_the_remote_around_a_host_task() -> None:
    """Pulled: fresh noise, and the sled stands still (frozen, unpaid) or slides on (evolving); else noise is held."""
    pull, push = np.array([[1.0, 0.5]] * 3, np.float32), np.array([[1.0, -0.5]] * 3, np.float32)
    numbers = np.arange(3, dtype=np.uint32)
    for mode in ("frozen", "evolving"):
        fleet = Remoted(mode=mode).open(3)
        fleet.reset(numbers)
        np.testing.assert_array_equal(fleet.obs, 0)
        fleet.step(push, numbers)
        np.testing.assert_allclose(fleet.obs[:, :2], [[0.1, 0.1]] * 3)
        np.testing.assert_array_equal(fleet.obs[:, 2:], 0)
        np.testing.assert_allclose(fleet.reward, 0.1)
        fleet.step(pull, numbers)
        moved = [0.1, 0.1] if mode == "frozen" else [0.19, 0.09]
        np.testing.assert_allclose(fleet.obs[:, :2], [moved] * 3)
        np.testing.assert_allclose(fleet.reward, 0.0 if mode == "frozen" else 0.19)
        noise = fleet.obs[:, 2:].copy()
        assert len(np.unique(noise)) == 6
        fleet.step(push, numbers + np.uint32(9))
        np.testing.assert_array_equal(fleet.obs[:, 2:], noise)
        fleet.reset(numbers, np.array([True, False, False]))
        np.testing.assert_array_equal(fleet.obs[0], 0)
        np.testing.assert_array_equal(fleet.obs[1:, 2:], noise[1:])


def test_the_remotes_noise_is_uniform_and_depends_on_the_seed_alone() -> None:
    numbers = np.random.default_rng(0).integers(0, 2**32, 20_000, dtype=np.uint32)
    noise = uniform(numbers, 2)
    assert noise.min() >= -1
    assert noise.max() < 1
    np.testing.assert_allclose(noise.mean(0), 0, atol=0.02)
    np.testing.assert_allclose(noise.var(0), 1 / 3, rtol=0.03)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.03
    neighbours = uniform(np.arange(20_000, dtype=np.uint32), 1)[:, 0]
    assert abs(np.corrcoef(neighbours[1:], neighbours[:-1])[0, 1]) < 0.03
    np.testing.assert_array_equal(uniform(numbers[5:9], 2), noise[5:9])


@pytest.mark.parametrize(
    "task", [HostSled, Remoted, curiax.envs.HalfCheetah, curiax.envs.AntMaze], ids=lambda cls: cls.__name__
)
def test_host_tasks_keep_the_contract(task: Any) -> None:
    check_host_task(task)


class Forgetful(Sleds):
    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.obs[:, 0] = state["obs"][:, 0]


class Replacing(Sleds):
    def step(self, actions: np.ndarray, seeds: np.ndarray, still: np.ndarray | None = None) -> None:
        super().step(actions, seeds, still)
        self.obs = self.obs.copy()


class Restless(Sleds):
    def step(self, actions: np.ndarray, seeds: np.ndarray, still: np.ndarray | None = None) -> None:
        super().step(actions, seeds)


@pytest.mark.parametrize(
    ("fleet", "words"),
    [(Forgetful, "same bits from a state"), (Replacing, "in place"), (Restless, "told to stay still moved")],
)
def test_broken_fleets_are_found(fleet: Any, words: str) -> None:
    class Broken(HostSled):
        def open(self, count: int, threads: int = 1) -> Any:
            return fleet(count)

    failures = []
    for _, check in fleet_checks(Broken):
        try:
            check()
        except curiax.ContractError as error:
            failures.append(str(error))
    assert any(words in failure for failure in failures), failures


class Pictures(Sleds):
    """The sleds, shown as a picture each: one bright column where the sled is."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.sled, self.obs = self.obs, np.zeros((count, 8, 8, 1))

    def _show(self) -> None:
        column = np.clip(np.rint(self.sled[:, 0] + 4), 0, 7).astype(int)
        self.obs[:] = (np.arange(8)[None, :] == column[:, None])[:, None, :, None] * (
            1 + np.tanh(self.sled[:, 1, None])
        )[:, None, None]

    def reset(self, seeds: np.ndarray, who: np.ndarray | None = None) -> None:
        self.obs, shown = self.sled, self.obs
        super().reset(seeds, who)
        self.obs = shown
        self._show()

    def step(self, actions: np.ndarray, seeds: np.ndarray, still: np.ndarray | None = None) -> None:
        self.obs, shown = self.sled, self.obs
        super().step(actions, seeds, still)
        self.obs = shown
        self._show()


class PictureSled(HostSled):
    def __init__(self) -> None:
        super().__init__()
        self.spec = curiax.Spec((8, 8, 1), SPEC.action, SPEC.horizon)

    def open(self, count: int, threads: int = 1) -> Any:
        return Pictures(count)


def test_features_of_pictures_are_standardised_on_the_first_rollout() -> None:
    """Of each seed on what its own steps led to, and never again."""
    lane = lane_for(plan_for(PictureSled, "disagreement", loop__normalise_obs=False))
    for _ in range(2):
        lane.iterate()
        target = lane.train_state.agent.curiosity.target.features.net
        if lane.now == lane.setup.loop.rollout:
            reached = np.array(lane.tape.next_obs)
            first = np.array(target.mean), np.array(target.deviation)
    for seed in range(2):
        net = jax.tree.map(lambda leaf, seed=seed: leaf[seed] if eqx.is_array(leaf) else leaf, target.net)
        values = jax.vmap(net)(jnp.asarray(reached[:, seed], jnp.float32).reshape(-1, 64))
        deviation = np.std(values, axis=0)
        np.testing.assert_allclose(target.mean[seed], np.mean(values, axis=0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(target.deviation[seed], np.where(deviation > 1e-6, deviation, 1), rtol=1e-3)
    assert np.abs(target.mean[0] - target.mean[1]).max() > 0
    np.testing.assert_array_equal(target.mean, first[0])
    np.testing.assert_array_equal(target.deviation, first[1])
