"""`curiax list`; a `list.py` would hide the builtin from its package."""

from __future__ import annotations

import dataclasses
import json

from ._arguments import parse


def command_list(args: list[str]) -> int:
    """What there is."""
    from ..experiments.presets import PRESETS
    from ..experiments.registry import METHODS, TASKS
    from ..paper.suites import SUITES

    kind = dataclasses.make_dataclass("List", [("json", bool, False)], frozen=True)
    options = parse(kind, args, "list", "The methods, tasks, suites and presets; --json for machines.")
    if options.json:
        print(
            json.dumps(
                {"methods": list(METHODS), "tasks": list(TASKS), "suites": list(SUITES), "presets": list(PRESETS)}
            )
        )
        return 0
    for title, entries in (("methods", METHODS), ("tasks", TASKS), ("suites", SUITES), ("presets", PRESETS)):
        print(title)
        for name, entry in entries.items():
            print(f"  {name:24s} {entry.summary}")
        if entries is TASKS:
            print(f"  {'atari:GAME':24s} any other game of ale-py, as atari:pitfall; needs curiax[atari]")
            print(f"  {'gymnasium:ID':24s} any Gymnasium environment, as gymnasium:Pendulum-v1")
    return 0
