"""A curiosity method of your own that learns, in one file.

The model predicts the next observation from observation and action, with a mean and a deviation for each entry. The
bonus: how much further off the prediction was than the model itself expected. What the model knows to be noise pays
nothing on average, however large it is.

    curiax check learning_method:ExcessSurprise                      # in this folder: does it keep the contract?
    curiax run mountain-car --method learning_method:ExcessSurprise  # train PPO on it
    curiax run mountain-car --method learning_method:ExcessSurprise --method.width 64
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp

import curiax
from curiax.dist import DiagGaussian
from curiax.nn import MLP, GaussianHead, generator, join


class ExcessSurprise(curiax.AbstractCuriosity):
    """Pays for observations that are less likely than the model expected them to be."""

    bibtex: ClassVar[str] = ""
    #: What `loss` reports beside itself, for readers of reports.
    metrics: ClassVar[tuple[curiax.Metric, ...]] = (
        curiax.Metric("entropy", "entropy of the prediction", "nats", "How much the model expects to be off."),
    )

    trunk: MLP
    head: GaussianHead
    spec: curiax.Spec = eqx.field(static=True)

    def __init__(self, spec: curiax.Spec, *, key: curiax.PRNGKey, width: int = 32) -> None:
        """Build the networks.

        Args:
            spec: the task's spaces.
            key: draws the parameters.
            width: hidden units in each layer.
        """
        rng = generator(key)
        self.trunk = MLP([spec.obs_size + spec.action.size, width, width], key=rng, activate_last=True)
        self.head = GaussianHead(width, spec.obs_size, key=rng)
        self.spec = spec

    def predicted(self, t) -> DiagGaussian:
        """What the model expects of the next observation; an action of any kind becomes a vector."""
        return self.head(self.trunk(join(t.obs, self.spec.action.vector(t.action))))

    def reward(self, memory, t, *, key):
        """−log p(s′ | s, a), less what it is on average where the model is right: the entropy of p."""
        p = self.predicted(t)
        return memory, -p.log_prob(jnp.ravel(t.next_obs)) - jnp.sum(p.entropy())

    def loss(self, t, *, draw):
        """−log p(s′ | s, a), and by name what is worth a curve."""
        p = self.predicted(t)
        return -p.log_prob(jnp.ravel(t.next_obs)), {"entropy": jnp.sum(p.entropy())}


def main() -> None:
    """Check the method, train it for a moment, and say how it fared beside random actions."""
    from curiax.testing import check_curiosity

    check_curiosity(ExcessSurprise)
    for method in (ExcessSurprise, "random"):
        result = curiax.run(curiax.Experiment("mountain-car", method, seeds=2, steps=20_480))
        print(f"{result.plan.method_entry.name:40s} coverage of each seed: {result.final()}")


if __name__ == "__main__":
    main()
