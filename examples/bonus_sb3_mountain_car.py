"""Stable-Baselines3's PPO on a sparse Mountain Car: with and without LBS, who finds the flag?

The car has 100 steps to swing out of its valley, and is paid 1 for each step at the flag, 0 anywhere else. How many
seeds reached it, and how the settings were chosen, is in docs/howto-sb3.md. Needs Stable-Baselines3:
`pip install 'curiax[sb3]'`.

    python bonus_sb3_mountain_car.py                                  # one seed, with and without bonus
    python bonus_sb3_mountain_car.py --seeds 0 1 2 --json out.json    # more of them, kept
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import curiax
from curiax.integrations.sb3 import CuriousVecEnv, UpdateBonus

ENVS, STEPS = 16, 40_960
#: Of both agents. Rollouts of 512 transitions: the bonus is trained as often as the policy, and has to keep up with it.
#: Where nothing is paid, nothing shall be learnt: neither normalised advantages nor Adam, which divides by the size of
#: the gradients, may make the noise of the critic as large as a reward. No entropy bonus widens the policy either.
AGENT: dict[str, Any] = {
    "n_steps": 32,
    "batch_size": 64,
    "n_epochs": 5,
    "learning_rate": 5e-4,
    "normalize_advantage": False,
    "ent_coef": 0.0,
    "policy_kwargs": {"optimizer_kwargs": {"eps": 1e-3}},
}
BONUS: dict[str, Any] = {"beta": 2.0, "learner": {"learning_rate": 1e-3}}
#: Of the bonus: advantages that are not normalised are as large as what is paid.
WEIGHT = 5.0


class Flags(BaseCallback):
    """Notes each episode's end and whether the flag was reached, by the task's own reward, which `Monitor` counts."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[tuple[int, bool]] = []

    def _on_step(self) -> bool:
        ended = [info["episode"] for info in self.locals["infos"] if "episode" in info]
        self.ends += [(self.num_timesteps, episode["r"] > 0) for episode in ended]
        return True


def train(seed: int, curious: bool, steps: int) -> dict[str, Any]:
    """Train one agent; when it first reached the flag, and how often in the last tenth of its training."""
    began = time.process_time()
    venv = make_vec_env("curiax/MountainCarSparse-v0", n_envs=ENVS, seed=seed)
    flags = Flags()
    callbacks: list[BaseCallback] = [flags]
    if curious:
        bonus = curiax.Bonus("lbs", venv.observation_space, venv.action_space, num_envs=ENVS, seed=seed, **BONUS)
        venv = CuriousVecEnv(venv, bonus, weight=WEIGHT)
        callbacks.append(UpdateBonus())
    model = PPO("MlpPolicy", VecNormalize(venv, norm_reward=False), seed=seed, device="cpu", **AGENT)
    model.learn(steps, callback=callbacks)
    last = [reached for step, reached in flags.ends if step > 0.9 * steps]
    return {
        "seed": seed,
        "first_reached": next((step for step, reached in flags.ends if reached), None),
        "share_of_last_episodes": round(sum(last) / len(last), 3),
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def main() -> None:
    """Train with and without bonus, and say who reached the flag."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--json", type=Path, help="write the results here")
    options = parser.parse_args()
    torch.set_num_threads(1)  # more only wait for each other: the networks are small
    results = {}
    for name, curious in (("ppo", False), ("ppo with lbs", True)):
        results[name] = rows = []
        for seed in options.seeds:
            rows.append(train(seed, curious, options.steps))
            print(f"{name:12s} {rows[-1]}", flush=True)
    for name, rows in results.items():
        reached = sum(row["first_reached"] is not None for row in rows)
        print(f"{name:12s} flag reached by {reached} of {len(rows)} seeds")
    if options.json:
        packages = ("curiax", "stable-baselines3", "torch", "jax", "gymnasium", "numpy")
        versions = {name: importlib.metadata.version(name) for name in packages}
        about = {
            "command": " ".join(["python", "examples/bonus_sb3_mountain_car.py", *sys.argv[1:]]),
            "task": "curiax/MountainCarSparse-v0",
            "steps": options.steps,
            "versions": {"python": platform.python_version(), **versions},
        }
        settings = {"envs": ENVS, "agent": AGENT, "method": "lbs", "bonus": BONUS, "weight": WEIGHT}
        options.json.write_text(json.dumps({**about, **settings, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
