"""Surprisal after Burda et al., the networks that draw images, and LBS on pixels: sizes by the cards, sums by hand."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from curiax import Discrete, Spec, UsageError
from curiax._tree import split_trainable
from curiax._types import Transition
from curiax.curiosity import LBS, Surprisal
from curiax.curiosity.encoders import CNN, Mirror, Painter, burda, same
from curiax.curiosity.surprisal import Residual, UNet
from curiax.experiments.registry import METHODS
from curiax.nn import Conv, Deconv, glorot_uniform, spread_out, unit_columns

GAME = Spec((84, 84, 4), Discrete(4))
SMALL = Spec((40, 40, 1), Discrete(3))
KEY = jax.random.key(0)


def numbers(tree: object) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree) if eqx.is_array(leaf))


def step(spec: Spec, seed: int = 0) -> Transition:
    rng = np.random.default_rng(seed)
    obs, after = (jnp.asarray(rng.normal(size=spec.obs_shape), jnp.float32) for _ in range(2))
    no = jnp.zeros((), bool)
    return Transition(obs, jnp.asarray(1, jnp.int32), after, jnp.zeros(()), no, no, ~no)


@pytest.mark.parametrize(("side", "stride"), [(3, 1), (4, 2), (8, 4), (8, 3), (2, 3)])
def test_transposed_convolution_adds_up_patches(side: int, stride: int) -> None:
    """By hand, pixel by pixel, and as a GPU does it; and it is the transpose: ⟨deconv(x), y⟩ = ⟨x, conv(y)⟩ with the
    same weights."""
    rng = np.random.default_rng(side)
    layer = Deconv(3, 2, side, stride, key=KEY)
    x = rng.normal(size=(4, 5, 3)).astype(np.float32)
    expected = np.zeros((layer.size(4), layer.size(5), 2)) + np.asarray(layer.bias)
    weight = np.asarray(layer.weight).reshape(3, side, side, 2)
    for row, column in np.ndindex(4, 5):
        place = np.s_[row * stride : row * stride + side, column * stride : column * stride + side]
        expected[place] += np.einsum("c,cabo->abo", x[row, column], weight)
    np.testing.assert_allclose(layer(jnp.asarray(x)), expected, rtol=1e-5, atol=1e-5)
    on_gpu = spread_out(jnp.asarray(x), jnp.asarray(weight), stride) + layer.bias
    np.testing.assert_allclose(on_gpu, expected, rtol=1e-5, atol=1e-5)
    if side < stride:  # the convolution would not reach all pixels
        return
    back = Conv(2, 3, side, stride, key=KEY)
    # `Conv` lays a patch out as (column, row, channel).
    turned = weight.transpose(2, 1, 3, 0).reshape(-1, 3)
    back = eqx.tree_at(lambda c: (c.weight, c.bias), back, (jnp.asarray(turned), jnp.zeros(3)))
    y = rng.normal(size=expected.shape).astype(np.float32)
    one = np.vdot(expected - np.asarray(layer.bias), y)
    np.testing.assert_allclose(one, np.vdot(x, back(jnp.asarray(y))), rtol=1e-3)


@pytest.mark.parametrize(("side", "stride", "length"), [(8, 3, 96), (8, 2, 32), (4, 2, 16), (8, 3, 95)])
def test_padding_same_is_that_of_xla(side: int, stride: int, length: int) -> None:
    image = jnp.asarray(np.random.default_rng(0).normal(size=(length, length, 2)), jnp.float32)
    conv = Conv(2, 3, side, stride, key=KEY)
    kernel = conv.weight.reshape(side, side, 2, 3).transpose(1, 0, 2, 3)
    axes = ("NHWC", "HWIO", "NHWC")
    expected = jax.lax.conv_general_dilated(image[None], kernel, (stride, stride), "SAME", dimension_numbers=axes)[0]
    np.testing.assert_allclose(same(conv, image), expected + conv.bias, rtol=1e-4, atol=1e-4)
    deconv = Deconv(2, 3, side, stride, key=KEY)
    kernel = deconv.weight.reshape(2, side, side, 3).transpose(1, 2, 3, 0)  # as that of the convolution it transposes
    expected = jax.lax.conv_transpose(
        image[None], kernel, (stride, stride), "SAME", dimension_numbers=axes, transpose_kernel=True
    )[0]
    assert same(deconv, image).shape == (length * stride, length * stride, 3)
    np.testing.assert_allclose(same(deconv, image), expected + deconv.bias, rtol=1e-4, atol=1e-4)


def test_weights_are_drawn_as_in_the_original() -> None:
    rng = np.random.default_rng(0)
    weight, bias = unit_columns(rng, 50, 7)
    np.testing.assert_allclose(np.linalg.norm(weight, axis=0), 1.0)
    assert not bias.any()
    weight, _ = glorot_uniform(9)(rng, 9 * 4, 6)
    bound = np.sqrt(6 / (9 * 4 + 9 * 6))
    assert 0.95 * bound < np.abs(weight).max() <= bound


def test_a_layer_that_suits_a_gpu_has_the_same_gradients() -> None:
    """Under the transformations of training; which way it is computed is decided where it is compiled."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 3, 4)), jnp.float32)

    def gradient(native: bool) -> np.ndarray:
        layer = Deconv(4, 2, 4, 2, key=KEY, native=native)
        loss = eqx.filter_grad(lambda layer: jnp.sum(jnp.tanh(jax.vmap(layer)(x))))
        return np.asarray(eqx.filter_jit(loss)(layer).weight)

    np.testing.assert_allclose(gradient(True), gradient(False), rtol=1e-5, atol=1e-6)


def test_sizes_are_those_of_the_cards() -> None:
    """Parameters counted by hand from the cards' lists of layers; four actions."""
    encoder = CNN(GAME, [512], key=KEY, stack=burda(GAME))
    convolutions = (8 * 8 * 4 + 1) * 32 + (4 * 4 * 32 + 1) * 64 + (3 * 3 * 64 + 1) * 64
    assert numbers(encoder) == convolutions + (7 * 7 * 64 + 1) * 512
    assert encoder(jnp.zeros(84 * 84 * 4)).shape == (512,)
    dynamics = Residual(512, 4, 512, 512, key=KEY)
    assert numbers(dynamics) == (1 + 2 * 4 + 1) * (512 + 4 + 1) * 512
    painter = Painter(GAME, 512, key=KEY)
    deconvolutions = 64 * 4 * 4 * 128 + 128 + 128 * 8 * 8 * 64 + 64 + 64 * 8 * 8 * 4 + 4
    assert numbers(painter) == (512 + 1) * 8 * 8 * 64 + deconvolutions + 84 * 84 * 4
    assert painter(jnp.zeros(512)).shape == (84 * 84 * 4,)
    net = UNet(GAME, 512, key=KEY)
    down = (8 * 8 * 8 + 1) * 32 + (8 * 8 * 36 + 1) * 64 + (4 * 4 * 68 + 1) * 64
    inner = (4096 + 4 + 1) * 512 + 8 * (512 + 4 + 1) * 512 + (512 + 4 + 1) * 4096
    up = 68 * 4 * 4 * 64 + 64 + 68 * 8 * 8 * 32 + 32 + 36 * 8 * 8 * 4 + 4
    assert numbers(net) == down + inner + up
    assert net(jnp.zeros(84 * 84 * 4), jnp.zeros(4)).shape == (84 * 84 * 4,)
    mirror = Mirror(GAME, 512, key=KEY)
    assert [layer.size(n) for layer, n in zip(mirror.layers, (7, 9, 20), strict=True)] == [9, 20, 84]
    assert numbers(mirror) == 513 * 3136 + (64 * 9 * 64 + 64) + (64 * 16 * 32 + 32) + (32 * 64 * 4 + 4)


#: Parameters at 84 x 84 x 4 with four actions, layer by layer: the convolutions, with their linear layer of 512; a
#: linear layer of 512 on 512; what trains in each method, and what is frozen.
CONVOLUTIONS = (8 * 8 * 4 + 1) * 32 + (4 * 4 * 32 + 1) * 64 + (3 * 3 * 64 + 1) * 64
SEEN, DENSE, ACTIONS = CONVOLUTIONS + (7 * 7 * 64 + 1) * 512, 513 * 512, 4
ON_ACTION = (512 + ACTIONS + 1) * 512
INVERSE = (2 * 512 + 1) * 512 + 513 * ACTIONS
DYNAMICS = (1 + 2 * 4 + 1) * ON_ACTION
#: Random features are standardised: a mean and a deviation each.
FEATURES = SEEN + 2 * 512
SIZES = {
    # Two eyes, two trunks, two heads of mean and deviation each, a linear decoder.
    "lbs": (2 * SEEN + (ON_ACTION + DENSE) + ((2 * 512 + 1) * 512 + DENSE) + 4 * DENSE + DENSE, FEATURES),
    "icm": (SEEN + INVERSE + ON_ACTION + 2 * DENSE, 0),
    "rnd": (SEEN + 2 * DENSE, SEEN),
    "disagreement": (5 * (ON_ACTION + 2 * DENSE), FEATURES),
    # Embedding and distillation of 32 features each, both with hidden layers of 512.
    "ngu": (
        (CONVOLUTIONS + 3137 * 32) + ((2 * 32 + 1) * 512 + 513 * ACTIONS) + (SEEN + DENSE + 513 * 32),
        CONVOLUTIONS + 3137 * 32,
    ),
    "surprisal": (DYNAMICS, SEEN),
    "surprisal-idf": (SEEN + INVERSE + DYNAMICS, 0),
}


@pytest.mark.parametrize("method", SIZES)
def test_whole_methods_have_as_many_parameters_as_their_layers(method: str) -> None:
    entry = METHODS[method]
    settings = {name.removeprefix("method."): value for name, value in entry.settings.items()}
    trainable, rest = split_trainable(entry.cls(GAME, key=KEY, **settings))
    assert (numbers(trainable), numbers(rest)) == SIZES[method]


def layer(linear: object, x: np.ndarray) -> np.ndarray:
    return x @ np.asarray(linear.weight, np.float64) + np.asarray(linear.bias, np.float64)  # pyright: ignore[reportAttributeAccessIssue]


def leaky(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, 0.2 * x)


def residual(net: Residual, x: np.ndarray, action: np.ndarray) -> np.ndarray:
    def beside(v: np.ndarray) -> np.ndarray:
        return np.concatenate([v, action])

    x = leaky(layer(net.first, beside(x)))
    for inner, outer in net.blocks:
        x = x + layer(outer, beside(leaky(layer(inner, beside(x)))))
    return layer(net.last, beside(x))


@pytest.mark.parametrize("features", ["random", "inverse", "vae", "pixels"])
def test_bonus_and_loss_by_hand_in_float64(features: str) -> None:
    """Vectors, so that every sum can be written out; the bonus is the forward error alone."""
    spec, t = Spec((5,), Discrete(3)), step(Spec((5,), Discrete(3)))
    model = Surprisal(spec, key=KEY, features=features, width=7, feature_size=6)  # pyright: ignore[reportArgumentType]
    obs, after = np.asarray(t.obs, np.float64), np.asarray(t.next_obs, np.float64)
    action = np.eye(3)[1]

    def mlp(net: object, x: np.ndarray) -> np.ndarray:
        layers = net.layers  # pyright: ignore[reportAttributeAccessIssue]
        for each in layers[:-1]:
            x = np.maximum(layer(each, x), 0.0)
        return layer(layers[-1], x)

    aside, phi = 0.0, [obs, after]
    noise = model.draw(jax.random.key(3))
    if features == "random":
        phi = [mlp(model.features.net, x) for x in phi]  # pyright: ignore
    elif features == "inverse":
        phi = [mlp(model.features.encoder, x) for x in phi]  # pyright: ignore
        logits = mlp(model.features.inverse, np.concatenate(phi))  # pyright: ignore
        aside = -(logits[1] - np.log(np.exp(logits).sum()))
    elif features == "vae":
        net = model.features
        halves = [np.split(mlp(net.encoder, x), 2) for x in phi]  # pyright: ignore
        phi = [mean for mean, _ in halves]
        mean, scale = halves[0][0], np.log1p(np.exp(halves[0][1]))
        spread = np.log(2.0)  # softplus of 0
        drawn = mlp(net.decoder, mean + scale * np.asarray(noise))  # pyright: ignore
        density = -0.5 * ((obs - drawn) / spread) ** 2 - np.log(spread) - 0.5 * np.log(2 * np.pi)
        divergence = 0.5 * (mean**2 + scale**2 - 1.0 - np.log(scale**2))
        aside = -density.sum() + divergence.sum()
    guess = residual(model.dynamics, phi[0], action)  # pyright: ignore[reportArgumentType]
    forward = np.mean((guess - phi[1]) ** 2)
    np.testing.assert_allclose(model.reward(None, t, key=KEY)[1], forward, rtol=2e-5)
    np.testing.assert_allclose(model.loss(t, draw=noise)[0], forward + aside, rtol=2e-5)


@pytest.mark.parametrize("features", ["random", "inverse", "vae", "pixels"])
def test_who_trains_the_features(features: str) -> None:
    """Random ones never change; the others are trained by their own loss, and not by the forward error."""
    model = Surprisal(SMALL, key=KEY, features=features, width=8, feature_size=6)  # pyright: ignore[reportArgumentType]
    t, trainable = (
        step(SMALL),
        split_trainable(Surprisal(SMALL, key=KEY, features=features, width=8, feature_size=6))[0],
    )  # pyright: ignore[reportArgumentType]
    assert (numbers(trainable.features) == 0) == (features in ("random", "pixels"))

    @eqx.filter_grad
    def forward(model: Surprisal) -> jax.Array:
        return model.error(t)

    gradient = forward(model)
    assert all(not np.asarray(g).any() for g in jax.tree.leaves(gradient.features))
    assert any(np.asarray(g).any() for g in jax.tree.leaves(gradient.dynamics))


def test_lbs_on_pixels_draws_them_by_the_mirror() -> None:
    """−log p is that of the pixels; the mirror is the default for large images, the linear layer for small ones."""
    t = step(SMALL)
    model = LBS(SMALL, key=KEY, target="pixels", width=8, latent_size=4)
    assert isinstance(model.reconstruction, Mirror)
    z = jnp.asarray(np.random.default_rng(1).normal(size=4), jnp.float32)
    drawn = np.asarray(model.reconstruction(z), np.float64)
    assert drawn.shape == (1600,)
    density = -0.5 * (np.ravel(t.next_obs) - drawn) ** 2 - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(model.nll(z, t), -density.sum(), rtol=1e-5)
    digits = Spec((28, 28, 1), Discrete(1))
    assert not isinstance(LBS(digits, key=KEY, target="pixels", width=8).reconstruction, Mirror)
    assert isinstance(LBS(digits, key=KEY, target="pixels", width=8, decoder="mirror").reconstruction, Mirror)
    with pytest.raises(UsageError, match=r"method.decoder = 'mirror'.*method.target = 'pixels'"):
        LBS(SMALL, key=KEY, decoder="mirror")
