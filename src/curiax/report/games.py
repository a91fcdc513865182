"""Games: scores of finished episodes, beside the curves of the authors' own LBS at the same steps.

A run says after each rollout the mean score and length of the episodes that ended in it, the best score of any so far
and how many have ended (`game/*`). Until a seed's first episode has ended there is nothing to say, which is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .._metrics import Metric
from ..envs.mario import VERSION, WORLD
from ..paper.published import ARCADE_STEPS, SCORE, Reference, reference
from ..paper.suites import MARIO
from .charts import numbers, series_of
from .content import Curves, Line, Panel, Series
from .record import Record
from .words import task_title

#: What the authors' curve is called, and its look.
AUTHORS, AUTHORS_LOOK = "authors' LBS", ("#333333", "4 3")
LENGTH, BEST, EPISODES, ROOMS = "game/length", "game/best", "game/episodes", "coverage/rooms"
#: What a table calls the number of rooms, which a run says in per cent of them all.
ROOMS_VISITED = "game/rooms"
#: What is drawn of a game, in the order of its panels, and what its axis says.
DRAWN = {SCORE: "score", LENGTH: "episode length (steps)", BEST: "best score of any seed", ROOMS: "rooms visited"}
#: In Super Mario Bros. the score is how far Mario got.
DISTANCES = {SCORE: "distance (pixels)", BEST: "furthest of any seed (pixels)"}


def rooms(record: Record) -> np.ndarray | None:
    """How many rooms were visited `[S, K]`; None of a game that counts none."""
    grid = record.grid(ROOMS.partition("/")[2])
    if grid is None or ROOMS not in record.curves:
        return None
    return np.round(np.asarray(record.curves[ROOMS], float) * grid["nominal"] / 100)


def rooms_visited(record: Record) -> dict[str, np.ndarray]:
    """How many rooms each seed of a game has visited in the end, where they are counted."""
    visited = rooms(record) if record.plays else None
    return {} if visited is None else {ROOMS_VISITED: visited[:, -1]}


def comparable(record: Record) -> bool:
    """Whether the authors' scores are of the same game: of Super Mario Bros. there are versions, which runs note."""
    same = record.task != MARIO or record.notes.get(VERSION) == WORLD
    return same and reference(record.task) is not None


def budget(record: Record) -> str:
    """`10.0 M of 100 M steps`; what is less than a tenth of a million in thousands."""
    steps = record.budget
    run = f"{steps / 1e6:.1f} M" if steps >= 100_000 else f"{steps / 1e3:.0f} thousand"
    if reference(record.task) is None:
        return f"{run} steps"
    # Whole rollouts make a little less than the budget.
    whole = steps > 0.999 * ARCADE_STEPS
    return f"all {ARCADE_STEPS / 1e6:.0f} M steps" if whole else f"{run} of {ARCADE_STEPS / 1e6:.0f} M steps"


def what(task: str, metric: str) -> str:
    """What an axis says."""
    return DISTANCES.get(metric, DRAWN[metric]) if task == MARIO else DRAWN[metric]


# --- curves -----------------------------------------------------------------------------------------------


def drawn(record: Record) -> dict[str, np.ndarray]:
    """The curves `[S, K]` of a game, in the order of its panels."""
    found = {name: np.asarray(record.curves[name], float) for name in (SCORE, LENGTH, BEST)}
    visited = rooms(record)
    return found if visited is None else {**found, ROOMS: visited}


def game_panels(records: Sequence[Record]) -> tuple[Panel, ...]:
    """A panel for each game and quantity, named after both."""
    names = {(r.task, metric): None for r in by_task(records) for metric in drawn(r)}
    return tuple(Panel(f"{task} {metric}", f"{task_title(task)}: {what(task, metric)}") for task, metric in names)


def by_task(records: Sequence[Record]) -> list[Record]:
    """The games among some records, those of one game together."""
    playing = [record for record in records if record.plays]
    tasks = list(dict.fromkeys(record.task for record in playing))
    return sorted(playing, key=lambda record: tasks.index(record.task))


def game_curves(records: Sequence[Record]) -> tuple[Curves, ...]:
    """Score, length, best score and rooms over training, with the authors' curve over the steps that were run."""
    playing = by_task(records)
    if not playing:
        return ()
    own = [
        (name, replace(series_of(record, counted_rooms(record, name), v), task=f"{record.task} {name}"))
        for record in playing
        for name, v in drawn(record).items()
    ]
    series = [each for metric, each in own if metric != ROOMS]
    visited = tuple(each for metric, each in own if metric == ROOMS)
    for task in dict.fromkeys(record.task for record in playing):
        theirs = reference(task)
        moments = theirs.moments(max(r.budget for r in playing if r.task == task)) if theirs else []
        if theirs and moments:
            series += reference_series(task, theirs, moments)
    note = (
        "Score and length: means over the episodes that ended since the point before; best: of any episode of any "
        "seed so far. Lines begin where every seed has finished an episode. "
    )
    if any(each.label == AUTHORS for each in series):
        note += f"{AUTHORS}: mean and standard deviation over five seeds, straight between the moments that are known."
    found = [Curves("game/scores", "Scores and episodes", "", note.strip(), tuple(series), apart=True)]
    if visited:
        found.append(Curves(ROOMS_VISITED, "Rooms visited", "", "Of the 24 rooms of the first level.", visited))
    return tuple(found)


def counted_rooms(record: Record, name: str) -> Metric:
    """The metric of a curve: of rooms their number, not the share of them."""
    return Metric(ROOMS_VISITED, low=0.0) if name == ROOMS else record.metrics[name]


def reference_series(task: str, found: Reference, moments: Sequence[int]) -> list[Series]:
    """The authors' score with its spread, and their length of episodes."""
    score, spread, length = (
        np.array([found.at(step, values) for step in moments], float)
        for values in (found.score, found.spread, found.length)
    )
    band = numbers(score - spread), numbers(score + spread)
    return [
        Series(f"{task} {SCORE}", AUTHORS, tuple(moments), numbers(score), *band),
        Series(f"{task} {LENGTH}", AUTHORS, tuple(moments), numbers(length), (), ()),
    ]


def reference_line(curves: Sequence[Curves]) -> tuple[Line, ...]:
    """The authors' curve as a line of the page, where there is one to show."""
    shown = any(series.label == AUTHORS for each in curves for series in each.series)
    return (Line(AUTHORS, "lbs", *AUTHORS_LOOK),) if shown else ()
