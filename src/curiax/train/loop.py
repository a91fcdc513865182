"""The training loop: collect → bonus → reward → policy → model → statistics.

Everything here is a pure function of one seed's state; `batch.py` adds the seeds and the devices, `hosted.py` the
environments that JAX cannot trace.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from .._settings import Count, Discount, Positive
from .._sound import LIMIT, all_within, first, unsound
from .._stats import Moments, valid_mean
from .._tree import flatten
from .._types import PRNGKey, Rewards, Rollout, Transition
from ..agents import AbstractAgent
from ..curiosity import AbstractCuriosity, Learner, LearnerState, explanation, score, start_memory
from ..envs import AbstractAnyTask, AbstractTask
from .task_reward import TaskReward

Metrics = dict[str, Array]


@dataclass(frozen=True)
class LoopSettings:
    """Collection of experience and mixing of rewards.

    Args:
        envs: environments stepped side by side.
        rollout: steps of each environment between updates.
        successor: what model and bonus see after an episode's last step: the `reset` observation of the
            next episode (released code), the `true` successor, or nothing (`drop`: bonus 0, not trained on).
        model_action: whether the model sees the `sampled` action (released code) or the `executed` one,
            clipped to the action space.
        extrinsic_weight: η_e, weight of the task's reward.
        intrinsic_weight: η_i, weight of the scaled bonus.
        normalise_reward: divide the task's reward by the running deviation of its discounted sum, as the released
            code's `VecNormalize` does; by default wherever the reward weighs in.
        reward_discount: discount of that sum, which starts anew with each episode.
        reward_clip: bound of the task's reward in deviations.
        normalise_obs: standardise observations by running statistics; by default all but images in 0..1.
        obs_clip: bound of standardised observations.
        obs_epsilon: added to the variance before the root.
        coverage: which partition headlines: the paper's `cells`, or honest `bins`; both are always recorded.
        mixed_precision: a game's frames are seen in bfloat16, and so are their convolutions; everything after those
            is float32. Methods that predict pixels predict rounded ones.
    """

    envs: Count = 1
    rollout: Count = 2048
    successor: Literal["reset", "true", "drop"] = "reset"
    model_action: Literal["sampled", "executed"] = "sampled"
    extrinsic_weight: float = 0.0
    intrinsic_weight: float = 1.0
    normalise_reward: bool = False
    reward_discount: Discount = 0.99
    reward_clip: Positive = 10.0
    normalise_obs: bool = True
    obs_clip: Positive = 10.0
    obs_epsilon: Positive = 1e-8
    coverage: Literal["cells", "bins"] = "cells"
    mixed_precision: bool = False


class Stream(IntEnum):
    """The uses of randomness; each gets a key of its own, so adding one disturbs no other."""

    AGENT_INIT = 0
    MODEL_INIT = 1
    FIRST_RESET = 2
    ACTIONS = 3
    STEPS = 4
    RESETS = 5
    BONUS = 6
    POLICY = 7
    MODEL = 8
    EXPLAIN = 9
    PROBE = 10
    BEFORE = 11


class EnvStates(eqx.Module):
    """`N` environments: their states, their clocks, and the observations to act on."""

    inner: Any
    elapsed: Int[Array, " N"]
    obs: Shaped[Array, "N ..."]


class TrainState(eqx.Module):
    """Everything that training carries from one iteration to the next."""

    agent: Any
    curiosity: AbstractCuriosity
    learner: LearnerState
    #: None where the environments run on the host: their lane keeps both.
    obs_stats: Moments | None
    envs: EnvStates | None
    visited: dict[str, Bool[Array, " cells"]]
    root: PRNGKey
    iteration: Int[Array, ""]
    #: None where the task's reward has no weight.
    task_reward: TaskReward | None = None

    def keys(self) -> Key[Array, " streams"]:
        """The keys of this iteration, one for each `Stream`."""
        return stream_keys(self.root, self.iteration)


def stream_keys(root: PRNGKey, iteration: Int[Array, ""]) -> Key[Array, " streams"]:
    """The keys of an iteration, one for each `Stream`; made together, they compile to one small kernel."""
    now = jax.random.fold_in(root, iteration)
    return jax.vmap(lambda stream: jax.random.fold_in(now, stream))(jnp.arange(len(Stream)))


class Setup(eqx.Module):
    """What stays the same for the whole run and for all seeds."""

    task: AbstractAnyTask
    agent: AbstractAgent
    learner: Learner
    loop: LoopSettings = eqx.field(static=True)
    #: What happens to values that no computation should see: the run stops, or goes on without their seed. The programs
    #: are the same: whoever reads the metrics decides.
    on_nonfinite: Literal["stop", "drop"] = eqx.field(static=True, default="stop")

    def normalise(self, stats: Moments, obs: Array) -> Array:
        """Observations as agent and model see them."""
        return stats.normalise(obs, self.loop.obs_epsilon, self.loop.obs_clip) if self.loop.normalise_obs else obs


class Unsound(eqx.Module):
    """Where a rollout held values from outside that no computation should see."""

    #: The observation that the rollout began with, before it was normalised; only a reset can have made it so.
    start: Bool[Array, " N"]
    action: Bool[Array, "T N"]
    #: What the step led to, the next episode's first observation included, before it was normalised.
    observation: Bool[Array, "T N"]
    point: Bool[Array, "T N"]
    reward: Bool[Array, "T N"]

    @staticmethod
    def among(rollout: Rollout, start: Bool[Array, " N"], raw: Bool[Array, "T N"] | bool) -> Unsound:
        """What is to be found in a rollout, and in observations before they were normalised for it."""
        step = rollout.step
        normalised = unsound(step.obs, 2) | unsound(step.next_obs, 2)
        # One environment's fault spreads to the others by the statistics that they share.
        observation = jnp.where(jnp.any(raw), raw, normalised)
        return Unsound(start, unsound(step.action, 2), observation, unsound(rollout.points, 2), unsound(step.reward, 2))


def example_steps(setup: Setup) -> Transition:
    """A transition batch of a rollout's shapes, all zeros."""
    spec, lead = setup.task.spec, (setup.loop.rollout, setup.loop.envs)
    kind = jnp.int32 if spec.action.shape == () else jnp.float32
    obs, flag = jnp.zeros((*lead, *spec.obs_shape)), jnp.zeros(lead, bool)
    return Transition(obs, jnp.zeros((*lead, *spec.action.shape), kind), obs, jnp.zeros(lead), flag, flag, flag)


def first_envs(setup: Setup, root: PRNGKey) -> EnvStates:
    """Freshly reset environments; a reset does not enter the observation statistics."""
    task = setup.task
    assert isinstance(task, AbstractTask)
    keys = jax.random.split(jax.random.fold_in(root, Stream.FIRST_RESET), setup.loop.envs)
    inner = jax.vmap(lambda k: task.reset(key=k))(keys)
    obs = setup.normalise(Moments.start(task.spec.obs_shape), jax.vmap(task.observe)(inner))
    return EnvStates(inner, jnp.zeros(setup.loop.envs, jnp.int32), obs)


def collect(setup: Setup, state: TrainState) -> tuple[EnvStates, Moments, Rollout, Unsound]:
    """Step every environment `loop.rollout` times with the current policy.

    All randomness, fresh initial states included, is drawn in bulk beforehand, which keeps the inner loop
    to the actor, the physics and the running statistics.
    """
    task, spec, loop, envs, stats = setup.task, setup.task.spec, setup.loop, state.envs, state.obs_stats
    assert isinstance(task, AbstractTask)
    assert envs is not None
    assert stats is not None
    lead, keys = (loop.rollout, loop.envs), state.keys()
    noise = setup.agent.noise(spec, lead, key=keys[Stream.ACTIONS])
    step_keys = jax.random.split(keys[Stream.STEPS], lead)
    reset_keys = jax.random.split(keys[Stream.RESETS], lead)
    fresh = jax.vmap(jax.vmap(lambda k: task.reset(key=k)))(reset_keys)
    start = unsound(jax.vmap(task.observe)(envs.inner), 1)

    def step(carry: tuple[EnvStates, Moments], now: tuple[Any, ...]) -> tuple[tuple[EnvStates, Moments], Any]:
        envs, stats = carry
        noise, keys, fresh = now
        action = jax.vmap(lambda o, n: setup.agent.act(spec, state.agent, o, n))(envs.obs, noise)
        inner, reward, terminated = jax.vmap(lambda s, a, k: task.step(s, a, key=k))(
            envs.inner, spec.action.executed(action), keys
        )
        true_next = jax.vmap(task.observe)(inner)
        wrong = unsound(true_next, 1)
        elapsed = envs.elapsed + 1
        truncated = ~terminated & (elapsed >= spec.horizon) if spec.horizon else jnp.zeros_like(terminated)
        ended = terminated | truncated
        points = jax.vmap(task.track)(inner)
        inner = jax.tree.map(lambda new, old: select_envs(ended, new, old), fresh, inner)
        acted_next = jax.vmap(task.observe)(inner)
        wrong |= unsound(acted_next, 1)
        if loop.normalise_obs:
            stats = stats.merge(acted_next)
        acted_next, next_obs = setup.normalise(stats, acted_next), setup.normalise(stats, true_next)
        valid = jnp.ones_like(terminated)
        transition = Transition(envs.obs, action, next_obs, reward, terminated, truncated, valid)
        envs = EnvStates(inner, jnp.where(ended, 0, elapsed), acted_next)
        return (envs, stats), ((transition, acted_next, points), wrong)

    (envs, stats), (steps, wrong) = jax.lax.scan(step, (envs, stats), (noise, step_keys, fresh))
    rollout = Rollout(*steps)
    return envs, stats, rollout, Unsound.among(rollout, start, wrong)


def select_envs(where: Bool[Array, " N"], new: Shaped[Array, "N ..."], old: Shaped[Array, "N ..."]) -> Array:
    """The new values of the environments that `where` names, the old ones of the others."""
    return jnp.where(where.reshape((-1,) + (1,) * (old.ndim - 1)), new, old)


def model_transitions(setup: Setup, rollout: Rollout) -> Rollout:
    """The rollout as model and bonus see it: which successor at an episode's end, which action."""
    step, loop = rollout.step, setup.loop
    action = setup.task.spec.action.executed(step.action) if loop.model_action == "executed" else step.action
    next_obs = rollout.acted_next if loop.successor == "reset" else step.next_obs
    valid = step.valid & ~step.ended if loop.successor == "drop" else step.valid
    return replace(rollout, step=replace(step, action=action, next_obs=next_obs, valid=valid))


def learn(
    setup: Setup, state: TrainState, rollout: Rollout, wrong: Unsound | None = None
) -> tuple[TrainState, Metrics]:
    """One update from one rollout, in the order of the released code.

    The bonus comes from the model as it was before it trains on this rollout; then the policy learns, then
    the model. `wrong` says what was unsound in the rollout, where that cannot be seen in it.
    """
    state, seen, metrics = learn_policy(setup, state, rollout, wrong)
    state, of_model = learn_model(setup, state, seen)
    return state, {**metrics, **of_model}


def learn_policy(
    setup: Setup, state: TrainState, rollout: Rollout, wrong: Unsound | None = None
) -> tuple[TrainState, Rollout, Metrics]:
    """The first half of an update: bonus, reward, policy, cells. Returns also the rollout as the model sees it."""
    loop, learner, keys = setup.loop, setup.learner, state.keys()
    if wrong is None:
        wrong = Unsound.among(rollout, unsound(rollout.step.obs[0], 1), False)
    seen, model = model_transitions(setup, rollout), state.curiosity
    terms = explanation(model, seen, key=keys[Stream.EXPLAIN])
    learner_state, raw, bonus = learner.reward(model, state.learner, seen, key=keys[Stream.BONUS])
    wrong_bonus = unsound(raw, 2, LIMIT)
    spec = setup.task.spec
    task_reward, earned, of_reward = state.task_reward, rollout.step.reward, {}
    if task_reward is not None:
        task_reward, earned, of_reward = task_reward.pay(
            rollout.step, discount=loop.reward_discount, clip=loop.reward_clip, all_valid=not spec.fillers
        )
    rewards = Rewards(earned, bonus, loop.extrinsic_weight, loop.intrinsic_weight)
    agent, policy_report = setup.agent.learn(spec, state.agent, rollout, rewards, key=keys[Stream.POLICY])
    visited, coverage = count_cells(setup, state.visited, rollout, raw)
    policy_report, policy_steps = split_report(policy_report)
    metrics = {
        **coverage,
        **noise_shares(setup.task, rollout, raw),
        **kind_ratio(setup.task, rollout, raw, seen.step.valid),
        **bonus_metrics(rollout, raw, bonus, learner_state),
        **of_reward,
        **{f"policy/{name}": value for name, value in policy_report.items()},
        **{f"model/{name}": value for name, value in terms.items()},
        **{f"unsound/{field.name}": first(getattr(wrong, field.name)) for field in fields(wrong)},
        "unsound/bonus": first(wrong_bonus),
        "unsound/terms": first(~all_within(terms)),
        **{f"unsound/policy_{name}": policy_steps[f"unsound/{name}"] for name in ("loss", "gradient")},
        "unsound/policy": first(~all_within(flatten(agent)[0], jnp.inf)),
    }
    state = replace(state, agent=agent, learner=learner_state, visited=visited, task_reward=task_reward)
    return state, seen, metrics


def learn_model(setup: Setup, state: TrainState, seen: Rollout) -> tuple[TrainState, Metrics]:
    """The second half: the model trains on the rollout as it sees it, and the iteration is over."""
    model, learner_state, report = setup.learner.update(
        state.curiosity, state.learner, seen, key=state.keys()[Stream.MODEL]
    )
    state = replace(state, curiosity=model, learner=learner_state, iteration=state.iteration + 1)
    return state, model_metrics(setup, state, report)


def model_metrics(setup: Setup, state: TrainState, report: Metrics) -> Metrics:
    """What is told of a model's training."""
    report, steps = split_report(report)
    return {
        **{f"model/{name}": value for name, value in report.items()},
        **{f"unsound/model_{name}": steps[f"unsound/{name}"] for name in ("loss", "gradient")},
        # The last net, for whatever came from elsewhere: optimisers, the bonus's scale and memories included.
        "unsound/model": first(~sane(state.curiosity, state.learner)),
    }


def sane(model: AbstractCuriosity, learner: LearnerState) -> Bool[Array, ""]:
    """Whether all that a model and its training keep is finite; a memory may hold infinity on purpose, but no NaN."""
    nans = [jnp.any(jnp.isnan(x)) for x in jax.tree.leaves(learner.memory) if eqx.is_inexact_array(x)]
    finite = all_within((flatten(model)[0], learner.opt_state, learner.scale), jnp.inf)
    return finite & ~jnp.any(jnp.stack([jnp.zeros((), bool), *nans]))


def split_report(report: Metrics) -> tuple[Metrics, Metrics]:
    """A report's own terms, and what it says of its gradient steps; those that were never made were sound."""
    none = jnp.asarray(-1, jnp.int32)
    steps = {name: report.get(name, none) for name in ("unsound/loss", "unsound/gradient")}
    return {name: value for name, value in report.items() if name not in steps}, steps


def iterate(setup: Setup, state: TrainState) -> tuple[TrainState, Metrics]:
    """One iteration: collect, then learn."""
    envs, obs_stats, rollout, wrong = collect(setup, state)
    after, metrics = learn(setup, state, rollout, wrong)
    # The model that paid for this rollout, not the one that has since been trained on it.
    maps = probe_maps(setup, state.curiosity, obs_stats, key=state.keys()[Stream.PROBE])
    maps |= sample_bonus(setup, state.curiosity, obs_stats, key=state.keys()[Stream.PROBE])
    return eqx.tree_at(lambda s: (s.envs, s.obs_stats), after, (envs, obs_stats)), {**metrics, **maps}


def count_cells(
    setup: Setup, visited: dict[str, Array], rollout: Rollout, raw: Float[Array, "T N"]
) -> tuple[dict[str, Array], Metrics]:
    """Mark the visited cells of every grid; report coverage in per cent, visits and the bonus paid in each cell."""
    after, metrics = {}, {}
    for grid in setup.task.grids:
        cells = grid.index(rollout.points).reshape(-1)
        occupancy = jnp.zeros(grid.size, jnp.int32).at[cells].add(1)
        metrics[f"paid/{grid.name}"] = jnp.zeros(grid.size).at[cells].add(raw.reshape(-1))
        after[grid.name] = visited[grid.name] | (occupancy > 0)
        if grid.closed:
            after[grid.name] &= jnp.asarray(grid.counted)
        count = jnp.sum(after[grid.name])
        metrics[f"coverage/{grid.name}"] = 100.0 * count / grid.nominal
        if grid.reachable:
            metrics[f"reachable/{grid.name}"] = 100.0 * count / grid.reachable
        metrics[f"occupancy/{grid.name}"] = occupancy
    return after, metrics


def noise_shares(task: AbstractAnyTask, rollout: Rollout, raw: Float[Array, "T N"]) -> Metrics:
    """How many of the steps drew noise that no model can predict, and how much of the bonus was paid on them."""
    drew = jax.vmap(jax.vmap(task.unlearnable))(task.spec.action.executed(rollout.step.action))
    if drew is None:
        return {}
    total = jnp.sum(raw)
    return {
        "noise/steps": jnp.mean(drew),
        "noise/bonus": jnp.where(total != 0, jnp.sum(jnp.where(drew, raw, 0.0)) / total, 0.0),
    }


def kind_ratio(task: AbstractAnyTask, rollout: Rollout, raw: Float[Array, "T N"], valid: Bool[Array, "T N"]) -> Metrics:
    """The mean raw bonus of each of the two kinds of transitions that a task compares, and the first over the second.

    The ratio is 1 where there is nothing to divide by.
    """
    if task.compared is None:
        return {}
    kind = jax.vmap(jax.vmap(task.kind))(rollout.points)
    first, second = (valid_mean(raw, valid & (kind == which)) for which in (0, 1))
    ratio = jnp.where(second != 0, first / jnp.where(second != 0, second, 1.0), 1.0)
    return {"ratio/bonus": ratio, "ratio/first": first, "ratio/second": second}


def sample_bonus(setup: Setup, model: AbstractCuriosity, stats: Moments, *, key: PRNGKey) -> Metrics:
    """What a model would pay for each of the task's sample transitions; nothing for one with an episodic memory."""
    task = setup.task
    assert isinstance(task, AbstractTask)
    samples = task.samples()
    if samples is None or start_memory(model, 1) is not None:
        return {}
    # Each is a rollout's time step of one environment.
    obs, next_obs = (
        setup.normalise(stats, jax.vmap(task.observe)(states))[:, None]
        for states in (samples.states, samples.next_states)
    )
    lead = obs.shape[:2]
    action, no = samples.actions[:, None], jnp.zeros(lead, bool)
    bonus = score(model, None, Transition(obs, action, next_obs, jnp.zeros(lead), no, no, ~no), key=key)[1]
    return {"samples/bonus": bonus[:, 0]}


def calibrated(state: TrainState, rollout: Rollout) -> TrainState:
    """The state with a model that has measured what it measures once: on what the steps of a rollout led to."""
    obs = rollout.step.next_obs
    model = state.curiosity.calibrated(obs.reshape((-1, *obs.shape[2:])))
    return eqx.tree_at(lambda s: s.curiosity, state, model)


def probe_maps(setup: Setup, model: AbstractCuriosity, stats: Moments, *, key: PRNGKey) -> Metrics:
    """What a model would pay in every cell of the task's probe, whether the agent went there or not.

    A method with a memory pays by what came before, so there is no such map of it.
    """
    task = setup.task
    assert isinstance(task, AbstractTask)
    probe = task.probe()
    if probe is None or start_memory(model, 1) is not None:
        return {}
    maps = {}
    for name, actions in probe.actions.items():
        # The same draws in every iteration and for every method, so that only the model makes the difference.
        lead = (jax.tree.leaves(probe.states)[0].shape[0], actions.shape[0])
        keys = jax.random.split(jax.random.key(0), lead)
        over_actions = jax.vmap(lambda s, a, k: task.step(s, a, key=k), in_axes=(None, 0, 0))
        after, reward, _ = jax.vmap(over_actions, in_axes=(0, None, 0))(probe.states, actions, keys)
        obs = setup.normalise(stats, jax.vmap(task.observe)(probe.states))
        obs = jnp.broadcast_to(obs[:, None], (*lead, *obs.shape[1:]))
        next_obs = setup.normalise(stats, jax.vmap(jax.vmap(task.observe))(after))
        action, no = jnp.broadcast_to(actions, (*lead, *actions.shape[1:])), jnp.zeros(lead, bool)
        bonus = score(model, None, Transition(obs, action, next_obs, reward, no, no, ~no), key=key)[1]
        maps[f"probe/{name}"] = jnp.mean(bonus, axis=1)
    return maps


def bonus_metrics(
    rollout: Rollout, raw: Float[Array, "T N"], paid: Float[Array, "T N"], learner: LearnerState
) -> Metrics:
    """How large the raw bonus was, how it spread, and how much of it was paid at episode borders."""
    ended = rollout.step.ended
    total = jnp.sum(raw)
    return {
        "bonus/mean": jnp.mean(raw),
        "bonus/median": jnp.median(raw),
        "bonus/std": jnp.std(raw),
        "bonus/max": jnp.max(raw),
        "bonus/border_share": jnp.where(total != 0, jnp.sum(jnp.where(ended, raw, 0.0)) / total, 0.0),
        "bonus/scale": learner.scale.deviation,
        "bonus/paid_mean": jnp.mean(paid),
        "reward/extrinsic_mean": jnp.mean(rollout.step.reward),
        "reward/episodes_ended": jnp.sum(ended),
    }
