"""Whatever goes wrong is said in a sentence: places, streams, names, code of users', and faults of ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from synthetic import write_run

import curiax
from curiax import cli
from curiax._files import usable
from curiax.cli import main
from curiax.experiments import progress
from curiax.experiments.reproduce import run_folder
from curiax.experiments.spec import Experiment, resolve

LONG = "a" * 300
ENDLESS = "/".join(["b" * 200] * 30)
QUICK = ["--seeds", "1", "--steps", "512", "--loop.rollout", "128", "--quiet"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run."""
    return write_run(tmp_path / "run", "mountain-car", "lbs", [80.0, 85.0, 90.0])


def sentence(capsys: pytest.CaptureFixture[str]) -> str:
    """What was said on standard error: one line, and no traceback."""
    text = capsys.readouterr().err
    assert "Traceback" not in text
    assert text.startswith("curiax: ")
    assert text.count("\n") == 1
    assert len(text) < 1000
    return text


def curiax_process(*args: str, shell: str = "", code: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own; `shell` redirects its streams."""
    start = [sys.executable, "-c", f"{code}\nfrom curiax.cli import script; script()", *args]
    env = {**os.environ, "PYTHONUNBUFFERED": "", **environment}
    words = ["bash", "-c", f'"$@" {shell}', "bash", *start] if shell else start
    return subprocess.run(words, capture_output=True, text=True, timeout=240, check=False, env=env)


# --- places -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [LONG, ENDLESS, f"missing/{LONG}", "loop", "nul\0l"], ids=str)
@pytest.mark.parametrize(
    "line",
    [
        "run mountain-car --method random --steps 2048 --out PLACE",
        "reproduce mountain-car --methods random --steps 2048 --out PLACE",
        "reproduce mountain-car --methods random --steps 2048 --runs PLACE",
        "report PLACE",
        "report run --out PLACE",
        "verify PLACE",
        "watch PLACE",
        "watch run --out PLACE.gif",
        "export PLACE --out exported",
        "export run --out PLACE",
    ],
)
def test_a_place_that_cannot_be_used_is_named(
    line: str, place: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("loop").symlink_to("loop")
    Path("loop.gif").symlink_to("loop.gif")
    before = sorted(run.parent.iterdir())
    assert main([word.replace("PLACE", place) for word in line.split()]) in (1, 2)
    assert sentence(capsys)
    left = sorted(path for path in run.parent.iterdir() if path.name != "missing")
    assert left == before, "nothing was begun"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: curiax.load(123), "path = 123: must be a path"),  # pyright: ignore
        (lambda: curiax.load(b"r1"), "path = b'r1': must be a path"),  # pyright: ignore
        (lambda: curiax.export("run", None), "out = None: must be a path"),  # pyright: ignore
        (lambda: curiax.export("run", "out", seeds=5), "seeds = 5: give a list"),  # pyright: ignore
        (lambda: curiax.export("run", "a\0b"), "cannot be used"),
        (lambda: curiax.run("mountain-car"), "must be a curiax.Experiment"),  # pyright: ignore
    ],
)
def test_arguments_of_other_types_are_named(
    call: Callable[[], Any], message: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    with pytest.raises(curiax.CuriaxError, match=re.escape(message)):
        call()


def test_export_of_more_seeds_than_anybody_has_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for count in (2**32, 10**20):
        assert main(["export", str(run), "--out", str(run.parent / "out"), "--seeds", str(count)]) == 2
        assert "at most 65536 seeds" in sentence(capsys)


def test_a_working_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    code = "import os, sys; os.rmdir(os.getcwd()); from curiax.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-P", "-c", code, "run", "mountain-car", "--method", "a:B"]
    (tmp_path / "gone").mkdir()
    done = subprocess.run(words, cwd=tmp_path / "gone", capture_output=True, text=True)
    assert done.returncode == 2
    assert "the working directory, where modules are looked for, is gone" in done.stderr


@pytest.mark.parametrize("settings", ["text.usetex: True\nfigure.figsize: 9e4, 9e4\nsavefig.dpi: 1e5\n", "\xff\xfe"])
def test_matplotlibs_settings_of_the_working_directory_change_nothing(run: Path, tmp_path: Path, settings: str) -> None:
    (tmp_path / "matplotlibrc").write_bytes(settings.encode("latin-1"))
    code = "import sys; from curiax.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-P", "-c", code, "report", str(run), "--out", str(tmp_path / "report")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    if settings.startswith("text"):
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "report" / "figures" / "coverage.png").stat().st_size < 1_000_000
    else:
        assert done.returncode == 2
        assert "curiax: matplotlib cannot read its settings" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_place_that_cannot_be_used_is_an_error_of_ours_in_python_too() -> None:
    for call in (lambda: curiax.run(Experiment("mountain-car", "random"), LONG), lambda: curiax.load(LONG)):
        with pytest.raises(curiax.OutputError, match="cannot be used"):
            call()
    with pytest.raises(curiax.OutputError, match="cannot be used"):
        usable(Path(f"{LONG}/x"))
    assert usable(Path("not/there")) == Path("not/there")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_path_that_is_no_text_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = os.fsdecode(b"caf\xe9")
    assert main(["run", "mountain-car", "--method", "random", *QUICK, "--out", odd]) == 0
    assert "caf\N{REPLACEMENT CHARACTER}" in capsys.readouterr().out
    assert main(["report", odd, "--out", f"{odd}-report"]) == 0
    assert main(["verify", f"{odd}-report"]) == 0
    assert main(["export", odd, "--out", f"{odd}-export"]) == 0
    assert (tmp_path / f"{odd}-export" / "agents.json").exists()


def test_folders_of_runs_have_names_that_fit(tmp_path: Path) -> None:
    name = "N" * 300
    (tmp_path / "lengthy.py").write_text(f"import curiax\nclass {name}(curiax.curiosity.RND):\n    'Long.'\n")
    folder = run_folder(resolve(Experiment("mountain-car", f"lengthy:{name}")))
    assert len(folder) < 255
    usual = resolve(Experiment("mountain-car", "lbs"))
    assert run_folder(usual) == f"mountain-car_lbs_{usual.run_id}"


#: As a container with a user of whom the system knows nothing.
NOBODY = """
import os, pwd
for name in ("HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR", "CURIAX_CACHE"):
    os.environ.pop(name, None)
def unknown(uid):
    raise KeyError(f"uid not found: {uid}")
pwd.getpwuid, os.getuid = unknown, lambda: 12345
"""


def test_without_a_home_everything_works(tmp_path: Path) -> None:
    done = curiax_process("run", "mountain-car", "--method", "random", *QUICK, "--out", "made", code=NOBODY)
    assert done.returncode == 0, done.stderr
    assert "curiax: compiled programs are not kept, so each start compiles anew (there is no home directory)" in (
        done.stderr
    )
    done = curiax_process("report", "made", "--out", "report", code=NOBODY)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report" / "report.html").exists()


def test_a_home_that_takes_no_files_costs_the_cache_only() -> None:
    line = ["run", "mountain-car", "--method", "random", *QUICK, "--out", "made"]
    done = curiax_process(*line, CURIAX_CACHE="/proc/nowhere")
    assert done.returncode == 0, done.stderr
    assert "name a folder for them in CURIAX_CACHE, or set it to off" in done.stderr
    assert not curiax_process(*line[:-1], "other", CURIAX_CACHE="off").stderr


# --- streams ----------------------------------------------------------------------------------------------


def test_an_output_that_knows_few_letters_gets_question_marks(run: Path) -> None:
    for line in (["report", str(run), "--out", "made"], ["run", "mountain-car", "--method", "lbs", "--help"], ["list"]):
        done = curiax_process(*line, PYTHONIOENCODING="ascii")
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()
    assert "?" in curiax_process("report", str(run), "--out", "made", PYTHONIOENCODING="ascii").stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("line", ["list", "list --json", "--version", "", "cite lbs"])
@pytest.mark.parametrize("buffered", ["", "1"])
def test_an_output_that_is_full_is_named(line: str, buffered: str) -> None:
    done = curiax_process(*line.split(), shell=">/dev/full", PYTHONUNBUFFERED=buffered)
    assert done.returncode == 1
    assert done.stderr == "curiax: the result could not be written to standard output: No space left on device.\n"


def test_nobody_needs_to_listen() -> None:
    line = ["run", "mountain-car", "--method", "random", *QUICK[:-1], "--out"]
    assert curiax_process(*line, "closed", shell="<&- >&- 2>&-").returncode == 0
    assert Path("closed/manifest.json").exists()
    assert curiax_process(*line, "gone", shell="2>&1 >/dev/null | true; exit ${PIPESTATUS[0]}").returncode == 0
    assert Path("gone/manifest.json").exists()
    done = curiax_process("list", shell="| head -n 1; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "methods\n", "")


def test_a_closed_stream_gets_none_of_a_files_number() -> None:
    """Else what is meant for people would be written into the next file that is opened."""
    code = "import os; os.close(2); from curiax.cli._streams import make_usable; make_usable()"
    code += "; file = open('precious', 'wb'); os.write(2, b'a message'); print(file.fileno())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 2
    assert Path("precious").read_bytes() == b""


def test_progress_that_nobody_reads_any_more_stops_no_run() -> None:
    class Closed:
        def write(self, text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

        def flush(self) -> None:
            raise BrokenPipeError(32, "Broken pipe")

    stream: Any = Closed()
    progress.tell("hello", stream)


# --- names ------------------------------------------------------------------------------------------------


def test_a_task_may_have_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd.py").write_text(
        "from curiax.envs import MountainCar\n"
        "globals()['[/x]'] = type('[/x]', (MountainCar,), {'__doc__': 'Odd.', '__module__': __name__})\n"
    )
    assert main(["run", "odd:[/x]", "--method", "random", *QUICK[:-1], "--out", "made"]) == 0
    assert main(["report", "made", "--out", "report"]) == 0
    assert "odd:[/x]" in capsys.readouterr().out


# --- users' code ------------------------------------------------------------------------------------------

TASK = """
import sys, jax.numpy as jnp, curiax
from curiax.envs import MountainCar
class Quits(MountainCar):
    'Leaves.'
"""
METHOD = """
import sys, jax, jax.numpy as jnp, curiax
class Quits(curiax.AbstractCuriosity):
    'Leaves.'
    def __init__(self, spec, *, key): pass
    def reward(self, memory, t, *, key): return memory, jnp.sum(t.obs ** 2)
    def loss(self, t, *, draw): return jnp.zeros(()), {}
"""
ENVIRONMENT = """
import sys, gymnasium, numpy as np
class Quits(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}
    def step(self, action): return np.zeros(2, np.float32), 0.0, False, False, {}
gymnasium.register("Quits-v0", Quits)
"""
QUITS = {
    "import of a task": (TASK + "sys.exit(3)\n", "quits:Quits", "random", "importing it failed: SystemExit: 3"),
    "task": (TASK + "    def __init__(self): sys.exit('no')\n", "quits:Quits", "random", "SystemExit: no"),
    "step": (
        TASK + "    def step(self, state, action, *, key): raise SystemExit\n",
        "quits:Quits",
        "random",
        "quits:Quits.step() failed: SystemExit",
    ),
    "notes": (TASK + "    def notes(self): sys.exit(4)\n", "quits:Quits", "random", "(SystemExit: 4) in quits.py"),
    "method": (
        METHOD.replace("key): pass", "key): sys.exit(5)"),
        "mountain-car",
        "quits:Quits",
        "constructing quits:Quits failed: SystemExit: 5",
    ),
    "loss": (
        METHOD.replace("return jnp.zeros", "sys.exit(6); return jnp.zeros"),
        "mountain-car",
        "quits:Quits",
        "quits:Quits.loss() failed: SystemExit: 6",
    ),
    "import of an environment": (
        ENVIRONMENT + "sys.exit(7)\n",
        "gymnasium:quits:Quits-v0",
        "random",
        "SystemExit: 7",
    ),
    "environment's reset": (
        ENVIRONMENT.replace("return np.zeros(2, np.float32), {}", "sys.exit(8)"),
        "gymnasium:quits:Quits-v0",
        "random",
        "failed in reset(seed=",
    ),
    "environment's step": (
        ENVIRONMENT.replace("action): return", "action): sys.exit(9); return"),
        "gymnasium:quits:Quits-v0",
        "random",
        "failed in step",
    ),
}


@pytest.mark.parametrize("which", QUITS)
def test_code_that_ends_python_is_named(which: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, task, method, message = QUITS[which]
    gymnasium.registry.pop("Quits-v0", None)
    (tmp_path / "quits.py").write_text(text)
    sys.modules.pop("quits", None)
    assert main(["run", task, "--method", method, *QUICK, "--out", "made"]) in (1, 2)
    output = sentence(capsys)
    assert message in output
    assert "SystemExit" in output
    assert "quits" in output.lower()
    assert not Path("made").exists()


def test_code_that_ends_python_is_an_error_of_ours_in_python_too(tmp_path: Path) -> None:
    (tmp_path / "quits.py").write_text(QUITS["notes"][0])
    sys.modules.pop("quits", None)
    with pytest.raises(curiax.ContractError, match=r"task 'quits:Quits' or method 'random' ended Python"):
        curiax.run(Experiment("quits:Quits", "random", seeds=1, steps=2048))


def test_a_check_of_code_that_ends_python_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "quits.py").write_text(QUITS["loss"][0])
    sys.modules.pop("quits", None)
    assert main(["check", "quits:Quits"]) == 1
    assert "SystemExit: 6" in capsys.readouterr().out


# --- the last net -----------------------------------------------------------------------------------------


def raising(error: BaseException) -> Callable[[list[str]], int]:
    """A command that fails so."""

    def command(args: list[str]) -> int:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FileNotFoundError(2, "No such file or directory", "there"), "there cannot be used: No such file or directory"),
        (OSError(5, "Input/output error"), "standard output: Input/output error"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "invalid start byte"),
        (RecursionError("maximum recursion depth exceeded"), "maximum recursion depth exceeded"),
        (MemoryError(), "there is too little memory (test_errors.py, line "),
        (SystemExit(3), "ended Python (SystemExit: 3) in test_errors.py, line "),
        (curiax.UsageError("two\nlines\x1b[2J"), "two\nlines\N{REPLACEMENT CHARACTER}[2J"),
    ],
)
def test_what_was_not_foreseen_is_said_in_a_sentence(
    error: BaseException, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cli.COMMANDS, "list", raising(error))
    assert main(["list"]) in (1, 2)
    text = capsys.readouterr().err
    assert message in text
    assert text.startswith("curiax: ")
    assert "Traceback" not in text


def test_a_fault_shows_where_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "list", raising(KeyError("what")))
    assert main(["list"]) == 1
    text = capsys.readouterr().err
    assert "KeyError: 'what'" in text
    assert "test_errors.py" in text
    assert text.rstrip().endswith("if it is ours, please report what is above.")


def test_an_interrupt_in_code_of_users_is_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cli.COMMANDS, "list", raising(KeyboardInterrupt()))
    assert main(["list"]) == 130
    assert "interrupted; finished runs and checkpoints are kept" in sentence(capsys)
