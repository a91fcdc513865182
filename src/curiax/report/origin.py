"""What the runs of a record were trained with, and whether that is the present code."""

from __future__ import annotations

from collections.abc import Sequence

from .._source import Code, code
from .._version import __version__
from .record import Record


def version(record: Record) -> str:
    """The version of Curiax that a run was trained with."""
    return record.facts["identity"].get("curiax", "of an unknown version")


def source(record: Record) -> Code | None:
    """The code that a run was trained with; runs of versions before 0.5 do not tell."""
    told = record.facts.get("code")
    return Code(told["commit"], told["changed"], told["digest"]) if told else None


def trained_by(records: Sequence[Record]) -> list[str]:
    """Version and commit of all runs, each once."""
    told = {f"Curiax {version(record)} at {source(record) or 'a commit that was not recorded'}" for record in records}
    return sorted(told)


def warnings(records: Sequence[Record]) -> list[str]:
    """What a reader must know who expects these numbers of the present code."""
    found = []
    for other in sorted({version(record) for record in records} - {__version__}):
        count = sum(version(record) == other for record in records)
        found.append(f"{count} of {len(records)} runs were trained by Curiax {other}; this is {__version__}.")
    same = [record for record in records if version(record) == __version__]
    digests = [told.digest if (told := source(record)) else None for record in same]
    if changed := sum(digest is not None and digest != code().digest for digest in digests):
        found.append(
            f"{changed} of {len(records)} runs were trained with other code than the present, which may give other "
            f"numbers (this is {code()})."
        )
    if unknown := digests.count(None):
        found.append(f"{unknown} of {len(records)} runs do not tell which code they were trained with.")
    return found
