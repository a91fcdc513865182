"""`curiax cite`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from .._errors import UsageError
from ._arguments import parse


def command_cite(args: list[str]) -> int:
    """BibTeX of methods."""
    import tyro

    from ..experiments.registry import find_method

    field = (
        "methods",
        Annotated[
            tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(help="names of `curiax list`", metavar="METHOD")
        ],
    )
    kind = dataclasses.make_dataclass("Cite", [field], frozen=True)
    options = parse(kind, args, "cite", "BibTeX of the methods you used.")
    if not options.methods:
        raise UsageError("name the methods to cite: curiax cite lbs icm.")
    found = [(name, find_method(name).bibtex) for name in options.methods]
    for name, text in found:
        if not text:
            print(f"% {name}: nothing to cite")
    print("\n\n".join(dict.fromkeys(text for _, text in found if text)))
    return 0
