"""Files of others: hostile ones are refused in words, and none of them can run code."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import pickle
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import curiax
from curiax import OutputError
from curiax._files import MOST_DEPTH, read_bytes, read_json
from curiax.experiments import folder, saved
from curiax.report import publish, record

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz", ROOT / "soak" / "fuzz.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def originals(fuzz: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fuzz") / "originals"
    fuzz.make_originals(place)
    return place


@pytest.mark.slow
def test_mutated_files_give_typed_errors_or_nothing(fuzz: ModuleType, originals: Path) -> None:
    """The short form of `python soak/fuzz.py`."""
    figures = fuzz.soak(200, seed=11, originals=originals)
    assert figures["misses"] == []
    assert figures["memory_bounded"]
    assert figures["typed_errors"] > 300  # most mutations are found...
    assert figures["harmless"] > 50  # ... and a mutated table does not keep an agent from acting


def test_reading_unpickles_nothing(originals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of file, with every way to unpickle out of order."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("something was unpickled")

    for name in ("load", "loads", "Unpickler", "_Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(np, "load", refuse)
    identity = json.loads((originals / "run" / "manifest.json").read_text())["identity"]
    assert folder.existing_run(originals / "run", identity) is not None
    assert folder.read_metrics(originals / "run").height == 100
    assert len(record.gather([originals / "run", originals / "kept"])[0]) == 2
    assert publish.verify(originals / "kept").differences == []
    for name in ("run", "old", "export"):
        assert saved.read(originals / name)[1].seeds == curiax.load(originals / name).seeds
        assert curiax.load(originals / name).act([0.0, 0.0]).shape == (1,)
        curiax.export(originals / name, tmp_path / name)


def test_no_line_of_the_source_runs_data() -> None:
    """Neither pickles nor code in strings: by the names that are called and the modules that are imported."""
    modules = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "torch", "yaml", "jsonpickle"}
    calls = {"eval", "exec", "compile", "__import__", "execfile"}
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            named: list[str] = []
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                named = [node.module or ""]
            assert not {name.split(".")[0] for name in named} & modules, f"{file}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Name):
                    assert node.func.id not in calls, f"{file}:{node.lineno}"
                keywords = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
                assert not keywords.get("allow_pickle"), f"{file}:{node.lineno}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting"),
        (b"\xff", "decode"),
        (b'{"a": 1, "a": 2}', "a name occurs twice"),
        (b"NaN", "NaN is no number"),
        (b"[-Infinity]", "Infinity is no number"),
        (b"1e999", "beyond all bounds"),
        (b"9223372036854775808", "beyond all bounds"),
        (b"1" * 5000, "Exceeds the limit"),
        (b'"\\ud800"', "surrogates not allowed"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[" * (MOST_DEPTH + 2) + b"]" * (MOST_DEPTH + 2), "nested too deeply"),
        (b"[" + b"[]," * (1 << 20) + b"0]", "it has too many parts"),
        (b"[" + b'"ab",' * ((1 << 20) + 1) + b"0]", "it has too many parts"),
    ],
)
def test_json_that_is_none_is_refused(tmp_path: Path, text: bytes, why: str) -> None:
    (tmp_path / "x.json").write_bytes(text)
    with pytest.raises(OutputError, match=rf"x\.json is damaged \(.*{why}.*\): do this"):
        read_json(tmp_path / "x.json", "do this")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(b"12345")
    for name, why in (
        (".", "Is a directory"),
        ("pipe", "no regular file"),
        ("loop", "symbolic links"),
        ("zero", "no regular file"),
        ("gone", "No such file"),
        ("large", "it has 5 bytes, at most 4 are expected"),
    ):
        with pytest.raises(OutputError, match=why):
            read_bytes(tmp_path / name, 4, "do this")
    assert read_bytes(tmp_path / "large", 5, "do this") == b"12345"


def test_a_changed_file_of_a_run_is_found_by_its_digest(originals: Path, tmp_path: Path) -> None:
    """Well-formed, of the right shape, and not what was written."""
    import polars as pl

    run = tmp_path / "run"
    shutil.copytree(originals / "run", run)
    pl.read_parquet(run / "metrics.parquet").with_columns(pl.col("bonus/mean") + 1).write_parquet(
        run / "metrics.parquet"
    )
    for read in (record.read_run, folder.read_metrics):
        with pytest.raises(OutputError, match=r"metrics\.parquet is damaged \(its digest is not the one in manifest"):
            read(run)


def test_a_flipped_bit_in_a_manifest_is_found(originals: Path, tmp_path: Path) -> None:
    """But for one that changes nothing of what it says, as in the white space."""
    run = tmp_path / "run"
    shutil.copytree(originals / "run", run)
    data, manifest = (run / "manifest.json").read_bytes(), folder.read_manifest(run)
    rng = np.random.default_rng(0)
    found = 0
    for place in rng.integers(len(data) * 8, size=300):
        broken = bytearray(data)
        broken[place // 8] ^= 1 << (place % 8)
        (run / "manifest.json").write_bytes(broken)
        try:
            assert folder.read_manifest(run) in (manifest, None)
        except OutputError:
            found += 1
    assert found > 250


def test_a_table_larger_than_promised_is_refused_before_it_is_unpacked(originals: Path, tmp_path: Path) -> None:
    import polars as pl

    run = tmp_path / "run"
    shutil.copytree(originals / "run", run)
    many = pl.DataFrame({"seed": pl.repeat(0, 5_000_000, eager=True)})
    many.write_parquet(run / "metrics.parquet")
    assert (run / "metrics.parquet").stat().st_size < 1 << 20
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["seal"]
    (run / "manifest.json").write_text(json.dumps(manifest | {"files": {}, "format": "curiax-run-1"}))
    with pytest.raises(OutputError, match="it has 5,000,000 rows where its manifest says 100"):
        folder.read_metrics(run)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda table: table["rows"][0].update(method=["lbs"]), "missing from table.json"),
        (lambda table: table["rows"].append(3), "None: in table.json but not in the curves"),
        (lambda table: table["claims"].append({"claim": ["x"], "verdict": {}}), "claim None"),
    ],
)
def test_a_kept_table_of_other_types_differs(originals: Path, tmp_path: Path, change: Any, found: str) -> None:
    shutil.copytree(originals / "kept", tmp_path / "kept")
    table = json.loads((tmp_path / "kept" / "table.json").read_text())
    change(table)
    (tmp_path / "kept" / "table.json").write_text(json.dumps(table))
    assert found in " ".join(publish.verify(tmp_path / "kept").differences)
