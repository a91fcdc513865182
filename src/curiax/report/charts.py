"""Curves and maps from records: what a page and its figures draw."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._metrics import Metric, share
from .._text import clean
from . import ratio, statistics
from .content import Curves, Map, MapAxis, Maps, Panel, Series
from .record import Record, closed_cells, thinned

#: Of every seed, so this decides how large a page is; a chart of some 300 pixels shows no more.
MOST_POINTS = 50
#: Of what else was measured, of which there is much and which is looked at now and then.
FEW_POINTS = 25
BORDER = "bonus/border_share"
#: Metrics that the charts of whom the noise pays show.
OF_NOISE = ("noise/bonus", "noise/steps")


def counted(records: Sequence[Record]) -> str | None:
    """The coverage that most records show first; None where none does."""
    found = [record.headline for record in records if (record.headline or "").startswith("coverage/")]
    return max(dict.fromkeys(found), key=found.count) if found else None


def metric_of(records: Sequence[Record], name: str) -> Metric:
    """What a metric is to all records; where they call it differently, as what two kinds of transitions are, its own
    name."""
    found = list(dict.fromkeys(record.metrics[name] for record in records if name in record.metrics))
    titles = {metric.title for metric in found}
    return found[0] if len(titles) == 1 else replace(found[0], title=Metric(name).title, note="")


# --- curves -----------------------------------------------------------------------------------------------


def main_curves(records: Sequence[Record]) -> tuple[Curves, ...]:
    """What is shown first of any record, what could be, and the bonus; games have charts of their own."""
    having = {
        name: [record for record in records if name in record.metrics and shown_first(record, name)]
        for name in dict.fromkeys(name for record in records for name in record.metrics)
    }
    first = [name for record in records if (name := record.headline) and shown_first(record, name)]
    most = max(dict.fromkeys(first), key=first.count, default="")
    metrics = [metric_of(records, name) for name, own in having.items() if own]
    metrics.sort(key=lambda metric: (metric.name != most, -metric.rank, metric.name not in first))
    return tuple(curve(having[metric.name], metric) for metric in metrics)


def shown_first(record: Record, name: str) -> bool:
    """Whether a metric of a record is among the first curves."""
    if record.plays and (name.startswith("game/") or name.startswith("coverage/")):
        return False
    # Whose two kinds differ on purpose has no use for what is paid at episodes' ends.
    return record.metrics[name].rank > 0 or (name == BORDER and not record.compared) or name == record.headline


def other_curves(records: Sequence[Record]) -> tuple[Curves, ...]:
    """Everything else that was measured, without the curves of single seeds, of which there would be too many."""
    names = dict.fromkeys(name for record in records for name in record.metrics)
    elsewhere = {name for record in records for name in record.metrics if shown_first(record, name)}
    elsewhere |= {*OF_NOISE, *(name for name in names if name.startswith(("game/", "coverage/")))}
    return tuple(curve(records, metric_of(records, name), few=True) for name in names if name not in elsewhere)


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

        def of_start(record: Record, metric: str = metric) -> np.ndarray | None:
            start = ratio.at_the_start(record, metric)[:, None]
            return None if not start.all() else np.asarray(record.curves[metric], float) / start

        comparing = [record for record in records if record.compared]
        found = curve(comparing, Metric(metric, factor=100.0, log=True), values=of_start)
        series += [replace(each, task=f"{each.task} {metric}") for each in found.series]
    note = (
        "Mean raw bonus of each kind of transitions, in per cent of what it was in the first rollout. Read it beside "
        "the ratio: two bonuses that have both vanished are alike whatever the method."
    )
    return (Curves("left", "What is left of each bonus", "%", note, tuple(series), log=True),) if series else ()


def curve(
    records: Sequence[Record],
    metric: Metric,
    *,
    few: bool = False,
    values: Callable[[Record], np.ndarray | None] | None = None,
) -> Curves:
    """A metric of all records that have it, or what `values` makes of them; of a `few` numbers: no single seeds."""
    series = []
    for record in records:
        data = record.curves.get(metric.name) if values is None else values(record)
        if data is not None:
            series.append(series_of(record, metric, data, few=few))
    highest = [high for each in series for high in (*each.mean, *each.high, *itertools.chain(*each.seeds.values()))]
    # The paper's cells are more than those that make 100 %.
    top = max([100.0, *highest]) if metric.unit == "%" and metric.high is not None else None
    title = metric.title[:1].upper() + metric.title[1:]
    return Curves(metric.name, title, metric.unit, metric.note, tuple(series), top, metric.log, metric.ideal, few)


def series_of(record: Record, metric: Metric, values: np.ndarray, *, few: bool = False) -> Series:
    """A line of one record `[S, K]`: it begins where every seed has a value."""
    at = thinned(len(record.steps), FEW_POINTS if few else MOST_POINTS)
    at = np.union1d(0, at) if metric.log else at
    data = np.asarray(values, float)[:, at] * metric.factor
    data = positive(data) if metric.log else data
    known = np.isfinite(data).all(0)
    middle, low, high = np.full((3, len(at)), np.nan)
    # The best is one episode's: a mean of three such, and an interval about it, would be of nobody's.
    middle[known] = {"mean": np.mean, "max": np.max, "sum": np.sum}[metric.across](data[:, known], axis=0)
    band = statistics.band(data[:, known]) if known.any() and metric.across == "mean" else None
    if band is not None:
        lowest, highest = record.limits(metric.name) if metric.name in record.metrics else bounds(metric)
        low[known], high[known] = np.clip(band[0], lowest, highest), np.clip(band[1], lowest, highest)
        # Zero has no place on a logarithmic axis: the band ends at the lowest run there.
        low = np.maximum(low, data.min(0)) if metric.log else low
    own = {} if few else {seed: numbers(row) for seed, row in zip(record.seeds, data, strict=True)}
    steps = tuple(int(step) for step in record.steps[at])
    limits = (numbers(low), numbers(high)) if band is not None else ((), ())
    return Series(record.task, record.label, steps, numbers(middle), *limits, own)


def bounds(metric: Metric) -> tuple[float, float]:
    """Between which values it can be."""
    return -np.inf if metric.low is None else metric.low, np.inf if metric.high is None else metric.high


def numbers(values: Any, digits: int = 4) -> tuple[float, ...]:
    """Floats of a few digits, so that the page stays small."""
    return tuple(float(f"{value:.{digits}g}") for value in np.asarray(values, float).tolist())


def noise_curves(records: Sequence[Record]) -> tuple[Curves, ...]:
    """Whom the noise pays: by the model's own judgement everywhere, and as it was paid and drawn."""
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
    would = share("probe", "would pay for noise", pays)
    found = [curve(noisy, would, values=contrast)]
    found += [curve(noisy, metric_of(noisy, name)) for name in OF_NOISE]
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
    lines = tuple(tuple(None if math.isnan(v) else float(f"{v:.3g}") for v in row) for row in values.tolist())
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
