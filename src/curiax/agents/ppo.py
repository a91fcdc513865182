"""Proximal Policy Optimization, as the released LBS code runs it.

Schulman et al. 2017, in Kostrikov's form: separate tanh networks for policy and value, a state-independent
log-deviation, clipped value loss, advantages standardised over the whole rollout. Of large images, as in arcade games,
policy and value are two linear layers on one network of convolutions.

The value may have two heads, as in random network distillation (Burda et al. 2019): one of the task's reward and one of
the bonus, each with a discount and with episode ends of its own; their advantages are added up with the weights of the
two.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Shaped

from .._metrics import Metric, share
from .._settings import Count, CountOrZero, Discount, Fraction, NonNegative, Positive
from .._sound import Check, Checks, all_within, first
from .._stats import valid_mean
from .._tree import adam, descend, flatten, shuffle
from .._types import Discrete, PRNGKey, Rewards, Rollout, Scalar, Spec, Transition
from ..curiosity.encoders import CNN, large_image
from ..dist import Categorical, DiagGaussian
from ..nn import MLP, Linear, generator, orthogonal
from ._base import HostActor
from ._policy import AbstractPolicyLearner

BIBTEX = """@article{schulman2017proximal,
  title   = {Proximal Policy Optimization Algorithms},
  author  = {Schulman, John and Wolski, Filip and Dhariwal, Prafulla and Radford, Alec and Klimov, Oleg},
  journal = {arXiv preprint arXiv:1707.06347},
  year    = {2017}
}"""

LOSS = Check("policy_loss", "the policy's loss, given the bonus of {method!r}", "updates")
GRADIENT = Check("policy_gradient", "the gradient of the policy's loss, given the bonus of {method!r}", "updates")
POLICY = Check("policy", "the policy's parameters or optimiser, trained on the bonus of {method!r}", "nothing")

#: What is measured of an update; the loop has `policy/` before each name.
METRICS = (
    Metric("entropy", "entropy of the policy", "nats", "Of a Gaussian, as the setting `ppo.entropy_reduction` has it."),
    Metric("action_std", "deviation of actions", note="Mean over the dimensions of a Gaussian policy.", low=0.0),
    Metric("policy_loss", "loss of the policy", note="Of the clipped surrogate, mean over the update's minibatches."),
    Metric("value_loss", "loss of the value", note="Half of the squared error.", low=0.0),
    Metric("approx_kl", "KL of the update", "nats", "How far an update moved the policy on its own rollout.", low=0.0),
    share("clip_fraction", "steps clipped by the update", "Those whose probability changed beyond the clip."),
    Metric("explained_variance", "variance the value explains", note="1 is all of it.", high=1.0, digits=2),
    Metric("value_mean", "mean value"),
    Metric("bonus_explained_variance", "variance of the bonus its value explains", high=1.0, digits=2),
    Metric("bonus_value_mean", "mean value of the bonus"),
    Metric("advantage_std", "deviation of advantages", note="Before they are standardised.", low=0.0),
)

EpisodeEnds = Literal["ignore", "terminate", "bootstrap"]


@dataclass(frozen=True)
class PPOSettings:
    """Training of the policy.

    Args:
        learning_rate: Adam's step size.
        adam_epsilon: Adam's epsilon.
        max_gradient_norm: clip the gradient to this norm.
        epochs: passes over each rollout.
        minibatch_size: samples in one gradient step.
        discount: γ.
        trace: λ of generalised advantage estimation.
        clip: bound of the probability ratio and, with `clip_value`, of the value's change.
        clip_value: whether the value's change is bounded, too (released code); by default not where the task's reward
            weighs in.
        value_weight: weight of the value loss.
        entropy_weight: weight of the entropy bonus (README of the released code 0.01, paper 0.001).
        entropy_reduction: entropy of a Gaussian policy as the `mean` over action dimensions (released code)
            or their `sum`, the joint entropy.
        episode_ends: `ignore`: values and traces run through resets (released code); `terminate`: every end
            is worth 0 (its `--use-dones`); `bootstrap`: a time limit is worth the value of the true
            successor, a termination 0, which is the default wherever the task's reward weighs in.
        value_heads: `one` value of the weighted sum of the task's reward and the bonus; or `two`, one of each, which
            share their hidden layers.
        bonus_discount: γ of the bonus where it has a value head of its own.
        bonus_ends: what `episode_ends` says, of the bonus where it has a value head of its own; with `ignore` its
            return runs through episode ends, as in random network distillation.
        width: hidden units in each of the two layers; of large images also the number of features.
    """

    learning_rate: Positive = 3e-4
    adam_epsilon: Positive = 1e-5
    max_gradient_norm: Positive | None = 0.5
    epochs: CountOrZero = 10
    minibatch_size: Count = 64
    discount: Discount = 0.99
    trace: Fraction = 0.95
    clip: Positive = 0.2
    clip_value: bool = True
    value_weight: NonNegative = 0.5
    entropy_weight: NonNegative = 0.01
    entropy_reduction: Literal["mean", "sum"] = "mean"
    episode_ends: EpisodeEnds = "ignore"
    value_heads: Literal["one", "two"] = "one"
    bonus_discount: Discount = 0.99
    bonus_ends: EpisodeEnds = "ignore"
    width: Count = 64


def gae(
    reward: Float[Array, "T N"],
    value: Float[Array, "T N"],
    next_value: Float[Array, "T N"],
    cut: Bool[Array, "T N"],
    *,
    discount: float,
    trace: float,
) -> Float[Array, "T N"]:
    """Generalised advantage estimates.

    δ_t = r_t + γ V′_t − V_t,  A_t = δ_t + γ λ (1 − cut_t) A_{t+1}; what V′ is at an episode's end, and where
    the trace is cut, is the caller's choice.
    """
    delta = reward + discount * next_value - value

    def back(advantage: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, cut = now
        advantage = delta + discount * trace * jnp.where(cut, 0.0, advantage)
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, cut), reverse=True, unroll=8)[1]


def at_ends(
    step: Transition, following: Float[Array, "T N"], true: Float[Array, "T N"] | None, ends: EpisodeEnds
) -> tuple[Float[Array, "T N"], Bool[Array, "T N"]]:
    """The value each step bootstraps from, and where the trace is cut.

    `following` is the value of what is acted on next, `true` that of the true successor, which `bootstrap` needs.
    """
    if ends == "ignore":
        return following, jnp.zeros_like(step.terminated)
    if ends == "terminate":
        return jnp.where(step.ended, 0.0, following), step.ended
    assert true is not None
    return jnp.where(step.terminated, 0.0, jnp.where(step.truncated, true, following)), step.ended


class Policy(eqx.Module):
    """Actor and critic."""

    actor: MLP
    head: Linear
    log_std: Float[Array, " size"] | None
    critic: MLP

    def __init__(self, spec: Spec, width: int, heads: int = 1, *, key: PRNGKey) -> None:
        rng = generator(key)
        hidden = [spec.obs_size, width, width]
        root2 = orthogonal(2.0**0.5)
        discrete = isinstance(spec.action, Discrete)
        self.actor = MLP(hidden, key=rng, activation=jnp.tanh, activate_last=True, init=root2)
        self.head = Linear(width, spec.action.size, key=rng, init=orthogonal(0.01 if discrete else 1.0))
        self.log_std = None if discrete else jnp.zeros(spec.action.size)
        self.critic = MLP([*hidden, heads], key=rng, activation=jnp.tanh, init=root2)

    def distribution(self, obs: Float[Array, "..."]) -> DiagGaussian | Categorical:
        """The distribution of actions."""
        out = self.head(self.actor(jnp.ravel(obs)))
        return Categorical(out) if self.log_std is None else DiagGaussian(out, jnp.exp(self.log_std))

    def values(self, obs: Float[Array, "..."]) -> Float[Array, " heads"]:
        """V(s), of each head."""
        return self.critic(jnp.ravel(obs))

    def both(self, obs: Float[Array, "..."]) -> tuple[DiagGaussian | Categorical, Float[Array, " heads"]]:
        """The distribution of actions, and V(s) of each head."""
        return self.distribution(obs), self.values(obs)


class VisionPolicy(eqx.Module):
    """Actor and critic of large images: convolutions, two hidden layers, and a linear layer for each of the two."""

    eye: CNN
    trunk: MLP
    head: Linear
    log_std: Float[Array, " size"] | None
    critic: Linear

    def __init__(self, spec: Spec, width: int, heads: int = 1, *, key: PRNGKey) -> None:
        rng, discrete = generator(key), isinstance(spec.action, Discrete)
        self.eye = CNN(spec, [width], key=rng)
        self.trunk = MLP([width, width, width], key=rng, activate_last=True)
        self.head = Linear(width, spec.action.size, key=rng, init=orthogonal(0.01 if discrete else 1.0))
        self.log_std = None if discrete else jnp.zeros(spec.action.size)
        self.critic = Linear(width, heads, key=rng)

    def both(self, obs: Float[Array, "..."]) -> tuple[DiagGaussian | Categorical, Float[Array, " heads"]]:
        """The distribution of actions, and V(s) of each head."""
        hidden = self.trunk(self.eye(jnp.ravel(obs)))
        out = self.head(hidden)
        family = Categorical(out) if self.log_std is None else DiagGaussian(out, jnp.exp(self.log_std))
        return family, self.critic(hidden)

    def distribution(self, obs: Float[Array, "..."]) -> DiagGaussian | Categorical:
        """The distribution of actions."""
        return self.both(obs)[0]

    def values(self, obs: Float[Array, "..."]) -> Float[Array, " heads"]:
        """V(s), of each head."""
        return self.both(obs)[1]


AnyPolicy = Policy | VisionPolicy


#: One time step in so many of a game's is looked at again after an update.
LOOKED_AT = 8


def log_probs(policy: AnyPolicy, rollout: Rollout) -> Float[Array, "T N"]:
    """Log-probability of every action taken."""

    def each(obs: Array, action: Array) -> Scalar:
        return policy.distribution(rollout.see(obs)).log_prob(action)

    return rollout.map(each, rollout.step.obs, rollout.step.action)


class NumpyActor(HostActor):
    """The actors of all seeds in NumPy, for one rollout: batched products into buffers made beforehand."""

    def __init__(self, policy: Policy, noise: Float[np.ndarray, "T S N _"]) -> None:
        lead = noise.shape[1:3]

        def host(layer: Linear) -> tuple[np.ndarray, np.ndarray]:
            weight, bias = np.asarray(layer.weight), np.asarray(layer.bias)
            return weight, np.ascontiguousarray(np.broadcast_to(bias[:, None], (*lead, bias.shape[-1])))

        self._layers = [
            (*host(layer), np.empty((*lead, layer.bias.shape[-1]), np.float32)) for layer in policy.actor.layers
        ]
        self._head, bias = host(policy.head)
        # The head's bias does not change within a rollout, so it is part of the noise.
        std = 1.0 if policy.log_std is None else np.exp(np.asarray(policy.log_std))[:, None]
        self._noise = list(noise * std + bias)
        self._discrete = policy.log_std is None
        self._logits = np.empty((*lead, bias.shape[-1]), np.float32)

    def __call__(self, t: int, obs: np.ndarray, first: np.ndarray, out: np.ndarray) -> None:
        hidden = obs if obs.ndim == 3 else obs.reshape(*obs.shape[:2], -1)
        for weight, bias, buffer in self._layers:
            np.matmul(hidden, weight, out=buffer)
            np.add(buffer, bias, out=buffer)
            hidden = np.tanh(buffer, out=buffer)
        result = self._logits if self._discrete else out
        np.matmul(hidden, self._head, out=result)
        np.add(result, self._noise[t], out=result)
        if self._discrete:
            out[...] = np.argmax(result, axis=-1)


class PPOState(eqx.Module):
    """What PPO learns."""

    policy: AnyPolicy
    opt_state: optax.OptState


class Batch(eqx.Module):
    """Samples for the policy's gradient steps."""

    obs: Shaped[Array, "B ..."]
    action: Shaped[Array, "B ..."]
    log_prob: Float[Array, " B"]
    value: Float[Array, "B heads"]
    advantage: Float[Array, " B"]
    target: Float[Array, "B heads"]
    #: None where every step is one.
    valid: Bool[Array, " B"] | None = None


class Stream(NamedTuple):
    """A reward that a value head predicts: its weight in the advantage, γ, and what episode ends are to it."""

    reward: Float[Array, "T N"]
    weight: float
    discount: float
    ends: EpisodeEnds


def mean_over(each: Float[Array, "B ..."], valid: Bool[Array, " B"] | None) -> Scalar:
    """The mean, of the valid samples only where some are not."""
    if valid is None:
        return jnp.mean(each)
    return valid_mean(each, jnp.broadcast_to(valid.reshape(-1, *(1,) * (each.ndim - 1)), each.shape))


class PPO(AbstractPolicyLearner):
    """Proximal Policy Optimization."""

    settings: PPOSettings = eqx.field(static=True)

    metrics: ClassVar[tuple[Metric, ...]] = METRICS

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Adam, as the settings say."""
        s = self.settings
        return adam(s.learning_rate, s.adam_epsilon, s.max_gradient_norm)

    @property
    def sees_successors(self) -> bool:
        s = self.settings
        return s.episode_ends == "bootstrap" or (s.value_heads == "two" and s.bonus_ends == "bootstrap")

    def build(self, spec: Spec, *, key: PRNGKey) -> AnyPolicy:
        s = self.settings
        return (VisionPolicy if large_image(spec) else Policy)(spec, s.width, 1 + (s.value_heads == "two"), key=key)

    def start(self, networks: AnyPolicy) -> PPOState:
        return PPOState(networks, self.optimiser.init(flatten(networks)[0]))

    def networks(self, state: PPOState) -> AnyPolicy:
        return state.policy

    def noise(self, spec: Spec, shape: tuple[int, ...], *, key: PRNGKey) -> Float[Array, "*shape _"]:
        family = Categorical if isinstance(spec.action, Discrete) else DiagGaussian
        return family.noise(key, shape, spec.action.size)

    def act(
        self,
        spec: Spec,
        networks: AnyPolicy,
        obs: Float[Array, "..."],
        noise: Float[Array, " _"],
        *,
        greedy: bool = False,
    ) -> Shaped[Array, "..."]:
        # Without noise: the mean of a Gaussian, the likeliest of a choice.
        return networks.distribution(obs).sample(jnp.zeros_like(noise) if greedy else noise)

    def described(self, networks: AnyPolicy, name: str) -> dict[str, Any]:
        deviation = None if networks.log_std is None else f"{name}.log_std"
        if isinstance(networks, Policy):
            layers = [f"{name}.actor.layers.{k}" for k in range(len(networks.actor.layers))]
            return {"kind": "mlp", "activation": "tanh", "layers": [*layers, f"{name}.head"], "log_std": deviation}
        convolutions = [
            {"layer": f"{name}.eye.convolutions.{k}", "side": layer.side, "stride": layer.stride}
            for k, layer in enumerate(networks.eye.convolutions)
        ]
        layers = [f"{name}.trunk.layers.{k}" for k in range(len(networks.trunk.layers))]
        return {
            "kind": "vision",
            "convolutions": convolutions,
            "slope": networks.eye.stack.slope,
            "features": f"{name}.eye.head.layers.0",
            "activation": "relu",
            "layers": [*layers, f"{name}.head"],
            "log_std": deviation,
        }

    def host_actor(self, spec: Spec, networks: AnyPolicy, noise: Float[np.ndarray, "T S N _"]) -> HostActor | None:
        return None if isinstance(networks, VisionPolicy) else NumpyActor(networks, noise)

    def learn(
        self,
        spec: Spec,
        state: PPOState,
        rollout: Rollout,
        rewards: Rewards,
        *,
        key: PRNGKey,
    ) -> tuple[PPOState, dict[str, Array], Checks]:
        s = self.settings
        step = rollout.step
        value, log_prob = self._before(state.policy, rollout)
        advantage, target = self._estimate(state.policy, rollout, rewards, value)
        valid = step.valid if spec.fillers else None
        standardised = (advantage - jnp.mean(advantage, where=valid)) / (jnp.std(advantage, ddof=1, where=valid) + 1e-5)
        columns: tuple[Any, ...] = (step.obs, step.action, log_prob, value, standardised, target)
        samples = Batch(*jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), (*columns, valid)))

        count = log_prob.size
        size = min(s.minibatch_size, count)
        orders = jax.vmap(lambda k: shuffle(k, count))(jax.random.split(key, s.epochs))
        index = orders[:, : count // size * size].reshape(-1, size)
        batches = rollout.shared(jax.tree.map(lambda x: x[index], samples))
        policy, opt_state, report, (loss, gradient) = descend(
            lambda policy, batch: self._loss(policy, batch, rollout.see),
            state.policy,
            self.optimiser,
            state.opt_state,
            batches,
        )

        # How far the whole update moved the policy on this rollout; of frames, on some of its steps.
        times = rollout.some_times(LOOKED_AT)
        log_ratio = (log_probs(policy, rollout.at(times)) - log_prob[times]).reshape(-1)
        report["approx_kl"] = jnp.mean(jnp.exp(log_ratio) - 1.0 - log_ratio)
        report["clip_fraction"] = jnp.mean(jnp.abs(jnp.exp(log_ratio) - 1.0) > s.clip)
        for head, name in enumerate(("", "bonus_")[: value.shape[-1]]):
            v, wanted = value[..., head], target[..., head]
            report[f"{name}explained_variance"] = 1.0 - jnp.var(wanted - v) / (jnp.var(wanted) + 1e-8)
            report[f"{name}value_mean"] = jnp.mean(v)
        report["advantage_std"] = jnp.std(advantage)
        if policy.log_std is not None:
            report["action_std"] = jnp.mean(jnp.exp(policy.log_std))
        return PPOState(policy, opt_state), report, Checks.of((LOSS, loss), (GRADIENT, gradient))

    def check(self, state: PPOState) -> Checks:
        return Checks.of((POLICY, first(~all_within(flatten(state)[0], jnp.inf))))

    def _streams(self, rewards: Rewards) -> tuple[Stream, ...]:
        """What each value head predicts."""
        s = self.settings
        if s.value_heads == "one":
            return (Stream(rewards.total, 1.0, s.discount, s.episode_ends),)
        return (
            Stream(rewards.task, rewards.task_weight, s.discount, s.episode_ends),
            Stream(rewards.bonus, rewards.bonus_weight, s.bonus_discount, s.bonus_ends),
        )

    def _estimate(
        self, policy: AnyPolicy, rollout: Rollout, rewards: Rewards, value: Float[Array, "T N heads"]
    ) -> tuple[Float[Array, "T N"], Float[Array, "T N heads"]]:
        """The advantage of each action, all rewards weighed, and what each value head should have said."""
        streams, advantages = self._streams(rewards), []
        true = self._true_successors(policy, rollout) if self.sees_successors else None
        last = jax.vmap(lambda obs: policy.values(rollout.see(obs)))(rollout.acted_next[-1])
        following = jnp.concatenate([value[1:], last[None]])
        for head, stream in enumerate(streams):
            truth = None if true is None else true[..., head]
            next_value, cut = at_ends(rollout.step, following[..., head], truth, stream.ends)
            now, constants = value[..., head], {"discount": stream.discount, "trace": self.settings.trace}
            advantages.append(gae(stream.reward, now, next_value, cut, **constants))
        weighed = [stream.weight * a for stream, a in zip(streams, advantages, strict=True)]
        return functools.reduce(operator.add, weighed), jnp.stack(advantages, axis=-1) + value

    def _before(self, policy: AnyPolicy, rollout: Rollout) -> tuple[Float[Array, "T N heads"], Float[Array, "T N"]]:
        """V(s_t) of each head and the log-probability of each action, by the policy that acted."""

        def each(obs: Array, action: Array) -> tuple[Float[Array, " heads"], Scalar]:
            distribution, value = policy.both(rollout.see(obs))
            return value, distribution.log_prob(action)

        return rollout.map(each, rollout.step.obs, rollout.step.action)

    def _true_successors(self, policy: AnyPolicy, rollout: Rollout) -> Float[Array, "T N heads"]:
        """V of what each step led to, at an episode's end, too."""
        return rollout.map(lambda obs: policy.values(rollout.see(obs)), rollout.step.next_obs)

    def _loss(
        self, policy: AnyPolicy, batch: Batch, see: Callable[[Array], Array] = lambda obs: obs
    ) -> tuple[Scalar, dict[str, Scalar]]:
        s = self.settings

        def evaluate(obs: Array, action: Array) -> tuple[Scalar, Float[Array, " heads"], Array]:
            distribution, value = policy.both(see(obs))
            return distribution.log_prob(action), value, distribution.entropy()

        log_prob, value, entropy = jax.vmap(evaluate)(batch.obs, batch.action)
        ratio = jnp.exp(log_prob - batch.log_prob)
        clipped_ratio = jnp.clip(ratio, 1.0 - s.clip, 1.0 + s.clip)
        gain = jnp.minimum(ratio * batch.advantage, clipped_ratio * batch.advantage)
        policy_loss = -mean_over(gain, batch.valid)

        errors = (value - batch.target) ** 2
        if s.clip_value:
            clipped_value = batch.value + jnp.clip(value - batch.value, -s.clip, s.clip)
            errors = jnp.maximum(errors, (clipped_value - batch.target) ** 2)
        # Each head has a loss, and they are added up.
        value_loss = 0.5 * mean_over(errors.sum(-1), batch.valid)

        # A categorical's entropy is one number; a Gaussian's has one per action dimension.
        by_action = s.entropy_reduction == "mean" or entropy.ndim == 1
        entropy_mean = mean_over(entropy if by_action else entropy.sum(-1), batch.valid)
        loss = policy_loss + s.value_weight * value_loss - s.entropy_weight * entropy_mean
        return loss, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy_mean,
        }
