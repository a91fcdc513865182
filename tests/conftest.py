"""Shared fixtures. Two CPU devices, a compilation cache kept between runs, fresh keys on demand."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path

import jax
import pytest

# Before JAX starts, and for every process that a test starts. Compiling is what the tests wait for most: LLVM's lowest
# level, and the old emitters, which JAX 0.10 still has, compile the training loop in less than half of the time.
# `make soak` and the results are made without them.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"
if jax.__version_info__ < (0, 11):
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
# A shell without job control has its background jobs ignore Ctrl-C, and what they start after them; tests send it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
jax.config.update("jax_num_cpu_devices", 2)
CACHE = Path(__file__).parent.parent / ".xla_cache"
os.environ["CURIAX_CACHE"] = str(CACHE)
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def pytest_sessionstart() -> None:
    """Remove what a test that was killed left in the cache."""
    from curiax.train import devices  # not before jaxtyping's hook, which checks the shapes of what is imported later

    devices.remove_broken_programs(CACHE)


@pytest.fixture
def getkey() -> Callable[[], jax.Array]:
    """Returns a fresh key at each call."""
    numbers = itertools.count()
    return lambda: jax.random.fold_in(jax.random.key(20221015), next(numbers))
