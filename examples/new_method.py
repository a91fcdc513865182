"""A curiosity method of your own, in one file.

The bonus: how far the next observation lies, in a random embedding, from a running mean of what this episode has
shown so far. Nothing is trained, the memory is one vector.

    curiax check new_method:EmbeddingDistance                      # in this folder: does it keep the contract?
    curiax run mountain-car --method new_method:EmbeddingDistance  # train PPO on it
    curiax run mountain-car --method new_method:EmbeddingDistance --method.width 128
    curiax reproduce noisy-tv --methods lbs random new_method:EmbeddingDistance
"""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp

import curiax
from curiax.nn import MLP


class EmbeddingDistance(curiax.AbstractCuriosity):
    """Pays the distance from the running mean of the episode's random features."""

    bibtex: ClassVar[str] = ""
    nonnegative: ClassVar[bool] = True

    net: curiax.Frozen[MLP]

    def __init__(self, spec: curiax.Spec, *, key: curiax.PRNGKey, width: int = 64) -> None:
        """Build the network.

        Args:
            spec: the task's spaces.
            key: draws the parameters.
            width: hidden units of the random embedding.
        """
        self.net = curiax.Frozen(MLP([spec.obs_size, width, 16], key=key))

    def memory(self):
        """One environment's running mean; the library resets it when an episode ends."""
        return jnp.zeros(16)

    def reward(self, memory, t, *, key):
        """The bonus of one transition, and the memory after it."""
        embedded = self.net(jnp.ravel(t.next_obs))
        return 0.9 * memory + 0.1 * embedded, jnp.linalg.norm(embedded - memory)

    def loss(self, t, *, draw):
        """Nothing to train."""
        return jnp.zeros(()), {}


def main() -> None:
    """Check the method, train it for a moment, and say how it fared beside random actions."""
    from curiax.testing import check_curiosity

    check_curiosity(EmbeddingDistance)
    for method in (EmbeddingDistance, "random"):
        result = curiax.run(curiax.Experiment("mountain-car", method, seeds=2, steps=20_480))
        print(f"{result.plan.method_entry.name:40s} coverage of each seed: {result.final()}")


if __name__ == "__main__":
    main()
