"""Single bits of everything that Curiax keeps: each that is flipped must be found, or change nothing of what is read.

Kept reports (figures, tables, records), finished runs, exports, and the checkpoints that a run would continue from.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corruption
from common import ROOT, say

import curiax
from curiax import OutputError
from curiax.experiments import folder as runs
from curiax.experiments import saved
from curiax.experiments.store import state_digest
from curiax.report import record
from curiax.report.output import faults
from curiax.report.publish import verify

#: What becomes of a flipped bit: `found`, `no consequence`, or what is wrong.
Look = Callable[[Path], str]


def look_at_report(folder: Path) -> str:
    """What `curiax verify` finds: every byte counts."""
    try:
        # Whatever `faults` finds, `verify` tells; alone it takes milliseconds instead of seconds.
        return "found" if faults(folder) or verify(folder).differences else "not found"
    except OutputError:
        return "found"


def read_run(folder: Path) -> Any:
    """All that `report`, `load`, `watch` and a second `curiax run` read of a finished run."""
    metrics = {str(k): column for k, column in enumerate(runs.read_metrics(folder).to_dict(as_series=False).items())}
    record.read_run(folder)
    return runs.read_manifest(folder), metrics, read_export(folder)


def read_export(folder: Path) -> Any:
    """All that there is to read of an export."""
    data, _ = saved.exports.described(folder)
    about = saved.exports.about_of(folder, data)
    return about, state_digest(saved.exports.tensors_of(folder, about, None))


def compared(read: Callable[[Path], Any], whole: Path) -> Look:
    """Look at a folder by reading it, beside what was read of the undamaged one."""
    true = read(whole)

    def look(folder: Path) -> str:
        try:
            return "no consequence" if read(folder) == true else "another value was read"
        except OutputError:
            return "found"

    return look


def look_at_checkpoints(whole: Path) -> Look:
    """Look at checkpoints by continuing from them."""
    who, true = corruption.identity(whole), corruption.truths(whole)
    words = {outcome: "no consequence" if outcome == "harmless" else "found" for outcome in corruption.SOUND}

    def look(folder: Path) -> str:
        outcome = corruption.examine(folder, true, who)
        return words.get(outcome, outcome)

    return look


def newest_files(checkpoints: Path) -> list[Path]:
    """The newest step, and the metrics of all steps."""
    step = max(checkpoints.glob("step-*"))
    names = ("lock", "holder.txt", "made-by-curiax.txt")
    files = [path for path in checkpoints.rglob("*") if path.is_file() and path.name not in names]
    return sorted(path for path in files if path.is_relative_to(step) or "step-" not in str(path))


def flipped(
    whole: Path, files: list[Path], look: Look, flips: int, rng: random.Random
) -> tuple[Counter[str], list[str]]:
    """What becomes of so many bits, one at a time, every time in a fresh copy of the folder."""
    outcomes: Counter[str] = Counter()
    misses: list[str] = []
    with tempfile.TemporaryDirectory() as base:
        for k in range(flips):
            copy = Path(base) / str(k)
            shutil.copytree(whole, copy)
            name = rng.choice(files).relative_to(whole)
            data = bytearray((copy / name).read_bytes())
            at = rng.randrange(8 * len(data))
            data[at // 8] ^= 1 << at % 8
            (copy / name).write_bytes(data)
            outcome = look(copy)
            outcomes[outcome] += 1
            if outcome not in ("found", "no consequence"):
                misses.append(f"{whole.name}/{name}, bit {at}: {outcome}")
            shutil.rmtree(copy)
    return outcomes, misses


def soak(flips: int = 500, seed: int = 0) -> dict[str, Any]:
    """Figures of so many flips for each of the four kinds."""
    begun, rng = time.monotonic(), random.Random(seed)
    kinds: dict[str, Counter[str]] = {}
    misses: list[str] = []

    def count(kind: str, whole: Path, files: list[Path], look: Look, share: int) -> None:
        outcomes, missed = flipped(whole, files, look, share, rng)
        kinds[kind] = kinds.get(kind, Counter()) + outcomes
        misses.extend(missed)
        say(f"{kind}: {sum(kinds[kind].values())} bits so far, {len(misses)} misses")

    def every(folder: Path) -> list[Path]:
        return sorted(path for path in folder.rglob("*") if path.is_file())

    reports = sorted(path.parent.parent for path in (ROOT / "results").glob("*/record/runs.json"))
    for k, report in enumerate(reports):
        share = flips * (k + 1) // len(reports) - flips * k // len(reports)
        count("report", report, every(report), look_at_report, share)
    with tempfile.TemporaryDirectory() as base:
        experiment = corruption.small_experiment("mountain-car", "lbs", (0, 1))
        run, export = Path(base) / "run", Path(base) / "export"
        checkpoints = corruption.unfinished(Path(base) / "unfinished", experiment)
        curiax.run(experiment, run)
        curiax.export(run, export)
        count("run", run, every(run), compared(read_run, run), flips)
        count("export", export, every(export), compared(read_export, export), flips)
        count("checkpoint", checkpoints, newest_files(checkpoints), look_at_checkpoints(checkpoints), flips)
    return {
        "folders_of_reports": len(reports),
        "flips": sum(sum(outcomes.values()) for outcomes in kinds.values()),
        "outcomes": {kind: dict(outcomes) for kind, outcomes in kinds.items()},
        "misses": misses,
        "seconds": round(time.monotonic() - begun, 1),
        "passed": not misses and all(outcomes["found"] > 0 for outcomes in kinds.values()),
    }


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--flips", type=int, default=500, help="for each kind of folder")
    options.add_argument("--seed", type=int, default=0)
    args = options.parse_args()
    print(json.dumps(soak(args.flips, args.seed), indent=2))
