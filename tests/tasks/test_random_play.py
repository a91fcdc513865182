"""Random play before training: its stacks against a fleet that stacks them itself, and what a model measures on it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from curiax.envs.atari import Atari
from curiax.experiments.spec import Experiment, resolve
from curiax.train import frames
from curiax.train.lanes import open_lanes
from curiax.train.random_play import PLAYERS, moments_of, random_play

SIDE, COUNT = 36, 20


def listening(fleet: Any) -> list[tuple[str, list[np.ndarray]]]:
    """The calls that a fleet will get: name and arguments."""
    calls = []

    def recorded(name: str, call: Any) -> Any:
        def record(*given: Any) -> None:
            calls.append((name, [np.array(each) for each in given]))
            call(*given)

        return record

    fleet.reset, fleet.step = recorded("reset", fleet.reset), recorded("step", fleet.step)
    return calls


def stacks(frames: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Observations from numbers of frames, −1 for black."""
    found = np.where((numbers < 0)[..., None, None], 0, frames[np.maximum(numbers, 0)])
    return np.moveaxis(found, 1, -1)


@pytest.mark.parametrize(("horizon", "steps"), [(7, 320), (None, 16 * 240)])
def test_stacks_are_those_of_a_fleet_that_stacks_them_itself(horizon: int | None, steps: int) -> None:
    """Games of 7 steps, or whole ones, told the same once more: every step's observation, that of a new game where one
    ended; black frames before it. All actions are drawn, and what is measured is measured on these stacks."""
    task = Atari(game="breakout", side=SIDE, random_steps=steps, horizon=horizon or 4501)
    fleets = [task.open(COUNT, 1, stacked=False) for _ in range(2)]
    calls_of_fleets = list(map(listening, fleets))
    frames, numbers = random_play(task, fleets, np.random.default_rng(0))
    assert len(numbers) == steps
    seen, drawn, seeds, ended = [], [], [], 0
    for fleet, calls in zip(fleets, calls_of_fleets, strict=True):
        other = task.open(COUNT, 1)
        moving, length = np.zeros(COUNT, bool), np.zeros(COUNT, int)
        shown: list[np.ndarray] = []
        for what, args in calls:
            if what == "step":
                actions, _, still = args
                moving = ~still
                drawn += actions[moving].tolist()
                other.step(*args)
                shown.append(other.obs.copy())
                length += 1
                over = moving & (other.terminated | (length >= (horizon or 4501)))
                ended, length[over] = ended + over.sum(), 0
            else:
                other.reset(*args)
                seeds += args[0][args[1] if len(args) > 1 else slice(None)].tolist()
                if shown:
                    shown[-1] = other.obs.copy()
        seen.append(np.stack(shown)[:, moving].reshape(-1, *other.obs.shape[1:]))
        # Spread over the fleet, so that all its processes have some to play.
        assert moving.sum() == PLAYERS // 2
        assert moving[0]
        assert moving[-1]
        other.close()
        fleet.close()
    expected = np.concatenate(seen)
    np.testing.assert_array_equal(stacks(frames, numbers), expected)
    # A game's first observation has three black frames; the very first is not among the steps.
    assert (numbers[:, :3] < 0).all(1).sum() == ended > 0
    assert len(set(seeds)) == len(seeds) > 2 * COUNT
    assert np.bincount(drawn, minlength=4).min() > len(drawn) / 6
    mean, deviation = moments_of(frames, numbers)
    np.testing.assert_allclose(mean, expected.mean(0), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(deviation, expected.astype(np.float64).std(0).mean(), rtol=1e-5)


def test_features_are_standardised_on_random_play(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frozen network's features of what it sees there have mean 0 and deviation 1 (card 4b)."""
    few = {"task.random_steps": 96, "loop.envs": 4, "ppo.minibatch_size": 16, "learner.minibatch_size": 16}
    plan = resolve(Experiment("atari:breakout", "lbs", 1, preset="small", settings=few))
    plays: list[Any] = []
    lanes: Any

    def listened(task: Any, fleets: Any, rng: Any) -> Any:
        assert len(fleets) == 2, "both groups play"
        plays.append(random_play(task, fleets, rng))
        return plays[-1]

    monkeypatch.setattr(frames, "random_play", listened)
    lane, other = lanes = open_lanes(plan.setup, [3, 4])
    for each in lanes:
        each._play_at_random()
    target = jax.tree.map(lambda x: x[0] if isinstance(x, jax.Array) else x, lane.train_state.agent.curiosity.target)
    mean, deviation = (np.asarray(part, np.float64) for part in lane.pixels)
    lane.close()
    other.close()
    assert not np.array_equal(plays[0][0], plays[1][0]), "each seed plays its own games"
    seen = (stacks(*plays[0]) - mean) / (deviation + 1e-8)
    features = np.asarray(jax.vmap(target)(jnp.asarray(seen, jnp.float32)), np.float64)
    np.testing.assert_allclose(features.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(features.std(0), 1, atol=1e-3)
