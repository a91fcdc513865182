"""A run's folder: one metrics table and one manifest, there complete or not at all; checkpoints until then."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import Timeout

from .._errors import BusyError, CuriaxError, OutputError
from .._files import MARK, digest, mark, parquet, read_bytes, sync_folder, usable, write_whole
from .._files import locked as held
from .manifest import FORMAT, MANIFEST, METRICS, MOST_TABLE, REMEDY, read_manifest, read_metrics, seal
from .store import CHECKPOINTS, HOLDER, LOCK, begun, clear, difference, foreign, steps_in

if TYPE_CHECKING:
    import polars

__all__ = ["FORMAT", "MANIFEST", "METRICS", "REMEDY", "read_manifest", "read_metrics"]
#: In the name of the hidden folder that versions before 0.4 wrote a run to.
UNFINISHED = ".partial-"
#: The files of a run beside its manifest, whose digests the manifest holds.
RESULTS = {METRICS, "agents.json", "agents.safetensors"}
#: All that can be there when a process is killed while it claims a folder: names, and what is in the files.
JUST_MADE = {LOCK: rb"", re.escape(HOLDER): rb"(process \d+ on .*)?", rf"\.{re.escape(MARK)}-\w{{8}}": rb".*"}


def existing_run(folder: Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """The manifest of this very run if it is finished there, None if the folder is free.

    Anything else in the folder is refused: another run's results, or files that are not ours.
    """
    if usable(folder).is_symlink() and not folder.exists():
        raise OutputError(f"{folder} is a link to nowhere: remove it or choose another --out.")
    if not folder.exists():
        return None
    if not folder.is_dir():
        raise OutputError(f"{folder} is a file, not a folder: choose another --out.")
    manifest = read_manifest(folder)
    if manifest is None:
        checkpoints, others = folder / CHECKPOINTS, sorted(p.name for p in folder.iterdir() if p.name != CHECKPOINTS)
        if not begun(checkpoints) and (others or not just_made(checkpoints)):
            strange = [*others, *map(str, foreign(checkpoints))]
            which = strange[0] if strange else f"{CHECKPOINTS}/ without {MARK}"
            raise OutputError(
                f"{folder} holds files that are not a Curiax run ({which}): choose an empty or new folder for --out."
            )
        for name in sorted({*others} & {*RESULTS, MANIFEST} - half_published(folder)):
            raise OutputError(
                f"{folder / name} was not put there by this run, which would replace it: move it away, or choose "
                "another --out."
            )
        return None
    if manifest.get("identity") != dict(identity):
        changed = difference(manifest.get("identity") or {}, identity)
        raise OutputError(
            f"{folder} holds another finished run, which is left untouched (it differs in {changed}): "
            "choose another --out."
        )
    return manifest


def just_made(checkpoints: Path) -> bool:
    """Whether nothing is in a folder of checkpoints but what a process makes before it marks it; or there is none."""

    def ours(path: Path) -> bool:
        forms = [form for name, form in JUST_MADE.items() if re.fullmatch(name, path.name)]
        regular = path.is_file() and not path.is_symlink()
        return regular and any(re.fullmatch(form, start_of(path), re.DOTALL) for form in forms)

    if checkpoints.is_symlink() or not checkpoints.is_dir():
        return not os.path.lexists(checkpoints)
    return all(map(ours, checkpoints.iterdir()))


def half_published(folder: Path) -> set[str]:
    """The results in a run's folder that a killed process moved there without the manifest, which lists them."""
    found: set[str] = set()
    for stage in (folder / CHECKPOINTS).glob(".writing-*"):
        listed: Mapping[str, str] = {}
        with contextlib.suppress(OutputError):
            listed = (read_manifest(stage) or {}).get("files") or {}
        for name in (name for name in RESULTS if name in listed and not (folder / name).is_symlink()):
            with contextlib.suppress(OutputError):  # not moved yet
                if digest(read_bytes(folder / name, MOST_TABLE, REMEDY)) == listed[name]:
                    found.add(name)
    return found


def start_of(file: Path) -> bytes:
    """The beginning of a file; empty where it cannot be read."""
    try:
        return read_bytes(file, 4096, "")
    except OutputError:
        return b""


@contextlib.contextmanager
def claimed(folder: Path, *, wait: bool = False) -> Iterator[Path]:
    """The folder of a run's checkpoints, this process's alone while the block runs.

    Making it first shows, before anything is compiled, whether the place can be written to. Where nothing was saved in
    it, it is gone afterwards, and the run's folder with it if that was made here and is empty.
    """
    made = not folder.exists()
    checkpoints = folder / CHECKPOINTS
    if checkpoints.is_symlink():
        raise OutputError(f"{checkpoints} is a link, which is not followed: remove it, or choose another --out.")
    with contextlib.ExitStack() as stack:
        stack.enter_context(locked(folder, checkpoints, wait))
        for name in half_published(folder) if not is_finished(folder) else ():
            (folder / name).unlink()  # before what proves them to be ours is removed
        try:
            yield checkpoints
        finally:
            left = {path.name for path in folder.iterdir()} - {CHECKPOINTS} if folder.is_dir() else set()
            finished = is_finished(folder)
            if finished or (not steps_in(checkpoints) and not left):
                remove(checkpoints, finished)
            if made:
                with contextlib.suppress(OSError):
                    folder.rmdir()


def is_finished(folder: Path) -> bool:
    """Whether a folder holds a run's manifest; a file of that name may be anybody's."""
    try:
        return read_manifest(folder) is not None
    except OutputError:
        return False


def remove(checkpoints: Path, finished: bool) -> None:
    """Remove a run's checkpoints; what somebody else has put among them stays, and the folder with it.

    Unless the run is finished, so do then the files that say that the folder is a run's.
    """
    signs = () if finished or not foreign(checkpoints) else (LOCK, HOLDER, MARK)
    clear(checkpoints, lambda name: name in signs)
    with contextlib.suppress(OSError):
        checkpoints.rmdir()


def unwritable(folder: Path, error: OSError) -> OutputError:
    """An error about a place that takes no files."""
    return OutputError(f"cannot write to {folder}: {error.strerror or error}. Choose another --out.")


@contextlib.contextmanager
def locked(folder: Path, checkpoints: Path, wait: bool) -> Iterator[None]:
    """Hold the lock of a run's folder, and say who does."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(held(checkpoints / LOCK, -1 if wait else 0))
        except Timeout:
            raise BusyError(
                f"another process works on this run{holder(checkpoints)}: {folder}. Let it finish, or "
                "choose another --out; --wait waits for it."
            ) from None
        except OSError as error:
            raise unwritable(folder, error) from None
        # A link in its place is not followed, and nothing depends on it.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
        with contextlib.suppress(OSError), open(os.open(checkpoints / HOLDER, flags, 0o644), "w") as file:
            file.write(f"process {os.getpid()} on {platform.node()}")
        try:
            mark(checkpoints)
        except OSError as error:
            raise unwritable(folder, error) from None
        yield


def holder(checkpoints: Path) -> str:
    """Who holds the lock, as far as is known."""
    text = start_of(checkpoints / HOLDER)[:200].decode(errors="replace")
    return f" ({text})" if text else ""


def tidy_up(folder: Path) -> None:
    """Remove the checkpoints of a finished run that a process was killed before it could remove."""
    checkpoints = folder / CHECKPOINTS
    if begun(checkpoints) or (checkpoints.is_dir() and just_made(checkpoints)):
        with contextlib.suppress(OSError, BusyError, OutputError), claimed(folder):
            pass


@contextlib.contextmanager
def written(where: Path) -> Iterator[None]:
    """Turns a disk that is full or gone into a `CuriaxError`: the run failed, its request was fine."""
    try:
        yield
    except OSError as error:
        raise CuriaxError(
            f"the results could not be written to {where}: {error.strerror or error}. See to the disk, then give the "
            "same command again; what was saved before is kept."
        ) from error


def write(stage: Path, manifest: Mapping[str, Any], table: polars.DataFrame) -> None:
    """The two files of a run; the manifest holds digests of all its files that are there."""
    with written(stage):
        write_whole(stage / METRICS, parquet(table))
        files = {path.name: digest(path.read_bytes()) for path in sorted(stage.iterdir()) if path.name in RESULTS}
        whole = {"format": FORMAT, **manifest, "files": files}
        text = json.dumps({**whole, "seal": seal(whole)}, indent=2, ensure_ascii=False)
        write_whole(stage / MANIFEST, f"{text}\n".encode())


def publish(stage: Path, folder: Path) -> None:
    """Move a finished run's files to where they belong; with the manifest, which comes last, the run is finished."""
    with written(folder):
        names = sorted(path.name for path in stage.iterdir() if path.name != MANIFEST)
        for name in (*names, MANIFEST):
            if os.path.lexists(folder / name):
                raise CuriaxError(
                    f"{folder / name} was not put there by this run, which would replace it: move it away, then give "
                    "the same command again."
                )
        try:
            for name in names:
                os.replace(stage / name, folder / name)
            sync_folder(folder)
            os.replace(stage / MANIFEST, folder / MANIFEST)
        except BaseException:
            # The stage goes, and with it what proves these files to be ours: the next try could not replace them.
            for name in () if (folder / MANIFEST).exists() else names:
                if not (stage / name).exists():
                    (folder / name).unlink(missing_ok=True)
            raise
        sync_folder(folder)
