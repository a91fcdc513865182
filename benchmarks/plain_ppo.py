"""Does plain PPO learn from a task's own reward by default, as Stable-Baselines3's does?

`curiax run gymnasium:TASK --method none` with the default preset and nothing else, against Stable-Baselines3's PPO with
its own defaults, on Gymnasium's tasks. What is measured of both is the undiscounted return of the episodes of training,
actions drawn from the policy: the mean over those that ended in each rollout of 2048 steps. `at 30k` is the last
rollout that was over by 30,000 steps, `end` the mean of the rollouts of the last tenth. Reported are seeds 0 to 4; the
defaults were chosen on seeds from 500 on.

Stable-Baselines3 is not among Curiax's dependencies; `against_sb3.py --help` says how to install it in an environment
of its own. Without `--sb3-python` Curiax is measured alone. Nothing is timed here, so the machine need not be quiet.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, Target, fresh_python, positive, report, say, start_facts, write

NAME = "plain_ppo"
WORKER = Path(__file__).with_name("plain_ppo_worker.py")
ROLLOUT, EARLY = 2048, 30_000
#: Steps of each task, and bounds on the mean return: early, and in the end.
TASKS: dict[str, tuple[int, float | None, float | None]] = {
    "CartPole-v1": (100_000, 400.0, 475.0),
    "InvertedPendulum-v5": (100_000, None, 1000.0),
    "Pendulum-v1": (200_000, None, -250.0),
    "Acrobot-v1": (100_000, None, None),
}
#: What is measured beside the defaults: settings of their own, by task and name.
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {"CartPole-v1": {"curiax, value clipped": {"ppo.clip_value": True}}}


def ours(task: str, steps: int, seeds: int, changed: dict[str, Any] | None = None) -> dict[str, Any]:
    """Curiax's returns `[seeds, rollouts]`."""
    import curiax

    begun = time.perf_counter()
    experiment = curiax.Experiment(f"gymnasium:{task}", "none", seeds=seeds, steps=steps, settings=changed or {})
    result = curiax.run(experiment)
    returns = result.metrics["reward/episode_return"].to_numpy().reshape(seeds, -1)
    assert result.plan.settings["loop.rollout"] * result.plan.settings["loop.envs"] == ROLLOUT
    return {"seconds": time.perf_counter() - begun, "returns": returns, "settings": dict(result.plan.settings)}


def theirs(task: str, steps: int, seeds: int, python: str, jobs: int) -> dict[str, Any]:
    """Stable-Baselines3's returns `[seeds, rollouts]`, a fresh process for each seed."""

    def one(seed: int) -> dict[str, Any]:
        arguments = [str(WORKER), "--task", task, "--seed", str(seed), "--steps", str(steps)]
        result = json.loads(fresh_python(arguments, python=python).splitlines()[-1])
        assert result["rollout"] == ROLLOUT
        say(f"{task}: SB3 seed {seed}, {result['seconds']:.0f} s")
        return result

    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(one, range(seeds)))
    returns = np.stack([by_rollout(one["ended"], steps // ROLLOUT) for one in results])
    return {"seconds": sum(one["seconds"] for one in results), "returns": returns, "versions": results[0]["versions"]}


def by_rollout(ended: list[tuple[int, float]], rollouts: int) -> np.ndarray:
    """The mean return of the episodes that ended in each rollout; on these tasks some end in every one."""
    of_rollout = [[value for step, value in ended if (step - 1) // ROLLOUT == k] for k in range(rollouts)]
    return np.asarray([np.mean(values) for values in of_rollout])


def early(returns: np.ndarray) -> np.ndarray:
    """Each seed's return in the last rollout that was over by 30,000 steps."""
    return returns[:, : EARLY // ROLLOUT][:, -1]


def end(returns: np.ndarray) -> np.ndarray:
    """Each seed's mean return over the last tenth."""
    return returns[:, -max(1, returns.shape[1] // 10) :].mean(axis=1)


def main() -> None:
    """Measure, write, show."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=RESULTS / f"{NAME}.json", help="JSON file (default %(default)s)")
    options.add_argument("--sb3-python", help="a Python that has Stable-Baselines3")
    options.add_argument("--seeds", type=positive, default=5, help="seeds 0, 1, ... of each (default %(default)s)")
    options.add_argument("--steps", type=positive, help="steps of each task (default: its own)")
    options.add_argument("--jobs", type=positive, default=2, help="seeds of SB3 side by side (default %(default)s)")
    options.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="which of the tasks")
    args = options.parse_args()

    facts, targets, rows = start_facts(), [], []
    kept = json.loads(args.out.read_text()) if args.out.exists() else {}
    # What is there of other tasks stays, with the commit that it is of.
    repeats, summary, settings = (dict(kept.get(name, {})) for name in ("repeats", "summary", "settings"))
    targets += [
        Target(old["name"], old["measured"], old["bound"], old["kind"])
        for old in kept.get("targets", [])
        if old["name"].partition(",")[0] not in args.tasks
    ]
    settings["seeds"] = args.seeds
    for task in args.tasks:
        steps, bound_early, bound_end = TASKS[task]
        steps = args.steps or steps
        cases = {"curiax": ours(task, steps, args.seeds)}
        cases |= {name: ours(task, steps, args.seeds, changed) for name, changed in VARIANTS.get(task, {}).items()}
        say(f"{task}: Curiax, {args.seeds} seeds, {cases['curiax']['seconds']:.0f} s")
        settings[task] = {"steps": steps, "curiax": cases["curiax"]["settings"], "commit": facts["commit"]}
        if args.sb3_python:
            cases["sb3"] = theirs(task, steps, args.seeds, args.sb3_python, args.jobs)
            settings["sb3_versions"] = cases["sb3"]["versions"]
        repeats[task] = {
            name: {"seconds": round(case["seconds"], 1), "returns": np.round(case["returns"], 2).tolist()}
            for name, case in cases.items()
        }
        summary[task] = {
            name: {
                "early": early(case["returns"]).round(2).tolist(),
                "end": end(case["returns"]).round(2).tolist(),
            }
            for name, case in cases.items()
        }
        for moment, bound in (("early", bound_early), ("end", bound_end)):
            if bound is not None:
                words = f"at {EARLY // 1000}k steps" if moment == "early" else f"in the end of {steps // 1000}k steps"
                measured = float(np.mean(summary[task]["curiax"][moment]))
                targets.append(Target(f"{task}, method none: return {words}", measured, bound, "at least"))
        for name, found in summary[task].items():
            means = [f"{np.mean(found[moment]):,.1f}" for moment in ("early", "end")]
            rows.append((f"{task}, {name}", *means, " ".join(f"{value:,.0f}" for value in found["end"])))
        # After each task, since all of them take an hour.
        write(args.out, (__doc__ or "").splitlines()[0], facts, settings, repeats, summary, targets)
    report(args.out, (f"{args.seeds} seeds", "at 30k", "end", "end, seed by seed"), rows, targets)


if __name__ == "__main__":
    main()
