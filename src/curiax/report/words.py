"""Numbers, names and seeds as reports write them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..experiments.registry import ATARI
from .statistics import BOOTSTRAPPED, FEWEST

#: How the intervals of means come about, in every table that shows them; then where they are cut.
INTERVALS = (
    f"Intervals: bootstrap from {BOOTSTRAPPED} seeds on, Student's t for {FEWEST} or {BOOTSTRAPPED - 1}, none for "
    f"fewer; cut to what is possible"
)
OF_COVERAGE = f"{INTERVALS}: no coverage is below 0 or above what can be reached."
OF_RATIOS = f"{INTERVALS}: no ratio is below 0."
#: The same for the tables of statistics, which also have other numbers than means.
BRACKETS = (
    f"of means studentised bootstrap from {BOOTSTRAPPED} seeds on, Student's t below; of IQM percentile bootstrap from "
    f"8 on, Student's t with a bootstrap standard error below"
)
TITLES = {
    "half-cheetah": "Half-Cheetah",
    "mnist": "Noisy MNIST",
    "mario": "Super Mario Bros",
    f"{ATARI}montezuma_revenge": "Montezuma's Revenge",
    f"{ATARI}qbert": "Q*bert",
    f"{ATARI}riverraid": "River Raid",
}


def task_title(task: str) -> str:
    """`mountain-car-frozen` → `Mountain Car Frozen`, `atari:pong` → `Pong`; a user's `module:Class` stays as it is."""
    if task in TITLES:
        return TITLES[task]
    name = task.removeprefix(ATARI)
    return name if ":" in name else name.replace("-", " ").replace("_", " ").title()


def seed_text(seeds: Sequence[int]) -> str:
    """`3000-3031`, or a list."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}-{seeds[-1]}"
    return ",".join(map(str, seeds))


def quoted(name: str) -> str:
    """A line's label within a sentence; one of several words in quotation marks."""
    return f"“{name}”" if " " in name else name


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    names = [quoted(name) for name in names]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def number(value: float | None, digits: int = 1) -> str:
    """A number, or a dash."""
    return "–" if value is None or not np.isfinite(value) else f"{value:.{digits}f}".replace("-", "−")


def chance(p: float | None) -> str:
    """A p value."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def bracketed(value: float, interval: tuple[float, float] | None, digits: int = 1) -> str:
    """`90.1 [88.8, 91.0]`."""
    mean = number(value, digits)
    return mean if interval is None else f"{mean} [{number(interval[0], digits)}, {number(interval[1], digits)}]"
