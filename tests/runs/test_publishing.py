"""A run's folder at its end: results appear as a whole, and what is not the run's own is let be."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stopped import EVERY_BORDER, FACTS, IDENTITY, At, experiment, steps

import curiax
from curiax._errors import CheckpointError, OutputError
from curiax._files import mark
from curiax.experiments import folder
from curiax.experiments import store as storing
from curiax.experiments.store import Checkpoints, Snapshot

pytestmark = pytest.mark.usefixtures("compiled_once", "written_at_once")


def test_checkpoints_of_a_finished_run_are_removed_when_it_is_read(tmp_path: Path) -> None:
    """Killed between the manifest and the cleaning up."""
    what = experiment(method="random", iterations=2)
    curiax.run(what, tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    (checkpoints / "step-000000001").mkdir(parents=True)
    (checkpoints / "step-000000001" / "state.safetensors").write_text("whose?")
    assert curiax.run(what, tmp_path / "run").reused
    assert (checkpoints / "step-000000001" / "state.safetensors").read_text() == "whose?", (
        "it is not marked as Curiax's"
    )
    mark(checkpoints)
    assert curiax.run(what, tmp_path / "run").reused
    assert not checkpoints.exists()


def test_what_orbax_left_in_a_finished_run_is_removed_and_nothing_else(tmp_path: Path) -> None:
    """Names as Curiax 0.4 left them on the disk, when it was killed during a save."""
    checkpoints = tmp_path / "checkpoints"
    for name in (
        "step-000000002/step.json",
        "step-000000002/arrays/_METADATA",
        "step-000000002/arrays/manifest.ocdbt",
        "step-000000002/arrays/commit_success.txt",
        "step-000000002/arrays/d/385ec6b25635a3c8c0dd76dabd133ddb",
        "step-000000002/arrays/ocdbt.process_0/d/d4c74cd9af15f1f0a885598244151c98",
        ".writing-0123abcd/arrays.orbax-checkpoint-tmp/_CHECKPOINT_METADATA",
        ".old-step-000000001-0123abcd/arrays/array_metadatas/process_0",
        "metrics/000000000-000000002.safetensors",
        "holder.txt",
        "lock",
    ):
        (checkpoints / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoints / name).touch()
    (checkpoints / ".finished").mkdir()
    (checkpoints / ".finished" / "metrics.parquet").touch()
    mine = checkpoints / "step-000000002" / "arrays" / "thesis.txt"
    mine.touch()
    folder.remove(checkpoints, finished=True)
    assert [path for path in checkpoints.rglob("*") if path.is_file()] == [mine]
    mine.unlink()
    folder.remove(checkpoints, finished=True)
    assert not checkpoints.exists()


def test_the_oldest_checkpoints_of_a_finished_run_are_known_by_who_held_them(tmp_path: Path) -> None:
    """Version 0.4, killed while it removed them."""
    what = experiment(method="random", iterations=2)
    curiax.run(what, tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    (checkpoints / "metrics").mkdir(parents=True)
    (checkpoints / "metrics" / "000000000-000000002.safetensors").touch()
    (checkpoints / "holder.txt").write_text("mine")
    assert curiax.run(what, tmp_path / "run").reused
    assert (checkpoints / "metrics" / "000000000-000000002.safetensors").exists()
    (checkpoints / "holder.txt").write_text("process 7 on here")
    assert curiax.run(what, tmp_path / "run").reused
    assert not checkpoints.exists()


@pytest.mark.parametrize("name", ["manifest.json", "metrics.parquet", "agents.json"])
def test_results_that_are_not_a_runs_are_never_replaced(name: str, crashed: Path) -> None:
    (crashed / name).write_text('{"name": "mine"}')
    with pytest.raises(OutputError, match=f"{name} was not put there by this run"):
        curiax.run(experiment(), crashed)
    assert (crashed / name).read_text() == '{"name": "mine"}'
    assert storing.steps_in(crashed / "checkpoints")


def test_results_that_appear_meanwhile_are_not_replaced_either(tmp_path: Path) -> None:
    out = tmp_path / "run"
    progress = At(2, lambda: (out / "metrics.parquet").write_text("mine") and None)
    with pytest.raises(curiax.CuriaxError, match=r"metrics.parquet was not put there by this run.*move it away"):
        curiax.run(experiment(method="random", iterations=3), out, progress=progress, options=EVERY_BORDER)
    assert (out / "metrics.parquet").read_text() == "mine"
    (out / "metrics.parquet").unlink()
    assert not curiax.run(experiment(method="random", iterations=3), out).reused


def test_a_run_that_was_killed_while_it_was_published_ends_as_it_would_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, what, replace = tmp_path / "run", experiment(method="random", iterations=3), os.replace

    def killed(old: Any, new: Any) -> None:
        if Path(new) == out / "metrics.parquet":
            raise KeyboardInterrupt
        replace(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        # A killed process removes nothing.
        patch.setattr(storing.shutil, "rmtree", lambda *_, **__: None)
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            curiax.run(what, out, options=EVERY_BORDER)
    assert {"agents.json", "agents.safetensors"} <= {path.name for path in out.iterdir()}
    again = curiax.run(what, out)
    assert again.manifest["digest"] == curiax.run(what).manifest["digest"]
    assert {path.name for path in out.iterdir()} == {"manifest.json", *folder.RESULTS}


@pytest.mark.parametrize("last", ["agents.safetensors", "metrics.parquet", "manifest.json"])
@pytest.mark.parametrize("error", [OSError(errno.EROFS, "Read-only file system"), KeyboardInterrupt()])
def test_an_error_while_a_run_is_published_leaves_no_results(
    last: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be in the way of the same command, which could not know them for its own."""
    out, what, replace = tmp_path / "run", experiment(method="random", iterations=3), os.replace

    def failing(old: Any, new: Any) -> None:
        if Path(new) == out / last:
            raise error
        replace(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing)
        with pytest.raises((curiax.CuriaxError, KeyboardInterrupt)):
            curiax.run(what, out, options=EVERY_BORDER)
    assert [path.name for path in out.iterdir()] == ["checkpoints"]
    assert curiax.run(what, out).manifest["continued"]


@pytest.mark.parametrize("linked", [False, True])
def test_a_save_replaces_nothing_that_is_not_its_own(linked: bool, tmp_path: Path) -> None:
    """A folder of the user's may have the name of a step that is still to come."""
    place, theirs = tmp_path / "checkpoints", tmp_path / "theirs"
    place.mkdir()
    theirs.mkdir()
    (theirs / "thesis.txt").write_text("mine")
    step = place / "step-000000001"
    step.symlink_to(theirs) if linked else theirs.rename(step)
    with pytest.raises(CheckpointError, match="step-000000001 is there already and was not put there by Curiax"):
        Checkpoints(place, IDENTITY, 3).save(Snapshot(1, {"x": np.ones(3)}, FACTS), [{"m": np.zeros((2, 1))}])
    assert (step / "thesis.txt").read_text() == "mine"
    assert step.is_symlink() == linked


def test_a_step_of_somebody_else_counts_for_nothing(tmp_path: Path) -> None:
    theirs = tmp_path / "step-999999999"
    theirs.mkdir()
    (theirs / "step.json").write_text("mine")
    here = Checkpoints(tmp_path, IDENTITY, 1)
    for k in range(3):
        here.save(Snapshot(k + 1, {"x": np.ones(3)}, FACTS), [{"m": np.zeros((2, 1))}])
    assert [path.name for path in storing.steps_in(tmp_path)] == ["step-000000003", "step-999999999"]
    assert (theirs / "step.json").read_text() == "mine"


def test_metrics_are_not_written_through_a_link(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (tmp_path / "metrics").symlink_to(theirs)
    with pytest.raises(CheckpointError, match="metrics is a link"):
        Checkpoints(tmp_path, IDENTITY, 3).save(Snapshot(1, {"x": np.ones(3)}, FACTS), [{"m": np.zeros((2, 1))}])
    assert not list(theirs.iterdir())


def test_who_works_on_a_run_is_not_written_through_a_link(tmp_path: Path) -> None:
    """A shared folder may hold links of others; a link in the place of the lock is no lock."""
    checkpoints, mine = tmp_path / "run" / "checkpoints", tmp_path / "mine"
    checkpoints.mkdir(parents=True)
    mine.write_text("mine")
    (checkpoints / "lock").touch()
    (checkpoints / "holder.txt").symlink_to(mine)
    with folder.claimed(tmp_path / "run"):
        assert mine.read_text() == "mine"
    (checkpoints / "holder.txt").unlink()
    (checkpoints / "lock").unlink(missing_ok=True)
    checkpoints.mkdir(exist_ok=True)
    (checkpoints / "lock").symlink_to(mine)
    with pytest.raises(OutputError, match="lock is a link"), folder.claimed(tmp_path / "run"):
        pass
    assert mine.read_text() == "mine"


def test_files_of_others_beside_a_run_are_let_be(crashed: Path) -> None:
    """A log in the folder of a run that is to be continued; notes among its checkpoints."""
    notes = [crashed / "nohup.out", *(crashed / "checkpoints" / name for name in ("a", "metrics/b"))]
    for note in notes:
        note.write_text("mine")
    assert curiax.run(experiment(), crashed).manifest["continued"]
    assert [note.read_text() for note in notes] == ["mine"] * 3
    assert curiax.run(experiment(), crashed).reused
    assert not steps(crashed / "checkpoints")


OTHERS = (
    "model.pt",
    "other/x",
    "step-000050000/model.pt",
    "step-000050000-best/model.pt",
    "step-000000001/notes.txt",
    "damaged-step-000000001/x",
    ".old-stuff/model.pt",
    ".writing-mine/x",
    ".writing-12345678/notes.txt",
    "damaged-step-000000001-abcd/state.safetensors/x",
    ".finished/thesis.tex",
    "metrics/000000001-000000002.safetensors-mine",
    "metrics/notes",
    "metrics-copy/deep/000000001-000000002.safetensors",
)


@pytest.mark.parametrize("linked", [False, True])
def test_what_others_put_among_checkpoints_is_never_removed(linked: bool, tmp_path: Path) -> None:
    """Neither when a run goes on nor when it is finished, whatever their names; a link's target neither."""
    place = tmp_path / "scratch" if linked else tmp_path / "run" / "checkpoints"
    place.mkdir(parents=True)
    (tmp_path / "run").mkdir(exist_ok=True)
    checkpoints = tmp_path / "run" / "checkpoints"
    if linked:
        checkpoints.symlink_to(place)
    store = Checkpoints(checkpoints, IDENTITY, 1)
    store.save(Snapshot(1, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, 1))}])
    for name in ("lock", "holder.txt"):
        (place / name).write_text("")
    for name in OTHERS:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("mine")
    store.save(Snapshot(2, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, 1))}])
    again = Checkpoints(checkpoints, IDENTITY, 1)
    assert again.newest(pytest.fail) is not None

    def theirs() -> set[str]:
        return {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}

    folder.remove(checkpoints, finished=False)
    assert theirs() == {*OTHERS, "lock", "holder.txt"}, "and it is still known as a run's"
    folder.remove(checkpoints, finished=True)
    assert theirs() == set(OTHERS)
    assert checkpoints.is_symlink() == linked


def test_only_a_runs_folder_is_taken_for_one(tmp_path: Path) -> None:
    """Results, or steps of somebody else beside an empty folder of checkpoints, are no run to go on with."""
    for k, files in enumerate(
        (
            ["metrics.parquet"],
            ["agents.json"],
            ["checkpoints/model.pt"],
            ["checkpoints/metrics"],
            ["checkpoints/step-000050000/model.pt"],
            ["checkpoints/holder.txt"],
        )
    ):
        place = tmp_path / str(k)
        (place / "checkpoints").mkdir(parents=True)
        for name in files:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text("mine")
        with pytest.raises(OutputError, match="not a Curiax run"):
            folder.existing_run(place, IDENTITY)
        assert {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()} == set(files)
    for k, files in enumerate(([], ["lock"])):
        place = tmp_path / f"fresh{k}"
        (place / "checkpoints").mkdir(parents=True)
        for name in files:
            (place / "checkpoints" / name).write_text("")
        assert folder.existing_run(place, IDENTITY) is None, "killed while it claimed the folder"


def test_a_stray_file_in_a_step_does_no_harm(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, IDENTITY, 3)
    store.save(Snapshot(1, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, 1))}])
    (tmp_path / "step-000000001" / ".DS_Store").write_text("by a file manager")
    assert Checkpoints(tmp_path, IDENTITY, 3).newest(pytest.fail) is not None


def test_the_manifest_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []
    real = os.replace
    monkeypatch.setattr(folder.os, "replace", lambda a, b: (moved.append(Path(b).name), real(a, b)))
    curiax.run(experiment(method="random", iterations=1), tmp_path / "run")
    files = ["agents.json", "agents.safetensors", "manifest.json", "metrics.parquet"]
    last = [name for k, name in enumerate(moved) if name in files and name not in moved[k + 1 :]]
    assert sorted(last) == files
    assert last[-1] == "manifest.json"
