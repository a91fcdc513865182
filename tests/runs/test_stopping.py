"""Being told to stop: a request is granted in time, whatever the process does, and nothing is lost."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stopped import At, crash, experiment, send, steps

import curiax
from curiax._errors import Interrupted
from curiax.experiments import interrupt
from curiax.experiments import run as running
from curiax.experiments import training as training_module
from curiax.experiments.interrupt import TOGETHER
from curiax.train import batch, devices
from curiax.train.hosted import Lane
from curiax.train.lanes import LEAD, Border

pytestmark = pytest.mark.usefixtures("compiled_once", "written_at_once")


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
