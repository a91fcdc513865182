"""The training loop: the environments step, the agent learns, and what was seen is counted.

Everything here is a pure function of one seed's state; `batch.py` adds the seeds and the devices, `hosted.py` and
`frames.py` the environments that JAX cannot trace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, Shaped

from .._settings import Count, Positive
from .._sound import Check, Checks, first, unsound
from .._stats import Moments
from .._types import PRNGKey, Rollout, Transition, stream_keys
from ..agents import AbstractAgent, RewardSettings, Work
from ..envs import AbstractAnyTask, AbstractTask
from .measures import Metrics, bonus_metrics, count_cells, probe_maps, sample_bonus, task_metrics

START = Check("start", "the observations of task {task!r}", "starts", outside=True)
ACTION = Check("action", "the actions of the policy, trained on {method!r}", "steps", outside=True)
OBSERVATION = Check("observation", "the observations of task {task!r}", "steps", outside=True)
POINT = Check("point", "the tracked point of task {task!r}", "steps", outside=True)
REWARD = Check("reward", "the reward of task {task!r}", "steps", outside=True)


@dataclass(frozen=True)
class LoopSettings(RewardSettings):
    """Collection of experience and mixing of rewards.

    Args:
        envs: environments stepped side by side.
        rollout: steps of each environment between updates.
        normalise_obs: standardise observations by running statistics; by default all but images in 0..1.
        obs_clip: bound of standardised observations.
        obs_epsilon: added to the variance before the root.
        mixed_precision: a game's frames are seen in bfloat16, and so are their convolutions; everything after those
            is float32. Methods that predict pixels predict rounded ones.
    """

    envs: Count = 1
    rollout: Count = 2048
    normalise_obs: bool = True
    obs_clip: Positive = 10.0
    obs_epsilon: Positive = 1e-8
    mixed_precision: bool = False


class Stream(IntEnum):
    """The loop's uses of randomness; each gets a key of its own, so adding one disturbs no other.

    The agent folds other numbers into the same keys (`agents/curious.py`).
    """

    FIRST_RESET = 2
    ACTIONS = 3
    STEPS = 4
    RESETS = 5
    PROBE = 10
    BEFORE = 11


class EnvStates(eqx.Module):
    """`N` environments: their states, their clocks, the observations to act on, and the agent's memories of each."""

    inner: Any
    elapsed: Int[Array, " N"]
    obs: Shaped[Array, "N ..."]
    carry: Any


class TrainState(eqx.Module):
    """Everything that training carries from one iteration to the next."""

    agent: Any
    #: None where the environments run on the host: their lane keeps both.
    obs_stats: Moments | None
    envs: EnvStates | None
    visited: dict[str, Bool[Array, " cells"]]
    root: PRNGKey
    iteration: Int[Array, ""]

    @property
    def key(self) -> PRNGKey:
        """The key of this iteration."""
        return jax.random.fold_in(self.root, self.iteration)

    def keys(self) -> Key[Array, " streams"]:
        """The loop's keys of this iteration, by the number of the `Stream`."""
        return stream_keys(self.key, Stream)


class Setup(eqx.Module):
    """What stays the same for the whole run and for all seeds."""

    task: AbstractAnyTask
    agent: AbstractAgent
    loop: LoopSettings = eqx.field(static=True)
    #: What happens to values that no computation should see: the run stops, or goes on without their seed. The programs
    #: are the same: whoever reads the checks decides.
    on_nonfinite: Literal["stop", "drop"] = eqx.field(static=True, default="stop")

    @property
    def traced(self) -> AbstractTask:
        """The task, where its environments are stepped in JAX."""
        assert isinstance(self.task, AbstractTask)
        return self.task

    def normalise(self, stats: Moments, obs: Array) -> Array:
        """Observations as the agent sees them."""
        return stats.normalise(obs, self.loop.obs_epsilon, self.loop.obs_clip) if self.loop.normalise_obs else obs


class Report(NamedTuple):
    """What an iteration, or a part of it, says."""

    metrics: Metrics
    checks: Checks


def iterate(setup: Setup, state: TrainState) -> tuple[TrainState, Report]:
    """One iteration of a task in JAX: collect, learn, and all gradient steps that are left to do."""
    after, rollout, checks = collect(setup, state)
    after, learnt, work = learn(setup, after, rollout, checks)
    after, worked = finish(setup, after, work)
    # The model that paid for this rollout, not the one that has since been trained on it.
    maps = evaluate(setup, replace(state, obs_stats=after.obs_stats))
    return after, Report({**learnt.metrics, **worked.metrics, **maps}, learnt.checks + worked.checks)


def collect(setup: Setup, state: TrainState) -> tuple[TrainState, Rollout, Checks]:
    """Step every environment `loop.rollout` times with the current agent.

    All randomness, fresh initial states included, is drawn in bulk beforehand, which keeps the inner loop
    to the actor, the physics and the running statistics.
    """
    task, agent, spec, loop = setup.traced, setup.agent, setup.task.spec, setup.loop
    assert state.envs is not None
    assert state.obs_stats is not None
    lead, keys, actor = (loop.rollout, loop.envs), state.keys(), agent.actor(agent.networks(state.agent))
    noise = agent.noise(lead, key=keys[Stream.ACTIONS])
    step_keys = jax.random.split(keys[Stream.STEPS], lead)
    reset_keys = jax.random.split(keys[Stream.RESETS], lead)
    fresh = jax.vmap(jax.vmap(lambda k: task.reset(key=k)))(reset_keys)

    def step(now: tuple[EnvStates, Moments], given: tuple[Any, ...]) -> tuple[tuple[EnvStates, Moments], Any]:
        (envs, stats), (noise, keys, fresh) = now, given
        begins = envs.elapsed == 0
        carry, action = jax.vmap(lambda *each: agent.act(actor, *each))(envs.carry, envs.obs, begins, noise)
        inner, reward, terminated = jax.vmap(lambda s, a, k: task.step(s, a, key=k))(
            envs.inner, spec.action.executed(action), keys
        )
        true_next, elapsed = jax.vmap(task.observe)(inner), envs.elapsed + 1
        truncated = ~terminated & (elapsed >= spec.horizon) if spec.horizon else jnp.zeros_like(terminated)
        ended = terminated | truncated
        points = jax.vmap(task.track)(inner)
        inner = jax.tree.map(lambda new, old: select_envs(ended, new, old), fresh, inner)
        acted_next = jax.vmap(task.observe)(inner)
        wrong = unsound(true_next, 1) | unsound(acted_next, 1)
        if loop.normalise_obs:
            stats = stats.merge(acted_next)
        acted_next, next_obs = setup.normalise(stats, acted_next), setup.normalise(stats, true_next)
        valid = jnp.ones_like(terminated)
        transition = Transition(envs.obs, action, next_obs, reward, terminated, truncated, valid)
        envs = EnvStates(inner, jnp.where(ended, 0, elapsed), acted_next, carry)
        return (envs, stats), ((transition, acted_next, points, begins), wrong)

    given = (noise, step_keys, fresh)
    (envs, stats), ((steps, acted_next, points, begins), wrong) = jax.lax.scan(
        step, (state.envs, state.obs_stats), given
    )
    rollout = Rollout(steps, acted_next, points, first=begins, carry=state.envs.carry)
    start = unsound(jax.vmap(task.observe)(state.envs.inner), 1)
    return replace(state, envs=envs, obs_stats=stats), rollout, rollout_checks(rollout, start, wrong)


def select_envs(where: Bool[Array, " N"], new: Shaped[Array, "N ..."], old: Shaped[Array, "N ..."]) -> Array:
    """The new values of the environments that `where` names, the old ones of the others."""
    return jnp.where(where.reshape((-1,) + (1,) * (old.ndim - 1)), new, old)


def learn(
    setup: Setup, state: TrainState, rollout: Rollout, checks: Checks | None = None
) -> tuple[TrainState, Report, Work | None]:
    """The agent learns from a rollout, and what was seen is counted; some gradient steps may be left to do.

    `checks` are those of the rollout, where they cannot be made from it.
    """
    if checks is None:
        checks = rollout_checks(rollout, unsound(rollout.step.obs[0], 1), jnp.zeros((), bool))
    agent, learnt, work = setup.agent.learn(state.agent, rollout, key=state.key)
    visited, cells = count_cells(setup.task, state.visited, rollout, learnt.bonus)
    metrics = {**learnt.metrics, **cells, **task_metrics(setup.task, rollout)}
    if learnt.bonus is not None:
        asked = rollout.step.valid if learnt.asked is None else learnt.asked
        metrics |= bonus_metrics(setup.task, rollout, learnt.bonus, asked)
    # What else is drawn in this iteration was drawn before; the next rollout may begin while work is left to do.
    state = replace(state, agent=agent, visited=visited, iteration=state.iteration + 1)
    return state, Report(metrics, checks + learnt.checks), work


def finish(setup: Setup, state: TrainState, work: Work | None) -> tuple[TrainState, Report]:
    """The gradient steps that are left to do, all at once."""
    if work is None:
        return state, Report({}, setup.agent.check(state.agent))
    agent, metrics, checks = setup.agent.work(state.agent, work)
    return replace(state, agent=agent), Report(metrics, checks + setup.agent.check(agent))


def rollout_checks(rollout: Rollout, start: Bool[Array, " N"], raw: Bool[Array, "*lead"]) -> Checks:
    """Whether a rollout is sound: only the fault that came first is given a place.

    `start` names environments whose first observations were unsound before they were normalised, `raw` the steps that
    led to such ones.
    """
    step = rollout.step
    normalised = unsound(step.obs, 2) | unsound(step.next_obs, 2)
    # One environment's fault spreads to the others by the statistics that they share.
    observation = jnp.where(jnp.any(raw), raw, normalised)
    found = {
        START: first(start),
        ACTION: first(unsound(step.action, 2)),
        OBSERVATION: first(observation),
        POINT: first(unsound(rollout.points, 2)),
        REWARD: first(unsound(step.reward, 2)),
    }
    envs = step.reward.shape[1]
    never = jnp.iinfo(jnp.int32).max
    # Steps since the rollout began, what it began with being 0; of several in one step the first in this order.
    when = [jnp.where(at >= 0, 0 if check is START else at // envs + 1, never) for check, at in found.items()]
    cause = jnp.argmin(jnp.stack(when))
    return Checks.of(*((check, jnp.where(cause == k, at, -1)) for k, (check, at) in enumerate(found.items())))


def evaluate(setup: Setup, state: TrainState) -> Metrics:
    """What the agent's model would pay where the task asks, whether the agent went there or not."""
    task, stats = setup.traced, state.obs_stats
    assert stats is not None
    key = state.keys()[Stream.PROBE]

    def see(obs: Array) -> Array:
        return setup.normalise(stats, obs)

    maps = probe_maps(task, setup.agent, state.agent, see, key=key)
    return maps | sample_bonus(task, setup.agent, state.agent, see, key=key)


def first_envs(setup: Setup, root: PRNGKey) -> EnvStates:
    """Freshly reset environments; a reset does not enter the observation statistics."""
    task = setup.traced
    keys = jax.random.split(jax.random.fold_in(root, Stream.FIRST_RESET), setup.loop.envs)
    inner = jax.vmap(lambda k: task.reset(key=k))(keys)
    obs = setup.normalise(Moments.start(task.spec.obs_shape), jax.vmap(task.observe)(inner))
    return EnvStates(inner, jnp.zeros(setup.loop.envs, jnp.int32), obs, first_carries(setup))


def first_carries(setup: Setup) -> Any:
    """The agent's memory of each environment before its first step `[N, ...]`."""
    return jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x)[None], setup.loop.envs, axis=0), setup.agent.carry())


def calibrated(setup: Setup, state: TrainState, rollout: Rollout) -> TrainState:
    """The state with an agent that has measured what it measures once: on what the steps of a rollout led to."""
    obs = rollout.step.next_obs
    return replace(state, agent=setup.agent.calibrated(state.agent, obs.reshape((-1, *obs.shape[2:]))))
