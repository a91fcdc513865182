"""From checks to findings: which seed met a value that no computation should see, where, and whose.

Every iteration says of each `Check` where the first such value was (`_sound.py`), in the order in which a fault
spreads, so that the first one found is the cause. Steps are counted as `_sound.spot` says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._sound import ADVICE, COMPUTED, FROM_OUTSIDE, GO_ON, Check, spot
from ..train.batch import HostReport
from .spec import Plan


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


def find_faults(plan: Plan, report: HostReport, begun: int) -> list[Fault]:
    """The first fault of every seed that has one in a report `[S, K]`, the earliest iteration first.

    `begun` is the number of iterations before them.
    """
    found, faults = report.places >= 0, []
    for s in np.flatnonzero(found.any(axis=(1, 2))):
        k = int(np.argmax(found[s].any(axis=1)))
        which = int(np.argmax(found[s, k]))
        faults.append(fault_at(plan, plan.seeds[s], begun + k, report.checks[which], int(report.places[s, k, which])))
    return sorted(faults, key=lambda fault: fault.iteration)


def fault_at(plan: Plan, seed: int, iteration: int, check: Check, place: int) -> Fault:
    """A fault in words."""
    loop = plan.setup.loop
    if check.counts in ("starts", "steps"):
        # What a rollout begins with is of the step before it.
        step, env = (-1, place) if check.counts == "starts" else divmod(place, loop.envs)
        where = spot(seed, env, iteration * loop.rollout + step + 1, loop.envs, iteration)
    else:
        counted = f"gradient step {place} of " if check.counts == "updates" else ""
        per_iteration = loop.rollout * loop.envs
        where = (
            f"seed {seed}, {counted}iteration {iteration} (steps {iteration * per_iteration:,} to "
            f"{(iteration + 1) * per_iteration:,} of the seed in all, its {loop.envs} environments together)"
        )
    what = check.what.format(task=plan.task_entry.name, method=plan.learner)
    return Fault(seed, iteration, check.name, f"{FROM_OUTSIDE if check.outside else COMPUTED} in {what}: {where}")
