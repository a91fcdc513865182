"""What checkpoints cost: the same run with and without them, in turn, on a quiet machine.

At the default interval, of runs that last some of them, and of Half-Cheetah also at the paper's budget, which sees one.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import TASKS, Saves, say

from curiax.experiments.progress import Silent

#: Task, and steps of each of eight seeds, with the settings that people use: a minute or so, and the paper's budget.
RUNS = (("mountain-car", 409_600), ("half-cheetah", 245_760), ("half-cheetah", 81_920))
#: How much checkpoints may cost, of the training time.
MOST_PERCENT = 3.0


class Count(Silent):
    """Counts the checkpoints of a run."""

    def __init__(self, run: Path) -> None:
        self.saves = Saves(run)

    def advance(self, iteration: int, latest: Mapping[str, np.ndarray]) -> None:
        self.saves.look()


def seconds(task: str, steps: int, every: float) -> dict[str, float]:
    """The training time of one run with a checkpoint every so many seconds, and how many there were."""
    import curiax

    with tempfile.TemporaryDirectory() as folder:
        count = Count(Path(folder) / "run")
        result = curiax.run(
            curiax.Experiment(task, "lbs", seeds=8, steps=steps),
            Path(folder) / "run",
            progress=count,
            options=curiax.RunOptions(checkpoint_seconds=every),
        )
    return {**result.manifest["seconds"], "checkpoints": len(count.saves.seen)}


def soak(repeats: int = 3, runs: Sequence[tuple[str, int]] = RUNS) -> dict[str, Any]:
    """The cost at the default interval, in wall-clock and in CPU time, from the medians of alternating runs."""
    import curiax

    usual = curiax.RunOptions().checkpoint_seconds
    found = []
    for task, steps in runs:
        times: dict[float, list[dict[str, float]]] = {usual: [], math.inf: []}
        for turn in range(repeats):
            # Each of the two comes first as often as the other, so that a machine that warms up is fair to both.
            for every in sorted(times, reverse=turn % 2 == 1):
                command = [sys.executable, __file__, "--task", task, "--steps", str(steps), "--every", str(every)]
                told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
                times[every].append(told)
                say(f"{task}, every {every:g} s: {told['train']:.2f} s, {told['cpu']:.2f} s of CPU")
        entry: dict[str, Any] = {"task": task, "steps": steps, "seeds": 8, "checkpoint_seconds": usual}
        entry["checkpoints"] = [int(one["checkpoints"]) for one in times[usual]]
        for kind in ("train", "cpu"):
            with_, without = (statistics.median(one[kind] for one in times[every]) for every in (usual, math.inf))
            entry[kind] = {
                "with": [round(one[kind], 2) for one in times[usual]],
                "without": [round(one[kind], 2) for one in times[math.inf]],
                "cost_percent": round(100.0 * (with_ / without - 1.0), 2),
            }
        entry["passed"] = entry["train"]["cost_percent"] < MOST_PERCENT and min(entry["checkpoints"]) > 0
        found.append(entry)
    return {"runs": found, "repeats": repeats, "passed": all(entry["passed"] for entry in found)}


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--task", choices=TASKS, help="one run of this task, in this process")
    options.add_argument("--steps", type=int, default=RUNS[0][1])
    options.add_argument("--every", type=float, default=math.inf)
    said = options.parse_args()
    print(json.dumps(seconds(said.task, said.steps, said.every) if said.task else soak(said.repeats), indent=2))
