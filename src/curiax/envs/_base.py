"""What a pure-JAX task is."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Bool, Float, Shaped

from .._types import Grid, PRNGKey, Scalar, Spec

State = Any


class AbstractTask(eqx.Module):
    """One instance of a task, as pure functions of its state.

    A task is a final subclass with `__init__(self, **settings)`. The library adds many instances, the time
    limit (`spec.horizon`), automatic resets, normalisation and the counting of visited cells.
    """

    spec: eqx.AbstractVar[Spec]
    #: Partitions of the tracked point whose visited cells are counted; () if nothing is.
    grids: eqx.AbstractVar[tuple[Grid, ...]]

    #: Steps of a full run.
    budget: ClassVar[int] = 102_400
    #: True if the dynamics hold noise that cannot be learnt; presets choose LBS's β by it.
    stochastic: ClassVar[bool] = False

    @abc.abstractmethod
    def reset(self, *, key: PRNGKey) -> State:
        """The first state of an episode."""

    @abc.abstractmethod
    def step(
        self, state: State, action: Shaped[Array, "..."], *, key: PRNGKey
    ) -> tuple[State, Scalar, Bool[Array, ""]]:
        """The next state, the reward, and whether the episode terminated."""

    @abc.abstractmethod
    def observe(self, state: State) -> Float[Array, "..."]:
        """What the agent sees of a state."""

    @abc.abstractmethod
    def track(self, state: State) -> Float[Array, " axes"]:
        """The coordinates that the grids partition, for evaluation only."""
