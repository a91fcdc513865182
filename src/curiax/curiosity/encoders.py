"""Networks that see observations: multilayer perceptrons of vectors, convolutions of images.

A method asks for a network of a spec and need not know which it gets: each takes the observation as one flat vector.
Two stacks of convolutions, without padding:

    small    3x3x32, 3x3x64, max-pool 2x2 with stride 2, linear → 128          the paper's for MNIST
    nature   8x8x32 /4, 4x4x64 /2, 3x3x64, LeakyReLU after each, linear → 512  the paper's for arcade games

`nature` takes images with sides of at least 36, `small` the others. The paper's table has a max-pool of stride 1
and its text LeakyReLU for vision; its released code for MNIST has stride 2 and nothing between the two convolutions.
Curiax follows the code. LeakyReLU has slope 0.01.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Spec, Vector
from ..nn import MLP, Activation, Conv, Source, generator, max_pool


@dataclass(frozen=True)
class Stack:
    """Convolutions in order: (filters, side, stride) of each."""

    layers: tuple[tuple[int, int, int], ...]
    #: Outputs of the linear layer on top, where a method does not ask for another number.
    features: int
    #: Whether LeakyReLU follows each convolution.
    activated: bool
    #: Whether a max-pool of 2 x 2 follows the last one.
    pooled: bool


SMALL = Stack(((32, 3, 1), (64, 3, 1)), 128, activated=False, pooled=True)
NATURE = Stack(((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512, activated=True, pooled=False)


def stack_for(spec: Spec) -> Stack:
    """The convolutions for a spec's images."""
    return NATURE if min(spec.obs_shape[:2]) >= 36 else SMALL


def feature_count(spec: Spec) -> int:
    """How many numbers stand for an observation: a vector's entries, or an image's features."""
    return stack_for(spec).features if spec.image else spec.obs_size


def default_width(spec: Spec) -> int:
    """Hidden units of a method's layers where none are asked for: the paper's 32 for vectors."""
    return stack_for(spec).features if spec.image else 32


def activation_for(spec: Spec) -> Activation:
    """What follows hidden layers: ReLU for vectors, LeakyReLU for images."""
    return jax.nn.leaky_relu if spec.image else jax.nn.relu


class CNN(eqx.Module):
    """A stack of convolutions and, on top of it, linear layers."""

    convolutions: tuple[Conv, ...]
    head: MLP
    shape: tuple[int, ...] = eqx.field(static=True)
    stack: Stack = eqx.field(static=True)

    def __init__(self, spec: Spec, sizes: Sequence[int], *, key: Source) -> None:
        """Draw the parameters; `sizes` are those of the linear layers, the output's last."""
        rng = generator(key)
        self.shape, self.stack = spec.obs_shape, stack_for(spec)
        layers, sides, channels = [], self.shape[:2], self.shape[2]
        for filters, side, stride in self.stack.layers:
            layers.append(Conv(channels, filters, side, stride, key=rng))
            sides, channels = [layers[-1].size(length) for length in sides], filters
        if self.stack.pooled:
            sides = [length // 2 for length in sides]
        self.convolutions = tuple(layers)
        self.head = MLP([sides[0] * sides[1] * channels, *sizes], key=rng, activation=activation_for(spec))

    def __call__(self, x: Float[Array, " pixels"]) -> Vector:
        x = x.reshape(self.shape)
        for layer in self.convolutions:
            x = jax.nn.leaky_relu(layer(x)) if self.stack.activated else layer(x)
        return self.head(jnp.ravel(max_pool(x) if self.stack.pooled else x))


def network(spec: Spec, hidden: Sequence[int], size: int, *, key: Source, on_image: Sequence[int] = ()) -> MLP | CNN:
    """A network of a spec's flattened observations with `size` outputs.

    The hidden layers are `hidden` for vectors; for images `on_image`, between the convolutions and the output.
    """
    if spec.image:
        return CNN(spec, [*on_image, size], key=key)
    return MLP([spec.obs_size, *hidden, size], key=key)


class Eye(eqx.Module):
    """A method's own trained view of an observation: a vector as it is, an image through convolutions."""

    net: CNN | None
    size: int = eqx.field(static=True)

    def __init__(self, spec: Spec, *, key: Source) -> None:
        self.size = feature_count(spec)
        self.net = CNN(spec, [self.size], key=key) if spec.image else None

    def __call__(self, obs: Float[Array, "..."]) -> Vector:
        flat = jnp.ravel(obs)
        return flat if self.net is None else self.net(flat)
