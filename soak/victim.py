"""One run in a process that others kill: `python victim.py JOB.json`.

Appends a line for every border that it passes, so that whoever killed it knows how far it had come.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import curiax
from curiax.experiments.progress import AbstractProgress


class Diary(AbstractProgress):
    """Every border with its time, in a file that survives a kill."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def start(self, title: str, iterations: int, steps: int) -> None:
        os.write(self._file, f"start {time.time()}\n".encode())

    def advance(self, iteration: int, latest: Mapping[str, np.ndarray]) -> None:
        os.write(self._file, f"{iteration} {time.time()}\n".encode())

    def finish(self) -> None:
        pass


def main() -> None:
    """Run the job."""
    job = json.loads(Path(sys.argv[1]).read_text())
    curiax.run(
        curiax.Experiment.from_json(job["experiment"]),
        job["out"],
        progress=Diary(Path(job["diary"])),
        options=curiax.RunOptions(checkpoint_seconds=job["seconds"], wait=True),
    )


if __name__ == "__main__":
    main()
