"""Show in README.md and docs/ what `results/` holds and what the code says, so that they cannot drift.

python scripts/update_docs.py              # rewrite the marked parts
python scripts/update_docs.py --check      # exit 1 if any is out of date or its results are missing

Whoever makes results writes their tables: `curiax reproduce` and `curiax report` a README.md in their folder, the
benchmarks, the soak and `scripts/other_tables.py` a file beside their figures. Here they are only shown. A marked part
begins with `<!-- begin: PART (written by scripts/update_docs.py) -->` and ends with `<!-- end: PART -->`; PART is

* `FILE#HEADING`: that section of a file of `results/`; `FILE#HEADING, table`: its first table alone;
* `made: FOLDER`: who made a folder of results, and the way to its interactive report;
* `figure: FOLDER/NAME`: a picture of a folder;
* a name of `FROM_CODE`: what the code itself says.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from curiax import __version__, cli
from curiax._settings import descriptions, signature
from curiax._text import markdown_table
from curiax.experiments.options import RunOptions
from curiax.experiments.presets import PRESETS
from curiax.experiments.registry import METHODS, TASKS
from curiax.experiments.spec import Experiment, Plan, resolve
from curiax.paper.conflicts import CONFLICTS, HEADLINE, MUJOCO_CONFLICTS, Conflict
from curiax.paper.suites import FROZEN, PLAIN, SUITES
from curiax.report.origin import version
from curiax.report.record import load, read_heading
from curiax.report.words import task_title

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
MARKED = re.compile(r"(<!-- begin: (.+?) \(written by [^>]*\) -->\n)(.*?)(<!-- end: (.+?) -->)", re.DOTALL)
TABLE_ALONE = ", table"


class Missing(Exception):
    """Results that a part needs are not there."""


# --- what results say -------------------------------------------------------------------------------------


def section(what: str) -> str:
    """The text below a heading of a file in `results/`, or the first table of it."""
    file, _, heading = what.partition("#")
    wanted = heading.removesuffix(TABLE_ALONE)
    if not (RESULTS / file).exists():
        raise Missing(f"results/{file} is not there")
    for part in re.split(r"^## ", (RESULTS / file).read_text(), flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        if title.strip() == wanted:
            paragraphs = text.strip().split("\n\n")
            tables = [paragraph for paragraph in paragraphs if paragraph.startswith("|")]
            return tables[0] if heading.endswith(TABLE_ALONE) else text.strip()
    raise Missing(f"results/{file} has no section {wanted!r}")


def figure(what: str, up: str) -> str:
    """A picture of a folder, and the version that trained it where it is another one."""
    folder, _, name = what.partition("/")
    if not (RESULTS / folder / "figures" / f"{name}.png").exists():
        raise Missing(f"results/{folder} has no figure {name}")
    picture = f"![{FIGURES[name]}, {folder}]({up}results/{folder}/figures/{name}.png)"
    tasks: dict[str, list[str]] = {}
    for record in load(RESULTS / folder / "record"):
        tasks.setdefault(version(record), []).append(task_title(record.task))
    if set(tasks) == {__version__}:
        return picture
    if len(tasks) == 1:
        return f"{picture}\n\nTrained by Curiax {next(iter(tasks))}, not by this version."
    of_each = "; ".join(f"{', '.join(dict.fromkeys(names))} by {by}" for by, names in sorted(tasks.items()))
    return f"{picture}\n\nTrained by several versions of Curiax: {of_each}."


#: What each figure shows.
FIGURES = {
    "coverage": "Coverage over training",
    "final": "Final coverage of every line",
    "surprise": "What each model would pay for pressing the remote",
    "occupancy": "Where the agents went",
    "noise": "What the noise is worth to each method",
    "games": "Score, length of episodes and best score over training",
    "ratio": "How much more the unpredictable transition is paid, and what is left of both bonuses",
    "ratio-final": "How much more the unpredictable transition is paid in the end, by every line",
    "samples": "What single transitions are paid at the start and in the end",
}


def made(folder: str) -> str:
    """Which command made a folder, what trained its runs, and the way to its interactive report."""
    file = RESULTS / folder / "README.md"
    if not file.exists():
        raise Missing(f"results/{folder}/README.md is not there")
    by = next(paragraph for paragraph in file.read_text().split("\n\n") if paragraph.startswith("Made by "))
    return (
        f'{by} <a href="reports/{folder}.html">Open the interactive report</a>; all tables, and the numbers behind '
        f"them, are in `results/{folder}/`."
    )


def reports() -> str:
    """Links to every interactive report of the site."""
    lines = []
    for file in sorted(RESULTS.glob("*/README.md")):
        folder = file.parent.name
        if (file.parent / "record").is_dir():
            heading = read_heading(file.parent / "record")
            lines.append(f'* <a href="reports/{folder}.html">{heading.title}</a>: `{heading.command}`')
    return "\n".join(lines)


# --- what the code says -----------------------------------------------------------------------------------


def method_choices(name: str) -> str:
    """The list of choices at the top of a method's file."""
    text = inspect.getdoc(inspect.getmodule(METHODS[name].cls)) or ""
    return re.split(r"^Choices[^\n]*:\n\n", text, flags=re.MULTILINE)[1].strip()


def conflicts() -> str:
    """Every conflict of paper and code, and the value in force under each preset."""
    return f"{conflicts_table(CONFLICTS, (PLAIN, FROZEN))}\n\nTwo values: on tasks without noise / with noise."


def mujoco_conflicts() -> str:
    """Those of the MuJoCo tasks."""
    undecided = [
        f"* {c.topic}: {'' if c.paper == '–' else f'in the paper {c.paper}; '}in the released code {c.code}. Ours: "
        f"{c.ours}."
        for c in MUJOCO_CONFLICTS
        if not c.setting
    ]
    table = conflicts_table([c for c in MUJOCO_CONFLICTS if c.setting], ())
    return "\n".join([table, "", "What no setting decides:", "", *undecided])


def conflicts_table(found: Sequence[Conflict], usual: Sequence[str]) -> str:
    """One line for each conflict, with its own tasks or the usual ones."""
    presets, lines = [name for name, preset in PRESETS.items() if not preset.above], []
    for conflict in found:
        values = []
        for preset in presets:
            plans = [
                resolve(Experiment(task, conflict.method or "lbs", preset=preset)) for task in usual or conflict.tasks
            ]
            values.append(" / ".join(dict.fromkeys(in_force(plan, preset, conflict.setting) for plan in plans)))
        setting = f"`{conflict.setting}`" + (f" ({conflict.method.upper()})" if conflict.method else "")
        lines.append([conflict.topic, conflict.paper, conflict.code, setting, *values])
    header = ["topic", "paper", "released code", "setting", *(f"`{preset}`" for preset in presets)]
    return markdown_table(header, lines)


def in_force(plan: Plan, preset: str, setting: str) -> str:
    """What a preset decides."""
    return PRESETS[preset].headline.partition("/")[2] if setting == HEADLINE else plain(plan.settings[setting])


def plain(value: Any) -> str:
    """A setting's value."""
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def run_options() -> str:
    """How a run is carried out: the options that `run` and `reproduce` share."""
    help_texts = descriptions(RunOptions)
    lines = []
    for name, (_, default) in signature(RunOptions).items():
        cell = "no" if default is False else f"`{default:g}`" if isinstance(default, float) else f"`{default}`"
        lines.append([f"`--{name.replace('_', '-')}`", cell, " ".join(help_texts[name].split())])
    return markdown_table(["option", "default", ""], lines)


def overview() -> str:
    """What `curiax` alone prints, and the names it knows."""
    named = [("methods", METHODS), ("tasks", TASKS), ("suites", SUITES), ("presets", PRESETS)]
    lists = [
        f"**{title}**\n\n" + "\n".join(f"* `{name}`: {entry.summary}" for name, entry in entries.items())
        for title, entries in named
    ]
    return "\n\n".join([f"```text\n{cli.OVERVIEW.strip()}\n```", *lists])


FROM_CODE: dict[str, Callable[[], str]] = {
    "reports": reports,
    "overview": overview,
    "run-options": run_options,
    "conflicts": conflicts,
    "mujoco-conflicts": mujoco_conflicts,
}

# --- documents --------------------------------------------------------------------------------------------


def part(name: str, up: str) -> str:
    """What stands in a marked part; `up` leads from its document to the repository's root."""
    kind, _, about = name.partition(": ")
    if name in FROM_CODE:
        return FROM_CODE[name]()
    if kind == "method-choices":
        return method_choices(about)
    if kind == "figure":
        return figure(about, up)
    if kind == "made":
        return made(about)
    if "#" in name:
        return section(name)
    raise SystemExit(f"No part is called {name!r}: see the top of scripts/update_docs.py.")


def updated(text: str, up: str, missing: list[str]) -> str:
    """A document with its marked parts written anew; parts whose results are missing stay, and are told."""

    def write(found: re.Match[str]) -> str:
        name = found[2]
        if found[5] != name:
            raise SystemExit(f"A part begins as {name!r} and ends as {found[5]!r}.")
        try:
            return f"{found[1]}{part(name, up)}\n{found[4]}"
        except Missing as error:
            missing.append(f"{name}: {error}")
            return found[0]

    if text.count("<!-- begin: ") != len(MARKED.findall(text)):
        raise SystemExit("A marked part does not end, or its first line is not as it must be.")
    return MARKED.sub(write, text)


def main() -> int:
    """Rewrite, or check."""
    check, failed = "--check" in sys.argv[1:], False
    for document in DOCUMENTS:
        missing: list[str] = []
        before = document.read_text()
        after = updated(before, "../" if document.parent != ROOT else "", missing)
        name = document.relative_to(ROOT)
        for what in missing:
            print(f"{name}: {what}", file=sys.stderr)
        failed |= bool(missing)
        if check and before != after:
            print(f"{name} is out of date: run python scripts/update_docs.py", file=sys.stderr)
            failed = True
        if not check and before != after:
            document.write_text(after)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
