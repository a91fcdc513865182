"""The other side: a fresh process that carries out one job.

`python -m curiax.launch.worker` takes the job as a line of standard input and answers with its ending as a line of
standard output. It leaves with 0 where the run is finished, with the error's exit code where it failed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path

from .._errors import CuriaxError, Interrupted, UsageError
from .._version import __version__
from ..experiments.run import run
from ..experiments.spec import resolve
from ..experiments.store import CHECKPOINTS, Checkpoints
from ..train import devices
from ._base import Ending
from .job import Job
from .progress_file import FileProgress

#: Seconds that a worker without a driver has to save and leave.
GRACE = 60.0
#: Of a message: it travels through a pipe that nobody empties before the end.
LONGEST = 8_000


def work(text: str) -> str:
    """Carry a job out in this process, which must be fresh: its JAX devices are made here. Job and ending as JSON."""
    ending, _ = carry_out(text)
    return json.dumps(dataclasses.asdict(ending))


def carry_out(text: str) -> tuple[Ending, int]:
    """How it ended, and the exit code."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default", UserWarning)
            finish(Job.from_text(text))
    except Interrupted as stop:
        return Ending("lost", str(stop)), stop.exit_code
    except KeyboardInterrupt:
        return Ending("lost", "interrupted"), 128 + signal.SIGINT
    except CuriaxError as error:
        return Ending("failed", str(error)[:LONGEST]), error.exit_code
    except Exception as error:
        # A fault of Curiax or of a user's class; the traceback says where to look.
        place = traceback.format_exc(limit=-3)
        return Ending("failed", f"{type(error).__name__}: {error}\n{place}"[:LONGEST]), 1
    messages = dict.fromkeys(str(warning.message) for warning in caught if warning.category is UserWarning)
    return Ending("done", "\n".join(messages)[:LONGEST]), 0


def finish(job: Job) -> None:
    """See to it that the run is finished in its folder."""
    import jax

    if job.version != __version__:
        raise UsageError(f"this worker has curiax {__version__}, the sweep {job.version}: install the same on both.")
    sys.path += [folder for folder in job.path if folder not in sys.path]
    sys.argv = list(job.command) or sys.argv
    experiment = job.as_experiment()
    plan = resolve(experiment)
    progress = FileProgress(job.progress_file)
    # Several processes share a GPU only where none takes all its memory at once.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # A run that was begun with more devices, under another driver, continues with those.
    begun = Checkpoints(Path(job.folder) / CHECKPOINTS, plan.identity, job.options.keep).layout()
    wanted = max(job.devices, begun or 0)
    devices.prepare(wanted)
    if len(jax.devices("cpu")) != wanted:
        raise UsageError(
            f"this worker has {len(jax.devices('cpu'))} JAX devices on its CPU, the sweep asks for {wanted}, and "
            "other layouts give other last bits: unset XLA_FLAGS and JAX_NUM_CPU_DEVICES where the worker runs."
        )
    run(experiment, Path(job.folder), progress=progress, options=job.options)


def leave_with_the_driver() -> None:
    """End this process in order when standard input is closed: nobody waits for it any more."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=watch, daemon=True, name="curiax-driver").start()


def main() -> None:
    """One job."""
    # Whatever else is printed must not mix with the answer.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    text = sys.stdin.buffer.readline().decode()
    leave_with_the_driver()
    ending, code = carry_out(text)
    answer.write(json.dumps(dataclasses.asdict(ending)))
    answer.flush()
    sys.stderr.flush()
    # XLA's compiler threads may still be at work after an interruption, and do not survive a regular exit.
    os._exit(code)


if __name__ == "__main__":
    main()
