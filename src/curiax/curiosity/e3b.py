"""Exploration via Elliptical Episodic Bonuses (E3B).

Henaff, Raileanu, Jiang, Rocktäschel: Exploration via Elliptical Episodic Bonuses, NeurIPS 2022.

    features φ(s) of inverse dynamics
    bonus = φ(s_t)ᵀ C_{t−1}⁻¹ φ(s_t),   C_t = λI + Σ_{i ≤ t} φ(s_i) φ(s_i)ᵀ over the states of this episode
    loss  = L_inverse (trains φ)

Choices:

* φ is a ReLU network 32-32 with 32 features, the inverse model has one hidden layer of 32.
* `ridge` λ = 0.1 (original). The first state of an episode is in C before the first bonus.
* A square root of the inverse is kept, C⁻¹ = S Sᵀ, so that rounding cannot make the bonus negative. Each state
  changes it as the formula of Sherman and Morrison changes C⁻¹ (Potter's form of it): with f = Sᵀφ and n = ‖f‖²,

      bonus = n,   S ← S − S f fᵀ / (1 + n + √(1 + n)).

* C is kept per environment and goes with the episode. φ may train while an episode lasts; its earlier features stay.
* The agent is the loop's PPO, not IMPALA: only the reward is compared.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from .._settings import Count, Positive
from .._types import PRNGKey, Scalar, Spec, Transition, Vector
from ._base import AbstractCuriosity, Memory, Terms
from .features import InverseDynamics


class Ellipse(eqx.Module):
    """What one environment has seen in this episode: S with C⁻¹ = S Sᵀ, and whether the first state is in it."""

    root: Float[Array, "size size"]
    begun: Bool[Array, ""]


class E3B(AbstractCuriosity):
    """Pays features that point where the episode has not been."""

    bibtex: ClassVar[str] = """@inproceedings{henaff2022exploration,
  title     = {Exploration via Elliptical Episodic Bonuses},
  author    = {Henaff, Mikael and Raileanu, Roberta and Jiang, Minqi and Rockt{\\"a}schel, Tim},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {35},
  year      = {2022}
}"""
    nonnegative: ClassVar[bool] = True

    features: InverseDynamics
    size: int = eqx.field(static=True)
    ridge: float = eqx.field(static=True)

    def __init__(
        self,
        spec: Spec,
        *,
        key: PRNGKey,
        ridge: Positive = 0.1,
        width: Count = 32,
        feature_size: Count = 32,
    ) -> None:
        """Build the networks.

        Args:
            spec: the task's spaces.
            key: draws the parameters.
            ridge: λ, what C is before any state: λI.
            width: hidden units in each layer.
            feature_size: number of features.
        """
        self.features = InverseDynamics(spec, feature_size, width, key=key)
        self.size, self.ridge = feature_size, ridge

    def memory(self) -> Memory:
        return Ellipse(jnp.eye(self.size) * self.ridge**-0.5, jnp.zeros((), bool))

    def reward(self, memory: Memory, t: Transition, *, key: PRNGKey) -> tuple[Memory, Scalar]:
        phi, next_phi = self.features.pair(t)
        root = jnp.where(memory.begun, memory.root, visit(memory.root, phi)[0])
        root, bonus = visit(root, next_phi)
        return Ellipse(root, jnp.ones((), bool)), bonus

    def loss(self, t: Transition, *, draw: PyTree) -> tuple[Scalar, Terms]:
        return self.features.action_error(*self.features.pair(t), t), {}


def visit(root: Float[Array, "size size"], phi: Vector) -> tuple[Float[Array, "size size"], Scalar]:
    """S after φ has entered C, and what φᵀ C⁻¹ φ was before."""
    f = phi @ root
    bonus = jnp.sum(f**2)
    return root - jnp.outer(root @ f, f / (1.0 + bonus + jnp.sqrt(1.0 + bonus))), bonus
