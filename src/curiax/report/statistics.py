"""The statistics of the tables: one final number for each seed in, an honest number with its uncertainty out.

Everything is NumPy and SciPy on small arrays, seeded, and does not depend on the order of the runs: the same runs give
the same report. `values` are one number for each seed, `curves` are [S, K] over seeds and recorded steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

Statistic = Literal["mean", "iqm"]
Side = Literal["two-sided", "greater", "less"]

#: One less than a round number, so that the usual levels fall on an order statistic and need no interpolation.
RESAMPLES = 4999
PERMUTATIONS = 9999
#: The fewest values that get an interval: two say next to nothing about their own spread.
FEWEST = 3
#: From so many values on the mean's interval is a bootstrap's; fewer have too few different resamples.
BOOTSTRAPPED = 5
#: Studentised resamples of tied values divide by (nearly) nothing; critical values stop at so many times Student's.
CAP = 2.0
#: So many sets are resampled at once: their draws stay in a processor's cache, four times as fast as fifty sets.
TOGETHER = 16


def iqm(values: ArrayLike) -> float:
    """Interquartile mean: the mean without the lowest and the highest quarter, n // 4 values each, i.e. the 25 %
    trimmed mean (Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", 2021)."""
    data = np.sort(_numbers("iqm", values))
    return float(_middle(data).mean())


def interval(
    values: ArrayLike, statistic: Statistic = "mean", level: float = 0.95, seed: int = 0
) -> tuple[float, float] | None:
    """Confidence interval of the mean or the interquartile mean; None for fewer than three values, (v, v) for constant
    ones. The mean has Student's t for n < 5, the equal-tailed bootstrap-t for n < 8 (Efron and Tibshirani, "An
    Introduction to the Bootstrap", 1993, chapter 12) and the symmetric bootstrap-t from 8 on (Hall, "On Symmetric
    Bootstrap Confidence Intervals", 1988); their critical values stop at twice Student's, since resamples of tied
    values have no spread to divide by. The interquartile mean has t quantiles times its bootstrap standard error for
    n < 8, and from 8 on the percentile bootstrap with its tails expanded for the few values kept (Hesterberg, "What
    Teachers Should Know About the Bootstrap", 2015): with half of the values trimmed, a bootstrap-t is several times
    wider for the same coverage.
    `tests/report/test_statistics.py` measures the coverage that decided this. Limits may lie outside a bounded metric's
    range. They are not cut here: `table.possible` and `ratio.interval` do so for what tables and figures show."""
    data = _numbers("interval", values)
    if statistic not in ("mean", "iqm"):
        raise ValueError(f'interval: the statistic must be "mean" or "iqm"; got {statistic!r}.')
    _check_level("interval", level)
    if data.size < FEWEST:
        return None
    low, high = _limits(data[None], statistic, level, seed)
    return float(low[0]), float(high[0])


def band(curves: ArrayLike, level: float = 0.95, seed: int = 0) -> tuple[np.ndarray, np.ndarray] | None:
    """`interval` of the mean at each recorded step of curves [S, K]: lower and upper limits [K], pointwise, not
    simultaneous; None for fewer than three seeds."""
    data = _curves("band", curves)
    _check_level("band", level)
    if len(data) < FEWEST:
        return None
    return _limits(data.T, "mean", level, seed)


def area(steps: ArrayLike, curves: ArrayLike) -> np.ndarray:
    """Mean of each curve over training [S]: the area under it by the trapezoid rule, from value 0 at step 0, divided by
    the last step."""
    times, data = _recorded("area", steps, curves)
    times = np.concatenate([[0.0], times])
    return np.trapezoid(np.pad(data, ((0, 0), (1, 0))), times, axis=1) / times[-1]


def steps_to(steps: ArrayLike, curves: ArrayLike, threshold: float | int) -> list[int | None]:
    """The first recorded step at which each seed's curve is at least the threshold; None if it never is."""
    times, data = _recorded("steps_to", steps, curves)
    if not np.isfinite(threshold):
        raise ValueError(f"steps_to: the threshold must be finite; got {threshold}.")
    reached = data >= threshold
    return [int(times[row.argmax()]) if row.any() else None for row in reached]


def median_steps(reached: Sequence[int | None]) -> float | None:
    """Median of `steps_to`, where never counts as infinitely late; None if the median itself is infinite."""
    if not len(reached):
        raise ValueError("median_steps: no seeds given.")
    late = np.array([np.inf if step is None else step for step in reached])
    if np.isnan(late).any():
        raise ValueError("median_steps: steps must be numbers, or None for never; got NaN.")
    median = float(np.median(late))
    return median if np.isfinite(median) else None


def improvement(
    x: ArrayLike, y: ArrayLike, level: float = 0.95, seed: int = 0
) -> tuple[float, float | None, float | None]:
    """Probability that a run of x beats a run of y, P(X > Y) + P(X = Y) / 2 over all pairs, with the percentile
    interval of a bootstrap that resamples both groups (Agarwal et al., 2021); the limits are None if a group has fewer
    than three values. The interval is the customary one, and a little short: 95 % intervals of two groups of 8 cover
    92 %. For groups that do not overlap it is a single point, as no resample of theirs overlaps either: read it with
    `difference_test`."""
    left, right = np.sort(_numbers("improvement", x)), np.sort(_numbers("improvement", y))
    _check_level("improvement", level)
    wins = np.sign(left[:, None] - right[None, :]) / 2 + 0.5
    probability = float(wins.mean())
    if min(left.size, right.size) < FEWEST:
        return probability, None, None
    rng = np.random.default_rng(seed)
    ours, theirs = (_shares(rng.integers(size, size=(RESAMPLES, size)), size) for size in wins.shape)
    draws = np.sum(_product(ours, wins) * theirs, axis=1)
    low, high = _tails(draws[None], (1 - level) / 2)
    # The sums of shares are off by rounding; a probability stays one.
    return probability, float(max(low[0], 0.0)), float(min(high[0], 1.0))


def difference_test(x: ArrayLike, y: ArrayLike, side: Side = "two-sided", seed: int = 0) -> float:
    """p-value of the permutation test of equal means with Welch's t as the statistic, which is exact for groups of one
    distribution and stays valid in large samples if only the means are equal (Chung and Romano, "Exact and
    Asymptotically Robust Permutation Tests", 2013). "greater" asks whether x is greater. All C(n + m, n) divisions into
    groups are counted if they are at most 10000; else 9999 random ones and the observed one. So the smallest p is one
    division of all of them (two, two-sided with n = m), but never below 1 / 10000. Groups without any spread count as
    infinitely far apart, or as equal."""
    left, right = np.sort(_numbers("difference_test", x)), np.sort(_numbers("difference_test", y))
    if side not in ("two-sided", "greater", "less"):
        raise ValueError(f'difference_test: the side must be "two-sided", "greater" or "less"; got {side!r}.')
    if min(left.size, right.size) < 2:
        raise ValueError("difference_test: each group needs two values or more, to have a spread.")
    pooled = np.concatenate([left, right])
    if np.ptp(pooled) == 0:
        return 1.0
    divisions = _divisions(left.size, right.size, seed)
    far = _welch(((pooled - pooled.mean()) / np.ptp(pooled))[divisions], left.size)
    far = {"two-sided": np.abs(far), "greater": far, "less": -far}[side]
    # The same division in another order differs by rounding, and must count as a tie.
    return float(np.mean(far >= far[0] - 1e-9 * (1 + np.abs(far[0]))))


def ratio_test(x: ArrayLike, x_base: ArrayLike, y: ArrayLike, y_base: ArrayLike) -> float:
    """Two-sided p-value for equal ratios of means, mean(x) / mean(x_base) against mean(y) / mean(y_base), of four
    independent groups: a normal test of the difference of the log ratios, with the variance of each log mean by the
    delta method, (s / mean)² / n. All means must be positive. Without any variance a difference gives 0, none 1."""
    from scipy.stats import norm

    groups = [_numbers("ratio_test", values) for values in (x, x_base, y, y_base)]
    if min(len(group) for group in groups) < 2 or min(group.mean() for group in groups) <= 0:
        raise ValueError("ratio_test: every group needs at least two values and a positive mean.")
    logs = [math.log(group.mean()) for group in groups]
    gap = (logs[0] - logs[1]) - (logs[2] - logs[3])
    variance = sum((group.std(ddof=1) / group.mean()) ** 2 / len(group) for group in groups)
    return float(2 * norm.sf(abs(gap) / math.sqrt(variance))) if variance > 0 else float(gap == 0)


def relative_change(
    x: ArrayLike, base: ArrayLike, level: float = 0.95, seed: int = 0
) -> tuple[float, float | None, float | None]:
    """`100 (mean(x) / mean(base) − 1)` with its interval, None for fewer than three values in a group: the symmetric
    bootstrap-t of the log ratio, both groups resampled, standard errors by the delta method."""
    from scipy.stats import t as student

    _check_level("relative_change", level)
    groups = [np.sort(_numbers("relative_change", values)) for values in (x, base)]
    change = 100 * (groups[0].mean() / groups[1].mean() - 1)
    if min(len(group) for group in groups) < FEWEST or min(group.mean() for group in groups) <= 0:
        return float(change), None, None
    rng = np.random.default_rng(seed)
    drawn = [group[rng.integers(0, len(group), (RESAMPLES, len(group)))] for group in groups]

    def log_ratio(pair: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        means = [np.maximum(data.mean(-1), np.finfo(float).tiny) for data in pair]
        spreads = [
            data.std(-1, ddof=1) / mean / math.sqrt(data.shape[-1]) for data, mean in zip(pair, means, strict=True)
        ]
        return np.asarray(np.log(means[0] / means[1])), np.asarray(np.hypot(*spreads))

    centre, error = log_ratio(groups)
    ratios, errors = log_ratio(drawn)
    # A resample without spread says nothing about the error; it is given ours.
    pivots = np.abs(ratios - centre) / np.where(errors > 0, errors, max(float(error), np.finfo(float).tiny))
    # Capped as the interval of a mean is: now and then a resample has next to no spread.
    widest = CAP * float(student.ppf((1 + level) / 2, min(len(group) for group in groups) - 1))
    reach = min(float(np.quantile(pivots, level)), widest) * float(error)
    low, high = (100 * (math.exp(float(centre) + sign * reach) - 1) for sign in (-1, 1))
    return float(change), low, high


def holm(p_values: ArrayLike) -> np.ndarray:
    """p-values adjusted for their number, in the order given: Holm's step-down method, which bounds the chance of any
    false rejection ("A Simple Sequentially Rejective Multiple Test Procedure", 1979)."""
    data = _numbers("holm", p_values)
    if data.min() < 0 or data.max() > 1:
        raise ValueError("holm: p-values must lie between 0 and 1.")
    order = np.argsort(data, kind="stable")
    adjusted = np.empty_like(data)
    adjusted[order] = np.minimum(np.maximum.accumulate(data[order] * np.arange(data.size, 0, -1)), 1.0)
    return adjusted


def later_test(x: ArrayLike, y: ArrayLike) -> tuple[bool, float]:
    """Whether x's times to reach something are later on average of ranks, and the two-sided p-value: `difference_test`
    of the midranks of both groups together (Neubert and Brunner, "A Studentized Permutation Test for the Nonparametric
    Behrens-Fisher Problem", 2007). Never is infinity, and ties with never; so it needs no time after the end."""
    from scipy.stats import rankdata

    left, right = np.asarray(x, float), np.asarray(y, float)
    if np.isnan(left).any() or np.isnan(right).any():
        raise ValueError("later_test: times must be numbers, or infinity for never; got NaN.")
    ranks = rankdata(np.concatenate([left, right]))
    ours, theirs = ranks[: left.size], ranks[left.size :]
    return bool(ours.mean() > theirs.mean()), difference_test(ours, theirs)


def share_test(count: int, total: int, other_count: int, other_total: int) -> float:
    """Two-sided p-value of Fisher's exact test: whether `count` of `total` and `other_count` of `other_total` runs can
    be of one chance ("The Design of Experiments", 1935)."""
    from scipy.stats import fisher_exact

    if not (0 <= count <= total and 0 <= other_count <= other_total and total and other_total):
        raise ValueError(f"share_test: {count} of {total} and {other_count} of {other_total} are not shares of runs.")
    found = fisher_exact([[count, total - count], [other_count, other_total - other_count]])
    return float(found.pvalue)  # pyright: ignore[reportAttributeAccessIssue]


def mean_test(values: ArrayLike, number: float | int) -> float:
    """Two-sided p-value of Student's t test of whether the mean is a number that is known exactly; without any spread
    a difference gives 0, none 1."""
    from scipy.stats import t

    data = _numbers("mean_test", values)
    if data.size < 2:
        raise ValueError("mean_test: two values or more are needed, to have a spread.")
    if np.ptp(data) == 0:
        return float(data[0] == number)
    return float(2 * t.sf(np.abs(data.mean() - number) / (data.std(ddof=1) / np.sqrt(data.size)), data.size - 1))


def agreement_with_spread(
    values: ArrayLike, published: float, spread: float, published_seeds: int
) -> tuple[str, float | None, float | None]:
    """`agreement` with a published mean whose runs' standard deviation is published too: Welch's t test. Also the
    smallest difference of the means that it would call significant. For fewer than two values "untested"."""
    from scipy.stats import t

    data = np.sort(_numbers("agreement_with_spread", values))
    if data.size < 2:
        return "untested", None, None
    centre = float(data[0] if data[0] == data[-1] else data.mean())
    parts = np.array([data.var(ddof=1) / data.size if data[0] != data[-1] else 0.0, spread**2 / published_seeds])
    gap = centre - published
    if not parts.any():
        # Neither has any spread: then any difference is one.
        return ("agrees", 1.0, 0.0) if gap == 0 else ("above" if gap > 0 else "below", 0.0, 0.0)
    freedom = parts.sum() ** 2 / (parts**2 / np.array([data.size - 1, published_seeds - 1])).sum()
    error = float(np.sqrt(parts.sum()))
    p = float(2 * t.sf(abs(gap) / error, freedom))
    return "agrees" if p >= 0.05 else "above" if gap > 0 else "below", p, float(t.ppf(0.975, freedom)) * error


def agreement(
    values: ArrayLike, published: float | int, published_seeds: int, within: float | int = 0.0
) -> tuple[str, float | None]:
    """Verdict on a published mean of `published_seeds` runs whose spread is not known, with its two-sided p-value:
    "agrees" if it lies in the 95 % prediction interval for the mean of so many further runs of ours, else "above" or
    "below", which is where ours is; "untested" for fewer than two values. The published runs are assumed to scatter as
    ours do: t = (mean - published) / (s sqrt(1 / n + 1 / published_seeds)) with n - 1 degrees of freedom (Hahn and
    Meeker, "Statistical Intervals", 1991). False alarms are 5 % for normal runs; 8 against 8 runs as
    skewed as coverage near its maximum have 6.3 %, nearly all of them "above". Where the published mean is only known
    `within` so much, the p-value is the largest that any mean in that range has: that of the one nearest to ours."""
    from scipy.stats import t

    data = np.sort(_numbers("agreement", values))
    if not np.isfinite(published):
        raise ValueError(f"agreement: the published mean must be finite; got {published}.")
    if published_seeds < 1:
        raise ValueError(f"agreement: the published mean needs one run or more; got {published_seeds}.")
    if not 0 <= within < np.inf:
        raise ValueError(f"agreement: a published mean is known within 0 or more; got {within}.")
    if data.size < 2:
        return "untested", None
    # The mean of equal values may differ from them by rounding.
    centre = data[0] if data[0] == data[-1] else data.mean()
    distance = centre - np.clip(centre, published - within, published + within)
    if data[0] == data[-1]:
        p = float(distance == 0)
    else:
        spread = data.std(ddof=1) * np.sqrt(1 / data.size + 1 / published_seeds)
        p = float(2 * t.sf(np.abs(distance) / spread, data.size - 1))
    if p >= 0.05:
        return "agrees", p
    return ("above" if distance > 0 else "below"), p


def collapsed(final: Mapping[int, float | int], threshold: float | int = 60.0) -> tuple[int, ...]:
    """The seeds, in order, that ended below the threshold."""
    _numbers("collapsed", list(final.values()))
    return tuple(sorted(seed for seed, value in final.items() if value < threshold))


# --- what they share --------------------------------------------------------------------------------------


def _numbers(function: str, values: ArrayLike) -> np.ndarray:
    data = np.asarray(values, float)
    if data.ndim != 1:
        raise ValueError(f"{function}: expected one number for each seed; got an array of shape {data.shape}.")
    return _finite(function, data)


def _curves(function: str, curves: ArrayLike) -> np.ndarray:
    data = np.asarray(curves, float)
    if data.ndim != 2:
        raise ValueError(f"{function}: expected curves over seeds and steps; got an array of shape {data.shape}.")
    return _finite(function, data)


def _finite(function: str, data: np.ndarray) -> np.ndarray:
    if not data.size:
        raise ValueError(f"{function}: no values given.")
    if not np.isfinite(data).all():
        raise ValueError(f"{function}: {np.sum(~np.isfinite(data))} of {data.size} values are not finite.")
    return data


def _recorded(function: str, steps: ArrayLike, curves: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    times, data = _numbers(function, steps), _curves(function, curves)
    if times.size != data.shape[1]:
        raise ValueError(f"{function}: {times.size} steps, but curves of {data.shape[1]} values.")
    if times[0] < 0 or times[-1] <= 0 or (np.diff(times) <= 0).any():
        raise ValueError(f"{function}: steps must increase, and not from below 0.")
    return times, data


def _check_level(function: str, level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"{function}: the level must lie between 0 and 1; got {level}.")


def _middle(ordered: np.ndarray) -> np.ndarray:
    trim = ordered.shape[-1] // 4
    return ordered[..., trim : ordered.shape[-1] - trim]


def _shares(chosen: np.ndarray, size: int) -> np.ndarray:
    """[B, size]: how much each value weighs in the mean of each row of chosen indices."""
    rows, length = chosen.shape
    flat = chosen + size * np.arange(rows)[:, None]
    return np.bincount(flat.ravel(), minlength=rows * size).reshape(rows, size) / length


@lru_cache(maxsize=8)
def _resamples(size: int, statistic: Statistic, seed: int) -> np.ndarray:
    """[size, B]: weights of the ordered values in the statistic of each resample. The data are sorted, so a resample's
    order is that of its indices, and its trimmed mean is linear in the data too."""
    chosen = np.random.default_rng(seed).integers(size, size=(RESAMPLES, size))
    if statistic == "iqm":
        chosen = _middle(np.sort(chosen, axis=1))
    weights = np.ascontiguousarray(_shares(chosen, size).T)
    weights.setflags(write=False)
    return weights


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The product of two matrices, without BLAS: on a busy machine its threads wait for each other, twenty times as
    long as the product takes, and its last bits are not the same on every processor."""
    return np.einsum("ij,jk->ik", left, right, optimize=False)


def _limits(sets: np.ndarray, statistic: Statistic, level: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`interval` of each row of data sets [D, n], all with the same resamples."""
    ordered = np.sort(sets, axis=1)
    size = ordered.shape[1]
    if size < 4:
        # Nothing is trimmed: the interquartile mean is the mean.
        statistic = "mean"
    # In units of each set's range, so that no guard against rounding depends on the units of a metric.
    scale = np.ptp(ordered, axis=1)
    centre = (ordered if statistic == "mean" else _middle(ordered)).mean(axis=1)
    scaled = (ordered - centre[:, None]) / np.where(scale > 0, scale, 1.0)[:, None]
    limits = _of_mean if statistic == "mean" else _of_iqm
    parts = [limits(scaled[k : k + TOGETHER], level, seed) for k in range(0, len(scaled), TOGETHER)]
    low, high = (np.concatenate(ends) for ends in zip(*parts, strict=True))
    constant = scale == 0
    return (
        np.where(constant, ordered[:, 0], centre + scale * low),
        np.where(constant, ordered[:, 0], centre + scale * high),
    )


def _of_mean(scaled: np.ndarray, level: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Limits relative to the mean, for rows of mean zero."""
    size = scaled.shape[1]
    error = scaled.std(axis=1, ddof=1) / np.sqrt(size)
    student = _student(level, size)
    if size < BOOTSTRAPPED:
        return -student * error, student * error
    weights = _resamples(size, "mean", seed)
    means = _product(scaled, weights)
    spreads = _product(scaled**2, weights) - means**2
    # A resample of one value only has no spread: the floor makes its ratio huge, and the cap makes that harmless.
    ratios = means / np.sqrt(np.maximum(spreads, 1e-16) / (size - 1))
    if size < 8:
        lowest, highest = _tails(ratios, (1 - level) / 2)
    else:
        highest = _tails(np.abs(ratios), 1 - level)[1]
        lowest = -highest
    bound = CAP * student
    return -np.minimum(highest, bound) * error, -np.maximum(lowest, -bound) * error


def _of_iqm(scaled: np.ndarray, level: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Limits relative to the interquartile mean, for rows of interquartile mean zero."""
    from scipy.stats import norm

    size = scaled.shape[1]
    draws = _product(scaled, _resamples(size, "iqm", seed))
    if size < 8:
        # So few values have so few different resamples that their percentiles end before the level is reached.
        half = _student(level, size) * draws.std(axis=1)
        return -half, half
    # Resamples scatter by the spread with divisor h instead of h - 1, for the h values kept: too little.
    kept = _middle(scaled).shape[1]
    return _tails(draws, float(norm.cdf(norm.ppf((1 - level) / 2) * np.sqrt(kept / (kept - 1)))))


@lru_cache(maxsize=64)
def _student(level: float, size: int) -> float:
    """How many standard errors Student's interval of so many values reaches to either side."""
    from scipy.stats import t

    return float(t.ppf((1 + level) / 2, size - 1))


def _tails(draws: np.ndarray, tail: float) -> tuple[np.ndarray, np.ndarray]:
    """The order statistics of each row that cut off so much at either end; at least the outermost ones."""
    count = draws.shape[1]
    # The tiny addition undoes the rounding of products such as 0.025 * 5000.
    rank = max(int(tail * (count + 1) + 1e-9), 1) - 1
    # One after the other: NumPy looks for two ranks at once without the processor's wide instructions, at ten times
    # the cost of one.
    low, high = (np.partition(draws, end, axis=1)[:, end] for end in (rank, count - 1 - rank))
    return low, high


@lru_cache(maxsize=8)
def _divisions(left: int, right: int, seed: int) -> np.ndarray:
    """[P, left + right] orders of the pooled values whose first `left` are one group; the first row is the observed."""
    size = left + right
    if comb(size, left) <= PERMUTATIONS + 1:
        first = np.array(list(combinations(range(size), left)))
        member = np.zeros((len(first), size), bool)
        np.put_along_axis(member, first, True, axis=1)
        orders = np.argsort(~member, axis=1, kind="stable")
    else:
        observed = np.arange(size)
        shuffled = np.random.default_rng(seed).permuted(np.tile(observed, (PERMUTATIONS, 1)), axis=1)
        orders = np.concatenate([observed[None], shuffled])
    orders.setflags(write=False)
    return orders


def _welch(pooled: np.ndarray, left: int) -> np.ndarray:
    """Welch's t of each row's first `left` values against the rest, for values in units of their range."""
    x, y = pooled[:, :left], pooled[:, left:]
    distance = x.mean(axis=1) - y.mean(axis=1)
    distance = np.where(np.abs(distance) < 1e-12, 0.0, distance)
    variance = x.var(axis=1, ddof=1) / x.shape[1] + y.var(axis=1, ddof=1) / y.shape[1]
    return distance / np.sqrt(np.maximum(variance, 1e-20))
