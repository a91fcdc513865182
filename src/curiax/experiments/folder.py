"""A run's folder: one metrics table and one manifest, there complete or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._errors import CuriaxError, OutputError
from .manifest import FORMAT, MANIFEST, METRICS, REMEDY, read_manifest, read_metrics

if TYPE_CHECKING:
    import polars

__all__ = ["FORMAT", "MANIFEST", "METRICS", "REMEDY", "read_manifest", "read_metrics"]
#: In the name of the hidden folder that a run is written to before it is complete.
UNFINISHED = ".partial-"


def existing_run(folder: Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """The manifest of this very run if it is finished there, None if the folder is free.

    Anything else in the folder is refused: another run's results, or files that are not ours.
    """
    if folder.is_symlink() and not folder.exists():
        raise OutputError(f"{folder} is a link to nowhere: remove it or choose another --out.")
    if not folder.exists():
        return None
    if not folder.is_dir():
        raise OutputError(f"{folder} is a file, not a folder: choose another --out.")
    manifest = read_manifest(folder)
    if manifest is None:
        if any(folder.iterdir()):
            raise OutputError(
                f"{folder} holds files that are not a Curiax run: choose an empty or new folder for --out."
            )
        return None
    if manifest.get("identity") != dict(identity):
        changed = difference(manifest.get("identity") or {}, identity)
        raise OutputError(
            f"{folder} holds another finished run, which is left untouched (it differs in {changed}): "
            "choose another --out."
        )
    return manifest


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The names of what differs between two identities."""
    names = [key for key in new if key != "settings" and old.get(key) != new[key]]
    before, after = old.get("settings") or {}, new.get("settings") or {}
    names += [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A hidden folder beside the final one, moved into place at the end and removed on any failure.

    Making it first shows, before anything is compiled, whether the place can be written to.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=f".{folder.name}{UNFINISHED}", dir=folder.parent))
        if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
            stage.rmdir()
            raise PermissionError(f"no permission to write in {folder}")
    except OSError as error:
        raise OutputError(f"cannot write to {folder}: {error.strerror or error}. Choose another --out.") from None
    try:
        yield stage
        with written(folder):
            stage.chmod(0o755)
            os.replace(stage, folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


@contextlib.contextmanager
def written(where: Path) -> Iterator[None]:
    """Turns a disk that is full or gone into a `CuriaxError`: the run failed, its request was fine."""
    try:
        yield
    except OSError as error:
        raise CuriaxError(f"the results could not be written to {where}: {error.strerror or error}.") from error


def write(stage: Path, manifest: Mapping[str, Any], table: polars.DataFrame) -> None:
    """The two files of a run."""
    with written(stage):
        table.write_parquet(stage / METRICS)
        text = json.dumps({"format": FORMAT, **manifest}, indent=2, ensure_ascii=False)
        (stage / MANIFEST).write_text(text + "\n")
