"""Rewarding Impact-Driven Exploration (RIDE).

Raileanu, Rocktäschel: RIDE, ICLR 2020.

    bonus = ‖φ(s′) − φ(s)‖₂ / √N_ep(s′)
    loss  = w_f ‖φ̂′ − φ(s′)‖₂ + w_i L_inverse,  both training φ

Choices:

* 1/√N_ep is Never Give Up's pseudo-count on the normalised state itself: exact counts mean little in
  continuous spaces (LBS paper, appendix). `count=False` is the ablation with the factor 1.
* Images: the pseudo-count is that of random features, standardised once.
* φ as in ICM here; forward and inverse weights 10 and 0.1 (original); the forward error is the norm.
* No clipping of the total reward to ±1: the loop scales every bonus alike.
* The count is 0 until `neighbours` states of the episode are known, so the first steps earn nothing.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree

from .._metrics import Metric
from .._settings import Count, NonNegative, Positive
from .._types import PRNGKey, Scalar, Spec, Transition
from ..nn import MLP, generator, join
from ._base import AbstractCuriosity, Memory, Terms
from .encoders import activation_for, default_width, feature_count
from .episodic import EpisodicCount
from .features import InverseDynamics, Target


class RIDE(AbstractCuriosity):
    """Pays the impact of an action on learnt features, less for states seen in the episode."""

    bibtex: ClassVar[str] = """@inproceedings{raileanu2020ride,
  title     = {{RIDE}: Rewarding Impact-Driven Exploration for Procedurally-Generated Environments},
  author    = {Raileanu, Roberta and Rockt{\\"a}schel, Tim},
  booktitle = {International Conference on Learning Representations},
  year      = {2020}
}"""
    nonnegative: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("inverse_loss", "error of the inverse model", low=0.0),
        Metric("forward_loss", "error of the forward model", low=0.0),
    )

    features: InverseDynamics
    forward: MLP
    target: Target
    counter: EpisodicCount | None
    spec: Spec = eqx.field(static=True)
    forward_weight: float = eqx.field(static=True)
    inverse_weight: float = eqx.field(static=True)

    def __init__(
        self,
        spec: Spec,
        *,
        key: PRNGKey,
        count: bool = True,
        forward_weight: NonNegative = 10.0,
        inverse_weight: NonNegative = 0.1,
        width: Count | None = None,
        feature_size: Count | None = None,
        capacity: Count | None = None,
        neighbours: Count = 10,
        kernel_epsilon: Positive = 1e-3,
    ) -> None:
        """Build the networks.

        Args:
            spec: the task's spaces.
            key: draws the parameters.
            count: divide by the episodic pseudo-count.
            forward_weight: weight of the forward loss.
            inverse_weight: weight of the inverse loss.
            width: hidden units in each layer; None takes 32, for images the number of their features.
            feature_size: number of features; None takes the observation's size, for images 128 or 512.
            capacity: states remembered within an episode; None takes the task's horizon.
            neighbours: k of the pseudo-count.
            kernel_epsilon: ε of the pseudo-count's kernel.
        """
        rng = generator(key)
        size, width = feature_size or feature_count(spec), width or default_width(spec)
        self.features = InverseDynamics(spec, size, width, key=rng)
        sizes = [size + spec.action.size, width, width, size]
        self.forward = MLP(sizes, key=rng, activation=activation_for(spec))
        self.target = Target(spec, key=rng)
        self.counter = (
            EpisodicCount.of(spec, self.target.size, capacity=capacity, neighbours=neighbours, epsilon=kernel_epsilon)
            if count
            else None
        )
        self.spec, self.forward_weight, self.inverse_weight = spec, forward_weight, inverse_weight

    def memory(self) -> Memory:
        return None if self.counter is None else self.counter.start()

    def forget(self, memory: Memory) -> Memory:
        return None if self.counter is None else self.counter.forget(memory)

    def reward(self, memory: Memory, t: Transition, *, key: PRNGKey) -> tuple[Memory, Scalar]:
        phi, next_phi = self.features.pair(t)
        impact = jnp.linalg.norm(next_phi - phi)
        if self.counter is None:
            return memory, impact
        memory, factor = self.counter.visit(memory, self.target(t.next_obs))
        return memory, impact * factor

    def loss(self, t: Transition, *, draw: PyTree) -> tuple[Scalar, Terms]:
        phi, next_phi = self.features.pair(t)
        inverse = self.features.action_error(phi, next_phi, t)
        error = self.forward(join(phi, self.spec.action.vector(t.action))) - next_phi
        # The root is kept off 0, where the norm has no gradient.
        forward = jnp.sqrt(jnp.sum(error**2) + 1e-12)
        return self.forward_weight * forward + self.inverse_weight * inverse, {
            "inverse_loss": inverse,
            "forward_loss": forward,
        }
