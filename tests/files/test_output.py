"""The folder of a report: only files of Curiax's own are replaced, all of them or none, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small import SMALL
from synthetic import write_run

import curiax
from curiax import Experiment, resolve
from curiax._errors import BusyError, CuriaxError, OutputError
from curiax.cli import main
from curiax.experiments.progress import Silent
from curiax.experiments.reproduce import run_folder, train_suite
from curiax.report import figures, origin, output, publish
from curiax.report.output import MARKER, WORK, check, faults, interrupted, replace_files
from curiax.report.record import Heading, gather

PLACES = publish.PLACES
OLD = {
    "table.json": b"old table",
    "README.md": b"old words",
    "record/runs.json": b"old record",
    "figures/a.png": b"old picture",
    "figures/b.png": b"the same picture",
}
FRESH = {
    "table.json": b"new table",
    "README.md": b"new words",
    "record/runs.json": b"new record",
    "report.html": b"a page",
    "figures/b.png": b"the same picture",
    "figures/c.png": b"new picture",
}
#: What somebody else has put beside them.
OTHERS = {"notes.txt": b"mine", "figures/mine.png": b"my picture", "runs/one/manifest.json": b"{}"}


def writer(files: dict[str, bytes]) -> Callable[[Path], None]:
    """Writes some files, as drawing and tables do."""

    def make(stage: Path) -> None:
        for name, data in files.items():
            (stage / name).parent.mkdir(exist_ok=True)
            (stage / name).write_bytes(data)

    return make


def contents(folder: Path) -> dict[str, bytes]:
    """Every file, but the list of them and what is under way."""
    found = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    return {name: data for name, data in found.items() if name != MARKER and not name.startswith(WORK)}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder that Curiax wrote, with files of somebody else."""
    replace_files(tmp_path / "old", writer(OLD))
    for name, data in OTHERS.items():
        (tmp_path / "old" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "old" / name).write_bytes(data)
    return tmp_path / "old"


# --- what happens at the worst moment ---------------------------------------------------------------------


class Killed(BaseException):
    """As if the process were gone."""


class Trouble:
    """Whatever changes files below a folder fails, from the n-th time on or only then."""

    armed: Trouble | None = None

    def __init__(self, folder: Path, at: int, error: Callable[[], BaseException], *, for_ever: bool) -> None:
        self.folder, self.at, self.error, self.for_ever = str(folder), at, error, for_ever
        self.count = 0

    def look(self, event: str, args: tuple[Any, ...]) -> None:
        """Called by Python before everything that it does to files."""
        if event == "open":
            path, _, flags = args
            changes = isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            ours = changes and isinstance(path, str | bytes | os.PathLike) and self.below(path)
        elif event in ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.chmod"):
            # Removing a tree names files by the folder that is open.
            ours = self.below(args[0]) or (event in ("os.remove", "os.rmdir") and args[1] != -1)
        else:
            return
        if ours:
            self.count += 1
            if self.count == self.at or (self.for_ever and self.count > self.at):
                raise self.error()

    def below(self, path: Any) -> bool:
        """Whether a path is in the folder; the lock goes with the process anyway."""
        name = os.fsdecode(path) if not isinstance(path, int) else ""
        return name.startswith(self.folder) and not name.endswith("/lock")

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        Trouble.armed = self
        try:
            yield
        finally:
            Trouble.armed = None


sys.addaudithook(lambda event, args: Trouble.armed.look(event, args) if Trouble.armed else None)


def full() -> OSError:
    """The disk is full."""
    return OSError(errno.ENOSPC, "No space left on device")


def every_moment(old: Path, error: Callable[[], BaseException], *, for_ever: bool) -> Iterator[tuple[Path, bool]]:
    """The folder after trouble at the first, second, third ... thing that is done to it, and whether none was told."""
    for at in itertools.count(1):
        out = old.with_name("out")
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(old, out)
        trouble = Trouble(out, at, error, for_ever=for_ever)
        done = False
        with trouble(), contextlib.suppress(Killed, CuriaxError):
            replace_files(out, writer(FRESH))
            done = True
        if trouble.count < at:
            assert at > 40, "so few things are never done"
            return
        yield out, done


def test_a_kill_at_any_moment_leaves_old_or_new_or_what_the_next_command_completes(old: Path) -> None:
    seen = set()
    for out, _ in every_moment(old, Killed, for_ever=True):
        halfway = interrupted(out)
        if halfway:
            assert "was interrupted" in faults(out)[0]
        else:
            assert faults(out) == []
            assert contents(out) in (OLD | OTHERS, FRESH | OTHERS)
        check(out, PLACES)
        assert faults(out) == []
        assert not (out / WORK).exists()
        found = contents(out)
        assert found in ([FRESH | OTHERS] if halfway else [OLD | OTHERS, FRESH | OTHERS])
        seen.add((halfway, found == OLD | OTHERS))
        replace_files(out, writer(FRESH))
        assert contents(out) == FRESH | OTHERS
    assert seen == {(False, True), (True, False), (False, False)}


def test_whoever_completes_may_be_killed_too(old: Path) -> None:
    for out, _ in every_moment(old, Killed, for_ever=True):
        if not interrupted(out):
            continue
        copy = out.with_name("copy")
        for at in itertools.count(1):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(out, copy)
            trouble = Trouble(copy, at, Killed, for_ever=True)
            with trouble(), contextlib.suppress(Killed):
                check(copy, PLACES)
            if trouble.count < at:
                break
            check(copy, PLACES)
            assert contents(copy) == FRESH | OTHERS
            assert faults(copy) == []


def test_an_error_at_any_moment_leaves_the_old_files(old: Path) -> None:
    failed = 0
    for out, done in every_moment(old, full, for_ever=False):
        assert faults(out) == []
        assert not interrupted(out)
        before = contents(out)
        # What fails in tidying up is left to the next command.
        assert before == (FRESH | OTHERS if done else OLD | OTHERS)
        failed += not done
        check(out, PLACES)
        assert contents(out) == before
        assert not (out / WORK).exists()
    assert failed > 20


def test_a_disk_that_stays_full_leaves_what_the_next_command_completes(old: Path) -> None:
    for out, _ in every_moment(old, full, for_ever=True):
        assert interrupted(out) or faults(out) == []
        check(out, PLACES)
        assert contents(out) in (OLD | OTHERS, FRESH | OTHERS)
        assert faults(out) == []


def test_a_process_that_is_gone_leaves_what_the_next_command_completes(old: Path) -> None:
    """As above with a real process, whose lock the system takes back."""
    child = """
import os, sys
from pathlib import Path
from test_output import FRESH, Trouble, writer
from curiax.report.output import replace_files
out = Path(sys.argv[1])
with Trouble(out, int(sys.argv[2]), lambda: os._exit(9), for_ever=True)():
    replace_files(out, writer(FRESH))
"""
    halfway = 0
    for at in (3, 24, 30, 36):
        out = old.with_name(f"out-{at}")
        shutil.copytree(old, out)
        words = [sys.executable, "-c", child, str(out), str(at)]
        here = Path(__file__).parent
        paths = os.pathsep.join([str(here.parent), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "PYTHONPATH": paths}
        done = subprocess.run(words, cwd=here, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 9, done.stderr
        halfway += interrupted(out)
        check(out, PLACES)
        assert contents(out) in (OLD | OTHERS, FRESH | OTHERS)
        assert not (out / WORK).exists()
    assert halfway >= 2


def test_an_exception_while_files_are_made_leaves_no_trace(old: Path, tmp_path: Path) -> None:
    def fail(stage: Path) -> None:
        writer(FRESH)(stage)
        raise ZeroDivisionError

    for out in (old, tmp_path / "deep" / "fresh"):
        before = contents(out) if out.exists() else None
        with pytest.raises(ZeroDivisionError):
            replace_files(out, fail)
        assert (contents(out) if out.exists() else None) == before
        assert not (out / WORK).exists()


def test_two_processes_do_not_mix_their_files(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "PATIENCE", 0.1)

    def make(stage: Path) -> None:
        writer(FRESH)(stage)
        with pytest.raises(BusyError, match="another process writes a report to"):
            replace_files(old, writer(OLD))

    replace_files(old, make)
    assert contents(old) == FRESH | OTHERS


# --- whose folder it is -----------------------------------------------------------------------------------


def link(path: Path, target: str | Path) -> None:
    """A link in the place of what was there."""
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name(f"{path.name}-moved"))
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(target)


CHANGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "edited": (lambda out: (out / "README.md").write_text("my words"), r"README\.md was changed since"),
    "edited, as long as before": (lambda out: (out / "README.md").write_bytes(b"my  words"), r"README\.md was changed"),
    "a picture edited": (lambda out: (out / "figures/a.png").write_bytes(b"better"), r"a\.png was changed since"),
    "in the way": (lambda out: (out / "report.html").write_text("mine"), r"report\.html is not one of the files"),
    "a figure in the way": (
        lambda out: (out / "figures/coverage.png").write_text("mine"),
        r"coverage\.png is not one of the files",
    ),
    "a folder in the way": (lambda out: (out / "report.html").mkdir(), r"report\.html is no file"),
    "a file for a folder": (
        lambda out: (shutil.rmtree(out / "figures"), (out / "figures").write_text("mine")),
        "figures is no folder",
    ),
    "a link": (lambda out: link(out / "README.md", "notes.txt"), r"README\.md is a link"),
    "a link to a folder": (lambda out: link(out / "figures", "figures-moved"), "figures is a link"),
    "a link for the list": (lambda out: link(out / MARKER, "notes.txt"), "it is a link"),
    "a link for the new files": (lambda out: link(out / WORK, "runs"), "is a link, which Curiax makes none of"),
    "the list edited": (
        lambda out: (out / MARKER).write_text((out / MARKER).read_text().replace('"files"', ' "files"')),
        "it does not match its own digest",
    ),
    "the list gone": (lambda out: (out / MARKER).unlink(), "written by an older version"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_somebody_elses_is_refused_before_any_work(old: Path, what: str) -> None:
    change, message = CHANGES[what]
    change(old)
    before = contents(old)
    with pytest.raises(OutputError, match=message):
        check(old, PLACES)
    with pytest.raises(OutputError):
        replace_files(old, writer({**FRESH, "figures/coverage.png": b"x"}))
    assert contents(old) == before


def test_a_list_moves_and_removes_nothing_but_files_of_reports(old: Path) -> None:
    """However well it is sealed."""
    text = (old / MARKER).read_text()
    for place in (
        "notes.txt",
        "../notes.txt",
        "/etc/passwd",
        "figures/../notes.txt",
        "runs/one",
        ".hidden",
        "figures/",
    ):
        listing = json.loads(text)
        listing["files"][place] = listing["files"]["README.md"]
        listing["seal"] = output.seal(listing)
        (old / MARKER).write_text(json.dumps(listing, indent=1) + "\n")
        with pytest.raises(OutputError, match="is damaged"):
            check(old, PLACES)


@pytest.mark.parametrize("name", ["diary.txt", "record", "figures", "README.md", "table.json"])
def test_a_folder_without_a_list_is_taken_only_if_it_is_empty(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text("dear")
    with pytest.raises(OutputError, match=f"holds {name}, which is not Curiax's"):
        check(tmp_path / "mine", PLACES)
    (tmp_path / "runs").mkdir()
    (tmp_path / ".DS_Store").touch()
    check(tmp_path / "new", PLACES)
    (tmp_path / "mine" / name).unlink()
    (tmp_path / "mine").rmdir()
    check(tmp_path, PLACES)
    replace_files(tmp_path, writer(OLD))
    assert contents(tmp_path) == OLD | {".DS_Store": b""}


def test_a_folder_that_is_a_link_is_followed_and_one_to_nowhere_refused(old: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to("old")
    check(tmp_path / "latest", PLACES)
    replace_files(tmp_path / "latest", writer(FRESH))
    assert (tmp_path / "latest").is_symlink()
    assert contents(old) == FRESH | OTHERS
    (tmp_path / "astray").symlink_to("nowhere")
    with pytest.raises(OutputError, match="a link to nowhere"):
        check(tmp_path / "astray", PLACES)
    with pytest.raises(OutputError, match="is a file, not a folder"):
        check(old / "notes.txt", PLACES)


def test_files_that_were_removed_are_written_again(old: Path) -> None:
    """As the page, which need not be kept."""
    (old / "README.md").unlink()
    shutil.rmtree(old / "record")
    check(old, PLACES)
    replace_files(old, writer(FRESH))
    assert contents(old) == FRESH | OTHERS
    (old / "report.html").unlink()
    assert faults(old) == []
    (old / "table.json").unlink()
    assert faults(old) == [f"{old / 'table.json'} is missing."]


def test_who_changed_a_file_while_a_report_was_interrupted_keeps_it(old: Path) -> None:
    for out, _ in every_moment(old, Killed, for_ever=True):
        if interrupted(out):
            (out / "README.md").write_text("mine")
            before = contents(out)
            with pytest.raises(OutputError, match=r"README\.md was changed since"):
                check(out, PLACES)
            assert contents(out) == before


# --- a whole report ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("report")
    for method in ("lbs", "random"):
        write_run(base / "runs" / method, "mountain-car", method, (80.0, 90.0, 85.0))
    publish.publish(gather([base / "runs"])[0], Heading("Kept"), base / "kept")
    return base / "kept"


def test_every_figure_has_a_name_that_is_known_beforehand(kept: Path) -> None:
    assert {path.stem for path in (kept / "figures").iterdir()} <= set(figures.NAMES)
    assert set(output.described(kept)) - {MARKER} <= set(PLACES)


def test_every_flipped_bit_of_a_kept_report_is_found(kept: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(kept, out)
    files, rng = sorted(path for path in out.rglob("*") if path.is_file()), random.Random(5)
    missed = []
    for k in range(60):
        file = files[k % len(files)]
        data = file.read_bytes()
        at = rng.randrange(8 * len(data))
        broken = bytearray(data)
        broken[at // 8] ^= 1 << at % 8
        file.write_bytes(broken)
        if not publish.verify(out).differences:
            missed.append((file.name, at))
        file.write_bytes(data)
    assert missed == []
    assert publish.verify(out).differences == []


def test_a_damaged_record_is_not_reported_on(kept: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(kept, out)
    runs = out / "record" / "runs.json"
    runs.write_text(runs.read_text().replace('"started": null', '"started": ""'))
    with pytest.raises(OutputError, match=r"runs\.json was changed since Curiax wrote it"):
        gather([out])


def test_a_kept_report_is_made_again_as_it_was(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(kept, tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out" / "report.html").unlink()
    assert main(["report", "out", "--out", "out"]) == 0
    assert contents(Path("out")) == contents(kept)
    (tmp_path / "out" / "README.md").write_text("mine")
    assert main(["report", "out", "--out", "out"]) == 2
    assert "README.md was changed since Curiax wrote it: move it away" in capsys.readouterr().err
    assert Path("out/README.md").read_text() == "mine"


def test_a_suite_is_refused_before_it_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from curiax.experiments import reproduce

    monkeypatch.setattr(reproduce, "train_suite", lambda *_: pytest.fail("it was trained"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine" / "figures").mkdir(parents=True)
    (tmp_path / "mine" / "figures" / "own.png").write_bytes(b"mine")
    assert main(["reproduce", "noisy-tv", "--out", "mine", "--quiet"]) == 2
    assert "mine holds figures, which is not Curiax's" in capsys.readouterr().err


def test_verify_names_version_and_commit_and_warns_where_they_are_others(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from curiax import __version__
    from curiax._source import Code, code

    shutil.copytree(kept, tmp_path / "plain")
    monkeypatch.chdir(tmp_path)
    assert main(["verify", "plain"]) == 0
    shown = capsys.readouterr().out
    assert f"0 differ; trained by Curiax {__version__} at a commit that was not recorded\n" in shown
    assert "warning: 2 of 2 runs do not tell which code they were trained with." in shown
    records = gather([kept])[0]

    def code_facts(commit: str, digest: str) -> dict[str, Any]:
        return {"commit": commit, "changed": False, "digest": digest}

    same, other = code_facts("a" * 40, code().digest), code_facts("b" * 40, "0" * 32)
    for record, facts in zip(records, (same, other), strict=True):
        record.facts["code"] = facts  # type: ignore[index]
    publish.publish(records, Heading("Kept"), tmp_path / "told")
    assert main(["verify", "told"]) == 0, "another commit is no failure"
    shown = capsys.readouterr().out
    assert f"Curiax {__version__} at commit aaaaaaaaaa, Curiax {__version__} at commit bbbbbbbbbb\n" in shown
    assert "warning: 1 of 2 runs were trained with other code than the present" in shown
    assert f"trained by Curiax {__version__} at commit aaaaaaaaaa, " in (tmp_path / "told" / "README.md").read_text()
    monkeypatch.setattr(origin, "__version__", "9.9.9")
    assert main(["verify", "told"]) == 0
    assert f"warning: 2 of 2 runs were trained by Curiax {__version__}; this is 9.9.9." in capsys.readouterr().out
    assert str(Code("c" * 40, True, "")) == "commit cccccccccc and uncommitted changes"
    assert str(Code("c" * 40, None, "")) == "commit cccccccccc, perhaps with uncommitted changes"


def test_verify_warns_where_the_same_command_would_set_something_else(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A preset that was changed since decides numbers as much as code does."""
    records = gather([kept])[0]
    assert not [line for line in origin.warnings(records) if "same command" in line]
    record = dataclasses.replace(records[0], facts=json.loads(json.dumps(records[0].facts)))
    record.facts["identity"]["settings"]["loop.rollout"] = 77
    record.facts["identity"]["steps"] = 770
    publish.publish([record, *records[1:]], Heading("Kept"), tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    assert main(["verify", "other"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"the same command trains with loop.rollout = \d+ now \(77 then\): .* on mountain-car\.", shown)
    assert re.search(r"the same command trains with steps = \d+ now \(770 then\): ", shown)


def test_verify_takes_folders_of_older_versions(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They have no list of digests, and words that this version would put otherwise."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(kept, "older")
    Path("older", MARKER).unlink()
    Path("older/README.md").write_text("in other words")
    assert main(["verify", "older"]) == 0
    shown = capsys.readouterr().out
    assert "ok   older: " in shown
    assert "its files have no digests (curiax-files.json is not there): only the table was recomputed." in shown


def test_verify_reads_runs_and_exports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    curiax.run(curiax.Experiment("mountain-car", "random", seeds=2, steps=256, settings=SMALL), "run")
    curiax.export("run", "exported")
    assert main(["verify", "run", "exported"]) == 0
    shown = capsys.readouterr().out
    assert f"ok   run: every file read, 0 differ; trained by Curiax {curiax.__version__} at " in shown
    assert f"ok   exported: every file read, 0 differ; trained by Curiax {curiax.__version__}" in shown
    for folder in ("run", "exported"):
        data = bytearray(Path(folder, "agents.safetensors").read_bytes())
        data[-1] ^= 1
        Path(folder, "agents.safetensors").write_bytes(data)
    assert main(["verify", "run", "exported"]) == 1
    assert capsys.readouterr().out.count("agents.safetensors is damaged") == 2


def test_verify_goes_on_where_a_folder_is_none(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(kept, "fine")
    Path("bad").mkdir()
    Path("bad/table.json").write_text("[")
    assert main(["verify", "bad", "fine"]) == 1
    shown = capsys.readouterr().out
    assert "FAIL bad: bad has no readable table.json" in shown
    assert "ok   fine:" in shown


def test_what_is_not_ours_in_the_folder_of_new_files_stays(kept: Path, tmp_path: Path) -> None:
    mine = tmp_path / "out" / WORK / "making" / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(OutputError, match="was not made by Curiax"):
        publish.publish(gather([kept])[0], Heading("Kept"), tmp_path / "out")
    assert mine.read_text() == "mine"


def test_verify_tells_an_interrupted_report_and_goes_on_to_the_next_folder(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c"):
        shutil.copytree(kept, name)
    shutil.copytree("b", f"b/{WORK}/new")
    Path("b/record/curves.parquet").write_bytes(b"?")
    Path("c/table.json").unlink()
    assert main(["verify", "."]) == 1
    shown = capsys.readouterr().out
    assert "ok   a:" in shown
    assert "b holds parts of two reports: writing the newer one was interrupted." in shown
    assert "FAIL b:" in shown
    assert "c/table.json is missing." in shown
    assert "FAIL c:" in shown


def test_a_linked_store_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the folder of a suite's runs nor that of one of them, which nobody named."""
    (tmp_path / "elsewhere").mkdir()
    words = ["reproduce", "noisy-tv", "--methods", "random", "--steps", "2048", "--seeds", "1", "--quiet", "--out"]
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "runs").symlink_to(tmp_path / "elsewhere")
    assert main([*words, str(suite)]) == 2
    assert "runs" in capsys.readouterr().err
    store = tmp_path / "store"
    store.mkdir()
    chosen = Experiment("mountain-car", "random", seeds=1, steps=2048)
    place = store / run_folder(resolve(chosen))
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="is a link, which is not followed"):
        train_suite([chosen], store, Silent())
    assert list((tmp_path / "elsewhere").iterdir()) == []
