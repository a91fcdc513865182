"""The table of everything that was soaked: `python soak/tables.py` writes `results/reliability.md` from its figures.

`soak/run_all.py` does so after each check; `docs/reliability.md` shows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from curiax._text import markdown_table
from curiax.report.words import bracketed, task_title

RESULTS = Path(__file__).parent.parent / "results" / "reliability.json"
Row = tuple[str, str, str]


def each(entries: Sequence[dict[str, Any]], words: Callable[[dict[str, Any]], str]) -> str:
    """A text for each task, one below the other."""
    return "<br>".join(f"{task_title(entry['task'])}: {words(entry)}" for entry in entries)


def kill_row(found: dict[str, Any]) -> Row:
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


def corruption_row(found: dict[str, Any]) -> Row:
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


def flips_row(found: dict[str, Any]) -> Row:
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


def nonfinite_row(found: dict[str, Any]) -> Row:
    """Unsound values."""
    return (
        f"{found['injected']} values at random places: {', '.join(sorted(found['by_value']))}",
        f"{found['caught']} caught in their iteration, {found['named']} named rightly; "
        f"{found['unsound_checkpoints']} of {found['checkpoints']} checkpoints written on the way hold one",
        "all; none",
    )


def fuzz_row(found: dict[str, Any]) -> Row:
    """Hostile files."""
    return (
        f"{found['cases']:,} mutated manifests, exports and tables, read {found['readings']:,} times",
        f"{found['typed_errors']:,} errors of Curiax's own, {found['harmless']:,} harmless; {found['failures']} other "
        f"errors, {found['crashes']} crashes, {found['silent']} unnoticed, {found['writes_outside']} writes",
        "no other errors, crashes or writes; memory bounded",
    )


def forged_row(found: dict[str, Any]) -> Row:
    """Forged folders beside traps."""
    return (
        f"{found['cases']} folders forged on purpose (names, paths, links, bombs, markup), read {found['readings']:,} "
        "times by every command that reads, beside modules that say so when they are run",
        f"{found['refused']:,} refused, {found['read']:,} read; {found['imports']} imports, {found['tracebacks']} "
        f"tracebacks, {found['crashes']} crashes, {found['writes_outside']} writes, {found['control_characters']} "
        f"control characters and {found['live_markup']} live tags shown; {found['most_memory_mib']:,} MiB of memory",
        "none; below 1,024 MiB",
    )


def memory_row(found: dict[str, Any]) -> Row:
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


def cost_row(found: dict[str, Any]) -> Row:
    """What checkpoints cost."""

    def share(cost: dict[str, Any]) -> str:
        return f"{bracketed(cost['cost_percent'], cost['interval'], 2)} %"

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


def bits_row(found: dict[str, Any]) -> Row:
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


def sweep_row(found: dict[str, Any]) -> Row:
    """A sweep under fire."""
    return (
        f"{found['runs']} runs on a Ray cluster of {found['workers']} workers, one killed every "
        f"{found['kill_every_seconds']:g} s: {found['kills']} kills",
        f"{found['equal']} of {found['runs']} runs end with the serial run's state, table and agents",
        "all",
    )


#: Check of `soak/run_all.py` → its subject, and the row of its figures: what was done, what came out, the target.
SOAKS: dict[str, tuple[str, Callable[[dict[str, Any]], Row]]] = {
    "kill": ("killed runs", kill_row),
    "corruption": ("damaged checkpoints", corruption_row),
    "flips": ("flipped bits", flips_row),
    "nonfinite": ("NaN, infinity and 1e30", nonfinite_row),
    "fuzz": ("hostile files", fuzz_row),
    "forged": ("forged folders", forged_row),
    "same_bits": ("runs repeated", bits_row),
    "sweep": ("a sweep whose workers die", sweep_row),
    "memory": ("memory", memory_row),
    "checkpoint_cost": ("the cost of checkpoints", cost_row),
}


def page(found: dict[str, Any]) -> str:
    """Every check; what has not been measured is said to be so, and what failed."""
    lines, verdicts = [], {True: "yes", False: "**no**", None: "not judged"}
    for name, (subject, row) in SOAKS.items():
        if name in found:
            lines.append([*row(found[name]), verdicts[found[name].get("passed")]])
        else:
            lines.append([f"{subject}: not measured yet", "", "", ""])
    measured = [found[name] for name in SOAKS if name in found]
    states = ", ".join(sorted({f"{entry['commit']} with Python {entry['python']}" for entry in measured}))
    table = markdown_table(["what was done", "what came out", "target", "passed"], lines)
    return f"# Reliability\n\n## Every check\n\n{table}\n\nMade by `make soak` at {states}.\n"


def publish(figures: Path = RESULTS) -> None:
    """Write the table beside the figures."""
    figures.with_suffix(".md").write_text(page(json.loads(figures.read_text())))


if __name__ == "__main__":
    publish()
