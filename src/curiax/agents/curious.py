"""The curious agent: a policy that learns from a bonus, and the method that pays it.

learn   bonus → reward → policy      the bonus is of the method as it was before it trained on the rollout
work    the method's minibatches
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, Shaped

from .._metrics import Metric
from .._settings import Discount, Positive
from .._sound import LIMIT, Check, Checks, all_within, first, unsound
from .._tree import flatten
from .._types import PRNGKey, Rewards, Rollout, Spec, Transition, stream_keys
from ..curiosity import AbstractCuriosity, Learner, LearnerState, explanation, score, start_memory
from ..curiosity.learner import Minibatches
from ._base import AbstractAgent, HostActor, Learnt, Metrics, Work
from ._policy import AbstractPolicyLearner, PolicyState
from .task_reward import METRICS as OF_REWARD
from .task_reward import TaskReward

SCALE = Metric("bonus/scale", "deviation of the bonus", note="Of its discounted sum, by which it is divided.", low=0.0)
PAID = Metric("bonus/paid_mean", "mean paid bonus", note="Scaled and clipped.")
LOSS = Metric("loss", "loss of the model", note="Mean over an update's minibatches.")

BONUS = Check("bonus", "the bonus of method {method!r}", "steps")
TERMS = Check("terms", "the terms of its bonus that method {method!r} reports", "nothing")
MODEL_LOSS = Check("model_loss", "the loss or the terms that method {method!r} reports", "updates")
MODEL_GRADIENT = Check("model_gradient", "the gradient of the loss of method {method!r}", "updates")
MODEL = Check(
    "model", "the parameters, the optimiser or the memory of method {method!r}, trained on its own loss", "nothing"
)


@dataclass(frozen=True)
class RewardSettings:
    """What the method sees of a rollout, and how the task's reward and the bonus are mixed.

    Args:
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
    """

    successor: Literal["reset", "true", "drop"] = "reset"
    model_action: Literal["sampled", "executed"] = "sampled"
    extrinsic_weight: float = 0.0
    intrinsic_weight: float = 1.0
    normalise_reward: bool = False
    reward_discount: Discount = 0.99
    reward_clip: Positive = 10.0


class Stream(IntEnum):
    """The agent's uses of randomness; the loop folds other numbers into the same keys."""

    POLICY_INIT = 0
    METHOD_INIT = 1
    BONUS = 6
    POLICY = 7
    METHOD = 8
    EXPLAIN = 9


class Networks(eqx.Module):
    """What a seed learns, without optimisers; the names are those of the arrays in exports."""

    agent: Any
    #: None of an agent that no bonus is paid to.
    curiosity: AbstractCuriosity | None


class CuriousState(eqx.Module):
    """What training carries from one iteration to the next."""

    policy: PolicyState
    #: The method and what its learner carries; None without a method.
    curiosity: AbstractCuriosity | None
    learner: LearnerState | None
    #: None where the task's reward has no weight.
    task_reward: TaskReward | None


class Paid(eqx.Module):
    """What a method paid for a rollout."""

    learner: LearnerState
    #: The rollout as the method saw it, and what it was made to report.
    seen: Rollout
    terms: dict[str, Array]
    raw: Float[Array, "T N"]
    scaled: Float[Array, "T N"]


class CuriousAgent(AbstractAgent):
    """A policy learner, a method, and the learner that trains the method and scales its bonus; or no method."""

    spec: Spec = eqx.field(static=True)
    policy: AbstractPolicyLearner
    learner: Learner
    #: Draws the method's networks from a key; None where no bonus is paid.
    build_method: Callable[[PRNGKey], AbstractCuriosity] | None = eqx.field(static=True)
    rewards: RewardSettings = eqx.field(static=True)
    #: What the method reports.
    terms: tuple[Metric, ...] = eqx.field(static=True, default=())

    behaviours: ClassVar[tuple[str, ...]] = ("explore", "greedy")

    @property
    def metrics(self) -> tuple[Metric, ...]:
        of_policy = (metric.within("policy") for metric in self.policy.metrics)
        of_model = (metric.within("model") for metric in (LOSS, *self.terms))
        of_reward = OF_REWARD if self.rewards.extrinsic_weight != 0 else ()
        of_bonus = () if self.build_method is None else (SCALE, PAID, *of_model)
        return (*of_reward, *of_bonus[:2], *of_policy, *of_bonus[2:])

    @property
    def sees_successors(self) -> bool:
        return self.rewards.successor == "true" or self.policy.sees_successors

    @property
    def keeps_observations(self) -> bool:
        return self.build_method is not None and self.learner.settings.replay > 0

    # --- networks and state

    def build(self, *, key: PRNGKey) -> Networks:
        policy = self.policy.build(self.spec, key=jax.random.fold_in(key, Stream.POLICY_INIT))
        build = self.build_method
        return Networks(policy, None if build is None else build(jax.random.fold_in(key, Stream.METHOD_INIT)))

    def start(self, networks: Networks, lead: tuple[int, int]) -> CuriousState:
        model, weighs_in = networks.curiosity, self.rewards.extrinsic_weight != 0
        learner = None if model is None else self.learner.start(model, example_steps(self.spec, lead))
        task_reward = TaskReward.start(lead[1], self.rewards.normalise_reward) if weighs_in else None
        return CuriousState(self.policy.start(networks.agent), model, learner, task_reward)

    def networks(self, state: CuriousState) -> Networks:
        return Networks(self.policy.networks(state.policy), state.curiosity)

    def described(self, networks: Networks) -> dict[str, Any]:
        return self.policy.described(networks.agent, "agent")

    # --- acting

    def actor(self, networks: Networks) -> Any:
        return networks.agent

    def noise(self, shape: tuple[int, ...], *, key: PRNGKey) -> Float[Array, "*shape _"]:
        return self.policy.noise(self.spec, shape, key=key)

    def act(
        self,
        actor: Any,
        carry: tuple[()],
        obs: Float[Array, "..."],
        first: Bool[Array, ""],
        noise: Float[Array, " _"],
        *,
        behaviour: str = "explore",
    ) -> tuple[tuple[()], Shaped[Array, "..."]]:
        return carry, self.policy.act(self.spec, actor, obs, noise, greedy=behaviour == "greedy")

    def host_actor(self, actors: Any, carry: tuple[()], noise: Shaped[np.ndarray, "T S N _"]) -> HostActor:
        return self.policy.host_actor(self.spec, actors, noise) or super().host_actor(actors, carry, noise)

    # --- learning

    def learn(self, state: CuriousState, rollout: Rollout, *, key: PRNGKey) -> tuple[CuriousState, Learnt, Work | None]:
        keys, mixed = stream_keys(key, Stream), self.rewards
        paid = self.pay(state, rollout, keys)
        task_reward, earned, of_reward = state.task_reward, rollout.step.reward, {}
        if task_reward is not None:
            task_reward, earned, of_reward = task_reward.pay(
                rollout.step,
                discount=mixed.reward_discount,
                clip=mixed.reward_clip,
                all_valid=not self.spec.fillers,
            )
        bonus = jnp.zeros_like(earned) if paid is None else paid.scaled
        rewards = Rewards(earned, bonus, mixed.extrinsic_weight, mixed.intrinsic_weight)
        policy, report, policy_checks = self.policy.learn(
            self.spec, state.policy, rollout, rewards, key=keys[Stream.POLICY]
        )
        after = replace(state, policy=policy, task_reward=task_reward)
        metrics = {**of_reward, **{f"policy/{name}": value for name, value in report.items()}}
        checks = Checks.of() if policy_checks is None else policy_checks
        if paid is None:
            return after, Learnt(metrics, checks), None

        learner, work = self.deal(state, paid, keys)
        metrics |= {
            "bonus/scale": learner.scale.deviation,
            "bonus/paid_mean": jnp.mean(paid.scaled),
            **{f"model/{name}": value for name, value in paid.terms.items()},
        }
        of_method = Checks.of((BONUS, first(unsound(paid.raw, 2, LIMIT))), (TERMS, first(~all_within(paid.terms))))
        valid = paid.seen.step.valid
        return replace(after, learner=learner), Learnt(metrics, of_method + checks, paid.raw, valid), work

    def pay(self, state: CuriousState, rollout: Rollout, keys: Key[Array, " streams"]) -> Paid | None:
        """What the method pays for a rollout, as it was before learning from it; None without a method."""
        model, learner = state.curiosity, state.learner
        if model is None or learner is None:
            return None
        seen = self.model_transitions(rollout)
        terms = explanation(model, seen, key=keys[Stream.EXPLAIN])
        learner, raw, scaled = self.learner.reward(model, learner, seen, key=keys[Stream.BONUS])
        return Paid(learner, seen, terms, raw, scaled)

    def deal(self, state: CuriousState, paid: Paid, keys: Key[Array, " streams"]) -> tuple[LearnerState, Work | None]:
        """The minibatches that the method is trained on, where there is anything to train."""
        model = state.curiosity
        if model is None or not self.learner.trains(model):
            return paid.learner, None
        learner, batches = self.learner.minibatches(model, paid.learner, paid.seen, key=keys[Stream.METHOD])
        return learner, Work((batches.steps, batches.draws), batches.frames)

    def work(self, state: CuriousState, work: Work) -> tuple[CuriousState, Metrics, Checks]:
        assert state.curiosity is not None
        assert state.learner is not None
        steps, draws = work.steps
        model, learner, report, (loss, gradient) = self.learner.train(
            state.curiosity, state.learner, Minibatches(steps, draws, None, work.common)
        )
        after = replace(state, curiosity=model, learner=learner)
        checks = Checks.of((MODEL_LOSS, loss), (MODEL_GRADIENT, gradient))
        return after, {f"model/{name}": value for name, value in report.items()}, checks

    def check(self, state: CuriousState) -> Checks:
        of_policy = self.policy.check(state.policy)
        checks = Checks.of() if of_policy is None else of_policy
        if state.learner is None:
            return checks
        # A memory may hold infinity on purpose, but no NaN.
        memory = [x for x in jax.tree.leaves(state.learner.memory) if eqx.is_inexact_array(x)]
        nans = jnp.stack([jnp.zeros((), bool), *(jnp.any(jnp.isnan(x)) for x in memory)])
        kept = (flatten(state.curiosity)[0], state.learner.opt_state, state.learner.scale)
        return Checks.of((MODEL, first(~all_within(kept, jnp.inf) | jnp.any(nans)))) + checks

    def model_transitions(self, rollout: Rollout) -> Rollout:
        """The rollout as model and bonus see it: which successor at an episode's end, which action."""
        step, rewards = rollout.step, self.rewards
        action = self.spec.action.executed(step.action) if rewards.model_action == "executed" else step.action
        next_obs = rollout.acted_next if rewards.successor == "reset" else step.next_obs
        valid = step.valid & ~step.ended if rewards.successor == "drop" else step.valid
        return replace(rollout, step=replace(step, action=action, next_obs=next_obs, valid=valid))

    # --- outside of rollouts

    def pays(self, state: CuriousState, steps: Transition, *, key: PRNGKey) -> Float[Array, "T N"] | None:
        # A method with a memory pays by what came before.
        if state.curiosity is None or start_memory(state.curiosity, 1) is not None:
            return None
        return score(state.curiosity, None, steps, key=key)[1]

    def calibrates(self, state: CuriousState) -> bool:
        return state.curiosity is not None and state.curiosity.calibrates

    def calibrated(self, state: CuriousState, obs: Float[Array, "B ..."]) -> CuriousState:
        return state if state.curiosity is None else replace(state, curiosity=state.curiosity.calibrated(obs))


def example_steps(spec: Spec, lead: tuple[int, int]) -> Transition:
    """Transitions of a rollout's shapes `[T, N]`, all zeros."""
    kind = jnp.int32 if spec.action.shape == () else jnp.float32
    obs, flag = jnp.zeros((*lead, *spec.obs_shape)), jnp.zeros(lead, bool)
    return Transition(obs, jnp.zeros((*lead, *spec.action.shape), kind), obs, jnp.zeros(lead), flag, flag, flag)
