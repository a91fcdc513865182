"""What is measured of a task beside its dynamics: no agent sees any of it, and no reward is made of it."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from .._metrics import Metric
from .._types import Grid, Rollout

State = Any


class Probe(eqx.Module):
    """Where to ask a model what it would pay: a state in every cell of a grid, and actions under names.

    Each name's actions `[samples, ...]` are taken in every state; the bonus is averaged over them.
    """

    grid: str = eqx.field(static=True)
    states: State
    actions: dict[str, Shaped[Array, "samples ..."]]


class Samples(eqx.Module):
    """Transitions, always the same, that a model is asked about as it trains: what it would pay for each."""

    states: State
    actions: Shaped[Array, "K ..."]
    next_states: State


class AbstractEvaluation(eqx.Module):
    """The hooks of evaluation, which every task has: all of them may be left as they are."""

    #: Partitions of the tracked point whose visited cells are counted; () if nothing is.
    grids: eqx.AbstractVar[tuple[Grid, ...]]

    #: Two kinds of transitions whose bonuses are compared, by name; None if nothing is.
    compared: ClassVar[tuple[str, str] | None] = None
    #: The group of its own metrics: the table of metrics has it and a slash before each name.
    group: ClassVar[str] = "task"

    def kind(self, point: Float[Array, " axes"]) -> Int[Array, ""]:
        """Of which of the two kinds in `compared` the transition to a tracked point was: 0 or 1."""
        return jnp.zeros((), jnp.int32)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What `measure` returns, to a reader; what is not declared here is shown under its bare name."""
        return ()

    def measure(self, rollout: Rollout) -> dict[str, Array]:
        """Numbers of a rollout beside its cells and rewards, as how often a goal was reached."""
        return {}

    def unlearnable(self, action: Shaped[Array, "..."]) -> Bool[Array, ""] | None:
        """Whether a step with this action draws noise that no model can predict; None if the task cannot tell."""
        return None

    def probe(self) -> Probe | None:
        """Where to map the bonus over the task, visited or not; None for no such maps."""
        return None

    def samples(self) -> Samples | None:
        """Transitions whose bonus is followed through training; None for no such transitions."""
        return None
