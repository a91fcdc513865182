"""What is measured of a rollout beside learning: cells visited, what was paid where, and for what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._stats import valid_mean
from .._types import PRNGKey, Rollout, Transition
from ..agents import AbstractAgent
from ..envs import AbstractAnyTask, AbstractTask

Metrics = dict[str, Array]


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
        metrics |= {"ratio/bonus": ratio, "ratio/first": first, "ratio/second": second}
    return metrics


def task_metrics(task: AbstractAnyTask, rollout: Rollout) -> Metrics:
    """The task's reward as it gives it, episodes that ended, and how many of the steps drew noise."""
    metrics = {
        "reward/extrinsic_mean": jnp.mean(rollout.step.reward),
        "reward/episodes_ended": jnp.sum(rollout.step.ended),
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
