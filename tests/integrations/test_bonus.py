"""The bonus alone: what it pays, when it learns, what it keeps, what it refuses."""

from __future__ import annotations

import copy
import functools
import json
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import curiax
from curiax import (
    AbstractCuriosity,
    Bonus,
    ContractError,
    LearnerSettings,
    NonFiniteError,
    OutputError,
    UsageError,
)
from curiax._stats import Moments, ReturnScale
from curiax._types import Transition
from curiax.curiosity import Learner, score
from curiax.experiments.registry import METHODS
from curiax.integrations.bonus_programs import programs, rounded
from curiax.integrations.spaces import Actions, Observations, data_of, space_of
from curiax.testing import check_curiosity

SEEN = spaces.Box(-5.0, 5.0, (3,))
PUSH = spaces.Box(-1.0, 1.0, (2,))
BRIEF = LearnerSettings(epochs=1, minibatch_size=8)
N = 4
#: One line for each class: names that share one differ in settings only.
METHOD_NAMES = sorted({entry.cls: name for name, entry in reversed(METHODS.items()) if entry.cls}.values())


def made(method: Any = "rnd", seen: Any = SEEN, taken: Any = PUSH, **options: Any) -> Bonus:
    options = {"num_envs": N, "learner": BRIEF, "horizon": 12, **options}
    return Bonus(method, seen, taken, **options)


def steps(
    rng: np.random.Generator, *lead: int, seen: Any = SEEN, taken: Any = PUSH, ends: float = 0.2
) -> dict[str, Any]:
    """Random transitions: nothing of them hangs together."""

    def drawn(space: Any) -> np.ndarray:
        space.seed(int(rng.integers(2**31)))
        count = int(np.prod(lead))
        return np.stack([np.asarray(space.sample()) for _ in range(count)]).reshape(*lead, *(space.shape or ()))

    ended, cut = rng.random(lead) < ends, rng.random(lead) < 0.5
    return {
        "obs": drawn(seen),
        "action": drawn(taken),
        "next_obs": drawn(seen),
        "terminated": ended & ~cut,
        "truncated": ended & cut,
    }


def bits(bonus: Bonus) -> list[bytes]:
    """Everything that a call could have changed."""
    arrays = [x for x in jax.tree.leaves(bonus.state) if eqx.is_array(x)]
    return [np.asarray(x).tobytes() for x in [*arrays, *bonus.waiting_steps().values()]]


@functools.cache
def trained(method: str) -> tuple[Bonus, dict[str, float]]:
    """A bonus that was asked and trained once; shared, so that each method is compiled once. Do not change it."""
    rng = np.random.default_rng(0)
    bonus = made(method)
    for _ in range(4):
        bonus.reward(**steps(rng, N))
    return bonus, bonus.update()


def copied(bonus: Bonus) -> Bonus:
    twin = made(bonus.method)
    twin.state = bonus.state
    return twin


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_every_method_pays_and_learns(method: str) -> None:
    """The same answer twice, one count of it; asking trains nothing; step by step is as a whole rollout."""
    rng = np.random.default_rng(1)
    bonus, report = trained(method)
    assert bonus.updates == 1
    assert bonus.seen == 0
    assert all(np.isfinite(value) for value in report.values())
    rollout = steps(rng, 4, N)
    one, other = copied(bonus), copied(bonus)
    networks = [np.asarray(x) for x in leaves(one.state.model)]
    whole = one.reward(**rollout)
    assert whole.shape == (4, N)
    assert whole.dtype == np.float32
    assert np.isfinite(whole).all()
    before = bits(one)
    assert np.array_equal(one.reward(**rollout), whole)
    assert bits(one) == before
    assert one.seen == 4 * N
    each = [other.reward(**{name: part[t] for name, part in rollout.items()}) for t in range(4)]
    np.testing.assert_allclose(np.stack(each), whole, rtol=2e-5, atol=1e-6)
    assert all(np.array_equal(a, b) for a, b in zip(networks, leaves(one.state.model), strict=True))
    one.update()
    same = [np.array_equal(a, b) for a, b in zip(networks, leaves(one.state.model), strict=True)]
    assert all(same) == (one.state.learner.opt_state == ())


def leaves(tree: Any) -> list[Any]:
    return [x for x in jax.tree.leaves(tree) if eqx.is_array(x)]


def test_pays_what_the_method_pays() -> None:
    """Against `score` on observations standardised by hand, and the deviation of the discounted sum by hand."""
    rng = np.random.default_rng(2)
    bonus = made("rnd", learner=LearnerSettings(epochs=1, minibatch_size=8, clip_order="after", clip=2.0))
    first = steps(rng, 8, N)
    raw_first = raw(bonus, first)
    np.testing.assert_allclose(bonus.reward(**first), np.clip(raw_first, -2, 2), rtol=1e-5)
    bonus.update()
    reached = first["next_obs"].reshape(-1, 3).astype(np.float64)
    stats = bonus.state.obs_stats
    np.testing.assert_allclose(stats.mean, reached.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(stats.var, reached.var(0), rtol=1e-4)
    # The sum runs along time, each environment by itself, and the bonus is divided, not replaced, by it.
    total, totals = np.zeros(N), []
    for row in raw_first:
        total = 0.99 * total + row
        totals.append(total)
    second = steps(rng, 8, N)
    deviation = np.sqrt(np.var(np.stack(totals)))
    np.testing.assert_allclose(bonus.reward(**second), np.clip(raw(bonus, second) / deviation, -2, 2), rtol=1e-3)


def raw(bonus: Bonus, asked: dict[str, Any]) -> np.ndarray:
    """The raw bonus of a method without memory."""
    stats = bonus.state.obs_stats
    obs, next_obs = (
        np.clip((asked[name] - np.asarray(stats.mean)) / np.sqrt(np.asarray(stats.var) + 1e-8), -10, 10)
        for name in ("obs", "next_obs")
    )
    lead = asked["terminated"].shape
    t = Transition(
        *(jnp.asarray(x, jnp.float32) for x in (obs, asked["action"], next_obs)),
        jnp.zeros(lead),
        jnp.asarray(asked["terminated"]),
        jnp.asarray(asked["truncated"]),
        jnp.ones(lead, bool),
    )
    return np.asarray(score(bonus.state.model, None, t, key=jax.random.key(0))[1])


@pytest.mark.parametrize(("length", "minibatch"), [(8, 16), (11, 16), (5, 64)])
def test_update_is_that_of_training(length: int, minibatch: int) -> None:
    """The same networks as the training loop's learner makes of the same transitions, whatever fills a bucket up.

    11 steps make two minibatches of four, and 12, to which they are filled up, would make three. 5 make one that is
    not full.
    """
    rng = np.random.default_rng(3)
    settings = LearnerSettings(epochs=2, minibatch_size=minibatch, scale=False)
    bonus = made("lbs", learner=settings, normalise_obs=False, width=8)
    rollout = steps(rng, length, N)
    learner = Learner(settings)
    lead = rollout["terminated"].shape
    given = Transition(
        *(jnp.asarray(rollout[name], jnp.float32) for name in ("obs", "action", "next_obs")),
        jnp.zeros(lead),
        jnp.asarray(rollout["terminated"]),
        jnp.asarray(rollout["truncated"]),
        jnp.ones(lead, bool),
    )
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), 0), 1)
    start = learner.start(bonus.state.model, given)
    wanted, _, report = eqx.filter_jit(learner.update)(bonus.state.model, start, given, key=key)
    bonus.reward(**rollout)
    assert bonus.update()["loss"] == pytest.approx(float(report["loss"]), rel=1e-5)
    for mine, theirs in zip(leaves(bonus.state.model), leaves(wanted), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_padding_teaches_nothing() -> None:
    """Rows that fill a bucket enter neither the statistics nor the scale (nor training: see above)."""
    scale, padded = ReturnScale.start(2), ReturnScale.start(2)
    bonus = np.random.default_rng(0).random((5, 2)).astype(np.float32)
    options: dict[str, Any] = {"discount": 0.9, "clip": 3.0, "order": "before"}
    scale, _ = scale.scale(jnp.asarray(bonus), **options)
    filler = np.concatenate([bonus, np.full((3, 2), 7.0, np.float32)])
    there = jnp.broadcast_to(jnp.arange(8)[:, None] < 5, (8, 2))
    padded, _ = padded.scale(jnp.asarray(filler), where=there, **options)
    for a, b in zip(jax.tree.leaves(scale), jax.tree.leaves(padded), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    few = made("rnd")
    asked = steps(np.random.default_rng(1), 7, N)
    few.reward(**asked)
    few.update()
    np.testing.assert_allclose(few.state.obs_stats.count, 7 * N, rtol=1e-4)


def test_lengths_share_programs() -> None:
    assert [rounded(n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 100, 2048)] == [
        *(1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 16, 128, 2048)
    ]
    bonus = made("rnd", spaces.Box(-1.0, 1.0, (7,)), width=5)
    pay, _, train, _ = programs(bonus._frame)
    rng = np.random.default_rng(0)
    for length in (9, 10, 11, 12):
        bonus.reward(**steps(rng, length, N, seen=bonus.observation_space))
        bonus.update()
    assert (pay._cache_size(), train._cache_size()) == (1, 1)
    twin = made("rnd", spaces.Box(-1.0, 1.0, (7,)), width=5, seed=9)
    assert programs(twin._frame) is programs(bonus._frame)


def test_what_is_a_repeat_and_what_is_the_next_step() -> None:
    """A question that cannot be the next step is the same question; one that stands still is a step of its own."""
    bonus = made("ngu", taken=spaces.Discrete(2), num_envs=1, neighbours=2)
    still = np.ones((1, 3), np.float32)
    flags = {"terminated": [False], "truncated": [False]}
    for count in (1, 2, 3):
        bonus.reward(still, [0], still, **flags)
        assert bonus.seen == count
    moved = 2 * still
    bonus.reward(still, [0], moved, **flags)
    paid = bonus.reward(still, [0], moved, **flags)
    assert bonus.seen == 4
    assert np.array_equal(paid, bonus.reward(still, [0], moved, **flags))
    ending = {"terminated": [True], "truncated": [False]}
    bonus.reward(moved, [1], still, **ending)
    bonus.reward(moved, [1], still, **ending)
    assert bonus.seen == 6
    # A rollout is never the next one, even where its last step ended the episode.
    both = np.stack([still, moved])
    ends = {"terminated": [[False], [True]], "truncated": [[False], [False]]}
    first = bonus.reward(both, [[0], [1]], both, **ends)
    assert np.array_equal(bonus.reward(both, [[0], [1]], both, **ends), first)
    assert bonus.seen == 8


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_only_asking_changes_nothing(method: str) -> None:
    """`record=False`: an evaluation leaves memories, statistics and what waits for training as they were."""
    bonus = copied(trained(method)[0])
    before, asked = bits(bonus), steps(np.random.default_rng(5), 4, N)
    paid = bonus.reward(**asked, record=False)
    assert bits(bonus) == before
    assert np.array_equal(bonus.reward(**asked), paid)
    assert bits(bonus) != before


def test_actions_can_be_checked_alone() -> None:
    """As `reward` would, and nothing is kept."""
    bonus = made("rnd", taken=spaces.Discrete(3))
    bonus.check_action([0, 1, 2, 0])
    with pytest.raises(UsageError, match=r"action: 3 lies outside Discrete\(3\) \(at environment 1\)"):
        bonus.check_action([0, 3, 2, 0])
    bonus.check_action([0, 3, 2, 0], valid=[True, False, True, True])
    for wrong in ([[0], [1], [2], [0]], [[0, 1, 2, 0]] * 4, 1):
        with pytest.raises(UsageError, match=r"action: shape \[.*\]; expected \[4\], an element of Discrete\(3\)"):
            bonus.check_action(wrong)
    assert bonus.seen == 0


def test_values_that_no_call_could_use() -> None:
    with pytest.raises(UsageError, match="waiting = 3: less than one step of num_envs=4"):
        made("rnd", waiting=3)
    for call in (Bonus.load, made("rnd").save, made("rnd").restore):
        with pytest.raises(UsageError, match="path = 5: must be a path"):
            call(5)  # pyright: ignore[reportArgumentType]
    bright = Bonus("rnd", spaces.Box(0.0, 1.0, (8, 8, 1)), spaces.Discrete(2), num_envs=1)
    for kind in (np.float32, np.uint8, np.int64):
        picture = np.full((1, 8, 8, 1), 255, kind)
        with pytest.raises(UsageError, match=r"obs: a pixel of 255 lies outside Box\(0.0, 1.0"):
            bright.reward(picture, [0], picture, [False], [False])
        with pytest.raises(UsageError, match="obs: a pixel of 255 lies outside"):
            bright.calibrate(picture)
    dark = Bonus("rnd", spaces.Box(0, 100, (8, 8, 1), np.uint8), spaces.Discrete(2), num_envs=1)
    with pytest.raises(UsageError, match="obs: a pixel of 255 lies outside"):
        dark.calibrate(np.full((1, 8, 8, 1), 255, np.uint8))
    far = made("rnd", spaces.Box(-np.inf, np.inf, (3,)))
    with pytest.raises(UsageError, match="obs: holds NaN, infinity or a value beyond 1e10"):
        far.reward(np.full((4, 3), 2**62), np.zeros((4, 2)), np.zeros((4, 3)), np.zeros(4), np.zeros(4))


def test_seed_decides() -> None:
    asked = steps(np.random.default_rng(0), N)
    one, same, other = (made("rnd", seed=seed).reward(**asked) for seed in (3, 3, 4))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_episodes_end_and_are_broken_off() -> None:
    """An episode's end clears the memory of its environment only; `forget` says the same of one that was broken off."""
    rng = np.random.default_rng(6)
    bonus = made("ride", neighbours=2)
    for _ in range(6):
        bonus.reward(**steps(rng, N, ends=0.0))
    written = bonus.state.learner.memory.written
    assert written.tolist() == [6] * N
    bonus.forget([True, False, False, False])
    assert bonus.state.learner.memory.written.tolist() == [0, 6, 6, 6]
    last = steps(rng, N, ends=0.0)
    bonus.reward(**{**last, "truncated": np.array([False, True, False, False])})
    assert bonus.state.learner.memory.written.tolist() == [1, 0, 7, 7]
    bonus.forget()
    assert bonus.state.learner.memory.written.tolist() == [0] * N


def test_invalid_steps() -> None:
    """Steps that are none earn 0 and teach nothing, whatever they hold; but if one ends an episode, it ends."""
    rng = np.random.default_rng(7)
    bonus = made("ride", spaces.Discrete(5, start=2), spaces.Discrete(3, start=-1), neighbours=2)
    asked = steps(rng, N, seen=bonus.observation_space, taken=bonus.action_space, ends=0.0)
    bonus.reward(**asked)
    odd = {**asked, "obs": np.array([2, -7, 3, 4]), "action": np.array([-1, 99, 0, 1])}
    paid = bonus.reward(**odd, valid=[True, False, True, True])
    assert paid[1] == 0
    assert bonus.state.learner.memory.written.tolist() == [2, 1, 2, 2]
    vector = made("rnd")
    asked = steps(rng, N)
    asked["next_obs"][2] = np.nan
    assert vector.reward(**asked, valid=[True, True, False, True])[2] == 0
    vector.update()
    assert np.isfinite(vector.state.obs_stats.mean).all()
    np.testing.assert_allclose(vector.state.obs_stats.count, 3, rtol=1e-3)


def test_invalid_steps_leave_the_scale_alone() -> None:
    """Statistics and scale are those of the steps that are steps; with none of these an update is none."""
    rng = np.random.default_rng(8)
    plain, mixed = made("rnd"), made("rnd")
    rollout = steps(rng, 6, N)
    plain.reward(**rollout)
    between = {name: np.insert(value, 3, value[0], axis=0) for name, value in rollout.items()}
    mixed.reward(**between, valid=np.arange(7)[:, None] != np.full((1, N), 3))
    plain.update(), mixed.update()
    for mine, theirs in zip(leaves(mixed.state.learner.scale), leaves(plain.state.learner.scale), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    before = bits(plain)
    plain.reward(**rollout, valid=np.zeros((6, N), bool))
    assert plain.update() == {}
    assert (bits(plain), plain.seen) == (before, 0)


KINDS = {
    "vector": (spaces.Box(-np.inf, np.inf, (3,)), np.float32),
    "number": (spaces.Box(-1.0, 1.0, ()), np.float32),
    "matrix without bounds": (spaces.Box(-np.inf, np.inf, (2, 3)), np.float32),
    "doubles": (spaces.Box(-1.0, 1.0, (3,), np.float64), np.float32),
    "bytes": (spaces.Box(0, 255, (4,), np.uint8), np.uint8),
    "image": (spaces.Box(0, 255, (8, 9, 3), np.uint8), np.uint8),
    "channels first": (spaces.Box(0, 255, (3, 8, 9), np.uint8), np.uint8),
    "grey": (spaces.Box(0, 255, (8, 9), np.uint8), np.uint8),
    "floats between bounds": (spaces.Box(-1.0, 1.0, (8, 9, 2)), np.float32),
    "choice": (spaces.Discrete(4, start=3), np.int32),
    "choices": (spaces.MultiDiscrete([2, 3], start=[1, 0]), np.int32),
    "bits": (spaces.MultiBinary((2, 2)), np.int32),
}


@pytest.mark.parametrize("kind", KINDS)
def test_observation_spaces(kind: str) -> None:
    """What a method sees of each space, against NumPy; and the space comes back from its description."""
    space, kept_as = KINDS[kind]
    reader = Observations.of(space)
    space.seed(0)
    value = np.stack([np.asarray(space.sample()) for _ in range(2 * N)]).reshape(2, N, *(space.shape or ()))
    kept = reader.read("obs", value, np.ones((2, N), bool))
    assert kept.dtype == kept_as
    seen = np.asarray(reader.seen(jnp.asarray(kept)))
    wanted = {
        "image": lambda: value / 255,
        "channels first": lambda: np.moveaxis(value, -3, -1) / 255,
        "grey": lambda: value[..., None] / 255,
        "floats between bounds": lambda: (value + 1) / 2,
        "choice": lambda: np.eye(4)[value - 3],
        "choices": lambda: np.concatenate([np.eye(2)[value[..., 0] - 1], np.eye(3)[value[..., 1]]], -1),
        "bits": lambda: np.stack([1 - value, value], -1).reshape(2, N, 8),
    }.get(kind, lambda: value.reshape(2, N, -1))()
    assert seen.shape == (2, N, *reader.shape)
    np.testing.assert_allclose(seen, wanted, rtol=1e-5, atol=1e-6)
    again = space_of(json.loads(json.dumps(data_of(space))))
    assert again == space
    assert data_of(again) == data_of(space)


@pytest.mark.parametrize(
    ("space", "value", "seen"),
    [
        (spaces.Discrete(3, start=5), [6, 5], [1, 0]),
        (spaces.MultiDiscrete([2, 3]), [[1, 2], [0, 0]], [[0, 1, 0, 0, 1], [1, 0, 1, 0, 0]]),
        (spaces.MultiBinary(2), [[1, 0], [0, 1]], [[0, 1, 1, 0], [1, 0, 0, 1]]),
        (spaces.Box(-1.0, 1.0, (2, 1)), [[[0.5], [-1.0]], [[0.0], [1.00005]]], [[0.5, -1.0], [0.0, 1.00005]]),
        (spaces.Box(-np.inf, np.inf, (1,)), [[1e6], [-3.0]], [[1e6], [-3.0]]),
    ],
)
def test_action_spaces(space: Any, value: Any, seen: Any) -> None:
    reader = Actions.of(space)
    kept = reader.read("action", np.asarray(value), np.ones(2, bool))
    np.testing.assert_allclose(np.asarray(reader.taken(jnp.asarray(kept))), np.asarray(seen), rtol=1e-6)
    assert np.asarray(reader.taken(jnp.asarray(kept))).shape == (2, *reader.known.shape)
    assert space_of(json.loads(json.dumps(data_of(space)))) == space


@pytest.mark.parametrize("taken", [spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(3)], ids=str)
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_every_method_takes_every_action(method: str, taken: Any) -> None:
    """Shapes alone, without compiling: the constructor checks them for this method and these spaces."""
    for seen in (SEEN, spaces.Box(0, 255, (9, 8, 3), np.uint8), spaces.Discrete(4)):
        size = {spaces.Discrete: 3, spaces.MultiDiscrete: 5, spaces.MultiBinary: 6}[type(taken)]
        assert made(method, seen, taken).spec.action.size == size


def test_images_are_paid_alike_however_they_lie() -> None:
    """Channels first or last, the method sees the same picture."""
    rng = np.random.default_rng(8)
    last, first = spaces.Box(0, 255, (8, 9, 3), np.uint8), spaces.Box(0, 255, (3, 8, 9), np.uint8)
    asked = steps(rng, N, seen=last)
    turned = {name: np.moveaxis(part, -1, -3) if "obs" in name else part for name, part in asked.items()}
    paid = made("rnd", last).reward(**asked)
    assert np.array_equal(made("rnd", first).reward(**turned), paid)
    assert np.ptp(paid) > 0


def test_one_environment_without_an_axis() -> None:
    bonus = made("rnd", num_envs=1)
    asked = steps(np.random.default_rng(0), 1)
    bare = {name: part[0] for name, part in asked.items()}
    paid = bonus.reward(**bare)
    assert paid.shape == ()
    assert float(paid) == made("rnd", num_envs=1).reward(**asked)[0]


class Tensor:
    """What PyTorch's tensors are to others: no NumPy before they left graph and device."""

    def __init__(self, array: np.ndarray, ready: int = 0) -> None:
        self.array, self.ready = array, ready

    def detach(self) -> Tensor:
        return Tensor(self.array, self.ready + 1)

    def cpu(self) -> Tensor:
        return Tensor(self.array, self.ready + 1)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.ready != 2:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        return self.array


def test_tensors_are_taken_without_torch() -> None:
    asked = steps(np.random.default_rng(9), N)
    assert np.array_equal(made().reward(**{k: Tensor(v) for k, v in asked.items()}), made().reward(**asked))
    code = "import sys, curiax; curiax.Bonus; print('torch' in sys.modules, 'stable_baselines3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False False\n"


def test_arguments_may_be_reused_by_their_owner() -> None:
    """Environments write the next step into the same memory; what waits must not change with it."""
    bonus, asked = made(), steps(np.random.default_rng(10), N)
    bonus.reward(**asked)
    before = bits(bonus)
    for part in asked.values():
        part[...] = 0
    assert bits(bonus) == before


def test_calibrate() -> None:
    rng = np.random.default_rng(11)
    bonus, seen = made(), rng.normal(3.0, 2.0, (50, 3))
    bonus.calibrate(seen)
    np.testing.assert_allclose(bonus.state.obs_stats.mean, seen.mean(0), rtol=1e-4)
    np.testing.assert_allclose(bonus.state.obs_stats.var, seen.var(0), rtol=1e-4)
    assert bonus.seen == 0
    before = bits(bonus)
    for wrong in (np.zeros((5, 2)), np.zeros(3), np.full((4, 3), np.nan), np.zeros((0, 3)), "text"):
        with pytest.raises(UsageError, match=r"^obs: "):
            bonus.calibrate(wrong)
    assert bits(bonus) == before


def test_too_many_wait() -> None:
    bonus, rng = made(waiting=6 * N), np.random.default_rng(12)
    first, second = steps(rng, 4, N), steps(rng, 5, N)
    bonus.reward(**first)
    with pytest.warns(RuntimeWarning, match="more than waiting=24 transitions"):
        bonus.reward(**second)
    assert bonus.seen == 6 * N
    kept = bonus.waiting_steps()["obs"]
    assert np.array_equal(kept, np.concatenate([first["obs"], second["obs"]])[-6:])
    bonus.reward(**steps(rng, N))
    assert bonus.seen == 6 * N
    bonus.discard()
    assert (bonus.seen, bonus.update()) == (0, {})


WRONG = {
    "too few": (
        {"obs": np.zeros((3, 3))},
        r"obs: shape \[3, 3\] has 3 environments, this Bonus was made for num_envs=4",
    ),
    "more next": ({"next_obs": np.zeros((5, 3))}, r"next_obs: shape \[5, 3\] has 5 environments"),
    "width": ({"obs": np.zeros((4, 2))}, r"obs: shape \[4, 2\]; expected \[4, 3\] for one step or \[T, 4, 3\]"),
    "no axis": ({"obs": np.zeros(3)}, r"obs: shape \[3\]; expected"),
    "deep": ({"obs": np.zeros((1, 2, 4, 3))}, r"obs: shape \[1, 2, 4, 3\]; expected"),
    "nothing": ({"obs": np.zeros((0, 4, 3))}, r"obs: shape \[0, 4, 3\]; expected"),
    "rollout and step": ({"next_obs": np.zeros((2, 4, 3))}, r"next_obs: shape \[2, 4, 3\] does not fit obs of shape"),
    "text": ({"obs": np.full((4, 3), "a")}, "obs: not an array of numbers but of <U1"),
    "ragged": ({"obs": [[1.0], [1.0, 2.0]]}, "obs: not an array of numbers"),
    "none": ({"next_obs": None}, "next_obs: not an array of numbers"),
    "complex": ({"obs": np.zeros((4, 3), complex)}, "obs: complex numbers"),
    "NaN": (
        {"next_obs": np.array([[0.0] * 3, [0, np.nan, 0], [0] * 3, [0] * 3])},
        r"next_obs: .*environment 1, entry 1",
    ),
    "huge": ({"obs": np.full((4, 3), 1e11)}, "obs: holds NaN, infinity or a value beyond 1e10"),
    "action outside": ({"action": np.full((4, 2), 1.5)}, r"action: 1.5 lies outside Box.*at environment 0, entry 0"),
    "action NaN": ({"action": np.full((4, 2), np.nan)}, "action: holds NaN"),
    "action shape": ({"action": np.zeros(4)}, r"action: shape \[4\]; expected \[4, 2\]"),
    "flags": ({"terminated": np.zeros(3, bool)}, r"terminated: shape \[3\]; expected \[4\]"),
    "flag 2": ({"truncated": np.full(4, 2)}, "truncated: must be True or False"),
    "flag NaN": ({"truncated": np.full(4, np.nan)}, "truncated: must be True or False"),
    "valid": ({"valid": np.zeros((2, 4), bool)}, r"valid: shape \[2, 4\]; expected \[4\]"),
    "record": ({"record": "no"}, "record = 'no': must be True or False"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_is_refused_and_changes_nothing(case: str) -> None:
    bonus = copied(trained("ngu")[0])
    good = steps(np.random.default_rng(13), N)
    bonus.reward(**good)
    before, (wrong, message) = bits(bonus), WRONG[case]
    with pytest.raises(UsageError, match=f"^{message}"):
        bonus.reward(**{**steps(np.random.default_rng(14), N), **wrong})
    assert bits(bonus) == before
    assert np.array_equal(bonus.reward(**good), bonus.reward(**good))
    assert bonus.seen == N


@pytest.mark.parametrize(
    ("seen", "taken", "wrong", "message"),
    [
        (spaces.Discrete(3), PUSH, {"obs": [0, 1, 2, 3]}, r"obs: 3 lies outside Discrete\(3\) \(at environment 3\)"),
        (spaces.Discrete(3), PUSH, {"next_obs": [0, 1, 0.5, 1]}, "next_obs: must be whole numbers; 0.5 is none"),
        (SEEN, spaces.Discrete(2, start=1), {"action": [1, 2, 0, 1]}, r"action: 0 lies outside Discrete\(2, start=1\)"),
        (SEEN, spaces.Discrete(2), {"action": [1, np.nan, 0, 1]}, "action: must be whole numbers; nan is none"),
        (SEEN, spaces.MultiDiscrete([2, 3]), {"action": [[0, 0], [0, 3], [0, 0], [1, 1]]}, "action: 3 lies outside"),
        (SEEN, spaces.MultiBinary(2), {"action": [[0, 0], [0, 1], [0, 2], [1, 1]]}, "action: 2 lies outside"),
        (spaces.Box(0, 9, (2,), np.int64), PUSH, {"obs": np.full((4, 2), 0.5)}, r"obs: 0.5 is not a whole number"),
        (SEEN, spaces.Box(0, 9, (2,), np.int32), {"action": np.full((4, 2), 1.5)}, r"action: 1.5 is not a whole"),
        (spaces.Box(0, 255, (6, 6), np.uint8), PUSH, {"obs": np.zeros((4, 6, 6))}, "obs: images of float64, where"),
    ],
)
def test_elements_outside_a_space(seen: Any, taken: Any, wrong: dict[str, Any], message: str) -> None:
    bonus = made("rnd", seen, taken)
    with pytest.raises(UsageError, match=message):
        bonus.reward(**{**steps(np.random.default_rng(0), N, seen=seen, taken=taken), **wrong})
    assert bonus.seen == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "lsb"}, "unknown method 'lsb'. Did you mean 'lbs'"),
        ({"seen": spaces.Dict({"a": SEEN})}, "observation_space: Dict.*FlattenObservation"),
        ({"seen": (3,)}, r"observation_space = \(3,\): give a Gymnasium space"),
        ({"taken": spaces.Text(3)}, "action_space: Text.*ActionWrapper"),
        ({"taken": 4}, "action_space = 4: give a Gymnasium space"),
        ({"num_envs": 0}, "num_envs = 0: must be a whole number from 1"),
        ({"num_envs": 2.0}, "num_envs = 2.0"),
        ({"seed": 2**70}, "seed = .*: must be a whole number from 0 to 4294967295"),
        ({"learner": 3}, "learner = 3: give curiax.LearnerSettings or a mapping"),
        ({"learner": {"epoch": 3}}, "unknown setting of learner 'epoch'. Did you mean 'epochs'"),
        ({"learner": {"learning_rate": -1.0}}, "learner.learning_rate = -1.0"),
        ({"learner": {"replay": 2}}, "learner.replay"),
        ({"normalise_obs": "no"}, "normalise_obs = 'no'"),
        ({"waiting": 0}, "waiting = 0"),
        ({"horizon": -1}, "horizon = -1"),
        ({"betta": 2.0, "method": "lbs"}, "unknown setting of method 'lbs' 'betta'. Did you mean 'beta'"),
        ({"beta": "x", "method": "lbs"}, "method 'lbs'.beta = 'x'"),
        ({"method": "ngu", "capacity": 10**12}, "would remember .* numbers for each of 4 environments"),
    ],
)
def test_constructor_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        made(**options)


def test_a_model_that_runs_away_is_named_and_nothing_changes() -> None:
    rng = np.random.default_rng(15)
    bonus = made("rnd", learner=LearnerSettings(learning_rate=1e30, epochs=3, minibatch_size=8), normalise_obs=False)
    bonus.reward(**steps(rng, 8, N))
    before = bits(bonus)
    with pytest.raises(NonFiniteError, match=r"update: training 'rnd' gave NaN.*nothing was changed"):
        bonus.update()
    assert bits(bonus) == before
    wild = copied(trained("rnd")[0])
    broken = eqx.tree_at(lambda s: s.model.distillation.predictor.layers[-1].bias, wild.state, jnp.full(32, jnp.inf))
    wild.state = broken
    before = bits(wild)
    with pytest.raises(NonFiniteError, match=r"reward: 'rnd' gave NaN.*at step 0, environment 0.*nothing was changed"):
        wild.reward(**steps(rng, N))
    assert bits(wild) == before


@pytest.mark.parametrize("method", ["ngu", "re3", "e3b"])
def test_a_step_that_fails_leaves_the_memory(method: str) -> None:
    """States that were taken before stay whole however many steps follow; one that is refused leaves no trace."""
    rng = np.random.default_rng(15)
    bonus = copied(trained(method)[0])
    before, was = bonus.state, bits(bonus)
    bonus.reward(**steps(rng, N), record=False)
    assert bits(bonus) == was
    more = [steps(rng, N) for _ in range(4)]
    paid = [bonus.reward(**each) for each in more]
    for _ in range(2):  # what is put in is not used up, either
        bonus.discard()
        bonus.state = before
        assert bits(bonus) == was
        assert [each.tobytes() for each in paid] == [bonus.reward(**each).tobytes() for each in more]
    assert [np.asarray(x).tobytes() for x in leaves(before)] == was
    # Every network's outputs NaN: no bonus is sound, and an episode that ends with such a step is not cut off.
    sane = bonus.state
    wild = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan) if eqx.is_inexact_array(x) else x, sane.model)
    bonus.state = eqx.tree_at(lambda s: s.model, sane, wild)
    was = bits(bonus)
    for _ in range(3):
        with pytest.raises(NonFiniteError, match="nothing was changed"):
            bonus.reward(**{**steps(rng, N), "terminated": np.ones(N, bool)})
        assert bits(bonus) == was


def test_two_memories_in_turn_are_as_good_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps, rollouts, questions, resets and failures in any order, with and without the memory that lags behind."""
    plain, quick = copied(trained("re3")[0]), copied(trained("re3")[0])
    monkeypatch.setattr(plain, "_spares", False)
    rng, used = np.random.default_rng(18), 0
    for turn in range(100):
        kind = rng.choice(["step", "step", "step", "rollout", "ask", "forget", "fail", "update"])
        asked = steps(rng, 3, N) if kind == "rollout" else steps(rng, N)
        used += bool(quick._behind) and kind == "step"
        answers = []
        for bonus in (plain, quick):
            if kind == "forget":
                bonus.forget()
            elif kind == "update":
                bonus.update()
            elif kind == "fail" and quick._behind:
                with monkeypatch.context() as patched:
                    patched.setattr("curiax.integrations.bonus.LIMIT", -1.0)
                    with pytest.raises(NonFiniteError):
                        bonus.reward(**asked)
            else:
                answers.append(bonus.reward(**asked, record=kind != "ask"))
        assert len({answer.tobytes() for answer in answers}) <= 1, (turn, kind)
        assert bits(plain) == bits(quick), (turn, kind)
    assert used > 10


class Ring(AbstractCuriosity):
    """Remembers the last four sums of an episode and pays how far the new one is from their mean."""

    spares_memory: ClassVar[bool] = True
    ready: bool = eqx.field(static=True)

    def __init__(self, spec: Any, *, key: Any, ready: bool = True) -> None:
        self.ready = ready

    def memory(self) -> Any:
        return jnp.zeros(4), jnp.zeros((), jnp.int32)

    def caught_up(self, behind: Any, memory: Any) -> Any:
        if not self.ready:
            return super().caught_up(behind, memory)
        slot = (memory[1] - 1) % 4
        return behind[0].at[slot].set(memory[0][slot]), memory[1]

    def reward(self, memory: Any, t: Transition, *, key: Any) -> tuple[Any, Any]:
        (sums, written), new = memory, jnp.sum(t.next_obs)
        kept = sums.at[written % 4].set(jnp.where(t.valid, new, sums[written % 4]))
        return (kept, written + t.valid), jnp.abs(new - jnp.mean(sums))

    def loss(self, t: Transition, *, draw: Any) -> tuple[Any, dict[str, Any]]:
        return jnp.zeros(()), {}


def test_episodes_end_between_two_memories() -> None:
    """A method whose memory is cut at an episode's end is paid step by step as by rollout; it must know to catch up."""
    check_curiosity(Ring)
    rng = np.random.default_rng(23)
    whole, stepwise = made(Ring), made(Ring)
    rollout = steps(rng, 30, N) | {"terminated": rng.random((30, N)) < 0.15}
    each = [stepwise.reward(**{name: part[t] for name, part in rollout.items()}) for t in range(30)]
    np.testing.assert_allclose(np.stack(each), whole.reward(**rollout), rtol=1e-6)
    with pytest.raises(ContractError, match=r"caught_up\(\).*needs caught_up\(behind, memory\)"):
        made(Ring, ready=False)


def test_a_state_is_put_in_whole_or_not_at_all() -> None:
    bonus, rng = copied(trained("re3")[0]), np.random.default_rng(24)
    start = bonus.state
    bonus.reward(**steps(rng, 4, N))
    bonus.update()
    bonus.reward(**steps(rng, N))
    was = bits(bonus)
    broken = eqx.tree_at(lambda s: s.learner.memory.entries, start, jnp.array(start.learner.memory.entries))
    broken.learner.memory.entries.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        bonus.state = broken
    waiting = bonus.waiting_steps()
    del waiting["raw"]
    with pytest.raises(KeyError):
        bonus.put(start, waiting)
    assert bits(bonus) == was
    assert bonus.updates == int(bonus.state.updates)


def test_64_bits_leave_the_state_as_it_is() -> None:
    bonus, rng = copied(trained("rnd")[0]), np.random.default_rng(25)
    start = bonus.state
    with jax.enable_x64(True):
        assert bonus.reward(**steps(rng, 4, N)).dtype == np.float32
        bonus.calibrate(steps(rng, N)["obs"])
        bonus.update()
    assert {x.dtype for x in leaves(bonus.state)} == {x.dtype for x in leaves(start)}
    bonus.state = start


def test_one_bonus_in_many_threads() -> None:
    """Two that step and one that saves: every step is counted once, and nothing breaks."""
    bonus, failures = copied(trained("re3")[0]), []
    asked = [steps(np.random.default_rng(seed), 40, N) for seed in (1, 2)]

    def walk(rollout: dict[str, Any]) -> None:
        try:
            for t in range(40):
                bonus.reward(**{name: part[t] for name, part in rollout.items()})
                assert all(np.isfinite(x).all() for x in leaves(bonus.state.learner.memory))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=walk, args=(each,)) for each in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert bonus.seen == 80 * N
    assert (np.asarray(bonus.state.learner.memory.written) == 4 + 80).all()


@pytest.mark.parametrize("method", ["lbs", "re3"])
def test_copies_go_their_own_ways(method: str) -> None:
    rng = np.random.default_rng(20)
    bonus = copied(trained(method)[0])
    bonus.reward(**steps(rng, N))
    twin, other = copy.copy(bonus), copy.deepcopy(bonus)
    assert bits(twin) == bits(other) == bits(bonus)
    asked, was = [steps(rng, N) for _ in range(3)], bits(bonus)
    paid = [twin.reward(**each).tobytes() for each in asked]
    assert bits(bonus) == was
    assert paid == [other.reward(**each).tobytes() for each in asked] == [bonus.reward(**x).tobytes() for x in asked]
    assert twin.update() == other.update() == bonus.update()
    with pytest.raises(TypeError, match=r"not pickled: save\(\) writes it"):
        pickle.dumps(bonus)


def test_going_back_and_calibrating_forget_the_last_question() -> None:
    """The same question after either is a new one: asked anew, and remembered."""
    bonus, asked = copied(trained("e3b")[0]), steps(np.random.default_rng(21), N)
    start = bonus.state
    first = bonus.reward(**asked)
    after = bits(bonus)[: len(leaves(start))]
    bonus.discard()
    bonus.state = start
    assert np.array_equal(bonus.reward(**asked), first)
    assert bits(bonus)[: len(leaves(start))] == after  # remembered again
    shifted = 3.0 + 0.1 * np.random.default_rng(22).normal(size=(500, 3)).astype(np.float32)
    bonus.calibrate(shifted)
    assert not np.array_equal(bonus.reward(**asked, record=False), first)


def test_state_of_another_is_refused() -> None:
    bonus = made("rnd")
    with pytest.raises(UsageError, match=r"^state: not a state"):
        bonus.state = made("rnd", width=9).state


@pytest.mark.parametrize("method", ["lbs", "ngu"])
def test_saved_and_read_again(method: str, tmp_path: Path) -> None:
    """Networks, optimiser, statistics, scale, memories and what waits: everything goes on to the same bits."""
    rng = np.random.default_rng(16)
    bonus = made(method)
    bonus.reward(**steps(rng, 4, N))
    bonus.update()
    for _ in range(3):
        bonus.reward(**steps(rng, N))
    file = tmp_path / "bonus.safetensors"
    bonus.save(file)
    twin, third = Bonus.load(file), made(method, waiting=1000)
    third.restore(file)
    assert repr(twin) == repr(bonus) == repr(third)
    assert twin.about() == bonus.about()
    more = steps(rng, N)
    for other in (twin, third):
        assert bits(other) == bits(bonus)
    assert np.array_equal(twin.reward(**more), bonus.reward(**more))
    assert twin.update() == bonus.update()
    assert bits(twin) == bits(bonus)
    short = made(method, waiting=2 * N)
    short.restore(file)
    assert short.seen == 2 * N
    assert np.array_equal(short.waiting_steps()["obs"], third.waiting_steps()["obs"][-2:])


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "bonus"
    made("rnd").save(file)
    target = made("icm")
    before = bits(target)
    with pytest.raises(OutputError, match="is of the method 'rnd', this Bonus of 'icm'"):
        target.restore(file)
    assert bits(target) == before
    for other, named in (
        (made("rnd", clip=4.0), "clip"),
        (made("rnd", num_envs=5), "num_envs"),
        (made("rnd", spaces.Box(-4.0, 4.0, (3,))), "observation_space"),
        (made("rnd", learner=LearnerSettings(epochs=2, minibatch_size=8)), "learner"),
    ):
        with pytest.raises(OutputError, match=f"they differ in {named}"):
            other.restore(file)
    with pytest.raises(UsageError, match=r"method = 'icm': .* is of the method 'rnd'"):
        Bonus.load(file, method="icm")
    with pytest.raises(OutputError, match="is not there"):
        Bonus.load(tmp_path / "none")
    with pytest.raises(OutputError, match="is a folder"):
        Bonus.load(tmp_path)
    with pytest.raises(OutputError, match=r"cannot write .*: No such file"):
        made("rnd").save(tmp_path / "no" / "folder")
    text = file.read_bytes()
    newer = text.replace(b"curiax-bonus-1", b"curiax-bonus-7")
    (tmp_path / "newer").write_bytes(newer)
    with pytest.raises(OutputError, match="written by a newer Curiax: update"):
        Bonus.load(tmp_path / "newer")
    import safetensors.numpy

    (tmp_path / "foreign").write_bytes(safetensors.numpy.save({"a": np.zeros(3)}))
    with pytest.raises(OutputError, match=r"was not written by Bonus\.save"):
        Bonus.load(tmp_path / "foreign")


def test_saving_replaces_a_bonus_and_nothing_else(tmp_path: Path) -> None:
    own = tmp_path / "own"
    made("rnd").save(own)
    made("icm").save(own)
    assert Bonus.load(own).method == "icm"
    import safetensors.numpy

    weights = safetensors.numpy.save({"a": np.zeros(3)})
    for data in (b"", b"dear diary", weights, own.read_bytes()[:300]):
        (tmp_path / "mine").write_bytes(data)
        with pytest.raises(OutputError, match="is there already and is no Bonus: choose another path"):
            made("rnd").save(tmp_path / "mine")
        assert (tmp_path / "mine").read_bytes() == data
    (tmp_path / "link").symlink_to(own)
    (tmp_path / "folder").mkdir()
    for name in ("link", "folder"):
        with pytest.raises(OutputError, match="is there already"):
            made("rnd").save(tmp_path / name)
    assert Bonus.load(tmp_path / "link").method == "icm"


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    file = tmp_path / "bonus"
    bonus = made("rnd", width=2, feature_size=2)
    bonus.reward(**steps(np.random.default_rng(0), N))
    bonus.save(file)
    data = file.read_bytes()
    rng = np.random.default_rng(17)
    for position in [*range(0, 16), *rng.integers(len(data), size=120).tolist()]:
        broken = bytearray(data)
        broken[position] ^= 1 << int(rng.integers(8))
        file.write_bytes(bytes(broken))
        with pytest.raises(OutputError):
            Bonus.load(file)
    for length in rng.integers(len(data), size=20).tolist():
        file.write_bytes(data[:length])
        with pytest.raises(OutputError):
            Bonus.load(file)


def reworded(data: bytes, **changes: Any) -> bytes:
    """A file whose description was changed by somebody who knows how: its digests are right."""
    from curiax._files import digest_of_json

    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    about = json.loads(header["__metadata__"]["curiax"])
    about.pop("digest")
    about |= changes
    header["__metadata__"]["curiax"] = json.dumps({**about, "digest": digest_of_json(about)})
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


@pytest.mark.parametrize(
    "changes",
    [
        {"method": [1]},
        {"method": "os:system"},
        {"settings": {"width": 10**9}},
        {"settings": {"beta": 3}},
        {"num_envs": 10**6},
        {"observation_space": {"kind": "Box", "shape": [1 << 20, 1 << 20], "dtype": "float32", "low": 0, "high": 1}},
        {"observation_space": {"kind": "Box", "shape": [3], "dtype": "float32", "low": [0, 1], "high": 1}},
        {"observation_space": {"kind": "MultiDiscrete", "nvec": [["a"]], "start": [0]}},
        {"action_space": {"kind": "Discrete", "n": 0, "start": 0}},
        {"learner": {"epochs": -1}},
        {"horizon": 0},
        {"surprise": 1},
        {"tensors": {}},
    ],
    ids=lambda changes: re.sub(r"\W+", " ", str(changes))[:40],
)
def test_hostile_descriptions(changes: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "bonus"
    made("rnd", width=2, feature_size=2).save(file)
    data = file.read_bytes()
    file.write_bytes(reworded(data))
    Bonus.load(file)
    file.write_bytes(reworded(data, **changes))
    with pytest.raises((OutputError, UsageError)):
        Bonus.load(file)


def test_a_method_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its class; a file only names it, and reading it takes the class again."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    from new_method import EmbeddingDistance

    bonus = made(EmbeddingDistance, width=8)
    bonus.reward(**steps(np.random.default_rng(0), N))
    bonus.save(tmp_path / "own")
    with pytest.raises(
        UsageError, match="'new_method:EmbeddingDistance', which is not Curiax's: reading it imports and runs"
    ):
        Bonus.load(tmp_path / "own")
    assert bits(Bonus.load(tmp_path / "own", method=EmbeddingDistance)) == bits(bonus)


def test_moments_of_no_one() -> None:
    """A batch of which nothing counts leaves the statistics as they were."""
    start = Moments.start((2,))
    after = start.merge(jnp.ones((3, 2)), jnp.zeros(3, bool))
    for a, b in zip(jax.tree.leaves(start), jax.tree.leaves(after), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert curiax.Bonus is Bonus


@pytest.mark.parametrize("how", ["calibrate", "update"])
def test_features_of_images_are_standardised_once(how: str) -> None:
    """By `calibrate`, or else by the first update, on what was seen; never again after that."""
    rng = np.random.default_rng(18)
    seen = spaces.Box(0, 255, (8, 8, 1), np.uint8)
    bonus = made("re3", seen, num_envs=2)
    pictures = rng.integers(0, 256, (8, 2, 8, 8, 1), np.uint8)
    asked = {**steps(rng, 8, 2, seen=seen), "next_obs": pictures}
    if how == "calibrate":
        bonus.calibrate(pictures.reshape(-1, 8, 8, 1))
    else:
        bonus.reward(**asked)
        bonus.update()
    features = jax.vmap(bonus.state.model.target)(jnp.asarray(pictures.reshape(-1, 64) / 255, jnp.float32))
    np.testing.assert_allclose(features.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(features.std(0), 1, atol=1e-3)
    measured = np.asarray(bonus.state.model.target.features.net.mean)
    bonus.calibrate(rng.integers(0, 100, (16, 8, 8, 1), np.uint8))
    assert np.array_equal(bonus.state.model.target.features.net.mean, measured)


@pytest.mark.parametrize("name", sorted({*METHOD_NAMES, *(name for name in METHODS if name.startswith("surprisal"))}))
def test_every_method_tells_images_apart(name: str) -> None:
    """After an update the bonuses of different images differ, and none of them is at a bound."""
    space = spaces.Box(0, 255, (12, 12, 1), np.uint8)
    learner = {"scale": False, "epochs": 1}
    bonus = Bonus(name, space, spaces.Discrete(2), num_envs=2, learner=learner, horizon=8)
    rng = np.random.default_rng(0)
    some = rng.integers(0, 256, (5, 12, 12, 1), np.uint8)  # few, so that counts have something to count

    def rollout() -> dict[str, Any]:
        which, no = rng.integers(0, 5, (2, 8, 2)), np.zeros((8, 2), bool)
        seen = {"obs": some[which[0]], "action": rng.integers(0, 2, (8, 2)), "next_obs": some[which[1]]}
        return {**seen, "terminated": no, "truncated": no}

    bonus.reward(**rollout())
    bonus.update()
    paid = bonus.reward(**rollout())
    assert len(np.unique(paid)) > 1
    assert np.mean(paid == paid.max()) < 0.8
