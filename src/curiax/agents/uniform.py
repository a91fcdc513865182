"""Uniformly random actions: the baseline that every method must beat."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from .._types import Discrete, PRNGKey, Rewards, Rollout, Spec
from ._base import HostActor
from ._policy import AbstractPolicyLearner


class Uniform(AbstractPolicyLearner):
    """Draws every action uniformly and never learns."""

    @property
    def sees_successors(self) -> bool:
        return False

    def build(self, spec: Spec, *, key: PRNGKey) -> None:
        return None

    def start(self, networks: None) -> None:
        return None

    def networks(self, state: None) -> None:
        return None

    def noise(self, spec: Spec, shape: tuple[int, ...], *, key: PRNGKey) -> Float[Array, "*shape _"]:
        size = 1 if isinstance(spec.action, Discrete) else spec.action.size
        return jax.random.uniform(key, (*shape, size))

    def act(
        self, spec: Spec, networks: None, obs: Float[Array, "..."], noise: Float[Array, " _"], *, greedy: bool = False
    ) -> Shaped[Array, "..."]:
        if isinstance(spec.action, Discrete):
            return jnp.minimum((noise[0] * spec.action.n).astype(jnp.int32), spec.action.n - 1)
        low, high = jnp.asarray(spec.action.low), jnp.asarray(spec.action.high)
        return low + noise * (high - low)

    def described(self, networks: None, name: str) -> dict[str, Any]:
        return {"kind": "uniform"}

    def host_actor(self, spec: Spec, networks: None, noise: Float[np.ndarray, "T S N _"]) -> HostActor:
        if isinstance(spec.action, Discrete):
            return Drawn(np.minimum((noise[..., 0] * spec.action.n).astype(np.int32), spec.action.n - 1))
        low, high = np.asarray(spec.action.low, np.float32), np.asarray(spec.action.high, np.float32)
        return Drawn(low + noise * (high - low))

    def learn(
        self, spec: Spec, state: None, rollout: Rollout, rewards: Rewards, *, key: PRNGKey
    ) -> tuple[None, dict[str, Array], None]:
        return None, {}, None


class Drawn(HostActor):
    """Actions that were drawn beforehand."""

    def __init__(self, actions: Shaped[np.ndarray, "T S N ..."]) -> None:
        self._actions = actions

    def __call__(self, t: int, obs: np.ndarray, first: np.ndarray, out: np.ndarray) -> None:
        out[...] = self._actions[t]
