"""Training a whole suite: every variant on every task, what is finished reused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from .._errors import OutputError, UsageError
from .progress import AbstractProgress, Counted
from .run import RunResult, run
from .spec import Experiment, Plan, resolve
from .suites import Suite, Variant

#: What `reproduce` writes beside the runs.
PRODUCTS = {"table.json", "report.html", "figures", "record", "runs", "README.md"}


def experiments(
    suite: Suite,
    *,
    methods: Sequence[str] | None,
    seeds: int | Iterable[int],
    steps: int | None,
    preset: str | None,
) -> list[Experiment]:
    """The suite's experiments, every one checked before the first is trained."""
    if preset is not None and suite.fixed:
        raise UsageError(f"suite {suite.name!r} compares presets itself: leave --preset out.")
    labelled = {variant.label: variant for variant in suite.variants}
    chosen = [labelled.get(name, Variant(name, name)) for name in methods] if methods else suite.variants
    found = [
        Experiment(
            task,
            variant.method,
            seeds=seeds,
            steps=steps,
            preset=variant.preset or preset or "paper-code",
            settings=variant.settings,
            label=variant.label,
        )
        for task in suite.tasks
        for variant in chosen
    ]
    for experiment in found:
        resolve(experiment)
    return found


def claim(out: Path) -> None:
    """Refuse a folder that holds anything but this command's own files, before anything is trained."""
    if out.exists() and not out.is_dir():
        raise OutputError(f"{out} is a file, not a folder: choose another --out.")
    for entry in out.iterdir() if out.exists() else ():
        if not entry.name.startswith(".") and entry.name not in PRODUCTS:
            raise OutputError(
                f"{out} holds {entry.name}, which is not Curiax's: choose an empty or new folder for --out."
            )
    table = out / "table.json"
    if table.exists() and '"suite"' not in table.read_text(errors="replace"):
        raise OutputError(f"{table} was not written by Curiax: choose an empty or new folder for --out.")


def train_suite(chosen: Sequence[Experiment], store: Path, progress: AbstractProgress) -> list[RunResult]:
    """Each experiment in a folder of its own below `store`, named by its identity, so that suites can share it."""
    results = []
    for k, experiment in enumerate(chosen):
        plan = resolve(experiment)
        counted = Counted(progress, f"[{k + 1}/{len(chosen)}]")
        results.append(run(experiment, store / run_folder(plan), progress=counted))
    return results


def run_folder(plan: Plan) -> str:
    """`task_method_digest`, fit for any file system."""
    return f"{plan.task_entry.name}_{plan.method_entry.name}_{plan.run_id}".replace(":", "-").replace("/", "-")
