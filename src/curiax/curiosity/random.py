"""Uniformly random actions: the baseline that every method must beat.

Choices:

* Every action is drawn uniformly from the action space; nothing is learnt; coverage is logged alike.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import jax.numpy as jnp
from jaxtyping import PyTree

from .._types import PRNGKey, Scalar, Spec, Transition
from ._base import AbstractCuriosity, Memory, Terms


class Random(AbstractCuriosity):
    """Acts uniformly at random."""

    agent: ClassVar[Literal["ppo", "uniform"]] = "uniform"

    def __init__(self, spec: Spec, *, key: PRNGKey) -> None:
        pass

    def reward(self, memory: Memory, t: Transition, *, key: PRNGKey) -> tuple[Memory, Scalar]:
        return memory, jnp.zeros(())

    def loss(self, t: Transition, *, draw: PyTree) -> tuple[Scalar, Terms]:
        return jnp.zeros(()), {}
