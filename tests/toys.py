"""Agents that are nothing but their seam: one with an acting memory, one with a replay and deferred gradient steps."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from curiax._sound import first
from curiax._tree import adam, descend
from curiax._types import Discrete, Rollout, Spec
from curiax.agents import AbstractAgent, Check, Checks, Learnt, Work

WRONG = Check("wrong", "the memories of {method!r}", "steps")
LOSS = Check("loss", "the loss of {method!r}", "updates")
GRADIENT = Check("gradient", "the gradient of {method!r}", "updates")


class Weights(eqx.Module):
    weights: Any


class Counter(AbstractAgent):
    """Recurrent: acts by the number of steps of the episode so far, which only its memory knows."""

    spec: Spec = eqx.field(static=True)

    behaviours: ClassVar[tuple[str, ...]] = ("explore", "still")

    @property
    def sees_successors(self) -> bool:
        return False

    def build(self, *, key: Any) -> Weights:
        return Weights(jax.random.uniform(key, (3,)))

    def start(self, networks: Weights, lead: tuple[int, int]) -> Weights:
        return networks

    def networks(self, state: Weights) -> Weights:
        return state

    def carry(self) -> Any:
        return jnp.zeros((), jnp.int32)

    def noise(self, shape: tuple[int, ...], *, key: Any) -> Any:
        return jnp.zeros((*shape, 1))

    def act(self, actor: Any, carry: Any, obs: Any, first: Any, noise: Any, *, behaviour: str = "explore") -> Any:
        count = jnp.where(first, 0, carry)
        return count + 1, jnp.zeros_like(self.action(count)) if behaviour == "still" else self.action(count)

    def action(self, count: Any) -> Any:
        """What is done in so many steps of an episode."""
        if isinstance(self.spec.action, Discrete):
            return count % self.spec.action.n
        return jnp.broadcast_to(jnp.sin(0.5 * count), self.spec.action.shape)

    def learn(self, state: Weights, rollout: Rollout, *, key: Any) -> tuple[Weights, Learnt, Work | None]:
        """Goes through the rollout again, from the memories it began with."""

        def again(carry: Any, begins: Any) -> Any:
            count = jnp.where(begins, 0, carry)
            return count + 1, count

        end, counts = jax.lax.scan(again, rollout.carry, rollout.first)
        taken = rollout.step.action
        expected = jax.vmap(jax.vmap(self.action))(counts)
        wrong = jnp.any((jnp.abs(taken - expected) > 1e-6).reshape(*counts.shape, -1), axis=-1)
        metrics = {"policy/longest": jnp.max(counts), "policy/last": jnp.mean(1.0 * end)}
        return state, Learnt(metrics, Checks.of((WRONG, first(wrong)))), None


class Replay(eqx.Module):
    weights: Any
    opt_state: Any
    #: What was seen in the newest rollouts, and how many there were.
    seen: Any
    filled: Any


class Regression(AbstractAgent):
    """Acts at random; learns to add up what it sees, trained on batches of all that it remembers."""

    spec: Spec = eqx.field(static=True)
    rollouts: int = eqx.field(static=True, default=3)
    steps: int = eqx.field(static=True, default=5)
    size: int = eqx.field(static=True, default=16)

    @property
    def keeps_observations(self) -> bool:
        return True

    def build(self, *, key: Any) -> Weights:
        return Weights(jnp.zeros(self.spec.obs_size))

    def start(self, networks: Weights, lead: tuple[int, int]) -> Replay:
        shape = (self.rollouts, lead[0] * lead[1])
        opt_state = adam(0.01, 1e-8, None).init(networks.weights)
        return Replay(networks.weights, opt_state, jnp.zeros((*shape, self.spec.obs_size)), jnp.zeros((), int))

    def networks(self, state: Replay) -> Weights:
        return Weights(state.weights)

    def noise(self, shape: tuple[int, ...], *, key: Any) -> Any:
        return jax.random.normal(key, (*shape, self.spec.action.size))

    def act(self, actor: Any, carry: Any, obs: Any, first: Any, noise: Any, *, behaviour: str = "explore") -> Any:
        return carry, jnp.argmax(noise) if isinstance(self.spec.action, Discrete) else noise

    def learn(self, state: Replay, rollout: Rollout, *, key: Any) -> tuple[Replay, Learnt, Work | None]:
        """Remembers the rollout and draws batches of all that is remembered."""
        slot = state.filled % self.rollouts
        seen = state.seen.at[slot].set(rollout.step.obs.reshape(-1, self.spec.obs_size))
        state = Replay(state.weights, state.opt_state, seen, state.filled + 1)
        most = jnp.minimum(state.filled, self.rollouts) * seen.shape[1]
        index = jax.random.randint(key, (self.steps, self.size), 0, most)
        batches = seen.reshape(-1, self.spec.obs_size)[index]
        nothing = Checks.of((WRONG, jnp.asarray(-1)))
        return state, Learnt({"model/remembered": 1.0 * most}, nothing), Work(batches)

    def work(self, state: Replay, work: Work) -> Any:
        def loss(weights: Any, seen: Any) -> Any:
            value = jnp.mean((seen @ weights - seen.sum(-1)) ** 2)
            return value, {"loss": value}

        weights, opt_state, report, (bad_loss, bad_gradient) = descend(
            loss, state.weights, adam(0.01, 1e-8, None), state.opt_state, work.steps
        )
        after = Replay(weights, opt_state, state.seen, state.filled)
        checks = Checks.of((LOSS, bad_loss), (GRADIENT, bad_gradient))
        return after, {f"model/{name}": value for name, value in report.items()}, checks
