"""Trees of networks as named arrays, and back: every array goes where its name says, checked against what is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._files import damaged
from .._tree import is_key, leaf_name
from .exports import REMEDY

Tree = TypeVar("Tree")


def tensors(tree: Any) -> dict[str, np.ndarray]:
    """Every array by its name; random keys are left out, as they follow from the seed."""
    return {
        leaf_name(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
        if eqx.is_array(leaf) and not is_key(leaf)
    }


def filled(file: Path, skeleton: Tree, arrays: Mapping[str, np.ndarray], remedy: str = REMEDY) -> Tree:
    """The skeleton with these arrays in it, each of the shape and type that it has there."""
    expected = tensors(skeleton)
    for name in sorted({*expected, *arrays}):
        if name not in arrays:
            raise damaged(file, f"{name} is missing", remedy)
        if name not in expected:
            raise damaged(file, f"{name} has no place in the networks of this experiment", remedy)
        wanted, array = expected[name], arrays[name]
        if (wanted.shape, wanted.dtype) != (array.shape, array.dtype):
            there = f"{wanted.dtype}{list(wanted.shape)}"
            raise damaged(file, f"{name} is {array.dtype}{list(array.shape)}, the experiment's is {there}", remedy)
        # A constant of a method may be infinite on purpose; what was finite at first must be finite still.
        if not np.all(np.isfinite(array) | ~np.isfinite(wanted)):
            raise damaged(file, f"{name} holds NaN or infinity", remedy)

    def put(path: Any, leaf: Any) -> Any:
        name = leaf_name(path)
        return jnp.asarray(arrays[name]) if name in expected else leaf

    return jax.tree_util.tree_map_with_path(put, skeleton)
