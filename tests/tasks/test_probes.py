"""PPO on tasks whose values and best actions are known, and the noisy-TV arm."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import curiax
from curiax.experiments.spec import resolve
from curiax.testing import NoisyArm, ProbeTask
from curiax.train.batch import compile_chunk, first_states, place, seed_mesh

DISCOUNT = 0.9


def trained_policy(kind: str, *, discrete: bool = False, ends: str = "bootstrap") -> Any:
    """PPO's policy after 60 rollouts of 64 steps on the probe's own reward."""
    settings = {
        "loop.rollout": 64,
        "loop.normalise_obs": False,
        "ppo.discount": DISCOUNT,
        "ppo.learning_rate": 2e-3,
        "ppo.episode_ends": ends,
        "loop.normalise_reward": False,
        "task.kind": kind,
        "task.discrete": discrete,
    }
    plan = resolve(curiax.Experiment(ProbeTask, "none", seeds=1, steps=64 * 60, settings=settings))
    mesh = seed_mesh(jax.devices()[:1])
    arrays, static = place(first_states(plan.setup, (0,)), mesh)
    arrays, _ = compile_chunk(plan.setup, static, mesh, 60, arrays)(arrays)
    return jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, eqx.combine(arrays, static).agent.policy.policy)


def obs(sign: float, time: float = 0.0) -> jax.Array:
    return jnp.array([sign, time])


def test_value_of_a_constant_reward() -> None:
    policy = trained_policy("constant")
    assert policy.values(obs(1.0))[0] == pytest.approx(1.0, abs=0.05)
    assert policy.values(obs(-1.0))[0] == pytest.approx(1.0, abs=0.05)


def test_value_follows_the_observation() -> None:
    policy = trained_policy("sign")
    assert policy.values(obs(1.0))[0] == pytest.approx(1.0, abs=0.1)
    assert policy.values(obs(-1.0))[0] == pytest.approx(-1.0, abs=0.1)


def test_value_is_discounted_back_one_step() -> None:
    policy = trained_policy("delayed")
    assert policy.values(obs(1.0, 1.0))[0] == pytest.approx(1.0, abs=0.06)
    assert policy.values(obs(1.0, 0.0))[0] == pytest.approx(DISCOUNT, abs=0.06)


def test_time_limits_are_not_terminations() -> None:
    """Reward 1 for ever is worth 1/(1 − γ), whatever the clock; counted as an end it is worth much less."""
    endless = trained_policy("endless")
    assert endless.values(obs(1.0, 0.0))[0] == pytest.approx(1 / (1 - DISCOUNT), rel=0.1)
    assert endless.values(obs(1.0, 4.0))[0] == pytest.approx(1 / (1 - DISCOUNT), rel=0.1)
    ended = trained_policy("endless", ends="terminate")
    assert ended.values(obs(1.0, 4.0))[0] == pytest.approx(1.0, abs=0.35)


def test_policy_finds_the_better_action() -> None:
    policy = trained_policy("action")
    assert policy.distribution(obs(1.0)).mean[0] > 0.5
    assert policy.distribution(obs(-1.0)).mean[0] > 0.5


@pytest.mark.parametrize("discrete", [False, True])
def test_policy_depends_on_the_observation(discrete: bool) -> None:
    policy = trained_policy("match", discrete=discrete)
    for sign in (1.0, -1.0):
        distribution = policy.distribution(obs(sign))
        push = distribution.logits[1] - distribution.logits[0] if discrete else distribution.mean[0]
        assert push * sign > 0.5


def share_of_learning(method: str, **settings: Any) -> float:
    """How often the arm that can be learnt is pulled, late in training."""
    base = {"loop.rollout": 256, "ppo.learning_rate": 1e-3, "learner.learning_rate": 1e-3}
    named = {name.replace("__", "."): value for name, value in settings.items()}
    result = curiax.run(curiax.Experiment(NoisyArm, method, seeds=4, steps=256 * 60, settings={**base, **named}))
    late = result.metrics["reward/extrinsic_mean"].to_numpy().reshape(4, 60)[:, 40:]
    return float(np.mean(late))


def test_noisy_arm() -> None:
    """LBS is drawn to the noise exactly when β lies below the noise's variance; ICM always is."""
    assert share_of_learning("lbs", method__beta=0.1) < 0.25
    assert share_of_learning("icm") < 0.25
    assert share_of_learning("lbs", method__beta=2.0) > 0.35
