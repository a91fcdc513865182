"""Run every benchmark, one after the other, each in a process of its own, and show which targets are met.

`against_sb3`, `plain_ppo` and `against_rllte` are run where `--sb3-python` and `--rllte-python` name a Python that has
Stable-Baselines3, and one that has rllte-core. Use a quiet machine. `--quick`
is a rehearsal with few steps and repeats; its numbers mean nothing, so it wants a folder of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from common import RESULTS, ROOT, print_targets, say

#: Each benchmark and the options of its rehearsal, in the order in which they run.
QUICK = {
    "import_time": ("--repeats", "2"),
    "startup": ("--repeats", "1", "--warm", "1"),
    "method_cost": ("--repeats", "2", "--steps", "20480"),
    "seed_scaling": ("--repeats", "2", "--steps", "20480"),
    "suite": ("--repeats", "1", "--steps", "2048"),
    "host": ("--repeats", "1", "--iterations", "1"),
    "emulators": ("--repeats", "1", "--seconds", "0.5", "--envs", "8", "--games", "breakout"),
    "arcade_small": ("--repeats", "1", "--iterations", "1", "--seeds", "1"),
    "bonus_latency": ("--repeats", "1", "--calls", "50"),
    "against_sb3": ("--repeats", "1", "--steps", "20480", "--rollouts", "1"),
    "against_rllte": ("--repeats", "1", "--rollouts", "2"),
    "plain_ppo": ("--seeds", "2", "--steps", "4096", "--tasks", "CartPole-v1"),
}
#: A script with options of its own that count as another benchmark: on a CPU games are trained on with small networks.
SCRIPTS = {"arcade_small": ("arcade", "--preset", "small")}
#: Benchmarks that need another library, and the option that names a Python which has it.
PEERS = {"against_sb3": "sb3_python", "against_rllte": "rllte_python", "plain_ppo": "sb3_python"}


def run_one(name: str, out: Path, extra: Sequence[str]) -> bool:
    """One benchmark; whether it finished."""
    say(f"\n=== {name}")
    script, *own = SCRIPTS.get(name, (name,))
    command = [sys.executable, str(Path(__file__).with_name(f"{script}.py")), "--out", str(out), *own, *extra]
    return subprocess.run(command, cwd=ROOT).returncode == 0


def main() -> int:
    """Run, then show all targets."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=RESULTS, help="folder for the JSON files (default %(default)s)")
    options.add_argument("--sb3-python", help="a Python that has Stable-Baselines3")
    options.add_argument("--rllte-python", help="a Python that has rllte-core")
    options.add_argument("--quick", action="store_true", help="rehearse with few steps and repeats")
    args = options.parse_args()
    if args.quick and args.out == RESULTS:
        options.error("--quick: give a folder other than the official one with --out")

    pythons = {name: getattr(args, option) for name, option in PEERS.items()}
    names = [name for name in QUICK if pythons.get(name, sys.executable)]
    targets, failed = [], []
    for name in names:
        extra = [*(QUICK[name] if args.quick else ())]
        if name in PEERS:
            extra += [f"--{PEERS[name].replace('_', '-')}", pythons[name]]
        out = args.out.resolve() / f"{name}.json"
        if run_one(name, out, extra):
            targets += json.loads(out.read_text())["targets"]
        else:
            failed.append(name)
    print("\n=== all targets")
    print_targets(targets)
    for name in sorted({*QUICK} - {*names}):
        print(f"{name}: not run, needs --{PEERS[name].replace('_', '-')}")
    for name in failed:
        print(f"{name}: FAILED")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
