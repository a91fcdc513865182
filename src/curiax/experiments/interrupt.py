"""Being told to stop: Ctrl-C and SIGTERM end a run at its next border, with everything saved."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from .._errors import Interrupted
from ..train.devices import COMPILING

#: Signals within so many seconds are one: `timeout` and terminals send them to a process and again to its group.
TOGETHER = 0.3
#: Seconds after which a request is looked at again that could not be granted where it came.
SOON = 0.05
#: What ends a run in order; Windows has only the first.
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether somebody has asked the run to stop, and by which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.at = 0.0
        #: False as long as there is nothing to save, so that a request is granted at once.
        self.training = False
        #: Asks for a checkpoint at the next border, from the moment of the request on: iterations may be long.
        self.ask: Callable[[], None] = lambda: None
        #: The message to whoever asked the run to stop.
        self.notice = ""
        self._reminder: threading.Timer | None = None

    def begin(self, ask: Callable[[], None]) -> None:
        """From now on there is something to save."""
        self.check()
        self.training, self.ask = True, ask

    def check(self) -> None:
        """Grant a request that could not be granted where it came, as long as there is nothing to save."""
        if self.signal is not None and not self.training:
            raise Interrupted("stopped before training began; whatever was saved before is as it was.", self.exit_code)

    def remind(self) -> None:
        """Come back in a moment to a request that came where an exception might be lost or do harm."""
        self._reminder = threading.Timer(SOON, remind)
        self._reminder.daemon = True
        self._reminder.start()

    def forget(self) -> None:
        """From now on nobody would hear a reminder."""
        if self._reminder is not None:
            self._reminder.cancel()
            self._reminder.join()

    @property
    def exit_code(self) -> int:
        """As shells have it."""
        return 128 + (self.signal or signal.SIGINT)


NOTICE = "stopping: saving at the next border of the training. Ctrl-C again leaves at once."
DONE = "stopping: the run is trained, its files are being written. Ctrl-C again leaves at once."


def heeded() -> list[int]:
    """The signals that this process is to hear: a shell has its background jobs ignore Ctrl-C, not meant for them."""
    return [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]


def remind(number: int = signal.SIGTERM) -> None:
    """Have the main thread look at a request again; where SIGINT would count as the second one, by SIGTERM."""
    if hasattr(signal, "pthread_kill"):
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, number)  # wakes it even from a sleep
    else:
        signal.raise_signal(number)


@contextlib.contextmanager
def listening(tell: Callable[[str], None], notice: str = NOTICE) -> Iterator[Stop]:
    """Take the two signals as a request while the block runs; a second Ctrl-C interrupts as it always does.

    A request that comes so late that the block ends without having granted it goes to whoever listened before: a suite
    ends after the run that was being finished. Outside the main thread signals cannot be taken: there a run goes on
    until it is finished.
    """
    stop = Stop()
    stop.notice = notice
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def take(number: int, frame: FrameType | None) -> None:
        HEARD.set()
        if stop.signal is not None and number == signal.SIGINT and time.monotonic() - stop.at > TOGETHER:
            raise Interrupted("left at once; what was saved before is kept.", 128 + number)
        first = stop.signal is None
        if first:
            stop.signal, stop.at = number, time.monotonic()
        if not stop.training:
            if not fragile(frame):
                stop.check()
            stop.remind()
        elif first:
            tell(stop.notice)
            stop.ask()

    before: dict[int, Any] = {number: signal.signal(number, take) for number in heeded()}
    try:
        yield stop
    finally:
        stop.forget()
        for number, handler in before.items():
            restore(number, handler)
    if stop.signal is not None:
        pass_on(stop.signal, before[stop.signal])


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C ends the block as it ends any program, also where Python would lose the exception that it raises."""
    usual = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not usual:
        yield
        return

    def take(number: int, frame: FrameType | None) -> None:
        if not fragile(frame):
            usual(number, frame)
        again = threading.Timer(SOON, remind, (signal.SIGINT,))
        again.daemon = True
        again.start()

    signal.signal(signal.SIGINT, take)
    try:
        yield
    finally:
        restore(signal.SIGINT, usual)


def restore(number: int, handler: Any) -> None:
    """Give a signal back to whoever had it; of Python's own Ctrl-C, with care while something is being compiled.

    Python waits at its end for a thread that compiles. A second Ctrl-C would cut that short and take the interpreter
    down under the compiler, which is a segmentation fault: then the process ends at once instead.
    """
    compiling = any(thread.name.startswith(COMPILING) for thread in threading.enumerate())
    patient = compiling and handler is signal.default_int_handler
    signal.signal(number, end_or_interrupt if patient else handler)


def end_or_interrupt(number: int, frame: FrameType | None) -> None:
    """Ctrl-C as Python has it, but at the interpreter's own end."""
    over = getattr(threading, "_shutdown", None)
    now = frame
    while now is not None:
        if over is not None and now.f_code is over.__code__:
            os._exit(128 + number)
        now = now.f_back
    signal.default_int_handler(number, frame)


def pass_on(number: int, handler: Any) -> None:
    """Let another handler have a signal that was taken from it."""
    if callable(handler):
        handler(number, None)
    elif handler == signal.SIG_DFL:
        signal.raise_signal(number)


#: Set once Python has heard of a request and has said so, or is about to.
HEARD = threading.Event()
#: Seconds after which somebody who asks is answered, whatever the main thread does.
ANSWER = 0.2
BUSY = "stopping as soon as the compiled program that is running returns. Ctrl-C again leaves at once."

LEFT = "stopped; finished runs and what was saved before are kept."
#: Seconds after which a process that was told to leave, and had nothing to save, is ended whatever it does.
PATIENCE = 3.0


def leave(number: int, frame: FrameType | None = None) -> None:
    """Leave in order where there is nothing to save; for the command line only.

    Python raises wherever it happens to be. Inside a callback of the garbage collector an exception is lost, and inside
    an import of compiled code it may end in a segmentation fault: there the process ends at once. Should it be lost
    elsewhere, the process ends a little later all the same.
    """
    HEARD.set()
    if fragile(frame):
        os.write(2, f"\ncuriax: {LEFT}\n".encode())
        os._exit(128 + number)
    timer = threading.Timer(PATIENCE, os._exit, (128 + number,))
    timer.daemon = True
    timer.start()
    raise Interrupted(LEFT, 128 + number)


def fragile(frame: FrameType | None) -> bool:
    """Whether an exception raised here might be lost, or break what is being imported."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib") or code.co_name.endswith("gc_callback"):
            return True
        frame = frame.f_back
    return False


#: Seconds within which a process that was told to stop is gone, saved or not.
LONGEST = 28.0


def leave_in_time(longest: float = LONGEST) -> None:
    """Answer a request to stop; end this process at the second Ctrl-C, or when the request is not granted for long.

    Python's own handlers run between two lines of Python, which may be many seconds away while the main thread waits
    for a compiled program; a thread hears of signals at once. For the command line only: it ends the process without
    asking anybody.
    """
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)

    def watch(kept: socket.socket) -> None:
        request, first = 0, 0.0
        why = "left at once"
        while True:
            try:
                signals = [number for number in ours.recv(64) if number in SIGNALS]
            except TimeoutError:
                why = f"left after {longest:.0f} s, in the middle of an iteration"
                break
            now = time.monotonic()
            if signals and not request:
                request, first = signals[0], now
                if not HEARD.wait(ANSWER):
                    os.write(2, f"\ncuriax: {BUSY}\n".encode())
            if request:
                ours.settimeout(max(first + longest - now, 0.001))
            if signal.SIGINT in signals and now - first > TOGETHER:
                break
        # The message must not wait for a lock that the main thread may hold. A progress bar hides the cursor.
        cursor = "\x1b[?25h" if os.isatty(2) else ""
        os.write(
            2, f"{cursor}\ncuriax: {why}; what was saved before is kept, and the same command continues.\n".encode()
        )
        os._exit(128 + request)

    # The socket must live as long as the process: the thread's arguments keep it.
    threading.Thread(target=watch, args=(theirs,), daemon=True, name="curiax-interrupts").start()
