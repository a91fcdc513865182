"""What a lane is: some seeds of a run whose environments are on the host, on one JAX device."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .._errors import CuriaxError, NonFiniteError, SimulatorError
from .._stats import Moments
from .batch import HostReport, first_states, host_copies, refilled
from .devices import placement
from .loop import Setup, TrainState

#: Before the names of a snapshot's arrays: what JAX holds, seed by seed, and what the simulators hold.
LEARNT, HOST = "learnt.", "host."


class AbstractLane(abc.ABC):
    """Some seeds, a device or several, and environments of their own; a thread drives it."""

    #: Seed → what happened to its environments. Another thread reads it: it is replaced, never changed.
    lost: dict[int, str]
    #: Steps taken by each environment.
    now: int

    def __init__(self, setup: Setup, seeds: Sequence[int], line: Sequence[Any]) -> None:
        self.setup, self.seeds, self.devices = setup, tuple(seeds), tuple(line)
        #: Where arrays are put: on the lane's device, or a copy on each of several.
        self.placement = placement(line)
        self.lost, self.now = {}, 0
        arrays, self.static = eqx.partition(first_states(setup, seeds), eqx.is_array)
        self.arrays = jax.device_put(arrays, self.placement)

    @property
    def train_state(self) -> TrainState:
        """What is learnt, `[S, ...]`, on the device."""
        return eqx.combine(self.arrays, self.static)

    @property
    @abc.abstractmethod
    def obs_stats(self) -> Moments:
        """The statistics of observations in the form of the pure-JAX family, `[S, ...]`."""

    @abc.abstractmethod
    def compile(self) -> None:
        """Compile the programs of this lane."""

    @abc.abstractmethod
    def iterate(self) -> HostReport | Future[HostReport]:
        """One iteration: collect, then learn. Returns the report on every seed, or the promise of it."""

    @abc.abstractmethod
    def state(self) -> dict[str, np.ndarray]:
        """Everything outside JAX that decides what this lane does next: plain arrays."""

    @abc.abstractmethod
    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Put a state back exactly; with the arrays of `train_state`, the lane continues as it would have."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free the simulators."""

    def settle(self) -> None:
        """Finish whatever an iteration left to be done beside the next one."""
        return None

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything that decides what this lane does next, as arrays of their own on the host."""
        self.settle()
        learnt = {f"{LEARNT}{name}": array for name, array in host_copies(self.arrays).items()}
        return {**learnt, **{f"{HOST}{name}": np.array(array) for name, array in self.state().items()}}

    def resume(self, snapshot: Mapping[str, np.ndarray]) -> None:
        """Continue from a snapshot, to the last bit."""
        self.arrays = jax.device_put(refilled(self.arrays, part_of(snapshot, LEARNT)), self.placement)
        self.restore(part_of(snapshot, HOST))

    @contextmanager
    def blaming_environments(self, kind: type[Exception] = Exception) -> Iterator[None]:
        """Say of an error of a kind in here that it is the environments', and whose."""
        try:
            yield
        except (NonFiniteError, jax.errors.JaxRuntimeError):
            raise
        except kind as error:
            whose = (
                f"the environments of seeds {', '.join(map(str, self.seeds))} failed at step {self.now + 1:,} of each"
            )
            if isinstance(error, CuriaxError):
                raise type(error)(f"{whose}: {error}") from error
            hint = "If they are your own, `curiax check` may find out why."
            raise SimulatorError(f"{whose}: {type(error).__name__}: {error}. {hint}") from error


def part_of(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
