"""What a curiosity method is, and how one is applied to a rollout."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._metrics import Metric
from .._stats import valid_mean
from .._types import PRNGKey, Rollout, Scalar, Transition
from .features import Target

Memory = PyTree
Terms = dict[str, Array]


class AbstractCuriosity(eqx.Module):
    """Networks plus static settings, asked about one transition at a time.

    A method is a final subclass with `__init__(self, spec, *, key, **settings)`: the keyword arguments with
    defaults are its settings, on the command line and in Python alike. The library adds the batch axes, the
    optimiser, the epochs and the scaling of the reward.
    """

    #: How to cite the method; `curiax cite` prints it.
    bibtex: ClassVar[str] = ""

    #: True if the bonus can never be negative; `curiax check` holds the method to it.
    nonnegative: ClassVar[bool] = False
    #: True when all transitions of a batch must see the same random draw (a Bayesian network's weights).
    shares_key: ClassVar[bool] = False
    #: What `explain` and the terms of `loss` are to a reader; what is not declared is shown under its bare name.
    metrics: ClassVar[tuple[Metric, ...]] = ()
    #: True if copies of a large memory are to be spared: `reward` itself then leaves it as it is where `t.valid` is
    #: False, and `caught_up` is there.
    spares_memory: ClassVar[bool] = False

    @abc.abstractmethod
    def reward(self, memory: Memory, t: Transition, *, key: PRNGKey) -> tuple[Memory, Scalar]:
        """The raw bonus for one transition, and the memory after it."""

    @abc.abstractmethod
    def loss(self, t: Transition, *, draw: PyTree) -> tuple[Scalar, Terms]:
        """What training minimises, for one transition, and terms to report; `draw` is its randomness."""

    def losses(self, steps: Transition, draws: PyTree) -> tuple[Float[Array, " B"], Terms]:
        """`loss` of each transition of a batch; to be replaced only where the whole batch can be computed faster."""
        axis = None if self.shares_key else 0
        return jax.vmap(lambda t, d: self.loss(t, draw=d), in_axes=(0, axis))(steps, draws)

    def draw(self, key: PRNGKey) -> PyTree:
        """The randomness of one `loss`: by default the key itself.

        It is called in bulk ahead of the gradient steps, where random numbers are cheaper than one by one inside them.
        """
        return key

    def memory(self) -> Memory:
        """A fresh memory for one environment; None for a method that needs none."""
        return None

    def forget(self, memory: Memory) -> Memory:
        """What is left of the memory when an episode ends: by default a fresh one."""
        return self.memory()

    def caught_up(self, behind: Memory, memory: Memory) -> Memory:
        """`memory`, by writing into `behind`, which is the same as it was one `reward` earlier, in the same episode.

        Only asked of methods with `spares_memory`. A `Bonus` that is asked step by step has two memories and writes
        into them in turn: what changed last into the one that is behind, then what is new. Neither is ever copied, and
        the one in force stays whole until the step has succeeded.
        """
        raise NotImplementedError("a method with spares_memory needs caught_up(behind, memory)")

    def explain(self, t: Transition, *, key: PRNGKey) -> Terms:
        """What the bonus of one transition is made of, averaged over each rollout in the metrics."""
        return {}

    @property
    def calibrates(self) -> bool:
        """Whether `calibrated` changes anything: by default, whether the method predicts features of images."""
        return any(target.features is not None for target in targets_of(self))

    def calibrated(self, obs: Float[Array, "B ..."]) -> AbstractCuriosity:
        """The method as it is before training, with what it measures once on the first observations it meets.

        By default each `Target` in it standardises its features.
        """
        return jax.tree.map(lambda node: node.calibrated(obs) if is_target(node) else node, self, is_leaf=is_target)


def is_target(node: Any) -> bool:
    """Whether a part of a method is what it predicts."""
    return isinstance(node, Target)


def targets_of(model: AbstractCuriosity) -> list[Target]:
    """Every `Target` in a method."""
    return [node for node in jax.tree.leaves(model, is_leaf=is_target) if is_target(node)]


def blanked(steps: Transition) -> Transition:
    """The transitions with everything in invalid ones set to 0.

    An invalid step may hold anything, NaN included, and even a masked NaN would spread through gradients.
    """

    def blank(x: Array) -> Array:
        valid = steps.valid.reshape(steps.valid.shape + (1,) * (x.ndim - steps.valid.ndim))
        return jnp.where(valid, x, jnp.zeros_like(x))

    return jax.tree.map(blank, steps)


def method_keys(model: AbstractCuriosity, key: PRNGKey, shape: tuple[int, ...]) -> tuple[Any, int | None]:
    """Keys for a batch and the `vmap` axis they have: one each, or one for all."""
    return (key, None) if model.shares_key else (jax.random.split(key, shape), 0)


def start_memory(model: AbstractCuriosity, n_envs: int) -> Memory:
    """Fresh memories of `n_envs` environments."""
    return jax.tree.map(lambda leaf: jnp.repeat(jnp.asarray(leaf)[None], n_envs, axis=0), model.memory())


def score(
    model: AbstractCuriosity,
    memory: Memory,
    steps: Transition | Rollout,
    *,
    key: PRNGKey,
) -> tuple[Memory, Float[Array, "T N"]]:
    """The raw bonus of every transition of a rollout `[T, N]`.

    Without memory all transitions are scored at once. With memory each environment is followed through
    time, and its memory is cut by `forget` after each transition that ended an episode. Invalid steps earn
    0 and add nothing to the memory, but if one ends an episode the memory is cut all the same.
    """
    rollout = Rollout.of(steps)
    step = rollout.step
    shape = step.reward.shape
    keys, axis = method_keys(model, key, shape)

    def one(memory: Memory, t: Transition, key: PRNGKey) -> tuple[Memory, Scalar]:
        return model.reward(memory, rollout.seen(t), key=key)

    if memory is None:
        bonus = with_keys(rollout, lambda t, k: one(None, t, k)[1], keys, axis)
        return None, jnp.where(step.valid, bonus, 0.0)

    def follow(memory: Memory, t: Transition, key: PRNGKey) -> tuple[Memory, Scalar]:
        after, bonus = one(memory, t, key)
        if not model.spares_memory:
            after = jax.tree.map(lambda new, old: jnp.where(t.valid, new, old), after, memory)
        memory = jax.tree.map(lambda cut, full: jnp.where(t.ended, cut, full), model.forget(after), after)
        return memory, jnp.where(t.valid, bonus, 0.0)

    def at_time(memory: Memory, now: tuple[Transition, Any]) -> tuple[Memory, Float[Array, " N"]]:
        return jax.vmap(follow, in_axes=(0, 0, axis))(memory, *now)

    if shape[0] == 1:  # no loop for one step: each of its passes would copy the memory once more
        now = jax.tree.map(lambda x: x[0], step)
        memory, bonus = at_time(memory, (now, keys if axis is None else keys[0]))
        return memory, bonus[None]
    if axis is None:
        return jax.lax.scan(lambda m, t: at_time(m, (t, keys)), memory, step)
    return jax.lax.scan(at_time, memory, (step, keys))


def with_keys(rollout: Rollout, each: Any, keys: Any, axis: int | None) -> Any:
    """`each` of a rollout's steps, with a key of its own or the one for all."""
    if axis is None:
        return rollout.map(lambda t: each(t, keys), rollout.step)
    return rollout.map(each, rollout.step, keys)


#: Of steps made of frames one in so many is explained: all would cost another pass of the networks.
EXPLAINED = 16


def explanation(model: AbstractCuriosity, steps: Transition | Rollout, *, key: PRNGKey) -> dict[str, Scalar]:
    """Mean over the valid steps of a rollout `[T, N]` of the terms of the bonus."""
    rollout = Rollout.of(steps)
    rollout = rollout.at(rollout.some_times(EXPLAINED))
    keys, axis = method_keys(model, key, rollout.step.reward.shape)
    # The same nesting as in `score`, so that the compiler can share the networks' evaluation with it.
    terms = with_keys(rollout, lambda t, k: model.explain(rollout.seen(t), key=k), keys, axis)
    return jax.tree.map(lambda term: valid_mean(term, rollout.step.valid), terms)
