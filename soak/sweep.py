"""Does a sweep whose workers keep dying end with the results of one that ran undisturbed?

Twelve runs of Mountain Car on a local Ray cluster of two workers; every twenty seconds one of the busy workers is
killed (`kill -9`) until all runs are finished. The same experiments are then trained one after another in this process,
in another folder, and final state, metrics table and agents of every run are compared, bit for bit.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from common import ending

from curiax.experiments.options import RunOptions
from curiax.experiments.progress import Silent
from curiax.experiments.reproduce import train_suite
from curiax.experiments.spec import Experiment
from curiax.launch import RayCluster, launch_experiments, progress_file, show

TASKS = ("mountain-car", "mountain-car-frozen", "mountain-car-evolving")
METHODS = ("lbs", "disagreement", "vime", "icm", "rnd", "ride", "ngu")
CHECKPOINT_SECONDS = 2.0


def chosen(runs: int, seeds: int, steps: int) -> list[Experiment]:
    """So many runs: every method on every task, in turn."""
    pairs = itertools.islice(itertools.product(TASKS, METHODS), runs)
    return [Experiment(task, method, seeds=seeds, steps=steps) for task, method in pairs]


class Killer(threading.Thread):
    """Ends a worker that is busy with one of our runs, again and again."""

    def __init__(self, store: Path, every: float) -> None:
        super().__init__(daemon=True)
        self.store, self.every = store, every
        self.kills = 0
        self.over = threading.Event()

    def run(self) -> None:
        """Until told that it is over."""
        choose = random.Random(0)
        while not self.over.wait(self.every):
            victims = self.busy()
            while not victims and not self.over.wait(0.05):
                victims = self.busy()
            if victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(choose.choice(victims), signal.SIGKILL)
                    self.kills += 1

    def busy(self) -> list[int]:
        """The processes that train at this moment."""
        standings = [progress_file.read(file) for file in self.store.glob(".*.progress")]
        return [one.pid for one in standings if one and one.iteration and one.host == socket.gethostname()]


def soak(
    runs: int = 12, workers: int = 2, every: float = 20.0, *, seeds: int = 8, steps: int = 100_000
) -> dict[str, Any]:
    """Figures of one sweep under fire and its comparison with the serial one."""
    experiments = chosen(runs, seeds, steps)
    with tempfile.TemporaryDirectory(prefix="curiax-soak-") as place:
        store, serial = Path(place) / "sweep", Path(place) / "serial"
        killer = Killer(store, every)
        killer.start()
        begun = time.perf_counter()
        options = RunOptions(checkpoint_seconds=CHECKPOINT_SECONDS)
        entries = launch_experiments(
            experiments, store, RayCluster(None, workers), show.for_terminal(quiet=False), options
        )
        seconds = time.perf_counter() - begun
        killer.over.set()
        killer.join()
        begun = time.perf_counter()
        expected = train_suite(experiments, serial, Silent())
        alone = time.perf_counter() - begun
        assert all(result.path is not None for result in expected)
        equal = [
            ending(Path(result.path or "")) == ending(Path(entry.job.folder))
            for result, entry in zip(expected, entries, strict=True)
        ]
    return {
        "runs": runs,
        "workers": workers,
        "kill_every_seconds": every,
        "checkpoint_seconds": CHECKPOINT_SECONDS,
        "kills": killer.kills,
        "calls": [entry.calls for entry in entries],
        "equal": sum(equal),
        "seconds": round(seconds, 1),
        "serial_seconds": round(alone, 1),
        # A kill waits until a worker trains, so there are fewer than one in so many seconds.
        "passed": all(equal) and killer.kills >= 0.5 * seconds / every,
    }


if __name__ == "__main__":
    figures = soak()
    print(json.dumps(figures, indent=2))
    raise SystemExit(figures["equal"] != figures["runs"])
