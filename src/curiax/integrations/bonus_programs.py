"""The pure half of a `Bonus`: its state, the steps that it keeps, and the compiled programs that pay and train."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from .._frames import Pixels
from .._sound import all_within
from .._stats import Moments
from .._types import PRNGKey, Transition
from ..curiosity import AbstractCuriosity, Learner, LearnerState, score
from ..train.devices import compiler_options
from . import spaces
from .spaces import Actions, Observations

#: Standardised observations are clipped here, and this is added to their variance, as in training.
OBS_CLIP, OBS_EPSILON = 10.0, 1e-8
#: Images of 0..1 with a smaller deviation, that of one blinking pixel in 5,000, show nothing that moves: divided by it,
#: the first one that differs would be enormous.
STILL = 1e-4
#: So many images are measured at once: thousands of large ones would fill the memory.
TOGETHER = 64


class BonusState(eqx.Module):
    """Everything that changes: networks, optimiser, memories, scale of the bonus, statistics of the observations."""

    model: AbstractCuriosity
    learner: LearnerState
    #: Of vectors running statistics; of large images those of their pixels.
    obs_stats: Moments | Pixels
    #: Whether what is measured once was measured: the pixels of large images, a method's features of images.
    calibrated: Bool[Array, ""]
    updates: Int[Array, ""]


class Steps(NamedTuple):
    """`T` steps of `N` environments as they are kept: checked, not yet seen by the method; inside JAX, traced."""

    obs: Any
    action: Any
    next_obs: Any
    terminated: Any
    truncated: Any
    valid: Any

    @property
    def length(self) -> int:
        """T."""
        return self.valid.shape[0]

    @property
    def ended(self) -> np.ndarray:
        """Where an episode ended."""
        return self.terminated | self.truncated

    def same(self, other: Steps) -> bool:
        """Whether both say the same."""
        return all(np.array_equal(mine, theirs) for mine, theirs in zip(self, other, strict=True))

    def goes_on(self, after: Steps) -> bool:
        """Whether `after` can be what happened next: each episode that had not ended begins where it was left."""
        rows = (self.next_obs[-1] == after.obs[0]).reshape(self.valid.shape[1], -1)
        return bool((rows.all(axis=1) | self.ended[-1] | ~self.valid[-1]).all())

    def long(self, length: int) -> Steps:
        """`length` steps: these, and then from the first again."""
        if self.length == length:
            return self
        index = np.arange(length) % self.length
        return Steps(*(part[index] for part in self))


@dataclass(frozen=True)
class Frame:
    """What stays the same: all that compiled programs depend on. Equal frames share them."""

    #: The spaces as text: Gymnasium's cannot be keys.
    spaces: str
    #: The tree of the state's arrays, and what else its leaves are.
    structure: tuple[Any, str]
    learner: Learner
    normalise: bool
    observations: Observations = field(compare=False)
    actions: Actions = field(compare=False)
    static: Any = field(compare=False)
    #: Which of the state's arrays are memories.
    memories: tuple[int, ...] = field(compare=False)

    def whole(self, arrays: Sequence[Array], memory: Sequence[Array]) -> BonusState:
        """The state with these arrays in it."""
        after = list(arrays)
        for place, array in zip(self.memories, memory, strict=True):
            after.insert(place, array)
        state = jax.tree.unflatten(self.structure[0], after)
        return eqx.combine(state, self.static) if jax.tree.leaves(self.static) else state

    def apart(self, state: BonusState) -> tuple[list[Array], list[Array]]:
        """The state's arrays: all but the memories, and these."""
        arrays = arrays_of(state)
        memory = [arrays[place] for place in self.memories]
        return [array for place, array in enumerate(arrays) if place not in self.memories], memory

    def normalised(self, stats: Moments | Pixels, obs: Float[Array, "..."]) -> Float[Array, "..."]:
        """Observations as the method sees them."""
        if isinstance(stats, Pixels):
            return stats.standardised(obs)
        return stats.normalise(obs, OBS_EPSILON, OBS_CLIP) if self.normalise else obs

    def seen(self, stats: Moments | Pixels, steps: Steps) -> Transition:
        """The transitions as the method sees them."""
        obs, next_obs = (self.normalised(stats, self.observations.seen(x)) for x in (steps.obs, steps.next_obs))
        action, reward = self.actions.taken(steps.action), jnp.zeros(steps.valid.shape)
        return Transition(obs, action, next_obs, reward, steps.terminated, steps.truncated, steps.valid)


def rounded(length: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, ...: at most a third more, and few programs for all lengths there are."""
    power = 1 << max(0, (length - 1).bit_length())
    return power * 3 // 4 if power >= 4 and length <= power * 3 // 4 else power


class Programs(NamedTuple):
    """The compiled functions of a frame."""

    pay: Any
    pay_step: Any
    train: Any
    calibrate: Any


@functools.lru_cache(maxsize=64)
def programs(frame: Frame) -> Programs:
    """The compiled functions of a frame; equal frames share them."""
    settings = frame.learner.settings
    compiled = functools.partial(jax.jit, compiler_options=compiler_options(jax.devices()[0]))

    def pay(memory: list[Array], arrays: list[Array], root: PRNGKey, steps: Steps) -> tuple[list[Array], Array]:
        """The memories after the steps, and, in one array, the raw bonus and the paid one."""
        state = frame.whole(arrays, memory)
        moments = state.learner.scale.moments
        # The same for all questions until the next update: the same question has the same answer.
        key = jax.random.fold_in(jax.random.fold_in(root, state.updates), 0)
        seen, shape = frame.seen(state.obs_stats, steps), steps.valid.shape
        if not memory:
            # Where no step follows another, one long one: the same keys, and fewer axes to go over.
            seen = jax.tree.map(lambda x: x.reshape(1, -1, *x.shape[2:]), seen)
        after, raw = score(state.model, state.learner.memory, seen, key=key)
        paid = raw = raw.reshape(shape)
        if settings.scale:
            # The deviation as it stands: a question must not change the answer to the next.
            deviation, clip = jnp.sqrt(moments.var), settings.clip
            if settings.clip_order == "before":
                paid = jnp.clip(paid, -clip * deviation, clip * deviation)
            paid = paid / jnp.sqrt(moments.var + 1e-8)
            if settings.clip_order == "after":
                paid = jnp.clip(paid, -clip, clip)
        return jax.tree.leaves(after), jnp.stack([raw, paid])

    def pay_step(
        behind: list[Array], memory: list[Array], arrays: list[Array], root: PRNGKey, steps: Steps
    ) -> tuple[list[Array], Array]:
        """The same of one step, written into memories that are one step behind; those in force are only read."""
        state = frame.whole(arrays, memory)
        _, rewards = pay(memory, arrays, root, steps)
        older = frame.whole(arrays, behind).learner.memory
        same = jax.vmap(state.model.caught_up)(older, state.learner.memory)
        return pay(jax.tree.leaves(same), arrays, root, steps)[0], rewards

    def measured(state: BonusState, kept: Shaped[Array, "B ..."], where: Bool[Array, " B"]) -> BonusState:
        """The state with what is measured once; as it was where large images show nothing that moves."""
        model, stats, moved = state.model, state.obs_stats, jnp.ones((), bool)
        if isinstance(stats, Pixels):
            stats = pixels_of(frame.observations, kept, where)
            moved = stats.deviation > STILL
        if model.calibrates:
            obs = frame.normalised(stats, frame.observations.seen(kept))
            # One that counts stands in for each that does not.
            model = model.calibrated(jnp.where(spaces.spread(where, obs), obs, obs[jnp.argmax(where)]))
        model, stats = jax.tree.map(
            lambda new, old: jnp.where(moved, new, old).astype(old.dtype) if eqx.is_array(new) else new,
            (model, stats),
            (state.model, state.obs_stats),
        )
        return replace(state, model=model, obs_stats=stats, calibrated=moved)

    def standardised(state: BonusState, kept: Shaped[Array, "B ..."], where: Bool[Array, " B"]) -> BonusState:
        """The state that has seen these observations, but not learnt from them.

        `where` names those that count; the others repeat them.
        """
        if frame.normalise and isinstance(state.obs_stats, Moments):
            return replace(state, obs_stats=state.obs_stats.merge(frame.observations.seen(kept), where))
        if not (state.model.calibrates or isinstance(state.obs_stats, Pixels)):
            return state
        # What was measured once costs nothing any more.
        before, static = eqx.partition(state, eqx.is_array)
        after = jax.lax.cond(
            state.calibrated, lambda: before, lambda: eqx.filter(measured(state, kept, where), eqx.is_array)
        )
        return eqx.combine(after, static)

    def train(
        memory: list[Array], arrays: list[Array], root: PRNGKey, steps: Steps, raw: Array, count: Array
    ) -> tuple[list[Array], tuple[dict[str, Array], Bool[Array, ""]]]:
        state = frame.whole(arrays, memory)
        there = jnp.arange(steps.valid.shape[0]) < count
        steps = steps._replace(valid=steps.valid & there[:, None])
        reached = steps.next_obs.reshape(-1, *steps.next_obs.shape[2:])
        state = standardised(state, reached, steps.valid.reshape(-1))
        scale = state.learner.scale
        if settings.scale:
            scale, _ = scale.scale(
                raw, discount=settings.discount, clip=settings.clip, order=settings.clip_order, where=steps.valid
            )
        before = LearnerState(state.learner.opt_state, state.learner.memory, scale, None)
        seen = frame.seen(state.obs_stats, steps)
        key = jax.random.fold_in(jax.random.fold_in(root, state.updates), 1)
        model, after, report = frame.learner.update(state.model, before, seen, key=key, count=count)
        state = BonusState(model, after, state.obs_stats, state.calibrated, state.updates + 1)
        # A memory may hold infinity on purpose; nothing may hold NaN, and what is learnt must be finite.
        learnt = all_within((state.model, state.learner.opt_state, state.learner.scale, state.obs_stats), jnp.inf)
        return alike(frame.apart(state)[0], arrays), (report, learnt)

    def calibrate(memory: list[Array], arrays: list[Array], obs: Array, where: Array) -> list[Array]:
        state = standardised(frame.whole(arrays, memory), obs, where)
        return alike(frame.apart(state)[0], arrays)

    return Programs(compiled(pay), compiled(pay_step, donate_argnums=0), compiled(train), compiled(calibrate))


def pixels_of(observations: Observations, kept: Shaped[Array, "B ..."], where: Bool[Array, " B"]) -> Pixels:
    """The statistics of images, some of them at a time."""
    size = math.gcd(len(kept), TOGETHER)
    parts = kept.reshape(-1, size, *kept.shape[1:]), where.reshape(-1, size)
    nothing = jnp.zeros(observations.shape, jnp.float32)
    # Next to no weight, and not the usual little: it would make a screen that stands still deviate.
    start = Moments(nothing, nothing, jnp.asarray(1e-30, jnp.float32))
    moments, _ = jax.lax.scan(lambda sum, part: (sum.merge(observations.seen(part[0]), part[1]), None), start, parts)
    return Pixels(moments.mean, jnp.mean(jnp.sqrt(moments.var)))


def alike(arrays: Sequence[Array], before: Sequence[Array]) -> list[Array]:
    """Arrays of the same types as before: where JAX computes in 64 bits, counts would become longer.

    The others are left alone: a cast makes a type strong, and a program is compiled anew for that.
    """
    pairs = zip(arrays, before, strict=True)
    return [array if array.dtype == old.dtype else array.astype(old.dtype) for array, old in pairs]


def arrays_of(tree: Any) -> list[Array]:
    """The arrays of a tree, in its order."""
    return [leaf for leaf in jax.tree.leaves(tree) if eqx.is_array(leaf)]


def frame_of(
    state: BonusState, learner: Learner, normalise: bool, observations: Observations, actions: Actions
) -> Frame:
    """What stays the same of a Bonus that begins with a state."""
    arrays, static = eqx.partition(state, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    places = jax.tree.unflatten(structure, range(len(leaves)))
    return Frame(
        json.dumps([spaces.data_of(observations.space), spaces.data_of(actions.space)]),
        (structure, str(jax.tree.leaves(static))),
        learner,
        normalise,
        observations,
        actions,
        static,
        tuple(jax.tree.leaves(places.learner.memory)),
    )


@eqx.filter_jit
def cut(model: AbstractCuriosity, memory: Any, mask: Any) -> Any:
    """The memories with those that the mask names as an episode's end leaves them."""
    after = jax.vmap(model.forget)(memory)
    return jax.tree.map(lambda new, old: jnp.where(spaces.spread(mask, new), new, old), after, memory)
