"""A bonus in a plain Gymnasium loop: three lines in an agent that knows nothing of Curiax, each ending in `# curiax`.

The agent is a linear actor-critic in NumPy: action preferences and values are sums of 8 x 8 bumps over position and
velocity. The task is Gymnasium's Mountain Car, paid only where the flag is reached: without a bonus nothing tells the
agent that one place differs from another. How other seeds fared is in docs/howto-bonus.md.

    python bonus_gymnasium_loop.py
    python bonus_gymnasium_loop.py --method rnd --seed 3    # any method of `curiax list`
    python bonus_gymnasium_loop.py --picture maps.png       # where both agents have been
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gymnasium
import numpy as np

import curiax

STEPS, ROLLOUT, BUMPS, BINS = 102_400, 512, 8, 20
RATE, GAMMA, LAMBDA = 0.3, 0.99, 0.95
LEARNER = {"learning_rate": 1e-3}
#: What single methods are given beside; a setting that a method does not have is refused.
SETTINGS = {"lbs": {"beta": 2.0}}


def features(place: np.ndarray) -> np.ndarray:
    """How near each bump is, of places `[..., 2]` in the unit square; sums to 1."""
    line = np.linspace(0, 1, BUMPS)
    near = np.exp(-0.5 * BUMPS**2 * (place[..., None] - line) ** 2)
    near /= near.sum(-1, keepdims=True)
    return (near[..., 0, :, None] * near[..., 1, None, :]).reshape(*place.shape[:-1], BUMPS**2)


def policy(preferences: np.ndarray) -> np.ndarray:
    """The softmax of what the actions are worth."""
    odds = np.exp(preferences - preferences.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)


def train(method: str | None, seed: int) -> tuple[np.ndarray, list[bool]]:
    """One training: steps in each bin of position and velocity; of each episode, whether it reached the flag."""
    env = gymnasium.make("MountainCar-v0")
    spaces = env.observation_space, env.action_space
    low, size = spaces[0].low, spaces[0].high - spaces[0].low
    own = SETTINGS.get(method or "", {})
    bonus = method and curiax.Bonus(method, *spaces, num_envs=1, seed=seed, learner=LEARNER, **own)  # curiax

    random = np.random.default_rng(seed)
    actor, critic = np.zeros((BUMPS**2, spaces[1].n)), np.zeros(BUMPS**2)
    visits, flags, rollout = np.zeros((BINS, BINS), int), [], []
    obs, _ = env.reset(seed=seed)
    for _ in range(STEPS):
        chances = policy(features((obs - low) / size) @ actor)
        action = int(random.choice(spaces[1].n, p=chances))
        next_obs, _, terminated, truncated, _ = env.step(action)
        rollout.append((obs, action, next_obs, terminated, truncated))
        visits[tuple(((next_obs - low) / size * BINS).astype(int).clip(0, BINS - 1))] += 1
        obs = next_obs
        if terminated or truncated:
            flags.append(terminated)
            obs, _ = env.reset()
        if len(rollout) < ROLLOUT:
            continue

        # `next_obs` is what the step led to, also where the episode ended there: here it was never overwritten.
        steps = [np.stack(part)[:, None] for part in zip(*rollout, strict=True)]  # [T, 1, ...]: one environment
        reward = steps[3].astype(float)  # 1 at the flag
        if bonus:
            reward += bonus.reward(*steps)  # curiax
            bonus.update()  # curiax
        before, actions, after, terminal, cut = (part[:, 0] for part in steps)
        here, there = features((before - low) / size), features((after - low) / size)
        error = reward[:, 0] + GAMMA * (there @ critic) * ~terminal - here @ critic
        advantage, trace = np.zeros(ROLLOUT), 0.0
        for t in reversed(range(ROLLOUT)):
            trace = error[t] + GAMMA * LAMBDA * trace * (not (terminal[t] or cut[t]))
            advantage[t] = trace
        gain = advantage / (advantage.std() + 1e-8)
        actor += RATE * here.T @ (gain[:, None] * (np.eye(spaces[1].n)[actions] - policy(here @ actor)))
        critic += np.linalg.solve(here.T @ here + np.eye(BUMPS**2), here.T @ advantage)  # least squares
        rollout = []
    return visits, flags


def main() -> None:
    """Compare, and say how far each came."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="lbs", help="a name from `curiax list`, or module:Class")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, help="draw where both have been, to this file")
    options = parser.parse_args()
    maps = {}
    for name, method in (("without bonus", None), (f"with {options.method}", options.method)):
        maps[name], flags = train(method, options.seed)
        print(
            f"{name:14s} bins visited: {(maps[name] > 0).sum()} of {BINS**2}   "
            f"flag reached in {sum(flags)} of {len(flags)} episodes, {sum(flags[-20:])} of the last 20",
            flush=True,
        )
    if options.picture:
        from picture import draw

        draw(options.picture, maps, flag=0.5)


if __name__ == "__main__":
    main()
