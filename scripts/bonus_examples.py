"""How far the examples' agents come with and without bonus: `python scripts/bonus_examples.py`, about ten minutes.

Runs each example as a user would, on every core there is, one seed after the other, and reads what it prints. The first
one is then compiled otherwise, which changes last bits only. Writes `results/bonus-examples.json`, from which
`scripts/other_tables.py` makes the tables of the how-to pages. Its part `notes` is no output: it is `NOTES` below,
written by hand. Needs Stable-Baselines3: `make sb3`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import resource
import shlex
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ("bonus_gymnasium_loop", "bonus_cleanrl_style", "bonus_sb3_own_method")
SEEDS = (0, 200, 201, 202, 203)
#: Whose versions matter beside those that every benchmark records.
PACKAGES = ("gymnasium", "stable-baselines3", "torch")
#: Other ways to compile the bonus; the second is that of our tests, and JAX 0.10 is the last to have it.
COMPILED = (
    "--xla_backend_optimization_level=0",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false",
)
#: What an example prints of each agent.
LINE = re.compile(r"(?m)^(with\S* \w+) +bins visited: (\d+) of (\d+) +flag reached in (\d+) of (\d+) episodes")

ABOUT = (
    "Written by hand, not output of the run above: the seeds that the settings were chosen on, what else was tried and "
    "kept, and an earlier run of the same seeds, pinned to one core, before the last changes to Bonus."
)
EARLIER = {"cores": 1, "seeds": [0, 200, 201, 202, 203]}
NOTES: dict[str, Any] = {
    "bonus_gymnasium_loop": {
        "settings": "chosen on the seeds 100 to 103",
        "tried": [
            {
                "what": "Q-learning with a table of 16 x 16 tiles, 51,200 steps, bonus less its mean, weight 0.1; "
                "tiles visited of 256; the flag was never reached",
                "seeds": [100, 101],
                "without bonus": [55, 48],
                "with simhash": [77, 51],
                "with simhash, not scaled": [60, 61],
                "with re3": [58, 51],
                "with noveld": [51, 50],
            },
            {
                "what": "the same example on two cores",
                "seed": 0,
                "without bonus": {"bins": 69, "flags": 0, "episodes": 512},
                "with lbs": {"bins": 185, "flags": 0, "episodes": 512},
                "doubt": "most likely not the cores, but the flags of XLA that our tests set and examples under test "
                "inherit: with them, on two cores, it is the same to the bin (`compiled_otherwise` above); without "
                "them seed 0 is on two cores what it was on one",
            },
        ],
        "earlier": {
            **EARLIER,
            "without bonus": {"bins": [69, 96, 79, 91, 81], "flags": [0] * 5, "episodes": [512] * 5},
            "with lbs": {
                "bins": [301, 246, 300, 162, 307],
                "flags": [113, 1, 629, 0, 686],
                "episodes": [541, 512, 739, 512, 756],
            },
            "cpu_seconds": [26.4, 22.0, 23.7, 23.3, 24.6],
        },
    },
    "bonus_cleanrl_style": {
        "settings": "chosen on the seeds 0 to 2 and 100 to 104",
        "tried": [
            {
                "what": "advantages normalised, entropy bonus 0.01, Adam's epsilon 1e-5, weight 1, critic's last layer "
                "not small",
                "seed": 0,
                "without bonus": {"bins": 314, "flags": 56, "episodes": 608},
                "with lbs": {"bins": 303, "flags": 10, "episodes": 608},
            }
        ],
        "earlier": {
            **EARLIER,
            "without bonus": {"bins": [53, 57, 62, 60, 59], "flags": [0] * 5, "episodes": [608] * 5},
            "with lbs": {"bins": [289, 221, 295, 328, 340], "flags": [16, 4, 120, 8, 85], "episodes": [608] * 5},
            "cpu_seconds": [32.7, 28.9, 27.8, 26.3, 28.3],
        },
    },
    "bonus_sb3_own_method": {
        "settings": "chosen on the seeds 0 and 100 to 104",
        "earlier": {
            **EARLIER,
            "without bonus": {"bins": [41, 95, 159, 42, 108], "flags": [0] * 5, "episodes": [304] * 5},
            "with EmbeddingDistance": {
                "bins": [231, 342, 342, 307, 342],
                "flags": [0, 20, 36, 3, 54],
                "episodes": [304] * 5,
            },
            "cpu_seconds": [33.5, 35.4, 29.9, 31.9, 34.5],
        },
    },
}


def read(printed: str) -> dict[str, dict[str, int]]:
    """What an example printed of its two agents, by their names."""
    found: dict[str, dict[str, int]] = {
        name: dict[str, int](zip(("bins", "bins_in_all", "flags", "episodes"), map(int, numbers), strict=True))
        for name, *numbers in LINE.findall(printed)
    }
    if len(found) != 2 or "without bonus" not in found:
        raise SystemExit(f"not two agents, one of them without bonus, in what the example printed:\n{printed}")
    return found


def ready() -> None:
    """Refuse before the first minutes are spent: without Stable-Baselines3, or where another Curiax would run."""
    if importlib.util.find_spec("stable_baselines3") is None:
        raise SystemExit(
            "bonus_sb3_own_method.py needs Stable-Baselines3: `make sb3` installs it. Nothing was run or written."
        )
    curiax = importlib.util.find_spec("curiax")
    if curiax is None or not curiax.origin or not Path(curiax.origin).is_relative_to(ROOT / "src"):
        raise SystemExit(
            f"Curiax would come from {curiax and curiax.origin}, not from {ROOT / 'src'}, whose commit is recorded. "
            f"Install this checkout, or set PYTHONPATH={ROOT / 'src'}. Nothing was run or written."
        )


def main() -> None:
    """Run every example on every seed, then write all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bonus-examples.json", help="JSON file")
    options = parser.parse_args()
    ready()
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from common import fresh_python, git, say, start_facts

    facts = start_facts()
    facts["command"] = f"python {facts['command']}"
    facts["uncommitted_source"] = git("status", "--porcelain", "--", "src", "examples", "scripts", "benchmarks")
    facts["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "")
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            facts["versions"][package] = importlib.metadata.version(package)

    def measured(name: str, seed: int, **environment: str) -> dict[str, Any]:
        """What the example prints in a fresh process, and what that took: this is the only child at work."""
        call = [f"examples/{name}.py", "--seed", str(seed)]
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        agents = read(fresh_python(call, **environment))
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        counts = ", ".join(f"{agent} {found['bins']} bins, {found['flags']} flags" for agent, found in agents.items())
        say(f"{shlex.join([*environment.values(), *call])}: {counts}; {spent:.1f} s of CPU, {seconds:.1f} s")
        return {"seed": seed, "agents": agents, "cpu_seconds": round(spent, 1), "seconds": round(seconds, 1)}

    examples: dict[str, Any] = {}
    for name in EXAMPLES:
        rows = [measured(name, seed) for seed in options.seeds]
        examples[name] = {"command": f"python examples/{name}.py --seed SEED", "results": rows}
    first, known = EXAMPLES[0], COMPILED[: 2 if facts["versions"]["jax"].startswith("0.10.") else 1]
    examples[first]["compiled_otherwise"] = [
        {"XLA_FLAGS": flags, **measured(first, options.seeds[0], XLA_FLAGS=flags)} for flags in known
    ]
    notes = {"about": ABOUT, **NOTES}
    options.out.write_text(json.dumps({"machine": facts, "examples": examples, "notes": notes}, indent=1) + "\n")
    say(f"written to {options.out}")


if __name__ == "__main__":
    main()
