"""How much sooner does a killed run go on than under an older version of Curiax?

A run is ended at its fifth iteration, with a checkpoint after each. Each repeat copies its folder and starts a fresh
process that goes on, with the compiled programs in the cache; the time is from the start of the process to its first
new iteration, imports included. Both versions take turns, each with a run and a cache of its own. 0.4 and older wrote
checkpoints with Orbax, which takes long to import:

    git worktree add ../curiax-0.4 5a1099c && python3 -m venv ../venv-0.4
    ../venv-0.4/bin/pip install -c constraints.txt ../curiax-0.4
    python benchmarks/resume.py --older-python ../venv-0.4/bin/python
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import TASK, Target, fresh_python, interleave, parser, report, start_facts, write

NAME = "resume"
METHOD, SEEDS = "lbs", 8
#: So many seconds must be saved.
BOUND = 1.5
CHILD = """
import json, sys, time
import curiax
from curiax.experiments.progress import Silent

class Until(Silent):
    at = cpu = None
    def advance(self, iteration, latest):
        self.at, self.cpu = self.at or time.time(), self.cpu or time.process_time()
        if len(sys.argv) == 5 or iteration == 5:
            raise MemoryError

task, method, seeds, out, *_ = sys.argv[1:]
progress = Until()
experiment = curiax.Experiment(task, method, seeds=int(seeds), steps=20480)
options = curiax.RunOptions(checkpoint_seconds=0.0)
try:
    curiax.run(experiment, out, progress=progress, options=options)
except MemoryError:
    print(json.dumps({"at": progress.at, "cpu": progress.cpu, "version": curiax.__version__}))
"""


def child(python: str, out: Path, cache: Path, first: bool) -> dict[str, Any]:
    """One process: to the fifth iteration of a new run, or to the first iteration of one that goes on."""
    words = ["-c", CHILD, TASK, METHOD, str(SEEDS), str(out), *(["first"] if first else [])]
    return json.loads(fresh_python(words, python, CURIAX_CACHE=str(cache), JAX_COMPILATION_CACHE_DIR=""))


def main() -> None:
    """Measure, write, show."""
    options = parser(__doc__ or "", NAME, repeats=7)
    options.add_argument("--older-python", required=True, help="interpreter of an environment with an older Curiax")
    args = options.parse_args()
    facts = start_facts()
    with tempfile.TemporaryDirectory(prefix="curiax-resume-") as base:
        pythons, first_runs = {"now": sys.executable, "older": args.older_python}, {}
        cpu: dict[str, list[float]] = {name: [] for name in pythons}

        def again(name: str) -> float:
            place = Path(base) / name
            shutil.rmtree(place / "again", ignore_errors=True)
            shutil.copytree(place / "run", place / "again")
            begun = time.time()
            result = child(pythons[name], place / "again", place / "cache", False)
            cpu[name].append(result["cpu"])
            return result["at"] - begun

        for name, python in pythons.items():
            (Path(base) / name / "cache").mkdir(parents=True)
            first_runs[name] = child(python, Path(base) / name / "run", Path(base) / name / "cache", True)
            again(name)  # once unmeasured, so that files and byte code are where they will be
        if first_runs["now"]["version"] == first_runs["older"]["version"]:
            options.error(
                f"{args.older_python} has Curiax {first_runs['now']['version']} as well: nothing to compare with"
            )
        seconds = interleave({name: lambda name=name: again(name) for name in pythons}, args.repeats)
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    busy = {name: statistics.median(values[1:]) for name, values in cpu.items()}
    summary = {
        **{f"{name}_seconds": value for name, value in middle.items()},
        **{f"{name}_cpu_seconds": value for name, value in busy.items()},
        "saved_seconds": middle["older"] - middle["now"],
        "saved_cpu_seconds": busy["older"] - busy["now"],
    }
    targets = [Target("saved before a run goes on, s", summary["saved_seconds"], BOUND, "at least")]
    settings = {
        "task": TASK,
        "method": METHOD,
        "seeds": SEEDS,
        "versions": {n: s["version"] for n, s in first_runs.items()},
    }
    repeats = {"to_first_iteration": seconds, "cpu": cpu}
    write(args.out, (__doc__ or "").splitlines()[0], facts, settings, repeats, summary, targets)
    rows = [(f"{n} ({first_runs[n]['version']})", middle[n], min(v), max(v), busy[n]) for n, v in seconds.items()]
    report(args.out, ("version", "median s", "lowest", "highest", "CPU s"), rows, targets)


if __name__ == "__main__":
    main()
