"""Record what every method computes, and compare another version of the code with it.

    python scripts/guard.py record FOLDER          short trainings with fixed seeds: metrics and final arrays
    python scripts/guard.py compare FOLDER         the same with the present code, and where it differs

A refactoring must reproduce all of it: to the bit, or to rounding where compiled programs change. `PYTHONPATH` says
which code runs: `PYTHONPATH=/path/to/another/checkout/src`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
from safetensors.numpy import load_file

import curiax
from curiax.experiments.registry import METHODS

Arrays = dict[str, np.ndarray]

#: Settings that make each kind of training short.
SHORT: dict[str, tuple[int, dict[str, Any]]] = {
    "plain": (1024, {"loop.rollout": 256}),
    "mujoco": (512, {"loop.rollout": 128}),
    "mnist": (2048, {}),
    "arcade": (512, {"loop.envs": 4, "loop.rollout": 32}),
}


def trained(task: str, method: str, kind: str, preset: str | None = None, **more: Any) -> Callable[[], Arrays]:
    """What a short training of two seeds leaves behind."""
    steps, settings = SHORT[kind]

    def run() -> Arrays:
        given: dict[str, Any] = {"settings": {**settings, **more}, "seeds": (3, 5) if kind != "arcade" else (3,)}
        if preset:
            given["preset"] = preset
        experiment = curiax.Experiment(task, method, steps=steps, **given)
        with tempfile.TemporaryDirectory() as folder:
            result = curiax.run(experiment, Path(folder) / "run")
            arrays = {f"metrics/{name}": result.metrics[name].to_numpy() for name in result.metrics.columns}
            arrays |= {
                f"agents/{name}": x for name, x in load_file(Path(folder) / "run" / "agents.safetensors").items()
            }
        return arrays

    return run


def bonus(method: str) -> Callable[[], Arrays]:
    """What a stand-alone bonus pays, updates included."""

    def run() -> Arrays:
        rng, box = np.random.default_rng(0), gymnasium.spaces.Box(-5.0, 5.0, (3,), np.float32)
        subject = curiax.Bonus(method, box, gymnasium.spaces.Discrete(4), num_envs=2, seed=1)
        obs = rng.uniform(-4, 4, size=(17, 2, 3)).astype(np.float32)
        action, ended, never = rng.integers(4, size=(16, 2)), np.zeros((16, 2), bool), np.zeros((16, 2), bool)
        ended[9, 1] = True
        found = {}
        for again in range(3):
            found[f"paid/{again}"] = subject.reward(obs[:-1] + again, action, obs[1:] - again, ended, never)
            found |= {f"{name}/{again}": np.asarray(value) for name, value in subject.update().items()}
        return {**found, **{f"state/{k}": np.asarray(x) for k, x in enumerate(leaves(subject.state))}}

    return run


def leaves(tree: Any) -> list[Any]:
    """The arrays of a tree, random keys as their words."""
    arrays = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]
    return [jax.random.key_data(x) if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in arrays]


def cases() -> dict[str, Callable[[], Arrays]]:
    """Everything that is recorded, by name."""
    found: dict[str, Callable[[], Arrays]] = {}
    for method in METHODS:
        found[f"mountain-car/{method}"] = trained("mountain-car", method, "plain")
    for task in ("mountain-car-frozen", "mountain-car-evolving"):
        found[f"{task}/lbs"] = trained(task, "lbs", "plain", "curiax")
    weighed = {"loop.extrinsic_weight": 1.0, "ppo.value_heads": "two"}
    found["mountain-car/lbs weighed"] = trained("mountain-car", "lbs", "plain", **weighed)
    found["mountain-car/lbs replay"] = trained("mountain-car", "lbs", "plain", **{"learner.replay": 2})
    found["mountain-car/icm drop"] = trained("mountain-car", "icm", "plain", **{"loop.successor": "drop"})
    for method in ("lbs", "vime", "ngu"):
        found[f"half-cheetah/{method}"] = trained("half-cheetah", method, "mujoco")
    found["ant-maze/icm"] = trained("ant-maze", "icm", "mujoco")
    found["cartpole/none"] = trained("gymnasium:CartPole-v1", "none", "mujoco")
    found["mnist/lbs"] = trained("mnist", "lbs", "mnist")
    found["mnist/disagreement"] = trained("mnist", "disagreement", "mnist")
    for method in ("lbs", "surprisal"):
        found[f"breakout/{method}"] = trained("atari:breakout", method, "arcade", "small")
    for method in METHODS:
        if method not in ("random", "none"):
            found[f"bonus/{method}"] = bonus(method)
    return found


def differences(before: Arrays, after: Arrays) -> str:
    """How what is computed now differs from what was recorded; empty where it does not, to the bit."""
    lost, new = sorted(set(before) - set(after)), sorted(set(after) - set(before))
    words = [*(f"lost {name}" for name in lost), *(f"new {name}" for name in new)]
    for name in sorted(set(before) & set(after)):
        old, now = before[name], after[name]
        if old.shape != now.shape or old.dtype != now.dtype:
            words.append(f"{name} was {old.dtype}{list(old.shape)}, is {now.dtype}{list(now.shape)}")
        elif old.dtype.kind == "f" and not np.array_equal(old, now, equal_nan=True):
            gap = np.nanmax(np.abs(old - now) / (np.abs(old).max() + 1e-30))
            words.append(f"{name} off by {gap:.1e} of its largest")
        elif old.dtype.kind != "f" and not np.array_equal(old, now):
            words.append(f"{name} differs")
    return "; ".join(words)


def main() -> int:
    """Record or compare; 1 where anything differs."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=("record", "compare"))
    options.add_argument("folder", type=Path)
    options.add_argument("--only", default="", help="cases whose names begin so")
    args = options.parse_args()
    warnings.simplefilter("ignore")
    args.folder.mkdir(parents=True, exist_ok=True)
    print(f"Curiax from {Path(curiax.__file__).parent}, jax {jax.__version__}", flush=True)
    differ = 0
    for name, run in cases().items():
        if not name.startswith(args.only):
            continue
        file = args.folder / f"{name.replace('/', '--').replace(' ', '-')}.npz"
        try:
            found = {key: np.asarray(value) for key, value in run().items()}
        except Exception as error:
            print(f"{'FAILED':9s} {name}: {type(error).__name__}: {error}", flush=True)
            differ += 1
            continue
        if args.what == "record":
            np.savez(file, **{key.replace("/", "|"): value for key, value in found.items()})
            print(f"{'recorded':9s} {name}: {len(found)} arrays", flush=True)
            continue
        with np.load(file) as kept:
            words = differences({key.replace("|", "/"): kept[key] for key in kept.files}, found)
        print(f"{'differs' if words else 'same bits':9s} {name}{': ' + words[:2000] if words else ''}", flush=True)
        differ += bool(words)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
