"""Mountain Car against Gymnasium's, and its own Gymnasium environments."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.classic_control.continuous_mountain_car import Continuous_MountainCarEnv
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray
from scipy import stats

import curiax
from curiax.envs import MountainCar
from curiax.envs.mountain_car import Car

IDS = ["curiax/MountainCarSparse-v0", "curiax/MountainCarFrozen-v0", "curiax/MountainCarEvolving-v0"]
Floats = NDArray[np.float32]
TASK = MountainCar()


@jax.jit
def steps(states: Floats, actions: Floats) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One step from each of many states, for each its action."""

    def one(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        after, reward, terminated = TASK.step(Car(state[0], state[1]), action, key=jax.random.key(0))
        return TASK.observe(after), reward, terminated

    return jax.vmap(one)(states, actions)


@pytest.fixture(scope="module")
def samples() -> tuple[Floats, Floats]:
    """10 000 states with too strong actions among them, many at both walls and at the speed limits."""
    rng = np.random.default_rng(0)
    states = rng.uniform([-1.2, -0.07], [0.6, 0.07], (10_000, 2))
    states[:1000, 0] = rng.uniform(-1.2, -1.15, 1000)
    states[1000:2000, 0] = rng.uniform(0.55, 0.6, 1000)
    states[2000:2100] = [-1.2, 0.0]
    states[2100:2200, 1] = 0.07
    states[2200:2300, 1] = -0.07
    return states.astype(np.float32), rng.uniform(-3, 3, (10_000, 1)).astype(np.float32)


def test_one_step_equals_gymnasium(samples: tuple[Floats, Floats]) -> None:
    env = Continuous_MountainCarEnv()
    env.reset(seed=0)
    expected, at_goal = np.empty((10_000, 2)), np.empty(10_000, bool)
    for k, (state, action) in enumerate(zip(*samples, strict=True)):
        env.state = state.astype(np.float64)
        expected[k], _, at_goal[k], _, _ = env.step(action)
    after, reward, terminated = steps(*samples)
    np.testing.assert_allclose(after, expected, rtol=0, atol=1e-6)
    # Where Gymnasium's episode would end, ours pays 1 and goes on.
    assert np.array_equal(np.asarray(reward), at_goal.astype(np.float32))
    assert not np.any(terminated)
    assert at_goal.sum() > 500
    assert (expected[:, 0] == np.float32(-1.2)).sum() > 100


@pytest.mark.parametrize(
    ("state", "action", "after", "reward"),
    [
        ((-1.19, -0.05), -1.0, (-1.2, 0.0), 0.0),  # the left wall stops the car
        ((0.59, 0.05), 1.0, (0.6, None), 1.0),  # the right wall keeps its speed
        ((0.5, -0.02), 0.0, (None, None), 0.0),  # on the hill, but rolling back
        ((0.40, 0.02), 0.0, (None, None), 0.0),  # not there yet
        ((0.44, 0.03), 0.0, (None, None), 1.0),
    ],
)
def test_walls_and_reward(
    state: tuple[float, float], action: float, after: tuple[float | None, float | None], reward: float
) -> None:
    (obs, paid, _) = steps(np.tile(np.float32(state), (10_000, 1)), np.full((10_000, 1), action, np.float32))
    for got, wanted in zip(np.asarray(obs[0]), after, strict=True):
        assert wanted is None or got == np.float32(wanted)
    assert float(paid[0]) == reward
    if state == (0.59, 0.05):
        np.testing.assert_allclose(obs[0, 1], 0.05 + 0.0015 - 0.0025 * np.cos(3 * 0.59), rtol=1e-5)


def test_actions_beyond_the_box_act_like_its_border() -> None:
    states = np.tile(np.float32([-0.5, 0.0]), (10_000, 1))
    actions = np.resize(np.float32([1.0, 7.0, -1.0, -7.0]), (10_000, 1))
    after, _, _ = steps(states, actions)
    assert np.array_equal(after[0], after[1])
    assert np.array_equal(after[2], after[3])
    assert not np.array_equal(after[0], after[2])


def test_resets_are_uniform_in_the_valley_and_at_rest() -> None:
    observed = jax.jit(jax.vmap(lambda k: TASK.observe(TASK.reset(key=k))))
    obs = observed(jax.random.split(jax.random.key(0), 5000))
    positions = np.asarray(obs[:, 0], np.float64)
    assert stats.kstest(positions, stats.uniform(-0.6, 0.2).cdf).pvalue > 1e-4
    assert not np.any(obs[:, 1])


def test_tracked_point_is_the_state() -> None:
    car = Car(jnp.asarray(0.25), jnp.asarray(-0.01))
    assert np.array_equal(TASK.track(car), np.float32([0.25, -0.01]))


@pytest.fixture(scope="module")
def make() -> Callable[[str], gymnasium.Env[Any, Any]]:
    """Each environment once: compiling them is most of the time."""
    made = {name: gymnasium.make(name) for name in IDS}
    return made.__getitem__


@pytest.mark.parametrize("name", IDS)
def test_gymnasium_accepts_the_environment(name: str, make: Callable[[str], gymnasium.Env[Any, Any]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(name).unwrapped)


@pytest.mark.parametrize("name", IDS)
def test_gymnasium_environment_follows_the_pure_task(name: str, make: Callable[[str], gymnasium.Env[Any, Any]]) -> None:
    """A whole episode: the car by `MountainCar.step`, the remote by its rules."""
    env = make(name)
    remote = {IDS[0]: None, IDS[1]: "frozen", IDS[2]: "evolving"}[name]
    obs, info = env.reset(seed=3)
    car, noise = obs[:2], obs[2:]
    assert np.array_equal(info["point"], car)
    assert not np.any(noise)
    actions = np.random.default_rng(4).uniform(-1, 1, (100, *env.action_space.shape)).astype(np.float32)
    pulls = 0
    for t, action in enumerate(actions, start=1):
        obs, reward, terminated, truncated, info = env.step(action)
        pulled = remote is not None and action[-1] > 0
        force = np.zeros(1, np.float32) if pulled and remote == "evolving" else action[:1]
        after, paid, _ = step_one(car, force)
        if pulled and remote == "frozen":
            after, paid = car, 0.0
        np.testing.assert_allclose(obs[:2], after, atol=1e-7)
        assert reward == float(paid)
        assert np.array_equal(info["point"], obs[:2])
        assert np.array_equal(obs[2:], noise) != pulled or remote is None
        assert not terminated
        assert truncated == (t == 100)
        car, noise = obs[:2], obs[2:]
        pulls += pulled
    assert pulls > 30 or remote is None


@jax.jit
def step_one(state: Floats, action: Floats) -> tuple[jax.Array, jax.Array, jax.Array]:
    after, reward, terminated = TASK.step(Car(state[0], state[1]), action, key=jax.random.key(0))
    return TASK.observe(after), reward, terminated


@pytest.mark.parametrize("name", [IDS[0], IDS[1]])
def test_seeds_repeat_whole_episodes(name: str, make: Callable[[str], gymnasium.Env[Any, Any]]) -> None:
    env = make(name)
    actions = np.random.default_rng(5).uniform(-1, 1, (20, *env.action_space.shape)).astype(np.float32)

    def episodes(seed: int | None) -> NDArray[Any]:
        seen = []
        for start in (seed, None):  # the second episode goes on from the first one's seed
            seen.append(env.reset(seed=start)[0])
            seen += [env.step(action)[0] for action in actions]
        return np.stack(seen)

    first, again, other, unseeded = (episodes(seed) for seed in (0, 0, 1, None))
    assert np.array_equal(first, again)
    assert not np.array_equal(first[0], other[0])
    assert not np.array_equal(first[0], first[21])
    assert not np.array_equal(unseeded[0], first[0])


def test_settings_reach_the_task() -> None:
    env = gymnasium.make(IDS[0], horizon=3)
    env.reset(seed=0)
    assert [env.step(np.zeros(1, np.float32))[3] for _ in range(3)] == [False, False, True]


def test_step_before_reset_is_refused() -> None:
    env = gymnasium.make(IDS[0], disable_env_checker=True).unwrapped
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(1, np.float32))


def test_wrong_setting_is_named() -> None:
    with pytest.raises(curiax.UsageError, match="horizn"):
        gymnasium.make(IDS[0], horizn=3)
