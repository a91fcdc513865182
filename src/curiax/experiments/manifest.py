"""Reading a finished run: what its manifest must say, and the table of metrics that it promises."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from .._errors import OutputError
from .._files import damaged, digest, digest_of_json, read_bytes, read_json, usable
from .pictures import Pictures
from .unpacked import bytes_in_memory

if TYPE_CHECKING:
    import polars

#: Since version 0.4 a manifest is sealed: it holds a digest of itself.
FORMAT, UNSEALED = "curiax-run-2", "curiax-run-1"
MANIFEST, METRICS = "manifest.json", "metrics.parquet"
REMEDY = "remove the folder to run it again, or choose another --out."
#: Bytes of a table's file: far above what the longest runs leave. What it may become in memory, of small files.
MOST_TABLE, MOST_UNPACKED = 4 << 30, 352 << 20

Name = Annotated[str, Field(min_length=1, max_length=512)]
Text = Annotated[str, Field(max_length=65_536)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Seeds = Annotated[list[Seed], Field(min_length=1, max_length=65_536)]
Settings = Annotated[dict[Name, Any], Field(max_length=4096)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Seconds = Annotated[float, Field(ge=0, lt=1e12)]
#: What a task says of what is installed.
Notes = Annotated[dict[Name, Text], Field(max_length=64)]
Number = Annotated[float, Field(gt=-1e30, lt=1e30)]
Model = TypeVar("Model", bound=BaseModel)


class Schema(BaseModel):
    """Part of a file: the fields below are of these very types; others may be there, from other versions."""

    model_config = ConfigDict(strict=True, extra="allow")


class Identity(Schema):
    """What decides a run's result."""

    task: Name
    method: Name
    seeds: Seeds
    steps: Annotated[int, Field(ge=1)] | None = None
    settings: Settings
    source: Text = ""
    curiax: Name = "an unknown version"
    agent: Text = ""

    @model_validator(mode="after")
    def _distinct(self) -> Identity:
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError("a seed occurs twice")
        return self


class ExperimentSchema(Schema):
    """An experiment as its user set it."""

    task: Name
    method: Name
    settings: Settings
    seeds: Seeds | None = None
    steps: Annotated[int, Field(ge=1)] | None
    preset: Name = "paper-code"
    label: Text = ""
    agent: Text = ""


class AxisSchema(Schema):
    """An axis of a grid."""

    name: Text
    low: Number
    high: Number
    parts: Annotated[int, Field(ge=1, le=1_000_000)]

    @model_validator(mode="after")
    def _ordered(self) -> AxisSchema:
        if not self.low < self.high:
            raise ValueError("low is not below high")
        return self


class GridSchema(Schema):
    """A grid for readers that do not have the task."""

    name: Name
    axes: Annotated[list[AxisSchema], Field(min_length=1, max_length=16)]
    rule: Literal["floor", "ceil"]
    shape: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1, max_length=16)]
    nominal: Annotated[int, Field(ge=1)]
    reachable: Annotated[int, Field(ge=1)] | None = None
    closed: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=1_000_000)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> GridSchema:
        if self.shape != [axis.parts + (self.rule == "ceil") for axis in self.axes]:
            raise ValueError("shape is not that of the axes")
        size = 1
        for side in self.shape:
            size *= side
        if size > 10_000_000 or any(cell >= size for cell in self.closed or ()) or self.nominal > size:
            raise ValueError("its cells do not fit its shape")
        return self


class SecondsSchema(Schema):
    """How long a run took."""

    start: Seconds
    train: Seconds
    cpu: Seconds = 0.0


class MaskedSchema(Schema):
    """What versions before 0.5 left out for its unsound values: environment steps, and gradient steps."""

    steps: Annotated[int, Field(ge=0)]
    updates: Annotated[int, Field(ge=0)]


class CodeSchema(Schema):
    """The code that a run was trained with."""

    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{7,64}$")] | None
    changed: bool | None
    digest: Digest


class MetricSchema(Schema):
    """What a metric is to a reader; what is left out is as `Metric` has it by default."""

    title: Text = ""
    unit: Annotated[str, Field(max_length=64)] = ""
    note: Text = ""
    brief: Text = ""
    better: Literal["higher", "lower", ""] = ""
    end: Literal["last", "mean"] = "mean"
    across: Literal["mean", "max", "sum"] = "mean"
    low: Number | None = None
    high: Number | None = None
    factor: Number = 1.0
    log: bool = False
    ideal: Number | None = None
    digits: Annotated[int, Field(ge=0, le=12)] | None = None
    missing: Text = ""
    rank: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class Manifest(Schema):
    """What a run says of itself; fields with a default are missing in runs of early versions."""

    run_id: Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]
    identity: Identity
    experiment: ExperimentSchema
    preset: Name
    seconds: SecondsSchema
    iterations: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    #: What was measured, in the order in which it is shown, and which of it first; before 0.5 only `coverage`, the
    #: grid whose coverage was shown first.
    metrics: Annotated[dict[Name, MetricSchema], Field(max_length=4096)] | None = None
    headline: Name | None = None
    coverage: Name | None = None
    grids: Annotated[list[GridSchema], Field(max_length=64)] | None = None
    #: What a task calls the two kinds of transitions whose bonuses it compares.
    compared: Annotated[list[Name], Field(min_length=2, max_length=2)] | None = None
    #: What was seen before and after each of the samples of these transitions.
    samples: Pictures | None = None
    notes: Notes | None = None
    command: Text | None = None
    code: CodeSchema | None = None
    versions: Annotated[dict[Name, Text], Field(max_length=256)] | None = None
    platform: Text | None = None
    devices: Annotated[list[Text], Field(max_length=65_536)] | None = None
    started: Text | None = None
    lost: dict[Name, Text] | None = None
    masked: MaskedSchema | None = None
    #: Digests of the files beside the manifest; early versions have none.
    files: Annotated[dict[Name, Digest], Field(max_length=64)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Manifest:
        if not set(self.lost or ()) <= set(map(str, self.identity.seeds)):
            raise ValueError("a lost seed is not one of its seeds")
        names = [grid.name for grid in self.grids or ()]
        if len(set(names)) != len(names):
            raise ValueError("a grid occurs twice")
        return self


def complaint(error: ValidationError) -> str:
    """The first things that are wrong, and where."""
    faults = []
    for each in error.errors(include_url=False, include_input=False, include_context=False)[:3]:
        place = ".".join(str(part)[:80] for part in each["loc"])
        faults.append(f"{place}: {each['msg']}" if place else str(each["msg"]))
    return "; ".join(faults)


def checked(model: type[Model], data: Any, refuse: Callable[[str], OutputError]) -> Model:
    """Plain data as the model has it, or the error that `refuse` makes of what is wrong."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise refuse(complaint(error)) from None


def seal(manifest: Mapping[str, Any]) -> str:
    """The digest of everything that a manifest says but this."""
    return digest_of_json({name: value for name, value in manifest.items() if name != "seal"})


#: What only Curiax's manifests say.
OURS = {"seal", "run_id"}


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a finished run, or None where the folder is absent, empty or not a run."""
    file = folder / MANIFEST
    if not usable(file).exists():
        return None
    data = read_json(file, REMEDY)
    if not isinstance(data, dict):
        return None
    if data.get("format") not in (FORMAT, UNSEALED):
        # Another program's, or ours with a damaged format.
        if not OURS & data.keys():
            return None
        raise damaged(file, f"its format is {str(data.get('format'))[:40]!r}, which this version does not know", REMEDY)
    if (data["format"] == FORMAT or "seal" in data) and data.get("seal") != seal(data):
        raise damaged(file, "it does not match its own digest", REMEDY)
    checked(Manifest, data, lambda why: damaged(file, why, REMEDY))
    return data


def read_listed(folder: Path, name: str, manifest: Mapping[str, Any] | None, most: int) -> bytes:
    """A file of a run, whose digest is the manifest's where it has one."""
    data = read_bytes(folder / name, most, REMEDY)
    listed = ((manifest or {}).get("files") or {}).get(name)
    if listed is not None and digest(data) != listed:
        raise damaged(folder / name, f"its digest is not the one in {MANIFEST}", REMEDY)
    return data


def read_metrics(folder: Path, manifest: Mapping[str, Any] | None = None) -> polars.DataFrame:
    """The metrics table of a finished run, with as many rows as its manifest promises."""
    manifest = read_manifest(folder) if manifest is None else manifest
    data = read_listed(folder, METRICS, manifest, MOST_TABLE)
    lost = (manifest or {}).get("lost") or {}
    rows = None
    if manifest is not None and manifest.get("iterations"):
        rows = (len(manifest["identity"]["seeds"]) - len(lost)) * manifest["iterations"]
    return read_table(data, lambda why: damaged(folder / METRICS, why, REMEDY), rows=rows, promised="its manifest says")


def read_table(
    data: bytes,
    refuse: Callable[[str], OutputError],
    *,
    rows: int | None = None,
    promised: str = "are expected",
    unpacked: int = MOST_UNPACKED,
) -> polars.DataFrame:
    """A Parquet table; its headers are read first, and a size that was not promised is refused before the rest."""
    import polars as pl

    most = most_unpacked(len(data), unpacked)
    try:
        found = bytes_in_memory(data)
    except ValueError as error:
        raise refuse(str(error)) from None
    if found > most:
        raise refuse(too_much(len(data), found))
    # Polars reports some damage as a panic, which is no `Exception`.
    failures = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError, MemoryError)
    try:
        lazy = pl.scan_parquet(io.BytesIO(data))
        schema = lazy.collect_schema()
        row = sum(map(width, schema.values()))
        height = lazy.select(pl.len()).collect().item()
    except failures as error:
        raise refuse(first_line(error)) from None
    if rows is not None and height != rows:
        raise refuse(f"it has {height:,} rows where {promised} {rows:,}")
    if row * height > most:
        raise refuse(too_much(len(data), row * height))
    try:
        table = pl.read_parquet(io.BytesIO(data))
    except failures as error:
        raise refuse(first_line(error)) from None
    if table.height != height or table.schema != schema:
        raise refuse("its rows are not those that its footer lists")
    return table


def most_unpacked(size: int, most: int = MOST_UNPACKED) -> int:
    """Bytes that a table's file of so many may have in memory: small tables hold long runs of equal numbers."""
    own = os.environ.get("CURIAX_TABLE_GIB", "")
    return max(min((128 << 20) + 64 * size, most), 2 * size, (int(own) << 30) if own.isdecimal() else 0)


def too_much(size: int, found: int) -> str:
    """Why a table is refused that would take too much memory, and what to do where that is as it should be."""
    wanted = 1 + (found >> 30)
    return (
        f"its {size:,} bytes would become {found:,} in memory; if it is your own, long run, "
        f"CURIAX_TABLE_GIB={wanted} in the environment lets it"
    )


def width(kind: Any) -> int:
    """Bytes of one row in an array of numbers, missing ones included; 0 for what the headers tell the size of.

    Refuses a column of anything but numbers, texts, and lists and arrays of numbers.
    """
    import polars as pl

    small = {pl.Float32: 4, pl.Int32: 4, pl.UInt32: 4}
    inner = kind.inner if isinstance(kind, pl.List | pl.Array) else kind
    if not (inner.is_integer() or inner.is_float() or kind in (pl.Boolean, pl.String, pl.Null)):
        raise ValueError(f"a column is {kind}")
    return kind.size * small.get(inner.base_type(), 8) if isinstance(kind, pl.Array) else 0


def first_line(error: BaseException) -> str:
    """An error's own words, without its traceback."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
