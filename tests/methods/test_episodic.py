"""Pseudo-counts and the two methods built on them, against Never Give Up's algorithm in plain Python."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import Doubles, action_vector, double, linear, random_steps, relu_mlp

from curiax import Box, Discrete, Spec, Transition
from curiax.curiosity import NGU, RIDE, score
from curiax.curiosity._base import start_memory
from curiax.curiosity.episodic import EpisodicCount

SPEC = Spec((2,), Box((-1.0,), (1.0,)), 12)
T, N = 50, 2


class PlainCount:
    """Algorithm 1 of the paper, with a list for a memory."""

    def __init__(self, capacity: int, neighbours: int, epsilon: float = 1e-3, ceiling: float = 8.0) -> None:
        self.capacity, self.neighbours, self.epsilon, self.ceiling = capacity, neighbours, epsilon, ceiling
        self.episode: list[Doubles] = []
        self.distances: list[float] = []

    def visit(self, x: Doubles) -> float:
        known = self.episode[-self.capacity :]
        self.episode.append(x)
        if len(known) < self.neighbours:
            return 0.0
        nearest = sorted(float(((x - y) ** 2).sum()) for y in known)[: self.neighbours]
        self.distances += nearest
        mean = sum(self.distances) / len(self.distances)
        kernel = 0.0
        for distance in nearest:
            relative = max(distance / mean - 0.008, 0.0) if mean > 0 else 0.0
            kernel += self.epsilon / (relative + self.epsilon)
        s = np.sqrt(kernel) + 0.001
        return 0.0 if s > self.ceiling else 1.0 / s

    def forget(self) -> None:
        self.episode = []


def follow(counter: EpisodicCount, points: Doubles, ended: Any) -> jax.Array:
    """The factors of a sequence of embeddings."""

    @jax.jit
    def run(points: jax.Array, ended: jax.Array) -> jax.Array:
        def step(memory: Any, now: tuple[jax.Array, jax.Array]) -> Any:
            memory, factor = counter.visit(memory, now[0])
            cut = jax.tree.map(lambda a, b: jnp.where(now[1], a, b), counter.forget(memory), memory)
            return cut, factor

        return jax.lax.scan(step, counter.start(), (points, ended))[1]

    return run(jnp.asarray(points, jnp.float32), jnp.asarray(ended))


@pytest.mark.parametrize("ceiling", [8.0, 1.0])
def test_counts_equal_the_plain_algorithm(ceiling: float) -> None:
    """Episodes of 3, 17, 8 and 30 steps: shorter than the neighbours, and over twice around the ring."""
    counter = EpisodicCount(2, 12, 4, 1e-3, 0.008, 0.001, ceiling)
    rng = np.random.default_rng(0)
    # On a coarse lattice states recur, so that all of the kernel's range is met.
    points = np.round(rng.normal(size=(58, 2)) * 1.5) / 1.5 + rng.normal(size=(58, 2)) * 0.02
    points = double(points.astype(np.float32))
    ended = np.isin(np.arange(58), [2, 19, 27])
    plain, expected = PlainCount(12, 4, ceiling=ceiling), []
    for x, end in zip(points, ended, strict=True):
        expected.append(plain.visit(x))
        if end:
            plain.forget()
    ours = follow(counter, points, ended)
    np.testing.assert_allclose(ours, expected, rtol=1e-3)
    assert (np.array(expected)[[0, 1, 2, 3, 4, 5, 6]] == 0).all()
    blocked = (np.array(expected)[28 + 4 :] == 0).sum()
    assert blocked == 0 if ceiling == 8.0 else blocked > 0


def test_repeated_states_divide_by_the_root_of_the_count() -> None:
    """Ten neighbours among far states; one of them visited again and again."""
    counter = EpisodicCount.of(SPEC, 2, capacity=40, neighbours=10, epsilon=1e-3)
    far = np.stack([np.arange(12) * 10.0, np.zeros(12)], axis=1)
    visits = np.tile([[35.0, 50.0]], (12, 1))
    factors = np.asarray(follow(counter, np.concatenate([far, visits]), np.zeros(24, bool)))[12:]
    # The k-th repetition finds k − 1 copies of itself; beyond ten neighbours the count cannot grow.
    np.testing.assert_allclose(factors[1:11], 1 / np.sqrt(np.arange(1, 11)), rtol=0.02)
    np.testing.assert_allclose(factors[11], factors[10], rtol=0.01)
    assert factors[0] > 5 * factors[1]


def test_an_episode_that_never_moves_is_counted_in_full() -> None:
    counter = EpisodicCount.of(SPEC, 2, capacity=None, neighbours=4, epsilon=1e-3)
    factors = np.asarray(follow(counter, np.ones((8, 2)), np.zeros(8, bool)))
    np.testing.assert_allclose(factors, [0] * 4 + [1 / 2.001] * 4, rtol=1e-5)


def test_memory_holds_one_episode_by_default() -> None:
    assert EpisodicCount.of(SPEC, 2, capacity=None, neighbours=4, epsilon=1e-3).capacity == 12
    assert EpisodicCount.of(Spec((2,), Discrete(2)), 2, capacity=None, neighbours=4, epsilon=1e-3).capacity == 1000
    assert EpisodicCount.of(SPEC, 2, capacity=5, neighbours=4, epsilon=1e-3).capacity == 5


def test_an_episode_shorter_than_the_neighbours_is_counted() -> None:
    """Otherwise a short task would earn nothing, ever."""
    counter = EpisodicCount.of(Spec((2,), Discrete(2), 6), 2, capacity=None, neighbours=10, epsilon=1e-3)
    episode = np.random.default_rng(0).normal(size=(6, 2))
    assert np.asarray(follow(counter, episode, np.zeros(6, bool))).max() > 0


@pytest.fixture(scope="module")
def steps() -> Transition:
    """Two environments whose episodes end at different times, one by termination."""
    t = random_steps(SPEC, np.random.default_rng(1), T, N)
    terminated, truncated = np.zeros((T, N), bool), np.zeros((T, N), bool)
    truncated[[11, 23], 0] = True
    terminated[30, 1] = True
    # A few states far out late on, where the distillation error leaves its usual range.
    next_obs = np.array(t.next_obs)
    next_obs[[38, 44], :] = 30.0
    new = (jnp.asarray(next_obs), jnp.asarray(terminated), jnp.asarray(truncated))
    return eqx.tree_at(lambda t: (t.next_obs, t.terminated, t.truncated), t, new)


def scored(model: Any, steps: Transition) -> Doubles:
    run = jax.jit(lambda s: score(model, start_memory(model, N), s, key=jax.random.key(0))[1])
    return double(run(steps))


def test_ride_pays_impact_times_the_count(steps: Transition) -> None:
    settings = {"key": jax.random.key(2), "width": 8, "feature_size": 3}
    model = RIDE(SPEC, neighbours=4, **settings)
    encoder = model.features.encoder
    impact = np.linalg.norm(relu_mlp(encoder, double(steps.next_obs)) - relu_mlp(encoder, double(steps.obs)), axis=-1)
    factor = np.zeros((T, N))
    for n in range(N):
        plain = PlainCount(12, 4)
        for t in range(T):
            factor[t, n] = plain.visit(double(steps.next_obs[t, n]))
            if bool(steps.ended[t, n]):
                plain.forget()
    np.testing.assert_allclose(scored(model, steps), impact * factor, rtol=1e-3, atol=1e-6)
    assert (factor > 0).mean() > 0.5
    np.testing.assert_allclose(scored(RIDE(SPEC, count=False, **settings), steps), impact, rtol=1e-4)


@pytest.mark.parametrize("spec", [SPEC, Spec((2,), Discrete(3), 12)], ids=["box", "discrete"])
def test_ride_loss_in_float64(spec: Spec) -> None:
    model = RIDE(spec, key=jax.random.key(2), width=8, feature_size=3, forward_weight=7.0, inverse_weight=0.3)
    t = random_steps(spec, np.random.default_rng(2), 16)
    phi, next_phi = (relu_mlp(model.features.encoder, double(x)) for x in (t.obs, t.next_obs))
    action = action_vector(spec, t.action)
    guess = relu_mlp(model.forward, np.concatenate([phi, action], axis=-1))
    out = relu_mlp(model.features.inverse, np.concatenate([phi, next_phi], axis=-1))
    if isinstance(spec.action, Box):
        inverse = ((out - action) ** 2).mean(-1)
    else:
        inverse = np.log(np.exp(out).sum(-1)) - (out * action).sum(-1)
    expected = 7.0 * np.linalg.norm(guess - next_phi, axis=-1) + 0.3 * inverse
    ours, terms = jax.jit(jax.vmap(lambda t: model.loss(t, draw=None)))(t)
    np.testing.assert_allclose(ours, expected, rtol=1e-4)
    np.testing.assert_allclose(terms["inverse_loss"], inverse, rtol=1e-4)


def distillation_error(model: NGU, obs: Doubles) -> Doubles:
    x = np.clip(obs, -5, 5)
    gap = relu_mlp(model.distillation.predictor, x) - relu_mlp(model.distillation.target.net, x)
    return (gap**2).mean(-1)


def test_ngu_pays_the_count_modulated_by_novelty(steps: Transition) -> None:
    settings = {"key": jax.random.key(3), "width": 8, "feature_size": 3}
    model = NGU(SPEC, neighbours=4, modulation_limit=3.0, **settings)
    errors = distillation_error(model, double(steps.next_obs))
    embedded = relu_mlp(model.embedding.encoder, double(steps.next_obs))
    expected, alphas = np.zeros((T, N)), np.zeros((T, N))
    for n in range(N):
        plain = PlainCount(12, 4)
        for t in range(T):
            # The running statistics start as a ten-thousandth of a sample of mean 0 and variance 1.
            weights = np.append(np.full(t + 1, 1.0), 1e-4)
            values = np.append(errors[: t + 1, n], 0.0)
            mean = np.average(values, weights=weights)
            var = (np.average((values - mean) ** 2, weights=weights)) + 1e-4 / weights.sum()
            alphas[t, n] = 1 + (errors[t, n] - mean) / np.sqrt(var + 1e-8)
            expected[t, n] = plain.visit(embedded[t, n]) * min(max(alphas[t, n], 1.0), 3.0)
            if bool(steps.ended[t, n]):
                plain.forget()
    np.testing.assert_allclose(scored(model, steps), expected, rtol=5e-3, atol=1e-5)
    paid = alphas[expected > 0]
    assert paid.min() < 1.0
    assert paid.max() > 3.0
    assert ((paid > 1.0) & (paid < 3.0)).any()


def test_modulation_lies_between_one_and_its_limit(steps: Transition) -> None:
    """The same model at limit 1 pays the bare count, so the quotient is the modulation."""
    settings = {"key": jax.random.key(3), "width": 8, "feature_size": 3, "neighbours": 4}
    bare, modulated = (scored(NGU(SPEC, modulation_limit=limit, **settings), steps) for limit in (1.0, 5.0))
    ratio = modulated[bare > 0] / bare[bare > 0]
    assert ratio.min() == pytest.approx(1.0, rel=1e-5)
    assert 1.5 < ratio.max() <= 5.0 + 1e-5


def test_ngu_without_counts_is_its_distillation_error(steps: Transition) -> None:
    model = NGU(SPEC, key=jax.random.key(3), width=8, feature_size=3, count=False)
    assert model.memory() is None
    np.testing.assert_allclose(scored(model, steps), distillation_error(model, double(steps.next_obs)), rtol=1e-4)


def test_ngu_loss_is_inverse_plus_distillation() -> None:
    model = NGU(SPEC, key=jax.random.key(3), width=8, feature_size=3)
    t = random_steps(SPEC, np.random.default_rng(2), 16)
    pair = np.concatenate([relu_mlp(model.embedding.encoder, double(x)) for x in (t.obs, t.next_obs)], axis=-1)
    inverse = ((relu_mlp(model.embedding.inverse, pair) - double(t.action)) ** 2).mean(-1)
    ours, _ = jax.jit(jax.vmap(lambda t: model.loss(t, draw=None)))(t)
    np.testing.assert_allclose(ours, inverse + distillation_error(model, double(t.next_obs)), rtol=1e-4)
    assert linear(model.embedding.inverse.layers[-1], np.zeros(8)).shape == (1,)
