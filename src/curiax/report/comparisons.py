"""Who is better than whom: the columns that set each line against its rival in the tables of statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..paper.suites import SUITES
from . import statistics
from .content import Cell
from .record import Heading
from .words import chance

#: What the columns mean, below a table that has them.
NOTE = (
    "p: permutation test of equal means, corrected by Holm's method over the lines with one rival. P: chance that a "
    "run of the line is better than one of {rival}, ties counting half, with the interval of a percentile bootstrap. "
)


def rivals_of(heading: Heading, labels: Sequence[str]) -> dict[str, str]:
    """Each line's rival: what its suite says, unless the reader wants another; else the reference."""
    suite = SUITES.get(heading.suite)
    own = suite is not None and suite.reference == heading.reference
    rivals = {variant.label: variant.against for variant in suite.variants} if own and suite else {}
    return {label: rivals.get(label) or heading.reference for label in labels}


def against_rivals(
    values: Mapping[str, np.ndarray],
    rivals: Mapping[str, str],
    *,
    lower: bool = False,
    digits: int = 1,
    better: str = "better",
) -> tuple[tuple[str, ...], dict[str, tuple[Cell, ...]], str]:
    """Columns and their note: the difference of the means, its p value, the chance to be better than the rival.

    `values` are each line's numbers in the end; `lower` ones are better. Lines without a rival have dashes; where
    none has one, there are no columns.
    """
    pairs = {label: rival for label, rival in rivals.items() if label != rival and {label, rival} <= values.keys()}
    pairs = {label: rival for label, rival in pairs.items() if min(len(values[label]), len(values[rival])) > 1}
    if not pairs:
        return (), {}, ""
    names, corrected = list(dict.fromkeys(pairs.values())), {}
    for name in names:
        group = [label for label, rival in pairs.items() if rival == name]
        p = statistics.holm([statistics.difference_test(values[label], values[name]) for label in group])
        corrected |= dict(zip(group, p, strict=True))
    one = names[0] if len(names) == 1 else ""
    header = (f"mean − {one}" if one else "against", *([] if one else ["difference"]), "p (Holm)")
    header += (f"P({better} than {one})" if one else f"P({better})",)
    cells = {}
    for label in values:
        if label not in pairs:
            cells[label] = (Cell("–"),) * len(header)
            continue
        rival = pairs[label]
        difference = f"{values[label].mean() - values[rival].mean():+.{digits}f}".replace("-", "−")
        cells[label] = (
            *([] if one else [Cell(rival)]),
            Cell(difference),
            Cell(chance(float(corrected[label]))),
            Cell(beats(values[label], values[rival], lower=lower)),
        )
    return header, cells, NOTE.format(rival=one or "its rival")


def beats(own: np.ndarray, other: np.ndarray, *, lower: bool) -> str:
    """`0.74 [0.61, 0.86]`: the chance that one of ours is better."""
    sign = -1.0 if lower else 1.0
    middle, low, high = statistics.improvement(sign * own, sign * other)
    return f"{middle:.2f}" + ("" if low is None or high is None else f" [{low:.2f}, {high:.2f}]")
