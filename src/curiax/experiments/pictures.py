"""Pictures of a task's sample transitions, kept with a run: whoever reports on it then needs no task and runs no code.

They are small grey PNGs in base64, made once and shown as they are, so that a report comes out the same everywhere.
"""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from ..envs import AbstractAnyTask

#: Rows or columns of a picture, how many there may be, and the letters of one: larger ones are not kept.
MOST_SIDE, MOST_PICTURES, MOST_LETTERS = 256, 256, 1 << 17


def grey(text: str) -> str:
    """A picture's text, if it is a small grey PNG and nothing else."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(base64.b64decode(text, validate=True)), formats=["PNG"]) as image:
            if image.mode != "L" or max(image.size) > MOST_SIDE:
                raise ValueError(f"it is {image.mode!r} of {image.size[0]} x {image.size[1]}")
            image.load()
    # Pillow calls a broken PNG a syntax error.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"not a small grey PNG: {error}") from None
    return text


Picture = Annotated[str, Field(max_length=MOST_LETTERS), AfterValidator(grey)]
Row = Annotated[list[Picture], Field(max_length=MOST_PICTURES)]


class Pictures(BaseModel):
    """What was seen before and after each sample."""

    model_config = ConfigDict(strict=True, extra="forbid")

    before: Row
    after: Row

    @model_validator(mode="after")
    def _paired(self) -> Pictures:
        if len(self.before) != len(self.after):
            raise ValueError("not as many before as after")
        return self


def encoded(image: np.ndarray) -> str:
    """A grey picture `[height, width]` in [0, 1] as the base64 of a PNG."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.clip(np.round(255 * image), 0, 255).astype(np.uint8)).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def taken(task: AbstractAnyTask) -> dict[str, Any]:
    """The pictures of a task that compares two kinds of transitions, under the name that a manifest has for them.

    Empty where the task has no samples of them, or where what is seen of one is no small grey picture.
    """
    import jax

    from ..envs import AbstractTask

    samples = task.samples() if task.compared else None
    if samples is None:
        return {}
    assert isinstance(task, AbstractTask)
    rows = [np.asarray(jax.vmap(task.observe)(states), float) for states in (samples.states, samples.next_states)]
    if any(row.ndim != 4 or row.shape[-1] != 1 or len(row) > MOST_PICTURES for row in rows):
        return {}
    if max(rows[0].shape[1:]) > MOST_SIDE:
        return {}
    before, after = ([encoded(image[..., 0]) for image in row] for row in rows)
    return {"samples": {"before": before, "after": after}}
