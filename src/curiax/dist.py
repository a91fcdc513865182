"""The two families of distributions in use, with closed forms.

Noise is drawn in bulk outside the loops (`noise`) and turned into samples inside them (`sample`).
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ._types import PRNGKey, Scalar

LOG_2PI = math.log(2.0 * math.pi)


class DiagGaussian(eqx.Module):
    """N(mean, diag(std²)) over a vector."""

    mean: Float[Array, " size"]
    std: Float[Array, " size"]

    def sample(self, noise: Float[Array, " size"]) -> Float[Array, " size"]:
        """mean + std · noise, with noise ~ N(0, I)."""
        return self.mean + self.std * noise

    def log_prob(self, x: Float[Array, " size"]) -> Scalar:
        """Log-density, summed over dimensions."""
        return jnp.sum(-0.5 * ((x - self.mean) / self.std) ** 2 - jnp.log(self.std) - 0.5 * LOG_2PI)

    def entropy(self) -> Float[Array, " size"]:
        """Entropy of each dimension; the joint entropy is their sum."""
        return 0.5 + 0.5 * LOG_2PI + jnp.log(self.std)

    def kl(self, other: DiagGaussian) -> Scalar:
        """KL[self ‖ other] = Σ log(σ₂/σ₁) + (σ₁² + (µ₁ − µ₂)²) / 2σ₂² − ½."""
        ratio = (self.std / other.std) ** 2
        shift = ((self.mean - other.mean) / other.std) ** 2
        return 0.5 * jnp.sum(ratio + shift - 1.0 - jnp.log(ratio))

    def cross_entropy(self, other: DiagGaussian) -> Scalar:
        """H[self, other] = −E_self[log other]."""
        ratio = (self.std / other.std) ** 2
        shift = ((self.mean - other.mean) / other.std) ** 2
        return jnp.sum(0.5 * LOG_2PI + jnp.log(other.std) + 0.5 * (ratio + shift))

    @staticmethod
    def noise(key: PRNGKey, shape: tuple[int, ...], size: int) -> Float[Array, "*shape size"]:
        """Standard normal numbers."""
        return jax.random.normal(key, (*shape, size))


class Categorical(eqx.Module):
    """One of n outcomes, by logits."""

    logits: Float[Array, " n"]

    def sample(self, noise: Float[Array, " n"]) -> Int[Array, ""]:
        """Gumbel-max: argmax of logits + noise, with noise ~ Gumbel."""
        return jnp.argmax(self.logits + noise, axis=-1).astype(jnp.int32)

    def log_prob(self, x: Int[Array, ""]) -> Scalar:
        """Log-probability of the outcome x."""
        chosen = jax.nn.one_hot(x, self.logits.shape[-1])
        return jnp.sum(jax.nn.log_softmax(self.logits) * chosen)

    def entropy(self) -> Scalar:
        """Entropy."""
        log_p = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_p) * log_p)

    @staticmethod
    def noise(key: PRNGKey, shape: tuple[int, ...], size: int) -> Float[Array, "*shape n"]:
        """Standard Gumbel numbers."""
        return jax.random.gumbel(key, (*shape, size))
