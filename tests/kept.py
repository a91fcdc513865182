"""Run folders made without training, for tests of what is done with finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from curiax.experiments import folder, saved
from curiax.experiments.run import describe
from curiax.experiments.spec import Experiment, resolve


def untrained(path: Path, task: Any, method: Any = "lbs", seeds: tuple[int, ...] = (3, 5), **said: Any) -> Path:
    """The folder of a run whose networks are as they are drawn; `said` is the rest of the experiment."""
    import polars

    plan = resolve(Experiment(task, method, seeds=seeds, **said))
    path.mkdir(parents=True)
    facts = {"seconds": {"start": 0.0, "train": 0.0, "cpu": 0.0}}
    folder.write(path, describe(plan, facts), polars.DataFrame({"seed": list(seeds)}))
    saved.write(path, plan, saved.fresh(plan, plan.seeds))
    return path
