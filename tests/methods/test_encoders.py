"""Convolutions against loops, images through every method, features that are standardised once."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from curiax import nn
from curiax._contract import build_method, check_method_shapes
from curiax._errors import OutputError
from curiax._tree import flatten
from curiax._types import Discrete, Spec
from curiax.curiosity import LBS, Learner, LearnerSettings
from curiax.curiosity.encoders import CNN, EARLY, NATURE, SMALL, Eye, feature_count, stack_for
from curiax.curiosity.features import Target
from curiax.experiments.registry import METHODS
from curiax.testing.methods import random_steps

IMAGE = Spec((8, 8, 1), Discrete(2), 4)
VECTOR = Spec((3,), Discrete(2), 4)


def convolved(image: np.ndarray, weight: np.ndarray, bias: np.ndarray, stride: int) -> np.ndarray:
    """The convolution by its definition: a sum over the filter `[column, row, input, output]` at every place."""
    side = weight.shape[0]
    rows, columns = ((length - side) // stride + 1 for length in image.shape[:2])
    result = np.zeros((rows, columns, weight.shape[-1]))
    for i in range(rows):
        for j in range(columns):
            seen = image[i * stride : i * stride + side, j * stride : j * stride + side]
            result[i, j] = np.einsum("abc,baco->o", seen, weight) + bias
    return result


@pytest.mark.parametrize(("side", "stride"), [(3, 1), (2, 2), (3, 2)])
def test_convolution(side: int, stride: int) -> None:
    image = np.random.default_rng(0).normal(size=(7, 6, 2)).astype(np.float32)
    layer = nn.Conv(2, 5, side, stride, key=jax.random.key(3))
    weight = np.asarray(layer.weight).reshape(side, side, 2, 5)
    assert np.allclose(layer(jnp.asarray(image)), convolved(image, weight, np.asarray(layer.bias), stride), atol=1e-5)


@pytest.mark.parametrize(("side", "stride", "length"), [(8, 4, 18), (4, 2, 9), (3, 1, 5), (3, 2, 8)])
def test_convolutions_that_xla_computes_have_the_same_gradients(side: int, stride: int, length: int) -> None:
    """Of large images: XLA's way there and, on a CPU, the products' way back; both against the product of patches."""
    layer = nn.Conv(2, 3, side, stride, key=jax.random.key(0), native=True)
    images = jnp.asarray(np.random.default_rng(0).normal(size=(2, length, length, 2)), jnp.float32)

    def of_patches(layer: nn.Conv, image: jax.Array) -> jax.Array:
        return nn.patches(image, [layer.size(length)] * 2, side, stride) @ layer.weight + layer.bias

    def found(call: Any) -> Any:
        def loss(layer: nn.Conv, images: jax.Array) -> jax.Array:
            return jnp.sum(jnp.sin(jax.vmap(lambda image: call(layer, image))(images)))

        both = eqx.filter_jit(eqx.filter_value_and_grad(lambda given: loss(*given)))
        return jax.tree.leaves(both((layer, images)))

    for ours, theirs in zip(found(nn.Conv.__call__), found(of_patches), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    on_gpu = nn.by_xla(*nn.squared(images[0], layer.weight, side, stride)) + layer.bias
    np.testing.assert_allclose(on_gpu, of_patches(layer, images[0]), rtol=1e-4, atol=1e-4)


def test_convolution_is_drawn_as_pytorch_does() -> None:
    """Uniform within 1/√fan-in, where the fan-in is a whole patch."""
    layer = nn.Conv(4, 500, 3, key=jax.random.key(0))
    for values in (layer.weight, layer.bias):
        assert np.abs(values).max() <= 1 / 6
        assert np.abs(values).max() > 0.98 / 6
        assert np.std(values) == pytest.approx(1 / 6 / np.sqrt(3), rel=0.06)


def test_pooling() -> None:
    image = np.random.default_rng(1).normal(size=(5, 4, 3)).astype(np.float32)
    pooled = np.asarray(nn.max_pool(jnp.asarray(image)))
    assert pooled.shape == (2, 2, 3)
    for i in range(2):
        for j in range(2):
            assert np.array_equal(pooled[i, j], image[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max((0, 1)))


def test_convolutions_count_against_what_a_file_may_ask_for() -> None:
    with pytest.raises(OutputError, match="a layer of 25600 x 64"), nn.at_most(0, "some file"):
        nn.Conv(64, 64, 20, key=jax.random.key(0))


def test_small_stack_is_the_paper_code_s() -> None:
    """3x3x32, 3x3x64, max-pool with stride 2, 128 features: 9216 inputs of the last layer, nothing in between."""
    cnn = CNN(Spec((28, 28, 1), Discrete(1), 1), [128], key=jax.random.key(0))
    assert [layer.weight.shape for layer in (*cnn.convolutions, *cnn.head.layers)] == [(9, 32), (288, 64), (9216, 128)]
    small = CNN(IMAGE, [4], key=jax.random.key(1))
    image = np.random.default_rng(2).normal(size=(8, 8, 1)).astype(np.float32)
    x = image
    for layer, channels in zip(small.convolutions, (1, 32), strict=True):
        x = convolved(x, np.asarray(layer.weight).reshape(3, 3, channels, -1), np.asarray(layer.bias), 1)
    x = x.reshape(2, 2, 2, 2, 64).max((1, 3)).reshape(-1)
    head = small.head.layers[0]
    assert np.allclose(small(jnp.ravel(image)), x @ np.asarray(head.weight) + np.asarray(head.bias), atol=1e-4)


def test_which_stack() -> None:
    assert stack_for(Spec((84, 84, 4), Discrete(3))) is NATURE
    assert stack_for(Spec((64, 90, 1), Discrete(3))) is NATURE
    assert stack_for(Spec((36, 63, 1), Discrete(3))) is EARLY
    assert stack_for(Spec((28, 84, 1), Discrete(3))) is SMALL
    assert not Spec((5, 9, 3), Discrete(3)).image
    assert not Spec((40, 40), Discrete(3)).image
    assert (feature_count(VECTOR), feature_count(IMAGE)) == (3, 128)
    arcade = eqx.filter_eval_shape(
        CNN.__call__, CNN(Spec((84, 84, 4), Discrete(3)), [512], key=jax.random.key(0)), jnp.zeros(84 * 84 * 4)
    )
    assert arcade.shape == (512,)


def test_vectors_are_seen_as_they_are() -> None:
    """No parameters, no random numbers: what a method draws next stays what it was."""
    rng = nn.generator(jax.random.key(0))
    eye, target = Eye(VECTOR, key=rng), Target(VECTOR, key=rng)
    assert jax.tree.leaves((eye, target)) == []
    assert rng.random() == nn.generator(jax.random.key(0)).random()
    obs = jnp.arange(3.0)
    assert np.array_equal(eye(obs), obs)
    assert np.array_equal(target(obs), obs)
    assert target.calibrated(obs[None]) is target


def test_calibration() -> None:
    """Mean 0 and deviation 1 over the given images; what does not vary there keeps its scale; nothing of it trains."""
    images = np.random.default_rng(3).random((20, 8, 8, 1)).astype(np.float32)
    target = Target(IMAGE, key=jax.random.key(0)).calibrated(jnp.asarray(images))
    features = np.asarray(jax.vmap(target)(jnp.asarray(images)))
    assert np.allclose(features.mean(0), 0, atol=1e-4)
    assert np.allclose(features.std(0), 1, atol=1e-4)
    still = target.calibrated(jnp.asarray(images[:1]))
    assert still.features is not None
    assert np.array_equal(still.features.net.deviation, np.ones(128))
    assert flatten(target)[0].size == 0


@pytest.mark.parametrize("name", ["lbs", "icm", "rnd", "disagreement", "vime", "ride", "ngu"])
def test_methods_on_images(name: str) -> None:
    """Whose target is measured before training; the contract of methods has them score images and learn from them."""
    model = build_method(METHODS[name].cls, IMAGE, jax.random.key(0), name)
    check_method_shapes(model, IMAGE, name)
    assert model.calibrates == (name in ("lbs", "disagreement", "vime", "ride"))
    assert not build_method(METHODS[name].cls, VECTOR, jax.random.key(0), name).calibrates


def test_training_on_images() -> None:
    """The loss falls, the convolutions of both sides train, and the target stays as it was calibrated."""
    steps = random_steps(IMAGE, (1, 4))
    fresh = LBS(IMAGE, key=jax.random.key(0), width=16)
    model = fresh.calibrated(steps.next_obs[0])
    learner = Learner(LearnerSettings(epochs=12, minibatch_size=4, learning_rate=1e-3))
    update = eqx.filter_jit(lambda model, state: learner.update(model, state, steps, key=jax.random.key(1)))
    after, state, first = update(model, learner.start(model, steps))
    assert update(after, state)[2]["loss"] < first["loss"]

    def same(part: Any) -> list[bool]:
        pairs = zip(jax.tree.leaves(part(model)), jax.tree.leaves(part(after)), strict=True)
        return [np.array_equal(x, y) for x, y in pairs]

    assert all(same(lambda m: m.target))
    assert not any(same(lambda m: (m.eye, m.next_eye)))
    assert not np.array_equal(jax.tree.leaves(fresh.target)[-1], jax.tree.leaves(model.target)[-1])


def targets(model) -> list[Target]:
    is_target = lambda node: isinstance(node, Target)  # noqa: E731
    return [node for node in jax.tree.leaves(model, is_leaf=is_target) if is_target(node)]


@pytest.mark.parametrize("name", ["lbs", "disagreement"])
def test_pixels_as_target(name: str) -> None:
    model = build_method(METHODS[name].cls, IMAGE, jax.random.key(0), name, target="pixels")
    assert not model.calibrates
    assert targets(model)[0].size == 64
    check_method_shapes(model, IMAGE, name)
