"""The tables of games: the score in the end beside the authors' at the same steps, and what must be said about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..envs.mario import EUROPE, VERSION, WORLD
from ..paper.published import ARCADE_SOURCE, ARCADE_STEPS, SCORE, reference
from ..paper.suites import MARIO, score_name
from . import statistics
from .comparisons import against_rivals
from .content import Cell, Notice, Table
from .games import BEST, EPISODES, LENGTH, ROOMS_VISITED, budget, by_task, comparable
from .record import Record
from .table import Row, in_brackets
from .words import BRACKETS, INTERVALS, bracketed, number, task_title

VERDICTS = {
    "agrees": ("good", "not distinguishable from the authors' mean at the same steps"),
    "above": ("above", "significantly above the authors' mean at the same steps"),
    "below": ("below", "significantly below the authors' mean at the same steps"),
    "untested": ("unsure", "one seed cannot be tested"),
    "not comparable": ("unsure", "the authors played another version of the game"),
    "": ("", "the authors' curves are of LBS as the paper has it"),
}
ANY_MARIO = (
    "Super Mario Bros.: the score is the distance in pixels, the furthest scroll of each level. The authors' ROM is "
    f"the Japanese and American version, {WORLD}. {{ours}}"
)
OTHER_MARIO = " The authors' distances are shown but not compared with{others}."
EUROPEAN = "In the European one Mario moves further in each frame."


def games_of(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each game."""
    found: dict[str, list[Record]] = {}
    for record in by_task(records):
        found.setdefault(record.task, []).append(record)
    return found


def game_notices(records: Sequence[Record]) -> tuple[Notice, ...]:
    """Which budget was run, and which version of Super Mario Bros."""
    budgets: dict[str, list[str]] = {}
    for task, here in games_of(records).items():
        for length in dict.fromkeys(map(budget, here)):
            budgets.setdefault(length, []).append(task_title(task))
    found = []
    if budgets:
        what = "; ".join(f"{text} on {', '.join(names)}" for text, names in budgets.items())
        found.append(
            Notice("note", f"What was run: {what}. A full run is {ARCADE_STEPS / 1e6:.0f} M steps of the agent.")
        )
    early = [f"{record.label} on {task_title(record.task)}" for record in by_task(records) if not scores_known(record)]
    if early:
        text = f"No score yet for {', '.join(early)}: a seed has not finished an episode. More steps are needed."
        found.append(Notice("warning", text))
    mario = games_of(records).get(MARIO)
    if mario:
        text, same = ANY_MARIO.format(ours=versions_of_mario(mario)), set(map(comparable, mario))
        if False in same:
            text += OTHER_MARIO.format(others=" where the version is not theirs" if True in same else "")
        found.append(Notice("warning" if False in same else "note", text))
    return tuple(found)


def versions_of_mario(records: Sequence[Record]) -> str:
    """Which versions of the game were played, as the runs themselves say it."""
    lines: dict[str, list[str]] = {}
    for record in records:
        lines.setdefault(record.notes.get(VERSION, ""), []).append(record.label)
    sentences = [f"{', '.join(labels)}: {version or 'it is not known which'}." for version, labels in lines.items()]
    if len(lines) == 1:
        sentences = [f"Ours is {version}." if version else "These runs do not say which they had." for version in lines]
    return " ".join([*sentences, *([EUROPEAN] if EUROPE in lines else [])])


def scores_known(record: Record) -> bool:
    """Whether every seed has finished an episode."""
    return bool(np.isfinite(record.in_the_end(SCORE)).all())


def game_tables(records: Sequence[Record], table: Sequence[Row]) -> tuple[Table, ...]:
    """One for each game; the first explains the columns."""
    rows = {(row.task, row.method, row.metric): row for row in table}
    made = [game_table(here, rows, task) for task, here in games_of(records).items()]
    note = (
        f"Score: of each seed the mean over the last tenth of training, mean over seeds [95 % interval]. {INTERVALS}: "
        f"nothing below 0 where no run is. Authors: {ARCADE_SOURCE}; ± is their standard deviation, and between the "
        f"moments that are known the line is straight. Best: of any episode of any seed. Episodes: finished by all "
        "seeds. Verdict: Welch's t test at the 5 % level of LBS against the authors' at the same steps. “Agrees” means "
        "not distinguishable: a difference smaller than the ± beside it would not have been noticed. Not corrected for "
        "the number of games."
    )
    return tuple(Table(each.caption, each.header, each.rows, "" if k else note) for k, each in enumerate(made))


def game_table(records: Sequence[Record], rows: dict[Any, Row], task: str) -> Table:
    """Score, what the authors' LBS had at the same steps and in the end, and what was played."""
    theirs, ends = reference(task), sorted({record.budget for record in records})
    header = ["", f"{score_name(task)} in the end"]
    if theirs is not None:
        header += ["authors' LBS at the same steps", "verdict", f"authors' LBS at {ARCADE_STEPS / 1e6:.0f} M"]
    counted = any((task, record.label, ROOMS_VISITED) in rows for record in records)
    header += ["best", "episode length", *(["rooms visited"] if counted else []), "episodes", "steps run"]
    lines = []
    for record in records:
        own = {name: rows.get((task, record.label, name)) for name in (SCORE, LENGTH, BEST, EPISODES, ROOMS_VISITED)}
        score = own[SCORE]
        cells = [Cell(record.label), scored(score)]
        if theirs is not None:
            cells += [Cell(with_spread(task, record.budget)), verdict(score), Cell(with_spread(task, ARCADE_STEPS))]
        best, length, episodes, visited = (own[name] for name in (BEST, LENGTH, EPISODES, ROOMS_VISITED))
        cells += [Cell("–" if best is None else number(max(best.values), 0))]
        cells += [Cell("–" if length is None else in_brackets(length, 0))]
        if counted:
            cells += [Cell("–" if visited is None else f"{visited.mean:.1f} (most {max(visited.values):.0f})")]
        cells += [Cell("–" if episodes is None else f"{sum(episodes.values):,.0f}"), Cell(f"{record.budget:,}")]
        lines.append(tuple(cells))
    size = budget(records[0]) if len(ends) == 1 else "runs of different length"
    return Table(f"{task_title(task)}: {size}", tuple(header), tuple(lines))


def scored(row: Row | None) -> Cell:
    """The score with its interval."""
    if row is None:
        return Cell("–", "unsure", "a seed has not finished an episode")
    return Cell(in_brackets(row, digits(row.mean)).replace("-", "−"))


def digits(value: float) -> int:
    """Decimals of a score: Breakout's are a few points, Q*bert's thousands."""
    return 0 if abs(value) >= 1000 else 1


def verdict(row: Row | None) -> Cell:
    """Whether ours can be told apart from the authors', with the smallest difference that would have been noticed."""
    if row is None:
        return Cell("–")
    reach = f" ±{number(row.resolution, digits(row.mean))}" if row.resolution else ""
    return Cell(f"{row.verdict}{reach}" if row.verdict else "–", *VERDICTS[row.verdict])


def with_spread(task: str, steps: int) -> str:
    """`54.0 ± 8.7`, or a dash where the authors' curve has not begun."""
    found = reference(task)
    mean = found.at(steps) if found else None
    if found is None or mean is None:
        return "–"
    return f"{number(mean, digits(mean))} ± {number(found.at(steps, found.spread), digits(mean))}"


def game_statistics(records: Sequence[Record], rivals: Mapping[str, str]) -> tuple[Table, ...]:
    """Of each game with scores: robust means, and who beats whom."""
    games = games_of([record for record in records if record.plays and scores_known(record)])
    return tuple(statistics_table(here, task, rivals) for task, here in games.items())


def statistics_table(records: Sequence[Record], task: str, rivals: Mapping[str, str]) -> Table:
    """One game's."""
    ends = {record.label: record.in_the_end(SCORE) for record in records}
    versus, against, explained_by = against_rivals(ends, rivals)
    lines = []
    for label, values in ends.items():
        middle = statistics.interval(values, "iqm") if len(values) > 1 else None
        cells = [Cell(label), Cell(bracketed(statistics.iqm(values), middle, digits(float(values.mean()))))]
        cells += [Cell(f"{number(values.min(), 1)} to {number(values.max(), 1)}")]
        lines.append((*cells, *against.get(label, ())))
    word = score_name(task)
    header = ("", f"IQM of the {word}", "lowest and highest run", *versus)
    note = (
        f"{word.capitalize()} in the end. IQM: mean of the middle half of the seeds. "
        + explained_by
        + f"Brackets: 95 % intervals; {BRACKETS}."
    )
    return Table(f"{task_title(task)}: {word}", header, tuple(lines), note)
