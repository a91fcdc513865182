"""The devices that seeds are spread over, and the cache of compiled programs."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import threading
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .._errors import UsageError


def cpu_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def prepare(count: int | None = None) -> None:
    """Make one JAX device of every core, or `count` of them, and keep compiled programs between processes.

    One device per core is what lets seeds run side by side: extra threads inside one device buy nothing for
    networks this small. It must happen before JAX starts; where JAX is already running, its devices are used
    as they are. What the user has configured is left alone. `CURIAX_CACHE` names the cache folder, or `off`.
    """
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        try:
            if jax.config.jax_num_cpu_devices < 1:  # pyright: ignore[reportAttributeAccessIssue]
                jax.config.update("jax_num_cpu_devices", count or cpu_cores())
        except RuntimeError:
            pass
    folder = os.environ.get("CURIAX_CACHE", "")
    chosen = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if folder.lower() == "off" or chosen:
        return
    try:
        # A container may have a user without a home.
        path = Path(folder) if folder else Path.home() / ".cache" / "curiax" / "xla"
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or "there is no home directory"
        warnings.warn(
            f"compiled programs are not kept, so each start compiles anew ({why}): name a folder for them in "
            "CURIAX_CACHE, or set it to off.",
            stacklevel=2,
        )
        return
    remove_broken_programs(path)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


Result = TypeVar("Result")
#: What the thread is called that waits for a compiler.
COMPILING = "curiax-compile"


def in_thread(call: Callable[[], Result]) -> Result:
    """What a long call into compiled code returns, which would keep the main thread from hearing of Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    pool = concurrent.futures.ThreadPoolExecutor(1, COMPILING)
    try:
        future = pool.submit(call)
        while not concurrent.futures.wait([future], timeout=0.5).done:  # without end Windows would not hear either
            pass
        return future.result()
    finally:
        # Whoever was told to stop does not wait for what nobody wants any more.
        pool.shutdown(wait=False)


#: When the cache was last looked over; what was written at about that time is looked at again.
LOOKED_OVER, SLACK = ".looked-over", 60.0


def remove_broken_programs(cache: Path) -> list[Path]:
    """Remove what a process left in the cache that was killed, or had no disk left, while it wrote.

    JAX neither writes its entries in one go nor ever replaces one: it would warn of a cut one at every start, and
    compile anew each time. Only entries newer than the last look are read. Removing one that is just being written is
    harmless: it is missed once.
    """
    marker, broken = cache / LOOKED_OVER, []
    with contextlib.suppress(OSError):  # a cache is a convenience: whatever cannot be read or removed stays
        since = marker.stat().st_mtime - SLACK if marker.exists() else 0.0
        for entry in cache.glob("*-cache"):
            if entry.stat().st_mtime >= since and is_cut(entry.read_bytes()):
                entry.unlink(missing_ok=True)
                broken.append(entry)
        marker.touch()
    return broken


def is_cut(entry: bytes) -> bool:
    """Whether a zlib stream is not whole; other compressions are not judged."""
    if entry[:1] != b"\x78":
        return not entry
    stream = zlib.decompressobj()
    try:
        while entry and not stream.eof:
            stream.decompress(entry, 1 << 20)
            entry = stream.unconsumed_tail
    except zlib.error:
        return True
    return not stream.eof


def compiler_options(device: Any) -> dict[str, int] | None:
    """How the programs of training are compiled; a level that the user names in `XLA_FLAGS` is left alone.

    LLVM's highest level only lengthens compilation here: the work is in matrix kernels.
    """
    level = "xla_backend_optimization_level"
    return {level: 2} if device.platform == "cpu" and level not in os.environ.get("XLA_FLAGS", "") else None


def devices_for(seeds: int, count: int | None = None) -> Sequence[Any]:
    """The devices for that many seeds: never more than one each, and `count` of them where there are as many."""
    available = jax.devices()[:count]
    return available[: max(1, min(len(available), seeds))]


#: The axis of a mesh along which the environments of one seed are shared.
SHARED = "environment"


def placement(line: Sequence[Any]) -> Any:
    """Where whatever all devices of a line have is put: on the only one, or a copy on each."""
    return line[0] if len(line) == 1 else NamedSharding(Mesh(np.asarray(line), (SHARED,)), PartitionSpec())


def teams(seeds: int, size: int) -> list[list[Any]]:
    """Devices in teams of so many, each of which has one seed at a time; as many teams as are of use."""
    found = jax.devices()
    if size > len(found):
        raise UsageError(
            f"devices_per_seed = {size}, but JAX has {len(found)} of kind {found[0].platform!r} here: lower it, or "
            "run where there are more."
        )
    whole = range(0, len(found) - size + 1, size)
    return [found[k : k + size] for k in whole][:seeds]


def lane_devices(seeds: int) -> Sequence[Any]:
    """The device of each lane of a host task: every core's, or an accelerator twice.

    Two lanes on an accelerator let one's environments step while the other learns.
    """
    found = devices_for(seeds)
    return found if found[0].platform == "cpu" or seeds < 2 or len(found) > 1 else [found[0], found[0]]
