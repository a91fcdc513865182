"""What an offline GPU node lacks, in one archive: built without an index, unpacked and used as there."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import curiax

SCRIPT = Path(__file__).parent.parent / "scripts" / "gpu_bundle.py"


def bundled(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), "--out", str(out), *options], capture_output=True, text=True)


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
    told = there(out, sys.executable, "-c", "import curiax, carried, beside; print(curiax.__file__, beside.__file__)")
    for path in map(Path, told.split()):
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
    said = done.stderr.splitlines()
    assert "more than --most-mb 0.5" in said[0]
    assert "heavy-1.0-py3-none-any.whl" in said[1]  # the largest first
    assert "--without" in said[-1]
    assert not (tmp_path / "out" / "curiax.tar.xz").exists()


def test_an_unknown_extra_is_refused(tmp_path: Path) -> None:
    done = bundled(tmp_path, "--extras", "atri")
    assert done.returncode == 1
    assert "--extras atri: unknown; there are" in done.stderr
