"""Runs that were ended on purpose, made once for all tests of runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from stopped import EVERY_BORDER, At, crash, experiment, wait_for_saves

import curiax


@pytest.fixture
def written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training waits for every checkpoint, so that tests know which ones there are."""
    wait_for_saves(monkeypatch)


@pytest.fixture(scope="session")
def crashed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `experiment()`, which was ended at its fifth iteration, with a checkpoint after each."""
    out = tmp_path_factory.mktemp("crashed") / "run"
    with pytest.MonkeyPatch.context() as patch:
        wait_for_saves(patch)
        with pytest.raises(MemoryError):
            curiax.run(experiment(), out, progress=At(5, crash), options=EVERY_BORDER)
    return out


@pytest.fixture
def crashed(crashed_once: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(crashed_once, tmp_path / "run"))


@pytest.fixture(scope="session")
def true_digest() -> str:
    """Of `experiment()`, run by nobody disturbed."""
    return curiax.run(experiment()).manifest["digest"]
