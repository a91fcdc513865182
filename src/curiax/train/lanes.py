"""Running lanes side by side, and putting all of them aside at one and the same iteration without a halt."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle, islice
from typing import NamedTuple

import numpy as np

from ..envs import AbstractEmulatorTask
from .batch import HostReport
from .devices import cpu_cores, in_thread, lane_devices, teams
from .frames import FrameLane
from .hosted import Lane
from .lane import AbstractLane
from .loop import Setup

#: No lane is further ahead of the slowest, nor of whoever takes what it delivers: a border that all lanes have still
#: before them is never far away, and no heap of undelivered metrics grows.
LEAD = 2


class Delivery(NamedTuple):
    """What lanes hand over after one iteration: the report `[S]`, and each lane's state where it was asked for."""

    report: HostReport
    states: list[dict[str, np.ndarray]] | None


#: What one lane hands over: its report or the promise of it, and its state where it was asked for.
Part = tuple[HostReport | Future[HostReport], dict[str, np.ndarray] | None]


class Border:
    """Lanes never wait for a checkpoint: each puts its state aside as it passes the iteration that was agreed on."""

    def __init__(self, lanes: int, first: int = 0) -> None:
        self._news = threading.Condition()
        #: The iteration that each lane is in.
        self._running, self._taken, self._agreed = [first] * lanes, first, -1
        self._over = False

    def begin(self, iteration: int) -> bool:
        """Wait for slower lanes before an iteration; False if the lane should end instead."""
        with self._news:
            self._news.wait_for(lambda: self._over or iteration - min(self._taken, *self._running) < LEAD)
            return not self._over

    def passes(self, lane: int, done: int) -> bool:
        """A lane has run so many iterations; True if that is where it puts its state aside."""
        with self._news:
            self._running[lane] = done
            self._news.notify_all()
            return done == self._agreed

    def take(self, done: int) -> None:
        """What all lanes delivered up to here has been dealt with."""
        with self._news:
            self._taken = done
            self._news.notify_all()

    def ask(self) -> None:
        """Agree on the first border that every lane has still before it; there is none near the end of the run."""
        with self._news:
            if self._agreed <= min(self._running):
                self._agreed = max(self._running) + 1

    def end(self) -> None:
        """All lanes end after the iteration they are in."""
        with self._news:
            self._over = True
            self._news.notify_all()


def open_lanes(
    setup: Setup,
    seeds: Sequence[int],
    count: int | None = None,
    team: int = 1,
) -> list[AbstractLane]:
    """A lane for each device, or `count` lanes, the seeds dealt out among them, all compiled side by side.

    Of emulators, whose frames are large, each seed has a lane of its own, and a team of devices.
    """
    if isinstance(setup.task, AbstractEmulatorTask):
        kind, lines = FrameLane, list(islice(cycle(teams(len(seeds), team)), len(seeds)))
    else:
        found = lane_devices(len(seeds))
        kind, lines = Lane, [[device] for device in islice(cycle(found), count or len(found))]
    dealt = [[seeds[k] for k in part.tolist()] for part in np.array_split(np.arange(len(seeds)), len(lines))]
    threads = max(1, cpu_cores() // len(lines))
    lanes: list[AbstractLane] = [kind(setup, part, line, threads) for part, line in zip(dealt, lines, strict=True)]

    def compile_all() -> None:
        with ThreadPoolExecutor(len(lanes)) as pool:
            list(pool.map(lambda lane: lane.compile(), lanes))

    in_thread(compile_all)
    return lanes


def run_lanes(
    lanes: Sequence[AbstractLane], iterations: int, border: Border | None = None, first: int = 0
) -> Iterator[Delivery]:
    """The iterations from `first` on, each lane in a thread; yields what all lanes deliver, one after another."""
    done: queue.SimpleQueue[tuple[int, Part | BaseException]] = queue.SimpleQueue()
    border = border or Border(len(lanes), first)

    def work(number: int, lane: AbstractLane) -> None:
        try:
            for iteration in range(first, iterations):
                if not border.begin(iteration):
                    return
                report = lane.iterate()
                done.put((number, (report, lane.snapshot() if border.passes(number, iteration + 1) else None)))
            lane.settle()
        except BaseException as error:
            done.put((number, error))

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in enumerate(lanes)]
    for thread in threads:
        thread.start()
    waiting: list[list[Part]] = [[] for _ in lanes]
    try:
        for iteration in range(first, iterations):
            while not all(waiting):
                number, item = done.get()
                if isinstance(item, BaseException):
                    raise item
                waiting[number].append(item)
            parts = [queued.pop(0) for queued in waiting]
            # A lane may have promised its report; it keeps the promise in the course of its next iteration.
            reports = [report.result() if isinstance(report, Future) else report for report, _ in parts]
            yield Delivery(HostReport.joined(reports), joined_states([states for _, states in parts]))
            border.take(iteration + 1)
    finally:
        border.end()
        for thread in threads:
            thread.join()


def joined_states(states: Sequence[dict[str, np.ndarray] | None]) -> list[dict[str, np.ndarray]] | None:
    """The states of all lanes, or None: lanes agree on when to put them aside."""
    found = [state for state in states if state is not None]
    return found if len(found) == len(states) else None
