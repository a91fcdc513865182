"""The paper's claims about these tasks, each as comparisons that a test can decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ..experiments.published import CODE, STEPS, measured
from ..experiments.suites import EVOLVING, FROZEN, PLAIN
from . import statistics
from .record import Record

EVERYWHERE = (PLAIN, FROZEN, EVOLVING)
NOISY = (FROZEN, EVOLVING)
LEVEL = 0.05
TEST = (
    "Each comparison is a two-sided permutation test of the studentised difference of means (Chung & Romano 2013); of "
    "shares of the coverage without noise, a test of the difference of the logarithms of the ratios, whose variance "
    "counts all four groups; of the authors' few runs, a t test that takes theirs to scatter as ours do. p values are "
    "corrected by Holm's method within the claim. “Held”: every comparison is significant in the claimed direction at "
    "the 5 % level (where the claim is only “not less”, ≥: none is significant against it, which is no proof of "
    "equality). “Not held”: at least one is significant against it. “Open”: neither, or some could not be tested."
)


@dataclass(frozen=True)
class Side:
    """What is compared: a line's coverage on a task, in the end, after `steps`, or as a share of it without noise."""

    label: str
    task: str
    steps: int | None = None
    relative: bool = False

    def describe(self) -> str:
        """In words."""
        when = "" if self.steps is None else f" at {self.steps:,} steps"
        return f"{self.label} on {self.task}{when}{', relative to itself without noise' if self.relative else ''}"


@dataclass(frozen=True)
class Comparison:
    """Left is claimed to be `greater` than right, or `not less`."""

    left: Side
    right: Side
    claim: Literal["greater", "not less"] = "greater"


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
    p: float
    #: None where it makes no sense: of shares, and against a handful of runs.
    improvement: float | None
    shown: bool
    contradicted: bool


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
        "The episodic term helps RIDE and NGU everywhere",
        '"Overall, the episodic count component improves performance both for NGU and RIDE across all environments, '
        'especially in stochastic settings"',
        tuple(Comparison(Side(m, task), Side(f"{m}-no-count", task)) for m in ("ride", "ngu") for task in EVERYWHERE),
    ),
    PaperClaim(
        "NGU stays below LBS everywhere, and above RIDE on the noisy variants",
        '"NGU consistently underperforms LBS but leads to better exploration than RIDE in HalfCheetah and the '
        'stochastic benchmarks"',
        (
            *(Comparison(Side("lbs", task), Side("ngu", task)) for task in EVERYWHERE),
            *(Comparison(Side("ngu", task), Side("ride", task)) for task in NOISY),
        ),
    ),
    PaperClaim(
        "RIDE keeps up with LBS on Mountain Car but not on the noisy variants",
        '"RIDE performs well in MountainCar and AntMaze but struggles in the higher-dimensional HalfCheetah '
        'environment and in the stochastic benchmarks"',
        (
            Comparison(Side("ride", PLAIN), Side("lbs", PLAIN), "not less"),
            *(Comparison(Side("lbs", task), Side("ride", task)) for task in NOISY),
        ),
    ),
)


def judge(records: Sequence[Record], metric: str | None) -> list[Judged]:
    """Every claim whose lines are all there, with its verdict; claims that cannot be tested are left out.

    Nothing is judged where the lines stand on unequal ground (other presets or other lengths of training), nor where
    training was not as long as the paper's; a line with settings of its own is not the paper's method.
    """
    if metric is None or len({record.preset for record in records}) > 1 or {r.budget for r in records} != {STEPS}:
        return []
    found = {(record.label, record.task): record for record in records if record.published_as == record.label}
    judged = against_authors(found, metric)
    for claim in CLAIMS:
        sides = [(side.label, side.task) for c in claim.comparisons for side in (c.left, c.right)]
        labels = {label for label, _ in sides}
        if not labels <= {label for label, _ in found}:
            continue
        testable = [c for c in claim.comparisons if all(usable(side, found, metric) for side in (c.left, c.right))]
        if testable:
            outcomes = compare(testable, found, metric)
            missing = len(claim.comparisons) - len(testable)
            judged.append(Judged(claim, verdict(outcomes, missing), outcomes, missing))
    return judged


def usable(side: Side, found: Mapping[tuple[str, str], Record], metric: str) -> bool:
    """Whether there are at least two runs to test, long enough, and for a relative side the task without noise."""
    record = found.get((side.label, side.task))
    if record is None or metric not in record.curves or len(record.seeds) < 2 or record.budget < (side.steps or 0):
        return False
    plain = found.get((side.label, PLAIN))
    if not side.relative:
        return True
    return plain is not None and plain.budget == record.budget and float(plain.final(metric).mean()) > 0


def values(side: Side, found: Mapping[tuple[str, str], Record], metric: str) -> np.ndarray:
    """One number for each seed."""
    record = found[side.label, side.task]
    upto = record.budget if side.steps is None else side.steps
    last = max(int(np.searchsorted(record.steps, upto, side="right")) - 1, 0)
    return np.asarray(record.curves[metric][:, last], float)


def compare(
    comparisons: Sequence[Comparison], found: Mapping[tuple[str, str], Record], metric: str
) -> tuple[Outcome, ...]:
    """Test all comparisons of a claim together."""
    tested = [relative(c, found, metric) if c.left.relative else absolute(c, found, metric) for c in comparisons]
    adjusted = statistics.holm([p for _, _, p, _ in tested])
    return tuple(
        outcome(comparison, left, right, float(p), chance)
        for comparison, (left, right, _, chance), p in zip(comparisons, tested, adjusted, strict=True)
    )


def absolute(
    comparison: Comparison, found: Mapping[tuple[str, str], Record], metric: str
) -> tuple[float, float, float, float | None]:
    """Both means, the p value of their difference, the chance that a run of the left beats one of the right."""
    x, y = values(comparison.left, found, metric), values(comparison.right, found, metric)
    p, chance = statistics.difference_test(x, y), statistics.improvement(x, y)[0]
    return float(x.mean()), float(y.mean()), p, chance


def relative(
    comparison: Comparison, found: Mapping[tuple[str, str], Record], metric: str
) -> tuple[float, float, float, float | None]:
    """Both shares of the coverage without noise, and the p value of their difference."""
    groups = []
    for side in (comparison.left, comparison.right):
        groups += [values(side, found, metric), values(replace(side, task=PLAIN), found, metric)]
    p = statistics.ratio_test(*groups)
    shares = [float(groups[k].mean() / groups[k + 1].mean()) for k in (0, 2)]
    return shares[0], shares[1], p, None


def outcome(comparison: Comparison, left: float, right: float, p: float, chance: float | None) -> Outcome:
    """What a corrected p value says about a comparison."""
    significant, ahead = p < LEVEL, left > right
    contradicted = significant and not ahead
    shown = not contradicted if comparison.claim == "not less" else significant and ahead
    return Outcome(comparison, left, right, p, chance, shown, contradicted)


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
            tested.append((float(final.mean()), mean, statistics.agreement(final, mean, len(theirs.values))[1] or 0.0))
    if not comparisons:
        return []
    # Not corrected for their number: a correction would make it easier not to be worse.
    outcomes = tuple(
        outcome(comparison, left, right, p, None)
        for comparison, (left, right, p) in zip(comparisons, tested, strict=True)
    )
    claim = PaperClaim("LBS is not worse than the authors' released code on any variant", CODE, tuple(comparisons))
    missing = len(EVERYWHERE) - len(comparisons)
    return [Judged(claim, verdict(outcomes, missing), outcomes, missing)]


def verdict(outcomes: Sequence[Outcome], missing: int) -> Literal["held", "not held", "open"]:
    """Held if all is shown and nothing is missing, not held if anything is contradicted."""
    if any(outcome.contradicted for outcome in outcomes):
        return "not held"
    return "held" if not missing and all(outcome.shown for outcome in outcomes) else "open"
