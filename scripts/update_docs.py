"""Write the numbers of README.md and docs/ from the results that are kept, so that they cannot drift.

python scripts/update_docs.py              # rewrite the marked parts
python scripts/update_docs.py --check      # exit 1 if any is out of date or its results are missing
python scripts/update_docs.py --partial    # leave alone the parts whose results are missing; with --check too

A marked part begins with `<!-- begin: NAME (written by scripts/update_docs.py from results/) -->` and ends with
`<!-- end: NAME -->`; NAME is a key of `PARTS`, with what it is about after a colon where it needs that.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from curiax import __version__, cli
from curiax._settings import descriptions, signature
from curiax.experiments.options import RunOptions
from curiax.experiments.presets import PRESETS
from curiax.experiments.registry import METHODS, TASKS
from curiax.experiments.spec import Experiment, Plan, resolve
from curiax.paper.conflicts import CONFLICTS, HEADLINE, MUJOCO_CONFLICTS, Conflict
from curiax.paper.published import PUBLISHED, RATIO, described
from curiax.paper.suites import ANT_MAZE, EVOLVING, FROZEN, HALF_CHEETAH, MNIST, PLAIN, SIX, SUITES
from curiax.report import claims, statistics
from curiax.report.assemble import begun, distinct, paper_claims, sign
from curiax.report.charts import counted
from curiax.report.origin import trained_by, version
from curiax.report.ratio import NEAR
from curiax.report.record import Record, load, read_heading
from curiax.report.samples import brief
from curiax.report.words import seed_text

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
MARKED = re.compile(r"(<!-- begin: (\S+) \(written by [^>]*\) -->\n)(.*?)(<!-- end: (\S+) -->)", re.DOTALL)

TITLES = {
    PLAIN: "Mountain Car",
    FROZEN: "Frozen",
    EVOLVING: "Evolving",
    HALF_CHEETAH: "Half-Cheetah",
    ANT_MAZE: "Ant Maze",
    MNIST: "Noisy MNIST",
}
THREE, MUJOCO = (PLAIN, FROZEN, EVOLVING), (HALF_CHEETAH, ANT_MAZE)
METRIC = "coverage/cells"
MAIN, BETTER, EPISODIC, MORE = "stochastic-mountain-car", "stochastic-mountain-car-curiax", "episodic", "more-methods"
ABLATION, CHOICES, MNIST_CHOICES = "lbs-ablation", "choices", "mnist-choices"
#: Where a method's numbers stand: folder of preset `paper-code`, and its label there.
STANDS = {
    **{name: (MAIN, name) for name in SIX},
    **{name: (EPISODIC, name) for name in ("ride", "ngu", "ride-no-count", "ngu-no-count")},
    **{name: (MORE, name) for name in ("re3", "e3b", "noveld", "simhash")},
    "lbs-mean": (ABLATION, "mean only"),
    "lbs-nll": (ABLATION, "KL + NLL"),
}
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


class MissingResults(Exception):
    """Results that a part needs are not in results/."""


# --- reading ----------------------------------------------------------------------------------------------


@lru_cache
def kept(folder: str) -> dict[str, Any]:
    """What a folder's table.json holds."""
    file = RESULTS / folder / "table.json"
    if not file.exists():
        raise MissingResults(f"results/{folder}/table.json is missing")
    return json.loads(file.read_text())


@lru_cache
def records(folder: str) -> tuple[Record, ...]:
    """The stored curves of a folder."""
    if not (RESULTS / folder / "record").is_dir():
        raise MissingResults(f"results/{folder}/record is missing")
    return tuple(distinct(load(RESULTS / folder / "record")))


def row(folder: str, task: str, label: str, metric: str = METRIC) -> dict[str, Any]:
    """One row of a table."""
    found = [r for r in kept(folder)["rows"] if (r["task"], r["method"], r["metric"]) == (task, label, metric)]
    if not found:
        raise MissingResults(f"results/{folder} has no row of {label} on {task}")
    return found[0]


def has(folder: str, task: str, label: str) -> bool:
    """Whether the table has that row."""
    return any((r["task"], r["method"], r["metric"]) == (task, label, METRIC) for r in kept(folder)["rows"])


def final(folder: str, task: str, label: str, metric: str = METRIC) -> np.ndarray:
    """Each seed's last value."""
    found = [r for r in records(folder) if (r.task, r.label) == (task, label) and metric in r.curves]
    if not found:
        raise MissingResults(f"results/{folder}/record has no {metric} of {label} on {task}")
    return np.asarray(found[0].final(metric), float)


# --- writing ----------------------------------------------------------------------------------------------


def grid(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def bracketed(mean: float, low: float | None, high: float | None, digits: int = 1) -> str:
    """`90.5 [89.0, 92.0]`."""
    return f"{mean:.{digits}f}" + ("" if low is None or high is None else f" [{low:.{digits}f}, {high:.{digits}f}]")


def ours(entry: dict[str, Any]) -> str:
    """A row's mean and interval."""
    return bracketed(entry["mean"], entry["ci_low"], entry["ci_high"])


def paper_number(entry: dict[str, Any]) -> str:
    """`91.75`, or what the paper says instead of an exact number: `≈73`, `far below 100`; or nothing."""
    return entry.get("paper_words") or ("" if entry.get("paper") is None else f"{entry['paper']:.2f}")


def paper_text(entry: dict[str, Any]) -> str:
    """`paper 91.75: agrees`, `paper: far below 100`, or nothing."""
    said, verdict = paper_number(entry), entry["verdict"]
    if entry.get("paper") is None:
        return said and f"paper: {said}"
    return f"paper {said}" + (f": {verdict}" if verdict in ("agrees", "above", "below") else "")


def code_text(entry: dict[str, Any]) -> str:
    """The runs of the authors' code, or nothing."""
    values = entry.get("authors") or ()
    return f"code {', '.join(f'{value:g}' for value in values)}" if values else ""


def collapsed_text(entry: dict[str, Any]) -> str:
    """`2 of 32 collapsed`, where any did."""
    fallen, seeds = len(entry.get("collapsed") or ()), entry["seeds"]
    return "" if not fallen else f"all {seeds} collapsed" if fallen == seeds else f"{fallen} of {seeds} collapsed"


def stacked(*texts: str) -> str:
    """Lines in one cell of a table."""
    return "<br>".join(text for text in texts if text)


def chance(p: float) -> str:
    """A p value."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    names = [f"`{name}`" for name in names]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def by_task(folder: str, tasks: Sequence[str], tell: Callable[[Record], str]) -> str:
    """What is to be told of a folder's runs: once, or for each group of tasks of which another thing is to be told."""
    groups: dict[str, list[str]] = {}
    for record in records(folder):
        if not tasks or record.task in tasks:
            groups.setdefault(tell(record), []).append(record.task)
    if len(groups) == 1:
        return next(iter(groups))
    return "; ".join(f"{told}, on {', '.join(dict.fromkeys(titled(names)))}" for told, names in groups.items())


def seed_count(record: Record) -> str:
    """`32 seeds, 3000-3031`, those whose simulation was lost among them."""
    seeds = begun(record)
    return f"one seed, {seed_text(seeds)}" if len(seeds) == 1 else f"{len(seeds)} seeds, {seed_text(seeds)}"


def seeds_of(folder: str, tasks: Sequence[str] = ()) -> str:
    """`32 seeds, 3000-3031`; where tasks differ, `32 seeds, 3000-3031, on Mountain Car; 8 seeds, 0-7, on Ant Maze`."""
    return by_task(folder, tasks, seed_count)


def titled(tasks: Sequence[str]) -> list[str]:
    """Each task's name for readers."""
    return [TITLES.get(task, task) for task in tasks]


# --- parts: the paper's table -----------------------------------------------------------------------------


def main_table(_: str, __: str) -> str:
    """Ours beside the paper's and the authors' code."""
    labels = list(dict.fromkeys(r["method"] for r in kept(MAIN)["rows"]))
    lines = []
    for label in labels:
        entries = [row(MAIN, task, label) for task in THREE]
        lines.append([f"`{label}`", *(stacked(f"**{ours(e)}**", paper_text(e), code_text(e)) for e in entries)])
    note = (
        f"Coverage in the paper's cells (%): mean [95 % interval] of {seeds_of(MAIN)}, preset `paper-code`; "
        "the paper's mean, and whether ours agrees with it (t test, 5 % level); final coverage of each run of the "
        f"authors' released code, where we ran it. Made by `{kept(MAIN)['command']}`; trained by "
        f"{', '.join(trained_by(records(MAIN)))}."
    )
    return f"{grid(['', *titled(THREE)], lines)}\n\n{note}"


def noisy_tv(_: str, __: str) -> str:
    """The demo's table."""
    rows = [r for r in kept("noisy-tv")["rows"] if r["metric"] == METRIC]
    tasks = list(dict.fromkeys(r["task"] for r in rows))
    methods = list(dict.fromkeys(r["method"] for r in rows))
    cells = {(r["task"], r["method"]): r for r in rows}
    lines = [[f"`{m}`", *(ours(cells[task, m]) for task in tasks)] for m in methods]
    command = kept("noisy-tv").get("command") or "curiax reproduce noisy-tv --seeds 8"
    note = (
        f"Coverage in the paper's cells (%), mean of {rows[0]['seeds']} seeds [95 % interval], preset "
        f"`paper-code`; made by `{command}`."
    )
    return f"{grid(['method', *(f'`{task}`' for task in tasks)], lines)}\n\n{note}"


#: Benchmarks of what is learnt, and of figures beside an older version's.
NOT_SPEED = ("plain_ppo", "against_0.4")


def beside_older(_: str, __: str) -> str:
    """Every figure beside an older version's, measured in turn."""
    data = benchmark("against_0.4")
    lines = []
    for figure, found in data["repeats"].items():
        worse, scatter = (data["summary"][figure][name] for name in ("worse_by", "scatter"))
        shown = [", ".join(f"{value:.3g}" for value in found[which]) for which in ("older", "this")]
        met = "" if all(target["met"] for target in data["targets"] if target["name"] == figure) else " (missed)"
        lines.append([figure, *shown, f"{100 * worse:+.0f} %{met}", f"{100 * scatter:.0f} %"])
    versions = data["machine"]["versions"]
    header = ["each round", "0.4.0", f"{versions['curiax']}", "worse by", "scatter"]
    note = (
        f"{machine_text(data['machine'])}, both versions in turn; `worse by` compares the best rounds, `scatter` is "
        "the larger range of the two; `python benchmarks/before_after.py`."
    )
    return f"{grid(header, lines)}\n\n{note}"


#: What the front page says of speed, by benchmark.
FRONT = {
    "against_sb3": "Curiax / SB3, steps/s",
    "against_rllte": "Bonus / rllte-core, rnd, minibatch 64, samples/s",
    "suite": "whole suite, s",
}


def front_speed(_: str, __: str) -> str:
    """Three figures, and the version that each was measured with."""
    lines, newest = [], benchmark("against_0.4")
    for name, figure in FRONT.items():
        data = benchmark(name)
        measured = next(target for target in data["targets"] if target["name"] == figure)["measured"]
        # Beside the older version the same was measured once more, by later code.
        if found := newest["repeats"].get(f"{name}: {figure}"):
            data, measured = newest, min(found["this"])
        by = data["machine"]["versions"]["curiax"]
        lines.append([MEANINGS.get(figure, figure), f"{measured:.3g}", by])
    return grid([f"on {machine_text(benchmark('suite')['machine'])}", "", "Curiax"], lines)


def speed(_: str, __: str) -> str:
    """Every benchmark target beside what was measured."""
    lines, cpu = [], ""
    for file in sorted((RESULTS / "benchmarks").glob("*.json")):
        if file.stem in NOT_SPEED:
            continue
        data = json.loads(file.read_text())
        cpu = machine_text(data["machine"])
        for target in data["targets"]:
            name = MEANINGS.get(target["name"], target["name"])
            met = "" if target["met"] else " (missed)"
            by = data["machine"]["versions"]["curiax"]
            lines.append([name, f"{target['kind']} {target['bound']:g}", f"{target['measured']:.3g}{met}", by])
    table = grid(["each measured in one run on one machine", "target", "result", "Curiax"], lines)
    return f"{table}\n\n{cpu}; `python benchmarks/run_all.py --sb3-python PATH --rllte-python PATH`."


def benchmark(name: str) -> dict[str, Any]:
    """What a benchmark wrote."""
    file = RESULTS / "benchmarks" / f"{name}.json"
    if not file.exists():
        raise MissingResults(f"results/benchmarks/{name}.json is missing")
    return json.loads(file.read_text())


def plain_ppo(_: str, __: str) -> str:
    """Plain PPO on tasks' own reward, beside Stable-Baselines3's."""
    data, lines = benchmark("plain_ppo"), []
    bounds = {target["name"]: target for target in data["targets"]}

    def told(task: str, words: str, values: Sequence[float]) -> str:
        mean = f"{sum(values) / len(values):,.0f}"
        found = [target for name, target in bounds.items() if name.startswith(task) and words in name]
        return stacked(mean, *(f"at least {t['bound']:g}{'' if t['met'] else ' (missed)'}" for t in found))

    for task, found in data["summary"].items():
        own, other = found["curiax"], found.get("sb3")
        theirs = [f"{sum(other[m]) / len(other[m]):,.0f}" if other else "–" for m in ("early", "end")]
        lines.append(
            [
                f"{task}, {data['settings'][task]['steps']:,} steps",
                told(task, "at 30k", own["early"]),
                theirs[0],
                told(task, "in the end", own["end"]),
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
    return f"{grid(header, lines)}\n\n{note}"


def rllte(_: str, __: str) -> str:
    """`Bonus` beside rllte-core: samples per second, the ratio, and what the arithmetic alone would give."""
    data = benchmark("against_rllte")
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
    return f"{grid(['', 'rllte-core', 'Curiax', 'ratio', 'learner alone'], lines)}\n\n{note}"


def latency(_: str, __: str) -> str:
    """Milliseconds of `Bonus.reward` for one step, by method."""
    data = benchmark("bonus_latency")
    lines = [
        [f"`{name}`", f"{found['median_ms']:.2f}", f"{found['p99_ms']:.2f}"] for name, found in data["summary"].items()
    ]
    note = f"{machine_text(data['machine'])}; `python benchmarks/bonus_latency.py`"
    return f"{grid(['', 'median, ms', '99 %, ms'], lines)}\n\n{note}"


def machine_text(machine: dict[str, Any]) -> str:
    """`2 cores of AMD EPYC`."""
    return f"{machine['cores']} cores of {machine['cpu']}"


#: How `benchmarks/host.py` names each ratio, and what its targets call it after the task.
RATIOS = {"ratio_to_sum": "training over physics + learner", "ratio_to_physics": "training over physics"}


def host() -> dict[str, Any]:
    """What `benchmarks/host.py` measured of training on MuJoCo's tasks."""
    return benchmark("host")


def host_ratios(_: str, __: str) -> str:
    """Training beside physics alone and the learner alone."""
    data, lines = host(), []
    targets = {target["name"]: target for target in data["targets"]}
    for task in MUJOCO:
        own, ratios = data["repeats"][task], []
        for name, words in RATIOS.items():
            target = targets.get(f"{task}: {words}")
            told = "" if target is None else f"{target['kind']} {target['bound']:g}"
            missed = " (missed)" if target and not target["met"] else ""
            ratios.append(stacked(f"{own[name]:.2f}{missed}", told))
        seconds = [f"{own['seconds'][part]:.2f}" for part in ("training", "physics", "learner")]
        lines.append([f"{TITLES[task]}, `{own['method']}`, {own['seeds']} seeds", *seconds, *ratios])
    header = ["", "training", "physics alone", "learner alone", "training ÷ (physics + learner)", "training ÷ physics"]
    note = "Seconds of one iteration, 2048 steps of every seed: medians of the repeats. Below a ratio: its target."
    return f"{grid(header, lines)}\n\n{note} {machine_text(data['machine'])}; `python benchmarks/host.py`."


def host_profile(_: str, __: str) -> str:
    """Where one lane's time goes."""
    profiles = [host()["repeats"][task]["profile"] for task in MUJOCO]
    lines = [
        [part, *(f"{own[part]:.3f} s, {100 * own[part] / sum(own.values()):.0f} %" for own in profiles)]
        for part in profiles[0]
    ]
    return grid(["one iteration of one lane", *titled(MUJOCO)], lines)


def arcade(about: str, _: str) -> str:
    """Training on a game beside its emulators alone and the learner alone."""
    data = benchmark(about)
    told, columns = data["settings"], ("training", "emulators", "learner")
    lines = [
        [name, *(f"{row[column]:,.0f}" for column in columns), f"{row['ratio']:.2f}"]
        for name, row in data["summary"].items()
    ]
    header = [f"`atari:{told['game']}`, `{told['method']}`", "training", "emulators alone", "learner alone", "ratio"]
    where = machine_text(data["machine"]) + ("" if told["device"] == "cpu" else f" and {told['device']}")
    note = (
        "Steps of the agent per second: medians of the repeats; ratio: training ÷ emulators alone, median of those "
        f"within each repeat. Preset `{told['preset']}`. {where}; `{data['machine']['command']}`."
    )
    return f"{grid(header, lines)}\n\n{note}"


def arcade_profile(about: str, _: str) -> str:
    """Where the host's time goes in one iteration of training on a game."""
    cases = benchmark(about)["summary"]
    profiles = [row["profile"] for row in cases.values()]
    lines = [
        [part, *(f"{own[part]:.3f} s, {100 * own[part] / own['total']:.0f} %" for own in profiles)]
        for part in profiles[0]
    ]
    return grid(["one iteration of one seed, beside", *cases], lines)


def host_paths(_: str, __: str) -> str:
    """How fast each way of stepping the simulator is."""
    paths = [host()["repeats"][task]["physics_paths"] for task in MUJOCO]
    lines = [[name, *(f"{path[name]:,.0f}" for path in paths)] for name in paths[0]]
    return grid(["steps/s of the physics alone, all seeds", *titled(MUJOCO)], lines)


# --- parts: any folder of results -------------------------------------------------------------------------


def figure(what: str, up: str) -> str:
    """A picture of a folder: `figure:FOLDER` its curves or final values, `figure:FOLDER/NAME` a named one."""
    folder, _, name = what.partition("/")
    kept(folder)
    places = ["figures/coverage", "figures/ratio", "figures/final", "figures/ratio-final", "coverage"]
    places = [f"figures/{name}"] if name else places
    found = next((place for place in places if (RESULTS / folder / f"{place}.png").exists()), None)
    if found is None:
        raise MissingResults(f"results/{folder} has no figure {name or 'coverage'}")
    titles = {
        "coverage": "Coverage over training",
        "final": "Final coverage of every line",
        "surprise": "What each model would pay for pressing the remote",
        "occupancy": "Where the agents went",
        "noise": "What the noise is worth to each method",
        "games": "Score, length of episodes and best score over training",
        "ratio": "How much more the unpredictable transition is paid, and what is left of both bonuses",
        "ratio-final": "How much more the unpredictable transition is paid in the end, by every line",
        "samples": "What single transitions are paid at the start and in the end",
    }
    picture = f"![{titles[found.split('/')[-1]]}, {folder}]({up}results/{folder}/{found}.png)"
    older = sorted({version(record) for record in records(folder)} - {__version__})
    return f"{picture}\n\nTrained by Curiax {' and '.join(older)}, not by this version." if older else picture


def table(folder: str, _: str) -> str:
    """Every line on every task."""
    rows = [r for r in kept(folder)["rows"] if r["metric"] == METRIC]
    tasks = list(dict.fromkeys(r["task"] for r in rows))
    lines = []
    for label in dict.fromkeys(r["method"] for r in rows):
        found = [row(folder, task, label) if has(folder, task, label) else None for task in tasks]
        cells = [stacked(ours(e), paper_text(e), code_text(e), collapsed_text(e)) if e else "not run" for e in found]
        lines.append([f"`{label}`", *cells])
    return grid(["", *titled(tasks)], lines)


def ratios(folder: str, _: str) -> str:
    """How much more each line pays for the first kind of transitions than for the second, and what is left of both."""
    entries = [r for r in kept(folder)["rows"] if r["metric"] == RATIO]
    kinds = next((record.compared for record in records(folder) if record.compared), None)
    if kinds is None or not entries:
        raise MissingResults(f"results/{folder} compares no kinds of transitions")
    lines = []
    for entry in entries:
        parts = {
            name: row(folder, entry["task"], entry["method"], name)
            for name in ("first/start", "first/end", "first/left", "second/start", "second/end", "second/left")
        }
        bonuses = [
            stacked(
                f"{brief(parts[f'{kind}/start']['mean'])} → {brief(parts[f'{kind}/end']['mean'])}",
                f"{brief(parts[f'{kind}/left']['mean'])} % left",
            )
            for kind in ("first", "second")
        ]
        told = bracketed(entry["mean"], entry["ci_low"], entry["ci_high"], 2)
        lines.append(
            [f"`{entry['method']}`", f"**{told}**", entry.get("paper_words") or "–", entry["verdict"], *bonuses]
        )
    header = ["", "ratio in the end", "paper", "ours is", *(f"bonus of {kind}, start → end" for kind in kinds)]
    note = (
        f"Ratio: mean bonus of {kinds[0]} ÷ mean bonus of {kinds[1]} in the last tenth of training, mean over "
        f"{seeds_of(folder)} [95 % interval]; the ideal is 1. Near 1: the whole interval is between "
        f"{NEAR[0]:g} and {NEAR[1]:g}; above or below: all of it is outside; undecided: it lies across a border. The "
        "borders are ours, the paper gives no numbers. Bonuses are raw, each method's in a unit of its own."
    )
    return f"{grid(header, lines)}\n\n{note}"


def made(folder: str, _: str) -> str:
    """Seeds, preset, command, and the way to the interactive report."""
    if not (RESULTS / folder / "record").is_dir():
        rows = kept(folder)["rows"]
        command = kept(folder).get("command") or f"curiax reproduce {folder} --seeds {rows[0]['seeds']}"
        return f"{rows[0]['seeds']} seeds, preset `paper-code`. Made by `{command}`."
    presets = sorted({record.preset for record in records(folder)})
    command = read_heading(RESULTS / folder / "record").command
    names = ", ".join(f"`{preset}`" for preset in presets)
    sizes = by_task(folder, (), lambda record: f"{seed_count(record)}, of {record.budget:,} steps")
    return (
        f"{sizes}{';' if ';' in sizes else ','} preset{'s' if len(presets) > 1 else ''} {names}. "
        f"Made by `{command}`; trained by {', '.join(trained_by(records(folder)))}.\n"
        f'<a href="reports/{folder}.html">Open the interactive report</a>; the numbers behind it are in '
        f"`results/{folder}/`."
    )


def reports(_: str, __: str) -> str:
    """Links to every interactive report of the site."""
    folders = ["continuous", MAIN, "mountain-car", HALF_CHEETAH, ANT_MAZE, MNIST, BETTER, EPISODIC, MORE]
    folders += [ABLATION, CHOICES, MNIST_CHOICES, f"{MORE}-choices"]
    lines = []
    for folder in folders:
        kept(folder)
        heading = read_heading(RESULTS / folder / "record")
        preset = ", preset `curiax`" if folder == BETTER else ""
        lines.append(f'* <a href="reports/{folder}.html">{heading.title}</a>{preset}: `{heading.command}`')
    return "\n".join(lines)


def claims_part(folder: str, _: str) -> str:
    """The paper's claims, each with its verdict, and what stood in the way of those that did not hold."""
    found = records(folder)
    metric = counted(found)
    shown = paper_claims(found, metric)
    judged = {j.claim.text: j for j in claims.judge(found, metric)}
    if not shown:
        return "The paper makes no claim that these runs alone could decide."
    lines = []
    for claim in shown:
        lines.append(f"* **{claim.verdict}**: {claim.text}. {claim.finding}")
        for o in judged[claim.text].outcomes:
            if not o.shown and o.p is not None:
                digits = 2 if o.comparison.left.relative else 1
                word = "the other way" if o.contradicted else "not shown"
                relation = f"{o.comparison.left.describe()} {sign(o)} {o.comparison.right.describe()}"
                sides = [f"{x:.{digits}f}" if np.isfinite(x) else "never" for x in (o.left, o.right)]
                numbers = f"{sides[0]} against {sides[1]}, {chance(o.p)} (Holm)"
                lines.append(f"  * {word}: {relation}: {numbers}.")
    return "\n".join(lines)


def noise(folder: str, _: str) -> str:
    """What the noise is worth to each model, early and in the end, and how often it is asked for."""
    early = 20_480
    lines = []
    for label in dict.fromkeys(record.label for record in records(folder)):
        cells = []
        for task in (FROZEN, EVOLVING):
            found = next(r for r in records(folder) if (r.task, r.label) == (task, label))
            worth = ["–", "–"]
            if "probe/noise" in found.curves and np.any(found.curves["probe/car"]):
                ratio = np.median(found.curves["probe/noise"] / found.curves["probe/car"], axis=0)
                at = int(np.searchsorted(found.steps, early))
                worth = [f"{ratio[k]:.1f}" for k in (at, -1)]
            cells += [*worth, f"{100 * float(np.mean(found.final('noise/steps'))):.0f} %"]
        lines.append([f"`{label}`", *cells])
    moments = [f"worth at {early:,} steps", "in the end", "pressed in the end"]
    header = [
        "",
        *(f"{TITLES[task]}: {moments[0]}" if k == 0 else moments[k] for task in (FROZEN, EVOLVING) for k in range(3)),
    ]
    note = (
        "Worth: what the model would pay for pressing the remote ÷ for pushing the car, median over bins, then over "
        "seeds. Pressed: share of the last rollout's steps in which the agent pressed it."
    )
    return f"{grid(header, lines)}\n\n{note}"


def misses(folder: str, _: str) -> str:
    """Where a folder's numbers differ significantly from the paper's; without a name, those of the main table."""
    rows = [entry for entry in kept(folder or MAIN)["rows"] if entry["metric"] == METRIC]
    lines = []
    for entry in rows:
        if entry["verdict"] in ("above", "below"):
            told = [paper_number(entry), entry["verdict"], chance(entry["p"])]
            lines.append([f"`{entry['method']}`", TITLES[entry["task"]], ours(entry), *told])
    agreeing = sum(entry["verdict"] == "agrees" for entry in rows)
    total = agreeing + len(lines)
    if not lines:
        return f"All {total} means are not distinguishable from the paper's."
    head = f"{agreeing} of {total} means are not distinguishable from the paper's. The others:"
    return f"{head}\n\n{grid(['', 'task', 'ours', 'paper', 'ours is', ''], lines)}"


def completion(folder: str, _: str) -> str:
    """How many runs visited all cells of Ant Maze, how many of them before 150,000 steps, and when."""
    lines, early = [], 150_000
    for record in records(folder):
        if record.task != ANT_MAZE:
            continue
        reached = statistics.steps_to(record.steps, record.curves[METRIC], claims.WHOLE)
        there = [step for step in reached if step is not None]
        median = statistics.median_steps(reached)
        when = ["never" if step is None else f"{step:,.0f}" for step in (median, slowest(reached))]
        counts = [f"{n} of {len(reached)}" for n in (len(there), sum(step <= early for step in there))]
        lines.append([f"`{record.label}`", *counts, *when])
    header = ["", "runs with all seven cells", f"by {early:,} steps", "steps to all seven: median", "slowest run"]
    return grid(header, lines)


def slowest(reached: Sequence[float | None]) -> float | None:
    """The latest of the first steps; None if any is never."""
    there = [step for step in reached if step is not None]
    return max(there) if len(there) == len(reached) else None


# --- parts: methods ---------------------------------------------------------------------------------------


def method(name: str, _: str) -> str:
    """How a method fared: the paper's numbers and ours under two presets."""
    folder, label = STANDS[name]
    own = f"ours, `paper-code` ({seeds_of(folder, THREE)})"
    rows = [[own, *(coverage_cell(folder, task, label) for task in THREE)]]
    published = {p.task: p.words or f"{p.value:.2f}" for p in PUBLISHED if p.method == name}
    if published:
        rows.insert(0, ["paper", *(published[task] for task in THREE)])
    if has_label(BETTER, name):
        rows.append([f"ours, `curiax` ({seeds_of(BETTER)})", *(coverage_cell(BETTER, task, name) for task in THREE)])
    table = grid(["", *titled(THREE)], rows)
    return table if folder in (ABLATION, MORE) else f"{table}\n\n{mujoco_table(name)}"


def mujoco_table(name: str) -> str:
    """How a method fared on MuJoCo's tasks."""
    folders = {task: task if name in SIX else EPISODIC for task in MUJOCO}
    seeds = " / ".join(dict.fromkeys(seeds_of(folder, [task]) for task, folder in folders.items()))
    published = {p.task: p.words or f"{p.value:g}" for p in PUBLISHED if p.method == name}
    said = [published.get(task) or (words.words if (words := described(task, name, METRIC)) else "") for task in MUJOCO]
    rows = [["paper", *(text or "–" for text in said)]] if any(said) else []
    rows.append([f"ours, `paper-code` ({seeds})", *(ours(row(folder, task, name)) for task, folder in folders.items())])
    return grid(["", *titled(MUJOCO)], rows)


def has_label(folder: str, label: str) -> bool:
    """Whether a folder has such a line at all."""
    return any(r["method"] == label for r in kept(folder)["rows"])


def coverage_cell(folder: str, task: str, label: str) -> str:
    """Mean and interval, or that it was not run."""
    if not has(folder, task, label):
        return "not run"
    entry = row(folder, task, label)
    return stacked(ours(entry), collapsed_text(entry))


def method_choices(name: str, _: str) -> str:
    """The list of choices at the top of a method's file."""
    text = inspect.getdoc(inspect.getmodule(METHODS[name].cls)) or ""
    return re.split(r"^Choices[^\n]*:\n\n", text, flags=re.MULTILINE)[1].strip()


# --- parts: better than the paper -------------------------------------------------------------------------


def against(folder: str, task: str, left: str, rights: Sequence[str]) -> list[tuple[str, float, str]]:
    """For each other line: its name, the corrected p value, and the chance that a run of `left` beats one of it."""
    base = final(folder, task, left)
    others = [final(folder, task, right) for right in rights]
    corrected = statistics.holm([statistics.difference_test(base, other) for other in others])
    found = []
    for right, other, p in zip(rights, others, corrected, strict=True):
        value, low, high = statistics.improvement(base, other)
        found.append((right, float(p), bracketed(value, low, high, 2)))
    return found


def improvement(_: str, __: str) -> str:
    """The chance that LBS beats each other method under preset curiax."""
    labels = [label for label in dict.fromkeys(r["method"] for r in kept(BETTER)["rows"]) if label != "lbs"]
    columns = [{name: (p, text) for name, p, text in against(BETTER, task, "lbs", labels)} for task in THREE]
    lines = [[f"`{label}`", *(stacked(c[label][1], chance(c[label][0])) for c in columns)] for label in labels]
    note = (
        "P(a run of LBS covers more than a run of the method), ties counting half, with its 95 % interval; below it "
        "the p value of a permutation test of equal means, corrected by Holm's method within each task."
    )
    return f"{grid(['LBS against', *titled(THREE)], lines)}\n\n{note}"


def winners(folder: str, _: str) -> str:
    """Who is ahead on each task, and who cannot be told apart from it; without a folder, under preset curiax."""
    lines, folder = [], folder or BETTER
    labels = list(dict.fromkeys(r["method"] for r in kept(folder)["rows"]))
    for task in dict.fromkeys(r["task"] for r in kept(folder)["rows"]):
        means = {label: row(folder, task, label)["mean"] for label in labels}
        best = max(labels, key=lambda label: means[label])
        rest = [label for label in labels if label != best]
        tied = [name for name, p, _ in against(folder, task, best, rest) if p >= 0.05]
        entry = row(folder, task, best)
        text = f"* **{TITLES[task]}**: `{best}` has the highest mean, {ours(entry)}"
        text += f"; {listed(tied)} cannot be told apart from it" if tied else "; every other method is below it"
        lines.append(text + " (5 % level, Holm).")
    return "\n".join(lines)


def gains_table() -> str:
    """Each method under both presets, p values corrected over the whole table."""
    labels = list(dict.fromkeys(r["method"] for r in kept(BETTER)["rows"]))
    places = [(label, task) for label in labels for task in THREE]
    tests = [
        statistics.difference_test(final(STANDS[label][0], task, label), final(BETTER, task, label))
        for label, task in places
    ]
    corrected = dict(zip(places, statistics.holm(tests), strict=True))
    lines = []
    for label in labels:
        cells = []
        for task in THREE:
            before, after = row(STANDS[label][0], task, label), row(BETTER, task, label)
            change = f"{after['mean'] - before['mean']:+.1f}, {chance(corrected[label, task])}".replace("-", "−")
            cells.append(stacked(f"{before['mean']:.1f} → **{ours(after)}**", change, collapsed_text(after)))
        lines.append([f"`{label}`", *cells])
    return grid(["`paper-code` → `curiax`", *titled(THREE)], lines)


GAINS_NOTE = (
    "Coverage in the paper's cells (%): mean under preset `paper-code` → mean under `curiax` [95 % "
    "interval]; below it the change, with the p value of a permutation test of equal means, corrected by Holm's method "
    "over the table."
)


def gains(_: str, __: str) -> str:
    """The gains, explained."""
    return f"{gains_table()}\n\n{GAINS_NOTE}"


def curiax_preset(_: str, __: str) -> str:
    """The gains with what they are, for a reader who sees nothing else."""
    return f"{gains_table()}\n\n{GAINS_NOTE} {seeds_of(BETTER)}. Made by `{kept(BETTER)['command']}`."


def steps_table(labels: Sequence[str], names: Sequence[str], compare: Callable[[int], int | None], title: str) -> str:
    """Lines of the ablation suite, each compared with another of them, p values corrected within each task."""
    tasks = (PLAIN, FROZEN)
    cells: dict[tuple[str, int], str] = {}
    for task in tasks:
        pairs = [(k, compare(k)) for k in range(len(labels))]
        values = [final(ABLATION, task, label) for label in labels]
        tested = [(k, j) for k, j in pairs if j is not None and not np.array_equal(values[k], values[j])]
        corrected = statistics.holm([statistics.difference_test(values[k], values[j]) for k, j in tested])
        notes = {}
        for (k, j), p in zip(tested, corrected, strict=True):
            better, low, high = statistics.improvement(values[k], values[j])
            change = f"{values[k].mean() - values[j].mean():+.1f}".replace("-", "−")
            notes[k] = f"{change}, P {bracketed(better, low, high, 2)}, {chance(p)}"
        for k, j in pairs:
            entry = row(ABLATION, task, labels[k])
            same = "the same setting here" if j is not None and k not in notes else ""
            cells[task, k] = stacked(f"**{ours(entry)}**", notes.get(k, same), collapsed_text(entry))
    lines = [[name, *(cells[task, k] for task in tasks)] for k, name in enumerate(names)]
    return grid([title, *(TITLES[task] for task in tasks)], lines)


STEP_NOTE = (
    "P: chance that a run with the change beats one without it, with its 95 % interval; p: permutation test of equal "
    "means, corrected by Holm's method within each column."
)


def path(_: str, __: str) -> str:
    """From the released code's setting to ours, one step at a time."""
    labels = ["lbs", "rollout 512", "rollout 512, bootstrap", "rollout 512, bootstrap, executed", "curiax"]
    names = [
        "`paper-code`",
        "+ rollouts of 512",
        "+ bootstrapping at time limits",
        "+ executed actions",
        "+ β = 2 everywhere = `curiax`",
    ]
    table = steps_table(labels, names, lambda k: k - 1 if k else None, "each step on top of the one before")
    return f"{table}\n\n{seeds_of(ABLATION)}. {STEP_NOTE}"


def leave_one_out(_: str, __: str) -> str:
    """Our setting with one thing put back."""
    labels = ["curiax", *(f"curiax, {x}" for x in ("rollout 2048", "no bootstrap", "sampled actions", "beta 0.1"))]
    names = ["`curiax`", "rollouts of 2048 again", "no bootstrapping again", "sampled actions again", "β = 0.1"]
    table = steps_table(labels, names, lambda k: 0 if k else None, "`curiax` with one thing put back")
    return f"{table}\n\n{seeds_of(ABLATION)}. {STEP_NOTE}"


def one_change(_: str, __: str) -> str:
    """The released code's setting with one thing changed."""
    changes = {
        "rollout 512": "rollouts of 512",
        "rollout 256": "rollouts of 256",
        "bootstrap": "bootstrapping at time limits",
        "executed actions": "the model sees executed actions",
        "true successors": "true successors at episode ends",
        "no reset-crossing pairs": "no pairs that cross a reset",
        "entropy 0.001": "entropy weight 0.001 (the paper's text)",
        "mean only": "`lbs-mean`: the distance of the means as the bonus",
        "KL + NLL": "`lbs-nll`: KL plus reconstruction error as the bonus",
    }
    labels, names = ["lbs", *changes], ["`paper-code`", *changes.values()]
    table = steps_table(labels, names, lambda k: 0 if k else None, "`paper-code` with one change")
    return f"{table}\n\n{seeds_of(ABLATION)}. {STEP_NOTE}"


def beta(_: str, __: str) -> str:
    """Coverage against β, and how much of the time the remote is pressed."""
    lines = []
    for value in (0.1, 0.5, 1.0, 2.0, 4.0, 10.0):
        label = f"beta {value:g}"
        pressed = 100 * final(ABLATION, FROZEN, label, "noise/steps")
        theory = max(0.0, -0.5 * np.log(value))
        cells = [stacked(ours(e), collapsed_text(e)) for e in (row(ABLATION, t, label) for t in (PLAIN, FROZEN))]
        lines.append([f"{value:g}", f"{theory:.2f}", *cells, f"{pressed.mean():.0f} %"])
    header = ["β", "½ ln(1/β), nats", "Mountain Car", "Frozen", "Frozen: steps with the remote pressed, at the end"]
    return f"{grid(header, lines)}\n\n{seeds_of(ABLATION)}, preset `paper-code` with β changed."


# --- parts: choices ---------------------------------------------------------------------------------------


def conflicts(which: str, _: str) -> str:
    """Every conflict, and the value in force under each preset: those of all tasks, or MuJoCo's own."""
    if which == "mujoco":
        undecided = [
            f"* {c.topic}: {'' if c.paper == '–' else f'in the paper {c.paper}; '}in the released code {c.code}. Ours: "
            f"{c.ours}."
            for c in MUJOCO_CONFLICTS
            if not c.setting
        ]
        table = conflicts_table([c for c in MUJOCO_CONFLICTS if c.setting])
        return "\n".join([table, "", "What no setting decides:", "", *undecided])
    return f"{conflicts_table(CONFLICTS)}\n\nTwo values: on tasks without noise / with noise."


#: The presets that are for any task.
GENERAL = [name for name, preset in PRESETS.items() if not preset.above]


def conflicts_table(found: Sequence[Conflict]) -> str:
    """One line for each conflict."""
    lines = []
    for conflict in found:
        values = []
        for preset in GENERAL:
            tasks = conflict.tasks if conflict.tasks and conflict.tasks[0] in MUJOCO else (PLAIN, FROZEN)
            plans = [resolve(Experiment(task, conflict.method or "lbs", preset=preset)) for task in tasks]
            told = dict.fromkeys(in_force(plan, preset, conflict.setting) for plan in plans)
            values.append(" / ".join(told))
        setting = f"`{conflict.setting}`" + (f" ({conflict.method.upper()})" if conflict.method else "")
        lines.append([conflict.topic, conflict.paper, conflict.code, setting, *values])
    header = ["topic", "paper", "released code", "setting", *(f"`{preset}`" for preset in GENERAL)]
    return grid(header, lines)


def in_force(plan: Plan, preset: str, setting: str) -> str:
    """What a preset decides."""
    return PRESETS[preset].headline.partition("/")[2] if setting == HEADLINE else plain(plan.settings[setting])


def plain(value: Any) -> str:
    """A setting's value."""
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def settled(_: str, __: str) -> str:
    """Each open choice beside its alternatives and the paper."""
    variants = SUITES[CHOICES].variants
    lines = []
    for name in dict.fromkeys(variant.method for variant in variants):
        own = [variant.label for variant in variants if variant.method == name]
        published = {p.task: p.value for p in PUBLISHED if p.method == name}
        nearest = best = ""
        means = {label: [row(CHOICES, task, label)["mean"] for task in (PLAIN, FROZEN)] for label in own}
        best = max(own, key=lambda label: sum(means[label]))
        if published:
            aim = np.array([published[PLAIN], published[FROZEN]])
            nearest = min(own, key=lambda label: float(np.abs(np.array(means[label]) - aim).sum()))
            lines.append([f"**{name}**: the paper", f"{aim[0]:.2f}", f"{aim[1]:.2f}", ""])
        for label in own:
            told = "our default" if label == name else ""
            marks = [told, "highest sum" if label == best else "", "closest to the paper" if label == nearest else ""]
            entries = [row(CHOICES, task, label) for task in (PLAIN, FROZEN)]
            cells = [stacked(ours(e), collapsed_text(e)) for e in entries]
            lines.append([f"`{label}`", *cells, ", ".join(filter(None, marks))])
    table = grid(["", "Mountain Car", "Frozen", ""], lines)
    return (
        f"{table}\n\n{seeds_of(CHOICES)}; no other table uses these; preset `paper-code`; coverage in the paper's "
        "cells (%), mean [95 % interval]. Closest to the paper: smallest sum of the distances on both tasks."
    )


def alternatives(name: str, _: str) -> str:
    """One method's alternatives."""
    labels = [variant.label for variant in SUITES[CHOICES].variants if variant.method == name]
    published = {p.task: p.value for p in PUBLISHED if p.method == name}
    lines = [["paper", *(f"{published[task]:.2f}" for task in (PLAIN, FROZEN))]] if published else []
    lines += [[f"`{x}`", *(coverage_cell(CHOICES, task, x) for task in (PLAIN, FROZEN))] for x in labels]
    return f"{grid(['', 'Mountain Car', 'Frozen'], lines)}\n\n{seeds_of(CHOICES)}."


# --- parts: reliability -----------------------------------------------------------------------------------

Told = tuple[str, str, str]


def each(entries: Sequence[dict[str, Any]], tell: Callable[[dict[str, Any]], str]) -> str:
    """What is told of each task, one below the other."""
    return stacked(*(f"{TITLES.get(entry['task'], entry['task'])}: {tell(entry)}" for entry in entries))


def kill_told(found: dict[str, Any]) -> Told:
    """Runs that were killed."""
    again = found["work_repeated_seconds"]
    return (
        f"`kill -9` {found['kills']} times, {found['kills_during_a_save']} of them during a save and "
        f"{found['kills_after_the_last_iteration']} after the last iteration, dealt out over {found['experiments']} "
        f"experiments, then called again until finished; `--checkpoint-seconds {found['checkpoint_seconds']:g}`",
        f"{found['runs_bit_identical']} of {found['runs_finished']} runs end with the bits of the undisturbed one; "
        f"{found['continued_from_the_newest_step']} of {found['kills']} continued from the newest checkpoint; "
        f"{again['median']:.1f} s of work done again in the median, {again['most']:.1f} s at most",
        f"all; all; at most {found['checkpoint_seconds']:g} s",
    )


def corruption_told(found: dict[str, Any]) -> Told:
    """Checkpoints that were damaged."""
    ends = found["continued_to_the_end"]
    return (
        f"each of {found['files']} checkpoint files damaged in {len(found['outcomes'])} ways "
        f"({', '.join(found['outcomes'])})",
        f"{found['damages'] - len(found['misses'])} of {found['damages']} found or without consequence; of "
        f"{sum(ends.values())} that were run on, {ends.get('equal', 0)} came to the undisturbed end and "
        f"{ends.get('refused', 0)} were refused",
        "all",
    )


def flips_told(found: dict[str, Any]) -> Told:
    """Single bits."""
    words = ", ".join(
        f"{outcomes.get('found', 0)} of {sum(outcomes.values())} ({kind}s)"
        for kind, outcomes in found["outcomes"].items()
    )
    return (
        f"{found['flips']} single bits flipped in kept reports ({found['folders_of_reports']} folders, records "
        "included), finished runs, exports and the newest checkpoint",
        f"found: {words}; the others change nothing of what is read, as in the white space of JSON; "
        f"{len(found['misses'])} missed",
        "all found or without consequence",
    )


def nonfinite_told(found: dict[str, Any]) -> Told:
    """Unsound values."""
    return (
        f"{found['injected']} values at random places: {', '.join(sorted(found['by_value']))}",
        f"{found['caught']} caught in their iteration, {found['named']} named rightly; "
        f"{found['unsound_checkpoints']} of {found['checkpoints']} checkpoints written on the way hold one",
        "all; none",
    )


def fuzz_told(found: dict[str, Any]) -> Told:
    """Hostile files."""
    return (
        f"{found['cases']:,} mutated manifests, exports and tables, read {found['readings']:,} times",
        f"{found['typed_errors']:,} errors of Curiax's own, {found['harmless']:,} harmless; {found['failures']} other "
        f"errors, {found['crashes']} crashes, {found['silent']} unnoticed, {found['writes_outside']} writes",
        "no other errors, crashes or writes; memory bounded",
    )


def forged_told(found: dict[str, Any]) -> Told:
    """Forged folders beside traps."""
    return (
        f"{found['cases']} folders forged on purpose (names, paths, links, bombs, markup), read {found['readings']:,} "
        "times by every command that reads, beside modules that say so when they are run",
        f"{found['refused']:,} refused, {found['read']:,} read; {found['imports']} imports, {found['tracebacks']} "
        f"tracebacks, {found['crashes']} crashes, {found['writes_outside']} writes, {found['control_characters']} "
        f"control characters and {found['live_markup']} live tags shown; {found['most_memory_mib']:,} MiB of memory",
        "none; below 1,024 MiB",
    )


def memory_told(found: dict[str, Any]) -> Told:
    """Memory over a long run."""
    counts = sorted({f"{run['iterations']:,}" for run in found["runs"]})
    warm_up = sorted({str(run["warm_up"]["checkpoints"]) for run in found["runs"]})
    return (
        f"memory over {', '.join(counts)} iterations, counted from checkpoint {', '.join(warm_up)} on",
        each(
            found["runs"],
            lambda run: (
                f"{run['growth_percent']:+.2f} % during {run['checkpoints']} checkpoints "
                f"({run['growth_percent_since_the_first_checkpoint']:+.2f} % counted from the first, which itself adds "
                f"{run['megabytes']['first_checkpoint'] - run['megabytes']['first_iteration']:.0f} MB)"
            ),
        ),
        "under 1 % growth. Judged: after the warm-up",
    )


def cost_told(found: dict[str, Any]) -> Told:
    """What checkpoints cost."""

    def share(cost: dict[str, Any]) -> str:
        return f"{bracketed(cost['cost_percent'], *cost['interval'], 2)} %"

    added = [one for run in found["runs"] for one in run["train"]["added_by_each"]]
    first, later = np.mean([one[0] for one in added]), np.mean([seconds for one in added for seconds in one[1:]])
    every = sorted({f"{run['checkpoint_seconds']:g} s" for run in found["runs"]})
    return (
        f"iterations with a checkpoint, one every {', '.join(every)}, beside those around them; {found['repeats']} "
        "runs of each, means with 95 % intervals",
        each(
            found["runs"],
            lambda run: (
                f"{share(run['train'])} of the training time ({share(run['cpu'])} of CPU time) with "
                f"{np.median(run['checkpoints']):g} in {np.median(run['train']['seconds']):.0f} s"
            ),
        )
        + f"<br>The first of a run adds {first:.2f} s, each later one {later:.2f} s",
        "under 3 %. Judged: the whole interval",
    )


def bits_told(found: dict[str, Any]) -> Told:
    """Runs that were repeated."""
    count, unequal, disturbed = (
        found["experiments"],
        len(found["run_twice_unequal"]),
        len(found["seed_added_disturbed"]),
    )
    return (
        f"{count} experiments run twice, each time in a new process; and begun with one seed more",
        f"{count - unequal} to the same bits; in {count - disturbed} the other seeds begin as before",
        "all",
    )


def sweep_told(found: dict[str, Any]) -> Told:
    """A sweep under fire."""
    return (
        f"{found['runs']} runs on a Ray cluster of {found['workers']} workers, one killed every "
        f"{found['kill_every_seconds']:g} s: {found['kills']} kills",
        f"{found['equal']} of {found['runs']} runs end with the serial run's state, table and agents",
        "all",
    )


#: Check of `soak/run_all.py` → its subject, and what is told of its figures: what was done, what came out, the target.
SOAKS: dict[str, tuple[str, Callable[[dict[str, Any]], Told]]] = {
    "kill": ("killed runs", kill_told),
    "corruption": ("damaged checkpoints", corruption_told),
    "flips": ("flipped bits", flips_told),
    "nonfinite": ("NaN, infinity and 1e30", nonfinite_told),
    "fuzz": ("hostile files", fuzz_told),
    "forged": ("forged folders", forged_told),
    "same_bits": ("runs repeated", bits_told),
    "sweep": ("a sweep whose workers die", sweep_told),
    "memory": ("memory", memory_told),
    "checkpoint_cost": ("the cost of checkpoints", cost_told),
}


def reliability(_: str, __: str) -> str:
    """Every check of `make soak`; what has not been measured is said to be so."""
    file = RESULTS / "reliability.json"
    if not file.exists():
        return "Not measured yet: `make soak` writes `results/reliability.json`, which is not there."
    found, lines = json.loads(file.read_text()), []
    verdicts = {True: "yes", False: "**no**", None: "not judged"}
    for name, (subject, told) in SOAKS.items():
        if name in found:
            lines.append([*told(found[name]), verdicts[found[name].get("passed")]])
        else:
            lines.append([f"{subject}: not measured yet", "", "", ""])
    measured = [found[name] for name in SOAKS if name in found]
    states = ", ".join(sorted({f"{entry['commit']} with Python {entry['python']}" for entry in measured}))
    table = grid(["what was done", "what came out", "target", "passed"], lines)
    return f"{table}\n\nMade by `make soak` at {states}." if measured else table


def sb3(_: str, __: str) -> str:
    """Who reached the flag of the sparse Mountain Car in Stable-Baselines3, and when."""
    found = json.loads((RESULTS / "sb3-mountain-car.json").read_text())
    names, seeds = list(found["results"]), [row["seed"] for row in found["results"]["ppo"]]
    lines = []
    for k, seed in enumerate(seeds):
        rows = [found["results"][name][k] for name in names]
        firsts = ["never" if row["first_reached"] is None else f"{row['first_reached']:,}" for row in rows]
        late = [f"{row['share_of_last_episodes']:.0%}".replace("%", " %") for row in rows]
        lines.append([str(seed), *(f"{first}; {share}" for first, share in zip(firsts, late, strict=True))])
    versions = ", ".join(f"{name} {found['versions'][name]}" for name in ("stable-baselines3", "torch", "jax"))
    chosen = json.loads((RESULTS / "sb3-mountain-car-chosen.json").read_text())
    with_, without = (
        sum(row["first_reached"] is not None for row in chosen["results"][name]) for name in ("ppo with lbs", "ppo")
    )
    count, usual = len(chosen["results"]["ppo"]), chosen["tried"][0]["reached"]
    return (
        f"{grid(['seed', *names], lines)}\n\nThe step at which the flag was first reached, of {found['steps']:,}, and "
        "the share of episodes in the last tenth of training that reached it. Made once, on seeds that nothing was "
        f"chosen on, by `{found['command']}` with {versions}.\n\nDo not take the middle column for a law. The settings "
        "were chosen on the seeds 0 to 9 so that PPO alone learns nothing where nothing is paid, and LBS still gets "
        f"there; {len(chosen['tried'])} others were tried, some on a few seeds only. With those that were chosen "
        f"{with_} of these {count} seeds reached the flag with LBS, and {without} without. With advantages normalised "
        f"(as is usual), an entropy bonus and PPO's usual Adam it was {usual['ppo with lbs']} with LBS, and "
        f"{usual['ppo']} without. All are in `results/sb3-mountain-car-chosen.json`."
    )


def example(name: str, _: str) -> str:
    """How far an example's agent came with and without bonus, on each of its seeds."""
    path = RESULTS / "bonus-examples.json"
    if not path.is_file():
        raise MissingResults(str(path))
    kept_runs = json.loads(path.read_text())
    found, notes, machine = kept_runs["examples"][name], kept_runs["notes"][name], kept_runs["machine"]
    rows, titles = found["results"], list(found["results"][0]["agents"])
    lines = []
    for row in rows:
        agents = [row["agents"][title] for title in titles]
        lines.append([str(row["seed"]), *(f"{one['bins']}; {one['flags']} of {one['episodes']}" for one in agents)])
    others = [
        f"with `XLA_FLAGS='{row['XLA_FLAGS']}'` seed {row['seed']} saw {one['bins']} bins {titles[1]}, and reached the "
        f"flag in {one['flags']} of {one['episodes']} episodes"
        for row in found.get("compiled_otherwise", [])
        for one in [row["agents"][titles[1]]]
    ]
    compiled = f" Compiled otherwise, which changes last bits only: {'; '.join(others)}." if others else ""
    earlier = notes["earlier"]
    now = {title: {key: [row["agents"][title][key] for row in rows] for key in earlier[title]} for title in titles}
    same = earlier["seeds"] == [row["seed"] for row in rows] and all(now[title] == earlier[title] for title in titles)
    seen = "the same" if same else f"{', '.join(map(str, earlier[titles[1]]['bins']))} bins {titles[1]}"
    return (
        f"{grid(['seed', *titles], lines)}\n\nOf {rows[0]['agents'][titles[0]]['bins_in_all']} bins of position and "
        f"velocity those visited, and the episodes that reached the flag. The settings were {notes['settings']}; "
        f"nothing was chosen on the seeds from 200 on. `{found['command']}`, with {machine['cores']} cores to use; "
        f"both trainings together took {max(row['cpu_seconds'] for row in rows):.0f} s of CPU at most.{compiled}\n\n"
        f"Made by `{machine['command']}` at commit {machine['commit'][:7]}, kept in `results/bonus-examples.json`. "
        f"An earlier run of these seeds, pinned to one core and before the last changes to `Bonus`, saw {seen} "
        "(`earlier` in the notes of that file, which are written by hand)."
    )


def run_options(_: str, __: str) -> str:
    """How a run is carried out: the options that `run` and `reproduce` share."""
    told = descriptions(RunOptions)
    lines = []
    for name, (_, default) in signature(RunOptions).items():
        shown = "no" if default is False else f"`{default:g}`" if isinstance(default, float) else f"`{default}`"
        lines.append([f"`--{name.replace('_', '-')}`", shown, " ".join(told[name].split())])
    return grid(["option", "default", ""], lines)


# --- parts: others ----------------------------------------------------------------------------------------


def overview(_: str, __: str) -> str:
    """What `curiax` alone prints, and the names it knows."""
    named = [("methods", METHODS), ("tasks", TASKS), ("suites", SUITES), ("presets", PRESETS)]
    lists = [
        f"**{title}**\n\n" + "\n".join(f"* `{name}`: {entry.summary}" for name, entry in entries.items())
        for title, entries in named
    ]
    return (
        "\n\n".join(["```text", cli.OVERVIEW.strip(), "```", *lists])
        .replace("```text\n\n", "```text\n")
        .replace("\n\n```", "\n```")
    )


def bins(which: str, _: str) -> str:
    """Both coverages of every method on the Mountain Cars, or on MuJoCo's tasks."""
    places = {task: task for task in MUJOCO} if which == "mujoco" else dict.fromkeys(THREE, MAIN)
    lines = []
    for label in dict.fromkeys(r["method"] for folder in places.values() for r in kept(folder)["rows"]):
        pairs = [[row(folder, t, label, m) for m in (METRIC, "coverage/bins")] for t, folder in places.items()]
        lines.append([f"`{label}`", *(f"{cells['mean']:.1f} / {honest['mean']:.1f}" for cells, honest in pairs)])
    seeds = "; ".join(dict.fromkeys(seeds_of(folder) for folder in places.values()))
    return f"{grid(['cells / bins', *titled(list(places))], lines)}\n\nMeans of {seeds}; preset `paper-code`."


#: Part → how it is written, from what it is about and the way from its document up to the repository's root.
def mnist_variance(_: str, __: str) -> str:
    """What LBS would encode of each kind of transition on Noisy MNIST at its best, for some β."""
    told = json.loads((RESULTS / "mnist-variance.json").read_text())
    lines = []
    for pixels, features in zip(told["pixels"]["nats"], told["features"]["nats"], strict=True):
        cells = [f"{pixels['beta']:g}"]
        for row in (pixels, features):
            first, second = row["1 → 2…9"], row["0 → 1"]
            ratio = f"{first / second:.2f}" if second > 0.01 else "nothing is encoded"
            cells += [f"{first:.2f}", f"{second:.2f}", ratio]
        lines.append(cells)
    head = ["β", *(f"{name}: {what}" for name in ("pixels", "features") for what in ("1 → 2…9", "0 → 1", "ratio"))]
    largest = {name: max(told[name]["largest_variance"].values()) for name in ("pixels", "features")}
    return (
        grid(head, lines) + "\n\nIn nats, from the pictures alone. The largest variance of a direction is "
        f"{largest['pixels']:.1f} for pixels and {largest['features']:.1f} for standardised features (mean of "
        f"{told['features']['networks']} random networks). `{told['command']}`"
    )


PARTS: dict[str, Callable[[str, str], str]] = {
    "mnist-variance": mnist_variance,
    "noisy-tv": noisy_tv,
    "speed": speed,
    "front-speed": front_speed,
    "beside-older": beside_older,
    "rllte": rllte,
    "plain-ppo": plain_ppo,
    "latency": latency,
    "arcade": arcade,
    "arcade-profile": arcade_profile,
    "host-ratios": host_ratios,
    "host-profile": host_profile,
    "host-paths": host_paths,
    "main-table": main_table,
    "stochastic-mountain-car": main_table,
    "curiax-preset": curiax_preset,
    "figure": figure,
    "table": table,
    "ratios": ratios,
    "made": made,
    "reports": reports,
    "claims": claims_part,
    "noise": noise,
    "misses": misses,
    "completion": completion,
    "method": method,
    "method-choices": method_choices,
    "improvement": improvement,
    "winners": winners,
    "gains": gains,
    "path": path,
    "leave-one-out": leave_one_out,
    "one-change": one_change,
    "beta": beta,
    "conflicts": conflicts,
    "settled": settled,
    "alternatives": alternatives,
    "overview": overview,
    "run-options": run_options,
    "reliability": reliability,
    "sb3": sb3,
    "example": example,
    "bins": bins,
}


def updated(text: str, up: str, missing: list[str]) -> str:
    """A document with its marked parts written anew; parts whose results are missing stay, and are told."""

    def write(found: re.Match[str]) -> str:
        name = found[2]
        kind, _, about = name.partition(":")
        if found[5] != name or kind not in PARTS:
            raise SystemExit(f"A part is marked {name!r} to {found[5]!r}: parts are {', '.join(PARTS)}.")
        try:
            return f"{found[1]}{PARTS[kind](about, up)}\n{found[4]}"
        except MissingResults as error:
            missing.append(f"{name}: {error}")
            return found[0]

    if text.count("<!-- begin: ") != len(MARKED.findall(text)):
        raise SystemExit("A marked part does not end, or its first line is not as it must be.")
    return MARKED.sub(write, text)


def main() -> int:
    """Rewrite, or check."""
    check, partial = "--check" in sys.argv[1:], "--partial" in sys.argv[1:]
    failed = False
    for document in DOCUMENTS:
        missing: list[str] = []
        before = document.read_text()
        after = updated(before, "../" if document.parent != ROOT else "", missing)
        name = document.relative_to(ROOT)
        for what in missing:
            print(f"{name}: {what}", file=sys.stderr)
        failed |= bool(missing) and not partial
        if check and before != after:
            print(f"{name} is out of date: run python scripts/update_docs.py", file=sys.stderr)
            failed = True
        if not check and before != after:
            document.write_text(after)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
