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

from .._settings import Discount, Positive
from .._sound import LIMIT, Check, Checks, all_within, first, unsound
from .._tree import flatten
from .._types import PRNGKey, Rewards, Rollout, Spec, Transition
from ..curiosity import AbstractCuriosity, Learner, LearnerState, explanation, score, start_memory
from ..curiosity.learner import Minibatches
from ._base import AbstractAgent, HostActor, Learnt, Metrics, Work
from ._policy import AbstractPolicyLearner, PolicyState
from .task_reward import TaskReward

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


def stream_keys(key: PRNGKey) -> Key[Array, " streams"]:
    """The keys of an iteration, by the number of the stream; made together, they compile to one small kernel."""
    return jax.vmap(lambda stream: jax.random.fold_in(key, stream))(jnp.arange(len(Stream) + 4))


class Networks(eqx.Module):
    """What a seed learns, without optimisers; the names are those of the arrays in exports."""

    agent: Any
    curiosity: AbstractCuriosity


class CuriousState(eqx.Module):
    """What training carries from one iteration to the next."""

    policy: PolicyState
    curiosity: AbstractCuriosity
    learner: LearnerState
    #: None where the task's reward has no weight.
    task_reward: TaskReward | None


class CuriousAgent(AbstractAgent):
    """A policy learner, a method, and the learner that trains the method and scales its bonus."""

    spec: Spec = eqx.field(static=True)
    policy: AbstractPolicyLearner
    learner: Learner
    #: Draws the method's networks from a key.
    build_method: Callable[[PRNGKey], AbstractCuriosity] = eqx.field(static=True)
    rewards: RewardSettings = eqx.field(static=True)

    behaviours: ClassVar[tuple[str, ...]] = ("explore", "greedy")

    @property
    def sees_successors(self) -> bool:
        return self.rewards.successor == "true" or self.policy.sees_successors

    @property
    def keeps_observations(self) -> bool:
        return self.learner.settings.replay > 0

    # --- networks and state

    def build(self, *, key: PRNGKey) -> Networks:
        policy = self.policy.build(self.spec, key=jax.random.fold_in(key, Stream.POLICY_INIT))
        return Networks(policy, self.build_method(jax.random.fold_in(key, Stream.METHOD_INIT)))

    def start(self, networks: Networks, lead: tuple[int, int]) -> CuriousState:
        model, weighs_in = networks.curiosity, self.rewards.extrinsic_weight != 0
        learner = self.learner.start(model, example_steps(self.spec, lead))
        task_reward = TaskReward.start(lead[1], self.rewards.normalise_reward) if weighs_in else None
        return CuriousState(self.policy.start(networks.agent), model, learner, task_reward)

    def networks(self, state: CuriousState) -> Networks:
        return Networks(self.policy.networks(state.policy), state.curiosity)

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
        keys, mixed, model = stream_keys(key), self.rewards, state.curiosity
        seen = self.model_transitions(rollout)
        terms = explanation(model, seen, key=keys[Stream.EXPLAIN])
        learner, raw, paid = self.learner.reward(model, state.learner, seen, key=keys[Stream.BONUS])

        task_reward, earned, of_reward = state.task_reward, rollout.step.reward, {}
        if task_reward is not None:
            task_reward, earned, of_reward = task_reward.pay(
                rollout.step,
                discount=mixed.reward_discount,
                clip=mixed.reward_clip,
                all_valid=not self.spec.fillers,
            )
        rewards = Rewards(earned, paid, mixed.extrinsic_weight, mixed.intrinsic_weight)
        policy, report, policy_checks = self.policy.learn(
            self.spec, state.policy, rollout, rewards, key=keys[Stream.POLICY]
        )
        work = None
        if self.learner.trains(model):
            learner, batches = self.learner.minibatches(model, learner, seen, key=keys[Stream.METHOD])
            work = Work((batches.steps, batches.draws), batches.frames)

        metrics = {
            "bonus/scale": learner.scale.deviation,
            "bonus/paid_mean": jnp.mean(paid),
            **of_reward,
            **{f"policy/{name}": value for name, value in report.items()},
            **{f"model/{name}": value for name, value in terms.items()},
        }
        checks = Checks.of((BONUS, first(unsound(raw, 2, LIMIT))), (TERMS, first(~all_within(terms))))
        if policy_checks is not None:
            checks += policy_checks
        after = replace(state, policy=policy, learner=learner, task_reward=task_reward)
        return after, Learnt(metrics, checks, raw, seen.step.valid), work

    def work(self, state: CuriousState, work: Work) -> tuple[CuriousState, Metrics, Checks]:
        steps, draws = work.steps
        model, learner, report, (loss, gradient) = self.learner.train(
            state.curiosity, state.learner, Minibatches(steps, draws, None, work.common)
        )
        after = replace(state, curiosity=model, learner=learner)
        checks = Checks.of((MODEL_LOSS, loss), (MODEL_GRADIENT, gradient))
        return after, {f"model/{name}": value for name, value in report.items()}, checks

    def check(self, state: CuriousState) -> Checks:
        # A memory may hold infinity on purpose, but no NaN.
        memory = [x for x in jax.tree.leaves(state.learner.memory) if eqx.is_inexact_array(x)]
        nans = jnp.stack([jnp.zeros((), bool), *(jnp.any(jnp.isnan(x)) for x in memory)])
        kept = (flatten(state.curiosity)[0], state.learner.opt_state, state.learner.scale)
        checks = Checks.of((MODEL, first(~all_within(kept, jnp.inf) | jnp.any(nans))))
        of_policy = self.policy.check(state.policy)
        return checks if of_policy is None else checks + of_policy

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
        if start_memory(state.curiosity, 1) is not None:
            return None
        return score(state.curiosity, None, steps, key=key)[1]

    def calibrates(self, state: CuriousState) -> bool:
        return state.curiosity.calibrates

    def calibrated(self, state: CuriousState, obs: Float[Array, "B ..."]) -> CuriousState:
        return replace(state, curiosity=state.curiosity.calibrated(obs))


def example_steps(spec: Spec, lead: tuple[int, int]) -> Transition:
    """Transitions of a rollout's shapes `[T, N]`, all zeros."""
    kind = jnp.int32 if spec.action.shape == () else jnp.float32
    obs, flag = jnp.zeros((*lead, *spec.obs_shape)), jnp.zeros(lead, bool)
    return Transition(obs, jnp.zeros((*lead, *spec.action.shape), kind), obs, jnp.zeros(lead), flag, flag, flag)
