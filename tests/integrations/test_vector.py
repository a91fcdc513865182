"""The wrapper of vector environments: which transitions it shows to the bonus, in every way of beginning episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from curiax import Bonus, CuriousVectorEnv, LearnerSettings, UsageError

N = 2
SEEN = spaces.Box(-np.inf, np.inf, (3,))


class Clock(gymnasium.Env[np.ndarray, Any]):
    """Shows which environment, episode and time it is; episodes of environment k end after k + 2 steps."""

    observation_space = SEEN
    action_space = spaces.Discrete(3)

    def __init__(self, number: int) -> None:
        self.number, self.episode, self.time, self.stepped = number, -1, 0, 0

    def _seen(self) -> np.ndarray:
        return np.array([self.number, self.episode, self.time], np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self.episode, self.time = self.episode + 1, 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.time, self.stepped = self.time + 1, self.stepped + 1
        over = self.time == self.number + 2
        return self._seen(), float(action), over and self.number == 0, over and self.number == 1, {}


class Noted(Bonus):
    """A bonus that notes what it is asked."""

    def __init__(self, method: str = "rnd", **options: Any) -> None:
        learner = LearnerSettings(epochs=1, minibatch_size=4)
        super().__init__(method, SEEN, Clock.action_space, num_envs=N, learner=learner, **options)
        self.asked: list[dict[str, np.ndarray]] = []

    def reward(self, obs: Any, action: Any, next_obs: Any, terminated: Any, truncated: Any, **rest: Any) -> np.ndarray:
        parts = {"obs": obs, "action": action, "next_obs": next_obs, "terminated": terminated, "truncated": truncated}
        parts["valid"] = rest.get("valid", np.ones(N, bool))
        self.asked.append({name: np.array(part) for name, part in parts.items()})
        return super().reward(obs, action, next_obs, terminated, truncated, **rest)


def wrapped(mode: AutoresetMode, **options: Any) -> CuriousVectorEnv:
    envs = SyncVectorEnv([lambda k=k: Clock(k) for k in range(N)], autoreset_mode=mode)
    return CuriousVectorEnv(envs, Noted(), **options)


def true_transitions(count: int) -> dict[int, list[tuple[tuple[int, int], tuple[int, int], bool]]]:
    """By hand: (episode, time) before and after each step, and whether it ended the episode."""
    transitions: dict[int, list[Any]] = {}
    for k in range(N):
        transitions[k] = []
        for step in range(count):
            episode, time = divmod(step, k + 2)
            transitions[k].append(((episode, time), (episode, time + 1), time + 1 == k + 2))
    return transitions


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_true_successors_in_every_mode(mode: AutoresetMode) -> None:
    """The bonus sees each step that was carried out, with what it led to, and no other."""
    envs = wrapped(mode, weight=0.5)
    envs.reset(seed=0)
    for _ in range(12):
        actions = np.array([1, 2])
        _, reward, terminated, truncated, infos = envs.step(actions)
        np.testing.assert_allclose(reward, infos["extrinsic_reward"] + 0.5 * infos["intrinsic_reward"], rtol=1e-6)
        ended = terminated | truncated
        if mode is AutoresetMode.DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended})
    asked = envs.bonus.asked
    for k in range(N):
        mine = [a for a in asked if a["valid"][k]]
        wanted = true_transitions(len(mine))[k]
        assert len(mine) >= 8
        for (before, after, over), a in zip(wanted, mine, strict=True):
            assert tuple(a["obs"][k][1:]) == before
            assert tuple(a["next_obs"][k][1:]) == after
            assert bool(a["terminated"][k] | a["truncated"][k]) == over
            assert bool(a["truncated"][k]) == (over and k == 1)
    # The extra step of next-step mode earns nothing, and nobody's environment is stepped for the bonus.
    stepped = [env.unwrapped.stepped for env in envs.unwrapped.envs]
    assert stepped == [sum(a["valid"][k] for a in asked) for k in range(N)]
    assert envs.bonus.seen == 12 * N


def test_replaces_the_reward_and_trains_by_itself() -> None:
    envs = wrapped(AutoresetMode.NEXT_STEP, weight=2.0, extrinsic_weight=0.0, update_every=4)
    envs.reset()
    for _ in range(8):
        _, reward, _, _, infos = envs.step(np.array([1, 2]))
        np.testing.assert_allclose(reward, 2.0 * infos["intrinsic_reward"], rtol=1e-6)
        assert infos["_intrinsic_reward"].all()
    assert envs.bonus.updates == 2
    assert envs.bonus.seen == 0


def test_reset_breaks_episodes_off() -> None:
    envs = SyncVectorEnv([lambda k=k: Clock(k) for k in range(N)], autoreset_mode=AutoresetMode.DISABLED)
    envs = CuriousVectorEnv(envs, Noted("ride", horizon=4))
    envs.reset()
    envs.step(np.array([0, 0]))
    assert envs.bonus.state.learner.memory.written.tolist() == [1, 1]
    envs.reset(options={"reset_mask": np.array([True, False])})
    assert envs.bonus.state.learner.memory.written.tolist() == [0, 1]
    envs.reset()
    assert envs.bonus.state.learner.memory.written.tolist() == [0, 0]


def test_saved_beside_the_agent(tmp_path: Path) -> None:
    one, other = wrapped(AutoresetMode.SAME_STEP, update_every=4), wrapped(AutoresetMode.SAME_STEP)
    one.reset()
    for _ in range(6):
        one.step(np.array([0, 1]))
    one.save(tmp_path / "bonus")
    other.restore(tmp_path / "bonus")
    with pytest.raises(UsageError, match=r"step: call reset\(\) first"):
        other.step(np.array([0, 1]))
    (a, _), (b, _) = one.reset(), other.reset()
    assert a[0, 1] != b[0, 1]  # the environments themselves are not the bonus's to keep
    question = (np.zeros((N, 3)), np.zeros(N), np.ones((N, 3)), np.zeros(N, bool), np.zeros(N, bool))
    assert np.array_equal(one.bonus.reward(*question), other.bonus.reward(*question))


def test_the_phase_of_updates_is_saved(tmp_path: Path) -> None:
    """Saved after 3 of 4 steps, the next one trains."""
    one, other = (wrapped(AutoresetMode.SAME_STEP, update_every=4) for _ in range(2))
    one.reset()
    for _ in range(3):
        one.step(np.array([0, 1]))
    one.save(tmp_path / "bonus")
    other.reset()
    other.restore(tmp_path / "bonus")
    other.step(np.array([0, 1]))  # episodes under way go on
    assert (other.bonus.updates, other.bonus.seen) == (1, 0)


def test_episodes_under_way_are_broken_off_by_restoring(tmp_path: Path) -> None:
    """What is remembered of an episode belongs to environments that are not here."""
    one, other = (
        CuriousVectorEnv(SyncVectorEnv([lambda k=k: Clock(k) for k in range(N)]), Noted("ride", horizon=4))
        for _ in range(2)
    )
    one.reset()
    one.step(np.array([0, 0]))
    one.save(tmp_path / "bonus")
    other.restore(tmp_path / "bonus")
    assert one.bonus.state.learner.memory.written.tolist() == [1, 1]
    assert other.bonus.state.learner.memory.written.tolist() == [0, 0]


def test_a_refused_step_has_not_happened() -> None:
    """An action outside the space moves no environment, and no transition is made up of what is on both sides of it."""
    envs = wrapped(AutoresetMode.SAME_STEP)
    envs.reset()
    with pytest.raises(UsageError, match=r"action: 7 lies outside Discrete\(3\)"):
        envs.step(np.array([7, 0]))
    clocks = [env.unwrapped for env in envs.env.envs]  # pyright: ignore[reportAttributeAccessIssue]
    assert [clock.stepped for clock in clocks] == [0, 0]
    # What the environments themselves return may be refused only after they have moved.
    show = clocks[0]._seen
    clocks[0]._seen = lambda: np.full(3, np.nan, np.float32)
    with pytest.raises(UsageError, match="next_obs: holds NaN"):
        envs.step(np.array([0, 0]))
    clocks[0]._seen = show
    with pytest.raises(UsageError, match="obs: holds NaN"):
        envs.step(np.array([0, 0]))
    envs.reset()
    envs.step(np.array([0, 0]))
    kept = envs.bonus.waiting_steps()
    np.testing.assert_array_equal(kept["next_obs"][..., 2] - kept["obs"][..., 2], [[1, 1]])


def test_refusals() -> None:
    envs = SyncVectorEnv([lambda k=k: Clock(k) for k in range(N)])
    other = Bonus("rnd", SEEN, spaces.Discrete(4), num_envs=N)
    for bonus, message in (
        (other, "bonus: made for the action_space Discrete"),
        (
            Bonus("rnd", spaces.Box(-1, 1, (3,)), Clock.action_space, num_envs=N),
            "bonus: made for the observation_space",
        ),
        (Bonus("rnd", SEEN, Clock.action_space, num_envs=3), "bonus: made for num_envs=3, there are 2"),
        ("lbs", "bonus = 'lbs': give a curiax.Bonus"),
    ):
        with pytest.raises(UsageError, match=message):
            CuriousVectorEnv(envs, bonus)
    good = Noted("rnd")
    for options, message in (
        ({"weight": float("nan")}, "weight = nan: must be a finite number"),
        ({"extrinsic_weight": "1"}, "extrinsic_weight = '1'"),
        ({"update_every": 0}, "update_every = 0"),
        ({"update_every": 2.5}, "update_every = 2.5: must be a whole number"),
        ({"update_every": "3"}, "update_every = '3': must be a whole number"),
        ({"update_every": 40_000}, "keeps waiting=65536 transitions for an update, and a step has 2"),
    ):
        with pytest.raises(UsageError, match=message):
            CuriousVectorEnv(envs, good, **options)
    with pytest.raises(UsageError, match="give a vector environment"):
        CuriousVectorEnv(Clock(0), good)  # pyright: ignore[reportArgumentType]
    curious = CuriousVectorEnv(envs, good)
    with pytest.raises(UsageError, match=r"step: call reset\(\) first"):
        curious.step(np.zeros(N, int))
    odd = SyncVectorEnv([lambda k=k: Clock(k) for k in range(N)])
    odd.metadata = {**odd.metadata, "autoreset_mode": None}
    with pytest.raises(UsageError, match=r"env: its metadata\['autoreset_mode'\] is None"):
        CuriousVectorEnv(odd, good)
    stopping = wrapped(AutoresetMode.DISABLED)
    stopping.reset()
    stopping.step(np.zeros(N, int))
    stopping.step(np.zeros(N, int))
    with pytest.raises(UsageError, match=r"step: the episodes of environments \[0\] have ended"):
        stopping.step(np.zeros(N, int))
    lying = SyncVectorEnv([lambda k=k: Clock(k) for k in range(N)], autoreset_mode=AutoresetMode.NEXT_STEP)
    lying.metadata = {**lying.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
    liar = CuriousVectorEnv(lying, good)
    liar.reset()
    liar.step(np.zeros(N, int))
    with pytest.raises(UsageError, match=r"infos\['final_obs'\] has no last observation of environments \[0\]"):
        liar.step(np.zeros(N, int))
    with pytest.raises(UsageError, match=r"has no last observation of environments \[1\]"):
        liar.step(np.zeros(N, int))
    liar.step(np.zeros(N, int))
    # What came before the steps that were refused and what came after them make no transition.
    kept = good.waiting_steps()
    assert kept["obs"][:, 0, 1:].tolist() == [[0, 0], [1, 0]]
    assert kept["next_obs"][:, 0, 1:].tolist() == [[0, 1], [1, 1]]
