"""The noisy remote: a one-pixel (or larger) noisy TV that any task can take.

An action more (continuous: one dimension more, pulled when it exceeds 0; discrete: one choice more) draws
fresh noise in observation entries of its own. Mazzaglia et al. 2022, stochastic Mountain Car.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from .._settings import Count, CountOrZero
from .._types import Box, Discrete, Grid, PRNGKey, Scalar, Spec
from ._base import AbstractTask, Probe


@dataclass(frozen=True)
class RemoteSettings:
    """A noisy remote around the task.

    Args:
        mode: `none`; `frozen`: pulling stops the task for a step; `evolving`: pulling steps it with no action.
        noise_dims: number of noisy observation entries.
        between: `hold` keeps the last noise until the next pull (paper); `fresh` draws it anew at every step.
        idle_action: what `evolving` does to a task with discrete actions.
    """

    mode: Literal["none", "frozen", "evolving"] = "none"
    noise_dims: Count = 1
    between: Literal["hold", "fresh"] = "hold"
    idle_action: CountOrZero = 0


class Screen(eqx.Module):
    """The task's state and what the screen shows."""

    inner: Any
    noise: Float[Array, " dims"]


class NoisyRemote(AbstractTask):
    """A task with a remote that shows noise and, pulled, freezes the task or lets it drift."""

    task: AbstractTask
    settings: RemoteSettings = eqx.field(static=True)
    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)
    stochastic: ClassVar[bool] = True

    def __init__(self, task: AbstractTask, settings: RemoteSettings) -> None:
        inner = task.spec
        if len(inner.obs_shape) != 1:
            raise ValueError(f"the remote adds entries to vector observations; this task's are {inner.obs_shape}")
        if isinstance(inner.action, Box):
            action = Box((*inner.action.low, -1.0), (*inner.action.high, 1.0))
        else:
            action = Discrete(inner.action.n + 1)
            if settings.idle_action >= inner.action.n:
                raise ValueError(f"remote.idle_action must be one of the task's {inner.action.n} actions")
        self.task, self.settings, self.grids = task, settings, task.grids
        dims = settings.noise_dims
        self.spec = replace(
            inner,
            obs_shape=(inner.obs_shape[0] + dims,),
            action=action,
            obs_low=None if inner.obs_low is None else (*inner.obs_low, *[-1.0] * dims),
            obs_high=None if inner.obs_high is None else (*inner.obs_high, *[1.0] * dims),
        )

    def reset(self, *, key: PRNGKey) -> Screen:
        return Screen(self.task.reset(key=key), jnp.zeros(self.settings.noise_dims))

    def step(
        self, state: Screen, action: Shaped[Array, "..."], *, key: PRNGKey
    ) -> tuple[Screen, Scalar, Bool[Array, ""]]:
        noise_key, task_key = jax.random.split(key)
        own, idle, pulled = self._part(action)
        if self.settings.mode == "evolving":
            own = jnp.where(pulled, idle, own)
        inner, reward, terminated = self.task.step(state.inner, own, key=task_key)
        if self.settings.mode == "frozen":
            inner = jax.tree.map(lambda old, new: jnp.where(pulled, old, new), state.inner, inner)
            reward, terminated = jnp.where(pulled, 0.0, reward), terminated & ~pulled
        noise = jax.random.uniform(noise_key, state.noise.shape, minval=-1.0, maxval=1.0)
        if self.settings.between == "hold":
            noise = jnp.where(pulled, noise, state.noise)
        return Screen(inner, noise), reward, terminated

    def _part(self, action: Array) -> tuple[Array, Array, Bool[Array, ""]]:
        """The task's own action, its idle one, and whether the remote was pulled."""
        space = self.task.spec.action
        if isinstance(space, Box):
            own = action[:-1]
            return own, space.executed(jnp.zeros_like(own)), action[-1] > 0
        pulled = action == space.n
        return jnp.minimum(action, space.n - 1), jnp.full_like(action, self.settings.idle_action), pulled

    def unlearnable(self, action: Shaped[Array, "..."]) -> Bool[Array, ""]:
        return self._part(action)[2] | (self.settings.between == "fresh")

    def probe(self) -> Probe | None:
        """The task's own probe with the remote untouched, and, as `noise`, the remote pulled eight times."""
        inner = self.task.probe()
        if inner is None:
            return None
        cells = jax.tree.leaves(inner.states)[0].shape[0]
        states = jax.vmap(Screen)(inner.states, jnp.zeros((cells, self.settings.noise_dims)))
        space, pulls = self.task.spec.action, 8
        if isinstance(space, Box):
            untouched = {k: jnp.pad(a, ((0, 0), (0, 1)), constant_values=-1.0) for k, a in inner.actions.items()}
            pulled = jnp.zeros((pulls, space.size + 1)).at[:, -1].set(1.0)
        else:
            untouched, pulled = inner.actions, jnp.full(pulls, space.n)
        return Probe(inner.grid, states, {**untouched, "noise": pulled})

    def observe(self, state: Screen) -> Float[Array, " size"]:
        return jnp.concatenate([self.task.observe(state.inner), state.noise])

    def track(self, state: Screen) -> Float[Array, " axes"]:
        return self.task.track(state.inner)
