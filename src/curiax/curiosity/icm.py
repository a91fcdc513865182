"""Intrinsic Curiosity Module (ICM).

Pathak, Agrawal, Efros, Darrell: Curiosity-driven Exploration by Self-supervised Prediction, ICML 2017.

    features φ(s); inverse model â = g(φ(s), φ(s′)); forward model φ̂′ = h(φ(s), a)
    loss  = (1 − w) L_inverse + w ½‖φ̂′ − φ(s′)‖² / d
    bonus = ‖φ̂′ − φ(s′)‖² / d

Choices (LBS's own control networks were never released):

* φ is a ReLU network 32-32 with as many features as the observation has entries; the forward model is 32-32;
  the inverse model has one hidden layer of 32, as the original's has one; `inverse_layers` sets more.
* `feature_gradient="inverse"`: only the inverse loss trains φ, as the LBS paper describes its baseline;
  `"both"` lets the forward loss reach φ too, as the original code does.
* `forward_weight` w = 0.2 (original); continuous actions are predicted by mean squared error.
* Images: φ is a convolutional network (`encoders.py`). Where there is only one action the inverse loss is 0 and has
  no gradient, so φ stays random.
* The bonus is the mean squared error, not half its sum: a constant that reward scaling removes.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._metrics import Metric
from .._settings import Count, Fraction
from .._types import PRNGKey, Scalar, Spec, Transition, Vector
from ..nn import MLP, generator, join
from ._base import AbstractCuriosity, Memory, Terms
from .encoders import activation_for, default_width, feature_count
from .features import InverseDynamics


class ICM(AbstractCuriosity):
    """Pays the error of a forward model in inverse-dynamics features."""

    bibtex: ClassVar[str] = """@inproceedings{pathak2017curiosity,
  title     = {Curiosity-driven Exploration by Self-supervised Prediction},
  author    = {Pathak, Deepak and Agrawal, Pulkit and Efros, Alexei A. and Darrell, Trevor},
  booktitle = {International Conference on Machine Learning},
  pages     = {2778--2787},
  year      = {2017}
}"""
    nonnegative: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("inverse_loss", "error of the inverse model", low=0.0),
        Metric("forward_loss", "error of the forward model", low=0.0),
    )

    features: InverseDynamics
    forward: MLP
    spec: Spec = eqx.field(static=True)
    forward_weight: float = eqx.field(static=True)
    feature_gradient: str = eqx.field(static=True)

    def __init__(
        self,
        spec: Spec,
        *,
        key: PRNGKey,
        forward_weight: Fraction = 0.2,
        feature_gradient: Literal["inverse", "both"] = "inverse",
        inverse_layers: Count = 1,
        width: Count | None = None,
        feature_size: Count | None = None,
    ) -> None:
        """Build the networks.

        Args:
            spec: the task's spaces.
            key: draws the parameters.
            forward_weight: w, the forward loss's share of the loss.
            feature_gradient: train φ by the `inverse` loss only, or by `both`.
            inverse_layers: hidden layers of the inverse model.
            width: hidden units in each layer; None takes 32, for images the number of their features.
            feature_size: number of features; None takes the observation's size, for images 128 or 512.
        """
        rng = generator(key)
        size, width = feature_size or feature_count(spec), width or default_width(spec)
        self.features = InverseDynamics(spec, size, width, key=rng, inverse_layers=inverse_layers)
        sizes = [size + spec.action.size, width, width, size]
        self.forward = MLP(sizes, key=rng, activation=activation_for(spec))
        self.spec, self.forward_weight, self.feature_gradient = spec, forward_weight, feature_gradient

    def prediction_error(self, phi: Vector, next_phi: Vector, t: Transition) -> Scalar:
        """‖φ̂′ − φ(s′)‖² / d."""
        guess = self.forward(join(phi, self.spec.action.vector(t.action)))
        return jnp.mean((guess - next_phi) ** 2)

    def reward(self, memory: Memory, t: Transition, *, key: PRNGKey) -> tuple[Memory, Scalar]:
        return memory, self.prediction_error(*self.features.pair(t), t)

    def loss(self, t: Transition, *, draw: PyTree) -> tuple[Scalar, Terms]:
        phi, next_phi = self.features.pair(t)
        inverse = self.features.action_error(phi, next_phi, t)
        if self.feature_gradient == "inverse":
            phi, next_phi = jax.lax.stop_gradient((phi, next_phi))
        forward = 0.5 * self.prediction_error(phi, next_phi, t)
        return (1 - self.forward_weight) * inverse + self.forward_weight * forward, {
            "inverse_loss": inverse,
            "forward_loss": forward,
        }
