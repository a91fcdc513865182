"""From records to what a report shows: every table, with what must be said about it; `charts.py` has the rest."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._version import __version__
from ..experiments.conflicts import CONFLICTS
from ..experiments.published import COST_SOURCE, PUBLISHED, PUBLISHED_COST, STEPS
from . import claims as judging
from . import statistics
from .charts import coverage_curves, headline, metric_title, noise_curves, occupancy_maps, surprise_maps
from .content import Cell, Claim, Content, Line, Notice, Panel, Table
from .looks import look
from .record import Heading, Record
from .table import COLLAPSED, TEST, VERDICTS, Row, in_brackets

TONES = {"agrees": "good", "above": "above", "below": "below", "untested": "unsure", "not comparable": "unsure", "": ""}
PUBLISHED_TASKS = {number.task for number in PUBLISHED}


def assemble(records: Sequence[Record], table: Sequence[Row], heading: Heading) -> Content:
    """Everything a page shows, in its order; the records' labels must be distinct."""
    labels = list(dict.fromkeys(record.label for record in records))
    tasks = list(dict.fromkeys(record.task for record in records))
    metric, reference = headline(records), heading.reference
    return Content(
        title=heading.title,
        lead=heading.lead,
        notices=(*(Notice("warning", text) for text in heading.remarks), *notices(records, tasks, labels, reference)),
        lines=tuple(line(label, records, labels) for label in labels),
        panels=tuple(Panel(task, task_title(task)) for task in tasks),
        tables=result_tables(table, tasks, labels, metric),
        curves=coverage_curves(records),
        occupancy=occupancy_maps(records),
        surprise=surprise_maps(records),
        noise=noise_curves(records),
        claims=paper_claims(records, metric),
        statistics=statistics_tables(records, tasks, metric, reference),
        cost=cost_tables(records, labels),
        choices=choices_tables(records),
        runs=runs_tables(records),
        command=heading.command,
        version=f"Curiax {__version__}",
    )


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
        result = [renamed(r, f"{r.label} ({tell(r) or 'as it is'})") if r.label in differ else r for r in result]
    return result


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


def task_title(task: str) -> str:
    """`mountain-car-frozen` → `Mountain Car Frozen`; a user's `module:Class` stays as it is."""
    return task if ":" in task else task.replace("-", " ").title()


def seed_text(seeds: Sequence[int]) -> str:
    """`3000-3031`, or a list."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}-{seeds[-1]}"
    return ",".join(map(str, seeds))


# --- notices ----------------------------------------------------------------------------------------------


def notices(
    records: Sequence[Record], tasks: Sequence[str], labels: Sequence[str], reference: str
) -> tuple[Notice, ...]:
    """What keeps numbers from being what they seem."""
    found: list[Notice] = []

    def warn(text: str) -> None:
        found.append(Notice("warning", text))

    if headline(records) is None:
        warn("These tasks count no cells, so there is no coverage to compare.")
    versions = sorted({record.facts["identity"].get("curiax", "unknown") for record in records})
    if versions != [__version__]:
        warn(f"Made from runs of Curiax {', '.join(versions)}; this page was written by {__version__}.")
    counts = sorted({len(record.seeds) for record in records})
    if counts[0] == 1:
        alone = sorted({record.label for record in records if len(record.seeds) == 1})
        warn(f"One seed only for {', '.join(alone)}: no interval, no test, and no way to know how lucky it was.")
    if 2 in counts:
        pairs = sorted({record.label for record in records if len(record.seeds) == 2})
        warn(f"Two seeds only for {', '.join(pairs)}: too few for an interval.")
    if len(counts) > 1:
        warn(f"The lines rest on different numbers of seeds ({', '.join(map(str, counts))}).")
    budgets = sorted({record.budget for record in records})
    if len(budgets) > 1:
        warn(f"The runs are of different length ({', '.join(f'{b:,}' for b in budgets)} steps): compare with care.")
    if PUBLISHED_TASKS & set(tasks) and budgets != [STEPS]:
        warn(f"The paper's runs are of {STEPS:,} steps: runs of another length are not compared with it.")
    there = {(record.task, record.label) for record in records}
    gaps = [f"{label} on {task}" for task in tasks for label in labels if (task, label) not in there]
    if gaps:
        shown = ", ".join(gaps[:6]) + (f" and {len(gaps) - 6} more" if len(gaps) > 6 else "")
        warn(f"Not every line was run on every task; missing: {shown}.")
    presets = sorted({record.preset for record in records})
    if len(presets) > 1:
        told = ", ".join(presets)
        found.append(Notice("note", f"The runs stand on different presets ({told}): no claims are judged on them."))
    if reference and reference not in labels:
        found.append(Notice("note", f"No line is called {reference!r}, so none is compared with it (--reference)."))
    return tuple(found)


# --- tables -----------------------------------------------------------------------------------------------


def number(value: float | None, digits: int = 1) -> str:
    """A number, or a dash."""
    return "–" if value is None or not np.isfinite(value) else f"{value:.{digits}f}".replace("-", "−")


def chance(p: float | None) -> str:
    """A p value."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def result_tables(
    table: Sequence[Row], tasks: Sequence[str], labels: Sequence[str], metric: str | None
) -> tuple[Table, ...]:
    """First all tasks side by side, then each beside the paper and the authors' code."""
    if metric is None:
        return ()
    found = {(row.task, row.method, row.metric): row for row in table}
    note = f"{metric_title(metric).capitalize()} (%), mean over seeds [95 % bootstrap interval]"
    tables = []
    if len(tasks) > 1:
        lines = [(Cell(label), *(side_by_side(found.get((task, label, metric))) for task in tasks)) for label in labels]
        header = ("", *(task_title(task) for task in tasks))
        told = f"{note}; in parentheses the paper's mean. ✓ agrees with the paper, ▲ above it, ▼ below it. {TEST}"
        tables.append(Table("All tasks", header, tuple(lines), told))
    below = f"{note}, as above." if tables else f"{note}. {TEST}"
    return (*tables, *(task_table(found, task, labels, metric, below) for task in tasks))


def side_by_side(row: Row | None) -> Cell:
    """`89.9 [88.1, 91.5] (91.8)`."""
    if row is None:
        return Cell("not run", "unsure")
    paper = "" if row.paper is None else f" ({number(row.paper)})"
    return Cell(in_brackets(row) + paper, TONES[row.verdict], VERDICTS[row.verdict])


def task_table(found: dict[Any, Row], task: str, labels: Sequence[str], metric: str, note: str) -> Table:
    """One task: ours, the paper's, the authors' code, the verdict; the other metric; the loss to noise."""
    other = next((name for t, _, name in found if t == task and name.startswith("coverage/") and name != metric), None)
    change = metric.replace("coverage/", "change/")
    has_change = any((task, label, change) in found for label in labels)
    header = ["", "ours", "paper", "authors' code", "verdict", "p"]
    header += [metric_title(other).removeprefix("coverage in ")] if other else []
    header += ["change from no noise", "paper's change"] if has_change else []
    lines = []
    for label in labels:
        row = found.get((task, label, metric))
        if row is None:
            continue
        cells = [
            Cell(label),
            Cell(in_brackets(row)),
            Cell(number(row.paper, 2) + (f" (n = {row.paper_seeds})" if row.paper_seeds else "")),
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
        lines.append(tuple(cells))
    return Table(task_title(task), tuple(header), tuple(lines), note)


def verdict_cell(row: Row) -> Cell:
    """The verdict, with the smallest difference that it would have noticed."""
    reach = "" if row.resolution is None else f" ±{number(row.resolution)}"
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
    return (tables[0], *(replace(table, note="Columns as above.") for table in tables[1:]))


def statistics_table(records: Sequence[Record], task: str, metric: str, reference: str) -> Table:
    """Robust means, speed, probability of improvement, collapsed runs."""
    here = {record.label: record for record in records if record.task == task and metric in record.curves}
    base = here.get(reference)
    reachable = metric.replace("coverage/", "reachable/")
    versus = [f"P(better than {reference})"] if base else []
    header = ("", "IQM", "mean over training", "steps to 50 %", "75 %", "90 %", *versus, "collapsed")
    lines = []
    for label, record in here.items():
        final = np.asarray(record.final(metric), float)
        middle, spread = statistics.iqm(final), statistics.interval(final, "iqm") if len(final) > 1 else None
        area = statistics.area(record.steps, record.curves[metric])
        share = record.curves.get(reachable, record.curves[metric])
        speed = [speed_cell(statistics.steps_to(record.steps, share, goal)) for goal in (50.0, 75.0, 90.0)]
        fallen = statistics.collapsed(dict(zip(record.seeds, final.tolist(), strict=True)), COLLAPSED)
        lines.append(
            (
                Cell(label),
                Cell(bracketed(middle, spread)),
                Cell(bracketed(float(area.mean()), statistics.interval(area) if len(area) > 1 else None)),
                *speed,
                *([improvement_cell(final, base, record, metric)] if base else []),
                collapsed_cell(fallen, len(final)),
            )
        )
    of_what = "of the reachable cells" if any(reachable in r.curves for r in here.values()) else "of all cells"
    note = (
        f"{metric_title(metric).capitalize()}. IQM: mean of the middle half of the seeds. Mean over training: area "
        f"under the curve ÷ steps. Steps: median over seeds to that share {of_what}, with how many seeds reached it. "
        + (f"P: chance that a run of the line beats a run of {reference}, ties counting half. " if base else "")
        + "Collapsed: ended below "
        f"{COLLAPSED:g} %, with the seeds. Brackets: 95 % bootstrap intervals (of means studentised, of IQM and P "
        "percentile). No interval knows of a collapse that did not happen in these runs."
    )
    return Table(task_title(task), header, tuple(lines), note)


def bracketed(value: float, interval: tuple[float, float] | None) -> str:
    """`90.1 [88.8, 91.0]`."""
    return number(value) if interval is None else f"{number(value)} [{number(interval[0])}, {number(interval[1])}]"


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


def collapsed_cell(fallen: Sequence[int], total: int) -> Cell:
    """How many, and which seeds."""
    if len(fallen) == total:
        return Cell(f"all {total}", "bad")
    which = f": {', '.join(map(str, fallen[:8]))}{', …' if len(fallen) > 8 else ''}" if fallen else ""
    return Cell(f"{len(fallen)}/{total}{which}", "bad" if fallen else "good", "seeds: " + ", ".join(map(str, fallen)))


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
        table = Table("Comparisons", header, lines, judging.TEST)
        shown.append(Claim(judged.claim.text, judged.claim.source, judged.verdict, finding + ".", table))
    return tuple(shown)


def sign(outcome: judging.Outcome) -> str:
    """The claimed relation."""
    return "≥" if outcome.comparison.claim == "not less" else ">"


def outcome_text(outcome: judging.Outcome) -> tuple[str, str]:
    """In words, with a tone."""
    if outcome.contradicted:
        return "other way", "bad"
    return ("as claimed", "good") if outcome.shown else ("not shown", "unsure")


def cost_tables(records: Sequence[Record], labels: Sequence[str]) -> tuple[Table, ...]:
    """CPU time of each line relative to RND on the same tasks, seeds and machine."""
    seconds = {(r.task, r.label): r.facts["seconds"] for r in records}
    size = {(r.task, r.label): len(r.seeds) * r.budget for r in records}
    base = {task for task, label in seconds if label == "rnd"}
    lines = []
    for label in labels:
        own = [key for key in seconds if key[1] == label]
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
    machine = sorted({str(r.facts.get("platform")) for r in records})
    note = (
        f"Measured while these runs trained ({'; '.join(machine)}), compilation left out; a run is all its seeds. "
        f"Relative cost is of CPU time, which compares methods even on a busy machine; wall-clock does not. Paper, "
        f"relative to RND: {COST_SOURCE}; one seed took it about 2.5 minutes."
    )
    return (Table("Cost of each line", header, tuple(lines), note),)


def choices_tables(records: Sequence[Record]) -> tuple[Table, ...]:
    """Every conflict between paper and code, and what these runs did."""
    lines = []
    for conflict in CONFLICTS:
        values: dict[str, list[str]] = {}
        for record in records:
            settings = record.facts["identity"]["settings"]
            of_method = not conflict.method or record.method.split("-")[0] == conflict.method
            if of_method and conflict.setting in settings:
                values.setdefault(plain(settings[conflict.setting]), []).append(f"{record.label} on {record.task}")
        if values:
            which = "; ".join(f"{v}: {', '.join(who)}" for v, who in values.items()) if len(values) > 1 else ""
            cells = (conflict.topic, conflict.paper, conflict.code, conflict.setting, ", ".join(values))
            lines.append((*map(Cell, cells[:-1]), Cell(cells[-1], hint=which)))
    header = ("topic", "paper", "released code", "setting", "in force here")
    return (Table("Conflicts and open choices", header, tuple(lines)),) if lines else ()


def plain(value: Any) -> str:
    """A setting's value in words."""
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def runs_tables(records: Sequence[Record]) -> tuple[Table, ...]:
    """What was run, with the command that runs it again."""
    lines = []
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
                        seed_text(record.seeds),
                        f"{record.budget:,}",
                        record.facts["run_id"],
                        ", ".join(f"{name} {versions[name]}" for name in ("python", "jax") if name in versions),
                        run_command(record),
                    ),
                )
            )
        )
    header = ("", "task", "preset", "seeds", "steps", "run", "versions", "run it again")
    return (Table("Runs", header, tuple(lines)),)


def run_command(record: Record) -> str:
    """The command that repeats one run."""
    experiment = record.facts["experiment"]
    words = ["curiax", "run", experiment["task"], "--method", experiment["method"]]
    seeds = seed_text(record.seeds) + ("," if len(record.seeds) == 1 else "")
    words += ["--seeds", seeds, "--preset", record.preset]
    if experiment["steps"]:
        words += ["--steps", str(experiment["steps"])]
    for name, value in experiment["settings"].items():
        words += [f"--{name.replace('_', '-')}", plain(value)]
    return shlex.join(words)
