"""From experiments to jobs, and from the words of the command line to a launcher."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from .._errors import UsageError
from ..experiments import folder
from ..experiments.options import RunOptions
from ..experiments.reproduce import options_for, place_of, require_headline
from ..experiments.spec import Experiment, resolve
from ..train import devices
from ._base import AbstractLauncher
from .driver import Entry, launch, opened
from .job import Job
from .local import Local
from .ray_cluster import RayCluster
from .show import AbstractShow

LauncherName = Literal["serial", "local", "ray"]
#: The same for people.
LAUNCHERS = (
    "serial: one run after another in this process; local: several at once, each in a process; "
    "ray: on a Ray cluster, needs curiax[ray]. The results are the same"
)


def choose(name: LauncherName, workers: int | None, address: str | None) -> AbstractLauncher | None:
    """The launcher of that name; None for `serial`, which needs none."""
    if address is not None and name != "ray":
        raise UsageError(f"--address {address}: only --launcher ray has one.")
    if workers is not None and name == "serial":
        raise UsageError(f"--workers {workers}: --launcher serial trains in this process; choose local or ray.")
    if workers is not None and workers < 1:
        raise UsageError(f"--workers {workers}: must be 1 or more.")
    if name == "local":
        return Local(workers or max(2, devices.cpu_cores() // 2))
    return RayCluster(address, workers) if name == "ray" else None


def launch_experiments(
    chosen: Sequence[Experiment],
    store: Path,
    launcher: AbstractLauncher,
    show: AbstractShow,
    options: RunOptions | None = None,
) -> list[Entry]:
    """Finish every experiment in its folder below `store`; what is finished there already is left as it is."""
    # Opened before JAX starts in this process: Ray forks, which JAX's threads do not bear.
    with opened(launcher):
        require_headline(chosen, options or RunOptions())
        entries = entries_for(chosen, store, options or RunOptions(), cpu_devices())
        launch(entries, launcher, show)
    return entries


def cpu_devices() -> int:
    """How many devices JAX makes of this machine's CPU, whatever has been configured: what every worker makes too."""
    import jax

    devices.prepare()
    return len(jax.devices("cpu"))


def entries_for(chosen: Sequence[Experiment], store: Path, options: RunOptions, count: int) -> list[Entry]:
    """A job for each run; experiments that differ only in their label are the same run."""
    entries: dict[Path, Entry] = {}
    for experiment in chosen:
        plan = resolve(experiment)
        place = place_of(plan, store.absolute())
        job = Job(
            experiment.as_json(),
            str(place),
            count,
            # A lost worker may still be on its way out: wait until it lets go.
            replace(options_for(plan, options), wait=True),
            import_path(),
            tuple(sys.argv),
        )
        done = folder.existing_run(place, plan.identity) is not None
        entries.setdefault(place, Entry(job, "read" if done else "waiting"))
    return list(entries.values())


def import_path() -> tuple[str, ...]:
    """Where the user's own modules may lie: the working directory, and what is no part of Python's installation."""
    folders = dict.fromkeys(os.path.abspath(folder) for folder in (os.getcwd(), *sys.path) if folder)
    return tuple(folder for folder in folders if not folder.startswith((sys.prefix, sys.base_prefix)))
