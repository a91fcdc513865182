"""What an offline GPU node lacks, in one archive: built without an index, unpacked and used as there."""

from __future__ import annotations

import io
import os
import platform
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import curiax

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_bundle.py"


def bundled(out: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--out", str(out), *options]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


def there(out: Path, *command: str) -> str:
    """What a command prints on the node: another folder, nothing on the path but what go.sh puts there."""
    (out / "tmp").mkdir(exist_ok=True)
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {**plain, "TMPDIR": str(out / "tmp")}
    done = subprocess.run(
        ["bash", str(out / "go.sh"), *command], capture_output=True, text=True, cwd=out / "tmp", env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def wheel(folder: Path, name: str, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    code = {"carried/__init__.py": b"word = 'carried'", "carried-1.0.data/purelib/beside.py": b"word = 'beside'"}
    wheel(folder, "carried", {**code, "carried-1.0.data/scripts/tool": b"no module"})
    return folder


def test_the_command_runs_from_the_unpacked_tree(tmp_path: Path, wheels: Path) -> None:
    out = tmp_path / "out"
    done = bundled(out, "--wheels", str(wheels))
    assert done.returncode == 0, done.stderr
    assert there(out, sys.executable, "-m", "curiax", "--version") == f"curiax {curiax.__version__}"
    output = there(out, sys.executable, "-c", "import curiax, carried, beside; print(curiax.__file__, beside.__file__)")
    for path in map(Path, output.split()):
        assert path.is_relative_to(out / "tmp")
        assert path.is_file()
    (unpacked,) = (out / "tmp").iterdir()  # unpacked once, and nothing is left beside it
    assert not list(unpacked.rglob("tool"))
    with tarfile.open(out / "curiax.tar.xz") as archive:
        assert not [name for name in archive.getnames() if "__pycache__" in name]


def test_the_command_s_exit_code_and_path_are_kept(tmp_path: Path) -> None:
    assert bundled(tmp_path, "--no-wheels").returncode == 0
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": "/mine"}
    command = ["bash", str(tmp_path / "go.sh"), "bash", "-c", 'echo "$PYTHONPATH"; exit 3']
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 3
    assert done.stdout.strip().endswith("/site:/mine")


def test_a_bundle_that_is_too_large_names_the_largest(tmp_path: Path, wheels: Path) -> None:
    wheel(wheels, "heavy", {"heavy.bin": os.urandom(1 << 20)})
    done = bundled(tmp_path / "out", "--wheels", str(wheels), "--most-mb", "0.5")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert "more than --most-mb 0.5" in lines[0]
    assert "heavy-1.0-py3-none-any.whl" in lines[1]  # the largest first
    assert "--without" in lines[-1]
    assert not (tmp_path / "out" / "curiax.tar.xz").exists()


def test_an_unknown_extra_is_refused(tmp_path: Path) -> None:
    done = bundled(tmp_path, "--extras", "atri")
    assert done.returncode == 1
    assert "--extras atri: unknown; there are" in done.stderr


#: A build backend in a few lines, so that a source distribution is built without an index.
BACKEND = """
import zipfile
from pathlib import Path

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    metadata = Path("PKG-INFO").read_text()
    name, version = (line.partition(": ")[2] for line in metadata.splitlines()[1:3])
    name = name.replace("-", "_")
    info, made = f"{name}-{version}.dist-info", f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / made, "w") as archive:
        for path in filter(Path.is_file, Path("content").rglob("*")):
            archive.writestr(str(path.relative_to("content")), path.read_bytes())
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(f"{info}/RECORD", "")
    return made
"""


def source(folder: Path, name: str, version: str, files: dict[str, bytes], backend: str = BACKEND) -> None:
    """A source distribution, as the index has nes-py's, that asks for a package which is nowhere."""
    system = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: gym-of-old\n"
    inside = {"pyproject.toml": system.encode(), "backend.py": backend.encode(), "PKG-INFO": metadata.encode()}
    with tarfile.open(folder / f"{name}-{version}.tar.gz", "w:gz") as archive:
        for path, content in {**inside, **{f"content/{path}": content for path, content in files.items()}}.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


@pytest.fixture
def offline(tmp_path: Path) -> tuple[Path, list[str], dict[str, str]]:
    """A folder that pip looks into instead of an index, options by which nothing else is packed, pip's settings."""
    folder, present = tmp_path / "sources", tmp_path / "present.txt"
    folder.mkdir()
    project = tomllib.loads((SCRIPT.parent.parent / "pyproject.toml").read_text())["project"]
    present.write_text("\n".join(line.replace(">=", "==").split(",")[0] for line in project["dependencies"]))
    return folder, ["--present", str(present)], {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}


def test_what_plays_mario_is_built_and_packed_without_what_it_needs(
    tmp_path: Path, offline: tuple[Path, list[str], dict[str, str]]
) -> None:
    """Curiax finds library and game there as in an installation, whatever Python the library's name speaks of."""
    folder, options, settings = offline
    rom = b"NES\x1a" + bytes([2, 1, 1, 0]) + bytes(8) + bytes(40_960)
    broken = b"raise ImportError('gym')"
    source(folder, "nes-py", "8.2.1", {"nes_py/__init__.py": broken, "nes_py/lib_nes_env.cpython-39.so": b"machine"})
    games = {"gym_super_mario_bros/__init__.py": broken, "gym_super_mario_bros/_roms/super-mario-bros.nes": rom}
    games |= {"gym_super_mario_bros/_roms/super-mario-bros-2.nes": rom}
    source(folder, "gym-super-mario-bros", "7.4.0", games)
    out = tmp_path / "out"
    done = bundled(out, "--extras", "mario", *options, **settings)
    assert done.returncode == 0, done.stderr
    packed = [line for line in done.stdout.splitlines() if line.endswith(".whl")]
    assert packed == ["gym_super_mario_bros-7.4.0-py3-none-any.whl", "nes_py-8.2.1-py3-none-any.whl"]
    asked = "from curiax.cli.doctor import mario_works; from curiax.envs.mario import library, rom_path; "
    output = there(out, sys.executable, "-c", asked + "print(library(), rom_path(), mario_works(), sep='\\n')")
    machine, game, works = output.splitlines()
    assert Path(machine).is_relative_to(out / "tmp")
    assert (Path(machine).read_bytes(), Path(game).read_bytes()) == (b"machine", rom)
    assert works.startswith("works; version of the game: unknown (SHA-1 ")


def test_other_packages_are_built_when_asked_for(
    tmp_path: Path, offline: tuple[Path, list[str], dict[str, str]]
) -> None:
    folder, options, settings = offline
    source(folder, "made", "1.0", {"made.py": b"word = 'made'"})
    done = bundled(tmp_path / "out", "--extras", "--build", "made", *options, **settings)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / "out" / "curiax.tar.xz") as archive:
        assert "site/made.py" in archive.getnames()
    # For a machine of another kind nothing can be built here.
    system = "manylinux2014_" + ("x86_64" if platform.machine() == "aarch64" else "aarch64")
    done = bundled(tmp_path / "no", "--extras", "--build", "made", "--platform", system, *options, **settings)
    assert done.returncode == 1
    assert f"--platform {system}: made would be built for this machine" in done.stderr


def test_what_cannot_be_built_says_why(tmp_path: Path, offline: tuple[Path, list[str], dict[str, str]]) -> None:
    folder, options, settings = offline
    source(folder, "made", "1.0", {}, backend="raise RuntimeError('no such compiler')")
    # Nothing on the path: no compiler either.
    done = bundled(tmp_path / "out", "--extras", "--build", "made", *options, **settings, PATH="")
    assert done.returncode == 1
    assert "pip wheel failed" in done.stderr
    assert "no such compiler" in done.stderr
    assert done.stderr.strip().endswith("There is no C++ compiler, which nes-py needs: apt-get install g++.")
    assert not (tmp_path / "out").exists()
