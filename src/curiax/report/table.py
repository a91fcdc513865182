"""The table of a suite: each method's final coverage on each task, with honest intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..experiments.run import RunResult


@dataclass(frozen=True)
class Row:
    """One method on one task; the interval is None where one seed cannot give one."""

    task: str
    method: str
    metric: str
    seeds: int
    mean: float
    ci_low: float | None
    ci_high: float | None
    values: tuple[float, ...]


def interval(values: Sequence[float], *, level: float = 0.95, seed: int = 0) -> tuple[float, float] | None:
    """Bootstrap confidence interval of the mean (BCa, seeded); None for fewer than two values."""
    from scipy.stats import bootstrap

    data = np.asarray(values, float)
    if data.size < 2:
        return None
    if np.ptp(data) == 0:
        return float(data[0]), float(data[0])
    result = bootstrap((data,), np.mean, confidence_level=level, n_resamples=9999, rng=np.random.default_rng(seed))
    low, high = result.confidence_interval
    return float(low), float(high)


def rows(results: Sequence[RunResult], metric: str) -> list[Row]:
    """A row for each run."""
    table = []
    for result in results:
        values = tuple(result.final(metric).values())
        low, high = interval(values) or (None, None)
        entry = (result.plan.task_entry.name, result.plan.method_entry.name)
        table.append(Row(*entry, metric, len(values), float(np.mean(values)), low, high, values))
    return table


def as_json(table: Sequence[Row]) -> list[dict[str, Any]]:
    """Plain data."""
    return [asdict(row) for row in table]


def in_brackets(row: Row) -> str:
    """`91.2 [89.9, 92.5]`."""
    if row.ci_low is None:
        return f"{row.mean:.1f} [one seed]"
    return f"{row.mean:.1f} [{row.ci_low:.1f}, {row.ci_high:.1f}]"


def pivot(table: Sequence[Row], tasks: Sequence[str], methods: Sequence[str]) -> list[list[str]]:
    """Lines of cells: a line for each method, a column for each task, then the change from the first task."""
    cells = {(row.task, row.method): row for row in table}
    lines = []
    for method in methods:
        found = [cells[task, method] for task in tasks]
        changes = [f"{100 * (row.mean / found[0].mean - 1):+.0f} %" for row in found[1:] if found[0].mean]
        lines.append([method, *(in_brackets(row) for row in found), *changes])
    return lines
