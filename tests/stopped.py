"""Runs that are stopped in the middle: what the tests of runs share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small import SMALL

import curiax
from curiax.experiments.progress import Silent
from curiax.experiments.writer import CheckpointWriter

IDENTITY = {"task": "t", "settings": {}, "seeds": [3, 5]}


EVERY_BORDER = curiax.RunOptions(checkpoint_seconds=0.0)


class At(Silent):
    """Does something when a run reaches an iteration."""

    def __init__(self, iteration: int, act: Callable[[], None]) -> None:
        self.iteration, self.act, self.messages = iteration, act, list[str]()

    def advance(self, iteration: int, latest: Mapping[str, np.ndarray]) -> None:
        if iteration == self.iteration:
            self.act()

    def say(self, text: str) -> None:
        self.messages.append(text)


def wait_for_saves(patch: pytest.MonkeyPatch) -> None:
    save = CheckpointWriter.save

    def save_and_wait(writer: CheckpointWriter, *args: Any) -> None:
        save(writer, *args)
        writer.wait()

    patch.setattr(CheckpointWriter, "save", save_and_wait)


def send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def crash() -> None:
    raise MemoryError("as good as killed")


def experiment(
    task: str = "mountain-car", method: str = "ngu", iterations: int = 10, **changes: Any
) -> curiax.Experiment:
    """With everything that a run can carry: a memory of episodes, a pool of rollouts, several environments.

    Where only signals, files and folders matter, `random` does, which is compiled in less than half of the time.
    """
    small = {**SMALL, "loop.envs": 2, "loop.rollout": 64, "learner.replay": 2, **changes}
    return curiax.Experiment(task, method, seeds=(0, 4, 7), steps=128 * iterations, settings=small)


def steps(store: Path) -> list[str]:
    return sorted(path.name for path in store.glob("step-*"))


FACTS = {
    "layout": 1,
    "team": 1,
    "lost": {},
    "versions": {},
    "notes": {},
    "code": "0" * 32,
    "platform": "cpu",
    "started": "now",
    "seconds": {"start": 0.0, "train": 0.0, "cpu": 0.0},
    "continued": [],
    "on_nonfinite": ["stop"],
}
