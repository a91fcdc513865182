"""Networks that see observations, and that draw images: multilayer perceptrons of vectors, convolutions of images.

A method asks for a network of a spec and need not know which it gets: each takes the observation as one flat vector.
Three stacks of convolutions, without padding:

    small    3x3x32, 3x3x64, max-pool 2x2 with stride 2, linear → 128          the paper's for MNIST
    early    8x8x16 /4, 4x4x32 /2, LeakyReLU after each, linear → 128          that of Mnih et al. 2013, but for its 256
    nature   8x8x32 /4, 4x4x64 /2, 3x3x64, LeakyReLU after each, linear → 512  the paper's for arcade games

`nature` takes images with sides of at least 64, `early` those of at least 36, `small` the others. `burda` is a stack as
Burda et al. 2019 have it: slope 0.2, TensorFlow's default weights, a linear layer with columns of length 1. The paper's
table has a max-pool of stride 1 and its text LeakyReLU for vision; its released code for MNIST has stride 2 and nothing
between the two convolutions. Curiax follows the code. LeakyReLU has slope 0.01. `Mirror` is the way back from a vector
to an image, layer by layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Spec, Vector
from ..nn import (
    MLP,
    Activation,
    Conv,
    Deconv,
    Init,
    Linear,
    Source,
    generator,
    glorot_uniform,
    max_pool,
    torch_uniform,
    unit_columns,
)


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
    #: Slope of LeakyReLU below 0.
    slope: float = 0.01
    #: What the weights of a convolution with so many places in a patch are drawn from, and those of the linear layer.
    init: Callable[[int], Init] = lambda places: torch_uniform
    head_init: Init = torch_uniform
    #: Whether an accelerator takes its own convolutions, which suit large images of one seed.
    native: bool = False
    #: Channels of the coarsest picture in the networks that draw as Burda et al.'s do.
    drawn: int = 64


SMALL = Stack(((32, 3, 1), (64, 3, 1)), 128, activated=False, pooled=True)
EARLY = Stack(((16, 8, 4), (32, 4, 2)), 128, activated=True, pooled=False, native=True, drawn=16)
NATURE = Stack(((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512, activated=True, pooled=False, native=True)


def burda(spec: Spec) -> Stack:
    """The convolutions of a spec's images as large-scale curiosity has them."""
    return replace(stack_for(spec), slope=0.2, init=glorot_uniform, head_init=unit_columns)


def stack_for(spec: Spec) -> Stack:
    """The convolutions for a spec's images."""
    side = min(spec.obs_shape[:2])
    return NATURE if side >= 64 else EARLY if side >= 36 else SMALL


def large_image(spec: Spec) -> bool:
    """Whether observations are images that the arcade games' convolutions can work on."""
    return spec.image and stack_for(spec) is not SMALL


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

    def __init__(self, spec: Spec, sizes: Sequence[int], *, key: Source, stack: Stack | None = None) -> None:
        """Draw the parameters; `sizes` are those of the linear layers, the output's last."""
        rng = generator(key)
        self.shape, self.stack = spec.obs_shape, stack or stack_for(spec)
        layers, sides, channels = [], self.shape[:2], self.shape[2]
        for filters, side, stride in self.stack.layers:
            init = self.stack.init(side * side)
            layers.append(Conv(channels, filters, side, stride, key=rng, init=init, native=self.stack.native))
            sides, channels = [layers[-1].size(length) for length in sides], filters
        if self.stack.pooled:
            sides = [length // 2 for length in sides]
        self.convolutions = tuple(layers)
        inputs = sides[0] * sides[1] * channels
        self.head = MLP([inputs, *sizes], key=rng, activation=activation_for(spec), init=self.stack.head_init)

    def __call__(self, x: Float[Array, " pixels"]) -> Vector:
        x = x.reshape(self.shape)
        for layer in self.convolutions:
            x = jax.nn.leaky_relu(layer(x), self.stack.slope) if self.stack.activated else layer(x)
        return self.head(jnp.ravel(max_pool(x) if self.stack.pooled else x).astype(jnp.float32))


def network(spec: Spec, hidden: Sequence[int], size: int, *, key: Source, on_image: Sequence[int] = ()) -> MLP | CNN:
    """A network of a spec's flattened observations with `size` outputs.

    The hidden layers are `hidden` for vectors; for images `on_image`, between the convolutions and the output.
    """
    if spec.image:
        return CNN(spec, [*on_image, size], key=key)
    return MLP([spec.obs_size, *hidden, size], key=key)


class Mirror(eqx.Module):
    """A vector as an image: a linear layer, then the transposes of a stack's convolutions in reverse.

    Where the convolutions left out pixels at the lower or right border, the image is 0 there.
    """

    base: Linear
    layers: tuple[Deconv, ...]
    shape: tuple[int, ...] = eqx.field(static=True)
    start: tuple[int, ...] = eqx.field(static=True)
    slope: float = eqx.field(static=True)

    def __init__(self, spec: Spec, size: int, *, key: Source, stack: Stack | None = None) -> None:
        rng, stack = generator(key), stack or stack_for(spec)
        sides, channels = list(spec.obs_shape[:2]), [spec.obs_shape[2], *(filters for filters, _, _ in stack.layers)]
        for _, side, stride in stack.layers:
            sides = [(length - side) // stride + 1 for length in sides]
        self.shape, self.start, self.slope = spec.obs_shape, (*sides, channels[-1]), stack.slope
        self.base = Linear(size, sides[0] * sides[1] * channels[-1], key=rng)
        pairs = zip(stack.layers, channels, channels[1:], strict=False)
        self.layers = tuple(
            Deconv(inputs, outputs, side, stride, key=rng, native=stack.native)
            for (_, side, stride), outputs, inputs in reversed(list(pairs))
        )

    def __call__(self, x: Vector) -> Float[Array, " pixels"]:
        image = self.base(x).reshape(self.start)
        for layer in self.layers:
            image = layer(jax.nn.leaky_relu(image, self.slope))
        missing = [(0, want - have) for want, have in zip(self.shape, image.shape, strict=True)]
        return jnp.ravel(jnp.pad(image, missing))


def same(layer: Conv | Deconv, image: Float[Array, "height width channels"]) -> Float[Array, "rows columns outputs"]:
    """A layer with TensorFlow's padding `same`: a convolution divides the sides by its stride, a transpose multiplies.

    The image is padded, or what was made cropped, alike on both sides, an odd pixel at the end.
    """
    sides, step, side = image.shape[:2], layer.stride, layer.side
    if isinstance(layer, Deconv):
        first = max(side - step, 0) // 2
        large = layer(image)
        large = jnp.pad(large, ((0, max(step - side, 0)), (0, max(step - side, 0)), (0, 0)))
        return large[first : first + step * sides[0], first : first + step * sides[1]]
    missing = [max((-(-length // step) - 1) * step + side - length, 0) for length in sides]
    return layer(jnp.pad(image, [(n // 2, n - n // 2) for n in missing] + [(0, 0)]))


def grid_of(spec: Spec) -> tuple[int, int]:
    """The sides of the coarsest picture in `burda`'s networks that draw: 8 x 8 of 84 x 84, each pixel 12 in the end."""
    return spec.obs_shape[0] // 12 + 1, spec.obs_shape[1] // 12 + 1


def middle(image: Float[Array, "height width channels"], spec: Spec) -> Float[Array, "rows columns channels"]:
    """The middle of a picture that is larger than a spec's."""
    above, left = ((have - want) // 2 for have, want in zip(image.shape[:2], spec.obs_shape[:2], strict=True))
    return image[above : above + spec.obs_shape[0], left : left + spec.obs_shape[1]]


class Painter(eqx.Module):
    """A vector as an image, as the decoder of Burda et al.'s autoencoder has it.

    To 8 x 8, then 16, 32 and 96 pixels, of which the middle is the image; and a bias for each pixel. Of images smaller
    than theirs, fewer pixels and channels.
    """

    base: Linear
    layers: tuple[Deconv, ...]
    bias: Float[Array, "height width channels"]
    spec: Spec = eqx.field(static=True)

    def __init__(self, spec: Spec, size: int, *, key: Source) -> None:
        rng, (rows, columns), stack = generator(key), grid_of(spec), stack_for(spec)
        many = stack.drawn
        self.base = Linear(size, rows * columns * many, key=rng, init=unit_columns)
        plan = ((many, 2 * many, 4, 2), (2 * many, many, 8, 2), (many, spec.obs_shape[2], 8, 3))
        self.layers = tuple(
            Deconv(i, o, k, s, key=rng, init=glorot_uniform(k * k), native=stack.native) for i, o, k, s in plan
        )
        self.bias, self.spec = jnp.zeros(spec.obs_shape), spec

    def __call__(self, x: Vector) -> Float[Array, " pixels"]:
        image = self.base(x).reshape(*grid_of(self.spec), -1)
        for layer in self.layers:
            image = same(layer, jax.nn.leaky_relu(image, 0.2))
        return jnp.ravel(middle(image, self.spec) + self.bias)


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
