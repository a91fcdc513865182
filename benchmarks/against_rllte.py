"""How many more samples per second does `Bonus` reward and train on than rllte-core?

ICM, RND and Disagreement on the CPU, both with all cores, both with networks of the same layers: the same rollout of
8 environments x 256 steps (4 numbers, 3 actions) in, the bonus of every transition out, one pass of training, in
minibatches of 64 (Curiax's default, for which the target holds) and of 256 (rllte-core's). rllte-core's rewards are its
`compute` with `sync`; Curiax's are `reward` and `update`. The two take turns, rllte-core in a process of its own.

Both have four members in their ensembles and show each of them every sample. But rllte-core trains one member on each
minibatch, Curiax all of them: `disagreement-one` is a method that does as rllte-core does, for a comparison of equal
work.

The target is for minibatches of 64. It was measured with 256 alone at first, and missed; but the rates of rllte-core
that the target was set by (35,000, 65,000 and 50,000 samples per second) are its rates with 64.

`learner` is what a `Bonus` is built around: paying and training in one compiled program on arrays that JAX holds
already, without checks, statistics, scale, or anything that goes in or out.

With `--sizes rllte` both have rllte-core's own layers, 256 and 128 wide. Then products of large matrices take the time,
which are as fast in torch as in XLA: the ratio says how much else there is.

rllte-core is not among Curiax's dependencies. Install it in an environment of its own and name its Python:

    python3.11 -m venv /tmp/rllte
    /tmp/rllte/bin/pip install rllte-core==1.0.1  # minutes, and a torch of its own choice, with CUDA
    python benchmarks/against_rllte.py --rllte-python /tmp/rllte/bin/python
"""

from __future__ import annotations

import functools
import itertools
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
ENVS, STEPS, SIZE, ACTIONS = 8, 256, 4, 3
#: Sizes of minibatches: Curiax's default, which the target is for, and rllte-core's.
BATCHES = (64, 256)
NAMES = ("icm", "rnd", "disagreement", "disagreement-one")


class Peer:
    """rllte-core in a process of its own, asked line by line."""

    def __init__(self, python: str, sizes: str) -> None:
        shape = {"envs": ENVS, "steps": STEPS, "observation": SIZE, "actions": ACTIONS}
        options = [text for name, value in shape.items() for text in (f"--{name}", str(value))]
        options += ["--batches", *map(str, BATCHES)]
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
        self.environment = json.loads(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            commands = (__doc__ or "").partition("    python3.11")[1:]
            lines = self._process.stderr.read().strip().splitlines()[-1:]
            raise SystemExit(f"rllte-core could not be run: {''.join(lines)}\n\n{''.join(commands).rstrip()}\n")
        return line

    def seconds(self, method: str, batch: int, times: int) -> float:
        """Seconds of so many rollouts."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{method} {batch} {times}\n")
        self._process.stdin.flush()
        return float(self._answer())


def one_member() -> type:
    """Disagreement that trains one member, drawn anew, on each minibatch, as rllte-core does."""
    import jax
    import jax.numpy as jnp

    from curiax.curiosity import AbstractCuriosity, Disagreement
    from curiax.nn import join

    class OneMember(Disagreement):
        """See `one_member`."""

        shares_key = True

        def draw(self, key: Any) -> Any:
            return jax.random.randint(key, (), 0, self.members.layers[0].bias.shape[0])

        losses = AbstractCuriosity.losses

        def loss(self, t: Any, *, draw: Any) -> Any:
            member = jax.tree.map(lambda leaf: leaf[draw], self.members)
            guess = member(join(self.target(t.obs), self.spec.action.vector(t.action)))
            return jnp.mean((guess - self.target(t.next_obs)) ** 2), {}

    return OneMember


def learning(batch: int) -> dict[str, Any]:
    """One pass of Adam, as rllte-core trains."""
    return {"epochs": 1, "minibatch_size": batch, "learning_rate": 1e-3}


def settings_of(name: str, sizes: str) -> dict[str, Any]:
    """The settings of a method that make its networks those of rllte-core's."""
    settings: dict[str, Any] = {} if sizes == "curiax" else {"width": 256}
    if sizes == "rllte" and name in ("icm", "rnd"):
        settings["feature_size"] = 128
    return settings | ({"ensemble_size": 4, "keep": 1.0} if name.startswith("disagreement") else {})


def rollout() -> tuple[np.ndarray, ...]:
    """Observations, actions, what they led to, and that nothing ended."""
    rng, lead = np.random.default_rng(0), (STEPS, ENVS)
    obs, next_obs = (rng.normal(size=(*lead, SIZE)).astype(np.float32).clip(-9, 9) for _ in range(2))
    return obs, rng.integers(ACTIONS, size=lead), next_obs, np.zeros(lead, bool), np.zeros(lead, bool)


def repeated(once: Callable[[], Any]) -> Callable[[int], float]:
    """A function that does something so many times, and says how long it took."""

    def times(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            once()
        return time.perf_counter() - began

    return times


def ours(name: str, sizes: str, batch: int) -> Callable[[int], float]:
    """Rewards and trains on so many rollouts by a `Bonus`."""
    from gymnasium import spaces

    from curiax import Bonus

    method = one_member() if name.endswith("-one") else name
    seen, taken = spaces.Box(-10.0, 10.0, (SIZE,)), spaces.Discrete(ACTIONS)
    settings = settings_of(name, sizes)
    bonus, steps = Bonus(method, seen, taken, num_envs=ENVS, learner=learning(batch), **settings), rollout()

    def once() -> None:
        bonus.reward(*steps)
        bonus.update()

    return repeated(once)


def learner_alone(name: str, sizes: str, batch: int) -> Callable[[int], float]:
    """Rewards and trains on so many rollouts by nothing but the method and its learner."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    from curiax import Discrete, LearnerSettings, Spec
    from curiax._types import Transition
    from curiax.curiosity import Learner, score
    from curiax.experiments.registry import find_method
    from curiax.train.devices import compiler_options

    cls = one_member() if name.endswith("-one") else find_method(name).cls
    model = cls(Spec((SIZE,), Discrete(ACTIONS), None), key=jax.random.key(0), **settings_of(name, sizes))
    obs, action, next_obs, no, _ = map(jnp.asarray, rollout())
    steps = Transition(obs, action.astype(jnp.int32), next_obs, jnp.zeros(no.shape), no, no, ~no)
    learner = Learner(LearnerSettings(**learning(batch)))
    arrays, static = eqx.partition((model, learner.start(model, steps)), eqx.is_array)

    @functools.partial(jax.jit, compiler_options=compiler_options(jax.devices()[0]))
    def both(arrays: Any, key: Any) -> tuple[Any, Any]:
        model, state = eqx.combine(arrays, static)
        paid = score(model, None, steps, key=key)[1]
        model, state, _ = learner.update(model, state, steps, key=key)
        return eqx.filter((model, state), eqx.is_array), paid

    key = jax.random.key(1)

    def once() -> None:
        nonlocal arrays
        arrays, paid = both(arrays, key)
        paid.block_until_ready()

    return repeated(once)


def main() -> None:
    """Measure, write, show."""
    options = parser(__doc__ or "", NAME, repeats=9)
    options.add_argument("--rllte-python", default=sys.executable, help="a Python that has rllte-core")
    options.add_argument("--rollouts", type=positive, default=100, help="rollouts of each repeat (default %(default)s)")
    options.add_argument("--sizes", choices=("curiax", "rllte"), default="curiax", help="whose layers (%(default)s)")
    args = options.parse_args()
    facts = start_facts()
    peer = Peer(args.rllte_python, args.sizes)
    cases: dict[str, Callable[[], float]] = {}
    for name, batch in itertools.product(NAMES, BATCHES):
        theirs = name.removesuffix("-one")
        for kind, made in (("curiax", ours), ("learner", learner_alone)):
            train = made(name, args.sizes, batch)
            train(2)  # warm
            cases[f"{kind} {name} {batch}"] = lambda train=train: train(args.rollouts)
        if theirs == name:
            peer.seconds(name, batch, 2)
            cases[f"rllte {name} {batch}"] = lambda case=(name, batch): peer.seconds(*case, args.rollouts)
    seconds = interleave(cases, args.repeats)
    samples = args.rollouts * STEPS * ENVS
    rates = {name: samples / float(np.median(each)) for name, each in seconds.items()}
    summary: dict[str, dict[str, dict[str, float]]] = {}
    for batch, name in itertools.product(BATCHES, NAMES):
        theirs = rates[f"rllte {name.removesuffix('-one')} {batch}"]
        mine, most = (rates[f"{kind} {name} {batch}"] for kind in ("curiax", "learner"))
        summary.setdefault(f"minibatch {batch}", {})[name] = {
            "rllte": theirs,
            "curiax": mine,
            "ratio": mine / theirs,
            "learner_ratio": most / theirs,
        }
    targets = [
        Target(f"Bonus / rllte-core, {name}, minibatch {BATCHES[0]}, samples/s", found["ratio"], BOUND, "at least")
        for name, found in summary[f"minibatch {BATCHES[0]}"].items()
        if not name.endswith("-one")
    ]
    settings = {
        "environments": ENVS,
        "steps": STEPS,
        "observation": SIZE,
        "actions": ACTIONS,
        "minibatches": BATCHES,
        "sizes": args.sizes,
        "rllte": peer.environment,
        "jax_threads": os.cpu_count(),
    }
    write(args.out, (__doc__ or "").splitlines()[0], facts, settings, {"seconds": seconds}, summary, targets)
    rows = [
        (
            f"{name}, {of}",
            f"{found['rllte']:,.0f}",
            f"{found['curiax']:,.0f}",
            found["ratio"],
            found["learner_ratio"],
        )
        for of, lines in summary.items()
        for name, found in lines.items()
    ]
    header = (f"{args.sizes}'s layers", "rllte-core", "Curiax", "ratio", "learner alone")
    report(args.out, header, rows, targets)


if __name__ == "__main__":
    main()
