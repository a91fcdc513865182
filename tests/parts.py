"""What a machine may lack, and with it a part of the tests: left out and told in one line, or demanded."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NoReturn

import pytest

#: A part → what is tested there, and how to get what it needs. `CURIAX_REQUIRE_` + its name in capitals demands it.
PARTS = {
    "browser": ("the report's page in a browser", "apt-get install chromium chromium-driver"),
    "films": ("films of MuJoCo's tasks", "apt-get install libegl1 libgl1-mesa-dri"),
    "git": ("the commit that a run notes", "apt-get install git"),
    "sb3": ("Stable-Baselines3", "make sb3"),
    "mario": ("Super Mario Bros.", "make mario"),
}
MARK, WHY = "Left out: ", " because "


def demanded(part: str) -> bool:
    """Whether tests fail that cannot run."""
    return os.environ.get(f"CURIAX_REQUIRE_{part.upper()}", "") not in ("", "0")


def reason(part: str) -> str:
    """Why a test is skipped, as `summary` finds it."""
    what, how = PARTS[part]
    return f"{MARK}{what} ({how})"


def leave_out(part: str, why: object) -> NoReturn:
    """End the test, or the module that is being imported: as left out, or as failed where the part is demanded."""
    if demanded(part):
        what, how = PARTS[part]
        pytest.fail(f"CURIAX_REQUIRE_{part.upper()} demands {what}: {why}. To get it: {how}", pytrace=False)
    pytest.skip(f"{reason(part)}{WHY}{why}", allow_module_level=True)


def summary(reasons: Iterable[str]) -> str:
    """One line about all that was left out, or nothing."""
    parts = sorted({text.partition(MARK)[2].partition(WHY)[0] for text in reasons if MARK in text})
    return MARK + ", ".join(parts) if parts else ""
