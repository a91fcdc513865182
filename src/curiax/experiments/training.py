"""All iterations of all seeds of a run, with a face that is the same for both families of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._errors import CheckpointError, UsageError
from .._stats import Moments
from .._tree import is_key
from ..train import devices
from ..train.batch import (
    HostReport,
    compile_chunk,
    first_states,
    host_copies,
    padded,
    place,
    refilled,
    seed_mesh,
    spread,
)
from ..train.lane import LEARNT, AbstractLane
from ..train.lanes import Border, open_lanes, run_lanes
from . import saved
from .spec import Plan
from .store import Snapshot, reason


def possible_layout(plan: Plan, wanted: int) -> int:
    """As many devices as there are of those wanted; lanes take turns on what there is, and compute the same."""
    if plan.setup.task.hosted:
        return wanted
    return len(devices.devices_for(len(plan.seeds), wanted))


#: Arrays of a lane beside its simulators' that have a row for each seed.
OF_SEEDS = ("host.obs", "moments/mean", "moments/spread")


class Iteration(NamedTuple):
    """What comes out of an iteration: the report `[S, 1]`, and the state after it where it was asked for."""

    report: HostReport
    snapshot: Snapshot | None


class Training:
    """All iterations of all seeds: compiled when made, run when iterated over.

    `layout` devices decide the last bits of a run, and so do the `team` of them that share a seed of emulators: one
    that is continued asks for as many as it was begun with.
    """

    def __init__(self, plan: Plan, layout: int | None = None, team: int = 1) -> None:
        self.plan, self.team, self.done, self._asked = plan, team, 0, False
        self.lanes: list[AbstractLane] = []
        #: Seeds that are left out of the results, and why.
        self.faulty: dict[int, str] = {}
        #: Those of them that were lost before the run was continued.
        self._before: dict[int, str] = {}
        if plan.setup.task.hosted:
            self.lanes = open_lanes(plan.setup, plan.seeds, layout, team)
            self.devices = ["+".join(map(str, lane.devices)) for lane in self.lanes]
            self.border = Border(len(self.lanes))
            return
        self._mesh = seed_mesh(devices.devices_for(len(plan.seeds), layout))
        self.devices = [str(device) for device in self._mesh.devices.flat]
        state = first_states(plan.setup, padded(plan.seeds, self._mesh.size))
        self._arrays, self._static = place(state, self._mesh)
        # One iteration for each call, so that a fault or a wish to stop is seen after it.
        self._call = compile_chunk(plan.setup, self._static, self._mesh, 1, self._arrays)

    @property
    def layout(self) -> int:
        """How many devices or lanes the seeds are dealt out among."""
        return len(self.devices)

    def __iter__(self) -> Iterator[Iteration]:
        """One iteration after another, from where the run stands to its end."""
        if self.lanes:
            for report, states in run_lanes(self.lanes, self.plan.iterations, self.border, self.done):
                self.done += 1
                snapshot = None if states is None else self._of_lanes(states)
                yield Iteration(report.as_iterations(), snapshot)
            return
        while self.done < self.plan.iterations:
            self._arrays, report = self._call(self._arrays)
            self.done += 1
            snapshot = self.snapshot() if self._asked else None
            self._asked = False
            yield Iteration(HostReport.of(report, slice(len(self.plan.seeds))), snapshot)

    def ask(self) -> None:
        """Deliver a snapshot with the next iteration that can have one."""
        self._asked = True
        if self.lanes:
            self.border.ask()

    def snapshot(self) -> Snapshot:
        """The state as it is now, between two iterations; of lanes only before they start and after they have ended."""
        if self.lanes:
            return self._of_lanes([lane.snapshot() for lane in self.lanes])
        # Rows beyond the seeds repeat the last one: they only fill up the devices.
        kept = len(self.plan.seeds)
        return self._noted({name: array[:kept].copy() for name, array in host_copies(self._arrays).items()})

    def _of_lanes(self, states: Sequence[Mapping[str, np.ndarray]]) -> Snapshot:
        return self._noted(
            {f"lane{k}.{name}": array for k, state in enumerate(states) for name, array in state.items()}
        )

    def _noted(self, arrays: Mapping[str, np.ndarray]) -> Snapshot:
        return Snapshot(self.done, arrays, {"layout": self.layout, "team": self.team})

    def settled(self, snapshot: Snapshot) -> Snapshot:
        """A snapshot that knows which seeds are lost, and holds zeros where those had learnt something.

        What a lost seed does from now on is looked at by nobody. Its simulators are left as they are: they may share
        what they keep with those of other seeds, or be made anew from a record of all that was done with them.
        """
        lost = self.lost

        def without(name: str, array: np.ndarray) -> np.ndarray:
            gone = self._gone(name, lost)
            if self._of_simulators(name) or not gone.any():
                return array
            array = array.copy()
            array[gone] = 0
            return array

        arrays = {name: without(name, array) for name, array in snapshot.arrays.items()} if lost else snapshot.arrays
        messages = {str(seed): message for seed, message in lost.items()}
        return Snapshot(snapshot.iteration, arrays, {**snapshot.facts, "lost": messages})

    def judged(self, snapshot: Snapshot) -> dict[str, np.ndarray]:
        """What must be sound in a settled snapshot: all but what belongs to simulators of lost seeds, or may do so."""
        lost, envs = self.lost, self.plan.setup.loop.envs

        def part(name: str, array: np.ndarray) -> np.ndarray:
            gone = self._gone(name, lost)
            if not self._of_simulators(name) or not gone.any():
                return array
            # A row for each environment, seed by seed, as simulators mostly have it; else nobody knows whose it is.
            rows = np.repeat(gone, envs)
            if name.endswith(OF_SEEDS):
                rows = gone
            return array[~rows] if array.shape[:1] == rows.shape else array[:0] if array.ndim else np.zeros(0)

        return {name: part(name, array) for name, array in snapshot.arrays.items()}

    def _gone(self, name: str, lost: Mapping[int, str]) -> np.ndarray:
        """Which of the seeds that an array is of are lost."""
        lane = name.partition(".")[0].removeprefix("lane")
        seeds = self.lanes[int(lane)].seeds if self.lanes else self.plan.seeds
        return np.asarray([seed in lost for seed in seeds])

    def _of_simulators(self, name: str) -> bool:
        return bool(self.lanes) and not name.partition(".")[2].startswith(LEARNT)

    def resume(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot: to the last bit, with the layout it was made with."""
        self.done, arrays = snapshot.iteration, snapshot.arrays
        self._before = {int(seed): message for seed, message in snapshot.facts["lost"].items()}
        if self.lanes:
            if snapshot.facts["layout"] != self.layout:
                raise CheckpointError(f"the checkpoint has {snapshot.facts['layout']} lanes, this run {self.layout}.")
            self.border = Border(len(self.lanes), self.done)
            for k, lane in enumerate(self.lanes):
                prefix = f"lane{k}."
                try:
                    lane.resume({n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)})
                except (KeyError, ValueError, TypeError, IndexError, UsageError) as error:
                    raise CheckpointError(
                        f"the state of the simulators in the checkpoint does not fit this run ({reason(error)})."
                    ) from error
            return
        seeds = len(self.plan.seeds)
        for name, array in arrays.items():
            if array.shape[:1] != (seeds,):
                raise CheckpointError(
                    f"the checkpoint's {name} has shape {list(array.shape)}, which is not something for each of the "
                    f"{seeds} seeds."
                )
        rows = np.minimum(np.arange(len(padded(self.plan.seeds, self._mesh.size))), seeds - 1)
        filled = refilled(self._arrays, {name: array[rows] for name, array in arrays.items()})
        self._arrays = spread(filled, self._mesh)

    @property
    def lost(self) -> dict[int, str]:
        """Seeds that are left out of the results, and why."""
        of_lanes = {seed: message for lane in self.lanes for seed, message in lane.lost.items()}
        return {**self.faulty, **of_lanes, **self._before}

    def saved(self) -> saved.Saved:
        """What every seed that is left has learnt, on the host."""
        if self.lanes:
            states = [lane.train_state for lane in self.lanes]
            statistics: list[Moments | None] = [lane.obs_stats for lane in self.lanes]
        else:
            states = [eqx.combine(self._arrays, self._static)]
            statistics = [states[0].obs_stats]
        agent = self.plan.setup.agent
        parts = [(agent.networks(state.agent), stats) for state, stats in zip(states, statistics, strict=True)]
        kept = [k for k, seed in enumerate(self.plan.seeds) if seed not in self.lost]
        networks, stats = jax.tree.map(lambda *leaves: joined(leaves, kept), *parts)
        return saved.Saved(networks, stats, tuple(self.plan.seeds[k] for k in kept))

    def close(self) -> None:
        """Free the simulators."""
        for lane in self.lanes:
            lane.close()


def joined(leaves: Sequence[Any], kept: Sequence[int]) -> Any:
    """The kept seeds of several lanes in one array on the host; what is no array stays as it is."""
    if not eqx.is_array(leaves[0]):
        return leaves[0]
    if is_key(leaves[0]):
        return jnp.concatenate(leaves)[np.asarray(kept)]
    return np.concatenate([np.asarray(leaf) for leaf in leaves])[np.asarray(kept)]
