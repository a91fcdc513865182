"""Arcade games by name, in suites and in reports: against the paper's settings and the authors' own curves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from curiax import UsageError
from curiax.cli import main
from curiax.cli.doctor import mario_works
from curiax.envs import Mario, mario
from curiax.envs.atari import PAPER
from curiax.experiments.registry import METHODS, TASKS, find_task
from curiax.experiments.reproduce import experiments, lead, on_games
from curiax.experiments.saved import foreign
from curiax.experiments.spec import Experiment, resolve
from curiax.experiments.suites import ARCADE, MARIO, SUITES

pytest.importorskip("ale_py")


# --- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spelling", ["space_invaders", "SpaceInvaders", "Space Invaders", "space-invaders", "SPACEINVADERS"]
)
def test_a_game_has_one_name_however_it_is_spelt(spelling: str) -> None:
    assert find_task(f"atari:{spelling}") is TASKS["atari:space_invaders"]


def test_any_game_of_ale_py_is_a_task() -> None:
    entry = find_task("atari:Pitfall")
    assert entry.name == "atari:pitfall"
    assert entry.settings == {**TASKS["atari:pong"].settings, "task.game": "pitfall"}
    assert resolve(Experiment("atari:Pitfall", "lbs")).identity["task"] == "atari:pitfall"
    with pytest.raises(UsageError, match=r"unknown game 'pitfal'\. Did you mean 'pitfall'"):
        find_task("atari:pitfal")


def test_without_ale_py_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    for name in ("atari:breakout", "atari:Pitfall"):
        with pytest.raises(UsageError, match=r"pip install 'curiax\[atari\]'"):
            resolve(Experiment(name, "lbs"))


def test_a_game_brings_no_code_of_somebody_elses() -> None:
    told = {"task": "atari:Pitfall", "method": "lbs", "settings": {}}
    assert foreign(told) == []
    assert foreign({**told, "task": "atari_games:Pitfall"}) == ["atari_games:Pitfall"]


@pytest.mark.parametrize("task", ARCADE)
def test_games_are_trained_on_as_in_the_paper(task: str) -> None:
    """The table of arcade settings in the released code's README and arguments; β of the appendix."""
    plan = resolve(Experiment(task, "lbs"))
    expected = {
        "loop.envs": 128,
        "loop.rollout": 128,
        "loop.normalise_obs": True,
        "loop.obs_clip": 1e6,
        "ppo.epochs": 3,
        "ppo.minibatch_size": 2048,
        "ppo.learning_rate": 1e-4,
        "ppo.clip": 0.1,
        "ppo.entropy_weight": 0.001,
        "ppo.discount": 0.99,
        "learner.epochs": 3,
        "learner.minibatch_size": 2048,
        "learner.learning_rate": 1e-4,
        "method.beta": 0.01,
        "method.target": "features",
    }
    assert {name: plan.settings[name] for name in expected} == expected
    assert (plan.iterations, plan.steps) == (6103, 6103 * 16_384)
    pixels = resolve(Experiment(task, "lbs-pixels")).settings
    assert (pixels["method.beta"], pixels["method.target"]) == (1.0, "pixels")


# --- suites -----------------------------------------------------------------------------------------------


def test_the_arcade_suites_are_the_papers_nine_games_and_five_seeds() -> None:
    assert len(ARCADE) == 9
    assert (*(f"atari:{game}" for game in PAPER), "mario") == ARCADE
    for name in ("arcade", "arcade-pixels"):
        assert (SUITES[name].tasks, SUITES[name].seeds, SUITES[name].has_games) == (ARCADE, 5, True)
    assert all(variant.method in METHODS for name in ("arcade", "arcade-pixels") for variant in SUITES[name].variants)
    assert not any(suite.has_games for name, suite in SUITES.items() if not name.startswith("arcade"))


def test_games_are_picked_once_each_in_any_spelling() -> None:
    suite = on_games(SUITES["arcade"], ["Breakout,atari:qbert", "breakout", "pitfall,"])
    assert suite.tasks == ("atari:breakout", "atari:qbert", "atari:pitfall")
    found = experiments(suite, methods=["lbs"], seeds=1, steps=2_000_000, preset=None)
    assert [e.task for e in found] == list(suite.tasks)
    assert lead(on_games(SUITES["arcade-pixels"], ["pong"]), found[:1]).startswith("lbs on Arcade, pixels predicted. ")
    assert on_games(SUITES["arcade"], ["Mario"]).tasks == (MARIO,)


def test_a_game_that_is_not_installed_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: Mario) -> None:
        raise UsageError("task 'mario' needs the game: pip install 'curiax[mario]'.")

    monkeypatch.setattr(Mario, "require", missing)
    with pytest.raises(UsageError, match=r"curiax\[mario\].*--games beam_rider,.*,space_invaders$"):
        experiments(SUITES["arcade"], methods=None, seeds=1, steps=None, preset=None)
    with pytest.raises(UsageError, match=r"curiax\[mario\]'\.$"):
        experiments(on_games(SUITES["arcade"], ["mario"]), methods=None, seeds=1, steps=None, preset=None)
    experiments(on_games(SUITES["arcade"], ["pong"]), methods=None, seeds=1, steps=None, preset=None)


def test_nothing_is_trained_where_a_game_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mario.importlib.util, "find_spec", lambda name: None)
    assert main(["reproduce", "arcade"]) == 2
    assert "Or leave this game out: --games beam_rider," in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_commands_tell_of_games(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert "any other game of ale-py, as atari:pitfall" in text
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    assert "any game of ale-py" in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_the_doctor_looks_for_mario_without_importing_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mario.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="nes_py"):
        mario_works()
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(tmp_path))
    for package in ("nes_py", "gym_super_mario_bros"):
        (tmp_path / package / "_roms").mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("raise ValueError('imported')")
    (tmp_path / "nes_py" / "lib_nes_env.so").touch()
    rom = b"NES\x1a" + bytes([2, 1, 1, 0]) + bytes(8) + bytes(40_960)
    (tmp_path / "gym_super_mario_bros" / "_roms" / "super-mario-bros.nes").write_bytes(rom)
    assert mario_works() == "works; version of the game: unknown"
