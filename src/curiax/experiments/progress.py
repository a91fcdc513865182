"""What a person sees while a run trains: a live bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import abc
import contextlib
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import numpy as np

from .._text import clean, clean_lines, console
from ..agents.task_reward import RETURN
from .published import RATIO, SCORE


def tell(text: str, stream: TextIO) -> None:
    """A line for whoever listens; training goes on where nobody does any more, as behind a pipe that was closed."""
    with contextlib.suppress(OSError):
        print(clean_lines(text), file=stream, flush=True)


class AbstractProgress(abc.ABC):
    """Told about a run after every iteration."""

    @abc.abstractmethod
    def start(self, title: str, iterations: int, steps: int) -> None:
        """A run begins to compile."""

    @abc.abstractmethod
    def advance(self, iteration: int, latest: Mapping[str, np.ndarray]) -> None:
        """So many iterations are done; `latest` holds each seed's newest value of every metric."""

    @abc.abstractmethod
    def finish(self) -> None:
        """The run is over, finished or not."""

    def note(self, text: str) -> None:
        """Something to know about the run that has begun, as which version of a game is played; may be passed over."""
        return None

    def say(self, text: str) -> None:
        """Something a person should hear at once."""
        tell(f"curiax: {text}", sys.stderr)


class Silent(AbstractProgress):
    """Says nothing."""

    def start(self, title: str, iterations: int, steps: int) -> None:
        pass

    def advance(self, iteration: int, latest: Mapping[str, np.ndarray]) -> None:
        pass

    def finish(self) -> None:
        pass


class Counted(AbstractProgress):
    """Another progress with a word before each title: which of how many runs this is."""

    def __init__(self, inner: AbstractProgress, word: str) -> None:
        self.inner, self.word = inner, word

    def start(self, title: str, iterations: int, steps: int) -> None:
        self.inner.start(f"{self.word} {title}", iterations, steps)

    def advance(self, iteration: int, latest: Mapping[str, np.ndarray]) -> None:
        self.inner.advance(iteration, latest)

    def finish(self) -> None:
        self.inner.finish()

    def note(self, text: str) -> None:
        self.inner.note(text)

    def say(self, text: str) -> None:
        self.inner.say(text)


def headline_metric(names: Iterable[str], grid: str) -> str:
    """The one metric to show: a game's score, else coverage of that grid, else of another that the task has, else the
    ratio of the bonuses that it compares, else the return of episodes where the task's reward weighs in, else the mean
    bonus."""
    names = list(names)
    if SCORE in names:
        return SCORE
    counted = [name for name in names if name.startswith("coverage/")]
    wanted = f"coverage/{grid}"
    other = next((name for name in (RATIO, RETURN) if name in names), "bonus/mean")
    return wanted if wanted in counted else next(iter(counted), other)


def headline(latest: Mapping[str, np.ndarray], grid: str) -> str:
    """The headline metric, averaged over seeds, in words."""
    name = headline_metric(latest, grid)
    value = float(np.mean(latest[name]))
    if name.startswith("coverage/"):
        return f"coverage {value:5.1f} % ({name.removeprefix('coverage/')})"
    if name in (SCORE, RETURN):
        word = "score" if name == SCORE else "return"
        return f"{word} {value:,.1f}" if np.isfinite(value) else "no episode has ended yet"
    if name == RATIO:
        return f"ratio {value:.2f}"
    return f"bonus {value:.4g}"


class Lines(AbstractProgress):
    """One plain line at the start, a handful on the way: for logs and pipes."""

    def __init__(self, metric: str = "cells", stream: TextIO | None = None) -> None:
        self._metric, self._stream = metric, stream or sys.stderr
        self._title, self._iterations, self._steps, self._next, self._begun = "", 1, 0, 0.0, 0.0

    def start(self, title: str, iterations: int, steps: int) -> None:
        self._title, self._iterations, self._steps = title, iterations, steps
        self._next, self._begun = 0.2, time.perf_counter()
        tell(f"{title}: compiling", self._stream)

    def advance(self, iteration: int, latest: Mapping[str, np.ndarray]) -> None:
        share = iteration / self._iterations
        if share + 1e-9 < self._next:
            return
        self._next = share + 0.2
        seconds = time.perf_counter() - self._begun
        step = round(share * self._steps)
        line = f"{self._title}: step {step:,} of {self._steps:,}, {headline(latest, self._metric)}, {seconds:.1f} s"
        tell(line, self._stream)

    def note(self, text: str) -> None:
        tell(f"{self._title}: {text}", self._stream)

    def finish(self) -> None:
        pass


class Bar(AbstractProgress):
    """A live bar with the current coverage."""

    def __init__(self, metric: str = "cells") -> None:
        self._metric = metric
        self._bar: Any = None
        self._task: Any = None

    def start(self, title: str, iterations: int, steps: int) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=console(stderr=True),
        )
        self._task = self._bar.add_task(clean(title), total=iterations, note="compiling")
        self._bar.start()

    def advance(self, iteration: int, latest: Mapping[str, np.ndarray]) -> None:
        self._bar.update(self._task, completed=iteration, note=headline(latest, self._metric))

    def finish(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def note(self, text: str) -> None:
        self._bar.console.print(clean_lines(text))

    def say(self, text: str) -> None:
        self._bar.console.print(clean_lines(f"curiax: {text}"))


def for_terminal(metric: str, *, quiet: bool = False) -> AbstractProgress:
    """A bar where somebody is watching, lines where nobody is."""
    if quiet:
        return Silent()
    return Bar(metric) if sys.stderr.isatty() else Lines(metric)
