"""`curiax reproduce`."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Annotated, Any

from .._errors import OutputError
from .._text import clean_lines
from ._arguments import option_fields, parse, run_options_of, seeds_from
from ._tables import print_content


def command_reproduce(args: list[str]) -> int:
    """Train a suite; write its report, table and figures."""
    from ..experiments.progress import for_terminal
    from ..experiments.reproduce import chosen_tasks, experiments, lead, on_games, seeds_of_tasks, train_suite
    from ..launch import choose, launch_experiments, show
    from ..paper.suites import find_suite
    from ..report.publish import FIGURES, REPORT, TABLE, claim, publish
    from ..report.record import Heading, condense, kept_runs

    text = (
        "Train every line of a suite on every task of it, all seeds at once, and put the results beside the paper's: "
        "a table, figures and report.html. Finished runs are reused, so the same command continues."
    )
    options = parse(reproduce_class(), args, "reproduce", text)
    launcher = choose(options.launcher, options.workers, options.address)
    suite = find_suite(options.suite)
    suite = on_games(suite, options.games) if options.games else suite
    options = options if options.seeds is not None else dataclasses.replace(options, seeds=str(suite.seeds))
    tasks = chosen_tasks(suite, options.tasks)
    chosen = experiments(
        suite if options.kept else dataclasses.replace(suite, tasks=tasks),
        methods=tuple(dict.fromkeys(options.methods)) or None,
        seeds=seeds_of_tasks(suite, options.seeds, seeds_from),
        steps=options.steps,
        preset=options.preset,
        rom=options.rom,
    )
    here = [experiment for experiment in chosen if experiment.task in tasks]
    others = [experiment for experiment in chosen if experiment.task not in tasks]
    kept = kept_runs(options.kept, others) if options.kept else []
    out = options.out or Path("runs") / suite.name
    claim(out)
    store, quiet, run_options = options.runs or out / "runs", options.quiet or options.json, run_options_of(options)
    if options.runs is None and store.is_symlink():
        raise OutputError(f"{store} is a link, which is not followed: say --runs and where it leads, or remove it.")
    if launcher is not None:
        launch_experiments(here, store, launcher, show.for_terminal(quiet=quiet), run_options)
    results = train_suite(here, store, for_terminal(quiet=quiet), run_options)
    # The label is this suite's own: a run that is shared with another suite may be called otherwise there.
    trained = [
        condense({**result.manifest, "experiment": result.plan.experiment.as_json()}, result.metrics)
        for result in results
    ]
    # In the suite's order: what was kept stands where its training would have put it.
    places = [(experiment.task, experiment.label) for experiment in chosen]
    records = sorted([*kept, *trained], key=lambda record: places.index((record.task, record.label)))
    rest = lead(suite, chosen), suite.name, suite.reference, reproduce_command(options), options.headline or ""
    heading = Heading(suite.title, *rest)
    made = publish(records, heading, out)
    if options.json:
        # In letters that every output can take.
        print(json.dumps(json.loads((out / TABLE).read_text("utf-8")), indent=1))
        return 0
    print_content(made.content)
    print(clean_lines(f"report:  {out / REPORT}\ntable:   {out / TABLE}"))
    # Of very many lines none is drawn: one could not tell them apart.
    if any(file.parent.name == FIGURES for file in made.files):
        print(clean_lines(f"figures: {out / FIGURES}"))
    return 0


def reproduce_class() -> type:
    """The arguments of `reproduce`."""
    import tyro

    from ..launch.sweep import LAUNCHERS, LauncherName

    def arg(text: str) -> Any:
        return tyro.conf.arg(help=text)

    fields = [
        (
            "suite",
            Annotated[tyro.conf.Positional[str], tyro.conf.arg(help="a suite of `curiax list`", metavar="SUITE")],
        ),
        ("methods", Annotated[tuple[str, ...], arg("these lines instead of the suite's; module:Class too")], ()),
        (
            "games",
            Annotated[
                tuple[str, ...],
                arg(
                    "of the arcade suites: these games instead of all nine, as breakout,qbert; any game of ale-py, and "
                    "mario"
                ),
            ],
            (),
        ),
        (
            "tasks",
            Annotated[tuple[str, ...], arg("these tasks instead of all of the suite's")],
            (),
        ),
        (
            "kept",
            Annotated[
                Path | None,
                arg(
                    "of the tasks that --tasks leaves out, take the runs of this report, which the same command made; "
                    "None: leave them out"
                ),
            ],
            None,
        ),
        (
            "rom",
            Annotated[
                str | None,
                arg("a ROM file of Super Mario Bros. that you own; None: the European one of gym-super-mario-bros"),
            ],
            None,
        ),
        (
            "seeds",
            Annotated[
                str | None,
                arg(
                    "how many, or which (0,1,5 or 2000-2031); '2000-2031 ant-maze=8': other ones for a task; None: the "
                    "suite's own number, 8 but for mnist and the arcade suites, which have the paper's 10 and 5"
                ),
            ],
            None,
        ),
        ("steps", Annotated[int | None, arg("environment steps of each seed; None: the full budget")], None),
        (
            "preset",
            Annotated[str | None, arg("paper-code (also for None), paper-text, clean, curiax or (games) small")],
            None,
        ),
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


def reproduce_command(options: Any) -> str:
    """The command without what does not change the result."""
    words = ["curiax", "reproduce", options.suite, *(["--methods", *options.methods] if options.methods else [])]
    words += ["--games", *options.games] if options.games else []
    # With the rest taken from a report it is the whole suite that was made, be it in parts.
    words += ["--tasks", *options.tasks] if options.tasks and not options.kept else []
    words += ["--rom", options.rom] if options.rom is not None else []
    words += ["--seeds", options.seeds]
    words += ["--steps", str(options.steps)] if options.steps is not None else []
    words += ["--preset", options.preset] if options.preset else []
    words += ["--on-nonfinite", options.on_nonfinite] if options.on_nonfinite != "stop" else []
    return shlex.join(words)
