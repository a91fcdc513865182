"""Running an experiment: check, compile, train all seeds, keep the results."""

from __future__ import annotations

import contextlib
import dataclasses
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
import numpy as np
from pydantic import TypeAdapter, ValidationError

from .._contract import check_method_shapes, check_task_shapes
from .._errors import (
    ContractError,
    CuriaxError,
    Interrupted,
    NonFiniteError,
    OutOfMemoryError,
    SimulatorError,
    UsageError,
    left,
    unknown,
)
from .._source import code
from .._text import clean_data
from .._types import Grid
from ..train import devices
from ..train.batch import HostReport
from ..train.measures import measured
from . import folder, saved
from .interrupt import DONE, Stop, interruptible, listening
from .manifest import Notes, complaint
from .options import RunOptions
from .pictures import taken
from .progress import AbstractProgress, Silent
from .registry import METHODS, TASKS
from .session import Session, installed
from .soundness import find_faults
from .spec import Experiment, Plan, require, resolve
from .store import Checkpoints, joined, staged, state_digest
from .training import Training
from .writer import CheckpointWriter, initially_infinite

if TYPE_CHECKING:
    import polars

#: What to do about a seed that was lost.
REMEDY = (
    "Values that grow without bound are the usual cause: look at policy/action_std and the losses in the metrics, "
    "lower ppo.learning_rate or learner.learning_rate, or give a simulator that runs away a smaller time step."
)


@dataclass(frozen=True)
class RunResult:
    """A finished run: one row of metrics for each seed and iteration, and the manifest beside it."""

    plan: Plan
    metrics: polars.DataFrame
    manifest: Mapping[str, Any]
    path: Path | None
    reused: bool
    #: The metric that is to be shown first, where one was asked for.
    wanted: str | None = None

    @property
    def headline(self) -> str | None:
        """The metric that is shown first."""
        return self.plan.headline(self.metrics.columns, self.wanted)

    def final(self, metric: str | None = None) -> dict[int, float]:
        """Each seed's last value of a metric, by default of the headline."""
        import polars as pl

        name = metric or self.headline or ""
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

    With `out`, the folder receives `metrics.parquet` and `manifest.json` when the run is finished, and checkpoints
    until then: the same call continues a run that was stopped or killed, to the same bits, and reads one that is
    finished instead of repeating it. Nothing is compiled before the experiment, the task, the method and the folder
    have been checked.
    """
    begun = time.perf_counter()
    if not isinstance(experiment, Experiment):
        raise UsageError(f"experiment = {experiment!r}: must be a curiax.Experiment, such as Experiment(task, method).")
    if out is not None and not isinstance(out, str | os.PathLike):
        raise UsageError(f"out = {out!r}: must be a folder's path, or None to keep the results in memory.")
    try:
        return found_or_made(experiment, out, options, progress, begun)
    except SystemExit as error:
        raise left(f"task {experiment.task!r} or method {experiment.method!r}", error) from error


def found_or_made(
    experiment: Experiment,
    out: str | os.PathLike[str] | None,
    options: RunOptions | None,
    progress: AbstractProgress | None,
    begun: float,
) -> RunResult:
    """The finished run that is there already, or a new one."""
    options, progress = options or RunOptions(), progress or Silent()
    plan = resolve(experiment).with_nonfinite(options.on_nonfinite)
    declared = [metric.name for metric in plan.metrics]
    if options.headline is not None and options.headline not in declared:
        raise unknown("metric", options.headline, declared)
    if options.devices_per_seed > 1 and not plan.setup.task.screen:
        raise UsageError(
            f"devices_per_seed = {options.devices_per_seed} is for arcade games; task {plan.task_entry.name!r} is "
            "none. Its seeds are spread over all devices anyway."
        )
    if out is None:
        devices.prepare()
        return carry_out(plan, None, None, progress, options, begun)
    where = Path(out)
    while True:
        done = folder.existing_run(where, plan.identity)
        if done is not None:
            folder.tidy_up(where)
            warn_of_choices(where, done, plan, options)
            return RunResult(plan, folder.read_metrics(where, done), done, where, True, options.headline)
        with folder.claimed(where, wait=options.wait) as checkpoints:
            if folder.read_manifest(where) is None:
                store = Checkpoints(checkpoints, plan.identity, options.keep)
                # Never fewer than there are cores: other runs of this process want them.
                devices.prepare(max(store.layout() or 0, devices.cpu_cores()))
                return carry_out(plan, where, store, progress, options, begun)


def carry_out(
    plan: Plan,
    where: Path | None,
    store: Checkpoints | None,
    progress: AbstractProgress,
    options: RunOptions,
    begun: float,
) -> RunResult:
    """Train what is left of a run, and keep the results if there is a place for them."""
    check(plan)
    notes = notes_of(plan)
    with contextlib.ExitStack() as cleanup:
        # Without a place to save to, Ctrl-C ends the run as it ends any program.
        if store is None:
            stop = Stop()
            cleanup.enter_context(interruptible())
        else:
            stop = cleanup.enter_context(listening(progress.say))
        metrics, facts, training = train(plan, notes, store, progress, options, begun, stop)
        metrics = leave_out(plan, metrics, training.lost)
        table = tidy(plan, metrics, training.lost)
        manifest = describe(plan, facts, table.columns, options.headline)
        if training.lost:
            manifest["lost"] = {str(seed): message for seed, message in training.lost.items()}
        if where is not None and store is not None:
            with folder.written(where), staged(store.folder) as stage:
                saved.write(stage, plan, training.saved())
                folder.write(stage, manifest, table)
                folder.publish(stage, where)
    return RunResult(plan, table, manifest, where, False, options.headline)


def warn_of_choices(where: Path, manifest: Mapping[str, Any], plan: Plan, options: RunOptions) -> None:
    """Say so where a finished run was made with other choices about unsound values, or with other things installed."""
    with contextlib.suppress(CuriaxError):  # whoever reads a run need not have what it was made with
        kept, found = manifest.get("notes", {}), notes_of(plan)
        changed = [f"{name}: {kept[name]}, now {text}" for name, text in found.items() if kept.get(name, text) != text]
        if changed:
            warnings.warn(f"{where} was trained with another {'; '.join(changed)}; it is read as it is", stacklevel=3)
    made = manifest.get("on_nonfinite", ["stop"])
    if options.on_nonfinite not in made or len(made) > 1:
        warnings.warn(
            f"{where} was trained with --on-nonfinite {', then '.join(made)}; it is read as it is", stacklevel=3
        )


def check(plan: Plan) -> None:
    """Refuse a user's task or method whose shapes do not fit, before anything is compiled.

    Curiax's own are held to the same contract by the tests.
    """
    require(plan)
    task, name = plan.setup.task, plan.method_entry.name
    if plan.task_entry.name not in TASKS:
        check_task_shapes(task, plan.task_entry.name)
    if not plan.agent_entry.curious:
        networks = plan.setup.agent.build(key=jax.random.key(0))
        if not isinstance(networks, eqx.Module):
            raise ContractError(
                f"agent {plan.agent_entry.name!r}: build returns {type(networks).__name__}; it must be an "
                "equinox.Module, whose fields name the arrays that are kept."
            )
    if name not in METHODS and plan.build_method is not None:
        check_method_shapes(plan.build_method(jax.random.key(0)), task.spec, name)


def notes_of(plan: Plan) -> dict[str, str]:
    """What the task says of what is installed, fit for a manifest."""
    notes = plan.setup.task.notes()
    try:
        return clean_data(TypeAdapter(Notes).validate_python(dict(notes), strict=True))
    except (TypeError, ValueError) as error:
        why = complaint(error) if isinstance(error, ValidationError) else str(error)
        raise ContractError(f"notes() of task {plan.task_entry.name!r} must map names to texts: {why}.") from None


@contextlib.contextmanager
def telling_of_memory(plan: Plan) -> Iterator[None]:
    """Say what to lower where a device has too little memory."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        names = ("loop.envs", "loop.rollout", "ppo.minibatch_size", "learner.minibatch_size")
        now = ", ".join(f"{name} = {plan.settings[name]}" for name in names if name in plan.settings)
        game = plan.setup.task.screen and not plan.setup.loop.mixed_precision
        raise OutOfMemoryError(
            f"the device has too little memory for this run ({now}; {len(plan.seeds)} seeds): train fewer seeds at "
            f"once or lower one of these, the minibatches first{', or set loop.mixed_precision' if game else ''}. If "
            "others use the device, the same command goes on "
            f"from the last checkpoint when there is room. JAX says: {str(error).splitlines()[0][:200]}"
        ) from error


def train(
    plan: Plan,
    notes: Mapping[str, str],
    store: Checkpoints | None,
    progress: AbstractProgress,
    options: RunOptions,
    begun: float,
    stop: Stop,
) -> tuple[dict[str, np.ndarray], dict[str, Any], Training]:
    """The metrics `[S, K]` of all seeds, the layout and timings since `begun`, and what was trained."""
    session = Session(plan, begun, notes)
    title = f"{plan.name} on {plan.task_entry.name}"
    per_iteration = plan.steps // plan.iterations
    with contextlib.ExitStack() as cleanup:
        snapshot = None if store is None else store.newest(lambda text: warnings.warn(text, stacklevel=2))
        stop.check()
        layout, team = None, options.devices_per_seed
        if snapshot is not None:
            layout, team = session.follow(snapshot, options.allow_drift)
            title += f", from step {snapshot.iteration * per_iteration:,}"
        devices.teams(len(plan.seeds), team)  # refuses a team of more devices than there are before anything else
        cleanup.callback(progress.finish)
        cleanup.enter_context(telling_of_memory(plan))
        progress.declare(plan, options.headline)
        progress.start(title, plan.iterations, plan.steps)
        for name, text in notes.items():
            progress.note(f"{name}: {text}")
        if snapshot is None and (preparation := plan.setup.task.preparation):
            progress.note(preparation)
        training = Training(plan, layout, team)
        cleanup.callback(training.close)
        wanted = initially_infinite(training.snapshot().arrays)
        writer = CheckpointWriter(store, options.checkpoint_seconds, wanted)
        cleanup.callback(writer.close)
        if snapshot is not None:
            training.resume(snapshot)
        session.compiled()
        stop.begin(training.ask)
        for iteration in training:
            contain_faults(plan, iteration.report, training.done - 1, training.faulty)
            refuse_nothing_left(plan, training.lost)
            writer.add(iteration.report.metrics)
            left = [k for k, seed in enumerate(plan.seeds) if seed not in training.lost]
            progress.advance(training.done, {name: value[left, -1] for name, value in iteration.report.metrics.items()})
            if iteration.snapshot is not None:
                settled = session.noted(training.settled(iteration.snapshot))
                writer.save(settled, training.judged(settled))
            # After the last iteration there is nothing to come back for.
            over = training.done == plan.iterations
            if store is not None and stop.signal is not None and iteration.snapshot is not None and not over:
                writer.wait()
                reached, kept = training.done * per_iteration, writer.saved * per_iteration
                raise Interrupted(stopped(store.folder.parent, reached, kept, plan.steps), stop.exit_code)
            if writer.due or stop.signal is not None:
                training.ask()
        stop.notice = DONE
        writer.wait()
        facts = {
            **session.facts(),
            "devices": training.devices,
            "digest": state_digest(training.snapshot().arrays),
        }
    return joined(writer.metrics()), facts, training


def stopped(where: Path, step: int, kept: int, steps: int) -> str:
    """What is said when a run was told to stop and has."""
    again = shlex.join(["curiax", *sys.argv[1:]]) if Path(sys.argv[0]).stem == "curiax" else "the same call"
    saved = "all of it" if kept == step else f"{kept:,} of them" if kept else "nothing"
    return f"stopped at step {step:,} of {steps:,}, {saved} saved in {where}. To continue: {again}"


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


def contain_faults(plan: Plan, report: HostReport, begun: int, lost: dict[int, str]) -> None:
    """Stop at the first unsound value and say whose it is, or note the seeds that are lost by it."""
    for fault in find_faults(plan, report, begun):
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
        values = metrics[name].reshape((seeds * iterations, *metrics[name].shape[2:]))
        if name in parts:
            values = (100.0 * np.rint(values * (parts[name] / 100.0)) / parts[name]).astype(np.float32)
        columns[name] = values
    return pl.DataFrame(columns)


def describe_grid(grid: Grid) -> dict[str, Any]:
    """A grid for readers that do not have the task: `shape` indices, of which `nominal` make 100 %."""
    return {**dataclasses.asdict(grid), "shape": grid.shape, "nominal": grid.nominal}


def command() -> str:
    """The command line as a user would type it."""
    program = Path(sys.argv[0])
    script = ["curiax"] if program.name == "curiax" else [sys.argv[0]]  # wherever it is installed
    start = ["python", "-m", "curiax"] if program.parts[-2:] == ("curiax", "__main__.py") else script
    # What is no text would not survive the manifest.
    return shlex.join([*start, *sys.argv[1:]]).encode("utf-8", "replace").decode()


def describe(
    plan: Plan, facts: Mapping[str, Any], columns: Sequence[str] = (), wanted: str | None = None
) -> dict[str, Any]:
    """Everything needed to know what was run, and to run it again."""
    return {
        "run_id": plan.run_id,
        "identity": plan.identity,
        "experiment": plan.experiment.as_json(),
        "preset": plan.experiment.preset,
        "iterations": plan.iterations,
        "metrics": {name: metric.as_json() for name, metric in measured(columns, plan.metrics).items()},
        "headline": plan.headline(columns, wanted),
        "grids": [describe_grid(grid) for grid in plan.setup.task.grids],
        **({"compared": list(plan.setup.task.compared)} if plan.setup.task.compared else {}),
        "command": command(),
        "code": code().as_json(),
        "versions": installed(plan),
        "platform": platform.platform(),
        **taken(plan.setup.task),
        **facts,
    }
