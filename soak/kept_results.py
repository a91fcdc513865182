"""Single bits of kept reports, their records included: each must be found by `curiax verify`, which reads all of it."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from common import ROOT, say

from curiax import OutputError
from curiax.report.output import faults
from curiax.report.publish import verify


def soak(flips: int = 500, seed: int = 0) -> dict[str, Any]:
    """Figures of so many flips, one at a time, in copies of everything in results/."""
    begun, rng = time.monotonic(), random.Random(seed)
    missed: list[str] = []
    kinds: Counter[str] = Counter()
    sources = sorted(path.parent.parent for path in (ROOT / "results").glob("*/record/runs.json"))
    with tempfile.TemporaryDirectory() as base:
        for source in sources:
            shutil.copytree(source, Path(base) / source.name)
        files = sorted(path for path in Path(base).rglob("*") if path.is_file())
        for k in range(flips):
            file = rng.choice(files)
            data = file.read_bytes()
            at = rng.randrange(8 * len(data))
            broken = bytearray(data)
            broken[at // 8] ^= 1 << at % 8
            file.write_bytes(broken)
            name = file.relative_to(base)
            kinds[name.parts[1]] += 1
            try:
                folder = Path(base) / name.parts[0]
                # Whatever `faults` finds, `verify` tells; alone it takes milliseconds instead of seconds.
                found = bool(faults(folder)) or bool(verify(folder).differences)
            except OutputError:
                found = True
            if not found:
                missed.append(f"{name}, bit {at}")
            file.write_bytes(data)
            if k % 50 == 49:
                say(f"{k + 1} bits so far, {len(missed)} not found")
    return {
        "folders": len(sources),
        "files": len(files),
        "flips": flips,
        "flips_in": dict(kinds),
        "found": flips - len(missed),
        "misses": missed,
        "seconds": round(time.monotonic() - begun, 1),
        "passed": not missed,
    }


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--flips", type=int, default=500)
    options.add_argument("--seed", type=int, default=0)
    said = options.parse_args()
    print(json.dumps(soak(said.flips, said.seed), indent=2))
