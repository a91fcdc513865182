"""Learnt and random features that several methods are built from."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._tree import Frozen
from .._types import Discrete, Scalar, Spec, Transition, Vector
from ..nn import MLP, Linear, Source, generator, join
from .encoders import CNN, feature_count, network

#: So many observations at once are looked at in calibration: thousands of large images would fill the memory.
CALIBRATED = 512


class Standardised(eqx.Module):
    """A network whose outputs are shifted and scaled."""

    net: CNN
    mean: Vector
    deviation: Vector

    def __call__(self, x: Float[Array, " pixels"]) -> Vector:
        return (self.net(x) - self.mean) / self.deviation


class Target(eqx.Module):
    """What is predicted of an observation, and remembered: a vector itself, of an image random features.

    The features are those of a frozen network, each standardised by mean and deviation as they were measured once,
    before training, on the first observations.
    """

    features: Frozen[Standardised] | None
    size: int = eqx.field(static=True)

    def __init__(self, spec: Spec, *, key: Source, pixels: bool = False) -> None:
        """Draw the features; with `pixels` an image too stands for itself, flattened."""
        self.size = spec.obs_size if pixels else feature_count(spec)
        self.features = None
        if spec.image and not pixels:
            net = CNN(spec, [self.size], key=key)
            self.features = Frozen(Standardised(net, jnp.zeros(self.size), jnp.ones(self.size)))

    def __call__(self, obs: Float[Array, "..."]) -> Vector:
        return jnp.ravel(obs) if self.features is None else self.features(jnp.ravel(obs))

    def calibrated(self, obs: Float[Array, "B ..."]) -> Target:
        """The same features with mean 0 and deviation 1 over these observations.

        One that hardly varies among them is not divided by what is next to nothing: it keeps its scale.
        """
        if self.features is None:
            return self
        values = jax.lax.map(self.features.net.net, obs.reshape(len(obs), -1), batch_size=CALIBRATED)
        deviation = jnp.std(values, axis=0)
        measured = (jnp.mean(values, axis=0), jnp.where(deviation > 1e-6, deviation, 1.0))
        return eqx.tree_at(lambda t: (t.features.net.mean, t.features.net.deviation), self, measured)


class InverseDynamics(eqx.Module):
    """Features φ(s) trained to tell which action led from s to s′.

    What the agent cannot influence does not help to tell the action, so it is free to leave the features.
    """

    encoder: MLP | CNN
    inverse: MLP
    spec: Spec = eqx.field(static=True)

    def __init__(
        self,
        spec: Spec,
        size: int,
        width: int,
        *,
        key: Source,
        inverse_layers: int = 1,
        encoder: MLP | CNN | None = None,
    ) -> None:
        rng = generator(key)
        self.encoder = network(spec, [width, width], size, key=rng) if encoder is None else encoder
        self.inverse = MLP([2 * size, *[width] * inverse_layers, spec.action.size], key=rng)
        self.spec = spec

    def __call__(self, obs: Float[Array, "..."]) -> Vector:
        return self.encoder(jnp.ravel(obs))

    def pair(self, t: Transition) -> tuple[Vector, Vector]:
        """φ(s) and φ(s′)."""
        return self(t.obs), self(t.next_obs)

    def action_error(self, features: Vector, next_features: Vector, t: Transition) -> Scalar:
        """Cross-entropy of a discrete action, mean squared error of a continuous one."""
        guess = self.inverse(join(features, next_features))
        if isinstance(self.spec.action, Discrete):
            return -jnp.sum(jax.nn.log_softmax(guess) * self.spec.action.vector(t.action))
        return jnp.mean((guess - t.action) ** 2)


class Distillation(eqx.Module):
    """A network that learns to imitate a frozen random one; its error falls where it has practised."""

    target: Frozen[Linear | MLP | CNN]
    predictor: MLP | CNN
    clip: float = eqx.field(static=True)

    def __init__(self, spec: Spec, *, size: int, width: int, linear_target: bool, clip: float, key: Source) -> None:
        rng = generator(key)
        self.target = Frozen(
            Linear(spec.obs_size, size, key=rng) if linear_target else network(spec, [width, width], size, key=rng)
        )
        self.predictor = network(spec, [width] * 3, size, key=rng, on_image=[width, width])
        self.clip = clip

    def error(self, obs: Float[Array, "..."]) -> Scalar:
        """Mean squared difference of the two networks on one observation."""
        x = jnp.clip(jnp.ravel(obs), -self.clip, self.clip)
        return jnp.mean((self.predictor(x) - self.target(x)) ** 2)


class SimHash(eqx.Module):
    """The code of an observation: on which side of random planes it lies, sgn(A g(s)), as one number.

    Near observations lie on the same side of most planes. A is Gaussian and frozen. All planes pass through 0, so
    that a code tells directions apart but no lengths, unless `offset` moves each of them off it at random. g(s) is a
    vector itself, of an image its standardised random features.
    """

    target: Target
    planes: Frozen[Linear]
    bits: int = eqx.field(static=True)

    def __init__(self, spec: Spec, bits: int, *, offset: bool, key: Source) -> None:
        def gaussian(rng: np.random.Generator, inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
            return rng.standard_normal((inputs, outputs)), rng.standard_normal(outputs) * offset

        rng = generator(key)
        self.target = Target(spec, key=rng)
        self.planes = Frozen(Linear(self.target.size, bits, key=rng, init=gaussian))
        self.bits = bits

    @property
    def codes(self) -> int:
        """How many codes there are: 2^bits."""
        return 1 << self.bits

    def __call__(self, obs: Float[Array, "..."]) -> Int[Array, ""]:
        sides = self.planes(self.target(obs)) > 0
        return jnp.sum(jnp.where(sides, 1 << jnp.arange(self.bits, dtype=jnp.int32), 0), dtype=jnp.int32)
