"""Surprisal: the error of predicting the next observation's features.

Burda, Edwards, Pathak, Storkey, Darrell, Efros: Large-Scale Study of Curiosity-Driven Learning, ICLR 2019.

    loss  = mean_j (f(φ(s), a) − φ(s′))²_j + what trains φ,   no gradient through φ
    bonus = mean_j (f(φ(s), a) − φ(s′))²_j

    features="random"   φ frozen as it was drawn                                                    (RF)
    features="inverse"  φ trained to tell the action: −log softmax(g(φ(s), φ(s′)))_a                (IDF)
    features="vae"      φ the mean of q(z|s), trained on −log p(s|z) + KL[q ‖ N(0, I)], z ~ q       (VAE)
    features="pixels"   φ(s) = s

Choices:

* f has one layer, four residual blocks of two, and a linear output; the action stands beside the input of each of them.
  512 wide for images of arcade games, 128 for smaller ones, 32 for vectors.
* Images: φ is the stack of convolutions `burda` with 512 outputs (or 128). It is not standardised, as the random
  features of other methods here are: the original's is not. For vectors it is a network with two hidden layers.
* `vae`: p(s|z) is Gaussian with one learnt deviation for all pixels (the original's `vaesph`; which of its two kinds
  made the paper's figures is not known). The original adds noise of one grey level to the pixels before it
  standardises them; here nobody knows the grey levels any more, and none is added.
* `pixels`: f is the original's U-net: convolutions, the same residual blocks, and transposed convolutions to which the
  results of the convolutions are added. The action stands beside the input of each layer, as planes of an image's.
* The original trains policy and features by one optimiser on the sum of the losses; here the learner's trains both. Its
  policy has neither clipped values nor clipped gradients, a value loss of twice the weight, minibatches of whole
  trajectories, and a bonus that is scaled but not clipped; here all methods have the same policy and scaling.
* Dense layers are drawn as PyTorch's; only the convolutions and the layer on top of them as the original's.
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._metrics import Metric
from .._settings import Count
from .._tree import Frozen
from .._types import PRNGKey, Scalar, Spec, Transition, Vector
from ..dist import LOG_2PI
from ..nn import MLP, Conv, Deconv, Linear, Source, generator, glorot_uniform, join, softplus
from ._base import AbstractCuriosity, Memory, Terms
from .encoders import CNN, Painter, burda, default_width, feature_count, grid_of, middle, same, stack_for
from .features import InverseDynamics

BLOCKS, SLOPE = 4, 0.2


def leaky(x: Array) -> Array:
    """LeakyReLU as the original has it."""
    return jax.nn.leaky_relu(x, SLOPE)


class Residual(eqx.Module):
    """Layers that the action stands beside: one, `BLOCKS` blocks of two with a way around them, and a linear one."""

    first: Linear
    blocks: tuple[tuple[Linear, Linear], ...]
    last: Linear

    def __init__(self, inputs: int, actions: int, width: int, outputs: int, *, key: Source) -> None:
        rng = generator(key)

        def layer(size: int, outputs: int) -> Linear:
            return Linear(size + actions, outputs, key=rng)

        self.first = layer(inputs, width)
        self.blocks = tuple((layer(width, width), layer(width, width)) for _ in range(BLOCKS))
        self.last = layer(width, outputs)

    def __call__(self, x: Vector, action: Vector) -> Vector:
        x = leaky(self.first(join(x, action)))
        for inner, outer in self.blocks:
            x = x + outer(join(leaky(inner(join(x, action))), action))
        return self.last(join(x, action))


def encoder(spec: Spec, size: int, width: int, *, key: Source) -> MLP | CNN:
    """φ, or q(z|s): the original's convolutions, or two hidden layers for vectors."""
    if spec.image:
        return CNN(spec, [size], key=key, stack=burda(spec))
    return MLP([spec.obs_size, width, width, size], key=key)


class Autoencoder(eqx.Module):
    """A variational autoencoder whose mean is the features."""

    encoder: MLP | CNN
    decoder: MLP | Painter
    #: Of the one deviation of all pixels, before softplus.
    deviation: Float[Array, ""]

    def __init__(self, spec: Spec, size: int, width: int, *, key: Source) -> None:
        rng = generator(key)
        self.encoder = encoder(spec, 2 * size, width, key=rng)
        self.decoder = Painter(spec, size, key=rng) if spec.image else MLP([size, width, width, spec.obs_size], key=rng)
        self.deviation = jnp.zeros(())

    def __call__(self, obs: Float[Array, "..."]) -> Vector:
        return jnp.split(self.encoder(jnp.ravel(obs)), 2)[0]

    def loss(self, obs: Float[Array, "..."], noise: Vector) -> Scalar:
        """−log p(s|z) + KL[q(z|s) ‖ N(0, I)] at z = µ + σ·noise, both summed over their dimensions."""
        mean, raw = jnp.split(self.encoder(jnp.ravel(obs)), 2)
        scale, spread = softplus(raw), softplus(self.deviation)
        error = (jnp.ravel(obs) - self.decoder(mean + scale * noise)) / spread
        surprise = 0.5 * jnp.sum(error**2) + error.size * (jnp.log(spread) + 0.5 * LOG_2PI)
        return surprise + 0.5 * jnp.sum(mean**2 + scale**2 - 1.0) - jnp.sum(jnp.log(scale))


Layer = TypeVar("Layer", Conv, Deconv)


class UNet(eqx.Module):
    """Predicts an image: convolutions, residual blocks, and transposed convolutions with what the first had found."""

    down: tuple[Conv, ...]
    inner: Residual
    up: tuple[Deconv, ...]
    spec: Spec = eqx.field(static=True)

    def __init__(self, spec: Spec, width: int, *, key: Source) -> None:
        rng, (rows, columns), stack = generator(key), grid_of(spec), stack_for(spec)
        actions, channels, many = spec.action.size, spec.obs_shape[2], stack.drawn

        def built(kind: type[Layer], *plan: tuple[int, int, int, int]) -> tuple[Layer, ...]:
            return tuple(
                kind(size + actions, out, side, stride, key=rng, init=glorot_uniform(side**2), native=stack.native)
                for size, out, side, stride in plan
            )

        self.down = built(Conv, (channels, many // 2, 8, 3), (many // 2, many, 8, 2), (many, many, 4, 2))
        self.inner = Residual(rows * columns * many, actions, width, rows * columns * many, key=rng)
        self.up = built(Deconv, (many, many, 4, 2), (many, many // 2, 8, 2), (many // 2, channels, 8, 3))
        self.spec = spec

    def __call__(self, x: Vector, action: Vector) -> Vector:
        def beside(image: Float[Array, "rows columns channels"]) -> Float[Array, "rows columns more"]:
            planes = jnp.broadcast_to(action, (*image.shape[:2], action.size))
            return jnp.concatenate([image, planes], axis=-1)

        image = x.reshape(self.spec.obs_shape)
        missing = [12 * n - length for n, length in zip(grid_of(self.spec), image.shape[:2], strict=True)]
        image = jnp.pad(image, [(n // 2, n - n // 2) for n in missing] + [(0, 0)])
        found = []
        for layer in self.down:
            image = leaky(same(layer, beside(image)))
            found.append(image)
        image = leaky(self.inner(jnp.ravel(image), action)).reshape(image.shape)
        for layer, skipped in zip(self.up, reversed(found), strict=True):
            image = same(layer, beside(image + skipped))
            image = image if layer is self.up[-1] else leaky(image)
        return jnp.ravel(middle(image, self.spec))


class Surprisal(AbstractCuriosity):
    """Pays the error of a forward model in features of one of four kinds."""

    bibtex: ClassVar[str] = """@inproceedings{burda2019large,
  title     = {Large-Scale Study of Curiosity-Driven Learning},
  author    = {Burda, Yuri and Edwards, Harri and Pathak, Deepak and Storkey, Amos and Darrell, Trevor and
               Efros, Alexei A.},
  booktitle = {International Conference on Learning Representations},
  year      = {2019}
}"""
    nonnegative: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("forward", "error of the prediction", low=0.0),
        Metric("features", "loss of the features", note="Of the inverse model, or of the autoencoder."),
    )

    features: Frozen[MLP | CNN] | InverseDynamics | Autoencoder | None
    dynamics: Residual | UNet
    size: int = eqx.field(static=True)
    spec: Spec = eqx.field(static=True)

    def __init__(
        self,
        spec: Spec,
        *,
        key: PRNGKey,
        features: Literal["random", "inverse", "vae", "pixels"] = "random",
        width: Count | None = None,
        feature_size: Count | None = None,
    ) -> None:
        """Build the networks.

        Args:
            spec: the task's spaces.
            key: draws the parameters.
            features: what is predicted of the next observation: `random` features, those of an `inverse` model, of a
                `vae`, or its `pixels` (a vector's entries).
            width: hidden units in each layer; None takes 32, for images the number of their features.
            feature_size: size of φ; None takes the observation's, for images 512 or, of small ones, 128.
        """
        rng, width = generator(key), width or default_width(spec)
        self.size, self.spec = feature_size or feature_count(spec), spec
        if features == "random":
            self.features = Frozen(encoder(spec, self.size, width, key=rng))
        elif features == "inverse":
            net = encoder(spec, self.size, width, key=rng)
            self.features = InverseDynamics(spec, self.size, width, key=rng, encoder=net)
        elif features == "vae":
            self.features = Autoencoder(spec, self.size, width, key=rng)
        else:
            self.features = None
        if features == "pixels" and spec.image:
            self.dynamics = UNet(spec, width, key=rng)
        else:
            seen = spec.obs_size if self.features is None else self.size
            self.dynamics = Residual(seen, spec.action.size, width, seen, key=rng)

    def phi(self, obs: Float[Array, "..."]) -> Vector:
        """φ(s)."""
        return jnp.ravel(obs) if self.features is None else self.features(jnp.ravel(obs))

    def error(self, t: Transition) -> Scalar:
        """Mean squared error of the prediction; no gradient reaches φ."""
        now, after = jax.lax.stop_gradient((self.phi(t.obs), self.phi(t.next_obs)))
        return jnp.mean((self.dynamics(now, self.spec.action.vector(t.action)) - after) ** 2)

    def reward(self, memory: Memory, t: Transition, *, key: PRNGKey) -> tuple[Memory, Scalar]:
        return memory, self.error(t)

    def draw(self, key: PRNGKey) -> PyTree:
        return jax.random.normal(key, (self.size,)) if isinstance(self.features, Autoencoder) else None

    def loss(self, t: Transition, *, draw: PyTree) -> tuple[Scalar, Terms]:
        forward = self.error(t)
        if isinstance(self.features, InverseDynamics):
            aside = self.features.action_error(*self.features.pair(t), t)
        elif isinstance(self.features, Autoencoder):
            aside = self.features.loss(t.obs, draw)
        else:
            return forward, {}
        return forward + aside, {"forward": forward, "features": aside}
