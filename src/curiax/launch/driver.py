"""The one loop that sees every job through: hand out, look, call again, give up."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .._errors import CuriaxError, Interrupted
from ..experiments.interrupt import listening
from . import progress_file
from ._base import AbstractLauncher, Ending
from .job import Job
from .progress_file import Standing
from .show import AbstractShow

#: Losses of a run in a row, without any progress between them, after which it is given up.
MOST_LOSSES = 5
#: Seconds between two looks.
PAUSE = 0.2
#: Seconds that workers have to save and leave when the driver is told to stop.
GRACE = 22.0


@dataclass
class Entry:
    """A job and what has become of it so far."""

    job: Job
    state: Literal["waiting", "running", "done", "failed", "read"] = "waiting"
    standing: Standing = field(default_factory=Standing)
    message: str = ""
    #: How often it was called.
    calls: int = 0
    #: How many of its workers were lost, in all and since it last got further than ever before.
    lost: int = 0
    losses: int = 0
    furthest: int = 0
    #: What the launcher knows the present call by.
    call: Any = None

    def look(self) -> None:
        """Take over what the worker last wrote of its progress."""
        standing = progress_file.read(self.job.progress_file)
        if standing is not None:
            self.state, self.standing = "running", standing

    def end(self, ending: Ending) -> None:
        """Take in how a call ended: a lost one waits for the next."""
        self.look()
        self.call, self.message = None, ending.message
        self.state = "waiting" if ending.state == "lost" else ending.state
        progress_file.remove(self.job.progress_file)
        if ending.state != "lost":
            return
        if self.standing.iteration > self.furthest:
            self.furthest, self.losses = self.standing.iteration, 0
        self.lost, self.losses = self.lost + 1, self.losses + 1
        if self.losses >= MOST_LOSSES:
            self.state = "failed"
            self.message = (
                f"its worker was lost {self.losses} times in a row and never got beyond iteration {self.furthest}; "
                f"the last time: {ending.message}"
            )


def launch(entries: Sequence[Entry], launcher: AbstractLauncher, show: AbstractShow) -> None:
    """See to it that every job is finished; those that failed are named at the end, when all others are done.

    The launcher is open already, and stays so.
    """
    notice = f"stopping: workers save and leave, up to {GRACE:.0f} s. Ctrl-C again leaves at once."
    with show, listening(show.tell, notice) as stop:
        stop.training = True
        waiting = deque(entry for entry in entries if entry.state == "waiting")
        out: list[Entry] = []
        while waiting or out:
            while waiting and (launcher.slots is None or len(out) < launcher.slots):
                entry = waiting.popleft()
                progress_file.remove(entry.job.progress_file)
                entry.calls += 1
                entry.call = launcher.start(entry.job)
                out.append(entry)
            out, ended = poll(out, launcher)
            # At the end of the queue, so that a run that keeps losing its workers does not hold up the others.
            waiting += [entry for entry in ended if entry.state == "waiting"]
            show.update(entries)
            if stop.signal is not None:
                halt(out, launcher)
                raise interrupted(entries, stop.exit_code)
            if waiting or out:
                time.sleep(PAUSE)
    for entry in entries:
        if entry.state == "done" and entry.message:
            warnings.warn(entry.message, stacklevel=2)
    refuse_failed(entries)


def poll(out: Sequence[Entry], launcher: AbstractLauncher) -> tuple[list[Entry], list[Entry]]:
    """Those still out, and those whose call has ended."""
    left, ended = [], []
    for entry in out:
        ending = launcher.ended(entry.call)
        if ending is None:
            entry.look()
            left.append(entry)
        else:
            entry.end(ending)
            ended.append(entry)
    return left, ended


def halt(out: list[Entry], launcher: AbstractLauncher) -> None:
    """Ask all workers to save and leave; end those that do not in time."""
    deadline = time.monotonic() + GRACE
    for force in (False, True):
        for entry in out:
            launcher.stop(entry.call, force=force)
        while out and time.monotonic() < deadline:
            time.sleep(PAUSE)
            out, _ = poll(out, launcher)
        deadline += 2.0


def interrupted(entries: Sequence[Entry], exit_code: int) -> Interrupted:
    """What to say when all have left."""
    done = sum(entry.state in ("done", "read") for entry in entries)
    return Interrupted(
        f"stopped: {done} of {len(entries)} runs are finished. The same command continues the others from what they "
        "have saved.",
        exit_code,
    )


def refuse_failed(entries: Sequence[Entry]) -> None:
    """Name every run that failed, and why."""
    failed = [entry for entry in entries if entry.state == "failed"]
    if failed:
        reasons = "\n".join(f"  {entry.job.title}: {entry.message}" for entry in failed)
        raise CuriaxError(
            f"{len(failed)} of {len(entries)} runs failed; the others are finished and kept. The same command tries "
            f"the failed ones again.\n{reasons}"
        )


@contextlib.contextmanager
def opened(launcher: AbstractLauncher) -> Iterator[None]:
    """A launcher that is ready, and let go of afterwards."""
    try:
        launcher.open()
        yield
    finally:
        launcher.close()
