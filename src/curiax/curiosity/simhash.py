"""Counts of hashed states (#Exploration with SimHash).

Tang, Houthooft, Foote, Stooke, Chen, Duan, Schulman, De Turck, Abbeel: #Exploration: A Study of Count-Based Exploration
for Deep Reinforcement Learning, NeurIPS 2017.

    code = sgn(A g(s′)) ∈ {−1, 1}^k,  A random, Gaussian, frozen
    bonus = 1 / √N(code),  N the visits to the code so far, this one included

Choices:

* g is the loop's normalised observation, of an image its standardised random features.
* `bits` k = 12, with an entry of the table for each of the 2^k codes, so that no two codes share a count. The original
  has 16 to 512 bits and hashes the code once more.
* `offset=True`: each plane lies off the mean of the observations by a Gaussian number of deviations, that is, g has one
  more entry, 1. With the formula alone (`offset=False`) all planes pass through 0. For the original's raw states that
  is some place, for normalised ones it is their mean: codes then tell directions from the mean apart, but no
  distances, and in two dimensions there are no more than 2k of them. Mountain Car is covered
  better with offsets (`results/more-methods-choices`).
* The counts are kept per environment and survive episode ends, so one environment's bonus never depends on another's.
* Nothing is trained.
"""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import PyTree

from .._settings import Bits
from .._types import PRNGKey, Scalar, Spec, Transition
from ._base import AbstractCuriosity, Memory, Terms
from .features import SimHash


class SimHashCounts(AbstractCuriosity):
    """Pays states by how rarely their code has been met."""

    bibtex: ClassVar[str] = """@inproceedings{tang2017exploration,
  title     = {\\#{E}xploration: A Study of Count-Based Exploration for Deep Reinforcement Learning},
  author    = {Tang, Haoran and Houthooft, Rein and Foote, Davis and Stooke, Adam and Chen, Xi and Duan, Yan and
               Schulman, John and De Turck, Filip and Abbeel, Pieter},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {30},
  year      = {2017}
}"""
    nonnegative: ClassVar[bool] = True

    code: SimHash

    def __init__(self, spec: Spec, *, key: PRNGKey, bits: Bits = 12, offset: bool = True) -> None:
        """Draw the planes.

        Args:
            spec: the task's spaces.
            key: draws the planes.
            bits: k, the number of planes; the table has 2^k entries.
            offset: put each plane off the mean of the observations, at random; without it all pass through the mean.
        """
        self.code = SimHash(spec, bits, offset=offset, key=key)

    def memory(self) -> Memory:
        return jnp.zeros(self.code.codes, jnp.int32)

    def forget(self, memory: Memory) -> Memory:
        return memory

    def reward(self, memory: Memory, t: Transition, *, key: PRNGKey) -> tuple[Memory, Scalar]:
        code = self.code(t.next_obs)
        memory = memory.at[code].add(1)
        return memory, 1.0 / jnp.sqrt(memory[code].astype(jnp.float32))

    def loss(self, t: Transition, *, draw: PyTree) -> tuple[Scalar, Terms]:
        return jnp.zeros(()), {}
