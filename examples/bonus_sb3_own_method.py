"""A method of your own as the bonus of Stable-Baselines3's PPO: the class of `new_method.py`, unchanged.

Nothing but the bonus pays here (`extrinsic_weight=0`). Counted are the 10 x 10 bins of position and velocity that the
car has been to. Needs Stable-Baselines3: `pip install 'curiax[sb3]'`.

    python bonus_sb3_own_method.py
"""

from __future__ import annotations

import torch
from new_method import EmbeddingDistance
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import curiax
from curiax.integrations.sb3 import CuriousVecEnv, UpdateBonus

ENVS, STEPS = 16, 20_480


class Visits(BaseCallback):
    """Notes the bins that the cars have been to; the task tells the point they are at."""

    def __init__(self) -> None:
        super().__init__()
        self.bins: set[tuple[int, int]] = set()

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            position, velocity = info["point"]
            self.bins.add((int((position + 1.2) / 0.18), int((velocity + 0.07) / 0.014)))
        return True


def main() -> None:
    """Train one agent on the bonus alone, and say how far it came."""
    torch.set_num_threads(1)  # more only wait for each other: the networks are small
    venv = make_vec_env("curiax/MountainCarSparse-v0", n_envs=ENVS, seed=0)
    bonus = curiax.Bonus(EmbeddingDistance, venv.observation_space, venv.action_space, num_envs=ENVS, width=128)
    curious = CuriousVecEnv(venv, bonus, extrinsic_weight=0.0)
    visits = Visits()
    settings = {"n_steps": 32, "batch_size": 64, "seed": 0, "device": "cpu"}
    model = PPO("MlpPolicy", VecNormalize(curious, norm_reward=False), **settings)
    model.learn(STEPS, callback=[visits, UpdateBonus()])
    print(f"EmbeddingDistance  bins visited: {len(visits.bins)} of the 91 that can be reached")


if __name__ == "__main__":
    main()
