"""A wrapper that pays the bonus inside a Gymnasium vector environment."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from .._errors import UsageError
from . import spaces
from .bonus import Bonus, count


class CuriousVectorEnv(VectorWrapper):
    """A vector environment whose reward is `extrinsic_weight · r + weight · bonus`.

        envs = gymnasium.make_vec("CartPole-v1", num_envs=8)
        bonus = curiax.Bonus("lbs", envs.single_observation_space, envs.single_action_space, num_envs=8)
        envs = curiax.CuriousVectorEnv(envs, bonus, weight=0.01, update_every=256)

    What a step led to is read off correctly in all three ways in which vector environments begin new episodes: in the
    step that ended the last one (`final_obs`), in the step after it (which is no step of the task: it earns no bonus
    and teaches nothing), or when `reset` is called with a `reset_mask`.

    `infos["extrinsic_reward"]` and `infos["intrinsic_reward"]` hold the task's reward and the unweighted bonus.
    `save` and `restore` keep the bonus beside the agent's own files.

    Args:
        env: the vector environment.
        bonus: for its spaces and its number of environments.
        weight: of the bonus.
        extrinsic_weight: of the task's reward; 0 replaces it by the bonus.
        update_every: train the bonus after so many steps of the vector environment; None leaves it to you
            (`bonus.update()` where your agent learns).
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        bonus: Bonus,
        *,
        weight: float = 1.0,
        extrinsic_weight: float = 1.0,
        update_every: int | None = None,
    ) -> None:
        if not isinstance(env, VectorEnv):
            raise UsageError(
                f"env = {env!r}: give a vector environment, as gymnasium.make_vec returns; for a single one use "
                "curiax.Bonus with num_envs=1, or gymnasium.vector.SyncVectorEnv."
            )
        refuse_other_spaces(env.num_envs, env.single_observation_space, env.single_action_space, bonus)
        super().__init__(env)
        self.bonus = bonus
        self.weight, self.extrinsic_weight = finite("weight", weight), finite("extrinsic_weight", extrinsic_weight)
        self.update_every = None if update_every is None else count("update_every", update_every)
        if self.update_every is not None and self.update_every * env.num_envs > bonus.waiting:
            raise UsageError(
                f"update_every = {update_every}: the Bonus keeps waiting={bonus.waiting} transitions for an update, "
                f"and a step has {env.num_envs}. Lower update_every, or make the Bonus with a larger waiting."
            )
        self.mode = mode_of(env)
        self._obs: np.ndarray | None = None
        self._ended = np.zeros(env.num_envs, bool)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin episodes: all of them, or those that `options["reset_mask"]` names."""
        mask = (options or {}).get("reset_mask")
        # A copy: Gymnasium's own vector environments take the mask out of what they are given.
        obs, infos = self.env.reset(seed=seed, options=None if options is None else dict(options))
        began = np.ones(self.num_envs, bool) if mask is None else spaces.flags("reset_mask", mask, (self.num_envs,))
        self.bonus.forget(began)
        self._obs, self._ended = np.array(obs), self._ended & ~began
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environments; the reward with the bonus in it."""
        if self._obs is None:
            raise UsageError("step: call reset() first.")
        if self.mode is AutoresetMode.DISABLED and self._ended.any():
            which = np.flatnonzero(self._ended).tolist()
            raise UsageError(
                f"step: the episodes of environments {which} have ended, and these environments do not reset "
                'themselves: call reset(options={"reset_mask": terminated | truncated}) first.'
            )
        # In next-step mode the action after an episode's end is not carried out: the environment resets instead.
        filler = self._ended if self.mode is AutoresetMode.NEXT_STEP else np.zeros(self.num_envs, bool)
        self.bonus.check_action(actions, valid=~filler)  # what is refused must not have moved the environments
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        ended = np.asarray(terminated, bool) | np.asarray(truncated, bool)
        reached = np.array(obs)
        # First: whatever is refused of this step, the environments have moved.
        before, self._obs, self._ended = self._obs, reached.copy(), ended
        if self.mode is AutoresetMode.SAME_STEP and ended.any():
            reached = with_final(reached, infos, ended)
        intrinsic = self.bonus.reward(before, actions, reached, terminated, truncated, valid=~filler)
        # Counted by what waits, which is saved with the bonus.
        if self.update_every is not None and self.bonus.seen >= self.update_every * self.num_envs:
            self.bonus.update()
        extrinsic = np.asarray(reward, np.float64)
        paid = self.extrinsic_weight * extrinsic + self.weight * intrinsic
        everywhere = np.ones(self.num_envs, bool)
        infos = {**infos, "extrinsic_reward": extrinsic, "_extrinsic_reward": everywhere}
        infos |= {"intrinsic_reward": intrinsic, "_intrinsic_reward": everywhere.copy()}
        return obs, paid, terminated, truncated, infos

    def save(self, path: Any) -> None:
        """Write the bonus to a file, as `Bonus.save`."""
        self.bonus.save(path)

    def restore(self, path: Any) -> None:
        """Put back what `save` wrote, as `Bonus.restore`; episodes that are under way count as broken off."""
        self.bonus.restore(path)
        self.bonus.forget()


def finite(name: str, value: Any) -> float:
    """A number that can weigh rewards."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise UsageError(f"{name} = {value!r}: must be a finite number.")
    return float(value)


def refuse_other_spaces(num_envs: int, observation_space: Any, action_space: Any, bonus: Any) -> None:
    """Refuse a bonus that was made for other environments."""
    if not isinstance(bonus, Bonus):
        raise UsageError(f"bonus = {bonus!r}: give a curiax.Bonus.")
    if bonus.num_envs != num_envs:
        raise UsageError(f"bonus: made for num_envs={bonus.num_envs}, there are {num_envs} environments.")
    for name, there in (("observation_space", observation_space), ("action_space", action_space)):
        mine = getattr(bonus, name)
        if mine != there:
            raise UsageError(f"bonus: made for the {name} {mine}, the environments have {there}.")


def mode_of(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """How a vector environment begins new episodes, as it declares."""
    mode = env.metadata.get("autoreset_mode")
    try:
        return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)
    except ValueError:
        raise UsageError(
            f"env: its metadata['autoreset_mode'] is {mode!r}, so it cannot be known which observation ends an "
            "episode. Set it to gymnasium.vector.AutoresetMode.NEXT_STEP, SAME_STEP or DISABLED, whichever it does."
        ) from None


def with_final(obs: np.ndarray, infos: dict[str, Any], ended: np.ndarray) -> np.ndarray:
    """The observations that ended episodes, where they did, instead of the first of the next."""
    key: Literal["final_obs", "final_observation"] = "final_obs" if "final_obs" in infos else "final_observation"
    final = infos.get(key)
    missing = [k for k in np.flatnonzero(ended).tolist() if final is None or final[k] is None]
    if final is None or missing:
        raise UsageError(
            f"env: declares that it resets in the step that ends an episode, but infos['final_obs'] has no last "
            f"observation of environments {missing}."
        )
    for k in np.flatnonzero(ended):
        obs[k] = final[k]
    return obs
