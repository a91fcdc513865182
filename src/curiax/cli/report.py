"""`curiax report` and `curiax verify`: from runs that are finished, without training."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Annotated, Any

from .._errors import UsageError
from .._text import clean
from ._arguments import parse
from ._tables import print_content


def command_report(args: list[str]) -> int:
    """A report of any finished runs."""
    import tyro

    from ..experiments.reproduce import claim
    from ..report.publish import publish
    from ..report.record import Heading, gather

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
    count = f"{len(records)} run{'s' if len(records) > 1 else ''}"
    heading = Heading(said.title, f"{count}: {names}.", "", said.reference, command, remarks)
    print_content(publish(records, heading, said.out).content)
    print(f"report:  {clean(str(said.out / 'report.html'), None)}")
    return 0


def command_verify(args: list[str]) -> int:
    """Recompute kept tables from kept curves."""
    from ..report.publish import kept_in, verify

    fields = [folders_field("folders that `curiax reproduce` or `curiax report` wrote, or a folder of such")]
    kind = dataclasses.make_dataclass("Verify", fields, frozen=True)
    said = parse(kind, args, "verify", "Recompute the tables of kept results from their stored curves, and compare.")
    if not said.folders:
        raise UsageError("name the folders to verify: curiax verify results")
    failed = 0
    for folder in (found for named in said.folders for found in kept_in(named)):
        count, differences = verify(folder)
        for difference in differences:
            print(f"  {clean(difference, None)}")
        verdict, named = "FAIL" if differences else "ok  ", clean(str(folder), None)
        print(f"{verdict} {named}: {count} rows recomputed, {len(differences)} differ")
        failed += bool(differences)
    return 1 if failed else 0


def folders_field(text: str) -> tuple[str, Any]:
    """A positional list of folders."""
    import tyro

    return "folders", Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(help=text, metavar="DIR")]
