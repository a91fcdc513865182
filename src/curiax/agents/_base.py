"""What an agent is: it acts, and everything that learns is its own.

A loop collects a rollout with `act`, hands it to `learn`, has the gradient steps that `learn` leaves to do done by
`work`, and counts. It knows nothing else of an agent.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree, Shaped

from .._metrics import Metric
from .._sound import Check, Checks, all_within, first
from .._types import PRNGKey, Rollout, Spec, Transition

#: What `build` draws, what training carries, what acting needs of it, and one environment's memory while acting.
Networks = Any
State = Any
Actor = Any
Carry = Any
Metrics = dict[str, Array]


class Learnt(eqx.Module):
    """What an agent says of a rollout it has learnt from."""

    metrics: Metrics
    checks: Checks
    #: What each step earned as a bonus, unscaled; None for an agent that pays none.
    bonus: Float[Array, "T N"] | None = None
    #: Of which steps the agent's model is asked what they earn; None for all that are valid.
    asked: Bool[Array, "T N"] | None = None


class Work(eqx.Module):
    """Gradient steps that are left to do, and that nobody needs to wait for before acting goes on."""

    #: What each of them takes, along a leading axis in the order in which they are done.
    steps: PyTree
    #: What all of them take.
    common: PyTree = None

    @property
    def count(self) -> int:
        """How many there are."""
        return jax.tree.leaves(self.steps)[0].shape[0]

    def at(self, k: Array) -> Work:
        """One of them."""
        return Work(jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, k, 1), self.steps), self.common)


class HostActor(abc.ABC):
    """An agent that acts on the host, for one rollout of many seeds `S` and environments `N`."""

    #: The memories `[S, N, ...]` as they are now; () for an agent without any.
    carry: Carry = ()

    @abc.abstractmethod
    def __call__(self, t: int, obs: np.ndarray, first: np.ndarray, out: np.ndarray) -> None:
        """Write into `out` the actions of step `t` for observations `[S, N, ...]`; `first` of an episode or not."""


class AbstractAgent(eqx.Module):
    """Settings and spaces of an agent; what it learns is in an explicit state."""

    spec: eqx.AbstractVar[Spec]

    #: The ways in which it can act: the first is the one that it is trained with.
    behaviours: ClassVar[tuple[str, ...]] = ("explore",)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What it reports of its learning; what is not declared here is shown under its bare name."""
        return ()

    @property
    def sees_successors(self) -> bool:
        """Whether `learn` looks at the true last observations of episodes."""
        return True

    @property
    def keeps_observations(self) -> bool:
        """Whether it keeps observations beyond the rollout that they came in."""
        return False

    @abc.abstractmethod
    def build(self, *, key: PRNGKey) -> Networks:
        """The networks of a seed with this key, drawn on the host: an `equinox.Module`, whose arrays are kept."""

    @abc.abstractmethod
    def start(self, networks: Networks, lead: tuple[int, int]) -> State:
        """The state before any learning, for rollouts `[T, N]`."""

    @abc.abstractmethod
    def networks(self, state: State) -> Networks:
        """The networks as they are now."""

    def described(self, networks: Networks) -> dict[str, Any]:
        """What an export says of the networks, in the words of `experiments/exports.py`: enough to act by in NumPy.

        By default that only this class can do so, in JAX; films and `saved.read` then import it, if they are trusted.
        """
        return {"kind": "agent"}

    def actor(self, networks: Networks) -> Actor:
        """What acting needs of the networks."""
        return networks

    def carry(self) -> Carry:
        """One environment's memory before its first step; () for an agent without any."""
        return ()

    @abc.abstractmethod
    def noise(self, shape: tuple[int, ...], *, key: PRNGKey) -> Shaped[Array, "..."]:
        """The randomness of many actions, drawn in bulk."""

    @abc.abstractmethod
    def act(
        self,
        actor: Actor,
        carry: Carry,
        obs: Float[Array, "..."],
        first: Bool[Array, ""],
        noise: Shaped[Array, " _"],
        *,
        behaviour: str = "explore",
    ) -> tuple[Carry, Shaped[Array, "..."]]:
        """One environment's memory and action; with the `first` observation of an episode a memory begins anew."""

    def host_actor(self, actors: Actor, carry: Carry, noise: Shaped[np.ndarray, "T S N _"]) -> HostActor:
        """`act` for one rollout on the host, for all seeds' actors `[S, ...]` and environments at once.

        This default calls the compiled `act` at every step; an agent with a small network overrides it in
        NumPy, because one such call costs more than the network.
        """
        return CompiledActor(self, actors, carry, noise)

    @abc.abstractmethod
    def learn(self, state: State, rollout: Rollout, *, key: PRNGKey) -> tuple[State, Learnt, Work | None]:
        """The state after learning from a rollout, what there is to say of it, and the gradient steps left to do.

        `key` is this iteration's; `jax.random.fold_in` of 2 to 5, 10 and 11 with it is the loop's.
        """

    def work(self, state: State, work: Work) -> tuple[State, Metrics, Checks]:
        """The state after gradient steps that were left to do, their means of metrics, and their checks."""
        raise NotImplementedError("an agent whose `learn` leaves work to do needs `work`")

    def check(self, state: State) -> Checks:
        """What must be sound at the end of each iteration, for whatever came from elsewhere."""
        arrays = eqx.filter(state, eqx.is_inexact_array)
        kept = Check("agent", "what the agent, trained on {method!r}, keeps", "nothing")
        return Checks.of((kept, first(~all_within(arrays, jnp.inf))))

    def pays(self, state: State, steps: Transition, *, key: PRNGKey) -> Float[Array, "T N"] | None:
        """What transitions out of any context would earn as a bonus; None where there is no such thing."""
        return None

    def calibrates(self, state: State) -> bool:
        """Whether `calibrated` changes anything."""
        return False

    def calibrated(self, state: State, obs: Float[Array, "B ..."]) -> State:
        """The state before training, with what is measured once on the first observations it meets."""
        return state


class CompiledActor(HostActor):
    """Any agent's `act`, compiled, one call for each step."""

    def __init__(self, agent: AbstractAgent, actors: Actor, carry: Carry, noise: Shaped[np.ndarray, "T S N _"]) -> None:
        self._agent, self._actors, self._noise, self.carry = agent, actors, noise, carry

    def __call__(self, t: int, obs: np.ndarray, first: np.ndarray, out: np.ndarray) -> None:
        given = jnp.asarray(obs), jnp.asarray(first), jnp.asarray(self._noise[t])
        self.carry, out[...] = act_all(self._agent, self._actors, self.carry, *given)


# Of the module, not of each rollout's actor: a program is compiled once for each agent and shape.
@eqx.filter_jit
def act_all(
    agent: AbstractAgent,
    actors: Actor,
    carry: Carry,
    obs: Shaped[Array, "S N ..."],
    first: Bool[Array, "S N"],
    noise: Shaped[Array, "S N _"],
) -> tuple[Carry, Shaped[Array, "S N ..."]]:
    """The memories and actions of all seeds and environments."""

    def one_seed(actor: Actor, carry: Carry, obs: Array, first: Array, noise: Array) -> Any:
        return jax.vmap(lambda c, o, f, n: agent.act(actor, c, o, f, n))(carry, obs, first, noise)

    return eqx.filter_vmap(one_seed)(actors, carry, obs, first, noise)
