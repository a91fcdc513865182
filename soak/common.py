"""What the soak checks share: small experiments of both families, and how two finished runs are compared."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Both families of tasks: pure JAX, and a simulator on the host.
TASKS = ("mountain-car", "half-cheetah")
#: Small networks' worth of work per iteration, with everything that a run can carry: several environments, a pool.
SETTINGS = {
    "loop.rollout": 128,
    "loop.envs": 2,
    "ppo.minibatch_size": 64,
    "ppo.epochs": 2,
    "learner.minibatch_size": 64,
    "learner.epochs": 2,
    "learner.replay": 2,
}
STEPS = SETTINGS["loop.rollout"] * SETTINGS["loop.envs"]


def say(text: str) -> None:
    """A line with the time."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def ending(folder: Path) -> dict[str, Any]:
    """What must be equal of two runs, to the bit: the final state, the metrics table, what was learnt."""
    import polars

    manifest = json.loads((folder / "manifest.json").read_text())
    table = polars.read_parquet(folder / "metrics.parquet")
    columns = {name: hashlib.blake2b(table[name].to_numpy().tobytes()).hexdigest()[:16] for name in table.columns}
    learnt = hashlib.blake2b((folder / "agents.safetensors").read_bytes()).hexdigest()[:16]
    return {"state": manifest["digest"], "rows": table.height, "columns": columns, "learnt": learnt}


class Saves:
    """The checkpoints that a run has written, as far as one looked in time."""

    def __init__(self, run: Path) -> None:
        self.folder = run / "checkpoints"
        self.seen: set[str] = set()

    def look(self) -> int:
        """How many there have been until now."""
        if self.folder.is_dir():
            self.seen |= {path.name for path in self.folder.iterdir() if path.name.startswith("step-")}
        return len(self.seen)
