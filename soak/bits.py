"""The same seed list, layout and versions give the same bits, twice; another seed disturbs nobody's beginning."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import SETTINGS, STEPS, TASKS, ending, say


def twice(task: str, method: str) -> bool:
    """Two runs, each in a process of its own."""
    from curiax import Experiment

    experiment = Experiment(task, method, seeds=(0, 3, 5), steps=STEPS * 10, settings=SETTINGS)
    ends = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("one", "two"):
            job = Path(folder) / f"{name}.json"
            job_data = {"experiment": experiment.as_json(), "out": str(Path(folder) / name), "seconds": 1e9}
            job.write_text(json.dumps({**job_data, "diary": str(Path(folder) / f"{name}.diary")}))
            victim = Path(__file__).with_name("victim.py")
            subprocess.run([sys.executable, str(victim), str(job)], check=True, capture_output=True)
            ends.append(ending(Path(folder) / name))
    return ends[0] == ends[1]


def undisturbed(task: str, method: str) -> bool:
    """The initial state of seeds 0 and 3, networks and environments, alone and beside seed 5."""
    import numpy as np

    from curiax import Experiment, resolve
    from curiax.experiments.training import Training

    def beginning(seeds: tuple[int, ...]) -> dict[str, np.ndarray]:
        plan = resolve(Experiment(task, method, seeds=seeds, steps=STEPS * 2, settings=SETTINGS))
        # One lane or device, so that arrays of both trainings have the same names.
        training = Training(plan, 1)
        try:
            return dict(training.snapshot().arrays)
        finally:
            training.close()

    few, more = beginning((0, 3)), beginning((0, 3, 5))

    def same(name: str) -> bool:
        small, large = few[name], more[name]
        # Rows are seeds, or the environments of one seed after another's; a scalar belongs to all.
        return bool(np.array_equal(small, large[: len(small)] if small.shape else large, equal_nan=True))

    return set(few) == set(more) and all(map(same, few))


def soak() -> dict[str, Any]:
    """Every method on both families."""
    from curiax.experiments.registry import METHODS

    begun = time.monotonic()
    pairs = [(task, method) for method in METHODS for task in TASKS]
    unequal = [f"{method} on {task}" for task, method in pairs if not twice(task, method)]
    say(f"{len(pairs)} experiments run twice, {len(unequal)} of them not to the same bits")
    disturbed = [f"{method} on {task}" for task, method in pairs if not undisturbed(task, method)]
    say(f"{len(pairs)} experiments with a seed added, {len(disturbed)} of them disturbed")
    return {
        "experiments": len(pairs),
        "run_twice_unequal": unequal,
        "seed_added_disturbed": disturbed,
        "seconds": round(time.monotonic() - begun, 1),
        "passed": not unequal and not disturbed,
    }


if __name__ == "__main__":
    print(json.dumps(soak(), indent=2))
