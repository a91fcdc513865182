"""One colour for each method everywhere, and a pattern of strokes for eyes that see few colours."""

from __future__ import annotations

from collections.abc import Sequence

#: Okabe and Ito's palette, a few colours beside it, and strokes that tell apart what is alike to colour-blind eyes.
LOOKS = {
    "lbs": ("#D55E00", ""),
    "icm": ("#0072B2", ""),
    "rnd": ("#009E73", "2 3"),
    "disagreement": ("#CC79A7", "9 3 2 3"),
    "vime": ("#E69F00", "7 3"),
    "ride": ("#56B4E9", "10 3"),
    "ngu": ("#8C6BB1", "4 2"),
    "re3": ("#2C6E2F", "6 2 1 2"),
    "e3b": ("#5D3A9B", "3 3"),
    "noveld": ("#2A9DC9", "12 3"),
    "simhash": ("#7A1F1F", "8 2 2 2 2 2"),
    "surprisal": ("#B8860B", "5 2 2 2"),
    "surprisal-idf": ("#0B6FA4", "9 3"),
    "surprisal-vae": ("#1B9E77", "3 2"),
    "surprisal-pixels": ("#7B6FB0", "6 3"),
    "random": ("#767676", "1 2"),
    "none": ("#444444", ""),
}
#: For variants and for methods of the user's own, in the order of their appearance.
SPARE = ("#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#B8860B", "#A52A2A", "#5D3A9B", "#4B8B3B")
STROKES = ("", "7 3", "2 3", "9 3 2 3")


def look(label: str, labels: Sequence[str]) -> tuple[str, str]:
    """Colour of a label among others, and the pattern of its strokes.

    `lbs (curiax)` and `lbs (paper-code)` are both LBS: they share its colour and differ in their strokes. So do
    ablations and their method.
    """
    if label in LOOKS:
        return LOOKS[label]
    method = family(label)
    if method in LOOKS:
        kin = [name for name in labels if family(name) == method]
        place = kin.index(label) if label in kin else 1
        taken = LOOKS[method][1] if method in labels else None
        free = [stroke for stroke in STROKES if stroke != taken]
        return LOOKS[method][0], free[(place - (method in labels)) % len(free)]
    others = [name for name in labels if family(name) not in LOOKS]
    used = {LOOKS[name][0] for name in labels if name in LOOKS}
    free_colours = [colour for colour in SPARE if colour not in used] or list(SPARE)
    place = others.index(label) if label in others else 0
    return free_colours[place % len(free_colours)], STROKES[place // len(free_colours) % len(STROKES)]


def family(label: str) -> str:
    """The method that a label is a variant of: `lbs (curiax)` → `lbs`, `ride-no-count` → `ride`."""
    base = label.split(" (")[0]
    return base if base in LOOKS else base.split("-")[0]
