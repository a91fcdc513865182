"""Figures for papers and documents, as SVG and PNG: the same data and looks as the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .content import Content, Curves, Map, Maps, Series

#: Above so many lines curves can no longer be told apart, and only the final values are drawn.
MOST_CURVES = 9
#: Walls: a calm grey that is on no colour scale; paler is where nobody went.
WALL, NOWHERE = "#6b7480", "#eeeeee"
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
        first = "coverage" if content.curves[0].key.startswith("coverage/") else "bonus"
        drawings.append((first, lambda stem: curves(content, content.curves[0], stem)))
    if content.noise and few:
        drawings.append(("noise", lambda stem: curves(content, content.noise[0], stem)))
    if any(row.metric.startswith("coverage/") for row in rows):
        drawings.append(("final", lambda stem: final(content, rows, stem)))
    if content.occupancy and few:
        drawings.append(("occupancy", lambda stem: maps(content, content.occupancy[0], stem)))
    if content.surprise and few:
        drawings.append(("surprise", lambda stem: maps(content, content.surprise[0], stem)))
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in drawings:
        draw(folder / name)
    return [folder / f"{name}.{kind}" for name, _ in drawings for kind in ("png", "svg")]


@contextmanager
def canvas(stem: Path, shape: tuple[int, int], size: tuple[float, float], **options: Any) -> Iterator[tuple[Any, Any]]:
    """A figure with axes `[rows, columns]`, saved twice when done."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
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
    """Each task's title."""
    return {panel.name: panel.title for panel in content.panels}


def curves(content: Content, quantity: Curves, stem: Path) -> None:
    """Mean over training with a 95 % band over seeds, a panel for each task."""
    tasks = list(dict.fromkeys(series.task for series in quantity.series))
    look = looks(content)
    with canvas(stem, (1, len(tasks)), (4.4 * len(tasks) + 1.2, 3.9), sharey=True) as (figure, axes):
        for axis, task in zip(axes[0], tasks, strict=True):
            shown = [series for series in quantity.series if series.task == task]
            for series in shown:
                draw_series(axis, series, look[series.label])
            axis.set_title(titles(content)[task], loc="left", fontsize=11, fontweight="bold")
            axis.set_xlabel("environment steps (thousands)")
            axis.set_ylim(0, quantity.top if quantity.top is None else roomy(quantity.top, quantity.series))
            axis.set_xlim(0, max(max(series.steps) for series in shown) / 1000)
            axis.grid(axis="y", color="#dddddd", linewidth=0.6)
            label_ends(axis, shown, look)
        axes[0][0].set_ylabel(f"{quantity.title} ({quantity.unit})")
        figure.suptitle(content.title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        figure.supxlabel("mean over seeds, band: 95 % bootstrap interval", x=0.01, ha="left", fontsize=8, color="#555")


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
    low, high = axis.get_ylim()
    left, right = axis.get_xlim()
    gap = 0.055 * (high - low)
    ends = sorted((series.mean[-1], series.label) for series in shown)
    for height, (end, label) in zip(apart([end for end, _ in ends], gap, high), ends, strict=True):
        colour, beside = look[label]["color"], right
        if abs(height - end) > gap / 2:
            beside = right + 0.05 * (right - left)
            axis.plot([right, beside], [end, height], color=colour, linewidth=0.8, clip_on=False)
        axis.text(beside, height, f" {short(label)}", va="center", color=colour, fontweight="bold", clip_on=False)
    axis.set(xlim=(left, right), ylim=(low, high))


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
    """Final coverage of every line with its interval, beside the paper's mean, a panel for each task."""
    metric = content.curves[0].key
    own = [row for row in rows if row.metric == metric]
    labels, tasks = [line.label for line in content.lines], list(titles(content))
    look = looks(content)
    size = (3.6 * len(tasks) + 2.0, 0.3 * len(labels) + 1.5)
    with canvas(stem, (1, len(tasks)), size, sharey=True, sharex=True) as (figure, axes):
        for axis, task in zip(axes[0], tasks, strict=True):
            for row in own:
                if row.task == task:
                    draw_final(axis, row, labels.index(row.method), look[row.method]["color"])
            axis.set_title(titles(content)[task], loc="left", fontsize=11, fontweight="bold")
            axis.set_xlabel("final coverage (%)")
            highest = max(value for row in own for value in row.values)
            axis.set_xlim(0, max(100.0, highest) + (2.0 if highest > 98 else 0.0))
            axis.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes[0][0].set_yticks(range(len(labels)), [short(label, 40) for label in labels])
        axes[0][0].invert_yaxis()
        figure.suptitle(content.title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        note = "dots: runs; bar: mean and 95 % bootstrap interval"
        note += "; diamond: the paper's mean" if any(row.paper is not None for row in own) else ""
        figure.supxlabel(note, x=0.01, ha="left", fontsize=8, color="#555")


def draw_final(axis: Any, row: Any, height: int, colour: str) -> None:
    """One line of the chart."""
    # Spread by a fixed pattern, not by chance: the same runs give the same picture.
    spread = 0.22 * np.sin(2.4 * np.arange(len(row.values)))
    axis.plot(row.values, height + spread, ".", color=colour, alpha=0.3, markersize=5, markeredgewidth=0)
    if row.ci_low is not None:
        axis.plot([row.ci_low, row.ci_high], [height, height], color=colour, linewidth=3, solid_capstyle="butt")
    axis.plot([row.mean], [height], "|", color=colour, markersize=13, markeredgewidth=2.5)
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
                axis.set_xlabel(drawn.x.name if i == len(tasks) - 1 or not alike else "", fontsize=8)
                axis.set_ylabel(f"{titles(content)[task]}\n{drawn.y.name}" if j == 0 else "", fontsize=8)
        if any(m.closed for m in kind.maps):
            note = "dark grey: walls; pale: nobody went there"
            figure.supxlabel(note, x=0.01, ha="left", fontsize=8, color="#555")
        if image is not None:
            bar = figure.colorbar(image, ax=axes, shrink=0.8, aspect=25, pad=0.01)
            bar.set_label(f"{kind.title.lower()} ({kind.unit})", fontsize=8)
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
