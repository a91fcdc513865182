"""What a person sees while a run trains: a live bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import abc
import contextlib
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from .._text import clean, clean_lines, console
from ..train.measures import measured

if TYPE_CHECKING:
    from .spec import Plan


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

    def declare(self, plan: Plan, wanted: str | None = None) -> None:
        """Which run will begin, and which of its metrics is wanted; may be passed over."""
        return None

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

    def declare(self, plan: Plan, wanted: str | None = None) -> None:
        self.inner.declare(plan, wanted)

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


class Shown(AbstractProgress):
    """A progress that shows the headline of a run."""

    _plan: Plan | None = None
    _wanted: str | None = None

    def declare(self, plan: Plan, wanted: str | None = None) -> None:
        self._plan, self._wanted = plan, wanted

    def headline(self, latest: Mapping[str, np.ndarray]) -> str:
        """The headline, averaged over seeds, in words."""
        name = None if self._plan is None else self._plan.headline(latest, self._wanted)
        if self._plan is None or name is None:
            return ""
        return measured([name], self._plan.metrics)[name].progress(float(np.mean(latest[name])))


class Lines(Shown):
    """One plain line at the start, a handful on the way: for logs and pipes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
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
        parts = [f"step {step:,} of {self._steps:,}", self.headline(latest), f"{seconds:.1f} s"]
        tell(f"{self._title}: {', '.join(filter(None, parts))}", self._stream)

    def note(self, text: str) -> None:
        tell(f"{self._title}: {text}", self._stream)

    def finish(self) -> None:
        pass


class Bar(Shown):
    """A live bar with the headline."""

    def __init__(self) -> None:
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
        self._bar.update(self._task, completed=iteration, note=self.headline(latest))

    def finish(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def note(self, text: str) -> None:
        self._bar.console.print(clean_lines(text))

    def say(self, text: str) -> None:
        self._bar.console.print(clean_lines(f"curiax: {text}"))


def for_terminal(*, quiet: bool = False) -> AbstractProgress:
    """A bar where somebody is watching, lines where nobody is."""
    if quiet:
        return Silent()
    return Bar() if sys.stderr.isatty() else Lines()
