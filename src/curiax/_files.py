"""Reading files that somebody else may have written: bounded, plain data only, errors that name the file.

Nothing read here can run code. What a file says is checked once more by those who know what it should say.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._errors import OutputError
from ._text import clean

if TYPE_CHECKING:
    import numpy as np
    import polars

#: Bytes of a JSON file; the largest that Curiax writes itself are below a thousandth of it per seed.
MOST_JSON = 64 << 20
#: How deeply lists and objects may be nested.
MOST_DEPTH = 32
#: Whole numbers that other readers of JSON and the tables can hold.
MOST_WHOLE = 2**63


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
    return OutputError(f"{file} is damaged ({why}): {remedy}")


def read_bytes(file: Path, most: int, remedy: str) -> bytes:
    """A regular file of at most `most` bytes; devices, pipes and larger files are refused before they are read."""
    try:
        # A pipe that nobody writes to must not hold the reader.
        with open(file, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as stream:
            about = os.fstat(stream.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise damaged(file, "it is no regular file", remedy)
            if about.st_size > most:
                raise damaged(file, f"it has {about.st_size:,} bytes, at most {most:,} are expected", remedy)
            return stream.read(about.st_size)
    except (OSError, ValueError, MemoryError) as error:
        raise damaged(file, getattr(error, "strerror", None) or str(error) or "too large", remedy) from None


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
        value = json.loads(data.decode("utf-8"), object_pairs_hook=once, parse_constant=constant)
        refuse_strange(value)
    except RecursionError:
        raise damaged(file, "it is nested too deeply", remedy) from None
    except ValueError as error:
        raise damaged(file, str(error), remedy) from None
    return value


def refuse_strange(value: Any) -> None:
    """Refuse what JSON allows and nothing else can take: endless nesting, numbers without bounds, half characters."""
    waiting = [(value, 0)]
    while waiting:
        thing, depth = waiting.pop()
        if depth > MOST_DEPTH:
            raise ValueError("it is nested too deeply")
        if isinstance(thing, str):
            thing.encode("utf-8")  # half of a surrogate pair is no text: UnicodeEncodeError is a ValueError
        elif isinstance(thing, dict):
            waiting += [(part, depth + 1) for pair in thing.items() for part in pair]
        elif isinstance(thing, list):
            waiting += [(part, depth + 1) for part in thing]
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

    try:
        return safetensors.numpy.load(data)
    except (safetensors.SafetensorError, KeyError, TypeError, OverflowError, ValueError) as error:
        raise ValueError(str(error)[:200] or type(error).__name__) from None


def sync_folder(folder: Path) -> None:
    """Wait until the entries of a folder are on the disk: a rename that relies on them may come first otherwise."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
