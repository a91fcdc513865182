"""Observations that are stacks of frames: each frame is kept once, as bytes, and stacked when it is looked at."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax

from ._types import Film, Transition


def shown(film: Film | None, t: Transition) -> Transition:
    """A transition with what is seen in the place of the numbers of frames."""
    return t if film is None else eqx.tree_at(lambda t: (t.obs, t.next_obs), t, (film(t.obs), film(t.next_obs)))


#: So many time steps are looked at together: more would fill the memory, fewer leave an accelerator idle.
TOGETHER = 8


def at_every_time(film: Film | None, each: Any, *columns: Any) -> Any:
    """`each` of the columns at every time step; where observations are made of frames, a few of them at once."""
    if film is None:
        return jax.vmap(each)(*columns)
    return jax.lax.map(lambda now: each(*now), columns, batch_size=TOGETHER)
