"""What training carries of the task's reward where it weighs in: its scale, and the returns of episodes."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._metrics import Metric
from .._stats import ReturnScale
from .._types import Transition

#: The metrics of episodes, where the task's reward weighs in.
RETURN, LENGTH = "reward/episode_return", "reward/episode_length"
OF_EPISODES = "Mean over the episodes that ended in a rollout."
NONE_ENDED = "no episode has ended yet"
METRICS = (
    Metric(
        RETURN,
        "return of episodes",
        "",
        f"{OF_EPISODES} Undiscounted, as the task gives its reward.",
        "return",
        better="higher",
        digits=1,
        missing=NONE_ENDED,
        rank=20,
    ),
    Metric(
        LENGTH,
        "length of episodes",
        "steps",
        OF_EPISODES,
        "episode length",
        low=0.0,
        digits=0,
        missing=NONE_ENDED,
        rank=2,
    ),
    Metric(
        "reward/scale",
        "deviation of the task's reward",
        "",
        "Of its discounted sum, by which it is divided.",
        low=0.0,
    ),
)


class Episodes(eqx.Module):
    """Undiscounted returns and lengths of episodes, of the reward as the task gives it: always in this order."""

    #: Of each environment's episode so far.
    running: Float[Array, "N 2"]
    #: Means over the episodes that ended in the newest rollout in which any did.
    recent: Float[Array, "2"]
    #: How many have ended.
    count: Int[Array, ""]

    @staticmethod
    def start(n_envs: int) -> Episodes:
        """Nothing has happened."""
        return Episodes(jnp.zeros((n_envs, 2)), jnp.zeros(2), jnp.zeros((), jnp.int32))

    def add(self, step: Transition) -> Episodes:
        """One more rollout; steps that are not valid count for nothing, except that they may end an episode."""
        each = jnp.stack([step.reward, jnp.ones_like(step.reward)], axis=-1)
        each = jnp.where(step.valid[..., None], each, 0.0)

        def one(running: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            earned, ended = now
            running = running + earned
            return jnp.where(ended[:, None], 0.0, running), running

        running, sums = jax.lax.scan(one, self.running, (each, step.ended), unroll=8)
        new = jnp.sum(step.ended)
        mean = jnp.sum(jnp.where(step.ended[..., None], sums, 0.0), axis=(0, 1)) / jnp.maximum(new, 1)
        return Episodes(running, jnp.where(new > 0, mean, self.recent), self.count + new)

    @property
    def metrics(self) -> dict[str, Array]:
        """Return and length of the episodes that ended last, NaN before the first end."""
        known = jnp.where(self.count > 0, self.recent, jnp.nan)
        return {RETURN: known[0], LENGTH: known[1]}


class TaskReward(eqx.Module):
    """The scale of the task's reward, None where it is paid as it is, and the episodes so far."""

    scale: ReturnScale | None
    episodes: Episodes

    @staticmethod
    def start(n_envs: int, normalise: bool) -> TaskReward:
        """Before the first rollout."""
        return TaskReward(ReturnScale.start(n_envs) if normalise else None, Episodes.start(n_envs))

    def pay(
        self, step: Transition, *, discount: float, clip: float, all_valid: bool
    ) -> tuple[TaskReward, Float[Array, "T N"], dict[str, Array]]:
        """What is carried after a rollout, its reward as it is paid, and metrics."""
        episodes, scale, paid = self.episodes.add(step), self.scale, step.reward
        metrics = episodes.metrics
        if scale is not None:
            where = None if all_valid else step.valid
            scale, paid = scale.scale_steps(paid, step.ended, discount=discount, clip=clip, where=where)
            metrics["reward/scale"] = scale.deviation
        return TaskReward(scale, episodes), paid, metrics
