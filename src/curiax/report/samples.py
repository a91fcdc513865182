"""Sample transitions as pictures, and what every line pays for them at the start and in the end."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from .._errors import CuriaxError
from ..experiments.registry import find_task
from .content import Gallery, Payment, Sample
from .record import Record

#: The map of what a model pays for the samples.
PAID = "samples/bonus"
#: How every PNG begins.
SIGNATURE = b"\x89PNG\r\n\x1a\n"
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
    return Gallery(records[0].task, title, kinds, first, pictures(records[0], count), tuple(payments), note)


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


def pictures(record: Record, count: int) -> tuple[Sample, ...]:
    """The samples as pictures, where the task is at hand and shows any."""
    found = observed(record)
    if found is None or any(len(images) != count for images in found):
        return (Sample("", ""),) * count
    return tuple(Sample(png(before), png(after)) for before, after in zip(*found, strict=True))


def observed(record: Record) -> tuple[np.ndarray, np.ndarray] | None:
    """What is seen before and after each sample `[K, height, width]`, in [0, 1]; None if that is no picture."""
    import jax

    from ..envs import AbstractTask

    settings = record.facts["identity"]["settings"]
    own = {name.removeprefix("task."): value for name, value in settings.items() if name.startswith("task.")}
    try:
        task = find_task(record.task).cls(**own)
    except (CuriaxError, TypeError):
        return None
    if not isinstance(task, AbstractTask) or (samples := task.samples()) is None:
        return None
    images = [np.asarray(jax.vmap(task.observe)(states)) for states in (samples.states, samples.next_states)]
    if any(shown.ndim != 4 or shown.shape[-1] != 1 for shown in images):
        return None
    return images[0][..., 0], images[1][..., 0]


def png(image: np.ndarray) -> str:
    """A grey picture as the address of a PNG, not compressed: the same bytes whatever zlib is installed."""
    grey = np.clip(np.round(255 * np.asarray(image, float)), 0, 255).astype(np.uint8)
    lines = b"".join(b"\0" + row.tobytes() for row in grey)
    header = struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 8, 0, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines, 0)), (b"IEND", b"")]
    chunks = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )
    return f"data:image/png;base64,{base64.b64encode(SIGNATURE + b''.join(chunks)).decode()}"
