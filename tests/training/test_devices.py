"""The cache of compiled programs: what a killed process left in it does no harm."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from curiax.train import devices

WHOLE = zlib.compress(random.Random(0).randbytes(5_000) + bytes(3 << 20))
COMPILE = """
import warnings
warnings.simplefilter("error")
import jax
from curiax.train import devices
devices.prepare(1)
print(jax.jit(lambda x: x * 2 + 1)(20.5))
"""


@pytest.mark.parametrize("length", [0, 1, 100, -1])
def test_cut_programs_are_removed_and_whole_ones_stay(length: int, tmp_path: Path) -> None:
    (tmp_path / "whole-cache").write_bytes(WHOLE)
    (tmp_path / "other-cache").write_bytes(b"\x28\xb5\x2f\xfd of another compression")
    (tmp_path / "broken-cache").write_bytes(WHOLE[:length])
    assert devices.remove_broken_programs(tmp_path) == [tmp_path / "broken-cache"]
    assert sorted(path.name for path in tmp_path.glob("*-cache")) == ["other-cache", "whole-cache"]


def test_only_programs_newer_than_the_last_look_are_read(tmp_path: Path) -> None:
    devices.remove_broken_programs(tmp_path)
    old, new = tmp_path / "old-cache", tmp_path / "new-cache"
    for entry in (old, new):
        entry.write_bytes(WHOLE[:100])
    long_ago = (tmp_path / devices.LOOKED_OVER).stat().st_mtime - 2 * devices.SLACK
    os.utime(old, (long_ago, long_ago))
    assert devices.remove_broken_programs(tmp_path) == [new]


def test_a_program_cut_short_is_compiled_again_and_kept(tmp_path: Path) -> None:
    """JAX would warn of it and compile it anew at every start."""
    variables = {**os.environ, "CURIAX_CACHE": str(tmp_path)}

    def entries() -> dict[str, int]:
        done = subprocess.run([sys.executable, "-c", COMPILE], env=variables, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "42.0\n"), done.stderr
        return {path.name: path.stat().st_size for path in tmp_path.glob("*-cache")}

    whole = entries()
    assert whole
    for path in tmp_path.glob("*-cache"):
        path.write_bytes(path.read_bytes()[:200])
    assert entries().keys() == whole.keys()
    assert all(path.stat().st_size > 200 for path in tmp_path.glob("*-cache"))


def test_a_level_of_optimisation_that_the_user_names_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
    assert devices.compiler_options(SimpleNamespace(platform="cpu")) is None
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    assert devices.compiler_options(SimpleNamespace(platform="cpu")) == {"xla_backend_optimization_level": 2}
    assert devices.compiler_options(SimpleNamespace(platform="gpu")) is None


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("CURIAX_CACHE")
    monkeypatch.setattr(Path, "home", nobody)
    kept = SimpleNamespace(jax_num_cpu_devices=2, jax_compilation_cache_dir=None)
    monkeypatch.setattr(devices, "jax", SimpleNamespace(config=kept))  # whose configuration cannot be changed
    with pytest.warns(UserWarning, match="not kept, so each start compiles anew .*CURIAX_CACHE"):
        devices.prepare()
    assert kept.jax_compilation_cache_dir is None
