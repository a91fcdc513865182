"""Shared fixtures. Two CPU devices, a compilation cache kept between runs, fresh keys on demand."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 2)
CACHE = Path(__file__).parent.parent / ".xla_cache"
os.environ["CURIAX_CACHE"] = str(CACHE)
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture
def getkey() -> Callable[[], jax.Array]:
    """Returns a fresh key at each call."""
    numbers = itertools.count()
    return lambda: jax.random.fold_in(jax.random.key(20221015), next(numbers))
