"""Noisy MNIST: its data, its transitions, the ratio that is measured on it."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import curiax
from curiax._types import Discrete, Rollout, Spec
from curiax.envs import MountainCar, NoisyMNIST
from curiax.envs.noisy_mnist import mnist
from curiax.experiments import saved
from curiax.experiments.folder import read_manifest, read_metrics
from curiax.experiments.spec import Experiment, resolve, scaled_image
from curiax.report.record import read_run
from curiax.testing import check_task
from curiax.testing.methods import random_steps
from curiax.train.batch import first_states
from curiax.train.loop import collect
from curiax.train.measures import bonus_metrics

#: A run small enough for a test; the task's own sizes are 128 environments and 4 steps.
SMALL = {"loop.envs": 4, "loop.rollout": 2, "learner.minibatch_size": 4, "ppo.minibatch_size": 4}


def test_data_is_the_original() -> None:
    """The published digests are those of the original files, header included."""
    pictures, labels = mnist()
    images = struct.pack(">4i", 2051, 10_000, 28, 28) + pictures.tobytes()
    assert hashlib.md5(images).hexdigest() == "2646ac647ad5339dbf082846283269ea"
    assert hashlib.md5(struct.pack(">2i", 2049, 10_000) + labels.tobytes()).hexdigest() == (
        "27ae3e4e09519cfbb04c329615203637"
    )
    assert np.bincount(labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


def test_transitions() -> None:
    """Half begin at a 0, half at a 1; each goes to a picture drawn uniformly from those it may go to."""
    task, (pictures, labels) = NoisyMNIST(), mnist()
    keys = jax.random.split(jax.random.key(0), (2, 40_000))

    @jax.jit
    @jax.vmap
    def transition(first, second):
        before = task.reset(key=first)
        after, _, terminated = task.step(before, jnp.zeros((), jnp.int32), key=second)
        return before.number, after.number, task.track(after), terminated

    before, after, points, terminated = map(np.asarray, transition(*keys))
    assert not terminated.any()
    assert task.spec.horizon == 1
    assert np.array_equal(points, np.stack([labels[before], labels[after]], axis=1))
    zero = labels[before] == 0
    assert np.all(labels[before] <= 1)
    assert stats.binomtest(int(zero.sum()), len(zero)).pvalue > 1e-3
    assert np.all(labels[after][zero] == 1)
    assert np.all(labels[after][~zero] >= 2)
    drawn = ((before[zero], labels == 0), (before[~zero], labels == 1), (after[zero], labels == 1))
    for numbers, group in (*drawn, (after[~zero], labels >= 2)):
        assert stats.chisquare(np.bincount(numbers, minlength=10_000)[group]).pvalue > 1e-3
    # Where a transition goes has nothing to do with which picture it begins at.
    table = np.histogram2d(before[zero] % 5, after[zero] % 5, bins=5)[0]
    assert stats.chi2_contingency(table).pvalue > 1e-3
    picture = task.observe(jax.tree.map(lambda x: x[0], task.samples().states))
    assert np.allclose(np.asarray(picture)[:, :, 0], pictures[labels == 1][0] / 255, rtol=1e-6)


def test_samples_are_of_both_kinds() -> None:
    task, labels = NoisyMNIST(), mnist()[1]
    samples = task.samples()
    assert [labels[k] for k in samples.states.number] == [1] * 6 + [0] * 6
    assert [labels[k] for k in samples.next_states.number] == [2, 3, 4, 5, 7, 9] + [1] * 6
    kinds = jax.vmap(lambda state: task.kind(task.track(state)))(samples.next_states)
    assert kinds.tolist() == [0] * 6 + [1] * 6
    assert task.compared == ("1 → 2…9", "0 → 1")
    assert len({*np.asarray(samples.states.number).tolist(), *np.asarray(samples.next_states.number).tolist()}) == 24


def test_contract() -> None:
    check_task(NoisyMNIST)


def test_ratio() -> None:
    """Against NumPy, on valid steps only; 1 where there is nothing to divide by, nothing for tasks without kinds."""
    task, rng = NoisyMNIST(), np.random.default_rng(0)
    steps = random_steps(task.spec, (5, 7))
    left = rng.integers(0, 2, (5, 7))
    rollout = Rollout(steps, steps.next_obs, jnp.asarray(np.stack([left, left + 1], -1), jnp.float32))
    bonus, valid = rng.random((5, 7)).astype(np.float32), rng.random((5, 7)) < 0.7
    found = bonus_metrics(task, rollout, jnp.asarray(bonus), jnp.asarray(valid))
    first, second = bonus[valid & (left == 1)].mean(), bonus[valid & (left == 0)].mean()
    for name, expected in (("first", first), ("second", second), ("bonus", first / second)):
        assert found[f"ratio/{name}"] == pytest.approx(expected, rel=1e-5)
    assert bonus_metrics(task, rollout, jnp.zeros((5, 7)), jnp.asarray(valid))["ratio/bonus"] == 1.0
    car = random_steps(MountainCar().spec, (5, 7))
    elsewhere = Rollout(car, car.next_obs, jnp.zeros((5, 7, 2)))
    other = bonus_metrics(MountainCar(), elsewhere, jnp.asarray(bonus), jnp.asarray(valid))
    assert not [name for name in other if name.startswith("ratio/")]


def test_settings() -> None:
    """The paper's batches of 128; β and target as settled; nobody chooses actions; pixels are not standardised."""
    plan = resolve(Experiment("mnist", "lbs", seeds=10))
    agent: Any = plan.setup.agent
    loop, learner = plan.setup.loop, agent.learner.settings
    assert (loop.envs, learner.minibatch_size, learner.epochs, learner.learning_rate) == (128, 128, 1, 1e-4)
    assert plan.steps == 6_000 * 128
    assert (loop.normalise_obs, loop.successor) == (False, "true")
    assert (plan.settings["method.beta"], plan.settings["method.target"]) == (10.0, "pixels")
    assert type(agent.policy).__name__ == "Uniform"
    assert resolve(Experiment("mnist", "lbs", preset="curiax")).setup.loop.rollout == loop.rollout
    assert resolve(Experiment("mountain-car", "lbs")).setup.loop.normalise_obs
    pixels = 6 * 6 * 2
    assert scaled_image(Spec((6, 6, 2), Discrete(2), obs_low=(0.0,) * pixels, obs_high=(1.0,) * pixels))
    assert not scaled_image(Spec((6, 6, 2), Discrete(2), obs_low=(0.0,) * pixels, obs_high=(255.0,) * pixels))


def test_run(tmp_path) -> None:
    """A whole run: calibrated on its first observations, the ratio and the samples in its record, read back exactly."""
    experiment = Experiment("mnist", "disagreement", seeds=2, steps=24, settings={**SMALL, "method.width": 8})
    curiax.run(experiment, tmp_path / "run")

    # What a method sees first has nothing to do with which method it is.
    idle = resolve(replace(experiment, method="random", settings=SMALL))
    states = first_states(idle.setup, idle.seeds)
    rollouts = jax.jit(jax.vmap(lambda state: collect(idle.setup, state)[1]))(states)
    for seed, seen in enumerate(rollouts.step.next_obs):
        model = saved.read(tmp_path / "run")[1].one(seed).networks.curiosity
        features = jax.vmap(model.target)(seen.reshape(8, 28, 28, 1))
        assert np.allclose(features.mean(0), 0, atol=1e-3)
        assert np.allclose(features.std(0), 1, atol=1e-3)

    record = read_run(tmp_path / "run")
    assert record is not None
    assert record.maps["samples/bonus"].shape == (3, 12)
    for name in ("bonus", "first", "second"):
        assert record.curves[f"ratio/{name}"].shape == (2, 3)
    table = read_metrics(tmp_path / "run", read_manifest(tmp_path / "run"))
    assert np.allclose(table["ratio/bonus"], table["ratio/first"] / table["ratio/second"], rtol=1e-5)
    trained = curiax.load(tmp_path / "run")
    assert trained.act(np.zeros((28, 28, 1), np.float32), deterministic=False, rng=0) == 0
