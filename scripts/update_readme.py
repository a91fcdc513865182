"""Write the README's numbers from the results that are kept, so that they cannot drift.

python scripts/update_readme.py            # rewrite the marked parts of README.md
python scripts/update_readme.py --check    # exit 1 if they are out of date
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "results"


#: What the benchmarks' short names mean to a reader.
MEANINGS = {
    "Curiax / SB3, steps/s": "steps/s of LBS, 8 seeds on all cores, ÷ Stable-Baselines3's PPO, no bonus, one thread",
    "8 seeds / 1 seed": "training time of 8 seeds ÷ 1 seed",
    "cold start, s": "from the call of `run` to the first iteration, nothing compiled yet (s)",
    "warm start, s": "the same with the compilation cache, in a new process (s)",
    "import curiax, s": "`import curiax` (s)",
    "icm / rnd": "training time of ICM ÷ RND",
    "lbs / rnd": "training time of LBS ÷ RND",
    "vime / rnd": "training time of VIME ÷ RND",
    "disagreement / rnd": "training time of Disagreement ÷ RND",
}


def noisy_tv() -> str:
    """The demo's table."""
    rows = json.loads((RESULTS / "noisy-tv" / "table.json").read_text())["rows"]
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    cells = {(row["task"], row["method"]): row for row in rows}

    def cell(row: dict) -> str:
        return f"{row['mean']:.1f} [{row['ci_low']:.1f}, {row['ci_high']:.1f}]"

    lines = ["| method | " + " | ".join(f"`{task}`" for task in tasks) + " |", "|---" * (len(tasks) + 1) + "|"]
    lines += [f"| `{m}` | " + " | ".join(cell(cells[task, m]) for task in tasks) + " |" for m in methods]
    note = (
        f"Coverage in the paper's cells (%), mean of {rows[0]['seeds']} seeds [95 % bootstrap interval], preset "
        "`paper-code`; made by `curiax reproduce noisy-tv --seeds 8 --out results/noisy-tv`."
    )
    return "\n".join([*lines, "", note])


def speed() -> str:
    """Every benchmark target beside what was measured."""
    lines = ["| measured in one run on the same machine | target | result |", "|---|---|---|"]
    cpu = ""
    for file in sorted((RESULTS / "benchmarks").glob("*.json")):
        data = json.loads(file.read_text())
        cpu = f"{data['machine']['cores']} cores of {data['machine']['cpu']}"
        for target in data["targets"]:
            name = MEANINGS.get(target["name"], target["name"])
            met = "" if target["met"] else " (missed)"
            lines.append(f"| {name} | {target['kind']} {target['bound']:g} | {target['measured']:.3g}{met} |")
    return "\n".join([*lines, "", f"{cpu}; `python benchmarks/run_all.py --sb3-python PATH`."])


def updated(text: str) -> str:
    """The README with its marked parts written anew."""
    for name, make in (("noisy-tv", noisy_tv), ("speed", speed)):
        begin, end = rf"<!-- begin: {name} [^>]*-->", rf"<!-- end: {name} -->"
        pattern = re.compile(f"({begin}\n).*?({end})", re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"README.md has no part marked {name!r}.")
        text = pattern.sub(lambda found, make=make: f"{found[1]}{make()}\n{found[2]}", text)
    return text


def main() -> int:
    """Rewrite, or check."""
    before = README.read_text()
    after = updated(before)
    if "--check" in sys.argv[1:]:
        if before != after:
            print("README.md is out of date: run python scripts/update_readme.py", file=sys.stderr)
        return int(before != after)
    README.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
