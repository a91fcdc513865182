"""The tables of tasks that compare two kinds of transitions: the ratio of their bonuses, and what is left of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..paper.published import RATIO
from . import ratio, statistics
from .charts import divided
from .comparisons import against_rivals
from .content import Cell, Table
from .record import Record
from .samples import brief
from .table import Row, in_brackets
from .words import BRACKETS, OF_RATIOS, bracketed, task_title

PLACES = {
    "near 1": ("good", "the whole interval is near 1"),
    "above": ("above", "the whole interval is above: the first kind is paid more"),
    "below": ("below", "the whole interval is below: the second kind is paid more"),
    "undecided": ("unsure", "the interval lies across a border"),
    "untested": ("unsure", "too few seeds for an interval"),
}


def ratio_tables(records: Sequence[Record], table: Sequence[Row]) -> tuple[Table, ...]:
    """Of each task that compares two kinds of transitions: the ratio in the end, and both bonuses behind it."""
    found = {(row.task, row.method, row.metric): row for row in table}
    tables = []
    for task in dict.fromkeys(record.task for record in records if record.compared):
        here = [record for record in records if record.task == task and record.compared]
        kinds = here[0].compared
        assert kinds is not None
        tables += [ratio_table(here, found, task, kinds), bonus_table(here, found, task, kinds)]
    return tuple(tables)


def ratio_table(records: Sequence[Record], found: dict[Any, Row], task: str, kinds: tuple[str, str]) -> Table:
    """The ratio in the end, what the paper says of it, and where it lies."""
    lines = []
    for record in records:
        row = found[task, record.label, RATIO]
        tone, hint = PLACES[row.verdict]
        near = sum(ratio.place((value, value)) == "near 1" for value in row.values)
        lines.append(
            (
                Cell(record.label),
                Cell(in_brackets(row, 2)),
                Cell(row.paper_words or "–"),
                Cell(row.verdict, tone, hint),
                Cell(f"{near}/{row.seeds}"),
                Cell(f"{min(row.values):.2f} to {max(row.values):.2f}"),
            )
        )
    note = (
        f"Mean bonus of {kinds[0]} ÷ mean bonus of {kinds[1]}: of each seed the mean over the last tenth of training, "
        f"then the mean over seeds [95 % interval]. The ideal is 1, and what counts is the distance from it, "
        f"not which ratio is higher. Near 1: the whole interval is between {ratio.NEAR[0]:g} and {ratio.NEAR[1]:g}; "
        f"above, below: all of it is outside; undecided: it lies across a border. The paper gives no numbers, so these "
        f"borders are ours. {OF_RATIOS}"
    )
    header = ("", "ratio in the end", "paper", "verdict", "runs near 1", "lowest and highest run")
    return Table(f"{task_title(task)}: bonus of {divided(kinds)}", header, tuple(lines), note)


def bonus_table(records: Sequence[Record], found: dict[Any, Row], task: str, kinds: tuple[str, str]) -> Table:
    """Both bonuses at the start and in the end, and what is left of them."""
    lines = []
    for record in records:
        cells = [Cell(record.label)]
        for name in ("first", "second"):
            start, end, left = (found.get((task, record.label, f"{name}/{part}")) for part in ("start", "end", "left"))
            cells += [Cell("–" if row is None else brief(row.mean)) for row in (start, end)]
            cells.append(Cell("–" if left is None else share_left(left)))
        lines.append(tuple(cells))
    header = ("", *(f"{kind}: {part}" for kind in kinds for part in ("start", "end", "left")))
    note = (
        "Mean raw bonus of each kind of transitions in the first rollout and over the last tenth of training, mean "
        "over seeds; left: end ÷ start of each seed, mean [95 % interval]. Every method has a unit of its "
        "own. A ratio of 1 means more where something is left to be paid."
    )
    return Table(f"{task_title(task)}: the bonuses themselves", header, tuple(lines), note)


def share_left(row: Row) -> str:
    """`4.1 % [3.9, 4.3]`."""
    interval = "" if row.ci_low is None or row.ci_high is None else f" [{brief(row.ci_low)}, {brief(row.ci_high)}]"
    return f"{brief(row.mean)} %{interval}"


def ratio_statistics(records: Sequence[Record], rivals: Mapping[str, str]) -> tuple[Table, ...]:
    """Of each task that compares two kinds of transitions: robust means, distances from 1, who comes closer."""
    comparing = [record for record in records if record.compared]
    return tuple(
        ratio_statistics_table([record for record in comparing if record.task == task], task, rivals)
        for task in dict.fromkeys(record.task for record in comparing)
    )


def ratio_statistics_table(records: Sequence[Record], task: str, rivals: Mapping[str, str]) -> Table:
    """One task's."""
    far_from = {record.label: ratio.distance(record.in_the_end(RATIO)) for record in records}
    versus, against, explained_by = against_rivals(far_from, rivals, lower=True, digits=2, better="closer to 1")
    lines = []
    for record in records:
        final, far = record.in_the_end(RATIO), far_from[record.label]
        cells = [
            Cell(record.label),
            Cell(bracketed(statistics.iqm(final), statistics.interval(final, "iqm"), 2)),
            Cell(bracketed(float(far.mean()), ratio.interval(far), 2)),
        ]
        lines.append((*cells, *against.get(record.label, ())))
    header = ("", "IQM of the ratio", "distance from 1", *versus)
    note = (
        "IQM: mean of the middle half of the seeds. Distance from 1: |ln ratio| of each seed, mean; 0.22 is a quarter "
        "more for one kind, 0.69 twice as much. "
        + (f"Of the distance: {explained_by}" if explained_by else "")
        + f"Brackets: 95 % intervals; {BRACKETS}."
    )
    return Table(f"{task_title(task)}: ratio in the end", header, tuple(lines), note)
