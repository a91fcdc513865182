"""The statistics of the tables against closed forms, brute force, SciPy and Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy import integrate, stats

from curiax.report.statistics import (
    RESAMPLES,
    _limits,
    agreement,
    area,
    band,
    collapsed,
    difference_test,
    holm,
    improvement,
    interval,
    iqm,
    later_test,
    mean_test,
    median_steps,
    share_test,
    steps_to,
)

Draw = Callable[[np.random.Generator, tuple[int, ...]], NDArray[Any]]

#: Whole tenths of percentages: ties are common, and every sum of them is far from rounding.
percentages = some.integers(0, 1000).map(lambda tenths: tenths / 10)
#: Numbers of seeds on both sides of every switch of method.
several = some.integers(3, 12).flatmap(lambda size: arrays(float, size, elements=percentages))


def left_skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
    return 100 * rng.beta(12, 2, shape)


# --- interquartile mean -----------------------------------------------------------------------------------


@given(arrays(float, some.integers(1, 40), elements=percentages))
def test_iqm_is_scipys_trimmed_mean(values: NDArray[Any]) -> None:
    assert iqm(values) == pytest.approx(stats.trim_mean(values, 0.25), rel=1e-12)


def test_iqm_by_hand() -> None:
    assert iqm([100.0, 0.0, 3.0, 5.0]) == 4.0
    assert iqm([7]) == 7.0


# --- intervals --------------------------------------------------------------------------------------------


def middle_half(quantile: Callable[[float], float]) -> float:
    """The population's interquartile mean: the mean of its quantiles between the quartiles."""
    return 2 * integrate.quad(quantile, 0.25, 0.75)[0]


def rounded(truth: Any) -> tuple[float, float]:
    """Mean and interquartile mean of 100 X rounded to whole numbers, from the chances of each whole number."""
    whole = np.arange(101)
    chances = np.diff(truth.cdf(np.concatenate([[0.0], (whole[:-1] + 0.5) / 100, [1.0]])))
    inner = np.diff(np.clip(np.concatenate([[0.0], np.cumsum(chances)]), 0.25, 0.75))
    return float(whole @ chances), float(whole @ inner / 0.5)


BETA = stats.beta(12, 2)
NEAR_FULL = stats.beta(60, 2)
POPULATIONS: dict[str, tuple[Draw, tuple[float, float]]] = {
    "normal": (lambda rng, shape: rng.normal(size=shape), (0.0, 0.0)),
    "uniform": (lambda rng, shape: rng.uniform(size=shape), (0.5, 0.5)),
    "left-skewed": (left_skewed, (100 * 12 / 14, 100 * middle_half(BETA.ppf))),
    "left-skewed, whole": (lambda rng, shape: np.round(100 * rng.beta(12, 2, shape)), rounded(BETA)),
    "near 100, whole": (lambda rng, shape: np.round(100 * rng.beta(60, 2, shape)), rounded(NEAR_FULL)),
}


@pytest.mark.parametrize("statistic", ["mean", "iqm"])
@pytest.mark.parametrize("size", [5, 8, 16, 32])
@pytest.mark.parametrize("population", POPULATIONS)
def test_intervals_cover_as_often_as_they_say(population: str, size: int, statistic: Any) -> None:
    draw, truths = POPULATIONS[population]
    truth = truths[statistic == "iqm"]
    rng = np.random.default_rng([size, 2022])
    # 2400 data sets: a standard error of 0.45 %.
    covered = []
    for _ in range(8):
        low, high = _limits(draw(rng, (300, size)), statistic, 0.95, 0)
        covered.append((low <= truth) & (truth <= high))
    assert 0.93 <= np.mean(covered) <= 0.97


@pytest.mark.parametrize("statistic", ["mean", "iqm"])
def test_the_tested_code_is_the_interval(statistic: Any) -> None:
    sets = left_skewed(np.random.default_rng(0), (5, 8))
    low, high = _limits(sets, statistic, 0.95, 0)
    for row, pair in zip(sets, zip(low, high, strict=True), strict=True):
        assert interval(row, statistic) == pytest.approx(pair, rel=1e-9)


@pytest.mark.parametrize("size", [3, 4])
def test_few_values_have_students_interval(size: int) -> None:
    values = left_skewed(np.random.default_rng(1), (size,))
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.9)
    assert interval(values, level=0.9) == pytest.approx(tuple(expected))
    if size == 3:
        assert interval(values, "iqm", level=0.9) == interval(values, level=0.9)


def plain_resamples(values: NDArray[Any], statistic: Callable[..., Any], seed: int) -> NDArray[Any]:
    """Resamples of SciPy's kind, one by one, of sorted values."""
    ordered = np.sort(values)
    chosen = np.random.default_rng(seed).integers(len(ordered), size=(RESAMPLES, len(ordered)))
    return statistic(ordered[chosen], axis=1)


@pytest.mark.parametrize("size", [5, 6, 8, 13])
def test_interval_of_the_mean_is_the_bootstrap_t_by_its_definition(size: int) -> None:
    values = np.random.default_rng(2).normal(50.0, 5.0, size)
    means = plain_resamples(values, np.mean, 0)
    ratios = (means - values.mean()) / plain_resamples(values, stats.sem, 0).clip(1e-12)
    error = stats.sem(values)
    bound = 2 * stats.t.ppf(0.975, size - 1)
    if size < 8:
        tails = np.quantile(ratios, [0.025, 0.975], method="weibull").clip(-bound, bound)
        expected = tuple(values.mean() - tails[::-1] * error)
    else:
        critical = min(np.quantile(np.abs(ratios), 0.95, method="weibull"), bound)
        expected = (values.mean() - critical * error, values.mean() + critical * error)
    assert interval(values) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("size", [4, 7, 8, 13])
def test_interval_of_the_iqm_is_the_bootstrap_by_its_definition(size: int) -> None:
    values = left_skewed(np.random.default_rng(3), (size,))
    draws = plain_resamples(values, lambda sets, axis: stats.trim_mean(sets, 0.25, axis=axis), 0)
    if size < 8:
        half = stats.t.ppf(0.975, size - 1) * draws.std()
        expected = (iqm(values) - half, iqm(values) + half)
    else:
        kept = size - 2 * (size // 4)
        rank = math.floor(stats.norm.cdf(stats.norm.ppf(0.025) * math.sqrt(kept / (kept - 1))) * (RESAMPLES + 1))
        expected = (np.sort(draws)[rank - 1], np.sort(draws)[-rank])
    assert interval(values, "iqm") == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("statistic", ["mean", "iqm"])
def test_intervals_of_few_and_of_constant_values(statistic: Any) -> None:
    assert interval([1.0], statistic) is None
    assert interval([1.0, 2.0], statistic) is None
    for size in (3, 4, 5, 8, 32):
        assert interval([0.1] * size, statistic) == (0.1, 0.1)


def test_ties_do_not_blow_an_interval_up() -> None:
    values = [100.0] * 7 + [60.0]
    found = interval(values)
    assert found is not None
    # A third of the resamples has no spread at all, and then the cap holds: twice Student's half width, not clipped.
    assert found == pytest.approx((95 - 2 * stats.t.ppf(0.975, 7) * 5, 95 + 2 * stats.t.ppf(0.975, 7) * 5))
    nearly = interval(np.array(values) + 1e-7 * np.arange(8))
    assert nearly == pytest.approx(found, abs=1e-3)
    assert interval(values, "iqm") == pytest.approx((80.0, 100.0), abs=20.0)


@given(several, some.sampled_from(["mean", "iqm"]), some.randoms())
@settings(max_examples=60, deadline=None)
def test_intervals_hold_their_statistic_and_ignore_the_order(values: NDArray[Any], statistic: Any, random: Any) -> None:
    found = interval(values, statistic)
    assert found is not None
    centre = iqm(values) if statistic == "iqm" else values.mean()
    assert found[0] - 1e-9 <= centre <= found[1] + 1e-9
    shuffled = values.tolist()
    random.shuffle(shuffled)
    assert interval(shuffled, statistic) == found


@given(
    several, some.sampled_from(["mean", "iqm"]), some.sampled_from([0.25, 3.0, 1e6]), some.sampled_from([-64.0, 8.0])
)
@settings(max_examples=60, deadline=None)
def test_intervals_follow_shift_and_scale(values: NDArray[Any], statistic: Any, scale: float, shift: float) -> None:
    found, moved = interval(values, statistic), interval(scale * values + shift, statistic)
    assert found is not None
    assert moved == pytest.approx(tuple(scale * np.array(found) + shift), rel=1e-6, abs=1e-6 * scale)


def test_wider_at_higher_levels_and_the_same_each_time() -> None:
    for size, statistic in product((4, 6, 9), ("mean", "iqm")):
        values = left_skewed(np.random.default_rng(4), (size,))
        narrow, wide = interval(values, statistic, 0.8), interval(values, statistic, 0.99)
        assert narrow is not None
        assert wide is not None
        assert wide[0] < narrow[0] < narrow[1] < wide[1]
        assert interval(values, statistic, 0.8) == narrow
    values = left_skewed(np.random.default_rng(4), (9,))
    assert interval(values, seed=1) != interval(values)


# --- curves -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [3, 5, 9, 32])
def test_band_is_the_interval_at_each_step(seeds: int) -> None:
    curves = left_skewed(np.random.default_rng(6), (seeds, 7))
    curves[:, 0] = 0.0
    found = band(curves, level=0.9, seed=3)
    assert found is not None
    for step in range(7):
        expected = interval(curves[:, step], level=0.9, seed=3)
        assert (found[0][step], found[1][step]) == pytest.approx(expected, rel=1e-9)
    assert (found[0][0], found[1][0]) == (0.0, 0.0)


def test_band_needs_three_seeds() -> None:
    assert band(np.ones((2, 4))) is None


def test_area_of_straight_lines() -> None:
    # From 0 to 100 at a steady pace: 50 on average; at once to 80 in the first quarter, then flat: 80 less an eighth.
    steps = [250, 500, 1000]
    np.testing.assert_allclose(area(steps, [[25, 50, 100], [80, 80, 80], [0, 0, 0]]), [50.0, 70.0, 0.0])


def test_area_is_the_integral_of_the_curve_through_its_points() -> None:
    rng = np.random.default_rng(7)
    steps = np.cumsum(rng.integers(1, 50, 6))
    curves = rng.uniform(0, 100, (3, 6))
    fine = np.arange(0, steps[-1] + 0.5)
    for found, curve in zip(area(steps, curves), curves, strict=True):
        line = np.interp(fine, np.concatenate([[0], steps]), np.concatenate([[0.0], curve]))
        assert found == pytest.approx((line[:-1] + line[1:]).mean() / 2)


def test_steps_to_a_threshold() -> None:
    curves = np.array([[10, 50, 40, 90], [50, 0, 0, 0], [0, 10, 20, 49.9], [0, 0, 0, 50]])
    assert steps_to([100, 200, 300, 400], curves, 50) == [200, 100, None, 400]
    assert all(type(step) is int for step in steps_to(np.arange(1, 5), curves, 0.0))


def test_median_steps() -> None:
    assert median_steps([300, 100, None]) == 300.0
    assert median_steps([100, 200]) == 150.0
    assert median_steps([100, None]) is None
    assert median_steps([None, 100, None]) is None
    assert median_steps([100, 200, 300, None]) == 250.0
    assert median_steps([100, 200, None, None]) is None


def test_collapsed() -> None:
    assert collapsed({7: 59.9, 3: 10, 5: 60.0, 1: 99.0}) == (3, 7)
    assert collapsed({0: 61.0}, 70) == (0,)
    assert collapsed({0: 61.0}) == ()


# --- comparisons ------------------------------------------------------------------------------------------


@given(several, several)
@settings(max_examples=40, deadline=None)
def test_improvement_is_mann_whitneys_u(x: NDArray[Any], y: NDArray[Any]) -> None:
    found, low, high = improvement(x, y)
    assert found == pytest.approx(stats.mannwhitneyu(x, y).statistic / (len(x) * len(y)))
    assert low is not None
    assert high is not None
    assert 0 <= low <= found + 1e-9
    assert found - 1e-9 <= high <= 1
    assert improvement(x[::-1], y[::-1]) == (found, low, high)
    assert improvement(y, x)[0] == pytest.approx(1 - found)


def test_improvement_interval_is_the_percentile_bootstrap() -> None:
    rng = np.random.default_rng(8)
    x, y = rng.normal(1.0, 1.0, 12), rng.normal(0.0, 1.0, 9)

    def probability(left: NDArray[Any], right: NDArray[Any], axis: int) -> NDArray[Any]:
        return np.mean(left[..., :, None] > right[..., None, :], axis=(-1, -2))

    settings = {"vectorized": True, "method": "percentile", "n_resamples": 20000, "rng": rng, "axis": -1}
    expected = stats.bootstrap((x, y), probability, **settings, confidence_level=0.9).confidence_interval
    assert improvement(x, y, level=0.9)[1:] == pytest.approx(tuple(expected), abs=0.02)


def test_improvement_at_the_edges() -> None:
    assert improvement([2, 3, 4], [0, 1, 1]) == pytest.approx((1.0, 1.0, 1.0))
    assert improvement([1, 1, 1], [1, 1, 1]) == pytest.approx((0.5, 0.5, 0.5))
    assert improvement([1, 2], [0, 1, 2]) == (pytest.approx(4 / 6), None, None)


def welch(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Welch's t as in the textbook, infinite for different groups without spread."""
    distance, spread = x.mean() - y.mean(), math.sqrt(x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y))
    if spread < 1e-12:
        return 0.0 if abs(distance) < 1e-12 else math.copysign(math.inf, distance)
    return distance / spread


def by_all_divisions(x: NDArray[Any], y: NDArray[Any], side: str) -> float:
    """The p-value by walking through every division into groups."""
    pooled = np.concatenate([x, y])
    reached, total = 0, 0
    fold = {"two-sided": abs, "greater": float, "less": lambda value: -value}[side]
    observed = fold(welch(x, y))
    for chosen in combinations(range(len(pooled)), len(x)):
        inside = np.isin(np.arange(len(pooled)), chosen)
        far = fold(welch(pooled[inside], pooled[~inside]))
        reached += far >= observed or math.isclose(far, observed, rel_tol=1e-9, abs_tol=1e-9)
        total += 1
    return reached / total


@pytest.mark.parametrize("side", ["two-sided", "greater", "less"])
@given(data=some.data())
@settings(max_examples=25, deadline=None)
def test_difference_test_counts_all_divisions_of_small_groups(side: Any, data: some.DataObject) -> None:
    few = some.integers(0, 6).map(float)
    x = data.draw(arrays(float, some.integers(2, 4), elements=few))
    y = data.draw(arrays(float, some.integers(2, 4), elements=few))
    assert difference_test(x, y, side) == pytest.approx(by_all_divisions(x, y, side))


@pytest.mark.parametrize("side", ["greater", "less"])
def test_difference_test_agrees_with_scipy(side: Any) -> None:
    rng = np.random.default_rng(9)
    x, y = rng.normal(0.6, 1.0, 12), rng.normal(0.0, 2.0, 14)

    def statistic(left: NDArray[Any], right: NDArray[Any], axis: int) -> NDArray[Any]:
        return stats.ttest_ind(left, right, axis=axis, equal_var=False).statistic

    expected = stats.permutation_test(
        (x, y), statistic, vectorized=True, n_resamples=20000, alternative=side, rng=rng
    ).pvalue
    assert difference_test(x, y, side) == pytest.approx(expected, abs=0.015)


def test_difference_test_is_near_welchs_for_normal_groups() -> None:
    rng = np.random.default_rng(10)
    x, y = rng.normal(0.5, 1.0, 30), rng.normal(0.0, 1.5, 30)
    assert difference_test(x, y) == pytest.approx(stats.ttest_ind(x, y, equal_var=False).pvalue, abs=0.015)
    assert difference_test(x[::-1], y[::-1]) == difference_test(x, y)


def test_difference_test_of_constant_groups_and_its_smallest_p() -> None:
    assert difference_test([5.0] * 3, [5.0] * 4) == 1.0
    assert difference_test([5.0] * 3, [7.0] * 3) == pytest.approx(2 / 20)
    assert difference_test([5.0] * 3, [7.0] * 3, "less") == pytest.approx(1 / 20)
    assert difference_test([0.1] * 3, [0.3] * 4) == pytest.approx(1 / 35)
    assert difference_test(np.arange(30.0), np.arange(100.0, 130.0)) == 1 / 10000
    assert difference_test(np.arange(30.0), np.arange(100.0, 130.0), "greater") == 1.0


def test_difference_test_keeps_its_level_under_unequal_spreads() -> None:
    # Equal means, spreads and sizes far apart: an unstudentised permutation test rejects far too often here.
    rng = np.random.default_rng(11)
    p_values = [difference_test(rng.normal(0, 5.0, 8), rng.normal(0, 1.0, 24)) for _ in range(400)]
    rejected = np.mean(np.array(p_values) <= 0.05)
    assert rejected <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


@given(some.lists(some.sampled_from([0.0, 0.001, 0.01, 0.02, 0.04, 0.3, 1.0]), min_size=1, max_size=6))
def test_holm_by_its_definition(p_values: list[float]) -> None:
    adjusted = holm(p_values)

    def rejected(level: float) -> set[int]:
        """Walk up the p-values; stop at the first that exceeds the level divided by those left."""
        order = sorted(range(len(p_values)), key=lambda k: p_values[k])
        kept: set[int] = set()
        for place, k in enumerate(order):
            if p_values[k] * (len(order) - place) > level:
                break
            kept.add(k)
        return kept

    # The adjusted p-value is the lowest level at which Holm rejects; candidates are all products.
    levels = sorted({min(p * times, 1.0) for p, times in product(p_values, range(1, len(p_values) + 1))} | {1.0})
    for k, found in enumerate(adjusted):
        lowest = min((level for level in levels if k in rejected(level)), default=1.0)
        assert found == pytest.approx(lowest)


def test_holm_of_one_and_of_an_example() -> None:
    assert holm([0.03]).tolist() == [0.03]
    np.testing.assert_allclose(holm([0.04, 0.01, 0.03, 0.005]), [0.06, 0.03, 0.06, 0.02])


def test_agreement_by_hand() -> None:
    values = [90.0, 92.0, 94.0, 96.0]
    t = (93 - 80) / (math.sqrt(20 / 3) * math.sqrt(1 / 4 + 1 / 3))
    verdict, p = agreement(values, 80.0, 3)
    assert verdict == "above"
    assert p == pytest.approx(2 * stats.t.sf(t, 3))
    assert agreement(values, 106.0, 3) == ("below", pytest.approx(p))
    assert agreement(values, 93, 8) == ("agrees", 1.0)
    assert agreement([93.0], 93.0, 8) == ("untested", None)
    assert agreement([93.0, 93.0], 93.0, 8) == ("agrees", 1.0)
    assert agreement([93.1, 93.1, 93.1], 93.0, 8) == ("above", 0.0)
    assert agreement([93.1, 93.1, 93.1], 94.0, 8) == ("below", 0.0)


@given(several, some.integers(1, 12))
@settings(deadline=None)
def test_agreement_is_a_single_samples_t_test_with_infinitely_many_published_runs(
    values: NDArray[Any], seeds: int
) -> None:
    if np.ptp(values) == 0:
        return
    published = 50.0
    assert agreement(values, published, 10**15)[1] == pytest.approx(stats.ttest_1samp(values, published).pvalue, 1e-6)
    # Fewer published runs say less.
    few, many = agreement(values, published, seeds)[1], agreement(values, published, seeds + 1)[1]
    assert few is not None
    assert many is not None
    assert many <= few + 1e-12


@pytest.mark.parametrize("population", ["normal", "left-skewed"])
@pytest.mark.parametrize(("seeds", "published"), [(8, 8), (32, 8), (32, 3)])
def test_agreement_raises_a_false_alarm_one_time_in_twenty(population: str, seeds: int, published: int) -> None:
    draw, _ = POPULATIONS[population]
    rng = np.random.default_rng([seeds, published, 1])
    count = 3000
    ours, theirs = draw(rng, (count, seeds)), draw(rng, (count, published)).mean(axis=1)
    verdicts = [agreement(values, float(mean), published)[0] for values, mean in zip(ours, theirs, strict=True)]
    alarms = np.mean([verdict != "agrees" for verdict in verdicts])
    # Few skewed runs estimate their spread too low whenever their mean is high: 6.26 % in 200000 trials of 8 against 8.
    expected = 0.0626 if (population, seeds) == ("left-skewed", 8) else 0.05
    assert alarms == pytest.approx(expected, abs=3 * math.sqrt(0.05 * 0.95 / count))


# --- refusals ---------------------------------------------------------------------------------------------

WRONG_VALUES: dict[str, Callable[[Any], object]] = {
    "iqm": iqm,
    "interval": interval,
    "band": lambda values: band([values]),
    "area": lambda values: area(np.arange(1, len(values) + 1), [values]),
    "steps_to": lambda values: steps_to(np.arange(1, len(values) + 1), [values], 1.0),
    "improvement": lambda values: improvement([1.0], values),
    "difference_test": lambda values: difference_test([1.0, 2.0], values),
    "holm": holm,
    "agreement": lambda values: agreement(values, 1.0, 8),
    "collapsed": lambda values: collapsed(dict(enumerate(values))),
}


@pytest.mark.parametrize("values", [[], [1.0, math.nan, 0.5], [math.inf, 1.0]])
@pytest.mark.parametrize("name", WRONG_VALUES)
def test_nothing_and_what_is_not_finite_is_refused_by_name(name: str, values: list[float]) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        WRONG_VALUES[name](values)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("^median_steps: no seeds", lambda: median_steps([])),
        ("^area: 2 steps, but curves of 3", lambda: area([1, 2], np.ones((4, 3)))),
        ("^steps_to: 4 steps, but curves of 3", lambda: steps_to([1, 2, 3, 4], np.ones((4, 3)), 1.0)),
        ("^area: steps must increase", lambda: area([2, 1], np.ones((1, 2)))),
        ("^area: steps must increase", lambda: area([0], np.ones((1, 1)))),
        ("^steps_to: the threshold", lambda: steps_to([1], np.ones((1, 1)), math.nan)),
        ("^iqm: expected one number", lambda: iqm([[1.0]])),
        ("^band: expected curves", lambda: band([1.0])),
        ("^interval: the level", lambda: interval([1.0, 2.0, 3.0], level=95.0)),
        ("^difference_test: each group", lambda: difference_test([1.0], [1.0, 2.0])),
        ("^holm: p-values", lambda: holm([1.5])),
        ("^agreement: the published mean must", lambda: agreement([1.0, 2.0], math.nan, 8)),
        ("^agreement: the published mean needs", lambda: agreement([1.0, 2.0], 1.0, 0)),
        ("^agreement: a published mean is known within", lambda: agreement([1.0, 2.0], 1.0, 8, -1.0)),
        ("^later_test: times", lambda: later_test([math.nan, 1.0], [1.0, 2.0])),
        ("^share_test: 9 of 8", lambda: share_test(9, 8, 8, 8)),
        ("^mean_test: two values", lambda: mean_test([1.0], 1.0)),
    ],
)
def test_what_makes_no_sense_is_refused(message: str, call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_rounded_mean_is_compared_at_its_nearest() -> None:
    values = [76.0, 80.0, 79.0, 81.0]
    assert agreement(values, 73.0, 8, within=1.0) == agreement(values, 74.0, 8)
    assert agreement(values, 83.0, 8, within=1.0) == agreement(values, 82.0, 8)
    assert agreement(values, 79.8, 8, within=1.0) == ("agrees", 1.0)
    assert agreement([61.0, 61.0], 60.0, 8, within=1.0) == ("agrees", 1.0)
    assert agreement([61.1, 61.1, 61.1], 60.0, 8, within=1.0) == ("above", 0.0)


def test_times_are_compared_by_rank_and_never_is_the_latest() -> None:
    """All 20 divisions of six into threes: as extreme as complete separation are two."""
    assert later_test([300.0, math.inf, 250.0], [100.0, 120.0, 90.0]) == (True, pytest.approx(2 / 20))
    assert later_test([100.0, 120.0, 90.0], [300.0, 1e9, 250.0]) == (False, pytest.approx(2 / 20))
    assert later_test([math.inf] * 4, [math.inf] * 4) == (False, 1.0)
    rng = np.random.default_rng(6)
    false = [later_test(*rng.exponential(100, (2, 8)).clip(0, 150))[1] < 0.05 for _ in range(400)]
    assert 0.02 <= np.mean(false) <= 0.085


def test_shares_of_runs_by_hand() -> None:
    """With these margins no other table is as unlikely as the mirror image: twice one hypergeometric chance."""
    assert share_test(3, 8, 8, 8) == pytest.approx(2 * math.comb(8, 3) / math.comb(16, 11))
    assert share_test(4, 8, 8, 8) == pytest.approx(2 * math.comb(8, 4) / math.comb(16, 12))
    assert share_test(8, 8, 8, 8) == 1.0


def test_a_mean_against_a_number_is_students_test() -> None:
    values = [57.0, 71.0, 43.0, 57.0, 86.0]
    assert mean_test(values, 600 / 7) == pytest.approx(stats.ttest_1samp(values, 600 / 7).pvalue)
    assert (mean_test([57.0, 57.0], 85.0), mean_test([57.0, 57.0], 57.0)) == (0.0, 1.0)


def test_rare_collapses_are_more_than_an_interval_can_know() -> None:
    """What docs/report.md warns of: one run in ten collapses, and a group of eight often has none that did."""
    rng = np.random.default_rng(4)
    fallen = rng.random((2000, 8)) < 0.1
    runs = np.where(fallen, rng.normal(12, 2.5, fallen.shape), rng.normal(70, 6, fallen.shape))
    low, high = _limits(np.sort(runs, axis=1), "mean", 0.95, 0)
    held = (low <= 64.2) & (high >= 64.2)
    assert held.mean() < 0.8
    assert held[fallen.any(1)].mean() > 0.9
