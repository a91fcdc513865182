"""How much does training on a host task cost beyond its physics and its learner?

One run on one machine: training of 8 seeds with LBS, physics alone and the learner alone, side by side in every
repeat. Physics alone replays the actions of the training just measured, from the states it went through, along each
path there is; the path with the best median counts. The learner alone repeats the update on the rollout just
collected, with sending it. A profile says where an iteration of one lane goes. Targets are on the medians over the
repeats.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np
from common import Target, parser, positive, report, say, start_facts, write

from curiax import Experiment, resolve
from curiax.train import devices
from curiax.train.hosted import Draws, Lane
from curiax.train.lanes import open_lanes, run_lanes

NAME = "host"
SEEDS, METHOD = 8, "lbs"
#: Task → (iterations of one measurement, bounds of the ratios to the sum and to physics alone).
TASKS = {"half-cheetah": (12, 1.10, 2.2), "ant-maze": (3, None, 1.25)}


def side_by_side(calls: list[Callable[[], None]]) -> float:
    """Seconds until all calls, each in a thread, are done."""
    threads = [threading.Thread(target=call) for call in calls]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun


def replay(batch: Any, state: np.ndarray, actions: np.ndarray, substeps: int) -> Callable[[], None]:
    """Physics alone: the recorded actions from the recorded state."""

    def go() -> None:
        batch.state[:], ctrl = state, batch.ctrl
        for action in actions:
            np.copyto(ctrl, action)
            batch.step(nstep=substeps)

    return go


def physics_paths(lanes: list[Lane], before: list[np.ndarray]) -> dict[str, float]:
    """Steps per second of every path to the same physics."""
    import mujoco
    import mujoco.batch
    import mujoco.rollout

    fleet: Any = lanes[0].fleet
    model, substeps = fleet.model, fleet.SUBSTEPS
    actions = [lane.tape.action.reshape(len(lane.tape.action), -1, model.nu).astype(np.float64) for lane in lanes]
    together, rows = np.concatenate(actions, axis=1), np.concatenate(before)
    steps, count = len(together), together.shape[1]
    cores = devices.cpu_cores()
    found = {}
    for persistent in (True, False):
        word = "kept MjData" if persistent else "shared MjData"
        own = [mujoco.batch.Batch(model, a.shape[1], 1, persistent) for a in actions]
        calls = [replay(b, s, a, substeps) for b, s, a in zip(own, before, actions, strict=True)]
        found[f"a batch for each lane, {word}"] = steps * count / side_by_side(calls)
        one = mujoco.batch.Batch(model, count, cores, persistent)
        found[f"one batch, {cores} threads, {word}"] = (
            steps * count / side_by_side([replay(one, rows, together, substeps)])
        )
    datas = [mujoco.MjData(model) for _ in range(cores)]
    size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS.value)

    def rollouts() -> None:
        state = rows[:, :size]
        with_threads = mujoco.rollout.Rollout(nthread=cores)
        for action in together[: steps // 4]:
            held = np.repeat(action[:, None], substeps, axis=1)
            state = with_threads.rollout([model] * count, datas, state, held)[0][:, -1]
        with_threads.close()

    found[f"mujoco.rollout, {cores} threads"] = (steps // 4) * count / side_by_side([rollouts])
    return found


def profile(lane: Lane) -> dict[str, float]:
    """Seconds of one iteration of a lane by what they went into."""
    clock = time.perf_counter
    spent = dict.fromkeys(("physics", "acting", "statistics", "environment"), 0.0)

    def timed(name: str, call: Callable[..., Any], less: str | None = None) -> Callable[..., Any]:
        def go(*args: Any, **kwargs: Any) -> Any:
            begun, inside = clock(), spent[less] if less else 0.0
            result = call(*args, **kwargs)
            spent[name] += clock() - begun - ((spent[less] - inside) if less else 0.0)
            return result

        return go

    fleet: Any = lane.fleet
    whole = clock()
    draws = Draws(*map(np.asarray, lane._draw(lane.arrays)))
    agent = lane.setup.agent
    actor = agent.host_actor(agent.actor(agent.networks(lane.train_state.agent)), lane.carry, draws.noise)
    drawn = clock() - whole
    kept = {
        (fleet, "_step"): timed("physics", fleet._step),
        (fleet, "step"): None,
        (lane.moments, "merge"): timed("statistics", lane.moments.merge),
    }
    kept[fleet, "step"] = timed("environment", fleet.step, less="physics")
    for (owner, name), call in kept.items():
        setattr(owner, name, call)
    begun = clock()
    lane.collect(timed("acting", actor), draws)
    collected = clock() - begun
    fleet._step = fleet.batch.step
    for owner, name in kept:
        if name != "_step":
            delattr(owner, name)
    begun = clock()
    columns = lane.tape.sent(fleet, lane.placement)
    jax.block_until_ready(columns)
    sent = clock() - begun
    begun = clock()
    lane.arrays, report = lane._learn(lane.arrays, columns, lane.carry)
    jax.block_until_ready(report)
    learnt = clock() - begun
    return {
        **spent,
        "learning": learnt,
        "drawing and sending": drawn + sent,
        "rest": collected - sum(spent.values()),
    }


def measure(task: str, iterations: int, repeats: int) -> dict[str, Any]:
    """Training, physics and learner, repeated in turn."""
    plan = resolve(Experiment(task, METHOD, seeds=SEEDS))
    lanes = open_lanes(plan.setup, plan.seeds)
    list(run_lanes(lanes, 2))
    rollout, rows = plan.setup.loop.rollout, []

    def learn(lane: Lane) -> Callable[[], None]:
        def go() -> None:
            for _ in range(iterations):
                lane.arrays, report = lane._learn(lane.arrays, lane.tape.sent(lane.fleet, lane.placement), lane.carry)
                jax.block_until_ready(report)

        return go

    profiles: list[dict[str, float]] = []
    for _ in range(repeats):
        begun = time.perf_counter()
        list(run_lanes(lanes, iterations))
        training = (time.perf_counter() - begun) / iterations
        before = [lane.fleet.state()["simulation"] for lane in lanes]
        list(run_lanes(lanes, 1))
        paths = physics_paths(lanes, before)
        learner = side_by_side([learn(lane) for lane in lanes]) / iterations
        rows.append({"training": training, "learner": learner, "paths": paths})
        both: list[dict[str, float]] = []
        side_by_side([lambda lane=lane, both=both: both.append(profile(lane)) for lane in lanes])
        profiles += both
        fastest = SEEDS * rollout / max(paths.values())
        say(f"{task}: training {training:.3f} s, physics {fastest:.3f} s, learner {learner:.3f} s per iteration")
    for lane in lanes:
        lane.fleet.close()
    return {"method": METHOD, "seeds": SEEDS, "iterations": iterations, **summary(rows, profiles, SEEDS * rollout)}


def middle(values: list[dict[str, float]]) -> dict[str, float]:
    """The median of each entry."""
    return {name: median(value[name] for value in values) for name in values[0]}


def summary(rows: list[dict[str, Any]], profiles: list[dict[str, float]], steps: int) -> dict[str, Any]:
    """Medians over the repeats; physics by the path that is fastest in the median, so that luck does not choose it."""
    paths = middle([row["paths"] for row in rows])
    best = max(paths, key=lambda name: paths[name])
    for row in rows:
        row["physics"] = steps / row["paths"][best]
    return {
        "seconds": middle([{k: row[k] for k in ("training", "physics", "learner")} for row in rows]),
        "ratio_to_sum": median(row["training"] / (row["physics"] + row["learner"]) for row in rows),
        "ratio_to_physics": median(row["training"] / row["physics"] for row in rows),
        "fastest_path": best,
        "physics_paths": paths,
        "profile": middle(profiles),
        "repeats": rows,
    }


def main() -> None:
    """Measure, write, show."""
    options = parser(__doc__ or "", NAME, repeats=5)
    options.add_argument("--iterations", type=positive, help="iterations of each measurement (default: by task)")
    args = options.parse_args()
    devices.prepare()
    facts = start_facts()
    results, targets = {}, []
    for task, (iterations, to_sum, to_physics) in TASKS.items():
        results[task] = measure(task, args.iterations or iterations, args.repeats)
        if to_sum is not None:
            targets.append(Target(f"{task}: training over physics + learner", results[task]["ratio_to_sum"], to_sum))
        targets.append(Target(f"{task}: training over physics", results[task]["ratio_to_physics"], to_physics))
    best = {f"{task}: {name}": results[task][name] for task in results for name in ("ratio_to_sum", "ratio_to_physics")}
    settings = {"seeds": SEEDS, "method": METHOD, "iterations": args.iterations}
    write(args.out, (__doc__ or "").splitlines()[0], facts, settings, results, best, targets)
    report(args.out, ("what", "median"), list(best.items()), targets)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
