"""The short forms of what `make soak` does for hours."""

from __future__ import annotations

from pathlib import Path

import bits
import corruption
import cost
import kill
import memory
import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("compiled_once", "written_at_once")


def test_kill_minus_nine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The short form of soak/kill.py: one kill in the middle of a save, one at the end of the run."""
    monkeypatch.setattr(kill, "SECONDS", 0.1)  # so that a short run has saves
    assert kill.aims(5) == ["save", "save", "any", "save", "end"]
    found = kill.torment(kill.Victim(tmp_path, "mountain-car", "lbs", 163, 40), 2)
    assert found["equal"] == found["finished"] >= 1
    assert len(found["kills"]) == 2
    assert all(each["continued_newest"] for each in found["kills"])


def test_memory_stays_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The short form of soak/memory.py; it has less to average over, so its bound is wider.

    What leaks, leaks with iterations and checkpoints; how long a rollout is does not matter.
    """
    monkeypatch.setattr(memory, "SETTINGS", {**memory.SETTINGS, "loop.rollout": 32})
    found = memory.watched("mountain-car", 150, warm_up=8, seconds=0.02)
    assert found["iterations"] >= 150
    assert found["checkpoints"] >= 50
    assert found["growth_percent"] < 2.0
    assert abs(found["open_files"][1] - found["open_files"][0]) <= memory.MOST_FILES


@pytest.mark.parametrize("iteration", [0.15, 0.8])
def test_the_cost_of_a_checkpoint_is_found_in_a_run_that_slows_down(iteration: float) -> None:
    """Of soak/cost.py: what two iterations were given on top is found, and where nothing was added, nothing is."""
    spent = iteration * np.linspace(0.8, 1.2, 80)
    added = spent.copy()
    added[38:40] += 0.2
    for at in (20, 39, 60):
        assert cost.extra(spent, np.cumsum(spent), at) == pytest.approx(0.0, abs=0.05)
    assert cost.extra(added, np.cumsum(added), 39) == pytest.approx(0.4, abs=0.02)


def test_damaged_files_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The short form of soak/corruption.py: every file of one run's checkpoints, five kinds of damage."""
    monkeypatch.setattr(corruption, "PAUSE", 0.0)  # training waits for every checkpoint anyway
    found = corruption.soak(1, ("random",), ("mountain-car",), 2)
    assert found["misses"] == []
    assert found["files"] >= 12
    for outcomes in found["outcomes"].values():
        assert outcomes["fell back"] > 0


def test_another_seed_disturbs_nobodys_beginning() -> None:
    """Of soak/bits.py, for simulators on the host; tests/test_loop.py has the others."""
    assert bits.undisturbed("half-cheetah", "random")
