"""The command line as a user meets it: exit codes, messages, JSON, files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from curiax._errors import UsageError
from curiax.cli import main
from curiax.cli._arguments import seeds_from
from curiax.cli.run import option
from curiax.experiments.registry import METHODS, TASKS
from curiax.paper.suites import SUITES

QUICK = ["--seeds", "2", "--steps", "512", "--loop.rollout", "128"]


def call(*args: str) -> int:
    """The exit code."""
    return main(list(args))


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_overview_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call() == 0
    assert "curiax run mountain-car --method lbs" in capsys.readouterr().out
    assert call("--version") == 0
    assert capsys.readouterr().out.startswith("curiax 0.")


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["methods"] == list(METHODS)
    assert data["tasks"] == list(TASKS)
    assert data["suites"] == list(SUITES)
    assert call("list") == 0
    text = capsys.readouterr().out
    assert all(name in text for name in (*METHODS, *TASKS))


def test_help_shows_every_setting_with_the_presets_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", "mountain-car-frozen", "--method", "lbs", "--preset", "curiax", "--help") == 0
    text = capsys.readouterr().out
    assert "usage: curiax run [-h] [OPTIONS] TASK" in text
    for flag in (
        "--ppo.clip",
        "--learner.epochs",
        "--loop.rollout",
        "--method.beta",
        "--task.horizon",
        "--remote.mode",
    ):
        assert flag in text
    squeezed = " ".join(text.replace("│", " ").split())
    assert "between updates. (default: 512)" in squeezed
    assert "variance below it is ignored. (default: 2.0)" in squeezed


def test_run_writes_prints_and_reuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", "mountain-car", "--method", "random", *QUICK, "--out", "here") == 0
    captured = capsys.readouterr()
    assert "coverage in the paper's cells: " in captured.out
    assert "(2 seeds: no interval)" in captured.out
    assert "step 512 of 512" in captured.err
    files = ["agents.json", "agents.safetensors", "manifest.json", "metrics.parquet"]
    assert sorted(p.name for p in Path("here").iterdir()) == files
    assert call("run", "mountain-car", "--method", "random", *QUICK, "--out", "here", "--json") == 0
    captured = capsys.readouterr()
    data = json.loads(captured.out)
    assert captured.err == ""
    assert data["reused"] is True
    assert len(data["final"]["coverage/cells"]["values"]) == 2


def test_run_has_a_folder_of_its_own_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", "mountain-car", "--method", "random", *QUICK, "--seeds", "1", "--quiet") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "one seed: no interval" in captured.out
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("mountain-car_random_")


def test_a_setting_of_earlier_versions_says_what_to_do_instead(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", "mountain-car", "--method", "random", "--loop.coverage", "bins") == 2
    assert "--loop.coverage: which metric is shown first is no setting" in capsys.readouterr().err


def test_settings_on_the_command_line_reach_the_run() -> None:
    args = ["--loop.no-normalise-obs", "--remote.mode", "frozen", "--task.horizon=50", "--remote.noise_dims", "2"]
    assert call("run", "mountain-car", "--method", "random", *QUICK, *args, "--out", "x", "--quiet") == 0
    manifest = json.loads(Path("x/manifest.json").read_text())
    assert manifest["experiment"]["settings"] == {
        "loop.rollout": 128,
        "loop.normalise_obs": False,
        "remote.mode": "frozen",
        "remote.noise_dims": 2,
        "task.horizon": 50,
    }


def test_seeds() -> None:
    assert seeds_from("8") == 8
    assert seeds_from("0,1,5") == (0, 1, 5)
    assert seeds_from("5,") == (5,)
    assert seeds_from("2000-2003,7") == (2000, 2001, 2002, 2003, 7)
    assert option(["a", "--method=lbs"], "method") == "lbs"
    assert option(["a", "--method", "lbs", "--method", "icm"], "method") == "icm"


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("rum", 2, "unknown command 'rum'. Did you mean 'run'"),
        ("run", 2, "name the task first"),
        ("run --method lbs", 2, "name the task first"),
        ("run mountain-car", 2, "name a method"),
        ("run mountain-cart --method lbs", 2, "Did you mean 'mountain-car'"),
        ("run mountain-car --method lsb", 2, "Did you mean 'lbs'"),
        ("run mountain-car --method lbs --seeds many", 2, "give a number of seeds (8), a list"),
        ("run mountain-car --method lbs --seeds 3,3", 2, "repeats a seed"),
        ("run mountain-car --method lbs --seeds 0-99999999999", 2, "at most 65536 seeds"),
        ("run mountain-car --method lbs --seeds 99999999999", 2, "at most 65536 seeds"),
        ("run mountain-car --method lbs --method.beta -1", 2, "must be greater than or equal to 0"),
        ("run mountain-car --method lbs --method.beta x", 2, "could not convert string to float"),
        ("run mountain-car --method lbs --method.betta 1", 2, "--method.beta"),
        ("run mountain-car --method lbs --loop.successor rset", 2, "invalid choice"),
        ("run mountain-car --method lbs --steps 10", 2, "less than one rollout"),
        ("run mountain-car --method random --out /proc/nowhere", 2, "cannot write to"),
        ("reproduce noisytv", 2, "Did you mean 'noisy-tv'"),
        ("reproduce noisy-tv --methods lbs lbz", 2, "Did you mean 'lbs'"),
        ("reproduce noisy-tv --games breakout", 2, "suite 'noisy-tv' has no games"),
        ("reproduce arcade --games breakout,qbrt", 2, "unknown game 'qbrt'. Did you mean 'qbert'"),
        ("reproduce arcade --games ,", 2, "name some games"),
        ("run atari:brekout --method lbs", 2, "Did you mean 'breakout'"),
        ("run atari: --method lbs", 2, "name a game after the colon"),
        ("reproduce lbs-ablation --preset curiax", 2, "compares presets itself"),
        ("reproduce noisy-tv --preset curias", 2, "Did you mean 'curiax'"),
        ("report", 2, "name the folders of the runs"),
        ("report nowhere", 2, "nowhere is not a folder"),
        ("report .", 2, "no finished runs in"),
        ("verify", 2, "name the folders to verify"),
        ("verify nowhere", 2, "nowhere is no folder: name a report's, a run's or an export's"),
        ("cite", 2, "name the methods"),
        ("cite ibs", 2, "Did you mean 'lbs'"),
        ("check nowhere:Nothing", 2, "no module 'nowhere'"),
        ("check json:JSONDecoder", 2, "neither a curiax.AbstractCuriosity nor a curiax.AbstractTask"),
    ],
)
def test_wrong_usage(line: str, code: int, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert call(*line.split()) == code
    captured = capsys.readouterr()
    text = " ".join((captured.err + captured.out).replace("│", " ").split())
    assert message in text
    assert "Traceback" not in text
    assert len(text.splitlines()) < 25
    assert list(tmp_path.iterdir()) == []


def test_cite(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("cite", "lbs", "lbs-mean", "ngu", "random") == 0
    text = capsys.readouterr().out
    assert text.count("@inproceedings") == 2
    assert "mazzaglia2022curiosity" in text
    assert "% random: nothing to cite" in text
    for name in METHODS:
        assert call("cite", name) == 0


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("doctor", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert set(data["extras"]) == {"mujoco", "video", "atari", "mario", "dmc", "sb3", "ray", "cuda"}
    assert data["packages"]["jax"]
    assert "pip install" not in data["extras"]["dmc"]
    assert call("doctor") == 0
    assert "devices" in capsys.readouterr().out


def test_the_doctor_says_what_is_missing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def none(mujoco: Any) -> dict[str, Any]:
        return {}

    monkeypatch.setattr("curiax.envs._picture.backends", none)
    for name in ("ray", "imageio_ffmpeg"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("curiax.envs.mario.importlib.util.find_spec", lambda name: None)
    assert call("doctor", "--json") == 0
    extras = json.loads(capsys.readouterr().out)["extras"]
    assert extras["ray"] == "missing: pip install 'curiax[ray]'"
    assert extras["video"] == "missing: pip install 'curiax[video]'"
    assert extras["mario"].startswith("missing: pip install 'curiax[mario]' (needs a C++ compiler; ")
    assert "free for educational use" in extras["mario"]
    assert extras["mujoco"].startswith("works, but not films: MuJoCo finds no OpenGL")


def test_check_says_what_is_broken(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.py").write_text(
        "import jax.numpy as jnp, curiax\n"
        "class Leaky(curiax.AbstractCuriosity):\n"
        "    'Pays more to invalid steps than it should: nothing.'\n"
        "    nonnegative = True\n"
        "    def __init__(self, spec, *, key): pass\n"
        "    def reward(self, memory, t, *, key): return memory, jnp.sum(t.obs)\n"
        "    def loss(self, t, *, draw): return jnp.zeros(()), {}\n"
    )
    monkeypatch.syspath_prepend(".")
    assert call("check", "mine:Leaky") == 1
    text = capsys.readouterr().out
    assert "FAIL" in text
    assert "says its bonus is never negative" in text


def test_settings_of_every_kind_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("kinds.py").write_text(
        "import jax, jax.numpy as jnp, curiax\n"
        "class Kinds(curiax.AbstractCuriosity):\n"
        "    'Many kinds of settings.'\n"
        "    def __init__(self, spec, *, key, sizes: tuple[int, ...] = (1, 2), names: list[str] = ['a'],\n"
        "                 no_bias: bool = False, shape=jax.nn.relu, plain=3, maybe: float | None = None):\n"
        "        assert isinstance(sizes, tuple)\n"
        "    def reward(self, memory, t, *, key): return memory, jnp.sum(t.obs ** 2)\n"
        "    def loss(self, t, *, draw): return jnp.zeros(()), {}\n"
    )
    monkeypatch.syspath_prepend(".")
    line = [
        "run",
        "mountain-car",
        "--method",
        "kinds:Kinds",
        *QUICK,
        "--ppo.minibatch-size",
        "64",
        "--quiet",
        "--out",
        "k",
    ]
    options = ["--method.sizes", "4", "5", "--method.no-bias", "--method.plain", "7", "--method.maybe", "0.5"]
    assert call(*line, *options) == 0
    settings = json.loads(Path("k/manifest.json").read_text())["identity"]["settings"]
    found = {name.removeprefix("method."): value for name, value in settings.items() if name.startswith("method.")}
    assert found["shape"].endswith(":relu")
    del found["shape"]
    assert found == {"sizes": [4, 5], "names": ["a"], "no_bias": True, "plain": 7, "maybe": 0.5}
    assert call(*line, *options) == 0


def test_reproduce_makes_table_and_figures(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["reproduce", "noisy-tv", "--methods", "random", "--steps", "4096", "--seeds", "3", "--out", "suite"]
    assert call(*line, "--quiet") == 0
    text = capsys.readouterr().out
    assert "Mountain Car Frozen" in text
    assert "suite/report.html" in text
    assert "not comparable" in text, "a shortened run must not be compared with the paper"
    table = json.loads(Path("suite/table.json").read_text())
    assert {row["task"] for row in table["rows"]} == {"mountain-car", "mountain-car-frozen"}
    assert Path("suite/figures/coverage.png").stat().st_size > 10_000
    before = {path: path.read_bytes() for path in Path("suite").rglob("*") if path.is_file()}
    assert call(*line, "--json") == 0
    assert json.loads(capsys.readouterr().out) == table
    assert {path: path.read_bytes() for path in Path("suite").rglob("*") if path.is_file()} == before
    assert call("verify", "suite") == 0
    assert "0 differ" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "expected"),
    [("mnist", range(10)), ("noisy-tv", range(8)), ("mnist --seeds 3", range(3)), ("noisy-tv --seeds 2,5", (2, 5))],
)
def test_a_suite_has_its_own_number_of_seeds(line: str, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper has ten on MNIST."""
    from curiax.experiments import reproduce

    experiments: list[Any] = []

    def stop(chosen: Any, *_: Any) -> Any:
        experiments.extend(chosen)
        raise UsageError("seen enough")

    monkeypatch.setattr(reproduce, "train_suite", stop)
    assert call("reproduce", *line.split(), "--quiet") == 2
    assert {experiment.seeds for experiment in experiments} == {tuple(expected)}


def test_suites_can_share_runs_under_their_own_labels(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--methods", "random", "--steps", "2048", "--seeds", "2", "--quiet", "--runs", "store"]
    assert call("reproduce", "mountain-car", *line, "--out", "a") == 0
    assert call("reproduce", "noisy-tv", *line, "--out", "b") == 0
    assert len(list(Path("store").iterdir())) == 2
    assert call("report", "store", "--out", "c", "--title", "Mine") == 0
    capsys.readouterr()
    assert "<title>Mine" in Path("c/report.html").read_text()
    assert "LBS, ICM" not in Path("b/report.html").read_text(), "the page names the lines that are there"
    assert call("verify", "a", "b", "c") == 0
    assert capsys.readouterr().out.count("ok  ") == 3
    assert call("verify", ".") == 0
    assert capsys.readouterr().out.count("ok  ") == 3
    table = json.loads(Path("a/table.json").read_text())
    table["rows"][0]["mean"] = 99.0
    Path("a/table.json").write_text(json.dumps(table))
    assert call("verify", "a", "b") == 1
    text = capsys.readouterr().out
    assert "mean is 99.0" in text
    assert "FAIL a" in text
    assert "ok   b" in text


def test_a_task_is_trained_anew_and_the_others_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["reproduce", "noisy-tv", "--methods", "random", "lbs", "--steps", "2048", "--seeds", "2", "--quiet"]
    assert call(*line, "--out", "whole") == 0
    assert call(*line, "--out", "part", "--tasks", "mountain-car-frozen") == 0
    assert len(list(Path("part/runs").iterdir())) == 2
    part = json.loads(Path("part/table.json").read_text())
    assert {row["task"] for row in part["rows"]} == {"mountain-car-frozen"}
    assert part["command"].endswith("--tasks mountain-car-frozen --seeds 2 --steps 2048")
    assert call(*line, "--out", "both", "--runs", "store", "--tasks", "mountain-car", "--kept", "part") == 0
    assert len(list(Path("store").iterdir())) == 2, "what is kept is not trained"
    whole, both = (json.loads(Path(name, "table.json").read_text()) for name in ("whole", "both"))
    assert both == whole
    capsys.readouterr()
    assert call(*line, "--out", "both", "--tasks", "mountain-car-frozen", "--kept", "part") == 2
    assert "part has no run of random on mountain-car with these seeds" in capsys.readouterr().err
    assert call(*line, "--out", "both", "--tasks", "mountain-cat") == 2
    assert "unknown task of suite 'noisy-tv' 'mountain-cat'. Did you mean 'mountain-car'" in capsys.readouterr().err


def test_a_report_of_the_users_own_method(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code is not imported again: a report only reads."""
    examples = Path(__file__).parents[2] / "examples"
    monkeypatch.syspath_prepend(str(examples))
    line = ["run", "mountain-car-frozen", "--method", "new_method:EmbeddingDistance", "--steps", "2048", "--quiet"]
    assert call(*line, "--seeds", "2", "--out", "runs/own") == 0
    sys.modules.pop("new_method", None)
    assert call("report", "runs", "--out", "made") == 0
    assert "new_method" not in sys.modules
    assert "new_method:EmbeddingDistance" in Path("made/report.html").read_text()
    capsys.readouterr()


def test_reproduce_leaves_foreign_files_alone(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["reproduce", "noisy-tv", "--methods", "random", "--steps", "2048", "--seeds", "1", "--quiet", "--out"]
    Path("mine").mkdir()
    Path("mine/table.json").write_text("[1, 2]")
    assert call(*line, "mine") == 2
    assert "mine holds table.json, which is not Curiax's" in capsys.readouterr().err
    assert Path("mine/table.json").read_text() == "[1, 2]"
    Path("notes").mkdir()
    Path("notes/diary.txt").write_text("dear")
    assert call(*line, "notes") == 2
    assert "diary.txt" in capsys.readouterr().err
    assert call(*line, "free") == 0
    assert "[one seed]" in capsys.readouterr().out


def test_the_installed_command_works() -> None:
    found = Path(sys.executable).parent / "curiax"
    done = subprocess.run([found, "run", "nowhere", "--method", "lbs"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("curiax: unknown task 'nowhere'")
    assert "Traceback" not in done.stderr
