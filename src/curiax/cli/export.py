"""`curiax export`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from .._errors import UsageError
from .._text import clean_lines
from ._arguments import parse, seeds_from


def command_export(args: list[str]) -> int:
    """Trained agents in a folder of their own."""
    import tyro

    from ..experiments.spec import seed_list
    from ..trained import export, load

    def arg(text: str, metavar: str | None = None) -> Any:
        return tyro.conf.arg(help=text, metavar=metavar)

    fields = [
        ("run", Annotated[tyro.conf.Positional[Path], arg("the folder of a finished run", "RUN")]),
        ("out", Annotated[Path, arg("folder for the two files; new or empty")]),
        ("seed", Annotated[int | None, arg("this seed alone")], None),
        ("seeds", Annotated[str | None, arg("these seeds (0,1,5 or 2000-2031); None: all")], None),
        (
            "trust",
            Annotated[tyro.conf.FlagCreatePairsOff[bool], arg("import your own task: older runs need it")],
            False,
        ),
    ]
    kind = dataclasses.make_dataclass("Export", fields, frozen=True)
    options = parse(kind, args, "export", "Trained agents as two files that load and act without training code.")
    if options.seed is not None and options.seeds is not None:
        raise UsageError("--seed and --seeds: name one of them.")
    seeds = None if options.seeds is None else seed_list(seeds_from(options.seeds))
    seeds = seeds if options.seed is None else [options.seed]
    made = load(export(options.run, options.out, seeds=seeds, trust=options.trust))
    print(clean_lines(f"{made.method} on {made.task}, seeds {', '.join(map(str, made.seeds))}\n  {options.out}"))
    return 0
