"""What a newcomer's machine meets: the Makefile's Python, the browser's script, pinned versions and their bounds."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from parts import PARTS

from curiax.cli.doctor import BEFORE, EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: The Pythons that pyproject.toml names.
PYTHONS = ("3.11", "3.12", "3.13")


def asked(lines: list[str]) -> list[Requirement]:
    """What is asked for, but for Curiax itself with other extras."""
    return [asked for asked in map(Requirement, lines) if asked.name != PROJECT["name"]]


EVERYTHING = asked([*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values())])


def environment(python: str) -> dict[str, str]:
    """The newest that there is of a Python, on Linux."""
    system = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"}
    return {**system, "python_version": python, "python_full_version": f"{python}.99"}


def holds(requirement: Requirement, python: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(environment(python))


# --- versions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("python", PYTHONS)
def test_everything_that_is_asked_for_is_pinned_within_its_bounds(python: str) -> None:
    pins: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        pin = Requirement(line)
        (only,) = pin.specifier
        assert only.operator == "=="
        if holds(pin, python):
            assert pins.setdefault(canonicalize_name(pin.name), only.version) == only.version, f"{pin.name} twice"
    for wanted in EVERYTHING:
        if holds(wanted, python):
            pinned = pins.get(canonicalize_name(wanted.name))
            assert pinned, f"{wanted.name} has no pin for Python {python}: make constraints"
            assert wanted.specifier.contains(pinned), f"{wanted} and its pin {pinned}: make constraints"


def test_the_pythons_are_those_that_the_project_names() -> None:
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if ":: Python ::" in text]
    assert named == list(PYTHONS)


def test_what_users_install_has_upper_bounds() -> None:
    extras = {name: lines for name, lines in PROJECT["optional-dependencies"].items() if name not in ("dev", "docs")}
    unbounded = {
        wanted.name
        for wanted in asked([*PROJECT["dependencies"], *chain(*extras.values())])
        if not any(part.operator in ("<", "<=", "==", "~=") for part in wanted.specifier)
    }
    assert unbounded == {"filelock", "pillow", "rich"}


def test_the_doctor_recommends_extras_that_there_are() -> None:
    assert {*EXTRAS, "cuda", "dmc"} == {*PROJECT["optional-dependencies"]} - {"dev", "docs"}
    assert {*BEFORE} <= {*EXTRAS}


# --- what may be left out -----------------------------------------------------------------------------------


@pytest.mark.parametrize("part", PARTS)
def test_ci_demands_what_may_be_left_out_elsewhere(part: str) -> None:
    variable = f"CURIAX_REQUIRE_{part.upper()}=1"
    assert variable in (ROOT / ".ci" / "run").read_text()
    (row,) = [line for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if f"`{variable}`" in line]
    for word in PARTS[part]:
        assert word in row


# --- the browser --------------------------------------------------------------------------------------------


def stub(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("browser", "films", "user", "installed"),
    [
        (True, True, 0, ""),
        (False, True, 1000, ""),
        (False, True, 0, "chromium chromium-driver"),
        (True, False, 0, "libegl1 libgl1-mesa-dri"),
        (False, False, 0, "chromium chromium-driver libegl1 libgl1-mesa-dri"),
    ],
)
@pytest.mark.parametrize("works", [True, False])
def test_the_browser_is_installed_where_it_may_be(
    tmp_path: Path, browser: bool, films: bool, user: int, installed: str, works: bool
) -> None:
    for name in ("sh", "grep"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    for name in ("chromium", "chromedriver") if browser else ():
        stub(tmp_path, name, "exit 1")
    stub(tmp_path, "ldconfig", "echo libEGL.so.1" if films else "echo libc.so.6")
    stub(tmp_path, "id", f"echo {user}")
    stub(tmp_path, "timeout", 'shift; "$@"')
    stub(tmp_path, "apt-get", f'echo "$@" >>"{tmp_path}/said"; {"exit 0" if works else "echo E: no; exit 100"}')
    script = ROOT / "scripts" / "get_browser.sh"
    done = subprocess.run(["sh", script], env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    calls = (tmp_path / "said").read_text().splitlines() if installed else []
    assert (tmp_path / "said").exists() == bool(installed)
    if installed and works:
        assert calls[-1].endswith(f"install --yes {installed}")
    elif installed:
        assert done.stdout.splitlines()[1:] == ["E: no", f"apt-get could not install {installed}"]
    else:
        assert done.stdout == ""


# --- the Makefile's Python ----------------------------------------------------------------------------------


def made(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`make` of the environment's Python where only the stubs in a folder are on the PATH."""
    command = [str(shutil.which("make")), "-C", str(ROOT), f"VENV={path / 'venv'}", str(path / "venv/bin/python")]
    return subprocess.run([*command, *words], env={"PATH": str(path)}, capture_output=True, text=True)


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    """A folder with a shell, an old Python 3.11 that pyenv only talks about, and one that has no ensurepip."""
    if not shutil.which("make"):
        pytest.skip("there is no make")
    for name in ("sh", "rm", "mkdir"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    stub(tmp_path, "python3.11", "echo 'pyenv: python3.11: command not found' >&2; exit 127")
    stub(tmp_path, "python3.12", "exit 1")
    return tmp_path


def test_the_first_python_that_works_is_taken(stubs: Path) -> None:
    stub(stubs, "python3", 'test "$1" = -c || mkdir -p "$3/bin"')
    done = made(stubs)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"python3 -m venv {stubs / 'venv'}" in done.stdout


def test_a_machine_without_a_python_that_works_is_told_so(stubs: Path) -> None:
    done = made(stubs)
    assert done.returncode == 2
    assert "Curiax needs Python 3.11 or newer with its modules venv and ensurepip" in done.stderr
    assert "none of these has that: python3.11 python3.12 python3.13 python3 python." in done.stderr
    assert "none of these has that: python3.12." in made(stubs, "PYTHON=python3.12").stderr


def test_an_environment_that_could_not_be_made_is_not_taken_for_one(stubs: Path) -> None:
    stub(stubs, "python3", 'test "$1" = -c && exit; mkdir -p "$3/bin"; echo >"$3/bin/python"; exit 1')
    (stubs / "venv").mkdir()
    (stubs / "venv" / "mine").touch()
    assert made(stubs).returncode == 2
    assert {path.name for path in (stubs / "venv").rglob("*")} == {"mine", "bin"}
