"""From records to files: the record itself, `table.json`, figures, `report.html` and a README; and back, to verify."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._errors import OutputError
from .._files import read_bytes, read_json, usable
from .._text import markdown, markdown_code, markdown_table
from .._version import __version__
from ..experiments import exports
from ..experiments import folder as runs
from . import claims, figures, origin, output, record
from .assemble import assemble, distinct
from .charts import counted
from .content import DECIDED, Claim, Content, Table
from .output import FIGURES, README, RECORD, REPORT, TABLE
from .page import page
from .record import REMEDY, Heading, Record
from .table import Row, as_json, rows

#: Every file that can be made of records.
PLACES = (
    *(TABLE, REPORT, README, *(f"{RECORD}/{name}" for name in record.FILES)),
    *(f"{FIGURES}/{name}.{kind}" for name in figures.NAMES for kind in figures.KINDS),
)


@dataclass(frozen=True)
class Published:
    """What was computed, and the files it is in."""

    content: Content
    rows: Sequence[Row]
    files: Sequence[Path]


def claim(out: Path) -> None:
    """Refuse a folder that a report could not be put into, before anything is trained or read for it."""
    output.check(out, PLACES)


def publish(records: Sequence[Record], heading: Heading, out: Path) -> Published:
    """Write everything that is made of some records into a folder: all of it, or nothing."""

    def make(stage: Path) -> tuple[Content, list[Row], list[str]]:
        record.save(records, heading, stage / RECORD)
        # From what was written, not from what is in memory: the tables can then be recomputed to the last digit.
        kept = record.headlined(distinct(record.load(stage / RECORD)), heading.headline)
        table = rows(kept, heading.suite)
        content = assemble(kept, table, heading)
        for name, text in texts(kept, table, content, heading).items():
            (stage / name).write_text(text, encoding="utf-8")
        drawn = figures.draw_all(content, table, stage / FIGURES)
        return content, table, sorted(file.name for file in drawn)

    content, table, drawn = output.replace_files(out, make)
    return Published(content, table, [out / REPORT, out / TABLE, *(out / FIGURES / name for name in drawn)])


def texts(records: Sequence[Record], table: Sequence[Row], content: Content, heading: Heading) -> dict[str, str]:
    """The files of words and numbers, by name."""
    return {
        TABLE: json.dumps(summary(records, table, heading), indent=1, ensure_ascii=False) + "\n",
        REPORT: page(content),
        README: readme(content, heading, origin.trained_by(records)),
    }


def summary(records: Sequence[Record], table: Sequence[Row], heading: Heading) -> dict[str, Any]:
    """What `table.json` holds."""
    judged = claims.judge(records, counted(records))
    return {
        "suite": heading.suite,
        "command": heading.command,
        "rows": as_json(table),
        "claims": [{"claim": j.claim.text, "verdict": j.verdict, "source": j.claim.source} for j in judged],
    }


#: What a cell's tone is in plain text.
SYMBOLS = {"good": "✓", "bad": "✗", "above": "▲", "below": "▼"}


def readme(content: Content, heading: Heading, trained_by: Sequence[str]) -> str:
    """The tables for readers of the folder; the documents show its sections, by their headings."""
    again = f"`{REPORT}` shows it interactively; where it is not kept, `curiax report` makes it again from `{RECORD}/`."
    made_by = f"Made by {markdown_code(heading.command)}; trained by {markdown(', '.join(trained_by))}."
    parts = [f"# {markdown(content.title)}", markdown(content.lead), made_by, again]
    for notice in content.notices:
        parts.append(f"**{notice.level}**: {markdown(notice.text)}")
    if content.findings:
        parts += ["## Findings", "\n".join(f"- {markdown(finding)}" for finding in content.findings), DECIDED]
    for table in (*content.games, *content.ratios, *content.tables):
        parts += [f"## {markdown(table.caption)}", in_markdown(table), markdown(table.note)]
    if content.claims:
        parts += ["## Claims of the paper", "\n".join(line for claim in content.claims for line in in_lines(claim))]
    for table in content.statistics:
        parts += [f"## Statistics: {markdown(table.caption)}", in_markdown(table), markdown(table.note)]
    for table in content.others:
        parts += [f"## What else was measured: {markdown(table.caption)}", in_markdown(table), markdown(table.note)]
    return "\n\n".join(part for part in parts if part) + "\n"


def in_markdown(table: Table) -> str:
    """A table with signs for its tones."""
    rows = [
        [" ".join(filter(None, (SYMBOLS.get(cell.tone), markdown(cell.text)))) for cell in row] for row in table.rows
    ]
    return markdown_table([markdown(name) for name in table.header], rows)


def in_lines(claim: Claim) -> Iterator[str]:
    """A claim with its verdict, and below it each comparison that did not come out as claimed."""
    yield f"- **{claim.verdict}**: {markdown(f'{claim.text}. {claim.finding}')}"
    for what, *cells, outcome in claim.comparisons.rows:
        if outcome.tone != "good":
            named = zip(claim.comparisons.header[1:], cells, strict=False)
            numbers = ", ".join(f"{name} {cell.text}" for name, cell in named)
            yield f"    - {markdown(f'{outcome.text}: {what.text}: {numbers}')}"


def kept_in(folder: Path) -> list[Path]:
    """The folder itself if it holds a report, else those directly below it that do, or did."""
    if holds_agents(folder):
        return [folder]
    signs = (TABLE, output.MARKER, output.WORK)
    below = sorted({entry.parent for sign in signs for entry in folder.glob(f"*/{sign}")})
    return [folder] if any((folder / sign).exists() for sign in signs) or not below else below


@dataclass(frozen=True)
class Verified:
    """What became of verifying a folder."""

    #: Rows of the table, recomputed; None for a run or an export, which has no table.
    rows: int | None
    #: Everything that is not what was written, or not what the stored curves give.
    differences: Sequence[str]
    #: What a reader must know of the numbers, though nothing is wrong with them.
    warnings: Sequence[str]
    #: What the runs were trained with.
    trained_by: Sequence[str]


def verify(folder: Path) -> Verified:
    """Compare every file of a folder with its digest, and recompute the table from the stored curves.

    A run's folder and an export are looked at as well: every file as its digest says.
    """
    if not usable(folder).is_dir():
        raise OutputError(f"{folder} is no folder: name a report's, a run's or an export's.")
    if holds_agents(folder):
        return verify_run(folder)
    try:
        listing, wrong = output.read_listing(folder), output.faults(folder)
    except OutputError as error:
        listing, wrong = None, [str(error)]
    try:
        count, found, kept = recompute(folder, words=listing is not None and listing.curiax == __version__)
    except OutputError as error:
        if not wrong:
            raise
        return Verified(0, [*wrong, str(error)], [], [])
    warnings = origin.warnings(kept)
    if not listing and not wrong:
        warnings.insert(0, f"its files have no digests ({output.MARKER} is not there): only the table was recomputed.")
    return Verified(count, [*wrong, *found], warnings, origin.trained_by(kept))


def holds_agents(folder: Path) -> bool:
    """Whether a folder is, by the names in it, a run or an export, and no report."""
    return not (folder / TABLE).exists() and any((folder / name).exists() for name in (runs.MANIFEST, exports.AGENTS))


def verify_run(folder: Path) -> Verified:
    """Read all of a finished run or an export."""
    wrong: list[str] = []
    by: list[str] = []
    try:
        manifest = runs.read_manifest(folder)
        if manifest is not None:
            runs.read_metrics(folder, manifest)
            by = origin.of_manifest(manifest)
        data, _ = exports.described(folder)
        if data["format"] == exports.FORMAT:
            about = exports.about_of(folder, data)
            exports.tensors_of(folder, about, manifest)
            by = by or [f"Curiax {about.curiax}"]
    except OutputError as error:
        wrong.append(str(error))
    return Verified(None, wrong, [], by)


def recompute(folder: Path, *, words: bool) -> tuple[int, list[str], list[Record]]:
    """How many rows the stored curves give, every difference from the kept ones, and the records.

    `words` are compared where this version has written them.
    """
    try:
        document = read_json(folder / TABLE, "name a folder of `curiax reproduce`.")
    except OutputError as error:
        raise OutputError(f"{folder} has no readable {TABLE}: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("rows"), list):
        raise OutputError(f"{folder / TABLE} was not written by `curiax reproduce`: it has no rows.")
    heading = record.read_heading(folder / RECORD)
    kept = record.headlined(distinct(record.load(folder / RECORD)), heading.headline)
    table = rows(kept, heading.suite)
    made = texts(kept, table, assemble(kept, table, heading), heading)
    fresh = json.loads(made[TABLE])
    found = [*compare_rows(document["rows"], fresh["rows"]), *compare_claims(document, fresh)]
    found += [
        f"{name} is {document.get(name)!r} in {TABLE}."
        for name in ("suite", "command")
        if document.get(name) != fresh[name]
    ]
    for name in (README, REPORT) if words else ():
        if (folder / name).exists() and read_bytes(folder / name, output.MOST_FILE, REMEDY) != made[name].encode():
            found.append(f"{name} is not what the stored curves give.")
    return len(fresh["rows"]), found, kept


def word_of(entry: dict[str, Any], name: str) -> str | None:
    """A word of an entry of `table.json`; None for what is no word."""
    word = entry.get(name)
    return word if isinstance(word, str) else None


def compare_rows(stored: Sequence[Any], fresh: Sequence[dict[str, Any]]) -> list[str]:
    """Differences between the rows as kept and as recomputed."""

    def key(row: Any) -> tuple[Any, ...]:
        return tuple(word_of(row, name) for name in ("task", "method", "metric")) if isinstance(row, dict) else (None,)

    kept, found = {key(row): row for row in stored}, []
    if len(kept) != len(stored):
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


def compare_claims(document: dict[str, Any], fresh: dict[str, Any]) -> list[str]:
    """Differences between the verdicts on claims as kept and as recomputed."""
    claims = document.get("claims") if isinstance(document.get("claims"), list) else []
    kept = {word_of(claim, "claim"): claim.get("verdict") for claim in claims or () if isinstance(claim, dict)}
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
