"""Running statistics against NumPy in float64."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from curiax._stats import Moments, ReturnScale

Doubles = NDArray[np.float64]
Order = Literal["before", "after"]
merge = jax.jit(lambda moments, batch: moments.merge(batch))
BATCHES = hnp.arrays(np.float32, (5, 3), elements=st.floats(-100, 100, width=32))


class StableBaselinesMoments:
    """RunningMeanStd.update_from_moments of Stable-Baselines, in float64."""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.mean, self.var, self.count = np.zeros(shape), np.ones(shape), 1e-4

    def update(self, batch: Doubles) -> None:
        mean, var, count = batch.mean(axis=0), batch.var(axis=0), batch.shape[0]
        delta, total = mean - self.mean, self.count + count
        m2 = self.var * self.count + var * count + np.square(delta) * self.count * count / total
        self.mean, self.var, self.count = self.mean + delta * count / total, m2 / total, total


@settings(max_examples=40, deadline=None)
@given(st.lists(BATCHES, min_size=1, max_size=6))
def test_merging_batches_equals_the_moments_of_everything(batches: list[NDArray[np.float32]]) -> None:
    moments = Moments.start((3,))
    for batch in batches:
        moments = merge(moments, jnp.asarray(batch))
    everything = np.concatenate(batches).astype(np.float64)
    # The start counts as a ten-thousandth of a sample of mean 0 and variance 1.
    total = len(everything) + 1e-4
    mean = everything.sum(axis=0) / total
    var = (1e-4 + (everything**2).sum(axis=0)) / total - mean**2
    scale = np.abs(everything).max() + 1.0
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-5, atol=1e-5 * scale)
    np.testing.assert_allclose(moments.var, var, rtol=1e-4, atol=1e-5 * scale**2)
    np.testing.assert_allclose(moments.count, total, rtol=1e-6)


def test_long_stream_of_single_samples_follows_stable_baselines() -> None:
    """Observations are merged one at a time for a whole run: rounding in float32 must not build up."""
    rng = np.random.default_rng(0)
    stream = (rng.normal([0.0, 5.0, -0.5], [1.0, 0.1, 0.02], (20_000, 3))).astype(np.float32)
    reference = StableBaselinesMoments((3,))
    for x in stream.astype(np.float64):
        reference.update(x[None])
    step = lambda moments, x: (moments.merge(x[None]), None)  # noqa: E731
    ours = jax.jit(lambda xs: jax.lax.scan(step, Moments.start((3,)), xs)[0])(jnp.asarray(stream))
    np.testing.assert_allclose(ours.mean, reference.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.var, reference.var, rtol=2e-3)
    np.testing.assert_allclose(ours.var, stream.astype(np.float64).var(axis=0), rtol=2e-3)


def test_first_sample_is_normalised_to_zero_and_clipping_binds() -> None:
    moments = merge(Moments.start((2,)), jnp.asarray([[3.0, -2.0]]))
    seen = moments.normalise(jnp.asarray([3.0, 5.0]), 1e-8, 10.0)
    # One sample leaves variance 1e-4 (1 + x²), so the second coordinate is 7 / √5e-4 deviations away.
    np.testing.assert_allclose(moments.var, [1e-3, 5e-4], rtol=1e-3)
    np.testing.assert_allclose(seen, [0.0, 10.0], atol=0.02)
    np.testing.assert_allclose(
        moments.normalise(jnp.asarray([2.0, -2.1]), 1e-8, 100.0)[0], -1 / np.sqrt(1e-3), rtol=0.01
    )


def test_epsilon_is_added_to_the_variance_under_the_root() -> None:
    moments = Moments(jnp.zeros(1), jnp.full(1, 9.0), jnp.asarray(1.0))
    np.testing.assert_allclose(moments.normalise(jnp.full(1, 10.0), 16.0, 100.0), [2.0])


def plain_scale(rollouts: list[Doubles], discount: float, clip: float, order: Order) -> tuple[list[Doubles], Doubles]:
    """Section 2.3 of the method cards, one number at a time."""
    stats = StableBaselinesMoments()
    total = np.zeros(rollouts[0].shape[1])
    paid = []
    for bonus in rollouts:
        sigma = np.sqrt(stats.var)
        bonus = np.clip(bonus, -clip * sigma, clip * sigma) if order == "before" else bonus
        totals = []
        for t in range(bonus.shape[0]):
            for n in range(bonus.shape[1]):
                total[n] = discount * total[n] + bonus[t, n]
                totals.append(total[n])
        stats.update(np.array(totals))
        scaled = bonus / np.sqrt(stats.var + 1e-8)
        paid.append(np.clip(scaled, -clip, clip) if order == "after" else scaled)
    return paid, total


@pytest.fixture(scope="module")
def rollouts() -> list[Doubles]:
    """Three environments of different size, some bonuses far beyond any clip, three rollouts."""
    rng = np.random.default_rng(1)
    made = [rng.exponential([0.2, 1.0, 3.0], (40, 3)) for _ in range(3)]
    for bonus in made:
        bonus[rng.integers(40, size=3), [0, 1, 2]] = 60.0
    return [bonus.astype(np.float32).astype(np.float64) for bonus in made]


@pytest.mark.parametrize("order", ["before", "after"])
def test_return_scale_equals_the_plain_loop(rollouts: list[Doubles], order: Order) -> None:
    expected, total = plain_scale(rollouts, 0.9, 3.0, order)
    scale = ReturnScale.start(3)
    call = jax.jit(lambda s, b: s.scale(b, discount=0.9, clip=3.0, order=order))
    for bonus, paid in zip(rollouts, expected, strict=True):
        scale, ours = call(scale, jnp.asarray(bonus, jnp.float32))
        np.testing.assert_allclose(ours, paid, rtol=2e-4)
    np.testing.assert_allclose(scale.total, total, rtol=1e-4)


def test_the_two_orders_differ(rollouts: list[Doubles]) -> None:
    """Guards the test above: its data must tell the orders apart."""
    before, after = (plain_scale(rollouts, 0.9, 3.0, order)[0][-1] for order in ("before", "after"))
    assert np.abs(before - after).max() > 0.1


def test_first_rollout_is_clipped_to_the_initial_deviation_of_one() -> None:
    scale, paid = ReturnScale.start(1).scale(jnp.asarray([[5.0], [0.0]]), discount=0.5, clip=3.0, order="before")
    # 5 is clipped to 3; the sums are 3 and 1.5, of mean 2.25 and variance 0.5625.
    np.testing.assert_allclose(scale.deviation, 0.75, rtol=1e-3)
    np.testing.assert_allclose(paid, [[4.0], [0.0]], rtol=1e-3)


def test_environments_are_filtered_along_time_and_apart(rollouts: list[Doubles]) -> None:
    """A constant bonus in one environment sums to the geometric series there and to 0 elsewhere."""
    bonus = np.zeros((40, 3), np.float32)
    bonus[:, 1] = 1.0
    scale, _ = ReturnScale.start(3).scale(jnp.asarray(bonus), discount=0.9, clip=3.0, order="after")
    np.testing.assert_allclose(scale.total, [0.0, (1 - 0.9**40) / 0.1, 0.0], rtol=1e-5)


def test_a_bonus_is_divided_by_one_number_and_not_replaced_by_its_returns(rollouts: list[Doubles]) -> None:
    """What is paid has the bonus's own shape over time, and not that of its discounted sums."""
    bonus = rollouts[0]
    scale, paid = ReturnScale.start(3).scale(jnp.asarray(bonus, jnp.float32), discount=0.9, clip=1e9, order="after")
    np.testing.assert_allclose(bonus / np.asarray(paid), np.full(bonus.shape, scale.deviation), rtol=1e-4)
    totals = np.stack([sum(0.9 ** (t - k) * bonus[k] for k in range(t + 1)) for t in range(len(bonus))])
    assert np.ptp(totals / np.asarray(paid)) > 1.0, "the data tell the two apart"
    np.testing.assert_allclose(scale.deviation, totals.std(), rtol=1e-3)


# --- the task's reward ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def episodes() -> tuple[Doubles, NDArray[np.bool_]]:
    """Rewards of three environments of different size, one beyond any clip, and ends of their episodes."""
    rng = np.random.default_rng(2)
    reward = rng.normal([0.5, -1.0, 3.0], [0.2, 1.0, 30.0], (60, 3))
    reward[31, 0] = 4000.0
    return reward.astype(np.float32).astype(np.float64), rng.random((60, 3)) < 0.1


def scaled_in_parts(reward: Doubles, ended: NDArray[np.bool_], discount: float, clip: float) -> Doubles:
    """Three rollouts of 20 steps, one after another."""
    scale, paid = ReturnScale.start(3), []
    call = jax.jit(lambda s, r, e: s.scale_steps(r, e, discount=discount, clip=clip))
    for rows in np.split(np.arange(60), 3):
        scale, part = call(scale, jnp.asarray(reward[rows], jnp.float32), jnp.asarray(ended[rows]))
        paid.append(part)
    return np.concatenate(paid).astype(np.float64)


def test_rewards_are_scaled_as_stable_baselines_does(episodes: Any) -> None:
    """`VecNormalize`, whose forerunner the released code uses: step by step, the sum anew with each episode."""
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    spaces = pytest.importorskip("gymnasium").spaces
    reward, ended = episodes

    class Played(vec_env.VecEnv):
        """Plays the rewards and ends of the fixture."""

        def __init__(self) -> None:
            self.t = 0
            super().__init__(3, spaces.Box(-1.0, 1.0, (1,)), spaces.Discrete(2))

        def step_wait(self) -> Any:
            self.t += 1
            return np.zeros((3, 1), np.float32), reward[self.t - 1], ended[self.t - 1], [{} for _ in range(3)]

        def reset(self) -> Any:
            return np.zeros((3, 1), np.float32)

        def step_async(self, actions: Any) -> None: ...
        def close(self) -> None: ...
        def get_attr(self, attr_name: str, indices: Any = None) -> Any:
            return [None] * 3

        def set_attr(self, *args: Any) -> None: ...
        def env_method(self, *args: Any, **options: Any) -> Any: ...
        def env_is_wrapped(self, *args: Any) -> Any: ...

    theirs = vec_env.VecNormalize(Played(), norm_obs=False, clip_reward=2.0, gamma=0.9)
    theirs.reset()
    expected = np.stack([theirs.step(np.zeros(3, int))[1] for _ in range(60)])
    assert (np.abs(expected) == 2.0).any()
    assert (np.abs(expected) < 2.0).mean() > 0.5
    np.testing.assert_allclose(scaled_in_parts(reward, ended, 0.9, 2.0), expected, rtol=1e-3, atol=1e-6)


def test_rewards_are_scaled_by_the_plain_loop(episodes: Any) -> None:
    """One step of all environments at a time, in float64."""
    reward, ended = episodes
    total, stats, expected = np.zeros(3), StableBaselinesMoments(), []
    for r, over in zip(reward, ended, strict=True):
        total = 0.9 * total + r
        stats.update(total)
        expected.append(np.clip(r / np.sqrt(stats.var + 1e-8), -10, 10))
        total = np.where(over, 0.0, total)
    np.testing.assert_allclose(scaled_in_parts(reward, ended, 0.9, 10.0), expected, rtol=1e-3, atol=1e-6)


def test_steps_that_do_not_count_are_not_in_the_scale(episodes: Any) -> None:
    """Left out here, not there in a rollout without them."""
    reward, ended = (jnp.asarray(x[:, :1]) for x in episodes)
    reward, counts = reward.astype(jnp.float32), jnp.ones((60, 1), bool).at[jnp.asarray([7, 20, 21])].set(False)
    options: dict[str, Any] = {"discount": 0.9, "clip": 10.0}
    start = ReturnScale.start(1)
    # An end at a step that does not count would still be one.
    ended &= counts
    odd, paid = start.scale_steps(jnp.where(counts, reward, 1e6), ended, where=counts, **options)
    kept = np.flatnonzero(counts[:, 0])
    plain, expected = start.scale_steps(reward[kept], ended[kept], **options)
    np.testing.assert_allclose(paid[kept], expected, rtol=1e-5)
    for one, other in zip(jax.tree.leaves(odd), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
