"""Every file of every checkpoint, damaged in every way: found, or without consequence.

The newest step must be read back as some state that the run really had, with every metrics row up to it, or be refused
with a clear message and nothing touched. Anything else, a wrong number above all, is a failure. Some damaged runs are
continued to their end by `curiax.run`, which must be the end of a run that nobody disturbed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from common import SETTINGS, STEPS, TASKS, ending, say

import curiax
from curiax._errors import CheckpointError, OutputError
from curiax.experiments.progress import Silent
from curiax.experiments.store import Checkpoints, Snapshot, state_digest

#: After each iteration: time for a checkpoint at every border.
PAUSE = 0.2
Damage = Callable[[Path, Path, random.Random], None]
#: What may become of a damaged folder. In all but the last the damage was found, and named.
SOUND = ("mended", "fell back", "refused", "harmless")


def flip(path: Path, other: Path, rng: random.Random) -> None:
    """One bit."""
    data = bytearray(path.read_bytes())
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)


def cut(path: Path, other: Path, rng: random.Random) -> None:
    """The end is missing."""
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))] if data else data)


def delete(path: Path, other: Path, rng: random.Random) -> None:
    """The file is gone."""
    path.unlink()


def zero(path: Path, other: Path, rng: random.Random) -> None:
    """As long as before, and empty."""
    path.write_bytes(bytes(len(path.read_bytes())))


def swap(path: Path, other: Path, rng: random.Random) -> None:
    """Another run's file in its place."""
    path.write_bytes(other.read_bytes())


DAMAGES: Mapping[str, Damage] = {"flip": flip, "cut": cut, "delete": delete, "zero": zero, "swap": swap}


class Halfway(Silent):
    """Stops the run in the middle."""

    def __init__(self, at: int) -> None:
        self.at = at

    def advance(self, iteration: int, latest: Mapping[str, np.ndarray]) -> None:
        time.sleep(PAUSE)
        if iteration >= self.at:
            raise KeyboardInterrupt


def small_experiment(task: str, method: str, seeds: tuple[int, ...]) -> curiax.Experiment:
    """A small experiment."""
    return curiax.Experiment(task, method, seeds=seeds, steps=STEPS * 12, settings=SETTINGS)


def unfinished(folder: Path, experiment: curiax.Experiment) -> Path:
    """The checkpoints of a run that was left in the middle."""
    try:
        curiax.run(experiment, folder, progress=Halfway(10), options=curiax.RunOptions(checkpoint_seconds=0.0))
    except KeyboardInterrupt:
        return folder / "checkpoints"
    raise RuntimeError("the run was finished before it was stopped")


def identity(checkpoints: Path) -> dict[str, Any]:
    """Whose checkpoints these are."""
    step = max(checkpoints.glob("step-*"))
    return json.loads((step / "step.json").read_text())["body"]["identity"]


def truths(checkpoints: Path) -> dict[int, tuple[str, str]]:
    """For every step, digests of its state and of the metrics up to it."""
    found = {}
    who = identity(checkpoints)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(checkpoints, copy)
        while steps := sorted(copy.glob("step-*")):
            store = Checkpoints(copy, who, 3)
            found[int(steps[-1].name.partition("-")[2])] = seen(store, store.newest(lambda text: None))
            shutil.rmtree(steps[-1])
    return found


def seen(store: Checkpoints, snapshot: Snapshot | None) -> tuple[str, str]:
    """Digests of what a store gives back."""
    assert snapshot is not None
    rows = {f"{k}.{name}": array for k, part in enumerate(store.metrics()) for name, array in part.items()}
    return state_digest(snapshot.arrays), state_digest(rows)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def examine(checkpoints: Path, true: Mapping[int, tuple[str, str]], who: Mapping[str, Any]) -> str:
    """What becomes of a damaged folder: `mended`, `fell back`, `refused`, `harmless`, or what is wrong."""
    before, messages = contents(checkpoints), []
    store = Checkpoints(checkpoints, who, 3)
    try:
        store.layout()
        snapshot = store.newest(messages.append)
    except (CheckpointError, OutputError) as error:
        if contents(checkpoints) != before:
            return "refused, but something was touched"
        return "refused" if str(checkpoints) in str(error) or str(checkpoints.parent) in str(error) else "unnamed"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if snapshot is None:
        return "a checkpoint was overlooked"
    if seen(store, snapshot) != true[snapshot.iteration]:
        return "a wrong state was read"
    if snapshot.iteration == max(true):
        return "mended" if any("written again" in text for text in messages) else "harmless"
    return "fell back" if messages and "is damaged" in messages[0] else "fell back in silence"


def continued(run: Path, experiment: curiax.Experiment, end: Mapping[str, Any]) -> str:
    """What becomes of a damaged run that is called again: `equal`, `refused`, or what is wrong."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is damaged is named; `examine` looks at that
            curiax.run(experiment, run)
    except (CheckpointError, OutputError):
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "equal" if ending(run) == end else "another end"


def soak(
    seed: int = 0, methods: tuple[str, ...] = ("lbs", "ngu", "vime"), tasks: tuple[str, ...] = TASKS, resumes: int = 8
) -> dict[str, Any]:
    """Every file of the checkpoints of runs of both families, each damaged in five ways; some are run to the end."""
    begun, rng = time.monotonic(), random.Random(seed)
    counts: dict[str, Counter[str]] = {name: Counter() for name in DAMAGES}
    ends: Counter[str] = Counter()
    misses: list[str] = []
    files = 0
    with tempfile.TemporaryDirectory() as base:
        for number, (task, method) in enumerate((task, method) for task in tasks for method in methods):
            folder = Path(base) / str(number)
            experiment = small_experiment(task, method, (0, 1))
            checkpoints = unfinished(folder / "run", experiment)
            others = unfinished(folder / "other", small_experiment(task, method, (0, 2)))
            curiax.run(experiment, folder / "whole")
            end = ending(folder / "whole")
            who, true = identity(checkpoints), truths(checkpoints)
            spare = contents(others)
            names = [name for name in contents(checkpoints) if Path(name).name not in ("lock", "holder.txt")]
            to_the_end = set(rng.sample(list(itertools.product(names, DAMAGES)), resumes))
            files += len(names)
            for name in names:
                for kind, damage in DAMAGES.items():
                    copy = folder / "damaged" / "checkpoints"
                    shutil.copytree(checkpoints, copy)
                    damage(copy / name, others / twin(name, spare), rng)
                    if (name, kind) in to_the_end:
                        shutil.copytree(copy.parent, folder / "again")
                        outcome = continued(folder / "again", experiment, end)
                        ends[outcome] += 1
                        if outcome not in ("equal", "refused"):
                            misses.append(f"{method} on {task}, {name}, {kind}, continued: {outcome}")
                        shutil.rmtree(folder / "again")
                    outcome = examine(copy, true, who)
                    counts[kind][outcome] += 1
                    if outcome not in SOUND:
                        misses.append(f"{method} on {task}, {name}, {kind}: {outcome}")
                    shutil.rmtree(copy)
            say(f"{method} on {task}: {files} files so far, {len(misses)} misses")
    return {
        "files": files,
        "damages": sum(sum(count.values()) for count in counts.values()),
        "outcomes": {kind: dict(count) for kind, count in counts.items()},
        "continued_to_the_end": dict(ends),
        "misses": misses,
        "seconds": round(time.monotonic() - begun, 1),
        "passed": not misses and ends["equal"] > 0,
    }


def twin(name: str, spare: Mapping[str, bytes]) -> str:
    """The other run's file of the same use: it was saved after other iterations."""
    place, _, file = name.partition("/")
    kind, suffix = place.partition("-")[0], Path(file).name if place.startswith("step-") else ""
    return next(other for other in spare if other.startswith(kind) and other.endswith(suffix))


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=0)
    print(json.dumps(soak(options.parse_args().seed), indent=2))
