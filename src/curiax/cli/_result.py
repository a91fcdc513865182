"""A finished run, for machines and for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .._text import clean

if TYPE_CHECKING:
    from .._metrics import Metric
    from ..experiments.run import RunResult
    from ..report.record import Record

#: A seed that ends below this part of the median of all is named, and of how many.
FAR_BELOW, MOST_FALLEN = 0.5, 8


def run_summary(result: RunResult) -> dict[str, Any]:
    """A finished run for machines."""
    record = of_result(result)
    return {
        "task": result.plan.task_entry.name,
        "method": result.plan.method_entry.name,
        "preset": result.plan.experiment.preset,
        "seeds": [seed for seed in result.plan.seeds if str(seed) not in result.manifest.get("lost", {})],
        "lost": result.manifest.get("lost", {}),
        "steps": result.plan.steps,
        "notes": result.manifest.get("notes") or {},
        "run_id": result.plan.run_id,
        "path": str(result.path),
        "reused": result.reused,
        "seconds": result.manifest["seconds"],
        "headline": result.headline,
        "final": {**in_tables(record), **reachable(record)},
    }


def of_result(result: RunResult) -> Record:
    """What is kept of a run for reports, with the headline that was asked for."""
    from ..report.record import condense

    return condense({**result.manifest, "headline": result.headline}, result.metrics)


def in_tables(record: Record) -> dict[str, Any]:
    """What the tables of a report would say of it: mean and interval of each number in the end, and each seed's."""
    from ..report.table import record_rows

    return {
        row.metric: {"mean": row.mean, "interval": span((row.ci_low, row.ci_high)), "values": list(row.values)}
        for row in record_rows(record, "")
    }


def reachable(record: Record) -> dict[str, Any]:
    """Of each grid of which it is known, the share of what can be reached."""
    from ..report.statistics import interval
    from ..report.table import possible

    found = {}
    for name in record.metrics:
        if name.startswith("reachable/"):
            values = record.in_the_end(name)
            limits = span(possible(interval(values), record.limits(name)))
            found[name] = {"mean": float(values.mean()), "interval": limits, "values": values.tolist()}
    return found


def span(limits: tuple[float | None, float | None]) -> tuple[float, float] | None:
    """Both limits of an interval, or None where there is none."""
    low, high = limits
    return None if low is None or high is None else (low, high)


def run_text(result: RunResult, steps: int | None) -> str:
    """A finished run for people."""
    data, record = run_summary(result), of_result(result)
    seeds = "one seed" if len(data["seeds"]) == 1 else f"{len(data['seeds'])} seeds"
    lines = [f"{data['method']} on {data['task']} ({data['preset']}): {seeds} x {data['steps']:,} steps"]
    if steps is not None and steps != data["steps"]:
        lines.append(f"  {steps:,} steps asked for; whole rollouts make {data['steps']:,}")
    lines += [f"  {name}: {text}" for name, text in data["notes"].items()]
    lines += metric_lines(record, data["final"], seeds)
    lines += fallen_lines(result)
    lines += bonus_lines(record, data["final"])
    seconds = data["seconds"]
    lines.append(
        "  already finished before, read from its folder"
        if data["reused"]
        else f"  {seconds['start']:.1f} s to start (check, compile), {seconds['train']:.1f} s to train"
    )
    continued = result.manifest.get("continued") or []
    if continued:
        step = continued[-1]["iteration"] * (data["steps"] // result.plan.iterations)
        times = f"{len(continued)} times, the last time" if len(continued) > 1 else "once,"
        lines.append(f"  continued {times} from step {step:,}")
    return "\n".join([*lines, f"  {clean(data['path'], None)}"])


def metric_lines(record: Record, final: Mapping[str, Any], seeds: str) -> list[str]:
    """The headline, and whatever else the tables of a report would show."""
    from ..report.table import shown_in_tables

    names = [name for name in record.metrics if shown_in_tables(record, name)]
    names.sort(key=lambda name: name != record.headline)
    missing = {record.metrics[name].missing for name in names if name not in final}
    lines = [metric_line(record, record.metrics[name], final, seeds) for name in names if name in final]
    return [*lines, *(f"  {text}" for text in sorted(missing) if text)]


def metric_line(record: Record, metric: Metric, final: Mapping[str, Any], seeds: str) -> str:
    """`coverage in the paper's cells: 91.2 %  95 % interval [90.1, 92.3]`, and of the reachable where that is known."""
    found, unit = final[metric.name], f" {metric.unit}" if metric.unit else ""
    when = " in the last tenth of training" if metric.end == "mean" else ""
    if metric.across != "mean":
        return f"  {metric.title}: {metric.text(metric.of_all(found['values']))}{unit}"
    text = f"  {metric.title}{when}: {metric.text(found['mean'])}{unit}"
    band = found["interval"]
    text += f"  95 % interval [{metric.text(band[0])}, {metric.text(band[1])}]" if band else f"  ({seeds}: no interval)"
    share, grid = final.get(metric.name.replace("coverage/", "reachable/")), record.grid(metric.name.partition("/")[2])
    if metric.group == "coverage" and share and grid:
        text += f", {share['mean']:.1f} % of the {grid['reachable']} reachable"
    return text


def bonus_lines(record: Record, final: Mapping[str, Any]) -> list[str]:
    """Of two kinds of transitions what is left of each one's bonus."""
    lines = []
    for name, kind in zip(("first", "second"), record.compared or (), strict=False):
        start, end = (final[f"{name}/{part}"]["mean"] for part in ("start", "end"))
        left = final.get(f"{name}/left")
        share = f", {left['mean']:.3g} % left" if left else ""
        lines.append(f"  {kind}: bonus {start:.3g} at the start, {end:.3g} in the end{share}")
    return lines


def fallen_lines(result: RunResult) -> list[str]:
    """The seeds that ended far below the others, which no mean and no interval shows."""
    from ..report.statistics import collapsed

    metric = result.headline or ""
    if not metric.startswith("coverage/"):
        return []
    final = result.final(metric)
    middle = float(np.median(list(final.values())))
    fallen = collapsed(final, FAR_BELOW * middle)
    if not fallen:
        return []
    shown = [f"seed {seed} at {final[seed]:.1f} %" for seed in fallen[:MOST_FALLEN]]
    shown += [f"{len(fallen) - MOST_FALLEN} more"] if len(fallen) > MOST_FALLEN else []
    return [f"  far below the others, whose median is {middle:.1f} %: {', '.join(shown)}"]
