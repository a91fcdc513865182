"""How near does training on an Atari game come to what its emulators alone can do?

One process: emulators alone and training take turns, with the same environments in the same processes. Emulators alone
get random actions and are stepped as training steps them. Training is everything: acting, bonus, policy, model. With
several seeds each has its environments, and one's learning hides behind the others' emulators. The learner alone is
bonus, policy and model on a rollout that is there already. Where the time of collecting goes is measured apart. Each
preset has a file of its own, as `arcade_small.json`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
from common import RESULTS, Target, parser, positive, report, say, start_facts, write

NAME, PRESET = "arcade", "paper-code"
#: By platform: training over emulators alone; steps/s of training and of the learner alone, with a GPU and 16 cores.
RATIO, RATE, LEARNER = {"gpu": 0.85, "cpu": 0.5}, 13_500, 90_000


class Case:
    """Lanes of a run, open all the time; those whose turn it is not have nothing to do."""

    def __init__(self, plan: Any) -> None:
        from curiax.train.lanes import open_lanes, run_lanes

        self.plan, self._run = plan, run_lanes
        self.lanes: list[Any] = open_lanes(plan.setup, plan.seeds)
        self.steps = plan.setup.loop.rollout * plan.setup.loop.envs * len(self.lanes)

    def train(self, iterations: int) -> float:
        """Steps per second of training."""
        begun = time.perf_counter()
        for _ in self._run(self.lanes, iterations):
            pass
        return iterations * self.steps / (time.perf_counter() - begun)

    def emulate(self, iterations: int) -> float:
        """Steps per second of the emulators alone, each lane in a thread as in training."""
        rng = np.random.default_rng(0)

        def work(lane: Any) -> None:
            drawn = [rng.integers(lane.task.spec.action.size, size=(64, group.count)) for group in lane.groups]
            for t in range(iterations * lane.setup.loop.rollout):
                for group, actions in zip(lane.groups, drawn, strict=True):
                    if t:
                        group.fleet.end_step()
                    seeds = np.arange(group.count, dtype=np.uint32) + t
                    group.fleet.begin_play(actions[t % 64], seeds, np.zeros(group.count, bool))
            for group in lane.groups:
                group.fleet.end_step()

        threads = [threading.Thread(target=work, args=(lane,)) for lane in self.lanes]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return iterations * self.steps / (time.perf_counter() - begun)

    def learn(self) -> float:
        """Steps per second of the first lane's learner alone, on the rollout that is on the device."""
        import jax

        lane, begun = self.lanes[0], time.perf_counter()
        lane._learn()
        lane.settle()
        jax.block_until_ready(lane.arrays)
        return self.steps / len(self.lanes) / (time.perf_counter() - begun)

    def profile(self) -> dict[str, float]:
        """Seconds of the host in one iteration of the first lane, by what it was doing; the others rest.

        As always the model is still trained on the rollout before when this one begins. Programs run beside the host:
        how long bonus and policy take is told by waiting for them, and what the model's training takes is seen only
        where somebody has to wait for it.
        """
        import jax

        lane, spent = self.lanes[0], Counter[str]()
        lane.iterate()
        jax.block_until_ready(lane.arrays)

        def timed(owner: Any, name: str, label: str) -> Callable[[], None]:
            call = getattr(owner, name)

            def measured(*args: Any) -> Any:
                begun = time.perf_counter()
                result = call(*args)
                if name == "_learn":
                    jax.block_until_ready(lane.arrays)
                spent[label] += time.perf_counter() - begun
                return result

            setattr(owner, name, measured)
            return lambda: setattr(owner, name, call)

        undo = [timed(group.fleet, "end_step", "waiting for emulators") for group in lane.groups]
        undo += [timed(group.fleet, "begin_play", "orders to emulators") for group in lane.groups]
        undo += [timed(lane, "_acted", "frames to the device, actions back")]
        undo += [
            timed(lane, "_train_step", "beginning gradient steps of the model"),
            timed(lane, "_learn", "bonus, policy"),
        ]
        begun = time.perf_counter()
        lane.iterate()
        total = time.perf_counter() - begun
        for restore in undo:
            restore()
        lane.settle()
        return {**spent, "all else": total - sum(spent.values()), "total": total}

    def close(self) -> None:
        """End the emulators."""
        for lane in self.lanes:
            lane.close()


def measure(case: Case, name: str, repeats: int, iterations: int) -> dict[str, Any]:
    """All figures of one case."""
    case.train(2)
    case.emulate(1)
    pairs, learner = [], []
    for repeat in range(repeats):
        pairs.append({"emulators": case.emulate(iterations), "training": case.train(iterations)})
        say(f"repeat {repeat + 1}/{repeats}  {name}: " + ", ".join(f"{k} {v:,.0f}" for k, v in pairs[-1].items()))
    case.learn()
    learner = [case.learn() for _ in range(repeats)]
    return {"pairs": pairs, "learner": learner, "profile": case.profile()}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, write, report."""
    options = parser(__doc__ or "", NAME, repeats=5)
    options.add_argument("--game", default="breakout", help="(default %(default)s)")
    options.add_argument("--method", default="lbs", help="(default %(default)s)")
    options.add_argument("--preset", default=PRESET, help="`small` for a CPU (default %(default)s)")
    options.add_argument("--seeds", type=positive, nargs="+", default=[1, 2], help="of each case (default %(default)s)")
    options.add_argument("--iterations", type=positive, default=4, help="of one turn (default %(default)s)")
    options.add_argument("--mixed", action="store_true", help="with loop.mixed_precision")
    options.set_defaults(out=None)
    args = options.parse_args(argv)
    if args.out is None:
        args.out = RESULTS / f"{NAME if args.preset == PRESET else f'{NAME}_{args.preset}'}.json"

    import jax

    import curiax
    from curiax.train import devices

    facts = start_facts()
    devices.prepare()
    settings = {"loop.mixed_precision": True} if args.mixed else {}
    found = {}
    for seeds in args.seeds:
        plan = curiax.resolve(
            curiax.Experiment(f"atari:{args.game}", args.method, seeds, preset=args.preset, settings=settings)
        )
        case, name = Case(plan), f"{seeds} seed{'s' * (seeds > 1)}"
        try:
            found[name] = measure(case, name, args.repeats, args.iterations)
        finally:
            case.close()
    platform = jax.devices()[0].platform
    table = {
        name: {
            "emulators": median(pair["emulators"] for pair in figures["pairs"]),
            "training": median(pair["training"] for pair in figures["pairs"]),
            "ratio": median(pair["training"] / pair["emulators"] for pair in figures["pairs"]),
            "learner": median(figures["learner"]),
            "profile": figures["profile"],
        }
        for name, figures in found.items()
    }
    bound, device = RATIO.get(platform, RATIO["cpu"]), jax.devices()[0].device_kind
    where = f"{facts['cores']} cores" if platform == "cpu" else device
    what = f"{args.game}, {args.method}, preset {args.preset}, {where}"
    targets = [
        Target(f"{what}, {name}: steps/s of training ÷ emulators alone", row["ratio"], bound, "at least")
        for name, row in table.items()
    ]
    if platform == "gpu" and facts["cores"] >= 16:
        for kind, words, least in (("training", "training", RATE), ("learner", "the learner alone", LEARNER)):
            targets += [
                Target(f"{what}, {name}: steps/s of {words}", row[kind], least, "at least")
                for name, row in table.items()
            ]
    conditions = {name: getattr(args, name) for name in ("game", "method", "preset", "seeds", "iterations", "mixed")}
    conditions |= {"device": device}
    write(args.out, (__doc__ or "").split("\n")[0], facts, conditions, found, table, targets)
    columns = ("case", "emulators/s", "training/s", "ratio", "learner/s")
    rows = [
        [name, f"{row['emulators']:,.0f}", f"{row['training']:,.0f}", f"{row['ratio']:.2f}", f"{row['learner']:,.0f}"]
        for name, row in table.items()
    ]
    report(args.out, columns, rows, targets)


if __name__ == "__main__":
    sys.exit(main())
