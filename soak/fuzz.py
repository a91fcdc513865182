"""Hostile files: mutated runs, exports and kept results, each read through every reader that the commands have.

Whatever a file says, a reader answers with what it read or with one of Curiax's own errors: no other exception, no
crash, nothing written, memory bounded. `python soak/fuzz.py --count 500`; the same seed gives the same cases.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
#: Cases read by one process; a crash costs the rest of its batch, and is counted.
BATCH = 500
#: Bytes of memory that a batch may add to what it has after warming up.
MOST_MEMORY = 1 << 30
#: Seconds that one case may take.
MOST_SECONDS = 20
#: Folders of originals and how often each is taken.
KINDS = {"run": 4, "old": 1, "export": 3, "kept": 3}
NASTY: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**32, 2**63, 10**30, 1e308, -0.0, 0.5, "", "x", "../../evil", "/etc/passwd",
    "a:b", "os:system", "gymnasium:os:x", "\x00", "\ud800", "x" * 100_000, [], {}, [[]], [{}], {"": 0}, [0] * 1000,
]  # fmt: skip
Rng = np.random.Generator


# --- originals --------------------------------------------------------------------------------------------


def make_originals(out: Path) -> None:
    """A run and another one, a run of format 1, an export, and what `curiax report` keeps of the two runs."""
    sys.path.insert(0, str(ROOT / "tests"))
    from kept import untrained
    from synthetic import write_run

    import curiax
    from curiax.report.publish import publish
    from curiax.report.record import Heading, gather

    small = {"ppo.width": 4, "method.width": 4}
    for name, method in (("run", "lbs"), ("other", "rnd")):
        write_run(out / name, "mountain-car", method, (80.0, 90.0), settings=small)
        made = untrained(out / f"{name}-agents", "mountain-car", method, seeds=(0, 1), settings=small)
        for file in ("agents.json", "agents.safetensors"):
            shutil.move(made / file, out / name / file)
        shutil.rmtree(made)
        sign_run(out / name)
    shutil.copytree(ROOT / "tests" / "data" / "agents-1" / "mountain-car-lbs", out / "old")
    (out / "old" / "expected.safetensors").unlink()
    curiax.export(out / "run", out / "export")
    records, remarks = gather([out / "run", out / "other"])
    publish(records, Heading("Fuzz", remarks=remarks, reference="lbs"), out / "kept")
    shutil.rmtree(out / "kept" / "figures")
    (out / "kept" / "report.html").unlink()
    sign_kept(out / "kept")


def sign_kept(folder: Path, *, files: bool = True) -> None:
    """A sealed list of a report's files, as if they had been written so."""
    from curiax.report import output

    file = folder / output.MARKER
    document = json.loads(file.read_text())
    if files:
        there = output.described(folder)
        document["files"] = {name: entry.model_dump() for name, entry in there.items() if name != output.MARKER}
    file.write_text(json.dumps({**document, "seal": output.seal(document)}, indent=1) + "\n")


def sign_run(folder: Path, *, files: bool = True) -> None:
    """List the digests of a run's files in its manifest, as a finished run does, and seal it."""
    from curiax._files import digest
    from curiax.experiments.manifest import FORMAT, seal

    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    names = ("metrics.parquet", "agents.json", "agents.safetensors")
    if files:
        manifest["files"] = {name: digest((folder / name).read_bytes()) for name in names if (folder / name).is_file()}
        manifest["format"] = FORMAT
    if files or "seal" in manifest:
        manifest["seal"] = seal(manifest)
    file.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


# --- mutations --------------------------------------------------------------------------------------------


def bytes_changed(data: bytes, other: bytes, rng: Rng) -> bytes:
    """Bits flipped, a piece cut out, zeroed, doubled or taken from elsewhere, an end cut off or added."""
    broken = bytearray(data)
    start, stop = sorted(int(k) for k in rng.integers(0, len(data) + 1, 2))
    match rng.integers(8):
        case 0 | 1 | 2:
            for _ in range(int(rng.integers(1, 4))):
                # Many near the end, where tables have their footer, or the beginning, where tensors have theirs.
                near = int(rng.integers(min(2000, len(data))))
                spot = int(rng.choice([int(rng.integers(len(data))), near, len(data) - 1 - near]))
                broken[spot] ^= 1 << int(rng.integers(8))
        case 3:
            del broken[start:]
        case 4:
            del broken[start:stop]
        case 5:
            broken[start:stop] = bytes(stop - start)
        case 6:
            broken[start:start] = data[start:stop]
        case _:
            broken[start:stop] = other[start:stop]
    return bytes(broken)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The place of every value in plain data."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, part in inner for place in places(part, (*at, key)))]


def json_changed(data: Any, rng: Rng) -> Any:
    """A value swapped for another, removed, renamed, nested without end, or moved."""
    every = [place for place in places(data) if place]
    # Most places are settings; the rarer ones matter as much.
    tops = sorted({place[0] for place in every}, key=str)
    top = tops[int(rng.integers(len(tops)))]
    own = [place for place in every if place[0] == top]
    *way, last = own[int(rng.integers(len(own)))] if rng.random() < 0.8 else own[0]
    holder = data
    for key in way:
        holder = holder[key]
    match rng.integers(7):
        case 0:
            del holder[last]
        case 1 if isinstance(holder, dict):
            holder[str(rng.choice(["", "x", "../x", "\x00", f"{last} "]))] = holder.pop(last)
        case 2:
            deep: Any = holder[last]
            for _ in range(int(rng.choice([3, 40, 900, 100_000]))):
                deep = [deep]
            holder[last] = deep
        case 3:
            there = every[int(rng.integers(len(every)))]
            value = data
            for key in there:
                value = value[key] if isinstance(value, dict | list) else None
            holder[last] = json.loads(json.dumps(value))
        case 4 if isinstance(holder[last], int | float):
            holder[last] = holder[last] * float(rng.choice([-1, 0, 1e3, 1e9, 1e300])) + int(rng.integers(3))
        case 5 if isinstance(holder[last], int):
            holder[last] += int(rng.choice([-1, 1, 2, 1000, 10**7, 10**12]))
        case _:
            holder[last] = NASTY[int(rng.integers(len(NASTY)))]
    return data


def as_text(data: Any, rng: Rng) -> bytes:
    """JSON of anything, however deep; now and then with a literal that is none."""
    depth = 0
    while isinstance(data, list) and len(data) == 1:
        data, depth = data[0], depth + 1
    try:
        text = "[" * depth + json.dumps(data) + "]" * depth
    except RecursionError:
        text = "[" * 100_000
    if rng.random() < 0.05:
        text = text.replace(": 1", f": {rng.choice(['NaN', '-Infinity', '1e999', '1' * 5000])}", 1)
    return text.encode("utf-8", "surrogatepass")


def table_changed(file: Path, rng: Rng) -> None:
    """A Parquet table with another schema, other rows or other values, well-formed."""
    import polars as pl

    table = pl.read_parquet(file)
    name = table.columns[int(rng.integers(len(table.columns)))]
    column = table[name]
    match rng.integers(9):
        case 0:
            table = table.drop(name)
        case 1:
            table = table.rename({name: str(rng.choice(["x", "../x", "coverage/", "probe/x", "occupancy/x"]))})
        case 2:
            table = table.head(int(rng.integers(table.height + 1)))
        case 3:
            table = pl.concat([table] * int(rng.choice([2, 50])))
        case 4:
            table = table.with_columns(pl.lit(rng.choice([0.0, np.nan, np.inf, 1e38, -5.0])).alias(name))
        case 5:
            table = table.with_columns(pl.Series(name, [NASTY[11]] * table.height, strict=False))
        case 6:
            table = table.with_columns(
                pl.when(pl.int_range(pl.len()) == 3).then(None).otherwise(pl.col(name)).alias(name)
            )
        case 7:
            table = table.sample(fraction=1.0, shuffle=True, seed=int(rng.integers(1000)))
        case _:
            kind = [pl.String, pl.Int8, pl.Float64][int(rng.integers(3))]
            whole = pl.lit(3).alias(name) if column.dtype.is_nested() else column.cast(kind, strict=False)
            table = table.with_columns(whole)
    table.write_parquet(file)


def tensors_changed(file: Path, rng: Rng) -> None:
    """Tensors of other shapes, types, names or values, well-formed."""
    import safetensors.numpy

    arrays = dict(safetensors.numpy.load_file(file))
    name = list(arrays)[int(rng.integers(len(arrays)))]
    match rng.integers(6):
        case 0:
            del arrays[name]
        case 1:
            arrays[str(rng.choice(["x", "../x", "agent.y", ""]))] = arrays[name]
        case 2:
            arrays[name] = arrays[name].astype(str(rng.choice(["float64", "float16", "int32", "bool"])))
        case 3:
            arrays[name] = arrays[name][..., None]
        case 4:
            arrays[name] = arrays[name][:1]
        case _:
            arrays[name] = np.full_like(arrays[name], rng.choice([np.nan, np.inf, 1e38, -1.0]))
    safetensors.numpy.save_file(arrays, file)


def sign_export(folder: Path) -> None:
    """Digests as if the files had been written so: what is then left is for the checks of meaning."""
    import safetensors.numpy

    from curiax._files import digest, digest_of_json

    about, data = json.loads((folder / "agents.json").read_text()), (folder / "agents.safetensors").read_bytes()
    if not isinstance(about, dict) or about.get("format") != "curiax-agents-2":
        return
    about.pop("digest", None)
    listed = {
        name: {"shape": list(array.shape), "dtype": array.dtype.name, "blake2b": digest(array.tobytes())}
        for name, array in safetensors.numpy.load(data).items()
    }
    if (folder / ".retensored").exists():
        about |= {"tensors": listed, "file": {"bytes": len(data), "blake2b": digest(data)}}
    (folder / "agents.json").write_text(json.dumps({**about, "digest": digest_of_json(about)}))


def replaced(file: Path, rng: Rng, outside: Path) -> None:
    """Something else where the file was: nothing, a folder, a pipe, a link."""
    file.unlink()
    match rng.integers(6):
        case 0:
            pass
        case 1:
            file.mkdir()
        case 2:
            os.mkfifo(file)
        case 3:
            file.symlink_to("/dev/zero")
        case 4:
            file.symlink_to(file)
        case _:
            file.symlink_to(outside)


def mutate(folder: Path, kind: str, originals: Path, outside: Path, rng: Rng) -> str:
    """Change one file of a folder; says what was done."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    file = files[int(rng.integers(len(files)))]
    twin = originals / ("other" if kind != "kept" else "kept") / file.relative_to(folder)
    roll = rng.random()
    how = "bytes"
    if roll < 0.05:
        how = "replaced"
        replaced(file, rng, outside)
    elif roll < 0.1 and kind != "kept" and twin.exists():
        how = "swapped"
        shutil.copy(twin, file)
    elif roll < 0.45:
        other = twin.read_bytes() if twin.exists() else b""
        file.write_bytes(bytes_changed(file.read_bytes(), other, rng))
    elif file.suffix == ".json":
        how = "json"
        data = json.loads(file.read_text())
        for _ in range(int(rng.integers(1, 3))):
            with contextlib.suppress(RecursionError):  # nested without end already
                data = json_changed(data, rng)
        file.write_bytes(as_text(data, rng))
    elif file.suffix == ".parquet":
        how = "table"
        table_changed(file, rng)
    elif file.suffix == ".safetensors":
        how = "tensors"
        tensors_changed(file, rng)
        (folder / ".retensored").touch()
    if how in ("json", "table", "tensors") and rng.random() < 0.8:
        how += ", signed"
        try:
            if kind == "kept":
                sign_kept(folder, files=file.name != "curiax-files.json")
            else:
                sign_export(folder)
            if kind == "run":
                sign_run(folder, files=file.name != "manifest.json")
        except Exception:
            how += " in vain"  # what cannot be parsed cannot be signed
    (folder / ".retensored").unlink(missing_ok=True)
    return f"{kind}/{file.name}: {how}"


# --- readers ----------------------------------------------------------------------------------------------


def readers(kind: str, case: Path, identity: dict[str, Any], out: Path) -> dict[str, Callable[[], Any]]:
    """Every way in which a command reads such a folder."""
    import curiax
    from curiax.experiments import folder, saved
    from curiax.report import publish, record
    from curiax.watch import refuse_others

    def finished() -> None:
        manifest = folder.existing_run(case, identity)
        if manifest is not None:
            folder.read_metrics(case)

    def watched() -> None:
        refuse_others(case)
        saved.read(case)

    def act() -> np.ndarray:
        agent = curiax.load(case)
        return agent.act(np.full(agent._about.spec.obs_shape, 0.1), rng=0)

    def export() -> None:
        shutil.rmtree(out, ignore_errors=True)
        curiax.export(case, out)

    if kind == "kept":
        return {"report": lambda: record.gather([case]), "verify": lambda: publish.verify(case)}
    every = {"report": lambda: record.gather([case]), "run": finished, "watch": watched, "load": act, "export": export}
    return every


def reports_change(case: Path, original: Path, what: str, found: Any) -> bool:
    """Whether a kept report with other files, not signed anew, is said to differ, or to have no digests."""

    def contents(folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    whole = "signed" in what or contents(case) == contents(original)
    return whole or bool(found.differences) or "have no digests" in " ".join(found.warnings)


def snapshot(folder: Path) -> list[tuple[str, int, int]]:
    """What lies in a folder."""
    found = [(path, path.lstat()) for path in sorted(folder.rglob("*"))]
    return [(str(path), about.st_size, about.st_mtime_ns) for path, about in found]


def too_long(*_: Any) -> None:
    """A case that does not end."""
    raise TimeoutError(f"no answer within {MOST_SECONDS} s")


def run_batch(originals: Path, work: Path, first: int, count: int, seed: int) -> dict[str, Any]:
    """Read some cases in this process."""
    from curiax import CuriaxError

    os.environ["POLARS_MAX_THREADS"] = "1"
    home, cwd, outside = work / "home", work / "cwd", work / "outside.json"
    for place in (home, cwd):
        place.mkdir()
    outside.write_text('{"secret": 1}')
    os.chdir(cwd)
    identity = json.loads((originals / "run" / "manifest.json").read_text())["identity"]
    signal.signal(signal.SIGALRM, too_long)
    tally: collections.Counter[str] = collections.Counter()
    misses: list[dict[str, Any]] = []
    right: dict[str, Any] = {}
    for kind in KINDS:  # warm: imports, compiled programs, and what an untouched folder gives
        for name, read in readers(kind, originals / kind, identity, home / "out").items():
            if (kind, name) not in (("old", "report"), ("export", "report"), ("old", "run"), ("export", "run")):
                right[f"{kind} {name}"] = read()
    shutil.rmtree(home / "out", ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + 2 * MOST_MEMORY, mapped + 2 * MOST_MEMORY))
    for number in range(first, first + count):
        rng = np.random.default_rng([seed, number])
        kind = str(rng.choice(list(KINDS), p=np.array(list(KINDS.values())) / sum(KINDS.values())))
        case = home / "case"
        shutil.copytree(originals / kind, case)
        what = mutate(case, kind, originals, outside, rng)
        (work / "current").write_text(f"{number} {what}")
        untouched = snapshot(case)
        for name, read in readers(kind, case, identity, home / "out").items():
            signal.alarm(MOST_SECONDS)
            try:
                found = read()
            except CuriaxError:
                tally["typed errors"] += 1
            except BaseException as error:
                tally["failures"] += 1
                where = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(where.filename).name}:{where.lineno}"
                message = f"{type(error).__name__} in {place}: {str(error)[:160]}"
                misses.append({"case": number, "what": what, "reader": name, "error": message})
            else:
                tally["harmless"] += 1
                if (
                    name == "load"
                    and kind != "old"
                    and "bytes" in what
                    and not np.array_equal(found, right["run load"])
                ):
                    tally["silent"] += 1
                    misses.append({"case": number, "what": what, "reader": name, "error": "acts otherwise, silently"})
                if name == "verify" and not reports_change(case, originals / kind, what, found):
                    tally["silent"] += 1
                    misses.append({"case": number, "what": what, "reader": name, "error": "another file, silently"})
            finally:
                signal.alarm(0)
        strays = sorted({path.name for path in home.iterdir()} - {"case", "out"})
        strays += [str(path) for path in cwd.iterdir()]
        if strays or snapshot(case) != untouched or outside.read_text() != '{"secret": 1}':
            tally["writes outside"] += 1
            misses.append({"case": number, "what": what, "reader": "", "error": f"wrote {strays or 'into the folder'}"})
        shutil.rmtree(home)
        home.mkdir()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before
    return {"tally": dict(tally), "misses": misses, "grown": grown}


def soak(count: int = 10_000, seed: int = 0, originals: Path | None = None) -> dict[str, Any]:
    """Figures of so many cases, and every miss: anything but a typed error or a harmless reading."""
    begun, done = time.perf_counter(), 0
    total: collections.Counter[str] = collections.Counter()
    misses: list[dict[str, Any]] = []
    grown = 0
    with tempfile.TemporaryDirectory() as place:
        if originals is None:
            originals = Path(place) / "originals"
            make_originals(originals)
        for first in range(0, count, BATCH):
            size = min(BATCH, count - first)
            work = Path(place) / f"batch-{first}"
            work.mkdir()
            words = [sys.executable, __file__, "--batch", str(originals), str(work), str(first), str(size), str(seed)]
            ended = subprocess.run(words, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            done += size
            try:
                made = json.loads((work / "result.json").read_text())
            except (OSError, ValueError):
                current = work / "current"
                what = current.read_text() if current.exists() else "before the first case"
                total["crashes"] += 1
                misses.append({"case": what, "error": f"exit {ended.returncode}: {ended.stderr.strip()[-300:]}"})
                continue
            total.update(made["tally"])
            misses += made["misses"]
            grown = max(grown, made["grown"])
            shutil.rmtree(work)
    names = ("typed errors", "harmless", "failures", "silent", "writes outside", "crashes")
    return {
        "cases": done,
        "readings": total["typed errors"] + total["harmless"] + total["failures"],
        **{name.replace(" ", "_"): total[name] for name in names},
        "memory_growth_mib": round(grown / (1 << 20)),
        "memory_bounded": grown <= MOST_MEMORY,
        "seconds": round(time.perf_counter() - begun, 1),
        "misses": misses,
        "passed": not misses and grown <= MOST_MEMORY,
    }


def main() -> int:
    """The command line."""
    if sys.argv[1:2] == ["--batch"]:
        originals, work, first, size, seed = sys.argv[2:]
        made = run_batch(Path(originals), Path(work), int(first), int(size), int(seed))
        (Path(work) / "result.json").write_text(json.dumps(made))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    figures = soak(args.count, args.seed)
    print(json.dumps(figures, indent=2))
    return 1 if figures["misses"] or not figures["memory_bounded"] else 0


if __name__ == "__main__":
    sys.exit(main())
