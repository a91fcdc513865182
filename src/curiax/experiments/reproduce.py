"""Training a whole suite: every method on every task, what is finished reused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .._errors import OutputError
from . import folder
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


def claim(out: Path) -> None:
    """Refuse a folder that holds anything but this command's own files, before anything is trained."""
    ours = {"table.json", "coverage.png", "coverage.svg"}
    if out.exists() and not out.is_dir():
        raise OutputError(f"{out} is a file, not a folder: choose another --out.")
    for entry in out.iterdir() if out.exists() else ():
        if not entry.name.startswith(".") and entry.name not in ours and folder.read_manifest(entry) is None:
            raise OutputError(
                f"{out} holds {entry.name}, which is not Curiax's: choose an empty or new folder for --out."
            )
    table = out / "table.json"
    if table.exists() and '"suite"' not in table.read_text(errors="replace"):
        raise OutputError(f"{table} was not written by Curiax: choose an empty or new folder for --out.")


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
