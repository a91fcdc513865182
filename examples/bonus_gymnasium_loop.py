"""A bonus in a plain Gymnasium loop: three lines in an agent that knows nothing of Curiax, each ending in `# curiax`.

The agent is Q-learning with a table: 16 x 16 tiles of position and velocity. The task is Gymnasium's Mountain Car, paid
only where the flag is reached: without a bonus nothing tells the agent that one tile differs from another.

    python bonus_gymnasium_loop.py                 # two seeds, with and without bonus
    python bonus_gymnasium_loop.py --method lbs    # any method of `curiax list`
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np

import curiax

STEPS, ROLLOUT, TILES = 51_200, 256, 16
STEP_SIZE, DISCOUNT, EXPLORE, SWEEPS = 0.3, 0.99, 0.05, 3


def train(method: str | None, seed: int) -> tuple[int, int]:
    """Train one agent: the tiles that it has been to, and how often it reached the flag."""
    env = gymnasium.make("MountainCar-v0")
    low, high = env.observation_space.low, env.observation_space.high
    bonus = method and curiax.Bonus(method, env.observation_space, env.action_space, num_envs=1, seed=seed)  # curiax

    def tile(obs: np.ndarray) -> tuple[int, int]:
        position, velocity = ((obs - low) / (high - low) * TILES).astype(int).clip(0, TILES - 1)
        return position, velocity

    random, values = np.random.default_rng(seed), np.zeros((TILES, TILES, env.action_space.n))
    visited, flags, rollout = set(), 0, []
    obs, _ = env.reset(seed=seed)
    for _ in range(STEPS):
        known = values[tile(obs)]
        best = random.choice(np.flatnonzero(known == known.max()))
        action = best if random.random() > EXPLORE else random.integers(env.action_space.n)
        next_obs, _, terminated, truncated, _ = env.step(int(action))
        rollout.append((obs, action, next_obs, terminated, truncated))
        visited.add(tile(next_obs))
        flags += terminated
        obs = env.reset()[0] if terminated or truncated else next_obs
        if len(rollout) < ROLLOUT:
            continue
        # `next_obs` is what the step led to, also where the episode ended there: here it was never overwritten.
        steps = [np.stack(part)[:, None] for part in zip(*rollout, strict=True)]  # [T, 1, ...]: one environment
        reward = steps[3].astype(float)
        if bonus:
            paid = bonus.reward(*steps)  # curiax
            # Less than usual is a loss: an action that was never tried, worth 0, is better than a dull one.
            reward += 0.1 * (paid - paid.mean())
            bonus.update()  # curiax
        for _ in range(SWEEPS):
            for (obs_, taken, then, end, _), total in zip(rollout[::-1], reward[::-1, 0], strict=True):
                at = (*tile(obs_), taken)
                values[at] += STEP_SIZE * (total + DISCOUNT * values[tile(then)].max() * (not end) - values[at])
        rollout = []
    return len(visited), flags


def main() -> None:
    """Compare, and say how far each came."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="rnd", help="a name from `curiax list`, or module:Class")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    options = parser.parse_args()
    for name, method in (("without bonus", None), (f"with {options.method}", options.method)):
        tiles, flags = zip(*(train(method, seed) for seed in options.seeds), strict=True)
        print(f"{name:14s} tiles visited: {list(tiles)} of 256   flag reached: {list(flags)} times")


if __name__ == "__main__":
    main()
