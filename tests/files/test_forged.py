"""Folders that were forged on purpose, read by every command while traps lie in the working directory."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from curiax import CuriaxError, Experiment, UsageError, resolve
from curiax.curiosity import LBS, VIME
from curiax.envs import GymnasiumTask, MountainCar
from curiax.experiments.registry import METHODS, TASKS, builtin_method, builtin_task, find_method, find_task, whence

ROOT = Path(__file__).parents[2]
#: What of the soak's forgeries is read here: some names in every place that has one, and a little of all else.
SOME = (
    *(" 'evil:Mine'", "task 'gymnasium:evil:Thing-v0'", "method 'curiax.curiosity.lbs:LBS'"),
    *("nested and closed", "manifest.json is a link to {pipe}", "tensor of holes"),
    *("runs.json is a link to {itself}", "agents.safetensors of 64 GB", "listed place '../../outside.json'"),
    *("task.id ['evil:Mine']", "grids None", "iterations None", "no runs", "a curve game/score", "title '![x][a]"),
    *("maps with missing arrays", "agents.safetensors, very many empty tensors", "a tensor named in two lines"),
    *("remote.noise_dims 300000000", "vime, method.width 100000000", "metrics 'fine."),
)


@pytest.fixture(scope="module")
def forged() -> ModuleType:
    sys.path.insert(0, str(ROOT / "soak"))  # it is a script, with others beside it
    try:
        spec = importlib.util.spec_from_file_location("forged", ROOT / "soak" / "forged.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "soak"))
    return module


@pytest.fixture(scope="module")
def originals(forged: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("forged") / "originals"
    forged.make_originals(place)
    return place


def test_there_are_three_hundred_forgeries(forged: ModuleType) -> None:
    cases = forged.every_case()
    assert len({(what, kind) for what, kind, _ in cases}) == len(cases) >= 300


@pytest.mark.slow
def test_no_forgery_is_imported_or_breaks_a_command(forged: ModuleType, originals: Path) -> None:
    """The short form of `python soak/forged.py`: no import, no write outside, no traceback, below a gigabyte."""
    numbers = [k for k, (what, _, _) in enumerate(forged.every_case()) if any(word in what for word in SOME)]
    assert len(numbers) > 25
    figures = forged.soak(numbers, originals)
    assert figures["misses"] == []
    assert figures["refused"] > 35
    assert figures["read"] > 8  # reports of whatever names, and what names Curiax's own by its path


def test_the_traps_are_traps(forged: ModuleType, originals: Path, tmp_path: Path) -> None:
    """Whoever says `--trust` runs what the file names, from where they are; without it they are told what that is."""
    forged.set_traps(tmp_path / "cwd", tmp_path / "log")
    number = next(k for k, case in enumerate(forged.every_case()) if case[:2] == ("method 'evil:Mine'", "run"))
    forged.forge(originals, tmp_path, [number])
    code = "import sys; from curiax.cli import main; sys.exit(main(sys.argv[1:]))"
    run = tmp_path / "cases" / str(number) / "case"
    words = [sys.executable, "-P", "-c", code, "watch", str(run), "--out", str(tmp_path / "a.gif")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

    def watch(*more: str) -> subprocess.CompletedProcess[str]:
        options = {"cwd": tmp_path / "cwd", "env": environment, "capture_output": True, "text": True}
        return subprocess.run([*words, *more], check=False, **options)

    done = watch()
    assert done.returncode == 2
    remark = f"reading it imports and runs the module 'evil' ({tmp_path / 'cwd' / 'evil' / '__init__.py'})"
    assert done.stderr.startswith(f"curiax: {run} was trained with 'evil:Mine', which is not Curiax's: {remark}. If ")
    assert not (tmp_path / "log").exists()
    watch("--trust")
    assert (tmp_path / "log").read_text() == "evil\n"


def test_names_of_files_are_looked_up_among_our_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    before, modules = [*sys.path], {*sys.modules}
    for name in METHODS:
        assert builtin_method(name) is find_method(name) is METHODS[name]
    for name in TASKS:
        assert builtin_task(name) is find_task(name) is TASKS[name]
    for path in ("curiax.curiosity.vime:VIME", "curiax.curiosity:VIME"):
        entry = builtin_method(path)
        assert entry is not None
        assert (entry.cls, entry) == (VIME, find_method(VIME))
    assert find_method(LBS).name == "curiax.curiosity.lbs:LBS"
    entry = builtin_task("curiax.envs.mountain_car:MountainCar")
    assert entry is not None
    assert (entry.cls, entry) == (MountainCar, find_task(MountainCar))
    entry = builtin_task("gymnasium:CartPole-v1")
    assert entry is not None
    assert entry.cls is GymnasiumTask
    for name in ("evil:Mine", "gymnasium:evil:Thing-v0", "curiax.curiosity:os", "curiax:run", "", "curiax.cli:main"):
        assert builtin_task(name) is builtin_method(name) is None
    assert sys.path == before
    assert "evil" not in {*sys.modules} - modules


@pytest.mark.parametrize(
    ("task", "method", "settings"),
    [
        ("evil:Mine", "lbs", {}),
        ("mountain-car", "evil:Mine", {}),
        ("gymnasium:evil:CartPole-v1", "lbs", {}),
        ("gymnasium:CartPole-v1", "lbs", {"task.id": "evil:CartPole-v1"}),
    ],
)
def test_without_trust_nothing_else_is_set_up(
    task: str, method: str, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    before = [*sys.path]
    with pytest.raises(UsageError, match=r"is not Curiax's own: it would import and run the module 'evil' \(which is "):
        resolve(Experiment(task, method, settings=settings), trust=False)
    assert sys.path == before


@pytest.mark.parametrize("value", [["evil:Mine"], {"evil:Mine": 1}])
def test_without_trust_no_folder_is_searched_for_modules(
    value: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    before = [*sys.path]
    with pytest.raises(CuriaxError):
        resolve(Experiment("gymnasium:CartPole-v1", "lbs", settings={"task.id": value}), trust=False)
    assert sys.path == before


def test_where_a_module_would_come_from_is_told_without_importing_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sly").mkdir()
    (tmp_path / "sly" / "__init__.py").write_text("raise SystemExit")
    for name in ("sly.inner:Mine", "gymnasium:sly.inner:Mine-v0"):
        assert whence(name) == f"the module 'sly.inner' ({tmp_path / 'sly' / '__init__.py'})"
    assert whence("nothing") == "what this version does not know"
    assert "sly" not in sys.modules
