"""What is kept of a finished run for tables, figures and reports: curves of every seed, maps at some moments.

A suite's record is three files: `runs.json` (what was run), `curves.parquet` (one row for each run, seed and
recorded step) and `maps.parquet` (one row for each run, kind and moment). It holds all that a report needs and is
small enough to be kept under version control.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from .._errors import OutputError, unknown
from .._files import damaged, parquet, read_bytes, read_json, write_whole
from .._metrics import Metric, headline
from .._text import clean, clean_data
from ..envs._emulators import game_metrics
from ..experiments import folder
from ..experiments.folder import UNFINISHED, written
from ..experiments.manifest import MOST_TABLE, Manifest, Name, Schema, Text, checked, read_table
from ..experiments.pictures import Pictures
from ..experiments.presets import PRESETS
from ..experiments.registry import METHODS, TASKS
from ..paper.published import RATIO, SCORE
from ..paper.suites import MARIO
from ..train.measures import COMMON, FIRST, KEYS, MAPPED, SECOND, coverage_metrics, measured, ratio_metrics
from . import output
from .output import RECORD

if TYPE_CHECKING:
    import polars

    from ..experiments.spec import Experiment

FORMAT = "curiax-record-1"
FILES = RUNS, CURVES, MAPS = "runs.json", "curves.parquet", "maps.parquet"
REMEDY = "make it again with `curiax reproduce` or `curiax report`."
#: At most so many points of a curve and moments of a map: what a figure can show.
POINTS, MOMENTS = 100, 12
#: Numbers of maps that are looked at together.
TOGETHER = 1 << 22
#: The last part of training, whose mean is the value in the end of what scatters.
END = 0.1
FACTS = ("run_id", "identity", "experiment", "preset", "iterations", "grids", "seconds", "command")
MORE_FACTS = ("headline", "versions", "platform", "devices", "started")
#: What only some runs have.
SOME_FACTS = ("metrics", "coverage", "lost", "masked", "notes", "code", "samples", "compared")
#: Bytes that a record's tables may have in memory: a hundred points and a dozen maps of each run take few.
MOST_UNPACKED = 192 << 20
#: What every game's run has.
GAME = {SCORE, "game/length", "game/best", "game/episodes"}
#: The mean bonuses of two kinds of transitions, whose ratio is `RATIO`.
KINDS = (FIRST, SECOND)
#: Settings that only say where a file lies; which version of a game is in it, a run's notes tell.
PLACES = {"task.rom"}


def finished(facts: Mapping[str, Any]) -> list[int]:
    """The seeds of a run that are in its metrics: all but those whose simulation was lost."""
    return [seed for seed in facts["identity"]["seeds"] if str(seed) not in (facts.get("lost") or {})]


@dataclass(frozen=True)
class Record:
    """One run: `facts` are its manifest's, `curves[name]` is `[S, K]` at `steps [K]`.

    `maps[name]` is `[M, cells]` at `moments [M]`, averaged over the seeds: `occupancy/*` is the share of all steps
    so far spent in each cell, `paid/*` the mean raw bonus of the visits to each cell since the moment before (NaN
    where nobody went), `probe/*` what the model would pay (the median over seeds; as a curve, over cells),
    `samples/bonus` what it would pay for each of the task's sample transitions (the median over seeds).
    """

    facts: Mapping[str, Any]
    steps: np.ndarray
    curves: Mapping[str, np.ndarray]
    moments: np.ndarray
    maps: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        # The one place where names from files come in; tables, figures and pages are made of records.
        object.__setattr__(self, "facts", clean_data(dict(self.facts)))
        for name in ("curves", "maps"):
            object.__setattr__(self, name, {clean(key, None): values for key, values in getattr(self, name).items()})

    @property
    def task(self) -> str:
        """Name of the task."""
        return clean(self.facts["identity"]["task"])

    @property
    def method(self) -> str:
        """Name of the method."""
        return clean(self.facts["identity"]["method"])

    @property
    def label(self) -> str:
        """What the record is called in tables."""
        who = [self.agent.rpartition(":")[2], self.method if self.method != "none" or not self.agent else ""]
        return clean(self.facts["experiment"].get("label") or ", ".join(filter(None, [*who, self.changed])))

    @property
    def agent(self) -> str:
        """Name of the agent; empty where the method's own was not replaced."""
        return clean(self.facts["identity"].get("agent", ""))

    @property
    def changed(self) -> str:
        """The settings that were given explicitly, in words."""
        settings = sorted(self.facts["experiment"]["settings"].items())
        return ", ".join(f"{name.partition('.')[2]} {value}" for name, value in settings)

    @property
    def published_as(self) -> str | None:
        """The method whose published numbers it can stand beside; None for one with changed or smaller settings."""
        smaller = self.preset in PRESETS and PRESETS[self.preset].above
        changed = set(self.facts["experiment"]["settings"]) - PLACES
        return None if changed or smaller or self.agent else self.method

    @property
    def preset(self) -> str:
        """Name of the preset."""
        return self.facts["preset"]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, in the order of the curves; those that were lost are not among them."""
        return tuple(finished(self.facts))

    @property
    def lost(self) -> Mapping[int, str]:
        """The seeds whose simulation was lost, and what was said of it."""
        return {int(seed): why for seed, why in (self.facts.get("lost") or {}).items()}

    @property
    def notes(self) -> Mapping[str, str]:
        """What the task said of what was installed where the run was made, and what versions before 0.5 left out."""
        found = dict(self.facts.get("notes") or {})
        masked = self.facts.get("masked") or {}
        kinds = {"steps": "environment steps", "updates": "gradient steps"}
        if left := [f"{masked[name]:,} {kind}" for name, kind in kinds.items() if masked.get(name)]:
            found["left out for unsound values"] = " and ".join(left)
        return found

    @property
    def budget(self) -> int:
        """Steps of each seed."""
        return int(self.steps[-1])

    @cached_property
    def metrics(self) -> Mapping[str, Metric]:
        """Everything that was measured, in the order in which it is shown, but not what is mapped."""
        return measured(self.curves, declared(self.facts))

    @property
    def headline(self) -> str | None:
        """The metric that is shown first."""
        coverage = self.facts.get("coverage")
        return headline(self.metrics, self.facts.get("headline"), coverage and f"coverage/{coverage}")

    @property
    def plays(self) -> bool:
        """Whether the task is a game, with scores of its episodes."""
        return set(self.curves) >= GAME

    @property
    def compared(self) -> tuple[str, str] | None:
        """The two kinds of transitions whose bonuses the task compares, or None."""
        kinds = self.facts.get("compared")
        return (kinds[0], kinds[1]) if kinds and set(self.curves) >= {RATIO, *KINDS} else None

    def final(self, metric: str) -> np.ndarray:
        """Each seed's last value `[S]`."""
        return self.curves[metric][:, -1]

    def in_the_end(self, metric: str) -> np.ndarray:
        """Each seed's number in the end `[S]`, as the metric has it: NaN where nothing is known.

        A mean over the last tenth of training leaves out what is not known.
        """
        if self.metrics[metric].end == "last":
            return np.asarray(self.final(metric), float)
        late = np.asarray(self.curves[metric][:, self.steps > (1 - END) * self.budget], float)
        known = np.isfinite(late)
        sums, counts = np.where(known, late, 0.0).sum(1), known.sum(1)
        return np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)

    def limits(self, metric: str) -> tuple[float, float]:
        """Between which values a metric can be, as it is shown; a bound that a run is beyond is none."""
        bounds, values = self.metrics[metric], np.asarray(self.curves[metric], float) * self.metrics[metric].factor
        low = -math.inf if bounds.low is None or (values < bounds.low).any() else bounds.low
        high = math.inf if bounds.high is None or (values > bounds.high).any() else bounds.high
        return low, high

    def grid(self, name: str) -> Mapping[str, Any] | None:
        """The description of a grid."""
        return next((grid for grid in self.facts["grids"] if grid["name"] == name), None)


def declared(facts: Mapping[str, Any]) -> tuple[Metric, ...]:
    """What a run's manifest says of its metrics; of runs before 0.5, which say nothing, what is known of them."""
    if (metrics := facts.get("metrics")) is not None:
        known = {field.name for field in fields(Metric)} - {"name"}
        return tuple(Metric(name, **{n: v for n, v in about.items() if n in known}) for name, about in metrics.items())
    of_grids = [each for grid in facts["grids"] for each in coverage_metrics(grid["name"], most_of(grid))]
    compared = facts.get("compared")
    score = ("distance", "pixels") if facts["identity"]["task"] == MARIO else ("score", "")
    of_game = [metric.within("game") for metric in game_metrics(*score)]
    return (*of_grids, *of_game, *(ratio_metrics(*compared) if compared else ()), *COMMON)


def most_of(grid: Mapping[str, Any]) -> float:
    """The coverage of a run that visits all that can be reached of a grid's description, in per cent."""
    cells = grid.get("reachable") or math.prod(grid["shape"]) - len(closed_cells(grid))
    return 100.0 * cells / grid["nominal"]


def headlined(records: Sequence[Record], metric: str) -> list[Record]:
    """The records with another metric shown first, where they have it; empty: as they are."""
    names = list(dict.fromkeys(name for record in records for name in record.metrics))
    if metric and metric not in names:
        raise unknown("metric", metric, names)
    return [
        replace(record, facts={**record.facts, "headline": metric}) if metric in record.metrics else record
        for record in records
    ]


def closed_cells(grid: Mapping[str, Any]) -> tuple[int, ...]:
    """The solid cells of a grid's description, as a maze's walls; runs of earlier versions know of none."""
    return tuple(grid.get("closed") or ())


@dataclass(frozen=True)
class Heading:
    """What a page is called: kept with the records, so that the page can be made again."""

    title: str
    lead: str = ""
    suite: str = ""
    #: The line that the others are compared with.
    reference: str = "lbs"
    command: str = ""
    #: The metric that is shown first; empty: as the runs have it.
    headline: str = ""
    #: What the reader must know of how the records were found.
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            tidy = clean(value, None) if isinstance(value, str) else tuple(clean(text, None) for text in value)
            object.__setattr__(self, field.name, tidy)


def thinned(count: int, most: int) -> np.ndarray:
    """At most `most` indices below `count`, evenly spread, the last among them."""
    return np.unique(np.round(np.linspace(-1, count - 1, min(count, most) + 1)).astype(int)[1:])


def in_order(table: polars.DataFrame) -> polars.DataFrame:
    """The table by seed and iteration; one that is so already, as all that are written are, is not copied."""
    keys = table.select("seed", "iteration")
    return table if keys.equals(keys.sort("seed", "iteration")) else table.sort("seed", "iteration")


def condense(manifest: Mapping[str, Any], table: polars.DataFrame) -> Record:
    """The record of a run from its manifest and its metrics."""
    seeds = finished(manifest)
    table = in_order(table)
    order = np.argsort(np.argsort(seeds))

    def array(name: str) -> np.ndarray:
        values = table[name].to_numpy()
        values = values.reshape(len(seeds), -1, *values.shape[1:])
        return values if (np.diff(order) == 1).all() else values[order]

    steps = array("step")[0]
    at, moments = thinned(len(steps), POINTS), thinned(len(steps), MOMENTS)
    if RATIO in table.columns:
        # What is left of a bonus is a share of the very first one.
        at, moments = np.union1d(0, at), np.union1d(0, moments)
    curves, maps = {}, {}
    metrics = measured(table.columns, declared(manifest))
    for name in table.columns:
        if name in KEYS or name.startswith("paid/"):
            continue
        values = array(name)
        if name.startswith("samples/"):
            maps[name] = np.median(values[:, moments], axis=0)
            continue
        if name in metrics:
            curves[name] = averaged(values, at) if metrics[name].end == "mean" else values[:, at]
            continue
        if name.startswith("probe/"):
            # Medians: now and then a model pays thousands for a far state, which would drown all else in a mean.
            maps[name] = np.stack([np.median(values[:, moment], axis=0) for moment in moments])
            values = medians(values)
        if name.startswith("occupancy/"):
            visits = np.cumsum(between(values, moments, np.int64), axis=1)
            maps[name] = (visits / visits.sum(2, keepdims=True)).mean(0)
            grid = name.removeprefix("occupancy/")
            if f"paid/{grid}" in table.columns:
                maps[f"paid/{grid}"] = mean_paid(array(f"paid/{grid}"), values, moments)
        else:
            curves[name] = values[:, at]
    facts = {name: manifest[name] for name in FACTS} | {name: manifest.get(name) for name in MORE_FACTS}
    facts |= {name: manifest[name] for name in SOME_FACTS if manifest.get(name)}
    return Record(facts, steps[at], curves, steps[moments], maps)


def averaged(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Curves `[S, N]` at some of their points `[K]`, each the mean since the point before: batches are small.

    NaN is left out, and is what is left where there is nothing else.
    """
    known = np.isfinite(values)
    sums, counts = (
        np.diff(np.cumsum(total, axis=1)[:, at], axis=1, prepend=0)
        for total in (np.where(known, values, 0).astype(float), known)
    )
    return np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)


def sound(metric: Metric | None, values: np.ndarray) -> bool:
    """Whether a metric `[S, N]` or a map is numbers; of what may be missing, from when it is first known on."""
    missing = np.isnan(values)
    if metric is not None and metric.missing and not np.isinf(values).any():
        return not (missing[:, 1:] & ~missing[:, :-1]).any()
    return bool(np.isfinite(values).all())


def medians(values: np.ndarray) -> np.ndarray:
    """Of each map `[S, N, cells]` the median over its cells, a few maps at a time: a median needs a copy."""
    rows = values.reshape(-1, values.shape[-1])
    some = max(1, TOGETHER // rows.shape[1])
    parts = [np.median(rows[k : k + some], axis=1) for k in range(0, len(rows), some)]
    return np.concatenate(parts).reshape(values.shape[:-1])


def between(values: np.ndarray, moments: np.ndarray, kind: type[np.generic]) -> np.ndarray:
    """Sums of maps `[S, N, cells]` since the moment before `[S, M, cells]`."""
    return np.add.reduceat(values, np.concatenate([[0], moments[:-1] + 1]), axis=1, dtype=kind)


def mean_paid(paid: np.ndarray, visits: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """The mean bonus of a visit to each cell between two moments, over all seeds; NaN where nobody went."""
    sums, counts = (between(total, moments, np.float64).sum(0) for total in (paid, visits))
    return np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)


def read_run(path: Path) -> Record | None:
    """The record of a finished run's folder; None if it is not one."""
    manifest = folder.read_manifest(path)
    if manifest is None:
        return None
    check_facts(path, manifest)
    table = folder.read_metrics(path, manifest)
    check_complete(path, manifest, table)
    return condense(manifest, table)


def check_complete(path: Path, manifest: Mapping[str, Any], table: polars.DataFrame) -> None:
    """Refuse a metrics table that is not the one its manifest describes, or that holds no numbers."""
    seeds, iterations = finished(manifest), manifest["iterations"]
    expected = len(seeds) * iterations

    def refuse(what: str) -> OutputError:
        return OutputError(f"{path} is damaged: {what}; {folder.REMEDY}")

    if not {"seed", "iteration", "step"} <= set(table.columns) or table.height != expected:
        raise refuse(f"{folder.METRICS} has {table.height} rows where its manifest says {expected}")
    if any(not table[name].dtype.is_integer() or table[name].null_count() for name in ("seed", "iteration", "step")):
        raise refuse(f"the seeds, iterations or steps of {folder.METRICS} are no whole numbers")
    ordered = in_order(table)
    if (ordered["seed"].to_numpy() != np.repeat(sorted(seeds), iterations)).any():
        raise refuse(f"the seeds of {folder.METRICS} are not its manifest's")
    steps = ordered["step"].to_numpy().reshape(len(seeds), iterations)
    counted = ordered["iteration"].to_numpy().reshape(len(seeds), iterations) == np.arange(iterations)
    if not counted.all() or (steps != steps[0]).any() or (np.diff(steps[0], prepend=0) <= 0).any():
        raise refuse(f"the iterations and steps of {folder.METRICS} are not those of a run")
    metrics = measured(table.columns, declared(manifest))
    for name in table.columns:
        kind, _, grid = name.partition("/")
        if name in KEYS:
            continue
        values = ordered[name].to_numpy()
        known = (
            next((g for g in manifest["grids"] if g["name"] == grid), None) if kind in ("occupancy", "paid") else None
        )
        if values.dtype.kind not in "fiu" or values.ndim != (2 if kind in MAPPED else 1):
            raise refuse(f"{name} in {folder.METRICS} is no {'map' if values.ndim == 1 else 'curve'} of numbers")
        if (known and values.ndim == 2 and values.shape[1] != math.prod(known["shape"])) or 0 in values.shape:
            raise refuse(f"{name} in {folder.METRICS} has {values.shape[-1]} cells, which is not its grid's number")
        if kind == "occupancy" and (values < 0).any():
            raise refuse(f"{name} in {folder.METRICS} is no count of visits")
        metric = metrics.get(name)
        if not sound(metric, values if metric is None else values.reshape(len(seeds), -1)):
            raise refuse(f"{name} in {folder.METRICS} is not finite everywhere")


def check_facts(path: Path, facts: Any) -> None:
    """Refuse facts that a report could not read: each of the right kind, with what is looked up in it."""
    manifest = facts if isinstance(facts, dict) else {}
    missing = [name for name in FACTS if manifest.get(name) is None]
    identity = manifest.get("identity")
    if missing:
        version = identity.get("curiax", "an unknown version") if isinstance(identity, dict) else "an unknown version"
        raise OutputError(
            f"{path} was made by Curiax {version}, whose runs lack {', '.join(missing)}: run it again to report on it."
        )
    checked(
        Manifest,
        manifest,
        lambda why: OutputError(f"{path} is damaged: its facts are not those of a run ({why}); {folder.REMEDY}"),
    )
    if not finished(manifest):
        lost = "; ".join(map(str, manifest["lost"].values()))
        raise OutputError(f"{path} lost every seed ({lost}): there is nothing to report.")


def save(records: Sequence[Record], heading: Heading, path: Path) -> None:
    """Write the record of a suite."""
    import polars as pl

    curves, maps = [], []
    for number, record in enumerate(records):
        seeds, points = len(record.seeds), len(record.steps)
        curves.append(
            pl.DataFrame(
                {
                    "run": np.full(seeds * points, number, np.int16),
                    "seed": np.repeat(np.asarray(record.seeds, np.int64), points),
                    "step": np.tile(record.steps, seeds),
                    **{name: compact(values).reshape(-1) for name, values in sorted(record.curves.items())},
                }
            )
        )
        for name, values in sorted(record.maps.items()):
            frame = {
                "run": np.full(len(values), number, np.int16),
                "map": [name] * len(values),
                "step": record.moments,
                "values": pl.Series([pl.Series(row) for row in compact(values)], dtype=pl.List(pl.Float32)),
            }
            maps.append(pl.DataFrame(frame))
    # All runs of a task show the same samples: their pictures are kept once.
    pictures = {record.task: record.facts["samples"] for record in reversed(records) if record.facts.get("samples")}
    facts = [{name: fact for name, fact in record.facts.items() if name != "samples"} for record in records]
    runs = {"format": FORMAT, "heading": asdict(heading), "runs": facts}
    runs |= {"samples": pictures} if pictures else {}
    with written(path):
        path.mkdir(parents=True, exist_ok=True)
        write_whole(path / RUNS, f"{json.dumps(runs, indent=1, ensure_ascii=False)}\n".encode())
        table = pl.concat(maps) if maps else pl.DataFrame({"run": [], "map": [], "step": [], "values": []})
        for name, frame in ((CURVES, pl.concat(curves, how="diagonal")), (MAPS, table)):
            write_whole(path / name, parquet(frame, compression="zstd", compression_level=19))


def compact(values: np.ndarray) -> np.ndarray:
    """Float32 with half of its digits: figures and tables show fewer, and the file shrinks threefold.

    Coverage survives exactly: whole hundredths of a small number of cells need fewer bits than are kept.
    """
    bits = np.asarray(values, np.float32).view(np.uint32)
    finite = np.isfinite(np.asarray(values, np.float32))
    rounded = ((bits + np.uint32(0x7FF)) & np.uint32(0xFFFFF000)).view(np.float32)
    return np.where(finite, rounded, np.asarray(values, np.float32)).astype(np.float32)


class HeadingSchema(Schema):
    """A heading in `runs.json`."""

    title: Text = ""
    lead: Text = ""
    suite: Text = ""
    reference: Text = ""
    command: Text = ""
    headline: Annotated[str, Field(max_length=512)] = ""
    remarks: Annotated[list[Text], Field(max_length=4096)] = []  # noqa: RUF012


class PicturesSchema(Schema):
    """The pictures of each task's samples in `runs.json`."""

    pictures: Annotated[dict[Name, Pictures], Field(max_length=256)]


def read_runs(path: Path) -> dict[str, Any]:
    """What `runs.json` holds."""
    data = read_json(path / RUNS, REMEDY)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise OutputError(f"{path / RUNS} is not a record of this version (its format is not {FORMAT}).")
    if not isinstance(data.get("runs"), list) or not isinstance(data.get("heading"), dict):
        raise OutputError(f"{path / RUNS} is damaged: it names no runs.")
    checked(HeadingSchema, data["heading"], lambda why: damaged(path / RUNS, f"heading: {why}", REMEDY))
    if not data["runs"]:
        raise damaged(path / RUNS, "it names no runs", REMEDY)
    for facts in data["runs"]:
        check_facts(path / RUNS, facts)
    samples = {"pictures": data.get("samples", {})}
    pictures = checked(PicturesSchema, samples, lambda why: damaged(path / RUNS, f"samples: {why}", REMEDY)).pictures
    for facts in data["runs"]:
        if (seen := pictures.get(facts["identity"]["task"])) is not None:
            facts["samples"] = seen.model_dump()
    return data


def read_heading(path: Path) -> Heading:
    """What the record's page is called."""
    heading = HeadingSchema.model_validate(read_runs(path)["heading"])
    words = {field.name: getattr(heading, field.name) for field in fields(Heading) if field.name != "remarks"}
    return Heading(**words, remarks=tuple(heading.remarks))


def read_parquet(file: Path, schema: Mapping[str, Any]) -> polars.DataFrame:
    """A table of a record that begins with these columns, none of their values missing."""

    def refuse(why: str) -> OutputError:
        return OutputError(f"{file.parent} is not a complete record ({file.name}: {why}): {REMEDY}")

    try:
        data = read_bytes(file, MOST_TABLE, REMEDY)
    except OutputError as error:
        raise refuse(str(error)) from None
    table = read_table(data, refuse, unpacked=MOST_UNPACKED)
    if table.height and {name: table.schema.get(name) for name in schema} != dict(schema):
        raise refuse("its columns are not those of a record")
    if any(table[name].null_count() for name in schema if name in table.columns):
        raise refuse("some of its values are missing")
    return table


def load(path: Path) -> list[Record]:
    """Read the record of a suite."""
    import polars as pl

    data = read_runs(path)
    keys = {"run": pl.Int16(), "step": pl.Int64()}
    curves = read_parquet(path / CURVES, {**keys, "seed": pl.Int64()})
    maps = read_parquet(path / MAPS, {**keys, "map": pl.String(), "values": pl.List(pl.Float32())})
    records = []
    for number, facts in enumerate(data["runs"]):
        own = curves.filter(pl.col("run") == number) if curves.height else curves
        seeds = finished(facts)
        if own.height == 0 or own.height % len(seeds) or own["seed"].unique(maintain_order=True).to_list() != seeds:
            raise OutputError(f"{path} is damaged: the curves of run {number} are not those of its seeds.")
        names = [name for name in own.columns[3:] if not own[name].is_null().any()]
        found = maps.filter(pl.col("run") == number) if maps.height else maps
        kinds = {name: found.filter(pl.col("map") == name) for name in found["map"].unique(maintain_order=True)}
        made = Record(
            facts,
            own["step"].to_numpy()[: own.height // len(seeds)],
            {name: own[name].to_numpy().reshape(len(seeds), -1) for name in names},
            next(iter(kinds.values()))["step"].to_numpy() if kinds else np.array([], np.int64),
            {name: matrix(path, name, frame["values"]) for name, frame in kinds.items()},
        )
        check_record(path, number, made, own)
        records.append(made)
    return records


def matrix(path: Path, name: str, rows: polars.Series) -> np.ndarray:
    """The moments of a map `[M, cells]`."""
    lengths = rows.list.len().unique().to_list()
    if len(lengths) != 1 or not lengths[0]:
        raise OutputError(f"{path} is damaged: the map {name!r} has rows of different lengths, or empty ones.")
    return rows.explode().to_numpy().astype(np.float32).reshape(len(rows), -1)


def check_record(path: Path, number: int, made: Record, own: polars.DataFrame) -> None:
    """Refuse curves and maps that are not those of one run: as long as each other, finite, on the run's grids."""
    seeds = len(made.seeds)
    points = own["step"].to_numpy().reshape(seeds, -1)
    order = own["seed"].to_numpy().reshape(seeds, -1)
    fine = (points == points[0]).all() and (np.diff(points[0], prepend=0) > 0).all()
    fine = fine and (order == np.array(made.seeds)[:, None]).all()
    fine = fine and all(v.dtype == np.float32 and sound(made.metrics.get(name), v) for name, v in made.curves.items())
    fine = fine and (np.diff(made.moments, prepend=0) > 0).all()
    for name, values in made.maps.items():
        kind, _, grid = name.partition("/")
        known = made.grid(grid)
        fine = fine and len(values) == len(made.moments) and values.shape[1] > 0
        fine = fine and (known is None or kind == "probe" or values.shape[1] == math.prod(known["shape"]))
        fine = fine and not np.isinf(values).any() and (kind == "paid" or bool(np.isfinite(values).all()))
    if not fine:
        raise OutputError(f"{path} is damaged: the curves or maps of run {number} are not those of a run.")


def gather(paths: Sequence[Path]) -> tuple[list[Record], tuple[str, ...]]:
    """The records below some folders (runs, folders of runs, what `reproduce` wrote), and what was left out and why."""
    records: dict[str, Record] = {}
    remarks: list[str] = []
    for path in paths:
        found, left_out = below(path)
        remarks += left_out
        for record in found:
            records.setdefault(f"{record.facts['run_id']} {record.label}", record)
    if not records:
        where = ", ".join(str(path) for path in paths)
        why = f" ({' '.join(remarks)})" if remarks else ""
        raise OutputError(
            f"no finished runs in {where}{why}: train some with `curiax run` or `curiax reproduce` first."
        )
    return list(records.values()), tuple(remarks)


def kept_runs(path: Path, experiments: Sequence[Experiment]) -> list[Record]:
    """The runs of a report that these experiments would make: of the same task, line, seeds and settings."""
    found, _ = gather([path])
    kept = []
    for experiment in experiments:
        same = [record for record in found if record.facts["experiment"] == experiment.as_json()]
        if not same:
            raise OutputError(
                f"{path} has no run of {experiment.label} on {experiment.task} with these seeds, steps, preset and "
                "settings: name that task in --tasks too, or leave --kept out."
            )
        kept.append(same[0])
    return kept


def below(path: Path) -> tuple[list[Record], list[str]]:
    """The records of one folder, and remarks on what in it could not be read."""
    if not path.is_dir():
        raise OutputError(f"{path} is not a folder: name run folders, or a folder that holds some.")
    for place in (path, path / RECORD):
        if (place / RUNS).exists():
            if wrong := output.faults(place.parent, f"{RECORD}/"):
                raise OutputError(f"{place} cannot be read: {wrong[0]} {REMEDY.capitalize()}")
            return load(place), list(read_heading(place).remarks)
    own = read_run(path)
    if own is not None:
        return [own], []
    runs = (path / output.STORE) if (path / output.STORE).is_dir() else path
    found, remarks = [], []
    for entry in sorted(runs.iterdir()):
        if UNFINISHED in entry.name:
            remarks.append(f"{entry} is the trace of an unfinished run: left out.")
        elif entry.is_dir() and not entry.name.startswith("."):
            try:
                record = read_run(entry)
            except OutputError as error:
                remarks.append(f"Left out: {error}")
            else:
                if record is None:
                    remarks.append(f"{entry} holds no finished run: left out.")
                else:
                    found.append(record)
    return sorted(found, key=usual_order), remarks


def usual_order(record: Record) -> tuple[int, str, int, str]:
    """Tasks and methods as `curiax list` has them, then the user's own."""
    tasks, methods = list(TASKS), list(METHODS)
    task = tasks.index(record.task) if record.task in tasks else len(tasks)
    method = methods.index(record.method) if record.method in methods else len(methods)
    return task, record.task, method, record.label
