"""Where the task's reward weighs in: its defaults, its scale, the returns of episodes, two value heads."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kept import untrained
from small import SMALL

import curiax
from curiax import Experiment, Transition, UsageError
from curiax._stats import ReturnScale
from curiax.agents.task_reward import LENGTH, RETURN, Episodes, TaskReward
from curiax.cli._result import run_summary, run_text
from curiax.experiments import saved
from curiax.experiments.presets import FOR_TASK_REWARD, PRESETS
from curiax.experiments.spec import GROUPS, resolve
from curiax.experiments.training import Training
from curiax.testing import ProbeTask
from curiax.train.batch import first_states
from curiax.train.loop import collect, learn

BY_CLASS = {"ppo.episode_ends": "ignore", "ppo.clip_value": True, "loop.normalise_reward": False}


def chosen(method: str, preset: str = "paper-code", **named: Any) -> dict[str, Any]:
    """The settings that depend on the weight of the task's reward."""
    changes = {name.replace("__", "."): value for name, value in named.items()}
    settings = resolve(Experiment("mountain-car", method, preset=preset, settings=changes)).settings
    return {name: settings[name] for name in FOR_TASK_REWARD}


# --- defaults ---------------------------------------------------------------------------------------------


def test_a_bonus_alone_is_trained_as_the_preset_says() -> None:
    assert chosen("lbs") == BY_CLASS
    assert chosen("lbs", "clean") == {**BY_CLASS, "ppo.episode_ends": "bootstrap"}
    assert chosen("none", loop__extrinsic_weight=0.0, loop__intrinsic_weight=1.0) == BY_CLASS


@pytest.mark.parametrize("preset", [name for name, preset in PRESETS.items() if not preset.above])
def test_where_the_tasks_reward_weighs_in_it_has_defaults_of_its_own(preset: str) -> None:
    assert chosen("none", preset) == FOR_TASK_REWARD
    assert chosen("lbs", preset, loop__extrinsic_weight=-0.1) == FOR_TASK_REWARD
    assert {name: value for name, value in FOR_TASK_REWARD.items() if BY_CLASS[name] == value} == {}


def test_what_is_said_holds_against_these_defaults() -> None:
    named = {name.replace(".", "__"): value for name, value in BY_CLASS.items()}
    assert chosen("none", **named) == BY_CLASS
    assert chosen("none", ppo__episode_ends="terminate") == {**FOR_TASK_REWARD, "ppo.episode_ends": "terminate"}


def test_games_take_these_defaults_and_keep_their_own() -> None:
    """Games are trained on the bonus alone unless a score is asked for."""
    pytest.importorskip("ale_py")
    quiet = resolve(Experiment("atari:breakout", "lbs")).settings
    assert (quiet["loop.extrinsic_weight"], quiet["ppo.episode_ends"]) == (0.0, "ignore")
    scored = resolve(Experiment("atari:breakout", "lbs", settings={"loop.extrinsic_weight": 1.0})).settings
    assert scored == {**quiet, **FOR_TASK_REWARD, "loop.extrinsic_weight": 1.0}


def test_a_run_from_before_these_defaults_is_read_with_what_was_done_then(tmp_path: Path) -> None:
    path = untrained(tmp_path / "run", "mountain-car", "none", settings={"ppo.width": 8})
    plan = saved.read(path)[0]
    new = {f"{group}.{name}" for group, names in NEW.items() for name in names}
    before = {name: value for name, value in plan.settings.items() if name not in new} | {"ppo.episode_ends": "ignore"}
    old = saved.with_its_defaults(plan.experiment, before, False)
    assert {name: old.settings[name] for name in BY_CLASS} == BY_CLASS
    assert plan.settings == saved.with_its_defaults(plan.experiment, plan.settings, False).settings


#: Settings that came with these defaults.
NEW = {
    "ppo": ("clip_value", "value_heads", "bonus_discount", "bonus_ends"),
    "loop": ("normalise_reward", "reward_discount", "reward_clip"),
}


def test_settings_that_are_new_are_off_by_themselves() -> None:
    """So that what was there before them is what it was."""
    ppo, loop = GROUPS["ppo"](), GROUPS["loop"]()
    assert (ppo.clip_value, ppo.value_heads, loop.normalise_reward) == (True, "one", False)


# --- what is carried --------------------------------------------------------------------------------------


def test_returns_of_episodes_are_plain_sums() -> None:
    """Over three rollouts, in the second of which nothing ends; what is not valid earns nothing and takes no time."""
    rng = np.random.default_rng(0)
    reward, ended, valid = rng.normal(size=(30, 2)), rng.random((30, 2)) < 0.2, rng.random((30, 2)) < 0.9
    ended[10:20] = False
    ended[:10].flat[3] = True
    episodes, running = Episodes.start(2), np.zeros((2, 2))
    assert all(np.isnan(value) for value in episodes.metrics.values())
    recent, add = None, jax.jit(Episodes.add)
    for rows in np.split(np.arange(30), 3):
        over = []
        for t in rows:
            for n in range(2):
                running[n] += np.asarray([reward[t, n], 1.0]) * valid[t, n]
                if ended[t, n]:
                    over.append(running[n].copy())
                    running[n] = 0.0
        recent = np.mean(over, axis=0) if over else recent
        lead, no = (10, 2), np.zeros((10, 2), bool)
        columns = (np.zeros((*lead, 1), np.float32), np.zeros(lead, np.int32), np.zeros((*lead, 1), np.float32))
        step = Transition(*map(jnp.asarray, (*columns, reward[rows].astype(np.float32), ended[rows], no, valid[rows])))
        episodes = add(episodes, step)
        np.testing.assert_allclose([episodes.metrics[name] for name in (RETURN, LENGTH)], recent, rtol=1e-5)
    assert episodes.count == ended.sum()


def one_update(**changes: Any) -> tuple[Any, Any, Any, Any]:
    """State, rollout, what the policy was given, and metrics of the first update of CartPole-like episodes."""
    settings = {**SMALL, "loop.envs": 2, "task.kind": "endless", **changes}
    plan = resolve(Experiment(ProbeTask, "rnd", seeds=1, steps=1024, settings=settings))
    given: list[Any] = []

    agent: Any = plan.setup.agent

    class Spy(type(agent.policy)):  # pyright: ignore
        """Notes what it is given."""

        def learn(self, spec: Any, state: Any, rollout: Any, rewards: Any, *, key: Any) -> Any:
            given.append(rewards)
            return super().learn(spec, state, rollout, rewards, key=key)

    setup = dataclasses.replace(plan.setup, agent=dataclasses.replace(agent, policy=Spy(agent.policy.settings)))
    stacked = first_states(setup, [0])
    state = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, stacked)
    rollout = collect(setup, state)[1]
    rollout = eqx.tree_at(lambda r: r.step.reward, rollout, jnp.cumsum(rollout.step.reward, axis=0))
    after, report, _ = learn(setup, state, rollout)
    return after.agent, rollout, given[0], report.metrics


def test_the_policy_learns_from_the_scaled_reward_and_the_bonus() -> None:
    after, rollout, rewards, metrics = one_update(**{"loop.extrinsic_weight": 2.0, "loop.reward_clip": 3.0})
    step = rollout.step
    scale, paid = ReturnScale.start(2).scale_steps(step.reward, step.ended, discount=0.99, clip=3.0)
    np.testing.assert_allclose(rewards.task, paid, rtol=1e-5)
    np.testing.assert_allclose(rewards.total, 2.0 * paid + rewards.bonus, rtol=1e-5)
    assert (np.asarray(paid) == 3.0).any()
    np.testing.assert_allclose(metrics["reward/scale"], scale.deviation, rtol=1e-5)
    np.testing.assert_allclose(after.task_reward.scale.total, scale.total, rtol=1e-5)
    # Five steps each; the reward is told as the task gives it, not as it is paid.
    assert metrics[LENGTH] == 5.0
    whole = np.asarray(step.reward)[: 128 // 5 * 5].reshape(-1, 5, 2).sum(1).mean()
    np.testing.assert_allclose(metrics[RETURN], whole, rtol=1e-5)


def test_a_reward_without_weight_is_not_looked_at() -> None:
    after, rollout, rewards, metrics = one_update()
    assert after.task_reward is None
    np.testing.assert_array_equal(rewards.task, rollout.step.reward)
    np.testing.assert_array_equal(rewards.total, rewards.bonus)
    assert not {RETURN, LENGTH, "reward/scale"} & set(metrics)


def test_a_reward_is_paid_as_it_is_if_so_asked() -> None:
    after, rollout, rewards, metrics = one_update(
        **{"loop.extrinsic_weight": 2.0, "loop.normalise_reward": False, "loop.intrinsic_weight": 0.0}
    )
    assert isinstance(after.task_reward, TaskReward)
    assert after.task_reward.scale is None
    np.testing.assert_allclose(rewards.total, 2.0 * rollout.step.reward, rtol=1e-6)
    assert RETURN in metrics


# --- whole runs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "envs"), [("mountain-car", 2), ("gymnasium:CartPole-v1", 1)])
def test_a_run_goes_on_to_the_same_bits(task: str, envs: int) -> None:
    """From a snapshot in its middle: scale, running returns and both value heads are in it."""
    settings = {**SMALL, "loop.envs": envs, "loop.extrinsic_weight": 0.5, "ppo.value_heads": "two"}
    plan = resolve(Experiment(task, "rnd", seeds=(0, 3), steps=4 * 128 * envs, settings=settings))
    whole = Training(plan, 1)
    whole.ask()
    parts = list(whole)
    end, kept = whole.snapshot().arrays, parts[0].snapshot
    whole.close()
    assert kept is not None
    assert any(name.endswith("task_reward.scale.moments.var") for name in kept.arrays)
    again = Training(plan, 1)
    again.resume(again.settled(kept))
    rest = [part.report.metrics for part in again]
    assert len(rest) == 3
    for ours, theirs in zip(rest, [part.report.metrics for part in parts[1:]], strict=True):
        for name in theirs:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    found = again.snapshot().arrays
    again.close()
    assert found.keys() == end.keys()
    for name in end:
        np.testing.assert_array_equal(found[name], end[name], err_msg=name)


def test_returns_are_told_where_no_cells_are_counted(tmp_path: Path) -> None:
    settings = {**SMALL, "task.kind": "endless"}
    result = curiax.run(Experiment(ProbeTask, "none", seeds=3, steps=256, settings=settings), tmp_path / "run")
    assert result.final() == {0: 5.0, 1: 5.0, 2: 5.0}
    final = run_summary(result)["final"]
    assert final[RETURN] == {"mean": 5.0, "interval": (5.0, 5.0), "values": [5.0, 5.0, 5.0]}
    assert final[LENGTH]["values"] == [5.0, 5.0, 5.0]
    text = run_text(result, None)
    assert "return of episodes in the last tenth of training: 5.0  95 % interval [5.0, 5.0]" in text
    assert "length of episodes in the last tenth of training: 5 steps" in text


@pytest.mark.parametrize("weight", ["extrinsic", "intrinsic"])
def test_two_value_heads_are_refused_where_one_reward_counts_for_nothing(weight: str) -> None:
    other = {"extrinsic": "loop.intrinsic_weight", "intrinsic": "loop.extrinsic_weight"}[weight]
    settings = {"ppo.value_heads": "two", f"loop.{weight}_weight": 0.0, other: 1.0}
    with pytest.raises(UsageError, match=f"but loop.{weight}_weight = 0"):
        resolve(Experiment("mountain-car", "rnd", settings=settings))


@pytest.mark.parametrize("task", ["gymnasium:CartPole-v1", "mountain-car"])
def test_agents_with_two_value_heads_are_kept_and_act(task: str, tmp_path: Path) -> None:
    path = untrained(
        tmp_path / "run",
        task,
        "rnd",
        settings={"ppo.value_heads": "two", "ppo.width": 16, "loop.extrinsic_weight": 0.5},
    )
    policy, agent = saved.read(path)[1].one(3).networks.agent, curiax.load(path)
    obs = np.random.default_rng(0).normal(size=(50, *agent.spec.obs_shape)).astype(np.float32)
    assert policy.values(jnp.asarray(obs[0])).shape == (2,)
    # Statistics that have seen nothing leave observations as they are.
    likely = jax.vmap(lambda x: policy.distribution(x))(jnp.asarray(obs))
    if task == "mountain-car":
        np.testing.assert_allclose(agent.act(obs), np.clip(likely.mean, -1, 1), rtol=0, atol=1e-5)
    else:
        np.testing.assert_array_equal(agent.act(obs), np.argmax(likely.logits, axis=-1))
