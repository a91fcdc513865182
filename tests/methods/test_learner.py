"""The learner: which samples train the model, in which batches, and the ring of earlier rollouts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import curiax
from curiax.curiosity import RND, Learner, LearnerSettings
from curiax.curiosity.learner import Pool
from curiax.testing import random_steps

SPEC = curiax.Spec((2,), curiax.Box((-1.0,), (1.0,)), 10)


def numbered(length: int, envs: int) -> curiax.Transition:
    """Transitions whose reward is 100 · time + environment."""
    steps = random_steps(SPEC, (length, envs))
    number = 100.0 * jnp.arange(length)[:, None] + jnp.arange(envs)[None]
    return curiax.Transition(
        steps.obs, steps.action, steps.next_obs, number, steps.terminated, steps.truncated, steps.valid
    )


@pytest.mark.parametrize(("length", "envs", "size"), [(12, 1, 4), (12, 3, 6), (10, 4, 12), (7, 2, 6)])
def test_minibatches_are_whole_time_steps_in_fresh_order(length: int, envs: int, size: int) -> None:
    """Method cards 2.5: a permutation of time indices; each batch takes all environments at those times."""
    learner = Learner(LearnerSettings(epochs=5, minibatch_size=size))
    batches = np.asarray(learner._dealt(numbered(length, envs), None, jax.random.key(0), None)[0].reward)
    times = size // envs
    per_epoch = length // times
    assert batches.shape == (5 * per_epoch, times * envs)
    orders = []
    for epoch in batches.reshape(5, per_epoch, times * envs):
        for batch in epoch:
            at = np.unique(batch // 100)
            assert sorted(batch) == sorted(100 * t + e for t in at for e in range(envs))
        seen = epoch[:, ::envs].ravel() // 100
        assert len(set(seen)) == per_epoch * times
        orders.append(tuple(seen))
    assert len(set(orders)) == 5


def test_the_pool_is_a_ring_of_rollouts() -> None:
    steps = numbered(4, 1)
    pool = Pool.start(steps, 2)
    for k in range(3):
        shifted = jax.tree.map(lambda x, k=k: x + k if x.dtype == jnp.float32 else x, steps)
        pool = pool.add(shifted)
    assert int(pool.filled) == 3
    np.testing.assert_allclose(pool.steps.reward[0], steps.reward + 2)
    np.testing.assert_allclose(pool.steps.reward[1], steps.reward + 1)


def test_replay_draws_only_from_what_is_there() -> None:
    learner = Learner(LearnerSettings(epochs=8, minibatch_size=4, replay=5))
    steps = numbered(8, 1)
    pool = Pool.start(steps, 5).add(steps)
    drawn = np.asarray(learner._dealt(steps, pool, jax.random.key(0), None)[0].reward)
    assert set(np.unique(drawn)) <= set(np.asarray(steps.reward).ravel())
    older = jax.tree.map(lambda x: x + 5000 if x.dtype == jnp.float32 else x, steps)
    drawn = np.asarray(learner._dealt(steps, pool.add(older), jax.random.key(0), None)[0].reward)
    assert 0.3 < np.mean(drawn >= 5000) < 0.7


def trained(steps: curiax.Transition, **settings: Any) -> tuple[np.ndarray, dict[str, Any]]:
    learner = Learner(LearnerSettings(epochs=3, minibatch_size=4, **settings))
    model = RND(SPEC, key=jax.random.key(1))
    model, _, report = learner.update(model, learner.start(model, steps), steps, key=jax.random.key(2))
    return np.asarray(model.distillation.predictor.layers[0].weight), report


def test_invalid_steps_train_nothing_even_if_they_hold_nan() -> None:
    """Marking a step invalid equals a batch mean over the others: its content is irrelevant, the report finite."""
    steps = random_steps(SPEC, (8, 1))
    valid = steps.valid.at[3].set(False)

    def holding(value: float) -> curiax.Transition:
        next_obs = steps.next_obs.at[3].set(value)
        return curiax.Transition(
            steps.obs, steps.action, next_obs, steps.reward, steps.terminated, steps.truncated, valid
        )

    calm, report = trained(holding(1.0))
    poisoned, poisoned_report = trained(holding(np.nan))
    np.testing.assert_array_equal(calm, poisoned)
    assert np.isfinite(report["loss"])
    assert report["loss"] == poisoned_report["loss"]
    assert not np.array_equal(calm, trained(steps)[0])


def test_epochs_zero_and_unscaled_bonus() -> None:
    steps = random_steps(SPEC, (8, 2))
    learner = Learner(LearnerSettings(epochs=0, scale=False))
    model = RND(SPEC, key=jax.random.key(1))
    state, raw, paid = learner.reward(model, learner.start(model, steps), steps, key=jax.random.key(0))
    np.testing.assert_array_equal(raw, paid)
    after, _, report = learner.update(model, state, steps, key=jax.random.key(0))
    assert after is model
    assert report == {}
