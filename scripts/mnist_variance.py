"""What β does on Noisy MNIST, from the pictures alone: `python scripts/mnist_variance.py results/mnist-variance.json`.

With a linear reconstruction of unit variance, LBS at its best encodes the directions of s′ whose variance λ, given what
can be known of s, lies above β, each at ½ ln(λ/β) nats: the reverse water-filling of rate-distortion theory. The only
thing that s tells here is which kind of transition it is, so λ are the eigenvalues of the covariance of the pictures
that a kind leads to.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from curiax.curiosity.features import Target
from curiax.envs.noisy_mnist import NoisyMNIST, mnist

BETAS = (0.1, 0.5, 1.0, 2.0, 2.5, 5.0, 10.0, 20.0, 30.0)
SEEDS = 5


def nats(variances: np.ndarray, beta: float) -> float:
    """Σ ½ ln(λ/β) over the directions with λ > β."""
    return float(0.5 * np.log(np.maximum(variances / beta, 1.0)).sum())


def of_target(target: Target, ones: np.ndarray, others: np.ndarray) -> dict[str, list[float]]:
    """The variances of what is reconstructed, largest first, after each kind of transition."""
    see = jax.jit(jax.vmap(target))
    found = {"1 → 2…9": others, "0 → 1": ones}
    return {
        kind: np.linalg.eigvalsh(np.cov(np.asarray(see(jnp.asarray(pictures)), np.float64).T))[::-1].tolist()
        for kind, pictures in found.items()
    }


def main() -> None:
    """Eigenvalues and what follows from them for some β, for pixels and for random features of several seeds."""
    pictures, labels = mnist()
    scaled = pictures.astype(np.float32)[..., None] / 255.0
    ones, others = scaled[labels == 1], scaled[labels > 1]
    spec, rng = NoisyMNIST().spec, np.random.default_rng(0)
    half = [group[rng.choice(len(group), 256)] for group in (ones, others)]
    targets = {"pixels": [Target(spec, key=jax.random.key(0), pixels=True)]}
    targets["features"] = [
        Target(spec, key=jax.random.key(seed)).calibrated(jnp.asarray(np.concatenate(half))) for seed in range(SEEDS)
    ]
    results = {}
    for name, several in targets.items():
        each = [of_target(target, ones, others) for target in several]
        top = {kind: float(np.mean([one[kind][0] for one in each])) for kind in each[0]}
        rows = [
            {"beta": beta}
            | {kind: float(np.mean([nats(np.asarray(one[kind]), beta) for one in each])) for kind in each[0]}
            for beta in BETAS
        ]
        results[name] = {"networks": len(each), "largest_variance": top, "nats": rows}
    command = f"python scripts/mnist_variance.py {sys.argv[1]}"
    Path(sys.argv[1]).write_text(json.dumps({"command": command, **results}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
