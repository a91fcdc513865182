"""Figures: one colour for each method everywhere, safe for colour-blind eyes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..experiments.run import RunResult
from .table import interval

#: Okabe and Ito's palette; ablations share their method's colour and differ in dashes.
COLOURS = {
    "lbs": "#D55E00",
    "icm": "#0072B2",
    "rnd": "#009E73",
    "disagreement": "#CC79A7",
    "vime": "#E69F00",
    "ride": "#56B4E9",
    "ngu": "#8C6BB1",
    "random": "#767676",
    "none": "#222222",
}
SPARE = ("#5D3A9B", "#1A85FF", "#B8860B", "#4B8B3B", "#A52A2A")


def style(method: str, others: Sequence[str] = ()) -> dict[str, Any]:
    """Colour and dashes of a method."""
    family = method.split("-")[0]
    if family in COLOURS:
        return {"color": COLOURS[family], "linestyle": "-" if method == family else "--"}
    strangers = [name for name in others if name.split("-")[0] not in COLOURS]
    return {"color": SPARE[strangers.index(method) % len(SPARE) if method in strangers else 0], "linestyle": "-"}


def coverage_curves(results: Sequence[RunResult], metric: str, title: str, files: Sequence[Path]) -> None:
    """Mean coverage over training with a 95 % band over seeds, a panel for each task."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    tasks = list(dict.fromkeys(result.plan.task_entry.name for result in results))
    methods = list(dict.fromkeys(result.plan.method_entry.name for result in results))
    settings: Any = {
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "curiax",
        "svg.fonttype": "none",
    }
    with plt.rc_context(settings):
        size = (4.6 * len(tasks) + 0.9, 3.9)
        figure, axes = plt.subplots(1, len(tasks), figsize=size, sharey=True, squeeze=False, layout="constrained")
        for axis, task in zip(axes[0], tasks, strict=True):
            ends = []
            for result in results:
                if result.plan.task_entry.name == task:
                    name = result.plan.method_entry.name
                    ends.append((draw_curve(axis, result, metric, style(name, methods)), name))
            label_ends(axis, ends, methods)
            axis.set_title(task, loc="left", fontsize=11, fontweight="bold")
            axis.set_xlabel("environment steps (thousands)")
            axis.set_ylim(0, 100)
            axis.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes[0][0].set_ylabel(f"coverage, {metric.removeprefix('coverage/')} (%)")
        seeds = {len(result.plan.seeds) for result in results}
        note = f"mean of {'/'.join(map(str, sorted(seeds)))} seeds, band: 95 % bootstrap interval"
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        figure.supxlabel(note, x=0.01, ha="left", fontsize=8, color="#555555")
        for file in files:
            metadata = {"Date": None} if file.suffix == ".svg" else {"Software": None}
            figure.savefig(file, dpi=160, metadata=metadata)
        plt.close(figure)


def draw_curve(axis: Any, result: RunResult, metric: str, look: dict[str, Any]) -> float:
    """One method's curve and band; returns where it ends."""
    table = result.metrics.sort("seed", "iteration")
    values = table[metric].to_numpy().reshape(len(result.plan.seeds), -1)
    steps = table["step"].to_numpy().reshape(values.shape)[0] / 1000
    # Bands at some thirty points: intervals cost time and neighbouring ones hardly differ.
    at = np.unique(np.linspace(0, values.shape[1] - 1, 33).astype(int))
    bands = [interval(values[:, k].tolist()) for k in at]
    axis.plot(steps, values.mean(0), linewidth=1.8, **look)
    if all(band is not None for band in bands):
        low, high = np.array([band for band in bands if band is not None]).T
        axis.fill_between(steps[at], low, high, color=look["color"], alpha=0.18, linewidth=0)
    return float(values[:, -1].mean())


def label_ends(axis: Any, ends: Sequence[tuple[float, str]], methods: Sequence[str]) -> None:
    """Names at the curves' ends instead of a legend, moved apart where they would overlap."""
    right, gap, floor = axis.get_xlim()[1], 5.5, -np.inf
    for height, name in sorted(ends):
        floor = max(height, floor + gap)
        axis.text(
            right, floor, f" {name}", va="center", color=style(name, methods)["color"], fontweight="bold", clip_on=False
        )
