"""What checkpoints cost: the same run with and without them, in turn, on a quiet machine."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import TASKS, say

#: A minute or so of training each on two cores, with the settings that people use.
STEPS = {"mountain-car": 409_600, "half-cheetah": 245_760}


def seconds(task: str, every: float) -> dict[str, float]:
    """The training time of one run, with a checkpoint at least so many seconds after another."""
    import curiax

    with tempfile.TemporaryDirectory() as folder:
        result = curiax.run(
            curiax.Experiment(task, "lbs", seeds=8, steps=STEPS[task]),
            Path(folder) / "run",
            options=curiax.RunOptions(checkpoint_seconds=every),
        )
    return result.manifest["seconds"]


def soak(repeats: int = 3, tasks: tuple[str, ...] = TASKS) -> dict[str, Any]:
    """The cost at the default interval, in wall-clock and in CPU time, from the medians of alternating runs."""
    import curiax

    usual = curiax.RunOptions().checkpoint_seconds
    found = []
    for task in tasks:
        times: dict[float, list[dict[str, float]]] = {usual: [], math.inf: []}
        for _ in range(repeats):
            for every in times:
                command = [sys.executable, __file__, "--task", task, "--every", str(every)]
                told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
                times[every].append(told)
                say(f"{task}, every {every:g} s: {told['train']:.2f} s, {told['cpu']:.2f} s of CPU")
        entry: dict[str, Any] = {"task": task, "checkpoint_seconds": usual}
        for kind in ("train", "cpu"):
            with_, without = (statistics.median(one[kind] for one in times[every]) for every in (usual, math.inf))
            entry[kind] = {
                "with": round(with_, 2),
                "without": round(without, 2),
                "cost_percent": round(100.0 * (with_ / without - 1.0), 2),
            }
        found.append(entry)
    return {"runs": found, "repeats": repeats, "passed": all(entry["train"]["cost_percent"] < 3.0 for entry in found)}


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--task", choices=TASKS, help="one run of this task, in this process")
    options.add_argument("--every", type=float, default=math.inf)
    said = options.parse_args()
    print(json.dumps(seconds(said.task, said.every) if said.task else soak(said.repeats), indent=2))
