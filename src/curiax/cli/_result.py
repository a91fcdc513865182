"""A finished run, for machines and for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._text import clean

if TYPE_CHECKING:
    from ..experiments.run import RunResult
    from ..report.record import Record
    from ..report.table import Row

#: A seed that ends below this part of the median of all is named, and of how many.
FAR_BELOW, MOST_FALLEN = 0.5, 8


def run_summary(result: RunResult) -> dict[str, Any]:
    """A finished run for machines."""
    from ..report.record import condense
    from ..report.table import coverage_rows

    record = condense(result.manifest, result.metrics)
    coverage = by_metric(coverage_rows(record, ""))
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
        "final": {**coverage, **reachable(record), **ratios(record), **games(record), **returns(result)},
    }


def reachable(record: Record) -> dict[str, Any]:
    """Of each grid of which it is known, the share of what can be reached."""
    from ..report.statistics import interval
    from ..report.table import possible

    names = sorted(name for name in record.curves if name.startswith("reachable/"))
    final = {name: record.final(name).tolist() for name in names}
    return {
        name: {"mean": sum(values) / len(values), "interval": span(possible(interval(values), 100.0)), "values": values}
        for name, values in final.items()
    }


def ratios(record: Record) -> dict[str, Any]:
    """Of a task that compares two kinds of transitions, the ratio of their bonuses and both of these."""
    from ..report.table import ratio_rows

    return by_metric(ratio_rows(record, "")) if record.compared else {}


def games(record: Record) -> dict[str, Any]:
    """Of a game, score and length of the last tenth's episodes, best score and number of episodes."""
    from ..report.table import game_rows

    return by_metric(game_rows(record, "")) if record.plays else {}


def returns(result: RunResult) -> dict[str, Any]:
    """Where the task's reward weighs in, mean return and length of the last tenth's episodes of each seed."""
    import polars as pl

    from ..agents.task_reward import LENGTH, RETURN
    from ..report.statistics import interval

    if RETURN not in result.metrics.columns:
        return {}
    late = result.metrics.filter(pl.col("iteration") >= 0.9 * pl.col("iteration").max())
    means = late.group_by("seed").agg(pl.col(name).fill_nan(None).mean() for name in (RETURN, LENGTH)).sort("seed")
    found = {name: means[name].to_list() for name in (RETURN, LENGTH)}
    return {
        name: {"mean": sum(values) / len(values), "interval": interval(values), "values": values}
        for name, values in found.items()
        if None not in values
    }


def span(limits: tuple[float | None, float | None]) -> tuple[float, float] | None:
    """Both limits of an interval, or None where there is none."""
    low, high = limits
    return None if low is None or high is None else (low, high)


def by_metric(rows: Sequence[Row]) -> dict[str, Any]:
    """Rows of a table for machines."""
    return {
        row.metric: {
            "mean": row.mean,
            "interval": span((row.ci_low, row.ci_high)),
            "values": list(row.values),
        }
        for row in rows
    }


def run_text(result: RunResult, asked: int | None) -> str:
    """A finished run for people."""
    from ..agents.task_reward import RETURN
    from ..experiments.published import SCORE

    data = run_summary(result)
    seeds = "one seed" if len(data["seeds"]) == 1 else f"{len(data['seeds'])} seeds"
    lines = [f"{data['method']} on {data['task']} ({data['preset']}): {seeds} x {data['steps']:,} steps"]
    if asked is not None and asked != data["steps"]:
        lines.append(f"  {asked:,} steps asked for; whole rollouts make {data['steps']:,}")
    lines += [f"  {name}: {text}" for name, text in data["notes"].items()]
    for grid in result.plan.setup.task.grids:
        found = data["final"][f"coverage/{grid.name}"]
        band = found["interval"]
        text = f"  coverage ({grid.name:5s}) {found['mean']:5.1f} %"
        text += f"  95 % interval [{band[0]:.1f}, {band[1]:.1f}]" if band else f"  ({seeds}: no interval)"
        share = data["final"].get(f"reachable/{grid.name}")
        lines.append(text + (f", {share['mean']:.1f} % of the {grid.reachable} reachable" if share else ""))
    lines += fallen_lines(result)
    kinds = result.plan.setup.task.compared
    if kinds:
        kinds = (clean(kinds[0]), clean(kinds[1]))
        lines += ratio_lines(data["final"], kinds, seeds)
    elif SCORE in result.metrics.columns:
        lines += game_lines(data["final"], data["task"], seeds)
    elif RETURN in result.metrics.columns:
        lines += return_lines(data["final"], seeds)
    elif not result.plan.setup.task.grids:
        lines.append("  this task counts no cells; see the metrics table")
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


def fallen_lines(result: RunResult) -> list[str]:
    """The seeds that ended far below the others, which no mean and no interval shows."""
    from ..experiments.progress import headline_metric
    from ..report.statistics import collapsed

    metric = headline_metric(result.metrics.columns, result.plan.setup.loop.coverage)
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


def ratio_lines(final: dict[str, Any], kinds: tuple[str, str], seeds: str) -> list[str]:
    """The ratio in the end, and what is left of each kind's bonus."""
    found = final["ratio/bonus"]
    band = found["interval"]
    told = f"95 % interval [{band[0]:.2f}, {band[1]:.2f}]" if band else f"({seeds}: no interval)"
    lines = [f"  bonus of ({kinds[0]}) ÷ ({kinds[1]}) in the end: {found['mean']:.2f}  {told}"]
    for name, kind in zip(("first", "second"), kinds, strict=True):
        start, end = (final[f"{name}/{part}"]["mean"] for part in ("start", "end"))
        left = final.get(f"{name}/left")
        share = f", {left['mean']:.3g} % left" if left else ""
        lines.append(f"  {kind}: bonus {start:.3g} at the start, {end:.3g} in the end{share}")
    return lines


def return_lines(final: dict[str, Any], seeds: str) -> list[str]:
    """The undiscounted return of episodes in the end, and their length."""
    from ..agents.task_reward import LENGTH, RETURN

    if RETURN not in final:
        return ["  no return yet: a seed has not finished an episode"]
    found, band = final[RETURN], final[RETURN]["interval"]
    told = f"95 % interval [{band[0]:,.1f}, {band[1]:,.1f}]" if band else f"({seeds}: no interval)"
    length = final[LENGTH]["mean"]
    return [
        f"  return of episodes in the last tenth of training: {found['mean']:,.1f}  {told}; {length:,.0f} steps long"
    ]


def game_lines(final: dict[str, Any], task: str, seeds: str) -> list[str]:
    """The score in the end, the best one, and how many episodes were finished."""
    from ..experiments.suites import score_name

    word, (score, episodes) = score_name(task), (final.get(f"game/{name}") for name in ("score", "episodes"))
    if score is None or episodes is None:
        return [f"  no {word} yet: a seed has not finished an episode"]
    band = score["interval"]
    told = f"95 % interval [{band[0]:,.1f}, {band[1]:,.1f}]" if band else f"({seeds}: no interval)"
    best, length = max(final["game/best"]["values"]), final["game/length"]["mean"]
    return [
        f"  {word} in the last tenth of training: {score['mean']:,.1f}  {told}; best of any episode {best:,.0f}",
        f"  {sum(episodes['values']):,.0f} episodes finished, in the end of {length:,.0f} steps",
    ]
