"""`curiax run`: the settings of its task, method and preset are its arguments."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .._errors import UsageError
from ._arguments import option_fields, parse, run_options_of, seeds_from
from ._result import run_summary, run_text
from ._tables import print_text

if TYPE_CHECKING:
    from ..experiments.spec import Plan


def command_run(args: list[str]) -> int:
    """Train one method on one task."""
    from ..experiments.progress import for_terminal
    from ..experiments.reproduce import place_of
    from ..experiments.run import run
    from ..experiments.spec import RETIRED, Experiment, resolve

    asks_help = any(arg in ("-h", "--help") for arg in args)
    if not args or args[0].startswith("-"):
        if not asks_help:
            raise UsageError("name the task first: curiax run TASK --method M (curiax list shows both).")
        args = ["mountain-car", *args]
    method = option(args, "method") or ("lbs" if asks_help else None)
    if method is None:
        raise UsageError(f"name a method: curiax run {args[0]} --method M (curiax list shows them).")
    base = Experiment(args[0], method, preset=option(args, "preset") or "paper-code", agent=option(args, "agent") or "")
    for name, instead in RETIRED.items():
        if any(arg.partition("=")[0].replace("_", "-") == f"--{name.replace('_', '-')}" for arg in args):
            raise UsageError(f"--{name}: {instead}.")
    # What --steps and --loop.rollout say is not known yet, and no budget must be too small for it.
    plan = resolve(dataclasses.replace(base, steps=1 << 62))
    description = (
        f"Train {method} on {args[0]}. Defaults below are those of this task, method and preset, so ask for help "
        "again with another --method or --preset to see theirs."
    )
    options = parse(run_class(plan), ["--help"] if asks_help else args, "run", description)
    # Only what was typed counts as said: the preset goes on deciding the rest (β follows --remote.mode).
    flags = {arg.partition("=")[0].replace("_", "-") for arg in args}
    typed = flags | {flag.replace(".no-", ".", 1) for flag in flags}
    changed = {}
    for name in plan.settings:
        group, _, key = name.partition(".")
        if f"--{name.replace('_', '-')}" in typed:
            changed[name] = getattr(getattr(options, f"{group}_settings"), key)
    experiment = dataclasses.replace(base, seeds=seeds_from(options.seeds), steps=options.steps, settings=changed)
    plan = resolve(experiment)
    out = options.out or place_of(plan, Path("runs"))
    progress = for_terminal(quiet=options.quiet or options.json)
    result = run(experiment, out, progress=progress, options=run_options_of(options))
    if options.json:
        print(json.dumps(run_summary(result), indent=2))
    else:
        print_text(run_text(result, options.steps))
    return 0


def option(args: Sequence[str], name: str) -> str | None:
    """The value of `--name VALUE` or `--name=VALUE`, before the full parser is built; the last one counts."""
    found = None
    for k, arg in enumerate(args):
        if arg == f"--{name}":
            found = args[k + 1] if k + 1 < len(args) else None
        if arg.startswith(f"--{name}="):
            found = arg.partition("=")[2]
    return found


def run_class(plan: Plan) -> type:
    """The arguments of `run` for this task, method and preset: what the preset says is the default."""
    import tyro

    from ..experiments.presets import PRESETS
    from ..experiments.spec import GROUPS

    def values(group: str) -> dict[str, Any]:
        return {n.partition(".")[2]: v for n, v in plan.settings.items() if n.partition(".")[0] == group}

    def arg(text: str, name: str | None = None, metavar: str | None = None) -> Any:
        return tyro.conf.arg(help=text, name=name, metavar=metavar)

    presets = "; ".join(f"{name}: {preset.summary}" for name, preset in PRESETS.items())
    builders = {**GROUPS, "method": plan.method_entry.cls, "task": plan.task_entry.cls, "agent": plan.agent_entry.cls}
    taken = {name.partition(".")[0] for name in plan.settings}
    builders = {group: build for group, build in builders.items() if build is not None and group in taken}
    fields: list[tuple[Any, ...]] = [
        ("task", Annotated[tyro.conf.Positional[str], arg("a task of `curiax list`, or module:Class", metavar="TASK")]),
        ("method", Annotated[str, arg("a method of `curiax list`, or module:Class")]),
        ("agent", Annotated[str, arg("ppo, uniform, or module:Class; empty: as the method has it")], ""),
        ("seeds", Annotated[str, arg("how many (8), or which (0,1,5 or 2000-2031)")], "8"),
        ("steps", Annotated[int | None, arg("environment steps of each seed; None: the task's full budget")], None),
        ("preset", Annotated[str, arg(presets)], plan.experiment.preset),
        ("out", Annotated[Path | None, arg("folder for the results; None: a folder below runs/")], None),
        ("json", Annotated[bool, arg("print the result as JSON")], False),
        ("quiet", Annotated[bool, arg("show no progress")], False),
    ]
    fields += option_fields()
    for group, build in builders.items():
        kind = settings_class(f"{group}_settings", build, values(group))
        if dataclasses.fields(kind):
            fields.append((f"{group}_settings", Annotated[kind, arg("", group)], kind()))
    return dataclasses.make_dataclass("Run", fields, frozen=True)


def settings_class(title: str, build: Callable[..., Any], values: Mapping[str, Any]) -> type:
    """A dataclass whose fields are a constructor's settings, with their types, help and values in force."""
    import tyro

    from .._settings import descriptions, signature

    help_texts = descriptions(build)
    fields = []
    for name, (kind, default) in signature(build).items():
        value = values.get(name, default)
        if callable(default):
            continue  # functions can be set from Python only
        if isinstance(default, tuple):
            value = tuple(value)  # settings are kept as JSON has them, and JSON has no tuples
        kind = type(value) if kind is Any else kind
        fresh = dataclasses.field(default_factory=lambda value=value: copy.copy(value))
        fields.append((name, Annotated[kind, tyro.conf.arg(help=help_texts.get(name, ""))], fresh))
    return dataclasses.make_dataclass(title, fields, frozen=True)
