"""The arrays of a state: their digests, and how Orbax writes and reads them."""

from __future__ import annotations

import functools
import json
import logging
import math
from collections.abc import Mapping
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


def as_bytes(array: np.ndarray) -> np.ndarray:
    """An array's bytes in a row."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def array_digest(array: np.ndarray) -> dict[str, Any]:
    """An array's shape, type and digest."""
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "digest": digest(as_bytes(array).data),
    }


def state_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """One digest of a whole state: two runs with the same one ended with the same bits."""
    text = json.dumps({name: array_digest(array) for name, array in arrays.items()}, sort_keys=True)
    return digest(text.encode())


#: The one array that Orbax writes: its time, its memory and what it prints of errors go by their number.
ROW = "state"


def write_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Arrays by Orbax, as one row of bytes; `step.json` has their names, types and shapes."""
    ocp = orbax()
    row = np.concatenate([as_bytes(array) for array in arrays.values()])
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as writer:
        # Orbax refuses a row of nothing, and nothing is lost without it.
        writer.save(folder.absolute(), args=ocp.args.PyTreeSave({ROW: row} if row.size else {}))


def read_arrays(folder: Path, listed: Mapping[str, Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """The arrays that a `step.json` lists."""
    ocp = orbax()
    sizes = [math.prod(about["shape"]) * np.dtype(about["dtype"]).itemsize for about in listed.values()]
    wanted = {ROW: ocp.RestoreArgs(restore_type=np.ndarray)} if any(sizes) else {}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        rows = reader.restore(folder.absolute(), args=ocp.args.PyTreeRestore(restore_args=wanted))
    row = rows.get(ROW, np.zeros(0, np.uint8))
    if row.size != sum(sizes):
        raise CheckpointError(f"holds {row.size} bytes, not the {sum(sizes)} that it should")
    parts = np.split(row, np.cumsum(sizes)[:-1])
    return {
        # A copy each, so that every array lies where its type wants it.
        name: part.copy().view(about["dtype"]).reshape(about["shape"])
        for (name, about), part in zip(listed.items(), parts, strict=True)
    }
