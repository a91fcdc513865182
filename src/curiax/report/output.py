"""The folder of a report: which files in it are Curiax's, by proof and not by name, and how new ones replace them.

`curiax-files.json` lists every file that was written, with size and digest, and has a digest of itself. Only what is
listed there, and is still as it was written, is ever replaced or removed.

New files appear together or not at all. They are made in `.curiax-publishing/making` and brought to the disk; renaming
that folder to `new` is the moment from which they are complete. Then they are moved to their places, the list last,
while the files that they replace wait in `old`: an error puts those back, and what a killed process had begun is
completed by the next command (`settle`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from filelock import Timeout
from pydantic import Field

from .._errors import BusyError, OutputError
from .._files import (
    MARK,
    damaged,
    digest,
    locked,
    mark,
    marked,
    parsed,
    read_bytes,
    sync_folder,
    sync_tree,
    write_whole,
)
from .._version import __version__
from ..experiments.exports import Exact, FileSchema
from ..experiments.folder import unwritable, written
from ..experiments.manifest import Digest, Name, checked, seal

FORMAT, MARKER = "curiax-files-1", "curiax-files.json"
TABLE, REPORT, FIGURES, README, RECORD, STORE = "table.json", "report.html", "figures", "README.md", "record", "runs"
#: Where new files are made, and the folders in it.
WORK, MAKING, NEW, OLD, LOCK = ".curiax-publishing", "making", "new", "old", "lock"
REMEDY = "move the folder away, or choose another --out."
#: Bytes of a list of files, and of a file in it.
MOST_LIST, MOST_FILE = 1 << 20, 256 << 20
#: Seconds to wait for another process that writes to the same folder.
PATIENCE = 60

#: A file's place in the folder: nothing else is ever moved or removed, whatever a list says.
Place = Annotated[
    str, Field(pattern=r"^(table\.json|report\.html|README\.md|(record|figures)/[A-Za-z0-9][A-Za-z0-9._-]{0,99})$")
]
Made = TypeVar("Made")


class Listing(Exact):
    """What `curiax-files.json` says."""

    format: Literal["curiax-files-1"]
    curiax: Name
    files: Annotated[dict[Place, FileSchema], Field(max_length=1000)]
    seal: Digest

    def text(self) -> bytes:
        """The bytes of the file."""
        return f"{json.dumps(self.model_dump(), indent=1)}\n".encode()


def listing(files: Mapping[str, FileSchema]) -> Listing:
    """A sealed list of files."""
    body = {
        "format": FORMAT,
        "curiax": __version__,
        "files": {name: entry.model_dump() for name, entry in sorted(files.items())},
    }
    return Listing.model_validate({**body, "seal": seal(body)})


def read_listing(folder: Path) -> Listing | None:
    """The list of a folder's files, every byte of it as it was written; None where there is none."""
    file = folder / MARKER
    if not os.path.lexists(file):
        return None
    if file.is_symlink():
        raise damaged(file, "it is a link", REMEDY)
    data = read_bytes(file, MOST_LIST, REMEDY)
    file_list = checked(Listing, parsed(data, file, REMEDY), lambda why: damaged(file, why, REMEDY))
    if file_list.seal != seal(file_list.model_dump()) or data != file_list.text():
        raise damaged(file, "it does not match its own digest", REMEDY)
    return file_list


def listed(folder: Path) -> dict[str, FileSchema]:
    """The files in a folder that are Curiax's, by their places; refuses a folder that somebody else put something in.

    Without a list that is anything but the runs of a `curiax reproduce` that has not come to its report yet, and hidden
    files. Of a folder of a version before 0.5, which made no list, nobody can tell which files are still as they were
    written, as its words are not those of this version: it is not taken over, however much it looks like one of ours.
    """
    file_list = read_listing(folder)
    if file_list is not None:
        return dict(file_list.files)
    names = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    names -= {STORE} if (folder / STORE).is_dir() and not (folder / STORE).is_symlink() else set()
    others = sorted(name for name in names if not name.startswith("."))
    if {TABLE, RECORD} <= names:
        raise OutputError(
            f"{folder} was written by an older version of Curiax, which kept no list of its files: "
            "move it away, or choose another --out."
        )
    if others:
        raise OutputError(
            f"{folder} holds {others[0]}, which is not Curiax's ({MARKER}, which would list it, is not there): "
            "choose an empty or new folder for --out."
        )
    return {}


def strange(folder: Path, name: str, known: Iterable[FileSchema]) -> str:
    """What is wrong with the thing at a place, if it is none of the files that are known to be Curiax's; else nothing.

    Links are never followed: neither is one of the files, nor does one lead to their folder.
    """
    path, known, size = folder / name, list(known), 0
    for each in (*(folder / part for part in list(Path(name).parents)[:-1]), path):
        try:
            about = each.lstat()
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{each} cannot be looked at ({error.strerror})"
        kind, size = about.st_mode, about.st_size
        if stat.S_ISLNK(kind):
            return f"{each} is a link"
        if not (stat.S_ISREG(kind) if each == path else stat.S_ISDIR(kind)):
            return f"{each} is no {'file' if each == path else 'folder'}"
    if not known:
        return f"{path} is not one of the files that Curiax wrote there"
    alike = {each.blake2b for each in known if each.bytes == size}
    if alike and digest(read_bytes(path, MOST_FILE, REMEDY)) in alike:
        return ""
    return f"{path} was changed since Curiax wrote it"


def refuse_strange(folder: Path, places: Iterable[str], *known: Mapping[str, FileSchema]) -> None:
    """Refuse to put files at these places where that would touch what is not Curiax's."""
    for name in sorted({*places}):
        why = strange(folder, name, [files[name] for files in known if name in files])
        if why:
            raise OutputError(f"{why}: move it away, or choose another --out. Nothing was touched.")


def check(out: Path, places: Iterable[str]) -> None:
    """Refuse a folder that new files could not be put into, before any work is done for them.

    What a killed process left there half done is completed or removed first. A link to a folder is followed: whoever
    names it means that folder.
    """
    try:
        if out.is_symlink() and not out.exists():
            raise OutputError(f"{out} is a link to nowhere: remove it, or choose another --out.")
        if out.exists() and not out.is_dir():
            raise OutputError(f"{out} is a file, not a folder: choose another --out.")
        if os.path.lexists(out / WORK):
            with at_work(out) as work:
                settle(out, work)
        kept = listed(out)
        refuse_strange(out, {*places, *kept}, kept)
        there = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
        if not os.access(there, os.W_OK | os.X_OK):
            raise OutputError(f"cannot write to {there}. Choose another --out.")
    except OSError as error:
        raise unwritable(out, error) from None


def replace_files(out: Path, make: Callable[[Path], Made]) -> Made:
    """Have `make` write files into an empty folder, then put them where they belong in `out`: all of them or none."""
    with written(out), at_work(out) as work:
        settle(out, work)
        making = work / MAKING
        try:
            making.mkdir()
            made = make(making)
            files = described(making)
            kept = listed(out)
            refuse_strange(out, {*files, *kept}, kept)
            write_whole(making / MARKER, listing(files).text())
            sync_tree(making)
            os.replace(making, work / NEW)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
        for folder in (work, out):
            sync_folder(folder)
        complete(out, work)
        return made


def described(folder: Path) -> dict[str, FileSchema]:
    """Size and digest of every file in a folder, by its place."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            found[path.relative_to(folder).as_posix()] = FileSchema(bytes=len(data), blake2b=digest(data))
    return found


@contextlib.contextmanager
def at_work(out: Path) -> Iterator[Path]:
    """The folder in which new files are made, this process's alone; it is gone afterwards if nothing is left in it."""
    work, made = out / WORK, not out.exists()
    for path in (work, *work.rglob("*")):
        if path.is_symlink():
            raise OutputError(f"{path} is a link, which Curiax makes none of: {REMEDY}")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(work / LOCK, PATIENCE))
        except Timeout:
            raise BusyError(
                f"another process writes a report to {out}: let it finish, or choose another --out."
            ) from None
        others = [path for path in work.iterdir() if path.name != LOCK and not path.name.startswith(f".{MARK}-")]
        if others and not marked(work):
            raise OutputError(f"{work} was not made by Curiax: {REMEDY}")
        mark(work)
        stack.callback(tidy_up, out, work, made)
        yield work


def tidy_up(out: Path, work: Path, made: bool) -> None:
    """Remove the folder of new files when nothing but the lock is left in it, and `out` if it was made in vain."""
    with contextlib.suppress(OSError):
        left = sorted(path.name for path in work.iterdir())
        if all(name in (LOCK, MARK) or name.startswith(f".{MARK}-") for name in left):
            for name in sorted(left, key=lambda name: name == LOCK):  # the lock last
                (work / name).unlink()
            work.rmdir()
        if made:
            out.rmdir()


def settle(out: Path, work: Path) -> None:
    """Complete what a killed process had begun to put in place; remove what it had not completely made, or replaced."""
    shutil.rmtree(work / MAKING, ignore_errors=True)
    if (work / NEW / MARKER).exists():
        complete(out, work)
    clear(work)


def complete(out: Path, work: Path) -> None:
    """Move new files to their places, the list last; an error leaves everything as it was before."""
    new, old = work / NEW, work / OLD
    after, before = read_listing(new), read_listing(out)
    assert after is not None
    fresh, kept = after.files, before.files if before else {}
    refuse_strange(out, {*fresh, *kept}, fresh, kept)
    for name in fresh:
        # Half of them may have been moved already: each is in one place or the other.
        there = new if (new / name).exists() else out
        if not (there / name).exists() or strange(there, name, [fresh[name]]):
            raise OutputError(f"{new / name} is gone or damaged: {REMEDY}")
    try:
        for name in sorted({*fresh, *kept}):
            if name in fresh and not (new / name).exists():
                continue
            if (out / name).exists():
                move(out / name, old / name)
            if name in fresh:
                move(new / name, out / name)
        for folder in (out / RECORD, out / FIGURES, out):
            if folder.is_dir():
                sync_folder(folder)
        os.replace(new / MARKER, out / MARKER)
    except BaseException:
        if (new / MARKER).exists():
            put_back(out, work, fresh)
        raise
    sync_folder(out)
    clear(work)
    for folder in (out / RECORD, out / FIGURES):
        with contextlib.suppress(OSError):
            folder.rmdir()  # where the new files are fewer


def put_back(out: Path, work: Path, fresh: Iterable[str]) -> None:
    """Undo moves. Where that fails too, the next command completes what was begun."""
    new, old = work / NEW, work / OLD
    with contextlib.suppress(OSError):
        for name in fresh:
            if not (new / name).exists() and (out / name).exists():
                move(out / name, new / name)
        for path in sorted(old.rglob("*")):
            if path.is_file():
                move(path, out / path.relative_to(old))
        sync_tree(out)
        # No longer complete: from here on the new files are nothing.
        os.replace(new, work / MAKING)
        shutil.rmtree(work / MAKING, ignore_errors=True)
        clear(work)


def move(path: Path, place: Path) -> None:
    """A rename into a folder that may not be there yet."""
    place.parent.mkdir(parents=True, exist_ok=True)
    os.replace(path, place)


def clear(work: Path) -> None:
    """Remove what is left when the list of files is in its place: replaced files, empty folders."""
    for name in (NEW, OLD):
        shutil.rmtree(work / name, ignore_errors=True)


def interrupted(folder: Path) -> bool:
    """Whether a process was killed while it put files in place, so that some of them are new and some old."""
    return os.path.exists(folder / WORK / NEW / MARKER)


def faults(folder: Path, below: str = "") -> list[str]:
    """Every file that is not as it was written, in words: those in the folder `below`, or all.

    Nothing is known of a folder without a list.
    """
    if interrupted(folder):
        return [
            f"{folder} holds parts of two reports: writing the newer one was interrupted. The same `curiax report` or "
            "`curiax reproduce` completes it."
        ]
    file_list, found = read_listing(folder), []
    for name, entry in (file_list.files if file_list else {}).items():
        if not name.startswith(below):
            continue
        why = strange(folder, name, [entry])
        # The page is made from the record, and need not be kept under version control.
        if not why and name != REPORT and not (folder / name).exists():
            why = f"{folder / name} is missing"
        found += [f"{why}."] if why else []
    return found
