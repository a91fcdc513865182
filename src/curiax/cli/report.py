"""`curiax report` and `curiax verify`: from runs that are finished, without training."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Annotated, Any

from .._errors import OutputError, UsageError
from .._text import clean
from ._arguments import parse
from ._tables import print_content


def command_report(args: list[str]) -> int:
    """A report of any finished runs."""
    import tyro

    from ..report.publish import claim, publish
    from ..report.record import RECORD, Heading, gather, read_heading

    fields = [
        folders_field("run folders, folders that hold some, or what `curiax reproduce` wrote"),
        ("out", Annotated[Path, tyro.conf.arg(help="folder for the report")], Path("runs/report")),
        (
            "title",
            Annotated[str | None, tyro.conf.arg(help="what to call it; None: as a kept report was called, or Report")],
            None,
        ),
        (
            "reference",
            Annotated[
                str | None, tyro.conf.arg(help="the line that the others are compared with; None: as kept, or lbs")
            ],
            None,
        ),
        (
            "headline",
            Annotated[str | None, tyro.conf.arg(help="the metric to show first; None: as the runs have it")],
            None,
        ),
    ]
    kind = dataclasses.make_dataclass("Report", fields, frozen=True)
    options = parse(kind, args, "report", "Tables, figures and report.html from finished runs, yours included.")
    if not options.folders:
        raise UsageError("name the folders of the runs: curiax report runs/mountain-car_lbs_1234 ...")
    claim(options.out)
    records, remarks = gather(options.folders)
    if len(options.folders) == 1 and (kept := options.folders[0] / RECORD).is_dir():
        # Made again, a report is what it was.
        heading = read_heading(kept)
    else:
        names = ", ".join(dict.fromkeys(record.label for record in records))
        command = shlex.join(["curiax", "report", *map(str, options.folders)])
        count = f"{len(records)} run{'s' if len(records) > 1 else ''}"
        heading = Heading("Report", f"{count}: {names}.", command=command, remarks=remarks)
    changes = {
        name: word for name in ("title", "reference", "headline") if (word := getattr(options, name)) is not None
    }
    if changes:
        # A kept report is made by its own command first.
        first = [shlex.join(["curiax", "report", *map(str, options.folders)])]
        first = [heading.command, *first] if heading.command != first[0] else first
        asked = shlex.join([word for name, value in changes.items() for word in (f"--{name}", value)])
        changes["command"] = f"{' && '.join(first)} {asked}"
    heading = dataclasses.replace(heading, **changes)
    print_content(publish(records, heading, options.out).content)
    print(f"report:  {clean(str(options.out / 'report.html'), None)}")
    return 0


def command_verify(args: list[str]) -> int:
    """Compare the files of kept reports, runs and exports with their digests, and recompute tables from the curves."""
    from ..report.publish import kept_in, verify

    fields = [
        folders_field("folders that `curiax reproduce` or `curiax report` wrote, a folder of such, a run or an export")
    ]
    text = (
        "Compare every file of kept reports, runs and exports with its digest, recompute the tables from the stored "
        "curves, and say which version and commit trained the runs."
    )
    kind = dataclasses.make_dataclass("Verify", fields, frozen=True)
    options = parse(kind, args, "verify", text)
    if not options.folders:
        raise UsageError("name the folders to verify: curiax verify results")
    failed, folders = 0, [found for place in options.folders for found in kept_in(place)]
    for folder in folders:
        place = clean(str(folder), None)
        try:
            found = verify(folder)
        except OutputError as error:
            if len(folders) == 1:
                raise
            print(f"FAIL {place}: {clean(str(error), None)}")
            failed += 1
            continue
        for difference in found.differences:
            print(f"  {clean(difference, None)}")
        by = f"; trained by {', '.join(found.trained_by)}" if found.trained_by else ""
        count = len(found.differences)
        what = "every file read" if found.rows is None else f"{found.rows} rows recomputed"
        summary = f"{'FAIL' if count else 'ok  '} {place}: {what}, {count} differ{by}"
        print(clean(summary, None))
        for warning in found.warnings:
            print(f"  warning: {clean(warning, None)}")
        failed += bool(count)
    return 1 if failed else 0


def folders_field(text: str) -> tuple[str, Any]:
    """A positional list of folders."""
    import tyro

    return "folders", Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(help=text, metavar="DIR [DIR ...]", help_behavior_hint="(at least one)"),
    ]
