"""Unsound values at random places: is each found within its iteration, and named?

    python soak/nonfinite.py --count 200

Mountain Car and Half-Cheetah, all methods; NaN, infinities and 1e30 in all that `faults.py` can poison.
Most are tried by programs that serve many faults each, one in `THROUGH` by `curiax.run` itself, which writes a
checkpoint whenever it can: none of those may hold anything unsound.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np
from faults import Field, Injection, inject, model_steps, policy_steps
from trials import Trial, caught, expected_place, possible_fields

import curiax
from curiax.experiments import run as running
from curiax.experiments.spec import Plan, resolve
from curiax.experiments.store import read_step, steps_in
from curiax.train import devices

TASKS = ("mountain-car", "half-cheetah")
METHODS = ("lbs", "icm", "rnd", "disagreement", "vime", "ride", "ngu", "random", "none")
VALUES = (math.nan, math.inf, -math.inf, 1e30)
SEEDS, ITERATIONS = (2, 7), 3
SETTINGS = {
    "loop.rollout": 64,
    "loop.envs": 2,
    "ppo.minibatch_size": 32,
    "ppo.epochs": 2,
    "learner.minibatch_size": 32,
    "learner.epochs": 2,
}
#: One fault in so many goes through `curiax.run`.
THROUGH = 8


def plan_for(task: str, method: str) -> Plan:
    """A small experiment."""
    steps = ITERATIONS * SETTINGS["loop.rollout"] * SETTINGS["loop.envs"]
    return resolve(curiax.Experiment(task, method, seeds=SEEDS, steps=steps, settings=SETTINGS))


def somewhere(rng: np.random.Generator, plan: Plan, field: Field) -> Injection:
    """A random value at a random place of a field."""
    value, seed = VALUES[rng.integers(len(VALUES))], int(rng.choice(SEEDS))
    envs = plan.setup.loop.envs
    if field == "start":
        return Injection(field, value, seed, environment=int(rng.integers(envs)))
    steps = {"model": model_steps(plan)[0], "policy": policy_steps(plan)}.get(
        field.split("_")[0], plan.setup.loop.rollout
    )
    env = int(rng.integers(envs)) if steps == plan.setup.loop.rollout else 0
    return Injection(field, value, seed, int(rng.integers(ITERATIONS)), int(rng.integers(steps)), env)


def caught_by_run(plan: Plan, injection: Injection, folder: Path) -> tuple[bool, bool]:
    """Whether `curiax.run` stops at a fault, and says where it is."""
    often = curiax.RunOptions(checkpoint_seconds=0.0)
    with mock.patch.object(running, "resolve", lambda experiment: inject(resolve(experiment), injection)):
        try:
            curiax.run(plan.experiment, folder, options=often)
        except curiax.NonFiniteError as error:
            return True, expected_place(plan, injection) in str(error)
    return False, False


def unsound_checkpoints(plan: Plan, folder: Path) -> tuple[int, int]:
    """How many checkpoints a run has left, and how many of them hold NaN, infinity or a fault's 1e30."""
    checkpoints = folder / "checkpoints"
    found = [read_step(checkpoints, step, plan.identity)[0] for step in steps_in(checkpoints)]

    def sound(array: np.ndarray) -> bool:
        return array.dtype.kind != "f" or bool((np.abs(array) < 1e29).all())

    return len(found), sum(not all(map(sound, snapshot.arrays.values())) for snapshot in found)


def soak(count: int, seed: int) -> dict:
    """`count` random faults: how many were caught within one iteration, how many named rightly, and the misses."""
    devices.prepare()
    rng, begun = np.random.default_rng(seed), time.perf_counter()
    cases = [(TASKS[k % len(TASKS)], METHODS[k // len(TASKS) % len(METHODS)]) for k in range(count)]
    figures = {"injected": 0, "caught": 0, "named": 0, "through_run": 0, "checkpoints": 0, "unsound_checkpoints": 0}
    by_field, by_value, by_method = (collections.defaultdict(lambda: [0, 0, 0]) for _ in range(3))
    misses = []
    # One program at a time, so that memory does not grow with the number of methods.
    for task, method in sorted(set(cases), key=cases.index):
        plan = plan_for(task, method)
        fields, trial = possible_fields(plan), Trial(plan)
        for k, case in enumerate(cases):
            if case != (task, method):
                continue
            injection = somewhere(rng, plan, fields[rng.integers(len(fields))])
            through = k % THROUGH == 0
            with tempfile.TemporaryDirectory() as place:
                run = Path(place) / "run"
                found, named = caught_by_run(plan, injection, run) if through else caught(trial, injection)
                written, unsound = unsound_checkpoints(plan, run)
            figures["through_run"] += through
            figures["checkpoints"] += written
            figures["unsound_checkpoints"] += unsound
            for name, right in (("injected", True), ("caught", found), ("named", named)):
                figures[name] += right
            for counts, name in ((by_field, injection.field), (by_value, str(injection.value)), (by_method, method)):
                counts[name] = [a + int(b) for a, b in zip(counts[name], (True, found, named), strict=True)]
            if not (found and named):
                details = {**dataclasses.asdict(injection), "value": str(injection.value)}
                misses.append({"task": task, "method": method, "through_run": through, "caught": found, **details})
        if trial.lane is not None:
            trial.lane.fleet.close()
    return {
        **figures,
        "counts": ["injected", "caught", "named"],
        "by_field": dict(by_field),
        "by_value": dict(by_value),
        "by_method": dict(by_method),
        "misses": misses,
        "seconds": round(time.perf_counter() - begun, 1),
        "passed": not misses and not figures["unsound_checkpoints"] and figures["checkpoints"] > 0,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    figures = soak(chosen.count, chosen.seed)
    print(json.dumps(figures, indent=2))
    sys.exit(not figures["passed"])
