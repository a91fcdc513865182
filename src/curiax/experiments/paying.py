"""The bonus of a trained model alone: the method built anew from its description, with its arrays in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._contract import build_method
from .._errors import UsageError
from .._files import damaged
from .._settings import checked
from .._types import Spec, Transition
from ..curiosity import AbstractCuriosity, score, start_memory
from ..nn import at_most
from .exports import REMEDY, About
from .registry import METHODS, find_method
from .tensors import filled

#: Numbers that one episode's memory may hold.
MOST_MEMORY = 1 << 28


def payer(
    about: About, spec: Spec, seed: int, arrays: Mapping[str, np.ndarray], file: Path, *, trust: bool
) -> Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """A function of normalised transitions `[B]` that gives their raw bonus; `arrays` are those of one seed."""
    name = about.bonus.method
    if name not in METHODS and not name.startswith("curiax.") and not trust:
        raise UsageError(
            f"{file.parent} was trained with {name!r}, which is not Curiax's: its bonus imports and runs that code. If "
            "you trust it, load it with trust=True."
        )
    entry = find_method(name)
    settings = checked(entry.cls, about.bonus.settings, "method")
    # The key only matters for what a method keeps of it; its arrays are replaced. Stream 1 is the model's.
    key = jax.random.fold_in(jax.random.key(np.uint32(seed)), 1)
    with at_most(sum(array.size for array in arrays.values()), str(file.parent)):
        model = build_method(entry.cls, spec, key, entry.name, **settings)
    memory = jax.tree.leaves(eqx.filter_eval_shape(model.memory))
    if sum(math.prod(leaf.shape) for leaf in memory) > MOST_MEMORY:
        raise damaged(file, "an episode's memory of its method would not fit into any machine's", REMEDY)
    fitted = filled(file, {"curiosity": model}, arrays)["curiosity"]

    def pay(obs: np.ndarray, action: np.ndarray, next_obs: np.ndarray) -> np.ndarray:
        lead = (len(obs), 1)
        no = jnp.zeros(lead, bool)
        before, taken, after = (jnp.asarray(part[:, None]) for part in (obs, action, next_obs))
        steps = Transition(before, taken, after, jnp.zeros(lead), no, no, ~no)
        return np.asarray(scored(fitted, steps))[:, 0]

    return pay


@eqx.filter_jit
def scored(model: AbstractCuriosity, steps: Any) -> jax.Array:
    """The bonus of one environment's transitions."""
    return score(model, start_memory(model, 1), steps, key=jax.random.key(0))[1]
