"""Is any figure of the benchmarks worse than under an older version, by more than its scatter?

Each benchmark is run with the older version's scripts and Python and with this one's, the two taking turns, all in one
go on one machine. A figure's scatter is the larger range of the two versions' rounds, as a share. Wherever a smaller
figure is better, it is worse if its best round is above the older one's best by more than that. `--only` renews some
benchmarks and keeps the others.

    git worktree add ../curiax-0.4 5a1099c && python3 -m venv ../venv-0.4
    ../venv-0.4/bin/pip install '../curiax-0.4[mujoco,atari]'
    python benchmarks/before_after.py --older ../curiax-0.4 --older-python ../venv-0.4/bin/python
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import RESULTS, ROOT, Target, environment_of_users, positive, report, say, start_facts, write

NAME = "against_0.4.json"
#: The benchmarks and their options: few repeats each, as the rounds repeat them.
OPTIONS: dict[str, tuple[str, ...]] = {
    "import_time": ("--repeats", "3"),
    "startup": ("--repeats", "1", "--warm", "3"),
    "method_cost": ("--repeats", "2"),
    "seed_scaling": ("--repeats", "2"),
    "host": ("--repeats", "1"),
    "bonus_latency": ("--repeats", "1"),
    "suite": ("--repeats", "1"),
    "emulators": ("--repeats", "1", "--games", "breakout"),
    "arcade_small": ("--preset", "small", "--repeats", "1", "--seeds", "1"),
}
SCRIPTS = {"arcade_small": "arcade"}


def figures(root: Path, python: str, name: str) -> list[dict[str, Any]]:
    """One run of a benchmark: its targets, which have the same order in both versions."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        script = root / "benchmarks" / f"{SCRIPTS.get(name, name)}.py"
        command = [python, str(script), "--out", str(out), *OPTIONS[name]]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, env=environment_of_users(python))
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
        return json.loads(out.read_text())["targets"]


def main() -> None:
    """Measure, write, show."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--out", type=Path, default=RESULTS / "against_0.4.json", help="JSON file (default %(default)s)"
    )
    options.add_argument("--older", type=Path, required=True, help="a checkout of the older version")
    options.add_argument("--older-python", required=True, help="a Python that has it, as `older/src` or installed")
    options.add_argument("--rounds", type=positive, default=2, help="of both versions (default %(default)s)")
    options.add_argument("--only", nargs="+", choices=OPTIONS, default=list(OPTIONS), help="these benchmarks")
    args = options.parse_args()
    facts, targets, rows = start_facts(), [], []
    older = args.older.resolve()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=older, capture_output=True, text=True).stdout.strip()
    settings = {"older_commit": commit, "options": {name: OPTIONS[name] for name in args.only}}
    kept = json.loads(args.out.read_text()) if args.out.exists() else {"repeats": {}}
    if kept["repeats"] and kept["settings"]["older_commit"] != commit:
        options.error(f"{args.out} compares with another version: give another --out")

    def others(figures: dict[str, Any]) -> dict[str, Any]:
        """What is kept of benchmarks that are not run now."""
        return {figure: found for figure, found in figures.items() if figure.partition(":")[0] not in args.only}

    repeats: dict[str, Any] = others(kept["repeats"])
    summary: dict[str, Any] = others(kept.get("summary", {}))
    for figure, found in summary.items():
        targets.append(Target(figure, found["worse_by"], max(found["scatter"], 0.02)))
    for name in args.only:
        rounds: dict[str, list[list[dict[str, Any]]]] = {"older": [], "this": []}
        for k in range(args.rounds):
            for which, root, python in (("older", older, args.older_python), ("this", ROOT, sys.executable)):
                rounds[which].append(figures(root, python, name))
                say(f"{name}, round {k + 1} of {args.rounds}: {which}")
        for k, target in enumerate(rounds["this"][0]):
            # Some say in their name which case it was, which is not the same in every round.
            figure = f"{name}: {target['name']}"
            values = {which: [found[k]["measured"] for found in each] for which, each in rounds.items()}
            smaller = target["kind"] == "at most"
            best = {which: (min if smaller else max)(found) for which, found in values.items()}
            ratio = best["this"] / best["older"] if smaller else best["older"] / best["this"]
            scatter = max((max(found) - min(found)) / min(found) for found in values.values())
            repeats[figure] = {**values, "commit": facts["commit"], "command": facts["command"]}
            summary[figure] = {"worse_by": round(ratio - 1, 4), "scatter": round(scatter, 4)}
            targets.append(Target(figure, ratio - 1, max(scatter, 0.02)))
            rows.append((figure, *(" ".join(f"{x:.4g}" for x in values[w]) for w in ("older", "this"))))
        # After each benchmark, since all of them take half an hour.
        write(args.out, (__doc__ or "").splitlines()[0], facts, settings, repeats, summary, targets)
    report(args.out, ("figure", "older", "this"), rows, targets)


if __name__ == "__main__":
    main()
