"""Standard input, output and error, whatever they are connected to."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO


def make_usable() -> None:
    """Give each standard stream something to write to, and a mark to write for what its encoding lacks.

    Where one is closed, the next file to be opened would take its number, and with it what is meant for people.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this one
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def refusal(stream: TextIO) -> OSError | None:
    """Why a stream takes nothing more, or None where it does; what it refused is then forgotten."""
    try:
        stream.flush()
    except OSError as error:
        # Else Python complains once more when it ends.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return error
    return None
