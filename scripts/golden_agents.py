"""Make the golden files of the present format of trained agents: `python scripts/golden_agents.py tests/data/agents-N`.

Run once for each format, when it is new, and never again: the tests hold every later version of Curiax to reading these
files and to acting and paying as they say. What is expected is computed by the training code, not by the reader.
"""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

import curiax
from curiax import Experiment, Transition
from curiax.curiosity import score, start_memory
from curiax.experiments import saved

#: Small networks, a few iterations: trained, but a few kilobytes.
TINY = {
    "loop.rollout": 128,
    "ppo.minibatch_size": 64,
    "ppo.epochs": 2,
    "ppo.width": 8,
    "learner.minibatch_size": 64,
    "learner.epochs": 2,
}
EXPERIMENTS = {
    "mountain-car-lbs": Experiment(
        "mountain-car", "lbs", seeds=(3, 5), steps=512, settings={**TINY, "method.width": 8}
    ),
    "cart-pole-ngu": Experiment(
        "gymnasium:CartPole-v1",
        "ngu",
        seeds=(0, 4_000_000_000),
        steps=512,
        settings={**TINY, "method.width": 8, "method.feature_size": 4, "method.capacity": 64},
    ),
    "mountain-car-random": Experiment("mountain-car-frozen", "random", seeds=(1,), steps=256, settings=TINY),
}
#: Observations to act on, and transitions to pay for.
ACTED, PAID = 1000, 32


def expected(path: Path) -> dict[str, np.ndarray]:
    """Raw observations and transitions, and what each seed does and pays there."""
    plan, trained = saved.read(path)
    setup, spec = plan.setup, plan.setup.task.spec
    rng = np.random.default_rng(2026)
    mean, deviation = np.asarray(trained.obs_stats.mean[0]), np.sqrt(np.asarray(trained.obs_stats.var[0]))
    obs = (mean + 3.0 * deviation * rng.standard_normal((ACTED, *spec.obs_shape))).astype(np.float32)
    after = (obs + 0.1 * deviation * rng.standard_normal(obs.shape)).astype(np.float32)
    discrete = spec.action.shape == ()
    taken = (
        rng.integers(0, spec.action.size, PAID).astype(np.int32)
        if discrete
        else rng.uniform(spec.action.low, spec.action.high, (PAID, spec.action.size)).astype(np.float32)
    )
    actions, bonuses = [], []
    for seed in trained.seeds:
        one = trained.one(seed)
        agent, model = setup.agent, one.networks.curiosity
        see = lambda x, one=one: setup.normalise(one.obs_stats, jnp.asarray(x))  # noqa: E731
        if plan.method_entry.agent == "ppo":
            still, first = jnp.zeros(spec.action.size), jnp.zeros((), bool)
            greedy = functools.partial(agent.act, agent.actor(one.networks), behaviour="greedy")
            act = jax.vmap(lambda o, greedy=greedy: greedy((), o, first, still)[1])  # noqa: B023
            actions.append(np.asarray(spec.action.executed(act(see(obs)))))
        no = jnp.zeros((PAID, 1), bool)
        steps = Transition(
            see(obs[:PAID])[:, None], jnp.asarray(taken)[:, None], see(after[:PAID])[:, None],
            jnp.zeros((PAID, 1)), no, no, ~no,
        )  # fmt: skip
        key = jax.random.key(0)
        bonuses.append(np.asarray(score(model, start_memory(model, 1), steps, key=key)[1])[:, 0])
    made = {"obs": obs, "next_obs": after[:PAID], "taken": taken, "bonuses": np.stack(bonuses)}
    return made | ({"actions": np.stack(actions)} if actions else {})


def main(out: Path) -> None:
    """Train the experiments and keep their agents with what is expected of them."""
    sys.argv = ["curiax", "run"]
    for name, experiment in EXPERIMENTS.items():
        with tempfile.TemporaryDirectory() as place:
            run = Path(place) / "run"
            curiax.run(experiment, run)
            for entry in sorted(run.iterdir()):
                if entry.name not in ("manifest.json", saved.AGENTS, saved.TENSORS):
                    entry.unlink()
            target = out / name
            shutil.copytree(run, target)
        arrays = {key: np.ascontiguousarray(array) for key, array in expected(target).items()}
        assert all(np.isfinite(array).all() for array in arrays.values())
        safetensors.numpy.save_file(arrays, target / "expected.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
