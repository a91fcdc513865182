"""The command line: run, reproduce, report, verify, watch, export, list, check, cite, doctor."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ._errors import CuriaxError, Interrupted, UsageError, unknown
from ._version import __version__

if TYPE_CHECKING:
    from .experiments.options import RunOptions
    from .experiments.run import RunResult
    from .experiments.spec import Plan
    from .report.content import Content

OVERVIEW = f"""curiax {__version__}: curiosity-driven exploration in JAX

usage: curiax COMMAND ...

  run TASK --method M     train one method on one task, all seeds at once
  reproduce SUITE         train a suite; its results beside the paper's, as table, figures and report.html
  report DIR ...          the same from any finished runs, your own methods included
  verify DIR ...          recompute kept tables from their stored curves
  watch RUN               a film (mp4 or gif) of a trained agent, its bonus below
  export RUN --out DIR    trained agents as two files that load and act anywhere: curiax.load(DIR).act(obs)
  list                    the methods, tasks, suites and presets
  check module:Class      hold your own method or task to the contract
  cite METHOD ...         BibTeX of the methods you used
  doctor                  versions, devices, and which extras work

curiax COMMAND --help says more. Start with: curiax run mountain-car --method lbs
"""


#: Exit codes after Ctrl-C and SIGTERM, as shells have them.
INTERRUPTED, TERMINATED = 130, 143


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 done, 1 failed, 2 wrong usage, 130 or 143 told to stop."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help"):
        print(OVERVIEW, end="")
        return 0
    if args[0] in ("-V", "--version"):
        print(f"curiax {__version__}")
        return 0
    try:
        if args[0] not in COMMANDS:
            raise unknown("command", args[0], COMMANDS)
        return COMMANDS[args[0]](args[1:])
    except CuriaxError as error:
        print(f"curiax: {error}", file=sys.stderr)
        return error.exit_code
    except Interrupted as stopped:
        print(f"curiax: {stopped}", file=sys.stderr)
        return stopped.exit_code
    except KeyboardInterrupt:
        print("\ncuriax: interrupted; finished runs and checkpoints are kept.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def parse(kind: Any, args: Sequence[str], command: str, description: str) -> Any:
    """Arguments as a dataclass; help and mistakes exit here, with code 0 and 2."""
    import tyro

    return tyro.cli(kind, args=list(args), prog=f"curiax {command}", description=description)


def seeds_from(text: str) -> int | tuple[int, ...]:
    """`8` is seeds 0 to 7; `0,1,5` and `2000-2031` are those seeds; `5,` is seed 5 alone."""
    from .experiments.spec import MOST_SEEDS

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


# --- run --------------------------------------------------------------------------------------------------


def option(args: Sequence[str], name: str) -> str | None:
    """The value of `--name VALUE` or `--name=VALUE`, before the full parser is built; the last one counts."""
    found = None
    for k, arg in enumerate(args):
        if arg == f"--{name}":
            found = args[k + 1] if k + 1 < len(args) else None
        if arg.startswith(f"--{name}="):
            found = arg.partition("=")[2]
    return found


def settings_class(title: str, build: Callable[..., Any], values: Mapping[str, Any]) -> type:
    """A dataclass whose fields are a constructor's settings, with their types, help and values in force."""
    import tyro

    from ._settings import descriptions, signature

    told = descriptions(build)
    fields = []
    for name, (kind, default) in signature(build).items():
        value = values.get(name, default)
        if callable(default):
            continue  # functions can be set from Python only
        if isinstance(default, tuple):
            value = tuple(value)  # settings are kept as JSON has them, and JSON has no tuples
        kind = type(value) if kind is Any else kind
        fresh = dataclasses.field(default_factory=lambda value=value: copy.copy(value))
        fields.append((name, Annotated[kind, tyro.conf.arg(help=told.get(name, ""))], fresh))
    return dataclasses.make_dataclass(title, fields, frozen=True)


def run_class(plan: Plan) -> type:
    """The arguments of `run` for this task, method and preset: what the preset says is the default."""
    import tyro

    from .experiments.presets import PRESETS
    from .experiments.spec import GROUPS

    def values(group: str) -> dict[str, Any]:
        return {n.partition(".")[2]: v for n, v in plan.settings.items() if n.partition(".")[0] == group}

    def arg(text: str, name: str | None = None, metavar: str | None = None) -> Any:
        return tyro.conf.arg(help=text, name=name, metavar=metavar)

    presets = "; ".join(f"{name}: {preset.summary}" for name, preset in PRESETS.items())
    builders = {**GROUPS, "method": plan.method_entry.cls, "task": plan.task_entry.cls}
    fields: list[tuple[Any, ...]] = [
        ("task", Annotated[tyro.conf.Positional[str], arg("a task of `curiax list`, or module:Class", metavar="TASK")]),
        ("method", Annotated[str, arg("a method of `curiax list`, or module:Class")], plan.method_entry.name),
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


def option_fields() -> list[tuple[Any, ...]]:
    """How a run is carried out, as arguments of a command."""
    import tyro

    from ._settings import descriptions, signature
    from .experiments.options import RunOptions

    told = descriptions(RunOptions)
    return [
        (name, Annotated[kind, tyro.conf.arg(help=told[name])], default)
        for name, (kind, default) in signature(RunOptions).items()
    ]


def options_of(said: Any) -> RunOptions:
    """The options that were said."""
    from .experiments.options import RunOptions

    return RunOptions(**{field.name: getattr(said, field.name) for field in dataclasses.fields(RunOptions)})


def command_run(args: list[str]) -> int:
    """Train one method on one task."""
    from .experiments.progress import for_terminal
    from .experiments.reproduce import run_folder
    from .experiments.run import run
    from .experiments.spec import Experiment, resolve

    asks_help = any(arg in ("-h", "--help") for arg in args)
    if not args or args[0].startswith("-"):
        if not asks_help:
            raise UsageError("name the task first: curiax run TASK --method M (curiax list shows both).")
        args = ["mountain-car", *args]
    method = option(args, "method") or ("lbs" if asks_help else None)
    if method is None:
        raise UsageError(f"name a method: curiax run {args[0]} --method M (curiax list shows them).")
    base = Experiment(args[0], method, preset=option(args, "preset") or "paper-code")
    plan = resolve(base)
    description = (
        f"Train {method} on {args[0]}. Defaults below are those of this task, method and preset, so ask for help "
        "again with another --method or --preset to see theirs."
    )
    said = parse(run_class(plan), ["--help"] if asks_help else args, "run", description)
    # Only what was typed counts as said: the preset goes on deciding the rest (β follows --remote.mode).
    flags = {arg.partition("=")[0].replace("_", "-") for arg in args}
    typed = flags | {flag.replace(".no-", ".", 1) for flag in flags}
    changed = {}
    for name in plan.settings:
        group, _, key = name.partition(".")
        if f"--{name.replace('_', '-')}" in typed:
            changed[name] = getattr(getattr(said, f"{group}_settings"), key)
    experiment = dataclasses.replace(base, seeds=seeds_from(said.seeds), steps=said.steps, settings=changed)
    plan = resolve(experiment)
    out = said.out or Path("runs") / run_folder(plan)
    progress = for_terminal(plan.setup.loop.coverage, quiet=said.quiet or said.json)
    result = run(experiment, out, progress=progress, options=options_of(said))
    print(json.dumps(run_summary(result), indent=2) if said.json else run_text(result, said.steps))
    return 0


def run_summary(result: RunResult) -> dict[str, Any]:
    """A finished run for machines."""
    from .report.statistics import interval

    coverage = sorted(name for name in result.metrics.columns if name.startswith(("coverage/", "reachable/")))
    final = {name: list(result.final(name).values()) for name in coverage}
    most = {f"coverage/{grid.name}": 100.0 * grid.size / grid.nominal for grid in result.plan.setup.task.grids}

    def possible(name: str, band: tuple[float, float] | None) -> tuple[float, float] | None:
        """An interval within what there is to cover."""
        high = most.get(name, 100.0)
        return band and (max(0.0, min(band[0], high)), max(0.0, min(band[1], high)))

    return {
        "task": result.plan.task_entry.name,
        "method": result.plan.method_entry.name,
        "preset": result.plan.experiment.preset,
        "seeds": [seed for seed in result.plan.seeds if str(seed) not in result.manifest.get("lost", {})],
        "lost": result.manifest.get("lost", {}),
        "masked": result.manifest.get("masked", {}),
        "steps": result.plan.steps,
        "run_id": result.plan.run_id,
        "path": str(result.path),
        "reused": result.reused,
        "seconds": result.manifest["seconds"],
        "final": {
            name: {"mean": sum(values) / len(values), "interval": possible(name, interval(values)), "values": values}
            for name, values in final.items()
        },
    }


def run_text(result: RunResult, asked: int | None) -> str:
    """A finished run for people."""
    data = run_summary(result)
    lines = [
        f"{data['method']} on {data['task']} ({data['preset']}): {len(data['seeds'])} seeds x {data['steps']:,} steps"
    ]
    if asked is not None and asked != data["steps"]:
        lines.append(f"  {asked:,} steps asked for; whole rollouts make {data['steps']:,}")
    for grid in result.plan.setup.task.grids:
        found = data["final"][f"coverage/{grid.name}"]
        band = found["interval"]
        text = f"  coverage ({grid.name:5s}) {found['mean']:5.1f} %"
        few = "one seed" if len(data["seeds"]) == 1 else f"{len(data['seeds'])} seeds"
        text += f"  95 % interval [{band[0]:.1f}, {band[1]:.1f}]" if band else f"  ({few}: no interval)"
        share = data["final"].get(f"reachable/{grid.name}")
        lines.append(text + (f", {share['mean']:.1f} % of the {grid.reachable} reachable" if share else ""))
    if not result.plan.setup.task.grids:
        lines.append("  this task counts no cells; see the metrics table")
    seconds = data["seconds"]
    lines.append(
        "  already finished before, read from its folder"
        if data["reused"]
        else f"  {seconds['start']:.1f} s to start (check, compile), {seconds['train']:.1f} s to train"
    )
    continued = result.manifest.get("continued") or []
    if continued:
        step = continued[-1]["iteration"] * (data["steps"] // result.plan.iterations)
        times = f"{len(continued)} times, the last time" if len(continued) > 1 else "once,"
        lines.append(f"  continued {times} from step {step:,}")
    if data["masked"]:
        lines.append(
            "  unsound values were masked: {steps:,} environment steps, {updates:,} gradient steps".format(
                **data["masked"]
            )
        )
    return "\n".join([*lines, f"  {data['path']}"])


# --- reproduce --------------------------------------------------------------------------------------------


def reproduce_class() -> type:
    """The arguments of `reproduce`."""
    import tyro

    from .launch.sweep import LAUNCHERS, LauncherName

    def arg(text: str) -> Any:
        return tyro.conf.arg(help=text)

    fields = [
        (
            "suite",
            Annotated[tyro.conf.Positional[str], tyro.conf.arg(help="a suite of `curiax list`", metavar="SUITE")],
        ),
        ("methods", Annotated[tuple[str, ...], arg("these lines instead of the suite's; module:Class too")], ()),
        (
            "seeds",
            Annotated[
                str, arg("how many (8), or which (0,1,5 or 2000-2031); '2000-2031 ant-maze=8': other ones for a task")
            ],
            "8",
        ),
        ("steps", Annotated[int | None, arg("environment steps of each seed; None: the full budget")], None),
        ("preset", Annotated[str | None, arg("paper-code (also for None), paper-text, clean or curiax")], None),
        ("out", Annotated[Path | None, arg("folder for report, table, figures and runs; None: runs/SUITE")], None),
        ("runs", Annotated[Path | None, arg("folder of the runs, to share them between suites; None: OUT/runs")], None),
        ("launcher", Annotated[LauncherName, arg(LAUNCHERS)], "serial"),
        ("workers", Annotated[int | None, arg("at most so many runs at once; None: as the launcher sees fit")], None),
        ("address", Annotated[str | None, arg("HOST:PORT of a Ray cluster; None: one on this machine")], None),
        ("json", Annotated[bool, arg("print the table as JSON")], False),
        ("quiet", Annotated[bool, arg("show no progress")], False),
        *option_fields(),
    ]
    return dataclasses.make_dataclass("Reproduce", fields, frozen=True)


def command_reproduce(args: list[str]) -> int:
    """Train a suite; write its report, table and figures."""
    from .experiments.progress import for_terminal
    from .experiments.reproduce import claim, experiments, lead, seeds_of_tasks, train_suite
    from .experiments.spec import resolve
    from .experiments.suites import find_suite
    from .launch import choose, launch_experiments, show
    from .report.publish import publish
    from .report.record import Heading, condense

    text = (
        "Train every line of a suite on every task of it, all seeds at once, and put the results beside the paper's: "
        "a table, figures and report.html. Finished runs are reused, so the same command continues."
    )
    said = parse(reproduce_class(), args, "reproduce", text)
    launcher = choose(said.launcher, said.workers, said.address)
    suite = find_suite(said.suite)
    chosen = experiments(
        suite,
        methods=tuple(dict.fromkeys(said.methods)) or None,
        seeds=seeds_of_tasks(suite, said.seeds, seeds_from),
        steps=said.steps,
        preset=said.preset,
    )
    first = resolve(chosen[0])
    out = said.out or Path("runs") / suite.name
    claim(out)
    store, quiet, options = said.runs or out / "runs", said.quiet or said.json, options_of(said)
    if launcher is not None:
        launch_experiments(chosen, store, launcher, show.for_terminal(quiet=quiet), options)
    results = train_suite(chosen, store, for_terminal(first.setup.loop.coverage, quiet=quiet), options)
    # The label is this suite's own: a run that is shared with another suite may be called otherwise there.
    records = [
        condense({**result.manifest, "experiment": result.plan.experiment.as_json()}, result.metrics)
        for result in results
    ]
    heading = Heading(suite.title, lead(suite, chosen), suite.name, suite.reference, reproduce_command(said))
    made = publish(records, heading, out)
    if said.json:
        print((out / "table.json").read_text(), end="")
        return 0
    print_content(made.content)
    print(f"report:  {out / 'report.html'}\ntable:   {out / 'table.json'}\nfigures: {out / 'figures'}")
    return 0


def reproduce_command(said: Any) -> str:
    """The command without what does not change the result."""
    words = ["curiax", "reproduce", said.suite, *(["--methods", *said.methods] if said.methods else [])]
    words += ["--seeds", said.seeds]
    words += ["--steps", str(said.steps)] if said.steps is not None else []
    words += ["--preset", said.preset] if said.preset else []
    words += ["--on-nonfinite", said.on_nonfinite] if said.on_nonfinite != "stop" else []
    return shlex.join(words)


def print_content(content: Content) -> None:
    """Notices, tables and verdicts on claims, for people."""
    for table in content.tables[1:] if len(content.tables) > 1 else content.tables:
        columns = [k for k, name in enumerate(table.header) if name != "p"]
        lines = [[row[k].text for k in columns] for row in table.rows]
        print_table(table.caption, [table.header[k] or "method" for k in columns], lines)
    if content.tables:
        from .report.table import TEST

        print(f"coverage (%): mean over seeds [95 % bootstrap interval]. {TEST}")
    for claim in content.claims:
        print(f"  {claim.verdict:9s} {claim.text}: {claim.finding}")
    for notice in content.notices:
        print(f"{notice.level}: {notice.text}")


# --- report, verify ---------------------------------------------------------------------------------------


def folders_field(text: str) -> tuple[str, Any]:
    """A positional list of folders."""
    import tyro

    return "folders", Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(help=text, metavar="DIR")]


def command_report(args: list[str]) -> int:
    """A report of any finished runs."""
    import tyro

    from .experiments.reproduce import claim
    from .report.publish import publish
    from .report.record import Heading, gather

    fields = [
        folders_field("run folders, folders that hold some, or what `curiax reproduce` wrote"),
        ("out", Annotated[Path, tyro.conf.arg(help="folder for the report")], Path("runs/report")),
        ("title", Annotated[str, tyro.conf.arg(help="what to call it")], "Report"),
        ("reference", Annotated[str, tyro.conf.arg(help="the line that the others are compared with")], "lbs"),
    ]
    kind = dataclasses.make_dataclass("Report", fields, frozen=True)
    said = parse(kind, args, "report", "Tables, figures and report.html from finished runs, yours included.")
    if not said.folders:
        raise UsageError("name the folders of the runs: curiax report runs/mountain-car_lbs_1234 ...")
    claim(said.out)
    records, remarks = gather(said.folders)
    names = ", ".join(dict.fromkeys(record.label for record in records))
    command = shlex.join(["curiax", "report", *map(str, said.folders)])
    heading = Heading(said.title, f"{len(records)} runs: {names}.", "", said.reference, command, remarks)
    print_content(publish(records, heading, said.out).content)
    print(f"report:  {said.out / 'report.html'}")
    return 0


def command_verify(args: list[str]) -> int:
    """Recompute kept tables from kept curves."""
    from .report.publish import kept_in, verify

    fields = [folders_field("folders that `curiax reproduce` or `curiax report` wrote, or a folder of such")]
    kind = dataclasses.make_dataclass("Verify", fields, frozen=True)
    said = parse(kind, args, "verify", "Recompute the tables of kept results from their stored curves, and compare.")
    if not said.folders:
        raise UsageError("name the folders to verify: curiax verify results")
    failed = 0
    for folder in (found for named in said.folders for found in kept_in(named)):
        count, differences = verify(folder)
        for difference in differences:
            print(f"  {difference}")
        print(f"{'ok  ' if not differences else 'FAIL'} {folder}: {count} rows recomputed, {len(differences)} differ")
        failed += bool(differences)
    return 1 if failed else 0


def print_table(title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """A table for people."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for k, name in enumerate(header):
        table.add_column(name, justify="left" if k == 0 else "right", no_wrap=True)
    for line in lines:
        table.add_row(*map(escape, line))
    console = Console()
    # Not a terminal: no folding to some assumed width.
    (console if console.is_terminal else Console(width=200)).print(table)


# --- watch ------------------------------------------------------------------------------------------------


def command_watch(args: list[str]) -> int:
    """Film a trained agent."""
    import tyro

    from .watch import watch

    def arg(text: str, metavar: str | None = None) -> Any:
        return tyro.conf.arg(help=text, metavar=metavar)

    flag = tyro.conf.FlagCreatePairsOff[bool]
    fields = [
        ("run", Annotated[tyro.conf.Positional[Path], arg("the folder of a finished run or an export", "RUN")]),
        ("seed", Annotated[int | None, arg("which of its seeds; None: the first")], None),
        ("out", Annotated[Path | None, arg("FILE.mp4 or FILE.gif; None: watch-seed<k>.mp4 in the run's folder")], None),
        ("steps", Annotated[int | None, arg("at most so many steps; None: as many as the episodes have")], None),
        (
            "episodes",
            Annotated[int | None, arg("at most so many; None: one, or as many as --steps has room for")],
            None,
        ),
        ("fps", Annotated[int, arg("steps shown in a second")], 30),
        ("width", Annotated[int, arg("of the film, in pixels; even")], 640),
        ("height", Annotated[int, arg("of the film, the strip of the bonus included; even")], 480),
        (
            "deterministic",
            Annotated[flag, arg("take the likeliest action instead of drawing one as in training")],
            False,
        ),
        ("trust", Annotated[flag, arg("import the task or method of a run of your own classes")], False),
        ("quiet", Annotated[flag, arg("show no progress")], False),
    ]
    kind = dataclasses.make_dataclass("Watch", fields, frozen=True)
    said = parse(kind, args, "watch", "Film a trained agent of a finished run, with the raw bonus of every step below.")
    asked = {name: value for name, value in vars(said).items() if name != "quiet"}
    with filming(quiet=said.quiet or not sys.stderr.isatty()) as tell:
        made = watch(**asked, tell=tell)
    if made.notice:
        print(f"curiax: {made.notice}", file=sys.stderr)
    many = f"{made.episodes} episode{'s' if made.episodes > 1 else ''}"
    print(
        f"{made.method} on {made.task}, seed {made.seed}: {len(made.bonus)} steps in {many}, "
        f"bonus {made.bonus.mean():.4g} on average, {made.bonus.max():.4g} at most\n  {made.path}"
    )
    return 0


@contextlib.contextmanager
def filming(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A live bar for each part of making a film."""
    if quiet:
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        parts: dict[str, Any] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in parts:
                parts[what] = bar.add_task(what)
            bar.update(parts[what], completed=done, total=total)

        yield tell


# --- export -----------------------------------------------------------------------------------------------


def command_export(args: list[str]) -> int:
    """Trained agents in a folder of their own."""
    import tyro

    from .trained import export, load

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
    said = parse(kind, args, "export", "Trained agents as two files that load and act without training code.")
    if said.seed is not None and said.seeds is not None:
        raise UsageError("--seed and --seeds: name one of them.")
    chosen = None if said.seeds is None else seeds_from(said.seeds)
    seeds = [said.seed] if said.seed is not None else list(range(chosen)) if isinstance(chosen, int) else chosen
    made = load(export(said.run, said.out, seeds=seeds, trust=said.trust))
    print(f"{made.method} on {made.task}, seeds {', '.join(map(str, made.seeds))}\n  {said.out}")
    return 0


# --- list, check, cite, doctor ----------------------------------------------------------------------------


def command_list(args: list[str]) -> int:
    """What there is."""
    from .experiments.presets import PRESETS
    from .experiments.registry import METHODS, TASKS
    from .experiments.suites import SUITES

    kind = dataclasses.make_dataclass("List", [("json", bool, False)], frozen=True)
    said = parse(kind, args, "list", "The methods, tasks, suites and presets; --json for machines.")
    if said.json:
        print(
            json.dumps(
                {"methods": list(METHODS), "tasks": list(TASKS), "suites": list(SUITES), "presets": list(PRESETS)}
            )
        )
        return 0
    for title, entries in (("methods", METHODS), ("tasks", TASKS), ("suites", SUITES), ("presets", PRESETS)):
        print(title)
        for name, entry in entries.items():
            print(f"  {name:22s} {entry.summary}")
        if entries is TASKS:
            print(f"  {'gymnasium:ID':22s} any Gymnasium environment, as gymnasium:Pendulum-v1")
    return 0


def command_check(args: list[str]) -> int:
    """Hold a method or task to the contract."""
    import tyro

    from .curiosity import AbstractCuriosity
    from .envs import AbstractAnyTask, AbstractHostTask, AbstractTask
    from .experiments.registry import GYMNASIUM, METHODS, TASKS, find_method, load_class
    from .experiments.spec import Experiment, resolve
    from .testing import fleet_checks, method_checks, task_checks

    def of_task(name: str) -> Iterator[tuple[str, Callable[[], None]]]:
        task = resolve(Experiment(name, "random")).setup.task
        if isinstance(task, AbstractHostTask):
            return fleet_checks(lambda: task)
        assert isinstance(task, AbstractTask)
        return task_checks(lambda: task)

    field = (
        "name",
        Annotated[
            tyro.conf.Positional[str], tyro.conf.arg(help="module:Class, or a name of `curiax list`", metavar="NAME")
        ],
    )
    kind = dataclasses.make_dataclass("Check", [field], frozen=True)
    said = parse(kind, args, "check", "Run the contract suite on a method or a task.")
    if said.name in METHODS:
        entry = METHODS[said.name]
        checks = method_checks(entry.cls, **{key.removeprefix("method."): v for key, v in entry.settings.items()})
    elif said.name in TASKS or said.name.startswith(GYMNASIUM):
        checks = of_task(said.name)
    else:
        cls = load_class(said.name, "method or task", {**METHODS, **TASKS})
        if isinstance(cls, type) and issubclass(cls, AbstractCuriosity):
            checks = method_checks(find_method(cls).cls)
        elif isinstance(cls, type) and issubclass(cls, AbstractAnyTask):
            checks = of_task(said.name)
        else:
            raise UsageError(
                f"{said.name!r} is neither a curiax.AbstractCuriosity nor a curiax.AbstractTask or AbstractHostTask."
            )
    passed = 0
    try:
        for sentence, check in checks:
            check()
            passed += 1
            print(f"  ok    {sentence}", flush=True)
    except CuriaxError as error:
        print(f"  FAIL  {error}\n{said.name}: {passed} checks passed, then one failed")
        return 1
    print(f"{said.name}: all {passed} checks passed")
    return 0


def command_cite(args: list[str]) -> int:
    """BibTeX of methods."""
    import tyro

    from .experiments.registry import find_method

    field = (
        "methods",
        Annotated[
            tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(help="names of `curiax list`", metavar="METHOD")
        ],
    )
    kind = dataclasses.make_dataclass("Cite", [field], frozen=True)
    said = parse(kind, args, "cite", "BibTeX of the methods you used.")
    if not said.methods:
        raise UsageError("name the methods to cite: curiax cite lbs icm.")
    found = [(name, find_method(name).cls.bibtex) for name in said.methods]
    for name, text in found:
        if not text:
            print(f"% {name}: nothing to cite")
    print("\n\n".join(dict.fromkeys(text for _, text in found if text)))
    return 0


#: Extra → a module that must import for it to work.
EXTRAS = {
    "mujoco": "mujoco",
    "video": "imageio_ffmpeg",
    "atari": "ale_py",
    "mario": "nes_py",
    "dmc": "dm_control",
    "sb3": "stable_baselines3",
    "ray": "ray",
}


def command_doctor(args: list[str]) -> int:
    """Versions, devices, extras."""
    import importlib
    import importlib.metadata
    import platform

    kind = dataclasses.make_dataclass("Doctor", [("json", bool, False)], frozen=True)
    said = parse(kind, args, "doctor", "Versions, devices and which extras work.")
    import jax

    from .experiments.session import PACKAGES
    from .train import devices

    devices.prepare()
    extras = {}
    for extra, module in EXTRAS.items():
        try:
            importlib.import_module(module)
            extras[extra] = "works"
        except ImportError:
            extras[extra] = f"missing: pip install 'curiax[{extra}]'"
        except Exception as error:
            extras[extra] = f"broken: {type(error).__name__}: {error}"
    found = jax.devices()
    extras["cuda"] = (
        "works" if found[0].platform == "gpu" else "no GPU seen: pip install 'curiax[cuda]' on a GPU machine"
    )
    data = {
        "curiax": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "devices": [str(device) for device in found],
        "cores": devices.cpu_cores(),
        "compilation_cache": jax.config.jax_compilation_cache_dir,  # pyright: ignore[reportAttributeAccessIssue]
        "extras": extras,
    }
    if said.json:
        print(json.dumps(data, indent=2))
        return 0
    for name, value in data.items():
        if isinstance(value, dict):
            print(name)
            for key, text in value.items():
                print(f"  {key:12s} {text}")
        else:
            print(f"{name:18s} {', '.join(value) if isinstance(value, list) else value}")
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "run": command_run,
    "reproduce": command_reproduce,
    "report": command_report,
    "verify": command_verify,
    "watch": command_watch,
    "export": command_export,
    "list": command_list,
    "check": command_check,
    "cite": command_cite,
    "doctor": command_doctor,
}


def script() -> None:
    """The `curiax` command."""
    import warnings

    from .experiments.interrupt import SIGNALS, leave, leave_at_second_interrupt

    for number in SIGNALS:
        signal.signal(number, leave)
    leave_at_second_interrupt()
    # For people: what is the matter, not which line of ours says so.
    warnings.formatwarning = lambda message, *_, **__: f"curiax: {message}\n"
    code = main()
    if code in (INTERRUPTED, TERMINATED):
        # XLA's compiler threads do not survive a regular exit in mid-work: they end in a segmentation fault.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
