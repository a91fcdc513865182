"""Running an experiment: what is written, when, and what happens when something goes wrong."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import programs
import pytest
from small import SMALL

import curiax
from curiax._errors import ContractError, NonFiniteError, OutputError
from curiax.cli._result import run_summary, run_text
from curiax.envs import MountainCar
from curiax.experiments.manifest import read_manifest
from curiax.experiments.progress import Counted, Lines
from curiax.experiments.run import RunResult, command, run
from curiax.experiments.spec import Experiment

pytestmark = pytest.mark.usefixtures("compiled_once")
QUICK = Experiment("mountain-car", "random", seeds=(0, 4, 7), steps=512, settings=SMALL)

FILES = ["agents.json", "agents.safetensors", "manifest.json", "metrics.parquet"]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A run whose agents and models learn."""
    experiment = Experiment("mountain-car", "lbs", seeds=(0, 5, 3), steps=512, settings=SMALL)
    return run(experiment, tmp_path_factory.mktemp("learnt") / "deep" / "run")


def test_a_run_leaves_one_tidy_table_and_a_manifest(learnt: RunResult) -> None:
    result, experiment, out = learnt, learnt.plan.experiment, learnt.path
    assert out is not None
    assert sorted(contents(out)) == FILES
    assert [p.name for p in out.parent.iterdir()] == ["run"]

    table = pl.read_parquet(out / "metrics.parquet")
    assert table.equals(result.metrics)
    assert table.select("seed", "iteration", "step").rows() == [
        (seed, k, 128 * (k + 1)) for seed in (0, 5, 3) for k in range(4)
    ]
    expected = {
        *(f"{what}/{grid}" for what in ("coverage", "reachable", "occupancy", "paid") for grid in ("cells", "bins")),
        *(f"bonus/{name}" for name in ("mean", "median", "std", "max", "border_share", "scale", "paid_mean")),
        *(f"policy/{name}" for name in ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")),
        *(f"policy/{name}" for name in ("explained_variance", "value_mean", "advantage_std", "action_std")),
        *(f"model/{name}" for name in ("loss", "kl", "posterior_entropy", "cross_entropy", "reconstruction")),
        "probe/car",
        "reward/extrinsic_mean",
        "reward/episodes_ended",
    }
    assert set(table.columns) - {"seed", "iteration", "step"} == expected
    for name in set(table.columns) - {"occupancy/cells", "occupancy/bins"}:
        assert np.isfinite(table[name].to_numpy()).all(), name

    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["experiment"] == experiment.as_json()
    assert manifest["identity"]["settings"]["ppo.clip"] == 0.2
    assert manifest["versions"]["jax"] == jax.__version__
    assert set(manifest["seconds"]) == {"start", "train", "cpu"}
    assert manifest["command"] == command()
    assert Experiment.from_json(manifest["experiment"]) == experiment


def test_metrics_agree_with_each_other(learnt: RunResult) -> None:
    """Coverage is the number of cells that occupancy has ever shown; KL splits into its two entropies."""
    table = learnt.metrics
    for grid, reachable in (("cells", 96), ("bins", 91)):
        occupancy = np.stack(table[f"occupancy/{grid}"].to_list()).reshape(3, 4, -1)
        assert (occupancy.sum(-1) == 128).all()
        ever = (np.cumsum(occupancy, axis=1) > 0).sum(-1)
        np.testing.assert_allclose(table[f"coverage/{grid}"].to_numpy().reshape(3, 4), ever)
        share = table[f"reachable/{grid}"].to_numpy().reshape(3, 4)
        np.testing.assert_allclose(share, 100 * ever / reachable, rtol=1e-5)
    kl, entropy, cross = (table[f"model/{n}"].to_numpy() for n in ("kl", "posterior_entropy", "cross_entropy"))
    np.testing.assert_allclose(kl, cross - entropy, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(kl, table["bonus/mean"].to_numpy(), rtol=1e-4)


def test_a_finished_run_is_read_not_repeated(tmp_path: Path) -> None:
    first = run(QUICK, tmp_path / "run")
    before = contents(tmp_path / "run")
    again = run(QUICK, tmp_path / "run")
    assert (first.reused, again.reused) == (False, True)
    assert again.metrics.equals(first.metrics)
    assert contents(tmp_path / "run") == before


def test_what_a_task_notes_is_told_kept_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As which version of a game was played: what counts is what was installed where the run was made."""
    assert run_summary(run(QUICK))["notes"] == {}
    monkeypatch.setattr(MountainCar, "notes", lambda self: {"version of the car": "Europe (PAL)"})
    stream = io.StringIO()
    assert run(QUICK, tmp_path / "run", progress=Counted(Lines(stream=stream), "[1/2]")).manifest["notes"]
    assert "[1/2] random on mountain-car: version of the car: Europe (PAL)\n" in stream.getvalue()
    monkeypatch.setattr(MountainCar, "notes", lambda self: {"version of the car": "another"})
    with pytest.warns(
        UserWarning, match=r"another version of the car: Europe \(PAL\), now another; it is read as it is"
    ):
        again = run(QUICK, tmp_path / "run")
    assert again.reused
    assert again.manifest["notes"] == {"version of the car": "Europe (PAL)"}
    assert "\n  version of the car: Europe (PAL)\n" in run_text(again, None)


@pytest.mark.parametrize("notes", [None, {"version": 3}, {4: "text"}, {"": "text"}, {"version": "x" * 70_000}, "text"])
def test_notes_that_a_manifest_could_not_hold_are_refused(notes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MountainCar, "notes", lambda self: notes)
    with pytest.raises(ContractError, match=r"notes\(\) of task 'mountain-car' must map names to texts: "):
        run(QUICK)


def test_folders_that_are_not_free_are_refused_and_untouched(tmp_path: Path) -> None:
    run(QUICK, tmp_path / "run")
    before = contents(tmp_path / "run")
    other = Experiment("mountain-car", "random", seeds=2, steps=512, settings=SMALL)
    with pytest.raises(OutputError, match=r"another finished run.*seeds"):
        run(other, tmp_path / "run")
    assert contents(tmp_path / "run") == before

    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("precious")
    with pytest.raises(OutputError, match="not a Curiax run"):
        run(QUICK, tmp_path / "foreign")
    assert contents(tmp_path / "foreign") == {"thesis.tex": b"precious"}
    for name in ("model.pt", "metrics/loss.csv", "step-best/model.pt"):  # others have checkpoints too
        file = tmp_path / name[:5] / "checkpoints" / name
        file.parent.mkdir(parents=True)
        file.write_text("precious")
        with pytest.raises(OutputError, match=r"not a Curiax run \(.*checkpoints.*\): choose an empty or new folder"):
            run(QUICK, tmp_path / name[:5])
        assert contents(tmp_path / name[:5]) == {f"checkpoints/{name}": b"precious"}

    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="is a file"):
        run(QUICK, tmp_path / "file")
    with pytest.raises(OutputError, match="cannot write to"):
        run(QUICK, tmp_path / "file" / "below")
    with pytest.raises(OutputError, match="cannot write to"):
        run(QUICK, Path("/proc/nowhere/run"))

    os.symlink(tmp_path / "gone", tmp_path / "link")
    with pytest.raises(OutputError, match="link to nowhere"):
        run(QUICK, tmp_path / "link")


def test_an_empty_folder_is_welcome(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    run(QUICK, tmp_path / "run")
    assert sorted(contents(tmp_path / "run")) == FILES


class Sick(curiax.AbstractCuriosity):
    """Pays NaN from the second iteration on."""

    weight: Any

    def __init__(self, spec: curiax.Spec, *, key: curiax.PRNGKey, where: str = "bonus") -> None:
        self.weight = jnp.ones(())

    def reward(self, memory: Any, t: curiax.Transition, *, key: curiax.PRNGKey) -> Any:
        return memory, jnp.where(self.weight == 1.0, 1.0, jnp.nan) + 0 * jnp.sum(t.obs)

    def loss(self, t: curiax.Transition, *, draw: Any) -> Any:
        return self.weight**2, {}


class SickTask(curiax.AbstractTask):
    """An observation that doubles at every step."""

    spec: curiax.Spec = eqx.field(static=True)
    grids: tuple[curiax.Grid, ...] = eqx.field(static=True)

    def __init__(self) -> None:
        self.spec, self.grids = curiax.Spec((1,), curiax.Discrete(2)), ()

    def reset(self, *, key: curiax.PRNGKey) -> Any:
        return jnp.ones(1)

    def step(self, state: Any, action: Any, *, key: curiax.PRNGKey) -> Any:
        return state * 2.0, jnp.zeros(()), jnp.zeros((), bool)

    def observe(self, state: Any) -> Any:
        return state

    def track(self, state: Any) -> Any:
        return jnp.zeros(0)


def test_nan_from_a_method_stops_the_run_and_names_it(tmp_path: Path) -> None:
    experiment = Experiment("mountain-car", Sick, seeds=(3, 9), steps=512, settings=SMALL)
    with pytest.raises(NonFiniteError, match=r"bonus of method '.*Sick'.*seed 3, environment 0, step 129 of that"):
        run(experiment, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_infinity_from_a_task_stops_the_run_and_names_it(tmp_path: Path) -> None:
    settings = {**SMALL, "loop.normalise_obs": False}
    experiment = Experiment(SickTask, "rnd", seeds=2, steps=512, settings=settings)
    # 2³⁴ is the first power of two beyond 1e10.
    with pytest.raises(NonFiniteError, match=r"observations of task '.*SickTask'.*environment 0, step 34 of.*ation 0"):
        run(experiment, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


class Loose(curiax.AbstractCuriosity):
    """Fields and settings that are allowed: a random key, a number, a function; and one thing sick on demand."""

    key: Any
    scale: float
    sick: str = eqx.field(static=True)
    shape: Any = eqx.field(static=True)

    def __init__(
        self,
        spec: curiax.Spec,
        *,
        key: curiax.PRNGKey,
        sick: str = "",
        sizes: tuple[int, ...] = (1, 2),
        no_bias: bool = False,
        shape: Any = jnp.tanh,
    ) -> None:
        self.key, self.scale, self.sick, self.shape = key, 2.0, sick, shape

    def reward(self, memory: Any, t: curiax.Transition, *, key: curiax.PRNGKey) -> Any:
        return memory, self.scale * self.shape(jnp.sum(t.obs) ** 2)

    def loss(self, t: curiax.Transition, *, draw: Any) -> Any:
        return jnp.zeros(()), {}

    def explain(self, t: curiax.Transition, *, key: curiax.PRNGKey) -> Any:
        return {"term": jnp.where(self.sick == "term", jnp.nan, 1.0)}


class LostPoint(curiax.AbstractTask):
    """A tracked point that is NaN: it would be counted as some cell."""

    spec: curiax.Spec = eqx.field(static=True)
    grids: tuple[curiax.Grid, ...] = eqx.field(static=True)

    def __init__(self) -> None:
        self.spec = curiax.Spec((1,), curiax.Discrete(2), 10)
        self.grids = (curiax.Grid("bins", (curiax.Axis("x", 0.0, 1.0, 4),), "floor"),)

    def reset(self, *, key: curiax.PRNGKey) -> Any:
        return jnp.zeros(1)

    def step(self, state: Any, action: Any, *, key: curiax.PRNGKey) -> Any:
        return state + 0.1, jnp.zeros(()), jnp.zeros((), bool)

    def observe(self, state: Any) -> Any:
        return state

    def track(self, state: Any) -> Any:
        return jnp.sqrt(-state)


def test_nan_in_what_a_method_reports_or_a_task_tracks_is_named() -> None:
    settings = {**SMALL, "method.sick": "term"}
    with pytest.raises(NonFiniteError, match=r"the terms of its bonus that method '.*Loose' reports"):
        run(Experiment("mountain-car", Loose, seeds=2, steps=256, settings=settings))
    with pytest.raises(NonFiniteError, match=r"the tracked point of task '.*LostPoint'.*step 1 of that.*iteration 0"):
        run(Experiment(LostPoint, "random", seeds=2, steps=256, settings=SMALL))


def test_settings_of_every_kind_survive_the_manifest(tmp_path: Path) -> None:
    """Tuples, NumPy numbers, functions as defaults: the run is found again instead of refused."""
    settings = {**SMALL, "method.sizes": (3, 4), "ppo.clip": np.float32(0.5), "method.no_bias": True}
    experiment = Experiment("mountain-car", Loose, seeds=[0, 1], steps=256, settings=settings)
    run(experiment, tmp_path / "run")
    assert run(experiment, tmp_path / "run").reused
    kept = json.loads((tmp_path / "run" / "manifest.json").read_text())["identity"]["settings"]
    assert kept["method.sizes"] == [3, 4]
    assert kept["method.no_bias"] is True
    assert kept["method.shape"].endswith("tanh")


def test_the_headline_is_what_the_task_counts() -> None:
    """A task with one grid of any name, and one that counts nothing, have a headline too."""
    from curiax.testing import NoisyArm

    result = run(QUICK)
    assert result.final() == result.final("coverage/cells")
    with pytest.raises(curiax.UsageError, match=r"unknown metric 'coverage/cell'.*coverage/cells"):
        result.final("coverage/cell")
    nothing = run(Experiment(NoisyArm, "random", seeds=2, steps=256, settings=SMALL))
    assert nothing.headline == "reward/extrinsic_mean", "no bonus is paid to it"
    assert nothing.final() == nothing.final("reward/extrinsic_mean")


def test_a_damaged_run_is_refused_by_name(tmp_path: Path) -> None:
    run(QUICK, tmp_path / "run")
    (tmp_path / "run" / "metrics.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(OutputError, match=r"metrics.parquet is damaged .*remove the folder"):
        run(QUICK, tmp_path / "run")
    (tmp_path / "run" / "manifest.json").write_text('{"format": "curiax-run-1"}')
    with pytest.raises(OutputError, match=r"manifest.json is damaged .*identity"):
        run(QUICK, tmp_path / "run")


def test_every_bit_of_a_manifest_counts(tmp_path: Path) -> None:
    """Those of its format, too, by which a manifest of another program is known."""
    result = run(QUICK, tmp_path / "run")
    file = tmp_path / "run" / "manifest.json"
    whole = file.read_bytes()
    begun = whole.index(b'"format"')
    for bit in range(8 * begun, 8 * (whole.index(b"\n", begun) + 1)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
        with contextlib.suppress(OutputError):
            assert read_manifest(tmp_path / "run") == result.manifest, bit
    file.write_bytes(whole.replace(b"curiax-run-2", b"curiax-run-9"))
    with pytest.raises(OutputError, match="its format is 'curiax-run-9', which this version does not know"):
        read_manifest(tmp_path / "run")
    file.write_text('{"format": "another program\'s", "version": 3}')
    assert read_manifest(tmp_path / "run") is None


def test_the_same_experiment_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Experiment("mountain-car-frozen", "disagreement", seeds=3, steps=256, settings=SMALL)
    once = run(experiment)
    monkeypatch.setattr(programs, "KEPT", [])  # traced anew
    assert run(experiment).metrics.equals(once.metrics)


def test_replay_and_many_environments_and_scaling_switches() -> None:
    settings = {
        **SMALL,
        "loop.envs": 3,
        "loop.rollout": 64,
        "learner.replay": 2,
        "learner.clip_order": "after",
        "ppo.entropy_reduction": "sum",
        "learner.max_gradient_norm": 1.0,
        "loop.successor": "drop",
    }
    result = run(Experiment("mountain-car-evolving", "vime", seeds=1, steps=64 * 3 * 3, settings=settings))
    assert result.metrics.height == 3


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("/home/me/.venv/lib/python3.12/site-packages/curiax/__main__.py", "python -m curiax run 'my task'"),
        ("/home/me/.venv/bin/curiax", "curiax run 'my task'"),
        ("__main__.py", "__main__.py run 'my task'"),
    ],
)
def test_a_record_names_a_command_that_can_be_typed(
    monkeypatch: pytest.MonkeyPatch, program: str, expected: str
) -> None:
    monkeypatch.setattr("sys.argv", [program, "run", "my task"])
    assert command() == expected
