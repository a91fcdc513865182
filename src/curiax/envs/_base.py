"""What both families of tasks share, and what a pure-JAX task is; `_host.py` has the other family."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt8

from .._metrics import Metric
from .._types import Grid, PRNGKey, Rollout, Scalar, Spec
from ._single import Single, TracedSingle

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


class AbstractAnyTask(eqx.Module):
    """What learning, tables and figures must know of a task, whoever simulates it."""

    spec: eqx.AbstractVar[Spec]
    #: Partitions of the tracked point whose visited cells are counted; () if nothing is.
    grids: eqx.AbstractVar[tuple[Grid, ...]]

    #: Steps of a full run.
    budget: ClassVar[int] = 102_400
    #: True if the dynamics hold noise that cannot be learnt.
    stochastic: ClassVar[bool] = False

    #: The group of its own metrics: the table of metrics has it and a slash before each name.
    group: ClassVar[str] = "task"

    #: Two kinds of transitions whose bonuses are compared, by name; None if nothing is.
    compared: ClassVar[tuple[str, str] | None] = None

    def kind(self, point: Float[Array, " axes"]) -> Int[Array, ""]:
        """Of which of the two kinds in `compared` the transition to a tracked point was: 0 or 1."""
        return jnp.zeros((), jnp.int32)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What `measure` returns, to a reader; what is not declared here is shown under its bare name."""
        return ()

    def measure(self, rollout: Rollout) -> dict[str, Array]:
        """Numbers of a rollout beside its cells and rewards, as how often a goal was reached; no agent sees them."""
        return {}

    def unlearnable(self, action: Shaped[Array, "..."]) -> Bool[Array, ""] | None:
        """Whether a step with this action draws noise that no model can predict; None if the task cannot tell."""
        return None

    #: True if its picture is a machine's screen, whose pixels are no squares.
    screen: ClassVar[bool] = False

    @property
    def steps_per_second(self) -> int | None:
        """Steps that a machine makes in a second, as a film shows it; None where there is none."""
        return None

    @abc.abstractmethod
    def single(self) -> Single:
        """One environment of it, outside of training."""

    @property
    def packages(self) -> tuple[str, ...]:
        """The simulator's packages as pip names them; their versions decide the bits of a run."""
        return ()

    def require(self) -> None:
        """Raise a `UsageError` that says what to install, before anything is trained, where something is missing."""
        return None

    def notes(self) -> Mapping[str, str]:
        """What a reader of the results must know of what is installed, as which version of a game runs: name → text.

        Asked once, before training; kept with the run and shown by the command line and in reports.
        """
        return {}


class AbstractTask(AbstractAnyTask):
    """One instance of a task, as pure functions of its state.

    A task is a final subclass with `__init__(self, **settings)`. The library adds many instances, the time
    limit (`spec.horizon`), automatic resets, normalisation and the counting of visited cells.
    """

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

    def single(self) -> Single:
        return TracedSingle(self)

    def probe(self) -> Probe | None:
        """Where to map the bonus over the task, visited or not; None for no such maps."""
        return None

    def samples(self) -> Samples | None:
        """Transitions whose bonus is followed through training; None for no such transitions."""
        return None

    def draw(self, state: State, width: int, height: int) -> UInt8[np.ndarray, "height width 3"] | None:
        """A picture of a state, outside JAX, for `curiax watch`; None for a map of the tracked point instead."""
        return None
