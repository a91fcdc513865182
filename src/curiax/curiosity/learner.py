"""How a method is trained and paid out: written once for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._frames import FrameStore
from .._settings import Count, CountOrZero, Discount, NonNegative, Positive
from .._stats import ReturnScale, valid_mean
from .._tree import adam, descend, flatten, shuffle
from .._types import PRNGKey, Rollout, Scalar, Transition, materialise
from ._base import AbstractCuriosity, Memory, blanked, score, start_memory


@dataclass(frozen=True)
class LearnerSettings:
    """Training of the curiosity model and scaling of its bonus.

    Args:
        learning_rate: Adam's step size; the paper uses the policy's.
        adam_epsilon: Adam's epsilon.
        max_gradient_norm: clip the gradient to this norm; None leaves it as it is (the released code).
        epochs: passes over each rollout.
        minibatch_size: transitions in one gradient step.
        scale: divide the bonus by the running deviation of its discounted sum.
        discount: discount of that sum.
        clip: bound of the bonus in deviations.
        clip_order: `before` clips the raw bonus to the deviation as it was, before updating and dividing
            (released code); `after` clips the scaled bonus (the paper's sentence).
        replay: number of earlier rollouts kept and mixed into training; 0 trains on the newest only.
    """

    learning_rate: Positive = 3e-4
    adam_epsilon: Positive = 1e-8
    max_gradient_norm: Positive | None = None
    epochs: CountOrZero = 10
    minibatch_size: Count = 64
    scale: bool = True
    discount: Discount = 0.99
    clip: NonNegative = 3.0
    clip_order: Literal["before", "after"] = "before"
    replay: CountOrZero = 0


class Pool(eqx.Module):
    """The newest rollouts, in a ring."""

    steps: Transition
    filled: Int[Array, ""]

    @staticmethod
    def start(example: Transition, capacity: int) -> Pool:
        """An empty ring for `capacity` rollouts shaped like `example`."""
        return Pool(jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), example), jnp.zeros((), jnp.int32))

    def add(self, steps: Transition) -> Pool:
        """The ring with one more rollout, the oldest overwritten."""
        slot = self.filled % jax.tree.leaves(self.steps)[0].shape[0]
        return Pool(jax.tree.map(lambda ring, new: ring.at[slot].set(new), self.steps, steps), self.filled + 1)


class LearnerState(eqx.Module):
    """Everything the learner carries from rollout to rollout."""

    opt_state: optax.OptState
    memory: Memory
    scale: ReturnScale
    pool: Pool | None


class Minibatches(eqx.Module):
    """Minibatches `[number, B]` in the order of training, and their randomness."""

    steps: Transition
    draws: PyTree
    #: Which of them are trained on; None for all.
    wanted: Bool[Array, " number"] | None = None
    #: What their observations are made of; None where these are arrays.
    frames: FrameStore | None = None


class Learner(eqx.Module):
    """Trains any method on rollouts and turns its raw bonus into a reward."""

    settings: LearnerSettings = eqx.field(static=True)

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Adam, as the settings say."""
        s = self.settings
        return adam(s.learning_rate, s.adam_epsilon, s.max_gradient_norm)

    def start(self, model: AbstractCuriosity, example: Transition) -> LearnerState:
        """The state before the first rollout; `example` has a rollout's shapes `[T, N]`."""
        n_envs = example.reward.shape[1]
        pool = Pool.start(example, self.settings.replay) if self.settings.replay else None
        parameters = flatten(model)[0]
        # Nothing rather than empty arrays: some versions of XLA crash on those when seeds are spread over devices.
        opt_state = self.optimiser.init(parameters) if parameters.size else ()
        return LearnerState(opt_state, start_memory(model, n_envs), ReturnScale.start(n_envs), pool)

    def reward(
        self,
        model: AbstractCuriosity,
        state: LearnerState,
        steps: Transition | Rollout,
        *,
        key: PRNGKey,
    ) -> tuple[LearnerState, Float[Array, "T N"], Float[Array, "T N"]]:
        """The raw bonus and the scaled one that is paid."""
        memory, raw = score(model, state.memory, steps, key=key)
        scale, paid = state.scale, raw
        if self.settings.scale:
            s = self.settings
            scale, paid = scale.scale(paid, discount=s.discount, clip=s.clip, order=s.clip_order)
        return LearnerState(state.opt_state, memory, scale, state.pool), raw, paid

    def update(
        self,
        model: AbstractCuriosity,
        state: LearnerState,
        steps: Transition | Rollout,
        *,
        key: PRNGKey,
        count: Int[Array, ""] | None = None,
    ) -> tuple[AbstractCuriosity, LearnerState, dict[str, Array]]:
        """Epochs of minibatches over the rollout, or over the pool where one is kept.

        With a `count` the rollout has so many time steps, and what follows them is padding: the same training as on
        the rollout without it. The padding must not be valid.
        """
        if not self.trains(model):
            return model, state, {}
        state, batches = self.minibatches(model, state, steps, key=key, count=count)
        return self.train(model, state, batches)[:3]

    def trains(self, model: AbstractCuriosity) -> bool:
        """Whether there is anything to train."""
        return flatten(model)[0].size > 0 and self.settings.epochs > 0

    def minibatches(
        self,
        model: AbstractCuriosity,
        state: LearnerState,
        steps: Transition | Rollout,
        *,
        key: PRNGKey,
        count: Int[Array, ""] | None = None,
    ) -> tuple[LearnerState, Minibatches]:
        """What `update` trains on, one minibatch after another; the rollout is in the pool then, where one is kept."""
        rollout = Rollout.of(steps)
        newest = blanked(rollout.step)
        pool = None if state.pool is None else state.pool.add(newest)
        order_key, loss_key = jax.random.split(key)
        batches, wanted = self._dealt(newest, pool, order_key, count)
        number, size = batches.reward.shape
        draws = jax.vmap(model.draw) if model.shares_key else jax.vmap(jax.vmap(model.draw))
        each = () if model.shares_key else (size,)
        keys = jax.random.split(loss_key, (number, *each))
        if count is not None and wanted is not None:
            # The keys that the same batches have without the padding: there are fewer of them, and fewer steps in one.
            before = jnp.maximum(jnp.cumsum(wanted) - 1, 0)
            full = jnp.minimum(size, count * newest.reward.shape[1])
            place = before if model.shares_key else before[:, None] * full + jnp.arange(size)
            keys = keys.reshape(-1)[jnp.minimum(place, keys.size - 1)]
        state = LearnerState(state.opt_state, state.memory, state.scale, pool)
        return state, Minibatches(batches, draws(keys), wanted, rollout.frames)

    def train(
        self, model: AbstractCuriosity, state: LearnerState, batches: Minibatches
    ) -> tuple[AbstractCuriosity, LearnerState, dict[str, Array], Int[Array, "2"]]:
        """A gradient step for each minibatch, means of what the method reports, and its unsound steps, as `descend`."""
        frames = batches.frames

        def loss(model: AbstractCuriosity, batch: tuple[Transition, PyTree]) -> tuple[Scalar, dict[str, Scalar]]:
            steps, draws = batch
            if frames is not None:
                steps = jax.vmap(lambda t: materialise(frames, t))(steps)
            each, terms = model.losses(steps, draws)
            total = valid_mean(each, steps.valid)
            return total, {"loss": total, **jax.tree.map(lambda term: valid_mean(term, steps.valid), terms)}

        steps = batches.steps if frames is None else frames.shared(batches.steps)
        given = (steps, batches.draws)
        model, opt_state, report, unsound = descend(
            loss, model, self.optimiser, state.opt_state, given, wanted=batches.wanted
        )
        return model, LearnerState(opt_state, state.memory, state.scale, state.pool), report, unsound

    def _dealt(
        self, steps: Transition, pool: Pool | None, key: PRNGKey, count: Int[Array, ""] | None
    ) -> tuple[Transition, Bool[Array, " number"] | None]:
        """Minibatches `[number, B]`: whole time steps, all environments of each, in fresh order every epoch.

        With a `count`, beside them, which of them hold nothing but steps before it; fewer than fill one are all in one.
        """
        s = self.settings
        length, n_envs = steps.reward.shape
        times = max(1, min(length, s.minibatch_size // n_envs))
        per_epoch = length // times
        source, wanted = steps, None
        if pool is None:
            orders = jax.vmap(lambda k: shuffle(k, length, count))(jax.random.split(key, s.epochs))
            index = orders[:, : per_epoch * times].reshape(-1, times)
            if count is not None:
                whole = times * jnp.arange(1, per_epoch + 1) <= jnp.maximum(count, times)
                wanted = jnp.tile(whole, s.epochs)
        else:
            kept = jnp.minimum(pool.filled, s.replay) * length
            index = jax.random.randint(key, (s.epochs * per_epoch, times), 0, kept)
            source = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), pool.steps)
        batches = jax.tree.map(lambda x: x[index].reshape((index.shape[0], times * n_envs, *x.shape[2:])), source)
        return batches, wanted
