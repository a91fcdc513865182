"""Handling models as trees: what trains, what is frozen, and gradient descent on a flat vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from ._sound import LIMIT, first, within
from ._stats import valid_mean
from ._types import PRNGKey, Scalar

Net = TypeVar("Net", bound=Callable[..., Any])
Model = TypeVar("Model")


class Frozen(eqx.Module, Generic[Net]):
    """A network that must not train: no gradient passes into it and no optimiser state is kept for it."""

    net: Net

    def __call__(self, *args: Any) -> Any:
        arrays, static = eqx.partition(self.net, eqx.is_array)
        return eqx.combine(jax.lax.stop_gradient(arrays), static)(*args)


def split_trainable(model: Model) -> tuple[Model, Model]:
    """Split into the floating-point arrays outside `Frozen`, and everything else."""

    def trains(node: Any) -> Any:
        return False if isinstance(node, Frozen) else eqx.is_inexact_array(node)

    spec = jax.tree.map(trains, model, is_leaf=lambda node: isinstance(node, Frozen))
    return eqx.partition(model, spec)


def flatten(model: Model) -> tuple[Float[Array, " size"], Callable[[Float[Array, " size"]], Model]]:
    """The trainable parameters as one vector, and the way back to the model.

    One vector instead of dozens of small leaves keeps the optimiser to a handful of fused operations.
    """
    trainable, rest = split_trainable(model)
    flat, unravel = ravel_pytree(trainable)
    return flat, lambda vector: eqx.combine(unravel(vector), rest)


def leaf_name(path: Any) -> str:
    """The name of an array by its place in the tree, as `agent.head.weight`."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def is_key(leaf: Any) -> bool:
    """Whether an array holds random keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def adam(learning_rate: float, epsilon: float, max_norm: float | None) -> optax.GradientTransformation:
    """Adam on a flat vector, after clipping the gradient's norm where `max_norm` is given."""
    step = optax.adam(learning_rate, eps=epsilon)
    return step if max_norm is None else optax.chain(optax.clip_by_global_norm(max_norm), step)


def descend(
    loss: Callable[[Model, PyTree], tuple[Scalar, dict[str, Scalar]]],
    model: Model,
    optimiser: optax.GradientTransformation,
    opt_state: optax.OptState,
    batches: PyTree,
    *,
    wanted: Bool[Array, " count"] | None = None,
) -> tuple[Model, optax.OptState, dict[str, Array], Int[Array, "2"]]:
    """One optimiser step for each batch along the first axis of `batches`, in order; with `wanted` for those it names.

    Returns the model, the optimiser's state, the mean over batches of what `loss` reports, and the first step at which
    the loss was unsound, and the gradient: −1 for none, and for the one that only followed from the other.
    """
    flat, restore = flatten(model)

    def step(carry: tuple[Array, optax.OptState], batch: PyTree) -> tuple[tuple[Array, optax.OptState], Any]:
        flat, opt_state = carry
        valued = jax.value_and_grad(lambda vector: loss(restore(vector), batch), has_aux=True)
        (value, report), gradient = valued(flat)
        # A product is several times as fast as a maximum.
        steep = jnp.vdot(gradient, gradient)
        update, after = optimiser.update(gradient, opt_state, flat)
        return (flat + jnp.asarray(update), after), (report, value, steep, jnp.ones((), bool))

    def step_if(carry: tuple[Array, optax.OptState], now: tuple[PyTree, Any]) -> Any:
        batch, named = now
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(step, carry, batch)[1])
        return jax.lax.cond(named, step, lambda carry, _: (carry, nothing), carry, batch)

    each, over = (step, batches) if wanted is None else (step_if, (batches, wanted))
    (flat, opt_state), (reports, values, steep, taken) = jax.lax.scan(each, (flat, opt_state), over)
    sound = jnp.stack([within(x, LIMIT) for x in (values, *reports.values())])
    loss_at, gradient_at = first(~jnp.all(sound, axis=0)), first(~within(steep, LIMIT**2))
    # An unsound gradient makes the loss of the next step unsound, an unsound loss its own gradient.
    loss_first = (loss_at >= 0) & ((gradient_at < 0) | (loss_at <= gradient_at))
    places = jnp.stack([jnp.where(loss_first, loss_at, -1), jnp.where(loss_first, -1, gradient_at)])
    means = jax.tree.map(lambda each: jnp.mean(each) if wanted is None else valid_mean(each, taken), reports)
    return restore(flat), opt_state, means, places


def shuffle(key: PRNGKey, n: int, count: Int[Array, ""] | None = None) -> Int[Array, " n"]:
    """A random order of `0..n-1`, by one sort of 32-bit words; with a `count`, those from it on come last.

    Each word holds random high bits over its own index, so a single-operand sort suffices, where
    `jax.random.permutation` makes several passes with two operands. Equal high bits (expected
    once per 2048-permutation) fall back to index order, so beyond 2¹⁶ entries, where too few random bits are
    left, the slower way is taken. Up to there the first `count` entries are as `shuffle(key, count)` has them, if n is
    not beyond the next power of 2.
    """
    if n > 1 << 16:
        order = jax.random.permutation(key, n).astype(jnp.int32)
        return order if count is None else order[jnp.argsort(order >= count, stable=True)]
    mask = (1 << max(1, (n - 1).bit_length())) - 1
    high, index = jnp.uint32(0xFFFFFFFF ^ mask), jnp.arange(n, dtype=jnp.uint32)
    words = (jax.random.bits(key, (n,)) & high) | index
    if count is not None:
        words = jnp.where(index < count, words, high | index)
    return (jnp.sort(words) & jnp.uint32(mask)).astype(jnp.int32)
