"""One process's share of a run: what it knows of the processes before it, and under which conditions it may go on."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import importlib.metadata
import platform
import time
from collections.abc import Mapping
from typing import Any

import jax

from .._errors import CheckpointError
from .._source import code
from .spec import Plan
from .store import Snapshot
from .training import possible_layout

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "polars")
#: What may change in the middle of a run.
HARMLESS = {"python", "polars"}


class Session:
    """One process's share of a run: its facts, added to those of the sessions before."""

    def __init__(self, plan: Plan, begun: float, notes: Mapping[str, str]) -> None:
        self._plan, self._begun, self._notes = plan, begun, dict(notes)
        self.versions = {name: version for name, version in installed(plan).items() if name not in HARMLESS}
        # Now, not when the run is over: somebody may work on the files meanwhile.
        self._code = code()
        self._started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._before: Mapping[str, Any] = {}
        self._continued: list[dict[str, Any]] = []
        #: What was to happen to unsound values, session by session.
        self._choices: list[str] = [plan.setup.on_nonfinite]

    def follow(self, snapshot: Snapshot, allow_drift: bool) -> tuple[int, int]:
        """Take over from an earlier session; returns the layout of devices to continue with, and their team.

        Refuses conditions that would change the last bits, unless that is allowed.
        """
        layout = possible_layout(self._plan, snapshot.facts["layout"])
        team = min(snapshot.facts["team"], len(jax.devices()))
        drift = drifted(snapshot.facts, self.versions, self._notes, layout, team)
        if drift and not allow_drift:
            raise CheckpointError(
                f"this run was begun under other conditions ({', '.join(drift)}): continued here, its last bits would "
                "not be those of an uninterrupted run. --allow-drift continues it, and the manifest says so."
            )
        self._before = snapshot.facts
        entry = {"iteration": snapshot.iteration, "at": self._started, **({"drift": list(drift)} if drift else {})}
        self._continued = [*snapshot.facts["continued"], entry]
        self._choices = list(dict.fromkeys([*snapshot.facts["on_nonfinite"], *self._choices]))
        return layout, team

    def compiled(self) -> None:
        """Training begins now."""
        self._ready, self._busy = time.perf_counter(), time.process_time()

    def facts(self) -> dict[str, Any]:
        """Times of all sessions so far, and what the task notes."""
        seconds = self._before.get("seconds", {"start": 0.0, "train": 0.0, "cpu": 0.0})
        # CPU time beside wall-clock: on a shared machine only the former compares methods.
        spent = {
            "start": self._ready - self._begun,
            "train": time.perf_counter() - self._ready,
            "cpu": time.process_time() - self._busy,
        }
        return {
            "started": self._before.get("started", self._started),
            "seconds": {name: round(seconds[name] + value, 3) for name, value in spent.items()},
            "continued": self._continued,
            "on_nonfinite": self._choices,
            "notes": self._notes,
        }

    def noted(self, snapshot: Snapshot) -> Snapshot:
        """A snapshot with what a later session wants to know."""
        return dataclasses.replace(
            snapshot,
            facts={
                **snapshot.facts,
                **self.facts(),
                "versions": self.versions,
                "code": self._code.digest,
                "platform": jax.default_backend(),
            },
        )


def drifted(
    before: Mapping[str, Any], versions: Mapping[str, str], notes: Mapping[str, str], layout: int, team: int = 1
) -> list[str]:
    """What is not as it was when a checkpoint was made, and decides the last bits."""
    now = {"versions": versions, "notes": notes}
    pairs = [(name, before[k].get(name), now[k].get(name)) for k in now for name in {**before[k], **now[k]}]
    pairs += [("devices", before["layout"], layout), ("devices of each seed", before["team"], team)]
    pairs += [("platform", before["platform"], jax.default_backend())]
    pairs += [("Curiax's code", before["code"][:8], code().digest[:8])]
    return [f"{name} {old} → {new}" for name, old, new in pairs if old != new]


def installed(plan: Plan) -> dict[str, str]:
    """The versions of whatever decides the bits of a run."""
    versions, task = {"python": platform.python_version()}, plan.setup.task
    # Numba computes the statistics of observations on the host.
    for name in (*PACKAGES, *(("numba", *task.packages) if task.packages else ())):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions
