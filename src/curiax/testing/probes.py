"""Probe tasks: tiny, with known answers."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._types import Box, Discrete, Grid, PRNGKey, Scalar, Spec
from ..envs import AbstractTask


class Probe(eqx.Module):
    """State of a probe: a random sign, and the time within the episode."""

    sign: Scalar
    time: Int[Array, ""]


class ProbeTask(AbstractTask):
    """Tiny tasks whose values and best actions are known, from the simplest wiring to the whole.

    * `constant`: one step, reward 1: the value must become 1.
    * `sign`: one step, reward equals the observed sign: the value must follow the observation.
    * `delayed`: two steps, reward 1 at the end: the first value must become the discount.
    * `action`: one step, reward 1 for pushing right, −1 for left: the policy must push right.
    * `match`: one step, reward for pushing towards the observed sign: policy and observation together.
    * `endless`: no termination, reward 1 each step, time limit 5: with bootstrapping the value is 1/(1 − γ).
    """

    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)
    variant: str = eqx.field(static=True)

    def __init__(self, *, kind: str = "constant", discrete: bool = False) -> None:
        action = Discrete(2) if discrete else Box((-1.0,), (1.0,))
        self.spec = Spec((2,), action, 5 if kind == "endless" else 2)
        self.grids, self.variant = (), kind

    def reset(self, *, key: PRNGKey) -> Probe:
        return Probe(jnp.where(jax.random.bernoulli(key), 1.0, -1.0), jnp.zeros((), jnp.int32))

    def step(self, state: Probe, action: Array, *, key: PRNGKey) -> tuple[Probe, Scalar, Bool[Array, ""]]:
        push = 2.0 * action - 1.0 if isinstance(self.spec.action, Discrete) else action[0]
        direction = jnp.where(push > 0, 1.0, -1.0)
        last = state.time == 1
        reward = {
            "constant": jnp.ones(()),
            "sign": state.sign,
            "delayed": jnp.where(last, 1.0, 0.0),
            "action": direction,
            "match": direction * state.sign,
            "endless": jnp.ones(()),
        }[self.variant]
        ends = {"delayed": last, "endless": jnp.zeros((), bool)}.get(self.variant, jnp.ones((), bool))
        return Probe(state.sign, state.time + 1), reward, ends

    def observe(self, state: Probe) -> Float[Array, " 2"]:
        return jnp.stack([state.sign, state.time.astype(jnp.float32)])

    def track(self, state: Probe) -> Float[Array, " 0"]:
        return jnp.zeros(0)


class NoisyArm(AbstractTask):
    """The noisy TV as a choice of two arms: action 0 shows noise, action 1 moves a dial that can be learnt.

    A bonus that is drawn to noise pulls arm 0; one that wants to learn pulls arm 1.
    """

    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)
    stochastic = True

    def __init__(self) -> None:
        self.spec, self.grids = Spec((3,), Discrete(2), 20), ()

    def reset(self, *, key: PRNGKey) -> Float[Array, " 2"]:
        return jnp.zeros(2)

    def step(
        self, state: Float[Array, " 2"], action: Int[Array, ""], *, key: PRNGKey
    ) -> tuple[Float[Array, " 2"], Scalar, Bool[Array, ""]]:
        noise = jax.random.uniform(key, minval=-1.0, maxval=1.0)
        after = jnp.where(action == 0, jnp.stack([noise, state[1]]), jnp.stack([0.0, state[1] + 0.3]))
        return after, jnp.where(action == 1, 1.0, 0.0), jnp.zeros((), bool)

    def observe(self, state: Float[Array, " 2"]) -> Float[Array, " 3"]:
        return jnp.stack([state[0], jnp.cos(state[1]), jnp.sin(state[1])])

    def track(self, state: Float[Array, " 2"]) -> Float[Array, " 0"]:
        return jnp.zeros(0)
