"""Shuffling, the split into what trains and what does not, and gradient descent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.typing import NDArray
from scipy import stats

from curiax import Frozen
from curiax._tree import adam, descend, flatten, shuffle, split_trainable
from curiax.nn import Linear

Doubles = NDArray[np.float64]


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 64, 100, 2047, 2048, 2049])
def test_shuffle_is_a_permutation(n: int) -> None:
    for seed in range(3):
        order = np.asarray(shuffle(jax.random.key(seed), n))
        assert order.dtype == np.int32
        assert np.array_equal(np.sort(order), np.arange(n))


def test_shuffle_is_uniform_over_positions() -> None:
    draws = np.asarray(jax.vmap(lambda k: shuffle(k, 5))(jax.random.split(jax.random.key(0), 6000)))
    counts = np.stack([np.bincount(draws[:, position], minlength=5) for position in range(5)])
    # A 5 × 5 table whose rows and columns have fixed sums leaves 16 degrees of freedom.
    assert stats.chi2.sf(((counts - 1200.0) ** 2 / 1200.0).sum(), 16) > 1e-4


def test_shuffle_draws_every_order_equally_often() -> None:
    """Positions alone would not tell a shuffle from a random rotation."""
    draws = np.asarray(jax.vmap(lambda k: shuffle(k, 4))(jax.random.split(jax.random.key(1), 6000)))
    _, counts = np.unique(draws @ np.array([64, 16, 4, 1]), return_counts=True)
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 1e-4


def test_shuffle_of_a_rollout_leaves_no_trend() -> None:
    """The index sits in the low bits of the sorted words: it must not leak into the order."""
    draws = np.asarray(jax.vmap(lambda k: shuffle(k, 2048))(jax.random.split(jax.random.key(2), 32)))
    correlations = np.array([np.corrcoef(np.arange(2048), order)[0, 1] for order in draws])
    assert np.abs(correlations).max() < 5 / np.sqrt(2048)
    assert abs(correlations.mean()) < 4 / np.sqrt(2048 * 32)
    rising = (np.diff(draws, axis=1) > 0).mean()
    assert abs(rising - 0.5) < 4 * np.sqrt(1 / 12 / (2048 * 32))


def test_shuffle_depends_on_the_key_alone() -> None:
    first, again, other = (np.asarray(shuffle(jax.random.key(seed), 100)) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert (first != other).mean() > 0.9


class Pair(eqx.Module):
    """A trained layer after a frozen one, with things that are no parameters."""

    frozen: Frozen[Linear]
    trained: Linear
    steps: jax.Array
    name: str = eqx.field(static=True)

    def __init__(self, key: jax.Array) -> None:
        frozen_key, trained_key = jax.random.split(key)
        self.frozen = Frozen(Linear(3, 4, key=frozen_key))
        self.trained = Linear(4, 2, key=trained_key)
        self.steps, self.name = jnp.arange(3), "pair"

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.trained(self.frozen(x))


@pytest.fixture
def pair(getkey: Callable[[], jax.Array]) -> Pair:
    return Pair(getkey())


def test_only_floating_point_outside_frozen_trains(pair: Pair) -> None:
    trainable, rest = split_trainable(pair)
    assert [leaf.shape for leaf in jax.tree.leaves(trainable)] == [(4, 2), (2,)]
    assert rest.trained.weight is None
    assert rest.frozen.net.weight.shape == (3, 4)
    assert np.array_equal(rest.steps, [0, 1, 2])
    assert eqx.tree_equal(eqx.combine(trainable, rest), pair)


def test_flatten_restores_the_model_around_a_changed_vector(pair: Pair) -> None:
    flat, restore = flatten(pair)
    assert flat.shape == (10,)
    assert eqx.tree_equal(restore(flat), pair)
    changed = restore(flat + 1.0)
    np.testing.assert_allclose(changed.trained.weight, pair.trained.weight + 1.0, rtol=1e-6)
    assert eqx.tree_equal(changed.frozen, pair.frozen)


def test_frozen_stops_gradients_to_its_weights_but_not_to_its_input(pair: Pair) -> None:
    x = jnp.asarray([0.5, -1.0, 2.0])
    gradient = eqx.filter_grad(lambda model: jnp.sum(model(x) ** 2))(pair)
    assert not np.any(gradient.frozen.net.weight)
    assert not np.any(gradient.frozen.net.bias)
    assert np.all(np.asarray(gradient.trained.weight) != 0.0)
    to_input = jax.jacobian(pair.frozen)(x)
    np.testing.assert_allclose(to_input, pair.frozen.net.weight.T)


def squared_error(model: Pair, batch: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
    x, y = batch
    value = jnp.mean((jax.vmap(model)(x) - y) ** 2)
    return value, {"loss": value}


def test_descend_equals_optax_leaf_by_leaf(pair: Pair, getkey: Callable[[], jax.Array]) -> None:
    batches = (jax.random.normal(getkey(), (6, 8, 3)), 5 * jax.random.normal(getkey(), (6, 8, 2)))
    optimiser = adam(0.05, 1e-5, 0.5)
    ours, _, report, _ = descend(squared_error, pair, optimiser, optimiser.init(flatten(pair)[0]), batches)

    chain = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(0.05, eps=1e-5))
    layer, losses = pair.trained, []
    state = chain.init(layer)

    @jax.jit
    def step(layer: Linear, state: optax.OptState, x: jax.Array, y: jax.Array) -> tuple[Linear, Any, jax.Array]:
        hidden = x @ pair.frozen.net.weight + pair.frozen.net.bias
        loss, gradient = jax.value_and_grad(lambda p: jnp.mean((hidden @ p.weight + p.bias - y) ** 2))(layer)
        update, state = chain.update(gradient, state, layer)
        return eqx.apply_updates(layer, update), state, loss

    for x, y in zip(*batches, strict=True):
        layer, state, loss = step(layer, state, x, y)
        losses.append(float(loss))
    np.testing.assert_allclose(ours.trained.weight, layer.weight, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours.trained.bias, layer.bias, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(report["loss"], np.mean(losses), rtol=1e-5)
    assert eqx.tree_equal(ours.frozen, pair.frozen)
    assert float(jnp.abs(ours.trained.weight - pair.trained.weight).max()) > 0.1


def plain_adam(gradients: Doubles, rate: float, epsilon: float, max_norm: float | None) -> Doubles:
    """Kingma and Ba's algorithm 1, after Pascanu's clipping of the norm; the parameters after each step."""
    m = v = x = np.zeros(gradients.shape[1])
    path = []
    for t, g in enumerate(gradients, start=1):
        if max_norm is not None:
            g = g * min(1.0, max_norm / np.linalg.norm(g))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        x = x - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + epsilon)
        path.append(x)
    return np.array(path)


@pytest.mark.parametrize("max_norm", [None, 0.5])
def test_adam_clips_the_norm_of_the_whole_gradient(max_norm: float | None) -> None:
    """A large epsilon makes the step depend on the gradient's size, which plain Adam forgets at once."""
    gradients = np.array([[3.0, 4.0, 0.1], [0.1, -0.2, 0.05], [-30.0, 0.4, 2.0], [0.0, 0.0, 1.0]])
    optimiser = adam(0.1, 0.3, max_norm)
    x = jnp.zeros(3)
    state, path = optimiser.init(x), []
    step = jax.jit(optimiser.update)
    for g in gradients:
        update, state = step(jnp.asarray(g, jnp.float32), state, x)
        x = x + update
        path.append(x)
    np.testing.assert_allclose(np.array(path), plain_adam(gradients, 0.1, 0.3, max_norm), rtol=1e-4)


def test_a_long_shuffle_is_still_one() -> None:
    """Few random bits are left in a word that must hold a large index: neighbours must not come out in order."""
    order = np.asarray(shuffle(jax.random.key(0), 1 << 17))
    assert np.array_equal(np.sort(order), np.arange(1 << 17))
    assert 0.48 < np.mean(np.diff(order) > 0) < 0.52
