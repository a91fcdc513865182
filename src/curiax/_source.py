"""Which code is running: the commit it was checked out at, and a digest of all that decides a run's numbers."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import re
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
#: What a run's numbers follow from, once its settings are known.
DECISIVE = ("_frames.py", "_sound.py", "_stats.py", "_tree.py", "_types.py", "dist.py", "nn.py")
DECISIVE_FOLDERS = ("agents", "curiosity", "envs", "train")
#: What lies there and only draws for people.
DRAWING = "_picture.py"
#: The digest of the present code. Whoever changes it looks with `scripts/guard.py` whether every method still computes
#: the same bits: if so, the one from before is added below, else what is there goes.
NOW = "67bdd5140f7582ec1db67f91f83bf983"
#: Digests of earlier code that gave the same numbers.
ALIKE = frozenset(
    {
        "2cf068e11c5598591e0c602c77b53fa9",  # 0.5.0
        "7b3b3a987da57c1b39073091c72811b3",  # how nes-py's machine is found in memory
        "b02c686fef8b22a962dbe69c4b1f484e",  # agents that own all that learns; metrics beside what computes them
        "01524f34925b67707009693f0464ab70",  # names that say what a value is
        "ba2b4c09895dadded9acf1caa95e419e",  # checks are public; keys of streams are made in one place
    }
)
#: Text in triple quotes that fills its lines.
DOCSTRING = re.compile(r'^[ \t]*r?"""(?:[^"]|"(?!""))*"""[ \t]*$', re.MULTILINE)


@dataclass(frozen=True)
class Code:
    """The running code.

    Args:
        commit: the commit of the checkout, or the one that was installed from; None where neither is known.
        changed: whether the checkout differs from that commit; None where git could not tell.
        digest: of the source files that decide numbers, without their comments.
    """

    commit: str | None
    changed: bool | None
    digest: str

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def __str__(self) -> str:
        if self.commit is None:
            return "an unknown commit"
        more = {True: " and uncommitted changes", None: ", perhaps with uncommitted changes", False: ""}
        return f"commit {self.commit[:10]}{more[self.changed]}"


@functools.cache
def code() -> Code:
    """The code of this process; asked once, as nothing that is imported later changes what was."""
    commit = _git("rev-parse", "HEAD") if _git("ls-files", "--error-unmatch", "_source.py") else None
    if commit is None:
        return Code(_installed_from(), False, _digest())
    status = _git("status", "--porcelain", "--", ".")
    return Code(commit, None if status is None else status != "", _digest())


def gives_the_same(digest: str) -> bool:
    """Whether the present code gives the numbers of the code with this digest."""
    return code().digest == digest or (code().digest == NOW and digest in ALIKE)


def _digest() -> str:
    files = [ROOT / name for name in DECISIVE]
    files += [file for folder in DECISIVE_FOLDERS for file in sorted((ROOT / folder).glob("*.py"))]
    files = [file for file in files if file.name != DRAWING]
    whole = hashlib.blake2b(digest_size=16)
    for file in files:
        whole.update(f"{file.relative_to(ROOT).as_posix()}\n{bare(file.read_text(encoding='utf-8'))}\n".encode())
    return whole.hexdigest()


def bare(source: str) -> str:
    """Source code without docstrings, comments on lines of their own, and empty lines: better words change no number.

    By the form of lines, as Curiax's own files are written: parsing them all would take a tenth of a second at every
    start. The text that is left is taken as it stands, so that every version of Python gives the same digest.
    """
    lines = DOCSTRING.sub("", source).splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))


def _git(*words: str) -> str | None:
    """What git says of this folder; None where there is no git, no repository, or no answer."""
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _installed_from() -> str | None:
    """The commit that pip installed from, as it notes for `pip install git+...`."""
    try:
        text = importlib.metadata.distribution("curiax").read_text("direct_url.json")
        commit = json.loads(text or "{}").get("vcs_info", {}).get("commit_id")
    except (importlib.metadata.PackageNotFoundError, ValueError, AttributeError):
        return None
    return commit if isinstance(commit, str) else None
