"""Sample transitions as pictures, and what every line pays for them at the start and in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .content import Gallery, Payment, Sample
from .record import Record

#: The map of what a model pays for the samples.
PAID = "samples/bonus"
#: Shades for each doubling, and the strongest one.
SHADES, STRONGEST = 2, 4


def galleries(records: Sequence[Record], title: Callable[[str], str]) -> tuple[Gallery, ...]:
    """One for each task that compares kinds of transitions and knows what is paid for samples of them."""
    return tuple(
        gallery([record for record in showing if record.task == task], title(task))
        for showing in ([record for record in records if record.compared and PAID in record.maps],)
        for task in dict.fromkeys(record.task for record in showing)
    )


def gallery(records: Sequence[Record], title: str) -> Gallery:
    """The samples of a task: the first half of them is of the first kind."""
    count = records[0].maps[PAID].shape[1]
    first = count // 2
    payments = []
    for record in records:
        for moment, values in (("start", record.maps[PAID][0]), ("end", record.maps[PAID][-1])):
            payments.append(payment(record.label, moment, np.asarray(values, float), first))
    kinds = records[0].compared
    assert kinds is not None
    note = (
        f"What the model pays for these transitions before anything is learnt and in the end: raw bonus, median over "
        f"seeds; every method has a unit of its own. Shades: more or less than the same line pays at that moment for "
        f"{kinds[1]}, on average. Ratio: mean of {kinds[0]} ÷ mean of {kinds[1]}, of these samples only."
    )
    return Gallery(records[0].task, title, kinds, first, pictures(records, count), tuple(payments), note)


def payment(label: str, moment: str, values: np.ndarray, first: int) -> Payment:
    """A line at one moment, held against what it pays for the second kind."""
    usual = float(values[first:].mean())
    shares = values / usual if usual > 0 else np.ones_like(values)
    doublings = np.log2(shares, out=np.full(shares.shape, -np.inf), where=shares > 0)
    shades = np.clip(np.round(SHADES * doublings), -STRONGEST, STRONGEST).astype(int)
    ratio = f"{values[:first].mean() / usual:.2f}" if usual > 0 else "–"
    return Payment(label, moment, tuple(map(brief, values)), tuple(shades.tolist()), ratio)


def brief(value: float) -> str:
    """Two or three digits, as a narrow column has room for: `0.042`, `3.1`, `128`, `4.2e−5`."""
    size = abs(value)
    if size and not 1e-3 <= size < 1e4:
        return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e").replace("-", "−")
    text = f"{value:.0f}" if size >= 100 else f"{value:.2g}" if size < 10 else f"{value:.1f}"
    return text.replace("-", "−")


def pictures(records: Sequence[Record], count: int) -> tuple[Sample, ...]:
    """The samples as pictures, where a run has kept as many of them."""
    for record in records:
        kept = record.facts.get("samples")
        if kept is not None and len(kept["before"]) == count:
            return tuple(Sample(address(b), address(a)) for b, a in zip(kept["before"], kept["after"], strict=True))
    return (Sample("", ""),) * count


def address(picture: str) -> str:
    """The address of a PNG that is given in base64."""
    return f"data:image/png;base64,{picture}"
