"""The noisy remote against a plain NumPy model of the card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from curiax import AbstractTask, Axis, Box, Discrete, Grid, NoisyRemote, RemoteSettings, Spec
from curiax.envs import MountainCar
from curiax.envs.mountain_car import Car
from curiax.envs.remote import Screen

Doubles = NDArray[np.float64]


class Walk(AbstractTask):
    """A walk on a line: left, stay, right; its end terminates."""

    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)

    def __init__(self) -> None:
        self.spec = Spec((1,), Discrete(3), 20)
        self.grids = (Grid("line", (Axis("x", -4.0, 4.0, 8),), "floor"),)

    def reset(self, *, key: jax.Array) -> jax.Array:
        return jnp.zeros(())

    def step(self, state: jax.Array, action: jax.Array, *, key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        state = state + action - 1.0
        return state, 10.0 * state, state >= 3

    def observe(self, state: jax.Array) -> jax.Array:
        return state[None]

    def track(self, state: jax.Array) -> jax.Array:
        return state[None]


@dataclass
class Card:
    """Card 2 in plain NumPy for Mountain Car; fresh noise is what the library drew."""

    mode: str
    between: str

    def step(
        self, car: NDArray[Any], noise: NDArray[Any], action: NDArray[Any], drawn: NDArray[Any]
    ) -> tuple[Any, ...]:
        pulled = action[-1] > 0
        noise = drawn if pulled or self.between == "fresh" else noise
        if pulled and self.mode == "frozen":
            return car, noise, 0.0
        force = 0.0 if pulled else float(np.clip(action[0], -1, 1))
        x, v = car
        v = np.clip(v + 0.0015 * force - 0.0025 * np.cos(3 * x), -0.07, 0.07)
        x = np.clip(x + v, -1.2, 0.6)
        v = 0.0 if x <= -1.2 and v < 0 else v
        return np.array([x, v]), noise, float(x >= 0.45 and v >= 0)


@pytest.mark.parametrize(("between", "dims"), [("hold", 1), ("fresh", 3)])
@pytest.mark.parametrize("mode", ["frozen", "evolving"])
def test_mountain_car_with_a_remote_follows_the_card(mode: Any, between: Any, dims: int) -> None:
    task = NoisyRemote(MountainCar(), RemoteSettings(mode, dims, between))
    rng = np.random.default_rng(0)
    actions = (1.5 * rng.normal(size=(300, 2))).astype(np.float32)
    # Starts on the right hill, so that rewards of 1 occur and frozen steps have something to withhold.
    start = Screen(Car(jnp.asarray(0.3), jnp.asarray(0.06)), jnp.zeros(dims))

    @jax.jit
    def follow(actions: jax.Array, keys: jax.Array) -> Any:
        def step(state: Screen, now: tuple[jax.Array, jax.Array]) -> Any:
            state, reward, terminated = task.step(state, now[0], key=now[1])
            return state, (task.observe(state), task.track(state), reward, terminated)

        return jax.lax.scan(step, start, (actions, keys))[1]

    obs, points, rewards, terminated = follow(actions, jax.random.split(jax.random.key(1), 300))
    card, car, noise = Card(mode, between), np.array([0.3, 0.06]), np.zeros(dims)
    for t in range(300):
        car, noise, reward = card.step(car, noise, actions[t], np.asarray(obs[t, 2:]))
        np.testing.assert_allclose(obs[t, :2], car, atol=1e-5)
        assert np.array_equal(obs[t, 2:], noise)
        assert float(rewards[t]) == reward
        car = np.asarray(obs[t, :2], np.float64)  # each step on its own: rounding must not build up
    assert np.array_equal(points, obs[:, :2])
    assert not np.any(terminated)
    assert 0 < float(rewards.sum()) < 300
    changed = (np.diff(np.asarray(obs[:, 2:]), axis=0) != 0).all(axis=1)
    assert np.array_equal(changed, actions[1:, -1] > 0) if between == "hold" else changed.all()


@pytest.mark.parametrize("threshold", [0.0, -0.0, -1e-6, -5.0])
def test_the_remote_is_pulled_above_zero_only(threshold: float) -> None:
    task = NoisyRemote(MountainCar(), RemoteSettings("frozen"))
    start = Screen(Car(jnp.asarray(-0.5), jnp.asarray(0.01)), jnp.full(1, 0.25))
    after, _, _ = task.step(start, jnp.asarray([0.0, threshold]), key=jax.random.key(0))
    assert float(after.noise[0]) == 0.25
    assert float(after.inner.position) != -0.5
    pulled, _, _ = task.step(start, jnp.asarray([0.0, 1e-6]), key=jax.random.key(0))
    assert float(pulled.noise[0]) != 0.25
    assert float(pulled.inner.position) == -0.5


def test_noise_is_uniform_and_independent_between_dimensions() -> None:
    task = NoisyRemote(MountainCar(), RemoteSettings("frozen", noise_dims=2))
    start = task.reset(key=jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 5000)
    noise = np.asarray(jax.jit(jax.vmap(lambda k: task.step(start, jnp.ones(2), key=k)[0].noise))(keys), np.float64)
    for column in noise.T:
        assert stats.kstest(column, stats.uniform(-1, 2).cdf).pvalue > 1e-4
    assert abs(np.corrcoef(noise.T)[0, 1]) < 4 / np.sqrt(5000)


def test_reset_shows_zero_and_starts_the_task() -> None:
    task = NoisyRemote(MountainCar(), RemoteSettings("evolving", noise_dims=2))
    obs = task.observe(task.reset(key=jax.random.key(7)))
    inner = MountainCar()
    assert np.array_equal(obs, [*np.asarray(inner.observe(inner.reset(key=jax.random.key(7)))), 0.0, 0.0])


@pytest.mark.parametrize(("mode", "idle"), [("frozen", 0), ("evolving", 0), ("evolving", 1), ("evolving", 2)])
def test_discrete_task_gets_one_choice_more(mode: Any, idle: int) -> None:
    task = NoisyRemote(Walk(), RemoteSettings(mode, idle_action=idle))
    assert task.spec.action == Discrete(4)
    step = jax.jit(lambda s, a, k: task.step(s, a, key=k))
    x, noise = 0.0, np.zeros(1)
    state = task.reset(key=jax.random.key(0))
    for t, action in enumerate([2, 3, 2, 0, 1, 3, 3, 2, 2, 2, 2, 3]):
        state, reward, terminated = step(state, jnp.asarray(action), jax.random.key(t))
        pulled = action == 3
        stopped = pulled and mode == "frozen"
        x += 0.0 if stopped else (idle if pulled else action) - 1.0
        assert float(task.track(state)[0]) == x
        assert float(reward) == (0.0 if stopped else 10.0 * x)
        assert bool(terminated) == (not stopped and x >= 3)
        assert (state.noise[0] != noise[0]) == pulled
        noise = np.asarray(state.noise)


def test_a_frozen_step_does_not_terminate_again() -> None:
    task = NoisyRemote(Walk(), RemoteSettings("frozen"))
    _, reward, terminated = task.step(Screen(jnp.asarray(3.0), jnp.zeros(1)), jnp.asarray(3), key=jax.random.key(0))
    assert not bool(terminated)
    assert float(reward) == 0.0


def test_spec_grows_and_grids_stay() -> None:
    inner = MountainCar()
    task = NoisyRemote(inner, RemoteSettings("frozen", noise_dims=3))
    assert task.spec.obs_shape == (5,)
    assert task.spec.action == Box((-1.0, -1.0), (1.0, 1.0))
    assert task.spec.obs_low == (-1.2, -0.07, -1.0, -1.0, -1.0)
    assert task.spec.obs_high == (0.6, 0.07, 1.0, 1.0, 1.0)
    assert task.spec.horizon == 100
    assert task.grids == inner.grids
    assert task.stochastic
    assert not inner.stochastic
    assert NoisyRemote(Walk(), RemoteSettings("frozen")).spec.obs_low is None


class Picture(Walk):
    def __init__(self) -> None:
        self.spec, self.grids = Spec((2, 2), Discrete(3), 20), ()


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"vector observations.*\(2, 2\)"):
        NoisyRemote(Picture(), RemoteSettings("frozen"))
    with pytest.raises(ValueError, match=r"remote\.idle_action.*3 actions"):
        NoisyRemote(Walk(), RemoteSettings("evolving", idle_action=3))
