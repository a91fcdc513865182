"""The seam: agents of other kinds than the library's own train on every family of tasks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from small import SMALL
from stopped import EVERY_BORDER, At, crash, wait_for_saves
from toys import Counter, Regression

import curiax
from curiax import Experiment, UsageError
from curiax.agents import AbstractAgent, Uniform
from curiax.cli import main
from curiax.curiosity import RND
from curiax.experiments import saved
from curiax.experiments.spec import Plan, resolve
from curiax.experiments.training import Training
from curiax.report.record import condense
from curiax.watch import watch

#: Each family of tasks: in JAX, a simulator, emulators.
GAME = {
    "task.side": 36,
    "task.random_steps": 48,
    "task.horizon": 5,
    "loop.envs": 4,
    "loop.rollout": 8,
    "ppo.minibatch_size": 16,
    "learner.minibatch_size": 16,
}
FAMILIES = {
    "mountain-car": ({**SMALL, "loop.envs": 2}, 100),
    "half-cheetah": ({**SMALL, "loop.envs": 2, "task.horizon": 50}, 50),
    "atari:breakout": (GAME, 5),
}


def plan_with(agent: type[AbstractAgent], task: str, iterations: int) -> Plan:
    """A plan of a task whose agent is another one."""
    return resolve(experiment(agent, task, iterations))


def experiment(agent: type[AbstractAgent], task: str, iterations: int, **changes: Any) -> Experiment:
    """One seed of an agent on a task, without a method."""
    settings = {k: v for k, v in FAMILIES[task][0].items() if k.startswith(("loop.", "task."))} | changes
    steps = iterations * settings["loop.envs"] * settings["loop.rollout"]
    return Experiment(task, "none", seeds=(3,), steps=steps, settings=settings, agent=agent)


def trained(plan: Plan, ask_at: int | None = None) -> tuple[list[Any], Any, Any]:
    """Reports, the snapshot after an iteration, and the one at the end."""
    training = Training(plan, 1)
    reports, kept = [], None
    try:
        if ask_at == 0:
            training.ask()
        for iteration in training:
            reports.append(iteration.report)
            kept = kept or iteration.snapshot
            if len(reports) == ask_at:
                training.ask()
        return reports, kept, training.snapshot()
    finally:
        training.close()


@pytest.mark.parametrize("task", FAMILIES)
def test_an_agent_with_a_memory_acts_on_every_family(task: str) -> None:
    """It acts by its memory alone; going through each rollout again from the memories it began with finds the same
    actions, across rollouts and episodes."""
    horizon = FAMILIES[task][1]
    reports, _, _ = trained(plan_with(Counter, task, 3))
    for report in reports:
        np.testing.assert_array_equal(report.places, -1)
        assert "bonus/mean" not in report.metrics
    longest = max(report.metrics["policy/longest"].max() for report in reports)
    assert longest == horizon - 1


@pytest.mark.parametrize("task", FAMILIES)
def test_a_memory_goes_on_from_a_checkpoint(task: str) -> None:
    plan = plan_with(Counter, task, 4)
    reports, kept, end = trained(plan, ask_at=0)
    assert kept is not None
    assert any("carry" in name for name in kept.arrays)
    again = Training(plan, 1)
    again.resume(again.settled(kept))
    rest = [iteration.report for iteration in again]
    for ours, theirs in zip(rest, reports[kept.iteration :], strict=True):
        for name, value in theirs.metrics.items():
            np.testing.assert_array_equal(ours.metrics[name], value, err_msg=name)
    for name, array in again.snapshot().arrays.items():
        np.testing.assert_array_equal(array, end.arrays[name], err_msg=name)
    again.close()


@pytest.mark.parametrize("task", ["mountain-car", "half-cheetah"])
def test_an_agent_with_a_replay_does_the_work_it_leaves(task: str) -> None:
    """Three rollouts are remembered, and there are gradient steps after each."""
    plan = plan_with(Regression, task, 4)
    reports, _, end = trained(plan)
    size = 128 * 2
    assert [report.metrics["model/remembered"].item() for report in reports] == [size, 2 * size, 3 * size, 3 * size]
    arrays = {name.split("agent.")[-1]: array for name, array in end.arrays.items() if ".agent." in f".{name}"}
    assert arrays["filled"].item() == 4
    assert np.isfinite(arrays["weights"]).all()
    assert (arrays["weights"] != 0).any()


def test_deferred_gradient_steps_are_the_same_steps() -> None:
    """One by one as a lane of emulators does them, and all at once."""
    spec = curiax.Spec((3,), curiax.Discrete(2))
    agent: Any = Regression(spec)
    rng = np.random.default_rng(0)
    obs, reward = rng.normal(size=(8, 2, 3)).astype(np.float32), rng.normal(size=(8, 2)).astype(np.float32)
    no = jnp.zeros((8, 2), bool)
    step = curiax.Transition(
        jnp.asarray(obs), jnp.zeros((8, 2), int), jnp.asarray(obs), jnp.asarray(reward), no, no, ~no
    )
    rollout = curiax.Rollout(step, step.obs, jnp.zeros((8, 2, 0)))
    state, _, work = agent.learn(
        agent.start(agent.build(key=jax.random.key(0)), (8, 2)), rollout, key=jax.random.key(1)
    )
    assert work.count == 5
    whole, report, _ = agent.work(state, work)
    one, losses = state, []
    for k in range(work.count):
        one, metrics, _ = agent.work(one, work.at(jnp.asarray(k)))
        losses.append(float(metrics["model/loss"]))
    np.testing.assert_allclose(one.weights, whole.weights, rtol=1e-5)
    assert float(report["model/loss"]) == pytest.approx(np.mean(losses), rel=1e-5)

    # Adam by hand, in float64, on the same batches.
    weights, m, v = np.zeros(3), np.zeros(3), np.zeros(3)
    for k, x in enumerate(np.float64(work.steps)):
        y = x.sum(-1)
        gradient = 2 * x.T @ (x @ weights - y) / len(y)
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        weights -= 0.01 * (m / (1 - 0.9 ** (k + 1))) / (np.sqrt(v / (1 - 0.999 ** (k + 1))) + 1e-8)
    np.testing.assert_allclose(whole.weights, weights, rtol=1e-4)


def test_emulators_refuse_an_agent_that_keeps_observations() -> None:
    with pytest.raises(
        curiax.UsageError, match="keeps observations beyond their rollout, and frames of emulators are kept no longer"
    ):
        Training(plan_with(Regression, "atari:breakout", 1), 1)


def test_behaviours_have_names() -> None:
    agent: Any = Counter(curiax.Spec((3,), curiax.Discrete(4)))
    now = jnp.asarray(6), jnp.zeros(3), jnp.asarray(False), jnp.zeros(1)
    assert agent.behaviours[0] == "explore"
    assert int(agent.act(None, *now)[1]) == 2
    assert int(agent.act(None, *now, behaviour="still")[1]) == 0
    curious: Any = resolve(curiax.Experiment("mountain-car", "lbs", seeds=1)).setup.agent
    networks = curious.build(key=jax.random.key(0))
    given = curious.actor(networks), (), jnp.ones(2), jnp.asarray(False), jnp.ones(1)
    likely = networks.agent.distribution(jnp.ones(2))
    assert curious.act(*given, behaviour="greedy")[1] == likely.mean
    assert curious.act(*given)[1] == pytest.approx(float(likely.mean[0] + likely.std[0]), rel=1e-6)


# --- agents that no bonus is paid to ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["random", "none"])
def test_without_a_method_there_is_no_bonus_anywhere(name: str, tmp_path: Path) -> None:
    """Not in the state, the metrics, the record, or what is kept of the run."""
    result = curiax.run(Experiment("mountain-car", name, seeds=2, steps=512, settings=SMALL), tmp_path / "run")
    assert result.plan.build_method is None
    assert not [metric for metric in result.metrics.columns if metric.startswith(("bonus/", "paid/", "model/"))]
    assert not [metric.name for metric in result.plan.metrics if metric.name.startswith("model/")]
    record = condense(result.manifest, result.metrics)
    assert "occupancy/bins" in record.maps
    trained = curiax.load(tmp_path / "run")
    obs = np.zeros(2, np.float32)
    assert trained.act(obs).shape == (1,)
    with pytest.raises(curiax.UsageError, match=f"'{name}' pays no bonus"):
        trained.bonus(obs, np.zeros(1, np.float32), obs)
    with pytest.raises(curiax.UsageError, match=f"'{name}' pays no bonus: .*curiax list"):
        curiax.Bonus(name, gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2), num_envs=1)
    with pytest.raises(curiax.UsageError, match=f"method.beta: '{name}' is no method"):
        resolve(Experiment("mountain-car", name, settings={"method.beta": 1.0}))


def test_a_random_agent_draws_uniformly_and_never_learns() -> None:
    plan = resolve(Experiment("mountain-car", "random", seeds=1))
    agent = plan.setup.agent
    key = jax.random.key(0)
    noise = agent.noise((4000,), key=key)
    networks = agent.build(key=key)
    drawn = jax.vmap(lambda n: agent.act(agent.actor(networks), (), jnp.zeros(2), jnp.asarray(True), n)[1])(noise)
    low, high = np.asarray(plan.setup.task.spec.action.low), np.asarray(plan.setup.task.spec.action.high)
    assert scipy.stats.kstest((np.asarray(drawn)[:, 0] - low) / (high - low), "uniform").pvalue > 1e-3
    assert jax.tree.leaves(networks) == []


# --- by name ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", [Counter, Regression])
def test_an_agent_of_the_users_is_trained_kept_continued_and_read_again(
    agent: type[AbstractAgent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wait_for_saves(monkeypatch)
    what = experiment(agent, "mountain-car", 8)
    whole = curiax.run(what, tmp_path / "whole")
    with pytest.raises(MemoryError):
        curiax.run(what, tmp_path / "run", progress=At(5, crash), options=EVERY_BORDER)
    again = curiax.run(what, tmp_path / "run")
    assert again.manifest["continued"]
    assert again.manifest["digest"] == whole.manifest["digest"]
    assert curiax.run(what, tmp_path / "run").reused
    plan, learnt = saved.read(tmp_path / "run", trust=True)
    assert type(plan.setup.agent) is agent
    np.testing.assert_array_equal(
        learnt.one(3).networks.weights, saved.read(tmp_path / "whole", trust=True)[1].networks.weights[0]
    )
    with pytest.raises(UsageError, match="which is not Curiax's"):
        saved.read(tmp_path / "run")
    with pytest.raises(UsageError, match=rf"the agent 'toys:{agent.__name__}', whose policy only that class knows"):
        curiax.load(tmp_path / "run").act(np.zeros(2))
    film = watch(tmp_path / "run", out=tmp_path / "film.gif", steps=5, trust=True)
    assert film.path.exists()
    assert condense(again.manifest, again.metrics).label == f"{agent.__name__}, envs 2, rollout 128"


def test_agents_are_part_of_who_a_run_is() -> None:
    by_class = experiment(Counter, "mountain-car", 4)
    others = [replace(by_class, agent=agent, settings={}, steps=None) for agent in ("ppo", "")]
    plans = [resolve(each) for each in (by_class, *others)]
    assert len({plan.run_id for plan in plans}) == 3
    assert plans[0].identity["agent"] == "toys:Counter"
    assert "agent" not in plans[2].identity
    assert not [name for name in plans[0].settings if name.startswith(("ppo.", "learner."))]
    named = Experiment.from_json(by_class.as_json())
    assert resolve(named).run_id == plans[0].run_id


def test_a_method_may_be_trained_on_random_actions() -> None:
    plan = resolve(Experiment("mountain-car", "lbs", seeds=1, agent="uniform"))
    agent: Any = plan.setup.agent
    assert isinstance(agent.policy, Uniform)
    assert agent.build_method is not None
    assert plan.pays


class WithMethod(Counter):
    """Takes what draws a method's networks."""

    build_method: Any = eqx.field(static=True, default=None)


def test_an_agent_that_takes_a_method_gets_it() -> None:
    plan = resolve(Experiment("mountain-car", "rnd", seeds=1, agent=WithMethod))
    agent: Any = plan.setup.agent
    assert isinstance(agent.build_method(jax.random.key(0)), RND)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"agent": "pppo"}, "unknown agent 'pppo'"),
        ({"agent": "uniform"}, "'none' stands for the agent 'ppo' without a method"),
        ({"agent": "ppo", "method": "random"}, "'random' stands for the agent 'uniform' without a method"),
        ({"agent": "toys:Weights"}, "not a subclass of curiax.agents.AbstractAgent"),
        ({"agent": Counter, "method": "lbs"}, "takes no method: train it with --method none"),
        (
            {"agent": Counter, "settings": {"ppo.clip": 0.1}},
            "ppo.clip: the agent 'toys:Counter' has settings of its own",
        ),
        ({"agent": Regression, "settings": {"agent.stepps": 3}}, "unknown setting of agent 'stepps'"),
        ({"agent": "", "settings": {"agent.steps": 3}}, "agent.steps: only an agent of your own"),
    ],
)
def test_agents_that_cannot_be_are_refused(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        resolve(Experiment(**{"task": "mountain-car", "method": "none", "seeds": 1, **changes}))


def test_settings_of_an_agent_reach_it() -> None:
    plan = resolve(Experiment("mountain-car", "none", seeds=1, agent=Regression, settings={"agent.steps": 7}))
    agent: Any = plan.setup.agent
    assert agent.steps == 7
    assert plan.settings["agent.steps"] == 7
    assert plan.settings["agent.rollouts"] == 3


class Bare(Counter):
    """Its networks are no module."""

    def build(self, *, key: Any) -> Any:
        return jax.random.uniform(key, (3,))


def test_networks_that_could_not_be_kept_are_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(curiax.ContractError, match=r"'test_agents:Bare': build returns .*must be an equinox.Module"):
        curiax.run(experiment(Bare, "mountain-car", 2), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_agent_by_name_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("from toys import Regression as Mine\n")
    line = "run mountain-car --method none --agent mine:Mine --agent.steps 2 --seeds 1 --steps 256 --loop.rollout 128"
    assert main([*line.split(), "--out", "run", "--quiet"]) == 0
    manifest = json.loads(Path("run/manifest.json").read_text())
    assert manifest["experiment"]["agent"] == "mine:Mine"
    assert manifest["identity"]["settings"]["agent.steps"] == 2
    assert main(["report", "run", "--out", "made"]) == 0
    assert "1 run: Regression, steps 2, rollout 128." in Path("made/README.md").read_text()
    assert main(["verify", "made", "run"]) == 0
