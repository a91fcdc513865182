"""Shared fixtures. Two CPU devices, a compilation cache kept between runs, fresh keys on demand."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import parts
import pytest

# Before JAX starts, and for every process that a test starts. Compiling is what the tests wait for most: LLVM's lowest
# level, and the old emitters, which JAX 0.10 still has, compile the training loop in less than half of the time.
# One module for each program, without LLVM's expensive passes, takes a tenth less again.
# `make soak` and the results are made without them.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + (
    " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_parallel_codegen_split_count=1"
)
if jax.__version_info__ < (0, 11):
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
# A shell without job control has its background jobs ignore Ctrl-C, and what they start after them; tests send it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
jax.config.update("jax_num_cpu_devices", 2)
CACHE = Path(__file__).parent.parent / ".xla_cache"
os.environ["CURIAX_CACHE"] = str(CACHE)
jax.config.update("jax_compilation_cache_dir", str(CACHE))
# Small programs too: each of the processes would compile the same hundreds of single operations.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def pytest_sessionstart() -> None:
    """Remove what a test that was killed left in the cache."""
    from curiax.train import devices  # not before jaxtyping's hook, which checks the shapes of what is imported later

    devices.remove_broken_programs(CACHE)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line which parts were left out on this machine, and how to get what they need."""
    skipped = terminalreporter.stats.get("skipped", [])
    if line := parts.summary(str(report.longrepr[2]) for report in skipped):
        terminalreporter.write_line(line, yellow=True)


@pytest.fixture
def getkey() -> Callable[[], jax.Array]:
    """Returns a fresh key at each call."""
    numbers = itertools.count()
    return lambda: jax.random.fold_in(jax.random.key(20221015), next(numbers))


@pytest.fixture(scope="session")
def opengl() -> None:
    """Leaves out what MuJoCo draws where there is nothing to draw with."""
    from curiax import UsageError
    from curiax.envs import HalfCheetah

    fleet = HalfCheetah().open(1)
    try:
        fleet.render(0, 64, 64)
    except UsageError as error:
        parts.leave_out("films", error)
    finally:
        fleet.close()


@pytest.fixture(scope="module")
def compiled_once() -> Iterator[None]:
    """Runs of equal setups share their compiled programs. Not for tests that change the code that is traced."""
    import programs

    from curiax.experiments import training
    from curiax.train.hosted import Lane

    compile_chunk, compile_lane = training.compile_chunk, Lane.compile

    def chunk(setup: Any, static: Any, mesh: Any, iterations: int, arrays: Any) -> Any:
        made_of = (programs.parts((setup, static)), mesh, iterations, programs.shapes(arrays))
        return programs.once(made_of, lambda: compile_chunk(setup, static, mesh, iterations, arrays))

    def lane(lane: Any) -> None:
        def make() -> tuple[Any, ...]:
            compile_lane(lane)
            return lane._draw, lane._calibrate, lane._learn

        sent = lane.tape.sent(lane.fleet, lane.placement)
        made_of = (programs.parts((lane.setup, lane.static)), lane.placement, programs.shapes((lane.arrays, sent)))
        lane._draw, lane._calibrate, lane._learn = programs.once(made_of, make)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "compile_chunk", chunk)
        patch.setattr(Lane, "compile", lane)
        yield
