"""How many steps a second do the emulators of Atari make, beside ale-py's own vector environment?

The same game, number of environments and number of threads (processes, in a fleet), random actions, 84 x 84, four
frames; the cases take turns, each for `--seconds` in every repeat. Two fleets of half the environments each, with all
threads for both, are stepped alternately, as training does it: one works while the other is looked at. The processor's
time of a step counts the processes of the fleet and this one: it tells more than the clock where others use the cores.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import Target, parser, positive, report, say, start_facts, write

from curiax.envs._emulators import EmulatorFleet
from curiax.envs.atari import Atari, actions

NAME, PEER = "emulators", "AtariVectorEnv"
#: Actions drawn beforehand, so that drawing them costs nothing.
DRAWN = 1000
BOUND = 1.0


class Fleets:
    """Some fleets stepped in turn: each begins its next step as soon as the last one has been looked at."""

    def __init__(self, game: str, envs: int, threads: int, parts: int, stacked: bool) -> None:
        task, self.count = Atari(game=game), envs // parts
        self.fleets: list[EmulatorFleet] = [task.open(self.count, threads, stacked=stacked) for _ in range(parts)]
        self._seeds = np.random.default_rng(0).integers(2**32, size=(DRAWN, self.count), dtype=np.uint32)
        self._actions = random_actions(game, self.count)
        self._at = 0
        for fleet in self.fleets:
            fleet.reset(self._seeds[0])

    def start(self) -> None:
        """Have all fleets begin a step."""
        for fleet in self.fleets:
            if fleet.terminated.any():
                fleet.reset(self._seeds[self._at % DRAWN], fleet.terminated.copy())
            fleet.begin_step(self._actions[self._at % DRAWN])

    def step(self) -> int:
        """End the step of the fleet whose turn it is and begin its next; the others work meanwhile."""
        self._at += 1
        fleet, drawn = self.fleets[self._at % len(self.fleets)], self._at % DRAWN
        fleet.end_step()
        if fleet.terminated.any():
            fleet.reset(self._seeds[drawn], fleet.terminated.copy())
        fleet.begin_step(self._actions[drawn])
        return self.count

    def stop(self) -> int:
        """Wait for what has begun, so that nothing is left over for the next one's time."""
        for fleet in self.fleets:
            fleet.end_step()
        return self.count * len(self.fleets)

    def processor(self) -> float:
        """Seconds that the processors have spent on it, and on this process."""
        processes = [process.pid for fleet in self.fleets for process in fleet._processes]
        return time.process_time() + sum(map(spent, processes))

    def close(self) -> None:
        """End the processes."""
        for fleet in self.fleets:
            fleet.close()


class Peer:
    """ale-py's own."""

    def __init__(self, game: str, envs: int, threads: int) -> None:
        from ale_py.vector_env import AtariVectorEnv

        usual: dict[str, Any] = {"use_fire_reset": False, "reward_clipping": False, "repeat_action_probability": 0.0}
        # 4501 steps of the agent, as in the paper.
        usual |= {"stack_num": 4, "frameskip": 4, "noop_max": 30, "max_num_frames_per_episode": 18004}
        self._env: Any = AtariVectorEnv(game, num_envs=envs, num_threads=threads, **usual)
        self._env.reset(seed=0)
        self._actions, self._at, self._count = random_actions(game, envs), 0, envs

    def start(self) -> None:
        """Nothing is begun beforehand."""

    def step(self) -> int:
        """One step of all environments."""
        self._at += 1
        self._env.step(self._actions[self._at % DRAWN])
        return self._count

    def stop(self) -> int:
        """Nothing is left to wait for."""
        return 0

    def processor(self) -> float:
        """Seconds that the processors have spent on this process and its threads."""
        return time.process_time()

    def close(self) -> None:
        """Free the environments."""
        self._env.close()


def random_actions(game: str, envs: int) -> np.ndarray:
    """The same actions for all cases."""
    return np.random.default_rng(1).integers(actions(game), size=(DRAWN, envs)).astype(np.int32)


def spent(process: int) -> float:
    """Seconds that the processors have spent on another process; 0 where the system does not tell."""
    file = Path(f"/proc/{process}/schedstat")
    return int(file.read_text().split()[0]) * 1e-9 if file.exists() else 0.0


def cases(game: str, envs: int, threads: int) -> dict[str, Callable[[], Fleets | Peer]]:
    """What is compared."""
    return {
        PEER: lambda: Peer(game, envs, threads),
        "one fleet": lambda: Fleets(game, envs, threads, 1, True),
        "one fleet, not stacked": lambda: Fleets(game, envs, threads, 1, False),
        "two fleets in turn": lambda: Fleets(game, envs, threads, 2, True),
        "two fleets in turn, not stacked": lambda: Fleets(game, envs, threads, 2, False),
    }


def run_for(case: Fleets | Peer, seconds: float) -> dict[str, float]:
    """Steps per second for some time, and microseconds of the processors for one step of one environment."""
    count, used, begun = 0, case.processor(), time.perf_counter()
    case.start()
    while time.perf_counter() - begun < seconds:
        count += case.step()
    count += case.stop()
    return {
        "rate": count / (time.perf_counter() - begun),
        "microseconds": (case.processor() - used) / count * 1e6,
    }


def measure(game: str, envs: int, threads: int, repeats: int, seconds: float) -> dict[str, list[dict[str, float]]]:
    """Every case in every repeat; all are open all the time, and those whose turn it is not have nothing to do."""
    opened = {name: make() for name, make in cases(game, envs, threads).items()}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in opened}
    try:
        for case in opened.values():
            run_for(case, min(1.0, seconds))
        for repeat in range(repeats):
            for name, case in opened.items():
                found[name].append(run_for(case, seconds))
                say(f"repeat {repeat + 1}/{repeats}  {game}  {name}: {found[name][-1]['rate']:,.0f} steps/s")
    finally:
        for case in opened.values():
            case.close()
    return found


def summary(found: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Medians over the repeats, and of the ratios to ale-py's within each repeat."""
    table = {}
    for name, rows in found.items():
        pairs = [row["rate"] / peer["rate"] for row, peer in zip(rows, found[PEER], strict=True)]
        table[name] = {
            "rate": median(row["rate"] for row in rows),
            "microseconds": median(row["microseconds"] for row in rows),
            "ratio": median(pairs),
            "lowest_pair": min(pairs),
            "highest_pair": max(pairs),
        }
    return table


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, write, report."""
    options = parser(__doc__ or "", NAME, repeats=5)
    options.add_argument("--games", nargs="+", default=["breakout", "qbert"], help="(default %(default)s)")
    options.add_argument("--envs", type=positive, default=128, help="environments (default %(default)s)")
    options.add_argument("--threads", type=positive, help="threads, or processes of a fleet (default: the cores)")
    options.add_argument("--seconds", type=float, default=3.0, help="of one case in one repeat (default %(default)s)")
    args = options.parse_args(argv)
    facts = start_facts()
    threads = args.threads or facts["cores"]
    if args.envs % 2:
        options.error(f"--envs {args.envs}: must be even, as two fleets share them")
    repeats = {game: measure(game, args.envs, threads, args.repeats, args.seconds) for game in args.games}
    table = {game: summary(found) for game, found in repeats.items()}
    best = "two fleets in turn"
    targets = [
        Target(f"{game}: {best}, against {PEER}", rows[best]["ratio"], BOUND, "at least")
        for game, rows in table.items()
    ]
    settings = {"games": args.games, "envs": args.envs, "threads": threads, "seconds": args.seconds}
    write(args.out, (__doc__ or "").split("\n")[0], facts, settings, repeats, table, targets)
    columns = ("case", "steps/s", "µs of processors", "ratio", "lowest", "highest")
    rows = [
        (
            f"{game}: {name}",
            round(row["rate"]),
            *(row[k] for k in ("microseconds", "ratio", "lowest_pair", "highest_pair")),
        )
        for game, found in table.items()
        for name, row in found.items()
    ]
    report(args.out, columns, rows, targets)


if __name__ == "__main__":
    sys.exit(main())
