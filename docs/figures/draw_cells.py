"""Draw cells.svg: which cells of the released code a car can reach, and the five that an honest grid does not have.

python docs/figures/draw_cells.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt

LOW, HIGH, PARTS = np.array([-1.2, -0.07]), np.array([0.6, 0.07]), 10


def reachable() -> np.ndarray:
    """`[11, 11]`: met within 100 steps, breadth first, one representative for each square of a fine grid."""
    forces, fine = np.linspace(-1, 1, 5), 600
    seen = np.zeros((PARTS + 1, PARTS + 1), bool)
    met = np.zeros((fine + 1) ** 2, bool)
    x, v = np.linspace(-0.6, -0.4, 201), np.zeros(201)
    for _ in range(100):
        x, v, force = np.repeat(x, len(forces)), np.repeat(v, len(forces)), np.tile(forces, len(x))
        v = np.clip(v + 0.0015 * force - 0.0025 * np.cos(3 * x), -0.07, 0.07)
        x = np.clip(x + v, -1.2, 0.6)
        v = np.where((x == -1.2) & (v < 0), 0.0, v)
        points = np.stack([x, v], axis=-1)
        index = np.ceil((points - LOW) / ((HIGH - LOW) / PARTS)).astype(int)
        seen[index[:, 0], index[:, 1]] = True
        square = np.round((points - LOW) / (HIGH - LOW) * fine).astype(int) @ [fine + 1, 1]
        _, first = np.unique(square, return_index=True)
        first = first[~met[square[first]]]
        met[square[first]] = True
        x, v = x[first], v[first]
        if not len(x):
            break
    return seen


def main() -> None:
    """Index 0 is drawn as a thin strip: it holds only the border itself."""
    seen = reachable()
    inner, extra = int(seen[1:, 1:].sum()), int(seen.sum() - seen[1:, 1:].sum())
    edges = np.array([-0.35, *range(PARTS + 1)])
    with plt.rc_context({"font.size": 10, "svg.hashsalt": "curiax", "svg.fonttype": "path"}):
        figure, axis = plt.subplots(figsize=(8.0, 4.4), layout="constrained")
        looks = {
            "bin": ("#9ecae1", f"{inner} bins that can be reached"),
            "extra": ("#d55e00", f"{extra} extra cells, exactly on a lower border"),
            "never": ("#eeeeee", "out of reach"),
        }
        used = set()
        for i in range(PARTS + 1):
            for j in range(PARTS + 1):
                kind = "never" if not seen[i, j] else "bin" if i and j else "extra"
                colour, text = looks[kind]
                label = text if kind not in used else None
                used.add(kind)
                corner = (edges[i], edges[j])
                size = (edges[i + 1] - edges[i], edges[j + 1] - edges[j])
                axis.add_patch(plt.Rectangle(corner, *size, facecolor=colour, edgecolor="white", label=label))
        ticks = np.arange(0, PARTS + 1, 2)
        axis.set(xlim=(-0.35, PARTS), ylim=(-0.35, PARTS), xlabel="position", ylabel="velocity")
        axis.set_xticks(ticks, [f"{-1.2 + 0.18 * k:.2f}" for k in ticks])
        axis.set_yticks(ticks, [f"{-0.07 + 0.014 * k:.3f}" for k in ticks])
        axis.spines[:].set_visible(False)
        axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, handlelength=1)
        figure.savefig(Path(__file__).with_name("cells.svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
