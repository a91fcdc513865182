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


def leaky(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, 0.01 * x)


def seen_by_hand(net: Any, image: np.ndarray) -> np.ndarray:
    """Convolutions of 8 x 8 / 4, 4 x 4 / 2 and 3 x 3 by their definition in float64, then the linear layer."""
    x = image.astype(np.float64)
    for layer, (side, stride) in zip(net.convolutions, ((8, 4), (4, 2), (3, 1)), strict=True):
        weight = np.asarray(layer.weight, np.float64).reshape(side, side, x.shape[-1], -1)
        rows = (x.shape[0] - side) // stride + 1
        patches = [
            [x[i * stride : i * stride + side, j * stride : j * stride + side] for j in range(rows)]
            for i in range(rows)
        ]
        x = leaky(np.einsum("ijabc,baco->ijo", np.array(patches), weight) + np.asarray(layer.bias, np.float64))
    return linear(net.head.layers[0], x.reshape(-1))


def hidden(net: Any, x: np.ndarray) -> np.ndarray:
    for layer in net.layers:
        x = leaky(linear(layer, x))
    return x


def gaussian(head: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, raw = np.split(linear(head.both, x), 2)
    return mean, np.log1p(np.exp(raw)) + 1e-4


def test_the_loss_on_arcade_frames_by_hand_in_float64() -> None:
    """Card 4b: two encoders, 512 latents, standardised random features of s′ as target, β = 0.01; all sums by hand."""
    rng, spec = np.random.default_rng(5), Spec((84, 84, 4), Discrete(6))
    frames = rng.normal(size=(5, 84, 84, 4)).astype(np.float32)
    model = LBS(spec, key=jax.random.key(1), beta=0.01).calibrated(jnp.asarray(frames))
    assert isinstance(model, LBS)
    drawn, no = rng.normal(size=512).astype(np.float32), jnp.zeros((), bool)
    t = Transition(jnp.asarray(frames[0]), jnp.asarray(4), jnp.asarray(frames[1]), jnp.zeros(()), no, no, ~no)
    features = np.array([seen_by_hand(model.target.features.net.net, frame) for frame in frames])  # pyright: ignore
    target = (features[1] - features.mean(0)) / features.std(0)
    h = hidden(model.trunk, np.concatenate([seen_by_hand(model.eye.net, frames[0]), np.eye(6)[4]]))
    g = hidden(model.posterior_trunk, np.concatenate([h, seen_by_hand(model.next_eye.net, frames[1])]))
    (prior, prior_std), (mean, std) = gaussian(model.prior_head, h), gaussian(model.posterior_head, g)
    kl = np.sum(np.log(prior_std / std) + (std**2 + (mean - prior) ** 2) / (2 * prior_std**2) - 0.5)
    error = linear(model.reconstruction, mean + std * drawn) - target
    nll = 0.5 * np.sum(error**2) + 0.5 * 512 * np.log(2 * np.pi)
    loss, _ = model.loss(t, draw=jnp.asarray(drawn))
    assert len(target) == len(mean) == 512
    np.testing.assert_allclose(loss, 0.01 * kl + nll, rtol=1e-4)
    np.testing.assert_allclose(model.reward(None, t, key=jax.random.key(0))[1], kl, rtol=1e-3)
