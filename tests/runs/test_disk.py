"""Disks that fill up, lose power or vanish: what a rename relies on is there, and a killed save leaves nothing."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from stopped import EVERY_BORDER, FACTS, IDENTITY, At, crash, experiment, steps

import curiax
from curiax._errors import CheckpointError
from curiax.experiments import folder
from curiax.experiments import store as storing
from curiax.experiments.store import Checkpoints, Snapshot
from curiax.report import output

pytestmark = pytest.mark.usefixtures("compiled_once", "written_at_once")


def test_metrics_that_vanish_are_missed_at_the_next_checkpoint(tmp_path: Path) -> None:
    def vanish() -> None:
        for copy in storing.COPIES:
            shutil.rmtree(tmp_path / "run" / "checkpoints" / copy)

    progress = At(4, vanish)
    with pytest.raises(CheckpointError, match=r"no checkpoint could be written to .*has vanished\. Restore"):
        curiax.run(experiment(method="random"), tmp_path / "run", progress=progress, options=EVERY_BORDER)
    store = Checkpoints(tmp_path, IDENTITY, 3)
    store.segments = [{"first": 0, "last": 1, "name": "000000000-000000001.safetensors", "digest": "0" * 32}]
    with pytest.raises(CheckpointError, match=r"the metrics in .* cannot be used: neither copy of.*Restore"):
        store.metrics()


def test_a_full_disk_ends_the_run_and_leaves_the_step_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what, true, calls = experiment(method="random"), storing.write_whole, list[int]()

    def full(file: Path, data: bytes) -> None:
        calls.append(1)
        if len(calls) > 6:  # two copies of the metrics, state and description: in the middle of the second step
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        true(file, data)

    monkeypatch.setattr(storing, "write_whole", full)
    with pytest.raises(
        curiax.CuriaxError, match=r"iteration \d+ could not be written.*No space left.*intact"
    ) as raised:
        curiax.run(what, tmp_path / "run", progress=At(99, crash), options=EVERY_BORDER)
    assert raised.value.exit_code == 1
    assert len(steps(tmp_path / "run" / "checkpoints")) == 1
    assert not list((tmp_path / "run" / "checkpoints").glob(".*"))
    monkeypatch.undo()
    assert curiax.run(what, tmp_path / "run").manifest["digest"] == curiax.run(what).manifest["digest"]


FULL = """
import resource, sys, curiax
from small import SMALL
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
what = curiax.Experiment("mountain-car", "none", seeds=2, steps=128 * 400, settings=SMALL)
try:
    curiax.run(what, sys.argv[1], options=curiax.RunOptions(checkpoint_seconds=0.0))
except curiax.CuriaxError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def test_a_disk_that_takes_no_more_bytes_for_real(tmp_path: Path) -> None:
    """The kernel refuses to let files grow."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "CURIAX_CACHE": "off"},  # whose files could not grow either
    )
    assert done.returncode == 1, done.stderr[-2000:]
    assert "could not be written" in done.stdout
    assert "File too large" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("when", [3, 10])
def test_a_folder_that_vanishes_is_a_message(when: int, tmp_path: Path) -> None:
    """In the middle of the run, and after its last iteration."""
    vanish = At(when, lambda: shutil.rmtree(tmp_path / "run"))
    with pytest.raises(curiax.CuriaxError, match=r"(could be written to|could not be written to|the metrics in) .*run"):
        curiax.run(experiment(method="random"), tmp_path / "run", progress=vanish, options=EVERY_BORDER)


class Disk:
    """What of some folders a power cut would leave: of a file the bytes, of a folder the entries, as last synced."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root, self.synced, self.renames = root, dict[int, Any](), 0
        fsync, replace = os.fsync, os.replace

        def synced(handle: int) -> None:
            fsync(handle)
            self.synced[os.fstat(handle).st_ino] = self.now(Path(f"/proc/self/fd/{handle}").resolve())

        def renamed(old: Any, new: Any) -> None:
            # The names with a dot are temporary: nothing relies on them yet.
            if not Path(new).name.startswith("."):
                self.check(Path(old), Path(new))
                self.renames += 1
            replace(old, new)

        patch.setattr(os, "fsync", synced)
        patch.setattr(os, "replace", renamed)

    def now(self, path: Path) -> Any:
        return {e.name: e.inode() for e in os.scandir(path) if e.name[0] != "."} if path.is_dir() else path.read_bytes()

    def hidden(self, path: Path) -> bool:
        return any(part.startswith(".") for part in path.relative_to(self.root).parts)

    def check(self, old: Path, new: Path) -> None:
        """What is renamed is on the disk and, where something visible is completed by it, so is everything else."""
        relied_on = {old, *old.rglob("*")}
        if not self.hidden(new) and new.name.startswith(("manifest", "curiax-files", "step-")):
            relied_on |= {path for path in (self.root, *self.root.rglob("*")) if not self.hidden(path)}
        for path in relied_on:
            if path.exists() and path.name not in ("lock", "holder.txt"):
                then, now = self.synced.get(path.stat().st_ino), self.now(path)
                # Names that have gone since are no matter.
                there = now.items() <= (then or {}).items() if path.is_dir() else now == then
                assert there, f"{path} before {new} is renamed"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")
def test_whatever_a_rename_relies_on_is_on_the_disk_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    root.mkdir()
    disk = Disk(root, monkeypatch)
    disk.synced[root.stat().st_ino] = {}
    with folder.claimed(root / "runs" / "mine") as place:
        here = Checkpoints(place, IDENTITY, 2)
        for k in range(4):
            here.save(Snapshot(k + 1, {"x": np.full(3, float(k))}, FACTS), [{"m": np.full((2, 1), float(k))}])
        assert disk.renames == 1 + 4 * 5  # the mark; two copies of metrics, a state, its facts, and their folder
        with storing.staged(place) as stage:
            folder.write(stage, {"run_id": "0"}, polars.DataFrame({"m": [1.0]}))
            folder.publish(stage, root / "runs" / "mine")
    output.replace_files(root / "report", lambda making: (making / "table.json").write_bytes(b"{}"))
    assert (root / "report" / "curiax-files.json").exists()


@pytest.mark.parametrize("left_out", ["sync_folder", "fsync"])
def test_the_disk_misses_what_was_not_synced(left_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path, monkeypatch)
    if left_out == "fsync":
        monkeypatch.setattr(os, "fsync", lambda handle: None)
    else:
        monkeypatch.setattr(storing, "sync_folder", lambda folder: None)
    disk.synced[tmp_path.stat().st_ino] = {}
    with pytest.raises(AssertionError, match=r"before .* is renamed"):
        Checkpoints(tmp_path, IDENTITY, 2).save(Snapshot(1, {"x": np.ones(3)}, FACTS), [{"m": np.zeros((2, 1))}])


KILLED = """
import os, shutil, sys, tempfile
from pathlib import Path
import numpy as np
from curiax import _files
from curiax.experiments import folder, store
from test_facts import FACTS, IDENTITY

counted = ("replace", "fsync", "mkdir", "open", "unlink", "rmdir", "chmod")

def saved(place, upto, die_at=None):
    calls = [0]
    def counting(true):
        def call(*args, **kwargs):
            calls[0] += 1
            if calls[0] == die_at:
                os._exit(9)
            return true(*args, **kwargs)
        return call
    here = store.Checkpoints(place, IDENTITY, 2)
    here.newest(lambda text: sys.exit(text))
    for name in counted if die_at is not None or upto == 0 else ():
        setattr(os, name, counting(getattr(os, name)))
    for k in range(here.done, upto or 3):
        here.save(store.Snapshot(k + 1, {"x": np.full(3, float(k))}, FACTS), [{"m": np.full((2, 1), float(k))}])
    removing = place.parent / "removing"
    removing.touch()
    folder.remove(place, finished=True)

with tempfile.TemporaryDirectory() as base:
    probe = Path(base) / "probe"
    probe.mkdir()
    die_at = 0
    while True:
        die_at += 1
        run = Path(base) / str(die_at)
        place = run / "checkpoints"
        place.mkdir(parents=True)
        _files.mark(place)
        pid = os.fork()
        if not pid:
            saved(place, 3, die_at)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if (run / "removing").exists():
            assert not place.exists() or store.begun(place) or folder.just_made(place), sorted(place.rglob("*"))
            folder.remove(place, finished=True)
            assert not place.exists(), (die_at, sorted(place.rglob("*")))
            if code == 0:
                break
            continue
        here = store.Checkpoints(place, IDENTITY, 2)
        found = here.newest(lambda text: sys.exit(text))
        assert (found is None) == (not store.steps_in(place)), place
        if found is not None:
            assert found.arrays["x"][0] == found.iteration - 1
            assert [m["m"][0, 0] for m in here.metrics()] == list(range(found.iteration))
        left = sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())
        steps = [path.name for path in store.steps_in(place)]
        files = {f"{step}/{name}" for step in steps for name in ("state.safetensors", "step.json")}
        done = found.iteration if found else 0
        files |= {f"{copy}/{k:09d}-{k + 1:09d}.safetensors" for copy in store.COPIES for k in range(done)}
        files |= {_files.MARK}
        assert set(left) == files, (die_at, left, files)
        folder.remove(place, finished=True)
        assert not place.exists(), sorted(place.rglob("*"))
    print(die_at)
"""


def test_a_kill_at_any_moment_of_a_save_leaves_nothing_that_the_next_start_does_not_remove(tmp_path: Path) -> None:
    """Before each of all the calls to the kernel that three saves make, and the removal of all that they wrote."""
    (tmp_path / "test_facts.py").write_text(f"FACTS, IDENTITY = {FACTS!r}, {IDENTITY!r}")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 50


FINISHING = r"""
import resource, sys
from pathlib import Path
import polars as pl
from curiax import CuriaxError
from curiax.experiments import folder
stage = Path(sys.argv[1])
folder.write(stage, {"command": "curiax \u2192"}, pl.DataFrame({"a": range(1000)}))
assert "\u2192" in (stage / "manifest.json").read_text("utf-8")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    folder.write(stage, {}, pl.DataFrame({"a": range(1000)}))
except CuriaxError as error:
    print(error)
"""


def test_results_are_written_whatever_the_locale_and_a_full_disk_is_told(tmp_path: Path) -> None:
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [sys.executable, "-c", FINISHING, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, env=plain)
    assert done.returncode == 0, done.stderr
    assert "the results could not be written to" in done.stdout
    assert "File too large" in done.stdout


def test_a_half_written_step_is_no_step(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, IDENTITY, 3)
    store.save(Snapshot(1, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, 1))}])
    shutil.copytree(tmp_path / "step-000000001", tmp_path / ".writing-12345678")
    (tmp_path / "metrics" / "000000001-000000002.safetensors").write_bytes(b"beyond the step")
    again = Checkpoints(tmp_path, IDENTITY, 3)
    assert again.newest(pytest.fail) is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics", "metrics-copy", "step-000000001"]
    assert len(list((tmp_path / "metrics").iterdir())) == 1
