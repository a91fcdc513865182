"""Ten thousand iterations with checkpoints: memory and open files stay where they were.

They are counted from the tenth checkpoint on: what is imported and what the allocator takes for the first ones stands
beside the growth that is judged.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import SETTINGS, STEPS, TASKS, Saves, say

from curiax.experiments.progress import Silent

ITERATIONS = 10_000
#: Checkpoints before the count begins, and seconds between two of them.
WARM_UP, SECONDS = 10, 2.0
#: How much may be added to memory, and how many files more may be open.
MOST_PERCENT, MOST_FILES = 1.0, 3


class Note(NamedTuple):
    """What a process has taken, at one moment."""

    iteration: int
    megabytes: float
    files: int


def note(iteration: int) -> Note:
    """This process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Note(iteration, pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir("/proc/self/fd")))


class Enough(Exception):
    """All iterations that are counted have been."""


class Watch(Silent):
    """Notes what the process has taken: at the first iteration, after the first checkpoint, and while it counts."""

    def __init__(self, run: Path, iterations: int, warm_up: int) -> None:
        self.saves, self.iterations, self.warm_up = Saves(run), iterations, warm_up
        self.first: Note | None = None
        self.saved_once: Note | None = None
        self.counted: list[Note] = []

    def advance(self, iteration: int, latest: Mapping[str, np.ndarray]) -> None:
        self.first = self.first or note(iteration)
        saves = self.saves.look()
        if saves and self.saved_once is None:
            self.saved_once = note(iteration)
        if not self.counted and saves < self.warm_up:
            return
        if not self.counted or iteration - self.counted[-1].iteration >= self.iterations // 100:
            self.counted.append(note(iteration))
        if iteration - self.counted[0].iteration >= self.iterations:
            raise Enough


def watched(task: str, iterations: int, warm_up: int = WARM_UP, seconds: float = SECONDS) -> dict[str, Any]:
    """One run in this process, its memory and its open files noted on the way."""
    import curiax

    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch(Path(folder) / "run", iterations, warm_up)
        with contextlib.suppress(Enough):
            curiax.run(
                # So long that it is never finished: it ends when enough is counted.
                curiax.Experiment(task, "lbs", seeds=2, steps=STEPS * iterations * 1000, settings=SETTINGS),
                Path(folder) / "run",
                progress=watch,
                options=curiax.RunOptions(checkpoint_seconds=seconds),
            )
    # Medians of the first and last few notes: one note may fall into a save, which holds a copy of the state.
    few = max(1, len(watch.counted) // 20)
    ends = (watch.counted[:few], watch.counted[-few:])
    before, after = (statistics.median(each.megabytes for each in part) for part in ends)
    files = [statistics.median(each.files for each in part) for part in ends]
    assert watch.first is not None
    assert watch.saved_once is not None

    def growth(since: float) -> float:
        return round(100.0 * (after / since - 1.0), 3)

    return {
        "task": task,
        "iterations": watch.counted[-1].iteration - watch.counted[0].iteration,
        "warm_up": {"checkpoints": warm_up, "iterations": watch.counted[0].iteration},
        "checkpoints": watch.saves.look(),
        "megabytes": {
            "first_iteration": round(watch.first.megabytes, 1),
            "first_checkpoint": round(watch.saved_once.megabytes, 1),
            "after_the_warm_up": round(before, 1),
            "at_the_end": round(after, 1),
        },
        "growth_percent": growth(before),
        "growth_percent_since_the_first_checkpoint": growth(watch.saved_once.megabytes),
        "open_files": files,
        "seconds": round(time.monotonic() - begun, 1),
        "passed": growth(before) < MOST_PERCENT and files[1] - files[0] <= MOST_FILES,
    }


def soak(iterations: int = ITERATIONS) -> dict[str, Any]:
    """Both families, each in a process of its own."""
    found = []
    for task in TASKS:
        command = [sys.executable, __file__, "--task", task, "--iterations", str(iterations)]
        found.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
        say(f"{task}: memory grew by {found[-1]['growth_percent']} %")
    return {"runs": found, "passed": all(run["passed"] for run in found)}


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--iterations", type=int, default=ITERATIONS)
    options.add_argument("--task", choices=TASKS, help="only this one, in this process")
    args = options.parse_args()
    print(json.dumps(watched(args.task, args.iterations) if args.task else soak(args.iterations), indent=2))
