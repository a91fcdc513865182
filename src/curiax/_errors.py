"""The errors Curiax raises on purpose: each says what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
import os
import traceback
from collections.abc import Iterable


class CuriaxError(Exception):
    """Base of every deliberate error; the command line exits with `exit_code`."""

    exit_code = 1


class UsageError(CuriaxError):
    """The request itself is wrong: an unknown name, a bad value, an impossible shape."""

    exit_code = 2


class ContractError(UsageError):
    """A user's method or task breaks the interface it promises to follow."""


class NonFiniteError(CuriaxError):
    """NaN or infinity appeared during training."""


class SimulatorError(CuriaxError):
    """A simulator on the host failed or ran away."""


class OutOfMemoryError(CuriaxError):
    """A device has too little memory for a run."""


class OutputError(CuriaxError):
    """The output folder cannot be used."""

    exit_code = 2


class CheckpointError(OutputError):
    """A checkpoint is damaged, or none is left that could be continued."""

    exit_code = 1


class BusyError(OutputError):
    """Another process works on the same run."""

    exit_code = 1


class Interrupted(KeyboardInterrupt):
    """Told to stop by Ctrl-C or SIGTERM, and stopped in order; a `KeyboardInterrupt` so that no loop swallows it."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def place_of(error: BaseException) -> str:
    """Where an error was raised: `mine.py, line 12`."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}" if frames else "an unknown place"


def left(whose: str, error: SystemExit) -> ContractError:
    """An error about code that ends Python where it should say what is wrong; nobody would hear of it."""
    return ContractError(
        f"{whose} ended Python (SystemExit: {error.code}) in {place_of(error)}: raise an error there that says what is "
        "wrong."
    )


def unknown(kind: str, name: str, known: Iterable[str], hint: str = "") -> UsageError:
    """An error for an unknown name that offers the nearest known ones."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    offer = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Known: {', '.join(known)}."
    return UsageError(f"unknown {kind} {name!r}. {offer}" + (f" {hint}" if hint else ""))
