"""Jobs as processes of this machine."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import IO

from ._base import AbstractLauncher, Ending
from .job import Job


@dataclass(frozen=True, eq=False)
class Call:
    """A process and the file that receives what it prints."""

    process: subprocess.Popen[bytes]
    log: IO[bytes]

    def release(self) -> None:
        """Close our ends of its pipes; the worker takes that as the wish that it save and leave."""
        for stream in (self.process.stdin, self.process.stdout, self.log):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class Local(AbstractLauncher):
    """At most `slots` processes at a time."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._calls: set[Call] = set()

    def open(self) -> None:
        pass

    def start(self, job: Job) -> Call:
        log = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the call)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "curiax.launch.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            # Ctrl-C in a terminal goes to its whole group: the driver hears it and tells the workers.
            start_new_session=True,
        )
        call = Call(process, log)
        self._calls.add(call)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already; `ended` will say how
            process.stdin.write(f"{job.to_text()}\n".encode())
            process.stdin.flush()
        return call

    def ended(self, call: Call) -> Ending | None:
        code = call.process.poll()
        if code is None:
            return None
        assert call.process.stdout is not None
        answer = call.process.stdout.read()
        call.log.seek(0)
        log = call.log.read().decode(errors="replace").strip()
        call.release()
        self._calls.discard(call)
        with contextlib.suppress(ValueError):  # killed before or while it answered
            return Ending(**json.loads(answer))
        if code < 0:
            return Ending("lost", f"its process was ended by {signal.Signals(-code).name}")
        if code == 128 + signal.SIGTERM:
            return Ending("lost", "its process was told to stop")
        return Ending("failed", f"the worker left with exit code {code}: {log[-2000:]}")

    def stop(self, call: Call, *, force: bool) -> None:
        call.process.kill() if force else call.process.terminate()

    def close(self) -> None:
        for call in self._calls:
            call.release()
        self._calls.clear()
