"""Every example runs as a user would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_example_runs(example: Path) -> None:
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "coverage of each seed" in done.stdout


def test_examples_by_name_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands in the examples' own docstrings: module:Class, with a setting, and the noisy TV."""
    from curiax.experiments.spec import Experiment, resolve

    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    settings = {"method.width": 128, "remote.mode": "frozen"}
    plan = resolve(Experiment("new_task:Puck", "new_method:EmbeddingDistance", settings=settings))
    assert plan.setup.task.spec.obs_shape == (5,)
    assert plan.settings["method.width"] == 128
    hosted = resolve(Experiment("new_host_task:Boat", "lbs", settings={"task.whirl": 0.1, "remote.mode": "frozen"}))
    assert hosted.setup.task.spec.obs_shape == (5,)
    assert hosted.settings["task.whirl"] == 0.1
