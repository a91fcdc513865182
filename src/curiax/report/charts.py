"""Curves and maps from records: what a page and its figures draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._text import clean
from . import ratio, statistics
from .content import Curves, Map, MapAxis, Maps, Panel, Series
from .record import RATIO, Record, closed_cells, thinned

#: Of every seed, so this decides how large a page is; a chart of some 300 pixels shows no more.
MOST_POINTS = 50
COVERAGES = {"cells": "the paper's cells", "bins": "honest bins"}


def headline(records: Sequence[Record]) -> str | None:
    """The metric of the first table: the one that most records headline."""
    found = [record.headline for record in records if record.headline]
    return max(dict.fromkeys(found), key=found.count) if found else None


def metric_title(metric: str) -> str:
    """`coverage/cells` → `coverage in the paper's cells`."""
    grid = metric.partition("/")[2]
    return f"coverage in {COVERAGES.get(grid, grid)}"


# --- curves -----------------------------------------------------------------------------------------------


def coverage_curves(records: Sequence[Record], games: Sequence[Curves] = ()) -> tuple[Curves, ...]:
    """Each grid's coverage, the scores of games, the bonus, and the share of it paid where episodes end."""
    grids = [record for record in records if not record.plays]
    metrics = list(dict.fromkeys(name for r in grids for name in r.curves if name.startswith("coverage/")))
    first = headline(records)
    metrics.sort(key=lambda name: name != first)
    # The paper's cells are more than those that make 100 %.
    tops = [max(100.0, *(float(r.curves[name].max()) for r in grids if name in r.curves)) for name in metrics]
    curves = [
        curve(grids, name, metric_title(name).capitalize(), "%", "Cells visited so far by a run.", top=top)
        for name, top in zip(metrics, tops, strict=True)
    ]
    note = (
        "Share of the raw bonus paid on the steps that end an episode. In the released code the model sees the next "
        "episode's first observation there, a jump that no model can predict."
    )
    paid = curve(records, "bonus/mean", "Mean raw bonus", "", "Before scaling; every method has a unit of its own.")
    border = curve(counting(records), "bonus/border_share", "Bonus paid at episode ends", "%", note, scale=100.0)
    return (*curves, *ratio_curves(records), *games, paid, *([border] if border.series else []))


def counting(records: Sequence[Record]) -> list[Record]:
    """Those that compare no kinds of transitions."""
    return [record for record in records if not record.compared]


def ratio_curves(records: Sequence[Record]) -> tuple[Curves, ...]:
    """How much more the first kind of transitions is paid than the second."""
    kinds = dict.fromkeys(divided(r.compared) for r in records if r.compared)
    if not kinds:
        return ()
    note = (
        f"Mean raw bonus of {'; of '.join(kinds)}, in each rollout. At 1 both kinds are worth as much; what counts is "
        "how far a line ends from there, on either side."
    )
    return (curve(records, RATIO, "Ratio of the bonuses", "×", note, log=True, ideal=1.0),)


def divided(kinds: tuple[str, str]) -> str:
    """`(1 → 2…9) ÷ (0 → 1)`."""
    return f"({kinds[0]}) ÷ ({kinds[1]})"


def kind_panels(records: Sequence[Record], title: Callable[[str], str]) -> tuple[Panel, ...]:
    """A panel for each kind of transitions, named after its task and its curve."""
    tasks = {record.task: record.compared for record in records if record.compared}
    return tuple(
        Panel(f"{task} {metric}", kind if len(tasks) == 1 else f"{title(task)}: {kind}")
        for task, kinds in tasks.items()
        for metric, kind in zip(ratio.KINDS, kinds, strict=True)
    )


def left_curves(records: Sequence[Record]) -> tuple[Curves, ...]:
    """What is left of the bonus of either kind, in per cent of its start, a panel for each kind."""
    series: list[Series] = []
    for metric in ratio.KINDS:

        def share(record: Record, metric: str = metric) -> np.ndarray | None:
            start = ratio.at_the_start(record, metric)[:, None]
            return None if not start.all() else np.asarray(record.curves[metric], float) / start

        comparing = [record for record in records if record.compared]
        found = curve(comparing, metric, "", "", "", scale=100.0, log=True, values=share)
        series += [replace(each, task=f"{each.task} {metric}") for each in found.series]
    note = (
        "Mean raw bonus of each kind of transitions, in per cent of what it was in the first rollout. Read it beside "
        "the ratio: two bonuses that have both vanished are alike whatever the method."
    )
    return (Curves("left", "What is left of each bonus", "%", note, tuple(series), log=True),) if series else ()


def curve(
    records: Sequence[Record],
    metric: str,
    title: str,
    unit: str,
    note: str,
    *,
    scale: float = 1.0,
    top: float | None = None,
    log: bool = False,
    ideal: float | None = None,
    values: Callable[[Record], np.ndarray | None] | None = None,
) -> Curves:
    """A metric of all records that have it."""
    series = []
    for record in records:
        data = record.curves.get(metric) if values is None else values(record)
        if data is None:
            continue
        at = thinned(len(record.steps), MOST_POINTS)
        at = np.union1d(0, at) if log else at
        data = np.asarray(data, float)[:, at] * scale
        low, high = statistics.band(data) or ((), ())
        if metric.startswith("coverage/"):
            low, high = np.clip(low, 0, record.most(metric)), np.clip(high, 0, record.most(metric))
        elif top is not None:
            low, high = np.clip(low, 0, top), np.clip(high, 0, top)
        elif log:
            # Zero has no place on the axis: the band ends at the lowest run there.
            data = positive(data)
            low = np.maximum(low, np.nanmin(data, axis=0, initial=np.inf)) if len(low) else low
        own = {seed: numbers(row) for seed, row in zip(record.seeds, data, strict=True)}
        steps = tuple(int(step) for step in record.steps[at])
        series.append(Series(record.task, record.label, steps, numbers(data.mean(0)), numbers(low), numbers(high), own))
    return Curves(metric, title, unit, note, tuple(series), top, log, ideal)


def numbers(values: Any, digits: int = 4) -> tuple[float, ...]:
    """Floats of a few digits, so that the page stays small."""
    return tuple(float(f"{value:.{digits}g}") for value in np.asarray(values, float))


def noise_curves(records: Sequence[Record]) -> tuple[Curves, ...]:
    """Whom the noise pays: by the model's own judgement everywhere, and as it was paid and pressed."""
    noisy = [record for record in records if "noise/bonus" in record.curves]
    if not noisy:
        return ()

    def contrast(record: Record) -> np.ndarray | None:
        noise, car = record.curves.get("probe/noise"), record.curves.get("probe/car")
        if noise is None or car is None:
            return None
        total = noise + car
        if not total.any():  # a method that pays nothing
            return None
        return np.divide(noise, total, out=np.full(total.shape, 0.5), where=total > 0)

    pays = (
        "What the model would pay for pressing the remote, as a share of that plus what it would pay for pushing the "
        "car, in the middle of every bin (medians). 50 %: noise is worth as much as the car. Methods with a memory "
        "are missing: what they pay depends on what came before."
    )
    found = (
        curve(noisy, "probe", "Would pay for noise", "%", pays, scale=100.0, top=100.0, values=contrast),
        curve(
            noisy,
            "noise/bonus",
            "Was paid on noise",
            "%",
            "Share of the raw bonus paid on steps in which the remote was pressed.",
            scale=100.0,
            top=100.0,
        ),
        curve(
            noisy,
            "noise/steps",
            "Pressed the remote",
            "%",
            "Share of the steps in which the agent pressed the remote.",
            scale=100.0,
            top=100.0,
        ),
    )
    return tuple(curves for curves in found if curves.series)


# --- maps -------------------------------------------------------------------------------------------------


def flat_grid(record: Record) -> Any | None:
    """The grid to draw: two axes, honest bins if there are any, the finest of them."""
    flat = [grid for grid in record.facts["grids"] if len(grid["axes"]) == 2]
    honest = [grid for grid in flat if grid["rule"] == "floor"]
    return max(honest or flat, key=lambda grid: math.prod(grid["shape"]), default=None)


def drawn(record: Record, grid: Any, values: np.ndarray) -> Map:
    """A map of one record; NaN becomes nothing."""
    axes = []
    for axis, parts in zip(grid["axes"], grid["shape"], strict=True):
        # The paper's cells have an index more, for values exactly on the lower border.
        extra = (axis["high"] - axis["low"]) / axis["parts"] * (parts - axis["parts"])
        axes.append(MapAxis(clean(axis["name"]), axis["low"] - extra, axis["high"], parts))
    lines = tuple(tuple(None if np.isnan(v) else float(f"{v:.3g}") for v in row) for row in values)
    moments = tuple(int(step) for step in record.moments)
    return Map(record.task, record.label, axes[0], axes[1], moments, lines, closed_cells(grid))


def occupancy_maps(records: Sequence[Record]) -> tuple[Maps, ...]:
    """Where each line spent its steps."""
    maps = []
    for record in records:
        grid = flat_grid(record)
        if grid is not None and f"occupancy/{grid['name']}" in record.maps:
            share = 100 * np.asarray(record.maps[f"occupancy/{grid['name']}"], float)
            maps.append(drawn(record, grid, np.where(share > 0, share, np.nan)))
    note = "Share of all steps so far spent in each bin, mean over seeds; hatched: no run has been there."
    note += " Solid: walls." if any(found.closed for found in maps) else ""
    return (Maps("occupancy", "Visits", "% of steps", note, tuple(maps), "log"),) if maps else ()


def surprise_maps(records: Sequence[Record]) -> tuple[Maps, ...]:
    """What each line's bonus found surprising: as it was paid, and as the model would pay."""
    paid, probes = [], {}
    for record in records:
        grid = flat_grid(record)
        if grid is None:
            continue
        name = f"paid/{grid['name']}"
        if name in record.maps and np.nanmax(np.abs(np.nan_to_num(record.maps[name]))) > 0:
            values = np.asarray(record.maps[name], float)
            paid.append(drawn(record, grid, positive(values / mean_of_paying(values))))
        if "probe/car" in record.maps and np.any(record.maps["probe/car"]):
            car = np.asarray(record.maps["probe/car"], float)
            for kind in (key for key in record.maps if key.startswith("probe/")):
                unit = np.median(car, axis=1, keepdims=True) if kind == "probe/car" else car
                ratio = np.asarray(record.maps[kind], float) / np.where(unit > 0, unit, np.nan)
                probes.setdefault(kind, []).append(drawn(record, grid, positive(ratio)))
    found = []
    texts = {
        "probe/car": (
            "Would pay for pushing the car",
            "× its median",
            "What the model would pay in the middle of each bin for full force to either side, visited or not, in "
            "units of its own median over the bins at that moment.",
        ),
        "probe/noise": (
            "Would pay for pressing the remote",
            "× pushing the car there",
            "What the model would pay in the middle of each bin for pressing the remote, in units of what it would pay "
            "for pushing the car in the same place: at 1 noise is worth as much as driving, above 1 it pays better. "
            "Look at the first third of training: there LBS and ICM part ways. Later, when the car is learnt, even a "
            "little noise can outweigh it; an agent that has explored by then has nothing to lose.",
        ),
    }
    for kind in sorted(probes, key=lambda key: key != "probe/noise"):
        name = kind.removeprefix("probe/")
        title, unit, note = texts.get(kind, (f"Would pay for {name}", "× the car", "In the middle of each bin."))
        maps = tuple(probes[kind])
        # A fifth into training the policies are made, and not everything is learnt yet.
        start = min(maps[0].steps, key=lambda step: abs(step - maps[0].steps[-1] / 5))
        found.append(Maps(kind, title, unit, note + " Median over seeds.", maps, "log", start=start))
    if paid:
        note = (
            "Raw bonus of a visit to each bin since the moment before, mean over all seeds' visits, in units of the "
            "mean over the visited bins; hatched: nobody went there."
        )
        note += " Solid: walls." if any(found.closed for found in paid) else ""
        found.append(Maps("paid", "Was paid", "× the mean over bins", note, tuple(paid), "log"))
    return tuple(found)


def mean_of_paying(values: np.ndarray) -> np.ndarray:
    """The mean over the cells that paid at each moment `[M, 1]`; NaN where none did."""
    pays = np.isfinite(values) & (values != 0)
    sums, counts = np.where(pays, values, 0.0).sum(1, keepdims=True), pays.sum(1, keepdims=True)
    return np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)


def positive(values: np.ndarray) -> np.ndarray:
    """What a logarithmic scale can show, nothing elsewhere."""
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)
