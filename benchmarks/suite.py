"""How long does `curiax reproduce stochastic-mountain-car` take from nothing, and how long its report alone?

Each repeat runs the command in a fresh process with an empty cache of compiled programs and an empty folder: every
start, compilation, training run, table, figure and the report, as a new user would wait for it. Then `curiax report`
makes the report of the finished runs again, in another fresh process. Targets are on the best repeat.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from common import Target, fresh_python, parser, positive, report, say, start_facts, write

NAME = "suite"
SUITE = "stochastic-mountain-car"
SUITE_BOUND, REPORT_BOUND, SIZE_BOUND = 300.0, 20.0, 5.0


def measure(seeds: int, steps: int | None) -> dict[str, float]:
    """Seconds of the whole command and of the report, and the report's size in MB."""
    with tempfile.TemporaryDirectory(prefix="curiax-suite-") as place:
        out, cache = Path(place) / "out", str(Path(place) / "cache")
        command = ["-m", "curiax", "reproduce", SUITE, "--seeds", str(seeds), "--out", str(out), "--quiet"]
        command += [] if steps is None else ["--steps", str(steps)]
        begun = time.perf_counter()
        fresh_python(command, CURIAX_CACHE=cache, JAX_COMPILATION_CACHE_DIR="")
        reproduced = time.perf_counter()
        again = Path(place) / "again"
        fresh_python(["-m", "curiax", "report", str(out / "runs"), "--out", str(again)], CURIAX_CACHE=cache)
        reported = time.perf_counter()
        size = (again / "report.html").stat().st_size / 1e6
    return {"suite": reproduced - begun, "report": reported - reproduced, "megabytes": size}


def main() -> None:
    """Measure, write, show."""
    options = parser(__doc__ or "", NAME, repeats=1)
    options.add_argument("--seeds", type=positive, default=8, help="seeds of each run (default %(default)s)")
    options.add_argument("--steps", type=positive, help="steps of each seed (default: the full budget)")
    args = options.parse_args()

    facts = start_facts()
    measured = []
    for repeat in range(args.repeats):
        measured.append(measure(args.seeds, args.steps))
        say(f"repeat {repeat + 1}/{args.repeats}  {measured[-1]}")
    best = {name: min(each[name] for each in measured) for name in measured[0]}
    targets = [
        Target("whole suite, s", best["suite"], SUITE_BOUND),
        Target("report, s", best["report"], REPORT_BOUND),
        Target("report, MB", best["megabytes"], SIZE_BOUND),
    ]
    settings = {"suite": SUITE, "seeds": args.seeds, "steps": args.steps}
    write(args.out, (__doc__ or "").splitlines()[0], facts, settings, {"repeats": measured}, best, targets)
    report(args.out, ("what", "best"), list(best.items()), targets)


if __name__ == "__main__":
    main()
