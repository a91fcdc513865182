"""Forged folders: made on purpose, well-formed and signed, and read by every command while traps lie about.

Whatever a file says, the commands that read files import nothing that it names, write nowhere but where they are told
to, end with a line of Curiax's own or with what they are for, and stay below a gigabyte of memory. Every case lies
beside modules that say so when they are run: named as in the files, and as what Curiax itself imports.
`python soak/forged.py --every 10` reads every tenth case.
"""

from __future__ import annotations

import argparse
import base64
import collections
import contextlib
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fuzz
import numpy as np

#: Cases read by one process; bytes of memory that it may come to have; seconds that one reading may take.
BATCH, MOST_MEMORY, MOST_SECONDS = 60, 1 << 30, 60
#: Modules that lie in the working directory: those that are named in the files, and those that Curiax imports late.
TRAPS = (
    *(
        "evil",
        "curiaxx",
        "trap_plugin",
        "yaml",
        "sitecustomize",
        "curiax",
        "numpy",
        "scipy",
        "jax",
        "jaxlib",
        "equinox",
    ),
    *("optax", "gymnasium", "PIL", "matplotlib", "polars", "pydantic", "safetensors", "rich", "tyro", "jinja2"),
    *("imageio", "imageio_ffmpeg", "mujoco", "ale_py", "nes_py", "pygame", "numba", "shimmy", "filelock", "torch"),
)
#: What files call a task or a method; none of it is Curiax's.
NAMES = (
    *("evil:Mine", "evil.inner:Mine", "os:system", "gymnasium:evil:Thing-v0", "gymnasium:evil.inner:CartPole-v1"),
    *("curiaxx:Mine", "curiax.evil:Mine", "curiax.curiosity:os", "curiax.testing:ProbeTask", "curiax:run", "PIL:Image"),
    *("numpy:ndarray", "yaml:load", "../evil:Mine", "../../evil.py:Mine", "evil.py:Mine", "/tmp/evil:Mine", ":Mine"),
    *(
        "evil:",
        "evil",
        "gymnasium:",
        "gymnasium:PIL:X",
        "atari:evil",
        "atari:../../evil",
        "evil:Mine\n",
        "evil\x00:Mine",
    ),
    *("\x1b[31mevil:Mine", "<script>alert(1)</script>:Mine", "gymnasium:GymV21Environment-v0", "e" * 512),
)
#: Built-in classes by their paths: read as any other run, and still nothing is imported from here.
OWN = ("curiax.curiosity.lbs:LBS", "curiax.curiosity:LBS")
#: What is no text to show as it is.
MARKUP = (
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"><svg/onload=alert(1)>', "{{ 7 * 7 }}"),
    *(
        "\x1b]0;owned\x07",
        "\x1b[2J",
        "one\ntwo\r\n# three",
        "fine.\ncuriax: owned",
        "|a|[b](javascript:alert(1))|",
        "\u202egpj.exe",
        "$\\input{x}$",
    ),
    *("[a]: https://evil.example/x.png", "![x][a] [click][a]"),
)
#: What is said where a text belongs, or a fact that every run has.
STRANGE = (["evil:Mine"], {"evil:Mine": 1}, 5, True, None)
FACTS = (
    "identity",
    "experiment",
    "preset",
    "iterations",
    "headline",
    "metrics",
    "grids",
    "seconds",
    "command",
    "run_id",
)
PATHS = ("../../outside.json", "/etc/passwd", "..", "/dev/zero", "a/../../b", "con\x00", "~/x")
#: Methods whose every size is forged; of a noisy task, so that the noise has a size, too.
SIZED = ("lbs", "icm", "rnd", "disagreement", "vime", "ride", "ngu", "re3", "e3b", "noveld", "simhash", "surprisal")
SIZES = (2_000_000, 100_000_000, 1 << 40)
#: What of an output no terminal should be sent, and no page should hold.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x9b]|^curiax: owned", re.MULTILINE)
LIVE = re.compile(r"<script>alert|<img src=x|<svg/onload|^ {0,3}\[[^\]]+\]: *\S", re.IGNORECASE | re.MULTILINE)

SPOKEN = re.compile(r"^curiax: ", re.MULTILINE)
#: What must not happen.
MISSES = (
    *("imports", "writes_outside", "tracebacks", "crashes", "memory", "unspoken", "control_characters", "live_markup"),
)
LIST, SECRET = "curiax-files.json", '{"secret": 1}'

Change = Callable[[Path], None]
Case = tuple[str, str, Change]


# --- originals --------------------------------------------------------------------------------------------


def make_originals(out: Path) -> None:
    """Those of `fuzz`, and beside them an agent of CartPole, a record with pictures, and the file of a Bonus."""
    fuzz.make_originals(out)
    from gymnasium.spaces import Box
    from kept import untrained
    from synthetic import compared_manifest, compared_metrics

    import curiax
    from curiax.report.publish import publish
    from curiax.report.record import Heading, condense

    shutil.copytree(fuzz.ROOT / "tests" / "data" / "agents-2" / "cart-pole-ngu", out / "gym")
    (out / "gym" / "expected.safetensors").unlink(missing_ok=True)
    bonuses = np.linspace(2.0, 1.0, 60).reshape(2, 30)
    seeds, steps = range(2), 768_000 // 30
    facts = compared_manifest("lbs", seeds, 30)
    compared = condense(facts, compared_metrics(bonuses, bonuses + 0.1, seeds, steps))
    publish([compared], Heading("Pictures", reference="lbs"), out / "gallery")
    shutil.rmtree(out / "gallery" / "figures")
    fuzz.sign_kept(out / "gallery")
    for method in SIZED:
        untrained(out / f"of-{method}", "mountain-car-frozen", method, seeds=(0,))
    space = Box(-1.0, 1.0, (3,), np.float32)
    (out / "bonus").mkdir()
    curiax.Bonus("lbs", space, space, num_envs=2, width=4).save(out / "bonus" / "bonus.safetensors")


def set_traps(cwd: Path, log: Path) -> None:
    """Modules that leave a line when they are run, in both forms, and files that libraries look for where they are."""
    cwd.mkdir()
    text = f"open({str(log)!r}, 'a').write(__name__ + '\\n')\nclass Mine: pass\ndef __getattr__(name): return Mine\n"
    for name in TRAPS:
        if name in ("evil", "curiax"):
            (cwd / name).mkdir()
            for file in ("__init__", "inner", "__main__"):
                (cwd / name / f"{file}.py").write_text(text)
        else:
            (cwd / f"{name}.py").write_text(text)
    (cwd / "matplotlibrc").write_text("backend: module://evil\ntext.usetex: True\nfigure.figsize: 9e4, 9e4\n")
    (cwd / "trap-1.dist-info").mkdir()
    (cwd / "trap-1.dist-info" / "entry_points.txt").write_text("[gymnasium.envs]\n__root__ = trap_plugin\n")
    (cwd / "trap-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: trap\nVersion: 1\n")


# --- forgeries --------------------------------------------------------------------------------------------


def json_of(file: Path) -> Any:
    """What a JSON file says."""
    return json.loads(file.read_text())


def put(data: Any, place: str, value: Any) -> None:
    """Set `a.b.0.c` in plain data, which is there; `a.b/c` may be new, and has dots of its own, as settings have."""
    path, slash, last = place.partition("/")
    *way, end = (*filter(None, path.split(".")), last) if slash else path.split(".")
    for key in way:
        data = data[int(key)] if isinstance(data, list) else data[key]
    if isinstance(data, list):
        data[int(end)] = value
    elif slash or end in data:
        data[end] = value
    else:
        raise KeyError(place)


def says(file: str, places: Mapping[str, Any], *, both: str = "") -> Change:
    """A folder whose file says otherwise, and whose other file says so too in the same places, where it has them."""

    def change(folder: Path) -> None:
        written = 0
        for name in filter(None, (file, both)):
            data = json_of(folder / name)
            for place, value in places.items():
                with contextlib.suppress(KeyError):
                    put(data, place, value)
                    written += 1
            (folder / name).write_text(json.dumps(data))
        if written < len(places):
            raise ValueError(f"not every place of {list(places)} is there")
        sign(folder)

    return change


def sign(folder: Path) -> None:
    """Digests as whoever forges a folder would make them."""
    with contextlib.suppress(Exception):  # bombs cannot be signed
        if (folder / "agents.json").is_file():
            fuzz.sign_export(folder)
    with contextlib.suppress(Exception):
        if (folder / "manifest.json").is_file():
            fuzz.sign_run(folder)
    with contextlib.suppress(Exception):
        if (folder / LIST).is_file():
            fuzz.sign_kept(folder)


def lists(place: str) -> Change:
    """A report whose list of files has a place outside."""

    def change(folder: Path) -> None:
        data = json_of(folder / LIST)
        data["files"][place] = {"bytes": len(SECRET), "blake2b": "0" * 32}
        (folder / LIST).write_text(json.dumps(data))
        fuzz.sign_kept(folder, files=False)

    return change


def wrote(file: str, data: bytes | Callable[[], bytes]) -> Change:
    """A file of other bytes."""

    def change(folder: Path) -> None:
        (folder / file).unlink()
        (folder / file).write_bytes(data if isinstance(data, bytes) else data())
        sign(folder)

    return change


def sparse(file: str, size: int, begin: bytes = b"") -> Change:
    """A file that is large and takes no room."""

    def change(folder: Path) -> None:
        with (folder / file).open("wb") as stream:
            stream.write(begin)
            stream.truncate(size)

    return change


def linked(file: str, target: str) -> Change:
    """A link where a file was."""

    def change(folder: Path) -> None:
        place = folder / file
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        place.symlink_to(target)

    return change


def table(file: str, make: Callable[[Any], Any], **options: Any) -> Change:
    """Another Parquet table."""

    def change(folder: Path) -> None:
        import polars as pl

        make(pl.read_parquet(folder / file)).write_parquet(folder / file, **options)
        sign(folder)

    return change


def zeros(count: int, column: str = "values") -> Callable[[Any], Any]:
    """A table whose one list has so many zeros."""

    def make(kept: Any) -> Any:
        import polars as pl

        return kept.head(1).with_columns(pl.Series(column, [pl.repeat(0.0, count, dtype=pl.Float32, eager=True)]))

    return make


def ballast(count: int) -> Callable[[Any], Any]:
    """A table whose one list has some bytes that cannot be packed, and so many zeros behind them."""

    def make(kept: Any) -> Any:
        import polars as pl

        noise = np.random.default_rng(0).random(5_000_000, dtype=np.float32)
        values = pl.concat([pl.Series(noise), pl.repeat(0.0, count, dtype=pl.Float32, eager=True)]).rechunk()
        return kept.head(1).with_columns(pl.Series("values", [values]))

    return make


def missing(count: int, size: int) -> Callable[[Any], Any]:
    """A table with a list of so many missing arrays of such a size, of which no value is written down."""

    def make(kept: Any) -> Any:
        import polars as pl

        kind = pl.List(pl.Array(pl.Float32, size))
        return kept.with_columns(pl.Series("more", [[None] * count] + [[]] * (kept.height - 1), dtype=kind))

    return make


def with_hole(file: str, size: int) -> Change:
    """A table with a hole between its pages and its footer, which makes it large for nothing."""

    def change(folder: Path) -> None:
        table(file, zeros(40_000_000))(folder)
        data = (folder / file).read_bytes()
        footer = 8 + int.from_bytes(data[-8:-4], "little")
        with (folder / file).open("wb") as stream:
            stream.write(data[:-footer])
            stream.seek(size, os.SEEK_CUR)
            stream.write(data[-footer:])
        sign(folder)

    return change


def rows(count: int) -> Callable[[Any], Any]:
    """A table of so many zeros in each of its columns of numbers."""

    def make(kept: Any) -> Any:
        import polars as pl

        numbers = [name for name in kept.columns if kept.schema[name].is_numeric()]
        return pl.DataFrame({name: pl.repeat(0, count, dtype=kept.schema[name], eager=True) for name in numbers})

    return make


def long_texts(kept: Any) -> Any:
    """Maps with the same long name again and again, which is written once."""
    import polars as pl

    return pl.concat([kept.head(1).with_columns(pl.lit("x" * 1_000_000).alias("map"))] * 5000)


def bonus_says(places: Mapping[str, Any]) -> Change:
    """A Bonus file whose header says otherwise."""

    def change(folder: Path) -> None:
        import safetensors.numpy

        from curiax._files import digest_of_json

        file = folder / "bonus.safetensors"
        data = file.read_bytes()
        size = int.from_bytes(data[:8], "little")
        about = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["curiax"])
        about.pop("digest")
        for place, value in places.items():
            put(about, place, value)
        text = json.dumps({**about, "digest": digest_of_json(about)})
        arrays = safetensors.numpy.load(data)
        file.write_bytes(safetensors.numpy.save(arrays, metadata={"format": about["format"], "curiax": text}))

    return change


def header(size: int, text: bytes = b"") -> bytes:
    """The beginning of a safetensors file."""
    return size.to_bytes(8, "little") + text


def names() -> list[Case]:
    """Tasks, methods and settings that would be imported."""
    agents, run, record = "agents.json", "manifest.json", "record/runs.json"
    cases: list[Case] = []
    for name in (*NAMES, *OWN):
        task = {f"{part}.task": name for part in ("experiment", "identity")} | {"task": name}
        method = {f"{part}.method": name for part in ("experiment", "identity", "bonus")} | {"method": name}
        cases += [
            (f"task {name!r}", "run", says(run, task, both=agents)),
            (f"method {name!r}", "run", says(run, method, both=agents)),
            (f"task of a record {name!r}", "gallery", says(record, {"runs.0.identity.task": name})),
            (f"method of a Bonus {name!r}", "bonus", bonus_says({"method": name})),
        ]
        if ":" in name:
            inner, outer = {"settings/task.id": name}, {"experiment.settings/task.id": name}
            mario = {**task, "experiment.task": "mario", "experiment.settings/task.rom": name}
            cases += [
                (f"task {name!r}", "old", says(agents, {"experiment.task": name})),
                (f"method of a bonus {name!r}", "export", says(agents, {"bonus.method": name})),
                (f"task.id {name!r}", "gym", says(agents, {**inner, **outer})),
                (f"task.id {name!r}, in the settings alone", "gym", says(agents, inner)),
                (f"task.rom {name!r}", "run", says(run, mario, both=agents)),
            ]
    return cases


def markup() -> list[Case]:
    """Texts that mean something to a browser, a terminal, Markdown."""
    run = ("experiment.label", "command", "preset", "platform", "versions.jax", "versions/evil", "identity.curiax")
    heading = ("title", "lead", "suite", "reference", "command", "headline", "remarks")
    cases: list[Case] = []
    for number, text in enumerate(MARKUP):
        for place in run:
            cases.append((f"{place} {text!r}", "run", says("manifest.json", {place: text}, both="agents.json")))
        for place in heading:
            value = [text] if place == "remarks" else text
            cases.append((f"heading {place} {text!r}", "kept", says("record/runs.json", {f"heading.{place}": value})))
        places = ("runs.0.experiment.label", "runs.0.identity.task", "runs.0.grids.0.name", "runs.0.versions/evil")[
            number % 4 :
        ]
        for place in places[:1]:
            cases.append((f"{place} {text!r}", "kept", says("record/runs.json", {place: text})))
        words = {part: text for part in ("title", "unit", "note", "brief", "missing")} | {"rank": 99}
        metrics = {"coverage/cells": words, text: words}
        cases.append((f"metrics {text!r}", "kept", says("record/runs.json", {"runs.0/metrics": metrics})))
        kinds = {"runs.0.compared": [text, "b"], "samples.mnist.before.0": text}
        cases += [(f"{place} {text!r}", "gallery", says("record/runs.json", {place: v})) for place, v in kinds.items()]
    return cases


def places() -> list[Case]:
    """Paths in texts, and links where files were."""
    cases: list[Case] = []
    for path in PATHS:
        mario = {"task": "mario", "experiment.task": "mario", "experiment.settings/task.rom": path}
        renamed = {"coverage/cells": f"coverage/{path}", "occupancy/bins": f"occupancy/{path}"}
        cases += [
            (f"rom {path!r}", "run", says("manifest.json", mario, both="agents.json")),
            (f"label {path!r}", "run", says("manifest.json", {"experiment.label": path})),
            (f"run_id {path!r}", "run", says("manifest.json", {"run_id": path}, both="agents.json")),
            (f"listed file {path!r}", "run", says("manifest.json", {f"files/{path}": "0" * 32})),
            (f"listed place {path!r}", "kept", lists(path)),
            (f"suite {path!r}", "kept", says("record/runs.json", {"heading.suite": path})),
            (
                f"grid {path!r}",
                "kept",
                says("record/runs.json", {"runs.0.grids.0.name": path, "runs.0/coverage": path}),
            ),
            (f"columns {path!r}", "run", table("metrics.parquet", lambda t, r=renamed: t.rename(r, strict=False))),
            (f"map {path!r}", "kept", table("record/maps.parquet", lambda t, p=path: renamed_map(t, p))),
        ]
    files = {
        "run": ("manifest.json", "metrics.parquet", "agents.json", "agents.safetensors"),
        "kept": (
            "record/runs.json",
            "record/curves.parquet",
            "record/maps.parquet",
            "table.json",
            "README.md",
            LIST,
            "record",
        ),
        "bonus": ("bonus.safetensors",),
    }
    for kind, several in files.items():
        for file, target in itertools.product(
            several, ("{outside}", "/dev/zero", "/etc/passwd", "{itself}", "/", "{pipe}")
        ):
            cases.append((f"{file} is a link to {target}", kind, linked(file, target)))
    return cases


def renamed_map(kept: Any, path: str) -> Any:
    """A map of another name."""
    import polars as pl

    return kept.with_columns(pl.concat_str(pl.lit(f"{path}/"), pl.col("map")).alias("map"))


def bombs() -> list[Case]:
    """Little that becomes much."""
    json_files = (
        ("run", "manifest.json"),
        ("export", "agents.json"),
        ("kept", "record/runs.json"),
        ("kept", "table.json"),
    )
    cases: list[Case] = []
    for kind, file in json_files:
        cases += [
            (f"{file} nested", kind, wrote(file, b"[" * 1_000_000)),
            (f"{file} nested and closed", kind, wrote(file, b'{"a":' * 5000 + b"1" + b"}" * 5000)),
            (f"{file} of many lists", kind, wrote(file, lambda: b"[" + b"[]," * 8_000_000 + b"0]")),
            (
                f"{file} of many names",
                kind,
                wrote(file, lambda: json.dumps({f"{k:x}": k for k in range(1 << 20)}).encode()),
            ),
            (f"{file} of many texts", kind, wrote(file, lambda: b'["ab"' + b',"ab"' * 4_000_000 + b"]")),
            (f"{file} of many numbers", kind, wrote(file, lambda: b"[0.5" + b",0.5" * 6_000_000 + b"]")),
            (f"{file} with a long number", kind, wrote(file, b'{"format": ' + b"9" * 1_000_000 + b"}")),
        ]
    others = (("run", "metrics.parquet"), ("export", "agents.safetensors"), ("bonus", "bonus.safetensors"))
    kept = (("kept", f"record/{name}.parquet") for name in ("curves", "maps"))
    for kind, file in (*json_files, *others, *kept, ("kept", "README.md")):
        cases.append((f"{file} of 64 GB of holes", kind, sparse(file, 64 << 30)))
        cases.append((f"{file} of 3 GB of holes", kind, sparse(file, 3 << 30, b"PAR1")))
    for many in (40_000_000, 100_000_000):
        cases += [
            (f"maps of {many:,} zeros", "kept", table("record/maps.parquet", zeros(many))),
            (f"probes of {many:,} zeros", "run", table("metrics.parquet", zeros(many, "probe/car"))),
        ]
    cases += [
        ("curves of many rows", "kept", table("record/curves.parquet", rows(4_000_000))),
        ("metrics of many rows", "run", table("metrics.parquet", rows(4_000_000))),
        ("maps of long texts", "kept", table("record/maps.parquet", long_texts)),
        ("maps with ballast", "kept", table("record/maps.parquet", ballast(155_000_000))),
        ("maps with missing arrays", "kept", table("record/maps.parquet", missing(600, 100_000))),
        ("probes with missing arrays", "run", table("metrics.parquet", missing(600, 100_000))),
        ("maps with a hole", "kept", with_hole("record/maps.parquet", 100_000_000)),
    ]
    tensors = (("export", "agents.safetensors"), ("bonus", "bonus.safetensors"))
    large = b'{"a":{"dtype":"F32","shape":[1,%d],"data_offsets":[0,%d]}}' % (1 << 33, 1 << 35)
    for kind, file in tensors:
        cases += [
            (f"{file}, header of 2^63 bytes", kind, wrote(file, header(1 << 63) + b"{}")),
            (f"{file}, header of 90 MB", kind, wrote(file, lambda: header(90 << 20, b" " * (90 << 20)))),
            (f"{file}, tensor beyond its end", kind, wrote(file, header(len(large), large))),
            (f"{file}, tensor of holes", kind, sparse(file, 8 + len(large) + (1 << 35), header(len(large), large))),
            (f"{file}, many empty tensors", kind, wrote(file, many_tensors)),
            (f"{file}, very many empty tensors", kind, wrote(file, lambda: many_tensors(1_000_000))),
        ]
    huge = {"tensors/agent.head.weight": {"shape": [2, 1 << 35], "dtype": "float32", "blake2b": "0" * 32}}
    cases += [
        ("tensors promised", "export", says("agents.json", {**huge, "file": {"bytes": 1 << 38, "blake2b": "0" * 32}})),
        ("a large observation", "export", says("agents.json", {"spec.obs_shape": [1 << 20, 1 << 20]})),
        ("many actions", "export", says("agents.json", {"spec.action": {"kind": "discrete", "n": 1 << 24}})),
        ("a large space", "bonus", bonus_says({"observation_space": {"kind": "Discrete", "n": 1 << 24, "start": 0}})),
        ("many environments", "bonus", bonus_says({"num_envs": 1 << 24})),
        ("many seeds", "run", says("manifest.json", {"identity.seeds": list(range(65_536))})),
        ("many iterations", "run", says("manifest.json", {"iterations": 1_000_000_000})),
        ("a large grid", "kept", says("record/runs.json", {"runs.0.grids.0.axes.0.parts": 1_000_000})),
        ("a large picture", "gallery", says("record/runs.json", {"samples.mnist.before.0": picture(20_000)})),
        ("a picture of holes", "gallery", says("record/runs.json", {"samples.mnist.after.0": picture(1)[:-40]})),
    ]
    for method, setting, value in sizes():
        places = (f"settings/{setting}", f"experiment.settings/{setting}")
        of_bonus = {f"bonus.settings/{setting.partition('.')[2]}": value} if setting.startswith("method.") else {}
        both = {place: value for place in places} | of_bonus
        cases.append((f"{method}, {setting} {value}", f"of-{method}", says("agents.json", both)))
        cases.append((f"{method}, {setting} {value}, unasked", f"of-{method}", says("agents.json", {places[0]: value})))
    for many in (20_000_000, 60_000_000, 100_000_000):
        cases.append((f"probes of {many:,} zeros in all rows", "run", table("metrics.parquet", wide(many))))
        arrays = table("metrics.parquet", wide(many, arrays=True))
        cases.append((f"arrays of {many:,} zeros in all rows", "run", arrays))
    cases.append(("lists of numbers", "run", numbers_in_lists))
    name = "tensors/fine.\ncuriax: owned"
    cases.append(("a tensor named in two lines", "export", says("agents.json", {name: {**EMPTY, "shape": [2, 1]}})))
    for setting, value in itertools.product(
        ("method.width", "ppo.width", "loop.envs", "loop.rollout", "learner.replay", "remote.noise_dims"),
        (1 << 20, 1 << 40),
    ):
        both = {
            f"experiment.settings/{setting}": value,
            f"settings/{setting}": value,
            f"identity.settings/{setting}": value,
        }
        cases.append((f"{setting} {value}", "run", says("manifest.json", both, both="agents.json")))
        if setting == "method.width":
            cases.append((f"width of a bonus {value}", "bonus", bonus_says({"settings/width": value})))
    return cases


def sizes() -> list[tuple[str, str, int]]:
    """Every whole number among the settings of the methods, and the noise's, with values that no memory holds."""
    from curiax._settings import signature
    from curiax.experiments.registry import METHODS

    found = [("lbs", "remote.noise_dims", value) for value in (*SIZES, 300_000_000)]
    for method in SIZED:
        for name, (kind, _) in signature(METHODS[method].method).items():
            if "int" in str(kind):
                found += [(method, f"method.{name}", value) for value in SIZES]
    return found


def wide(count: int, *, arrays: bool = False) -> Callable[[Any], Any]:
    """A table with as many rows as before, which share so many zeros in one column, as lists or as arrays."""

    def make(kept: Any) -> Any:
        import polars as pl

        each = count // kept.height
        zeros = pl.repeat(0.0, each, dtype=pl.Float32, eager=True)
        column = pl.Series("probe/car", [zeros] * kept.height)
        return kept.with_columns(column.cast(pl.Array(pl.Float32, each)) if arrays else column)

    return make


def numbers_in_lists(folder: Path) -> None:
    """Both descriptions of a run with as many numbers as a file may just hold."""
    for file in ("manifest.json", "agents.json"):
        data = json_of(folder / file)
        data["ballast"] = [1] * 5_500_000
        (folder / file).write_text(json.dumps(data, separators=(",", ":")))
    sign(folder)


#: An array of nothing.
EMPTY = {"shape": [0], "dtype": "float32", "blake2b": "0" * 32}


def many_tensors(count: int = 100_000) -> bytes:
    """So many arrays of nothing."""
    text = json.dumps({f"{k:x}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for k in range(count)}).encode()
    return header(len(text), text)


def picture(width: int, height: int = 1) -> str:
    """A grey PNG in base64."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("L", (width, height)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def strange() -> list[Case]:
    """Facts of the wrong kind, or not there at all."""
    run, record = "manifest.json", "record/runs.json"
    cases: list[Case] = []
    for value in STRANGE:
        both = {"experiment.settings/task.id": value}
        cases += [
            (f"task.id {value}", "gym", says("agents.json", {"settings/task.id": value, **both})),
            (f"task.id {value}, as it was asked", "gym", says("agents.json", both)),
            (f"task {value}", "run", says(run, {"identity.task": value, "experiment.task": value})),
            (f"method {value}", "run", says(run, {"identity.method": value, "experiment.method": value})),
            (f"a setting {value}", "kept", says(record, {"runs.0.experiment.settings/method.beta": value})),
            (f"runs {value}", "kept", says(record, {"runs": value})),
        ]
        cases += [(f"{fact} {value}", "run", says(run, {f"/{fact}": value})) for fact in FACTS]
        cases += [(f"{fact} {value}", "kept", says(record, {f"runs.0/{fact}": value})) for fact in FACTS]
    cases.append(("no runs", "kept", says(record, {"runs": []})))
    for name in ("game/score", "game/length", "ratio/stochastic", "policy/return", "coverage/rooms"):
        cases.append((f"a curve {name}", "run", table("metrics.parquet", lambda t, n=name: copied(t, n))))
        cases.append((f"a curve {name}", "kept", table("record/curves.parquet", lambda t, n=name: copied(t, n))))
    return cases


def copied(kept: Any, name: str) -> Any:
    """A table with its coverage a second time, under another name."""
    return kept.with_columns(kept["coverage/cells"].alias(name))


def every_case() -> list[Case]:
    """All of them, mixed, so that every part of the list has some of each sort."""
    sorts = (names(), markup(), places(), bombs(), strange())
    mixed = sorted(((k + 0.5) / len(sort), number, k) for number, sort in enumerate(sorts) for k in range(len(sort)))
    return [sorts[number][k] for _, number, k in mixed]


# --- readers ----------------------------------------------------------------------------------------------


def readers(kind: str, case: Path, out: Path) -> dict[str, Callable[[], Any]]:
    """Every command that reads such a folder, and what Python has for it."""
    import curiax
    from curiax.cli import main

    def command(*words: Any) -> Callable[[], Any]:
        return lambda: main(list(map(str, words)))

    def act() -> None:
        agent = curiax.load(case)
        obs = np.full(agent.spec.obs_shape, 0.1, np.float32)
        agent.bonus(obs, agent.act(obs, rng=0), obs)

    def load_bonus() -> None:
        curiax.Bonus.load(case / "bonus.safetensors")

    small = ("--steps", 2, "--width", 320, "--height", 240, "--quiet")
    agents = {
        "watch": command("watch", case, "--out", out / "film.gif", *small),
        "export": command("export", case, "--out", out / "export"),
        "load": act,
        "verify": command("verify", case),
    }
    report = {"report": command("report", case, "--out", out / "report")}
    if kind == "bonus":
        return {"bonus": load_bonus}
    if kind in ("kept", "gallery"):
        return {**report, "verify": command("verify", case)}
    return {**(report if kind == "run" else {}), **agents}


def peak() -> int:
    """The most bytes that this process has had since the last time one asked."""
    peak_line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    Path("/proc/self/clear_refs").write_text("5")
    return int(peak_line.split()[1]) << 10


def too_long(*_: Any) -> None:
    """A reading that does not end."""
    raise TimeoutError(f"no answer within {MOST_SECONDS} s")


def read_one(read: Callable[[], Any]) -> tuple[str, str]:
    """What became of a reading: `refused`, `read` or `traceback`, and everything that was said."""
    from curiax import CuriaxError

    output = io.StringIO()
    signal.alarm(MOST_SECONDS)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = read()
    except CuriaxError as error:
        return "refused", f"curiax: {error}"
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return "traceback", f"{type(error).__name__} in {Path(where.filename).name}:{where.lineno}: {str(error)[:160]}"
    finally:
        signal.alarm(0)
    return "refused" if code else "read", output.getvalue()


def without_code(page: Path) -> str:
    """A page without what Markdown shows as code, where a tag is a text."""
    text = page.read_text(errors="replace")
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text) if page.suffix == ".md" else text


def forge(originals: Path, work: Path, numbers: Sequence[int]) -> None:
    """Make the folders of some cases, in a process of its own: it takes the memory that reading them must not."""
    cases = every_case()
    for number in numbers:
        what, kind, change = cases[number]
        case = work / "cases" / str(number) / "case"
        shutil.copytree(originals / kind, case)
        try:
            change(case)
        except Exception as error:
            raise RuntimeError(f"could not forge case {number}, {kind}: {what}") from error
        for link in [path for path in case.rglob("*") if path.is_symlink()]:
            target = os.readlink(link).format(outside=work / "outside.json", itself=link, pipe=work / "pipe")
            link.unlink()
            link.symlink_to(target)


def run_batch(work: Path, numbers: Sequence[int]) -> dict[str, Any]:
    """Read some forged cases in this process, in whose working directory the traps lie."""
    os.environ["POLARS_MAX_THREADS"] = "1"
    cwd, log, outside = work / "cwd", work / "log", work / "outside.json"
    set_traps(cwd, log)
    os.chdir(cwd)
    signal.signal(signal.SIGALRM, too_long)
    cases, misses, most = every_case(), [], (0, "")
    from curiax.cli import main

    tally: collections.Counter[str] = collections.Counter()
    laid = fuzz.snapshot(cwd)
    for number in numbers:
        what, kind, _ = cases[number]
        home = work / "cases" / str(number)
        case, out = home / "case", home / "out"
        out.mkdir()
        (work / "current").write_text(f"{number} {kind}: {what}")
        untouched = fuzz.snapshot(case)
        peak()
        for name, read in readers(kind, case, out).items():
            outcome, output = read_one(read)
            tally[outcome] += 1
            pages = "".join(without_code(page) for page in out.glob("report/*.[mh]*"))
            used = peak()
            most = max(most, (used, f"{kind}: {what}, {name}"))
            found = {
                "tracebacks": outcome == "traceback",
                "imports": log.exists() or str(cwd) in sys.path or "" in sys.path,
                "memory": used > MOST_MEMORY,
                # Whatever is refused is told in a line that begins with our name; verify lists what differs.
                "unspoken": outcome == "refused" and name != "verify" and not SPOKEN.search(output),
                "control_characters": bool(CONTROL.search(output)),
                "live_markup": bool(LIVE.search(pages)),
            }
            for miss in (miss for miss, there in found.items() if there):
                tally[miss] += 1
                about = {"case": number, "what": f"{kind}: {what}", "reader": name, "said": output[:300]}
                misses.append({"miss": miss, **about, "mib": used >> 20})
            if found["imports"]:
                log.unlink(missing_ok=True)
                sys.path[:] = [place for place in sys.path if place not in ("", str(cwd))]
        strays = sorted({path.name for path in home.iterdir()} - {"case", "out"})
        kept = fuzz.snapshot(case) == untouched and fuzz.snapshot(cwd) == laid
        if strays or not kept or outside.read_text() != SECRET:
            tally["writes_outside"] += 1
            misses.append({"miss": "writes_outside", "case": number, "what": f"{kind}: {what}", "said": str(strays)})
        shutil.rmtree(home)
    for words in (["list"], ["doctor"]):
        outcome, output = read_one(lambda words=words: main(words))
        if outcome != "read" or log.exists() or str(cwd) in sys.path:
            tally["imports"] += 1
            misses.append({"miss": "imports", "what": words[0], "said": output[:300]})
    return {"tally": dict(tally), "misses": misses, "most": most}


def batch(originals: Path, work: Path, numbers: Sequence[int]) -> dict[str, Any]:
    """Forge some cases and read them, each in a process of its own; a crash is a miss."""
    work.mkdir()
    (work / "outside.json").write_text(SECRET)
    os.mkfifo(work / "pipe")
    listed = ",".join(map(str, numbers))
    subprocess.run([sys.executable, __file__, "--forge", str(originals), str(work), listed], check=True)
    words = [sys.executable, __file__, "--batch", str(work), listed]
    ended = subprocess.run(words, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        return json.loads((work / "result.json").read_text())
    except (OSError, ValueError):
        what = (work / "current").read_text() if (work / "current").exists() else "before the first case"
        miss = {"miss": "crashes", "what": what, "said": f"exit {ended.returncode}: {ended.stderr.strip()[-300:]}"}
        return {"tally": {"crashes": 1}, "misses": [miss], "most": [0, ""]}
    finally:
        shutil.rmtree(work)


def soak(numbers: Sequence[int] | None = None, originals: Path | None = None) -> dict[str, Any]:
    """Figures of the cases, all or those of these numbers, and every miss."""
    begun, numbers = time.perf_counter(), range(len(every_case())) if numbers is None else numbers
    total: collections.Counter[str] = collections.Counter()
    misses: list[dict[str, Any]] = []
    most: list[Any] = [0, ""]
    with tempfile.TemporaryDirectory() as place:
        if originals is None:
            originals = Path(place) / "originals"
            make_originals(originals)
        for start in range(0, len(numbers), BATCH):
            made = batch(originals, Path(place) / f"batch-{start}", numbers[start : start + BATCH])
            total.update(made["tally"])
            misses += made["misses"]
            most = max(most, made["most"])
    return {
        "cases": len(numbers),
        "readings": total["refused"] + total["read"] + total["traceback"],
        "refused": total["refused"],
        "read": total["read"],
        **{name: total[name] for name in MISSES},
        "most_memory_mib": most[0] >> 20,
        "most_memory_in": most[1],
        "seconds": round(time.perf_counter() - begun, 1),
        "misses": misses,
        "passed": not misses,
    }


def main() -> int:
    """The command line."""
    if sys.argv[1:2] == ["--forge"]:
        originals, work, listed = sys.argv[2:]
        forge(Path(originals), Path(work), list(map(int, listed.split(","))))
        return 0
    if sys.argv[1:2] == ["--batch"]:
        work, listed = sys.argv[2:]
        made = run_batch(Path(work), list(map(int, listed.split(","))))
        (Path(work) / "result.json").write_text(json.dumps(made))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="read every n-th case")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    args = parser.parse_args()
    figures = soak(range(args.first, len(every_case()), args.every))
    print(json.dumps(figures, indent=2))
    return 0 if figures["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
