"""Playing at random before training on emulators: what pixels look like is measured once, on that."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, UInt8

from ..envs import AbstractEmulatorTask, EmulatorFleet

#: So many environments play at random: a few that see whole games rather than many beginnings.
PLAYERS = 16


def random_play(
    task: AbstractEmulatorTask, fleets: Sequence[EmulatorFleet], rng: np.random.Generator
) -> tuple[UInt8[np.ndarray, "count side side"], Int[np.ndarray, "steps stack"]]:
    """Frames of random play, and which of them each step's observation is made of."""
    side, _, stack = task.spec.obs_shape
    each = [min(fleet.count, math.ceil(PLAYERS / len(fleets))) for fleet in fleets]
    horizon = task.spec.horizon or np.inf
    steps = math.ceil(task.random_steps / sum(each))
    all_frames, all_numbers, before = [], [], 0
    for fleet, players in zip(fleets, each, strict=True):
        # Those of as many processes as possible.
        who = np.unique(np.linspace(0, fleet.count - 1, players).round().astype(int))
        still = np.ones(fleet.count, bool)
        still[who] = False
        frames, rows = (
            np.zeros((steps + 1, len(who), side, side), np.uint8),
            np.zeros((steps + 1, len(who), stack), int),
        )
        age, length, back = np.zeros(len(who), int), np.zeros(len(who), int), np.arange(stack - 1, -1, -1)
        fleet.reset(rng.integers(2**32, size=fleet.count, dtype=np.uint32))
        frames[0] = fleet.frame[who]
        for t in range(1, steps + 1):
            fleet.step(rng.integers(task.spec.action.size, size=fleet.count), np.zeros(fleet.count, np.uint32), still)
            age, length = age + 1, length + 1
            ended = fleet.terminated[who] | (length >= horizon)
            if ended.any():
                chosen = np.zeros(fleet.count, bool)
                chosen[who[ended]] = True
                fleet.reset(rng.integers(2**32, size=fleet.count, dtype=np.uint32), chosen)
                age[ended], length[ended] = 0, 0
            frames[t] = fleet.frame[who]
            rows[t] = np.where(back <= age[:, None], t - back, -1)
        numbers = np.where(rows < 0, -1, before + rows * len(who) + np.arange(len(who))[:, None])
        all_frames.append(frames.reshape(-1, side, side))
        all_numbers.append(numbers[1:].reshape(-1, stack))
        before += len(all_frames[-1])
    return np.concatenate(all_frames), np.concatenate(all_numbers).astype(np.int32)


def moments_of(
    frames: UInt8[np.ndarray, "count side side"], numbers: Int[np.ndarray, "steps stack"]
) -> tuple[np.ndarray, np.ndarray]:
    """The mean of each pixel of stacked frames, and the mean over pixels of their deviations."""
    places = [numbers[:, k] for k in range(numbers.shape[1])]
    sums, squares = np.zeros((2, *frames.shape[1:], len(places)))
    for k, place in enumerate(places):
        for part in np.array_split(place[place >= 0], 64):
            pixels = frames[part].astype(np.float64)
            sums[..., k] += pixels.sum(0)
            squares[..., k] += np.square(pixels).sum(0)
    mean = sums / len(numbers)
    deviation = np.sqrt(np.maximum(squares / len(numbers) - mean**2, 0.0)).mean()
    return mean.astype(np.float32), np.asarray(deviation, np.float32)
