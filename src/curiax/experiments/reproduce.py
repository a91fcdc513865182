"""Training a whole suite: every variant on every task, what is finished reused."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from .._errors import OutputError, UsageError, unknown
from ..paper.suites import ARCADE, MARIO, SUITES, Suite, Variant
from .options import RunOptions
from .progress import AbstractProgress, Counted
from .registry import ATARI, find_task
from .run import RunResult, run
from .spec import Experiment, Plan, require, resolve

#: How many seeds, or which.
Seeds = int | tuple[int, ...]


def seeds_of_tasks(suite: Suite, text: str, read: Callable[[str], Seeds]) -> dict[str, Seeds]:
    """Each task's seeds from a text such as `3000-3031 half-cheetah=8`: for every task, and for one task only.

    The tasks of a suite may differ a thousandfold in what a seed of them costs.
    """
    words = re.split(r"(?<!,)\s+", text.strip())
    common = [word for word in words if "=" not in word]
    if len(common) > 1:
        raise UsageError(f"--seeds {text!r}: seeds for every task are said once; for one task, TASK=SEEDS.")
    own: dict[str, Seeds] = {}
    for task, _, seeds in (word.partition("=") for word in words if "=" in word):
        if task not in suite.tasks:
            raise unknown(f"task of suite {suite.name!r}", task, suite.tasks)
        if task in own:
            raise UsageError(f"--seeds {text!r}: {task} is named twice.")
        own[task] = read(seeds)
    left = [task for task in suite.tasks if task not in own]
    if left and not common:
        raise UsageError(f"--seeds {text!r}: no seeds for {', '.join(left)}; add those for every task.")
    return {task: own[task] if task in own else read(common[0]) for task in suite.tasks}


def chosen_tasks(suite: Suite, words: Sequence[str]) -> tuple[str, ...]:
    """The tasks of a suite that are to be trained on, in its order: all of them where none are named."""
    if wrong := [word for word in words if word not in suite.tasks]:
        raise unknown(f"task of suite {suite.name!r}", wrong[0], suite.tasks)
    return tuple(task for task in suite.tasks if not words or task in words)


def on_games(suite: Suite, games: Sequence[str]) -> Suite:
    """The suite on these games instead of its own, each a word or several with commas between them."""
    words = [word.strip() for text in games for word in text.split(",") if word.strip()]
    if not suite.has_games:
        having = " and ".join(name for name, each in SUITES.items() if each.has_games)
        raise UsageError(f"--games: suite {suite.name!r} has no games; leave it out. Those of {having} can be picked.")
    if not words:
        raise UsageError("--games: name some games, as --games breakout,qbert.")
    tasks = tuple(dict.fromkeys(map(game_task, words)))
    lines = ", ".join(variant.label for variant in suite.variants)
    return replace(suite, tasks=tasks, summary=f"{lines} on {', '.join(tasks)}")


def game_task(word: str) -> str:
    """The task of a game: `mario`, or any game of ale-py, however it is spelt."""
    return MARIO if word.lower() == MARIO else find_task(f"{ATARI}{word.removeprefix(ATARI)}").name


def experiments(
    suite: Suite,
    *,
    methods: Sequence[str] | None,
    seeds: Seeds | dict[str, Seeds],
    steps: int | None,
    preset: str | None,
    rom: str | None = None,
) -> list[Experiment]:
    """The suite's experiments, every one checked before the first is trained.

    `seeds` are those of all tasks or by task; `rom` is a file for Super Mario Bros., which must be among the tasks.
    """
    if preset is not None and suite.fixed:
        raise UsageError(f"suite {suite.name!r} compares presets itself: leave --preset out.")
    if rom is not None and MARIO not in suite.tasks:
        raise UsageError(
            f"--rom {rom}: it is a file for Super Mario Bros., which is not among what is run: leave it out, or "
            + ("name the game too, as --games mario." if suite.has_games else "take the suite arcade.")
        )
    own = {MARIO: {"task.rom": rom}} if rom is not None else {}
    labelled = {variant.label: variant for variant in suite.variants}
    chosen = [labelled.get(name, Variant(name, name)) for name in methods] if methods else suite.variants
    found = [
        Experiment(
            task,
            variant.method,
            seeds=seeds[task] if isinstance(seeds, dict) else seeds,
            steps=steps,
            preset=variant.preset or preset or "paper-code",
            settings={**variant.settings, **own.get(task, {})},
            label=variant.label,
        )
        for task in suite.tasks
        for variant in chosen
    ]
    for experiment in found:
        require_game(suite, resolve(experiment))
    return found


def require_game(suite: Suite, plan: Plan) -> None:
    """Refuse a task that needs something which is not installed; a game can be left out."""
    task = plan.task_entry.name
    others = ",".join(other.removeprefix(ATARI) for other in suite.tasks if other != task)
    try:
        require(plan)
    except UsageError as error:
        # Whoever brings a ROM wants that game.
        if task not in ARCADE or not others or plan.settings.get("task.rom"):
            raise
        raise UsageError(f"{error} Or leave this game out: --games {others}") from None


def lead(suite: Suite, chosen: Sequence[Experiment]) -> str:
    """What was run, in a sentence or two: lines, seeds, steps, presets."""
    labels = list(dict.fromkeys(experiment.label for experiment in chosen))
    where = ", ".join(suite.tasks) if suite.has_games else suite.title
    whole = set(labels) == {variant.label for variant in suite.variants}
    summary = f"{suite.summary[0].upper()}{suite.summary[1:]}" if whole else f"{', '.join(labels)} on {where}"
    sizes: dict[str, list[str]] = {}
    for plan in map(resolve, chosen):
        size = f"{len(plan.seeds)} seed{'s' if len(plan.seeds) > 1 else ''} of {plan.steps:,} steps"
        sizes.setdefault(size, []).append(plan.task_entry.name)
    parts = [
        f"{size} on {', '.join(dict.fromkeys(tasks))}" if len(sizes) > 1 else size for size, tasks in sizes.items()
    ]
    presets = sorted({experiment.preset for experiment in chosen})
    parts.append(f"preset{'s' if len(presets) > 1 else ''} {', '.join(presets)}")
    return f"{summary}. {('; ' if len(sizes) > 1 else ', ').join(parts)}."


def train_suite(
    chosen: Sequence[Experiment], store: Path, progress: AbstractProgress, options: RunOptions | None = None
) -> list[RunResult]:
    """Each experiment in a folder of its own below `store`, named by its identity, so that suites can share it."""
    options, results = options or RunOptions(), []
    require_headline(chosen, options)
    for k, experiment in enumerate(chosen):
        plan = resolve(experiment)
        counted, own = Counted(progress, f"[{k + 1}/{len(chosen)}]"), options_for(plan, options)
        results.append(run(experiment, place_of(plan, store), progress=counted, options=own))
    return results


def require_headline(chosen: Sequence[Experiment], options: RunOptions) -> None:
    """Refuse a headline that none of some runs measures."""
    names = dict.fromkeys(metric.name for experiment in chosen for metric in resolve(experiment).metrics)
    if options.headline is not None and options.headline not in names:
        raise unknown("metric", options.headline, list(names))


def options_for(plan: Plan, options: RunOptions) -> RunOptions:
    """The options of one run of several: what is shown first of others, it may not measure."""
    known = any(metric.name == options.headline for metric in plan.metrics)
    return options if known else replace(options, headline=None)


def place_of(plan: Plan, store: Path) -> Path:
    """Where a run of a store is; nobody has named that place, so a link there would lead nobody knows where."""
    place = store / run_folder(plan)
    if place.is_symlink():
        raise OutputError(f"{place} is a link, which is not followed: remove it, or name another folder.")
    return place


def run_folder(plan: Plan) -> str:
    """`task_method_digest`, fit for any file system."""
    # A name of a user's may be of any length and kind; the digest tells runs apart.
    parts = (re.sub(r"[^\w.+-]", "-", name)[:100] for name in (plan.task_entry.name, plan.learner))
    return f"{'_'.join(parts)}_{plan.run_id}"
