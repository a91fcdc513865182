"""Every number published about these tasks, with where it stands, and the authors' code as measured.

Quotations are from Mazzaglia, Catal, Verbelen and Dhoedt, "Curiosity-Driven Exploration via Latent Bayesian
Surprise", AAAI 2022 (arXiv 2104.07495).
"""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np

from ..envs.atari import ATARI
from .suites import ANT_MAZE, ARCADE, EVOLVING, FROZEN, HALF_CHEETAH, MNIST, PLAIN

#: The unit of all coverage below: distinct cells of the released code per run, divided by 100 (Ant Maze: by 7).
METRIC = "coverage/cells"
#: On Noisy MNIST: the mean bonus of 1 → 2…9 ÷ that of 0 → 1.
RATIO = "ratio/bonus"
#: In arcade games: the mean score of the episodes that ended in a rollout.
SCORE = "game/score"
#: Steps of each run behind it: 50, 245 and 123 rollouts of 2048, by the commands of the released code.
STEPS: dict[str, int] = {
    **dict.fromkeys((PLAIN, FROZEN, EVOLVING), 102_400),
    HALF_CHEETAH: 501_760,
    ANT_MAZE: 251_904,
}

TABLE = (
    "Stochastic Mountain Car figure, table: final coverage without noise, Frozen and Evolving; "
    '"the average state space coverage over eight random seeds"'
)
CHEETAH_TEXT = (
    '"LBS reaches the highest number of bins, with around 73% of coverage. ICM and Disagreement follow with ∼60%, and '
    'VIME with ∼49%. RND lacks behind by doing slightly better than the Random baseline (∼26% vs ∼17%)"'
)
MAZE_TEXT = (
    '"LBS, ICM and Disagreement perform best in this environment, reaching the end of the maze in all runs and before '
    "150k steps. VIME also reaches 100% in all runs but takes longer. RND and the Random baselines saturate far below "
    '100% coverage"'
)
MNIST_TEXT = (
    '"LBS and Disagreement are the only methods that eventually overcome the stochasticity in the transitions starting '
    "from 1-images, maintaining a ratio of values close to one at convergence. Both ICM and RND, instead, keep finding "
    'the stochastic transition more interesting at convergence"'
)
VIME_TABLE = TABLE + "; 89.57 is no multiple of 1/8 but is 627/7, so seven runs are behind it"


@dataclass(frozen=True)
class Published:
    """A published mean, the number of runs behind it, and its source; `within` is how far a rounded one may be off."""

    task: str
    method: str
    value: float
    seeds: int
    source: str
    metric: str = METRIC
    within: float = 0.0

    @property
    def steps(self) -> int:
        """Steps of each of its runs."""
        return STEPS[self.task]

    @property
    def words(self) -> str:
        """How the paper says it, where it gives no exact number."""
        return f"≈{self.value:g}" if self.within else ""


@dataclass(frozen=True)
class Described:
    """What the paper says of a method in words only."""

    task: str
    method: str
    words: str
    source: str
    metric: str = METRIC


@dataclass(frozen=True)
class Measured:
    """Final coverage of each run of the authors' released code, on one machine."""

    task: str
    method: str
    values: tuple[float, ...]
    source: str
    metric: str = METRIC

    @property
    def steps(self) -> int:
        """Steps of each of its runs."""
        return STEPS[self.task]


def table_row(method: str, *values: float, seeds: int = 8, source: str = TABLE) -> tuple[Published, ...]:
    """A row of the paper's table."""
    cells = zip((PLAIN, FROZEN, EVOLVING), values, strict=True)
    return tuple(
        Published(task, method, value, *((seeds, source) if task == PLAIN else (8, TABLE))) for task, value in cells
    )


def rounded(method: str, value: float, source: str = CHEETAH_TEXT) -> Published:
    """A number of the text on Half-Cheetah: a whole one with "around" or ∼ before it, taken to be off by 1 at most."""
    return Published(HALF_CHEETAH, method, value, 8, source, within=1.0)


PUBLISHED: tuple[Published, ...] = (
    *table_row("lbs", 91.75, 82.38, 87.0),
    *table_row("disagreement", 90.88, 68.75, 77.38),
    *table_row("icm", 91.75, 28.75, 17.25),
    *table_row("rnd", 67.38, 30.75, 28.38),
    *table_row("vime", 89.57, 69.38, 84.12, seeds=7, source=VIME_TABLE),
    *table_row("random", 15.0, 11.5, 12.62),
    # "for NGU, we use the results of RND" as the ablation without counts (appendix on episodic counts).
    *(
        Published(task, "ngu-no-count", value, 8, TABLE + '; "for NGU, we use the results of RND"')
        for task, value in ((PLAIN, 67.38), (FROZEN, 30.75), (EVOLVING, 28.38))
    ),
    rounded("lbs", 73.0),
    rounded("icm", 60.0),
    rounded("disagreement", 60.0),
    rounded("vime", 49.0),
    rounded("rnd", 26.0),
    rounded("random", 17.0),
    rounded("ngu-no-count", 26.0, CHEETAH_TEXT + '; "for NGU, we use the results of RND"'),
    *(Published(ANT_MAZE, method, 100.0, 8, MAZE_TEXT) for method in ("lbs", "icm", "disagreement", "vime")),
)

DESCRIBED: tuple[Described, ...] = (
    Described(ANT_MAZE, "rnd", "far below 100", MAZE_TEXT),
    Described(ANT_MAZE, "random", "far below 100", MAZE_TEXT),
    Described(ANT_MAZE, "ngu-no-count", "far below 100", MAZE_TEXT + '; "for NGU, we use the results of RND"'),
    *(Described(MNIST, method, "close to 1", MNIST_TEXT, RATIO) for method in ("lbs", "disagreement")),
    *(Described(MNIST, method, "above 1", MNIST_TEXT, RATIO) for method in ("icm", "rnd")),
)

#: The change from the task without noise, per cent, as printed in the same table.
PUBLISHED_CHANGES: dict[tuple[str, str], float] = {
    (FROZEN, "lbs"): -10.21,
    (EVOLVING, "lbs"): -5.18,
    (FROZEN, "disagreement"): -24.35,
    (EVOLVING, "disagreement"): -14.85,
    (FROZEN, "icm"): -68.66,
    (EVOLVING, "icm"): -81.20,
    (FROZEN, "rnd"): -54.36,
    (EVOLVING, "rnd"): -57.88,
    (FROZEN, "vime"): -22.54,
    (EVOLVING, "vime"): -6.08,
    (FROZEN, "random"): -23.33,
    (EVOLVING, "random"): -15.87,
}

CODE = "the authors' released code, sources unmodified, run on torch 2.13 with gym 0.18 and stable-baselines3 0.10"
MEASURED: tuple[Measured, ...] = (
    Measured(PLAIN, "lbs", (95.0, 90.0, 91.0), CODE + ", seeds 0-2"),
    Measured(FROZEN, "lbs", (74.0, 79.0), CODE + ", β = 2, seeds 0-1"),
    Measured(EVOLVING, "lbs", (77.0, 84.0), CODE + ", β = 2, seeds 0-1"),
    Measured(PLAIN, "random", (16.0, 16.0, 18.0), CODE + ", seeds 0-2"),
)

COST_SOURCE = (
    '"similar training times for ICM and RND"; "LBS usually takes 5-10% more time, Disagreement is 20 to 30% slower '
    'and VIME is the slowest, being about 200% slower than ICM and RND, in all experiments" (appendix)'
)
#: Minutes of one run of ICM or RND on the paper's laptop; Mountain Car with noise is taken to cost as much as without.
PUBLISHED_MINUTES: dict[str, float] = {
    **dict.fromkeys((PLAIN, FROZEN, EVOLVING), 2.5),
    HALF_CHEETAH: 14.0,
    ANT_MAZE: 10.0,
}
#: Cost relative to RND as the paper states it.
PUBLISHED_COST: dict[str, str] = {
    "rnd": "1",
    "icm": "about 1",
    "lbs": "1.05 to 1.10",
    "disagreement": "1.2 to 1.3",
    "vime": "about 3",
}


def published(task: str, method: str | None, metric: str) -> Published | None:
    """What the paper says of a method on a task, if it says anything."""
    return next((p for p in PUBLISHED if (p.task, p.method, p.metric) == (task, method, metric)), None)


def described(task: str, method: str | None, metric: str) -> Described | None:
    """What the paper says of a method on a task in words, where it gives no number."""
    return next((d for d in DESCRIBED if (d.task, d.method, d.metric) == (task, method, metric)), None)


def measured(task: str, method: str | None, metric: str) -> Measured | None:
    """What the authors' code gave, where it was run."""
    return next((m for m in MEASURED if (m.task, m.method, m.metric) == (task, method, metric)), None)


# --- arcade games -----------------------------------------------------------------------------------------

#: Of the agent, each 4 frames: the budget of the released code's commands, and where the authors' curves end.
ARCADE_STEPS = 100_000_000
#: Seeds of each curve.
ARCADE_SEEDS = 5
ARCADE_SOURCE = (
    "the authors' own runs of LBS, five seeds of 100 M steps on each of nine games, from the results beside the paper "
    "(resources/lbs_arcade_results.zip of its project site); mean and standard deviation over seeds of the mean score "
    "of finished episodes; the value at 100 M steps is the mean over the last tenth"
)


@dataclass(frozen=True)
class Reference:
    """The authors' LBS on a game at some steps: score, its standard deviation over seeds, length of episodes."""

    steps: Sequence[int]
    score: Sequence[float]
    spread: Sequence[float]
    length: Sequence[float]

    def at(self, steps: int, values: Sequence[float] | None = None) -> float | None:
        """The score, or other values, on the straight line between the nearest moments; None outside of them all."""
        if not self.steps[0] <= steps <= self.steps[-1]:
            return None
        return float(np.interp(steps, self.steps, self.score if values is None else values))

    def moments(self, end: int) -> list[int]:
        """The moments up to the end of a run, that end included; none where it ends before the first of them."""
        end = min(end, self.steps[-1])
        return [*(step for step in self.steps if step < end), end] if end >= self.steps[0] else []


def reference(task: str) -> Reference | None:
    """The authors' curves on a game, if they ran it."""
    return references().get(task)


@functools.cache
def references() -> dict[str, Reference]:
    """By task, from the file that comes with Curiax."""
    tasks = {task.removeprefix(ATARI).replace("_", ""): task for task in ARCADE}
    text = resources.files("curiax.data").joinpath("lbs_arcade_reference.csv").read_text("utf-8")
    points: dict[str, list[list[float]]] = {}
    for row in csv.DictReader(text.splitlines()):
        numbers = [float(row[name]) for name in ("mean_over_5_seeds", "std_over_5_seeds", "mean_ep_len")]
        # Before the first episode of Super Mario Bros. has ended there is no score.
        if all(map(math.isfinite, numbers)):
            points.setdefault(tasks[row["game"].lower()], []).append([int(row["agent_steps"]), *numbers])
    return {task: Reference(*map(tuple, zip(*found, strict=True))) for task, found in points.items()}
