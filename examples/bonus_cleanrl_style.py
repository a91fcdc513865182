"""PPO in one file, in the style of CleanRL, with a bonus: the lines that were added end in `# curiax`.

The agent is written with JAX and Optax; where yours is written in PyTorch, the same lines go to the same places. The
task is a sparse Mountain Car: 100 steps to swing out of the valley, 1 for each step at the flag, 0 anywhere else. How
other seeds fared is in docs/howto-cleanrl.md.

    python bonus_cleanrl_style.py
    python bonus_cleanrl_style.py --method rnd --seed 3
    python bonus_cleanrl_style.py --picture maps.png    # where both agents have been
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax

import curiax

ENVS, LENGTH, UPDATES, BINS = 16, 32, 120, 20
LEARNER = {"learning_rate": 1e-3}
#: What single methods are given beside; a setting that a method does not have is refused.
SETTINGS = {"lbs": {"beta": 2.0}}
EPOCHS, MINIBATCH, RATE = 10, 64, 1e-3
GAMMA, LAMBDA, CLIP, VALUE = 0.99, 0.95, 0.2, 0.5
#: Of the bonus. Advantages are not normalised: where nothing is paid that would make the critic's noise as large as any
#: reward, and the policy would drift. So they are as large as what is paid.
WEIGHT = 5.0


def layers(random: np.random.Generator, sizes: list[int]) -> list[dict[str, Any]]:
    """Orthogonal weights, the last ones small."""
    net = []
    for k, (n, m) in enumerate(pairwise(sizes)):
        q = np.linalg.qr(random.standard_normal((max(n, m), min(n, m))))[0]
        gain = 0.01 if k == len(sizes) - 2 else np.sqrt(2)
        net.append({"w": jnp.asarray(gain * (q if n >= m else q.T), jnp.float32), "b": jnp.zeros(m)})
    return net


def forward(net: list[dict[str, Any]], x: Any) -> Any:
    """Layers with tanh between them."""
    for layer in net[:-1]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return x @ net[-1]["w"] + net[-1]["b"]


def log_prob(agent: dict[str, Any], obs: Any, action: Any) -> Any:
    """Of a Gaussian policy."""
    z = (action - forward(agent["actor"], obs)) / jnp.exp(agent["log_std"])
    return (-0.5 * z**2 - agent["log_std"] - 0.5 * jnp.log(2 * jnp.pi)).sum(-1)


@jax.jit
def act(agent: dict[str, Any], obs: Any, noise: Any) -> tuple[Any, Any, Any]:
    """Sampled actions, their log-probability, and the values."""
    action = forward(agent["actor"], obs) + jnp.exp(agent["log_std"]) * noise
    return action, log_prob(agent, obs, action), forward(agent["critic"], obs)[:, 0]


# A large epsilon: Adam divides by the size of the gradients, and would make noise large where nothing is paid.
OPTIMISER = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(RATE, eps=1e-3))


@jax.jit
def descend(agent: dict[str, Any], opt_state: Any, batches: tuple[Any, ...]) -> tuple[Any, Any]:
    """All minibatches of a rollout, one gradient step each."""

    def loss(agent: dict[str, Any], batch: tuple[Any, ...]) -> Any:
        obs, action, old, advantage, target = batch
        ratio = jnp.exp(log_prob(agent, obs, action) - old)
        surrogate = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage).mean()
        error = 0.5 * ((forward(agent["critic"], obs)[:, 0] - target) ** 2).mean()
        return VALUE * error - surrogate

    def step(carry: tuple[Any, Any], batch: tuple[Any, ...]) -> tuple[Any, None]:
        agent, opt_state = carry
        changes, opt_state = OPTIMISER.update(jax.grad(loss)(agent, batch), opt_state, agent)
        return (optax.apply_updates(agent, changes), opt_state), None

    return jax.lax.scan(step, (agent, opt_state), batches)[0]


def train(method: str | None, seed: int) -> tuple[np.ndarray, list[bool]]:
    """One training: steps in each bin of position and velocity; of each episode, whether it reached the flag."""
    # Same-step: an episode's last observation is in infos["final_obs"], the next one's first is returned.
    same_step = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
    envs = gymnasium.make_vec("curiax/MountainCarSparse-v0", ENVS, "sync", vector_kwargs=same_step)
    spaces = envs.single_observation_space, envs.single_action_space
    low, high = spaces[0].low, spaces[0].high
    own = SETTINGS.get(method or "", {})
    bonus = method and curiax.Bonus(method, *spaces, num_envs=ENVS, seed=seed, learner=LEARNER, **own)  # curiax

    random = np.random.default_rng(seed)
    agent = {"actor": layers(random, [2, 64, 64, 1]), "critic": layers(random, [2, 64, 64, 1])}
    agent["log_std"] = jnp.zeros(1)
    opt_state = OPTIMISER.init(agent)
    visits, at_flag, flags = np.zeros((BINS, BINS), int), np.zeros(ENVS, bool), []
    obs, _ = envs.reset(seed=seed)
    for _ in range(UPDATES):
        rollout = []
        for _ in range(LENGTH):
            seen = (obs - (low + high) / 2) / ((high - low) / 2)
            action, old, value = map(np.asarray, act(agent, seen, random.standard_normal((ENVS, 1), np.float32)))
            executed = np.clip(action, -1, 1)
            next_obs, reward, terminated, truncated, infos = envs.step(executed)
            ended = terminated | truncated
            last = next_obs.copy()
            if ended.any():
                last[ended] = np.stack(infos["final_obs"][ended])
            at_flag |= reward > 0
            flags += at_flag[ended].tolist()
            at_flag &= ~ended
            if bonus:
                reward = reward + WEIGHT * bonus.reward(obs, executed, last, terminated, truncated)  # curiax
            cell = ((last - low) / (high - low) * BINS).astype(int).clip(0, BINS - 1)
            np.add.at(visits, tuple(cell.T), 1)
            rollout.append((seen, action, old, value, reward, ended))
            obs = next_obs
        if bonus:
            bonus.update()  # curiax

        seen, action, old, value, reward, ended = map(np.stack, zip(*rollout, strict=True))
        next_value = np.asarray(act(agent, (obs - (low + high) / 2) / ((high - low) / 2), np.zeros((ENVS, 1)))[2])
        advantage, trace = np.zeros_like(value), np.zeros(ENVS)
        for t in reversed(range(LENGTH)):
            error = reward[t] + GAMMA * next_value * ~ended[t] - value[t]
            trace = error + GAMMA * LAMBDA * ~ended[t] * trace
            advantage[t], next_value = trace, value[t]
        flat = [x.reshape(LENGTH * ENVS, *x.shape[2:]) for x in (seen, action, old, advantage, advantage + value)]
        order = np.concatenate([random.permutation(LENGTH * ENVS) for _ in range(EPOCHS)]).reshape(-1, MINIBATCH)
        agent, opt_state = descend(agent, opt_state, tuple(x[order].astype(np.float32) for x in flat))
    envs.close()
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
            f"flag reached in {sum(flags)} of {len(flags)} episodes",
            flush=True,
        )
    if options.picture:
        from picture import draw

        draw(options.picture, maps, flag=0.45)


if __name__ == "__main__":
    main()
