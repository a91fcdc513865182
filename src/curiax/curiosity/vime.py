"""Variational Information Maximizing Exploration (VIME).

Houthooft, Chen, Duan, Schulman, De Turck, Abbeel: VIME, NeurIPS 2016.

    Bayesian network with weights θ ~ q = ∏ N(µ, σ²), σ = log(1 + e^ρ), prior N(0, σ₀²)
    loss  = KL[q ‖ prior] w − log N(s′; f_θ(s,a), σ_l²)
    bonus = ½ λ² gᵀ H⁻¹ g, the second-order information gain of one natural-gradient step λ H⁻¹ g on (s,a,s′)

with g = −∇ log p, H_µ = 1/σ², H_ρ = 2 (dσ/dρ)² / σ². For W = µ + σ ∘ ε with one ε for the whole batch the
quadratic form needs no per-example gradients: with x the input of a layer (1 appended for the bias) and
δ = ∂(−log p)/∂(pre-activation),

    gᵀ H⁻¹ g = Σ_layers Σ_j [ x² @ (σ² ∘ (1 + ε²/2)) ]_j δ_j²

Choices:

* One weight sample per gain (original: 10 with local reparameterisation); weight noise makes the closed form.
* The network is ReLU 32-32 (original: one hidden layer of 32), like the other methods' here.
* `initial_std = 0.1`, `likelihood_std = 0.1`: the original's 0.5 and 5 suit raw observations; ours are
  normalised and nearly deterministic.
* `prior_weight = 1/2048`: the prior's share of one rollout's evidence; the original divides by 5 batches of
  10 from a replay pool. `learner.replay` gives such a pool.
* Inputs are the loop's running-normalised observations; a pool's own standardisation would change little.
* Images: the network sees and predicts random features, standardised once. They are hundreds where a vector has a
  few, and none can be foreseen as well, so `likelihood_std = 1`; and the weights' deviations shrink with the root of
  the width, so that the noise of a layer's sums stays that of a layer of 32. With a vector's settings every gain
  would be at the bound of 1000.
* Bonus for every rollout, the first included, scaled like every other bonus, which makes λ and the
  original's division by medians irrelevant.
"""

from __future__ import annotations

import itertools
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._metrics import Metric
from .._settings import Count, NonNegative, Positive
from .._types import PRNGKey, Scalar, Spec, Transition, Vector
from ..dist import LOG_2PI
from ..nn import Source, generator, join, spend
from ._base import AbstractCuriosity, Memory, Terms
from .encoders import default_width
from .features import Target


class BayesianLinear(eqx.Module):
    """Independent Gaussians over the weights and, in the last row, the biases of a linear layer."""

    mean: Float[Array, "inputs_and_one outputs"]
    rho: Float[Array, "inputs_and_one outputs"]

    def __init__(self, inputs: int, outputs: int, std: float, *, key: Source) -> None:
        spend(inputs, 2 * outputs)
        bound = inputs**-0.5
        self.mean = jnp.asarray(generator(key).uniform(-bound, bound, (inputs + 1, outputs)), jnp.float32)
        self.rho = jnp.full((inputs + 1, outputs), np.log(np.expm1(std)), jnp.float32)

    @property
    def std(self) -> Float[Array, "inputs_and_one outputs"]:
        """σ = log(1 + e^ρ)."""
        return jax.nn.softplus(self.rho)


class VIME(AbstractCuriosity):
    """Pays the information a transition brings about the weights of a Bayesian network."""

    bibtex: ClassVar[str] = """@inproceedings{houthooft2016vime,
  title     = {{VIME}: Variational Information Maximizing Exploration},
  author    = {Houthooft, Rein and Chen, Xi and Duan, Yan and Schulman, John and De Turck, Filip and Abbeel, Pieter},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {29},
  year      = {2016}
}"""
    nonnegative: ClassVar[bool] = True
    shares_key: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("nll", "prediction error", "nats", "-log p(s' | s, a)."),)

    target: Target
    layers: tuple[BayesianLinear, ...]
    spec: Spec = eqx.field(static=True)
    step_size: float = eqx.field(static=True)
    likelihood_std: float = eqx.field(static=True)
    prior_std: float = eqx.field(static=True)
    prior_weight: float = eqx.field(static=True)

    def __init__(
        self,
        spec: Spec,
        *,
        key: PRNGKey,
        step_size: Positive = 0.01,
        likelihood_std: Positive | None = None,
        initial_std: Positive | None = None,
        prior_std: Positive | None = None,
        prior_weight: NonNegative = 1 / 2048,
        width: Count | None = None,
    ) -> None:
        """Build the network.

        Args:
            spec: the task's spaces.
            key: draws the parameters.
            step_size: λ of the natural-gradient step whose gain is paid.
            likelihood_std: deviation of the predicted next observation; None takes 0.1, for images 1.
            initial_std: deviation of every weight before training; None takes 0.1, for images √(32 / width) of it.
            prior_std: deviation of the weights' prior; None takes 0.5, for images √(32 / width) of it.
            prior_weight: weight of KL[q ‖ prior] in the loss of one transition.
            width: hidden units in each layer; None takes 32, for images the number of their features.
        """
        rng, width = generator(key), width or default_width(spec)
        narrow = (32 / width) ** 0.5 if spec.image else 1.0
        std = initial_std or 0.1 * narrow
        self.target = Target(spec, key=rng)
        sizes = [self.target.size + spec.action.size, width, width, self.target.size]
        self.layers = tuple(BayesianLinear(i, o, std, key=rng) for i, o in itertools.pairwise(sizes))
        self.spec, self.step_size = spec, step_size
        self.likelihood_std = likelihood_std or (1.0 if spec.image else 0.1)
        self.prior_std, self.prior_weight = prior_std or 0.5 * narrow, prior_weight

    def draw(self, key: PRNGKey) -> list[Float[Array, "inputs_and_one outputs"]]:
        """One ε for every weight."""
        keys = jax.random.split(key, len(self.layers))
        return [jax.random.normal(k, layer.mean.shape) for k, layer in zip(keys, self.layers, strict=True)]

    def forward(self, t: Transition, noise: list[Array], probes: list[Vector]) -> tuple[Scalar, list[Vector]]:
        """−log p(s′|s,a,θ) for one draw of the weights, and each layer's input.

        The `probes` are added to the pre-activations: the gradient with respect to them is δ.
        """
        x = join(self.target(t.obs), self.spec.action.vector(t.action))
        inputs = []
        for k, (layer, epsilon, probe) in enumerate(zip(self.layers, noise, probes, strict=True)):
            x = jnp.append(jax.nn.relu(x) if k else x, 1.0)
            inputs.append(x)
            x = x @ (layer.mean + layer.std * epsilon) + probe
        error = (x - self.target(t.next_obs)) / self.likelihood_std
        nll = 0.5 * jnp.sum(error**2) + error.size * (0.5 * LOG_2PI + float(np.log(self.likelihood_std)))
        return nll, inputs

    def zeros(self) -> list[Vector]:
        """Probes that change nothing."""
        return [jnp.zeros(layer.mean.shape[1]) for layer in self.layers]

    def prior_divergence(self) -> Scalar:
        """KL[q ‖ prior] over all weights."""
        total = jnp.zeros(())
        for layer in self.layers:
            ratio = (layer.std / self.prior_std) ** 2
            total += 0.5 * jnp.sum(ratio + (layer.mean / self.prior_std) ** 2 - 1.0 - jnp.log(ratio))
        return total

    def reward(self, memory: Memory, t: Transition, *, key: PRNGKey) -> tuple[Memory, Scalar]:
        noise = self.draw(key)
        deltas, inputs = jax.grad(lambda probes: self.forward(t, noise, probes), has_aux=True)(self.zeros())
        gain = jnp.zeros(())
        for layer, epsilon, x, delta in zip(self.layers, noise, inputs, deltas, strict=True):
            gain += jnp.sum(((x**2) @ (layer.std**2 * (1.0 + 0.5 * epsilon**2))) * delta**2)
        return memory, jnp.minimum(0.5 * self.step_size**2 * gain, 1000.0)

    def loss(self, t: Transition, *, draw: PyTree) -> tuple[Scalar, Terms]:
        nll, _ = self.forward(t, draw, self.zeros())
        divergence = self.prior_divergence()
        return nll + self.prior_weight * divergence, {"nll": nll}
