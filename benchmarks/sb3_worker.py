"""Time the rollouts of Stable-Baselines3's PPO on Mountain Car; started by `against_sb3.py`, prints JSON.

Runs in an environment that has torch and Stable-Baselines3 but need not have Curiax. Every setting that costs time
is the one Curiax uses: two separate tanh networks of 64-64, 2048 steps, 10 epochs, minibatches of 64.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import platform
import time

import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

ROLLOUT = 2048
SETTINGS = {
    "n_steps": ROLLOUT,
    "batch_size": 64,
    "n_epochs": 10,
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_range": 0.2,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
}


class Clock(BaseCallback):
    """The moment each rollout begins."""

    def __init__(self) -> None:
        super().__init__()
        self.begins: list[float] = []

    def _on_rollout_start(self) -> None:
        self.begins.append(time.perf_counter())

    def _on_step(self) -> bool:
        return True


def main() -> None:
    """Train for some rollouts and print the seconds of each, collection and update together."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rollouts", type=int, default=6, help="rollouts, the warm-up included")
    args = options.parse_args()

    torch.set_num_threads(1)
    env = gymnasium.make("MountainCarContinuous-v0", max_episode_steps=100)
    networks = {"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "activation_fn": torch.nn.Tanh}
    model = PPO("MlpPolicy", env, policy_kwargs=networks, device="cpu", seed=0, **SETTINGS)
    clock = Clock()
    model.learn(args.rollouts * ROLLOUT, callback=clock)
    moments = [*clock.begins, time.perf_counter()]
    packages = ("torch", "stable-baselines3", "gymnasium", "numpy")
    result = {
        "seconds": [after - before for before, after in itertools.pairwise(moments)],
        "settings": {**SETTINGS, "policy": "MlpPolicy, 64-64 tanh, separate", "threads": torch.get_num_threads()},
        "versions": {"python": platform.python_version(), **{p: importlib.metadata.version(p) for p in packages}},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
