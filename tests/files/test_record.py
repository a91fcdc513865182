"""What is kept of a run is what the run recorded, and survives the disk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from synthetic import ITERATIONS, STEPS, long_metrics, manifest, maze, metrics, write_run

from curiax._errors import OutputError
from curiax.report import record
from curiax.report.assemble import runs_tables
from curiax.report.record import Heading, Record, condense, gather, load, read_run, save, thinned

HEADING = Heading("A title", "A lead.", "a-suite", "lbs", "curiax reproduce a-suite")
SEEDS = (5, 3, 9)


@pytest.fixture
def table() -> pl.DataFrame:
    return metrics((90.0, 50.0, 70.0), SEEDS, noisy=True)


@pytest.fixture
def made(table: pl.DataFrame) -> Record:
    return condense(manifest("mountain-car-frozen", "lbs", SEEDS), table)


@pytest.mark.parametrize(("count", "most"), [(1, 12), (5, 12), (50, 12), (50, 50), (200, 100), (123, 64)])
def test_thinning_keeps_the_last_and_spreads_evenly(count: int, most: int) -> None:
    found = thinned(count, most)
    assert found[-1] == count - 1
    assert len(found) == min(count, most)
    assert np.ptp(np.diff(np.concatenate([[-1], found]))) <= 1


def test_curves_keep_their_seeds(made: Record) -> None:
    assert made.seeds == SEEDS
    assert made.final("coverage/cells").tolist() == [90.0, 50.0, 70.0]
    assert made.budget == ITERATIONS * STEPS
    assert "policy/loss" in made.curves, "whatever was measured"


def test_maps_are_what_a_loop_would_count(made: Record, table: pl.DataFrame) -> None:
    """Brute force, seed by seed and iteration by iteration."""
    at = np.flatnonzero(np.isin(np.arange(1, ITERATIONS + 1) * STEPS, made.moments))
    for m, upto in enumerate(at):
        shares, paid, visits = [], np.zeros(100), np.zeros(100)
        since = at[m - 1] if m else -1
        for seed in SEEDS:
            own = table.filter(pl.col("seed") == seed).sort("iteration")
            counts = np.array(own["occupancy/bins"].to_list())
            total = counts[: upto + 1].sum(0)
            shares.append(total / total.sum())
            paid += np.array(own["paid/bins"].to_list())[since + 1 : upto + 1].sum(0)
            visits += counts[since + 1 : upto + 1].sum(0)
        np.testing.assert_allclose(made.maps["occupancy/bins"][m], np.mean(shares, 0), rtol=1e-6)
        assert np.isnan(made.maps["paid/bins"][m][7])
        expected = np.divide(paid, visits, out=np.full(100, np.nan), where=visits > 0)
        np.testing.assert_allclose(made.maps["paid/bins"][m], expected, rtol=1e-5)
        probes = [np.array(table.filter(pl.col("seed") == s)["probe/noise"].to_list())[upto] for s in SEEDS]
        np.testing.assert_allclose(made.maps["probe/noise"][m], np.median(probes, 0), rtol=1e-6)


def test_a_record_survives_the_disk(made: Record, tmp_path: Path) -> None:
    other = condense(manifest("mountain-car", "icm", (0, 1)), metrics((20.0, 30.0), (0, 1)))
    save([made, other], HEADING, tmp_path)
    back = load(tmp_path)
    assert record.read_heading(tmp_path) == HEADING
    assert [r.label for r in back] == ["lbs", "icm"]
    for before, after in zip((made, other), back, strict=True):
        assert after.facts == json.loads(json.dumps(before.facts))
        assert set(after.curves) == set(before.curves)
        assert set(after.maps) == set(before.maps)
        np.testing.assert_array_equal(after.steps, before.steps)
        np.testing.assert_array_equal(after.moments, before.moments)
        np.testing.assert_array_equal(after.final("coverage/cells"), before.final("coverage/cells"))
        for kept, values in ((after.curves, before.curves), (after.maps, before.maps)):
            for name in values:
                np.testing.assert_allclose(kept[name], values[name], rtol=3e-4)


def test_whole_cells_survive_exactly() -> None:
    values = np.arange(122, dtype=np.float32)
    np.testing.assert_array_equal(record.compact(values), values)
    assert np.isnan(record.compact(np.array([np.nan]))[0])
    assert np.isinf(record.compact(np.array([np.inf]))[0])


def test_gather_takes_runs_folders_of_runs_and_records(tmp_path: Path) -> None:
    one = write_run(tmp_path / "all" / "a", "mountain-car", "lbs", (90, 91))
    write_run(tmp_path / "all" / "b", "mountain-car", "icm", (80, 81))
    assert [r.label for r in gather([one])[0]] == ["lbs"]
    assert [r.label for r in gather([tmp_path / "all"])[0]] == ["lbs", "icm"]
    assert [r.label for r in gather([one, tmp_path / "all"])[0]] == ["lbs", "icm"], "a run named twice counts once"
    save(gather([tmp_path / "all"])[0], HEADING, tmp_path / "made" / "record")
    assert [r.label for r in gather([tmp_path / "made"])[0]] == ["lbs", "icm"]


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    """Among others a bad run does no harm, but the reader is told."""
    write_run(tmp_path / "a", "mountain-car", "lbs", (90, 91))
    damaged = write_run(tmp_path / "b", "mountain-car", "icm", (80, 81))
    pl.read_parquet(damaged / "metrics.parquet").head(7).write_parquet(damaged / "metrics.parquet")
    old = write_run(tmp_path / "c", "mountain-car", "rnd", (80, 81))
    (old / "manifest.json").write_text((old / "manifest.json").read_text().replace('"grids"', '"netz"'))
    (tmp_path / "d").mkdir()
    (tmp_path / ".e.partial-abc").mkdir()
    (tmp_path / ".hidden").mkdir()
    records, remarks = gather([tmp_path])
    assert [r.label for r in records] == ["lbs"]
    assert len(remarks) == 4
    for remark, words in zip(remarks, ("unfinished run", "7 rows", "lack grids", "no finished run"), strict=True):
        assert words in remark
    with pytest.raises(OutputError, match="7 rows"):
        gather([damaged])


def test_gather_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is not a folder"):
        gather([tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(OutputError, match=r"no finished runs in .*empty"):
        gather([tmp_path / "empty"])
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "metrics.parquet").write_bytes(b"PAR1")
    with pytest.raises(OutputError, match=r"no finished runs.*half holds no finished run"):
        gather([tmp_path])


def test_damaged_runs_are_named(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", "mountain-car", "lbs", (90, 91))
    whole = pl.read_parquet(path / "metrics.parquet")
    whole.head(73).write_parquet(path / "metrics.parquet")
    with pytest.raises(OutputError, match="73 rows where its manifest says 100"):
        read_run(path)
    whole.with_columns(seed=pl.col("seed") + 1).write_parquet(path / "metrics.parquet")
    with pytest.raises(OutputError, match=r"the seeds of metrics\.parquet are not its manifest's"):
        read_run(path)
    twice = whole.with_columns(iteration=pl.col("iteration").replace(3, 4))
    twice.write_parquet(path / "metrics.parquet")
    with pytest.raises(OutputError, match="not those of a run"):
        read_run(path)
    uneven = whole.with_columns(seed=pl.Series([0] * 49 + [1] * 51))
    uneven.write_parquet(path / "metrics.parquet")
    with pytest.raises(OutputError, match=r"the seeds of metrics\.parquet are not its manifest's"):
        read_run(path)
    poisoned = whole.with_columns(
        pl.when(pl.col("iteration") == 9).then(float("nan")).otherwise(pl.col("coverage/cells")).alias("coverage/cells")
    )
    poisoned.write_parquet(path / "metrics.parquet")
    with pytest.raises(OutputError, match=r"coverage/cells in metrics\.parquet is not finite"):
        read_run(path)
    (path / "metrics.parquet").write_bytes(b"not parquet")
    with pytest.raises(OutputError, match="damaged"):
        read_run(path)


def test_a_run_of_an_earlier_version_that_left_steps_out_says_so(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", "mountain-car", "lbs", (90, 91))
    facts = json.loads((path / "manifest.json").read_text())
    found = read_run(path)
    assert found is not None
    assert "left out for unsound values" not in found.notes
    for masked, words in (
        ({"steps": 1234, "updates": 0}, "1,234 environment steps"),
        ({"steps": 3, "updates": 2}, "3 environment steps and 2 gradient steps"),
    ):
        (path / "manifest.json").write_text(json.dumps(facts | {"masked": masked}))
        found = read_run(path)
        assert found is not None
        save([found], HEADING, tmp_path / "record")
        for each in (found, *load(tmp_path / "record")):
            assert each.notes["left out for unsound values"] == words
    (path / "manifest.json").write_text(json.dumps(facts | {"masked": {"steps": -1, "updates": 0}}))
    with pytest.raises(OutputError, match="masked"):
        read_run(path)


def test_notes_of_a_task_are_in_its_record_and_report(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", "mountain-car", "lbs", (90, 91))
    other = write_run(tmp_path / "b", "mountain-car", "rnd", (90, 91))
    facts = json.loads((path / "manifest.json").read_text())
    without = [found for found in map(read_run, (path, other)) if found]
    assert [found.notes for found in without] == [{}, {}]
    assert "notes" not in runs_tables(without)[0].header
    (path / "manifest.json").write_text(json.dumps(facts | {"notes": {"version": "Europe (PAL)", "year": "1987"}}))
    found = read_run(path)
    assert found is not None
    save([found, without[1]], HEADING, tmp_path / "record")
    (table,) = runs_tables(load(tmp_path / "record"))
    column = table.header.index("notes")
    assert [row[column].text for row in table.rows] == ["version: Europe (PAL); year: 1987", ""]
    (path / "manifest.json").write_text(json.dumps(facts | {"notes": {"version": 3}}))
    with pytest.raises(OutputError, match=r"manifest\.json is damaged \(notes\.version"):
        read_run(path)


def test_a_run_that_lost_seeds_is_what_is_left_of_it(tmp_path: Path) -> None:
    """Seed 3 of three is not in the table; the record says so, also after the disk."""
    path = write_run(tmp_path / "a", "mountain-car", "lbs", (90, 91, 92), first_seed=2)
    kept = pl.read_parquet(path / "metrics.parquet").filter(pl.col("seed") != 3)
    kept.write_parquet(path / "metrics.parquet")
    with pytest.raises(OutputError, match="100 rows where its manifest says 150"):
        read_run(path)
    facts = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(facts | {"lost": {"3": "it flew away"}}))
    found = read_run(path)
    assert found is not None
    save([found], HEADING, tmp_path / "record")
    for each in (found, *load(tmp_path / "record")):
        assert (each.seeds, each.lost) == ((2, 4), {3: "it flew away"})
        assert each.final("coverage/cells").tolist() == [90.0, 92.0]
    for lost, message in (
        ({"7": "not one of its seeds"}, "a lost seed is not one of its seeds"),
        (["3"], r"manifest\.json is damaged \(lost"),
        (dict.fromkeys("234", "all flew away"), "lost every seed.*all flew away"),
    ):
        (path / "manifest.json").write_text(json.dumps(facts | {"lost": lost}))
        with pytest.raises(OutputError, match=message):
            read_run(path)


def test_what_can_be_reached_leaves_out_walls() -> None:
    facts = manifest("ant-maze", "lbs", (0,))
    made = condense(facts, long_metrics("ant-maze", maze([7], [60]), (0,)))
    assert (made.limits("coverage/cells"), made.limits("coverage/bins")) == ((0.0, 100.0), (0.0, 100.0))
    for grid in facts["grids"]:
        del grid["closed"]
    old = condense(facts, long_metrics("ant-maze", maze([7], [60]), (0,)))
    assert record.closed_cells(old.facts["grids"][0]) == ()


def test_runs_of_an_older_version_are_refused_by_name(tmp_path: Path) -> None:
    path = write_run(tmp_path / "old", "mountain-car", "lbs", (90, 91))
    old = json.loads((path / "manifest.json").read_text())
    del old["grids"]
    old["identity"]["curiax"] = "0.1.0"
    (path / "manifest.json").write_text(json.dumps(old))
    with pytest.raises(OutputError, match=r"made by Curiax 0\.1\.0, whose runs lack grids"):
        read_run(path)


def test_damaged_records_are_refused(made: Record, tmp_path: Path) -> None:
    save([made], HEADING, tmp_path)
    data = json.loads((tmp_path / "runs.json").read_text())
    for change, message in (
        ({"format": "curiax-record-0"}, "not a record of this version"),
        ({"runs": 3}, "names no runs"),
        ({"runs": [{"run_id": "x"}]}, "whose runs lack identity"),
        ({"runs": [{**data["runs"][0], "seconds": {}}]}, "its facts are not those of a run"),
        ({"runs": [{**data["runs"][0], "grids": 3}]}, "its facts are not those of a run"),
        ({"runs": [{**data["runs"][0], "identity": "x"}]}, "its facts are not those of a run"),
    ):
        (tmp_path / "runs.json").write_text(json.dumps(data | change))
        with pytest.raises(OutputError, match=message):
            load(tmp_path)
    data["runs"][0]["identity"]["seeds"] = [1, 2, 3]
    (tmp_path / "runs.json").write_text(json.dumps(data))
    with pytest.raises(OutputError, match="not those of its seeds"):
        load(tmp_path)
    (tmp_path / "curves.parquet").unlink()
    with pytest.raises(OutputError, match="not a complete record"):
        load(tmp_path)
