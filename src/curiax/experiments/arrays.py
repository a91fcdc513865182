"""The arrays of a state: their digests, and how Orbax writes and reads them."""

from __future__ import annotations

import functools
import json
import logging
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import CheckpointError
from .._files import digest


@functools.cache
def orbax() -> Any:
    """Orbax, which takes a while to import, without the tracebacks it leaves of errors that are told otherwise."""
    import orbax.checkpoint

    def of_others(record: logging.LogRecord) -> bool:
        return "orbax" not in record.pathname and "orbax" not in record.getMessage()

    for name in ("absl", "asyncio"):
        logging.getLogger(name).addFilter(of_others)
    return orbax.checkpoint


def array_digest(array: np.ndarray) -> dict[str, Any]:
    """An array's shape, type and digest."""
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "digest": digest(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data),
    }


def state_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """One digest of a whole state: two runs with the same one ended with the same bits."""
    text = json.dumps({name: array_digest(array) for name, array in arrays.items()}, sort_keys=True)
    return digest(text.encode())


def by_type(listed: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The names of arrays for each of their types, in a fixed order."""
    found: dict[str, list[str]] = {}
    for name, kind in sorted(listed):
        found.setdefault(kind, []).append(name)
    return found


def write_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Arrays by Orbax, those of one type joined in one row: it takes time and memory for each array it writes."""
    ocp = orbax()
    groups = by_type((name, array.dtype.name) for name, array in arrays.items())
    rows = {kind: np.concatenate([arrays[name].reshape(-1) for name in names]) for kind, names in groups.items()}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as writer:
        # Nothing is lost with an empty row, which Orbax refuses: the names and shapes are in `step.json`.
        writer.save(folder.absolute(), args=ocp.args.PyTreeSave({kind: row for kind, row in rows.items() if row.size}))


def read_arrays(folder: Path, listed: Mapping[str, Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """The arrays that a `step.json` lists."""
    ocp = orbax()
    sizes = {name: math.prod(about["shape"]) for name, about in listed.items()}
    groups = by_type((name, about["dtype"]) for name, about in listed.items())
    wanted = {
        kind: ocp.RestoreArgs(restore_type=np.ndarray) for kind, names in groups.items() if any(map(sizes.get, names))
    }
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        rows = reader.restore(folder.absolute(), args=ocp.args.PyTreeRestore(restore_args=wanted))
    found = {}
    for kind, names in groups.items():
        row = rows.get(kind, np.zeros(0, kind))
        if row.size != sum(sizes[name] for name in names):
            raise CheckpointError(f"holds {row.size} entries of {kind}, not as many as it should")
        ends = np.cumsum([sizes[name] for name in names])
        for name, part in zip(names, np.split(row, ends[:-1]), strict=True):
            found[name] = part.reshape(listed[name]["shape"])
    return found
