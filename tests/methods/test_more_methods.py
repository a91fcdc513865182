"""RE3, E3B, NovelD and SimHash against plain lists, sets, dictionaries and inverted matrices."""

from __future__ import annotations

from collections import Counter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import Doubles, double, linear, random_steps, relu_mlp

from curiax import Box, Spec, Transition, UsageError
from curiax.curiosity import E3B, RE3, NovelD, SimHashCounts, score
from curiax.curiosity._base import start_memory
from curiax.curiosity.features import SimHash
from curiax.curiosity.re3 import smallest

SPEC = Spec((3,), Box((-1.0,), (1.0,)), 20)
T, N = 40, 2
SMALL = {"width": 8, "feature_size": 4}


@pytest.fixture(scope="module")
def steps() -> Transition:
    """Two environments that walk: each step starts where the one before led, but at the ends of episodes.

    Episodes end at different times in the two. Two steps do not count; one of them ends an episode all the same.
    """
    rng = np.random.default_rng(0)
    t = random_steps(SPEC, rng, T, N)
    ended = np.zeros((T, N), bool)
    ended[[11, 23, 30], 0] = ended[[17, 35], 1] = True
    valid = np.ones((T, N), bool)
    valid[5, 0] = valid[23, 0] = False
    next_obs, obs = np.array(t.next_obs), np.array(t.obs)
    # States recur: every third step leads to where the episode was before.
    next_obs[3::3] = next_obs[1:-2:3]
    obs[1:] = np.where(ended[:-1, :, None], obs[1:], next_obs[:-1])
    return eqx.tree_at(
        lambda t: (t.obs, t.next_obs, t.truncated, t.valid),
        t,
        tuple(jnp.asarray(x) for x in (obs, next_obs, ended, valid)),
    )


def scored(model: Any, steps: Transition) -> Doubles:
    return double(jax.jit(lambda s: score(model, start_memory(model, N), s, key=jax.random.key(0))[1])(steps))


def signs(hashed: SimHash, obs: Any) -> tuple[bool, ...]:
    return tuple(linear(hashed.planes.net, double(obs)) > 0)


def test_re3_pays_the_distance_to_the_kth_neighbour(steps: Transition) -> None:
    """Over once around the ring, and across the ends of episodes."""
    model = RE3(SPEC, key=jax.random.key(1), neighbours=3, capacity=16, **SMALL)
    embedded = relu_mlp(model.encoder.net, double(steps.next_obs))
    expected = np.zeros((T, N))
    for n in range(N):
        known: list[Doubles] = []
        for t in range(T):
            if not steps.valid[t, n]:
                continue
            near = sorted(float(np.linalg.norm(embedded[t, n] - y)) for y in known[-16:])
            expected[t, n] = np.log(1 + near[2]) if len(near) >= 3 else 0.0
            known.append(embedded[t, n])
    np.testing.assert_allclose(scored(model, steps), expected, rtol=1e-4, atol=1e-6)
    assert (expected[:3] == 0).all()
    assert (expected > 0).sum() == T * N - 6 - 2


@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_the_kth_smallest_counts_equal_values_each(k: int) -> None:
    values = np.random.default_rng(2).integers(0, 4, (20, 8)).astype(np.float32)
    np.testing.assert_array_equal(jax.vmap(lambda row: smallest(row, k))(values), np.sort(values)[:, k - 1])


def test_re3_needs_room_for_its_neighbours() -> None:
    with pytest.raises(UsageError, match=r"method\.neighbours = 5: .* method\.capacity = 4"):
        RE3(SPEC, key=jax.random.key(1), neighbours=5, capacity=4)


def test_e3b_pays_by_the_inverse_of_the_episodes_covariance(steps: Transition) -> None:
    model = E3B(SPEC, key=jax.random.key(1), ridge=0.3, **SMALL)
    phi, next_phi = (relu_mlp(model.features.encoder, double(x)) for x in (steps.obs, steps.next_obs))
    expected = np.zeros((T, N))
    for n in range(N):
        seen: list[Doubles] = []
        for t in range(T):
            if steps.valid[t, n]:
                seen = seen or [phi[t, n]]
                covariance = 0.3 * np.eye(4) + sum(np.outer(y, y) for y in seen)
                expected[t, n] = next_phi[t, n] @ np.linalg.inv(covariance) @ next_phi[t, n]
                seen.append(next_phi[t, n])
            if steps.ended[t, n]:
                seen = []
    np.testing.assert_allclose(scored(model, steps), expected, rtol=1e-4)


def test_e3b_is_never_negative_where_rounding_is_worst() -> None:
    """Features of a million: C⁻¹ has entries of 1e-12 beside those of 10, beyond what float32 can subtract."""
    model = E3B(SPEC, key=jax.random.key(1), **SMALL)
    t = random_steps(SPEC, np.random.default_rng(1), T, N, scale=1e7)
    bonus = scored(model, t)
    assert np.isfinite(bonus).all()
    assert (bonus >= 0).all()
    # Four directions are known after four states; then nothing is new, but for rounding.
    assert bonus[10:].max() < 100 < bonus[0].min()


def novelty(model: NovelD, obs: Doubles) -> Doubles:
    x = np.clip(obs, -5, 5)
    gap = relu_mlp(model.distillation.predictor, x) - relu_mlp(model.distillation.target.net, x)
    return np.sqrt((gap**2).mean(-1))


def test_noveld_pays_rises_at_first_visits(steps: Transition) -> None:
    settings = {"key": jax.random.key(2), "alpha": 0.95, **SMALL}
    model = NovelD(SPEC, bits=4, **settings)
    assert model.code is not None
    rise = novelty(model, double(steps.next_obs)) - 0.95 * novelty(model, double(steps.obs))
    rise = np.where(steps.valid, np.maximum(rise, 0.0), 0.0)
    first = np.zeros((T, N), bool)
    for n in range(N):
        visited: set[tuple[bool, ...]] = set()
        for t in range(T):
            if steps.valid[t, n]:
                # New at the first step of an episode, and after a step that does not count.
                visited.add(signs(model.code, steps.obs[t, n]))
                code = signs(model.code, steps.next_obs[t, n])
                first[t, n] = code not in visited
                visited.add(code)
            if steps.ended[t, n]:
                visited = set()
    np.testing.assert_allclose(scored(model, steps), rise * first, rtol=1e-3, atol=1e-5)
    assert ((rise > 0) & first).sum() > 10
    assert ((rise > 0) & ~first).sum() > 10
    assert (np.asarray(steps.valid) & (rise == 0)).sum() > 10
    ablation = NovelD(SPEC, first_visit=False, **settings)
    assert ablation.memory() is None
    np.testing.assert_allclose(scored(ablation, steps), rise, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("offset", [False, True])
def test_simhash_counts_codes_over_all_episodes(steps: Transition, offset: bool) -> None:
    model = SimHashCounts(SPEC, key=jax.random.key(3), bits=5, offset=offset)
    expected = np.zeros((T, N))
    for n in range(N):
        counts: Counter[tuple[bool, ...]] = Counter()
        for t in range(T):
            if steps.valid[t, n]:
                code = signs(model.code, steps.next_obs[t, n])
                counts[code] += 1
                expected[t, n] = counts[code] ** -0.5
        assert max(counts.values()) >= 4
    np.testing.assert_allclose(scored(model, steps), expected, rtol=1e-6)


def test_a_code_tells_directions_apart_and_with_offsets_lengths_too() -> None:
    obs = np.random.default_rng(4).normal(size=(100, 3))
    for offset in (False, True):
        hashed = SimHash(SPEC, 12, offset=offset, key=jax.random.key(4))
        near, far = (jax.vmap(hashed)(jnp.asarray(obs * scale, jnp.float32)) for scale in (1.0, 3.0))
        same = float(jnp.mean(near == far))
        assert same < 0.6 if offset else same == 1.0
        assert len(np.unique(near)) > 20
        assert np.asarray(near).max() < hashed.codes == 4096
