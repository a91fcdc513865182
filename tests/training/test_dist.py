"""Distributions against SciPy, quadrature and Monte Carlo."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, special, stats

from curiax.dist import Categorical, DiagGaussian

MEAN, STD = np.array([0.3, -1.2, 4.0]), np.array([0.2, 1.5, 3.0])
OTHER_MEAN, OTHER_STD = np.array([0.0, 0.5, 2.5]), np.array([0.9, 0.4, 3.0])
LOGITS = np.array([0.0, 1.5, -2.0, 0.7])


def gaussian(mean: NDArray[np.float64], std: NDArray[np.float64]) -> DiagGaussian:
    return DiagGaussian(jnp.asarray(mean, jnp.float32), jnp.asarray(std, jnp.float32))


@pytest.fixture(scope="module")
def q() -> DiagGaussian:
    return gaussian(MEAN, STD)


@pytest.fixture(scope="module")
def p() -> DiagGaussian:
    return gaussian(OTHER_MEAN, OTHER_STD)


def expectation(mean: float, std: float, of: Callable[[float], float]) -> float:
    """Quadrature of E[of(x)] under N(mean, std²)."""
    low, high = mean - 12 * std, mean + 12 * std
    return integrate.quad(lambda x: stats.norm.pdf(x, mean, std) * of(x), low, high, limit=400)[0]


def test_gaussian_log_prob_agrees_with_scipy(q: DiagGaussian) -> None:
    x = np.random.default_rng(0).normal(0, 4, (64, 3)).astype(np.float32)
    ours = jax.vmap(q.log_prob)(jnp.asarray(x))
    np.testing.assert_allclose(ours, stats.norm.logpdf(x, MEAN, STD).sum(-1), rtol=1e-5)


def test_gaussian_entropy_is_given_for_each_dimension(q: DiagGaussian) -> None:
    np.testing.assert_allclose(q.entropy(), stats.norm.entropy(MEAN, STD), rtol=1e-6)


def test_gaussian_kl_agrees_with_quadrature(q: DiagGaussian, p: DiagGaussian) -> None:
    def gap(k: int) -> Callable[[float], float]:
        return lambda x: stats.norm.logpdf(x, MEAN[k], STD[k]) - stats.norm.logpdf(x, OTHER_MEAN[k], OTHER_STD[k])

    expected = sum(expectation(MEAN[k], STD[k], gap(k)) for k in range(3))
    np.testing.assert_allclose(q.kl(p), expected, rtol=1e-5)
    assert float(p.kl(q)) != pytest.approx(expected, rel=0.1)  # the direction matters


def test_gaussian_kl_agrees_with_monte_carlo(q: DiagGaussian, p: DiagGaussian) -> None:
    x = np.random.default_rng(1).normal(MEAN, STD, (200_000, 3))
    gap = (stats.norm.logpdf(x, MEAN, STD) - stats.norm.logpdf(x, OTHER_MEAN, OTHER_STD)).sum(-1)
    assert abs(float(q.kl(p)) - gap.mean()) < 4 * gap.std() / np.sqrt(len(gap))


def test_gaussian_cross_entropy_agrees_with_quadrature(q: DiagGaussian, p: DiagGaussian) -> None:
    expected = -sum(
        expectation(MEAN[k], STD[k], lambda x, k=k: stats.norm.logpdf(x, OTHER_MEAN[k], OTHER_STD[k])) for k in range(3)
    )
    np.testing.assert_allclose(q.cross_entropy(p), expected, rtol=1e-5)


def test_gaussian_identities(q: DiagGaussian, p: DiagGaussian) -> None:
    assert float(q.kl(q)) == 0.0
    np.testing.assert_allclose(q.cross_entropy(q), q.entropy().sum(), rtol=1e-6)
    np.testing.assert_allclose(q.kl(p), q.cross_entropy(p) - q.entropy().sum(), rtol=1e-5)


def test_gaussian_kl_is_never_negative() -> None:
    rng = np.random.default_rng(2)
    means, stds = jnp.asarray(rng.normal(size=(2, 500, 3))), jnp.asarray(np.exp(rng.normal(size=(2, 500, 3))))
    kl = jax.vmap(lambda m, s, n, t: DiagGaussian(m, s).kl(DiagGaussian(n, t)))(means[0], stds[0], means[1], stds[1])
    assert float(kl.min()) > 0.0


def test_gaussian_samples_have_the_stated_distribution(q: DiagGaussian, getkey: Callable[[], jax.Array]) -> None:
    noise = DiagGaussian.noise(getkey(), (50, 100), 3)
    assert noise.shape == (50, 100, 3)
    samples = np.asarray(jax.vmap(q.sample)(noise.reshape(-1, 3)), np.float64)
    for k in range(3):
        assert stats.kstest(samples[:, k], stats.norm(MEAN[k], STD[k]).cdf).pvalue > 1e-4
    assert abs(np.corrcoef(samples.T) - np.eye(3)).max() < 0.06


def test_categorical_agrees_with_scipy() -> None:
    ours = Categorical(jnp.asarray(LOGITS, jnp.float32))
    log_p = special.log_softmax(LOGITS)
    np.testing.assert_allclose([ours.log_prob(jnp.asarray(k)) for k in range(4)], log_p, rtol=1e-5)
    np.testing.assert_allclose(ours.entropy(), stats.entropy(np.exp(log_p)), rtol=1e-5)


def test_categorical_survives_extreme_logits() -> None:
    ours = Categorical(jnp.asarray([300.0, -300.0, 0.0]))
    np.testing.assert_allclose(ours.log_prob(jnp.asarray(1)), -600.0)
    assert float(ours.entropy()) == 0.0
    gradient = jax.grad(lambda x: Categorical(x).entropy())(ours.logits)
    assert bool(jnp.all(jnp.isfinite(gradient)))


def test_gumbel_sampling_has_softmax_frequencies(getkey: Callable[[], jax.Array]) -> None:
    noise = Categorical.noise(getkey(), (40, 500), 4)
    assert noise.shape == (40, 500, 4)
    assert stats.kstest(np.asarray(noise[:, ::5]).ravel(), stats.gumbel_r.cdf).pvalue > 1e-4
    drawn = jax.vmap(Categorical(jnp.asarray(LOGITS, jnp.float32)).sample)(noise.reshape(-1, 4))
    counts = np.bincount(np.asarray(drawn), minlength=4)
    assert stats.chisquare(counts, special.softmax(LOGITS) * counts.sum()).pvalue > 1e-4
