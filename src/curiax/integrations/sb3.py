"""The bonus inside Stable-Baselines3: a wrapper that pays it and a callback that trains it.

    bonus = curiax.Bonus("lbs", venv.observation_space, venv.action_space, num_envs=venv.num_envs)
    venv = CuriousVecEnv(venv, bonus, weight=0.1)
    PPO("MlpPolicy", venv).learn(100_000, callback=UpdateBonus())

The only file of Curiax that imports Stable-Baselines3, and with it PyTorch: `pip install 'curiax[sb3]'`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .._errors import UsageError
from .bonus import Bonus, count
from .vector import finite, refuse_other_spaces

try:
    from stable_baselines3.common.callbacks import BaseCallback  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.off_policy_algorithm import (  # pyright: ignore[reportMissingImports]
        OffPolicyAlgorithm,
    )
    from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise UsageError(
        f"curiax.integrations.sb3 needs Stable-Baselines3 and PyTorch: pip install 'curiax[sb3]' ({error})."
    ) from None

#: Transitions between two updates of the bonus under off-policy algorithms, whose rollouts are a few steps long.
OFF_POLICY_UPDATE = 1024


class CuriousVecEnv(VecEnvWrapper):
    """A `VecEnv` whose reward is `extrinsic_weight · r + weight · bonus`.

    What a step led to is, at an episode's end, `terminal_observation`, not the first observation of the next episode.
    The info of each environment gets `extrinsic_reward`, what the wrapped environments paid, and `intrinsic_reward`,
    the unweighted bonus. `save` and `restore` keep the bonus beside the model's own files.

    Wrappers below it change what the bonus sees, wrappers above it what the algorithm sees. Above `VecFrameStack` it
    sees the stacked frames. Below `VecNormalize` it sees observations as they are, and standardises them itself; with
    `norm_reward` the sum of reward and bonus is then divided by the deviation of its return. `VecMonitor` below it
    counts the task's reward, above it the sum.

    Args:
        venv: the environments.
        bonus: for their spaces and their number.
        weight: of the bonus.
        extrinsic_weight: of the task's reward; 0 trains on the bonus alone.
        training: False is for evaluation: the task's reward passes as it is, and the bonus is neither asked nor told
            anything. It can be assigned, as `VecNormalize`'s.
    """

    def __init__(
        self,
        venv: VecEnv,
        bonus: Bonus,
        *,
        weight: float = 1.0,
        extrinsic_weight: float = 1.0,
        training: bool = True,
    ) -> None:
        if not isinstance(venv, VecEnv):
            raise UsageError(
                f"venv = {venv!r}: give a VecEnv of Stable-Baselines3, as make_vec_env returns; for Gymnasium's vector "
                "environments there is curiax.CuriousVectorEnv."
            )
        # Evaluation may have another number of environments: the bonus is not asked there.
        envs = venv.num_envs if training or not isinstance(bonus, Bonus) else bonus.num_envs
        refuse_other_spaces(envs, venv.observation_space, venv.action_space, bonus)
        super().__init__(venv)
        self.bonus, self._training = bonus, flag("training", training)
        self.weight, self.extrinsic_weight = finite("weight", weight), finite("extrinsic_weight", extrinsic_weight)
        self._obs: np.ndarray | None = None
        self._actions: np.ndarray | None = None

    @property
    def training(self) -> bool:
        """Whether the bonus is asked and told anything."""
        return self._training

    @training.setter
    def training(self, value: bool) -> None:
        if flag("training", value) and not self._training:
            refuse_other_spaces(self.num_envs, self.observation_space, self.action_space, self.bonus)
            self.bonus.forget()  # it has not seen how the episodes went on
        self._training = value

    def reset(self) -> Any:
        """Begin episodes in all environments."""
        obs = self.venv.reset()
        if self.training:
            self.bonus.forget()
        self._obs = np.array(obs)
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        """Take the actions: what arrives here, clipped or unscaled by the algorithm, is what will be carried out."""
        if self._obs is None:
            raise UsageError("step: call reset() first.")
        if self.training:
            self.bonus.check_action(actions)  # what is refused must not have moved the environments
        self._actions = np.array(actions)
        self.venv.step_async(actions)

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Carry them out; the reward with the bonus in it."""
        obs, reward, dones, infos = self.venv.step_wait()
        before, self._obs = self._obs, np.array(obs)
        if not self.training:
            return obs, reward, dones, list(infos)
        truncated = np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos]) & dones
        reached = successors(self._obs, dones, infos)
        intrinsic = self.bonus.reward(before, self._actions, reached, dones & ~truncated, truncated)
        paid = self.extrinsic_weight * np.asarray(reward, np.float64) + self.weight * intrinsic
        new_infos = [
            {**info, "extrinsic_reward": float(task), "intrinsic_reward": float(own)}
            for info, task, own in zip(infos, reward, intrinsic, strict=True)
        ]
        return obs, paid.astype(np.float32), dones, new_infos

    def save(self, path: str | Path) -> None:
        """Write the bonus to a file, as `Bonus.save`; the model has a `save` of its own."""
        self.bonus.save(path)

    def restore(self, path: str | Path) -> None:
        """Put back what `save` wrote, as `Bonus.restore`; episodes that are under way count as broken off."""
        self.bonus.restore(path)
        self.bonus.forget()


def flag(name: str, value: Any) -> bool:
    """True or False, and nothing that only counts as either."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} = {value!r}: must be True or False.")
    return value


class UpdateBonus(BaseCallback):
    """Trains the bonus while the algorithm trains, and logs under `curiosity/`.

    On-policy algorithms (PPO, A2C) pay a whole rollout with the bonus as it is, then it is trained on that rollout.
    Off-policy algorithms (SAC, TD3, DQN) have it trained after every `update_every` transitions; what they keep in
    their replay buffer stays paid as it was when it was collected.

    Logged are the means of `bonus` and of `extrinsic_reward` since the last update, the number of `updates`, and what
    the method reports of its training, as its `loss`.

    Args:
        update_every: train after so many transitions, counted over all environments. None: at the end of each rollout
            of an on-policy algorithm, after 1024 transitions of an off-policy one.
        verbose: as in every callback of Stable-Baselines3.
    """

    def __init__(self, update_every: int | None = None, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.update_every = None if update_every is None else count("update_every", update_every)
        self._paid: list[tuple[float, float]] = []

    def _init_callback(self) -> None:
        self._env = curious_env(self.training_env)
        off_policy = isinstance(self.model, OffPolicyAlgorithm)
        self._every = OFF_POLICY_UPDATE if off_policy and self.update_every is None else self.update_every
        if self._every is not None and self._every > self._env.bonus.waiting:
            raise UsageError(
                f"update_every = {self._every}: the Bonus keeps only waiting={self._env.bonus.waiting} transitions for "
                "an update. Lower update_every, or make the Bonus with a larger waiting."
            )

    def _on_step(self) -> bool:
        infos = self.locals["infos"]
        self._paid += [(i["intrinsic_reward"], i["extrinsic_reward"]) for i in infos if "intrinsic_reward" in i]
        if self._every is not None and self._env.bonus.seen >= self._every:
            self._update()
        return True

    def _on_rollout_end(self) -> None:
        if self._every is None:
            self._update()

    def _update(self) -> None:
        """Train the bonus, and say what was paid and learnt."""
        report = self._env.bonus.update()
        if self._paid:
            bonus, extrinsic = np.mean(self._paid, axis=0)
            report |= {"bonus": float(bonus), "extrinsic_reward": float(extrinsic)}
        for name, value in {**report, "updates": self._env.bonus.updates}.items():
            self.logger.record(f"curiosity/{name}", value)
        self._paid = []


def curious_env(venv: Any) -> CuriousVecEnv:
    """The one `CuriousVecEnv` among the wrappers of an algorithm's environments."""
    layer, names, found = venv, [type(venv).__name__], [venv] if isinstance(venv, CuriousVecEnv) else []
    while isinstance(layer, VecEnvWrapper):
        layer = layer.venv
        names.append(type(layer).__name__)
        found += [layer] if isinstance(layer, CuriousVecEnv) else []
    if len(found) != 1:
        many = "no CuriousVecEnv" if not found else f"{len(found)} CuriousVecEnvs, and it could not be told which pays"
        raise UsageError(
            f"UpdateBonus: the model's environments ({' > '.join(names)}) have {many}. Wrap them in exactly one: "
            "model = PPO(policy, CuriousVecEnv(venv, bonus))."
        )
    return found[0]


def successors(obs: np.ndarray, dones: np.ndarray, infos: Any) -> np.ndarray:
    """What the steps led to: where an episode ended its last observation, which the info holds."""
    reached = obs.copy()
    for k in np.flatnonzero(dones).tolist():
        if infos[k].get("terminal_observation") is None:
            raise UsageError(
                f"venv: environment {k} ended an episode without infos[{k}]['terminal_observation'], so it cannot be "
                "known what the step led to. Every VecEnv of Stable-Baselines3 sets it; let yours do so too."
            )
        reached[k] = infos[k]["terminal_observation"]
    return reached
