"""Running statistics: of observations, and of the discounted sums by which rewards and bonuses are scaled."""

from __future__ import annotations

from typing import Any, Literal

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
        return Moments(jnp.zeros(shape), jnp.ones(shape), jnp.asarray(1e-4, jnp.float32))

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
    """Divides rewards by the running deviation of their discounted sum.

    The sum `R_t = discount R_{t-1} + r_t` runs on per environment across rollouts. That of a bonus runs through
    episode ends as well, and a whole rollout is divided by one deviation (`scale`); that of a task's reward starts
    anew with each episode, and each step is divided by the deviation as it is then (`scale_steps`).
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

    def scale_steps(
        self,
        reward: Float[Array, "T N"],
        ended: Bool[Array, "T N"],
        *,
        discount: float,
        clip: float,
        where: Bool[Array, "T N"] | None = None,
    ) -> tuple[ReturnScale, Float[Array, "T N"]]:
        """Update the statistics and divide, step by step, then clip: the reward of Stable-Baselines' `VecNormalize`.

        The sum is 0 again after a step with which an episode `ended`; `where` names the steps that count, None for all.
        """

        def add(carry: tuple[Array, Moments], now: tuple[Array, Array, Array | None]) -> tuple[Any, Array]:
            (total, moments), (r, ended, counts) = carry, now
            after = discount * total + r
            total = after if counts is None else jnp.where(counts, after, total)
            moments = moments.merge(total, counts)
            return (jnp.where(ended, 0.0, total), moments), r / jnp.sqrt(moments.var + 1e-8)

        (total, moments), scaled = jax.lax.scan(add, (self.total, self.moments), (reward, ended, where), unroll=8)
        return ReturnScale(total, moments), jnp.clip(scaled, -clip, clip)


def valid_mean(values: Float[Array, "*lead"], valid: Bool[Array, "*lead"]) -> Scalar:
    """Mean over the valid entries; 0 if there are none."""
    return jnp.sum(jnp.where(valid, values, 0.0)) / jnp.maximum(jnp.sum(valid), 1)
