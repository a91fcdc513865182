"""Every check of reliability in its long form; the figures go to results/reliability.json, with the command.

On a machine of two cores it takes about an hour and a half. `--only kill` runs one check and renews its entry;
`--quick` is a rehearsal with small numbers, and writes nothing but to --out.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bits
import corruption
import cost
import flips
import forged
import fuzz
import kill
import memory
import nonfinite
import sweep
import tables
from common import ROOT, say

#: Each check in its long form and as a rehearsal, in the order in which they run: what wants a quiet machine first.
CHECKS: dict[str, tuple[Callable[[], dict[str, Any]], Callable[[], dict[str, Any]]]] = {
    "checkpoint_cost": (cost.soak, lambda: cost.soak(1, (("mountain-car", 204_800),))),
    "memory": (memory.soak, lambda: memory.soak(200)),
    "same_bits": (bits.soak, bits.soak),
    "corruption": (corruption.soak, lambda: corruption.soak(methods=("lbs",))),
    "nonfinite": (lambda: nonfinite.soak(200, 0), lambda: nonfinite.soak(10, 0)),
    "fuzz": (lambda: fuzz.soak(10_000, 0), lambda: fuzz.soak(200, 0)),
    "flips": (lambda: flips.soak(500, 0), lambda: flips.soak(20, 0)),
    "forged": (forged.soak, lambda: forged.soak(range(0, len(forged.every_case()), 20))),
    "kill": (kill.soak, lambda: kill.soak(8)),
    "sweep": (sweep.soak, lambda: sweep.soak(3)),
}
RESULTS = ROOT / "results" / "reliability.json"


def commit() -> str:
    """The commit that is checked out, and whether the tree differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+changes" if git("status", "--porcelain", "src", "soak") else "")


def main() -> int:
    """Run the checks and keep their figures; 1 if one of them failed."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=RESULTS, help="file of the figures (default %(default)s)")
    options.add_argument("--only", nargs="+", choices=CHECKS, default=list(CHECKS), help="these checks")
    options.add_argument("--quick", action="store_true", help="rehearse with small numbers")
    args = options.parse_args()
    if args.quick and args.out == RESULTS:
        options.error("--quick: give another file with --out")
    found: dict[str, Any] = {}
    for name in args.only:
        say(f"=== {name}")
        long, short = CHECKS[name]
        about = {
            "command": f"python soak/run_all.py --only {name}" + (" --quick" if args.quick else ""),
            "commit": commit(),
            "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "machine": f"{os.cpu_count()} cores, {platform.platform()}",
        }
        begun = time.monotonic()
        found[name] = {**about, **(short if args.quick else long)()}
        found[name].setdefault("seconds", round(time.monotonic() - begun, 1))
        # Read only now: another process may have kept its checks meanwhile.
        kept = json.loads(args.out.read_text()) if args.out.exists() else {}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps({**kept, name: found[name]}, indent=2) + "\n")
        tables.publish(args.out)
    for name in args.only:
        say(f"{'passed' if found[name]['passed'] else 'FAILED':7s} {name}")
    return 0 if all(found[name]["passed"] for name in args.only) else 1


if __name__ == "__main__":
    sys.exit(main())
