"""Every example runs as a user would run it."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


COVERAGE = r"lbs +coverage of each seed: .*\nrandom +coverage of each seed: "
#: What each example ends with.
RESULTS = {
    "new_task.py": COVERAGE,
    "new_host_task.py": COVERAGE,
    "new_method.py": r"EmbeddingDistance +coverage of each seed: .*\nrandom +coverage of each seed: ",
    "bonus_gymnasium_loop.py": r"without bonus +tiles visited: \[\d.* of 256 .*\nwith rnd +tiles visited: \[\d",
    "bonus_cleanrl_style.py": r"without bonus +bins visited: \d+ of 400 .*\nwith lbs +bins visited: \d+ of 400",
    "bonus_sb3_mountain_car.py": r"ppo +flag reached by 0 of 1 seeds\nppo with lbs +flag reached by 1 of 1 seeds",
    "bonus_sb3_own_method.py": r"EmbeddingDistance +bins visited: \d+ of the 91",
}


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_example_runs(example: Path) -> None:
    if "sb3" in example.name and not os.environ.get("CURIAX_REQUIRE_SB3"):
        pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed: pip install '.[sb3]'")
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert re.search(RESULTS[example.name], done.stdout), done.stdout


def test_one_file_agent_takes_another_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings that it gives to LBS are refused by others, so they must not be given to them."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    agent = importlib.import_module("bonus_cleanrl_style")
    monkeypatch.setattr(agent, "UPDATES", 4)  # one episode each
    bins, share = agent.train("rnd", 3)
    assert 0 < bins < 400
    assert 0 <= share <= 1


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
