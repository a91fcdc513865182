"""Reading files that somebody else may have written: bounded, plain data only, errors that name the file.

Nothing read here can run code. What a file says is checked once more by those who know what it should say.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import itertools
import json
import math
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._errors import OutputError, UsageError
from ._text import clean

if TYPE_CHECKING:
    import numpy as np
    import polars

#: Bytes of a JSON file, and lists, objects and texts in it, which take many times their own bytes in memory.
MOST_JSON, MOST_PARTS = 12 << 20, 1 << 20
#: The file by which a folder that Curiax works in, and removes things from, is known to be its own.
MARK, MARKED = "made-by-curiax.txt", b"Curiax made this folder and removes it: keep nothing of your own in it.\n"
#: How often a folder that vanishes is made anew before it counts as unwritable.
ATTEMPTS = 20
#: How deeply lists and objects may be nested.
MOST_DEPTH = 32
#: Files of more bytes than this are refused where at least so many of so many bytes lie in holes: they cost whoever
#: made them nothing, and the reader all of their size.
LARGE, HOLLOW = 128 << 20, 16
#: Bytes of a safetensors file's header: every array that it names takes many times its own bytes in memory.
MOST_HEADER = 4 << 20
#: Whole numbers that other readers of JSON and the tables can hold.
MOST_WHOLE = 2**63


def as_path(what: str, path: Any) -> Path:
    """A path that a user gives."""
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"{what} = {path!r}: must be a path.")
    return usable(Path(path))


def usable(path: Path) -> Path:
    """The path, whether or not something is there, if the system can look: no name in it is too long, say."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass  # whoever wants it there says so, and what to do
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise OutputError(f"{clean(str(path))} cannot be used ({why}): name another place.") from None
    return path


def damaged(file: Path, why: str, remedy: str) -> OutputError:
    """An error about a file that is not what was written."""
    # Names in it come from the file, and may be anything.
    return OutputError(f"{clean(str(file), None)} is damaged ({clean(why, None)}): {remedy}")


def read_bytes(file: Path, most: int, remedy: str, *, holes: bool = False) -> bytes:
    """A regular file of at most `most` bytes; devices, pipes and larger files are refused before they are read.

    So are large files that hardly take room on the disk; those of one's own run may have `holes`.
    """
    try:
        # A pipe that nobody writes to must not hold the reader.
        with open(file, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as stream:
            about = os.fstat(stream.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise damaged(file, "it is no regular file", remedy)
            if about.st_size > most:
                raise damaged(file, f"it has {about.st_size:,} bytes, at most {most:,} are expected", remedy)
            if about.st_size > LARGE and not holes and hollow(stream.fileno(), about.st_size):
                raise damaged(file, f"nearly all of its {about.st_size:,} bytes are holes", remedy)
            return stream.read(about.st_size)
    except (OSError, ValueError, MemoryError) as error:
        raise damaged(file, getattr(error, "strerror", None) or str(error) or "too large", remedy) from None


def hollow(file: int, size: int) -> bool:
    """Whether hardly anything was ever written to an open file; False where the file system cannot tell."""
    if not hasattr(os, "SEEK_DATA"):
        return False
    written = at = 0
    with contextlib.suppress(OSError):  # there are no data after `at`
        while at < size and written < size // HOLLOW:
            start = os.lseek(file, at, os.SEEK_DATA)
            at = os.lseek(file, start, os.SEEK_HOLE)
            written += at - start
    os.lseek(file, 0, os.SEEK_SET)
    return written < size // HOLLOW


def read_json(file: Path, remedy: str, *, most: int = MOST_JSON) -> Any:
    """What a JSON file says: finite numbers, whole text, no name twice, nothing nested without end."""
    return parsed(read_bytes(file, most, remedy), file, remedy)


def parsed(data: bytes, file: Path, remedy: str) -> Any:
    """`read_json` of bytes that were read already."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name occurs twice in one object")
        return found

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is no number")

    try:
        if data.count(b"[") + data.count(b"{") + data.count(b'"') // 2 > MOST_PARTS:
            raise ValueError("it has too many parts")
        value = json.loads(data.decode("utf-8"), object_pairs_hook=once, parse_constant=constant)
        refuse_strange(value)
    except RecursionError:
        raise damaged(file, "it is nested too deeply", remedy) from None
    except ValueError as error:
        raise damaged(file, str(error), remedy) from None
    return value


def refuse_strange(value: Any) -> None:
    """Refuse what JSON allows and nothing else can take: endless nesting, numbers without bounds, half characters."""
    waiting: list[Iterator[Any]] = [iter((value,))]
    while waiting:
        if (thing := next(waiting[-1], waiting)) is waiting:
            waiting.pop()
        elif isinstance(thing, str):
            thing.encode("utf-8")  # half of a surrogate pair is no text: UnicodeEncodeError is a ValueError
        elif isinstance(thing, dict | list):
            if len(waiting) > MOST_DEPTH:
                raise ValueError("it is nested too deeply")
            waiting.append(itertools.chain(thing, thing.values()) if isinstance(thing, dict) else iter(thing))
        elif isinstance(thing, float) and not math.isfinite(thing):
            raise ValueError("a number is beyond all bounds")
        elif isinstance(thing, int) and not -MOST_WHOLE <= thing < MOST_WHOLE:
            raise ValueError("a whole number is beyond all bounds")


def digest(data: bytes | memoryview) -> str:
    """The digest of bytes that manifests and exports hold."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def digest_of_json(body: Mapping[str, Any]) -> str:
    """The digest of plain data, whatever its layout in a file."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return digest(text.encode())


def parquet(table: polars.DataFrame, **options: Any) -> bytes:
    """A table as a Parquet file: made in memory, because of a full disk polars makes an error of its own."""
    data = io.BytesIO()
    table.write_parquet(data, **options)
    return data.getvalue()


def pack(arrays: Mapping[str, np.ndarray], about: Mapping[str, str] | None = None) -> bytes:
    """Arrays as a safetensors file, with texts about them in its header."""
    import numpy as np
    import safetensors.numpy

    whole = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()}
    return safetensors.numpy.save(whole, metadata=None if about is None else dict(about))


def unpack(data: bytes) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, whose header is held against its size; a ValueError says what is wrong."""
    import safetensors
    import safetensors.numpy

    if int.from_bytes(data[:8], "little") > MOST_HEADER:
        raise ValueError("its header is longer than that of any file of Curiax")
    try:
        return safetensors.numpy.load(data)
    except (safetensors.SafetensorError, KeyError, TypeError, OverflowError, ValueError) as error:
        raise ValueError(str(error)[:200] or type(error).__name__) from None


@contextlib.contextmanager
def locked(file: Path, timeout: float) -> Iterator[None]:
    """Hold a lock file, whose folder is made for it; the kernel frees it whatever becomes of the process.

    Raises filelock's `Timeout` where another process holds it so long (-1: for ever), and `OSError`.
    """
    from filelock import FileLock

    lock = FileLock(file, timeout=timeout)
    for _ in range(ATTEMPTS):
        if file.is_symlink():
            raise OutputError(f"{file} is a link, which is not followed: remove it.")
        with contextlib.suppress(FileNotFoundError):  # removed by the process that was waited for, between two lines
            make_folder(file.parent)
            lock.acquire()
        # Whoever held it before may have removed the file, and with it what this lock means.
        if lock.is_locked and file.exists():
            break
        lock.release()
    else:
        raise FileNotFoundError(errno.ENOENT, "it vanishes as soon as it is made", str(file))
    try:
        yield
    finally:
        lock.release()


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing; what is written into it later is found after a power cut."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def mark(folder: Path) -> None:
    """Say in a folder that Curiax made it."""
    if not marked(folder):
        write_whole(folder / MARK, MARKED)
        sync_folder(folder)


def marked(folder: Path) -> bool:
    """Whether Curiax made a folder: names in it prove nothing."""
    try:
        return not folder.is_symlink() and read_bytes(folder / MARK, len(MARKED), "") == MARKED
    except OutputError:
        return False


def sync_folder(folder: Path) -> None:
    """Wait until the entries of a folder are on the disk: a rename that relies on them may come first otherwise."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Wait until every file and folder below a folder is on the disk, and the folder itself; links are let be."""
    for path in [*folder.rglob("*"), folder]:
        if not path.is_symlink():
            sync_folder(path)  # of a file, its bytes


def write_whole(file: Path, data: bytes) -> None:
    """Put a file in its place complete or not at all; a link there is replaced, not followed."""
    handle, name = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)
    try:
        with open(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)
        os.replace(name, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
