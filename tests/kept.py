"""Run folders made without training, and changed as if they had been written so: for tests of finished runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from curiax._files import digest, digest_of_json
from curiax.experiments import folder, saved
from curiax.experiments.run import describe
from curiax.experiments.spec import Experiment, resolve

DATA = Path(__file__).parent / "data"
#: Kept agents of the present format.
BOX, CHOICE, UNIFORM = (
    DATA / "agents-2" / name for name in ("mountain-car-lbs", "cart-pole-ngu", "mountain-car-random")
)


def expected(path: Path) -> dict[str, np.ndarray]:
    """What a kept agent did and was paid when it was made."""
    return safetensors.numpy.load_file(path / "expected.safetensors")


def untrained(path: Path, task: Any, method: Any = "lbs", seeds: tuple[int, ...] = (3, 5), **rest: Any) -> Path:
    """The folder of a run whose networks are as they are drawn; `rest` is the rest of the experiment."""
    import polars

    plan = resolve(Experiment(task, method, seeds=seeds, **rest))
    path.mkdir(parents=True)
    facts = {"seconds": {"start": 0.0, "train": 0.0, "cpu": 0.0}}
    folder.write(path, describe(plan, facts), polars.DataFrame({"seed": list(seeds)}))
    saved.write(path, plan, saved.fresh(plan, plan.seeds))
    return path


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change `agents.json`, and sign it as if it had been written so."""
    about = json.loads((path / saved.AGENTS).read_text())
    change(about)
    about["digest"] = digest_of_json({name: value for name, value in about.items() if name != "digest"})
    (path / saved.AGENTS).write_text(json.dumps(about))


def retensor(path: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Change the arrays, and list them in `agents.json` as they are then."""
    arrays = {name: array.copy() for name, array in safetensors.numpy.load_file(path / saved.TENSORS).items()}
    change(arrays)
    data = safetensors.numpy.save(arrays)
    (path / saved.TENSORS).write_bytes(data)
    listed = {
        name: {"shape": list(a.shape), "dtype": a.dtype.name, "blake2b": digest(a.tobytes())}
        for name, a in arrays.items()
    }
    edit(path, lambda about: about.update(tensors=listed, file={"bytes": len(data), "blake2b": digest(data)}))
