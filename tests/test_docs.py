"""What the documents say is what the repository holds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from curiax._version import __version__
from curiax.experiments.presets import PRESETS
from curiax.experiments.registry import METHODS
from curiax.experiments.spec import Experiment, resolve

ROOT = Path(__file__).parent.parent
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")]


def test_the_readmes_numbers_come_from_the_results() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "update_readme.py", "--check"], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_method_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    assert [name for name in METHODS if f"`{name}`" not in text] == []


def test_the_table_of_choices_is_what_the_presets_do() -> None:
    """Each row of docs/choices.md that names one setting shows the value in force under each preset."""
    rows = [line.split("|")[1:-1] for line in (ROOT / "docs" / "choices.md").read_text().splitlines() if "| `" in line]
    names = [cell.strip().strip("`") for cell in rows[0][4:]] if rows[0][3].strip() == "setting" else list(PRESETS)
    checked = 0
    for row in rows:
        cells = [cell.strip() for cell in row]
        found = re.match(r"`([a-z]+\.[a-z_]+)`(?! *,)", cells[3])
        if not found or len(cells) != 8:
            continue
        method = "rnd" if "RND" in cells[3] else "lbs"
        for preset, told in zip(names, cells[4:], strict=True):
            tasks = ("mountain-car", "mountain-car-frozen")
            values = [resolve(Experiment(t, method, preset=preset)).settings[found[1]] for t in tasks]
            expected = told.split(" / ") if " / " in told else [told, told]
            assert [f"{v:g}" if isinstance(v, float) else str(v) for v in values] == expected, (found[1], preset)
            checked += 1
    assert checked >= 40


def test_versions_agree() -> None:
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
