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
from .._types import PRNGKey, Spec, Transition
from ..curiosity import AbstractCuriosity, score, start_memory
from ..nn import at_most
from .exports import REMEDY, About, refuse_large_settings
from .registry import builtin_method, find_method, whence
from .tensors import filled

#: Numbers that one episode's memory may hold where a file asks for it.
MOST_MEMORY = 1 << 25
#: So many numbers of observations are scored together: what networks make of images takes many times their memory.
TOGETHER = 1 << 21


def refuse_large_memory(file: Path, model: AbstractCuriosity | None) -> None:
    """Refuse a method whose memory of one environment, which no file holds, would take more than there may be."""
    memory = [] if model is None else jax.tree.leaves(eqx.filter_eval_shape(model.memory))
    if sum(math.prod(leaf.shape) for leaf in memory) > MOST_MEMORY:
        raise damaged(file, f"an episode's memory of its method has more than {MOST_MEMORY:,} numbers", REMEDY)


class Scorer:
    """The raw bonuses of one environment, piece by piece; what a method remembers goes on from one to the next.

    Without a method all are 0.
    """

    def __init__(self, model: AbstractCuriosity | None, spec: Spec, key: PRNGKey) -> None:
        self.most = max(1, TOGETHER // max(1, spec.obs_size))
        self._model, self._key, self._pieces = model, key, 0
        self._memory = None if model is None else start_memory(model, 1)

    def __call__(self, steps: Transition) -> np.ndarray:
        """Those of the next steps `[T]`, at most `most` of them, and as many in every piece but the last."""
        key, count = self._key, len(steps.reward)
        if self._model is None:
            return np.zeros(count, np.float32)
        if self._pieces:
            key = jax.random.fold_in(key, self._pieces)
            # Filled up with steps that are none, so that nothing is compiled for the last piece.
            steps = jax.tree.map(
                lambda x: np.concatenate([x, np.zeros((self.most - count, *x.shape[1:]), x.dtype)]), steps
            )
        one = jax.tree.map(lambda x: x[:, None], steps)
        self._memory, bonus = scored(self._model, self._memory, one, key)
        self._pieces += 1
        return np.asarray(bonus)[:count, 0]


@eqx.filter_jit
def scored(model: AbstractCuriosity, memory: Any, steps: Any, key: PRNGKey) -> Any:
    """The memory after one environment's transitions, and their bonus."""
    return score(model, memory, steps, key=key)


def make_scorer(
    about: About,
    spec: Spec,
    seed: int,
    arrays: Mapping[str, np.ndarray],
    file: Path,
    see: Callable[[np.ndarray], np.ndarray],
    *,
    trust: bool,
) -> Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """A function of transitions `[B]` that gives their raw bonus.

    `arrays` are those of one seed; `see` makes of raw observations what the method sees.
    """
    name = about.bonus.method
    entry = find_method(name) if trust else builtin_method(name)
    if entry is None:
        raise UsageError(
            f"{file.parent} was trained with {name!r}, which is not Curiax's: its bonus imports and runs "
            f"{whence(name)}. If you trust it, load it with trust=True."
        )
    refuse_large_settings(file, about.bonus.settings, sum(array.size for array in arrays.values()))
    settings = checked(entry.method, about.bonus.settings, "method")
    # The key only matters for what a method keeps of it; its arrays are replaced. Stream 1 is the model's.
    key = jax.random.fold_in(jax.random.key(np.uint32(seed)), 1)
    with at_most(sum(array.size for array in arrays.values()), str(file.parent)):
        model = build_method(entry.method, spec, key, entry.name, **settings)
    refuse_large_memory(file, model)
    fitted = filled(file, {"curiosity": model}, arrays)["curiosity"]

    def pay(obs: np.ndarray, action: np.ndarray, next_obs: np.ndarray) -> np.ndarray:
        scorer, paid = Scorer(fitted, spec, jax.random.key(0)), []
        for first in range(0, max(1, len(obs)), scorer.most):
            some = slice(first, first + scorer.most)
            before, taken, after = (jnp.asarray(part) for part in (see(obs[some]), action[some], see(next_obs[some])))
            no = jnp.zeros(len(before), bool)
            paid.append(scorer(Transition(before, taken, after, jnp.zeros(len(before)), no, no, ~no)))
        return np.concatenate(paid)

    return pay
