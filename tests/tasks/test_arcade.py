"""Arcade games by name, in suites and in reports: against the paper's settings and the authors' own curves."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.stats
from synthetic import game_manifest, game_metrics, manifest, metrics

from curiax import UsageError
from curiax._errors import OutputError
from curiax.cli import main
from curiax.cli._result import run_summary, run_text
from curiax.cli._tables import print_content
from curiax.cli.doctor import mario_works
from curiax.envs import Mario, mario
from curiax.envs.atari import PAPER
from curiax.experiments import reproduce
from curiax.experiments.progress import Lines
from curiax.experiments.registry import METHODS, TASKS, find_task, foreign
from curiax.experiments.reproduce import experiments, lead, on_games
from curiax.experiments.run import RunResult
from curiax.experiments.spec import Experiment, resolve
from curiax.paper.published import references
from curiax.paper.suites import ARCADE, MARIO, SUITES
from curiax.report import games, statistics
from curiax.report.assemble import assemble, distinct
from curiax.report.content import Content
from curiax.report.game_tables import game_notices
from curiax.report.page import page
from curiax.report.publish import publish, verify
from curiax.report.record import Heading, Record, check_complete, condense, load, read_heading, save
from curiax.report.table import rows

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
    assert foreign("atari:Pitfall", "lbs", {}) == []
    assert foreign("atari_games:Pitfall", "lbs", {}) == ["atari_games:Pitfall"]


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
    assert lead(on_games(SUITES["arcade-pixels"], ["pong"]), found[:1]).startswith("lbs on atari:pong. ")
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


def rom_file(path: Path) -> Path:
    """A file of the right size that no emulator could play."""
    path.write_bytes(b"NES\x1a" + bytes([2, 1, 1, 0]) + bytes(8) + bytes(40_960))
    return path


def test_a_suite_plays_a_rom_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Mario, "require", lambda self: None)  # whether a machine is installed or not
    rom_file(tmp_path / "my own.nes")
    trained: list[Experiment] = []

    def train(chosen: list[Experiment], *_: Any) -> list[Any]:
        trained.extend(chosen)
        return [
            SimpleNamespace(plan=resolve(each), manifest=facts, metrics=frame_of(each.task, 1.0, 2, 40))
            for each in chosen
            for facts in [game_manifest(each.task, each.method, range(2), 40, settings=each.settings)]
        ]

    monkeypatch.setattr(reproduce, "train_suite", train)
    line = ["reproduce", "arcade", "--games", "pong,mario", "--methods", "lbs", "--seeds", "2", "--rom", "my own.nes"]
    assert main([*line, "--quiet"]) == 0
    assert {each.task: each.settings for each in trained} == {"atari:pong": {}, "mario": {"task.rom": "my own.nes"}}
    assert {each.label for each in trained} == {"lbs"}
    assert main(["verify", "runs/arcade"]) == 0
    kept = read_heading(tmp_path / "runs" / "arcade" / "record").command
    assert kept == "curiax reproduce arcade --methods lbs --games pong,mario --rom 'my own.nes' --seeds 2"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("arcade --games pong --rom mine.nes", r"--rom mine\.nes: .*not among what is run.*--games mario\.$"),
        ("mountain-car --rom mine.nes", r"--rom mine\.nes: .*not among what is run.*take the suite arcade\.$"),
        ("arcade --games pong,mario --rom gone.nes", r"task\.rom = 'gone\.nes': cannot be read"),
        ("arcade --games pong,mario --rom wrong.nes", r"task\.rom = 'wrong\.nes': not a ROM file"),
    ],
)
def test_a_rom_that_cannot_be_played_is_refused_before_training(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    rom_file(tmp_path / "mine.nes")
    (tmp_path / "wrong.nes").write_bytes(b"no game")
    assert main(["reproduce", *line.split()]) == 2
    assert re.search(message, capsys.readouterr().err.strip(), re.DOTALL)
    assert not (tmp_path / "runs").exists()


def test_whoever_brings_a_rom_is_not_told_to_leave_the_game_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unplayable(self: Mario) -> None:
        raise UsageError("task.rom: the game does not begin.")

    monkeypatch.setattr(Mario, "require", unplayable)
    suite, rom = on_games(SUITES["arcade"], ["pong", "mario"]), str(rom_file(tmp_path / "mine.nes"))
    with pytest.raises(UsageError, match=r"does not begin\.$"):
        experiments(suite, methods=["lbs"], seeds=1, steps=None, preset=None, rom=rom)


def test_the_commands_tell_of_games(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert "any other game of ale-py, as atari:pitfall" in text
    assert main(["reproduce", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "any game of ale-py" in text
    assert "a ROM file of Super Mario Bros. that you own" in text


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
    assert mario_works() == f"works; version of the game: unknown (SHA-1 {hashlib.sha1(rom[16:]).hexdigest()})"


# --- the authors' curves ----------------------------------------------------------------------------------


def test_the_authors_curves_are_those_of_the_nine_games() -> None:
    """Numbers from the table of the specification, which was decoded from the authors' files independently."""
    assert set(references()) == set(ARCADE)
    breakout, mario_curve = references()["atari:breakout"], references()["mario"]
    assert (breakout.at(10_000_000), breakout.at(10_000_000, breakout.length)) == (53.97, 1206.3)
    assert breakout.at(15_000_000) == pytest.approx((53.97 + 245.49) / 2)
    assert breakout.at(10_000_000, breakout.spread) == 8.7
    assert breakout.at(249_999) is breakout.at(100_000_001) is None
    assert mario_curve.steps[0] == 500_000, "before that no episode of Super Mario Bros. had ended"
    final = {task: round(curve.at(100_000_000) or 0) for task, curve in references().items()}
    assert final["atari:montezuma_revenge"] == 294
    assert final["atari:pong"] == -1
    assert breakout.moments(3_000_000) == [250_000, 500_000, 1_000_000, 2_000_000, 3_000_000]
    assert breakout.moments(500_000) == [250_000, 500_000]
    assert breakout.moments(100_000) == []


def test_an_agreement_with_a_known_spread_is_welchs_test() -> None:
    rng = np.random.default_rng(0)
    for centre, spread in ((50.0, 8.7), (60.0, 2.0), (20.0, 30.0)):
        ours, theirs = rng.normal(centre, 5, 4), rng.normal(0, 1, 5)
        theirs = 53.97 + spread * (theirs - theirs.mean()) / theirs.std(ddof=1)
        verdict, p, reach = statistics.agreement_with_spread(ours, 53.97, spread, 5)
        peer = scipy.stats.ttest_ind(ours, theirs, equal_var=False)
        assert p == pytest.approx(peer.pvalue)
        assert verdict == ("agrees" if peer.pvalue >= 0.05 else "above" if peer.statistic > 0 else "below")
        assert reach is not None
        moved = ours - ours.mean() + 53.97 + reach
        assert scipy.stats.ttest_ind(moved, theirs, equal_var=False).pvalue == pytest.approx(0.05)
    assert statistics.agreement_with_spread([0.0, 0.0], 0.0, 0.0, 5)[:2] == ("agrees", 1.0)
    assert statistics.agreement_with_spread([0.0, 0.0], 1.0, 0.0, 5)[:2] == ("below", 0.0)
    assert statistics.agreement_with_spread([3.0], 1.0, 0.5, 5) == ("untested", None, None)


# --- records ----------------------------------------------------------------------------------------------

STEPS = 16_384


def played(task: str, method: str, level: float = 1.0, seeds: int = 3, count: int = 610, **changes: Any) -> Record:
    """A run whose score is so many times the authors' LBS; the first episodes end in iteration 4 to 6."""
    frame = frame_of(task, level, seeds, count)
    return condense(game_manifest(task, method, range(seeds), count, **changes), frame)


def frame_of(task: str, level: float, seeds: int, count: int) -> pl.DataFrame:
    curve, rng = references()[task], np.random.default_rng(round(100 * level))
    steps = np.arange(1, count + 1) * STEPS
    score = level * np.interp(steps, curve.steps, curve.score) + rng.normal(0, 0.5, (seeds, count))
    length = np.interp(steps, curve.steps, curve.length) + rng.normal(0, 3.0, (seeds, count))
    for seed in range(seeds):
        score[seed, : 4 + seed % 3] = length[seed, : 4 + seed % 3] = np.nan
    rooms = np.tile(1.0 + 5 * np.arange(count) // count, (seeds, 1)) if "montezuma" in task else None
    return game_metrics(score, length, range(seeds), STEPS, rooms)


def content(records: list[Record]) -> Content:
    kept = distinct(records)
    return assemble(kept, rows(kept, "s"), HEADING)


HEADING = Heading("Arcade", "A lead.", "arcade", "lbs", "curiax reproduce arcade")
BREAKOUT, MONTEZUMA = "atari:breakout", "atari:montezuma_revenge"


def test_a_record_keeps_the_mean_score_since_the_point_before() -> None:
    record, frame = played(BREAKOUT, "lbs"), frame_of(BREAKOUT, 1.0, 3, 610)
    score = frame["game/score"].to_numpy().reshape(3, 610).astype(float)
    at = np.searchsorted(np.arange(1, 611) * STEPS, record.steps)
    assert len(at) == 100
    for k in (0, 1, 50, 99):
        window = score[:, (at[k - 1] + 1 if k else 0) : at[k] + 1]
        expected = [row[~np.isnan(row)].mean() if (~np.isnan(row)).any() else np.nan for row in window]
        np.testing.assert_allclose(record.curves["game/score"][:, k], expected, rtol=1e-5)
    assert np.isnan(record.curves["game/score"][:, 0]).tolist() == [False, False, True]
    np.testing.assert_allclose(record.in_the_end("game/score"), score[:, 549:].mean(1), rtol=1e-3)
    best = frame["game/best"].to_numpy().reshape(3, 610)
    np.testing.assert_array_equal(record.curves["game/best"], best[:, at])


def test_a_record_with_scores_survives_the_disk(tmp_path: Path) -> None:
    records = [played(BREAKOUT, "lbs", count=20), played(MARIO, "lbs")]
    save(records, HEADING, tmp_path)
    for before, after in zip(records, load(tmp_path), strict=True):
        assert np.isnan(after.curves["game/score"]).any() == np.isnan(before.curves["game/score"]).any()
        np.testing.assert_allclose(after.curves["game/score"], before.curves["game/score"], rtol=1e-3)
        assert after.plays
        assert after.headline == "game/score"


def test_a_score_is_missing_only_before_the_first_episode(tmp_path: Path) -> None:
    facts = game_manifest(BREAKOUT, "lbs", range(2), 20)
    frame = frame_of(BREAKOUT, 1.0, 2, 20)
    check_complete(tmp_path, facts, frame)
    score = frame["game/score"].to_numpy().copy()
    for place, value in ((12, np.nan), (12, np.inf), (0, -np.inf)):
        broken = score.copy()
        broken[place] = value
        with pytest.raises(OutputError, match=r"game/score .* is not finite"):
            check_complete(tmp_path, facts, frame.with_columns(pl.Series("game/score", broken)))


# --- tables -----------------------------------------------------------------------------------------------


def test_scores_stand_beside_the_authors_at_the_same_steps() -> None:
    records = [played(BREAKOUT, "lbs"), played(BREAKOUT, "surprisal", 0.5)]
    table = {(row.method, row.metric): row for row in rows(records, "s")}
    assert {metric for _, metric in table} == {"game/score", "game/length", "game/best", "game/episodes"}
    ours = table["lbs", "game/score"]
    assert ours.values == tuple(records[0].in_the_end("game/score"))
    assert (ours.ci_low, ours.ci_high) == pytest.approx(statistics.interval(ours.values))
    assert ours.paper == references()[BREAKOUT].at(610 * STEPS)
    assert (ours.paper_seeds, ours.verdict) == (5, "agrees")
    assert table["surprisal", "game/score"].paper is None
    (game,) = content(records).games
    assert game.caption == "Breakout: 10.0 M of 100 M steps"
    lbs, surprisal = ({name: cell.text for name, cell in zip(game.header, row, strict=True)} for row in game.rows)
    assert lbs["authors' LBS at the same steps"] == surprisal["authors' LBS at the same steps"] == "53.9 ± 8.7"
    assert lbs["authors' LBS at 100 M"] == "347.1 ± 7.6"
    assert lbs["verdict"].startswith("agrees ±")
    assert surprisal["verdict"] == "–"
    assert lbs["episodes"] == f"{sum(table['lbs', 'game/episodes'].values):,.0f}"
    assert lbs["steps run"] == "9,994,240"


def test_the_small_preset_is_not_tested_against_the_authors() -> None:
    """Its frames and networks are not the paper's; their numbers are shown all the same."""
    record = played(BREAKOUT, "lbs", preset="small")
    (row,) = [row for row in rows([record], "s") if row.metric == "game/score"]
    assert (row.verdict, row.p) == ("", None)
    (table,) = content([record]).games
    assert " ± " in table.rows[0][table.header.index("authors' LBS at the same steps")].text


def test_conflicts_of_other_tasks_are_not_told_of_games() -> None:
    (table,) = content([played(BREAKOUT, "lbs")]).choices
    topics = {row[0].text for row in table.rows}
    assert "clipping the bonus" in topics
    assert not topics & {"rollout", "β", "entropy weight, control", "entropy of a Gaussian policy"}


def test_a_score_far_below_the_authors_is_told() -> None:
    (row,) = [row for row in rows([played(BREAKOUT, "lbs", 0.3)], "s") if row.metric == "game/score"]
    assert row.verdict == "below"
    (row, *_) = rows([played(BREAKOUT, "lbs", 0.3, settings={"method.beta": 1.0})], "s")
    assert (row.paper, row.verdict) == (None, ""), "with another beta it is not the authors' LBS"


def test_rooms_are_a_number_and_no_coverage() -> None:
    record = played(MONTEZUMA, "lbs")
    table = {row.metric: row for row in rows([record], "s")}
    assert table["game/rooms"].values == (5.0, 5.0, 5.0)
    assert not any(metric.startswith("coverage/") for metric in table)
    made = content([record])
    assert made.tables == ()
    (game,) = made.games
    assert game.rows[0][game.header.index("rooms visited")].text == "5.0 (most 5)"
    (visited,) = [curves for curves in made.curves if curves.key == "game/rooms"]
    assert visited.series[0].mean[-1] == 5.0
    assert not any(curves.key.startswith("coverage/") for curves in made.curves)


def test_mario_is_shown_beside_the_authors_but_not_compared() -> None:
    record = played(MARIO, "lbs")
    (row,) = [row for row in rows([record], "s") if row.metric == "game/score"]
    assert row.verdict == "not comparable"
    assert row.p is None
    made = content([with_version(record, "Europe (PAL)")])
    (warning,) = [notice.text for notice in made.notices if notice.level == "warning"]
    assert "World (NTSC). Ours is Europe (PAL). In the European one Mario moves further" in warning
    assert made.games[0].header[1] == "distance in the end"
    assert {panel.title for panel in made.panels} >= {"Super Mario Bros: distance (pixels)"}


def test_the_version_of_mario_is_the_runs_own() -> None:
    """Whatever is installed where the report is made; runs of earlier versions did not say it."""
    lbs, surprisal = played(MARIO, "lbs"), played(MARIO, "surprisal")
    cases = {
        "NTSC). These runs do not say which they had. The authors'": [lbs],
        "lbs: it is not known which. surprisal: World (NTSC). The authors' distances are shown but not compared with "
        "where the version is not theirs.": [lbs, with_version(surprisal, "World (NTSC)")],
        "NTSC). lbs: Europe (PAL). surprisal: unknown (SHA-1 12). In the European": [
            with_version(lbs, "Europe (PAL)"),
            with_version(surprisal, "unknown (SHA-1 12)"),
        ],
    }
    for words, records in cases.items():
        assert words in game_notices(records)[-1].text


@pytest.mark.parametrize(("level", "expected"), [(1.0, "agrees"), (0.3, "below"), (3.0, "above")])
def test_the_authors_version_of_mario_is_compared(tmp_path: Path, level: float, expected: str) -> None:
    """With a ROM of one's own, too: where its file lies changes nothing about the method."""
    rom = rom_file(tmp_path / "mine.nes")
    record = with_version(played(MARIO, "lbs", level, count=6103, settings={"task.rom": str(rom)}), "World (NTSC)")
    rom.unlink()  # whoever reads a record need not have the file
    (row,) = [row for row in rows([record], "s") if row.metric == "game/score"]
    curve, ours, steps = references()[MARIO], np.array(row.values), 6103 * STEPS
    theirs, spread = curve.at(steps), curve.at(steps, curve.spread)
    peer = scipy.stats.ttest_ind_from_stats(ours.mean(), ours.std(ddof=1), 3, theirs, spread, 5, equal_var=False)
    assert (row.paper, row.verdict) == (theirs, expected)
    assert row.p == pytest.approx(peer.pvalue)
    made = content([record])
    (table,) = made.games
    assert table.rows[0][table.header.index("verdict")].text.startswith(f"{expected} ±")
    (notice,) = [notice for notice in made.notices if "Super Mario Bros.:" in notice.text]
    assert notice.level == "note"
    assert notice.text.endswith("Ours is World (NTSC).")


@pytest.mark.parametrize("version", ["Europe (PAL)", f"unknown (SHA-1 {'0' * 40})"])
def test_another_version_of_mario_is_not_compared_whoever_brings_it(tmp_path: Path, version: str) -> None:
    settings = {"task.rom": str(rom_file(tmp_path / "mine.nes"))}
    (row,) = [
        row
        for row in rows([with_version(played(MARIO, "lbs", settings=settings), version)], "s")
        if row.paper is not None
    ]
    assert (row.metric, row.verdict, row.p) == ("game/score", "not comparable", None)
    changed = with_version(played(MARIO, "lbs", settings={**settings, "task.skip": 2}), "World (NTSC)")
    assert changed.published_as is None, "another setting than the file is another method"


def with_version(record: Record, version: str) -> Record:
    return dataclasses.replace(record, facts={**record.facts, "notes": {"version of the game": version}})


def test_a_run_in_which_no_episode_ended_says_so() -> None:
    record = played(BREAKOUT, "lbs", count=5)  # the third seed's first episode would end in the seventh iteration
    assert {row.metric for row in rows([record], "s")} == {"game/episodes"}
    made = content([record])
    assert [cell.text for cell in made.games[0].rows[0]][1:3] == ["–", "–"]
    assert made.games[0].caption == "Breakout: 82 thousand of 100 M steps"
    assert made.statistics == ()
    assert any("No score yet for lbs on Breakout: a seed has not" in notice.text for notice in made.notices)
    assert not any(line.label == games.AUTHORS for line in made.lines), "their curve begins at 250,000 steps"
    assert "numbers" in page(made)


def test_other_games_have_no_reference(tmp_path: Path) -> None:
    frame = frame_of(BREAKOUT, 1.0, 3, 610)
    made = publish([condense(game_manifest("atari:pitfall", "lbs", range(3), 610), frame)], HEADING, tmp_path / "out")
    (game,) = made.content.games
    assert game.caption == "Pitfall: 10.0 M steps"
    assert not any("authors" in name for name in game.header)


def test_a_full_run_says_that_it_is_one() -> None:
    record = played(BREAKOUT, "lbs", count=6103)
    assert games.budget(record) == "all 100 M steps"
    (row,) = [row for row in rows([record], "s") if row.metric == "game/score"]
    assert row.paper == pytest.approx(347.06, abs=0.01)


# --- curves and files -------------------------------------------------------------------------------------


def test_the_authors_curve_is_drawn_over_the_steps_that_were_run() -> None:
    made = content([played(BREAKOUT, "lbs", count=183)])
    (drawn, *_) = [curves for curves in made.curves if curves.key == "game/scores"]
    assert drawn.apart
    theirs = {series.task: series for series in drawn.series if series.label == games.AUTHORS}
    score = theirs[f"{BREAKOUT} game/score"]
    assert score.steps == (250_000, 500_000, 1_000_000, 2_000_000, 183 * STEPS)
    assert (score.mean[3], score.low[3], score.high[3]) == pytest.approx((11.35, 10.32, 12.38))
    assert theirs[f"{BREAKOUT} game/length"].low == ()
    (ours,) = [s for s in drawn.series if s.task == f"{BREAKOUT} game/score" and s.label == "lbs"]
    assert np.isnan(ours.mean[0]), "not every seed has finished an episode"
    assert np.isfinite(ours.mean[-1])
    assert len(ours.low) == len(ours.mean)
    (line,) = [line for line in made.lines if line.label == games.AUTHORS]
    assert line.dash


def test_the_best_score_is_one_episode_s_and_has_no_interval() -> None:
    record = played(BREAKOUT, "lbs", count=183)
    (drawn, *_) = [curves for curves in content([record]).curves if curves.key == "game/scores"]
    (best,) = [series for series in drawn.series if series.task == f"{BREAKOUT} game/best"]
    np.testing.assert_allclose(best.mean[-1], record.curves["game/best"][:, -1].max(), rtol=1e-3)
    assert best.low == best.high == ()


def test_everything_is_written_and_recomputed(tmp_path: Path) -> None:
    methods = ("lbs", "surprisal", "surprisal-idf")
    records = [played(task, m, 1 - k / 4) for task in (BREAKOUT, MONTEZUMA) for k, m in enumerate(methods)]
    made = publish(records, HEADING, tmp_path / "out")
    assert {path.name for path in made.files} == {"report.html", "table.json", "games.png", "games.svg"}
    found = verify(tmp_path / "out")
    assert (found.rows, found.differences) == (3 * 4 + 3 * 5, [])
    text = (tmp_path / "out" / "README.md").read_text()
    assert "What was run: 10.0 M of 100 M steps on Breakout, Montezuma's Revenge." in text
    picture = (tmp_path / "out" / "figures" / "games.svg").read_text()
    for words in ("authors' LBS", "Breakout", "rooms visited", "agent steps (millions)", "episode length (steps)"):
        assert words in picture


def test_games_and_other_tasks_share_a_report(tmp_path: Path) -> None:
    car = condense(manifest("mountain-car", "lbs", range(3)), metrics([90.0, 91.0, 92.0], range(3)))
    made = publish([car, played(BREAKOUT, "lbs")], HEADING, tmp_path / "out")
    assert made.content.curves[0].key == "coverage/cells"
    assert [table.caption for table in made.content.tables] == ["Mountain Car"]
    assert {path.stem for path in made.files} >= {"coverage", "games", "final"}


def test_progress_and_terminal_tell_the_score(capsys: pytest.CaptureFixture[str]) -> None:
    latest = {"game/score": np.array([1.0, 2.0]), "coverage/rooms": np.array([4.0, 4.0]), "bonus/mean": np.ones(2)}
    progress = Lines()
    progress.declare(resolve(Experiment(BREAKOUT, "lbs")))
    assert progress.headline(latest) == "score 1.5"
    assert progress.headline({**latest, "game/score": np.array([np.nan, 2.0])}) == "no episode has ended yet"
    print_content(content([played(BREAKOUT, "lbs")]))
    shown = capsys.readouterr().out.split()  # a column's name is broken where it is long
    assert {"authors'", "53.9", "8.7"} <= {*shown}
    record, frame = played(BREAKOUT, "lbs"), frame_of(BREAKOUT, 1.0, 3, 610)
    plan = resolve(Experiment(BREAKOUT, "lbs", seeds=3, steps=610 * STEPS))
    result = RunResult(plan, frame, {**record.facts, "lost": {}}, None, False)
    assert run_summary(result)["final"]["game/score"]["values"] == list(record.in_the_end("game/score"))
    text = run_text(result, None)
    assert "score in the last tenth of training: 5" in text
    assert "episode length in the last tenth of training: 1,1" in text
    assert f"best score: {record.final('game/best').max():,.1f}" in text
    assert f"episodes finished: {record.final('game/episodes').sum():,.0f}" in text
