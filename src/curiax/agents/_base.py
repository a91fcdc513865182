"""What an agent is: it acts, and it learns from a rollout and rewards."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from .._types import PRNGKey, Rewards, Rollout, Spec

AgentState = Any
#: Writes the actions of step `t` for the observations `[S, N, ...]` into its last argument.
HostActor = Callable[[int, np.ndarray, np.ndarray], None]


class AbstractAgent(eqx.Module):
    """Settings of an agent; what it learns is in an explicit state."""

    @property
    def sees_successors(self) -> bool:
        """Whether `learn` looks at the true last observations of episodes."""
        return True

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

    def host_actor(self, spec: Spec, states: AgentState, noise: Shaped[np.ndarray, "T S N _"]) -> HostActor:
        """`act` for one rollout on the host, for all seeds' states `[S, ...]` and environments at once.

        This default calls the compiled `act` at every step; an agent with a small network overrides it in
        NumPy, because one such call costs more than the network.
        """

        def act(t: int, obs: np.ndarray, out: np.ndarray) -> None:
            out[...] = act_all(self, spec, states, jnp.asarray(obs), jnp.asarray(noise[t]))

        return act

    @abc.abstractmethod
    def learn(
        self,
        spec: Spec,
        state: AgentState,
        rollout: Rollout,
        rewards: Rewards,
        *,
        key: PRNGKey,
    ) -> tuple[AgentState, dict[str, Array]]:
        """The state after learning from a rollout and what its steps earned, and diagnostics.

        Where there are gradient steps the diagnostics hold what `descend` says of them.
        """


# Of the module, not of each rollout's actor: a program is compiled once for each agent and shape.
@eqx.filter_jit
def act_all(
    agent: AbstractAgent, spec: Spec, states: AgentState, obs: Shaped[Array, "S N ..."], noise: Float[Array, "S N _"]
) -> Shaped[Array, "S N ..."]:
    """The actions of all seeds and environments."""

    def one_seed(state: AgentState, obs: Array, noise: Array) -> Array:
        return jax.vmap(lambda o, n: agent.act(spec, state, o, n))(obs, noise)

    return eqx.filter_vmap(one_seed)(states, obs, noise)
