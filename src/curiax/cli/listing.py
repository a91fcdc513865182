"""`curiax list`; a `list.py` would hide the builtin from its package."""

from __future__ import annotations

import dataclasses
import json

from ._arguments import parse


def command_list(args: list[str]) -> int:
    """What there is."""
    from ..experiments.presets import PRESETS
    from ..experiments.registry import AGENTS, METHODS, TASKS
    from ..paper.suites import SUITES

    kind = dataclasses.make_dataclass("List", [("json", bool, False)], frozen=True)
    options = parse(kind, args, "list", "The methods, tasks, suites, presets and agents; --json for machines.")
    listed = {"methods": METHODS, "tasks": TASKS, "suites": SUITES, "presets": PRESETS, "agents": AGENTS}
    if options.json:
        print(json.dumps({title: list(entries) for title, entries in listed.items()}))
        return 0
    for title, entries in listed.items():
        print(title)
        for name, entry in entries.items():
            print(f"  {name:24s} {entry.summary}")
        if entries is TASKS:
            print(f"  {'atari:GAME':24s} any other game of ale-py, as atari:pitfall; needs curiax[atari]")
            print(f"  {'gymnasium:ID':24s} any Gymnasium environment, as gymnasium:Pendulum-v1")
    return 0
