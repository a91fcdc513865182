"""A method of your own as the bonus of Stable-Baselines3's PPO, beside PPO alone: `new_method.py`'s class, unchanged.

The task is a sparse Mountain Car: 100 steps to swing out of the valley, 1 for each step at the flag, 0 anywhere else.
How other seeds fared is in docs/howto-sb3-method.md. Needs Stable-Baselines3: `pip install 'curiax[sb3]'`.

    python bonus_sb3_own_method.py
    python bonus_sb3_own_method.py --picture maps.png    # where both agents have been
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from new_method import EmbeddingDistance
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import curiax
from curiax.integrations.sb3 import CuriousVecEnv, UpdateBonus

ENVS, STEPS, BINS = 16, 30_720, 20
#: Of both agents; docs/howto-sb3.md says why: where nothing is paid, nothing shall be learnt.
AGENT: dict[str, Any] = {
    "n_steps": 32,
    "batch_size": 64,
    "n_epochs": 5,
    "learning_rate": 1e-3,
    "normalize_advantage": False,
    "ent_coef": 0.0,
    "policy_kwargs": {"optimizer_kwargs": {"eps": 1e-3}},
}
#: Of the bonus: advantages that are not normalised are as large as what is paid.
WEIGHT = 5.0


class Visits(BaseCallback):
    """Counts steps in each bin of position and velocity, and notes of each episode whether it reached the flag."""

    def __init__(self) -> None:
        super().__init__()
        self.bins = np.zeros((BINS, BINS), int)
        self.flags: list[bool] = []

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            place = np.subtract(info["point"], (-1.2, -0.07)) / (1.8, 0.14)  # the task tells the point a car is at
            self.bins[tuple((place * BINS).astype(int).clip(0, BINS - 1))] += 1
            if "episode" in info:
                self.flags.append(info["episode"]["r"] > 0)
        return True


def train(curious: bool, seed: int) -> Visits:
    """Train one agent; where it has been."""
    venv = make_vec_env("curiax/MountainCarSparse-v0", n_envs=ENVS, seed=seed)
    visits = Visits()
    callbacks: list[BaseCallback] = [visits]
    if curious:
        spaces = venv.observation_space, venv.action_space
        bonus = curiax.Bonus(EmbeddingDistance, *spaces, num_envs=ENVS, seed=seed, width=128)
        venv = CuriousVecEnv(venv, bonus, weight=WEIGHT)
        callbacks.append(UpdateBonus())
    model = PPO("MlpPolicy", VecNormalize(venv, norm_reward=False), seed=seed, device="cpu", **AGENT)
    model.learn(STEPS, callback=callbacks)
    return visits


def main() -> None:
    """Compare, and say how far each came."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, help="draw where both have been, to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)  # more only wait for each other: the networks are small
    maps = {}
    for name, curious in (("without bonus", False), ("with EmbeddingDistance", True)):
        visits = train(curious, options.seed)
        maps[name], flags = visits.bins, visits.flags
        print(
            f"{name:22s} bins visited: {(maps[name] > 0).sum()} of {BINS**2}   "
            f"flag reached in {sum(flags)} of {len(flags)} episodes",
            flush=True,
        )
    if options.picture:
        from picture import draw

        draw(options.picture, maps, flag=0.45)


if __name__ == "__main__":
    main()
