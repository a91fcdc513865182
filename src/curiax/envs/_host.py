"""What a task on the host is: a simulator that JAX cannot trace, stepped as one fleet of environments."""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Shaped, UInt32

from ._base import AbstractAnyTask
from ._single import FleetSingle, Single

#: Where the fleet counts environments: `M`, all seeds' environments in one row.
Mask = Bool[np.ndarray, " M"]
Seeds = UInt32[np.ndarray, " M"]


def require_like(
    state: Mapping[str, np.ndarray], like: Mapping[str, np.ndarray], growing: Collection[str] = ()
) -> None:
    """Refuse a state with other names, types or shapes than these: NumPy would convert and spread it in silence.

    Those of some names may be of any length.
    """
    for name, wanted in like.items():
        if name not in state:
            raise ValueError(f"{name} is missing")
        found = state[name]
        fits = found.ndim == wanted.ndim if name in growing else found.shape == wanted.shape
        if not fits or found.dtype != wanted.dtype:
            raise ValueError(f"{name} is {found.dtype}{list(found.shape)}, not {wanted.dtype}{list(wanted.shape)}")


class AbstractFleet(abc.ABC):
    """`M` environments of one task that move in lock-step: the one mutable thing about a task.

    The arrays below are live: `reset` and `step` renew them in place, so whoever wants to keep a value copies
    it. All randomness comes in as seeds, so a fleet has no random state of its own: what `state()` returns is
    everything, and two fleets with the same state and the same inputs do the same to the last bit, whatever
    their number of threads and wherever in the row an environment stands.
    """

    #: What each environment shows now.
    obs: Float[np.ndarray, "M ..."]
    #: What is kept of the last step: `measure` makes tracked points and rewards of it, for a whole rollout at once.
    record: Float[np.ndarray, "M entries"]
    #: Where the last step ended an episode: by the task's own end, or by the simulator's own time limit.
    terminated: Mask
    truncated: Mask
    #: False if no episode ever ends but by the library's time limit; the two arrays above then stay False.
    ends: bool = True
    #: None, or where the last step was no step: a simulator that resets itself one step late (Gymnasium's
    #: next-step mode) spent it on the reset, and the action was ignored.
    filler: Mask | None = None

    @abc.abstractmethod
    def reset(self, seeds: Seeds, who: Mask | None = None) -> None:
        """Begin new episodes, everywhere or in the environments `who`, each from a seed of its own."""

    @abc.abstractmethod
    def step(self, actions: Shaped[np.ndarray, "M ..."], seeds: Seeds, still: Mask | None = None) -> None:
        """Carry out an action in every environment; those in `still` stay exactly as they are.

        `seeds` feed whatever noise the dynamics draw in this step. Continuous actions arrive as sampled: the
        fleet clips them to its action space where its simulator does not.
        """

    @abc.abstractmethod
    def measure(
        self, record: Float[np.ndarray, "*lead entries"]
    ) -> tuple[Float[np.ndarray, "*lead axes"], Float[np.ndarray, "*lead"]]:
        """The tracked coordinates (for evaluation only) and the task's reward of recorded steps."""

    @property
    def points(self) -> Float[np.ndarray, "M axes"]:
        """The tracked coordinates after the last step."""
        return self.measure(self.record)[0]

    @property
    def reward(self) -> Float[np.ndarray, " M"]:
        """The task's reward of the last step."""
        return self.measure(self.record)[1]

    @abc.abstractmethod
    def state(self) -> dict[str, np.ndarray]:
        """Everything that decides what the environments do next: plain arrays, to be kept or sent anywhere."""

    @abc.abstractmethod
    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Put a state back exactly; it may come from another process."""

    def render(self, index: int, width: int, height: int) -> np.ndarray | None:
        """A picture `[height, width, 3]` of one environment, as bytes; None for a map of the tracked point instead."""
        return None

    def close(self) -> None:
        """Free what the simulators hold; the fleet is not used afterwards."""
        return None


class AbstractHostTask(AbstractAnyTask):
    """A task whose environments run outside JAX, in C threads or in Python.

    A task is a final subclass with `__init__(self, **settings)` that needs nothing heavy: simulators are
    imported in `open`. The library adds the time limit (`spec.horizon`), automatic resets, normalisation and
    the counting of visited cells, as it does for tasks in JAX.
    """

    hosted: ClassVar[bool] = True

    @property
    def stops(self) -> bool:
        """Whether some environments can stay still while others move, as the frozen remote needs it."""
        return True

    def single(self) -> Single:
        return FleetSingle(self.open(1))

    @abc.abstractmethod
    def open(self, count: int, threads: int = 1) -> AbstractFleet:
        """A fleet of `count` environments, not yet reset, stepped by so many threads."""
