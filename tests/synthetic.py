"""Runs that were never trained: folders with a manifest and a table of known numbers."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from curiax.envs import NoisyMNIST
from curiax.experiments import folder
from curiax.experiments.pictures import taken
from curiax.experiments.presets import PRESETS
from curiax.experiments.run import describe_grid
from curiax.experiments.spec import Experiment, resolve
from curiax.paper.suites import ANT_MAZE, HALF_CHEETAH, PLAIN

ITERATIONS, STEPS = 50, 2048
#: Iterations of a full run on the tasks of another length.
LONGER = {HALF_CHEETAH: 245, ANT_MAZE: 123}


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
        "iterations": LONGER.get(task, ITERATIONS),
        "headline": PRESETS[experiment.preset].headline,
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


def long_metrics(task: str, coverage: np.ndarray, seeds: Sequence[int], rng_seed: int = 0) -> pl.DataFrame:
    """Half-Cheetah or Ant Maze with these curves `[S, K]`; nobody is ever in a wall or far out."""
    rng = np.random.default_rng(rng_seed)
    cells, grid = resolve(Experiment(task, "random", seeds=1)).setup.task.grids
    rows = len(seeds) * LONGER[task]
    middle = np.linalg.norm(np.indices(grid.shape) - np.array(grid.shape)[:, None, None] * 0.4, axis=0).reshape(-1)
    visits = rng.poisson(200 * np.exp(-middle), (rows, grid.size)).astype(np.int32)
    visits[:, [*grid.closed, *np.flatnonzero(middle > 0.8 * middle.max())]] = 0
    columns: dict[str, Any] = {
        "seed": np.repeat(np.asarray(seeds, np.int64), LONGER[task]),
        "iteration": np.tile(np.arange(LONGER[task], dtype=np.int32), len(seeds)),
        "step": np.tile(np.arange(1, LONGER[task] + 1, dtype=np.int64) * STEPS, len(seeds)),
        "coverage/cells": coverage.reshape(-1).astype(np.float32),
        "coverage/bins": (0.9 * coverage).reshape(-1).astype(np.float32),
        "bonus/border_share": rng.random(rows, dtype=np.float32),
        "bonus/mean": rng.random(rows, dtype=np.float32),
        "occupancy/bins": visits,
        "paid/bins": visits * rng.random((rows, grid.size), dtype=np.float32),
    }
    columns |= {f"{kind}/cells": np.ones((rows, cells.size), np.float32) for kind in ("occupancy", "paid")}
    return pl.DataFrame(columns)


def cheetah(finals: Sequence[float]) -> np.ndarray:
    """Coverage of Half-Cheetah that rises fast at first to each seed's final value."""
    return np.outer(finals, np.sqrt(np.arange(1, 246) / 245))


def maze(cells: Sequence[int], arrival: Sequence[int]) -> np.ndarray:
    """Coverage of Ant Maze: each seed visits so many of the 7 cells, the last one in that iteration (from 1)."""
    k = np.arange(1, 124)
    done = [np.clip(1 + (n - 1) * k // at, 1, n) for n, at in zip(cells, arrival, strict=True)]
    return 100 * np.array(done) / 7


#: The names of the two kinds of transitions, and the samples of them.
KINDS, SAMPLES = ("1 → 2…9", "0 → 1"), 12


def compared_manifest(method: str, seeds: Sequence[int], iterations: int, **changes: Any) -> dict[str, Any]:
    """The manifest of a run on Noisy MNIST."""
    facts = manifest("mnist", method, seeds, **changes)
    return {**facts, "iterations": iterations, "compared": list(KINDS), **pictures()}


@functools.cache
def pictures() -> dict[str, Any]:
    """What a run on Noisy MNIST keeps of its samples."""
    return taken(NoisyMNIST())


def compared_metrics(first: np.ndarray, second: np.ndarray, seeds: Sequence[int], steps: int) -> pl.DataFrame:
    """Mean bonuses `[S, N]` of two kinds of transitions, so many steps an iteration; samples are paid likewise."""
    count, rng = first.shape[1], np.random.default_rng(0)
    paid = np.repeat(np.stack([first, second], axis=-1), SAMPLES // 2, axis=-1).reshape(-1, SAMPLES)
    columns: dict[str, Any] = {
        "seed": np.repeat(np.asarray(seeds, np.int64), count),
        "iteration": np.tile(np.arange(count, dtype=np.int32), len(seeds)),
        "step": np.tile(np.arange(1, count + 1, dtype=np.int64) * steps, len(seeds)),
        "ratio/bonus": (first / second).reshape(-1).astype(np.float32),
        "ratio/first": first.reshape(-1).astype(np.float32),
        "ratio/second": second.reshape(-1).astype(np.float32),
        "bonus/mean": ((first + second) / 2).reshape(-1).astype(np.float32),
        "bonus/border_share": np.ones(first.size, np.float32),
        "samples/bonus": (paid * np.exp(rng.normal(0, 0.2, paid.shape))).astype(np.float32),
    }
    return pl.DataFrame(columns)


def game_manifest(task: str, method: str, seeds: Sequence[int], iterations: int, **changes: Any) -> dict[str, Any]:
    """The manifest of a run on an arcade game, cut to so many iterations."""
    return {**manifest(task, method, seeds, **changes), "iterations": iterations}


def game_metrics(
    score: np.ndarray, length: np.ndarray, seeds: Sequence[int], steps: int, rooms: np.ndarray | None = None
) -> pl.DataFrame:
    """Scores and lengths `[S, N]` of the episodes that ended, NaN before the first; rooms in per cent of 24."""
    count, rng = score.shape[1], np.random.default_rng(0)
    best = np.fmax.accumulate(1.5 * score, axis=1)
    ended = np.cumsum(np.where(np.isnan(score), 0, steps / np.nan_to_num(length, nan=1.0)), axis=1)
    columns: dict[str, Any] = {
        "seed": np.repeat(np.asarray(seeds, np.int64), count),
        "iteration": np.tile(np.arange(count, dtype=np.int32), len(seeds)),
        "step": np.tile(np.arange(1, count + 1, dtype=np.int64) * steps, len(seeds)),
        "game/score": score.reshape(-1).astype(np.float32),
        "game/length": length.reshape(-1).astype(np.float32),
        "game/best": best.reshape(-1).astype(np.float32),
        "game/episodes": np.floor(ended).reshape(-1).astype(np.float32),
        "bonus/mean": rng.random(score.size, dtype=np.float32),
        "bonus/border_share": rng.random(score.size, dtype=np.float32),
    }
    if rooms is not None:
        columns["coverage/rooms"] = (100 * rooms / 24).reshape(-1).astype(np.float32)
    return pl.DataFrame(columns)


def write_run(path: Path, task: str, method: str, finals: Sequence[float], first_seed: int = 0, **changes: Any) -> Path:
    """A folder as `curiax run` leaves it, with these final coverages."""
    seeds = range(first_seed, first_seed + len(finals))
    path.mkdir(parents=True)
    folder.write(path, manifest(task, method, seeds, **changes), metrics(finals, seeds, task != PLAIN))
    # Without digests, as versions before 0.4 wrote it: tests change the table, and want to hear what is wrong with it.
    facts = json.loads((path / folder.MANIFEST).read_text())
    unsealed = {name: value for name, value in facts.items() if name not in ("files", "seal")}
    (path / folder.MANIFEST).write_text(json.dumps({**unsealed, "format": "curiax-run-1"}))
    return path


__all__ = ["ITERATIONS", "STEPS", "cheetah", "long_metrics", "manifest", "maze", "metrics", "write_run"]
