"""Advantages, values at episode ends, and the loss of PPO against plain sums in float64."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from oracles import Doubles, double, linear, random_steps
from scipy import special, stats

from curiax import Box, Discrete, PPOSettings, Rollout, Spec, Transition
from curiax._types import Rewards
from curiax.agents import PPO, gae
from curiax.agents.ppo import Batch, Policy, at_ends
from curiax.nn import MLP

SPEC = Spec((3,), Box((-1.0, -1.0), (1.0, 1.0)))
CHOICES = Spec((3,), Discrete(4))
T, N = 7, 2
ROWS = hnp.arrays(np.float32, (T, N), elements=st.floats(-10, 10, width=32))
compiled = jax.jit(gae, static_argnames=("discount", "trace"))


def plain_advantages(
    reward: Doubles, value: Doubles, following: Doubles, cut: NDArray[np.bool_], discount: float, trace: float
) -> Doubles:
    """A_t = Σ_l (γλ)^(l−t) δ_l over the steps up to and with the first cut."""
    result = np.zeros_like(reward)
    for n in range(reward.shape[1]):
        for t in range(len(reward)):
            for last in range(t, len(reward)):
                delta = reward[last, n] + discount * following[last, n] - value[last, n]
                result[t, n] += (discount * trace) ** (last - t) * delta
                if cut[last, n]:
                    break
    return result


@settings(max_examples=40, deadline=None)
@given(ROWS, ROWS, ROWS, hnp.arrays(np.bool_, (T, N)), st.sampled_from([(0.99, 0.95), (0.9, 0.0), (0.5, 1.0)]))
def test_gae_equals_the_plain_sums(
    reward: Any, value: Any, following: Any, cut: Any, constants: tuple[float, float]
) -> None:
    discount, trace = constants
    ours = compiled(*map(jnp.asarray, (reward, value, following, cut)), discount=discount, trace=trace)
    expected = plain_advantages(*map(double, (reward, value, following)), cut, discount, trace)
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


def test_gae_by_hand() -> None:
    column = lambda *x: jnp.asarray(x)[:, None]  # noqa: E731
    # δ = 1 + 0.5·4 − 2 = 1,  0 + 0.5·0 − 4 = −4 (cut),  2 + 0.5·8 − 2 = 4; γλ = 0.25.
    ours = gae(
        column(1.0, 0.0, 2.0),
        column(2.0, 4.0, 2.0),
        column(4.0, 0.0, 8.0),
        column(False, True, False),
        discount=0.5,
        trace=0.5,
    )
    np.testing.assert_allclose(ours[:, 0], [1.0 + 0.25 * -4.0, -4.0, 4.0])


def test_the_true_value_of_a_constant_reward_has_no_advantage() -> None:
    """1 / (1 − γ) solves the infinite sum; from value 0 with λ = 1 the advantages are its partial sums."""
    ones, never = jnp.ones((T, N)), jnp.zeros((T, N), bool)
    worth = ones / (1 - 0.99)
    np.testing.assert_allclose(compiled(ones, worth, worth, never, discount=0.99, trace=0.95), 0.0, atol=1e-3)
    left = np.arange(T, 0, -1)
    following = jnp.zeros((T, N)).at[-1].set(1 / (1 - 0.99))
    exact = compiled(ones, jnp.zeros((T, N)), following, never, discount=0.99, trace=1.0)
    np.testing.assert_allclose(exact[:, 0], (1 - 0.99**left) / 0.01 + 0.99**left / 0.01, rtol=1e-5)


def tanh_mlp(net: MLP, x: Doubles, *, activate_last: bool) -> Doubles:
    for layer in net.layers[:-1]:
        x = np.tanh(linear(layer, x))
    x = linear(net.layers[-1], x)
    return np.tanh(x) if activate_last else x


def values(policy: Policy, obs: Any) -> Doubles:
    """V(s) of each head."""
    return tanh_mlp(policy.critic, double(obs), activate_last=False)


@pytest.fixture(scope="module")
def rollout() -> Rollout:
    """Environment 0 meets its time limit at step 2, environment 1 terminates at step 4, one ends with the rollout."""
    rng = np.random.default_rng(0)
    t = random_steps(SPEC, rng, T, N)
    flags = np.zeros((2, T, N), bool)
    flags[0, 4, 1] = True
    flags[1, 2, 0] = flags[1, T - 1, 0] = True
    terminated, truncated = jnp.asarray(flags)
    ended = flags.any(0)
    # Within an episode the successor is what is acted on next; at its end it is not.
    acted_next = np.concatenate([np.asarray(t.obs[1:]), rng.normal(size=(1, N, 3)).astype(np.float32)])
    next_obs = np.where(ended[..., None], rng.normal(size=(T, N, 3)), acted_next).astype(np.float32)
    step = Transition(t.obs, t.action, jnp.asarray(next_obs), t.reward, terminated, truncated, t.valid)
    return Rollout(step, jnp.asarray(acted_next), jnp.zeros((T, N, 2)))


@pytest.fixture(scope="module")
def policy() -> Policy:
    made = Policy(SPEC, 8, key=jax.random.key(0))
    return eqx.tree_at(lambda p: p.log_std, made, jnp.asarray([-0.3, 0.4]))


@pytest.fixture(scope="module")
def two_heads() -> Policy:
    return Policy(SPEC, 8, 2, key=jax.random.key(3))


def bootstraps(
    policy: Policy, rollout: Rollout, mode: str, head: int = 0
) -> tuple[Doubles, Doubles, NDArray[np.bool_]]:
    """V, V′ and cuts of a value head, step by step."""
    step = rollout.step
    value, following, cut = np.zeros((T, N)), np.zeros((T, N)), np.zeros((T, N), bool)
    for t in range(T):
        for n in range(N):
            over, limit = bool(step.terminated[t, n]), bool(step.truncated[t, n])
            value[t, n] = values(policy, step.obs[t, n])[head]
            following[t, n] = values(policy, rollout.acted_next[t, n])[head]
            if mode == "terminate" and (over or limit):
                following[t, n] = 0.0
            if mode == "bootstrap" and limit:
                following[t, n] = values(policy, step.next_obs[t, n])[head]
            if mode == "bootstrap" and over:
                following[t, n] = 0.0
            cut[t, n] = mode != "ignore" and (over or limit)
    return value, following, cut


@pytest.mark.parametrize("mode", ["ignore", "terminate", "bootstrap"])
def test_values_at_episode_ends(policy: Policy, rollout: Rollout, mode: Any) -> None:
    agent = PPO(PPOSettings(episode_ends=mode, width=8))
    value, _ = jax.jit(agent._before)(policy, rollout)
    last = values(policy, rollout.acted_next[-1])[:, 0]
    acted = jnp.concatenate([value[1:, :, 0], jnp.asarray(last, jnp.float32)[None]])
    true = jax.jit(agent._true_successors)(policy, rollout)[..., 0]
    following, cut = at_ends(rollout.step, acted, true if agent.sees_successors else None, mode)
    expected = bootstraps(policy, rollout, mode)
    np.testing.assert_allclose(value[..., 0], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(following, expected[1], rtol=1e-4, atol=1e-5)
    assert np.array_equal(cut, expected[2])
    assert int(cut.sum()) == (0 if mode == "ignore" else 3)


ENDS = ["ignore", "terminate", "bootstrap"]


@pytest.mark.parametrize("bonus_ends", ENDS)
@pytest.mark.parametrize("task_ends", ENDS)
def test_two_value_heads_in_float64(two_heads: Policy, rollout: Rollout, task_ends: Any, bonus_ends: Any) -> None:
    """Each reward is discounted and ended in its own way; the advantages are added up with the rewards' weights."""
    settings = PPOSettings(
        width=8,
        discount=0.9,
        trace=0.8,
        episode_ends=task_ends,
        value_heads="two",
        bonus_discount=0.97,
        bonus_ends=bonus_ends,
    )
    agent, rng = PPO(settings), np.random.default_rng(5)
    task, bonus = rng.normal(size=(2, T, N)).astype(np.float32)
    rewards = Rewards(jnp.asarray(task), jnp.asarray(bonus), 0.5, 3.0)
    value, _ = jax.jit(agent._before)(two_heads, rollout)
    advantage, target = jax.jit(agent._estimate)(two_heads, rollout, rewards, value)
    parts = []
    for head, (reward, ends, discount) in enumerate([(task, task_ends, 0.9), (bonus, bonus_ends, 0.97)]):
        now, following, cut = bootstraps(two_heads, rollout, ends, head)
        parts.append(plain_advantages(double(reward), now, following, cut, discount, 0.8))
        np.testing.assert_allclose(target[..., head], parts[head] + now, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(advantage, 0.5 * parts[0] + 3.0 * parts[1], rtol=1e-4, atol=1e-5)


def test_a_bonus_of_later_episodes_counts_only_if_its_return_runs_on(two_heads: Policy, rollout: Rollout) -> None:
    """Environment 1 terminates at step 4; a bonus after that changes the advantages before it, or does not."""
    later = jnp.zeros((T, N)).at[5, 1].set(1.0)
    for ends, counts in (("ignore", True), ("bootstrap", False)):
        agent = PPO(PPOSettings(width=8, episode_ends="bootstrap", value_heads="two", bonus_ends=ends))  # pyright: ignore
        value, _ = agent._before(two_heads, rollout)
        nothing, something = (
            agent._estimate(two_heads, rollout, Rewards(jnp.zeros((T, N)), bonus), value)[0]
            for bonus in (jnp.zeros((T, N)), later)
        )
        moved = np.asarray(something - nothing)[:5, 1]
        expected = (0.99 * 0.95) ** np.arange(5, 0, -1) if counts else np.zeros(5)
        np.testing.assert_allclose(moved, expected, atol=1e-5)


def test_two_heads_that_agree_with_one_have_its_advantages(two_heads: Policy, rollout: Rollout) -> None:
    """With the same γ and ends, and V = η_e V_e + η_i V_i, nothing but the bookkeeping differs."""
    weights, last = np.asarray([0.5, 3.0], np.float32), two_heads.critic.layers[-1]
    single = eqx.tree_at(
        lambda p: (p.critic.layers[-1].weight, p.critic.layers[-1].bias),
        two_heads,
        (last.weight @ weights[:, None], last.bias @ weights[:, None]),
    )
    rng = np.random.default_rng(6)
    rewards = Rewards(*jnp.asarray(rng.normal(size=(2, T, N)), jnp.float32), *map(float, weights))
    found = []
    for heads, policy in (("one", single), ("two", two_heads)):
        same: dict[str, Any] = {"episode_ends": "bootstrap", "bonus_ends": "bootstrap", "value_heads": heads}
        agent = PPO(PPOSettings(width=8, **same))
        value, _ = agent._before(policy, rollout)
        found.append(agent._estimate(policy, rollout, rewards, value)[0])
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)


def test_two_heads_leave_actors_as_they_are_drawn() -> None:
    one, two = (Policy(SPEC, 8, heads, key=jax.random.key(0)) for heads in (1, 2))
    for mine, other in zip(jax.tree.leaves((one.actor, one.head)), jax.tree.leaves((two.actor, two.head)), strict=True):
        np.testing.assert_array_equal(mine, other)
    assert two.values(jnp.zeros(3)).shape == (2,)


def plain_loss(policy: Policy, batch: Batch, s: PPOSettings) -> dict[str, float]:
    """Section 2.2 of the cards."""
    out = linear(policy.head, tanh_mlp(policy.actor, double(batch.obs), activate_last=True))
    if policy.log_std is None:
        log_p = special.log_softmax(out, axis=-1)
        log_prob = log_p[np.arange(len(out)), np.asarray(batch.action)]
        entropy = stats.entropy(np.exp(log_p), axis=-1)
    else:
        std = np.exp(double(policy.log_std))
        log_prob = stats.norm.logpdf(double(batch.action), out, std).sum(-1)
        each = np.broadcast_to(stats.norm.entropy(0.0, std), out.shape)
        entropy = each.mean(-1) if s.entropy_reduction == "mean" else each.sum(-1)
    there = np.ones(len(out), bool) if batch.valid is None else np.asarray(batch.valid)
    ratio, advantage = np.exp(log_prob - double(batch.log_prob)), double(batch.advantage)
    gain = np.minimum(ratio * advantage, np.clip(ratio, 1 - s.clip, 1 + s.clip) * advantage)
    value, old, target = values(policy, batch.obs), double(batch.value), double(batch.target)
    near = old + np.clip(value - old, -s.clip, s.clip) if s.clip_value else value
    error = 0.5 * np.maximum((value - target) ** 2, (near - target) ** 2).sum(-1)
    terms = {"policy_loss": -gain, "value_loss": error, "entropy": entropy}
    terms = {name: float(each[there].mean()) for name, each in terms.items()}
    terms["loss"] = terms["policy_loss"] + s.value_weight * terms["value_loss"] - s.entropy_weight * terms["entropy"]
    return terms


@pytest.mark.parametrize(("spec", "reduction"), [(SPEC, "mean"), (SPEC, "sum"), (CHOICES, "mean"), (CHOICES, "sum")])
def test_loss_in_float64(policy: Policy, spec: Spec, reduction: Any) -> None:
    """Ratios on both sides of the clip under both signs of the advantage, values in and out of reach."""
    s = PPOSettings(entropy_reduction=reduction, entropy_weight=0.3, value_weight=0.7, width=8)
    check_loss(policy if spec is SPEC else Policy(spec, 8, key=jax.random.key(0)), spec, s)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("clips", [True, False])
def test_loss_of_each_value_head_in_float64(heads: int, clips: bool) -> None:
    check_loss(Policy(SPEC, 8, heads, key=jax.random.key(0)), SPEC, PPOSettings(width=8, clip_value=clips))


@pytest.mark.parametrize("spec", [SPEC, CHOICES])
def test_samples_that_are_not_valid_are_in_no_mean(spec: Spec) -> None:
    """Of the policy's gain, of the value's error, and of the entropy."""
    s = PPOSettings(entropy_weight=0.3, width=8)
    check_loss(Policy(spec, 8, key=jax.random.key(0)), spec, s, valid=np.arange(64) % 3 > 0)


def check_loss(policy: Policy, spec: Spec, s: PPOSettings, valid: NDArray[np.bool_] | None = None) -> None:
    rng, size = np.random.default_rng(1), 64
    t = random_steps(spec, rng, size)
    shifts = rng.normal(0, 0.4, size)
    log_prob = jax.vmap(lambda o, a: policy.distribution(o).log_prob(a))(t.obs, t.action)
    value = values(policy, t.obs)
    noise = rng.normal(size=(2, *value.shape))
    columns = (log_prob + shifts, value + 0.5 * noise[0], rng.normal(size=size), noise[1])
    marks = None if valid is None else jnp.asarray(valid)
    batch = Batch(t.obs, t.action, *(jnp.asarray(x, jnp.float32) for x in columns), marks)
    ratio = np.exp(-shifts)
    assert ((ratio > 1.2) & (columns[2] > 0)).any()
    assert ((ratio < 0.8) & (columns[2] < 0)).any()
    loss, terms = jax.jit(PPO(s)._loss)(policy, batch)
    expected = plain_loss(policy, batch, s)
    np.testing.assert_allclose(loss, expected.pop("loss"), rtol=1e-4)
    for name, wanted in expected.items():
        np.testing.assert_allclose(terms[name], wanted, rtol=1e-4, err_msg=name)


def test_value_clipping_keeps_the_larger_error() -> None:
    """V moved from 0 to 1 with clip 0.2: towards the target 3 the clipped error counts, away from −3 the plain one."""
    zero = Policy(SPEC, 8, key=jax.random.key(0))
    flat = jax.tree.map(jnp.zeros_like, zero)
    one = eqx.tree_at(lambda p: p.critic.layers[-1].bias, flat, jnp.ones(1))
    agent = PPO(PPOSettings(width=8, entropy_weight=0.0, value_weight=1.0))
    obs, action, blank = jnp.zeros((1, 3)), jnp.zeros((1, 2)), jnp.zeros(1)
    for target, error in ((3.0, 2.8**2), (-3.0, 4.0**2), (1.0, 0.8**2)):
        batch = Batch(obs, action, blank, blank[None], blank, jnp.full((1, 1), target))
        np.testing.assert_allclose(agent._loss(one, batch)[1]["value_loss"], 0.5 * error, rtol=1e-5)


@pytest.mark.parametrize("max_norm", [None, 0.5])
def test_one_full_batch_update_is_one_adam_step(policy: Policy, rollout: Rollout, max_norm: float | None) -> None:
    """Standardised advantages and returns as targets; a large epsilon makes the step show the gradient's size."""
    batch_settings = {"epochs": 1, "minibatch_size": T * N, "episode_ends": "bootstrap", "width": 8}
    agent = PPO(PPOSettings(learning_rate=0.1, adam_epsilon=1.0, max_gradient_norm=max_norm, **batch_settings))
    reward = np.random.default_rng(2).normal(size=(T, N)).astype(np.float32)
    start = eqx.tree_at(lambda x: x.policy, agent.start(agent.build(SPEC, key=jax.random.key(0))), policy)
    rewards = Rewards(jnp.zeros((T, N)), jnp.asarray(reward))
    after, report, _ = jax.jit(lambda st, r: agent.learn(SPEC, st, rollout, r, key=jax.random.key(1)))(start, rewards)

    value, following, cut = bootstraps(policy, rollout, "bootstrap")
    advantage = plain_advantages(double(reward), value, following, cut, 0.99, 0.95)
    standard = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-5)
    obs, action = rollout.step.obs.reshape(-1, 3), rollout.step.action.reshape(-1, 2)
    out = linear(policy.head, tanh_mlp(policy.actor, double(obs), activate_last=True))
    log_prob = stats.norm.logpdf(double(action), out, np.exp(double(policy.log_std))).sum(-1)
    columns = (log_prob, value[..., None], standard, (advantage + value)[..., None])
    batch = Batch(obs, action, *(jnp.asarray(x.reshape(T * N, *x.shape[2:]), jnp.float32) for x in columns))
    gradient = jax.jit(jax.grad(lambda p: agent._loss(p, batch)[0]))(policy)
    norm = np.sqrt(sum((double(leaf) ** 2).sum() for leaf in jax.tree.leaves(gradient)))
    assert norm > 0.5
    scale = 1.0 if max_norm is None else max_norm / norm
    for moved, was, slope in zip(*map(jax.tree.leaves, (after.policy, policy, gradient)), strict=True):
        g = scale * double(slope)
        np.testing.assert_allclose(double(moved) - double(was), -0.1 * g / (np.abs(g) + 1.0), rtol=2e-3, atol=1e-6)
    np.testing.assert_allclose(report["advantage_std"], advantage.std(), rtol=1e-4)
    np.testing.assert_allclose(report["value_mean"], value.mean(), rtol=1e-4, atol=1e-6)
    unexplained = advantage.var() / (advantage + value).var()
    np.testing.assert_allclose(report["explained_variance"], 1 - unexplained, rtol=1e-3, atol=1e-4)
    assert float(report["approx_kl"]) > 0
