"""Variational Information Maximizing Exploration: its closed-form gain against gradients of every example."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import Doubles, action_vector, double, kl_terms, random_steps, softplus
from scipy import stats

from curiax import Box, Discrete, Spec, Transition
from curiax.curiosity import VIME, score

SPEC = Spec((3,), Box((-1.0, -1.0), (1.0, 1.0)))
CHOICES = Spec((3,), Discrete(4))
LENGTH, ENVS = 6, 2
Parameters = list[tuple[jax.Array, jax.Array]]


def build(spec: Spec = SPEC, **settings: Any) -> VIME:
    """Deviations differ from weight to weight, as they do after training."""
    model = VIME(spec, key=jax.random.key(1), **{"width": 8, **settings})
    rng = np.random.default_rng(7)
    rhos = [jnp.asarray(rng.uniform(-4, -0.5, layer.rho.shape), jnp.float32) for layer in model.layers]
    return eqx.tree_at(lambda m: [layer.rho for layer in m.layers], model, rhos)


def parameters(model: VIME) -> Parameters:
    return [(layer.mean, layer.rho) for layer in model.layers]


def nll(model: VIME, where: Parameters, noise: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    """−log p(s′|s,a,θ) as a function of (µ, ρ), written again and differentiated by JAX as it stands."""
    for k, ((mean, rho), epsilon) in enumerate(zip(where, noise, strict=True)):
        weight = mean + jnp.log1p(jnp.exp(rho)) * epsilon
        x = (jnp.maximum(x, 0.0) if k else x) @ weight[:-1] + weight[-1]
    return -jnp.sum(jax.scipy.stats.norm.logpdf(y, x, model.likelihood_std))


def flat_inputs(spec: Spec, t: Transition) -> tuple[jax.Array, jax.Array]:
    x = np.concatenate([double(t.obs), action_vector(spec, t.action)], axis=-1).reshape(LENGTH * ENVS, -1)
    return jnp.asarray(x, jnp.float32), t.next_obs.reshape(LENGTH * ENVS, -1)


def example_gradients(model: VIME, spec: Spec, t: Transition, noise: list[jax.Array]) -> list[tuple[Doubles, Doubles]]:
    """∇_µ and ∇_ρ of every layer for every example."""
    one = jax.grad(lambda where, x, y: nll(model, where, noise, x, y))
    found = jax.jit(jax.vmap(one, in_axes=(None, 0, 0)))(parameters(model), *flat_inputs(spec, t))
    return [(double(mean), double(rho)) for mean, rho in found]


def curvature(rho: Doubles) -> tuple[Doubles, Doubles]:
    """H_µ and H_ρ: the Hessian of KL[q_φ′ ‖ q_φ] at φ′ = φ."""
    std, slope = softplus(rho), 1.0 / (1.0 + np.exp(-rho))
    return 1.0 / std**2, 2.0 * slope**2 / std**2


@pytest.fixture(scope="module", params=[SPEC, CHOICES], ids=["box", "discrete"])
def case(request: pytest.FixtureRequest) -> tuple[Spec, Transition]:
    return request.param, random_steps(request.param, np.random.default_rng(0), LENGTH, ENVS)


def gains(t: Transition, key: jax.Array, *models: VIME) -> list[Doubles]:
    """The gain of every transition under each model; compiled together, which shares most of the work."""
    found = jax.jit(lambda models, t: [score(model, None, t, key=key)[1] for model in models])(models, t)
    return [double(gain).reshape(-1) for gain in found]


def test_closed_form_equals_gradients_of_every_example(case: tuple[Spec, Transition]) -> None:
    spec, t = case
    model, key = build(spec), jax.random.key(5)
    expected = np.zeros(LENGTH * ENVS)
    for (mean, rho), layer in zip(example_gradients(model, spec, t, model.draw(key)), model.layers, strict=True):
        h_mean, h_rho = curvature(double(layer.rho))
        expected += 0.5 * model.step_size**2 * ((mean**2 / h_mean) + (rho**2 / h_rho)).sum((1, 2))
    assert expected.max() < 1000
    np.testing.assert_allclose(gains(t, key, model)[0], expected, rtol=1e-4)


def test_curvature_is_the_hessian_of_the_divergence() -> None:
    """Guards the oracle: finite differences of KL[N(µ′, σ(ρ′)²) ‖ N(µ, σ(ρ)²)]."""
    step = 1e-4
    for rho in (-4.0, -1.0, 0.5):
        std = softplus(double(rho))
        h_mean, h_rho = curvature(double(rho))
        around = sum(kl_terms(double(s * step), std, double(0.0), std) for s in (1, -1)) / step**2
        np.testing.assert_allclose(around, h_mean, rtol=1e-4)
        around = sum(kl_terms(double(0.0), softplus(double(rho + s * step)), double(0.0), std) for s in (1, -1))
        np.testing.assert_allclose(around / step**2, h_rho, rtol=1e-3)


def test_gain_is_the_divergence_of_a_small_step() -> None:
    """KL between the posteriors after and before the step λ H⁻¹ g, exactly; the gain is its leading term."""
    t = random_steps(SPEC, np.random.default_rng(0), LENGTH, ENVS)
    key = jax.random.key(5)
    model = build()
    found = example_gradients(model, SPEC, t, model.draw(key))
    step_sizes, gaps = (1e-3, 1e-4, 1e-5), []
    for step, gain in zip(step_sizes, gains(t, key, *(build(step_size=s) for s in step_sizes)), strict=True):
        exact = np.zeros(LENGTH * ENVS)
        for (mean, rho), layer in zip(found, model.layers, strict=True):
            old_mean, old_rho = double(layer.mean), double(layer.rho)
            h_mean, h_rho = curvature(old_rho)
            after = softplus(old_rho - step * rho / h_rho)
            exact += kl_terms(old_mean - step * mean / h_mean, after, old_mean, softplus(old_rho)).sum((1, 2))
        gaps.append(np.abs(gain / exact - 1).max())
    assert gaps[2] < 2e-3
    assert gaps[2] < gaps[1] < gaps[0]


def test_gain_is_positive_quadratic_in_the_step_and_bounded() -> None:
    t = random_steps(SPEC, np.random.default_rng(3), LENGTH, ENVS)
    key = jax.random.key(2)
    tiny, half, full, huge = gains(t, key, *(build(step_size=s) for s in (1e-9, 0.005, 0.01, 1e4)))
    assert (full > 0).all()
    np.testing.assert_allclose(full, 4 * half, rtol=1e-5)
    assert tiny.max() < 1e-9
    assert (huge == 1000.0).all()


def test_perfect_prediction_brings_no_information() -> None:
    model, key = build(likelihood_std=1.0), jax.random.key(0)
    t = random_steps(SPEC, np.random.default_rng(4), LENGTH, ENVS)
    x, _ = flat_inputs(SPEC, t)
    # The mean that the drawn weights predict is where −log p has no gradient.
    for k, (layer, epsilon) in enumerate(zip(model.layers, model.draw(key), strict=True)):
        weight = double(layer.mean) + softplus(double(layer.rho)) * double(epsilon)
        x = (np.maximum(double(x), 0.0) if k else double(x)) @ weight[:-1] + weight[-1]
    t = eqx.tree_at(lambda t: t.next_obs, t, jnp.asarray(x, jnp.float32).reshape(LENGTH, ENVS, 3))
    assert gains(t, key, model)[0].max() < 1e-12


def test_prior_divergence_in_float64() -> None:
    model = build(prior_std=0.3)
    expected = sum(
        kl_terms(double(x.mean), softplus(double(x.rho)), double(0.0), double(0.3)).sum() for x in model.layers
    )
    np.testing.assert_allclose(model.prior_divergence(), expected, rtol=1e-5)


def test_initial_deviation_is_the_setting() -> None:
    model = VIME(SPEC, key=jax.random.key(1), width=8, initial_std=0.25)
    for layer in model.layers:
        np.testing.assert_allclose(layer.std, 0.25, rtol=1e-5)
    assert [layer.mean.shape for layer in model.layers] == [(6, 8), (9, 8), (9, 3)]


def test_loss_estimates_the_negative_evidence_bound() -> None:
    """The mean over draws is w KL[q ‖ prior] + E_q[−log p], the expectation by NumPy's own draws."""
    model = build(width=4, likelihood_std=0.8, prior_weight=0.05)
    t = jax.tree.map(lambda x: x[0, 0], random_steps(SPEC, np.random.default_rng(0), LENGTH, ENVS))
    count = 20_000

    @jax.jit
    @jax.vmap
    def losses(key: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        return model.loss(t, draw=model.draw(key))

    ours, terms = losses(jax.random.split(jax.random.key(0), count))
    rng = np.random.default_rng(1)
    x = np.broadcast_to(np.concatenate([double(t.obs), double(t.action)]), (count, 1, 5))
    for k, layer in enumerate(model.layers):
        weight = rng.normal(double(layer.mean), softplus(double(layer.rho)), (count, *layer.mean.shape))
        x = (np.maximum(x, 0) if k else x) @ weight[:, :-1] + weight[:, -1:]
    expected = -stats.norm.logpdf(double(t.next_obs), x[:, 0], 0.8).sum(-1)
    error = np.sqrt((expected.var() + double(terms["nll"]).var()) / count)
    assert abs(double(terms["nll"]).mean() - expected.mean()) < 4 * error
    divergence = float(model.prior_divergence())
    np.testing.assert_allclose(ours, terms["nll"] + 0.05 * divergence, rtol=1e-5)
