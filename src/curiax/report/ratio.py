"""Two kinds of transitions and the bonus that each is paid: their ratio, and what is left of either in the end.

A task that has `compared` says which kinds these are. On Noisy MNIST the first leads to any of eight digits, which no
model can foresee, the second always to a one. A bonus that is not fooled by chance pays both alike, so the ratio's
ideal is 1 and what counts is its distance from there, |ln ratio|: twice as much is as far off as half as much.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from . import statistics
from .record import KINDS as KINDS
from .record import Record

#: The ratios that count as near 1: at most a quarter more for one kind than for the other.
NEAR = (0.8, 1.25)
Place = Literal["near 1", "above", "below", "undecided", "untested"]


def at_the_start(record: Record, metric: str) -> np.ndarray:
    """Each seed's value in the first rollout `[S]`, which is paid for before anything is learnt."""
    return np.asarray(record.curves[metric][:, 0], float)


def left(record: Record, metric: str) -> np.ndarray:
    """What is left in the end of each seed's bonus, in per cent of its start `[S]`; NaN where it started with none."""
    start = at_the_start(record, metric)
    return 100.0 * np.divide(record.in_the_end(metric), start, out=np.full(start.shape, np.nan), where=start != 0)


def distance(ratios: np.ndarray) -> np.ndarray:
    """|ln ratio|, which is infinite for what is no positive number."""
    logs = np.log(ratios, out=np.full(ratios.shape, np.inf), where=ratios > 0)
    return np.abs(logs)


def interval(values: np.ndarray) -> tuple[float, float] | None:
    """Of the mean over seeds, 95 %; cut to what is possible, which is nothing below 0 where no run is."""
    limits = statistics.interval(values)
    return limits if limits is None or values.min() < 0 else (max(limits[0], 0.0), limits[1])


def place(interval: tuple[float, float] | None) -> Place:
    """Where a ratio lies, by the whole of its interval; one across a border decides nothing."""
    if interval is None:
        return "untested"
    low, high = interval
    if NEAR[0] <= low and high <= NEAR[1]:
        return "near 1"
    return "above" if low > NEAR[1] else "below" if high < NEAR[0] else "undecided"
