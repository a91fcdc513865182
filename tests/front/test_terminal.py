"""Tables and summaries on terminals of any width."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.cells import cell_len
from synthetic import manifest, metrics, write_run

from curiax.cli import main
from curiax.cli._result import run_summary, run_text
from curiax.cli._tables import print_table, print_text
from curiax.experiments.run import RunResult
from curiax.experiments.spec import Experiment, resolve

METHODS = ("lbs", "icm", "rnd", "random")


def finished(finals: Sequence[float], task: str = "mountain-car") -> RunResult:
    """A run that was never trained, with these final coverages."""
    seeds = range(len(finals))
    plan = resolve(Experiment(task, "lbs", seeds=len(finals)))
    return RunResult(plan, metrics(finals, seeds), {**manifest(task, "lbs", seeds)}, Path("a/run"), False)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_fit_and_keep_every_name_and_number(
    width: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for k, task in enumerate(("mountain-car", "mountain-car-frozen")):
        for method in METHODS:
            finals = [80.0 + k + len(method), 85.0, 90.0, 70.0]
            write_run(tmp_path / "runs" / f"{task}_{method}", task, method, finals)
    name = "my_package.my_file:MyOwnMethod"
    write_run(tmp_path / "runs" / "own", "mountain-car", "lbs", [88.0, 89.0, 90.0], label=name)
    monkeypatch.setenv("COLUMNS", "10000")
    line = ["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert main(line) == 0
    wide = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(line) == 0
    narrow = capsys.readouterr().out
    for shown in narrow.split("\n"):
        assert cell_len(shown) <= width or str(tmp_path) in shown
    assert name in narrow, "no name is cut"
    assert "…" not in narrow
    for word in ("Mountain Car Frozen", "91.75 (n = 8)", "honest bins"):
        assert word in narrow
    # Narrow terminals show all that wide ones do, the names of rows and columns more often.
    assert {word for word in wide.split() if "─" not in word} == {word for word in narrow.split() if "─" not in word}


def test_notes_break_between_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    text = "  a note of some words\n/a/very/long/path/that-is-to-be-copied\nshort"
    print_text(text)
    shown = capsys.readouterr().out.split("\n")
    assert shown == ["  a note of some", "      words", "/a/very/long/path/that-is-to-be-copied", "short", ""]
    monkeypatch.delenv("COLUMNS")
    print_text("word " * 100)
    assert capsys.readouterr().out == "word " * 100 + "\n", "a file takes lines of any length"


def test_a_name_wider_than_the_terminal_is_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_table("A title", ["method", "ours"], [["名前" * 20, "12"], ["b", "3"]])
    shown = capsys.readouterr().out
    assert max(map(cell_len, shown.split("\n"))) <= 40
    assert shown.count("名前") + shown.count("名\n") >= 18
    assert "12" in shown


def test_intervals_stay_within_what_there_is_to_cover() -> None:
    """Of Mountain Car's 100 cells 96 can be reached."""
    for finals in ([96.0, 96.0, 60.0], [2.0, 0.0, 30.0], [96.0, 95.0, 95.0, 96.0, 93.0], [50.0, 51.0, 52.0]):
        final = run_summary(finished(finals))["final"]
        for name, most in (("coverage/cells", 96.0), ("coverage/bins", 91.0), ("reachable/cells", 100.0)):
            low, high = final[name]["interval"]
            assert 0.0 <= low <= final[name]["mean"] <= high <= most, (finals, name)
    assert run_summary(finished([50.0, 60.0]))["final"]["coverage/cells"]["interval"] is None


def test_the_intervals_of_a_run_are_those_of_its_report() -> None:
    from curiax.report.record import condense
    from curiax.report.table import rows

    result = finished([96.0, 96.0, 60.0, 95.0])
    found = {row.metric: row for row in rows([condense(result.manifest, result.metrics)], "")}
    final = run_summary(result)["final"]
    for name in ("coverage/cells", "coverage/bins"):
        row = found[name]
        assert final[name] == {"mean": row.mean, "interval": (row.ci_low, row.ci_high), "values": list(row.values)}


def test_a_seed_far_below_the_others_is_named() -> None:
    text = run_text(finished([85.0, 86.0, 89.0, 15.0]), None)
    assert "  far below the others, whose median is 85.5 %: seed 3 at 15.0 %" in text
    assert "far below" not in run_text(finished([85.0, 86.0, 89.0, 60.0]), None)
    assert "far below" not in run_text(finished([0.0, 0.0, 0.0]), None)
    many = run_text(finished([90.0] * 12 + [1.0] * 10), None)
    assert many.count(" at 1.0 %") == 8
    assert "2 more" in many
