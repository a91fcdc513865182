"""One colour for each method everywhere, safe for colour-blind eyes."""

from __future__ import annotations

from collections.abc import Sequence

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
    "none": "#444444",
}
#: For variants and for methods of the user's own, in the order of their appearance.
SPARE = ("#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#B8860B", "#A52A2A", "#5D3A9B", "#4B8B3B")


def look(label: str, labels: Sequence[str]) -> tuple[str, bool]:
    """Colour of a label among others, and whether its line is dashed."""
    if label in COLOURS:
        return COLOURS[label], False
    family = label.split("-no-")[0].split("-mean")[0].split("-nll")[0]
    if family in COLOURS:
        return COLOURS[family], True
    others = [name for name in labels if name not in COLOURS]
    taken = {COLOURS[name] for name in labels if name in COLOURS}
    free = [colour for colour in SPARE if colour not in taken] or list(SPARE)
    place = others.index(label) if label in others else 0
    return free[place % len(free)], place >= len(free)
