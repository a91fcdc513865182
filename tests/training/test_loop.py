"""The training loop: what is collected, what the model sees, what is repeatable."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest
from small import SMALL

import curiax
from curiax.experiments.spec import Plan, resolve
from curiax.train.batch import compile_chunk, first_states, padded, place, seed_mesh
from curiax.train.loop import TrainState, collect, learn
from curiax.train.measures import bonus_metrics, task_metrics


def plan_for(task: Any = "mountain-car", method: Any = "lbs", **changes: Any) -> Plan:
    settings = {**SMALL, **{name.replace("__", "."): value for name, value in changes.items()}}
    return resolve(curiax.Experiment(task, method, seeds=2, steps=1024, settings=settings))


def one_state(plan: Plan, seed: int = 0) -> TrainState:
    stacked = first_states(plan.setup, [seed])
    return jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, stacked)


@functools.cache
def collected(envs: int = 1) -> tuple[Plan, TrainState, Any]:
    plan = plan_for(loop__envs=envs)
    state = one_state(plan)
    arrays, static = eqx.partition(state, eqx.is_array)

    @jax.jit
    def run(arrays: Any) -> Any:
        after, rollout, _ = collect(plan.setup, eqx.combine(arrays, static))
        return after.envs, after.obs_stats, rollout

    return plan, state, run(arrays)


def test_observations_are_normalised_as_stable_baselines_does() -> None:
    """A float64 replay of VecNormalize: update with the observation that step() returns, then normalise."""
    plan, _, (envs, stats, rollout) = collected()
    points = np.asarray(rollout.points)[:, 0]
    ended = np.asarray(rollout.step.ended)[:, 0]
    seen = np.asarray(rollout.acted_next)[:, 0]
    mean, var, count = np.zeros(2), np.ones(2), 1e-4
    for t in range(len(points)):
        # The reset state is not recorded; it is recovered from what was seen, given the statistics so far.
        x = recover(seen[t], mean, var, count) if ended[t] else points[t].astype(np.float64)
        delta, total = x - mean, count + 1
        var = (var * count + delta**2 * count / total) / total
        mean, count = mean + delta / total, total
        expected = np.clip((x - mean) / np.sqrt(var + 1e-8), -10, 10)
        np.testing.assert_allclose(seen[t], expected, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(stats.mean, mean, rtol=1e-4)
    np.testing.assert_allclose(stats.var, var, rtol=2e-3)
    assert int(envs.elapsed[0]) == len(points) % 100
    assert plan.setup.task.spec.horizon == 100


def recover(normalised: np.ndarray, mean: np.ndarray, var: np.ndarray, count: float) -> np.ndarray:
    """The reset position in [-0.6, -0.4] (velocity 0) whose normalised value was seen: by bisection."""

    def normal(x: np.ndarray) -> np.ndarray:
        delta, total = x - mean, count + 1
        new_var = (var * count + delta**2 * count / total) / total
        return (x - (mean + delta / total)) / np.sqrt(new_var + 1e-8)

    low, high = -0.6, -0.4
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if normal(np.array([middle, 0.0]))[0] < normalised[0] else (low, middle)
    return np.array([low, 0.0])


def test_time_limit_and_resets() -> None:
    _, _, (_, _, rollout) = collected()
    truncated = np.asarray(rollout.step.truncated)[:, 0]
    assert np.flatnonzero(truncated).tolist() == [99]
    assert not np.asarray(rollout.step.terminated).any()
    # The next observation acted on is a fresh start, the true successor is not.
    assert not np.allclose(rollout.acted_next[99, 0], rollout.step.next_obs[99, 0])
    others = [t for t in range(128) if t != 99]
    successors = rollout.step.next_obs[np.array(others)]
    np.testing.assert_allclose(rollout.acted_next[np.array(others)], successors, atol=1e-5)
    np.testing.assert_array_equal(rollout.step.obs[1:], rollout.acted_next[:-1])


def test_dynamics_inside_the_loop_are_the_tasks() -> None:
    """Replaying the recorded actions through the task alone gives the recorded points."""
    plan, state, (_, _, rollout) = collected()
    task = plan.setup.task
    inner = jax.tree.map(lambda x: x[0], state.envs.inner)
    step = jax.jit(lambda s, a: task.step(s, a, key=jax.random.key(0))[0])
    for t in range(99):
        inner = step(inner, rollout.step.action[t, 0])
        np.testing.assert_allclose(rollout.points[t, 0], task.track(inner), rtol=1e-5, atol=1e-6)


def test_environments_have_randomness_of_their_own() -> None:
    _, _, (_, _, rollout) = collected(envs=4)
    points = np.asarray(rollout.points)
    assert len({tuple(p) for p in points[0]}) == 4
    actions = np.asarray(rollout.step.action)[..., 0]
    assert abs(np.corrcoef(actions.T) - np.eye(4)).max() < 0.35


@pytest.mark.parametrize("successor", ["reset", "true", "drop"])
def test_what_the_model_sees_at_an_episode_end(successor: str) -> None:
    plan, _, (_, _, rollout) = collected()
    agent: Any = plan.setup.agent
    rewards = dataclasses.replace(agent.rewards, successor=successor)
    seen = dataclasses.replace(agent, rewards=rewards).model_transitions(rollout).step
    expected = rollout.acted_next if successor == "reset" else rollout.step.next_obs
    np.testing.assert_array_equal(seen.next_obs, expected)
    assert np.asarray(seen.valid).sum() == (127 if successor == "drop" else 128)
    assert bool(seen.valid[99, 0]) is (successor != "drop")


def test_the_model_sees_the_executed_action_if_asked() -> None:
    plan, _, (_, _, rollout) = collected()
    agent: Any = plan.setup.agent
    rewards = dataclasses.replace(agent.rewards, model_action="executed")
    seen = dataclasses.replace(agent, rewards=rewards).model_transitions(rollout).step
    raw = np.asarray(rollout.step.action)
    assert (np.abs(raw) > 1).any()
    np.testing.assert_array_equal(seen.action, np.clip(raw, -1, 1))
    np.testing.assert_array_equal(agent.model_transitions(rollout).step.action, raw)


def test_bonus_comes_from_the_model_before_it_trains_and_rewards_are_mixed() -> None:
    """The raw bonus equals the old model's own answer; η_e and η_i weigh what PPO is given."""
    plan = plan_for(loop__extrinsic_weight=0.5, loop__intrinsic_weight=2.0, loop__normalise_reward=False)
    state = one_state(plan)
    given: list[Any] = []

    agent: Any = plan.setup.agent

    class Spy(type(agent.policy)):  # pyright: ignore
        def learn(self, spec: Any, state: Any, rollout: Any, rewards: Any, *, key: Any) -> Any:
            given.append(rewards.total)
            return super().learn(spec, state, rollout, rewards, key=key)

    setup = dataclasses.replace(plan.setup, agent=dataclasses.replace(agent, policy=Spy(agent.policy.settings)))
    arrays, static = eqx.partition(state, eqx.is_array)

    @jax.jit
    def once(arrays: Any) -> Any:
        state = eqx.combine(arrays, static)
        _, rollout, _ = collect(setup, state)
        rollout = eqx.tree_at(lambda r: r.step.reward, rollout, jnp.full_like(rollout.step.reward, 3.0))
        metrics = learn(setup, state, rollout)[1].metrics
        seen = agent.model_transitions(rollout).step
        raw = jax.vmap(jax.vmap(lambda t: state.agent.curiosity.reward(None, t, key=jax.random.key(0))[1]))(seen)
        _, scaled = state.agent.learner.scale.scale(raw, discount=0.99, clip=3.0, order="before")
        return metrics["bonus/mean"], jnp.mean(raw), given[0], 0.5 * 3.0 + 2.0 * scaled

    mean, expected, reward, mixed = once(arrays)
    np.testing.assert_allclose(mean, expected, rtol=1e-5)
    np.testing.assert_allclose(reward, mixed, rtol=1e-5)


# --- many seeds -------------------------------------------------------------------------------------------


def compiled(plan: Plan, static: Any, mesh: Any, iterations: int, arrays: Any) -> Any:
    """Once for several tests; a seed is no part of a program."""
    made_of = (programs.parts((plan.setup, static)), mesh, iterations, programs.shapes(arrays))
    return programs.once(made_of, lambda: compile_chunk(plan.setup, static, mesh, iterations, arrays))


def trained(plan: Plan, seeds: tuple[int, ...], chunks: tuple[int, ...], devices: int) -> Any:
    mesh = seed_mesh(jax.devices()[:devices])
    arrays, static = place(first_states(plan.setup, padded(seeds, devices)), mesh)
    for k in chunks:
        arrays, report = compiled(plan, static, mesh, k, arrays)(arrays)
    return arrays, report.metrics


def leaves(tree: Any) -> list[np.ndarray]:
    def plain(x: Any) -> np.ndarray:
        return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)

    return [plain(x) for x in jax.tree.leaves(tree)]


def test_same_seeds_same_bits_and_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_for()
    once, parts = trained(plan, (0, 1), (2,), 2), trained(plan, (0, 1), (1, 1), 2)
    monkeypatch.setattr(programs, "KEPT", [])  # traced anew
    again = trained(plan, (0, 1), (2,), 2)
    for a, b, c in zip(leaves(once[0]), leaves(again[0]), leaves(parts[0]), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


def test_devices_and_company_change_a_seed_only_by_rounding() -> None:
    plan = plan_for()
    split, alone = trained(plan, (0, 1), (1,), 2), trained(plan, (1,), (1,), 1)
    for name, value in alone[1].items():
        np.testing.assert_allclose(value[0], split[1][name][1], rtol=2e-3, atol=2e-4, err_msg=name)


def test_adding_a_seed_leaves_the_others_unchanged() -> None:
    plan = plan_for(method="rnd")
    few = first_states(plan.setup, [3, 5])
    more = first_states(plan.setup, [3, 4, 5])
    for a, b in zip(leaves(few), leaves(more), strict=True):
        np.testing.assert_array_equal(a, b[np.array([0, 2])])


def test_padding_repeats_the_last_seed() -> None:
    assert padded([0, 1, 5], 2) == (0, 1, 5, 5)
    assert padded([7], 1) == (7,)
    assert padded([0, 1], 2) == (0, 1)


def test_no_collective_on_the_seed_axis() -> None:
    """Seeds on several devices never wait for each other: the compiled program holds no communication."""
    plan = plan_for()
    mesh = seed_mesh(jax.devices()[:2])
    arrays, static = place(first_states(plan.setup, (0, 1)), mesh)
    text = compiled(plan, static, mesh, 1, arrays).as_text()
    assert not [word for word in ("all-reduce", "all-gather", "collective-permute", "all-to-all") if word in text]


def test_bonus_statistics_are_those_of_the_raw_bonus() -> None:
    """Mean, median, deviation, maximum and the share paid at episode ends, of a bonus that is known."""
    plan, _, (_, _, rollout) = collected()
    raw = jnp.asarray(np.random.default_rng(0).exponential(size=(128, 1)), jnp.float32).at[99].set(20.0)
    task = plan.setup.task
    found = bonus_metrics(task, rollout, raw, rollout.step.valid) | task_metrics(task, rollout)
    values = np.asarray(raw, np.float64)
    expected = {
        "bonus/mean": values.mean(),
        "bonus/median": np.median(values),
        "bonus/std": values.std(),
        "bonus/max": 20.0,
        "bonus/border_share": 20.0 / values.sum(),
        "reward/episodes_ended": 1,
    }
    for name, value in expected.items():
        assert float(found[name]) == pytest.approx(value, rel=1e-4), name


def test_the_policy_starts_as_the_card_says() -> None:
    """Method cards 2.2: orthogonal, gain √2 in hidden layers and value head, 1 for the mean, biases and log-std 0."""
    policy = one_state(plan_for()).agent.policy.policy

    def gains(weight: Any) -> np.ndarray:
        return np.linalg.svd(np.asarray(weight), compute_uv=False)

    for layer in (*policy.actor.layers, *policy.critic.layers):
        np.testing.assert_allclose(gains(layer.weight), 2**0.5, rtol=1e-5)
        np.testing.assert_array_equal(layer.bias, 0)
    np.testing.assert_allclose(gains(policy.head.weight), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(policy.log_std, 0)


def test_models_start_as_torch_does() -> None:
    """Uniform within ±1/√inputs, weights and biases, in every layer of LBS."""
    model = one_state(plan_for()).agent.curiosity
    for layer in (*model.trunk.layers, *model.posterior_trunk.layers, model.prior_head.both, model.reconstruction):
        bound = layer.weight.shape[0] ** -0.5
        values = np.concatenate([np.ravel(layer.weight), layer.bias])
        assert np.abs(values).max() <= bound
        if values.size > 100:
            assert np.std(values) == pytest.approx(bound / 3**0.5, rel=0.15)


@pytest.mark.parametrize("successor", ["reset", "true", "drop"])
def test_episodic_memory_follows_the_episodes_across_rollouts(successor: str) -> None:
    """After 128, then 256 steps of 100-step episodes the memory holds this episode's 28, then 56 states."""
    plan = plan_for(method="ride", loop__successor=successor)
    mesh = seed_mesh(jax.devices()[:1])
    arrays, static = place(first_states(plan.setup, (0,)), mesh)
    call = compile_chunk(plan.setup, static, mesh, 1, arrays)
    written = []
    for _ in range(2):
        arrays, _ = call(arrays)
        written.append(int(arrays.agent.learner.memory.written[0, 0]))
    assert written == [28, 56]
