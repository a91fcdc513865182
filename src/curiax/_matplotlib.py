"""Matplotlib as every machine has it, whatever a `matplotlibrc` says: it takes one from the working directory first."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ._errors import OutputError
from ._files import read_bytes

SETTINGS, MOST = Path("matplotlibrc"), 1 << 20


def matplotlib() -> Any:
    """The library, drawing into files."""
    log = logging.getLogger("matplotlib")
    level = log.level
    try:
        if "matplotlib" not in sys.modules and os.path.lexists(SETTINGS):
            read_bytes(SETTINGS, MOST, "").decode()  # a pipe, say, would hold the import for ever
        log.setLevel(logging.CRITICAL)  # settings that are not used need no complaints
        import matplotlib

        matplotlib.use("Agg")
    except (ValueError, OSError, OutputError) as error:
        raise OutputError(
            f"matplotlib cannot read its settings ({error}): remove or mend the file {SETTINGS}, which it takes from "
            "the working directory first."
        ) from None
    finally:
        log.setLevel(level)
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
