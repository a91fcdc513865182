"""What the runs of a record were trained with, and whether that is the present code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from .._errors import CuriaxError
from .._source import Code, code, gives_the_same
from .._version import __version__
from .record import Record


def version(record: Record) -> str:
    """The version of Curiax that a run was trained with."""
    return record.facts["identity"].get("curiax", "of an unknown version")


def source(record: Record) -> Code | None:
    """The code that a run was trained with; runs of versions before 0.5 do not tell."""
    facts = record.facts.get("code")
    return Code(facts["commit"], facts["changed"], facts["digest"]) if facts else None


def of_manifest(manifest: Mapping[str, Any]) -> list[str]:
    """Version and commit of one run."""
    facts = manifest.get("code")
    by = Code(facts["commit"], facts["changed"], facts["digest"]) if facts else "a commit that was not recorded"
    return [f"Curiax {manifest['identity'].get('curiax', 'of an unknown version')} at {by}"]


def trained_by(records: Sequence[Record]) -> list[str]:
    """Version and commit of all runs, each once."""
    origins = {
        f"Curiax {version(record)} at {source(record) or 'a commit that was not recorded'}" for record in records
    }
    return sorted(origins)


def warnings(records: Sequence[Record]) -> list[str]:
    """What a reader must know who expects these numbers of the present code."""
    found = []
    for other in sorted({version(record) for record in records} - {__version__}):
        count = sum(version(record) == other for record in records)
        found.append(f"{count} of {len(records)} runs were trained by Curiax {other}; this is {__version__}.")
    same = [record for record in records if version(record) == __version__]
    digests = [origin.digest if (origin := source(record)) else None for record in same]
    if changed := sum(digest is not None and not gives_the_same(digest) for digest in digests):
        found.append(
            f"{changed} of {len(records)} runs were trained with other code than the present, which may give other "
            f"numbers (this is {code()})."
        )
    if unknown := digests.count(None):
        found.append(f"{unknown} of {len(records)} runs do not tell which code they were trained with.")
    lines: dict[str, list[str]] = defaultdict(list)
    for record in records:
        for difference in now_differs(record):
            lines[difference].append(f"{record.label} on {record.task}")
    for difference, runs in sorted(lines.items()):
        more = f" and {len(runs) - 3} more" if len(runs) > 3 else ""
        found.append(f"the same command {difference}: {', '.join(runs[:3])}{more}.")
    return found


def now_differs(record: Record) -> list[str]:
    """How the same experiment would be set up otherwise now: a setting has another value, or it is refused.

    Says nothing of users' own tasks and methods, which would be imported, nor where settings of the task or the remote
    were given: the task is constructed here, and a file could name any size.
    """
    from ..experiments.registry import AGENTS, METHODS, TASKS
    from ..experiments.spec import Experiment, resolve

    data, had = record.facts.get("experiment") or {}, record.facts["identity"]
    given: dict[str, Any] = data.get("settings", {})
    agent = data.get("agent", "")
    if data.get("task") not in TASKS or data.get("method") not in METHODS or agent not in ("", *AGENTS):
        return []
    if any(name.startswith(("task.", "remote.")) for name in given):
        return []
    try:
        preset = data.get("preset", "paper-code")
        experiment = Experiment(data["task"], data["method"], 1, data["steps"], preset, given, agent=agent)
        now = resolve(experiment, trust=False)
    except CuriaxError as error:
        return [f"is refused now ({error})"]
    then = {"steps": had.get("steps"), **had["settings"]}
    # A setting that an older version had not, or that is left to the task now, says nothing.
    values = {name: value for name, value in {"steps": now.steps, **now.settings}.items() if value is not None}
    other = {name: value for name, value in values.items() if name in then and then[name] != value}
    return [f"trains with {name} = {value} now ({then[name]} then)" for name, value in other.items()]
