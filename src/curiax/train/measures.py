"""What is measured of a rollout beside learning: cells visited, what was paid where, and for what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._metrics import Metric, described, share
from .._stats import valid_mean
from .._types import Grid, PRNGKey, Rollout, Transition
from ..agents import AbstractAgent
from ..agents.curious import PAID, SCALE
from ..agents.task_reward import METRICS as OF_REWARD
from ..envs import AbstractAnyTask, AbstractTask

Metrics = dict[str, Array]

#: The two partitions that most tasks have, and the names of others are their own.
PARTITIONS = {"cells": "the paper's cells", "bins": "honest bins"}
#: The ratio of the mean bonuses of two kinds of transitions, and these bonuses.
RATIO, FIRST, SECOND = "ratio/bonus", "ratio/first", "ratio/second"
BONUS = (
    Metric(
        "bonus/mean",
        "mean raw bonus",
        note="Before scaling; every method has a unit of its own.",
        brief="bonus",
        rank=1,
    ),
    Metric("bonus/median", "median raw bonus"),
    Metric("bonus/std", "deviation of the raw bonus", low=0.0),
    Metric("bonus/max", "largest raw bonus"),
    share(
        "bonus/border_share",
        "bonus paid at episode ends",
        "Share of the raw bonus paid on the steps that end an episode. In the released code the model sees the next "
        "episode's first observation there, a jump that no model can predict.",
    ),
)
NOISE = (
    share("noise/bonus", "was paid on noise", "Share of the raw bonus paid on steps that drew noise."),
    share("noise/steps", "drew noise", "Share of the steps that drew noise, as by pressing the noisy remote."),
)
TASK = (
    Metric("reward/extrinsic_mean", "mean reward of the task", note="Of each step, as the task gives it.", rank=1),
    Metric("reward/episodes_ended", "episodes ended", note="In each rollout.", low=0.0, digits=0),
)


#: What does not depend on the task or the agent's settings.
COMMON = (*OF_REWARD, SCALE, PAID, *TASK, *BONUS, *NOISE)


def coverage_metrics(grid: str, most: float) -> tuple[Metric, ...]:
    """What is measured of one grid, of which so much per cent can be reached: what was, and what of the reachable."""
    where = PARTITIONS.get(grid, grid)
    note = "Cells visited so far by a run"
    known: dict[str, Any] = {"better": "higher", "end": "last", "low": 0.0, "digits": 1}
    title, brief = f"coverage in {where}", f"coverage ({grid})"
    return (
        Metric(f"coverage/{grid}", title, "%", f"{note}.", brief, high=most, rank=50, **known),
        Metric(f"reachable/{grid}", f"{title}, of the reachable", "%", f"{note}.", high=100.0, **known),
    )


def most_coverage(grid: Grid) -> float:
    """The coverage of a run that visits all that can be reached, in per cent."""
    return 100.0 * (grid.reachable or int(grid.counted.sum())) / grid.nominal


def ratio_metrics(first: str, second: str) -> list[Metric]:
    """What is measured of two kinds of transitions: the ratio of their bonuses, and both."""
    note = "In each rollout. At 1 both kinds are worth as much; what counts is how far a line ends from there."
    title = f"bonus of ({first}) ÷ ({second})"
    return [
        Metric(RATIO, title, "×", note, "ratio", log=True, low=0.0, ideal=1.0, digits=2, rank=40),
        Metric(FIRST, f"bonus of {first}"),
        Metric(SECOND, f"bonus of {second}"),
    ]


def metrics_of(task: AbstractAnyTask, agent: AbstractAgent) -> tuple[Metric, ...]:
    """Everything that is declared of a task and an agent, in the order in which it is shown."""
    of_grids = [each for grid in task.grids for each in coverage_metrics(grid.name, most_coverage(grid))]
    compared = [] if task.compared is None else ratio_metrics(*task.compared)
    of_task = [metric.within(task.group) for metric in task.metrics]
    return (*of_grids, *of_task, *compared, *agent.metrics, *BONUS, *TASK, *NOISE)


def measured(names: Iterable[str], declared: Sequence[Metric]) -> dict[str, Metric]:
    """The metrics of a table's columns that are curves: all but maps, and what says which row it is."""
    return described((name for name in names if name.partition("/")[0] not in (*MAPPED, *KEYS)), declared)


#: The kinds of metrics that are a row of numbers for each iteration, and the columns that are no metrics.
MAPPED = ("probe", "samples", "occupancy", "paid")
KEYS = ("seed", "iteration", "step")


def count_cells(
    task: AbstractAnyTask, visited: dict[str, Array], rollout: Rollout, bonus: Float[Array, "T N"] | None
) -> tuple[dict[str, Array], Metrics]:
    """Mark the visited cells of every grid; report coverage in per cent, visits and the bonus paid in each cell."""
    after, metrics = {}, {}
    for grid in task.grids:
        cells = grid.index(rollout.points).reshape(-1)
        occupancy = jnp.zeros(grid.size, jnp.int32).at[cells].add(1)
        if bonus is not None:
            metrics[f"paid/{grid.name}"] = jnp.zeros(grid.size).at[cells].add(bonus.reshape(-1))
        after[grid.name] = visited[grid.name] | (occupancy > 0)
        if grid.closed:
            after[grid.name] &= jnp.asarray(grid.counted)
        count = jnp.sum(after[grid.name])
        metrics[f"coverage/{grid.name}"] = 100.0 * count / grid.nominal
        if grid.reachable:
            metrics[f"reachable/{grid.name}"] = 100.0 * count / grid.reachable
        metrics[f"occupancy/{grid.name}"] = occupancy
    return after, metrics


def bonus_metrics(
    task: AbstractAnyTask, rollout: Rollout, bonus: Float[Array, "T N"], asked: Bool[Array, "T N"]
) -> Metrics:
    """How large the bonus was, how it spread, and how much of it was paid at episode borders and for noise."""
    total = jnp.sum(bonus)

    def share(where: Bool[Array, "T N"]) -> Array:
        return jnp.where(total != 0, jnp.sum(jnp.where(where, bonus, 0.0)) / total, 0.0)

    metrics = {
        "bonus/mean": jnp.mean(bonus),
        "bonus/median": jnp.median(bonus),
        "bonus/std": jnp.std(bonus),
        "bonus/max": jnp.max(bonus),
        "bonus/border_share": share(rollout.step.ended),
    }
    noise = noise_drawn(task, rollout)
    if noise is not None:
        metrics["noise/bonus"] = share(noise)
    if task.compared is not None:
        kind = jax.vmap(jax.vmap(task.kind))(rollout.points)
        first, second = (valid_mean(bonus, asked & (kind == which)) for which in (0, 1))
        # 1 where there is nothing to divide by.
        ratio = jnp.where(second != 0, first / jnp.where(second != 0, second, 1.0), 1.0)
        metrics |= {RATIO: ratio, FIRST: first, SECOND: second}
    return metrics


def task_metrics(task: AbstractAnyTask, rollout: Rollout) -> Metrics:
    """The task's reward as it gives it, episodes that ended, what it measures itself, how many steps drew noise."""
    metrics = {
        "reward/extrinsic_mean": jnp.mean(rollout.step.reward),
        "reward/episodes_ended": jnp.sum(rollout.step.ended),
        **{f"{task.group}/{name}": value for name, value in task.measure(rollout).items()},
    }
    noise = noise_drawn(task, rollout)
    return metrics if noise is None else {**metrics, "noise/steps": jnp.mean(noise)}


def noise_drawn(task: AbstractAnyTask, rollout: Rollout) -> Bool[Array, "T N"] | None:
    """Which of the steps drew noise that no model can predict; None if the task cannot tell."""
    return jax.vmap(jax.vmap(task.unlearnable))(task.spec.action.executed(rollout.step.action))


def probe_maps(
    task: AbstractTask, agent: AbstractAgent, state: Any, see: Callable[[Array], Array], *, key: PRNGKey
) -> Metrics:
    """What the agent's model would pay in every cell of the task's probe, whether the agent went there or not."""
    probe = task.probe()
    if probe is None:
        return {}
    maps = {}
    for name, actions in probe.actions.items():
        # The same draws in every iteration and for every method, so that only the model makes the difference.
        lead = (jax.tree.leaves(probe.states)[0].shape[0], actions.shape[0])
        keys = jax.random.split(jax.random.key(0), lead)
        over_actions = jax.vmap(lambda s, a, k: task.step(s, a, key=k), in_axes=(None, 0, 0))
        after, reward, _ = jax.vmap(over_actions, in_axes=(0, None, 0))(probe.states, actions, keys)
        obs = see(jax.vmap(task.observe)(probe.states))
        obs = jnp.broadcast_to(obs[:, None], (*lead, *obs.shape[1:]))
        next_obs = see(jax.vmap(jax.vmap(task.observe))(after))
        action, no = jnp.broadcast_to(actions, (*lead, *actions.shape[1:])), jnp.zeros(lead, bool)
        bonus = agent.pays(state, Transition(obs, action, next_obs, reward, no, no, ~no), key=key)
        if bonus is not None:
            maps[f"probe/{name}"] = jnp.mean(bonus, axis=1)
    return maps


def sample_bonus(
    task: AbstractTask, agent: AbstractAgent, state: Any, see: Callable[[Array], Array], *, key: PRNGKey
) -> Metrics:
    """What the agent's model would pay for each of the task's sample transitions."""
    samples = task.samples()
    if samples is None:
        return {}
    # Each is a rollout's time step of one environment.
    obs, next_obs = (see(jax.vmap(task.observe)(states))[:, None] for states in (samples.states, samples.next_states))
    lead = obs.shape[:2]
    action, no = samples.actions[:, None], jnp.zeros(lead, bool)
    bonus = agent.pays(state, Transition(obs, action, next_obs, jnp.zeros(lead), no, no, ~no), key=key)
    return {} if bonus is None else {"samples/bonus": bonus[:, 0]}
