"""The paper's claims about these tasks, each as comparisons that a test can decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from ..experiments.registry import TASKS
from ..paper.published import (
    CHEETAH_TEXT,
    CODE,
    MAZE_TEXT,
    METRIC,
    MNIST_TEXT,
    RATIO,
    STEPS,
    measured,
    published,
)
from ..paper.suites import ANT_MAZE, EVOLVING, FROZEN, HALF_CHEETAH, MNIST, PLAIN
from . import ratio, statistics
from .record import Record

EVERYWHERE = (PLAIN, FROZEN, EVOLVING)
NOISY = (FROZEN, EVOLVING)
MUJOCO = (HALF_CHEETAH, ANT_MAZE)
LEVEL = 0.05
#: Coverage of all cells, less what rounding may take away.
WHOLE = 100.0 - 1e-3
HELPS = (
    '"Overall, the episodic count component improves performance both for NGU and RIDE across all environments, '
    'especially in stochastic settings"'
)
NGU_BETWEEN = (
    '"NGU consistently underperforms LBS but leads to better exploration than RIDE in HalfCheetah and the stochastic '
    'benchmarks"'
)
RIDE_WHERE = (
    '"RIDE performs well in MountainCar and AntMaze but struggles in the higher-dimensional HalfCheetah environment '
    'and in the stochastic benchmarks"'
)
TEST = (
    "Each comparison is a two-sided permutation test of the studentised difference of means (Chung & Romano 2013); of "
    "shares of the coverage without noise, a test of the difference of the logarithms of the ratios, whose variance "
    "counts all four groups; of the authors' few runs, a t test that takes theirs to scatter as ours do. p values are "
    "corrected by Holm's method within the claim. “Held”: every comparison is significant in the claimed direction at "
    "the 5 % level (where the claim is only “not less”, ≥: none is significant against it, which is no proof of "
    "equality). “Not held”: at least one is significant against it. “Open”: neither, or some could not be tested."
)
#: How the comparisons that only claims about Ant Maze and Half-Cheetah make are decided.
MORE_TESTS = (
    "“All runs”: as claimed if not one run failed, the other way if so many failed that Fisher's exact test tells them "
    "from the paper's 8 of 8; with a lost seed it cannot be shown. Steps to all cells: medians, and the same "
    "permutation test of their ranks, never being the latest. A number of the paper: a t test that takes its runs to "
    "scatter as ours do; a rounded one is taken to be within 1. “Far below 100 %” is read as a mean below 6 of the 7 "
    "cells, and below LBS."
)
#: How claims about ratios are decided.
RATIO_TEST = (
    f"Decided by the 95 % interval of the mean over seeds of the ratio in the last tenth of training. Near 1: between "
    f"{ratio.NEAR[0]:g} and {ratio.NEAR[1]:g}, i.e. at most a quarter more for either kind; above 1: more than "
    f"{ratio.NEAR[1]:g}. The paper gives no numbers, so these borders are ours. “Held”: the whole interval is where it "
    "is claimed to be. “Not held”: none of it is. “Open”: it lies across a border."
)


@dataclass(frozen=True)
class Side:
    """What is compared: a line's coverage on a task, in the end, after `steps`, or as a share of it without noise.

    Or, of the same: the steps until all cells were visited (`speed`), the share of runs that had visited all (`whole`).
    Or how much more one kind of transitions is paid than another, in the end (`ratio`).
    """

    label: str
    task: str
    steps: int | None = None
    relative: bool = False
    measure: Literal["coverage", "speed", "whole", "ratio"] = "coverage"

    def describe(self) -> str:
        """In words."""
        when = "" if self.steps is None else f" at {self.steps:,} steps"
        if self.measure == "ratio":
            return f"ratio of {self.label} on {self.task}"
        if self.measure == "speed":
            return f"thousands of steps of {self.label} to all cells of {self.task}"
        if self.measure == "whole":
            return f"% of runs of {self.label} with all cells of {self.task}{when}"
        return f"{self.label} on {self.task}{when}{', relative to itself without noise' if self.relative else ''}"


@dataclass(frozen=True)
class Mark:
    """A number that a line is compared with; `runs` are behind it, known `within` so much; none: it is exact."""

    text: str
    value: float
    runs: int | None = None
    within: float = 0.0
    relative: ClassVar[bool] = False

    def describe(self) -> str:
        """In words."""
        return self.text


@dataclass(frozen=True)
class Comparison:
    """Left is claimed to be `greater` than right, or `not less`; of runs, that `every` one is as the right's are.

    Of a ratio, that it is `near` 1.
    """

    left: Side | Mark
    right: Side | Mark
    claim: Literal["greater", "not less", "every", "near"] = "greater"

    @property
    def sides(self) -> tuple[Side, ...]:
        """The lines in it."""
        return tuple(side for side in (self.left, self.right) if isinstance(side, Side))

    @property
    def of_ratio(self) -> bool:
        """Whether it is about a ratio of bonuses."""
        return any(side.measure == "ratio" for side in self.sides)

    @property
    def usual(self) -> bool:
        """Whether two lines are compared in coverage, by whatever cells the page counts."""
        return len(self.sides) == 2 and all(side.measure == "coverage" for side in self.sides)


@dataclass(frozen=True)
class PaperClaim:
    """A claim in our words, the paper's sentence, and the comparisons that would have to hold."""

    text: str
    source: str
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Outcome:
    """One comparison's numbers: means, corrected p value, probability that left beats right."""

    comparison: Comparison
    left: float
    right: float
    #: None of a ratio, which its interval decides.
    p: float | None
    #: None where it makes no sense: of shares, and against a handful of runs.
    improvement: float | None
    shown: bool
    contradicted: bool
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict."""

    claim: PaperClaim
    verdict: Literal["held", "not held", "open"]
    outcomes: tuple[Outcome, ...]
    missing: int


def against(
    left: str, others: Sequence[str], tasks: Sequence[str], claim: Literal["greater", "not less"] = "greater"
) -> tuple[Comparison, ...]:
    """One line against several on several tasks."""
    return tuple(Comparison(Side(left, task), Side(other, task), claim) for task in tasks for other in others)


def whole(labels: Sequence[str], steps: int | None = None) -> tuple[Comparison, ...]:
    """Every run of some lines has visited all cells of Ant Maze, as all eight of the paper's had."""
    mark = Mark("all runs, as 8 of 8 in the paper", 100.0, runs=8)
    return tuple(Comparison(Side(label, ANT_MAZE, steps, measure="whole"), mark, "every") for label in labels)


def paper_mark(task: str, method: str, metric: str = METRIC) -> Mark:
    """A published number."""
    number = published(task, method, metric)
    assert number is not None
    return Mark(f"the paper's {number.words or number.value}", number.value, number.seeds, number.within)


CLAIMS: tuple[PaperClaim, ...] = (
    PaperClaim(
        "LBS is best or tied with the best on every variant",
        '"We found LBS to be working best in this benchmark"; "LBS remains the best performing method in both the '
        'variants of the stochastic environment"',
        against("lbs", ("disagreement", "icm", "rnd", "vime", "random"), EVERYWHERE, claim="not less"),
    ),
    PaperClaim(
        "LBS is ahead of every other method on both noisy variants",
        '"the exploration performance of LBS are unmatched in both variants of stochastic Mountain Car"',
        against("lbs", ("disagreement", "icm", "rnd", "vime", "random"), NOISY),
    ),
    PaperClaim(
        "The noisy TV breaks ICM and RND, and breaks them more than LBS",
        '"Both ICM and RND\'s performance are strongly undermined by the randomness in the task"',
        (
            *(Comparison(Side(m, PLAIN), Side(m, task)) for m in ("icm", "rnd") for task in NOISY),
            *(
                Comparison(Side("lbs", task, relative=True), Side(m, task, relative=True))
                for m in ("icm", "rnd")
                for task in NOISY
            ),
        ),
    ),
    PaperClaim(
        "LBS loses least to the noise, ICM most",
        '"LBS is the method that least reduced its exploration performance, compared to the original non-stochastic '
        'Mountain Car experiment and that ICM is the method that suffered the presence of noise the most"',
        tuple(
            Comparison(Side(better, task, relative=True), Side(worse, task, relative=True))
            for task in NOISY
            for better, worse in (
                *(("lbs", other) for other in ("disagreement", "vime", "rnd", "icm")),
                *((other, "icm") for other in ("disagreement", "vime", "rnd")),
            )
        ),
    ),
    PaperClaim(
        "LBS and VIME are ahead in the first 30,000 steps of Mountain Car",
        '"LBS and VIME are on average faster at exploring in the first 30k steps"',
        tuple(
            Comparison(Side(fast, PLAIN, steps=30_000), Side(slow, PLAIN, steps=30_000))
            for fast in ("lbs", "vime")
            for slow in ("icm", "disagreement", "rnd")
        ),
    ),
    PaperClaim(
        "RND is behind the other methods on Mountain Car and ahead of Random",
        '"RND struggles behind with about 67% of visited bins, doing better only than the Random baseline"',
        (
            *(Comparison(Side(m, PLAIN), Side("rnd", PLAIN)) for m in ("lbs", "icm", "disagreement", "vime")),
            Comparison(Side("rnd", PLAIN), Side("random", PLAIN)),
        ),
    ),
    PaperClaim(
        "The episodic term helps RIDE and NGU on every Mountain Car",
        HELPS,
        tuple(Comparison(Side(m, task), Side(f"{m}-no-count", task)) for m in ("ride", "ngu") for task in EVERYWHERE),
    ),
    PaperClaim(
        "NGU stays below LBS on every Mountain Car, and above RIDE on the noisy variants",
        NGU_BETWEEN,
        (
            *(Comparison(Side("lbs", task), Side("ngu", task)) for task in EVERYWHERE),
            *(Comparison(Side("ngu", task), Side("ride", task)) for task in NOISY),
        ),
    ),
    PaperClaim(
        "RIDE keeps up with LBS on Mountain Car but not on the noisy variants",
        RIDE_WHERE,
        (
            Comparison(Side("ride", PLAIN), Side("lbs", PLAIN), "not less"),
            *(Comparison(Side("lbs", task), Side("ride", task)) for task in NOISY),
        ),
    ),
    PaperClaim(
        "On Half-Cheetah LBS leads, ICM and Disagreement follow, then VIME, then RND, then Random",
        CHEETAH_TEXT,
        (
            *against("lbs", ("icm", "disagreement"), (HALF_CHEETAH,)),
            *(Comparison(Side(m, HALF_CHEETAH), Side("vime", HALF_CHEETAH)) for m in ("icm", "disagreement")),
            *against("vime", ("rnd",), (HALF_CHEETAH,)),
            *against("rnd", ("random",), (HALF_CHEETAH,)),
        ),
    ),
    PaperClaim(
        "LBS covers no less than around 73 % of Half-Cheetah",
        CHEETAH_TEXT,
        (Comparison(Side("lbs", HALF_CHEETAH), paper_mark(HALF_CHEETAH, "lbs"), "not less"),),
    ),
    PaperClaim(
        "LBS, ICM and Disagreement visit all seven cells of Ant Maze in all runs before 150,000 steps",
        MAZE_TEXT,
        whole(("lbs", "icm", "disagreement"), 150_000),
    ),
    PaperClaim(
        "VIME visits all seven cells of Ant Maze in all runs, but takes longer than LBS, ICM and Disagreement",
        MAZE_TEXT,
        (
            *whole(("vime",)),
            *(
                Comparison(Side("vime", ANT_MAZE, measure="speed"), Side(fast, ANT_MAZE, measure="speed"))
                for fast in ("lbs", "icm", "disagreement")
            ),
        ),
    ),
    PaperClaim(
        "RND and Random stay far below 100 % in Ant Maze",
        MAZE_TEXT,
        tuple(
            Comparison(high, Side(low, ANT_MAZE))
            for low in ("rnd", "random")
            for high in (Mark("6 of the 7 cells", 600 / 7), Side("lbs", ANT_MAZE))
        ),
    ),
    PaperClaim(
        "The episodic term helps RIDE and NGU on Half-Cheetah and in Ant Maze",
        HELPS,
        tuple(Comparison(Side(m, task), Side(f"{m}-no-count", task)) for m in ("ride", "ngu") for task in MUJOCO),
    ),
    PaperClaim(
        "NGU stays below LBS on Half-Cheetah and in Ant Maze, and above RIDE on Half-Cheetah",
        NGU_BETWEEN,
        (*(Comparison(Side("lbs", t), Side("ngu", t)) for t in MUJOCO), *against("ngu", ("ride",), (HALF_CHEETAH,))),
    ),
    PaperClaim(
        "RIDE keeps up with LBS in Ant Maze but not on Half-Cheetah",
        RIDE_WHERE,
        (*against("ride", ("lbs",), (ANT_MAZE,), claim="not less"), *against("lbs", ("ride",), (HALF_CHEETAH,))),
    ),
    *(
        PaperClaim(
            f"In the end {name} pays for what no model can foresee as much as for what one can",
            MNIST_TEXT,
            (Comparison(Side(method, MNIST, measure="ratio"), Mark("1", 1.0), "near"),),
        )
        for method, name in (("lbs", "LBS"), ("disagreement", "Disagreement"))
    ),
    *(
        PaperClaim(
            f"{method.upper()} still pays more for what no model can foresee in the end",
            MNIST_TEXT,
            (Comparison(Side(method, MNIST, measure="ratio"), Mark(f"{ratio.NEAR[1]:g}", ratio.NEAR[1])),),
        )
        for method in ("icm", "rnd")
    ),
)


def judge(records: Sequence[Record], metric: str | None) -> list[Judged]:
    """Every claim whose lines are all there, with its verdict; claims that cannot be tested are left out.

    Nothing is judged where the lines stand on unequal ground (other presets or other lengths of training), nor where
    training was not as long as the paper's; a line with settings of its own is not the paper's method. A line that has
    lost seeds is judged by those that are left, except that "every run" cannot be shown then. Where the paper does not
    say how long its runs were, ours must be as long as a full run is by default.
    """
    as_long = all(record.budget == STEPS.get(record.task, record.budget) for record in records)
    if len({record.preset for record in records}) > 1 or not as_long:
        return []
    found = {(record.label, record.task): record for record in records if record.published_as == record.label}
    judged = against_authors(found, metric) if metric else []
    for claim in CLAIMS:
        labels = {side.label for comparison in claim.comparisons for side in comparison.sides}
        if not labels <= {label for label, _ in found}:
            continue
        testable = [c for c in claim.comparisons if all(usable(side, found, counted_in(c, metric)) for side in c.sides)]
        if testable:
            outcomes = compare(testable, found, metric or METRIC)
            missing = len(claim.comparisons) - len(testable)
            judged.append(Judged(claim, verdict(outcomes, missing), outcomes, missing))
    return judged


def counted_in(comparison: Comparison, metric: str | None) -> str:
    """The metric of a comparison: the paper's cells where it is about their number, else the one that headlines."""
    if comparison.of_ratio:
        return RATIO
    return (metric or METRIC) if comparison.usual else METRIC


def full(task: str) -> int:
    """Steps of a full run."""
    return TASKS[task].cls.budget if task in TASKS else 0


def usable(side: Side, found: Mapping[tuple[str, str], Record], metric: str) -> bool:
    """Whether there are at least two runs to test, long enough, and for a relative side the task without noise."""
    record = found.get((side.label, side.task))
    if record is None or metric not in record.curves or len(record.seeds) < 2 or record.budget < (side.steps or 0):
        return False
    if side.measure == "ratio":
        return len(record.seeds) >= statistics.FEWEST and record.budget >= full(record.task)
    plain = found.get((side.label, PLAIN))
    if not side.relative:
        return True
    return plain is not None and plain.budget == record.budget and float(plain.final(metric).mean()) > 0


def values(side: Side, found: Mapping[tuple[str, str], Record], metric: str) -> np.ndarray:
    """One number for each seed."""
    record = found[side.label, side.task]
    if side.measure == "speed":
        reached = statistics.steps_to(record.steps, record.curves[metric], WHOLE)
        return np.array([np.inf if step is None else step for step in reached])
    upto = record.budget if side.steps is None else side.steps
    last = max(int(np.searchsorted(record.steps, upto, side="right")) - 1, 0)
    final = np.asarray(record.curves[metric][:, last], float)
    return 100.0 * (final >= WHOLE) if side.measure == "whole" else final


def compare(
    comparisons: Sequence[Comparison], found: Mapping[tuple[str, str], Record], metric: str
) -> tuple[Outcome, ...]:
    """Test all comparisons of a claim together; those of ratios are decided by their intervals."""
    if all(comparison.of_ratio for comparison in comparisons):
        return tuple(by_interval(comparison, found) for comparison in comparisons)
    tested = [decide(comparison, found, counted_in(comparison, metric)) for comparison in comparisons]
    adjusted = statistics.holm([each.p for each in tested])
    return tuple(
        outcome(comparison, replace(each, p=float(p)))
        for comparison, each, p in zip(comparisons, tested, adjusted, strict=True)
    )


def by_interval(comparison: Comparison, found: Mapping[tuple[str, str], Record]) -> Outcome:
    """A ratio and where it is claimed to be: near 1, or above a mark."""
    (side,), mark = comparison.sides, comparison.right
    assert isinstance(mark, Mark)
    final = found[side.label, side.task].in_the_end(RATIO)
    limits = ratio.interval(final)
    place = ratio.place(limits)
    shown = place == ("near 1" if comparison.claim == "near" else "above")
    # An interval that reaches up to the border from below is against "above" as one inside is.
    outside = (
        place in ("above", "below") if comparison.claim == "near" else limits is not None and limits[1] <= mark.value
    )
    return Outcome(comparison, float(final.mean()), mark.value, None, None, shown, outside, limits)


@dataclass(frozen=True)
class Tested:
    """Both numbers, the p value of their difference, the chance that a run of the left beats one of the right."""

    left: float
    right: float
    p: float
    chance: float | None = None
    #: Whether left is ahead, where the numbers alone do not say it.
    ahead: bool | None = None


def decide(comparison: Comparison, found: Mapping[tuple[str, str], Record], metric: str) -> Tested:
    """A comparison by the test that fits what is compared."""
    left, right = comparison.left, comparison.right
    if isinstance(left, Mark) or isinstance(right, Mark):
        return against_mark(left, right, found, metric)
    if left.relative:
        return relative(left, right, found, metric)
    x, y = values(left, found, metric), values(right, found, metric)
    if left.measure == "speed":
        later, p = statistics.later_test(x, y)
        return Tested(float(np.median(x)) / 1000, float(np.median(y)) / 1000, p, ahead=later)
    p, chance = statistics.difference_test(x, y), statistics.improvement(x, y)[0]
    return Tested(float(x.mean()), float(y.mean()), p, chance)


def against_mark(left: Side | Mark, right: Side | Mark, found: Mapping[tuple[str, str], Record], metric: str) -> Tested:
    """A line against a number."""
    side, mark = (left, right) if isinstance(left, Side) else (right, left)
    assert isinstance(side, Side)
    assert isinstance(mark, Mark)
    x = values(side, found, metric)
    if side.measure == "whole":
        p = statistics.share_test(int(x.sum()) // 100, len(x), mark.runs or 1, mark.runs or 1)
        lost = len(found[side.label, side.task].lost)
        return Tested(float(x.mean()), mark.value, p, ahead=bool(x.all()) and not lost)
    if mark.runs is None:
        p = statistics.mean_test(x, mark.value)
    else:
        p = statistics.agreement(x, mark.value, mark.runs, mark.within)[1] or 0.0
    mean = float(x.mean())
    return Tested(mean, mark.value, p) if side is left else Tested(mark.value, mean, p)


def relative(left: Side, right: Side, found: Mapping[tuple[str, str], Record], metric: str) -> Tested:
    """Both shares of the coverage without noise, and the p value of their difference."""
    groups = []
    for side in (left, right):
        groups += [values(side, found, metric), values(replace(side, task=PLAIN), found, metric)]
    shares = [float(groups[k].mean() / groups[k + 1].mean()) for k in (0, 2)]
    return Tested(shares[0], shares[1], statistics.ratio_test(*groups))


def outcome(comparison: Comparison, tested: Tested) -> Outcome:
    """What a corrected p value says about a comparison."""
    significant = tested.p < LEVEL
    ahead = tested.left > tested.right if tested.ahead is None else tested.ahead
    contradicted = significant and not ahead
    shown = {"greater": significant and ahead, "not less": not contradicted, "every": ahead}[comparison.claim]
    return Outcome(comparison, tested.left, tested.right, tested.p, tested.chance, shown, contradicted)


def against_authors(found: Mapping[tuple[str, str], Record], metric: str) -> list[Judged]:
    """Whether LBS is worse than the authors' released code, wherever that was run for as long."""
    comparisons, tested = [], []
    for task in EVERYWHERE:
        record, theirs = found.get(("lbs", task)), measured(task, "lbs", metric)
        if record is None or theirs is None or len(record.seeds) < 2 or record.published_as is None:
            continue
        if record.budget == theirs.steps and record.preset == "paper-code":
            final, mean = np.asarray(record.final(metric), float), float(np.mean(theirs.values))
            runs = ", ".join(f"{value:g}" for value in theirs.values)
            comparisons.append(Comparison(Side("lbs", task), Side(f"authors' code ({runs})", task), "not less"))
            p = statistics.agreement(final, mean, len(theirs.values))[1] or 0.0
            tested.append(Tested(float(final.mean()), mean, p))
    if not comparisons:
        return []
    # Not corrected for their number: a correction would make it easier not to be worse.
    outcomes = tuple(map(outcome, comparisons, tested))
    claim = PaperClaim("LBS is not worse than the authors' released code on any variant", CODE, tuple(comparisons))
    missing = len(EVERYWHERE) - len(comparisons)
    return [Judged(claim, verdict(outcomes, missing), outcomes, missing)]


def verdict(outcomes: Sequence[Outcome], missing: int) -> Literal["held", "not held", "open"]:
    """Held if all is shown and nothing is missing, not held if anything is contradicted."""
    if any(outcome.contradicted for outcome in outcomes):
        return "not held"
    return "held" if not missing and all(outcome.shown for outcome in outcomes) else "open"
