"""What checkpoints cost: iterations with one beside the iterations around them, of the same run, on a quiet machine.

Whole runs with and without checkpoints differ by several per cent on a shared machine for no reason of ours, which
hides a cost of one per cent. So each run measures itself: the iterations during which a checkpoint is taken and
written, against as many just before and just after it, when none is. What they take longer, of all checkpoints of the
run, is their cost. At the default interval, of runs that last some checkpoints, and of a short one of Half-Cheetah,
where the first weighs most. Each run is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
from common import TASKS, Saves, say

from curiax.experiments.progress import Silent

#: Task, and steps of each of eight seeds, with the settings that people use: a minute or so, and half of that.
RUNS = (("mountain-car", 409_600), ("half-cheetah", 163_840), ("half-cheetah", 81_920))
#: How much checkpoints may cost, of the training time.
MOST_PERCENT = 3.0
#: Seconds before a checkpoint is seen in its folder, and after, that count as those with a checkpoint.
BEFORE, AFTER = 1.5, 1.0
#: The state leaves the device two iterations before at most, and what the writer leaves behind is done one after.
ITERATIONS_BEFORE, ITERATIONS_AFTER = 2, 1


class Clock(Silent):
    """Notes the time, the CPU time and the number of checkpoints after each iteration."""

    def __init__(self, run: Path) -> None:
        self.saves = Saves(run)
        self.noted: list[tuple[float, float, float]] = []

    def advance(self, iteration: int, latest: Mapping[str, np.ndarray]) -> None:
        self.noted.append((time.perf_counter(), time.process_time(), self.saves.look()))


def extra(spent: np.ndarray, ended: np.ndarray, seen: int) -> float:
    """Seconds that the iterations about a checkpoint took more than as many without one.

    `spent [N]` and `ended [N]` are each iteration's seconds and its end; `seen` is the iteration after which the
    checkpoint was first seen. Iterations on both sides are compared with, so that a machine that slows down or speeds
    up over these seconds is fair to both.
    """
    first = min(int(np.searchsorted(ended, ended[seen] - BEFORE)), seen - ITERATIONS_BEFORE)
    last = max(int(np.searchsorted(ended, ended[seen] + AFTER)), seen + ITERATIONS_AFTER)
    first, last = max(first, 0), min(last, len(spent) - 1)
    count = last + 1 - first
    sides = (spent[max(first - count, 0) : first], spent[last + 1 : last + 1 + count])
    usual = np.mean([side.mean() for side in sides if len(side)])
    return float(spent[first : last + 1].sum() - count * usual)


def measured(task: str, steps: int) -> dict[str, Any]:
    """The seconds of one run, and what each of its checkpoints added to them."""
    import curiax

    with tempfile.TemporaryDirectory() as folder:
        clock = Clock(Path(folder) / "run")
        curiax.run(curiax.Experiment(task, "lbs", seeds=8, steps=steps), Path(folder) / "run", progress=clock)
    ended, cpu, checkpoints = np.asarray(clock.noted).T
    # Of the first iteration only the end is known.
    seen = np.flatnonzero(np.diff(checkpoints))
    found: dict[str, Any] = {}
    for kind, times in (("train", ended), ("cpu", cpu)):
        spent = np.diff(times)
        added = [extra(spent, ended[1:], int(at)) for at in seen]
        found[kind] = {
            "seconds": round(float(spent.sum()), 2),
            "added": [round(one, 3) for one in added],
            "cost_percent": 100.0 * sum(added) / (float(spent.sum()) - sum(added)),
        }
    return found


def soak(repeats: int = 6, runs: Sequence[tuple[str, int]] = RUNS) -> dict[str, Any]:
    """The cost at the default interval, in wall-clock and in CPU time: mean of the runs, and its 95 % interval."""
    import curiax

    found = []
    for task, steps in runs:
        reports = []
        for _ in range(repeats):
            command = [sys.executable, __file__, "--task", task, "--steps", str(steps)]
            reports.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
            say(f"{task}: {reports[-1]['train']['cost_percent']:+.2f} %, added {reports[-1]['train']['added']} s")
        entry: dict[str, Any] = {
            "task": task,
            "steps": steps,
            "seeds": 8,
            "checkpoint_seconds": curiax.RunOptions().checkpoint_seconds,
            "checkpoints": [len(one["train"]["added"]) for one in reports],
        }
        for kind in ("train", "cpu"):
            costs = [one[kind]["cost_percent"] for one in reports]
            mean = statistics.mean(costs)
            # Student's t over the runs; a rehearsal of one run has no spread.
            half = scipy.stats.t.ppf(0.975, repeats - 1) * scipy.stats.sem(costs) if repeats > 1 else 0.0
            entry[kind] = {
                "seconds": [one[kind]["seconds"] for one in reports],
                "added_by_each": [one[kind]["added"] for one in reports],
                "cost_percent_of_each": [round(cost, 2) for cost in costs],
                "cost_percent": round(mean, 2),
                "interval": [round(mean - half, 2), round(mean + half, 2)],
            }
        # The whole interval: a cost that might be more is not shown to be less.
        entry["passed"] = bool(entry["train"]["interval"][1] < MOST_PERCENT and min(entry["checkpoints"]) > 0)
        found.append(entry)
    return {"runs": found, "repeats": repeats, "passed": all(entry["passed"] for entry in found)}


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=6)
    options.add_argument("--task", choices=TASKS, help="one run of this task, in this process")
    options.add_argument("--steps", type=int, default=RUNS[0][1])
    args = options.parse_args()
    print(json.dumps(measured(args.task, args.steps) if args.task else soak(args.repeats), indent=2))
