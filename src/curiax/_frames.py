"""Observations that are stacks of frames: each frame is kept once, as bytes, and stacked when it is looked at."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

#: So many time steps are looked at together: more would fill the memory, fewer leave an accelerator idle.
TOGETHER = 8


class Pixels(NamedTuple):
    """How the pixels of large images are standardised: a mean for each, one deviation for all.

    The deviation is the mean over pixels of their own deviations. Both are measured once and then stand still.
    """

    mean: Any
    deviation: Any

    @staticmethod
    def plain(shape: tuple[int, ...]) -> Pixels:
        """Statistics that leave pixels of 0..1 as they are, to the bit."""
        return Pixels(jnp.zeros(shape), jnp.ones(()))

    def standardised(self, pixels: Float[Array, "..."]) -> Float[Array, "..."]:
        """Pixels as networks see them."""
        return (pixels - self.mean) / (self.deviation + 1e-8)


class FrameStore(eqx.Module):
    """The frames of a rollout, and how an observation is made of some of them.

    In a rollout with frames an observation is the numbers of its frames, the newest last, −1 for black. What agents and
    methods see of it is standardised as `Pixels` says.
    """

    frames: UInt8[Array, "count height width"]
    mean: Float[Array, "height width stack"]
    deviation: Float[Array, ""]
    #: The type of what is seen: convolutions compute in the type of their input.
    kind: Any = eqx.field(static=True, default=jnp.float32)
    #: How the second axis of what is computed from it is dealt out over devices; None where there is one.
    share: Any = eqx.field(static=True, default=None)

    def shared(self, columns: Any) -> Any:
        """Columns of a rollout `[T, N, ...]`, or minibatches `[number, B, ...]`, dealt out over the devices."""
        return columns if self.share is None else jax.lax.with_sharding_constraint(columns, self.share)

    def __call__(self, numbers: Int[Array, " stack"]) -> Float[Array, "height width stack"]:
        black = (numbers < 0)[:, None, None]
        stack = jnp.where(black, jnp.uint8(0), self.frames[jnp.maximum(numbers, 0)])
        return self.standardised(jnp.moveaxis(stack, 0, -1))

    def standardised(self, pixels: UInt8[Array, "height width stack"]) -> Float[Array, "height width stack"]:
        """Pixels as networks see them."""
        seen = Pixels(self.mean, self.deviation).standardised(pixels.astype(jnp.float32))
        return seen.astype(self.kind)


def map_in_chunks(each: Any, *columns: Any) -> Any:
    """`each` of one environment's columns at every step `[T, N]`, a few steps at once."""
    # Environments first: networks see both axes as one, which devices can share by what comes first in it.
    some = jax.vmap(jax.vmap(each), in_axes=1, out_axes=1)
    steps = jax.tree.leaves(columns)[0].shape[0]
    whole = steps // TOGETHER * TOGETHER
    parts = []
    if whole:
        split = jax.tree.map(lambda x: x[:whole].reshape(-1, TOGETHER, *x.shape[1:]), columns)
        found = jax.lax.map(lambda now: some(*now), split)
        parts.append(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), found))
    if whole < steps:
        parts.append(some(*jax.tree.map(lambda x: x[whole:], columns)))
    return jax.tree.map(lambda *x: jnp.concatenate(x), *parts)
