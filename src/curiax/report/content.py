"""What a report shows, as plain data: computed in `assemble.py`, drawn by `page.py`.

Every number is final and every text is ready to read, so that the page computes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: How findings were decided.
DECIDED = "Permutation tests of equal means, 5 % level, corrected by Holm's method within each task."


@dataclass(frozen=True)
class Notice:
    """Something the reader must know before believing a number; `level` is `warning` or `note`."""

    level: str
    text: str


@dataclass(frozen=True)
class Line:
    """One line of the comparison: a method or a variant of one, with its look everywhere on the page."""

    label: str
    method: str
    colour: str
    #: Pattern of its strokes as SVG has it (`8 4`), empty for a solid line: a second cue beside the colour.
    dash: str


@dataclass(frozen=True)
class Panel:
    """A task, in the order of the page."""

    name: str
    title: str


@dataclass(frozen=True)
class Cell:
    """A cell of a table: what it says, a `tone` (`good`, `bad`, `unsure`, `above`, `below` or empty), a hint."""

    text: str
    tone: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Table:
    """A table with a caption; `note` stands below it. Cells of the first column are headers of their rows."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Series:
    """One line of one task over training: mean and band (empty lists for one seed), and each seed's own curve."""

    task: str
    label: str
    steps: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    seeds: dict[int, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Curves:
    """A quantity over training, for all tasks and lines; `key` is unique on the page (`coverage/cells`)."""

    key: str
    title: str
    unit: str
    note: str
    series: tuple[Series, ...]
    #: Top of the vertical axis; None: what the data need.
    top: float | None = None
    #: Whether the vertical axis is logarithmic; what is not positive is then left out.
    log: bool = False
    #: A value to draw a line at, called the ideal.
    ideal: float | None = None
    #: Whether each panel has a vertical axis of its own.
    apart: bool = False


@dataclass(frozen=True)
class MapAxis:
    """An axis of a map."""

    name: str
    low: float
    high: float
    parts: int


@dataclass(frozen=True)
class Map:
    """A quantity over the cells of a task at several moments; None where there is nothing to show.

    `values[m][i * y.parts + j]` is moment `m`, part `i` of the horizontal and part `j` of the vertical axis; `closed`
    are the cells that are walls, numbered alike.
    """

    task: str
    label: str
    x: MapAxis
    y: MapAxis
    steps: tuple[int, ...]
    values: tuple[tuple[float | None, ...], ...]
    closed: tuple[int, ...] = ()

    @property
    def spatial(self) -> bool:
        """Whether the axes are a place's coordinates, so that a unit must be as long on both."""
        return (self.x.name, self.y.name) == ("x", "y")


@dataclass(frozen=True)
class Maps:
    """A kind of map; `scale` is `linear` or `log`, `shared` says whether all lines share one colour scale."""

    key: str
    title: str
    unit: str
    note: str
    maps: tuple[Map, ...]
    scale: str = "linear"
    shared: bool = True
    #: The step to open at; None: the last.
    start: int | None = None


@dataclass(frozen=True)
class Sample:
    """A transition as two pictures, each the address of a PNG (`data:...`), empty where there is none to show."""

    before: str
    after: str


@dataclass(frozen=True)
class Payment:
    """What a line pays for each sample at one moment; `shades` from -4 to 4 say how that compares with its usual."""

    label: str
    moment: str
    values: tuple[str, ...]
    shades: tuple[int, ...]
    ratio: str


@dataclass(frozen=True)
class Gallery:
    """Transitions of two kinds, the first `first` of them of the first kind, and what every line pays for them."""

    task: str
    title: str
    kinds: tuple[str, str]
    first: int
    samples: tuple[Sample, ...]
    payments: tuple[Payment, ...]
    note: str


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, what was found, and the comparisons behind the verdict (`held`, `not held`, `open`)."""

    text: str
    source: str
    verdict: str
    finding: str
    comparisons: Table


@dataclass(frozen=True)
class Content:
    """The whole page, from top to bottom."""

    title: str
    lead: str
    notices: tuple[Notice, ...]
    lines: tuple[Line, ...]
    panels: tuple[Panel, ...]
    tables: tuple[Table, ...]
    curves: tuple[Curves, ...]
    occupancy: tuple[Maps, ...]
    surprise: tuple[Maps, ...]
    noise: tuple[Curves, ...]
    claims: tuple[Claim, ...]
    statistics: tuple[Table, ...]
    cost: tuple[Table, ...]
    choices: tuple[Table, ...]
    runs: tuple[Table, ...]
    command: str
    version: str
    #: Of tasks that compare two kinds of transitions: results, what is left of both bonuses, sample transitions.
    ratios: tuple[Table, ...] = ()
    left: tuple[Curves, ...] = ()
    galleries: tuple[Gallery, ...] = ()
    #: Of games: the score in the end beside the authors'.
    games: tuple[Table, ...] = ()
    #: What was found, a sentence for each task.
    findings: tuple[str, ...] = ()
    #: Everything else that was measured: in the end, and over training.
    others: tuple[Table, ...] = ()
    other_curves: tuple[Curves, ...] = ()
