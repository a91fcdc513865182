"""The tables of everything that was measured: `python benchmarks/tables.py` writes `results/benchmarks/README.md`.

Each benchmark does so when it has written its figures. The documents show the sections, by their headings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from curiax._text import markdown_table

RESULTS = Path(__file__).parent.parent / "results" / "benchmarks"
MUJOCO = {"half-cheetah": "Half-Cheetah", "ant-maze": "Ant Maze"}
#: The benchmark of games that a machine without a GPU has.
ARCADE = "arcade_small"
Figures = dict[str, Any]
#: What the benchmarks' short names mean to a reader.
MEANINGS = {
    "Curiax / SB3, steps/s": "steps/s of LBS, 8 seeds on all cores, ÷ Stable-Baselines3's PPO, no bonus, one thread",
    "8 seeds / 1 seed": "training time of 8 seeds ÷ 1 seed",
    "cold start, s": "from the call of `run` to the first iteration, nothing compiled yet (s)",
    "saved before a run goes on, s": "from the start of a process to the first iteration of a killed run that it "
    "continues: seconds saved beside 0.4, whose checkpoints were Orbax's (s)",
    "warm start, s": "the same with the compilation cache, in a new process (s)",
    "import curiax, s": "`import curiax` (s)",
    "whole suite, s": "`curiax reproduce stochastic-mountain-car`, 144 runs, everything compiled anew (s)",
    "report, s": "`curiax report` of those runs, tables and figures included (s)",
    "report, MB": "size of its `report.html` (MB)",
    "half-cheetah: training over physics + learner": "Half-Cheetah, LBS: training time ÷ (physics + learner alone)",
    "half-cheetah: training over physics": "Half-Cheetah, LBS: training time ÷ physics alone",
    "ant-maze: training over physics": "Ant Maze, LBS: training time ÷ physics alone",
    "icm / rnd": "training time of ICM ÷ RND",
    "lbs / rnd": "training time of LBS ÷ RND",
    "vime / rnd": "training time of VIME ÷ RND",
    "disagreement / rnd": "training time of Disagreement ÷ RND",
}
#: Benchmarks of what is learnt, and of figures beside an older version's.
NOT_SPEED = ("plain_ppo", "against_0.4")
#: What the front page says of speed, by benchmark.
FRONT = {
    "against_sb3": "Curiax / SB3, steps/s",
    "against_rllte": "Bonus / rllte-core, rnd, minibatch 64, samples/s",
    "suite": "whole suite, s",
}
#: How `benchmarks/host.py` names each ratio, and what its targets call it after the task.
RATIOS = {"ratio_to_sum": "training over physics + learner", "ratio_to_physics": "training over physics"}


def beside_older(results: Path) -> str:
    """Every figure beside an older version's, measured in turn."""
    data = figures(results, "against_0.4")
    lines = []
    for figure, found in data["repeats"].items():
        worse, scatter = (data["summary"][figure][name] for name in ("worse_by", "scatter"))
        cells = [", ".join(f"{value:.3g}" for value in found[which]) for which in ("older", "this")]
        met = "" if all(target["met"] for target in data["targets"] if target["name"] == figure) else " (missed)"
        lines.append([figure, *cells, f"{100 * worse:+.0f} %{met}", f"{100 * scatter:.0f} %"])
    versions = data["machine"]["versions"]
    header = ["each round", "0.4.0", f"{versions['curiax']}", "worse by", "scatter"]
    note = (
        f"{machine_text(data['machine'])}, both versions in turn; `worse by` compares the best rounds, `scatter` is "
        "the larger range of the two; `python benchmarks/before_after.py`."
    )
    return f"{markdown_table(header, lines)}\n\n{note}"


def front_speed(results: Path) -> str:
    """Three figures, and the version that each was measured with."""
    lines, newest = [], figures(results, "against_0.4")
    for name, figure in FRONT.items():
        data = figures(results, name)
        measured = next(target for target in data["targets"] if target["name"] == figure)["measured"]
        # Beside the older version the same was measured once more, by later code.
        if found := newest["repeats"].get(f"{name}: {figure}"):
            data, measured = newest, min(found["this"])
        by = data["machine"]["versions"]["curiax"]
        lines.append([MEANINGS.get(figure, figure), f"{measured:.3g}", by])
    return markdown_table(
        [f"on {machine_text(figures(results, 'suite')['machine'])}", "", "measured with Curiax"], lines
    )


def speed(results: Path) -> str:
    """Every benchmark target beside what was measured."""
    lines, cpu = [], ""
    for file in sorted(results.glob("*.json")):
        if file.stem in NOT_SPEED:
            continue
        data = json.loads(file.read_text())
        cpu = machine_text(data["machine"])
        for target in data["targets"]:
            name = MEANINGS.get(target["name"], target["name"])
            met = "" if target["met"] else " (missed)"
            by = data["machine"]["versions"]["curiax"]
            lines.append([name, f"{target['kind']} {target['bound']:g}", f"{target['measured']:.3g}{met}", by])
    header = ["each measured in one run on one machine", "target", "result", "measured with Curiax"]
    table = markdown_table(header, lines)
    return f"{table}\n\n{cpu}; `python benchmarks/run_all.py --sb3-python PATH --rllte-python PATH`."


def plain_ppo(results: Path) -> str:
    """Plain PPO on tasks' own reward, beside Stable-Baselines3's."""
    data, lines = figures(results, "plain_ppo"), []
    bounds = {target["name"]: target for target in data["targets"]}

    def cell(task: str, words: str, values: Sequence[float]) -> str:
        mean = f"{sum(values) / len(values):,.0f}"
        found = [target for name, target in bounds.items() if name.startswith(task) and words in name]
        return stacked(mean, *(f"at least {t['bound']:g}{'' if t['met'] else ' (missed)'}" for t in found))

    for task, found in data["summary"].items():
        own, other = found["curiax"], found.get("sb3")
        theirs = [f"{sum(other[m]) / len(other[m]):,.0f}" if other else "–" for m in ("early", "end")]
        lines.append(
            [
                f"{task}, {data['settings'][task]['steps']:,} steps",
                cell(task, "at 30k", own["early"]),
                theirs[0],
                cell(task, "in the end", own["end"]),
                theirs[1],
            ]
        )
    header = ["", "Curiax, 30,000 steps", "Stable-Baselines3", "Curiax, last tenth", "Stable-Baselines3"]
    versions = data["settings"].get("sb3_versions", {})
    note = (
        f"Undiscounted return of the episodes of training, mean of seeds 0-{data['settings']['seeds'] - 1}; the "
        "defaults were chosen on other seeds. Both at their defaults: `curiax run gymnasium:TASK --method none`, and "
        f"`PPO` of Stable-Baselines3 {versions.get('stable-baselines3', '')}; `python benchmarks/plain_ppo.py "
        "--sb3-python PATH`."
    )
    for task, found in data["summary"].items():
        if clipped := found.get("curiax, value clipped"):
            both = [f"{sum(each['early']) / len(each['early']):,.0f}" for each in (clipped, found["curiax"])]
            note += f" On {task} with `ppo.clip_value` it is {both[0]} after 30,000 steps instead of {both[1]}."
    return f"{markdown_table(header, lines)}\n\n{note}"


def rllte(results: Path) -> str:
    """`Bonus` beside rllte-core: samples per second, the ratio, and what the arithmetic alone would give."""
    data = figures(results, "against_rllte")
    lines = [
        [f"`{name}`, {of}", *(f"{found[who]:,.0f}" for who in ("rllte", "curiax")), *(f"{x:.1f}" for x in ratios)]
        for of, methods in data["summary"].items()
        for name, found in methods.items()
        for ratios in [(found["ratio"], found["learner_ratio"])]
    ]
    versions = data["settings"]["rllte"]["versions"]
    note = (
        f"Samples rewarded and trained on per second, median, {machine_text(data['machine'])}; rllte-core "
        f"{versions['rllte-core']} with torch {versions['torch']}. Learner alone: what `ratio` would be if paying "
        f"and training took time and nothing around them. `python benchmarks/against_rllte.py --rllte-python PATH`"
    )
    return f"{markdown_table(['', 'rllte-core', 'Curiax', 'ratio', 'learner alone'], lines)}\n\n{note}"


def latency(results: Path) -> str:
    """Milliseconds of `Bonus.reward` for one step, by method."""
    data = figures(results, "bonus_latency")
    lines = [
        [f"`{name}`", f"{found['median_ms']:.2f}", f"{found['p99_ms']:.2f}"] for name, found in data["summary"].items()
    ]
    note = f"{machine_text(data['machine'])}; `python benchmarks/bonus_latency.py`"
    return f"{markdown_table(['', 'median, ms', '99 %, ms'], lines)}\n\n{note}"


def machine_text(machine: Figures) -> str:
    """`2 cores of AMD EPYC`."""
    return f"{machine['cores']} cores of {machine['cpu']}"


def host_ratios(results: Path) -> str:
    """Training beside physics alone and the learner alone."""
    data, lines = figures(results, "host"), []
    targets = {target["name"]: target for target in data["targets"]}
    for task in MUJOCO:
        own, ratios = data["repeats"][task], []
        for name, words in RATIOS.items():
            target = targets.get(f"{task}: {words}")
            bound = "" if target is None else f"{target['kind']} {target['bound']:g}"
            missed = " (missed)" if target and not target["met"] else ""
            ratios.append(stacked(f"{own[name]:.2f}{missed}", bound))
        seconds = [f"{own['seconds'][part]:.2f}" for part in ("training", "physics", "learner")]
        lines.append([f"{MUJOCO[task]}, `{own['method']}`, {own['seeds']} seeds", *seconds, *ratios])
    header = ["", "training", "physics alone", "learner alone", "training ÷ (physics + learner)", "training ÷ physics"]
    note = "Seconds of one iteration, 2048 steps of every seed: medians of the repeats. Below a ratio: its target."
    return f"{markdown_table(header, lines)}\n\n{note} {machine_text(data['machine'])}; `python benchmarks/host.py`."


def host_profile(results: Path) -> str:
    """Where one lane's time goes."""
    profiles = [figures(results, "host")["repeats"][task]["profile"] for task in MUJOCO]
    lines = [
        [part, *(f"{own[part]:.3f} s, {100 * own[part] / sum(own.values()):.0f} %" for own in profiles)]
        for part in profiles[0]
    ]
    return markdown_table(["one iteration of one lane", *MUJOCO.values()], lines)


def arcade(results: Path) -> str:
    """Training on a game beside its emulators alone and the learner alone."""
    data = figures(results, ARCADE)
    settings, columns = data["settings"], ("training", "emulators", "learner")
    lines = [
        [name, *(f"{row[column]:,.0f}" for column in columns), f"{row['ratio']:.2f}"]
        for name, row in data["summary"].items()
    ]
    header = [
        f"`atari:{settings['game']}`, `{settings['method']}`",
        "training",
        "emulators alone",
        "learner alone",
        "ratio",
    ]
    where = machine_text(data["machine"]) + ("" if settings["device"] == "cpu" else f" and {settings['device']}")
    note = (
        "Steps of the agent per second: medians of the repeats; ratio: training ÷ emulators alone, median of those "
        f"within each repeat. Preset `{settings['preset']}`. {where}; `{data['machine']['command']}`."
    )
    return f"{markdown_table(header, lines)}\n\n{note}"


def arcade_profile(results: Path) -> str:
    """Where the host's time goes in one iteration of training on a game."""
    cases = figures(results, ARCADE)["summary"]
    profiles = [row["profile"] for row in cases.values()]
    lines = [
        [part, *(f"{own[part]:.3f} s, {100 * own[part] / own['total']:.0f} %" for own in profiles)]
        for part in profiles[0]
    ]
    return markdown_table(["one iteration of one seed, beside", *cases], lines)


def host_paths(results: Path) -> str:
    """How fast each way of stepping the simulator is."""
    paths = [figures(results, "host")["repeats"][task]["physics_paths"] for task in MUJOCO]
    lines = [[name, *(f"{path[name]:,.0f}" for path in paths)] for name in paths[0]]
    return markdown_table(["steps/s of the physics alone, all seeds", *MUJOCO.values()], lines)


def stacked(*texts: str) -> str:
    """Lines in one cell of a table."""
    return "<br>".join(text for text in texts if text)


def figures(results: Path, name: str) -> Figures:
    """What a benchmark wrote."""
    return json.loads((results / f"{name}.json").read_text())


#: Section → its table, and the benchmark that it cannot do without.
SECTIONS: dict[str, tuple[Callable[[Path], str], str]] = {
    "In short": (front_speed, "suite"),
    "Every target": (speed, "suite"),
    "Beside 0.4.0": (beside_older, "against_0.4"),
    "Plain PPO": (plain_ppo, "plain_ppo"),
    "Bonus beside rllte-core": (rllte, "against_rllte"),
    "Latency of Bonus": (latency, "bonus_latency"),
    "Training beside the simulator": (host_ratios, "host"),
    "One lane": (host_profile, "host"),
    "Ways of stepping the simulator": (host_paths, "host"),
    "A game on two cores": (arcade, ARCADE),
    "One iteration of a game": (arcade_profile, ARCADE),
}


def page(results: Path) -> str:
    """Every section whose figures are there."""
    parts = ["# Measured", "Written by `benchmarks/tables.py` from the files beside it."]
    for title, (table, needs) in SECTIONS.items():
        if (results / f"{needs}.json").exists():
            parts += [f"## {title}", table(results)]
    return "\n\n".join(parts) + "\n"


def publish(results: Path = RESULTS) -> None:
    """Write the tables beside the figures."""
    (results / "README.md").write_text(page(results))


if __name__ == "__main__":
    publish()
