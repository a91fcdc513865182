"""Spreading runs over processes: the serial results, whatever happens to the workers."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from small import SMALL

from curiax import CuriaxError, Experiment, RunOptions, UsageError, run
from curiax._errors import Interrupted
from curiax.cli import main
from curiax.experiments.folder import read_metrics
from curiax.experiments.interrupt import TOGETHER
from curiax.experiments.spec import resolve
from curiax.launch import (
    AbstractLauncher,
    Ending,
    Job,
    Local,
    choose,
    driver,
    launch,
    launch_experiments,
    progress_file,
    ray_cluster,
    show,
)
from curiax.launch.driver import Entry
from curiax.launch.progress_file import FileProgress, Standing
from curiax.launch.sweep import cpu_devices, entries_for

#: Long enough to be caught at work, and compiled as one iteration at a time, as other tests have it.
SHORT = [Experiment("mountain-car", m, seeds=(0, 4, 7), steps=128 * 97, settings=SMALL) for m in ("random", "lbs")]
SICK = """
import curiax
from curiax.testing import NoisyArm
class Sick(curiax.AbstractCuriosity):
    "Cannot be built."
    def __init__(self, spec, *, key): raise RuntimeError("no networks today")
    def reward(self, memory, t, *, key): return memory, 0.0
    def loss(self, t, *, draw): return 0.0, {}
"""


@pytest.fixture(scope="module")
def serial() -> dict[str, pl.DataFrame]:
    return {str(experiment.method): run(experiment).metrics for experiment in SHORT}


def job(folder: Path, **changed: Any) -> Job:
    return Job(
        **{"experiment": SHORT[0].as_json(), "folder": str(folder), "devices": 2, "options": RunOptions(), **changed}
    )


def runs_in(store: Path) -> list[Path]:
    return sorted(path for path in store.iterdir() if not path.name.startswith("."))


@contextlib.contextmanager
def killing_one(store: Path) -> Iterator[list[Standing]]:
    """Kill the first worker that has trained an iteration; what it had said is in the list."""
    killed: list[Standing] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            for file in store.glob(".*.progress"):
                standing = progress_file.read(file)
                if standing and standing.iteration and not killed:
                    os.kill(standing.pid, signal.SIGKILL)
                    killed.append(standing)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def test_a_job_survives_the_journey(tmp_path: Path) -> None:
    options = RunOptions(checkpoint_seconds=float("inf"), keep=2, on_nonfinite="drop", wait=True)
    sent = job(tmp_path, options=options, path=("a", "b"), command=("curiax", "reproduce"))
    text = sent.to_text()
    assert "\n" not in text
    assert Job.from_text(text) == sent
    assert sent.as_experiment() == SHORT[0]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"devices": 2}', "no", '{"experiment": {}, "folder": 3, "devices": 1, "options": {}}']
)
def test_what_is_no_job_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a job"):
        Job.from_text(text)


def test_processes_give_the_serial_bits_though_one_is_killed_and_one_fails(
    tmp_path: Path, serial: dict[str, pl.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sick_method.py").write_text(SICK)
    monkeypatch.syspath_prepend(str(tmp_path / "own"))
    sick = Experiment("mountain-car", "sick_method:Sick", seeds=2, steps=512, settings=SMALL)
    store, lines = tmp_path / "store", tmp_path / "lines"
    message = r"(?s)1 of 3 runs failed; the others are finished.*sick_method:Sick on mountain-car: .*no networks today"
    with lines.open("w") as stream, killing_one(store) as killed, pytest.raises(CuriaxError, match=message):
        launch_experiments([sick, *SHORT], store, Local(2), show.Lines(stream))
    assert len(killed) == 1
    assert 0 < killed[0].iteration <= killed[0].iterations == 97
    assert killed[0].host == socket.gethostname()
    folders = runs_in(store)
    assert [path.name.rpartition("_")[0] for path in folders] == ["mountain-car_lbs", "mountain-car_random"]
    for path in folders:
        manifest = json.loads((path / "manifest.json").read_text())
        assert read_metrics(path).equals(serial[manifest["identity"]["method"]])
        assert len(manifest["devices"]) == 2
        assert sys.argv[-1] in manifest["command"]
    text = lines.read_text()
    lost = r"worker lost at iteration \d+ \(its process was ended by SIGKILL\); it is called again"
    assert len(re.findall(lost, text)) == 1
    assert len(text.splitlines()) == 4, text

    entries = entries_for(SHORT, store, RunOptions(), cpu_devices())
    assert [entry.state for entry in entries] == ["read", "read"]
    launch(entries, Refusing(), show.Nothing())


def test_a_suite_in_processes_ends_with_a_report_of_the_serial_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["reproduce", "noisy-tv", "--methods", "random", "--steps", "4096", "--seeds", "3", "--out", "here"]
    assert main([*line, "--launcher", "local", "--workers", "2"]) == 0
    captured = capsys.readouterr()
    assert re.findall(r"\[\d/2\] random on ([a-z-]+): done, coverage", captured.err)
    assert "report:  here/report.html" in captured.out
    rows = [row for row in json.loads(Path("here/table.json").read_text())["rows"] if row["metric"] == "coverage/cells"]
    assert {row["task"] for row in rows} == {"mountain-car", "mountain-car-frozen"}
    for row in rows:
        final = run(Experiment(row["task"], "random", seeds=3, steps=4096)).final("coverage/cells")
        assert row["values"] == pytest.approx(list(final.values()), rel=1e-6)


class Refusing(AbstractLauncher):
    """A launcher that nobody may ask for anything."""

    slots = 1

    def open(self) -> None:
        raise AssertionError

    def start(self, job: Job) -> Any:
        raise AssertionError

    def ended(self, call: Any) -> Ending | None:
        raise AssertionError

    def stop(self, call: Any, *, force: bool) -> None:
        raise AssertionError

    def close(self) -> None:
        raise AssertionError


class Scripted(AbstractLauncher):
    """Workers that do what a script says: for each call of a job the iteration it reaches and how it ends."""

    def __init__(self, scripts: dict[str, list[tuple[int, str]]], slots: int | None = 2) -> None:
        self.scripts, self.slots = scripts, slots
        self.started: list[str] = []
        self.at_once, self.most = 0, 0

    def open(self) -> None:
        pass

    def start(self, job: Job) -> Any:
        name = Path(job.folder).name
        self.started.append(name)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        reached, state = self.scripts[name].pop(0)
        if reached:
            job.progress_file.write_text(
                json.dumps({"iteration": reached, "iterations": 100, "note": "", "pid": 1, "host": "h"})
            )
        return state

    def ended(self, call: Any) -> Ending | None:
        self.at_once -= 1
        return Ending(call, f"{call}, as the script says")

    def stop(self, call: Any, *, force: bool) -> None:
        raise AssertionError

    def close(self) -> None:
        pass


def scripted(folder: Path, scripts: dict[str, list[tuple[int, str]]]) -> list[Entry]:
    return [Entry(job(folder / name)) for name in scripts]


@pytest.fixture
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "PAUSE", 0.0)


@pytest.mark.usefixtures("_no_pause")
@pytest.mark.parametrize("slots", [1, 2, None])
def test_lost_runs_are_called_again_as_long_as_they_get_on(tmp_path: Path, slots: int | None) -> None:
    getting_on = [(10 * k, "lost") for k in range(1, 9)] + [(0, "done")]
    scripts = {
        "slow": getting_on,
        "quick": [(50, "done")],
        "unlucky": [(0, "lost")] * 4 + [(1, "lost")] * 4 + [(2, "done")],
    }
    entries = scripted(tmp_path, scripts)
    launcher = Scripted(scripts, slots)
    with pytest.warns(UserWarning, match="done, as the script says"):
        launch(entries, launcher, show.Nothing())
    assert [(entry.state, entry.calls) for entry in entries] == [("done", 9), ("done", 1), ("done", 9)]
    assert launcher.most == min(slots or 3, 3)
    assert list(tmp_path.iterdir()) == [], "no progress file is left"


@pytest.mark.usefixtures("_no_pause")
def test_a_run_that_never_gets_on_is_given_up_and_a_failed_one_is_not_repeated(tmp_path: Path) -> None:
    scripts = {
        "doomed": [(7, "lost"), *[(7, "lost")] * 5],
        "sick": [(3, "failed")],
        "well": [(9, "lost"), (99, "lost"), (99, "lost"), (100, "done")],
    }
    entries = scripted(tmp_path, scripts)
    launcher = Scripted(scripts)
    with pytest.warns(UserWarning, match="done"), pytest.raises(CuriaxError) as raised:
        launch(entries, launcher, show.Nothing())
    assert [(entry.state, entry.calls) for entry in entries] == [("failed", 5), ("failed", 1), ("done", 4)]
    text = str(raised.value)
    assert text.startswith("2 of 3 runs failed; the others are finished and kept.")
    assert "lost 5 times in a row and never got beyond iteration 7; the last time: lost, as the script says" in text
    assert "random on mountain-car: failed, as the script says" in text
    assert raised.value.exit_code == 1


class Deaf(Scripted):
    """Workers that never end until they are forced to."""

    def __init__(self, patience: int) -> None:
        super().__init__({"a": [(5, "lost")], "b": [(5, "lost")], "c": []})
        self.patience = patience
        self.asked: list[bool] = []

    def start(self, job: Job) -> Any:
        super().start(job)
        if len(self.started) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return job

    def ended(self, call: Any) -> Ending | None:
        return Ending("lost", "stopped") if self.asked.count(True) or len(self.asked) >= self.patience else None

    def stop(self, call: Any, *, force: bool) -> None:
        self.asked.append(force)


@pytest.mark.parametrize(("patience", "asked"), [(2, [False, False]), (99, [False, False, True, True])])
def test_told_to_stop_the_driver_asks_every_worker_then_insists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: int, asked: Sequence[bool]
) -> None:
    monkeypatch.setattr(driver, "GRACE", 0.3)
    launcher = Deaf(patience)
    entries = scripted(tmp_path, launcher.scripts)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted, match=r"0 of 3 runs are finished.*The same command continues") as raised:
        launch(entries, launcher, show.Nothing())
    assert raised.value.exit_code == 130
    assert launcher.asked == asked
    assert launcher.started == ["a", "b"]
    assert signal.getsignal(signal.SIGINT) == before


def test_a_second_interrupt_leaves_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Deaf(99)

    def again(call: Any, *, force: bool) -> None:
        time.sleep(2 * TOGETHER)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(launcher, "stop", again)
    begun = time.monotonic()
    with pytest.raises(Interrupted, match="left at once"):
        launch(scripted(tmp_path, launcher.scripts), launcher, show.Nothing())
    assert time.monotonic() - begun < 5


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and is not yet collected does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def until(true: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What a condition comes to once it holds."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)
    return found


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_workers_do_not_outlive_their_driver(tmp_path: Path, number: int, code: int) -> None:
    line = ["reproduce", "noisy-tv", "--methods", "random", "--seeds", "64", "--launcher", "local", "--quiet"]
    command = [sys.executable, "-m", "curiax", *line, "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    store = tmp_path / "out" / "runs"

    def busy() -> list[int]:
        standings = [progress_file.read(file) for file in store.glob(".*.progress")]
        pids = [standing.pid for standing in standings if standing and standing.iterations]
        return pids if len(pids) == 2 else []

    pids = until(busy)
    assert all(map(alive, pids))
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert ("0 of 2 runs are finished" in errors and "The same command continues" in errors) == (code == 143), errors
    until(lambda: not any(map(alive, pids)), seconds=30)


RAY = """
import json, sys
from pathlib import Path
import curiax
from curiax.launch import RayCluster, launch_experiments, show
chosen = [curiax.Experiment.from_json(data) for data in json.loads(sys.argv[1])]
launch_experiments(chosen, Path(sys.argv[2]), RayCluster(None, 2), show.Lines())
"""


@pytest.mark.slow
def test_a_ray_cluster_gives_the_serial_bits_though_a_worker_is_killed(
    tmp_path: Path, serial: dict[str, pl.DataFrame]
) -> None:
    """In a process of its own: Ray forks, and says things that we would take for errors."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sick_method.py").write_text(SICK)
    sick = Experiment("mountain-car", "random", seeds=2, steps=512, settings=SMALL).as_json()
    data = json.dumps([*(experiment.as_json() for experiment in SHORT), {**sick, "method": "sick_method:Sick"}])
    # Ray's sockets want a short path.
    with tempfile.TemporaryDirectory(prefix="ray") as short, killing_one(tmp_path / "store") as killed:
        done = subprocess.run(
            [sys.executable, "-c", RAY, data, str(tmp_path / "store")],
            capture_output=True,
            text=True,
            cwd=tmp_path / "own",
            env={**os.environ, "JAX_NUM_CPU_DEVICES": "2", "TMPDIR": short},
        )
        assert not list(Path(short).glob("curiax-ray-*")), "Ray's session is removed"
    assert "CuriaxError: 1 of 3 runs failed" in done.stderr, done.stderr
    assert "sick_method:Sick on mountain-car: " in done.stderr
    assert len(killed) == 1
    assert 0 < killed[0].iteration < killed[0].iterations
    for path in runs_in(tmp_path / "store"):
        assert read_metrics(path).equals(serial[json.loads((path / "manifest.json").read_text())["identity"]["method"]])
    lines = done.stderr.partition("Traceback")[0].splitlines()
    assert len([line for line in lines if "worker lost at iteration" in line]) == 1
    lines = [line for line in lines if not line.endswith("so far")]  # a line now and then on a slow machine
    assert len(lines) == 4, f"Ray itself says nothing:\n{done.stderr}"


def test_rays_folder_is_private_and_does_not_outlive_a_killed_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    child = f"""
import os, tempfile
tempfile.tempdir = {str(tmp_path)!r}
from curiax.launch.ray_cluster import OwnFolder
folder = OwnFolder()
folder.inner.mkdir()
(folder.inner / "session").touch()
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", child], check=False)
    (left,) = tmp_path.iterdir()
    assert left.stat().st_mode & 0o777 == 0o700
    mine = tmp_path / f"{ray_cluster.PREFIX}notes"
    mine.mkdir(mode=0o700)
    (mine / "diary").touch()
    shared = tmp_path / f"{ray_cluster.PREFIX}shared"
    shared.mkdir(mode=0o755)
    (shared / ray_cluster.LOCK).touch()
    link = tmp_path / f"{ray_cluster.PREFIX}link"
    link.symlink_to(mine)
    own, other = ray_cluster.OwnFolder(), ray_cluster.OwnFolder()
    assert {*tmp_path.iterdir()} == {own.path, other.path, mine, shared, link}, "only what was left is removed"
    for folder in (own, other):
        folder.remove()
    assert {*tmp_path.iterdir()} == {mine, shared, link}
    assert (mine / "diary").exists()


def test_without_ray_the_way_to_get_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'curiax\[ray\]'"):
        choose("ray", None, None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--workers 2", "choose local or ray"),
        ("--launcher local --workers 0", "must be 1 or more"),
        ("--launcher local --address a:1", "only --launcher ray"),
        ("--launcher slurm", "invalid choice"),
    ],
)
def test_wrong_words(
    words: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "noisy-tv", *words.split()]) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_an_address_where_nobody_listens_is_refused_quickly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ray_cluster.greet(f"127.0.0.1:{port}")
    begun = time.monotonic()
    with pytest.raises(CuriaxError, match=rf"nobody answers at 127.0.0.1:{port}"):
        ray_cluster.greet(f"127.0.0.1:{port}")
    with pytest.raises(CuriaxError, match="nobody answers"):
        ray_cluster.greet("127.0.0.1:999999")
    with pytest.raises(UsageError, match="give HOST:PORT"):
        ray_cluster.greet("nowhere")
    assert time.monotonic() - begun < 6


def test_a_worker_of_another_version_or_layout_refuses(tmp_path: Path) -> None:
    from curiax.launch.worker import carry_out

    ending, code = carry_out(job(tmp_path / "run", version="0.0.1").to_text())
    assert (ending.state, code) == ("failed", 2)
    assert "the sweep 0.0.1: install the same on both" in ending.message
    ending, code = carry_out(job(tmp_path / "run", devices=3).to_text())
    assert (ending.state, code) == ("failed", 2)
    assert "has 2 JAX devices on its CPU, the sweep asks for 3" in ending.message
    assert not (tmp_path / "run").exists()


def test_progress_is_replaced_whole_and_not_too_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "deep" / ".run.progress"
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    progress = FileProgress(file)
    progress.declare(resolve(Experiment("mountain-car", "lbs")))
    assert progress_file.read(file) == Standing(pid=os.getpid(), host=socket.gethostname())
    progress.start("lbs on mountain-car", 200, 2000)
    latest = {"coverage/cells": np.asarray([10.0, 20.0])}
    progress.advance(3, latest)
    standing = progress_file.read(file)
    assert standing is not None
    assert (standing.iteration, standing.note) == (0, "compiling"), "too soon"
    now += 0.6
    progress.advance(50, latest)
    standing = progress_file.read(file)
    assert standing is not None
    assert (standing.iteration, standing.share, standing.note) == (50, 0.25, "coverage 15.0 % (cells)")
    progress.advance(200, latest)
    progress.finish()
    standing = progress_file.read(file)
    assert standing is not None
    assert standing.share == 1.0
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    for broken in ("", "{", "[]", '{"iteration": "x"}', '{"iteration": 1.5}'):
        file.write_text(broken)
        assert progress_file.read(file) is None
    progress_file.remove(file)
    assert progress_file.read(file) is None
    progress_file.remove(file)
    file.parent.rmdir()
    progress.finish()


def entry(task: str, label: str, state: Any, iteration: int = 0, calls: int = 0) -> Entry:
    experiment = Experiment(task, "lbs", label=label).as_json()
    note = "coverage  12.3 % (cells)"
    standing = Standing(iteration, 100, note)
    return Entry(Job(experiment, f"/{task}/{label}", 2, RunOptions()), state, standing, calls=calls)


def drawn(entries: list[Entry], width: int, height: int) -> list[str]:
    from rich.console import Console

    console = Console(width=width, height=height, file=io.StringIO())
    clock = show.Clock()
    clock.look(entries)
    console.print(show.table(entries, clock, width, height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_the_table_shows_every_run_where_there_is_room() -> None:
    entries = [
        entry("mountain-car-evolving", "rollout 512, bootstrap, executed", "running", 50, 2),
        entry("half-cheetah", "[bold]", "done", 100, 1),
        entry("half-cheetah", "rnd", "read"),
        entry("half-cheetah", "icm", "failed", 3, 1),
        entry("half-cheetah", "vime", "waiting"),
    ]
    lines = drawn(entries, 80, 24)
    assert len(lines) == 7
    assert max(map(len, lines)) <= 80
    assert re.fullmatch(r"mountain-car-evolving  rollout 512, bootstrap…  ━{8}  50 %  12\.3 % +2", lines[1])
    assert re.fullmatch(r"half-cheetah +\[bold\] +done +12\.3 % +1 *", lines[2])
    assert re.fullmatch(r"half-cheetah +icm +failed +1 *", lines[4])
    assert lines[6].startswith(
        "2 of 5 finished, 1 running, 1 waiting, 1 failed, 1 called again; 0:00 so far".replace("0:00", "00:00")
    )


def test_the_table_folds_what_matters_least() -> None:
    states = ["done"] * 20 + ["failed"] + ["running"] * 2 + ["waiting"] * 17
    entries = [entry("mountain-car", f"line {k}", state, 10) for k, state in enumerate(states)]
    text = "\n".join(drawn(entries, 80, 24))
    assert len(text.splitlines()) < 24
    assert "… 20 finished" in text
    assert "… 3 more waiting" in text
    assert all(name in text for name in ("line 20", "line 21", "line 22", "line 36"))
    assert "line 37" not in text
    assert "line 19" not in text
    assert "20 of 40 finished, 2 running, 17 waiting, 1 failed" in text
    everything = "\n".join(drawn(entries, 120, 60))
    assert all(f"line {k}" in everything for k in range(40))


def test_time_left_counts_only_what_this_sweep_has_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    clock = show.Clock()
    entries = [entry("mountain-car", "a", "read"), entry("mountain-car", "b", "running", 40)]
    clock.look(entries)
    assert clock.left is None
    now = 10.0
    entries[1].standing = Standing(60, 100)
    clock.look(entries)
    assert clock.left == pytest.approx(20.0), "0.2 in 10 s, 0.4 to go"


def test_every_job_waits_for_a_worker_that_is_on_its_way_out(tmp_path: Path) -> None:
    chosen = [Experiment("mountain-car", "random", seeds=1, steps=128, settings=SMALL)]
    (entry,) = entries_for(chosen, tmp_path, RunOptions(keep=2), 1)
    assert entry.job.options == RunOptions(keep=2, wait=True)
