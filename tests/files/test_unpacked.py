"""Parquet files that would become far more than they are: told by their headers, whatever those claim."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from curiax import OutputError
from curiax._files import parquet, read_bytes
from curiax.experiments.manifest import most_unpacked, read_table
from curiax.experiments.unpacked import SHARING, bytes_in_memory
from curiax.report import record

MANY = 40_000_000


def refuse(why: str) -> OutputError:
    return OutputError(why)


def table(rows: int = 100) -> pl.DataFrame:
    """Every type of column that a run or a record has."""
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "seed": np.arange(rows),
            "iteration": np.arange(rows, dtype=np.int32),
            "coverage": rng.random(rows, dtype=np.float32),
            "map": [f"probe/{k % 3}" for k in range(rows)],
            "occupancy": rng.integers(0, 9, (rows, 50)).astype(np.int16),
            "values": pl.Series([list(map(float, range(k % 7))) for k in range(rows)], dtype=pl.List(pl.Float32)),
            "fine": [k % 2 == 0 for k in range(rows)],
        }
    )


def bomb(count: int = MANY) -> bytes:
    """One list of zeros."""
    data = parquet(pl.DataFrame({"values": pl.Series([pl.repeat(0.0, count, dtype=pl.Float32, eager=True)])}))
    assert len(data) < 50_000
    return data


@pytest.mark.parametrize("compression", ["zstd", "snappy", "uncompressed", "gzip", "lz4", "brotli"])
@pytest.mark.parametrize("rows", [0, 1, 100, 70_000])
def test_a_bound_of_what_is_read(compression: str, rows: int) -> None:
    kept = table(rows)
    data = parquet(kept, compression=compression, row_group_size=30_000)
    size = sum(column.estimated_size() for column in kept.iter_columns())
    assert size <= bytes_in_memory(data) <= 8 * size + 4096
    assert read_table(data, refuse).equals(kept)


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    data = bomb()
    assert bytes_in_memory(data) > 4 * MANY > most_unpacked(len(data))
    with pytest.raises(OutputError, match=r"its [\d,]+ bytes would become [\d,]+"):
        read_table(data, refuse)


def test_columns_whose_size_no_header_tells_are_refused() -> None:
    """A missing array takes the room of one; a list of them is written as a few bytes."""
    kind = pl.List(pl.Array(pl.Float32, 100_000))
    with pytest.raises(OutputError, match="a column is List"):
        read_table(parquet(pl.DataFrame({"a": pl.Series([[None] * 300], dtype=kind)})), refuse)
    with pytest.raises(OutputError, match="a column is Struct"):
        read_table(parquet(pl.DataFrame({"a": [{"b": 1}]})), refuse)
    wide = pl.DataFrame({"a": pl.Series([None] * 300, dtype=pl.Array(pl.Float32, 1_000_000))})
    with pytest.raises(OutputError, match="would become 1,200,000,000"):
        read_table(parquet(wide), refuse)


def test_long_runs_of_ones_own_are_read_and_the_limit_can_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts of visits grow slowly and pack well; beside them are numbers that do not."""
    rows, rng = 32 * 5000, np.random.default_rng(0)
    counts = np.cumsum(rng.random((rows, 121)) < 0.01, axis=0, dtype=np.int32)
    run = pl.DataFrame({**{f"occupancy/{k}": counts for k in range(4)}, "bonus": rng.random(rows)})
    data = parquet(run)
    assert run.estimated_size() > 300_000_000
    assert read_table(data, refuse).height == rows
    with pytest.raises(OutputError, match="CURIAX_TABLE_GIB=1 in the environment lets it"):
        read_table(bomb(), refuse)
    monkeypatch.setenv("CURIAX_TABLE_GIB", "1")
    assert read_table(bomb(), refuse).height == 1


def test_headers_that_claim_less_do_not_help() -> None:
    """Wherever the number of values stands, the largest claim counts; Polars believes the pages."""
    data = bomb()
    count, less = varint(2 * MANY), varint(2000, len(varint(2 * MANY)))
    places = [k for k in range(len(data)) if data.startswith(count, k)]
    assert len(places) >= 2
    for place in places:
        lying = data[:place] + less + data[place + len(less) :]
        with pytest.raises(OutputError):
            read_table(lying, refuse)


def varint(value: int, length: int = 0) -> bytes:
    """A whole number as Thrift has it, at least so long."""
    parts = []
    while value or not parts or len(parts) < length:
        parts.append(value & 0x7F)
        value >>= 7
    return bytes([*(part | 0x80 for part in parts[:-1]), parts[-1]])


def test_broken_headers_are_errors_of_one_kind() -> None:
    """A flipped bit, a cut: a number or a ValueError, at once."""
    data, rng, errors = parquet(table()), np.random.default_rng(0), 0
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for _ in range(3000):
        broken = bytearray(data)
        broken[int(rng.integers(footer, len(data)))] ^= 1 << int(rng.integers(8))
        try:
            assert bytes_in_memory(bytes(broken)) >= 0
        except ValueError:
            errors += 1
    assert errors > 300
    for stop in range(0, len(data), 7):
        with pytest.raises(ValueError, match="no Parquet file"):
            bytes_in_memory(data[:stop])


def test_texts_that_share_their_beginnings_are_refused() -> None:
    """A page of nothing can stand for any number of long texts."""
    kept = pl.DataFrame({"map": [f"{'x' * 20}{k}" for k in range(10)]})
    data = bytearray(parquet(kept, compression="uncompressed", statistics=False))
    # The page's header: field 5 is a struct, its first field a number (of values), its second the encoding.
    (place,) = (k for k in range(len(data)) if data.startswith(b"\x2c\x15\x14\x15", k))
    assert bytes_in_memory(bytes(data)) < 1000
    data[place + 4] = 2 * SHARING
    with pytest.raises(OutputError, match="share their beginnings"):
        read_table(bytes(data), refuse)


def test_a_record_with_a_bomb_is_refused(tmp_path: Path) -> None:
    (tmp_path / record.MAPS).write_bytes(bomb())
    with pytest.raises(OutputError, match=r"not a complete record \(maps\.parquet: its [\d,]+ bytes would become"):
        record.read_parquet(tmp_path / record.MAPS, {})


def test_a_file_of_holes_is_refused_and_one_of_zeros_is_not(tmp_path: Path) -> None:
    with (tmp_path / "holes").open("wb") as file:
        file.truncate(64 << 30)
        file.seek(1 << 20)
        file.write(b"x" * 4096)
    with pytest.raises(OutputError, match="nearly all of its 68,719,476,736 bytes are holes"):
        read_bytes(tmp_path / "holes", 1 << 40, "do this")
    small = tmp_path / "small"
    with small.open("wb") as file:
        file.truncate(1 << 20)
    assert len(read_bytes(small, 1 << 30, "do this")) == 1 << 20
