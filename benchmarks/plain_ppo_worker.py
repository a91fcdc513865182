"""Train Stable-Baselines3's PPO at its defaults on a Gymnasium task; started by `plain_ppo.py`, prints JSON.

Runs in an environment that has torch and Stable-Baselines3 but need not have Curiax.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import time

import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor


class Returns(BaseCallback):
    """The undiscounted return of each episode of training, and the step with which it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[tuple[int, float]] = []

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self.ended.append((self.num_timesteps, float(info["episode"]["r"])))
        return True


def main() -> None:
    """Train one seed and print what its episodes returned."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--task", required=True)
    options.add_argument("--seed", type=int, required=True)
    options.add_argument("--steps", type=int, required=True)
    args = options.parse_args()

    torch.set_num_threads(1)
    model = PPO("MlpPolicy", Monitor(gymnasium.make(args.task)), device="cpu", seed=args.seed)
    returns, begun = Returns(), time.perf_counter()
    model.learn(args.steps, callback=returns)
    packages = ("torch", "stable-baselines3", "gymnasium", "numpy")
    result = {
        "seconds": time.perf_counter() - begun,
        "rollout": model.n_steps,
        "ended": returns.ended,
        "versions": {"python": platform.python_version(), **{p: importlib.metadata.version(p) for p in packages}},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
