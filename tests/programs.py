"""Compiled programs of training, kept in this process: equal setups are traced, lowered and compiled once.

A run looks for its program among the compiled ones that are kept on disk, but must trace and lower it first to know
which one that is, which takes longer than the few iterations of a test. Here it is found by what it is made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

KEPT: list[tuple[Any, Any]] = []


def parts(made_of: Any) -> tuple[Any, list[Any]]:
    """A tree as something that can be compared: arrays by their bytes."""
    leaves, structure = jax.tree.flatten(made_of)
    return structure, [contents(leaf) for leaf in leaves]


def contents(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return (
        (leaf.shape, str(leaf.dtype), np.asarray(leaf).tobytes()) if isinstance(leaf, jax.Array | np.ndarray) else leaf
    )


def shapes(arrays: Any) -> tuple[Any, list[Any]]:
    """What a compiled program must know of its arguments."""
    leaves, structure = jax.tree.flatten(arrays)
    return structure, [(leaf.shape, leaf.dtype, leaf.sharding) for leaf in leaves]


def once(made_of: Any, make: Callable[[], Any]) -> Any:
    """What `make` returns, or returned when it was called for equal parts before."""
    for known, program in KEPT:
        if known == made_of:
            return program
    program = make()
    KEPT.append((made_of, program))
    return program
