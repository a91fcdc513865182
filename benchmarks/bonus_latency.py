"""How long does `Bonus.reward` take for one step of 8 environments with vector observations?

Every method, observations of 4 numbers, 3 actions, after warm-up and one update: the case of an agent that asks at
every step. The methods take turns; the median of all calls counts. NumPy arrays in, NumPy array out, all checks of the
input included.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from common import Target, interleave, parser, positive, report, start_facts, write

NAME = "bonus_latency"
BOUND = 0.5
ENVS, SIZE, ACTIONS = 8, 4, 3


def asking(method: str, calls: int) -> tuple[Callable[[], float], list[float]]:
    """A function that asks `calls` times, and the list to which it adds the milliseconds of each."""
    from gymnasium import spaces

    from curiax import Bonus

    seen, taken = spaces.Box(-np.inf, np.inf, (SIZE,)), spaces.Discrete(ACTIONS)
    bonus, rng = Bonus(method, seen, taken, num_envs=ENVS, horizon=200), np.random.default_rng(0)
    taken_ms: list[float] = []

    def steps(count: int) -> list[tuple[np.ndarray, ...]]:
        return [
            (
                rng.normal(size=(ENVS, SIZE)).astype(np.float32),
                rng.integers(ACTIONS, size=ENVS),
                rng.normal(size=(ENVS, SIZE)).astype(np.float32),
                np.zeros(ENVS, bool),
                rng.random(ENVS) < 0.01,
            )
            for _ in range(count)
        ]

    def ask() -> float:
        began = time.perf_counter()
        for step in steps(calls):
            before = time.perf_counter()
            bonus.reward(*step)
            taken_ms.append(1e3 * (time.perf_counter() - before))
        bonus.discard()
        return time.perf_counter() - began

    for step in steps(64):
        bonus.reward(*step)
    bonus.update()
    ask()
    taken_ms.clear()
    return ask, taken_ms


def main() -> None:
    """Measure, write, show."""
    options = parser(__doc__ or "", NAME, repeats=5)
    options.add_argument("--calls", type=positive, default=500, help="calls of each repeat (default %(default)s)")
    args = options.parse_args()
    facts = start_facts()
    from curiax.experiments.registry import METHODS

    names = list({entry.cls: name for name, entry in reversed(METHODS.items()) if entry.cls}.values())
    cases = {name: asking(name, args.calls) for name in sorted(names)}
    interleave({name: ask for name, (ask, _) in cases.items()}, args.repeats)
    summary = {
        name: {"median_ms": float(np.median(each)), "p99_ms": float(np.percentile(each, 99))}
        for name, (_, each) in cases.items()
    }
    slowest = max(summary, key=lambda name: summary[name]["median_ms"])
    targets = [
        Target(
            f"Bonus.reward, 8 environments, slowest method ({slowest}), ms",
            summary[slowest]["median_ms"],
            BOUND,
            "at most",
        )
    ]
    settings = {"environments": ENVS, "observation": SIZE, "actions": ACTIONS, "calls": args.calls}
    # Every 25th call of each method: enough to see how they are spread.
    repeats = {name: each[::25] for name, (_, each) in cases.items()}
    write(args.out, (__doc__ or "").splitlines()[0], facts, settings, repeats, summary, targets)
    rows = [(name, f"{row['median_ms']:.3f}", f"{row['p99_ms']:.3f}") for name, row in summary.items()]
    report(args.out, ("method", "median, ms", "99 %, ms"), rows, targets)


if __name__ == "__main__":
    main()
