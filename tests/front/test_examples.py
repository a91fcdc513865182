"""Every example runs as a user would run it."""

from __future__ import annotations

import importlib
import importlib.util
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from parts import leave_out

EXAMPLES = Path(__file__).parents[2] / "examples"


COVERAGE = r"lbs +coverage of each seed: .*\nrandom +coverage of each seed: "
#: What each example ends with.
RESULTS = {
    "new_task.py": COVERAGE,
    "new_host_task.py": COVERAGE,
    "new_method.py": r"EmbeddingDistance +coverage of each seed: .*\nrandom +coverage of each seed: ",
    "bonus_sb3_mountain_car.py": r"ppo +flag reached by 0 of 1 seeds\nppo with lbs +flag reached by 1 of 1 seeds",
}
#: Those that compare an agent with and without bonus, and how many times the bins the bonus must bring: about half of
#: what it brings on the seed that they have, since the last bits of floats differ between machines.
COMPARED = {"bonus_gymnasium_loop.py": 2.0, "bonus_cleanrl_style.py": 3.0, "bonus_sb3_own_method.py": 2.0}
#: A method that trains a model, beside random actions.
LEARNING = "learning_method.py"
#: Seconds of work that each of these may take.
MOST_SECONDS = 60


def run_example(name: str) -> tuple[str, float]:
    """What the example prints, and the seconds that processors worked on it: other processes do not count."""
    if "sb3" in name and not importlib.util.find_spec("stable_baselines3"):
        leave_out("sb3", "it is not installed")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, check=False, timeout=240)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_every_example_has_a_result() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*RESULTS, *COMPARED, LEARNING, "picture.py"}


@pytest.mark.parametrize("example", sorted(RESULTS))
def test_example_runs(example: str) -> None:
    printed, _ = run_example(example)
    assert re.search(RESULTS[example], printed), printed


def test_the_method_that_learns_explores_more_than_chance() -> None:
    """Three times as much on the seeds that it has."""
    printed, _ = run_example(LEARNING)
    learnt, random = (
        [float(value) for value in re.findall(r"\d+: ([\d.]+)", line)] for line in printed.splitlines()[-2:]
    )
    assert sum(learnt) > 1.5 * sum(random), printed


@pytest.mark.parametrize("example", sorted(COMPARED))
def test_with_the_bonus_the_agent_sees_much_more(example: str) -> None:
    printed, seconds = run_example(example)
    line = r"{} +bins visited: (\d+) of 400 +flag reached in (\d+) of \d+ episodes"
    found = re.search(line.format("without bonus") + r".*\n" + line.format(r"with \w+"), printed)
    assert found, printed
    bins_without, flags_without, bins_with, _ = map(int, found.groups())
    assert bins_with >= COMPARED[example] * bins_without, printed
    # Whether one seed gets to the flag with the bonus depends on the last bits: on the versions of JAX and Python.
    assert flags_without == 0, printed
    assert seconds < MOST_SECONDS


def test_what_examples_print_is_read_for_the_results_and_anything_else_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES.parent / "scripts"))
    script = importlib.import_module("bonus_examples")
    alone = "without bonus  bins visited: 69 of 400   flag reached in 0 of 512 episodes, 0 of the last 20\n"
    with_bonus = "with lbs       bins visited: 301 of 400   flag reached in 113 of 541 episodes, 20 of the last 20\n"
    assert script.read(f"a warning\n{alone}{with_bonus}") == {
        "without bonus": {"bins": 69, "bins_in_all": 400, "flags": 0, "episodes": 512},
        "with lbs": {"bins": 301, "bins_in_all": 400, "flags": 113, "episodes": 541},
    }
    for printed in (alone, with_bonus, ""):
        with pytest.raises(SystemExit, match="not two agents"):
            script.read(printed)


def test_examples_are_not_begun_without_stable_baselines3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES.parent / "scripts"))
    script = importlib.import_module("bonus_examples")
    monkeypatch.setattr(script.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="make sb3"):
        script.ready()


def test_picture_shows_where_each_agent_has_been(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Read back from the pixels: a bin that was visited is coloured, one that was not is as pale as the ground."""
    from PIL import Image

    monkeypatch.syspath_prepend(str(EXAMPLES))
    visits = np.zeros((20, 20), int)
    visits[:10] = 7
    importlib.import_module("picture").draw(tmp_path / "maps.png", {"one": visits, "other": visits[::-1]}, flag=0.5)
    pixels = np.asarray(Image.open(tmp_path / "maps.png").convert("L"), float)
    height, width = pixels.shape
    middle = pixels[height // 2 - 20 : height // 2 + 20].mean(0)
    left_of_one, right_of_one, left_of_other, right_of_other = (
        middle[int(width * at)] for at in (0.15, 0.40, 0.55, 0.80)
    )
    assert left_of_one < 200 < right_of_one
    assert right_of_other < 200 < left_of_other


def test_one_file_agent_takes_another_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings that it gives to LBS are refused by others, so they must not be given to them."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    agent = importlib.import_module("bonus_cleanrl_style")
    monkeypatch.setattr(agent, "UPDATES", 4)  # one episode each
    visits, flags = agent.train("rnd", 3)
    assert visits.sum() == 4 * agent.LENGTH * agent.ENVS
    assert len(flags) == agent.ENVS


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
