"""What the documents say is what the repository holds."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from curiax._version import __version__
from curiax.experiments.presets import PRESETS
from curiax.experiments.registry import METHODS, TASKS
from curiax.experiments.spec import Experiment, resolve
from curiax.paper.conflicts import CONFLICTS, HEADLINE, MUJOCO_CONFLICTS
from curiax.paper.suites import SUITES

ROOT = Path(__file__).parents[2]
DOCS, RESULTS = ROOT / "docs", ROOT / "results"
DOCUMENTS = [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *(ROOT / "benchmarks").glob("*.md")]


def script(path: str) -> ModuleType:
    """A script of the repository as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def update_docs() -> ModuleType:
    return script("scripts/update_docs.py")


def test_the_numbers_come_from_the_results() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "update_docs.py", "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_kept_tables_are_what_their_figures_give() -> None:
    """Those of folders of runs `curiax verify` recomputes; these are the others."""
    benchmarks, soak, others = (
        script(f"{name}.py") for name in ("benchmarks/tables", "soak/tables", "scripts/other_tables")
    )
    assert benchmarks.page(RESULTS / "benchmarks") == (RESULTS / "benchmarks" / "README.md").read_text()
    figures = json.loads((RESULTS / "reliability.json").read_text())
    assert soak.page(figures) == (RESULTS / "reliability.md").read_text()
    assert others.page(RESULTS) == (RESULTS / "others.md").read_text()


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ("nowhere/README.md#All tasks", "results/nowhere/README.md is not there"),
        ("mountain-car/README.md#Nothing", "results/mountain-car/README.md has no section 'Nothing'"),
        ("figure: mountain-car/samples", "results/mountain-car has no figure samples"),
        ("made: nowhere", "results/nowhere/README.md is not there"),
    ],
)
def test_results_that_are_not_there_are_told_and_their_part_stays(update_docs: ModuleType, part: str, why: str) -> None:
    text = f"<!-- begin: {part} (written by x) -->\nas it was\n<!-- end: {part} -->"
    missing: list[str] = []
    assert update_docs.updated(text, "", missing) == text
    assert missing == [f"{part}: {why}"]


@pytest.mark.parametrize(
    "part",
    [
        "<!-- begin: nonsense (written by x) -->\n<!-- end: nonsense -->",
        "<!-- begin: overview (written by x) -->\n<!-- end: conflicts -->",
        "<!-- begin: overview (written by x) -->\nwithout an end",
    ],
)
def test_marks_that_mean_nothing_are_refused(update_docs: ModuleType, part: str) -> None:
    with pytest.raises(SystemExit):
        update_docs.updated(part, "", [])


def test_a_part_is_written_anew(update_docs: ModuleType) -> None:
    part = "before\n<!-- begin: conflicts (written by x) -->\nstale\n<!-- end: conflicts -->\nafter\n"
    after = update_docs.updated(part, "", [])
    assert "stale" not in after
    assert "`ppo.entropy_weight`" in after
    assert after.startswith("before\n")
    assert after.endswith("\nafter\n")


def test_a_section_of_results_is_shown_whole_or_its_table_alone(
    update_docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").mkdir()
    page = "# One\n\n## First\n\n| a |\n| --- |\n\nA note.\n\n## Second\n\n- a finding\n"
    (tmp_path / "one" / "README.md").write_text(page)
    monkeypatch.setattr(update_docs, "RESULTS", tmp_path)
    assert update_docs.section("one/README.md#First") == "| a |\n| --- |\n\nA note."
    assert update_docs.section("one/README.md#First, table") == "| a |\n| --- |"
    assert update_docs.section("one/README.md#Second") == "- a finding"


def test_measurements_on_the_host_become_tables(tmp_path: Path) -> None:
    one = {
        "method": "lbs",
        "seeds": 8,
        "seconds": {"training": 8.0, "physics": 5.0, "learner": 2.0},
        "ratio_to_sum": 8 / 7,
        "ratio_to_physics": 1.6,
        "physics_paths": {"batch": 60_000.0},
        "profile": {"physics": 1.5, "learning": 0.5},
    }
    targets = [
        {"name": "half-cheetah: training over physics + learner", "kind": "at most", "bound": 1.1, "met": False},
        {"name": "ant-maze: training over physics", "kind": "at most", "bound": 1.75, "met": True},
    ]
    data = {"repeats": {"half-cheetah": one, "ant-maze": one}, "machine": {"cores": 2, "cpu": "X"}, "targets": targets}
    (tmp_path / "host.json").write_text(json.dumps(data))
    tables = script("benchmarks/tables.py")
    ratios = tables.host_ratios(tmp_path).splitlines()
    assert ratios[2] == "| Half-Cheetah, `lbs`, 8 seeds | 8.00 | 5.00 | 2.00 | 1.14 (missed)<br>at most 1.1 | 1.60 |"
    assert ratios[3].endswith("| 1.14 | 1.60<br>at most 1.75 |")
    assert "| physics | 1.500 s, 75 % | 1.500 s, 75 % |" in tables.host_profile(tmp_path)
    assert "| batch | 60,000 | 60,000 |" in tables.host_paths(tmp_path)
    assert ratios[-1].endswith("2 cores of X; `python benchmarks/host.py`.")
    assert "## One lane" in tables.page(tmp_path)
    assert "## Plain PPO" not in tables.page(tmp_path)  # nothing was measured of it


def test_what_was_measured_of_reliability_becomes_a_table_that_hides_no_failure() -> None:
    tables = script("soak/tables.py")
    growth: dict[str, object] = {"growth_percent": 3.25, "growth_percent_since_the_first_checkpoint": 4.5}
    growth["megabytes"] = {"first_iteration": 100.0, "first_checkpoint": 130.0}
    runs = [{"task": "mountain-car", "iterations": 9, "checkpoints": 5, "warm_up": {"checkpoints": 2}, **growth}]
    entry = {"runs": runs, "commit": "abc", "python": "3.11", "passed": False}
    lines = tables.page({"memory": entry}).splitlines()
    (memory,) = [line for line in lines if "+3.25 % during 5 checkpoints (+4.50 % counted from the first" in line]
    assert memory.endswith("| **no** |")
    assert sum("not measured yet" in line for line in lines) == len(tables.SOAKS) - 1


def test_an_example_tells_where_an_earlier_run_differed_and_how_it_was_compiled(tmp_path: Path) -> None:
    def agents(bins: int) -> dict[str, dict[str, int]]:
        counted = {"flags": 2, "episodes": 5, "bins_in_all": 400}
        return {"without bonus": {"bins": 50, **counted}, "with lbs": {"bins": bins, **counted}}

    rows = [{"seed": seed, "agents": agents(300 + seed), "cpu_seconds": 20.6} for seed in (0, 200)]
    other = {"XLA_FLAGS": "--x", "seed": 0, "agents": agents(111)}
    found = {"command": "python examples/one.py --seed SEED", "results": rows, "compiled_otherwise": [other]}
    earlier = {"seeds": [0, 200], "without bonus": {"bins": [50, 50]}, "with lbs": {"bins": [300, 500]}}
    machine = {"cores": 2, "commit": "0123456789", "command": "python scripts/bonus_examples.py"}
    notes = {"settings": "chosen on the seed 7", "earlier": earlier}
    kept = {"machine": machine, "examples": {"one": found}, "notes": {"one": notes}}
    tables = script("scripts/other_tables.py")
    (tmp_path / "bonus-examples.json").write_text(json.dumps(kept))
    text = tables.example("one", tmp_path)
    assert "| 200 | 50; 2 of 5 | 500; 2 of 5 |" in text
    assert "with `XLA_FLAGS='--x'` seed 0 saw 111 bins with lbs" in text
    assert "with 2 cores to use; both trainings together took 21 s of CPU at most" in text
    assert "before the last changes to `Bonus`, saw the same" in text
    earlier["with lbs"]["bins"] = [301, 500]
    (tmp_path / "bonus-examples.json").write_text(json.dumps(kept))
    assert "saw 301, 500 bins with lbs" in tables.example("one", tmp_path)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("document", ["README.md", "docs/methods.md"])
def test_every_method_is_there(document: str) -> None:
    text = (ROOT / document).read_text()
    assert [name for name in METHODS if f"`{name}`" not in text] == []


def test_every_suite_is_in_the_results() -> None:
    text = (DOCS / "results.md").read_text()
    shown = [name for name, suite in SUITES.items() if not suite.has_games]  # docs/arcade.md tells of the others
    assert [name for name in shown if f"<!-- begin: made: {name} " not in text] == []
    text = (DOCS / "arcade.md").read_text()
    assert [name for name, suite in SUITES.items() if suite.has_games and f"`{name}`" not in text] == []


def test_every_page_is_in_a_toctree() -> None:
    trees = re.findall(r"```{toctree}\n(.*?)```", (DOCS / "index.md").read_text(), re.DOTALL)
    listed = {line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")}
    assert listed == {page.stem for page in DOCS.glob("*.md")} - {"index"}


def test_pages_name_no_place_on_our_machines() -> None:
    for page in DOCS.glob("*.md"):
        assert not re.search(r"/work/|/home/|/tmp/", page.read_text()), page.name


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Strictly, links and API names included. The reports have tests of their own; here they are stubs."""
    options = ["-W", "--keep-going", "-n", "-q", "-E", "-D", "curiax_reports=stub", "-d", str(tmp_path / "trees")]
    command = [sys.executable, "-m", "sphinx", *options, "-b", "html", str(DOCS), str(tmp_path / "html")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = {page.name: page.read_text() for page in (tmp_path / "html").glob("*.html")}
    for name, text in pages.items():
        fetched = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//[^"]*"', text)
        assert fetched == [], f"{name} fetches from the network"
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML"' in pages["methods.html"]


def test_the_table_of_choices_is_what_the_presets_do() -> None:
    """Each row of docs/choices.md that names one setting shows the value in force under each preset."""
    rows = [line.split("|")[1:-1] for line in (DOCS / "choices.md").read_text().splitlines() if "| `" in line]
    names = (
        [cell.strip().strip("`") for cell in rows[0][4:]]
        if rows[0][3].strip() == "setting"
        else [name for name, preset in PRESETS.items() if not preset.above]
    )
    cars = ("mountain-car", "mountain-car-frozen")
    of_topic = {conflict.topic: cars for conflict in CONFLICTS} | {c.topic: c.tasks for c in MUJOCO_CONFLICTS}
    checked = 0
    for row in rows:
        cells = [cell.strip() for cell in row]
        found = re.match(r"`([a-z]+\.[a-z_]+)`(?! *,)", cells[3]) if len(cells) == 8 else None
        if len(cells) == 8 and cells[3] == f"`{HEADLINE}`":
            assert cells[4:] == [PRESETS[preset].headline.partition("/")[2] for preset in names]
            checked += len(names)
        if not found:
            continue
        method = "rnd" if "RND" in cells[3] else "lbs"
        for preset, entry in zip(names, cells[4:], strict=True):
            tasks = of_topic[cells[0]]
            values = [resolve(Experiment(t, method, preset=preset)).settings[found[1]] for t in tasks]
            expected = entry.split(" / ") if " / " in entry else [entry] * len(tasks)
            shown = ["none" if v is None else f"{v:g}" if isinstance(v, float) else str(v) for v in values]
            assert shown == expected, (found[1], preset)
            checked += 1
    assert checked >= 70


def test_every_conflict_is_told() -> None:
    text = (DOCS / "choices.md").read_text()
    assert [c.topic for c in (*CONFLICTS, *MUJOCO_CONFLICTS) if c.topic not in text] == []


def test_every_task_is_in_the_readme() -> None:
    assert [name for name in TASKS if f"`{name}`" not in (ROOT / "README.md").read_text()] == []


def test_versions_agree() -> None:
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
