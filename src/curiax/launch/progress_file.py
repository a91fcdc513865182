"""How far a worker is, told through a small file: works on any folder that both sides see."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ..experiments.progress import Shown

#: Seconds between two reports of a worker.
INTERVAL = 0.5


@dataclass(frozen=True)
class Standing:
    """How far a run is, and who works on it."""

    iteration: int = 0
    iterations: int = 0
    note: str = ""
    pid: int = 0
    host: str = ""

    @property
    def share(self) -> float:
        """The part that is done, 0 to 1."""
        return min(1.0, self.iteration / self.iterations) if self.iterations else 0.0


class FileProgress(Shown):
    """Replaces the file at most twice a second, whole each time, so that a reader never sees half of it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._now, self._written = Standing(pid=os.getpid(), host=socket.gethostname()), -INTERVAL
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    def start(self, title: str, iterations: int, steps: int) -> None:
        self._tell(0, iterations, "compiling")
        self._write()

    def advance(self, iteration: int, latest: Mapping[str, np.ndarray]) -> None:
        self._tell(iteration, self._now.iterations, self.headline(latest))
        if time.monotonic() - self._written >= INTERVAL:
            self._write()

    def finish(self) -> None:
        self._write()

    def _tell(self, iteration: int, iterations: int, note: str) -> None:
        self._now = Standing(iteration, iterations, note, self._now.pid, self._now.host)

    def _write(self) -> None:
        fresh = self._file.with_name(f"{self._file.name}-new")
        # Progress is a courtesy: a full disk is the run's own affair to report.
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
            with open(fresh, "x") as stream:  # never through a link
                stream.write(json.dumps(asdict(self._now)))
            os.replace(fresh, self._file)
        self._written = time.monotonic()


def read(file: Path) -> Standing | None:
    """What the worker last wrote; None where nothing can be read."""
    import pydantic

    try:
        return pydantic.TypeAdapter(Standing).validate_json(file.read_text(), strict=True)
    except (OSError, ValueError):
        return None


def remove(file: Path) -> None:
    """Remove the file, and what was to become one."""
    for path in (file, file.with_name(f"{file.name}-new")):
        with contextlib.suppress(OSError):
            path.unlink()
