"""What a run measures: each quantity is declared once, beside what computes it, and shown everywhere by that."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal


@dataclass(frozen=True)
class Metric:
    """A number that a run says of itself after each iteration.

    Args:
        name: what it is called in the table of metrics, its group first: `policy/entropy`.
        title: what readers call it; by default the name's last part.
        unit: its unit; shares are shown in `%` by a `factor` of 100.
        note: what a reader of its curve must know.
        brief: what a line of the terminal calls it; by default the title.
        better: which way is better, if either is.
        end: what a seed's number in the end is: its `last` value, or the `mean` over the last tenth of training.
        across: what the number of all seeds together is: their `mean`, `max` or `sum`.
        low, high: bounds of what is possible, as it is shown; one that a run is beyond counts for nothing.
        factor: what it is multiplied by to be shown.
        log: whether its axis is logarithmic.
        ideal: the value that it should have, as it is shown.
        digits: decimals that are shown; by default as many as its size asks for.
        missing: the text in its place while it is not known yet, which is NaN; without this it is always a number.
        rank: of the metrics of a run the one with the highest rank is the headline; 0 is never one by itself.
    """

    name: str
    title: str = ""
    unit: str = ""
    note: str = ""
    brief: str = ""
    better: Literal["higher", "lower", ""] = ""
    end: Literal["last", "mean"] = "mean"
    across: Literal["mean", "max", "sum"] = "mean"
    low: float | None = None
    high: float | None = None
    factor: float = 1.0
    log: bool = False
    ideal: float | None = None
    digits: int | None = None
    missing: str = ""
    rank: int = 0

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.name.rpartition("/")[2].replace("_", " "))

    @property
    def group(self) -> str:
        """The first part of its name."""
        return self.name.partition("/")[0]

    @property
    def label(self) -> str:
        """Its title with its unit: `coverage (%)`."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def text(self, value: float) -> str:
        """A value, multiplied by the factor already, as it is shown without the unit."""
        if not math.isfinite(value):
            return "–"
        if self.digits is not None:
            return f"{value:,.{self.digits}f}".replace("-", "−")
        return f"{value:.4g}".replace("-", "−")

    def of_all(self, values: Sequence[float]) -> float:
        """The number of all seeds together."""
        return sum(values) / len(values) if self.across == "mean" else {"max": max, "sum": sum}[self.across](values)

    def progress(self, value: float) -> str:
        """A value in a line of the terminal: `coverage 91.0 % (cells)`."""
        if not math.isfinite(value):
            return self.missing or f"{self.brief or self.title} –"
        unit = f" {self.unit}" if self.unit else ""
        name, bracket, rest = (self.brief or self.title).partition(" (")
        return f"{name} {self.text(self.factor * value)}{unit}{bracket}{rest}"

    def within(self, name: str) -> Metric:
        """The same of a part of something larger, whose name comes before."""
        return replace(self, name=f"{name}/{self.name}")

    def as_json(self) -> dict[str, Any]:
        """What differs from the defaults, as plain data."""
        usual = {each.name: each.default for each in fields(self) if each.default is not NO_DEFAULT}
        data = asdict(self)
        return {name: value for name, value in data.items() if name != "name" and value != usual.get(name, ...)}


def share(name: str, title: str, note: str = "", **more: Any) -> Metric:
    """A share of 0..1, shown in per cent."""
    return Metric(name, title, "%", note, low=0.0, high=100.0, factor=100.0, digits=1, **more)


def undeclared(name: str) -> Metric:
    """A metric that nobody has declared, as what a user's `explain` returns: shown all the same."""
    return Metric(name)


def described(names: Iterable[str], declared: Sequence[Metric]) -> dict[str, Metric]:
    """The metrics with these names, those declared first and in their order, then the others in alphabetical order."""
    names = set(names)
    found = {metric.name: metric for metric in declared if metric.name in names}
    return {**found, **{name: undeclared(name) for name in sorted(names - found.keys())}}


def headline(metrics: Mapping[str, Metric], wanted: str | None = None, preferred: str | None = None) -> str | None:
    """The one metric to show: the wanted one, else of those of the highest rank the preferred one, or the first.

    None where no metric has a rank.
    """
    if wanted is not None and wanted in metrics:
        return wanted
    most = max((metric.rank for metric in metrics.values()), default=0)
    best = [metric.name for metric in metrics.values() if metric.rank == most > 0]
    return preferred if preferred in best else next(iter(best), None)
