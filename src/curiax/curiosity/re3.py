"""Random Encoders for Efficient Exploration (RE3).

Seo, Chen, Shin, Lee, Abbeel, Lee: State Entropy Maximization with Random Encoders for Efficient Exploration, ICML 2021.

    y = f(s′) with a frozen random encoder f
    bonus = log(1 + ‖y − y_kNN‖₂),   y_kNN the k-th nearest neighbour of y among the embeddings remembered

Choices:

* f is a ReLU network 32-32 with 32 outputs, for images on top of standardised random features; the original's is
  convolutional, with 50 outputs.
* Each environment remembers the embeddings of its own newest `capacity` = 2048 states, across episodes: one rollout
  of the released LBS code. The original takes the replay buffer, or the samples of one update on policy.
* `neighbours` k = 3 (original, control tasks). y itself is remembered only after its bonus is known.
* The bonus is 0 while fewer than k embeddings are remembered.
* The weight of the bonus does not decay, as it does in the original: the loop treats every bonus alike.
* Nothing is trained.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from .._errors import UsageError
from .._settings import Count
from .._tree import Frozen
from .._types import PRNGKey, Scalar, Spec, Transition
from ..nn import MLP, generator
from ._base import AbstractCuriosity, Memory, Terms
from .features import Target


class RE3Memory(eqx.Module):
    """The newest embeddings of one environment, in a ring, and how many were ever written."""

    entries: Float[Array, "capacity size"]
    written: Int[Array, ""]


class RE3(AbstractCuriosity):
    """Pays the distance to the k-th nearest neighbour among random embeddings of earlier states."""

    bibtex: ClassVar[str] = """@inproceedings{seo2021state,
  title     = {State Entropy Maximization with Random Encoders for Efficient Exploration},
  author    = {Seo, Younggyo and Chen, Lili and Shin, Jinwoo and Lee, Honglak and Abbeel, Pieter and Lee, Kimin},
  booktitle = {International Conference on Machine Learning},
  pages     = {9443--9454},
  year      = {2021}
}"""
    nonnegative: ClassVar[bool] = True
    spares_memory: ClassVar[bool] = True

    target: Target
    encoder: Frozen[MLP]
    size: int = eqx.field(static=True)
    capacity: int = eqx.field(static=True)
    neighbours: int = eqx.field(static=True)

    def __init__(
        self,
        spec: Spec,
        *,
        key: PRNGKey,
        neighbours: Count = 3,
        capacity: Count = 2048,
        width: Count = 32,
        feature_size: Count = 32,
    ) -> None:
        """Build the encoder.

        Args:
            spec: the task's spaces.
            key: draws the encoder.
            neighbours: k, the neighbour whose distance is paid.
            capacity: embeddings that each environment remembers, the newest.
            width: hidden units in each layer.
            feature_size: size of the embedding.
        """
        if neighbours > capacity:
            raise UsageError(
                f"method.neighbours = {neighbours}: a memory of method.capacity = {capacity} never holds so many; take "
                "fewer neighbours, or remember more."
            )
        rng = generator(key)
        self.target = Target(spec, key=rng)
        self.encoder = Frozen(MLP([self.target.size, width, width, feature_size], key=rng))
        self.size, self.capacity, self.neighbours = feature_size, capacity, neighbours

    def memory(self) -> Memory:
        return RE3Memory(jnp.zeros((self.capacity, self.size)), jnp.zeros((), jnp.int32))

    def forget(self, memory: Memory) -> Memory:
        return memory

    def caught_up(self, behind: Memory, memory: Memory) -> Memory:
        slot = (memory.written - 1) % self.capacity
        return RE3Memory(behind.entries.at[slot].set(memory.entries[slot]), memory.written)

    def reward(self, memory: Memory, t: Transition, *, key: PRNGKey) -> tuple[Memory, Scalar]:
        y = self.encoder(self.target(t.next_obs))
        distances = jnp.sum((memory.entries - y) ** 2, axis=-1)
        distances = jnp.where(jnp.arange(self.capacity) < memory.written, distances, jnp.inf)
        distance = jnp.sqrt(smallest(distances, self.neighbours))
        bonus = jnp.where(memory.written >= self.neighbours, jnp.log1p(distance), 0.0)
        slot = memory.written % self.capacity
        entries = memory.entries.at[slot].set(jnp.where(t.valid, y, memory.entries[slot]))
        return RE3Memory(entries, memory.written + t.valid), bonus

    def loss(self, t: Transition, *, draw: PyTree) -> tuple[Scalar, Terms]:
        return jnp.zeros(()), {}


def smallest(values: Float[Array, " size"], k: int) -> Scalar:
    """The k-th smallest value.

    By one pass for each k, which for few neighbours among many is several times as fast as `top_k`: that one sorts.
    """

    def rise(_: Int[Array, ""], value: Scalar) -> Scalar:
        above = jnp.min(jnp.where(values > value, values, jnp.inf))
        return jnp.where(jnp.sum(values <= value) >= k, value, above)

    return jax.lax.fori_loop(0, k - 1, rise, jnp.min(values))
