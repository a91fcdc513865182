"""Disagreement of an ensemble.

Pathak, Gandhi, Gupta: Self-Supervised Exploration via Disagreement, ICML 2019.

    forward models f_1..f_K
    loss  = Σ_k m_k ‖f_k(s,a) − s′‖² / d,   m_k ~ Bernoulli(keep)/keep per sample
    bonus = mean over dimensions of Var_k[f_k(s,a)]

Choices:

* K = 5 ReLU networks 32-32 that predict the next observation itself (LBS paper: state space in control).
* Population variance (original). The bonus needs no s′.
* `keep=0.8`: each member skips a random fifth of the samples, which keeps members apart (original);
  1.0 trains all members on everything.
* Images: the models see and predict 128 or 512 random features, as the original's do, but standardised once;
  `target="pixels"` gives them the image itself. A model has two hidden layers, as for vectors; the original's has the
  residual blocks of `surprisal.py`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._settings import Count, Keep
from .._types import PRNGKey, Scalar, Spec, Transition
from ..nn import MLP, ensemble, generator, join
from ._base import AbstractCuriosity, Memory, Terms
from .encoders import activation_for, default_width
from .features import Target


class Disagreement(AbstractCuriosity):
    """Pays the variance of an ensemble's predictions."""

    bibtex: ClassVar[str] = """@inproceedings{pathak2019self,
  title     = {Self-Supervised Exploration via Disagreement},
  author    = {Pathak, Deepak and Gandhi, Dhiraj and Gupta, Abhinav},
  booktitle = {International Conference on Machine Learning},
  pages     = {5062--5071},
  year      = {2019}
}"""
    nonnegative: ClassVar[bool] = True

    target: Target
    members: MLP
    spec: Spec = eqx.field(static=True)
    keep: float = eqx.field(static=True)

    def __init__(
        self,
        spec: Spec,
        *,
        key: PRNGKey,
        ensemble_size: Count = 5,
        keep: Keep = 0.8,
        width: Count | None = None,
        target: Literal["features", "pixels"] = "features",
    ) -> None:
        """Build the networks.

        Args:
            spec: the task's spaces.
            key: draws the parameters.
            ensemble_size: number of forward models.
            keep: chance that a model trains on a sample.
            width: hidden units in each layer; None takes 32, for images the number of their features.
            target: what the models see and predict of an image: random `features`, or its `pixels`; a vector is itself.
        """
        rng, width = generator(key), width or default_width(spec)
        self.target = Target(spec, key=rng, pixels=target == "pixels")
        sizes = [self.target.size + spec.action.size, width, width, self.target.size]
        self.members = ensemble(lambda k: MLP(sizes, key=k, activation=activation_for(spec)), rng, ensemble_size)
        self.spec, self.keep = spec, keep

    def predictions(self, t: Transition) -> Float[Array, "K size"]:
        """Every member's guess of s′."""
        x = join(self.target(t.obs), self.spec.action.vector(t.action))
        return jax.vmap(lambda member: member(x))(self.members)

    def reward(self, memory: Memory, t: Transition, *, key: PRNGKey) -> tuple[Memory, Scalar]:
        guesses = self.predictions(t)
        return memory, jnp.mean((guesses - jnp.mean(guesses, axis=0)) ** 2)

    def draw(self, key: PRNGKey) -> PyTree:
        members = self.members.layers[0].bias.shape[0]
        if self.keep == 1.0:
            return jnp.ones(members)
        return jax.random.bernoulli(key, self.keep, (members,)) / self.keep

    def loss(self, t: Transition, *, draw: PyTree) -> tuple[Scalar, Terms]:
        errors = jnp.mean((self.predictions(t) - self.target(t.next_obs)) ** 2, axis=-1)
        return jnp.sum(errors * draw), {}

    def losses(self, steps: Transition, draws: PyTree) -> tuple[Float[Array, " B"], Terms]:
        """The same of a batch, one sample in each column: products of small matrices are faster so, backwards too."""
        seen = jax.vmap(lambda t: join(self.target(t.obs), self.spec.action.vector(t.action)))(steps)
        reached = jax.vmap(lambda t: self.target(t.next_obs))(steps)
        guesses = jax.vmap(lambda member: member.columns(seen.T))(self.members)
        errors = jnp.mean((guesses - reached.T) ** 2, axis=1)
        return jnp.sum(errors * draws.T, axis=0), {}
