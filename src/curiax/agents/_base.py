"""What an agent is: it acts, and it learns from a rollout and rewards."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Shaped

from .._types import PRNGKey, Rollout, Scalar, Spec

AgentState = Any


class AbstractAgent(eqx.Module):
    """Settings of an agent; what it learns is in an explicit state."""

    @abc.abstractmethod
    def build(self, spec: Spec, *, key: PRNGKey) -> Any:
        """The networks, drawn on the host."""

    @abc.abstractmethod
    def start(self, networks: Any) -> AgentState:
        """The state before any learning."""

    @abc.abstractmethod
    def noise(self, spec: Spec, shape: tuple[int, ...], *, key: PRNGKey) -> Float[Array, "..."]:
        """The randomness of many actions, drawn in bulk."""

    @abc.abstractmethod
    def act(
        self, spec: Spec, state: AgentState, obs: Float[Array, "..."], noise: Float[Array, " _"]
    ) -> Shaped[Array, "..."]:
        """One action for one observation."""

    @abc.abstractmethod
    def learn(
        self, spec: Spec, state: AgentState, rollout: Rollout, reward: Float[Array, "T N"], *, key: PRNGKey
    ) -> tuple[AgentState, dict[str, Scalar]]:
        """The state after learning from a rollout and the reward of each step, and diagnostics."""
