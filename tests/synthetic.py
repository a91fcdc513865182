"""Runs that were never trained: folders with a manifest and a table of known numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from curiax.experiments import folder
from curiax.experiments.run import describe_grid
from curiax.experiments.spec import Experiment, resolve

ITERATIONS, STEPS = 50, 2048


def manifest(task: str, method: str, seeds: Sequence[int], **changes: Any) -> dict[str, Any]:
    """The manifest of a full run."""
    experiment = Experiment(task, method, seeds=tuple(seeds), **changes)
    plan = resolve(experiment)
    return {
        "format": folder.FORMAT,
        "run_id": plan.run_id,
        "identity": plan.identity,
        "experiment": experiment.as_json(),
        "preset": experiment.preset,
        "iterations": ITERATIONS,
        "coverage": plan.setup.loop.coverage,
        "grids": [describe_grid(grid) for grid in plan.setup.task.grids],
        "seconds": {"start": 1.0, "train": 2.0, "cpu": 4.0},
        "command": "curiax run",
        "versions": {"python": "3.11", "jax": "0.10"},
        "platform": "a laptop",
    }


def metrics(finals: Sequence[float], seeds: Sequence[int], noisy: bool = False, rng_seed: int = 0) -> pl.DataFrame:
    """Coverage that rises evenly to each seed's final value; visits and bonus known by their seed and iteration."""
    rng = np.random.default_rng(rng_seed)
    rise = np.arange(1, ITERATIONS + 1) / ITERATIONS
    rows = len(seeds) * ITERATIONS
    visits = rng.integers(0, 40, (rows, 100)).astype(np.int32)
    visits[:, 7] = 0
    columns: dict[str, Any] = {
        "seed": np.repeat(np.asarray(seeds, np.int64), ITERATIONS),
        "iteration": np.tile(np.arange(ITERATIONS, dtype=np.int32), len(seeds)),
        "step": np.tile(np.arange(1, ITERATIONS + 1, dtype=np.int64) * STEPS, len(seeds)),
        "coverage/cells": np.outer(finals, rise).reshape(-1).astype(np.float32),
        "coverage/bins": np.outer(np.asarray(finals) * 0.9, rise).reshape(-1).astype(np.float32),
        "reachable/cells": np.outer(np.asarray(finals) / 0.96, rise).reshape(-1).astype(np.float32),
        "bonus/border_share": rng.random(rows, dtype=np.float32),
        "bonus/mean": rng.random(rows, dtype=np.float32),
        "occupancy/bins": visits,
        "paid/bins": visits * rng.random((rows, 100), dtype=np.float32),
        "probe/car": rng.random((rows, 100), dtype=np.float32),
        "policy/loss": rng.random(rows, dtype=np.float32),
    }
    if noisy:
        columns |= {
            "noise/steps": rng.random(rows, dtype=np.float32),
            "noise/bonus": rng.random(rows, dtype=np.float32),
            "probe/noise": rng.random((rows, 100), dtype=np.float32),
        }
    return pl.DataFrame(columns)


def write_run(path: Path, task: str, method: str, finals: Sequence[float], first_seed: int = 0, **changes: Any) -> Path:
    """A folder as `curiax run` leaves it, with these final coverages."""
    seeds = range(first_seed, first_seed + len(finals))
    path.mkdir(parents=True)
    folder.write(path, manifest(task, method, seeds, **changes), metrics(finals, seeds, task != "mountain-car"))
    return path


__all__ = ["ITERATIONS", "STEPS", "manifest", "metrics", "write_run"]
