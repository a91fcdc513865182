"""Latent Bayesian Surprise: its equations in float64, and the noise it pays for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import Doubles, action_vector, double, kl_terms, linear, random_steps, relu_mlp, softplus
from scipy import stats

from curiax import Box, Discrete, Learner, LearnerSettings, Spec, Transition
from curiax.curiosity import LBS

SPEC = Spec((3,), Box((-1.0, -1.0), (1.0, 1.0)))
CHOICES = Spec((3,), Discrete(4))
BATCH = 32


def beliefs(model: LBS, spec: Spec, t: Transition) -> tuple[Doubles, Doubles, Doubles, Doubles]:
    """µ_q, σ_q, µ_p, σ_p of a batch in float64, layer by layer as section 4a of the cards reads."""
    seen = np.concatenate([double(t.obs), action_vector(spec, t.action)], axis=-1)
    h = relu_mlp(model.trunk, seen, activate_last=True)
    first = h if model.posterior == "trunk" else seen
    g = relu_mlp(model.posterior_trunk, np.concatenate([first, double(t.next_obs)], axis=-1), activate_last=True)
    q, p = linear(model.posterior_head.both, g), linear(model.prior_head.both, h)
    size = q.shape[-1] // 2
    return q[:, :size], softplus(q[:, size:]) + 1e-4, p[:, :size], softplus(p[:, size:]) + 1e-4


def negative_log_likelihood(model: LBS, z: Doubles, t: Transition) -> Doubles:
    return -stats.norm.logpdf(double(t.next_obs), linear(model.reconstruction, z), 1.0).sum(-1)


def build(spec: Spec = SPEC, **settings: Any) -> LBS:
    return LBS(spec, key=jax.random.key(3), width=16, **settings)


@cache
def batch(spec: Spec) -> Transition:
    return random_steps(spec, np.random.default_rng(0), BATCH)


def rewards(model: LBS, t: Transition) -> jax.Array:
    return jax.jit(jax.vmap(lambda t: model.reward(None, t, key=jax.random.key(0))[1]))(t)


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        (SPEC, {"posterior": "trunk", "beta": 0.1}),
        (SPEC, {"posterior": "full", "beta": 2.0}),
        (CHOICES, {"posterior": "trunk", "beta": 1.0, "latent_size": 5}),
    ],
)
def test_loss_is_the_negative_beta_elbo(spec: Spec, settings: dict[str, Any]) -> None:
    model, t = build(spec, **settings), batch(spec)
    mean, std, prior_mean, prior_std = beliefs(model, spec, t)
    assert mean.shape == (BATCH, settings.get("latent_size", 3))
    noise = np.random.default_rng(1).normal(size=mean.shape).astype(np.float32)
    kl = kl_terms(mean, std, prior_mean, prior_std).sum(-1)
    expected = settings["beta"] * kl + negative_log_likelihood(model, mean + std * noise, t)
    loss, _ = jax.jit(jax.vmap(lambda t, d: model.loss(t, draw=d)))(t, jnp.asarray(noise))
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    np.testing.assert_allclose(rewards(model, t), kl, rtol=1e-3, atol=1e-5)


def test_posterior_modes_differ_in_their_inputs() -> None:
    """The trunk's hidden vector beside s′, or s, a and s′."""
    assert build(posterior="trunk").posterior_trunk.layers[0].weight.shape == (16 + 3, 16)
    assert build(posterior="full").posterior_trunk.layers[0].weight.shape == (3 + 2 + 3, 16)


def test_bonus_variants() -> None:
    t = batch(SPEC)
    model = build()
    mean, std, prior_mean, prior_std = beliefs(model, SPEC, t)
    kl = kl_terms(mean, std, prior_mean, prior_std).sum(-1)
    np.testing.assert_allclose(rewards(build(bonus="mean"), t), ((mean - prior_mean) ** 2).mean(-1), rtol=1e-3)
    with_nll = kl + negative_log_likelihood(model, mean, t)
    np.testing.assert_allclose(rewards(build(bonus="kl+nll"), t), with_nll, rtol=1e-4)


def test_explanation_splits_the_bonus() -> None:
    model, t = build(), batch(SPEC)
    mean, std, prior_mean, prior_std = beliefs(model, SPEC, t)
    terms = jax.jit(jax.vmap(lambda t: model.explain(t, key=jax.random.key(0))))(t)
    np.testing.assert_allclose(terms["kl"], terms["cross_entropy"] - terms["posterior_entropy"], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(terms["kl"], rewards(model, t), rtol=1e-5)
    np.testing.assert_allclose(terms["posterior_entropy"], stats.norm.entropy(mean, std).sum(-1), rtol=1e-4)
    cross = kl_terms(mean, std, prior_mean, prior_std).sum(-1) + stats.norm.entropy(mean, std).sum(-1)
    np.testing.assert_allclose(terms["cross_entropy"], cross, rtol=1e-4)
    np.testing.assert_allclose(terms["reconstruction"], negative_log_likelihood(model, mean, t), rtol=1e-4)


def test_draw_is_standard_normal_for_each_latent() -> None:
    model = build(latent_size=2)
    draws = np.asarray(jax.jit(jax.vmap(model.draw))(jax.random.split(jax.random.key(0), 4000)), np.float64)
    assert draws.shape == (4000, 2)
    assert stats.kstest(draws.ravel(), stats.norm.cdf).pvalue > 1e-4


def test_gradient_agrees_with_finite_differences() -> None:
    """Both beliefs and the reconstruction train: no gradient is stopped, so none may be missing."""
    model, t = build(), batch(SPEC)
    noise = jnp.asarray(np.random.default_rng(2).normal(size=(BATCH, 3)), jnp.float32)
    gradient = jax.jit(jax.grad(lambda m: jnp.mean(jax.vmap(lambda t, d: m.loss(t, draw=d)[0])(t, noise))))(model)

    def loss(changed: LBS) -> float:
        mean, std, prior_mean, prior_std = beliefs(changed, SPEC, t)
        kl = kl_terms(mean, std, prior_mean, prior_std).sum(-1)
        return float((changed.beta * kl + negative_log_likelihood(changed, mean + std * double(noise), t)).mean())

    for where in (
        lambda m: m.trunk.layers[0],
        lambda m: m.prior_head.both,
        lambda m: m.posterior_trunk.layers[1],
        lambda m: m.posterior_head.both,
        lambda m: m.reconstruction,
    ):
        layer, slope = where(model), where(gradient)
        k = int(np.argmax(np.abs(slope.bias)))
        step, sides = 1e-3, []
        for sign in (1, -1):
            moved = double(layer.bias)
            moved[k] += sign * step
            sides.append(loss(eqx.tree_at(lambda m, where=where: where(m).bias, model, moved)))
        np.testing.assert_allclose(slope.bias[k], (sides[0] - sides[1]) / (2 * step), rtol=1e-3)


LENGTH, ITERATIONS = 4096, 24
NOISE = Spec((1,), Box((-1.0,), (1.0,)))


def trainer(beta: float) -> Callable[[jax.Array], jax.Array]:
    """Train on pure noise of a given variance; the mean bonus on fresh noise over the second half of training."""
    learner = Learner(LearnerSettings(learning_rate=2e-3, minibatch_size=256, epochs=4))
    model = LBS(NOISE, key=jax.random.key(0), beta=beta)

    def rollout(key: jax.Array, variance: jax.Array) -> Transition:
        obs, action, noise = jax.random.normal(key, (3, LENGTH, 1, 1))
        flag = jnp.zeros((LENGTH, 1), bool)
        return Transition(obs, action, jnp.sqrt(variance) * noise, jnp.zeros((LENGTH, 1)), flag, flag, ~flag)

    @jax.jit
    def train(variance: jax.Array) -> jax.Array:
        def iteration(carry: Any, key: jax.Array) -> Any:
            model, state = carry
            learn_key, data_key, test_key = jax.random.split(key, 3)
            model, state, _ = learner.update(model, state, rollout(data_key, variance), key=learn_key)
            _, raw, _ = learner.reward(model, state, rollout(test_key, variance), key=key)
            return (model, state), jnp.mean(raw)

        start = (model, learner.start(model, rollout(jax.random.key(1), variance)))
        bonus = jax.lax.scan(iteration, start, jax.random.split(jax.random.key(2), ITERATIONS))[1]
        return jnp.mean(bonus[ITERATIONS // 2 :])

    return train


@pytest.mark.slow
@pytest.mark.parametrize(("beta", "variances"), [(0.1, (1.0,)), (0.5, (1.0,)), (2.0, (1.0, 6.0))])
def test_noise_is_paid_for_exactly_above_the_threshold(beta: float, variances: tuple[float, ...]) -> None:
    """Rate-distortion theory: a noise dimension costs β per nat and saves v, so it is encoded iff v > β."""
    train = trainer(beta)
    for variance in variances:
        paid = float(train(jnp.asarray(variance)))
        assert paid == pytest.approx(max(0.0, 0.5 * np.log(variance / beta)), abs=0.03)
