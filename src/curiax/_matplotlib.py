"""Matplotlib as every machine has it, whatever a `matplotlibrc` says: it takes one from the working directory first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ._errors import OutputError


def matplotlib() -> Any:
    """The library, drawing into files."""
    try:
        import matplotlib
    except (ValueError, OSError) as error:
        raise OutputError(
            f"matplotlib cannot read its settings ({error}): remove or mend the file matplotlibrc, which it takes from "
            "the working directory first."
        ) from None
    matplotlib.use("Agg")
    return matplotlib


@contextmanager
def style(settings: Mapping[str, Any]) -> Iterator[Any]:
    """Its `pyplot` with its own defaults and these settings, as long as the block runs."""
    library = matplotlib()
    import matplotlib.pyplot as plt

    with library.rc_context():
        library.rcdefaults()
        library.rcParams.update(settings)
        yield plt
