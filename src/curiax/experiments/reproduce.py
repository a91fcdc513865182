"""Training a whole suite: every method on every task, what is finished reused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .progress import AbstractProgress
from .run import RunResult, run
from .spec import Experiment, Plan, resolve
from .suites import Suite


def experiments(
    suite: Suite,
    *,
    methods: Sequence[str] | None,
    seeds: int | Iterable[int],
    steps: int | None,
    preset: str,
) -> list[Experiment]:
    """The suite's experiments, every one checked before the first is trained."""
    shared: dict[str, Any] = {"seeds": seeds, "steps": steps, "preset": preset}
    chosen = [Experiment(task, method, **shared) for task in suite.tasks for method in methods or suite.methods]
    for experiment in chosen:
        resolve(experiment)
    return chosen


def train_suite(chosen: Sequence[Experiment], out: Path, progress: AbstractProgress) -> list[RunResult]:
    """Each experiment in a folder of its own below `out`, named by its identity."""
    results = []
    for experiment in chosen:
        plan = resolve(experiment)
        results.append(run(experiment, out / run_folder(plan), progress=progress))
    return results


def run_folder(plan: Plan) -> str:
    """`task_method_digest`, fit for any file system."""
    return f"{plan.task_entry.name}_{plan.method_entry.name}_{plan.run_id}".replace(":", "-").replace("/", "-")
