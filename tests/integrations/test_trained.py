"""Agents away from training: golden files of every format, `curiax.load` and `curiax export`."""

from __future__ import annotations

import errno
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from kept import BOX, CHOICE, DATA, UNIFORM, expected, untrained

import curiax
from curiax import OutputError, UsageError
from curiax._files import locked, mark
from curiax.cli import main
from curiax.experiments import exports, saved
from curiax.watch import watch

GOLDEN = sorted(DATA.glob("agents-*/*"))


def test_there_are_golden_files_of_every_format() -> None:
    assert {path.parent.name for path in GOLDEN} == {"agents-1", "agents-2"}
    assert len(GOLDEN) == 6
    assert f"curiax-{GOLDEN[-1].parent.name}" == saved.FORMAT


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_golden_files_act_and_pay_as_they_did(path: Path) -> None:
    golden = expected(path)
    assert len(golden["obs"]) == 1000
    for row, seed in enumerate(curiax.load(path).seeds):
        agent = curiax.load(path, seed=seed)
        if "actions" in golden:
            np.testing.assert_allclose(agent.act(golden["obs"]), golden["actions"][row], rtol=0, atol=1e-6)
        if agent.method != "random":  # no bonus was ever paid to it
            paid = agent.bonus(golden["obs"][: len(golden["taken"])], golden["taken"], golden["next_obs"])
            np.testing.assert_allclose(paid, golden["bonuses"][row], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("path", [BOX, CHOICE], ids=lambda path: path.name)
def test_acting_is_what_the_training_code_does(path: Path) -> None:
    plan, learnt = saved.read(path)
    agent, one = curiax.load(path), learnt.one(learnt.seeds[0])
    obs, spec = expected(path)["obs"][:50], plan.setup.task.spec
    training, no = plan.setup.agent, jnp.zeros((), bool)
    greedy = functools.partial(training.act, training.actor(one.networks), behaviour="greedy")
    seen = [plan.setup.normalise(one.obs_stats, jnp.asarray(each)) for each in obs]
    theirs = [np.asarray(spec.action.executed(greedy((), each, no, jnp.ones(spec.action.size))[1])) for each in seen]
    np.testing.assert_allclose(agent.act(obs), np.stack(theirs), rtol=0, atol=1e-6)
    assert agent.spec == spec
    assert (agent.task, agent.method, agent.seeds) == (plan.task_entry.name, plan.method_entry.name, learnt.seeds)


def test_acting_needs_neither_jax_nor_training() -> None:
    code = (
        "import sys, numpy, curiax; agent = curiax.load(sys.argv[1], seed=5); print(agent.act(numpy.zeros(2)).shape);"
        "names = ('jax', 'equinox', 'optax', 'curiax.train', 'curiax.experiments.run', 'curiax.experiments.saved');"
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, BOX], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["(1,)", "[]"]


def test_paying_needs_no_training() -> None:
    code = (
        "import sys, numpy, curiax; agent = curiax.load(sys.argv[1]); x = numpy.zeros(2);"
        "print(agent.bonus(x, [0.5], x) >= 0, [m for m in sys.modules if m.startswith('curiax.train.')])"
    )
    done = subprocess.run([sys.executable, "-c", code, BOX], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True []"


def test_one_or_many() -> None:
    for path in (BOX, CHOICE, UNIFORM):
        agent, obs = curiax.load(path), expected(path)["obs"][:7]
        many = agent.act(obs, rng=1)
        assert many.shape == (7, *agent.spec.action.shape)
        assert agent.act(obs[:1], rng=1).shape == (1, *agent.spec.action.shape)
        assert agent.act(obs[:0]).shape == (0, *agent.spec.action.shape)
        one = agent.act(obs[0].astype(np.float64), rng=1)
        assert one.shape == agent.spec.action.shape
        np.testing.assert_allclose(one, many[0], rtol=0, atol=1e-6)
        if path is UNIFORM:
            continue
        np.testing.assert_allclose([agent.act(each) for each in obs.tolist()], many, rtol=0, atol=1e-6)
        taken, after = expected(path)["taken"], expected(path)["next_obs"]
        paid = agent.bonus(obs[0], taken[0], after[0])
        assert paid.shape == ()
        assert paid == pytest.approx(expected(path)["bonuses"][0, 0], rel=1e-5, abs=1e-6)


def test_drawn_actions_have_the_distribution_of_training() -> None:
    """The moments of many draws against the policy's own mean, deviation and probabilities."""
    agent, obs = curiax.load(BOX), np.zeros((20_000, 2))
    _, learnt = saved.read(BOX)
    drawn = agent.act(obs, deterministic=False, rng=np.random.default_rng(0))
    assert (np.abs(drawn) <= 1).all()
    mean, std = agent.act(obs[0])[0], float(np.exp(learnt.one(agent.seed).networks.agent.log_std[0]))
    assert np.mean(drawn <= mean) == pytest.approx(0.5, abs=0.02)
    assert np.mean(drawn <= mean - std) == pytest.approx(0.0 if mean - std < -1 else 0.1587, abs=0.01)
    np.testing.assert_array_equal(drawn, agent.act(obs, deterministic=False, rng=0))
    plan, learnt = saved.read(CHOICE)
    one, agent = learnt.one(0), curiax.load(CHOICE, seed=0)
    logits = one.networks.agent.distribution(plan.setup.normalise(one.obs_stats, jnp.zeros(4))).logits
    share = float(np.exp(logits[1]) / np.exp(logits).sum())
    assert agent.act(np.zeros((20_000, 4)), deterministic=False, rng=0).mean() == pytest.approx(share, abs=0.02)
    uniform = curiax.load(UNIFORM).act(np.zeros((20_000, 3)), rng=0)
    np.testing.assert_allclose(np.quantile(uniform, [0.1, 0.5, 0.9]), [-0.8, 0.0, 0.8], atol=0.03)


@pytest.mark.parametrize(
    ("obs", "match"),
    [
        (np.zeros(3), r"obs: shape \(3,\); 'mountain-car' has \(2,\), or \[B, 2\] for many"),
        (np.zeros((2, 2, 2)), "obs: shape"),
        (0.0, "obs: shape"),
        ([np.nan, 0], "obs: holds NaN"),
        ([np.inf, 0], "obs: holds NaN or infinity"),
        ([1e39, 0], "obs: holds NaN or infinity"),
        (["a", "b"], "are not the numbers"),
        ([None, None], "are not the numbers"),
        ([1j, 0], "are not the numbers"),
        ([[1, 2], [3]], "not an array of numbers"),
    ],
)
def test_observations_that_are_none_are_refused(obs: Any, match: str) -> None:
    with pytest.raises(UsageError, match=match), np.errstate(over="ignore"):
        curiax.load(BOX).act(obs)


def test_transitions_that_are_none_are_refused() -> None:
    box, choice = curiax.load(BOX), curiax.load(CHOICE)
    for call, match in (
        (lambda: box.bonus(np.zeros((2, 2)), np.zeros((3, 1)), np.zeros((2, 2))), "2 observations, 3 actions and 2"),
        (lambda: box.bonus(np.zeros(2), np.zeros(2), np.zeros(2)), r"action: shape \(2,\)"),
        (lambda: box.bonus(np.zeros(2), [np.nan], np.zeros(2)), "action: holds NaN"),
        (lambda: choice.bonus(np.zeros(4), 2, np.zeros(4)), "whole numbers from 0 to 1"),
        (lambda: choice.bonus(np.zeros(4), 0.5, np.zeros(4)), "are not the numbers"),
    ):
        with pytest.raises(UsageError, match=match):
            call()


def test_seeds_and_folders_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="seed 4 is not in this run; there are: 3, 5"):
        curiax.load(BOX, seed=4)
    with pytest.raises(UsageError, match="must be a whole number"):
        curiax.load(BOX, seed=True)
    with pytest.raises(OutputError, match="it is not there"):
        curiax.load(tmp_path / "nowhere")
    with pytest.raises(OutputError, match="but a file"):
        curiax.load(BOX / "agents.json")
    with pytest.raises(OutputError, match="not a finished run, and no export"):
        curiax.load(tmp_path)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_export_is_the_same_agent(path: Path, tmp_path: Path) -> None:
    whole = curiax.load(path)
    last = whole.seeds[-1]
    out = curiax.export(path, tmp_path / "out", seeds=[last])
    assert sorted(file.name for file in out.iterdir()) == ["agents.json", "agents.safetensors"]
    agent = curiax.load(out)
    assert agent.seeds == (last,)
    golden = expected(path)
    np.testing.assert_array_equal(
        agent.act(golden["obs"], rng=0), curiax.load(path, seed=last).act(golden["obs"], rng=0)
    )
    transitions = golden["obs"][: len(golden["taken"])], golden["taken"], golden["next_obs"]
    if agent.method != "random":
        np.testing.assert_array_equal(agent.bonus(*transitions), curiax.load(path, seed=last).bonus(*transitions))
    assert agent.spec == whole.spec
    plan, learnt = saved.read(out)  # what `watch` reads
    assert learnt.seeds == (last,)
    assert plan.task_entry.name == whole.task


def test_the_export_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = untrained(tmp_path / "run", "mountain-car", "rnd", seeds=(3, 5, 9))
    assert main(["export", str(run), "--seed", "5", "--out", str(tmp_path / "one")]) == 0
    assert "rnd on mountain-car, seeds 5\n" in capsys.readouterr().out
    assert main(["export", str(run), "--seeds", "9,3", "--out", str(tmp_path / "two")]) == 0
    assert curiax.load(tmp_path / "two").seeds == (9, 3)
    assert main(["export", str(run), "--out", str(tmp_path / "all")]) == 0
    assert curiax.load(tmp_path / "all").seeds == (3, 5, 9)
    np.testing.assert_array_equal(
        curiax.load(tmp_path / "two", seed=9).act([0.1, 0.0]), curiax.load(run, seed=9).act([0.1, 0.0])
    )
    for words, message in (
        (["--seed", "4", "--out", "new"], "seed 4 is not in this run"),
        (["--seeds", "3,3", "--out", "new"], "repeats a seed"),
        (["--seed", "3", "--seeds", "3", "--out", "new"], "name one of them"),
        (["--out", "one"], "is not empty: choose a new folder"),
        (["--out", "run/agents.json"], "cannot write to"),
    ):
        assert main(["export", str(run), *words[:-1], str(tmp_path / words[-1])]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_an_export_to_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = exports.write_whole

    def full(file: Path, data: bytes) -> None:
        if file.name == exports.AGENTS:  # the other one had room
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file, data)

    with monkeypatch.context() as patched:
        patched.setattr(exports, "write_whole", full)
        with pytest.raises(OutputError, match="No space left on device"):
            curiax.export(GOLDEN[0], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    curiax.export(GOLDEN[0], tmp_path / "out")


def test_an_export_can_be_watched(tmp_path: Path) -> None:
    curiax.export(BOX, tmp_path / "car", seeds=[5])
    made = watch(tmp_path / "car", steps=3, width=320, height=240, out=tmp_path / "car.gif")
    assert (made.seed, made.task, len(made.bonus)) == (5, "mountain-car", 3)
    assert (tmp_path / "car.gif").stat().st_size > 1000


def test_methods_of_others_act_but_pay_only_where_they_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs_too.py").write_text(
        "import pathlib\nfrom curiax.curiosity import LBS\npathlib.Path('ran').touch()\nclass Mine(LBS):\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    code = (
        "import sys; sys.path[:0] = [sys.argv[1], '.']; from pathlib import Path; from kept import untrained; "
        "untrained(Path('run'), 'mountain-car', 'theirs_too:Mine')"
    )
    subprocess.run([sys.executable, "-c", code, str(Path(__file__).parents[1])], check=True)
    (tmp_path / "ran").unlink()
    agent = curiax.load("run")
    assert agent.act([0.0, 0.0]).shape == (1,)
    with pytest.raises(UsageError, match=r"'theirs_too:Mine', which is not Curiax's.*trust=True"):
        agent.bonus([0.0, 0.0], [0.0], [0.0, 0.0])
    curiax.export("run", "out")
    assert not (tmp_path / "ran").exists()
    monkeypatch.syspath_prepend(tmp_path)
    assert curiax.load("out", trust=True).bonus([0.0, 0.0], [0.0], [0.0, 0.0]) >= 0
    assert (tmp_path / "ran").exists()


def test_every_field_of_the_format_is_documented() -> None:
    page = (DATA.parent.parent / "docs" / "howto-export.md").read_text()
    about = json.loads((BOX / "agents.json").read_text())
    for name, value in about.items():
        assert f"`{name}`" in page
        if name in ("spec", "observations", "policy", "bonus", "file"):
            assert [key for key in value if f"`{key}`" not in page] == []


# --- writing an export ------------------------------------------------------------------------------------


def beside(out: Path) -> Path:
    """The hidden folder that an export is made in."""
    return out.with_name(f".{out.name}.curiax-export")


def test_links_are_not_followed_to_nowhere(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("nowhere")
    with pytest.raises(OutputError, match="is a link to nowhere"):
        curiax.export(BOX, tmp_path / "out")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    curiax.export(BOX, tmp_path / "link")  # whoever names a link to a folder means that folder
    assert sorted(file.name for file in (tmp_path / "there").iterdir()) == ["agents.json", "agents.safetensors"]


@pytest.mark.parametrize("left", ["nothing", "marked", "half", "all"])
def test_what_a_killed_export_left_goes(left: str, tmp_path: Path) -> None:
    """At whatever moment it was killed: the next one makes the same folder, and nothing is left beside it."""
    out = tmp_path / "out"
    stage = beside(out)
    stage.mkdir()
    (stage / "lock").touch()
    if left != "nothing":
        mark(stage)
    if left in ("half", "all"):
        (stage / "made").mkdir()
        (stage / "made" / "agents.safetensors").write_bytes(b"half")
    if left == "all":  # the rename was done, only what is hidden is left
        (stage / "made").rename(tmp_path / "done")
    curiax.export(BOX, out)
    assert curiax.load(out).seeds == curiax.load(BOX).seeds
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["out", *(["done"] if left == "all" else [])])


def test_two_exports_to_one_place_do_not_disturb_each_other(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with locked(beside(out) / "lock", 0), pytest.raises(OutputError, match="another process is exporting to"):
        curiax.export(BOX, out)


def test_a_folder_of_the_users_is_in_nobodys_way(tmp_path: Path) -> None:
    stage = beside(tmp_path / "out")
    stage.mkdir()
    (stage / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match="in the way and not Curiax's"):
        curiax.export(BOX, tmp_path / "out")
    assert (stage / "mine.txt").read_text() == "mine"
