"""`kill -9` at random moments, most of them aimed at saves: what is left must be what an undisturbed run leaves.

Every method on both families of tasks. Each run is killed and called again until it has had its share, the last time
while it puts its results together, then left to finish, and compared to the bit with a run that nobody disturbed. No
checkpoint and no half-written file may be left beside it.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from common import SETTINGS, STEPS, TASKS, ending, say

from curiax import Experiment
from curiax.experiments.registry import METHODS

#: `checkpoint_seconds`: no kill may cost more work than this. Two processes train at the same time on two cores: much
#: less would ask more of the machine than it has.
SECONDS = 2.0
#: So many of the kills must have hit a save, and so many the end of a run.
LEAST_SAVES, LEAST_ENDS = 0.4, 0.02
Aim = Literal["save", "any", "end"]
#: All that a finished run consists of.
FINISHED = {"agents.json", "agents.safetensors", "manifest.json", "metrics.parquet"}
ITERATIONS = {"mountain-car": 3000, "half-cheetah": 300}


class Victim:
    """One experiment, its folder, and the process that works on it."""

    def __init__(self, base: Path, task: str, method: str, seed: int, iterations: int) -> None:
        self.name, self.rng = f"{method} on {task}", random.Random(f"{seed} {task} {method}")
        self.folder = base / f"{task}-{method}"
        self.folder.mkdir(parents=True)
        self.iterations = iterations
        experiment = Experiment(task, method, seeds=(0, 3, 5), steps=STEPS * iterations, settings=SETTINGS)
        self.experiment = experiment.as_json()

    def call(self, out: str) -> subprocess.Popen[bytes]:
        """Start a process on the run."""
        job, diary = self.folder / f"{out}.json", self.folder / f"{out}.diary"
        self._diary, self._begun = diary, diary.stat().st_size if diary.exists() else 0
        job_data = {"experiment": self.experiment, "out": str(self.folder / out), "seconds": SECONDS}
        job.write_text(json.dumps({**job_data, "diary": str(diary)}))
        script = Path(__file__).with_name("victim.py")
        with (self.folder / f"{out}.log").open("ab") as log:
            return subprocess.Popen([sys.executable, str(script), str(job)], stdout=log, stderr=log)

    def reached(self) -> list[tuple[int, float]]:
        """The borders that the present call has passed, with their times."""
        if not self._diary.exists():
            return []
        with self._diary.open() as file:
            file.seek(self._begun)
            pairs = [line.split() for line in file if not line.startswith("start")]
        return [(int(pair[0]), float(pair[1])) for pair in pairs if len(pair) == 2]


def steps_on_disk(checkpoints: Path) -> list[int]:
    """The steps that exist now."""
    return sorted(int(path.name.partition("-")[2]) for path in checkpoints.glob("step-*"))


def disturb(victim: Victim, aim: Aim, deadline: float) -> dict[str, Any] | None:
    """One call, killed at a random moment, in the middle of a save or of its end; None if it finished before."""
    checkpoints = victim.folder / "killed" / "checkpoints"
    held, left = steps_on_disk(checkpoints), {*checkpoints.glob(".writing-*"), *checkpoints.glob("metrics*/*")}

    def saving() -> bool:
        """Whether a checkpoint is being written, other than one that the call before was killed at.

        First its metrics are, a copy after the other, then its step, in a hidden folder.
        """
        newest = max(steps_on_disk(checkpoints), default=0)
        metrics = (path for path in checkpoints.glob("metrics*/*") if path not in left)
        begun = any(path.name.startswith(".") or int(path.stem.partition("-")[2]) > newest for path in metrics)
        return begun or any(path not in left for path in checkpoints.glob(".writing-*"))

    process = victim.call("killed")
    begun = time.monotonic()
    while process.poll() is None and not victim.reached() and time.monotonic() - begun < deadline:
        if aim == "any" and victim.rng.random() < 0.002:
            break  # now and then before training begins: while it imports, reads or compiles
        time.sleep(0.01)
    if aim == "end":
        while process.poll() is None and last_border(victim) < victim.iterations:
            time.sleep(0.001)
        time.sleep(victim.rng.uniform(0.0, 0.15))
    else:
        if victim.rng.random() < 0.6:  # else it would often be killed before it has saved anything new
            kept = steps_on_disk(checkpoints)
            while process.poll() is None and steps_on_disk(checkpoints) == kept and time.monotonic() - begun < deadline:
                time.sleep(0.005)
        moment = time.monotonic() + victim.rng.uniform(0.0, 1.5)
        while process.poll() is None and time.monotonic() < moment:
            time.sleep(0.002)
    if aim == "save":
        while process.poll() is None and not saving():
            time.sleep(0.0005)
        time.sleep(victim.rng.uniform(0.0, 0.01))  # about as long as a save takes
    if process.poll() is not None:
        if process.returncode != 0:
            raise RuntimeError(f"{victim.name} failed: {(victim.folder / 'killed.log').read_text()[-2000:]}")
        return None
    process.kill()
    process.wait()
    now, borders, kept = time.time(), victim.reached(), steps_on_disk(checkpoints)
    if (victim.folder / "killed" / "manifest.json").exists():
        borders = borders[-1:]  # it was finished already: nothing is done again
        kept = [victim.iterations]
    newest = kept[-1] if kept else 0
    # When the newest step's border was passed: what came after it must be done again.
    begin = victim.reached()[0][0] if borders else 0
    since = next((at for iteration, at in borders if iteration >= newest), None)
    repeated = now - since if borders and since is not None else 0.0
    return {
        "saving": saving(),
        "ending": bool(borders) and borders[-1][0] == victim.iterations,
        # It must have gone on from the newest step that its predecessor left: nothing that was saved is done again.
        "continued_newest": not begin or begin == (held[-1] if held else 0) + 1,
        "iterations": (borders[-1][0] - newest) if borders else 0,
        "seconds": repeated,
    }


def last_border(victim: Victim) -> int:
    """The last iteration that the present call has finished."""
    borders = victim.reached()
    return borders[-1][0] if borders else 0


def aims(kills: int) -> list[Aim]:
    """Where a run's kills are aimed: two of three at a save, the last at the end."""
    return [*(("save", "save", "any")[k % 3] for k in range(kills - 1)), "end"]


def torment(victim: Victim, kills: int) -> dict[str, Any]:
    """Kill a run so many times, anew where it finishes too early, and compare it with an undisturbed one."""
    undisturbed = victim.call("whole")
    if undisturbed.wait() != 0:
        raise RuntimeError(f"{victim.name} failed: {(victim.folder / 'whole.log').read_text()[-2000:]}")
    expected = ending(victim.folder / "whole")
    found: list[dict[str, Any]] = []
    leftovers: list[str] = []
    finished = equal = 0
    aimed = aims(kills)
    while len(found) < kills or finished == 0:
        want = len(found) < kills
        killed = disturb(victim, aimed[len(found)], 120.0) if want else None
        if killed is not None:
            found.append(killed)
            continue
        if want and aimed[len(found)] == "end":
            aimed[len(found)] = "any"  # it got away: not a second time
        if not want and victim.call("killed").wait() != 0:
            raise RuntimeError(f"{victim.name} failed: {(victim.folder / 'killed.log').read_text()[-2000:]}")
        finished += 1
        run = victim.folder / "killed"
        leftovers += sorted({path.relative_to(run).as_posix() for path in run.rglob("*")} - FINISHED)
        equal += ending(victim.folder / "killed") == expected
        continued = json.loads((victim.folder / "killed" / "manifest.json").read_text())["continued"]
        say(f"{victim.name}: {len(found)} kills, continued {len(continued)} times, equal {equal} of {finished}")
        shutil.rmtree(victim.folder / "killed")
    return {"kills": found, "finished": finished, "equal": equal, "leftovers": leftovers}


def soak(kills: int = 200, seed: int = 0, workers: int = 2) -> dict[str, Any]:
    """So many kills, dealt out over all methods and both tasks."""
    begun = time.monotonic()
    pairs = [(task, method) for method in METHODS for task in TASKS]
    shares = [kills // len(pairs) + (k < kills % len(pairs)) for k in range(len(pairs))]
    with tempfile.TemporaryDirectory() as folder:
        victims = [Victim(Path(folder), task, method, seed, ITERATIONS[task]) for task, method in pairs]
        with ThreadPoolExecutor(workers) as pool:
            jobs = [pool.submit(torment, victim, share) for victim, share in zip(victims, shares, strict=True) if share]
            results = [job.result() for job in jobs]
    found = [kill for result in results for kill in result["kills"]]
    again = [kill["seconds"] for kill in found]
    leftovers = [name for result in results for name in result["leftovers"]]
    saving, ending = (sum(kill[what] for kill in found) for what in ("saving", "ending"))
    return {
        "kills": len(found),
        "kills_during_a_save": saving,
        "kills_after_the_last_iteration": ending,
        "continued_from_the_newest_step": sum(kill["continued_newest"] for kill in found),
        "experiments": len(jobs),
        "runs_finished": sum(result["finished"] for result in results),
        "runs_bit_identical": sum(result["equal"] for result in results),
        "leftovers": leftovers,
        "checkpoint_seconds": SECONDS,
        "work_repeated_seconds": {
            "median": round(statistics.median(again), 3),
            "mean": round(sum(again) / len(again), 3),
            "most": round(max(again), 3),
        },
        "work_repeated_iterations_most": max(kill["iterations"] for kill in found),
        "seconds": round(time.monotonic() - begun, 1),
        "passed": all(result["equal"] == result["finished"] for result in results)
        and not leftovers
        and all(kill["continued_newest"] for kill in found)
        and max(again) <= SECONDS
        and saving >= LEAST_SAVES * len(found)
        and ending >= LEAST_ENDS * len(found),
    }


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kills", type=int, default=200)
    options.add_argument("--seed", type=int, default=0)
    print(json.dumps(soak(options.parse_args().kills, options.parse_args().seed), indent=2))
