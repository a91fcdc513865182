"""What commands are given: arguments as a dataclass, seeds, and how runs are carried out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .._errors import UsageError
from .._files import usable

if TYPE_CHECKING:
    from ..experiments.options import RunOptions


class Answered(Exception):
    """The arguments were answered with help or with what is wrong in them; there is nothing left to do."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def parse(kind: Any, args: Sequence[str], command: str, description: str) -> Any:
    """Arguments as a dataclass; help and mistakes are answered here, with code 0 and 2."""
    import tyro

    try:
        options = tyro.cli(kind, args=list(args), prog=f"curiax {command}", description=description)
    except SystemExit as stop:
        raise Answered(stop.code if isinstance(stop.code, int) else 2) from None
    for value in vars(options).values():
        for path in value if isinstance(value, tuple) else (value,):
            if isinstance(path, Path):
                usable(path)
    return options


def seeds_from(text: str) -> int | tuple[int, ...]:
    """`8` is seeds 0 to 7; `0,1,5` and `2000-2031` are those seeds; `5,` is seed 5 alone."""
    from ..experiments.spec import MOST_SEEDS

    try:
        if text.strip().isdigit():
            return int(text)
        chosen: list[int] = []
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            first, dash, last = part.partition("-")
            if dash and int(last) - int(first) >= MOST_SEEDS:
                raise UsageError(f"--seeds {text!r}: at most {MOST_SEEDS} seeds can be trained at once.")
            chosen += range(int(first), int(last) + 1) if dash else [int(first)]
        return tuple(chosen)
    except ValueError:
        raise UsageError(
            f"--seeds {text!r}: give a number of seeds (8), a list (0,1,5) or a range (2000-2031)."
        ) from None


def option_fields() -> list[tuple[Any, ...]]:
    """How a run is carried out, as arguments of a command."""
    import tyro

    from .._settings import descriptions, signature
    from ..experiments.options import RunOptions

    help_texts = descriptions(RunOptions)
    return [
        (name, Annotated[kind, tyro.conf.arg(help=help_texts[name])], default)
        for name, (kind, default) in signature(RunOptions).items()
    ]


def run_options_of(options: Any) -> RunOptions:
    """How the run is carried out, of all that was typed."""
    from ..experiments.options import RunOptions

    return RunOptions(**{field.name: getattr(options, field.name) for field in dataclasses.fields(RunOptions)})
