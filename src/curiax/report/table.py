"""The rows of a suite's table: each line's numbers in the end on each task, beside what is published."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..paper.published import (
    ARCADE_SEEDS,
    PUBLISHED_CHANGES,
    RATIO,
    SCORE,
    Published,
    described,
    measured,
    published,
    reference,
)
from ..paper.suites import ANT_MAZE, HALF_CHEETAH, PLAIN
from . import games, ratio, statistics
from .record import Record

#: Below this coverage (%) a run counts as collapsed...
COLLAPSED = 60.0
#: ... but not here, where sound runs of some methods end below it, in the paper, too.
NOT_COLLAPSING = (HALF_CHEETAH, ANT_MAZE)
VERDICTS = {
    "agrees": "not distinguishable from the paper's mean",
    "above": "significantly above the paper's mean",
    "below": "significantly below the paper's mean",
    "untested": "one seed cannot be tested",
    "not comparable": "other steps or another metric than the paper's",
    "": "the paper gives no number",
}
TEST = (
    "Verdict: t test at the 5 % level of whether the paper's mean could be the mean of as many further runs of ours "
    "(its runs are taken to scatter as ours do, since their spread is not published). “Agrees” means not "
    "distinguishable: a difference smaller than the ± beside it would not have been noticed. Not corrected for the "
    "number of rows, so about one row in twenty is marked by chance."
)


ROUNDED = (
    "≈: the paper gives a whole number with “around” or ∼ before it; its mean is taken to be within 1 of that, and "
    "ours is compared with the nearest value in that range."
)


@dataclass(frozen=True)
class Row:
    """One line on one task in one metric; the interval is None where one seed cannot give one."""

    suite: str
    task: str
    method: str
    metric: str
    seeds: int
    mean: float
    ci_low: float | None
    ci_high: float | None
    paper: float | None
    verdict: str
    p: float | None
    #: By how much the means would have to differ for the verdict to notice.
    resolution: float | None
    paper_seeds: int | None
    #: Final coverage of each run of the authors' code, and the same test against their mean.
    authors: tuple[float, ...]
    authors_verdict: str
    iqm: float | None
    iqm_low: float | None
    iqm_high: float | None
    collapsed: tuple[int, ...]
    preset: str
    steps: int
    values: tuple[float, ...]
    #: How the paper says it, where it gives no exact number; kept only where there is something to say.
    paper_words: str = ""


def rows(records: Sequence[Record], suite: str) -> list[Row]:
    """For each record a row of everything that its tables show, then a row of the change against the task without
    noise.

    That is what can be a headline, or stands beside one, in the end; missing where a seed knows nothing yet. For one
    that compares two kinds of transitions, also of each kind the bonus at the start and in the end, and what is left
    of it; for a game the number of rooms.
    """
    table = [row for record in records for row in record_rows(record, suite)]
    return table + changes(records, table, suite)


def record_rows(record: Record, suite: str) -> list[Row]:
    """The rows of one record."""
    shown = [metric for metric in record.metrics if shown_in_tables(record, metric)]
    found = {metric: record.in_the_end(metric) * record.metrics[metric].factor for metric in shown}
    found |= {**ratio_parts(record), **games.rooms_visited(record)}
    table = [value_row(record, name, values, suite) for name, values in found.items() if np.isfinite(values).all()]
    return [beside_published(record, row) for row in table]


def shown_in_tables(record: Record, metric: str) -> bool:
    """Whether a metric has a row: those with a rank, the headline, and of a game not its coverage of rooms."""
    if record.plays and metric.startswith("coverage/"):
        return metric == record.headline
    return record.metrics[metric].rank > 1 or metric == record.headline


def beside_published(record: Record, row: Row) -> Row:
    """A row beside what is published of its metric; the verdict on a ratio is where its interval lies."""
    if row.metric == RATIO:
        limits = None if row.ci_low is None or row.ci_high is None else (row.ci_low, row.ci_high)
        return replace(row, verdict=ratio.place(limits))
    if row.metric == SCORE:
        return beside_authors(record, row)
    return beside_paper(record, row) if row.metric.startswith("coverage/") else row


def beside_paper(record: Record, row: Row) -> Row:
    """Coverage beside the paper's and that of the authors' code."""
    values = np.asarray(row.values)
    paper, verdict, p = compare(record, row.metric, values)
    theirs = measured(record.task, record.published_as, row.metric)
    authors = theirs.values if theirs and theirs.steps == record.budget else ()
    return replace(
        row,
        paper=paper.value if paper else None,
        verdict=verdict,
        p=p,
        resolution=resolution(values, paper.seeds) + paper.within if paper and p is not None else None,
        paper_seeds=paper.seeds if paper else None,
        authors=authors,
        authors_verdict=statistics.agreement(values, float(np.mean(authors)), len(authors))[0] if authors else "",
        collapsed=fallen(record, row.metric),
        paper_words=paper.words if paper else row.paper_words,
    )


def ratio_parts(record: Record) -> dict[str, np.ndarray]:
    """Of two kinds of transitions the bonus `start`, `end` and `left`, which is nothing where it began with 0."""
    found = {}
    for kind in ratio.KINDS if record.compared else ():
        name = kind.removeprefix("ratio/")
        found |= {f"{name}/start": ratio.at_the_start(record, kind), f"{name}/end": record.in_the_end(kind)}
        found |= {f"{name}/left": ratio.left(record, kind)}
    return found


def beside_authors(record: Record, row: Row) -> Row:
    """The score of LBS as the paper has it beside that of the authors' own runs at the same steps."""
    curve = reference(record.task) if record.published_as == "lbs" else None
    theirs = curve.at(record.budget) if curve else None
    if curve is None or theirs is None:
        return row
    row = replace(row, paper=theirs, paper_seeds=ARCADE_SEEDS, verdict="not comparable")
    if not games.comparable(record):
        return row
    spread = curve.at(record.budget, curve.spread) or 0.0
    verdict, p, reach = statistics.agreement_with_spread(row.values, theirs, spread, ARCADE_SEEDS)
    return replace(row, verdict=verdict, p=p, resolution=reach)


def value_row(record: Record, metric: str, values: np.ndarray, suite: str) -> Row:
    """A value of each seed, its mean and middle, and the intervals of both."""
    # What is made of several metrics is never below 0.
    most = record.limits(metric) if metric in record.metrics else (min(0.0, float(values.min())), math.inf)
    many = len(values) > 1
    low, high = possible(statistics.interval(values), most)
    iqm_low, iqm_high = possible(statistics.interval(values, "iqm") if many else None, most)
    description = described(record.task, record.published_as, metric)
    return Row(
        suite=suite,
        task=record.task,
        method=record.label,
        metric=metric,
        seeds=len(values),
        mean=float(values.mean()),
        ci_low=low,
        ci_high=high,
        paper=None,
        verdict="",
        p=None,
        resolution=None,
        paper_seeds=None,
        authors=(),
        authors_verdict="",
        iqm=statistics.iqm(values) if many else None,
        iqm_low=iqm_low,
        iqm_high=iqm_high,
        collapsed=(),
        preset=record.preset,
        steps=record.budget,
        values=tuple(values.tolist()),
        paper_words=description.words if description else "",
    )


def fallen(record: Record, metric: str) -> tuple[int, ...]:
    """The seeds that collapsed; none on tasks where ending low is no collapse."""
    if record.task in NOT_COLLAPSING:
        return ()
    return statistics.collapsed(dict(zip(record.seeds, record.final(metric).tolist(), strict=True)), COLLAPSED)


def possible(limits: tuple[float, float] | None, most: tuple[float, float]) -> tuple[float, float] | tuple[None, None]:
    """The part of an interval that can be, which holds the true mean as often as the whole does."""
    if limits is None:
        return None, None
    low, high = (float(min(max(limit, most[0]), most[1])) for limit in limits)
    return low, high


def compare(record: Record, metric: str, values: np.ndarray) -> tuple[Published | None, str, float | None]:
    """What the paper says of this line, and the verdict."""
    paper = published(record.task, record.published_as, metric)
    if paper is None:
        return None, "", None
    if paper.steps != record.budget:
        return paper, "not comparable", None
    verdict, p = statistics.agreement(values, paper.value, paper.seeds, paper.within)
    return paper, verdict, p


def resolution(values: np.ndarray, seeds: int) -> float:
    """The smallest difference from a published mean of so many runs that the verdict's test would call significant."""
    from scipy.stats import t

    n = len(values)
    return float(t.ppf(0.975, n - 1) * np.std(values, ddof=1) * math.sqrt(1 / n + 1 / seeds))


def changes(records: Sequence[Record], table: Sequence[Row], suite: str) -> list[Row]:
    """The change of every line against itself without noise, in per cent, with a bootstrap interval of the ratio."""
    found = {(row.task, row.method, row.metric): row for row in table}
    of = {(record.task, record.label): record for record in records}
    rows = []
    for row in table:
        plain = found.get((PLAIN, row.method, row.metric))
        if not row.metric.startswith("coverage/") or row.task == PLAIN or not row.task.startswith(PLAIN):
            continue
        if plain is None or not plain.mean:
            continue
        record = of[row.task, row.method]
        if record.changed != of[PLAIN, row.method].changed or (plain.steps, plain.preset) != (row.steps, row.preset):
            continue
        mean, low, high = statistics.relative_change(np.asarray(row.values), np.asarray(plain.values))
        # No line can gain more than all that can be reached.
        top = max(100 * (record.limits(row.metric)[1] / plain.mean - 1), mean)
        high = None if high is None else min(high, top)
        paper = PUBLISHED_CHANGES.get((row.task, record.published_as or "")) if row.metric == "coverage/cells" else None
        verdict, p = ("", None) if paper is None else change_verdict(row, plain, paper)
        rows.append(
            Row(
                suite=suite,
                task=row.task,
                method=row.method,
                metric=row.metric.replace("coverage/", "change/"),
                seeds=row.seeds,
                mean=mean,
                ci_low=low,
                ci_high=high,
                paper=paper,
                verdict=verdict,
                p=p,
                resolution=None,
                paper_seeds=row.paper_seeds if paper is not None else None,
                authors=(),
                authors_verdict="",
                iqm=None,
                iqm_low=None,
                iqm_high=None,
                collapsed=(),
                preset=row.preset,
                steps=row.steps,
                values=(),
            )
        )
    return rows


def change_verdict(row: Row, plain: Row, paper: float) -> tuple[str, float | None]:
    """The verdict on a change: a normal test of the log ratio, the paper's runs taken to scatter as ours do."""
    if row.verdict in ("not comparable", "untested") or min(row.seeds, plain.seeds) < 2:
        return row.verdict if row.verdict == "not comparable" else "untested", None
    from scipy.stats import norm

    variance = 0.0
    for part in (row, plain):
        spread = float(np.std(part.values, ddof=1)) / part.mean
        variance += spread**2 * (1 / part.seeds + 1 / (part.paper_seeds or part.seeds))
    gap = math.log(row.mean / plain.mean) - math.log(1 + paper / 100)
    p = float(2 * norm.sf(abs(gap) / math.sqrt(variance))) if variance > 0 else float(gap == 0)
    return ("agrees" if p >= 0.05 else "above" if gap > 0 else "below"), p


def as_json(table: Sequence[Row]) -> list[dict[str, Any]]:
    """Plain data, floats rounded to what can be trusted to be the same on every machine."""

    def rounded(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.6g}")
        return [rounded(item) for item in value] if isinstance(value, tuple | list) else value

    return [
        {name: rounded(value) for name, value in asdict(row).items() if value or name != "paper_words"} for row in table
    ]


def in_brackets(row: Row, digits: int = 1) -> str:
    """`91.2 [89.9, 92.5]`."""
    if row.ci_low is None or row.ci_high is None:
        return f"{row.mean:.{digits}f} [{'one seed' if row.seeds == 1 else f'{row.seeds} seeds'}]"
    return f"{row.mean:.{digits}f} [{row.ci_low:.{digits}f}, {row.ci_high:.{digits}f}]"
