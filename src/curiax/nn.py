"""Layers and their initialisation.

Parameters are drawn on the host by NumPy, from a stream that is a pure function of the JAX key: compiling
the initialisers in XLA would take a good part of the start-up. It follows that layers are built
outside `jit` and `vmap`; `ensemble` replaces `vmap` over keys.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Shaped

from ._errors import OutputError
from ._types import PRNGKey, Vector
from .dist import DiagGaussian

Activation = Callable[[Array], Array]
Init = Callable[[np.random.Generator, int, int], tuple[np.ndarray, np.ndarray]]
Member = TypeVar("Member")


#: What parameters are drawn from: a JAX key, or a stream made of one.
Source = PRNGKey | np.random.Generator


def generator(key: Source) -> np.random.Generator:
    """A NumPy stream that depends on nothing but the key; a stream is passed on as it is."""
    if isinstance(key, np.random.Generator):
        return key
    if isinstance(key, Tracer):
        raise TypeError(
            "curiax.nn draws parameters on the host, so layers cannot be built under jit, vmap or eval_shape: "
            "build them eagerly (use curiax.nn.ensemble for several members) or use equinox.nn layers there."
        )
    return np.random.Generator(np.random.Philox(key=np.asarray(jax.random.key_data(key), np.uint64)))


#: A layer takes at least the memory of so many parameters.
OBJECT = 256
#: How many more parameters may be drawn, and the file that asks for them; None is no bound.
_LEFT: ContextVar[tuple[int, str] | None] = ContextVar("parameters left", default=None)


@contextlib.contextmanager
def at_most(parameters: int, file: str) -> Iterator[None]:
    """Refuse to draw many more parameters than this, so that no file asks for networks beyond its own size."""
    before = _LEFT.set((parameters + (1 << 20), file))
    try:
        yield
    finally:
        _LEFT.reset(before)


def spend(inputs: int, outputs: int) -> None:
    """Count a layer's weights and biases against what may be drawn; each layer is an object, too."""
    left = _LEFT.get()
    if left is None:
        return
    most, file = left
    needed = (inputs + 1) * outputs + OBJECT
    _LEFT.set((most - needed, file))
    if most < needed:
        raise OutputError(f"{file} asks for more parameters than it holds: a layer of {inputs} x {outputs}.")


def torch_uniform(rng: np.random.Generator, inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """PyTorch's default for linear layers: weight and bias uniform in ±1/√inputs."""
    bound = inputs**-0.5
    return rng.uniform(-bound, bound, (inputs, outputs)), rng.uniform(-bound, bound, outputs)


def glorot_uniform(places: int = 1) -> Init:
    """TensorFlow's default: weight uniform in ±√(6 / (inputs + outputs)), zero bias.

    Of a convolution the inputs are those of all `places` of a patch already; the outputs are counted as often.
    """

    def draw(rng: np.random.Generator, inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
        bound = (6.0 / (inputs + places * outputs)) ** 0.5
        return rng.uniform(-bound, bound, (inputs, outputs)), np.zeros(outputs)

    return draw


def unit_columns(rng: np.random.Generator, inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian weight, the column of each output scaled to length 1; zero bias."""
    weight = rng.standard_normal((inputs, outputs))
    return weight / np.sqrt(np.sum(weight**2, axis=0)), np.zeros(outputs)


def orthogonal(gain: float) -> Init:
    """Orthogonal weight times `gain`, zero bias."""

    def draw(rng: np.random.Generator, inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
        tall = rng.standard_normal((max(inputs, outputs), min(inputs, outputs)))
        q, r = np.linalg.qr(tall)
        q = q * np.sign(np.diag(r))
        return gain * (q if inputs >= outputs else q.T), np.zeros(outputs)

    return draw


@jax.custom_jvp
def softplus(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """log(1 + eˣ), with one exponential for value and derivative together, where JAX's own takes three."""
    return jnp.maximum(x, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


@softplus.defjvp
def _softplus_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    e = jnp.exp(-jnp.abs(x))
    return jnp.maximum(x, 0.0) + jnp.log1p(e), dx * jnp.where(x >= 0, 1.0, e) / (1.0 + e)


class Linear(eqx.Module):
    """x @ weight + bias."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        key: Source,
        init: Init = torch_uniform,
    ) -> None:
        spend(inputs, outputs)
        weight, bias = init(generator(key), inputs, outputs)
        self.weight = jnp.asarray(weight, jnp.float32)
        self.bias = jnp.asarray(bias, jnp.float32)

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        return x @ self.weight + self.bias


class MLP(eqx.Module):
    """Linear layers of the given sizes with an activation between them, and after the last if asked."""

    layers: tuple[Linear, ...]
    activation: Activation = eqx.field(static=True)
    activate_last: bool = eqx.field(static=True)

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        key: Source,
        activation: Activation = jax.nn.relu,
        activate_last: bool = False,
        init: Init = torch_uniform,
    ) -> None:
        rng = generator(key)
        self.layers = tuple(Linear(i, o, key=rng, init=init) for i, o in itertools.pairwise(sizes))
        self.activation = activation
        self.activate_last = activate_last

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        x = self.layers[-1](x)
        return self.activation(x) if self.activate_last else x

    def columns(self, x: Float[Array, "inputs B"]) -> Float[Array, "outputs B"]:
        """The same of many inputs, one in each column."""
        for number, layer in enumerate(self.layers):
            x = layer.weight.T @ x + layer.bias[:, None]
            if number < len(self.layers) - 1 or self.activate_last:
                x = self.activation(x)
        return x


class GaussianHead(eqx.Module):
    """Makes a Gaussian of features: linear layers for the mean and the softplus deviation, in one matrix."""

    both: Linear

    def __init__(self, inputs: int, outputs: int, *, key: Source) -> None:
        self.both = Linear(inputs, 2 * outputs, key=key)

    def __call__(self, h: Vector) -> DiagGaussian:
        mean, deviation = jnp.split(self.both(h), 2)
        return DiagGaussian(mean, softplus(deviation) + 1e-4)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def shifted_sum(side: int, made: Float[Array, "height width parts"]) -> Float[Array, "rows columns outputs"]:
    """What a filter of `side` x `side` places makes of an image, from what each pixel adds at each (column, row)."""
    rows, columns, size = (made.shape[0] - side + 1, made.shape[1] - side + 1, made.shape[2] // side**2)
    places = [(j, i) for j in range(side) for i in range(side)]
    parts = [made[i : i + rows, j : j + columns, k * size : (k + 1) * size] for k, (j, i) in enumerate(places)]
    return functools.reduce(jnp.add, parts)


def _shifted_sum_forward(side: int, made: Array) -> tuple[Array, None]:
    return shifted_sum(side, made), None


def _shifted_sum_backward(side: int, _: None, slope: Array) -> tuple[Array]:
    """The same as JAX finds, but laid out once: its own adds up one image as large as all of it for each place."""
    around = [((i, side - 1 - i), (j, side - 1 - j), (0, 0)) for j in range(side) for i in range(side)]
    return (jnp.concatenate([jnp.pad(slope, widths) for widths in around], axis=-1),)


shifted_sum.defvjp(_shifted_sum_forward, _shifted_sum_backward)


def patches(
    image: Float[Array, "height width inputs"], sizes: Sequence[int], side: int, step: int
) -> Float[Array, "rows columns patch"]:
    """The squares of an image that a convolution sees, each laid out as (column, row, channel)."""
    rows, columns = (step * (size - 1) + 1 for size in sizes)
    # Rows first, then columns: far fewer pieces than one for each place in a patch.
    tall = jnp.concatenate([image[i : i + rows : step] for i in range(side)], axis=-1)
    return jnp.concatenate([tall[:, j : j + columns : step] for j in range(side)], axis=-1)


#: How XLA's convolutions get images, filters and give images: channels last.
LAYOUT = ("NHWC", "HWIO", "NHWC")


class Conv(eqx.Module):
    """A convolution of one image `[height, width, channels]` with square filters, without padding.

    It is computed as one matrix product of all patches, each laid out as (column, row, channel). XLA's own becomes a
    grouped one where seeds are side by side, on a GPU need not give the same bits twice, and on a CPU its way back
    inside a loop is some twenty times as slow. But the patches of large images of one seed cost more than the product:
    with `native` XLA's is taken, on a CPU for the way there only.

    Where the stride divides the side, each square of the image as large as the stride is first made one pixel with many
    channels. A GPU's units for products of matrices are filled then; in the product each square is multiplied once,
    with the weights of all its places in a patch, and a few shifted images are added up: no patches are laid out.
    """

    weight: Float[Array, "patch outputs"]
    bias: Float[Array, " outputs"]
    side: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    native: bool = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        side: int,
        stride: int = 1,
        *,
        key: Source,
        init: Init = torch_uniform,
        native: bool = False,
    ) -> None:
        patch = side * side * inputs
        spend(patch, outputs)
        weight, bias = init(generator(key), patch, outputs)
        self.weight = jnp.asarray(weight, jnp.float32)
        self.bias = jnp.asarray(bias, jnp.float32)
        self.side, self.stride, self.native = side, stride, native

    def size(self, length: int) -> int:
        """How many pixels a side of so many leaves."""
        return (length - self.side) // self.stride + 1

    def __call__(self, image: Float[Array, "height width inputs"]) -> Float[Array, "rows columns outputs"]:
        weight, bias = self.weight.astype(image.dtype), self.bias.astype(image.dtype)
        how = {"side": self.side, "step": self.stride}
        if not self.native:
            return by_products(image, weight, **how) + bias

        def on_cpu(image: Array, weight: Array) -> Array:
            return there_by_xla(image, weight, self.side, self.stride)

        def on_accelerator(image: Array, weight: Array) -> Array:
            return by_xla(*squared(image, weight, **how))

        return jax.lax.platform_dependent(image, weight, cpu=on_cpu, default=on_accelerator) + bias


def by_xla(image: Array, weight: Array, side: int, step: int) -> Float[Array, "rows columns outputs"]:
    """XLA's own convolution."""
    kernel = jnp.swapaxes(weight.reshape(side, side, image.shape[-1], -1), 0, 1)
    return jax.lax.conv_general_dilated(image[None], kernel, (step, step), "VALID", dimension_numbers=LAYOUT)[0]


def by_products(image: Array, weight: Array, side: int, step: int) -> Float[Array, "rows columns outputs"]:
    """The same by one matrix product: of squares and then added up where there are any, else of patches."""
    image, weight, blocks, pace = squared(image, weight, side, step)
    if pace < step:
        each = jnp.swapaxes(weight.reshape(blocks * blocks, image.shape[-1], -1), 0, 1)
        return shifted_sum(blocks, image @ each.reshape(image.shape[-1], -1))
    return patches(image, [(length - side) // step + 1 for length in image.shape[:2]], side, step) @ weight


def squared(image: Array, weight: Array, side: int, step: int) -> tuple[Array, Array, int, int]:
    """The same convolution with one pixel for each square as large as the stride: image, weight, side and stride.

    Where the stride does not divide the side it stays as it is.
    """
    if step == 1 or side % step:
        return image, weight, side, step
    channels, blocks = image.shape[-1], side // step
    rows, columns = ((length - side) // step + blocks for length in image.shape[:2])
    squares = image[: rows * step, : columns * step].reshape(rows, step, columns, step, channels)
    squares = jnp.transpose(squares, (0, 2, 1, 3, 4)).reshape(rows, columns, -1)
    parts = weight.reshape(blocks, step, blocks, step, channels, -1)
    return squares, jnp.transpose(parts, (0, 2, 3, 1, 4, 5)).reshape(weight.shape), blocks, 1


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def there_by_xla(image: Array, weight: Array, side: int, step: int) -> Float[Array, "rows columns outputs"]:
    """XLA's convolution, whose way back is that of products: on a CPU each is much the faster of the two."""
    return by_xla(image, weight, side, step)


def _there_by_xla_forward(image: Array, weight: Array, side: int, step: int) -> tuple[Array, tuple[Array, Array]]:
    return by_xla(image, weight, side, step), (image, weight)


def _there_by_xla_backward(side: int, step: int, given: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    return jax.vjp(lambda image, weight: by_products(image, weight, side, step), *given)[1](slope)


there_by_xla.defvjp(_there_by_xla_forward, _there_by_xla_backward)


class Deconv(eqx.Module):
    """The transpose of a convolution: each pixel adds a square patch to a larger image, patches `stride` apart.

    It is computed as a convolution that makes squares of `stride` x `stride` pixels, by one matrix product as `Conv`.
    Patches that are made by a product and then added up would cost many times as much on the way back. With `native` a
    GPU takes XLA's own.
    """

    weight: Float[Array, "inputs patch"]
    bias: Float[Array, " outputs"]
    side: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    native: bool = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        side: int,
        stride: int = 1,
        *,
        key: Source,
        init: Init = torch_uniform,
        native: bool = False,
    ) -> None:
        patch = side * side * outputs
        spend(inputs, patch)
        # The scale is that of the convolution that this is the transpose of, as in PyTorch.
        weight, bias = init(generator(key), patch, inputs)
        self.weight = jnp.asarray(weight.T, jnp.float32)
        self.bias = jnp.asarray(np.resize(bias, outputs), jnp.float32)
        self.side, self.stride, self.native = side, stride, native

    def size(self, length: int) -> int:
        """How many pixels a side of so many makes."""
        return self.stride * (length - 1) + self.side

    def __call__(self, image: Float[Array, "height width inputs"]) -> Float[Array, "rows columns outputs"]:
        (rows, columns), side, step, outputs = image.shape[:2], self.side, self.stride, self.bias.shape[0]

        def of_patches(image: Array, weight: Array) -> Array:
            # Each square of `stride` x `stride` pixels gets something of `blocks` x `blocks` pixels of the image.
            blocks = -(-side // step)
            over, beyond = blocks * step - side, blocks - 1
            sizes = rows + beyond, columns + beyond
            weight = jnp.pad(weight.reshape(-1, side, side, outputs), ((0, 0), (0, over), (0, over), (0, 0)))
            weight = weight.reshape(-1, blocks, step, blocks, step, outputs)[:, ::-1, :, ::-1]
            weight = jnp.transpose(weight, (3, 1, 0, 2, 4, 5)).reshape(-1, step * step * outputs)
            image = jnp.pad(image, ((beyond, beyond), (beyond, beyond), (0, 0)))
            squares = (patches(image, sizes, blocks, 1) @ weight).reshape(*sizes, step, step, outputs)
            large = jnp.transpose(squares, (0, 2, 1, 3, 4)).reshape(sizes[0] * step, sizes[1] * step, outputs)
            return large[: self.size(rows), : self.size(columns)]

        def native(image: Array, weight: Array) -> Array:
            return spread_out(image, weight.reshape(-1, side, side, outputs), step)

        if not self.native:
            return of_patches(image, self.weight) + self.bias
        return jax.lax.platform_dependent(image, self.weight, cpu=of_patches, default=native) + self.bias


def spread_out(
    image: Float[Array, "height width inputs"], weight: Float[Array, "inputs side side outputs"], stride: int
) -> Float[Array, "rows columns outputs"]:
    """XLA's own transposed convolution: that of an image with gaps in it, with the patch turned around."""
    kernel, beyond, gaps = jnp.transpose(weight, (1, 2, 0, 3))[::-1, ::-1], weight.shape[1] - 1, (stride, stride)
    around = [(beyond, beyond), (beyond, beyond)]
    return jax.lax.conv_general_dilated(image[None], kernel, (1, 1), around, gaps, dimension_numbers=LAYOUT)[0]


def max_pool(image: Float[Array, "height width channels"]) -> Float[Array, "rows columns channels"]:
    """The largest of every 2 x 2 block; an odd row or column at the end is left out."""
    rows, columns = image.shape[0] // 2, image.shape[1] // 2
    blocks = image[: 2 * rows, : 2 * columns].reshape(rows, 2, columns, 2, -1)
    return jnp.max(blocks, axis=(1, 3))


def ensemble(build: Callable[[np.random.Generator], Member], key: Source, members: int) -> Member:
    """Several independently initialised members as one tree with a leading axis; call it under `vmap`."""
    rng = generator(key)
    built = [build(rng) for _ in range(members)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0], *built)


def join(*parts: Shaped[Array, "..."]) -> Float[Array, " size"]:
    """All parts, flattened, in one vector."""
    return jnp.concatenate([jnp.ravel(part) for part in parts])
