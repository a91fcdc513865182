"""Figures for papers and documents, as SVG and PNG: the same data and looks as the page."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .._matplotlib import matplotlib, style
from ..paper.published import RATIO
from .content import Content, Curves, Gallery, Map, Maps, Series
from .games import AUTHORS
from .ratio import NEAR

#: Above so many lines curves can no longer be told apart, and only the final values are drawn.
MOST_CURVES = 9
#: Above so many lines colours would come twice; where each line has its name beside it, all then have this one.
MOST_COLOURS, ONE_COLOUR = 10, "#0072B2"
#: How far beyond the outermost run an axis of ratios reaches for the sake of an interval.
REACH = 1.6
#: Walls: a calm grey that is on no colour scale; paler is where nobody went.
WALL, NOWHERE = "#6b7480", "#eeeeee"
#: Every figure that there can be, and the files of each.
NAMES = (
    *("coverage", "ratio", "bonus", "headline", "games", "noise", "final", "ratio-final", "samples", "occupancy"),
    "surprise",
)
KINDS = ("png", "svg")
#: Characters of a task's title above its panel.
MOST_TITLE = 48
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "curiax",
    # Labels are the user's: a dollar sign in one is no mathematics.
    "text.parse_math": False,
    "svg.fonttype": "none",
}


def draw_all(content: Content, rows: Sequence[Any], folder: Path) -> list[Path]:
    """Every figure that the content allows; returns the files."""
    drawings: list[tuple[str, Callable[[Path], None]]] = []
    few = len(content.lines) <= MOST_CURVES
    if content.curves and few:
        played = [quantity for quantity in content.curves if quantity.key.startswith("game/")]
        first, kind = content.curves[0], content.curves[0].key.partition("/")[0]
        name = kind if kind in ("coverage", "ratio", "bonus") else "headline"
        draw_first = ratio_curves if name == "ratio" else curves
        if first not in played:
            drawings.append((name, lambda stem: draw_first(content, first, stem)))
        if played:
            drawings.append(("games", lambda stem: games(content, played, stem)))
    if content.noise and few:
        drawings.append(("noise", lambda stem: curves(content, content.noise[0], stem)))
    if any(row.metric == content.curves[0].key != RATIO for row in rows if content.curves):
        drawings.append(("final", lambda stem: final(content, rows, stem)))
    if any(row.metric == RATIO for row in rows):
        drawings.append(("ratio-final", lambda stem: ratio_final(content, rows, stem)))
    if content.galleries:
        drawings.append(("samples", lambda stem: samples(content, content.galleries[0], stem)))
    if content.occupancy and few:
        drawings.append(("occupancy", lambda stem: maps(content, content.occupancy[0], stem)))
    if content.surprise and few:
        drawings.append(("surprise", lambda stem: maps(content, content.surprise[0], stem)))
    folder.mkdir(parents=True, exist_ok=True)
    matplotlib()  # before its parts are imported
    for name, draw in drawings:
        draw(folder / name)
    return [folder / f"{name}.{kind}" for name, _ in drawings for kind in KINDS]


@contextmanager
def canvas(stem: Path, shape: tuple[int, int], size: tuple[float, float], **options: Any) -> Iterator[tuple[Any, Any]]:
    """A figure with axes `[rows, columns]`, saved twice when done."""
    with style(STYLE) as plt:
        figure, axes = plt.subplots(*shape, figsize=size, squeeze=False, layout="constrained", **options)
        yield figure, axes
        # Neither file says when it was made, so that the same runs give the same bytes.
        figure.savefig(stem.with_suffix(".png"), dpi=150, metadata={"Software": None})
        figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
        plt.close(figure)


def looks(content: Content) -> dict[str, dict[str, Any]]:
    """Colour and dashes of each line."""

    def strokes(dash: str) -> Any:
        # Matplotlib measures them in widths of the line, SVG in points.
        return (0, tuple(float(length) / 1.8 for length in dash.split())) if dash else "-"

    return {line.label: {"color": line.colour, "linestyle": strokes(line.dash)} for line in content.lines}


def titles(content: Content) -> dict[str, str]:
    """Each task's title, as much of it as a panel has room for."""
    return {panel.name: short(panel.title, MOST_TITLE) for panel in content.panels}


def panel_title(content: Content, task: str) -> str:
    """A task's title above its panel; nothing where the whole figure is called the same."""
    title = titles(content)[task]
    return "" if title == short(content.title, MOST_TITLE) else title


def bar_colours(content: Content, labels: Sequence[str]) -> dict[str, str]:
    """The colour of each line in a chart that names every line at its axis."""
    look = looks(content)
    return {label: ONE_COLOUR if len(labels) > MOST_COLOURS else look[label]["color"] for label in labels}


def curves(content: Content, quantity: Curves, stem: Path) -> None:
    """Mean over training with a 95 % band over seeds, a panel for each task."""
    tasks, look = tasks_of(quantity), looks(content)
    with canvas(stem, (1, len(tasks)), (4.4 * len(tasks) + 1.2, 3.9), sharey=True) as (figure, axes):
        for axis, task in zip(axes[0], tasks, strict=True):
            shown = [series for series in quantity.series if series.task == task]
            for series in shown:
                draw_series(axis, series, look[series.label])
            axis.set_title(panel_title(content, task), loc="left", fontsize=11, fontweight="bold")
            axis.set_xlabel("environment steps (thousands)")
            axis.set_ylim(*ends(quantity))
            axis.set_xlim(0, max(max(series.steps) for series in shown) / 1000)
            axis.grid(axis="y", color="#dddddd", linewidth=0.6)
            label_ends(axis, shown, look)
        axes[0][0].set_ylabel(with_unit(quantity))
        figure.suptitle(content.title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        figure.supxlabel("mean over seeds, band: 95 % interval", x=0.01, ha="left", fontsize=8, color="#555")


def ratio_curves(content: Content, quantity: Curves, stem: Path) -> None:
    """The ratio over training, then what is left of the bonus of either kind, all logarithmic."""
    panels = [(shown, task) for shown in (quantity, *content.left) for task in tasks_of(shown)]
    look = looks(content)
    with canvas(stem, (1, len(panels)), (4.5 * len(panels) + 1.0, 3.9)) as (figure, axes):
        for axis, (shown, task) in zip(axes[0], panels, strict=True):
            own = [series for series in shown.series if series.task == task]
            for series in own:
                draw_series(axis, series, look[series.label])
            axis.set_yscale("log")
            title = titles(content)[task] if len(tasks_of(shown)) > 1 else shown.title
            axis.set_title(title if shown is quantity else f"Left of {title}", loc="left", fontweight="bold")
            axis.set_xlabel("environment steps (thousands)")
            axis.set_ylabel("ratio of the bonuses" if shown is quantity else "bonus (% of its start)")
            axis.set_xlim(0, max(max(series.steps) for series in own) / 1000)
            axis.grid(axis="y", color="#dddddd", linewidth=0.6)
            if shown.ideal is not None:
                draw_ideal(axis, shown.ideal)
        for drawn in (quantity, *content.left):
            alike = [axis for axis, (shown, _) in zip(axes[0], panels, strict=True) if shown is drawn]
            limits = [axis.get_ylim() for axis in alike]
            for axis in alike:
                axis.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
                round_ticks(axis.yaxis, drawn.ideal)
        for axis, (shown, task) in zip(axes[0], panels, strict=True):
            label_ends(axis, [series for series in shown.series if series.task == task], look)
        figure.suptitle(content.title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        figure.supxlabel("mean over seeds, band: 95 % interval", x=0.01, ha="left", fontsize=8, color="#555")


def games(content: Content, quantities: Sequence[Curves], stem: Path) -> None:
    """A row for each game: score, length of episodes, the best score, and the rooms where they are counted."""
    everything = [series for quantity in quantities for series in quantity.series]
    drawn = {series.task for series in everything}
    shown = {name: title for name, title in titles(content).items() if name in drawn}
    rows: dict[str, list[str]] = {}
    for name in shown:
        rows.setdefault(name.rpartition(" ")[0], []).append(name)
    look = looks(content)
    columns = max(map(len, rows.values()))
    with canvas(stem, (len(rows), columns), (3.83 * columns, 2.7 * len(rows) + 1.0)) as (figure, axes):
        for line, names in zip(axes, rows.values(), strict=True):
            for axis in line[len(names) :]:
                axis.set_axis_off()
            for axis, name in zip(line, names, strict=False):
                own = [series for series in everything if series.task == name]
                for series in own:
                    draw_series(axis, series, look[series.label])
                title, _, words = shown[name].partition(": ")
                draw_game_axis(axis, own, title if name is names[0] else "", words)
        handles = [axes[0][0].plot([], [], label=short(label), linewidth=1.8, **look[label])[0] for label in look]
        figure.legend(handles=handles, loc="outside upper right", ncols=5, frameon=False)
        figure.suptitle(content.title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        banded = any(series.low for series in everything if series.label != AUTHORS)
        note = "mean over seeds, band: 95 % interval" if banded else "too few seeds for a band"
        note += f"; {AUTHORS}: ± standard deviation" if any(series.label == AUTHORS for series in everything) else ""
        figure.supxlabel(note, x=0.01, ha="left", fontsize=8, color="#555")


def draw_game_axis(axis: Any, shown: Sequence[Series], title: str, words: str) -> None:
    """The axes of one panel: steps in millions where there are many, upright from 0 where nothing is below."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    last = max(max(series.steps) for series in shown)
    unit, name = (1e3, "thousands") if last < 2e6 else (1e6, "millions")
    axis.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axis.set_xlabel(f"agent steps ({name})")
    axis.set_ylabel(words)
    # Whole rollouts end a little before a round number, which is to be seen.
    axis.set_xlim(0, 1.002 * last / 1000)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{1000 * value / unit:g}"))
    axis.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}".replace("-", "−")))
    values = [v for series in shown for v in (*series.mean, *series.low, *series.high) if np.isfinite(v)]
    if not values:
        axis.set_yticks([])
        axis.text(0.5, 0.5, "no episode has ended", transform=axis.transAxes, ha="center", color="#555")
    elif min(values) >= 0:
        axis.set_ylim(*((0, 1.05 * max(values)) if max(values) > 0 else (-0.04, 1)))
    axis.grid(axis="y", color="#dddddd", linewidth=0.6)


def tasks_of(quantity: Curves) -> list[str]:
    """The panels that a quantity is drawn in."""
    return list(dict.fromkeys(series.task for series in quantity.series))


def draw_ideal(axis: Any, value: float) -> None:
    """A line across; its name is at the axis, where no curve is (`round_ticks`)."""
    axis.axhline(value, color="#555555", linewidth=1.0, linestyle=(0, (5, 3)), zorder=1)
    low, high = axis.get_ylim()
    axis.set_ylim(min(low, 0.92 * value), max(high, 1.08 * value))


def round_ticks(axis: Any, ideal: float | None = None) -> None:
    """Plain numbers on a logarithmic axis, as many as have room; beside the ideal one what it is."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    decades = np.log10(high / low)
    factors = (
        (1.0,)
        if decades >= 3
        else (1.0, 2.0, 5.0)
        if decades >= 1.7
        else (1.0, 2.0, 3.0, 4.0, 5.0)
        if decades >= 0.8
        else (1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
    )

    def name(value: float, _: Any) -> str:
        return f"ideal {value:g}" if ideal is not None and np.isclose(value, ideal) else f"{value:g}"

    axis.set_major_locator(LogLocator(subs=factors, numticks=20))
    axis.set_major_formatter(FuncFormatter(name))
    axis.set_minor_formatter(NullFormatter())


def with_unit(quantity: Curves) -> str:
    """What an axis says."""
    return f"{quantity.title} ({quantity.unit})" if quantity.unit else quantity.title


def ends(quantity: Curves) -> tuple[float | None, float | None]:
    """Of the vertical axis: from 0, where nothing is below."""
    lowest = min((v for s in quantity.series for v in (*s.mean, *s.low) if np.isfinite(v)), default=0.0)
    top = quantity.top if quantity.top is None else roomy(quantity.top, quantity.series)
    return (0.0 if lowest >= 0 else None), top


def roomy(top: float, shown: Sequence[Series]) -> float:
    """The top of an axis, a little higher where a curve would run along its very edge."""
    return top * (1.02 if any(max(series.mean) > 0.99 * top for series in shown) else 1.0)


def draw_series(axis: Any, series: Series, look: dict[str, Any]) -> None:
    """One curve and its band."""
    steps = np.asarray(series.steps) / 1000
    axis.plot(steps, series.mean, linewidth=1.8, **look)
    if series.low:
        axis.fill_between(steps, series.low, series.high, color=look["color"], alpha=0.18, linewidth=0)


def label_ends(axis: Any, shown: Sequence[Series], look: dict[str, dict[str, Any]]) -> None:
    """Names at the curves' ends instead of a legend, moved apart where they would overlap, and led back to them."""
    limits = axis.get_ylim()
    left, right = axis.get_xlim()
    log = axis.get_yscale() == "log"
    low, high = np.log10(limits) if log else limits
    gap = 0.055 * (high - low)
    known = [(series.mean[-1], series.label) for series in shown if np.isfinite(series.mean[-1])]
    ends = sorted((float(np.log10(end)) if log else end, label) for end, label in known)
    for height, (end, label) in zip(apart([end for end, _ in ends], gap, high), ends, strict=True):
        colour, beside = look[label]["color"], right
        heights = [10**end, 10**height] if log else [end, height]
        if abs(height - end) > gap / 2:
            beside = right + 0.05 * (right - left)
            axis.plot([right, beside], heights, color=colour, linewidth=0.8, clip_on=False)
        axis.text(beside, heights[1], f" {short(label)}", va="center", color=colour, fontweight="bold", clip_on=False)
    axis.set(xlim=(left, right), ylim=limits)


def short(label: str, most: int = 24) -> str:
    """The end of a label that is too long for a picture: of `module:Class` the class."""
    return label if len(label) <= most else f"…{label[1 - most :]}"


def apart(heights: Sequence[float], gap: float, top: float) -> list[float]:
    """Sorted heights moved so that no two are closer than `gap` and none is above `top`: up first, then down."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + gap) if placed else height)
    ceiling = top + gap
    for k in range(len(placed) - 1, -1, -1):
        ceiling = placed[k] = min(placed[k], ceiling - gap)
    return placed


def final(content: Content, rows: Sequence[Any], stem: Path) -> None:
    """The headline of every line in the end with its interval, beside the paper's mean, a panel for each task."""
    quantity = content.curves[0]
    own = [row for row in rows if row.metric == quantity.key]
    labels = [line.label for line in content.lines]
    tasks = [panel.name for panel in content.panels if panel.name in {row.task for row in own}]
    colours = bar_colours(content, labels)
    size = (3.6 * len(tasks) + 2.0, 0.34 * len(labels) + 1.5)
    with canvas(stem, (1, len(tasks)), size, sharey=True, sharex=True) as (figure, axes):
        for axis, task in zip(axes[0], tasks, strict=True):
            for row in own:
                if row.task == task:
                    draw_final(axis, row, labels.index(row.method), colours[row.method])
            axis.set_title(panel_title(content, task), loc="left", fontsize=11, fontweight="bold")
            axis.set_xlabel("final coverage (%)" if quantity.key.startswith("coverage/") else with_unit(quantity))
            highest = max(value for row in own for value in row.values)
            if quantity.top is not None:
                axis.set_xlim(0, max(100.0, highest) + (2.0 if highest > 98 else 0.0))
            axis.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes[0][0].set_yticks(range(len(labels)), [short(label, 40) for label in labels])
        axes[0][0].invert_yaxis()
        figure.suptitle(content.title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        note = "dots: runs; bar: mean and 95 % interval"
        note += "; diamond: the paper's mean" if any(row.paper is not None for row in own) else ""
        figure.supxlabel(note, x=0.01, ha="left", fontsize=8, color="#555")


def ratio_final(content: Content, rows: Sequence[Any], stem: Path) -> None:
    """The ratio of every line in the end with its interval, and what counts as near 1, a panel for each task."""
    own = [row for row in rows if row.metric == RATIO]
    labels = [line.label for line in content.lines if line.label in {row.method for row in own}]
    tasks, colours = list(dict.fromkeys(row.task for row in own)), bar_colours(content, labels)
    size = (5.2 * len(tasks) + 2.0, 0.34 * len(labels) + 1.7)
    with canvas(stem, (1, len(tasks)), size, sharey=True, sharex=True) as (figure, axes):
        for axis, task in zip(axes[0], tasks, strict=True):
            axis.axvspan(*NEAR, color="#e3f4ea", linewidth=0, zorder=0)
            axis.axvline(1.0, color="#555555", linewidth=1.0, linestyle=(0, (5, 3)), zorder=1)
            for row in own:
                if row.task == task:
                    draw_final(axis, row, labels.index(row.method), colours[row.method])
            axis.set(xscale="log", xlim=ratio_limits(own))
            mark_cut(axis, [(row, labels.index(row.method), colours[row.method]) for row in own if row.task == task])
            axis.set_title(panel_title(content, task), loc="left", fontsize=11, fontweight="bold")
            axis.set_xlabel("ratio of the bonuses in the end")
            round_ticks(axis.xaxis)
            axis.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes[0][0].set_yticks(range(len(labels)), [short(label, 40) for label in labels])
        axes[0][0].set_ylim(len(labels) - 0.5, -0.5)
        figure.suptitle(content.title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        note = f"dots: runs; bar: mean and 95 % interval; green: near 1, {NEAR[0]:g} to {NEAR[1]:g}"
        note += "; arrowhead: the interval goes on" if any(cut(axes[0][0], row) for row in own) else ""
        figure.supxlabel(note, x=0.01, ha="left", fontsize=8, color="#555")


def ratio_limits(rows: Sequence[Any]) -> tuple[float, float]:
    """The ends of an axis that shows every run, and of intervals what does not lie far from all runs."""
    runs = [value for row in rows for value in row.values if value > 0] + [*NEAR]
    ends = [end for row in rows for end in (row.ci_low, row.ci_high) if end] + runs
    return max(min(ends), min(runs) / REACH) / 1.08, min(max(ends), max(runs) * REACH) * 1.08


def cut(axis: Any, row: Any) -> str:
    """At which ends of the axis a row's interval goes on beyond it: `<`, `>`, both or none."""
    if row.ci_low is None:
        return ""
    low, high = axis.get_xlim()
    return ("<" if row.ci_low < low else "") + (">" if row.ci_high > high else "")


def mark_cut(axis: Any, drawn: Sequence[tuple[Any, int, str]]) -> None:
    """An arrowhead at the end of the axis for each interval that goes on beyond it."""
    ends = dict(zip("<>", axis.get_xlim(), strict=True))
    for row, height, colour in drawn:
        for head in cut(axis, row):
            axis.plot([ends[head]], [height], head, color=colour, markersize=8, clip_on=False)


def samples(content: Content, gallery: Gallery, stem: Path) -> None:
    """Sample transitions above what each line pays for them, at the start and in the end."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage
    from matplotlib.patches import Rectangle

    count, lines, look = len(gallery.samples), gallery.payments, looks(content)
    # A gap between the two kinds, and room for the ratio at the end.
    places = [k + (0.35 if k >= gallery.first else 0.0) for k in range(count)]
    shades = LinearSegmentedColormap.from_list("shades", ["#66aad1", "#f1f2ef", "#edbb4d"])
    names = 0.14 * max(len(short(paid.label)) for paid in lines)
    with canvas(stem, (1, 1), (0.62 * (count + 2.5 + names), 0.27 * len(lines) + 2.6)) as (figure, axes):
        axis = axes[0][0]
        axis.set_axis_off()
        axis.set(xlim=(-1.3 - names, count + 1.2), ylim=(len(lines) - 0.4, -5.6))
        for k, sample in enumerate(gallery.samples):
            for address, height in ((sample.before, -3.9), (sample.after, -1.6)):
                if address:
                    picture = OffsetImage(pixels(address), zoom=1.05, cmap="gray", interpolation="nearest")
                    axis.add_artist(AnnotationBbox(picture, (places[k], height), frameon=False, pad=0))
            axis.text(places[k], -2.75, "↓", ha="center", va="center", fontsize=9, color="#555555")
        for kind, ks in zip(gallery.kinds, (places[: gallery.first], places[gallery.first :]), strict=True):
            axis.text(float(np.mean(ks)), -5.3, kind, ha="center", va="center", fontweight="bold")
        axis.text(places[-1] + 1.1, -0.8, "ratio", ha="center", va="center", fontsize=8.5, color="#555555")
        for row, paid in enumerate(lines):
            if paid.moment == "start":
                bold = {"color": look[paid.label]["color"], "fontweight": "bold"}
                axis.text(-1.25 - names, row, short(paid.label), va="center", **bold)
            axis.text(-0.6, row, paid.moment, ha="right", va="center", fontsize=8.5, color="#555555")
            for place, value, shade in zip(places, paid.values, paid.shades, strict=True):
                box = {"facecolor": shades((shade + 4) / 8), "linewidth": 0}
                axis.add_patch(Rectangle((place - 0.48, row - 0.45), 0.96, 0.9, **box))
                axis.text(place, row, value, ha="center", va="center", fontsize=8)
            axis.text(places[-1] + 1.1, row, paid.ratio, ha="center", va="center", fontsize=8.5, fontweight="bold")
        figure.suptitle(f"{gallery.title}: what single transitions are paid", x=0.01, ha="left", fontweight="bold")
        note = f"raw bonus, median over seeds; orange: more than the line then pays for {gallery.kinds[1]}, blue: less"
        figure.supxlabel(note, x=0.01, ha="left", fontsize=8, color="#555")


def pixels(address: str) -> np.ndarray:
    """The picture that an address of a PNG holds."""
    from matplotlib.image import imread

    return imread(io.BytesIO(base64.b64decode(address.partition(",")[2])), format="png")


def draw_final(axis: Any, row: Any, height: int, colour: str) -> None:
    """One line of the chart."""
    # Above and below the bar by a fixed pattern, not by chance: the same runs give the same picture.
    count = np.arange(len(row.values))
    spread = np.where(count % 2, 1, -1) * (0.25 + 0.09 * np.sin(2.4 * count))
    if row.ci_low is not None:
        # Zero has no place on a logarithmic axis; what lies beyond its end is cut there.
        ends = [max(row.ci_low, 1e-12), row.ci_high]
        axis.plot(ends, [height, height], color=colour, linewidth=2.5, solid_capstyle="butt")
    axis.plot([row.mean], [height], "|", color=colour, markersize=10, markeredgewidth=2.5)
    dots = {"alpha": 0.65, "markersize": 4.5, "markeredgewidth": 0.4, "markeredgecolor": "white"}
    axis.plot(row.values, height + spread, "o", color=colour, zorder=3, **dots)
    if row.paper is not None:
        axis.plot([row.paper], [height], "D", color="white", markeredgecolor="black", markersize=5.5)


def maps(content: Content, kind: Maps, stem: Path) -> None:
    """One map for each line and task, at the moment at which the page opens."""
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    labels = [ln.label for ln in content.lines if any(m.label == ln.label for m in kind.maps)]
    tasks = [task for task in titles(content) if any(m.task == task for m in kind.maps)]
    look = looks(content)
    found = {(m.task, m.label): m for m in kind.maps}
    step = kind.start or max(m.steps[-1] for m in kind.maps)
    at = {key: int(np.argmin(np.abs(np.asarray(m.steps) - step))) for key, m in found.items()}
    last = {key: np.array([np.nan if v is None else v for v in m.values[at[key]]]) for key, m in found.items()}
    everything = np.concatenate([v[np.isfinite(v)] for v in last.values()] or [np.ones(1)])
    low, high = np.quantile(everything, [0.01, 0.99]) if everything.size else (0.1, 1.0)
    norm = LogNorm(low, max(high, low * 1.01)) if kind.scale == "log" else Normalize(low, high)
    size = (max(1.75 * len(labels) + 1.4, 6.0), 1.75 * len(tasks) + 1.6)
    alike = len({(m.x, m.y) for m in kind.maps}) == 1
    share = True if alike else "row"
    with canvas(stem, (len(tasks), len(labels)), size, sharex=share, sharey=share) as (figure, axes):
        moments = {m.steps[at[key]] for key, m in found.items()}
        when = f"at {max(moments):,} steps" if len(moments) == 1 or kind.start else "in the end"
        figure.suptitle(f"{kind.title}, {when}", x=0.01, ha="left", fontsize=12, fontweight="bold")
        image = None
        for i, task in enumerate(tasks):
            for j, label in enumerate(labels):
                axis, drawn = axes[i][j], found.get((task, label))
                axis.tick_params(labelsize=7)
                if i == 0:
                    axis.set_title(short(label, 18), color=look[label]["color"], fontsize=10, fontweight="bold")
                if drawn is None:
                    axis.text(0.5, 0.5, "–", transform=axis.transAxes, ha="center", va="center", color="#888888")
                    continue
                axis.set_facecolor(NOWHERE)
                values = last[task, label].reshape(drawn.x.parts, drawn.y.parts).T
                extent = (drawn.x.low, drawn.x.high, drawn.y.low, drawn.y.high)
                aspect = "equal" if drawn.spatial else "auto"
                draw_walls(axis, drawn, extent, aspect)
                image = axis.imshow(values, origin="lower", aspect=aspect, extent=extent, norm=norm, cmap="viridis")
                axis.set_xlabel(short(drawn.x.name) if i == len(tasks) - 1 or not alike else "", fontsize=8)
                axis.set_ylabel(f"{titles(content)[task]}\n{short(drawn.y.name)}" if j == 0 else "", fontsize=8)
        if any(m.closed for m in kind.maps):
            note = "dark grey: walls; pale: nobody went there"
            figure.supxlabel(note, x=0.01, ha="left", fontsize=8, color="#555")
        if image is not None:
            bar = figure.colorbar(image, ax=axes, shrink=0.8, aspect=25, pad=0.01)
            bar.set_label(kind.unit, fontsize=8)  # the title above says of what
            bar.ax.tick_params(labelsize=7)
            if kind.scale == "log":
                decades = np.log10(high / low)
                bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 3 else (1.0,)))
                bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                bar.ax.yaxis.set_minor_formatter(NullFormatter())


def draw_walls(axis: Any, drawn: Map, extent: tuple[float, float, float, float], aspect: str) -> None:
    """The solid cells of a map, and a wall around it where it has any."""
    from matplotlib.colors import ListedColormap

    if not drawn.closed:
        return
    solid = np.full(drawn.x.parts * drawn.y.parts, np.nan)
    solid[list(drawn.closed)] = 1.0
    solid = solid.reshape(drawn.x.parts, drawn.y.parts).T
    axis.imshow(solid, origin="lower", aspect=aspect, extent=extent, cmap=ListedColormap([WALL]))
    for spine in axis.spines.values():
        spine.set(visible=True, color=WALL, linewidth=3)
