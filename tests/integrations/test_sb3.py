"""The bonus inside Stable-Baselines3: what it sees, what it pays, when it is trained. Needs `curiax[sb3]`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from parts import leave_out

from curiax import Bonus, UsageError

try:
    import stable_baselines3 as sb3
except ImportError as error:
    leave_out("sb3", error)

import torch
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)

from curiax.integrations.sb3 import CuriousVecEnv, UpdateBonus

torch.set_num_threads(1)
#: One gradient step: what the tests look at is what is learnt from, not how well.
LEARNER = {"epochs": 1, "minibatch_size": 32}
#: Not around 0, so that a policy's own actions and those carried out differ.
FORCE = gymnasium.spaces.Box(-0.5, 0.25, (1,))
SEEN = gymnasium.spaces.Box(-100.0, 100.0, (3,))


class Clock(gymnasium.Env[np.ndarray, Any]):
    """Shows episode, time and the action carried out. Episodes end at time 3, or are cut off at time 4, in turns."""

    observation_space, action_space = SEEN, FORCE

    def __init__(self) -> None:
        self.episode, self.time = -1, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self.seen(0.0), {}

    def seen(self, action: float) -> np.ndarray:
        return np.array([self.episode, self.time, action], np.float32)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.time += 1
        even = self.episode % 2 == 0
        ended, cut_off = even and self.time == 3, not even and self.time == 4
        return self.seen(float(action[0])), 10.0 * self.time, ended, cut_off, {}


class Film(gymnasium.Env[np.ndarray, Any]):
    """Pictures whose pixels are the time; the first channel is one brighter. Episodes of 3 steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (36, 40, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def seen(self) -> np.ndarray:
        picture = np.full((36, 40, 3), 10 * self.time, np.uint8)
        picture[..., 0] += 1
        return picture

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self.seen(), 0.0, self.time == 3, False, {}


def clocks(count: int = 2, make: Callable[[], Any] = Clock) -> DummyVecEnv:
    return DummyVecEnv([make] * count)


def bonus_for(venv: Any, method: str = "rnd", **settings: Any) -> Bonus:
    settings = {"learner": LEARNER, **settings}
    return Bonus(method, venv.observation_space, venv.action_space, num_envs=venv.num_envs, **settings)


def curious(venv: Any = None, **weights: Any) -> CuriousVecEnv:
    venv = clocks() if venv is None else venv
    return CuriousVecEnv(venv, bonus_for(venv), **weights)


def drive(venv: Any, steps: int, seed: int = 0) -> list[tuple[Any, ...]]:
    """Random actions; the answers of the environments."""
    random = np.random.default_rng(seed)
    return [venv.step(random.uniform(-0.5, 0.25, (venv.num_envs, 1)).astype(np.float32)) for _ in range(steps)]


def assert_true_steps(bonus: Bonus, steps: int) -> None:
    """All that waits are steps of the clock: same episode, next time, the action carried out, the right kind of end."""
    kept = bonus.waiting_steps()
    assert len(kept["obs"]) == steps
    np.testing.assert_array_equal(kept["next_obs"][..., 0], kept["obs"][..., 0])
    np.testing.assert_array_equal(kept["next_obs"][..., 1], kept["obs"][..., 1] + 1)
    np.testing.assert_array_equal(kept["next_obs"][..., 2], kept["action"][..., 0])
    even, time = kept["obs"][..., 0] % 2 == 0, kept["next_obs"][..., 1]
    np.testing.assert_array_equal(kept["terminated"], even & (time == 3))
    np.testing.assert_array_equal(kept["truncated"], ~even & (time == 4))


def test_the_bonus_sees_true_successors_and_is_added_to_the_reward() -> None:
    venv = curious(weight=0.5, extrinsic_weight=2.0)
    venv.reset()
    answers = drive(venv, 14)
    assert_true_steps(venv.bonus, 14)
    kept = venv.bonus.waiting_steps()
    fresh = bonus_for(clocks())
    parts = ("obs", "action", "next_obs", "terminated", "truncated")
    expected = np.stack([fresh.reward(*(kept[name][t] for name in parts)) for t in range(14)])
    assert len(np.unique(expected)) > 10
    for t, (_, reward, dones, infos) in enumerate(answers):
        task = 10 * kept["next_obs"][t, :, 1]
        np.testing.assert_allclose(reward, 2 * task + 0.5 * expected[t], rtol=1e-6)
        np.testing.assert_array_equal([info["extrinsic_reward"] for info in infos], task)
        np.testing.assert_array_equal([info["intrinsic_reward"] for info in infos], expected[t])
        assert reward.dtype == np.float32
        assert ["terminal_observation" in info for info in infos] == dones.tolist()


def test_reward_free() -> None:
    venv = curious(extrinsic_weight=0.0)
    venv.reset()
    for _, reward, _, infos in drive(venv, 5):
        np.testing.assert_array_equal(reward, np.float32([info["intrinsic_reward"] for info in infos]))
        assert all(info["extrinsic_reward"] >= 10 for info in infos)


def test_ppo_trains_the_bonus_after_each_rollout() -> None:
    venv = curious()
    updated = []
    model = sb3.PPO("MlpPolicy", venv, n_steps=16, batch_size=16, n_epochs=1, seed=0, device="cpu")

    class Watch(UpdateBonus):
        def _on_rollout_end(self) -> None:
            assert_true_steps(venv.bonus, 16)
            super()._on_rollout_end()
            updated.append(dict(self.logger.name_to_value))

    model.learn(96, callback=Watch())
    assert venv.bonus.updates == len(updated) == 3
    assert venv.bonus.seen == 0
    assert [values["curiosity/updates"] for values in updated] == [1, 2, 3]
    # Whole periods of the clock's two episodes, 3 and 4 steps, are worth 60 and 100; 16 steps are two periods and two.
    assert updated[0]["curiosity/extrinsic_reward"] == pytest.approx((60 + 100 + 60 + 100 + 10 + 20) / 16)
    assert all(np.isfinite(values["curiosity/loss"]) and values["curiosity/bonus"] > 0 for values in updated)
    paid = model.rollout_buffer.rewards - model.rollout_buffer.rewards.min()
    assert paid.max() > 0


@pytest.mark.parametrize("algorithm", ["SAC", "TD3"])
def test_off_policy_algorithms_train_it_every_so_often(algorithm: str) -> None:
    venv = curious()
    buffers = {"buffer_size": 500, "learning_starts": 20, "train_freq": 10, "gradient_steps": 1, "batch_size": 8}
    model = getattr(sb3, algorithm)("MlpPolicy", venv, seed=0, device="cpu", **buffers)
    if algorithm == "TD3":
        from stable_baselines3.common.noise import NormalActionNoise

        model.action_noise = NormalActionNoise(np.zeros(1), np.full(1, 0.5))
    model.learn(180, callback=UpdateBonus(update_every=64))
    assert venv.bonus.updates == 2
    # 90 steps of two environments: 64 were learnt from in two updates, the last 26 wait.
    assert_true_steps(venv.bonus, 26)
    kept = venv.bonus.waiting_steps()
    taken = kept["action"][..., 0]
    assert taken.min() >= -0.5
    assert taken.max() <= 0.25
    # The replay buffer has the actions of the policy, scaled to -1 and 1, and the reward as it was paid.
    last = model.replay_buffer.actions[64:90, :, 0]
    np.testing.assert_allclose(-0.5 + (last + 1) / 2 * 0.75, taken, atol=1e-6)
    paid = model.replay_buffer.rewards[64:90] - 10 * kept["next_obs"][..., 1]
    assert (paid > 0).all()


def test_off_policy_algorithms_have_a_default() -> None:
    venv = curious()
    callback = UpdateBonus()
    sb3.SAC("MlpPolicy", venv, device="cpu", buffer_size=100, learning_starts=100).learn(4, callback=callback)
    assert (venv.bonus.updates, venv.bonus.seen) == (0, 4)
    assert callback._every == 1024


def test_below_vec_normalize_the_bonus_sees_what_is_there() -> None:
    venv = VecNormalize(curious(weight=0.0))
    venv.reset()
    drive(venv, 14)
    assert_true_steps(venv.venv.bonus, 14)


def test_above_vec_normalize_it_sees_normalised_observations() -> None:
    inner = VecNormalize(clocks(), norm_reward=False, clip_obs=1e6)
    inner.obs_rms.mean, inner.obs_rms.var, inner.training = np.array([5.0, 2.0, 0.0]), np.array([4.0, 9.0, 1.0]), False
    venv = curious(inner)
    venv.reset()
    drive(venv, 14)
    kept = venv.bonus.waiting_steps()
    obs, reached = (kept[name] * np.sqrt(inner.obs_rms.var) + inner.obs_rms.mean for name in ("obs", "next_obs"))
    np.testing.assert_allclose(reached[..., 1], obs[..., 1] + 1, atol=1e-3)
    np.testing.assert_allclose(reached[..., 0], obs[..., 0], atol=1e-3)


@pytest.mark.parametrize("inner", [lambda: VecMonitor(clocks()), lambda: clocks(make=lambda: Monitor(Clock()))])
def test_monitors_below_it_count_the_reward_of_the_task(inner: Callable[[], Any]) -> None:
    venv = curious(inner(), weight=100.0)
    venv.reset()
    ended = [info["episode"]["r"] for *_, infos in drive(venv, 7) for info in infos if "episode" in info]
    assert ended == [60.0, 60.0, 100.0, 100.0]


def test_pictures_stacked_and_with_channels_first() -> None:
    inner = VecFrameStack(VecTransposeImage(clocks(make=Film)), 2, channels_order="first")
    assert inner.observation_space.shape == (6, 36, 40)
    venv = CuriousVecEnv(inner, bonus_for(inner))
    assert venv.bonus.spec.obs_shape == (36, 40, 6)
    venv.reset()
    for _ in range(4):
        assert (venv.step(np.zeros(2, int))[1] > 0).all()
    kept = venv.bonus.waiting_steps()
    assert kept["next_obs"].dtype == np.uint8
    pixels = kept["next_obs"][:, 0, :, 0, 0].tolist()  # both frames of one pixel, oldest first
    assert pixels == [[1, 0, 0, 11, 10, 10], [11, 10, 10, 21, 20, 20], [21, 20, 20, 31, 30, 30], [1, 0, 0, 11, 10, 10]]


def test_a_training_is_continued_with_the_same_bonus(tmp_path: Path) -> None:
    venv = curious()
    settings = {"n_steps": 16, "batch_size": 16, "n_epochs": 1}
    model = sb3.PPO("MlpPolicy", venv, seed=0, device="cpu", **settings)
    model.learn(32, callback=UpdateBonus())
    model.save(tmp_path / "model.zip")
    venv.save(tmp_path / "bonus.safetensors")
    again = curious()
    again.restore(tmp_path / "bonus.safetensors")
    assert again.bonus.updates == 1
    with pytest.raises(UsageError, match=r"call reset\(\) first"):
        again.step(np.zeros((2, 1), np.float32))
    venv.set_attr("episode", -1)
    for both in (venv, again):
        both.reset()
    for one, other in zip(drive(venv, 5), drive(again, 5), strict=True):
        np.testing.assert_array_equal(one[1], other[1])
    assert not np.array_equal(drive(curious_and_reset(), 5)[-1][1], one[1])
    resumed = sb3.PPO.load(tmp_path / "model.zip", env=again)
    resumed.learn(32, callback=UpdateBonus(), reset_num_timesteps=False)
    assert (resumed.num_timesteps, again.bonus.updates) == (64, 2)


def curious_and_reset() -> CuriousVecEnv:
    venv = curious()
    venv.reset()
    return venv


def test_learning_goes_on_with_a_bonus_put_back(tmp_path: Path) -> None:
    """The same model, the same environments: they are not reset, and need not be."""
    curious = CuriousVecEnv(DummyVecEnv([Clock] * 2), Bonus("rnd", SEEN, FORCE, num_envs=2, learner=LEARNER))
    model = sb3.PPO("MlpPolicy", curious, n_steps=8, batch_size=16, n_epochs=1, device="cpu")
    model.learn(16, callback=UpdateBonus())
    curious.save(tmp_path / "bonus")
    model.learn(16, callback=UpdateBonus(), reset_num_timesteps=False)
    curious.restore(tmp_path / "bonus")
    assert curious.bonus.updates == 1
    model.learn(16, callback=UpdateBonus(), reset_num_timesteps=False)
    assert curious.bonus.updates == 2


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.filterwarnings("error")
def test_tensors_of_torch(kind: Any) -> None:
    """Of every floating-point kind, with a graph behind them; one without values is refused."""
    bonus = Bonus("rnd", SEEN, FORCE, num_envs=2, learner=LEARNER)
    obs = torch.tensor([[1.0, 2.0, 0.5], [3.0, 4.0, -1.0]], dtype=kind, requires_grad=True)
    action, no = torch.zeros(2, 1, dtype=kind), torch.zeros(2, dtype=torch.bool)
    array = obs.detach().float().numpy()
    expected = bonus.reward(array, np.zeros((2, 1)), array + 1, [False] * 2, [False] * 2, record=False)
    np.testing.assert_array_equal(bonus.reward(obs, action, obs + 1, no, no), expected)
    with pytest.raises(UsageError, match="obs: not an array of numbers"):
        bonus.reward(obs.to("meta"), action, obs, no, no)


def test_reset_breaks_episodes_off() -> None:
    """An episodic memory starts afresh: the same steps earn the same again."""
    inner = clocks()
    venv = CuriousVecEnv(inner, bonus_for(inner, "ngu", learner={**LEARNER, "scale": False}, horizon=8))
    paid = []
    for _ in range(2):
        venv.set_attr("episode", -1)
        venv.reset()
        paid.append(venv.step(np.zeros((2, 1), np.float32))[3][0]["intrinsic_reward"])
    memory = bonus_for(inner, "ngu", learner={**LEARNER, "scale": False}, horizon=8)
    start, then = np.zeros((2, 3), np.float32), np.tile(np.float32([0, 1, 0]), (2, 1))
    no, action = np.zeros(2, bool), np.zeros((2, 1), np.float32)
    first = memory.reward(start, action, then, no, no)
    memory.forget()
    second = memory.reward(start, action, then, no, no)
    assert paid == pytest.approx([first[0], second[0]])


def test_evaluation_leaves_the_bonus_alone() -> None:
    venv = curious(extrinsic_weight=0.0)
    model = sb3.PPO("MlpPolicy", venv, n_steps=16, batch_size=16, n_epochs=1, device="cpu")
    evaluated = CuriousVecEnv(clocks(1, lambda: Monitor(Clock())), venv.bonus, training=False)
    mean, _ = evaluate_policy(model, evaluated, n_eval_episodes=2)
    assert mean == 80.0
    assert venv.bonus.seen == 0
    evaluated.reset()
    np.testing.assert_array_equal(evaluated.step(np.zeros((1, 1), np.float32))[1], [10.0])


def test_episodes_end_where_training_was_off() -> None:
    """What happened meanwhile is not known, so what is remembered of the episode goes."""
    curious = CuriousVecEnv(
        DummyVecEnv([Clock] * 2), Bonus("ride", SEEN, FORCE, num_envs=2, learner=LEARNER, horizon=4)
    )
    curious.reset()
    curious.step(np.zeros((2, 1), np.float32))
    assert curious.bonus.state.learner.memory.written.tolist() == [1, 1]
    curious.training = False
    curious.step(np.zeros((2, 1), np.float32))
    curious.training = True
    assert curious.bonus.state.learner.memory.written.tolist() == [0, 0]
    with pytest.raises(UsageError, match="training = 'no': must be True or False"):
        curious.training = "no"
    for wrong in (np.zeros((2, 2, 1)), np.zeros((3, 1)), np.full((2, 1), 7.0)):
        with pytest.raises(UsageError, match="action: "):
            curious.step(wrong)
    assert curious.get_attr("time") == [2, 2]


def test_environments_can_be_reached_through_it() -> None:
    venv = curious()
    venv.seed(3)
    venv.reset()
    venv.step(np.zeros((2, 1), np.float32))
    assert venv.get_attr("time") == [1, 1]
    assert venv.env_method("seen", 0.5, indices=[0])[0].tolist() == [0, 1, 0.5]
    assert venv.env_is_wrapped(Monitor) == [False, False]


class NoFinal(VecNormalize):
    """Loses the last observations."""

    def step_wait(self) -> Any:
        obs, reward, dones, infos = self.venv.step_wait()
        return obs, reward, dones, [{k: v for k, v in i.items() if k != "terminal_observation"} for i in infos]


def test_what_cannot_be_right_is_refused() -> None:
    venv = clocks()
    bonus = bonus_for(venv)
    for name in ("weight", "extrinsic_weight"):
        with pytest.raises(UsageError, match=f"{name} = nan"):
            CuriousVecEnv(venv, bonus, **{name: float("nan")})
    with pytest.raises(UsageError, match="made for num_envs=2, there are 3"):
        CuriousVecEnv(clocks(3), bonus)
    with pytest.raises(UsageError, match="the environments have Box"):
        CuriousVecEnv(clocks(make=Film), bonus)
    with pytest.raises(UsageError, match=r"call reset\(\) first"):
        CuriousVecEnv(venv, bonus).step(np.zeros((2, 1), np.float32))
    with pytest.raises(UsageError, match=r"environment 0 ended .*terminal_observation"):
        drive(curious_after(NoFinal(clocks())), 3)
    with pytest.raises(UsageError, match="update_every = 0"):
        UpdateBonus(update_every=0)


def curious_after(inner: Any) -> CuriousVecEnv:
    venv = curious(inner)
    venv.reset()
    return venv


def test_dictionaries_are_refused() -> None:
    space = gymnasium.spaces.Dict({"a": SEEN})
    with pytest.raises(UsageError, match=r"observation_space: Dict.*FlattenObservation"):
        Bonus("rnd", space, FORCE, num_envs=2)


def test_a_callback_needs_one_bonus() -> None:
    def learn(venv: Any, callback: UpdateBonus) -> None:
        sb3.PPO("MlpPolicy", venv, n_steps=4, batch_size=4, device="cpu").learn(4, callback=callback)

    with pytest.raises(UsageError, match=r"VecMonitor > DummyVecEnv\) have no CuriousVecEnv"):
        learn(VecMonitor(clocks()), UpdateBonus())
    with pytest.raises(UsageError, match="have 2 CuriousVecEnvs"):
        learn(curious(VecMonitor(curious())), UpdateBonus())
    small = clocks()
    with pytest.raises(UsageError, match="update_every = 64: the Bonus keeps only waiting=10"):
        learn(CuriousVecEnv(small, bonus_for(small, waiting=10)), UpdateBonus(update_every=64))
    # Other wrappers may lie above and below it.
    venv = VecNormalize(VecMonitor(curious(VecMonitor(clocks()))))
    learn(venv, UpdateBonus())
    assert venv.venv.venv.bonus.updates == 1
