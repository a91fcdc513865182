"""Pseudo-counts within an episode, as Never Give Up defines them.

For the embedding x and its k nearest neighbours x_i among those of this episode:

    d_i² = ‖x − x_i‖²,   d̂_i = max(d_i² / d_m² − ξ, 0),   K_i = ε / (d̂_i + ε),
    s = √(Σ K_i) + c,    1/√N ≈ 1/s, and 0 where s > s_max,

with d_m² the running mean of the neighbours' squared distances.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._types import Scalar, Spec


class EpisodicMemory(eqx.Module):
    """What one environment has embedded in this episode, and the running mean distance."""

    entries: Float[Array, "capacity size"]
    written: Int[Array, ""]
    mean_distance: Scalar
    seen: Scalar


class EpisodicCount(eqx.Module):
    """The settings of the pseudo-count."""

    size: int = eqx.field(static=True)
    capacity: int = eqx.field(static=True)
    neighbours: int = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)
    cluster: float = eqx.field(static=True)
    floor: float = eqx.field(static=True)
    ceiling: float = eqx.field(static=True)

    @staticmethod
    def of(spec: Spec, size: int, *, capacity: int | None, neighbours: int, epsilon: float) -> EpisodicCount:
        """The pseudo-count of Never Give Up; by default the memory holds one full episode."""
        capacity = capacity or spec.horizon or 1000
        # In an episode no longer than k the count would stay 0 for ever: there, all but one are the neighbours.
        longest = min(capacity, max(1, (spec.horizon or capacity) - 1))
        return EpisodicCount(size, capacity, min(neighbours, longest), epsilon, 0.008, 0.001, 8.0)

    def start(self) -> EpisodicMemory:
        """An empty memory."""
        return EpisodicMemory(
            jnp.zeros((self.capacity, self.size)), jnp.zeros((), jnp.int32), jnp.zeros(()), jnp.zeros(())
        )

    def forget(self, memory: EpisodicMemory) -> EpisodicMemory:
        """At an episode's end the entries go and the running mean distance stays."""
        return EpisodicMemory(memory.entries, jnp.zeros((), jnp.int32), memory.mean_distance, memory.seen)

    def visit(self, memory: EpisodicMemory, x: Float[Array, " size"]) -> tuple[EpisodicMemory, Scalar]:
        """The factor 1/s ≈ 1/√N for the embedding x, and the memory with x in it.

        While fewer than k neighbours exist the factor is 0 and the running mean is left alone.
        """
        distances = jnp.sum((memory.entries - x) ** 2, axis=-1)
        distances = jnp.where(jnp.arange(self.capacity) < memory.written, distances, jnp.inf)
        nearest = -jax.lax.top_k(-distances, self.neighbours)[0]
        enough = memory.written >= self.neighbours
        nearest = jnp.where(enough, nearest, 0.0)

        seen = memory.seen + self.neighbours
        mean = memory.mean_distance + (jnp.mean(nearest) - memory.mean_distance) * (self.neighbours / seen)
        mean, seen = jnp.where(enough, mean, memory.mean_distance), jnp.where(enough, seen, memory.seen)

        # An episode that never moves has all distances 0: any positive denominator then gives d̂ = 0.
        relative = jnp.maximum(nearest / jnp.maximum(mean, 1e-12) - self.cluster, 0.0)
        similarity = jnp.sqrt(jnp.sum(self.epsilon / (relative + self.epsilon))) + self.floor
        factor = jnp.where(enough & (similarity <= self.ceiling), 1.0 / similarity, 0.0)

        entries = memory.entries.at[memory.written % self.capacity].set(x)
        return EpisodicMemory(entries, memory.written + 1, mean, seen), factor
