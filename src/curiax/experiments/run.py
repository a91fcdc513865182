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
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._contract import check_method_shapes, check_task_shapes
from .._errors import NonFiniteError, SimulatorError, UsageError, unknown
from .._stats import Moments
from .._types import Grid
from ..envs import AbstractHostTask, AbstractTask
from ..train import devices
from ..train.batch import compile_chunk, first_states, padded, place, seed_mesh
from ..train.hosted import Lane, open_lanes, run_lanes
from . import folder, saved
from .options import RunOptions
from .progress import AbstractProgress, Silent, headline_metric
from .registry import METHODS, TASKS
from .soundness import PREFIX, find_faults
from .spec import Experiment, Plan, require, resolve

if TYPE_CHECKING:
    import polars

#: What to do about a simulation that ran away.
REMEDY = (
    "Actions or rewards that grow without bound are the usual cause: look at policy/action_std in the metrics, lower "
    "ppo.learning_rate, or give the simulator a smaller time step."
)
#: What decides the bits of a run on the host, beside the packages below.
SIMULATORS = ("mujoco", "gymnasium", "numba")
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
    experiment: Experiment,
    out: str | Path | None = None,
    *,
    progress: AbstractProgress | None = None,
    options: RunOptions | None = None,
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
    options = options or RunOptions()
    plan = resolve(experiment)
    plan = dataclasses.replace(plan, setup=dataclasses.replace(plan.setup, on_nonfinite=options.on_nonfinite))
    where = None if out is None else Path(out)
    done = None if where is None else folder.existing_run(where, plan.identity)
    if where is not None and done is not None:
        return RunResult(plan, folder.read_metrics(where), done, where, True)
    with contextlib.ExitStack() as stack:
        stage = None if where is None else stack.enter_context(folder.staged(where))
        check(plan)
        metrics, facts, training = train(plan, progress or Silent(), begun)
        metrics = leave_out(plan, metrics, training.lost)
        table = tidy(plan, metrics, training.lost)
        manifest = describe(plan, facts)
        if training.lost:
            manifest["lost"] = {str(seed): message for seed, message in training.lost.items()}
        if stage is not None:
            folder.write(stage, manifest, table)
            saved.write(stage, plan, training.saved())
    return RunResult(plan, table, manifest, where, False)


def check(plan: Plan) -> None:
    """Refuse a user's task or method whose shapes do not fit, before anything is compiled.

    Curiax's own are held to the same contract by the tests.
    """
    require(plan)
    task, name = plan.setup.task, plan.method_entry.name
    if plan.task_entry.name not in TASKS and isinstance(task, AbstractTask):
        check_task_shapes(task, plan.task_entry.name)
    if name not in METHODS:
        check_method_shapes(plan.build_model(jax.random.key(0)), task.spec, name)


class Training:
    """All iterations of all seeds, chunk by chunk: compiled when made, run when iterated over."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.lanes: list[Lane] = []
        #: Seeds that are left out of the results, and why.
        self.faulty: dict[int, str] = {}
        if isinstance(plan.setup.task, AbstractHostTask):
            self.lanes = open_lanes(plan.setup, plan.build_model, plan.seeds)
            self.devices = [str(lane.device) for lane in self.lanes]
            return
        mesh = seed_mesh(devices.devices_for(len(plan.seeds)))
        self.devices = [str(device) for device in mesh.devices.flat]
        state = first_states(plan.setup, plan.build_model, padded(plan.seeds, mesh.size))
        self._arrays, self._static = place(state, mesh)
        self._call = compile_chunk(plan.setup, self._static, mesh, plan.chunk, self._arrays)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        """The metrics `[S, K]` of one chunk after another."""
        if self.lanes:
            for metrics in run_lanes(self.lanes, self.plan.iterations):
                yield {name: value[:, None] for name, value in metrics.items()}
            return
        for _ in range(self.plan.iterations // self.plan.chunk):
            self._arrays, metrics = self._call(self._arrays)
            yield {name: np.asarray(value)[: len(self.plan.seeds)] for name, value in metrics.items()}

    @property
    def lost(self) -> dict[int, str]:
        """Seeds whose simulation failed, and how."""
        of_lanes = {seed: message for lane in self.lanes for seed, message in lane.lost.items()}
        return {**self.faulty, **of_lanes}

    def saved(self) -> saved.Saved:
        """What every seed that is left has learnt, on the host."""
        if self.lanes:
            states = [lane.train_state for lane in self.lanes]
            statistics: list[Moments | None] = [lane.obs_stats for lane in self.lanes]
        else:
            states = [eqx.combine(self._arrays, self._static)]
            statistics = [states[0].obs_stats]
        parts = [
            (saved.networks(state.agent), state.curiosity, stats)
            for state, stats in zip(states, statistics, strict=True)
        ]
        kept = [k for k, seed in enumerate(self.plan.seeds) if seed not in self.lost]
        agent, curiosity, stats = jax.tree.map(lambda *leaves: joined(leaves, kept), *parts)
        return saved.Saved(agent, curiosity, stats, tuple(self.plan.seeds[k] for k in kept))

    def close(self) -> None:
        """Free the simulators."""
        for lane in self.lanes:
            lane.fleet.close()


def joined(leaves: Sequence[Any], kept: Sequence[int]) -> Any:
    """The kept seeds of several lanes in one array on the host; what is no array stays as it is."""
    if not eqx.is_array(leaves[0]):
        return leaves[0]
    if jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
        return jnp.concatenate(leaves)[np.asarray(kept)]
    return np.concatenate([np.asarray(leaf) for leaf in leaves])[np.asarray(kept)]


def train(
    plan: Plan, progress: AbstractProgress, begun: float
) -> tuple[dict[str, np.ndarray], dict[str, Any], Training]:
    """The metrics `[S, K]` of all seeds, the layout and timings since `begun`, and what was trained."""
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    label = plan.experiment.label or plan.method_entry.name
    progress.start(f"{label} on {plan.task_entry.name}", plan.iterations, plan.steps)
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(progress.finish)
        training = Training(plan)
        cleanup.callback(training.close)
        compiled, busy = time.perf_counter(), time.process_time()
        chunks: list[dict[str, np.ndarray]] = []
        done = 0
        for chunk in training:
            contain_faults(plan, chunk, done, training.faulty)
            refuse_nothing_left(plan, training.lost)
            chunks.append(chunk)
            done += next(iter(chunk.values())).shape[1]
            progress.advance(done, {name: value[:, -1] for name, value in chunk.items()})
    ended, worked = time.perf_counter(), time.process_time()
    facts = {
        "started": started,
        # CPU time beside wall-clock: on a shared machine only the former compares methods.
        "seconds": {
            "start": round(compiled - begun, 3),
            "train": round(ended - compiled, 3),
            "cpu": round(worked - busy, 3),
        },
        "devices": training.devices,
        "chunk": 1 if training.lanes else plan.chunk,
    }
    return {name: np.concatenate([c[name] for c in chunks], axis=1) for name in chunks[0]}, facts, training


def refuse_nothing_left(plan: Plan, lost: Mapping[int, str]) -> None:
    """Stop when every seed is lost."""
    if len(lost) == len(plan.seeds):
        raise SimulatorError(f"task {plan.task_entry.name!r}: {next(iter(lost.values()))}. No seed is left. {REMEDY}")


def leave_out(plan: Plan, metrics: dict[str, np.ndarray], lost: Mapping[int, str]) -> dict[str, np.ndarray]:
    """The metrics without the lost seeds."""
    if not lost:
        return metrics
    kept = [k for k, seed in enumerate(plan.seeds) if seed not in lost]
    warnings.warn(
        f"task {plan.task_entry.name!r}: {'; '.join(lost.values())}. The other {len(kept)} seeds are finished and "
        f"kept; the results leave the lost ones out and say so. {REMEDY}",
        stacklevel=3,
    )
    return {name: value[kept] for name, value in metrics.items()}


def contain_faults(plan: Plan, chunk: Mapping[str, np.ndarray], begun: int, lost: dict[int, str]) -> None:
    """Stop at the first unsound value and say whose it is, or note the seeds that are lost by it."""
    for fault in find_faults(plan, chunk, begun):
        if plan.setup.on_nonfinite != "drop":
            raise NonFiniteError(fault.error)
        lost.setdefault(fault.seed, fault.message)


def tidy(plan: Plan, metrics: Mapping[str, np.ndarray], lost: Mapping[int, str]) -> polars.DataFrame:
    """One row for each seed that is left and each iteration, one column for each metric."""
    import polars as pl

    left = [seed for seed in plan.seeds if seed not in lost]
    seeds, iterations = len(left), plan.iterations
    columns: dict[str, Any] = {
        "seed": np.repeat(np.asarray(left, np.int64), iterations),
        "iteration": np.tile(np.arange(iterations, dtype=np.int32), seeds),
        "step": np.tile(np.arange(1, iterations + 1, dtype=np.int64) * (plan.steps // iterations), seeds),
    }
    # A device may divide by multiplying with a rounded reciprocal; seven of seven cells are 100 %, to the last bit.
    parts = {f"coverage/{grid.name}": grid.nominal for grid in plan.setup.task.grids}
    for name in sorted(metrics):
        if not name.startswith(PREFIX):
            values = metrics[name].reshape((seeds * iterations, *metrics[name].shape[2:]))
            if name in parts:
                values = (100.0 * np.rint(values * (parts[name] / 100.0)) / parts[name]).astype(np.float32)
            columns[name] = values
    return pl.DataFrame(columns)


def describe_grid(grid: Grid) -> dict[str, Any]:
    """A grid for readers that do not have the task: `shape` indices, of which `nominal` make 100 %."""
    return {**dataclasses.asdict(grid), "shape": grid.shape, "nominal": grid.nominal}


def describe(plan: Plan, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Everything needed to know what was run, and to run it again."""
    names = (*PACKAGES, *(SIMULATORS if isinstance(plan.setup.task, AbstractHostTask) else ()))
    versions = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
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
