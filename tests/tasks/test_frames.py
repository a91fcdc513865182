"""Training on emulators: what is seen against emulators played apart, learning against plain observations."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from curiax._errors import OutOfMemoryError, SimulatorError, UsageError
from curiax._frames import FrameStore
from curiax._types import Discrete, Rewards, Rollout, Spec, Transition, materialise
from curiax.agents import PPO, PPOSettings
from curiax.agents.ppo import VisionPolicy
from curiax.curiosity import LBS, Learner, LearnerSettings, explanation, score, start_memory
from curiax.experiments import run as running
from curiax.experiments.options import RunOptions
from curiax.experiments.registry import METHODS
from curiax.experiments.spec import Experiment, Plan, resolve
from curiax.experiments.training import Training
from curiax.train import devices, lanes
from curiax.train.devices import teams
from curiax.train.frames import TURN, FrameLane, Games
from curiax.train.lanes import open_lanes
from curiax.train.random_play import moments_of

SIDE, STACK, STEPS, ENVS = 36, 4, 8, 4
TINY = {
    "task.side": SIDE,
    "task.random_steps": 48,
    "loop.envs": ENVS,
    "loop.rollout": STEPS,
    "ppo.width": 16,
    "ppo.epochs": 2,
    "ppo.minibatch_size": 16,
    "learner.epochs": 2,
    "learner.minibatch_size": 16,
    "method.width": 16,
    "method.latent_size": 8,
}


def plan_of(iterations: int = 4, method: str = "lbs", seeds: Any = 1, **settings: Any) -> Plan:
    """A tiny run; `task__horizon` stands for `task.horizon`."""
    changes = {name.replace("__", "."): value for name, value in settings.items()}
    return resolve(Experiment("atari:breakout", method, seeds, iterations * STEPS * ENVS, settings={**TINY, **changes}))


@pytest.fixture
def lane() -> Any:
    """A lane with games of 5 steps, whose model sees true successors; not yet begun."""
    plan = plan_of(task__horizon=5, loop__successor="true")
    lane = open_lanes(plan.setup, [3])[0]
    yield lane
    lane.close()


def played(plan: Plan, lane: FrameLane, actions: np.ndarray, resets: np.ndarray, first: np.ndarray) -> Any:
    """What a fleet that stacks its frames itself shows, one group in one process, for the same actions and seeds."""
    fleet = plan.setup.task.open(ENVS, 1)  # pyright: ignore[reportAttributeAccessIssue]
    fleet.reset(first)
    began, obs, nexts, rewards = np.zeros(ENVS, int), [fleet.obs.copy()], [], []
    for t, action in enumerate(actions):
        fleet.step(action, np.zeros(ENVS, np.uint32))
        nexts.append(fleet.obs.copy())
        rewards.append(fleet.reward.copy())
        ended = fleet.terminated | (t + 1 - began >= 5)
        if ended.any():
            fleet.reset(resets[t], ended)
            began[ended] = t + 1
        obs.append(fleet.obs.copy())
    fleet.close()
    return np.stack(obs), np.stack(nexts), np.stack(rewards)


def test_what_is_seen_is_what_emulators_show(lane: FrameLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rollouts: every observation, also the first of the second one, is (o − mean) / deviation of the frames that a
    fleet shows which stacks them itself: standardised once, and never again (methods.md §1, 12). The same is what was
    acted on: the actions are those of the policy for it."""
    taken: list[Any] = []
    learn, draw = lane.programs.learn, lane.programs.draw

    def spy(arrays: Any, groups: Any, columns: Any, carry: Any, pixels: Any) -> Any:
        frames = np.concatenate([np.asarray(frames) for frames in groups], axis=1)
        frames = np.concatenate([frames, columns.last])
        taken.append((frames, jax.tree.map(np.array, columns)))
        return learn(arrays, groups, columns, carry, pixels)

    resets: list[np.ndarray] = []
    acting: list[Any] = []

    def drawn(arrays: Any) -> Any:
        found = draw(arrays)
        resets.append(np.asarray(found[1]))
        acting.append((jax.tree.map(lambda x: x[0], lane.train_state.agent.policy.policy), found[0]))
        return found

    monkeypatch.setattr(lane.programs, "learn", spy)
    monkeypatch.setattr(lane.programs, "draw", drawn)
    begin = np.asarray(jax.random.bits(jax.random.fold_in(lane.train_state.root[0], 2), (ENVS,)))
    for _ in range(2):
        lane.iterate()
    lane.settle()
    plan = plan_of(task__horizon=5, loop__successor="true")
    actions = np.concatenate([columns.action for _, columns in taken])
    obs, nexts, rewards = played(plan, lane, actions, np.concatenate(resets), begin)
    mean, deviation = np.asarray(lane.pixels.mean, np.float64), float(lane.pixels.deviation)
    assert deviation > 1
    for k, (frames, columns) in enumerate(taken):
        store = FrameStore(jnp.asarray(frames.reshape(-1, SIDE, SIDE)), *lane.pixels)

        def see(rows: np.ndarray, store: FrameStore = store) -> np.ndarray:
            numbers = np.where(rows < 0, -1, rows * ENVS + np.arange(ENVS)[:, None])
            return np.asarray(jax.vmap(jax.vmap(store))(jnp.asarray(numbers)))

        part = slice(k * STEPS, (k + 1) * STEPS)
        for rows, want in ((columns.rows[:-1], obs[part]), (columns.next_rows, nexts[part])):
            np.testing.assert_allclose(see(rows), (want - mean) / (deviation + 1e-8), atol=1e-4)
        np.testing.assert_array_equal(columns.reward, rewards[part])
        policy, noise = acting[k]
        seen = jnp.asarray((obs[part] - mean) / (deviation + 1e-8), jnp.float32)
        chosen = jax.vmap(jax.vmap(lambda o, n, policy=policy: policy.distribution(o).sample(n)))(seen, noise)
        np.testing.assert_array_equal(columns.action, chosen)
        assert columns.truncated.sum() >= ENVS
        np.testing.assert_array_equal(columns.rows[0][:, -1], STACK - 1)
    # Rows of episodes that have just begun are black but for the newest.
    assert (taken[0][1].rows[0][:, :-1] == -1).all()


def test_pixels_are_measured_as_stacks() -> None:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (9, 5, 5)).astype(np.uint8)
    numbers = np.array([[-1, -1, -1, 0], [-1, -1, 0, 1], [-1, 0, 1, 2], [3, 4, 5, 8]], np.int32)
    stacks = np.stack([[frames[n] if n >= 0 else np.zeros((5, 5)) for n in row] for row in numbers])
    stacks = np.moveaxis(stacks, 1, -1).astype(np.float64)
    mean, deviation = moments_of(frames, numbers)
    np.testing.assert_allclose(mean, stacks.mean(0), rtol=1e-6)
    np.testing.assert_allclose(deviation, stacks.std(0).mean(), rtol=1e-6)


def rollouts(spec: Spec, steps: int, envs: int) -> tuple[Rollout, Rollout]:
    """The same random rollout made of frames, and with its observations themselves."""
    rng = np.random.default_rng(1)
    frames = rng.integers(0, 256, ((steps + STACK) * envs, *spec.obs_shape[:2])).astype(np.uint8)
    store = FrameStore(jnp.asarray(frames), jnp.full(spec.obs_shape, 100.0), jnp.asarray(70.0))
    rows = np.arange(steps + 1)[:, None, None] + np.arange(STACK)
    numbers = jnp.asarray(np.broadcast_to(rows, (steps + 1, envs, STACK)) * envs + np.arange(envs)[:, None])
    numbers = numbers.at[0, :, 0].set(-1)
    ended = jnp.zeros((steps, envs), bool).at[2, 1].set(True)
    action, no = jnp.asarray(rng.integers(0, spec.action.size, (steps, envs))), jnp.zeros((steps, envs), bool)
    reward = jnp.asarray(rng.normal(size=(steps, envs)), jnp.float32)
    step = Transition(numbers[:-1], action, numbers[1:], reward, ended, no, ~no)
    framed = Rollout(step, numbers[1:], jnp.zeros((steps, envs, 0)), store)
    see = jax.vmap(jax.vmap(store))
    plain = eqx.tree_at(lambda s: (s.obs, s.next_obs), step, (see(step.obs), see(step.next_obs)))
    return framed, Rollout(plain, see(numbers[1:]), framed.points)


SPEC = Spec((SIDE, SIDE, STACK), Discrete(3), 20)


@pytest.mark.parametrize("method", ["lbs", "ngu"])
def test_models_learn_from_frames_as_from_observations(method: str) -> None:
    """Bonus, memory and every parameter after training; times that do not fill up a chunk are among them."""
    framed, plain = rollouts(SPEC, 11, 2)
    model = METHODS[method].cls(SPEC, key=jax.random.key(0), width=8)
    learner = Learner(LearnerSettings(epochs=1, minibatch_size=4))
    key, memory = jax.random.key(1), start_memory(model, 2)
    bonus = [score(model, memory, r, key=key)[1] for r in (framed, plain)]
    np.testing.assert_allclose(bonus[0], bonus[1], rtol=2e-3, atol=1e-5)
    after = []
    for r in (framed, plain):
        state = learner.start(model, r.step)
        after.append(learner.update(model, state, r, key=key)[0])
    leaves = zip(*(jax.tree.leaves(eqx.filter(m, eqx.is_array)) for m in after), strict=True)
    assert all(np.allclose(a, b, atol=2e-4) for a, b in leaves)


def test_devices_share_what_an_episodic_memory_pays() -> None:
    """NGU follows each environment through time: two devices that share them pay and learn the same."""
    framed, _ = rollouts(SPEC, 11, 2)
    model = METHODS["ngu"].cls(SPEC, key=jax.random.key(0), width=8)
    learner, key = Learner(LearnerSettings(epochs=1, minibatch_size=4)), jax.random.key(1)
    share = NamedSharding(devices.placement(jax.devices()[:2]).mesh, PartitionSpec(None, devices.SHARED))
    assert framed.frames is not None
    found = []
    for store in (framed.frames, replace(framed.frames, share=share)):

        @eqx.filter_jit
        def learnt(rollout: Rollout) -> Any:
            rollout = replace(rollout, step=rollout.shared(rollout.step))
            state, raw, _ = learner.reward(model, learner.start(model, rollout.step), rollout, key=key)
            return raw, learner.update(model, state, rollout, key=key)[0]

        raw, after = learnt(replace(framed, frames=store))
        found.append([np.asarray(leaf) for leaf in (raw, *jax.tree.leaves(eqx.filter(after, eqx.is_array)))])
    assert all(np.allclose(one, two, rtol=1e-3, atol=2e-4) for one, two in zip(*found, strict=True))


def test_explanations_of_frames_are_those_of_some_steps() -> None:
    framed, plain = rollouts(SPEC, 17, 1)
    model = LBS(SPEC, key=jax.random.key(0), width=8)
    some = jax.tree.map(lambda x: x[::16], plain.step)
    found = explanation(model, framed, key=jax.random.key(0))
    want = explanation(model, some, key=jax.random.key(0))
    assert {name: pytest.approx(float(value), rel=1e-3) for name, value in want.items()} == found


@pytest.mark.parametrize(("ends", "heads"), [("ignore", "one"), ("bootstrap", "one"), ("bootstrap", "two")])
def test_policies_learn_from_frames_as_from_observations(ends: Any, heads: Any) -> None:
    framed, plain = rollouts(SPEC, 9, 2)
    agent = PPO(PPOSettings(width=8, epochs=2, minibatch_size=6, episode_ends=ends, value_heads=heads))
    state = agent.start(agent.build(SPEC, key=jax.random.key(0)))
    assert isinstance(state.policy, VisionPolicy)
    rewards = Rewards(plain.step.reward, plain.step.reward**2)
    learnt = [agent.learn(SPEC, state, r, rewards, key=jax.random.key(2))[0].policy for r in (framed, plain)]
    leaves = zip(*(jax.tree.leaves(eqx.filter(p, eqx.is_array)) for p in learnt), strict=True)
    assert all(np.allclose(a, b, atol=2e-4) for a, b in leaves)


def test_the_policy_of_large_images_by_the_card() -> None:
    """Convolutions, 512 features, 512-512, and a linear layer each for actions and value (methods.md §2.2)."""
    policy = VisionPolicy(Spec((84, 84, 4), Discrete(4)), 512, key=jax.random.key(0))
    convolutions = (8 * 8 * 4 * 32 + 32) + (4 * 4 * 32 * 64 + 64) + (3 * 3 * 64 * 64 + 64)
    layers = (3136 * 512 + 512) + 2 * (512 * 512 + 512) + (512 * 4 + 4) + (512 + 1)
    sizes = [leaf.size for leaf in jax.tree.leaves(eqx.filter(policy, eqx.is_array))]
    assert sum(sizes) == convolutions + layers
    weight = np.asarray(policy.head.weight)
    np.testing.assert_allclose(weight.T @ weight, 1e-4 * np.eye(4), atol=1e-8)
    assert np.abs(policy.critic.weight).max() <= 512**-0.5
    distribution, value = policy.both(jnp.zeros((84, 84, 4)))
    assert distribution.logits.shape == (4,)  # pyright: ignore[reportAttributeAccessIssue]
    assert value.shape == (1,)


def metrics_of(training: Training) -> list[dict[str, np.ndarray]]:
    return [iteration.report.metrics for iteration in training]


def processes_of(training: Training) -> int:
    """How many processes the first group of environments has."""
    lane = training.lanes[0]
    assert isinstance(lane, FrameLane)
    return len(lane.groups[0].fleet._processes)


def test_a_run_goes_on_to_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a snapshot after the first of four iterations, as on another machine: with fewer cores and processes."""
    plan = plan_of(task__horizon=5, loop__extrinsic_weight=0.5, ppo__value_heads="two")
    whole = Training(plan)
    # Asked for before it begins, so that it is the first one whatever the lane has done meanwhile.
    whole.ask()
    parts = list(whole)
    end, before = whole.snapshot().arrays, processes_of(whole)
    whole.close()
    kept = parts[0].snapshot
    assert kept is not None
    monkeypatch.setattr(lanes, "cpu_cores", lambda: 1)
    again = Training(plan)
    assert 1 == processes_of(again) < before
    again.resume(again.settled(kept))
    rest = metrics_of(again)
    for ours, theirs in zip(rest, [part.report.metrics for part in parts[1:]], strict=True):
        for name in theirs:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    found = again.snapshot().arrays
    again.close()
    assert found.keys() == end.keys()
    for name in end:
        np.testing.assert_array_equal(found[name], end[name], err_msg=name)
    # Games of 5 steps: 4 environments, 32 steps each.
    assert parts[-1].report.metrics["game/episodes"].item() == 4 * (32 // 5)
    assert parts[-1].report.metrics["game/length"].item() == 5.0


def test_seeds_are_lanes_of_their_own() -> None:
    """Two seeds side by side on two devices are the two alone: no computation has both in it."""
    together = Training(plan_of(2, seeds=(3, 4), task__horizon=5))
    assert len(together.lanes) == 2
    assert len({lane.devices for lane in together.lanes}) == min(2, len(jax.devices()))
    both = metrics_of(together)
    for lane in together.lanes:
        # One device for all that a seed is: there is nothing that another device could be asked for.
        assert all(leaf.devices() == {*lane.devices} for leaf in jax.tree.leaves(lane.arrays))
    together.close()
    alone = Training(plan_of(2, seeds=(4,), task__horizon=5))
    single = metrics_of(alone)
    alone.close()
    for two, one in zip(both, single, strict=True):
        for name in one:
            np.testing.assert_allclose(two[name][1], one[name][0], rtol=1e-4, atol=1e-6, err_msg=name)


COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute", "all-to-all")


def test_devices_share_the_environments_of_a_seed() -> None:
    """Seeds that share two devices: the same to rounding as one on one device, and each device does half of the work of
    learning. Frames stay where they are, and acting needs no word between devices. The run goes on to the same bits."""
    programs: dict[tuple[str, int], Any] = {}

    def spied(name: str, team: int, program: Any) -> Any:
        def call(*given: Any) -> Any:
            # Of seeds that share devices one at a time begins what these must agree on.
            assert name == "act" or team == 1 or TURN.locked()
            programs.setdefault((name, team), program.lower(*given).compile())
            return program(*given)

        return call

    def opened(team: int) -> tuple[Training, FrameLane]:
        training = Training(plan_of(2, seeds=team, task__horizon=5), team=team)
        lane = training.lanes[0]
        assert isinstance(lane, FrameLane)
        return training, lane

    metrics = {}
    for team in (1, 2):
        training, lane = opened(team)
        for name in ("act", "learn", "train_step"):
            setattr(lane.programs, name, spied(name, team, getattr(lane.programs, name)))
        training.ask()
        parts = list(training)
        metrics[team] = [part.report.metrics for part in parts]
        mine = jax.devices()[:team]
        assert all(leaf.devices() == {*mine} for leaf in jax.tree.leaves((lane.arrays, lane.groups[0].frames)))
        assert training.devices == ["+".join(map(str, mine))] * team
        end, kept = training.snapshot().arrays, parts[0].snapshot
        training.close()
    for one, two in zip(metrics[1], metrics[2], strict=True):
        for name in one:
            np.testing.assert_allclose(two[name][:1], one[name], rtol=1e-3, atol=1e-5, err_msg=name)
    words = {made: [word for word in COLLECTIVES if word in text.as_text()] for made, text in programs.items()}
    assert not any(words[name, 1] for name in ("act", "learn", "train_step"))
    assert not words["act", 2]
    assert "all-reduce" in words["learn", 2]
    assert "all-reduce" in words["train_step", 2]
    assert f"{SIDE},{SIDE}" not in "".join(
        line for line in programs["learn", 2].as_text().splitlines() if any(f" {word}(" in line for word in COLLECTIVES)
    )
    work = {made: text.cost_analysis()["flops"] for made, text in programs.items()}
    for name in ("learn", "train_step"):
        assert work[name, 2] < 0.56 * work[name, 1]
    again, _ = opened(2)
    assert kept is not None
    again.resume(again.settled(kept))
    metrics_of(again)
    found = again.snapshot().arrays
    again.close()
    for name in end:
        np.testing.assert_array_equal(found[name], end[name], err_msg=name)


def test_more_devices_than_there_are_is_told_before_anything_begins() -> None:
    with pytest.raises(UsageError, match=r"devices_per_seed = 99.*JAX has 2.*lower it"):
        running.run(plan_of().experiment, options=RunOptions(devices_per_seed=99))
    with pytest.raises(UsageError, match=r"devices_per_seed = 2 is for arcade games"):
        running.run(Experiment("mountain-car", "lbs"), options=RunOptions(devices_per_seed=2))
    with pytest.raises(UsageError, match=r"devices_per_seed = 0: must be 1 or more"):
        RunOptions(devices_per_seed=0)


def test_teams_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds take turns on teams; a device that fits into none is left over."""
    monkeypatch.setattr(jax, "devices", lambda: list("abcde"))
    assert teams(8, 1) == [["a"], ["b"], ["c"], ["d"], ["e"]]
    assert teams(8, 2) == [["a", "b"], ["c", "d"]]
    assert teams(1, 2) == [["a", "b"]]
    assert teams(3, 5) == [["a", "b", "c", "d", "e"]]


def test_an_emulator_that_dies_keeps_what_was_promised() -> None:
    """The metrics of the iterations before it are delivered, then the error, which says how to go on."""
    training = Training(plan_of(4))
    lane = training.lanes[0]
    assert isinstance(lane, FrameLane)
    found: list[dict[str, np.ndarray]] = []

    def follow() -> None:
        for iteration in training:
            found.append(iteration.report.metrics)
            lane.groups[1].fleet._processes[0].kill()

    expected = r"seeds 0 failed at step \d+ of each.*environments? 2.* by the same command"
    with pytest.raises(SimulatorError, match=expected):
        follow()
    training.close()
    assert 1 <= len(found) <= 3
    assert all(np.isfinite(part["model/loss"]).all() for part in found)


def test_a_mistake_of_a_method_is_not_blamed_on_emulators(lane: FrameLane, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: Any) -> Any:
        raise TypeError("mine")

    monkeypatch.setattr(lane.programs, "act", wrong)
    with pytest.raises(TypeError, match=r"^mine$"):
        lane.iterate()


def test_scores_are_sums_of_rewards() -> None:
    games, everyone = Games(2), slice(0, 2)
    assert all(np.isnan(games.episode_metrics()[name]) for name in ("score", "length", "best"))
    games.add(np.array([1.0, -3.0]), np.array([1, 1]), np.array([False, True]), everyone)
    assert games.episode_metrics() == {"score": -3.0, "length": 1.0, "best": -3.0, "episodes": 1.0}
    games.add(np.array([2.0, 0.0]), np.array([2, 1]), np.array([True, True]), everyone)
    assert games.episode_metrics() == {"score": 1.5, "length": 1.5, "best": 3.0, "episodes": 3.0}
    assert games.episode_metrics()["score"] == 1.5


def test_bad_wishes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"learner\.replay"):
        Training(plan_of(learner__replay=2))
    with pytest.raises(UsageError, match="noisy remote"):
        plan_of(remote__mode="frozen")
    with pytest.raises(UsageError, match="arcade"):
        resolve(Experiment("mountain-car", "lbs", preset="small"))

    def full(*args: Any) -> Any:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")

    monkeypatch.setattr(running, "Training", full)
    with pytest.raises(OutOfMemoryError, match=r"minibatch_size = 16.* lower.*loop\.mixed_precision"):
        running.run(plan_of().experiment, None)


def test_the_small_preset_is_small() -> None:
    plan = resolve(Experiment("atari:pong", "lbs", 1, preset="small"))
    assert plan.setup.task.spec.obs_shape == (36, 36, 4)
    assert plan.settings["loop.envs"] == 64
    assert plan.settings["method.beta"] == 0.01
    assert resolve(Experiment("atari:pong", "rnd", 1, preset="small")).settings["method.width"] == 64


def test_mixed_precision_is_nearly_the_same() -> None:
    """Convolutions in bfloat16: parameters and everything after them stay in float32."""
    framed, _ = rollouts(SPEC, 4, 2)
    model = LBS(SPEC, key=jax.random.key(0), width=16, beta=0.01)
    exact = framed.frames
    assert exact is not None
    rounded = replace(exact, kind=jnp.bfloat16)
    step = jax.tree.map(lambda x: x[0, 0], framed.step)
    losses = [model.loss(materialise(f, step), draw=jnp.zeros(model.latents))[0] for f in (exact, rounded)]
    assert losses[1].dtype == jnp.float32
    assert losses[1] != losses[0]
    assert float(losses[1]) == pytest.approx(float(losses[0]), rel=0.02)
    grad = jax.grad(
        lambda bias: eqx.tree_at(lambda m: m.eye.net.convolutions[0].bias, model, bias).loss(
            materialise(rounded, step), draw=jnp.zeros(model.latents)
        )[0]
    )(model.eye.net.convolutions[0].bias)
    assert grad.dtype == jnp.float32
    with pytest.raises(UsageError, match="mixed_precision"):
        resolve(Experiment("mountain-car", "lbs", settings={"loop.mixed_precision": True}))


def test_gradient_steps_one_by_one_are_the_whole_training(lane: FrameLane) -> None:
    """The model's training slipped in between the steps of the next rollout is `Learner.update` on this one."""
    assert isinstance(lane.iterate(), Future)
    pending = lane._pending
    assert pending is not None
    first = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, lane.train_state.agent)
    want, metrics, _ = lane.setup.agent.work(first, pending.work)
    lane.settle()
    got = lane.train_state.agent.curiosity
    leaves = zip(*(jax.tree.leaves(eqx.filter(m, eqx.is_array)) for m in (want.curiosity, got)), strict=True)
    assert all(np.allclose(a, b[0], atol=1e-5) for a, b in leaves)
    found = pending.promise.result().metrics
    assert found["model/loss"].item() == pytest.approx(float(metrics["model/loss"]), rel=1e-4)
