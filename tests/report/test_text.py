"""Names from outside on their way to terminals, Markdown, pages and figures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from synthetic import manifest, metrics, write_run

from curiax import Axis, Experiment, Grid, UsageError
from curiax._text import INSTEAD, LONGEST, clean, clean_data, clean_lines, markdown, markdown_code
from curiax.cli import main
from curiax.experiments import folder
from curiax.experiments.progress import Bar, Lines
from curiax.report.record import Heading

#: Clears the screen, rings, begins a new line, turns the direction of writing, is invisible, is half a character.
HOSTILE = "a\x1b[2J\x07b\nc\rd\u202ee\u200bf\udcff"
#: What each output would read as its own language.
MARKUP = "[/x] <script>alert(1)</script> | `tick` ![p](http://x) $a_1^$ \\| {0} %s &lt;"


def test_clean_text_only_shows_itself() -> None:
    text = clean(HOSTILE)
    assert text == f"a{INSTEAD}[2J{INSTEAD}b c d{INSTEAD}e{INSTEAD}f{INSTEAD}"
    assert clean(text) == text
    assert text.isprintable()
    assert clean("Größe µ → 1 … 🧪 1\u2028 2\u00a03\t") == "Größe µ → 1 … 🧪 1  2 3 "
    assert clean("x" * LONGEST) == "x" * LONGEST
    assert clean("x" * (LONGEST + 1)) == "x" * (LONGEST - 1) + "…"
    assert clean_lines("one\ntwo\x1b") == f"one\ntwo{INSTEAD}"
    assert clean_data({"a\n": ["b\n", 1, None, ("c\n",)]}) == {"a ": ["b ", 1, None, ["c "]]}


def test_markdown_shows_text_and_obeys_none_of_it() -> None:
    text = markdown(MARKUP)
    assert "<script" not in text
    assert "](" not in text
    assert markdown("[a]: https://example.org") == "[a]\\: https://example.org", "it would be a link's definition"
    assert not re.search(r"(?<!\\)(\\\\)*\|", text), "an unescaped bar begins a new cell"
    assert markdown("p < 0.001, x <= 1, _a_ *b* [1, 2]") == "p < 0.001, x <= 1, _a_ *b* [1, 2]"
    assert markdown_code("a`b``c") == "```a`b``c```"
    assert markdown_code("`") == "`` ` ``"
    assert markdown_code("curiax run") == "`curiax run`"


@pytest.mark.parametrize("label", ["a\nb", "\x1b[31mred", "x" * (LONGEST + 1), "\u202eabc", "\udcff"])
def test_what_a_user_names_must_be_clean_from_the_start(label: str) -> None:
    with pytest.raises(UsageError, match="without line breaks") as raised:
        Experiment("mountain-car", "lbs", label=label)
    assert clean(str(raised.value), None) == str(raised.value)
    with pytest.raises(UsageError, match="the name of a grid"):
        Grid(label, (Axis("x", 0.0, 1.0, 2),), "floor")
    with pytest.raises(UsageError, match="the name of an axis"):
        Axis(label, 0.0, 1.0, 2)


def test_settings_that_no_file_could_hold_are_refused() -> None:
    with pytest.raises(UsageError, match=r"task\.rom = '\\udcff'"):
        Experiment("mario", "lbs", settings={"task.rom": "\udcff"})


def hostile_run(path: Path, label: str) -> None:
    """A finished run in whose files somebody has put other names."""
    write_run(path, "mountain-car", "lbs", [80.0, 85.0, 90.0])
    document = json.loads((path / folder.MANIFEST).read_text())
    document["experiment"]["label"] = label
    document["identity"]["task"] = document["experiment"]["task"] = label
    document["notes"] = {label: label}
    document["command"] = label
    document["grids"][0]["axes"][0]["name"] = label
    (path / folder.MANIFEST).write_text(json.dumps(document))


@pytest.mark.parametrize("label", [HOSTILE.removesuffix("\udcff"), MARKUP, "[/x]", "[bold]", "$", "x" * 500])
def test_names_in_files_reach_no_output_as_they_are(
    label: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    hostile_run(tmp_path / "run", label)
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--title", f"T {label[:300]}"]) == 0
    shown = capsys.readouterr().out
    assert clean_lines(shown) == shown
    assert max(map(len, shown.split("\n"))) < 400
    assert "".join(clean(label).split())[:8] in "".join(shown.split()), "a name is shown all the same"
    assert main(["verify", str(tmp_path / "out")]) == 0
    texts = [tmp_path / "out" / name for name in ("README.md", "report.html", "table.json")]
    for file in (*texts, *(tmp_path / "out" / "figures").glob("*.svg")):
        text = file.read_text("utf-8")
        assert clean_lines(text) == text, file.name
        outside_code = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", text) if file.suffix == ".md" else text
        assert "<script>alert" not in outside_code or file.name == "table.json", file.name
    readme = (tmp_path / "out" / "README.md").read_text("utf-8")
    for table in (part.split("\n") for part in readme.split("\n\n") if part.startswith("|")):
        bars = [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in table]
        assert len(set(bars)) == 1, "every row has as many cells"
    table = json.loads((tmp_path / "out" / "table.json").read_text("utf-8"))
    assert all(len(row["method"]) <= LONGEST for row in table["rows"])


def test_what_a_kept_table_says_reaches_the_terminal_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "run", "mountain-car", "lbs", [80.0, 85.0, 90.0])
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 0
    file = tmp_path / "out" / "table.json"
    table = json.loads(file.read_text())
    table["rows"][0]["task"] = "\x1b[2J\nok   forged"
    file.write_text(json.dumps(table))
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "out")]) == 1
    shown = capsys.readouterr().out
    assert clean_lines(shown) == shown
    assert "\nok   forged" not in shown


def test_a_heading_is_clean() -> None:
    heading = Heading(HOSTILE, command="a\nb", remarks=("c\x1b",))
    assert (heading.title, heading.command, heading.remarks) == (clean(HOSTILE), "a b", (f"c{INSTEAD}",))


@pytest.mark.parametrize("label", [HOSTILE.removesuffix("\udcff"), MARKUP, "[/x]", "[/]", "[red]"])
def test_progress_takes_names_for_text(label: str, capsys: pytest.CaptureFixture[str]) -> None:
    latest = {"coverage/cells": np.array([50.0])}
    for progress in (Bar(), Lines()):
        progress.start(label, 2, 100)
        progress.note(label)
        progress.say(label)
        progress.advance(2, latest)
        progress.finish()
    shown = capsys.readouterr().err
    assert clean_lines(shown) == shown
    assert clean(label)[:4] in shown


def test_a_run_that_has_coverage_and_compares_kinds_has_both_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task may declare grids and two kinds of transitions."""
    seeds = range(4)
    table = metrics([80, 85, 90, 70], seeds)
    ratios = {name: pl.Series(np.ones(table.height, np.float32)) for name in ("bonus", "first", "second")}
    both = table.with_columns(**{f"ratio/{name}": values for name, values in ratios.items()})
    facts = {**manifest("mountain-car", "lbs", seeds), "compared": ["[/x] one", "other"]}
    (tmp_path / "run").mkdir()
    folder.write(tmp_path / "run", facts, both)
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "81.2 [" in shown
    assert "[/x] one" in shown
    assert "1.00 [1.00, 1.00]" in shown
    # A forged one names kinds whose bonuses its table lacks.
    (tmp_path / "forged").mkdir()
    folder.write(tmp_path / "forged", facts, both.drop("ratio/first"))
    assert main(["report", str(tmp_path / "forged"), "--out", str(tmp_path / "other")]) == 0


def test_long_labels_are_told_apart_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, digest in (("one", "1234"), ("two", "5678")):
        hostile_run(tmp_path / "runs" / name, "x" * 500)
        document = json.loads((tmp_path / "runs" / name / folder.MANIFEST).read_text())
        document["run_id"] = digest
        (tmp_path / "runs" / name / folder.MANIFEST).write_text(json.dumps(document))
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 0
    labels = [row["method"] for row in json.loads((tmp_path / "out" / "table.json").read_text())["rows"]]
    assert {label[-6:] for label in labels} == {"(1234)", "(5678)"}
    assert all(len(label) == LONGEST for label in labels)
