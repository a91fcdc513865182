"""A metric is declared once, and shown everywhere by that."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from small import SMALL

import curiax
from curiax import ContractError, Experiment, Metric, RunOptions, UsageError, resolve, run
from curiax._contract import check_method_shapes, check_task_shapes
from curiax._metrics import described, headline, share
from curiax.cli import main
from curiax.cli._result import run_text
from curiax.curiosity import RND
from curiax.envs import MountainCar
from curiax.experiments import folder
from curiax.experiments.registry import METHODS
from curiax.report.publish import publish, verify
from curiax.report.record import Heading, Record, condense, headlined, load, save
from curiax.report.table import rows
from curiax.testing import NoisyArm
from curiax.train.batch import first_states
from curiax.train.loop import iterate
from curiax.train.measures import KEYS, MAPPED, measured

HEADING = Heading("Metrics", "A lead.", "", "lbs", "curiax report runs")
SPEED = Metric("speed", "mean speed", "m/s", "How fast it went.", "speed", better="higher", digits=3, low=0.0, rank=90)


class Watched(MountainCar):
    """Mountain Car that measures its speed."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (SPEED,)

    def measure(self, rollout: curiax.Rollout) -> dict[str, jax.Array]:
        return {"speed": jnp.mean(jnp.abs(rollout.points[..., 1])), "lowest": jnp.min(rollout.points[..., 0])}


class Explained(RND):
    """RND that explains its bonus, by a term that it declares and one that it does not."""

    metrics: ClassVar[tuple[Metric, ...]] = (Metric("error", "error of imitation", low=0.0),)

    def explain(self, t: curiax.Transition, *, key: curiax.PRNGKey) -> dict[str, jax.Array]:
        error = self.distillation.error(t.next_obs)
        return {"error": error, "root": jnp.sqrt(error)}


@pytest.fixture(scope="module")
def result() -> curiax.RunResult:
    """Three seeds of a task and a method with metrics of their own."""
    return run(Experiment(Watched, Explained, seeds=3, steps=512, settings=SMALL))


# --- the declaration --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "value", "shown", "progress"),
    [
        (share("a/b", "pressed"), 0.1234, "12.3", "pressed 12.3 %"),
        (Metric("coverage/cells", "coverage in cells", "%", brief="coverage (cells)", digits=1), 91, "91.0", None),
        (Metric("r", "return", digits=1), -1234.56, "−1,234.6", "return −1,234.6"),
        (Metric("x/loss_of_all"), 0.000123456, "0.0001235", "loss of all 0.0001235"),
        (Metric("r", "return", missing="no episode has ended yet"), math.nan, "–", "no episode has ended yet"),
        (Metric("r", "return"), math.nan, "–", "return –"),
    ],
)
def test_a_value_is_shown_as_declared(metric: Metric, value: float, shown: str, progress: str | None) -> None:
    assert metric.text(metric.factor * value) == shown
    assert metric.progress(value) == (progress or "coverage 91.0 % (cells)")


def test_the_headline_is_the_highest_rank_unless_another_is_wanted() -> None:
    metrics = {m.name: m for m in (Metric("a"), Metric("b", rank=2), Metric("c", rank=5), Metric("d", rank=5))}
    assert headline(metrics) == "c"
    assert headline(metrics, "a") == "a"
    assert headline(metrics, "gone") == "c"
    assert headline({"a": metrics["a"]}) is None
    assert headline(metrics, preferred="d") == "d"
    assert headline(metrics, preferred="b") == "c", "a preference counts among equals"


def test_the_undeclared_come_last_under_their_names() -> None:
    found = described(["z", "model/own_term", "b"], [Metric("b", "B"), Metric("c")])
    assert [(m.name, m.title) for m in found.values()] == [("b", "B"), ("model/own_term", "own term"), ("z", "z")]


def reported(method: str, task: str, **settings: Any) -> Iterator[str]:
    """The names of everything that an iteration reports, by abstract evaluation."""
    plan = resolve(Experiment(task, method, seeds=1, steps=512, settings={**SMALL, **settings}))
    state = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, first_states(plan.setup, plan.seeds))
    _, report = eqx.filter_eval_shape(iterate, plan.setup, state)
    declared = {metric.name for metric in plan.metrics}
    return (name for name in report.metrics if name.partition("/")[0] not in MAPPED and name not in declared)


@pytest.mark.parametrize("method", METHODS)
def test_whatever_a_method_reports_is_declared(method: str) -> None:
    assert not list(reported(method, "mountain-car-frozen"))


def test_two_value_heads_and_a_task_that_compares_are_declared() -> None:
    settings = {"ppo.value_heads": "two", "loop.extrinsic_weight": 1.0}
    assert not list(reported("lbs", "mountain-car", **settings))


# --- what a run keeps of it -------------------------------------------------------------------------------


def test_a_run_keeps_what_its_metrics_are(result: curiax.RunResult) -> None:
    metrics = result.manifest["metrics"]
    assert set(metrics) == {n for n in result.metrics.columns if n not in KEYS and n.partition("/")[0] not in MAPPED}
    assert metrics["task/speed"] == {name: value for name, value in SPEED.as_json().items()}
    assert metrics["task/lowest"]["title"] == "lowest"
    assert metrics["model/error"]["title"] == "error of imitation"
    assert json.loads(json.dumps(metrics)) == metrics
    record = condense(result.manifest, result.metrics)
    assert record.metrics["task/speed"] == SPEED.within("task")
    assert list(record.metrics) == list(metrics), "in the order in which they are shown"


def test_what_a_task_measures_is_what_its_points_give() -> None:
    rng = np.random.default_rng(0)
    points = jnp.asarray(rng.normal(size=(5, 2, 2)), jnp.float32)
    empty = jnp.zeros((5, 2))
    step = curiax.Transition(empty, empty, empty, empty, empty > 0, empty > 0, empty == 0)
    found = Watched().measure(curiax.Rollout(step, empty, points))
    assert float(found["speed"]) == pytest.approx(float(np.abs(np.asarray(points)[..., 1]).mean()), rel=1e-6)


def test_a_wrapped_task_measures_what_it_did() -> None:
    plan = resolve(Experiment(Watched, "rnd", seeds=1, settings={"remote.mode": "frozen"}))
    assert "task/speed" in {metric.name for metric in plan.metrics}
    point = jnp.ones((2, 1, 2))
    empty = jnp.zeros((2, 1))
    step = curiax.Transition(empty, empty, empty, empty, empty > 0, empty > 0, empty == 0)
    assert set(plan.setup.task.measure(curiax.Rollout(step, empty, point))) == {"speed", "lowest"}


# --- what is shown ----------------------------------------------------------------------------------------


def test_a_declared_metric_stands_in_tables_figures_page_and_terminal(result: curiax.RunResult, tmp_path: Path) -> None:
    """Its rank is above coverage's, so it is the headline; nothing else was said about it anywhere."""
    assert result.headline == "task/speed"
    record = condense(result.manifest, result.metrics)
    made = publish([record], HEADING, tmp_path)
    final = record.in_the_end("task/speed")
    (row,) = [row for row in made.rows if row.metric == "task/speed"]
    assert row.values == pytest.approx(final, rel=1e-3)
    table = made.content.tables[0]
    assert table.header[:2] == ("", "mean speed")
    assert table.rows[0][1].text.startswith(f"{np.mean(row.values):.3f} [")
    assert "Mean speed (m/s), of each seed the mean over the last tenth" in table.note
    assert (made.content.curves[0].title, made.content.curves[0].unit) == ("Mean speed", "m/s")
    assert {path.stem for path in made.files} >= {"headline", "final"}
    others = {row[0].text: row[1].text for row in made.content.others[0].rows}
    assert {"error of imitation", "root", "loss of the policy", "entropy of the policy (nats)"} <= set(others)
    assert {curves.key for curves in made.content.other_curves} >= {"model/error", "model/root", "policy/entropy"}
    assert "error of imitation" in (tmp_path / "report.html").read_text()
    assert f"mean speed in the last tenth of training: {final.mean():.3f} m/s" in run_text(result, None)
    assert verify(tmp_path).differences == []


def test_a_mean_over_the_last_tenth_is_that_of_the_table(result: curiax.RunResult) -> None:
    """Of what scatters; of coverage it is the last value."""
    record = condense(result.manifest, result.metrics)
    frame = result.metrics.filter(pl.col("step") > 0.9 * pl.col("step").max())
    means = frame.group_by("seed").agg(pl.col("bonus/mean").mean()).sort("seed")["bonus/mean"].to_numpy()
    np.testing.assert_allclose(record.in_the_end("bonus/mean"), means, rtol=1e-5)
    last = result.metrics.filter(pl.col("step") == pl.col("step").max()).sort("seed")["coverage/cells"].to_numpy()
    assert record.in_the_end("coverage/cells").tolist() == last.tolist()


def test_shares_are_shown_in_per_cent(result: curiax.RunResult) -> None:
    record = condense(result.manifest, result.metrics)
    record = headlined([record], "policy/clip_fraction")[0]
    (row,) = [row for row in rows([record], "") if row.metric == "policy/clip_fraction"]
    assert row.mean == pytest.approx(100.0 * float(record.in_the_end("policy/clip_fraction").mean()))
    assert row.ci_low is not None
    assert row.ci_low >= 0.0


def test_missing_values_are_allowed_only_where_they_are_declared(result: curiax.RunResult, tmp_path: Path) -> None:
    record = condense(result.manifest, result.metrics)
    values = record.curves["bonus/mean"].copy()
    values[0, 0] = np.nan
    broken = replace(record, curves={**record.curves, "bonus/mean": values})
    save([broken], HEADING, tmp_path)
    with pytest.raises(curiax.OutputError, match="are not those of a run"):
        load(tmp_path)
    metrics = {**record.facts["metrics"], "bonus/mean": {"title": "bonus", "missing": "nothing yet", "rank": 1}}
    allowed = Record({**record.facts, "metrics": metrics}, record.steps, broken.curves, record.moments, record.maps)
    save([allowed], HEADING, tmp_path)
    assert np.isnan(load(tmp_path)[0].curves["bonus/mean"][0, 0])


# --- which is shown first ---------------------------------------------------------------------------------


def test_the_headline_changes_no_run(tmp_path: Path) -> None:
    """Another one is another look at the same run, which is not trained again."""
    experiment = Experiment("mountain-car", "random", seeds=2, steps=256, settings=SMALL)
    first = run(experiment, tmp_path / "run", options=RunOptions(headline="coverage/bins"))
    again = run(experiment, tmp_path / "run")
    assert again.reused
    assert (first.headline, again.headline) == ("coverage/bins", "coverage/cells")
    assert first.plan.run_id == again.plan.run_id
    assert again.final() == again.final("coverage/cells")
    kept = folder.read_manifest(tmp_path / "run")
    assert kept is not None
    assert kept["headline"] == "coverage/bins"


@pytest.mark.parametrize("preset", ["paper-text", "clean"])
def test_a_preset_may_prefer_honest_bins(preset: str) -> None:
    plan = resolve(Experiment("mountain-car", "lbs", preset=preset))
    names = [metric.name for metric in plan.metrics]
    assert plan.headline(names) == "coverage/bins"
    assert plan.headline(names, "policy/entropy") == "policy/entropy"
    assert resolve(Experiment("mountain-car", "lbs")).headline(names) == "coverage/cells"


def test_an_unknown_headline_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    experiment = Experiment("mountain-car", "random", seeds=1, steps=256, settings=SMALL)
    with pytest.raises(UsageError, match=r"unknown metric 'coverage/bin'.*coverage/bins"):
        run(experiment, tmp_path / "run", options=RunOptions(headline="coverage/bin"))
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match=r"headline = 3: must be the name"):
        RunOptions(headline=3)  # pyright: ignore[reportArgumentType]


def test_the_setting_of_earlier_versions_says_what_to_do_instead() -> None:
    with pytest.raises(UsageError, match=r"loop.coverage: .*--headline coverage/cells"):
        resolve(Experiment("mountain-car", "lbs", settings={"loop.coverage": "bins"}))


def test_report_shows_another_metric_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = Experiment("mountain-car", "rnd", seeds=2, steps=256, settings=SMALL)
    run(experiment, tmp_path / "run")
    out = tmp_path / "report"
    assert main(["report", str(tmp_path / "run"), "--out", str(out), "--headline", "bonus/max"]) == 0
    page = (out / "README.md").read_text()
    assert "largest raw bonus" in page
    assert "## What else was measured: Mountain Car" in page
    assert "entropy of the policy" in page, "everything that is declared has its row"
    assert f"Made by `curiax report {tmp_path / 'run'} --headline bonus/max`" in page
    assert "| --headline |" not in (out / "report.html").read_text(), "it is no coverage"
    assert verify(out).differences == []
    again = tmp_path / "again"
    assert main(["report", str(out), "--out", str(again)]) == 0, "made again, it is what it was"
    assert (again / "table.json").read_text() == (out / "table.json").read_text()
    assert main(["report", str(out), "--out", str(again), "--headline", "bonus/mox"]) == 2
    assert "unknown metric 'bonus/mox'" in capsys.readouterr().err


def test_the_tasks_reward_headlines_where_it_weighs_in_and_nothing_is_counted() -> None:
    """Return and length, in the report too."""
    result = run(Experiment(NoisyArm, "none", seeds=2, steps=512, settings=SMALL))
    assert result.headline == "reward/episode_return"
    record = condense(result.manifest, result.metrics)
    names = [row.metric for row in rows([record], "")]
    assert set(names) <= {"reward/episode_return", "reward/episode_length"}
    assert measured(result.metrics.columns, result.plan.metrics)["reward/episode_return"].better == "higher"


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        (["speed"], "must be a tuple of curiax.Metric"),
        ((Metric("a"), Metric("a")), "declares the metric 'a' twice"),
        ((Metric("model/a"),), "leave its group out, as 'a'"),
    ],
)
def test_a_wrong_declaration_is_refused(metrics: Any, why: str) -> None:
    method = type("Wrong", (RND,), {"metrics": metrics})
    task = type("WrongCar", (MountainCar,), {"metrics": metrics})()
    spec = task.spec
    with pytest.raises(ContractError, match=why):
        check_method_shapes(method(spec, key=jax.random.key(0)), spec, "Wrong")
    with pytest.raises(ContractError, match=why):
        check_task_shapes(task, "WrongCar")


def test_a_measure_that_is_no_number_is_refused() -> None:
    class Wrong(MountainCar):
        def measure(self, rollout: curiax.Rollout) -> dict[str, jax.Array]:
            return {"all": rollout.points}

    with pytest.raises(ContractError, match=r"the metric 'all' of Wrong.measure\(\) must be float32\[\]"):
        check_task_shapes(Wrong(), "Wrong")
