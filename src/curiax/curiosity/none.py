"""No bonus: PPO on the task's own reward.

Schulman, Wolski, Dhariwal, Radford, Klimov: Proximal Policy Optimization Algorithms, 2017.

Choices:

* The default weights become η_e = 1, η_i = 0; with them come the defaults for a task's own reward.
"""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import PyTree

from .._types import PRNGKey, Scalar, Spec, Transition
from ._base import AbstractCuriosity, Memory, Terms


class NoBonus(AbstractCuriosity):
    """Plain PPO on the task's reward."""

    bibtex: ClassVar[str] = """@article{schulman2017proximal,
  title   = {Proximal Policy Optimization Algorithms},
  author  = {Schulman, John and Wolski, Filip and Dhariwal, Prafulla and Radford, Alec and Klimov, Oleg},
  journal = {arXiv preprint arXiv:1707.06347},
  year    = {2017}
}"""
    weights: ClassVar[tuple[float, float]] = (1.0, 0.0)

    def __init__(self, spec: Spec, *, key: PRNGKey) -> None:
        pass

    def reward(self, memory: Memory, t: Transition, *, key: PRNGKey) -> tuple[Memory, Scalar]:
        return memory, jnp.zeros(())

    def loss(self, t: Transition, *, draw: PyTree) -> tuple[Scalar, Terms]:
        return jnp.zeros(()), {}
