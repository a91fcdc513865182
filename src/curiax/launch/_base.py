"""What a launcher is: it starts jobs somewhere and says how they ended."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, Literal

from .job import Job


@dataclass(frozen=True)
class Ending:
    """How a call of a job ended.

    Args:
        state: `done`; `failed`, which calling again would not change; or `lost`: the worker is gone, call again.
        message: why, or what a finished run warned of.
    """

    state: Literal["done", "failed", "lost"]
    message: str = ""


class AbstractLauncher(abc.ABC):
    """Starts jobs in other processes. Whom to repeat, and when to give up, is the driver's affair."""

    #: How many jobs may be handed out at a time; None: as many as there are, the cluster keeps the queue.
    slots: int | None

    @abc.abstractmethod
    def open(self) -> None:
        """Get ready, or say why that is impossible."""

    @abc.abstractmethod
    def start(self, job: Job) -> Any:
        """Hand out a job; returns what the other methods know it by."""

    @abc.abstractmethod
    def ended(self, call: Any) -> Ending | None:
        """How it ended; None while it has not. Never waits."""

    @abc.abstractmethod
    def stop(self, call: Any, *, force: bool) -> None:
        """Ask the worker to save and leave; with `force`, end it."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of everything, without waiting; workers that are left save and leave by themselves."""
