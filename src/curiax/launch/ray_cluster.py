"""Jobs as tasks of a Ray cluster."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import shutil
import signal
import socket
import stat
import tempfile
import threading
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from .._errors import CuriaxError, UsageError
from ._base import AbstractLauncher, Ending
from .job import Job
from .worker import work

#: Read by Ray when it is imported: it sends no statistics home and does not repeat what the table says.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_PROMPT_ENABLED": "0",
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
#: Seconds to wait for a cluster's first sign of life.
PATIENCE = 5.0
#: Bytes of a local cluster's object store: jobs and endings are all it holds.
STORE = 100 * 2**20
OWN = "local"
#: The folder of a local cluster, and the lock in it of the process whose it is.
PREFIX, LOCK = "curiax-ray-", "lock"


class RayCluster(AbstractLauncher):
    """The cluster at an address, or one of our own on this machine.

    Every call has a fresh process (JAX makes its devices once) and counts as one CPU. Ray repeats nothing: repeating is
    the driver's affair, the same for all launchers.
    """

    def __init__(self, address: str | None, slots: int | None) -> None:
        if importlib.util.find_spec("ray") is None:
            raise UsageError("--launcher ray needs Ray: pip install 'curiax[ray]'.")
        self.address, self.slots = address or os.environ.get("RAY_ADDRESS") or OWN, slots
        self._task: Any = None
        self._folder: OwnFolder | None = None

    def open(self) -> None:
        if self.address not in (OWN, "auto"):
            greet(self.address)
        os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
        import ray

        options: dict[str, Any] = {}
        if self.address == OWN:
            # A folder that can be removed; by default Ray keeps every session's logs for ever.
            self._folder = OwnFolder()
            options = {"num_cpus": self.slots, "object_store_memory": STORE, "include_dashboard": False}
            options["_temp_dir"] = str(self._folder.inner)
        main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR, **options)
        except (Exception, SystemExit) as error:
            self.close()
            raise CuriaxError(
                f"no Ray cluster could be had at {self.address!r}: {type(error).__name__}: {error}. "
                "`ray status` shows a running one; one that asks for a token wants RAY_AUTH_MODE=token and "
                "RAY_AUTH_TOKEN_PATH set here too; without --address a cluster is started on this machine."
            ) from error
        finally:
            if main:
                signal.signal(signal.SIGTERM, before)  # Ray takes it over
        self._task = ray.remote(num_cpus=1, max_calls=1, max_retries=0)(work)

    def start(self, job: Job) -> Any:
        return self._task.options(name=f"curiax: {job.title}").remote(job.to_text())

    def ended(self, call: Any) -> Ending | None:
        import ray
        import ray.exceptions

        if not ray.wait([call], timeout=0)[0]:
            return None
        try:
            return Ending(**json.loads(ray.get(call)))
        except (ray.exceptions.RayTaskError, ray.exceptions.RuntimeEnvSetupError) as error:
            # What a run raises is answered, not raised: this is a worker that cannot even begin.
            cause = str(error).strip().splitlines()[-1]
            return Ending("failed", f"the worker could not begin: {cause}. Is curiax installed where Ray runs?")
        except ray.exceptions.RayError as error:
            return Ending("lost", str(error).strip().splitlines()[0].partition(". ")[0])

    def stop(self, call: Any, *, force: bool) -> None:
        import ray

        ray.cancel(call, force=force)

    def close(self) -> None:
        import ray

        ray.shutdown()
        if self._folder is not None:
            self._folder.remove()


class OwnFolder:
    """A folder that only this user can look into. If this process is killed, the next that makes one removes it.

    Ray opens the folder that it is given to everybody, hence the one inside (a short name: sockets lie in it, and the
    system cuts theirs at 107 letters).
    """

    def __init__(self) -> None:
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            self._lock = FileLock(self.path / LOCK, timeout=0)
            with contextlib.suppress(Timeout, FileNotFoundError):
                self._lock.acquire()
                if (self.path / LOCK).exists():  # else somebody has just taken it for one that was left
                    break
        self.inner = self.path / "r"
        user = self.path.stat().st_uid
        for other in self.path.parent.glob(f"{PREFIX}*"):
            if other != self.path:
                remove_left(other, user)

    def remove(self) -> None:
        """Remove it, and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


def remove_left(folder: Path, user: int) -> None:
    """Remove the folder of a process that was killed: this user's, closed to others, with a lock that is free."""
    with contextlib.suppress(OSError, Timeout):
        about, lock = folder.lstat(), (folder / LOCK).lstat()
        private = stat.S_ISDIR(about.st_mode) and not about.st_mode & 0o077 and about.st_uid == user
        if private and stat.S_ISREG(lock.st_mode):
            with FileLock(folder / LOCK, timeout=0):
                shutil.rmtree(folder, ignore_errors=True)


def greet(address: str) -> None:
    """Refuse a place where nobody listens: Ray itself would wait for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not host or not port.isdigit():
        raise UsageError(f"--address {address!r}: give HOST:PORT of its head, as `ray start --head` shows it.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise CuriaxError(
            f"nobody answers at {address} ({error}): is the Ray cluster up (`ray status` there), and is this its head?"
        ) from None
