"""Many faults, one compiled program: a few iterations of a plan with a fault in it, and what was found.

`curiax.run` would compile a program for every fault. Here the loop is given its target as an argument (tasks in JAX) or
a lane is put back to its beginning (tasks on the host); loop, lane and the reading of their metrics are the run's own.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from faults import (
    FIELDS,
    Field,
    Injection,
    PoisonedFleet,
    Target,
    inject,
    model_steps,
    policy_steps,
    retarget,
    word_of,
)

from curiax._errors import NonFiniteError
from curiax._sound import spot
from curiax._tree import flatten
from curiax.envs import AbstractHostTask
from curiax.experiments.soundness import Fault, find_faults
from curiax.experiments.spec import Plan
from curiax.train.batch import HostReport, first_states
from curiax.train.hosted import Lane
from curiax.train.loop import Setup, TrainState, first_envs, iterate

SOUND = Injection("start", 0.0, 0)


@dataclass(frozen=True)
class Outcome:
    """What came of some iterations: the faults in their metrics, or the error that ended them, and what was learnt."""

    faults: list[Fault]
    error: str
    metrics: list[dict[str, np.ndarray]]
    state: Any

    @property
    def messages(self) -> list[str]:
        """The messages of all faults, and that of the error."""
        return [fault.message for fault in self.faults] + [self.error] * bool(self.error)


def expected_place(plan: Plan, injection: Injection) -> str:
    """The words for a fault's place that its message must have."""
    loop, i = plan.setup.loop, injection
    if i.field.startswith(("model", "policy")):
        return f"seed {i.seed}, gradient step {i.step} of iteration {i.iteration} "
    step, env = (0, 0) if i.field == "bonus" and plan.method_entry.method.shares_key else (i.step, i.environment)
    after = 0 if i.field == "start" else i.iteration * loop.rollout + step + 1
    return spot(i.seed, env, after, loop.envs, i.iteration)


def possible_fields(plan: Plan) -> tuple[Field, ...]:
    """The fields that can be poisoned: only what learns has losses and gradients."""
    build = plan.build_method
    model = build is not None and flatten(build(jax.random.key(0)))[0].size > 0 and model_steps(plan)[0] > 0
    able = {"model": model, "policy": policy_steps(plan) > 0, "bonus": build is not None}
    return tuple(field for field in FIELDS if able.get(field.split("_")[0], True))


@functools.cache
def programs() -> tuple[Any, Any]:
    """One iteration of all seeds, and their first environments, with the setup as an argument."""

    @eqx.filter_jit
    def step(setup: Setup, state: TrainState) -> Any:
        return eqx.filter_vmap(lambda state: iterate(setup, state))(state)

    @eqx.filter_jit
    def begin(setup: Setup, root: Any) -> Any:
        return jax.vmap(lambda root: first_envs(setup, root))(root)

    return step, begin


class Trial:
    """A plan to be tried with many faults, one after another."""

    def __init__(self, plan: Plan, on_nonfinite: str = "stop") -> None:
        setup = dataclasses.replace(plan.setup, on_nonfinite=on_nonfinite)
        self.plan = dataclasses.replace(plan, setup=setup)
        poisoned = inject(self.plan, SOUND)
        self.setup, self.lane = poisoned.setup, None
        if isinstance(plan.setup.task, AbstractHostTask):
            self.lane = Lane(poisoned.setup, plan.seeds, jax.devices()[:1])
            self.lane.compile()
            self._first, self._start = jax.tree.map(jnp.copy, self.lane.arrays), self.lane.moments.state()
        else:
            self._first = first_states(poisoned.setup, plan.seeds)

    def run(self, injection: Injection, iterations: int) -> Outcome:
        """Some iterations from the beginning with this fault; they end where the lane stops the run."""
        target, error = Target.of(self.plan, injection), ""
        reports: list[HostReport] = []
        state = retarget(self._first, target)
        if self.lane is None:
            setup = retarget(self.setup, target)
            step, begin = programs()
            state = eqx.tree_at(lambda s: s.envs, state, begin(setup, state.root))
            for _ in range(iterations):
                state, report = step(setup, state)
                reports.append(HostReport.of(report))
        else:
            self._rewind(self.lane, state, injection)
            try:
                reports.extend(self.lane.iterate() for _ in range(iterations))
            except NonFiniteError as caught:
                error = str(caught)
            state = self.lane.train_state, self.lane.obs_stats
        faults = []
        if reports:
            whole = HostReport.joined([report.as_iterations() for report in reports], axis=1)
            faults = find_faults(self.plan, whole, 0)
        return Outcome(faults, error, [report.metrics for report in reports], state)

    def _rewind(self, lane: Lane, state: Any, injection: Injection) -> None:
        """Put a lane back to its beginning, with its fleet's fault elsewhere."""
        fleet = lane.fleet
        assert isinstance(fleet, PoisonedFleet)
        fleet.aim(injection.field, word_of(self.plan, injection), injection.value)
        lane.arrays = jax.device_put(jax.tree.map(jnp.copy, state), lane.placement)
        lane.moments.restore(self._start)
        lane.lost = {}
        lane.now, lane.began[:] = 0, 0
        lane._begin()


def caught(trial: Trial, injection: Injection) -> tuple[bool, bool]:
    """Whether a fault was found in its own iteration, and whether it was named: seed, environment, field and step."""
    outcome = trial.run(injection, injection.iteration + 1)
    place = expected_place(trial.plan, injection)
    if outcome.error:
        # The lane itself stopped the run: the observations of the task, at once.
        right = injection.field in ("start", "observation") and "the task's observations" in outcome.error
        return True, right and place in outcome.error and not outcome.faults
    found = [fault for fault in outcome.faults if fault.iteration == injection.iteration]
    named = [fault for fault in found if fault.field == injection.field and place in fault.message]
    return bool(found), named == outcome.faults and len(named) == 1


def leaves_unsound(state: Any) -> list[str]:
    """The names of all arrays that hold NaN or infinity."""
    named = jax.tree_util.tree_leaves_with_path(eqx.filter(state, eqx.is_inexact_array))
    return [jax.tree_util.keystr(path) for path, leaf in named if not np.isfinite(np.asarray(leaf)).all()]


def metrics_unsound(metrics: dict[str, np.ndarray]) -> list[str]:
    """The names of all metrics that are not finite."""
    return [name for name, value in metrics.items() if not np.isfinite(value).all()]
