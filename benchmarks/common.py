"""What the benchmarks share: programs held in memory, interleaved timing, machine facts, JSON and tables."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from curiax.experiments.spec import Plan

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "benchmarks"
TASK = "mountain-car"
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "mujoco", "numba", "ale-py", "pillow")


@dataclass(frozen=True)
class Target:
    """A bound on one measured number."""

    name: str
    measured: float
    bound: float
    kind: str = "at most"

    @property
    def met(self) -> bool:
        """Whether the number keeps the bound."""
        return self.measured <= self.bound if self.kind == "at most" else self.measured >= self.bound

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "kind": self.kind,
            "bound": self.bound,
            "measured": round(self.measured, 4),
            "met": self.met,
        }


class Program:
    """One experiment, compiled once and kept in memory, so that its training can be timed again and again."""

    plan: Plan
    compile_seconds: float

    def __init__(self, method: str, seeds: int, steps: int | None) -> None:
        # Here and not above: only some benchmarks want JAX in their own process.
        import curiax
        from curiax.train import batch, devices

        devices.prepare()
        begun = time.perf_counter()
        self.plan = curiax.resolve(curiax.Experiment(TASK, method, seeds=seeds, steps=steps))
        self._mesh = batch.seed_mesh(devices.devices_for(seeds))
        arrays, static = self._fresh()
        self._call = batch.compile_chunk(self.plan.setup, static, self._mesh, 1, arrays)
        self.compile_seconds = time.perf_counter() - begun

    def _fresh(self) -> tuple[Any, Any]:
        """Untrained arrays and their static rest; training consumes the arrays, so every repeat needs its own."""
        import jax

        from curiax.train import batch

        plan, mesh = self.plan, self._mesh
        state = batch.first_states(plan.setup, batch.padded(plan.seeds, mesh.size))
        arrays, static = batch.place(state, mesh)
        return jax.block_until_ready(arrays), static

    def train(self) -> float:
        """Seconds to train all seeds from scratch; the same work as `curiax.run` counts as `train`."""
        from curiax.experiments.run import contain_faults
        from curiax.train import batch

        arrays, _ = self._fresh()
        begun = time.perf_counter()
        for k in range(self.plan.iterations):
            arrays, report = self._call(arrays)
            found = batch.HostReport.of(report, slice(len(self.plan.seeds)))
            contain_faults(self.plan, found, k, {})
        return time.perf_counter() - begun


def interleave(cases: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Each case once, then each once more, ...: A B C A B C, so that a disturbance falls on all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for repeat in range(repeats):
        for name, case in cases.items():
            seconds[name].append(case())
            say(f"repeat {repeat + 1}/{repeats}  {name}: {seconds[name][-1]:.3f} s")
    return seconds


def relative(seconds: Mapping[str, Sequence[float]], base: str) -> dict[str, dict[str, float]]:
    """Each case against `base`: ratio of the best repeats, ratio of the medians, extremes of the paired ratios."""
    table = {}
    for name, values in seconds.items():
        pairs = [value / other for value, other in zip(values, seconds[base], strict=True)]
        table[name] = {
            "best_seconds": min(values),
            "ratio_of_best": min(values) / min(seconds[base]),
            "ratio_of_medians": statistics.median(values) / statistics.median(seconds[base]),
            "lowest_pair": min(pairs),
            "highest_pair": max(pairs),
        }
    return table


def environment_of_users(python: str = sys.executable) -> dict[str, str]:
    """The environment that fresh processes get.

    Byte code is kept, as it is unless a machine forbids it: without, a version that is run from its sources is compiled
    at each start (0.25 s) where an installed one is not. Another Python than ours has a Curiax of its own, which a path
    to ours would hide.
    """
    ours = {"PYTHONDONTWRITEBYTECODE", *(["PYTHONPATH"] if python != sys.executable else [])}
    return {name: value for name, value in os.environ.items() if name not in ours}


def fresh_python(arguments: Sequence[str], python: str = sys.executable, **environment: str) -> str:
    """What a fresh interpreter prints, or an error that carries what it printed instead."""
    env = environment_of_users(python) | environment
    done = subprocess.run([python, *arguments], env=env, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join([python, *arguments])} failed ({done.returncode}):\n{done.stderr.strip()}")
    return done.stdout


def parser(doc: str, name: str, repeats: int) -> argparse.ArgumentParser:
    """The options that every benchmark has; its docstring is its help."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", type=Path, default=RESULTS / f"{name}.json", help="JSON file (default %(default)s)")
    made.add_argument("--repeats", type=positive, default=repeats, help="interleaved repeats (default %(default)s)")
    return made


def positive(text: str) -> int:
    """A whole number above 0, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def start_facts() -> dict[str, Any]:
    """The machine, the software and the moment; taken before measuring, so that the load is other people's."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv).replace(f"{ROOT}/", ""),
        "commit": git("rev-parse", "HEAD"),
        "uncommitted_source": git("status", "--porcelain", "--", "src"),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_before": [round(value, 2) for value in os.getloadavg()],
        "platform": platform.platform(),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Of Python, of Curiax as imported, and of what it stands on, as far as installed."""
    from curiax import __version__

    found = {"python": platform.python_version(), "curiax": __version__}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def git(*arguments: str) -> str | None:
    """What git says about this folder, or None outside a repository."""
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def cpu_model() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def write(
    out: Path,
    question: str,
    facts: Mapping[str, Any],
    settings: Mapping[str, Any],
    repeats: Mapping[str, Any],
    summary: Mapping[str, Any],
    targets: Sequence[Target],
) -> None:
    """One JSON file: the question, the machine, what was run, every repeat, the summary, the targets."""
    document = {
        "question": question,
        "machine": dict(facts),
        "settings": dict(settings),
        "repeats": dict(repeats),
        "summary": dict(summary),
        "targets": [target.as_json() for target in targets],
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=2) + "\n")
    if out.parent == RESULTS:
        from tables import publish

        publish(RESULTS)


def report(out: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]], targets: Sequence[Target]) -> None:
    """The table and the targets, on stdout."""
    print_table(columns, rows)
    print()
    print_targets([target.as_json() for target in targets])
    print(f"\nwritten to {out}")


def print_targets(targets: Sequence[Mapping[str, Any]]) -> None:
    """One line for each target: bound, measured, met."""
    rows = [(t["name"], f"{t['kind']} {t['bound']:g}", t["measured"], "yes" if t["met"] else "NO") for t in targets]
    print_table(("target", "bound", "measured", "met"), rows)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Aligned columns; the first one to the left, the others to the right."""
    cells = [[f"{cell:,.2f}" if isinstance(cell, float) else str(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for first, *others in cells:
        aligned = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *aligned]))


def say(text: str) -> None:
    """Progress, on stderr, so that stdout holds the table alone."""
    print(text, file=sys.stderr, flush=True)
