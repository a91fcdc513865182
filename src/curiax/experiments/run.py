"""Running an experiment: check, compile, train all seeds, keep the results."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import importlib.metadata
import os
import platform
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._contract import check_method_shapes, check_task_shapes
from .._errors import NonFiniteError, UsageError, unknown
from .._types import Grid
from ..train import devices
from ..train.batch import compile_chunk, first_states, padded, place, seed_mesh
from . import folder
from .progress import AbstractProgress, Silent, headline_metric
from .registry import METHODS, TASKS
from .spec import Experiment, Plan, resolve

if TYPE_CHECKING:
    import polars

#: What turned non-finite → who is to blame, in the order in which a fault spreads within one iteration.
CULPRITS = {
    "observation": "the observations of task {task!r}",
    "point": "the tracked point of task {task!r}",
    "reward": "the reward of task {task!r}",
    "bonus": "the bonus of method {method!r}",
    "loss": "the loss or the terms that method {method!r} reports",
    "policy": "the policy's parameters, trained on the bonus of {method!r}",
    "model": "the parameters of method {method!r}, trained on its own loss",
}
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "polars")


@dataclass(frozen=True)
class RunResult:
    """A finished run: one row of metrics for each seed and iteration, and the manifest beside it."""

    plan: Plan
    metrics: polars.DataFrame
    manifest: Mapping[str, Any]
    path: Path | None
    reused: bool

    def final(self, metric: str | None = None) -> dict[int, float]:
        """Each seed's last value of a metric; by default of the coverage that headlines, or the mean bonus."""
        import polars as pl

        name = metric or headline_metric(self.metrics.columns, self.plan.setup.loop.coverage)
        if name not in self.metrics.columns:
            raise unknown("metric", name, self.metrics.columns)
        last = self.metrics.filter(pl.col("iteration") == pl.col("iteration").max())
        return dict(zip(last["seed"].to_list(), last[name].to_list(), strict=True))


def run(
    experiment: Experiment, out: str | Path | None = None, *, progress: AbstractProgress | None = None
) -> RunResult:
    """Train every seed of an experiment.

    With `out`, the folder receives `metrics.parquet` and `manifest.json` when the run is finished, and a run
    that is already finished there is read instead of repeated. Nothing is compiled before the experiment, the
    task, the method and the folder have been checked.
    """
    begun = time.perf_counter()
    if out is not None and not isinstance(out, str | os.PathLike):
        raise UsageError(f"out = {out!r}: must be a folder's path, or None to keep the results in memory.")
    devices.prepare()
    plan = resolve(experiment)
    where = None if out is None else Path(out)
    done = None if where is None else folder.existing_run(where, plan.identity)
    if where is not None and done is not None:
        return RunResult(plan, folder.read_metrics(where), done, where, True)
    with contextlib.ExitStack() as stack:
        stage = None if where is None else stack.enter_context(folder.staged(where))
        check(plan)
        metrics, facts = train(plan, progress or Silent(), begun)
        table = tidy(plan, metrics)
        manifest = describe(plan, facts)
        if stage is not None:
            folder.write(stage, manifest, table)
    return RunResult(plan, table, manifest, where, False)


def check(plan: Plan) -> None:
    """Refuse a user's task or method whose shapes do not fit, before anything is compiled.

    Curiax's own are held to the same contract by the tests.
    """
    task, name = plan.setup.task, plan.method_entry.name
    if plan.task_entry.name not in TASKS:
        check_task_shapes(task, plan.task_entry.name)
    if name not in METHODS:
        check_method_shapes(plan.build_model(jax.random.key(0)), task.spec, name)


def train(plan: Plan, progress: AbstractProgress, begun: float) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """All iterations of all seeds: the metrics `[S, K]`, and the layout and timings since `begun`."""
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    label = plan.experiment.label or plan.method_entry.name
    progress.start(f"{label} on {plan.task_entry.name}", plan.iterations, plan.steps)
    try:
        mesh = seed_mesh(devices.devices_for(len(plan.seeds)))
        state = first_states(plan.setup, plan.build_model, padded(plan.seeds, mesh.size))
        arrays, static = place(state, mesh)
        call = compile_chunk(plan.setup, static, mesh, plan.chunk, arrays)
        compiled, busy = time.perf_counter(), time.process_time()
        chunks: list[dict[str, np.ndarray]] = []
        for k in range(plan.iterations // plan.chunk):
            arrays, metrics = call(arrays)
            chunk = {name: np.asarray(value)[: len(plan.seeds)] for name, value in metrics.items()}
            refuse_nonfinite(plan, chunk, k * plan.chunk)
            chunks.append(chunk)
            progress.advance((k + 1) * plan.chunk, {name: value[:, -1] for name, value in chunk.items()})
    finally:
        progress.finish()
    ended, worked = time.perf_counter(), time.process_time()
    facts = {
        "started": started,
        # CPU time beside wall-clock: on a shared machine only the former compares methods.
        "seconds": {
            "start": round(compiled - begun, 3),
            "train": round(ended - compiled, 3),
            "cpu": round(worked - busy, 3),
        },
        "devices": [str(device) for device in mesh.devices.flat],
        "chunk": plan.chunk,
    }
    return {name: np.concatenate([c[name] for c in chunks], axis=1) for name in chunks[0]}, facts


def refuse_nonfinite(plan: Plan, chunk: Mapping[str, np.ndarray], first: int) -> None:
    """Stop at the first NaN or infinity, and say whose it is."""
    broken = {name: np.argwhere(~chunk[f"finite/{name}"]) for name in CULPRITS}
    places = [(k, order, s, name) for order, name in enumerate(CULPRITS) for s, k in broken[name]]
    if not places:
        return
    k, _, s, name = min(places)
    names = {"task": plan.task_entry.name, "method": plan.method_entry.name}
    per_iteration = plan.steps // plan.iterations
    iteration = first + int(k)
    raise NonFiniteError(
        f"NaN or infinity in {CULPRITS[name].format(**names)}: seed {plan.seeds[int(s)]}, iteration {iteration} "
        f"(steps {iteration * per_iteration:,} to {(iteration + 1) * per_iteration:,}). "
        "The run was stopped and nothing was written. Look for divisions by 0, logarithms, overflow, or a "
        "learning rate that is too high."
    )


def tidy(plan: Plan, metrics: Mapping[str, np.ndarray]) -> polars.DataFrame:
    """One row for each seed and iteration, one column for each metric."""
    import polars as pl

    seeds, iterations = len(plan.seeds), plan.iterations
    columns: dict[str, Any] = {
        "seed": np.repeat(np.asarray(plan.seeds, np.int64), iterations),
        "iteration": np.tile(np.arange(iterations, dtype=np.int32), seeds),
        "step": np.tile(np.arange(1, iterations + 1, dtype=np.int64) * (plan.steps // iterations), seeds),
    }
    for name in sorted(metrics):
        if not name.startswith("finite/"):
            columns[name] = metrics[name].reshape((seeds * iterations, *metrics[name].shape[2:]))
    return pl.DataFrame(columns)


def describe_grid(grid: Grid) -> dict[str, Any]:
    """A grid for readers that do not have the task: `shape` indices, of which `nominal` make 100 %."""
    return {**dataclasses.asdict(grid), "shape": grid.shape, "nominal": grid.nominal}


def describe(plan: Plan, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Everything needed to know what was run, and to run it again."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {
        "run_id": plan.run_id,
        "identity": plan.identity,
        "experiment": plan.experiment.as_json(),
        "preset": plan.experiment.preset,
        "iterations": plan.iterations,
        "coverage": plan.setup.loop.coverage,
        "grids": [describe_grid(grid) for grid in plan.setup.task.grids],
        "command": shlex.join(sys.argv),
        "versions": {"python": platform.python_version(), **versions},
        "platform": platform.platform(),
        **facts,
    }
