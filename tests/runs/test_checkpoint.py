"""Checkpoints: whatever happens to a run or to its files, what continues is exactly what would have been."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bits
import corruption
import cost
import filelock
import kill
import memory
import numpy as np
import polars
import pytest
import safetensors.numpy
from common import ending
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from small import SMALL

import curiax
from curiax._errors import BusyError, CheckpointError, Interrupted, OutputError
from curiax._files import digest, mark
from curiax._source import code
from curiax.envs import MountainCar
from curiax.experiments import folder, interrupt, session
from curiax.experiments import run as running
from curiax.experiments import store as storing
from curiax.experiments import training as training_module
from curiax.experiments import writer as writing
from curiax.experiments.interrupt import TOGETHER
from curiax.experiments.progress import Silent
from curiax.experiments.spec import resolve
from curiax.experiments.store import Checkpoints, HostMetrics, Snapshot
from curiax.experiments.training import Training
from curiax.experiments.writer import CheckpointWriter, initially_infinite
from curiax.report import output
from curiax.train import batch, devices
from curiax.train.hosted import Lane
from curiax.train.lanes import LEAD, Border

pytestmark = pytest.mark.usefixtures("compiled_once")
IDENTITY = {"task": "t", "settings": {}, "seeds": [3, 5]}
EVERY_BORDER = curiax.RunOptions(checkpoint_seconds=0.0)


class At(Silent):
    """Does something when a run reaches an iteration."""

    def __init__(self, iteration: int, act: Callable[[], None]) -> None:
        self.iteration, self.act, self.messages = iteration, act, list[str]()

    def advance(self, iteration: int, latest: Mapping[str, np.ndarray]) -> None:
        if iteration == self.iteration:
            self.act()

    def say(self, text: str) -> None:
        self.messages.append(text)


def wait_for_saves(patch: pytest.MonkeyPatch) -> None:
    save = CheckpointWriter.save

    def save_and_wait(writer: CheckpointWriter, *args: Any) -> None:
        save(writer, *args)
        writer.wait()

    patch.setattr(CheckpointWriter, "save", save_and_wait)


@pytest.fixture(autouse=True)
def written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training waits for every checkpoint, so that tests know which ones there are."""
    wait_for_saves(monkeypatch)


def send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def crash() -> None:
    raise MemoryError("as good as killed")


def experiment(
    task: str = "mountain-car", method: str = "ngu", iterations: int = 10, **changes: Any
) -> curiax.Experiment:
    """With everything that a run can carry: a memory of episodes, a pool of rollouts, several environments.

    Where only signals, files and folders matter, `random` does, which is compiled in less than half of the time.
    """
    small = {**SMALL, "loop.envs": 2, "loop.rollout": 64, "learner.replay": 2, **changes}
    return curiax.Experiment(task, method, seeds=(0, 4, 7), steps=128 * iterations, settings=small)


@pytest.fixture(scope="module")
def crashed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `experiment()`, which was ended at its fifth iteration, with a checkpoint after each."""
    out = tmp_path_factory.mktemp("crashed") / "run"
    with pytest.MonkeyPatch.context() as patch:
        wait_for_saves(patch)
        with pytest.raises(MemoryError):
            curiax.run(experiment(), out, progress=At(5, crash), options=EVERY_BORDER)
    return out


@pytest.fixture
def crashed(crashed_once: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(crashed_once, tmp_path / "run"))


@pytest.fixture(scope="module")
def true_digest() -> str:
    """Of `experiment()`, run by nobody disturbed."""
    return curiax.run(experiment()).manifest["digest"]


def stop_and_continue(what: curiax.Experiment, out: Path, act: Callable[[], None], error: type[BaseException]) -> Any:
    """Run, be stopped at the fifth iteration, run again."""
    with pytest.raises(error) as caught:
        curiax.run(what, out, progress=At(5, act), options=EVERY_BORDER)
    assert not (out / "manifest.json").exists()
    return caught.value, curiax.run(what, out)


@pytest.mark.parametrize(
    ("task", "act", "error"),
    [
        ("mountain-car", crash, MemoryError),
        ("mountain-car", send(signal.SIGTERM), Interrupted),
        ("half-cheetah", send(signal.SIGTERM), Interrupted),
        ("gymnasium:CartPole-v1", crash, MemoryError),
    ],
)
def test_a_run_that_was_stopped_continues_to_the_same_bits(
    task: str, act: Callable[[], None], error: type[BaseException], tmp_path: Path
) -> None:
    what = experiment(task)
    curiax.run(what, tmp_path / "whole")
    _, again = stop_and_continue(what, tmp_path / "stopped", act, error)
    assert ending(tmp_path / "stopped") == ending(tmp_path / "whole")
    (continuation,) = again.manifest["continued"]
    assert 1 <= continuation["iteration"] <= 9
    assert sorted(path.name for path in (tmp_path / "stopped").iterdir()) == sorted(
        ["agents.json", "agents.safetensors", "manifest.json", "metrics.parquet"]
    )


@pytest.mark.parametrize("method", ["vime", "ride"])
def test_every_kind_of_method_continues_to_the_same_bits(method: str, tmp_path: Path) -> None:
    what = experiment(method=method)
    whole = curiax.run(what)
    _, again = stop_and_continue(what, tmp_path / "run", crash, MemoryError)
    assert again.manifest["digest"] == whole.manifest["digest"]
    assert again.metrics.equals(whole.metrics)


def test_being_told_to_stop_says_how_to_continue(tmp_path: Path) -> None:
    progress = At(2, send(signal.SIGINT))
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(
        Interrupted, match=r"stopped at step \d+ of 1,280, all of it saved in .*run\. To continue: "
    ) as raised:
        curiax.run(experiment(method="random"), tmp_path / "run", progress=progress)
    assert raised.value.exit_code == 130
    assert "Ctrl-C again leaves at once" in progress.messages[0]
    assert signal.getsignal(signal.SIGINT) is before
    assert isinstance(raised.value, KeyboardInterrupt), "no `except Exception` in a user's loop may swallow it"


def test_a_second_interrupt_leaves_at_once(tmp_path: Path) -> None:
    def twice() -> None:
        send(signal.SIGINT)()
        time.sleep(2 * TOGETHER)
        send(signal.SIGINT)()

    with pytest.raises(Interrupted, match="left at once"):
        curiax.run(experiment(method="random"), tmp_path / "run", progress=At(2, twice))


def test_interrupts_that_come_together_are_one(tmp_path: Path) -> None:
    """As `timeout --signal INT` sends them: to the process, and to its group."""

    def together() -> None:
        send(signal.SIGINT)()
        send(signal.SIGINT)()

    with pytest.raises(Interrupted, match="all of it saved"):
        curiax.run(experiment(method="random"), tmp_path / "run", progress=At(2, together))


def command(out: Path) -> subprocess.Popen[str]:
    """`curiax run` as a person starts it, told to save often, and in the middle of its training."""
    words = [
        "run",
        "mountain-car",
        "--method",
        "random",
        "--seeds",
        "2",
        "--steps",
        "100000000",
        "--checkpoint-seconds",
        "0.1",
    ]
    words += ["--loop.rollout", "128", "--out", str(out)]
    script = Path(sys.executable).with_name("curiax")
    process = subprocess.Popen([script, *words], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(out.glob("checkpoints/step-*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_command_saves_and_leaves_with_the_code_of_the_signal(number: int, code: int, tmp_path: Path) -> None:
    process = command(tmp_path / "run")
    before = max(steps(tmp_path / "run" / "checkpoints"))
    for _ in range(2):  # as one
        process.send_signal(number)
    errors = process.communicate(timeout=30)[1]
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert "To continue: curiax run mountain-car --method random" in errors
    assert max(steps(tmp_path / "run" / "checkpoints")) > before


#: Python's handlers wait for the next line of Python, which a compiled program may keep away for long.
DEAF = """
import hashlib, signal, sys
from curiax.experiments import interrupt
for number in interrupt.SIGNALS:
    signal.signal(number, lambda *_: None)
interrupt.leave_in_time(float(sys.argv[1]))
print("ready", flush=True)
hashlib.pbkdf2_hmac("sha256", b"", b"", 400_000_000)
"""


def deaf(seconds: float) -> subprocess.Popen[str]:
    """A process whose main thread hears nothing, told to leave so many seconds after the first signal."""
    words = [sys.executable, "-c", DEAF, str(seconds)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.2)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_is_granted_in_time_whatever_the_process_does(number: int) -> None:
    process = deaf(1.0)
    process.send_signal(number)
    errors = process.communicate(timeout=10)[1]
    assert process.returncode == 128 + number, errors
    kept = "what was saved before is kept, and the same command continues"
    assert f"left after 1 s, in the middle of an iteration; {kept}" in errors


def test_the_second_interrupt_ends_a_process_whose_main_thread_hears_nothing() -> None:
    process = deaf(60.0)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.0)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=10)[1]
    assert process.returncode == 130, errors
    assert "left at once" in errors


def test_a_request_is_answered_at_once_whatever_the_process_does() -> None:
    """Python's own handler says nothing before the program that is running returns."""
    process = deaf(60.0)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    process.stderr.readline()
    assert process.stderr.readline() == f"curiax: {interrupt.BUSY}\n"
    assert time.monotonic() - begun < 1.5
    process.kill()
    process.communicate()


@pytest.mark.parametrize("task", ["mountain-car", "gymnasium:CartPole-v1"])
def test_ctrl_c_while_compiling_leaves_at_once(task: str, tmp_path: Path) -> None:
    """There is nothing to save yet, and nothing is left behind."""
    words = ["run", task, "--method", "lbs", "--seeds", "2", "--steps", "8192", "--out", str(tmp_path / "run")]
    script, environment = Path(sys.executable).with_name("curiax"), {**os.environ, "CURIAX_CACHE": "off"}
    process = subprocess.Popen([script, *words], stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    assert "compiling" in process.stderr.readline()
    time.sleep(1.0)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=30)[1]
    assert time.monotonic() - begun < 1.5, errors
    assert process.returncode == 130
    assert errors == "curiax: stopped before training began; whatever was saved before is as it was.\n"
    assert list(tmp_path.iterdir()) == []


def test_a_request_that_python_loses_is_granted_all_the_same() -> None:
    """Raised inside a callback of the garbage collector, where exceptions are printed and forgotten."""
    lost = """
import gc, os, signal, time
from curiax.experiments import interrupt
signal.signal(signal.SIGTERM, interrupt.leave)
interrupt.PATIENCE = 0.2
gc.callbacks.append(lambda *_: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(0.01)))
gc.collect()
gc.callbacks.clear()
time.sleep(20)
"""
    done = subprocess.run([sys.executable, "-c", lost], capture_output=True, text=True, timeout=60)
    assert done.returncode == 143, done.stderr


def test_where_python_would_lose_it_a_request_ends_the_process_at_once() -> None:
    """As jax's callback of the garbage collector would, and imports of compiled code, which may even crash."""
    lost = """
import os, signal, time
from curiax.experiments import interrupt
signal.signal(signal.SIGTERM, interrupt.leave)
def some_gc_callback():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.01)
try:
    some_gc_callback()
except BaseException as error:
    print("Traceback:", error)
time.sleep(1)
"""
    done = subprocess.run([sys.executable, "-c", lost], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (143, ""), done.stdout
    assert interrupt.LEFT in done.stderr


def some_gc_callback(number: int = signal.SIGTERM) -> None:
    """Where an exception would be lost."""
    send(number)()
    time.sleep(0.01)


@pytest.mark.parametrize("where", [some_gc_callback, lambda number: send(number)()], ids=["lost", "plain"])
def test_ctrl_c_is_heard_where_python_would_lose_it(where: Any) -> None:
    """A script that keeps nothing: the run ends as any program does, whatever Ctrl-C happens to interrupt."""

    def interrupted() -> None:
        where(signal.SIGINT)
        time.sleep(10.0)
        pytest.fail("nobody was told")

    with pytest.raises(KeyboardInterrupt), interrupt.interruptible():
        interrupted()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_request_where_it_would_be_lost_is_granted_in_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(running.Training):
        def __init__(self, *args: Any) -> None:
            some_gc_callback()
            time.sleep(20.0)
            raise AssertionError("nobody was told")

    monkeypatch.setattr(running, "Training", Slow)
    begun = time.monotonic()
    with pytest.raises(Interrupted, match="before training began") as raised:
        curiax.run(experiment(method="random"), tmp_path / "run")
    assert time.monotonic() - begun < 10.0
    assert raised.value.exit_code == 143


AT_THE_END = """
import time
from curiax.experiments import interrupt
from curiax.train import devices

with interrupt.interruptible():
    print("compiling", flush=True)
    devices.in_thread(lambda: time.sleep(30.0))
"""


@pytest.mark.skipif(os.name == "nt", reason="signals as Unix has them")
def test_a_second_ctrl_c_ends_a_script_that_waits_for_the_compiler_at_its_end() -> None:
    """Not with a segmentation fault: the first one is Python's own, the second leaves at once."""
    begun = time.monotonic()
    script = subprocess.Popen(
        [sys.executable, "-c", AT_THE_END], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert script.stdout is not None
    assert script.stdout.readline() == "compiling\n"
    time.sleep(1.0)
    script.send_signal(signal.SIGINT)
    time.sleep(1.5)
    assert script.poll() is None, "it waits for its thread"
    script.send_signal(signal.SIGINT)
    _, errors = script.communicate(timeout=20.0)
    assert script.returncode == 130
    assert "KeyboardInterrupt" in errors
    assert time.monotonic() - begun < 20.0


def test_a_long_call_hears_of_ctrl_c_and_gives_back_what_it_makes() -> None:
    assert devices.in_thread(lambda: threading.current_thread().name).startswith("curiax-compile")
    with pytest.raises(ZeroDivisionError):
        devices.in_thread(lambda: 1 // 0)
    inner: list[str] = []
    thread = threading.Thread(
        target=lambda: inner.append(devices.in_thread(lambda: threading.current_thread().name)), name="another"
    )
    thread.start()
    thread.join()
    assert inner == ["another"], "only the main thread has something to hear"


def test_a_request_where_it_would_be_lost_is_granted_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[int] = []

    class Unlucky(running.Training):
        def __init__(self, *args: Any) -> None:
            some_gc_callback()
            passed.append(1)
            super().__init__(*args)

        def __iter__(self) -> Any:
            raise AssertionError("training began")

    monkeypatch.setattr(running, "Training", Unlucky)
    with pytest.raises(Interrupted, match="before training began"):
        curiax.run(experiment(method="random"), tmp_path / "run")
    assert passed
    assert list(tmp_path.iterdir()) == []


def test_before_training_there_is_nothing_to_save_and_a_stop_is_granted_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopping(running.Training):
        def __init__(self, *args: Any) -> None:
            send(signal.SIGTERM)()
            raise AssertionError("went on")

    monkeypatch.setattr(running, "Training", Stopping)
    with pytest.raises(Interrupted, match="before training began"):
        curiax.run(experiment(), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_kill_minus_nine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The short form of soak/kill.py: one kill in the middle of a save, one at the end of the run."""
    monkeypatch.setattr(kill, "SECONDS", 0.1)  # so that a short run has saves
    assert kill.aims(5) == ["save", "save", "any", "save", "end"]
    found = kill.torment(kill.Victim(tmp_path, "mountain-car", "lbs", 163, 40), 2)
    assert found["equal"] == found["finished"] >= 1
    assert len(found["kills"]) == 2
    assert all(each["continued_newest"] for each in found["kills"])


def test_memory_stays_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The short form of soak/memory.py; it has less to average over, so its bound is wider.

    What leaks, leaks with iterations and checkpoints; how long a rollout is does not matter.
    """
    monkeypatch.setattr(memory, "SETTINGS", {**memory.SETTINGS, "loop.rollout": 32})
    found = memory.watched("mountain-car", 150, warm_up=8, seconds=0.02)
    assert found["iterations"] >= 150
    assert found["checkpoints"] >= 50
    assert found["growth_percent"] < 2.0
    assert abs(found["open_files"][1] - found["open_files"][0]) <= memory.MOST_FILES


@pytest.mark.parametrize("iteration", [0.15, 0.8])
def test_the_cost_of_a_checkpoint_is_found_in_a_run_that_slows_down(iteration: float) -> None:
    """Of soak/cost.py: what two iterations were given on top is found, and where nothing was added, nothing is."""
    spent = iteration * np.linspace(0.8, 1.2, 80)
    added = spent.copy()
    added[38:40] += 0.2
    for at in (20, 39, 60):
        assert cost.extra(spent, np.cumsum(spent), at) == pytest.approx(0.0, abs=0.05)
    assert cost.extra(added, np.cumsum(added), 39) == pytest.approx(0.4, abs=0.02)


def test_damaged_files_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The short form of soak/corruption.py: every file of one run's checkpoints, five kinds of damage."""
    monkeypatch.setattr(corruption, "PAUSE", 0.0)  # training waits for every checkpoint anyway
    found = corruption.soak(1, ("random",), ("mountain-car",), 2)
    assert found["misses"] == []
    assert found["files"] >= 12
    for outcomes in found["outcomes"].values():
        assert outcomes["fell back"] > 0


def test_another_seed_disturbs_nobodys_beginning() -> None:
    """Of soak/bits.py, for simulators on the host; tests/test_loop.py has the others."""
    assert bits.undisturbed("half-cheetah", "random")


def steps(store: Path) -> list[str]:
    return sorted(path.name for path in store.glob("step-*"))


def test_a_damaged_step_is_named_and_set_aside_and_the_run_ends_as_it_would_have(
    crashed: Path, true_digest: str
) -> None:
    place = crashed / "checkpoints"
    newest, before = steps(place)[-1], steps(place)[-2]
    data = place / newest / "state.safetensors"
    corruption.flip(data, data, corruption.random.Random(0))
    with pytest.warns(
        UserWarning, match=rf"{newest} is damaged \(state.safetensors does not match its digest\).*{before} is used"
    ):
        again = curiax.run(experiment(), crashed, options=EVERY_BORDER)
    assert again.manifest["digest"] == true_digest


def test_one_damaged_metrics_file_has_a_copy_and_two_are_refused(
    crashed: Path, true_digest: str, tmp_path: Path
) -> None:
    what, place = experiment(), crashed / "checkpoints"
    shutil.copytree(crashed, tmp_path / "other")
    first = min(path.name for path in (place / "metrics").iterdir())
    (place / "metrics" / first).write_bytes(b"")
    with pytest.warns(UserWarning, match=rf"metrics/{first} was damaged or gone: it was written again"):
        assert curiax.run(what, crashed).manifest["digest"] == true_digest
    for copy in storing.COPIES:
        (tmp_path / "other" / "checkpoints" / copy / first).unlink()
    with pytest.raises(CheckpointError, match=rf"neither copy of {first} is there"):
        curiax.run(what, tmp_path / "other")


def test_with_no_sound_step_left_the_run_is_refused_and_nothing_touched(crashed: Path, tmp_path: Path) -> None:
    for path in (crashed / "checkpoints").glob("step-*/step.json"):
        path.write_bytes(path.read_bytes()[:100])
    before = corruption.contents(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"no checkpoint in .* is sound: step-\d+: step.json.*Nothing was touched"
    ):
        curiax.run(experiment(), crashed)
    after = corruption.contents(tmp_path)
    assert {name: data for name, data in after.items() if "holder" not in name} == {
        name: data for name, data in before.items() if "holder" not in name
    }


def test_another_run_in_the_folder_is_refused(crashed: Path) -> None:
    with pytest.raises(curiax.OutputError, match=r"another run, which is not finished .*differs in ppo.clip"):
        curiax.run(experiment(**{"ppo.clip": 0.1}), crashed)


def test_other_versions_are_refused_unless_drift_is_allowed(crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true = session.installed
    monkeypatch.setattr(session, "installed", lambda plan: {**true(plan), "optax": "9.9"})
    with pytest.raises(CheckpointError, match=r"optax \S+ → 9.9.*--allow-drift"):
        curiax.run(experiment(), crashed)
    found = curiax.run(experiment(), crashed, options=curiax.RunOptions(allow_drift=True))
    assert "9.9" in found.manifest["continued"][0]["drift"][0]


def test_another_version_of_a_game_is_a_drift(crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MountainCar, "notes", lambda self: {"version of the game": "another"})
    with pytest.raises(CheckpointError, match=r"\(version of the game None → another\).*--allow-drift"):
        curiax.run(experiment(), crashed)


def test_what_has_drifted_is_told_by_name() -> None:
    before = {**FACTS, "versions": {"jax": "1"}, "notes": {"version": "old"}, "code": code().digest}
    assert session.drifted(before, {"jax": "1"}, {"version": "old"}, 1) == []
    assert session.drifted(before, {"jax": "2"}, {"version": "new"}, 1) == ["jax 1 → 2", "version old → new"]
    assert session.drifted({**before, "team": 2}, {"jax": "1"}, {"version": "old"}, 1, 1) == [
        "devices of each seed 2 → 1"
    ]
    (drift,) = session.drifted({**before, "code": "0" * 32}, {"jax": "1"}, {"version": "old"}, 1)
    assert drift.startswith("Curiax's code 00000000 → ")


def test_devices_that_share_a_seed_are_made_and_kept_when_a_run_goes_on(tmp_path: Path) -> None:
    """However few cores there are then: on a CPU as many devices are made as the run was begun with."""
    what = curiax.Experiment(
        "atari:breakout",
        "rnd",
        1,
        6 * 32,
        preset="small",
        settings={
            "task.random_steps": 32,
            "loop.envs": 4,
            "loop.rollout": 8,
            "ppo.minibatch_size": 16,
            "learner.minibatch_size": 16,
        },
    )
    both = curiax.RunOptions(checkpoint_seconds=0.0, devices_per_seed=2)
    with pytest.raises(MemoryError):
        curiax.run(what, tmp_path / "run", progress=At(5, crash), options=both)
    store = Checkpoints(tmp_path / "run" / "checkpoints", resolve(what).identity, 3)
    assert store.layout() == 2
    # Continued without being told again.
    assert curiax.run(what, tmp_path / "run").manifest["devices"] == ["cpu:0+cpu:1"]


def test_fewer_devices_are_a_drift_and_the_layout_is_kept_where_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = experiment(method="rnd")
    with monkeypatch.context() as patch:
        patch.setattr(devices, "devices_for", lambda seeds, count=None: devices.jax.devices()[:1])
        with pytest.raises(MemoryError):
            curiax.run(what, tmp_path / "few", progress=At(5, crash), options=EVERY_BORDER)
        alone = curiax.run(what)
    # Begun on one device, continued where there are two: still on one.
    assert curiax.run(what, tmp_path / "few").manifest["digest"] == alone.manifest["digest"]
    # Begun on two, continued where there is one.
    with pytest.raises(MemoryError):
        curiax.run(what, tmp_path / "many", progress=At(5, crash), options=EVERY_BORDER)
    monkeypatch.setattr(devices, "devices_for", lambda seeds, count=None: devices.jax.devices()[:1])
    with pytest.raises(CheckpointError, match="devices 2 → 1"):
        curiax.run(what, tmp_path / "many")
    drifted = curiax.run(what, tmp_path / "many", options=curiax.RunOptions(allow_drift=True))
    np.testing.assert_allclose(
        drifted.metrics["bonus/mean"].to_numpy(), alone.metrics["bonus/mean"].to_numpy(), rtol=0.05
    )


def test_two_processes_on_one_folder(tmp_path: Path) -> None:
    what, out = experiment(method="random"), tmp_path / "run"
    with folder.claimed(out):
        with pytest.raises(BusyError, match=rf"another process works on this run \(process {os.getpid()} on .*--wait"):
            curiax.run(what, out)
        waiting = threading.Thread(
            target=curiax.run, args=(what, out), kwargs={"options": curiax.RunOptions(wait=True)}
        )
        waiting.start()
        time.sleep(0.3)
        assert waiting.is_alive()
    waiting.join(120)
    assert curiax.run(what, out).reused


def test_a_lock_whose_file_was_removed_while_one_waited_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the process that held it and finished the run: two more could hold two locks of the same name."""
    true, taken = filelock.FileLock.acquire, list[int]()

    def acquire(lock: Any, *rest: Any, **more: Any) -> Any:
        found = true(lock, *rest, **more)
        taken.append(1)
        if len(taken) == 1:
            Path(lock.lock_file).unlink()
        return found

    monkeypatch.setattr(filelock.FileLock, "acquire", acquire)
    with folder.claimed(tmp_path / "run") as checkpoints:
        assert (checkpoints / folder.LOCK).exists()
    assert len(taken) == 2


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


def test_a_claim_that_saved_nothing_leaves_nothing(tmp_path: Path) -> None:
    with folder.claimed(tmp_path / "run"):
        assert (tmp_path / "run" / "checkpoints").is_dir()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with folder.claimed(tmp_path / "mine"):
        pass
    assert list((tmp_path / "mine").iterdir()) == []


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


def test_a_full_disk_ends_the_run_and_leaves_the_step_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what, true, calls = experiment(method="random"), storing.write_whole, list[int]()

    def full(file: Path, data: bytes) -> None:
        calls.append(1)
        if len(calls) > 6:  # two copies of the metrics, state and description: in the middle of the second step
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        true(file, data)

    monkeypatch.setattr(storing, "write_whole", full)
    with pytest.raises(curiax.CuriaxError, match=r"iteration \d+ could not be written.*No space left.*intact") as raised:
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


def test_only_a_few_steps_are_kept(tmp_path: Path) -> None:
    few = curiax.RunOptions(checkpoint_seconds=0.0, keep=2)
    with pytest.raises(MemoryError):
        curiax.run(experiment(method="random"), tmp_path / "run", progress=At(7, crash), options=few)
    assert len(steps(tmp_path / "run" / "checkpoints")) == 2


@given(
    st.dictionaries(
        st.text("abc./[]0é", min_size=1, max_size=6),
        st.sampled_from([np.float32, np.float64, np.int32, np.int64, np.uint8, np.uint32, np.bool_]).flatmap(
            lambda kind: arrays_of.arrays(
                kind,
                arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0),
                elements={"allow_nan": False} if np.issubdtype(kind, np.floating) else None,
            )
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=15, deadline=None)
def test_any_arrays_come_back_as_they_were(arrays: dict[str, np.ndarray]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as base:
        store = Checkpoints(Path(base), IDENTITY, 3)
        chunk = {"m": np.zeros((2, 5, 3), np.float32)}
        arrays = {**arrays, "root": np.ones(2, np.uint32)}
        store.save(Snapshot(5, arrays, FACTS), [chunk])
        fresh = Checkpoints(Path(base), IDENTITY, 3)
        found = fresh.newest(pytest.fail)
        assert found is not None
        assert found.iteration == 5
        assert found.facts == FACTS
        assert set(found.arrays) == set(arrays)
        for name, array in arrays.items():
            assert found.arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(found.arrays[name], array)
        np.testing.assert_array_equal(fresh.metrics()[0]["m"], chunk["m"])


def test_nothing_that_is_not_finite_is_ever_written(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, IDENTITY, 3)
    nan, infinite = np.array([0.0, np.nan]), np.array([np.inf, 0.0])
    begun = {"fine": np.zeros(2), "meant": infinite, "number": np.arange(3)}
    assert initially_infinite({**begun, "broken": nan, "envs.obs": infinite, "lane0.host.fleet/obs": infinite}) == {
        "meant"
    }
    writer = CheckpointWriter(store, 0.0, initially_infinite(begun))
    writer.add({"m": np.zeros((2, 1))})
    for name, value in (("fine", nan), ("fine", infinite), ("meant", nan)):
        with pytest.raises(curiax.NonFiniteError, match=f"in {name} after iteration 1: no checkpoint was written"):
            writer.save(Snapshot(1, {**begun, name: value}, {}))
    assert steps(tmp_path) == []
    writer.save(Snapshot(1, begun, {}))
    writer.wait()
    writer.close()
    assert steps(tmp_path) == ["step-000000001"]


@pytest.mark.parametrize(
    ("takes", "usual"),
    [((0.9, 0.4, 0.4, 0.7, 0.4, 0.4, 0.4), 4.0 - 2 * 0.4), ((0.01,) * 5 + (0.35,) + (0.01,) * 4, 4.0 - 0.4)],
    ids=["slow", "a disk that hesitates"],
)
def test_a_checkpoint_is_begun_early_enough_to_be_there_in_time(
    takes: tuple[float, ...], usual: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No kill costs more than the seconds that were asked for, though writing takes time, and more for the first."""
    clock = [100.0]
    monkeypatch.setattr(writing, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    left = iter(takes)
    borders: list[float] = []  # the states that are safe
    on_disk: list[float] = []

    class Slow(Checkpoints):
        def save(self, snapshot: Snapshot, parts: Sequence[HostMetrics]) -> None:
            borders.append(clock[0])
            clock[0] += next(left)
            on_disk.append(clock[0])

    writer = CheckpointWriter(Slow(tmp_path, IDENTITY, 3), 4.0)
    iteration = 0
    while len(on_disk) < len(takes):
        clock[0] += 0.05
        iteration += 1
        if writer.due:
            writer.save(Snapshot(iteration, {}, {}))
            writer.wait()
    lost = [there - before for before, there in zip([100.0, *borders], on_disk, strict=False)]
    assert max(lost) <= 4.0
    assert min(np.diff(borders)) > 2.0  # never less than half of them apart
    assert borders[-1] - borders[-2] == pytest.approx(usual, abs=0.2)  # once it is known how little it takes
    writer.close()


@pytest.mark.parametrize(("takes", "apart"), [(18.0, 18.0), (8.0, 8.0), (1.0, 13.0)])
def test_long_iterations_are_not_waited_for_twice(
    takes: float, apart: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state that is asked for comes with the next border: it is asked for one border ahead."""
    clock = [0.0]
    monkeypatch.setattr(writing, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(Checkpoints, "save", lambda *_: None)
    writer, asked, saved = CheckpointWriter(Checkpoints(tmp_path, IDENTITY, 3), 15.0), False, []
    for iteration in range(1, 60):
        clock[0] += takes
        writer.add({"m": np.zeros((2, 1))})
        if asked:
            writer.save(Snapshot(iteration, {}, {}))
            saved.append(clock[0])
        asked = writer.due
    np.testing.assert_allclose(np.diff(saved)[3:], apart, atol=1.0)
    writer.close()


def test_a_whole_step_of_another_run_is_set_aside(tmp_path: Path) -> None:
    for name, seeds, iterations in (("ours", [3, 5], 1), ("theirs", [3, 6], 2)):
        (tmp_path / name).mkdir()
        store = Checkpoints(tmp_path / name, {**IDENTITY, "seeds": seeds}, 3)
        store.save(Snapshot(iterations, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, iterations))}])
    for part in ("step-000000002", "metrics/000000000-000000002.safetensors"):
        os.replace(tmp_path / "theirs" / part, tmp_path / "ours" / part)
    messages: list[str] = []
    found = Checkpoints(tmp_path / "ours", IDENTITY, 3).newest(messages.append)
    assert found is not None
    assert found.iteration == 1
    assert "step.json belongs to another run" in messages[0]


def test_a_step_under_another_name_is_damaged(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, IDENTITY, 3)
    store.save(Snapshot(1, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, 1))}])
    os.replace(tmp_path / "step-000000001", tmp_path / "step-000000009")
    with pytest.raises(CheckpointError, match=r"step.json belongs to step-000000001"):
        store.newest(pytest.fail)


def test_a_state_that_is_none_is_damage_though_its_digest_is_right(tmp_path: Path) -> None:
    """Nor one whose size is not what was promised, which is refused before it is read."""
    Checkpoints(tmp_path, IDENTITY, 3).save(Snapshot(1, {"x": np.ones(3)}, FACTS), [{"m": np.zeros((2, 1))}])
    place, data = tmp_path / "step-000000001", b"\x08\0\0\0\0\0\0\0nonsense"
    body = json.loads((place / "step.json").read_text())["body"]
    (place / "state.safetensors").write_bytes(data)
    body["state"] |= {"bytes": len(data), "digest": digest(data)}
    (place / "step.json").write_bytes(storing.sealed(body))
    with pytest.raises(CheckpointError, match=r"state.safetensors is not what Curiax writes"):
        Checkpoints(tmp_path, IDENTITY, 3).newest(pytest.fail)
    with (place / "state.safetensors").open("ab") as file:
        file.truncate(64 << 30)  # takes no room on the disk, and would take all of the memory
    with pytest.raises(CheckpointError, match=r"state.safetensors cannot be read .*at most 16 are expected"):
        Checkpoints(tmp_path, IDENTITY, 3).newest(pytest.fail)


def test_checkpoints_of_older_versions_are_refused_with_a_sentence(tmp_path: Path) -> None:
    old = tmp_path / "run" / "checkpoints" / "step-000000001"
    (old / "arrays").mkdir(parents=True)
    (old / "step.json").write_text(json.dumps({"format": "curiax-checkpoint-2", "digest": "", "body": {}}))
    with pytest.raises(CheckpointError, match=r"of Curiax 0.4 or older, and only that version.*finish the run with it"):
        curiax.run(experiment(method="random"), tmp_path / "run")
    assert (old / "arrays").is_dir()


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


def test_types_that_safetensors_does_not_know_come_back(tmp_path: Path) -> None:
    half = np.asarray([1.5, -2.0, np.inf], "bfloat16")
    Checkpoints(tmp_path, IDENTITY, 3).save(Snapshot(1, {"x": half, "y": half[0]}, FACTS), [{"m": np.zeros((2, 1))}])
    found = Checkpoints(tmp_path, IDENTITY, 3).newest(pytest.fail)
    assert found is not None
    for name, array in (("x", half), ("y", half[0])):
        assert found.arrays[name].dtype == half.dtype
        np.testing.assert_array_equal(found.arrays[name], array)


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


def in_call(number: int, act: Callable[[], None]) -> Callable[..., Any]:
    """`compile_chunk` of a program that does something in one of its calls."""
    calls: list[int] = []

    def compile_chunk(*args: Any) -> Callable[..., Any]:
        program = batch.compile_chunk(*args)

        def call(arrays: Any) -> Any:
            calls.append(1)
            if len(calls) == number:
                act()
            return program(arrays)

        return call

    return compile_chunk


def test_a_request_in_the_very_last_iteration_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to be continued: the run is finished."""
    monkeypatch.setattr(training_module, "compile_chunk", in_call(10, send(signal.SIGINT)))
    with pytest.raises(KeyboardInterrupt):
        curiax.run(experiment(method="random"), tmp_path / "run")
    assert curiax.run(experiment(method="random"), tmp_path / "run").reused


def test_a_request_while_results_are_written_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = At(99, crash)
    real = running.state_digest
    monkeypatch.setattr(running, "state_digest", lambda arrays: (send(signal.SIGINT)(), real(arrays))[1])
    with pytest.raises(KeyboardInterrupt):
        curiax.run(experiment(method="random"), tmp_path / "run", progress=progress)
    assert progress.messages == [interrupt.DONE]
    assert curiax.run(experiment(method="random"), tmp_path / "run").reused


def test_a_request_in_the_last_iteration_ends_the_suite_after_the_run(tmp_path: Path) -> None:
    """The run is finished and kept; whoever listened before hears of it: here Python, which raises."""
    with pytest.raises(KeyboardInterrupt):
        curiax.run(experiment(method="random"), tmp_path / "run", progress=At(10, send(signal.SIGINT)))
    assert curiax.run(experiment(method="random"), tmp_path / "run").reused


def test_what_a_shell_has_its_background_jobs_ignore_is_ignored(tmp_path: Path) -> None:
    """Ctrl-C in a terminal goes to all that it started; `nohup curiax run ... &` in a script is not meant."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        what = experiment(method="random")
        assert not curiax.run(what, tmp_path / "run", progress=At(2, send(signal.SIGINT))).reused
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        with pytest.raises(Interrupted):
            curiax.run(what, tmp_path / "other", progress=At(2, send(signal.SIGTERM)))
    finally:
        signal.signal(signal.SIGINT, before)


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


FACTS = {
    "layout": 1,
    "team": 1,
    "lost": {},
    "versions": {},
    "notes": {},
    "code": "0" * 32,
    "platform": "cpu",
    "started": "now",
    "seconds": {"start": 0.0, "train": 0.0, "cpu": 0.0},
    "continued": [],
    "on_nonfinite": ["stop"],
}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("identity",), 3),
        (("facts", "layout"), "two"),
        (("facts", "layout"), 3),
        (("facts", "lost"), {"77": "not one of its seeds"}),
        (("facts", "seconds", "train"), -5.0),
        (("facts", "on_nonfinite"), ["<script>"]),
        (("iteration",), None),
        (("metrics", 0, "name"), "../../etc/passwd"),
        (("state", "bytes"), -1),
        (("state", "types"), {"x": "object"}),
        (("state", "digest"), "0"),
        (("facts", "seconds"), {"train": 1.0}),
        (("facts", "lost"), {"abc": "why"}),
        (("metrics",), []),
        (("metrics", 0, "first"), 1),
    ],
)
def test_a_forged_step_is_damaged_though_its_digest_is_right(
    place: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    store = Checkpoints(tmp_path, IDENTITY, 3)
    store.save(Snapshot(1, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, 1))}])
    path = tmp_path / "step-000000001" / "step.json"
    body = json.loads(path.read_text())["body"]
    part = body
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = value
    path.write_bytes(storing.sealed(body))
    with pytest.raises(CheckpointError, match=r"step.json is not what Curiax writes"):
        store.newest(pytest.fail)
    assert store.layout() is None


@pytest.mark.parametrize(
    ("forged", "why"),
    [
        ({"m": np.zeros((2, 1))}, "m is not of 2 seeds and 2 iterations"),
        ({"m": np.zeros((1, 2))}, "m is not of 2 seeds and 2 iterations"),
        ({"m": np.zeros(2)}, "m is not of 2 seeds and 2 iterations"),
        ({}, "is empty"),
        ({"other": np.zeros((2, 2))}, "has other metrics than those before it"),
        ({"m": np.zeros((2, 2, 3))}, "has other metrics than those before it"),
        ({"m": np.zeros((2, 2), np.float32)}, "has other metrics than those before it"),
        ({"m": np.zeros((3, 2))}, "m is not of 2 seeds and 2 iterations"),
        (None, "cannot be read"),
    ],
    ids=str,
)
def test_forged_metrics_are_damage_though_their_digest_is_right(forged: Any, why: str, tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, IDENTITY, 3)
    store.save(Snapshot(1, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, 1))}])
    store.save(Snapshot(3, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, 2))}])
    data = b"\x08\0\0\0\0\0\0\0nonsense" if forged is None else safetensors.numpy.save(forged)
    path = tmp_path / "step-000000003" / "step.json"
    body = json.loads(path.read_text())["body"]
    body["metrics"][1]["digest"] = digest(data)
    path.write_bytes(storing.sealed(body))
    for copy in storing.COPIES:
        (tmp_path / copy / body["metrics"][1]["name"]).write_bytes(data)
    messages: list[str] = []
    found = Checkpoints(tmp_path, IDENTITY, 3).newest(messages.append)
    assert found is not None
    assert found.iteration == 1
    assert why in messages[0]


def test_metrics_of_before_must_be_those_of_now(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, IDENTITY, 3)
    store.save(Snapshot(1, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, 1))}])
    store = Checkpoints(tmp_path, IDENTITY, 3)
    store.newest(pytest.fail)
    writer = CheckpointWriter(store, 0.0)
    writer.add({"m": np.zeros((2, 1))})
    with pytest.raises(CheckpointError, match=r"has other metrics than this run \(m\)"):
        writer.add({"m": np.zeros((2, 1, 3))})
    with pytest.raises(CheckpointError, match=r"has other metrics than this run \(m, n\)"):
        writer.add({"n": np.zeros((2, 1))})
    writer.close()


def test_simulators_that_do_not_fit_are_refused() -> None:
    training = Training(resolve(experiment("half-cheetah", "random")))
    try:
        whole = training.snapshot()
        facts = {**whole.facts, "lost": {}}
        for part in ("moments/mean", "moments/spread", "fleet/obs", "fleet/simulation", "fleet/record", "host.obs"):
            name = next(name for name in whole.arrays if name.endswith(part))
            array = whole.arrays[name]
            # NumPy would spread a single number over all, and convert any.
            for forged in (None, np.zeros(99), array[:1, :1], np.asarray(array.flat[0]), array.astype(np.float16)):
                arrays = {other: kept for other, kept in whole.arrays.items() if other != name}
                arrays |= {} if forged is None else {name: forged}
                with pytest.raises(CheckpointError, match="state of the simulators in the checkpoint does not fit"):
                    training.resume(Snapshot(1, arrays, facts))
        training.resume(Snapshot(1, whole.arrays, facts))
    finally:
        training.close()


def test_arrays_that_do_not_fit_are_refused() -> None:
    training = Training(resolve(experiment(method="random")))
    whole = training.snapshot()
    facts, name = {**whole.facts, "lost": {}}, next(iter(whole.arrays))
    array = whole.arrays[name]
    for forged in (array[0].ravel()[0], array[:1], np.concatenate([array, array]), array.astype(np.float16)):
        with pytest.raises(CheckpointError, match=name):
            training.resume(Snapshot(1, {**whole.arrays, name: np.asarray(forged)}, facts))
    with pytest.raises(CheckpointError, match="stranger"):
        training.resume(Snapshot(1, {**whole.arrays, "stranger": array}, facts))
    training.resume(Snapshot(1, whole.arrays, facts))


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


def test_a_border_that_was_agreed_on_stays() -> None:
    """One lane may have passed it already."""
    border = Border(2)
    border.ask()
    assert border.passes(0, 1)
    border.ask()
    assert border.passes(1, 1)
    border.ask()
    assert not border.passes(0, 1)
    assert border.passes(0, 2)


@pytest.mark.parametrize("package", ["jax", "jaxlib", "equinox", "optax", "numpy"])
def test_what_decides_the_bits_is_known(package: str) -> None:
    assert package not in session.HARMLESS
    assert session.installed(resolve(experiment()))[package]


@pytest.mark.parametrize("task", ["mountain-car", "half-cheetah"])
def test_a_request_in_an_iteration_is_granted_at_its_end(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at the end of the next one: iterations may be long."""
    real = Lane.iterate

    def interrupted(lane: Lane) -> Any:
        if lane.now == 3 * 64:
            send(signal.SIGTERM)()
            time.sleep(0.5)  # the main thread hears of it
        return real(lane)

    monkeypatch.setattr(Lane, "iterate", interrupted)
    monkeypatch.setattr(training_module, "compile_chunk", in_call(4, send(signal.SIGTERM)))
    with pytest.raises(Interrupted):
        curiax.run(dataclasses.replace(experiment(task, "random"), seeds=(4,)), tmp_path / "run")
    assert steps(tmp_path / "run" / "checkpoints") == ["step-000000004"]


def test_a_run_can_be_continued_with_another_choice_about_unsound_values(tmp_path: Path) -> None:
    """As the message about one advises: `drop` after `stop`; and back again."""
    what = experiment(method="random")
    for name, first, second in (("a", "stop", "drop"), ("b", "drop", "stop")):
        options = curiax.RunOptions(checkpoint_seconds=0.0, on_nonfinite=first)
        with pytest.raises(MemoryError):
            curiax.run(what, tmp_path / name, progress=At(5, crash), options=options)
        again = curiax.run(what, tmp_path / name, options=curiax.RunOptions(on_nonfinite=second))
        assert again.manifest["on_nonfinite"] == [first, second]
        with pytest.warns(UserWarning, match="was trained with --on-nonfinite .*drop"):
            assert curiax.run(what, tmp_path / name).reused


def test_a_step_whose_text_was_changed_by_hand_is_damaged(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, IDENTITY, 3)
    store.save(Snapshot(1, {"x": np.ones(1)}, FACTS), [{"m": np.zeros((2, 1))}])
    path = tmp_path / "step-000000001" / "step.json"
    path.write_text(path.read_text().replace('"layout": 1', '"layout": 2'))
    with pytest.raises(CheckpointError, match=r"step.json does not match its digest"):
        store.newest(pytest.fail)


def test_lanes_agree_on_a_border_that_all_have_before_them() -> None:
    border = Border(2)
    assert border.passes(0, 1) is False
    border.ask()
    # Lane 0 is in iteration 1 and lane 1 in iteration 0: both have the end of iteration 1 before them.
    assert [border.passes(1, 1), border.passes(1, 2), border.passes(0, 2)] == [False, True, True]
    border.ask()
    border.ask()
    assert [border.passes(0, 3), border.passes(1, 3)] == [True, True]


def test_no_lane_runs_far_ahead() -> None:
    """Neither of the other lane nor of whoever takes what it delivers."""
    border, begun = Border(2), list[int]()

    def hurry() -> None:
        for iteration in range(LEAD + 3):
            if not border.begin(iteration):
                return
            begun.append(iteration)
            border.passes(0, iteration + 1)

    thread = threading.Thread(target=hurry)
    thread.start()
    thread.join(0.3)
    assert begun == list(range(LEAD))
    border.passes(1, 1)
    time.sleep(0.2)
    assert begun == list(range(LEAD))
    border.take(1)
    time.sleep(0.2)
    assert begun == list(range(LEAD + 1))
    border.end()
    thread.join(5)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("option", "value"),
    [("checkpoint_seconds", -1.0), ("checkpoint_seconds", float("nan")), ("keep", 0)],
)
def test_options_that_make_no_sense_are_refused(option: str, value: Any) -> None:
    with pytest.raises(curiax.UsageError, match=f"{option} = "):
        curiax.RunOptions(**{option: value})
