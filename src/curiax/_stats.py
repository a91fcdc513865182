"""Running statistics: of observations, and of the discounted bonus that scales the reward."""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._types import Scalar


class Moments(eqx.Module):
    """Mean and population variance of everything merged so far (Welford, batch form).

    Starts at mean 0, variance 1, count 1e-4, as the normalisers of Stable-Baselines do.
    """

    mean: Float[Array, "*shape"]
    var: Float[Array, "*shape"]
    count: Scalar

    @staticmethod
    def start(shape: tuple[int, ...] = ()) -> Moments:
        """Moments that have seen nothing."""
        return Moments(jnp.zeros(shape), jnp.ones(shape), jnp.asarray(1e-4))

    def merge(self, batch: Float[Array, "B *shape"], where: Bool[Array, " B"] | None = None) -> Moments:
        """Moments of the union with a batch, or with those of its entries that `where` names."""
        if where is None:
            size, middle, var = batch.shape[0], jnp.mean(batch, axis=0), jnp.var(batch, axis=0)
        else:
            taken, size = where.reshape((-1,) + (1,) * (batch.ndim - 1)), jnp.sum(where)
            middle = jnp.sum(jnp.where(taken, batch, 0.0), axis=0) / jnp.maximum(size, 1)
            var = jnp.sum(jnp.where(taken, (batch - middle) ** 2, 0.0), axis=0) / jnp.maximum(size, 1)
        total = self.count + size
        delta = middle - self.mean
        mean = self.mean + delta * (size / total)
        spread = self.var * self.count + var * size + delta**2 * (self.count * size / total)
        return Moments(mean, spread / total, total)

    def normalise(self, x: Float[Array, "*lead"], epsilon: float, clip: float) -> Float[Array, "*lead"]:
        """Standardise and clip."""
        return jnp.clip((x - self.mean) / jnp.sqrt(self.var + epsilon), -clip, clip)


class ReturnScale(eqx.Module):
    """Divides the bonus by the running deviation of its discounted sum.

    The sum `R_t = discount R_{t-1} + r_t` runs on per environment across rollouts and episode ends.
    """

    total: Float[Array, " N"]
    moments: Moments

    @staticmethod
    def start(n_envs: int) -> ReturnScale:
        """A scale that has seen nothing: it divides by 1."""
        return ReturnScale(jnp.zeros(n_envs), Moments.start())

    @property
    def deviation(self) -> Scalar:
        """The deviation in force."""
        return jnp.sqrt(self.moments.var)

    def scale(
        self,
        bonus: Float[Array, "T N"],
        *,
        discount: float,
        clip: float,
        order: Literal["before", "after"],
        where: Bool[Array, "T N"] | None = None,
    ) -> tuple[ReturnScale, Float[Array, "T N"]]:
        """Clip, update the statistics, divide; `where` names the steps that are there, None for all.

        `order="before"` clips the raw bonus to `clip` deviations as they were, before both the update and
        the division (the released code); `"after"` clips the scaled bonus (the paper's sentence).
        """
        if order == "before":
            bonus = jnp.clip(bonus, -clip * self.deviation, clip * self.deviation)

        def add(total: Array, now: tuple[Array, Array | None]) -> tuple[Array, Array]:
            r, there = now
            after = discount * total + r
            total = after if there is None else jnp.where(there, after, total)
            return total, total

        total, totals = jax.lax.scan(add, self.total, (bonus, where), unroll=8)
        moments = self.moments.merge(totals.reshape(-1), None if where is None else where.reshape(-1))
        scaled = bonus / jnp.sqrt(moments.var + 1e-8)
        if order == "after":
            scaled = jnp.clip(scaled, -clip, clip)
        return ReturnScale(total, moments), scaled


def valid_mean(values: Float[Array, "*lead"], valid: Bool[Array, "*lead"]) -> Scalar:
    """Mean over the valid entries; 0 if there are none."""
    return jnp.sum(jnp.where(valid, values, 0.0)) / jnp.maximum(jnp.sum(valid), 1)
