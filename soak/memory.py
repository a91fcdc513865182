"""Ten thousand iterations with checkpoints: memory and open files stay where they were.

They are counted after a warm-up of some thousand more: TensorStore's threads, which write the checkpoints, take some
megabytes for themselves during the first hundred saves.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from common import SETTINGS, STEPS, TASKS, say

ITERATIONS = 10_000
#: Of the iterations that are counted, so many more come before.
WARM_UP = 0.4
#: So often that the warm-up holds as many saves as a night of training.
SECONDS = 0.1


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def watched(task: str, iterations: int) -> dict[str, Any]:
    """One run in this process, its memory and its open files noted on the way."""
    import curiax
    from curiax.experiments.progress import Silent

    notes: list[tuple[int, int, int]] = []
    whole = round(iterations * (1.0 + WARM_UP))

    class Watch(Silent):
        """Notes memory and open files at a hundred borders."""

        def advance(self, iteration: int, latest: Mapping[str, np.ndarray]) -> None:
            if not notes or iteration - notes[-1][0] >= whole // 120:
                notes.append((iteration, resident(), len(os.listdir("/proc/self/fd"))))

    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        curiax.run(
            curiax.Experiment(task, "lbs", seeds=2, steps=STEPS * whole, settings=SETTINGS),
            Path(folder) / "run",
            progress=Watch(),
            options=curiax.RunOptions(checkpoint_seconds=SECONDS),
        )
    settled = [note for note in notes if note[0] >= whole - iterations]
    # Medians of the first and last few notes: one note may fall into a save, which holds a copy of the state.
    first, last = (np.median([note[1] for note in part]) for part in (settled[:5], settled[-5:]))
    files = [note[2] for note in settled]
    return {
        "task": task,
        "iterations": iterations,
        "megabytes": {
            "at_the_first_border": round(notes[0][1] / 2**20, 1),
            "after_the_warm_up": round(first / 2**20, 1),
            "at_the_end": round(last / 2**20, 1),
        },
        "growth_percent": round(float(100.0 * (last / first - 1.0)), 3),
        "open_files": [min(files), max(files)],
        "seconds": round(time.monotonic() - begun, 1),
    }


def soak(iterations: int = ITERATIONS) -> dict[str, Any]:
    """Both families, each in a process of its own."""
    found = []
    for task in TASKS:
        command = [sys.executable, __file__, "--task", task, "--iterations", str(iterations)]
        found.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
        say(f"{task}: memory grew by {found[-1]['growth_percent']} %")
    return {"runs": found, "passed": all(run["growth_percent"] < 1.0 for run in found)}


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--iterations", type=int, default=ITERATIONS)
    options.add_argument("--task", choices=TASKS, help="only this one, in this process")
    said = options.parse_args()
    print(json.dumps(watched(said.task, said.iterations) if said.task else soak(said.iterations), indent=2))
