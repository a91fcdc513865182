"""How long does `import curiax` take?

Fresh interpreters import curiax and do nothing, in turn; the time of the import is the median of the first minus
the median of the second. One interpreter more runs with `-X importtime`, whose own times are summed over the modules
of each top-level package; tracing makes them larger than they are, so they are shares, not seconds to quote.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable

from common import ROOT, Target, fresh_python, interleave, parser, print_table, report, start_facts, write

NAME = "import_time"
BOUND = 1.5
SHOWN = 10


def wall(code: str) -> Callable[[], float]:
    """A measurement of one fresh interpreter that runs `code`."""

    def once() -> float:
        begun = time.perf_counter()
        fresh_python(["-c", code])
        return time.perf_counter() - begun

    return once


def breakdown() -> dict[str, float]:
    """Seconds in the modules of each top-level package, the largest first."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import curiax"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    packages: Counter[str] = Counter()
    for line in done.stderr.splitlines():
        own, _, module = line.removeprefix("import time:").split("|") if line.count("|") == 2 else ("", "", "")
        if own.strip().isdigit():
            packages[module.strip().split(".")[0]] += int(own)
    return {name: microseconds / 1e6 for name, microseconds in packages.most_common(SHOWN)}


def main() -> None:
    """Measure, write, show."""
    args = parser(__doc__ or "", NAME, repeats=7).parse_args()

    facts = start_facts()
    wall("import curiax")()  # once unmeasured, so that files and byte code are where they will be
    seconds = interleave({"bare": wall("pass"), "curiax": wall("import curiax")}, args.repeats)
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    packages = breakdown()
    summary = {
        "bare_seconds": middle["bare"],
        "curiax_seconds": middle["curiax"],
        "import_seconds": middle["curiax"] - middle["bare"],
        "best_import_seconds": min(seconds["curiax"]) - min(seconds["bare"]),
        "seconds_by_package": packages,
    }
    targets = [Target("import curiax, s", summary["import_seconds"], BOUND)]
    write(args.out, (__doc__ or "").splitlines()[0], facts, {}, {"wall_seconds": seconds}, summary, targets)
    print_table(("package", "own s"), [(name, f"{value:.3f}") for name, value in packages.items()])
    print()
    rows = [(name, f"{middle[name]:.3f}", f"{min(v):.3f}", f"{max(v):.3f}") for name, v in seconds.items()]
    report(args.out, ("interpreter", "median s", "lowest", "highest"), rows, targets)


if __name__ == "__main__":
    main()
