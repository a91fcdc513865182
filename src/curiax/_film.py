"""Observations that are stacks of frames: each frame is kept once, as bytes, and stacked when it is looked at."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ._types import Film, Transition


def shown(film: Film | None, t: Transition) -> Transition:
    """A transition with what is seen in the place of the numbers of frames."""
    return t if film is None else eqx.tree_at(lambda t: (t.obs, t.next_obs), t, (film(t.obs), film(t.next_obs)))


#: So many time steps are looked at together: more would fill the memory, fewer leave an accelerator idle.
TOGETHER = 8


def at_every_time(film: Film | None, each: Any, *columns: Any) -> Any:
    """`each` of one environment's columns at every step `[T, N]`; of those made of frames a few times at once."""
    if film is None:
        return jax.vmap(jax.vmap(each))(*columns)
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
