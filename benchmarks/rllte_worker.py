"""rllte-core's bonuses, timed; started by `against_rllte.py`: a case comes in, its seconds go out.

A case is a line: method, minibatch, number of rollouts. Runs in an environment that has torch and rllte-core but need
not have Curiax. rllte-core's own code computes and trains (`compute` with `sync`, then its reward scaling); with
`--sizes curiax` the networks inside are replaced by ones with Curiax's layers.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import platform
import sys
import time
import types
from typing import Any

import torch
from gymnasium import spaces
from rllte.xplore.reward import ICM, RND, Disagreement
from torch import nn


class Joined(nn.Module):
    """A chain of linear layers on all its inputs side by side."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.chain = nn.Sequential(*layers[:-1])

    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        return self.chain(torch.cat(parts, dim=-1))


def resized(reward: Any, size: int, actions: int, width: int) -> None:
    """Put networks of Curiax's sizes in the place of rllte-core's, each with a fresh optimiser."""

    def adam(net: nn.Module) -> torch.optim.Adam:
        return torch.optim.Adam(net.parameters(), lr=1e-3)

    if isinstance(reward, ICM):
        reward.encoder = Joined(size, width, width, size)
        reward.im = Joined(2 * size, width, actions)
        reward.fm = Joined(size + actions, width, width, size)
        reward.encoder_opt, reward.im_opt, reward.fm_opt = adam(reward.encoder), adam(reward.im), adam(reward.fm)
    elif isinstance(reward, RND):
        reward.target = Joined(size, width, width, width).requires_grad_(False)
        reward.predictor = Joined(size, width, width, width, width)
        reward.opt = adam(reward.predictor)
    else:
        reward.random_encoder = nn.Identity()
        reward.ensemble = [Joined(size + actions, width, width, size) for _ in range(reward.ensemble_size)]
        reward.opt = [adam(net) for net in reward.ensemble]


def main() -> None:
    """Answer until the input ends."""
    options = argparse.ArgumentParser(description=__doc__)
    for name, default in (("envs", 8), ("steps", 256), ("observation", 4), ("actions", 3)):
        options.add_argument(f"--{name}", type=int, default=default)
    options.add_argument("--batches", type=int, nargs="+", default=[64, 256], help="sizes of minibatches")
    options.add_argument("--width", type=int, default=32, help="hidden units where the sizes are Curiax's")
    options.add_argument("--sizes", choices=("curiax", "rllte"), default="curiax")
    args = options.parse_args()
    torch.set_num_threads(torch.get_num_threads())
    envs = types.SimpleNamespace(
        num_envs=args.envs,
        observation_space=spaces.Box(-10.0, 10.0, (args.observation,)),
        action_space=spaces.Discrete(args.actions),
        unwrapped=types.SimpleNamespace(num_envs=args.envs),
    )
    lead = (args.steps, args.envs)
    samples = {
        "observations": torch.randn(*lead, args.observation),
        "actions": torch.randint(0, args.actions, (*lead, 1)),
        "rewards": torch.zeros(lead),
        "terminateds": torch.zeros(lead),
        "truncateds": torch.zeros(lead),
        "next_observations": torch.randn(*lead, args.observation),
    }
    flat = {**samples, "actions": samples["actions"][..., 0]}
    cases: dict[tuple[str, int], tuple[Any, dict[str, torch.Tensor]]] = {}
    kinds = (("icm", ICM), ("rnd", RND), ("disagreement", Disagreement))
    for (name, cls), batch in itertools.product(kinds, args.batches):
        reward = cls(envs, device="cpu", obs_norm_type="none", batch_size=batch)
        if args.sizes == "curiax":
            resized(reward, args.observation, args.actions, args.width)
        cases[name, batch] = reward, flat if name == "disagreement" else samples
    packages = ("torch", "rllte-core", "gymnasium", "numpy")
    versions = {"python": platform.python_version(), **{p: importlib.metadata.version(p) for p in packages}}
    print(json.dumps({"versions": versions, "threads": torch.get_num_threads()}), flush=True)
    for line in sys.stdin:
        name, batch, times = line.split()
        reward, given = cases[name, int(batch)]
        began = time.perf_counter()
        for _ in range(int(times)):
            reward.compute(given)
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
