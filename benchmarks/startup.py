"""How long does a fresh process take until it trains, without and with a warm cache of compiled programs?

Each repeat makes an empty cache folder (`CURIAX_CACHE`), starts one process that has to compile everything (cold),
then others that find the folder filled (warm). Each process reports `seconds.start` of its manifest: from the call of
`run` to the first iteration, with checks, initialisation, tracing, compiling or loading; and the moment its first
iteration was done, from which this script takes the wall time since it started the process, interpreter and imports
included. The number of steps does not change the compiled program. Targets are on the medians of `seconds.start`.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time

from common import TASK, Target, fresh_python, parser, positive, report, say, start_facts, write

NAME = "startup"
METHOD = "lbs"
COLD_BOUND, WARM_BOUND = 8.0, 2.0
CHILD = """
import json, sys, time
import curiax
from curiax.experiments.progress import Silent

class FirstIteration(Silent):
    at = None
    def advance(self, iteration, latest):
        self.at = self.at or time.time()

task, method, seeds = sys.argv[1:]
progress = FirstIteration()
result = curiax.run(curiax.Experiment(task, method, seeds=int(seeds), steps=2048), progress=progress)
print(json.dumps({"start": result.manifest["seconds"]["start"], "first_iteration_at": progress.at}))
"""


def start_once(seeds: int, cache: str) -> dict[str, float]:
    """One fresh process with this cache folder: its start-up seconds, and seconds to the end of its first iteration."""
    begun = time.time()
    output = fresh_python(["-c", CHILD, TASK, METHOD, str(seeds)], CURIAX_CACHE=cache, JAX_COMPILATION_CACHE_DIR="")
    moments = json.loads(output)
    return {"start": moments["start"], "to_first_iteration": round(moments["first_iteration_at"] - begun, 3)}


def measure(seeds: int, repeats: int, warm: int) -> dict[str, list[dict[str, float]]]:
    """Every start, cold and warm."""
    starts: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
    for repeat in range(repeats):
        with tempfile.TemporaryDirectory(prefix="curiax-cache-") as cache:
            for kind in ("cold", *["warm"] * warm):
                starts[kind].append(start_once(seeds, cache))
                say(f"repeat {repeat + 1}/{repeats}  {kind}: {starts[kind][-1]}")
    return starts


def main() -> None:
    """Measure, write, show."""
    options = parser(__doc__ or "", NAME, repeats=3)
    options.add_argument("--seeds", type=positive, default=8, help="seeds trained at once (default %(default)s)")
    options.add_argument("--warm", type=positive, default=2, help="warm starts after each cold one (%(default)s)")
    args = options.parse_args()

    facts = start_facts()
    starts = measure(args.seeds, args.repeats, args.warm)
    summary = {
        kind: {
            f"{statistic.__name__}_{name}": statistic([start[name] for start in of_kind])
            for name in ("start", "to_first_iteration")
            for statistic in (statistics.median, min, max)
        }
        for kind, of_kind in starts.items()
    }
    targets = [
        Target("cold start, s", summary["cold"]["median_start"], COLD_BOUND),
        Target("warm start, s", summary["warm"]["median_start"], WARM_BOUND),
    ]
    settings = {"task": TASK, "method": METHOD, "seeds": args.seeds, "warm_starts_per_cold": args.warm}
    write(args.out, (__doc__ or "").splitlines()[0], facts, settings, {"starts": starts}, summary, targets)
    columns = ("cache", "start s", "lowest", "highest", "to first iteration s", "lowest", "highest")
    report(args.out, columns, [(kind, *values.values()) for kind, values in summary.items()], targets)


if __name__ == "__main__":
    main()
