"""Emulators on the host: `M` machines, some in each of several processes, stepped side by side.

Frames, actions and scores lie in memory that all processes share; a step costs one byte to each process and one back.
A process that dies is noticed at once, one that hangs after `PATIENCE` seconds, and neither harms the others.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import json
import mmap
import os
import selectors
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Float, Shaped

from .._errors import SimulatorError
from .._metrics import Metric
from . import _emulator_worker as worker
from ._host import AbstractFleet, AbstractHostTask, Mask, Seeds, require_like

#: Seconds that a process may take for one step of all its emulators, and to start.
PATIENCE, STARTING = 5.0, 60.0
#: Of the machines.
FRAMES_PER_SECOND = 60
#: Steps of random play before training, in the paper.
RANDOM_STEPS = 10_000


def game_metrics(score: str, unit: str) -> tuple[Metric, ...]:
    """What every game measures; `score` is what the sum of its rewards is called."""
    none: dict[str, Any] = {"low": 0.0, "digits": 1, "missing": "no episode has ended yet"}
    mean = "Mean over the episodes that ended in a rollout."
    ever = "Of any episode so far."
    return (
        Metric("score", score, unit, mean, better="higher", rank=60, **none),
        Metric("length", "episode length", "steps", mean, rank=2, **none),
        Metric("best", f"best {score}", unit, ever, better="higher", end="last", across="max", rank=2, **none),
        Metric("episodes", "episodes finished", end="last", across="sum", low=0.0, digits=0, rank=2),
    )


def true_speed(skip: int) -> int:
    """Steps that a machine makes in a second, where each is so many frames."""
    return max(1, round(FRAMES_PER_SECOND / skip))


class AbstractEmulatorTask(AbstractHostTask):
    """A game: what is seen of it is a stack of frames, which whoever trains on it keeps once and stacks itself."""

    #: Steps of random play before training: mean and deviation of pixels are measured on them and kept.
    random_steps: eqx.AbstractVar[int]
    screen: ClassVar[bool] = True

    @property
    def preparation(self) -> str:
        return f"{self.random_steps:,} steps are played at random first, to measure what pixels are like"

    group: ClassVar[str] = "game"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return game_metrics("score", "")

    @abc.abstractmethod
    def open(self, count: int, threads: int = 1, stacked: bool = True) -> EmulatorFleet:
        """A fleet of `count` machines in so many processes; not `stacked`, it shows the newest frames alone."""


class EmulatorFleet(AbstractFleet):
    """Machines of one kind with one game in them.

    What is seen is a stack of the newest frames, `[M, side, side, 4]` bytes, the newest last; after a reset the older
    ones are black. `frame [M, side, side]` is the newest alone. Whoever stacks frames elsewhere says `stacked=False`:
    then `obs` shows the newest alone too, `[M, side, side, 1]`, and no other is kept.
    """

    def __init__(
        self,
        machine: str,
        settings: Mapping[str, Any],
        count: int,
        processes: int,
        facts: int = 0,
        side: int = worker.SIDE,
        stacked: bool = True,
    ) -> None:
        processes = max(1, min(processes, count))
        self.count = count
        #: The number of its first emulator, where it is one of several fleets: for messages.
        self.first = 0
        self._what = f"the emulators of {settings.get('game', machine)!r}"
        with tempfile.NamedTemporaryFile(dir=shared_folder(), prefix=f"curiax-{os.getpid()}-") as file:
            sizes = worker.Sizes(count, processes, facts, side, worker.STACK if stacked else 1)
            file.truncate(worker.size_of(sizes))
            self._memory = mmap.mmap(file.fileno(), 0)
            shared = worker.views(self._memory, sizes)
            borders = np.linspace(0, count, processes + 1).astype(int).tolist()
            order = {"memory": file.name, "machine": machine, "settings": dict(settings), "sizes": sizes}
            self._processes = [
                start({**order, "number": k, "first": borders[k], "last": borders[k + 1]}) for k in range(processes)
            ]
            self._answers = selectors.DefaultSelector()
            # Whatever becomes of the fleet, its processes end with it.
            self._end = weakref.finalize(self, end, self._processes, self._answers)
            self._borders, self._shared = borders, shared
            self._all = range(processes)
            for number, process in enumerate(self._processes):
                assert process.stdout is not None
                self._answers.register(process.stdout, selectors.EVENT_READ, number)
            self._remedy = ""
            self._gather(self._all, STARTING)
            self._remedy = " The run can be continued from its last checkpoint by the same command."
        self._stack, self.last = shared["stack"], shared["last"]
        self.frame, self.obs = self._stack[:, -1], np.moveaxis(self._stack, 1, -1)
        self.record = np.zeros((count, 1 + facts))
        self.terminated, self.truncated = shared["over"], np.zeros(count, bool)

    def reset(self, seeds: Seeds, who: Mask | None = None) -> None:
        chosen = np.ones(len(self.frame), bool) if who is None else who
        self._shared["seed"][:] = seeds
        self._order(worker.RESET, chosen)
        self._note(chosen)

    def step(self, actions: Shaped[np.ndarray, " M"], seeds: Seeds, still: Mask | None = None) -> None:
        self.begin_step(actions, still)
        self.end_step()

    def begin_step(self, actions: Shaped[np.ndarray, " M"], still: Mask | None = None) -> None:
        """Let the emulators work, and return at once."""
        self._shared["action"][:] = actions
        self._shared["chosen"][:] = True if still is None else ~still
        self._send(worker.STEP, self._all)

    def begin_play(self, actions: Shaped[np.ndarray, " M"], seeds: Seeds, due: Mask) -> None:
        """The same, and games that end with this step, or are `due` to end, begin anew from a seed at once.

        What they ended with is in `last`; record and `terminated` are of the step.
        """
        self._shared["action"][:], self._shared["seed"][:], self._shared["due"][:] = actions, seeds, due
        self._shared["chosen"][:] = True
        self._send(worker.PLAY, self._all)

    def end_step(self) -> None:
        """Wait for what was begun."""
        self._gather(self._all, PATIENCE)
        self._note(self._shared["chosen"])

    def _note(self, who: Mask) -> None:
        """Keep what the last step or reset of some emulators led to."""
        self.record[who, 0], self.record[who, 1:] = self._shared["reward"][who], self._shared["facts"][who]

    def measure(self, record: Float[np.ndarray, "*lead entries"]) -> tuple[np.ndarray, np.ndarray]:
        return record[..., 1:], record[..., 0]

    def state(self) -> dict[str, np.ndarray]:
        self._order(worker.SAVE)
        sizes = self._shared["state_size"]
        machines = [self._shared["state"][row, : sizes[row]] for row in range(len(sizes))]
        return {
            "machines": np.concatenate(machines),
            "sizes": sizes.copy(),
            "stack": self._stack.copy(),
            "record": self.record.copy(),
            "over": self.terminated.copy(),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        like = {"machines": np.zeros(0, np.uint8), "sizes": self._shared["state_size"], "stack": self._stack}
        require_like(state, {**like, "record": self.record, "over": self.terminated}, growing=("machines",))
        sizes, machines = state["sizes"], state["machines"]
        if not ((sizes >= 0) & (sizes <= worker.STATE)).all() or sizes.sum() != len(machines):
            raise ValueError(f"machines has {len(machines)} bytes, not the {sizes.sum()} of sizes")
        for row, part in enumerate(np.split(machines, np.cumsum(sizes)[:-1])):
            self._shared["state"][row, : len(part)] = part
        self._shared["state_size"][:] = sizes
        self._order(worker.LOAD)
        self._stack[:], self.record[:], self.terminated[:] = state["stack"], state["record"], state["over"]

    def render(self, index: int, width: int, height: int) -> np.ndarray:
        from PIL import Image

        self._order(worker.DRAW, np.arange(len(self.frame)) == index)
        number = int(np.searchsorted(self._borders, index, side="right")) - 1
        rows, across = self._shared["screen_size"][number]
        picture = Image.fromarray(self._shared["screen"][number, :rows, :across].copy())
        return np.asarray(picture.resize((width, height), Image.Resampling.NEAREST))

    def close(self) -> None:
        self._end()

    def _order(self, command: bytes, chosen: Mask | None = None) -> None:
        """Have every process with a chosen emulator do something, and wait for it."""
        self._shared["chosen"][:] = True if chosen is None else chosen
        those: Sequence[int] = self._all
        if chosen is not None:
            parts = enumerate(itertools.pairwise(self._borders))
            those = [number for number, (first, last) in parts if chosen[first:last].any()]
        self._send(command, those)
        self._gather(those, PATIENCE)

    def _send(self, command: bytes, those: Sequence[int]) -> None:
        for number in those:
            stdin = self._processes[number].stdin
            assert stdin is not None
            # A process that is gone is spoken of when its answer is waited for.
            with contextlib.suppress(BrokenPipeError, ValueError):
                stdin.write(command)

    def _gather(self, those: Sequence[int], patience: float) -> None:
        """Wait for the answers of some processes; a failure, an end or silence is an error."""
        deadline, waiting = time.monotonic() + patience, set(those)
        while waiting:
            ready = self._answers.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                late = min(waiting)
                self.close()
                raise SimulatorError(
                    f"{self._what}: process {late} gave no answer within {patience:g} s ({self._rows(late)})."
                    f"{self._remedy}"
                )
            for key, _ in ready:
                waiting.discard(key.data)
                self._heed(key.data, os.read(key.fd, 1))

    def _heed(self, number: int, answer: bytes) -> None:
        """Pass over a process that has done what it was told; raise what another one says."""
        if answer == worker.DONE:
            return
        if answer == worker.FAILED:
            message = self._shared["message"][number].tobytes().rstrip(b"\0").decode(errors="replace")
            raise SimulatorError(f"{self._what} failed ({self._rows(number)}): {message}.{self._remedy}")
        process = self._processes[number]
        code, last = process.wait(), last_line(process)
        self.close()
        raise SimulatorError(
            f"{self._what}: process {number} ended with exit code {code} ({self._rows(number)}){last}.{self._remedy}"
        )

    def _rows(self, number: int) -> str:
        first, last = self.first + self._borders[number], self.first + self._borders[number + 1] - 1
        return f"environment {first}" if first == last else f"environments {first} to {last}"


def start(order: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    """A process for some emulators; it answers once when it is ready."""
    # -P: the folder of the script holds no modules for it.
    command = [sys.executable, "-P", str(Path(worker.__file__)), json.dumps(order)]
    pipe = subprocess.PIPE
    # A group of its own: Ctrl-C is for the training, which ends its emulators itself.
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, process_group=0)


def end(processes: Sequence[subprocess.Popen[bytes]], answers: selectors.BaseSelector) -> None:
    """End the processes: at once, as they have nothing to save."""
    answers.close()
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def last_line(process: subprocess.Popen[bytes]) -> str:
    """The last thing that a process said of itself, as the end of a sentence."""
    assert process.stderr is not None
    lines = process.stderr.read().decode(errors="replace").strip().splitlines()
    return f": {lines[-1]}" if lines else ""


def shared_folder() -> str | None:
    """Where files lie in memory, if there is such a place."""
    return "/dev/shm" if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK) else None
