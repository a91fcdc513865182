"""From records to what a report shows: every table, with what must be said about it; `charts.py` has the rest."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._text import LONGEST, clean
from .._version import __version__
from ..experiments.conflicts import CONFLICTS, MUJOCO_CONFLICTS
from ..experiments.published import COST_SOURCE, PUBLISHED_COST, PUBLISHED_MINUTES, STEPS
from . import claims as judging
from . import ratio, statistics
from .charts import (
    coverage_curves,
    headline,
    kind_panels,
    left_curves,
    metric_title,
    noise_curves,
    occupancy_maps,
    surprise_maps,
)
from .content import Cell, Claim, Content, Line, Notice, Panel, Table
from .game_tables import game_notices, game_statistics, game_tables
from .games import game_curves, game_panels, reference_line
from .looks import look
from .ratio_tables import ratio_statistics, ratio_tables
from .record import Heading, Record
from .samples import brief, galleries
from .table import COLLAPSED, NOT_COLLAPSING, ROUNDED, TEST, VERDICTS, Row, fallen, in_brackets
from .words import BRACKETS, OF_COVERAGE, bracketed, chance, number, seed_text, task_title

TONES = {"agrees": "good", "above": "above", "below": "below", "untested": "unsure", "not comparable": "unsure", "": ""}
#: Where there are so few cells, visiting all of them is the goal, and how soon it is reached the measure.
FEW_CELLS = 20
ALL_CELLS = "of all cells"


def assemble(records: Sequence[Record], table: Sequence[Row], heading: Heading) -> Content:
    """Everything a page shows, in its order; the records' labels must be distinct."""
    labels = list(dict.fromkeys(record.label for record in records))
    tasks = list(dict.fromkeys(record.task for record in records))
    counting = list(dict.fromkeys(record.task for record in records if counts(record)))
    games = game_curves(records)
    metric, reference = headline(records), heading.reference
    return Content(
        title=heading.title,
        lead=heading.lead,
        notices=(
            *(Notice("warning", text) for text in heading.remarks),
            *notices(records, tasks, labels, reference),
            *game_notices(records),
        ),
        lines=(*(line(label, records, labels) for label in labels), *reference_line(games)),
        panels=(
            *(Panel(task, task_title(task)) for task in tasks),
            *kind_panels(records, task_title),
            *game_panels(records),
        ),
        tables=result_tables(records, table, counting, labels, metric),
        curves=coverage_curves(records, games),
        occupancy=occupancy_maps(records),
        surprise=surprise_maps(records),
        noise=noise_curves(records),
        claims=paper_claims(records, metric),
        statistics=(
            *statistics_tables(records, counting, metric, reference),
            *ratio_statistics(records, reference),
            *game_statistics(records, reference),
        ),
        cost=cost_tables(records, labels),
        choices=choices_tables(records),
        runs=runs_tables(records),
        command=heading.command,
        version=f"Curiax {__version__}",
        ratios=ratio_tables(records, table),
        left=left_curves(records),
        galleries=galleries(records, task_title),
        games=game_tables(records, table),
    )


def counts(record: Record) -> bool:
    """Whether the tables of coverage have a run: all but games, and what only compares kinds of transitions."""
    return not record.plays and (record.headline is not None or not record.compared)


# --- names ------------------------------------------------------------------------------------------------


def distinct(records: Sequence[Record]) -> list[Record]:
    """The records with labels that tell apart different runs on the same task."""
    result = list(records)
    told: tuple[Callable[[Record], str], ...] = (
        lambda r: r.preset,
        lambda r: r.changed,
        lambda r: f"{r.budget:,} steps",
        lambda r: f"seeds {seed_text(r.seeds)}",
        lambda r: r.facts["run_id"],
    )
    for tell in told:
        shared = clashes(result)
        differ = {label for label in shared if len({tell(r) for r in result if r.label == label}) > 1}
        result = [renamed(r, told_apart(r.label, tell(r) or "as it is")) if r.label in differ else r for r in result]
    return result


def told_apart(label: str, how: str) -> str:
    """A label with what tells it apart, which must be seen however long the label is."""
    ending = f" ({clean(how, LONGEST // 2)})"
    return f"{clean(label, LONGEST - len(ending))}{ending}"


def clashes(records: Sequence[Record]) -> set[str]:
    """Labels that stand for several runs on one task."""
    keys = [(record.task, record.label) for record in records]
    return {label for task, label in keys if keys.count((task, label)) > 1}


def renamed(record: Record, label: str) -> Record:
    """The record under another label."""
    return replace(record, facts={**record.facts, "experiment": {**record.facts["experiment"], "label": label}})


def line(label: str, records: Sequence[Record], labels: Sequence[str]) -> Line:
    """A label's look."""
    method = next(record.method for record in records if record.label == label)
    return Line(label, method, *look(label, labels))


def begun(record: Record) -> Sequence[int]:
    """The seeds that a run began with, the lost ones too."""
    return record.facts["identity"]["seeds"]


# --- notices ----------------------------------------------------------------------------------------------


def notices(
    records: Sequence[Record], tasks: Sequence[str], labels: Sequence[str], reference: str
) -> tuple[Notice, ...]:
    """What keeps numbers from being what they seem."""
    found: list[Notice] = []

    def warn(text: str) -> None:
        found.append(Notice("warning", text))

    if headline(records) is None and not any(record.compared or record.plays for record in records):
        warn("These tasks count no cells, so there is no coverage to compare.")
    versions = sorted({record.facts["identity"].get("curiax", "unknown") for record in records})
    if versions != [__version__]:
        warn(f"Made from runs of Curiax {', '.join(versions)}; this page was written by {__version__}.")
    for record in records:
        for seed, why in record.lost.items():
            left = f"the {len(record.seeds)} of {len(record.seeds) + len(record.lost)} seeds that finished"
            warn(f"{record.label} on {record.task} lost seed {seed} ({why.rstrip('.')}): its numbers are of {left}.")
    counts = sorted({len(record.seeds) for record in records})
    if counts[0] == 1:
        alone = sorted({record.label for record in records if len(record.seeds) == 1})
        warn(f"One seed only for {', '.join(alone)}: no interval, no test, and no way to know how lucky it was.")
    if 2 in counts:
        pairs = sorted({record.label for record in records if len(record.seeds) == 2})
        warn(f"Two seeds only for {', '.join(pairs)}: too few for an interval.")
    uneven = sorted({n for task in tasks for n in mixed(len(r.seeds) for r in records if r.task == task)})
    if uneven:
        warn(f"The lines rest on different numbers of seeds ({', '.join(map(str, uneven))}).")
    budgets = sorted({n for task in tasks for n in mixed(r.budget for r in records if r.task == task)})
    if budgets:
        warn(f"The runs are of different length ({', '.join(f'{b:,}' for b in budgets)} steps): compare with care.")
    other = list(dict.fromkeys(r.task for r in records if r.budget != STEPS.get(r.task, r.budget)))
    if other:
        length = " or ".join(f"{steps:,}" for steps in sorted({STEPS[task] for task in other}))
        warn(f"The paper's runs are of {length} steps: runs of another length are not compared with it.")
    short = list(dict.fromkeys(r.task for r in records if r.compared and r.budget < judging.full(r.task)))
    if short:
        length = " or ".join(f"{steps:,}" for steps in sorted({judging.full(task) for task in short}))
        warn(
            f"The paper's claims are about the end of training, and it does not say how long that took. A full run of "
            f"ours is of {length} steps: shorter ones are not held against it."
        )
    there = {(record.task, record.label) for record in records}
    gaps = [f"{label} on {task}" for task in tasks for label in labels if (task, label) not in there]
    if gaps:
        shown = ", ".join(gaps[:6]) + (f" and {len(gaps) - 6} more" if len(gaps) > 6 else "")
        warn(f"Not every line was run on every task; missing: {shown}.")
    seeds = {task: " or ".join({seed_text(begun(r)): 0 for r in records if r.task == task}) for task in tasks}
    if len(set(seeds.values())) > 1:
        told = [
            f"{text} on {', '.join(t for t in tasks if seeds[t] == text)}" for text in dict.fromkeys(seeds.values())
        ]
        found.append(Notice("note", f"The tasks were run with different seeds: {'; '.join(told)}."))
    presets = sorted({record.preset for record in records})
    if len(presets) > 1:
        told = ", ".join(presets)
        found.append(Notice("note", f"The runs stand on different presets ({told}): no claims are judged on them."))
    if reference and reference not in labels:
        found.append(Notice("note", f"No line is called {reference!r}, so none is compared with it (--reference)."))
    return tuple(found)


def mixed(values: Iterable[int]) -> set[int]:
    """The values if there are several, else nothing."""
    found = set(values)
    return found if len(found) > 1 else set()


# --- tables -----------------------------------------------------------------------------------------------


def result_tables(
    records: Sequence[Record], table: Sequence[Row], tasks: Sequence[str], labels: Sequence[str], metric: str | None
) -> tuple[Table, ...]:
    """First all tasks side by side, then each beside the paper and the authors' code."""
    if metric is None:
        return ()
    found = {(row.task, row.method, row.metric): row for row in table}
    note = f"{metric_title(metric).capitalize()} (%), mean over seeds [95 % interval]"
    test = f"{TEST} {ROUNDED}" if any(row.paper is not None and row.paper_words for row in table) else TEST
    tables = []
    if len(tasks) > 1:
        lines = [(Cell(label), *(side_by_side(found.get((task, label, metric))) for task in tasks)) for label in labels]
        header = ("", *(task_title(task) for task in tasks))
        signs = "✓ agrees with the paper, ▲ above it, ▼ below it"
        told = f"{note}; in parentheses the paper's mean. {signs}. {OF_COVERAGE} {test}"
        tables.append(Table("All tasks", header, tuple(lines), told))
    below = f"{note}, as above." if tables else f"{note}. {OF_COVERAGE} {test}"
    return (*tables, *(task_table(records, found, task, labels, metric, below) for task in tasks))


def side_by_side(row: Row | None) -> Cell:
    """`89.9 [88.1, 91.5] (91.8)`."""
    if row is None:
        return Cell("not run", "unsure")
    paper = row.paper_words or ("" if row.paper is None else number(row.paper))
    paper = f" ({paper})" if paper else ""
    return Cell(in_brackets(row) + paper, TONES[row.verdict], VERDICTS[row.verdict])


def task_table(
    records: Sequence[Record], found: dict[Any, Row], task: str, labels: Sequence[str], metric: str, note: str
) -> Table:
    """One task: ours, the paper's, the authors' code, the verdict; the other metric; the loss to noise, the speed."""
    other = next((name for t, _, name in found if t == task and name.startswith("coverage/") and name != metric), None)
    change = metric.replace("coverage/", "change/")
    has_change = any((task, label, change) in found for label in labels)
    header = ["", "ours", "paper", "authors' code", "verdict", "p"]
    header += [metric_title(other).removeprefix("coverage in ")] if other else []
    header += ["change from no noise", "paper's change"] if has_change else []
    few = {
        r.label: r for r in records if r.task == task and metric in r.curves and 0 < cells_of(r, metric) <= FEW_CELLS
    }
    if few:
        count = max(cells_of(record, metric) for record in few.values())
        header += [f"steps to all {count} cells: median", "slowest run"]
        note += (
            f" Steps to all {count} cells: the first recorded ones, with how many seeds got there; of the worst run."
        )
    lines = []
    for label in labels:
        row = found.get((task, label, metric))
        if row is None:
            continue
        cells = [
            Cell(label),
            Cell(in_brackets(row)),
            Cell((row.paper_words or number(row.paper, 2)) + (f" (n = {row.paper_seeds})" if row.paper_seeds else "")),
            authors_cell(row),
            verdict_cell(row),
            Cell(chance(row.p)),
        ]
        if other:
            second = found.get((task, label, other))
            cells.append(Cell(in_brackets(second) if second else "–"))
        if has_change:
            drop = found.get((task, label, change))
            if drop is None:
                cells += [Cell("–"), Cell("–")]
            else:
                interval = "" if drop.ci_low is None else f" [{number(drop.ci_low, 0)}, {number(drop.ci_high, 0)}]"
                cells.append(Cell(f"{number(drop.mean, 0)} %{interval}"))
                paper = "–" if drop.paper is None else f"{number(drop.paper, 0)} %"
                cells.append(Cell(paper, TONES[drop.verdict], VERDICTS[drop.verdict]))
        if few:
            cells += completion_cells(few.get(label), metric)
        lines.append(tuple(cells))
    return Table(task_title(task), tuple(header), tuple(lines), note)


def cells_of(record: Record, metric: str) -> int:
    """How many cells make 100 %, 0 where that is not known."""
    grid = record.grid(metric.partition("/")[2])
    return 0 if grid is None else int(grid.get("nominal", 0))


def completion_cells(record: Record | None, metric: str) -> list[Cell]:
    """Steps until all cells were visited: the median with how many runs made it, and the worst run."""
    if record is None:
        return [Cell("–"), Cell("–")]
    reached = statistics.steps_to(record.steps, record.curves[metric], judging.WHOLE)
    late = [step for step in reached if step is not None]
    worst = f"{max(late) / 1000:.0f}k" if len(late) == len(reached) else "never"
    return [speed_cell(reached), Cell(worst)]


def verdict_cell(row: Row) -> Cell:
    """The verdict, with the smallest difference that it would have noticed; without spread that is any at all."""
    reach = f" ±{number(row.resolution)}" if row.resolution else ""
    return Cell(f"{row.verdict}{reach}" if row.verdict else "–", TONES[row.verdict], VERDICTS[row.verdict])


def authors_cell(row: Row) -> Cell:
    """The runs of the authors' code, and whether ours differ from them."""
    if not row.authors:
        return Cell("–")
    said = {"agrees": "not distinguishable from ours", "above": "ours are above", "below": "ours are below"}
    runs = ", ".join(f"{value:g}" for value in row.authors)
    return Cell(runs, TONES[row.authors_verdict], said.get(row.authors_verdict, "not tested"))


def statistics_tables(
    records: Sequence[Record], tasks: Sequence[str], metric: str | None, reference: str
) -> tuple[Table, ...]:
    """A table for each task; the first explains the columns."""
    if metric is None:
        return ()
    tables = [statistics_table(records, task, metric, reference) for task in tasks]
    first, known = tables[0], set(tables[0].header)

    def briefly(table: Table) -> Table:
        if not set(table.header) <= known:
            return table
        other = ALL_CELLS in table.note and ALL_CELLS not in first.note
        return replace(table, note=f"Columns as above{f'; shares are {ALL_CELLS}' if other else ''}.")

    return (first, *map(briefly, tables[1:]))


def statistics_table(records: Sequence[Record], task: str, metric: str, reference: str) -> Table:
    """Robust means, speed, probability of improvement, collapsed runs."""
    here = {record.label: record for record in records if record.task == task and metric in record.curves}
    base = here.get(reference)
    reachable = metric.replace("coverage/", "reachable/")
    versus = [f"P(better than {reference})"] if base else []
    collapsing = ["collapsed"] if task not in NOT_COLLAPSING else []
    header = ("", "IQM", "mean over training", "steps to 50 %", "75 %", "90 %", *versus, *collapsing)
    lines = []
    for label, record in here.items():
        final = np.asarray(record.final(metric), float)
        middle, spread = statistics.iqm(final), statistics.interval(final, "iqm") if len(final) > 1 else None
        area = statistics.area(record.steps, record.curves[metric])
        share = record.curves.get(reachable, record.curves[metric])
        speed = [speed_cell(statistics.steps_to(record.steps, share, goal)) for goal in (50.0, 75.0, 90.0)]
        lines.append(
            (
                Cell(label),
                Cell(bracketed(middle, spread)),
                Cell(bracketed(float(area.mean()), statistics.interval(area) if len(area) > 1 else None)),
                *speed,
                *([improvement_cell(final, base, record, metric)] if base else []),
                *([collapsed_cell(fallen(record, metric), len(final))] if collapsing else []),
            )
        )
    of_what = "of the reachable cells" if any(reachable in r.curves for r in here.values()) else ALL_CELLS
    note = (
        f"{metric_title(metric).capitalize()}. IQM: mean of the middle half of the seeds. Mean over training: area "
        f"under the curve ÷ steps. Steps: median over seeds to that share {of_what}, with how many seeds reached it. "
        + (f"P: chance that a run of the line beats a run of {reference}, ties counting half. " if base else "")
        + (f"Collapsed: ended below {COLLAPSED:g} %, with the seeds. " if collapsing else "")
        + f"Brackets: 95 % intervals, not cut; {BRACKETS}."
        + (" No interval knows of a collapse that did not happen in these runs." if collapsing else "")
    )
    return Table(task_title(task), header, tuple(lines), note)


def speed_cell(reached: Sequence[int | None]) -> Cell:
    """Median steps, and how many seeds got there."""
    middle = statistics.median_steps(reached)
    count = sum(step is not None for step in reached)
    text = "never" if count == 0 else f"{'–' if middle is None else f'{middle / 1000:.0f}k'} ({count}/{len(reached)})"
    return Cell(text, hint="– means that fewer than half of the seeds got there")


def improvement_cell(final: np.ndarray, base: Record, record: Record, metric: str) -> Cell:
    """The chance to beat the reference."""
    if base is record or min(len(final), len(base.seeds)) < 2:
        return Cell("–")
    chance, low, high = statistics.improvement(final, np.asarray(base.final(metric), float))
    interval = "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
    return Cell(f"{chance:.2f}{interval}")


def collapsed_cell(seeds: Sequence[int], total: int) -> Cell:
    """How many, and which seeds."""
    if len(seeds) == total:
        return Cell(f"all {total}", "bad")
    which = f": {', '.join(map(str, seeds[:8]))}{', …' if len(seeds) > 8 else ''}" if seeds else ""
    return Cell(f"{len(seeds)}/{total}{which}", "bad" if seeds else "good", "seeds: " + ", ".join(map(str, seeds)))


def paper_claims(records: Sequence[Record], metric: str | None) -> tuple[Claim, ...]:
    """The paper's claims that these runs can decide; none where the lines stand on unequal ground."""
    shown = []
    for judged in judging.judge(records, metric):
        done = sum(outcome.shown for outcome in judged.outcomes)
        against = [o for o in judged.outcomes if o.contradicted]
        finding = f"{done} of {len(judged.outcomes)} comparisons as claimed"
        finding += f", {len(against)} significantly the other way" if against else ", none significantly the other way"
        if judged.missing:
            finding += f"; {judged.missing} could not be tested with these runs"
        finding += lost_seeds(records, judged)
        if all(outcome.comparison.of_ratio for outcome in judged.outcomes):
            shown.append(ratio_claim(records, judged))
            continue
        header = ("comparison", "left", "right", "P(left better)", "p (Holm)", "")
        lines = tuple(
            (
                Cell(f"{o.comparison.left.describe()} {sign(o)} {o.comparison.right.describe()}"),
                Cell(number(o.left, 2 if o.comparison.left.relative else 1)),
                Cell(number(o.right, 2 if o.comparison.right.relative else 1)),
                Cell("–" if o.improvement is None else f"{o.improvement:.2f}"),
                Cell(chance(o.p)),
                Cell(*outcome_text(o)),
            )
            for o in judged.outcomes
        )
        usual = all(outcome.comparison.usual for outcome in judged.outcomes)
        note = judging.TEST if usual else f"{judging.TEST} {judging.MORE_TESTS}"
        table = Table("Comparisons", header, lines, note)
        shown.append(Claim(judged.claim.text, judged.claim.source, judged.verdict, finding + ".", table))
    return tuple(shown)


def ratio_claim(records: Sequence[Record], judged: judging.Judged) -> Claim:
    """A claim about a ratio, which its interval decides."""
    lines, told = [], []
    for o in judged.outcomes:
        assert o.interval is not None
        span = bracketed(o.left, o.interval, 2)
        wanted = f"{ratio.NEAR[0]:g} to {ratio.NEAR[1]:g}" if o.comparison.claim == "near" else f"above {o.right:g}"
        lines.append((Cell(o.comparison.left.describe()), Cell(span), Cell(wanted), Cell(*outcome_text(o))))
        told.append(f"the ratio is {span}, claimed: {wanted}{bonus_left(records, o.comparison.left)}")
    finding = "; ".join(told) + lost_seeds(records, judged)
    table = Table("Intervals", ("", "ratio [95 % interval]", "claimed", ""), tuple(lines), judging.RATIO_TEST)
    text = f"{finding[0].upper()}{finding[1:]}."
    return Claim(judged.claim.text, judged.claim.source, judged.verdict, text, table)


def bonus_left(records: Sequence[Record], side: judging.Side | judging.Mark) -> str:
    """What is left of both bonuses, without which their ratio says little; nothing where one began with none."""
    for record in records:
        if isinstance(side, judging.Side) and (record.label, record.task) == (side.label, side.task):
            shares = [float(ratio.left(record, kind).mean()) for kind in ratio.KINDS]
            if np.isfinite(shares).all():
                return f"; {brief(shares[0])} % and {brief(shares[1])} % of the two bonuses are left"
    return ""


def lost_seeds(records: Sequence[Record], judged: judging.Judged) -> str:
    """Which lines of a claim rest on fewer seeds than were begun."""
    sides = {(side.label, side.task) for o in judged.outcomes for side in o.comparison.sides}
    short = [r for r in records if (r.label, r.task) in sides and r.lost]
    told = ", ".join(f"{r.label} on {r.task} without {len(r.lost)} lost seed{'s'[: len(r.lost) > 1]}" for r in short)
    return f"; {told}" if told else ""


def sign(outcome: judging.Outcome) -> str:
    """The claimed relation."""
    return {"greater": ">", "not less": "≥", "every": "=", "near": "≈"}[outcome.comparison.claim]


def outcome_text(outcome: judging.Outcome) -> tuple[str, str]:
    """In words, with a tone."""
    if outcome.contradicted:
        return "other way", "bad"
    return ("as claimed", "good") if outcome.shown else ("not shown", "unsure")


def cost_tables(records: Sequence[Record], labels: Sequence[str]) -> tuple[Table, ...]:
    """A table for all tasks of equal length, or one for each length: their means would say nothing."""
    lengths = {record.task: record.budget for record in records}
    groups = [[r for r in records if lengths[r.task] == length] for length in dict.fromkeys(lengths.values())]
    machine = sorted({str(r.facts.get("platform")) for r in records})
    games = (
        " Of games CPU time is without their emulators, which are processes of their own."
        if any(record.plays for record in records)
        else ""
    )
    note = (
        f"Measured while these runs trained ({'; '.join(machine)}), compilation left out; a run is all its seeds. "
        f"Relative cost is of CPU time, which compares methods even on a busy machine; wall-clock does not.{games} "
        f"Paper, relative to RND: {COST_SOURCE}{paper_minutes(records)}."
    )
    tables = []
    for group in groups:
        names = ", ".join(dict.fromkeys(task_title(record.task) for record in group))
        caption = "Cost of each line" + (f": {names}" if len(groups) > 1 else "")
        tables.append(cost_table(group, labels, caption, note if group is groups[-1] else ""))
    return tuple(tables)


def cost_table(records: Sequence[Record], labels: Sequence[str], caption: str, note: str) -> Table:
    """CPU time of each line relative to RND on the same tasks, seeds and machine."""
    seconds = {(r.task, r.label): r.facts["seconds"] for r in records}
    size = {(r.task, r.label): len(begun(r)) * r.budget for r in records}
    base = {task for task, label in seconds if label == "rnd"}
    lines = []
    for label in labels:
        own = [key for key in seconds if key[1] == label]
        if not own:
            continue
        cpu = sum(seconds[key].get("cpu", float("nan")) for key in own)
        wall = sum(seconds[key]["train"] for key in own)
        ratios = []
        for task, _ in own:
            if task in base:
                mine = seconds[task, label].get("cpu", float("nan")) / size[task, label]
                ratios.append(mine / (seconds[task, "rnd"].get("cpu", float("nan")) / size[task, "rnd"]))
        lines.append(
            (
                Cell(label),
                Cell(number(wall / len(own), 1)),
                Cell(f"{sum(size[key] for key in own) / max(wall, 1e-9):,.0f}"),
                Cell(number(1e6 * cpu / sum(size[key] for key in own), 2)),
                Cell(number(float(np.mean(ratios)), 2) if ratios else "–"),
                Cell(PUBLISHED_COST.get(label, "–")),
            )
        )
    header = ("", "wall-clock of a run, s", "steps/s, all seeds", "CPU µs per step", "relative to RND", "paper")
    return Table(caption, header, tuple(lines), note)


def paper_minutes(records: Sequence[Record]) -> str:
    """How long the paper's runs took on these tasks; nothing where it does not say."""
    found: dict[float, list[str]] = {}
    for task in dict.fromkeys(record.task for record in records):
        if task in PUBLISHED_MINUTES:
            found.setdefault(PUBLISHED_MINUTES[task], []).append(task_title(task))
    if not found:
        return ""
    told = ", ".join(f"{minutes:g} minutes on {', '.join(names)}" for minutes, names in found.items())
    return f"; one seed took it about {told if len(found) > 1 else f'{next(iter(found)):g} minutes'}"


def choices_tables(records: Sequence[Record]) -> tuple[Table, ...]:
    """Every conflict between paper and code, and what these runs did."""
    lines = []
    for conflict in (*CONFLICTS, *MUJOCO_CONFLICTS):
        values: dict[str, list[str]] = {}
        for record in records:
            if (conflict.tasks and record.task not in conflict.tasks) or (record.plays and not conflict.games):
                continue
            if not conflict.setting:
                values = {conflict.ours: []}
            settings = record.facts["identity"]["settings"]
            of_method = not conflict.method or record.method.split("-")[0] == conflict.method
            if of_method and conflict.setting in settings:
                values.setdefault(plain(settings[conflict.setting]), []).append(f"{record.label} on {record.task}")
        if values:
            which = "; ".join(f"{v}: {', '.join(who)}" for v, who in values.items()) if len(values) > 1 else ""
            cells = (conflict.topic, conflict.paper, conflict.code, conflict.setting or "–", ", ".join(values))
            lines.append((*map(Cell, cells[:-1]), Cell(cells[-1], hint=which)))
    header = ("topic", "paper", "released code", "setting", "in force here")
    return (Table("Conflicts and open choices", header, tuple(lines)),) if lines else ()


def plain(value: Any) -> str:
    """A setting's value in words."""
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def runs_tables(records: Sequence[Record]) -> tuple[Table, ...]:
    """What was run, with the command that runs it again; what the tasks noted, where one did."""
    lines, noted = [], any(record.notes for record in records)
    for record in records:
        versions = record.facts.get("versions") or {}
        lines.append(
            tuple(
                map(
                    Cell,
                    (
                        record.label,
                        record.task,
                        record.preset,
                        seed_text(record.seeds) + (f" (lost: {seed_text(list(record.lost))})" if record.lost else ""),
                        f"{record.budget:,}",
                        record.facts["run_id"],
                        ", ".join(f"{name} {versions[name]}" for name in ("python", "jax") if name in versions),
                        *(["; ".join(f"{name}: {text}" for name, text in record.notes.items())] if noted else []),
                        run_command(record),
                    ),
                )
            )
        )
    header = ("", "task", "preset", "seeds", "steps", "run", "versions", *(["notes"] if noted else []), "run it again")
    return (Table("Runs", header, tuple(lines)),)


def run_command(record: Record) -> str:
    """The command that repeats one run."""
    experiment = record.facts["experiment"]
    words = ["curiax", "run", experiment["task"], "--method", experiment["method"]]
    seeds = seed_text(begun(record)) + ("," if len(begun(record)) == 1 else "")
    words += ["--seeds", seeds, "--preset", record.preset]
    if experiment["steps"]:
        words += ["--steps", str(experiment["steps"])]
    for name, value in experiment["settings"].items():
        words += [f"--{name.replace('_', '-')}", plain(value)]
    return shlex.join(words)
