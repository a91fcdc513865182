"""The tables of what tasks are about: each line's headline in the end, beside what is published, and its statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._metrics import Metric
from ..paper.published import RATIO, SCORE
from . import claims as judging
from . import statistics
from .charts import metric_of
from .comparisons import against_rivals
from .content import Cell, Table
from .record import Record
from .table import COLLAPSED, NOT_COLLAPSING, ROUNDED, TEST, VERDICTS, Row, fallen, possible
from .words import BRACKETS, INTERVALS, OF_COVERAGE, chance, listed, number, quoted, task_title

TONES = {"agrees": "good", "above": "above", "below": "below", "untested": "unsure", "not comparable": "unsure", "": ""}
#: Where there are so few cells, visiting all of them is the goal, and how soon it is reached the measure.
FEW_CELLS = 20
ALL_CELLS = "of all cells"
#: What the table of a headline is called that has all of its tasks.
ALL_TASKS = "All tasks"
#: What the cells of that table mean on a page.
SIGNS = "; in parentheses the paper's mean. ✓ agrees with the paper, ▲ above it, ▼ below it"
#: The groups that have tables of their own, which say more.
ELSEWHERE = (RATIO, SCORE)
#: From which p value on two lines cannot be told apart.
LEVEL = 0.05
#: So many names of lines are listed; of more their number.
MOST_NAMES = 6
Rows = Mapping[tuple[str, str, str], Row]


def headlines(records: Sequence[Record]) -> dict[str, list[str]]:
    """The tasks by the metric that most of their records headline; games and ratios have tables of their own."""
    found: dict[str, list[str]] = {}
    for task in dict.fromkeys(record.task for record in records):
        metrics = [record.headline for record in records if record.task == task and record.headline]
        if metrics and (metric := max(dict.fromkeys(metrics), key=metrics.count)) not in ELSEWHERE:
            found.setdefault(metric, []).append(task)
    return found


def result_tables(records: Sequence[Record], table: Sequence[Row], labels: Sequence[str]) -> tuple[Table, ...]:
    """For each headline all of its tasks side by side, then each beside the paper and the authors' code."""
    found = {(row.task, row.method, row.metric): row for row in table}
    return tuple(
        each
        for name, tasks in headlines(records).items()
        for each in tables_of(records, found, metric_of(records, name), tasks, labels)
    )


def tables_of(
    records: Sequence[Record], found: Rows, metric: Metric, tasks: Sequence[str], labels: Sequence[str]
) -> tuple[Table, ...]:
    """The tables of one headline."""
    own = [row for row in found.values() if row.metric == metric.name and row.task in tasks]
    judged = any(row.verdict or row.paper_words for row in own)
    note = f"{sentence(metric.label)}, {in_the_end(metric)}mean over seeds [95 % interval]"
    intervals = OF_COVERAGE if metric.group == "coverage" else f"{INTERVALS}."
    test = [TEST] if any(row.verdict for row in own) else []
    test += [ROUNDED] if any(row.paper is not None and row.paper_words for row in own) else []
    tables = []
    if len(tasks) > 1:
        lines = [
            (Cell(label), *(side_by_side(found.get((task, label, metric.name)), metric) for task in tasks))
            for label in labels
        ]
        explanation = f"{note}{SIGNS if judged else ''}. {' '.join([intervals, *test])}"
        tables.append(Table(ALL_TASKS, ("", *(task_title(task) for task in tasks)), tuple(lines), explanation))
    below = f"{note}, as above." if tables else f"{note}. {' '.join([intervals, *test])}"
    return (*tables, *(task_table(records, found, task, labels, metric, below) for task in tasks))


def sentence(text: str) -> str:
    """With a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def in_the_end(metric: Metric) -> str:
    """What a seed's number is."""
    return "of each seed the mean over the last tenth of training, " if metric.end == "mean" else ""


def in_words(row: Row, metric: Metric) -> str:
    """`91.2 [89.9, 92.5]`; of what is not averaged over seeds the one number."""
    if metric.across != "mean":
        return metric.text(metric.of_all(row.values))
    if row.ci_low is None or row.ci_high is None:
        return f"{metric.text(row.mean)} [{'one seed' if row.seeds == 1 else f'{row.seeds} seeds'}]"
    return f"{metric.text(row.mean)} [{metric.text(row.ci_low)}, {metric.text(row.ci_high)}]"


def side_by_side(row: Row | None, metric: Metric) -> Cell:
    """`89.9 [88.1, 91.5] (91.8)`."""
    if row is None:
        return Cell("not run", "unsure")
    paper = row.paper_words or ("" if row.paper is None else number(row.paper))
    paper = f" ({paper})" if paper else ""
    return Cell(in_words(row, metric) + paper, TONES[row.verdict], VERDICTS[row.verdict])


def task_table(
    records: Sequence[Record], found: Rows, task: str, labels: Sequence[str], metric: Metric, note: str
) -> Table:
    """One task: ours, the paper's, the authors' code, the verdict; what else it is about; the loss to noise, the speed.

    Of what nothing is known there is no column.
    """
    own = {row.method: row for row in found.values() if row.task == task and row.metric == metric.name}
    lines: dict[str, list[Cell]] = {label: [Cell(label)] for label in labels if label in own}
    header = ["", "ours"] if any(map(published, own.values())) else ["", metric.title]
    for label, cells in lines.items():
        cells.append(Cell(in_words(own[label], metric)))

    def column(name: str, cells: Mapping[str, Cell]) -> None:
        header.append(name)
        for label, line in lines.items():
            line.append(cells.get(label, Cell("–")))

    if any(map(published, own.values())):
        column("paper", {label: paper_cell(row) for label, row in own.items()})
        if any(row.authors for row in own.values()):
            column("authors' code", {label: authors_cell(row) for label, row in own.items()})
        column("verdict", {label: verdict_cell(row) for label, row in own.items()})
        column("p", {label: Cell(chance(row.p)) for label, row in own.items()})
    here = [record for record in records if record.task == task]
    for name in dict.fromkeys(row.metric for row in found.values() if row.task == task):
        beside = {m: row for (t, m, n), row in found.items() if (t, n) == (task, name)}
        if name != metric.name and name not in ELSEWHERE and any(name in record.metrics for record in here):
            other = metric_of(here, name)
            title = other.title.removeprefix("coverage in ") if other.group == metric.group else other.title
            column(title, {label: Cell(in_words(row, other)) for label, row in beside.items()})
    change = metric.name.replace("coverage/", "change/")
    changes = {m: row for (t, m, n), row in found.items() if (t, n) == (task, change) and change != metric.name}
    if changes:
        column("change from no noise", {label: change_cell(row) for label, row in changes.items()})
        if any(row.paper is not None for row in changes.values()):
            column("paper's change", {label: paper_change_cell(row) for label, row in changes.items()})
    few = {r.label: r for r in here if metric.name in r.curves and 0 < cells_of(r, metric.name) <= FEW_CELLS}
    if few:
        count = max(cells_of(record, metric.name) for record in few.values())
        completions = {label: completion_cells(record, metric.name) for label, record in few.items()}
        column(f"steps to all {count} cells: median", {label: cells[0] for label, cells in completions.items()})
        column("slowest run", {label: cells[1] for label, cells in completions.items()})
        note += (
            f" Steps to all {count} cells: the first recorded ones, with how many seeds got there; of the worst run."
        )
    return Table(task_title(task), tuple(header), tuple(map(tuple, lines.values())), note)


def published(row: Row) -> bool:
    """Whether anything is published of it."""
    return row.paper is not None or bool(row.paper_words or row.authors)


def paper_cell(row: Row) -> Cell:
    """What the paper says, and of how many runs."""
    return Cell((row.paper_words or number(row.paper, 2)) + (f" (n = {row.paper_seeds})" if row.paper_seeds else ""))


def change_cell(row: Row) -> Cell:
    """The change against the task without noise."""
    interval = "" if row.ci_low is None else f" [{number(row.ci_low, 0)}, {number(row.ci_high, 0)}]"
    return Cell(f"{number(row.mean, 0)} %{interval}")


def paper_change_cell(row: Row) -> Cell:
    """The same in the paper."""
    return Cell("–" if row.paper is None else f"{number(row.paper, 0)} %", TONES[row.verdict], VERDICTS[row.verdict])


def cells_of(record: Record, metric: str) -> int:
    """How many cells make 100 %, 0 where that is not known."""
    kind, _, name = metric.partition("/")
    grid = record.grid(name) if kind == "coverage" else None
    return 0 if grid is None else int(grid.get("nominal", 0))


def completion_cells(record: Record, metric: str) -> tuple[Cell, Cell]:
    """Steps until all cells were visited: the median with how many runs made it, and the worst run."""
    reached = statistics.steps_to(record.steps, record.curves[metric], judging.WHOLE)
    late = [step for step in reached if step is not None]
    worst = f"{max(late) / 1000:.0f}k" if len(late) == len(reached) else "never"
    return speed_cell(reached), Cell(worst)


def verdict_cell(row: Row) -> Cell:
    """The verdict, with the smallest difference that it would have noticed; without spread that is any at all."""
    reach = f" ±{number(row.resolution)}" if row.resolution else ""
    return Cell(f"{row.verdict}{reach}" if row.verdict else "–", TONES[row.verdict], VERDICTS[row.verdict])


def authors_cell(row: Row) -> Cell:
    """The runs of the authors' code, and whether ours differ from them."""
    if not row.authors:
        return Cell("–")
    verdicts = {"agrees": "not distinguishable from ours", "above": "ours are above", "below": "ours are below"}
    runs = ", ".join(f"{value:g}" for value in row.authors)
    return Cell(runs, TONES[row.authors_verdict], verdicts.get(row.authors_verdict, "not tested"))


# --- findings ---------------------------------------------------------------------------------------------


def findings(records: Sequence[Record], table: Sequence[Row]) -> tuple[str, ...]:
    """Of each task with several lines a sentence: who has the best mean, and who cannot be told apart from it."""
    found = []
    for name, tasks in headlines(records).items():
        metric = metric_of(records, name)
        for task in tasks if metric.better and metric.across == "mean" else ():
            own = [row for row in table if (row.task, row.metric) == (task, name) and row.seeds > 1]
            if len(own) > 1:
                found.append(leader(task, own, metric))
    return tuple(found)


def leader(task: str, rows: Sequence[Row], metric: Metric) -> str:
    """The sentence of one task."""
    best = max(rows, key=lambda row: -row.mean if metric.better == "lower" else row.mean)
    rest = [row for row in rows if row is not best]
    p = statistics.holm([statistics.difference_test(best.values, row.values) for row in rest])
    tied = [row.method for row, each in zip(rest, p, strict=True) if each >= LEVEL]
    word = "lowest" if metric.better == "lower" else "highest"
    value = f"{in_words(best, metric)} {metric.unit}".strip()
    text = f"{task_title(task)}: {quoted(best.method)} has the {word} {metric.title}, {value}"
    if not tied:
        return f"{text}; every other line is significantly worse."
    names = listed(tied) if len(tied) <= MOST_NAMES else f"{len(tied)} of the {len(rest)} other lines"
    return f"{text}; {names} cannot be told apart from it."


# --- statistics -------------------------------------------------------------------------------------------


def statistics_tables(records: Sequence[Record], rivals: Mapping[str, str]) -> tuple[Table, ...]:
    """A table for each task; the first of each headline explains the columns."""
    found: list[Table] = []
    for metric, tasks in headlines(records).items():
        tables = [statistics_table(records, task, metric_of(records, metric), rivals) for task in tasks]
        first, known = tables[0], set(tables[0].header)

        def briefly(table: Table, first: Table = first, known: set[str] = known) -> Table:
            if not set(table.header) <= known:
                return table
            other = ALL_CELLS in table.note and ALL_CELLS not in first.note
            return replace(table, note=f"Columns as above{f'; shares are {ALL_CELLS}' if other else ''}.")

        found += [first, *map(briefly, tables[1:])]
    return tuple(found)


def statistics_table(records: Sequence[Record], task: str, metric: Metric, rivals: Mapping[str, str]) -> Table:
    """Robust means, each line against its rival; of coverage also speed and collapsed runs."""
    here = {r.label: r for r in records if r.task == task and metric.name in r.curves and known(r, metric)}
    counted = metric.group == "coverage"
    reachable = metric.name.replace("coverage/", "reachable/")
    collapsing = counted and task not in NOT_COLLAPSING
    ends = {label: record.in_the_end(metric.name) * metric.factor for label, record in here.items()}
    versus, against, explained_by = (
        ((), {}, "")
        if not metric.better
        else against_rivals(
            ends, rivals, lower=metric.better == "lower", digits=1 if metric.digits is None else metric.digits
        )
    )
    header = [
        "",
        "IQM",
        *(["mean over training", "steps to 50 %", "75 %", "90 %"] if counted else ["lowest and highest run"]),
        *versus,
        *(["collapsed"] if collapsing else []),
    ]
    lines = []
    for label, record in here.items():
        final = ends[label]
        cells = [Cell(label), Cell(spanned(statistics.iqm(final), final, "iqm", metric))]
        if counted:
            area = statistics.area(record.steps, record.curves[metric.name])
            share = record.curves.get(reachable, record.curves[metric.name])
            cells.append(Cell(spanned(float(area.mean()), area, "mean", metric)))
            cells += [speed_cell(statistics.steps_to(record.steps, share, goal)) for goal in (50.0, 75.0, 90.0)]
        else:
            cells.append(Cell(f"{metric.text(final.min())} to {metric.text(final.max())}"))
        cells += against.get(label, ())
        cells += [collapsed_cell(fallen(record, metric.name), len(final))] if collapsing else []
        lines.append(tuple(cells))
    of_what = "of the reachable cells" if any(reachable in r.curves for r in here.values()) else ALL_CELLS
    note = (
        f"{sentence(metric.title)}. IQM: mean of the middle half of the seeds. "
        + (
            "Mean over training: area under the curve ÷ steps. Steps: median over seeds to that share "
            f"{of_what}, with how many seeds reached it. "
            if counted
            else ""
        )
        + explained_by
        + (f"Collapsed: ended below {COLLAPSED:g} %, with the seeds. " if collapsing else "")
        + f"Brackets: 95 % intervals, not cut; {BRACKETS}."
        + (" No interval knows of a collapse that did not happen in these runs." if collapsing else "")
    )
    return Table(task_title(task), tuple(header), tuple(lines), note)


def known(record: Record, metric: Metric) -> bool:
    """Whether every seed has a number in the end."""
    return bool(np.isfinite(record.in_the_end(metric.name)).all())


def spanned(middle: float, values: np.ndarray, which: Any, metric: Metric) -> str:
    """A statistic with its interval, where several seeds give one."""
    limits = statistics.interval(values, which) if len(values) > 1 else None
    if limits is None:
        return metric.text(middle)
    return f"{metric.text(middle)} [{metric.text(limits[0])}, {metric.text(limits[1])}]"


def speed_cell(reached: Sequence[int | None]) -> Cell:
    """Median steps, and how many seeds got there."""
    middle = statistics.median_steps(reached)
    count = sum(step is not None for step in reached)
    text = "never" if count == 0 else f"{'–' if middle is None else f'{middle / 1000:.0f}k'} ({count}/{len(reached)})"
    return Cell(text, hint="– means that fewer than half of the seeds got there")


def collapsed_cell(seeds: Sequence[int], total: int) -> Cell:
    """How many, and which seeds."""
    if len(seeds) == total:
        return Cell(f"all {total}", "bad")
    which = f": {', '.join(map(str, seeds[:8]))}{', …' if len(seeds) > 8 else ''}" if seeds else ""
    return Cell(f"{len(seeds)}/{total}{which}", "bad" if seeds else "good", "seeds: " + ", ".join(map(str, seeds)))


# --- everything else that was measured --------------------------------------------------------------------


def other_tables(records: Sequence[Record], labels: Sequence[str]) -> tuple[Table, ...]:
    """Of each task a row for every other metric: each line's number in the end."""
    first = set(headlines(records))
    tables = []
    for task in dict.fromkeys(record.task for record in records):
        here = {record.label: record for record in records if record.task == task}
        names = dict.fromkeys(name for record in here.values() for name in record.metrics if name not in first)
        shown = [label for label in labels if label in here]
        rows = [
            (Cell(metric.label, hint=name), *(end_cell(here[label], metric) for label in shown))
            for name in names
            for metric in (metric_of(list(here.values()), name),)
        ]
        if rows:
            tables.append(Table(task_title(task), ("in the end", *shown), tuple(rows)))
    return tuple(explained(tables))


def explained(tables: Iterable[Table]) -> list[Table]:
    """The first says what its numbers are."""
    found = list(tables)
    if found:
        note = (
            "Mean over seeds [95 % interval] of the last tenth of training; of what only grows the last value, of the "
            "best the best of all seeds."
        )
        found[0] = replace(found[0], note=note)
    return found


def end_cell(record: Record, metric: Metric) -> Cell:
    """What all seeds of a line have in the end."""
    if metric.name not in record.metrics:
        return Cell("–")
    values = record.in_the_end(metric.name) * metric.factor
    if not np.isfinite(values).all():
        return Cell("–", hint=metric.missing)
    if metric.across != "mean":
        return Cell(metric.text(metric.of_all(values.tolist())))
    middle = metric.text(float(values.mean()))
    low, high = possible(statistics.interval(values), record.limits(metric.name))
    return Cell(middle if low is None or high is None else f"{middle} [{metric.text(low)}, {metric.text(high)}]")
