"""From records to files: the record itself, `table.json`, figures, `report.html` and a README; and back, to verify."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._errors import OutputError
from .._files import read_bytes, read_json
from .._text import markdown, markdown_code
from ..experiments.folder import written
from . import claims, record
from .assemble import assemble, distinct
from .charts import headline
from .content import Content
from .page import page
from .record import RECORD, REMEDY, Heading, Record
from .table import Row, as_json, rows

#: Bytes of a report or a README to compare with.
MOST_PAGE = 256 << 20
TABLE, REPORT, FIGURES, README = "table.json", "report.html", "figures", "README.md"


@dataclass(frozen=True)
class Published:
    """What was computed, and the files it is in."""

    content: Content
    rows: Sequence[Row]
    files: Sequence[Path]


def publish(records: Sequence[Record], heading: Heading, out: Path) -> Published:
    """Write everything that is made of some records into a folder: all of it, or nothing."""
    from .figures import draw_all

    with written(out):
        out.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=".making-", dir=out))
    try:
        record.save(records, heading, stage / RECORD)
        # From what was written, not from what is in memory: the tables can then be recomputed to the last digit.
        kept = distinct(record.load(stage / RECORD))
        table = rows(kept, heading.suite)
        content = assemble(kept, table, heading)
        with written(out):
            for name, text in texts(kept, table, content, heading).items():
                (stage / name).write_text(text, encoding="utf-8")
            draw_all(content, table, stage / FIGURES)
            for entry in sorted(stage.iterdir()):
                replace(entry, out / entry.name)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return Published(content, table, [out / REPORT, out / TABLE, *sorted((out / FIGURES).iterdir())])


def replace(made: Path, place: Path) -> None:
    """Put a file or folder where an older one may be."""
    if place.is_dir():
        shutil.rmtree(place)
    os.replace(made, place)


def texts(records: Sequence[Record], table: Sequence[Row], content: Content, heading: Heading) -> dict[str, str]:
    """The files of words and numbers, by name."""
    return {
        TABLE: json.dumps(summary(records, table, heading), indent=1, ensure_ascii=False) + "\n",
        REPORT: page(content),
        README: readme(content, heading),
    }


def summary(records: Sequence[Record], table: Sequence[Row], heading: Heading) -> dict[str, Any]:
    """What `table.json` holds."""
    judged = claims.judge(records, headline(records))
    return {
        "suite": heading.suite,
        "command": heading.command,
        "rows": as_json(table),
        "claims": [{"claim": j.claim.text, "verdict": j.verdict, "source": j.claim.source} for j in judged],
    }


def readme(content: Content, heading: Heading) -> str:
    """The tables for readers of the folder."""
    again = f"`{REPORT}` shows it interactively; where it is not kept, `curiax report` makes it again from `{RECORD}/`."
    made_by = f"Made by {markdown_code(heading.command)}. {again}"
    parts = [f"# {markdown(content.title)}", markdown(content.lead), made_by]
    for notice in content.notices:
        parts.append(f"**{notice.level}**: {markdown(notice.text)}")
    for table in (*content.games, *content.ratios, *content.tables):
        lines = ["| " + " | ".join(map(markdown, table.header)) + " |", "|---" * len(table.header) + "|"]
        lines += ["| " + " | ".join(markdown(cell.text) for cell in row) + " |" for row in table.rows]
        parts += [f"## {markdown(table.caption)}", "\n".join(lines), markdown(table.note)]
    if content.claims:
        held = [f"- **{claim.verdict}**: {markdown(f'{claim.text}. {claim.finding}')}" for claim in content.claims]
        parts += ["## Claims of the paper", "\n".join(held)]
    return "\n\n".join(part for part in parts if part) + "\n"


def kept_in(folder: Path) -> list[Path]:
    """The folder itself if it holds a table, else those directly below it that do."""
    below = sorted(entry.parent for entry in folder.glob(f"*/{TABLE}"))
    return [folder] if (folder / TABLE).exists() or not below else below


def verify(folder: Path) -> tuple[int, list[str]]:
    """Recompute the table from the stored curves: how many rows there are, and every difference found."""
    try:
        told = read_json(folder / TABLE, "name a folder of `curiax reproduce`.")
    except OutputError as error:
        raise OutputError(f"{folder} has no readable {TABLE}: {error}") from None
    if not isinstance(told, dict) or not isinstance(told.get("rows"), list):
        raise OutputError(f"{folder / TABLE} was not written by `curiax reproduce`: it has no rows.")
    heading, kept = record.read_heading(folder / RECORD), distinct(record.load(folder / RECORD))
    table = rows(kept, heading.suite)
    made = texts(kept, table, assemble(kept, table, heading), heading)
    fresh = json.loads(made[TABLE])
    found = [*compare_rows(told["rows"], fresh["rows"]), *compare_claims(told, fresh)]
    found += [
        f"{name} is {told.get(name)!r} in {TABLE}." for name in ("suite", "command") if told.get(name) != fresh[name]
    ]
    for name in (README, REPORT):
        if (folder / name).exists() and read_bytes(folder / name, MOST_PAGE, REMEDY) != made[name].encode():
            found.append(f"{name} is not what the stored curves give.")
    return len(fresh["rows"]), found


def said(entry: dict[str, Any], name: str) -> str | None:
    """A word of an entry of `table.json`; None for what is no word."""
    word = entry.get(name)
    return word if isinstance(word, str) else None


def compare_rows(told: Sequence[Any], fresh: Sequence[dict[str, Any]]) -> list[str]:
    """Differences between the rows as kept and as recomputed."""

    def key(row: Any) -> tuple[Any, ...]:
        return tuple(said(row, name) for name in ("task", "method", "metric")) if isinstance(row, dict) else (None,)

    kept, found = {key(row): row for row in told}, []
    if len(kept) != len(told):
        found.append(f"{TABLE} holds a row twice or something that is no row.")
    for row in fresh:
        name = " / ".join(map(str, key(row)))
        other = kept.pop(key(row), None)
        if other is None:
            found.append(f"{name}: missing from {TABLE}.")
            continue
        for field, value in row.items():
            if not same(other.get(field), value):
                found.append(f"{name}: {field} is {other.get(field)!r} in {TABLE}, {value!r} from the curves.")
    return found + [f"{' / '.join(map(str, name))}: in {TABLE} but not in the curves." for name in kept]


def compare_claims(told: dict[str, Any], fresh: dict[str, Any]) -> list[str]:
    """Differences between the verdicts on claims as kept and as recomputed."""
    claims = told.get("claims") if isinstance(told.get("claims"), list) else []
    kept = {said(claim, "claim"): claim.get("verdict") for claim in claims or () if isinstance(claim, dict)}
    made = {c["claim"]: c["verdict"] for c in fresh["claims"]}
    return [
        f"claim {name!r}: {kept.get(name)!r} in {TABLE}, {made.get(name)!r} from the curves."
        for name in dict.fromkeys([*kept, *made])
        if kept.get(name) != made.get(name)
    ]


def same(left: Any, right: Any) -> bool:
    """Equal, floats up to what differs between machines in the last digits of sums."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, int | float) and isinstance(right, int | float) and not isinstance(left, bool):
        return math.isclose(left, right, rel_tol=1e-4, abs_tol=1e-6)
    return left == right and type(left) is type(right)
