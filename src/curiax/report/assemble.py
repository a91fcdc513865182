"""From records to what a report shows: every table, with what must be said about it; `charts.py` has the rest."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._text import LONGEST, clean
from .._version import __version__
from ..paper.conflicts import CONFLICTS, HEADLINE, MUJOCO_CONFLICTS
from ..paper.published import COST_SOURCE, PUBLISHED_COST, PUBLISHED_MINUTES, STEPS
from . import claims as judging
from . import ratio
from .charts import (
    counted,
    kind_panels,
    left_curves,
    main_curves,
    noise_curves,
    occupancy_maps,
    other_curves,
    surprise_maps,
)
from .comparisons import rivals_of
from .content import Cell, Claim, Content, Line, Notice, Panel, Table
from .game_tables import game_notices, game_statistics, game_tables
from .games import game_curves, game_panels, reference_line
from .looks import look
from .ratio_tables import ratio_statistics, ratio_tables
from .record import Heading, Record
from .result_tables import findings, other_tables, result_tables, statistics_tables
from .samples import brief, galleries
from .table import Row
from .words import bracketed, chance, number, seed_text, task_title


def assemble(records: Sequence[Record], table: Sequence[Row], heading: Heading) -> Content:
    """Everything a page shows, in its order; the records' labels must be distinct."""
    labels = list(dict.fromkeys(record.label for record in records))
    tasks = list(dict.fromkeys(record.task for record in records))
    games, main, rivals = game_curves(records), main_curves(records), rivals_of(heading, labels)
    of_bonus = [curves for curves in main if curves.key.startswith("bonus/")]
    return Content(
        title=heading.title,
        lead=heading.lead,
        findings=findings(records, table),
        notices=(
            *(Notice("warning", text) for text in heading.remarks),
            *notices(records, tasks, labels, heading.reference),
            *game_notices(records),
        ),
        lines=(*(line(label, records, labels) for label in labels), *reference_line(games)),
        panels=(
            *(Panel(task, task_title(task)) for task in tasks),
            *kind_panels(records, task_title),
            *game_panels(records),
        ),
        tables=result_tables(records, table, labels),
        curves=(*(curves for curves in main if curves not in of_bonus), *games, *of_bonus),
        occupancy=occupancy_maps(records),
        surprise=surprise_maps(records),
        noise=noise_curves(records),
        claims=paper_claims(records, counted(records)),
        statistics=(
            *statistics_tables(records, rivals),
            *ratio_statistics(records, rivals),
            *game_statistics(records, rivals),
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
        others=other_tables(records, labels),
        other_curves=other_curves(records),
    )


# --- names ------------------------------------------------------------------------------------------------


def distinct(records: Sequence[Record]) -> list[Record]:
    """The records with labels that tell apart different runs on the same task."""
    result = list(records)
    traits: tuple[Callable[[Record], str], ...] = (
        lambda r: r.preset,
        lambda r: r.changed,
        lambda r: f"{r.budget:,} steps",
        lambda r: f"seeds {seed_text(r.seeds)}",
        lambda r: r.facts["run_id"],
    )
    for trait in traits:
        shared = clashes(result)
        differ = {label for label in shared if len({trait(r) for r in result if r.label == label}) > 1}
        result = [renamed(r, full_label(r.label, trait(r) or "as it is")) if r.label in differ else r for r in result]
    return result


def full_label(label: str, how: str) -> str:
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

    if not any(record.metrics[record.headline].better or record.compared for record in records if record.headline):
        warn("These tasks count no cells and their reward does not weigh in, so nothing says which line is better.")
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
        missing = ", ".join(gaps[:6]) + (f" and {len(gaps) - 6} more" if len(gaps) > 6 else "")
        warn(f"Not every line was run on every task; missing: {missing}.")
    seeds = {task: " or ".join({seed_text(begun(r)): 0 for r in records if r.task == task}) for task in tasks}
    if len(set(seeds.values())) > 1:
        parts = [
            f"{text} on {', '.join(t for t in tasks if seeds[t] == text)}" for text in dict.fromkeys(seeds.values())
        ]
        found.append(Notice("note", f"The tasks were run with different seeds: {'; '.join(parts)}."))
    presets = sorted({record.preset for record in records})
    if len(presets) > 1:
        names = ", ".join(presets)
        found.append(Notice("note", f"The runs stand on different presets ({names}): no claims are judged on them."))
    if reference and reference not in labels:
        found.append(Notice("note", f"No line is called {reference!r}, so none is compared with it (--reference)."))
    return tuple(found)


def mixed(values: Iterable[int]) -> set[int]:
    """The values if there are several, else nothing."""
    found = set(values)
    return found if len(found) > 1 else set()


# --- tables -----------------------------------------------------------------------------------------------


def paper_claims(records: Sequence[Record], metric: str | None) -> tuple[Claim, ...]:
    """The paper's claims that these runs can decide; none where the lines stand on unequal ground."""
    claims = []
    for judged in judging.judge(records, metric):
        done = sum(outcome.shown for outcome in judged.outcomes)
        against = [o for o in judged.outcomes if o.contradicted]
        finding = f"{done} of {len(judged.outcomes)} comparisons as claimed"
        finding += f", {len(against)} significantly the other way" if against else ", none significantly the other way"
        if judged.missing:
            finding += f"; {judged.missing} could not be tested with these runs"
        finding += lost_seeds(records, judged)
        if all(outcome.comparison.of_ratio for outcome in judged.outcomes):
            claims.append(ratio_claim(records, judged))
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
        claims.append(Claim(judged.claim.text, judged.claim.source, judged.verdict, finding + ".", table))
    return tuple(claims)


def ratio_claim(records: Sequence[Record], judged: judging.Judged) -> Claim:
    """A claim about a ratio, which its interval decides."""
    lines, statements = [], []
    for o in judged.outcomes:
        assert o.interval is not None
        span = bracketed(o.left, o.interval, 2)
        wanted = f"{ratio.NEAR[0]:g} to {ratio.NEAR[1]:g}" if o.comparison.claim == "near" else f"above {o.right:g}"
        lines.append((Cell(o.comparison.left.describe()), Cell(span), Cell(wanted), Cell(*outcome_text(o))))
        statements.append(f"the ratio is {span}, claimed: {wanted}{bonus_left(records, o.comparison.left)}")
    finding = "; ".join(statements) + lost_seeds(records, judged)
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
    losses = ", ".join(f"{r.label} on {r.task} without {len(r.lost)} lost seed{'s'[: len(r.lost) > 1]}" for r in short)
    return f"; {losses}" if losses else ""


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
    times = ", ".join(f"{minutes:g} minutes on {', '.join(names)}" for minutes, names in found.items())
    return f"; one seed took it about {times if len(found) > 1 else f'{next(iter(found)):g} minutes'}"


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
            group, _, counted_in = (record.headline or "").partition("/")
            of_coverage = {HEADLINE: counted_in} if group == "coverage" else {}
            settings = {**record.facts["identity"]["settings"], **of_coverage}
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
