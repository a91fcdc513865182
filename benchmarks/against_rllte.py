"""How many more samples per second does `Bonus` reward and train on than rllte-core?

ICM, RND and Disagreement on the CPU, both with all cores, both with networks of the same layers: the same rollout of
8 environments x 256 steps (4 numbers, 3 actions) in, the bonus of every transition out, one pass of training in
minibatches of 256. rllte-core's rewards are its `compute` with `sync`; Curiax's are `reward` and `update`. The two
take turns, rllte-core in a process of its own. rllte-core trains one member of its ensemble on each minibatch, Curiax
all of them: `disagreement-one` is a method that does as rllte-core does, for a comparison of equal work.

With `--sizes rllte` both have rllte-core's own layers, 256 and 128 wide. Then products of large matrices take the time,
which are as fast in torch as in XLA: the ratio says how much else there is.

rllte-core is not among Curiax's dependencies. Install it in an environment of its own and name its Python:

    python3.11 -m venv /tmp/rllte
    /tmp/rllte/bin/pip install rllte-core==1.0.1  # minutes, and a torch of its own choice, with CUDA
    python benchmarks/against_rllte.py --rllte-python /tmp/rllte/bin/python
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import Target, interleave, parser, positive, report, start_facts, write

NAME = "against_rllte"
BOUND = 10.0
WORKER = Path(__file__).with_name("rllte_worker.py")
ENVS, STEPS, SIZE, ACTIONS, BATCH = 8, 256, 4, 3, 256


class Peer:
    """rllte-core in a process of its own, asked line by line."""

    def __init__(self, python: str, sizes: str) -> None:
        shape = {"envs": ENVS, "steps": STEPS, "observation": SIZE, "actions": ACTIONS, "batch": BATCH}
        options = [text for name, value in shape.items() for text in (f"--{name}", str(value))]
        try:
            self._process = subprocess.Popen(
                [python, str(WORKER), *options, "--sizes", sizes],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            raise SystemExit(f"--rllte-python {python}: {error.strerror}") from None
        self.said = json.loads(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            commands = (__doc__ or "").partition("    python3.11")[1:]
            said = self._process.stderr.read().strip().splitlines()[-1:]
            raise SystemExit(f"rllte-core could not be run: {''.join(said)}\n\n{''.join(commands).rstrip()}\n")
        return line

    def seconds(self, method: str, times: int) -> float:
        """Seconds of so many rollouts."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{method} {times}\n")
        self._process.stdin.flush()
        return float(self._answer())


def one_member() -> type:
    """Disagreement that trains one member, drawn anew, on each minibatch, as rllte-core does."""
    import jax
    import jax.numpy as jnp

    from curiax.curiosity import Disagreement
    from curiax.nn import join

    class OneMember(Disagreement):
        """See `one_member`."""

        shares_key = True

        def draw(self, key: Any) -> Any:
            return jax.random.randint(key, (), 0, self.members.layers[0].bias.shape[0])

        def loss(self, t: Any, *, draw: Any) -> Any:
            member = jax.tree.map(lambda leaf: leaf[draw], self.members)
            guess = member(join(self.target(t.obs), self.spec.action.vector(t.action)))
            return jnp.mean((guess - self.target(t.next_obs)) ** 2), {}

    return OneMember


def ours(method: Any, sizes: str) -> Callable[[int], float]:
    """A function that rewards and trains on so many rollouts, and says how long it took."""
    from gymnasium import spaces

    from curiax import Bonus, LearnerSettings

    wide: dict[str, Any] = {} if sizes == "curiax" else {"width": 256}
    if sizes == "rllte" and method in ("icm", "rnd"):
        wide["feature_size"] = 128
    learner = LearnerSettings(epochs=1, minibatch_size=BATCH, learning_rate=1e-3)
    seen, taken = spaces.Box(-10.0, 10.0, (SIZE,)), spaces.Discrete(ACTIONS)
    bonus = Bonus(method, seen, taken, num_envs=ENVS, learner=learner, **wide)
    rng, lead = np.random.default_rng(0), (STEPS, ENVS)
    obs, next_obs = (rng.normal(size=(*lead, SIZE)).astype(np.float32).clip(-9, 9) for _ in range(2))
    steps = (obs, rng.integers(ACTIONS, size=lead), next_obs, np.zeros(lead, bool), np.zeros(lead, bool))

    def train(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            bonus.reward(*steps)
            bonus.update()
        return time.perf_counter() - began

    return train


def main() -> None:
    """Measure, write, show."""
    options = parser(__doc__ or "", NAME, repeats=5)
    options.add_argument("--rllte-python", default=sys.executable, help="a Python that has rllte-core")
    options.add_argument("--rollouts", type=positive, default=30, help="rollouts of each repeat (default %(default)s)")
    options.add_argument("--sizes", choices=("curiax", "rllte"), default="curiax", help="whose layers (%(default)s)")
    args = options.parse_args()
    facts = start_facts()
    peer = Peer(args.rllte_python, args.sizes)
    mine = {name: ours(name, args.sizes) for name in ("icm", "rnd", "disagreement")}
    mine["disagreement-one"] = ours(one_member(), args.sizes)
    cases: dict[str, Callable[[], float]] = {}
    for name, train in mine.items():
        theirs = name.removesuffix("-one")
        train(2), peer.seconds(theirs, 2)  # warm
        cases[f"curiax {name}"] = lambda train=train: train(args.rollouts)
        if theirs == name:
            cases[f"rllte {name}"] = lambda name=name: peer.seconds(name, args.rollouts)
    seconds = interleave(cases, args.repeats)
    samples = args.rollouts * STEPS * ENVS
    rates = {name: samples / float(np.median(each)) for name, each in seconds.items()}
    peers = {name: rates[f"rllte {name.removesuffix('-one')}"] for name in mine}
    ratios = {name: rates[f"curiax {name}"] / peers[name] for name in mine}
    targets = [
        Target(f"Bonus / rllte-core, {name}, samples/s", ratio, BOUND, "at least") for name, ratio in ratios.items()
    ]
    settings = {
        "environments": ENVS,
        "steps": STEPS,
        "observation": SIZE,
        "actions": ACTIONS,
        "minibatch": BATCH,
        "sizes": args.sizes,
        "rllte": peer.said,
        "jax_threads": os.cpu_count(),
    }
    summary = {"samples_per_second": rates, "ratio": ratios}
    write(args.out, (__doc__ or "").splitlines()[0], facts, settings, {"seconds": seconds}, summary, targets)
    rows = [(name, f"{peers[name]:,.0f}", f"{rates[f'curiax {name}']:,.0f}", ratio) for name, ratio in ratios.items()]
    report(args.out, (f"{args.sizes}'s layers", "rllte-core", "Curiax", "ratio"), rows, targets)


if __name__ == "__main__":
    main()
