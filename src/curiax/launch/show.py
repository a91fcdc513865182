"""What a person sees of a whole sweep: one live table in a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import abc
import datetime
import sys
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from .._text import clean, clean_lines, console
from ..experiments.progress import tell

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from .driver import Entry

FINISHED = ("done", "read")
STYLES = {"waiting": "dim", "done": "green", "failed": "bold red", "read": "green dim"}
#: Lines of the table that are no runs: header, folds, totals, the cursor's own.
FRAME = 7
#: Characters of a bar, and of a task's name.
BAR, TASK = 8, 21
#: Seconds between two lines that only say that the sweep is alive.
HEARTBEAT = 60.0


class AbstractShow(abc.ABC):
    """Told about all runs at every look of the driver."""

    def __enter__(self) -> None:
        """The sweep begins."""
        self.begin()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """The sweep is over, finished or not."""
        self.end()

    @abc.abstractmethod
    def begin(self) -> None:
        """Before the first look."""

    @abc.abstractmethod
    def update(self, entries: Sequence[Entry]) -> None:
        """How all runs stand."""

    @abc.abstractmethod
    def tell(self, text: str) -> None:
        """One sentence."""

    @abc.abstractmethod
    def end(self) -> None:
        """After the last look."""


class Nothing(AbstractShow):
    """Says nothing."""

    def begin(self) -> None:
        pass

    def update(self, entries: Sequence[Entry]) -> None:
        pass

    def tell(self, text: str) -> None:
        pass

    def end(self) -> None:
        pass


class Lines(AbstractShow):
    """A line for each run that ends or is lost, and now and then one that says that the sweep is alive."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._seen: dict[str, tuple[str, int]] = {}
        self._clock = Clock()
        self._spoke = 0.0

    def begin(self) -> None:
        self._spoke = time.monotonic()

    def update(self, entries: Sequence[Entry]) -> None:
        over = [entry for entry in entries if entry.state in (*FINISHED, "failed")]
        for entry in entries:
            now = (entry.state if entry in over else "", entry.lost)
            if now != self._seen.get(entry.job.folder, ("", 0)):
                self._seen[entry.job.folder] = now
                self.tell(f"[{len(over)}/{len(entries)}] {entry.job.title}: {happened(entry)}")
        self._clock.look(entries)
        if time.monotonic() - self._spoke > HEARTBEAT:
            self.tell(self._clock.summary(entries))

    def tell(self, text: str) -> None:
        self._spoke = time.monotonic()
        tell(text, self._stream)

    def end(self) -> None:
        pass


class Table(AbstractShow):
    """A live table: a row for each run, those that matter least folded where there is not room for all."""

    def __init__(self) -> None:
        from rich.live import Live

        self._console = console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._clock = Clock()

    def begin(self) -> None:
        self._live.start()

    def update(self, entries: Sequence[Entry]) -> None:
        self._clock.look(entries)
        self._live.update(table(entries, self._clock, *self._console.size), refresh=True)

    def tell(self, text: str) -> None:
        self._console.print(clean_lines(text))

    def end(self) -> None:
        self._live.stop()


def for_terminal(*, quiet: bool) -> AbstractShow:
    """A table where somebody is watching, lines where nobody is."""
    if quiet:
        return Nothing()
    return Table() if sys.stderr.isatty() else Lines()


class Clock:
    """How long the sweep has taken, and how long it may still take."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._first: dict[str, float] = {}
        self.seconds = 0.0
        self.left: float | None = None

    def look(self, entries: Sequence[Entry]) -> None:
        """Compare what has been done since the beginning with what is left; every run counts the same."""
        shares = {entry.job.folder: share(entry) for entry in entries}
        for folder, value in shares.items():
            # What was done before this sweep, by an earlier one that was stopped, did not cost its time.
            if value > 0:
                self._first.setdefault(folder, value)
        gained = sum(shares.values()) - sum(self._first.values())
        self.seconds = time.monotonic() - self._begun
        self.left = self.seconds * (len(shares) - sum(shares.values())) / gained if gained > 0.02 else None

    def summary(self, entries: Sequence[Entry]) -> str:
        """Totals and times in a sentence."""
        states = Counter(entry.state for entry in entries)
        again = sum(max(0, entry.calls - 1) for entry in entries)
        parts = [f"{states['done'] + states['read']} of {len(entries)} finished"]
        parts += [f"{states[state]} {state}" for state in ("running", "waiting", "failed") if states[state]]
        parts += [f"{again} called again"] if again else []
        left = f", about {span(self.left)} left" if self.left else ""
        return f"{', '.join(parts)}; {span(self.seconds)} so far{left}"


def span(seconds: float) -> str:
    """`1:02:03`."""
    return str(datetime.timedelta(seconds=round(seconds))).removeprefix("0:")


def share(entry: Entry) -> float:
    """The part of a run that is done; a failed one will not take any more time."""
    return 1.0 if entry.state in (*FINISHED, "failed") else entry.standing.share


def happened(entry: Entry) -> str:
    """How a call of a run ended, in words."""
    if entry.state in ("waiting", "running"):
        reached = f" at iteration {entry.standing.iteration:,}" if entry.standing.iteration else ""
        return f"worker lost{reached} ({entry.message}); it is called again"
    if entry.state == "read":
        return "finished before"
    if entry.state == "failed":
        return f"failed: {entry.message.splitlines()[0] if entry.message else 'without a word'}"
    return f"done, {' '.join(entry.standing.note.split())}" if entry.standing.note else "done"


def table(entries: Sequence[Entry], clock: Clock, width: int, height: int) -> RenderableType:
    """All runs, or where the window is too low those that are at work first, and the rest in numbers."""
    from rich.table import Table as Grid
    from rich.text import Text

    shown, folded = fold(entries, max(3, height - FRAME))
    grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False, caption_justify="left", caption_style="")
    # Widths are given, not measured: rich would take from every column alike.
    grid.add_column("task", no_wrap=True, width=TASK)
    grid.add_column("line", no_wrap=True, max_width=max(8, width - TASK - BAR - 28))
    grid.add_column("state", no_wrap=True, width=BAR + 6)
    grid.add_column("now", no_wrap=True, width=9)
    grid.add_column("calls", no_wrap=True, width=5, justify="right")
    for entry in shown:
        task, label = Text(clean(str(entry.job.experiment["task"]))), Text(clean(entry.job.label))
        note = Text(clean(short(entry.standing.note)) if entry.state in ("running", "done") else "")
        grid.add_row(task, label, state(entry), note, str(entry.calls or ""))
    grid.caption = Text("\n".join([*(f"… {text}" for text in folded), clock.summary(entries)]))
    return grid


def state(entry: Entry) -> Text:
    """A bar while it runs, a word otherwise."""
    from rich.text import Text

    if entry.state != "running":
        return Text(entry.state, STYLES[entry.state])
    filled = round(BAR * share(entry))
    return Text.assemble(
        ("━" * filled, "bold cyan"), ("━" * (BAR - filled), "dim"), (f" {100 * share(entry):3.0f} %", "bold")
    )


def short(note: str) -> str:
    """A headline for a narrow column: `12.3 %`, `bonus 0.012`."""
    return " ".join(note.removeprefix("coverage").partition("(")[0].split())


def fold(entries: Sequence[Entry], room: int) -> tuple[list[Entry], list[str]]:
    """The runs that there is room for, in their order, and the others in numbers."""
    shown, folded = list(entries), []
    for states, word in ((FINISHED, "finished"), (("waiting",), "waiting"), (("running",), "running")):
        excess = len(shown) - room
        if excess > 0:
            # Of what waits and what runs the last are left out; what is finished is of no interest once it is folded.
            some = [entry for entry in shown if entry.state in states]
            hidden = some if states is FINISHED else some[-excess:]
            shown = [entry for entry in shown if entry not in hidden]
            folded += [f"{len(hidden)}{' more' if len(hidden) < len(some) else ''} {word}"] if hidden else []
    return shown, folded
