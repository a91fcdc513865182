"""Draws what two agents have seen of Mountain Car, side by side; the examples' `--picture FILE` calls it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

EXTENT = (-1.2, 0.6, -0.07, 0.07)


def draw(path: Path, visits: dict[str, np.ndarray], *, flag: float) -> None:
    """Write one map for each agent: how often it was in each bin `[position, velocity]`; `flag` is a position."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(visits), sharey=True)
    norm = LogNorm(1, max(counts.max() for counts in visits.values()))
    image = None
    for ax, (name, counts) in zip(axes, visits.items(), strict=True):
        seen = np.ma.masked_equal(counts.T, 0)  # bins without visits stay empty
        image = ax.imshow(seen, origin="lower", extent=EXTENT, aspect="auto", cmap="viridis_r", norm=norm)
        ax.axvline(flag, color="#D55E00", linewidth=1.5)
        ax.annotate("flag", (flag - 0.02, 0.066), ha="right", va="top", color="#D55E00")
        ax.set_title(f"{name}: {(counts > 0).sum()} of {counts.size} bins", loc="left", fontsize=11)
        ax.set_xlabel("position")
        ax.set_facecolor("#f4f4f2")
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
    axes[0].set_ylabel("velocity")
    bar = figure.colorbar(image, ax=list(axes), label="steps in the bin")
    bar.outline.set_visible(False)
    bar.minorticks_off()
    figure.savefig(path, dpi=150)
