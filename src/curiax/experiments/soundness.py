"""From metrics to findings: which seed met a value that no computation should see, where, and whose.

Every iteration reports, as `unsound/<field>`, where the first such value of each field was (`train/loop.py`): a flat
index `t · N + n` of the rollout, or the number of a gradient step; −1 for none. Steps are counted as `_sound.spot`
says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .._sound import ADVICE, COMPUTED, FROM_OUTSIDE, GO_ON, spot
from .spec import Plan

#: Columns of the metrics that only this module reads.
PREFIX = "unsound/"
#: What an environment showed, in the order in which a fault spreads within one step → who is to blame.
ROLLOUT = {
    "start": "the observations of task {task!r}",
    "action": "the actions of the policy, trained on {method!r}",
    "observation": "the observations of task {task!r}",
    "point": "the tracked point of task {task!r}",
    "reward": "the reward of task {task!r}",
}
#: What was computed of a whole rollout, in the order in which a fault spreads.
COMPUTATIONS = {
    "bonus": "the bonus of method {method!r}",
    "terms": "the terms of its bonus that method {method!r} reports",
    "model_loss": "the loss or the terms that method {method!r} reports",
    "model_gradient": "the gradient of the loss of method {method!r}",
    "policy_loss": "the policy's loss, given the bonus of {method!r}",
    "policy_gradient": "the gradient of the policy's loss, given the bonus of {method!r}",
    "model": "the parameters, the optimiser or the memory of method {method!r}, trained on its own loss",
    "policy": "the policy's parameters or optimiser, trained on the bonus of {method!r}",
}
FIELDS = (*ROLLOUT, *COMPUTATIONS)


@dataclass(frozen=True)
class Fault:
    """The first fault of a seed."""

    seed: int
    iteration: int
    field: str
    message: str

    @property
    def error(self) -> str:
        """What the run says when it stops for it."""
        return f"{self.message}. The run was stopped. {ADVICE} {GO_ON}"


def find_faults(plan: Plan, metrics: Mapping[str, np.ndarray], begun: int) -> list[Fault]:
    """The first fault of every seed that has one in metrics `[S, K]`, the earliest iteration first.

    `begun` is the number of iterations before them.
    """
    found = {name: metrics[PREFIX + name] for name in FIELDS}
    faulty = np.any([places >= 0 for places in found.values()], axis=0)
    faults = []
    for s in np.flatnonzero(faulty.any(axis=1)):
        k = int(np.argmax(faulty[s]))
        places = {name: int(values[s, k]) for name, values in found.items() if values[s, k] >= 0}
        faults.append(first_fault(plan, plan.seeds[s], begun + k, places))
    return sorted(faults, key=lambda fault: fault.iteration)


def first_fault(plan: Plan, seed: int, iteration: int, places: Mapping[str, int]) -> Fault:
    """What came first of all that one seed's iteration reports."""
    names = {"task": plan.task_entry.name, "method": plan.method_entry.name}
    loop, order = plan.setup.loop, {name: k for k, name in enumerate(FIELDS)}
    # Steps since the iteration began, what it began with being 0; then what spreads within a step; then environments.
    steps = {
        name: (0 if name == "start" else index // loop.envs + 1, order[name], index % loop.envs)
        for name, index in places.items()
        if name in ROLLOUT
    }
    if steps:
        field = min(steps, key=lambda name: steps[name])
        step, _, env = steps[field]
        where = spot(seed, env, iteration * loop.rollout + step, loop.envs, iteration)
        return Fault(seed, iteration, field, f"{FROM_OUTSIDE} in {ROLLOUT[field].format(**names)}: {where}")
    # An unsound gradient makes the next step's loss unsound: of the two, the earlier step comes first.
    stage = {name: order[name.replace("_gradient", "_loss")] for name in places}
    field = min(places, key=lambda name: (stage[name], places[name], order[name]))
    index, what = places[field], f"{COMPUTED} in {COMPUTATIONS[field].format(**names)}"
    if field == "bonus":
        step, env = divmod(index, loop.envs)
        where = spot(seed, env, iteration * loop.rollout + step + 1, loop.envs, iteration)
    else:
        counted = f"gradient step {index} of " if field.endswith(("_loss", "_gradient")) else ""
        per_iteration = loop.rollout * loop.envs
        where = (
            f"seed {seed}, {counted}iteration {iteration} (steps {iteration * per_iteration:,} to "
            f"{(iteration + 1) * per_iteration:,} of the seed in all, its {loop.envs} environments together)"
        )
    return Fault(seed, iteration, field, f"{what}: {where}")
