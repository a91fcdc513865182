"""What both families of tasks share, and what a pure-JAX task is; `_host.py` has the other family.

What is measured of either stands in `_evaluation.py`.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped, UInt8

from .._types import PRNGKey, Scalar, Spec
from ._evaluation import AbstractEvaluation
from ._single import Single, TracedSingle

State = Any


class AbstractAnyTask(AbstractEvaluation):
    """What everybody must know of a task, whoever simulates it."""

    spec: eqx.AbstractVar[Spec]

    #: Steps of a full run.
    budget: ClassVar[int] = 102_400
    #: True if the dynamics hold noise that cannot be learnt.
    stochastic: ClassVar[bool] = False
    #: True if its environments run outside JAX, in fleets.
    hosted: ClassVar[bool] = False
    #: True if what is seen is a machine's screen, as stacks of frames: whoever trains on it keeps each frame once.
    screen: ClassVar[bool] = False

    @abc.abstractmethod
    def single(self) -> Single:
        """One environment of it, outside of training."""

    @property
    def steps_per_second(self) -> int | None:
        """Steps that a machine makes in a second, as a film shows it; None where there is none."""
        return None

    @property
    def packages(self) -> tuple[str, ...]:
        """The simulator's packages as pip names them; their versions decide the bits of a run."""
        return ()

    @property
    def preparation(self) -> str:
        """What is done before training begins, in words; empty where nothing is."""
        return ""

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

    def draw(self, state: State, width: int, height: int) -> UInt8[np.ndarray, "height width 3"] | None:
        """A picture of a state, outside JAX, for `curiax watch`; None for a map of the tracked point instead."""
        return None
