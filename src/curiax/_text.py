"""Text from outside on its way to a person: a user's label, a name in a file, the path of a folder.

`clean` is the one place that decides what such text may hold. Each output escapes on top of it what it would read as
its own language: rich's markup, Markdown, HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ._errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

#: Characters of a name that are shown, and that a label may have.
LONGEST = 200
#: Stands for each character that cannot be shown, or that would act on a terminal instead of being shown.
INSTEAD = "\N{REPLACEMENT CHARACTER}"


def clean(text: str, longest: int | None = LONGEST) -> str:
    """Text as one line that only shows itself.

    Line breaks and tabs become spaces. Control characters, which a terminal obeys, marks that turn the direction of
    writing, invisible ones, and bytes of a path that are no text become `INSTEAD`. What is longer is cut.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " if c.isspace() else INSTEAD for c in text)
    return text if longest is None or len(text) <= longest else f"{text[: longest - 1]}…"


def clean_lines(text: str) -> str:
    """Text of several lines, each of them clean."""
    return "\n".join(clean(line, None) for line in text.split("\n"))


def clean_data(value: Any) -> Any:
    """Plain data with every text in it clean, the names in its objects too."""
    if isinstance(value, str):
        return clean(value, None)
    if isinstance(value, dict):
        return {clean_data(name): clean_data(part) for name, part in value.items()}
    return [clean_data(part) for part in value] if isinstance(value, list | tuple) else value


def checked_name(what: str, name: str) -> str:
    """A name that a user gives, which must be clean from the start: it goes to tables, figures and files."""
    if clean(name) != name:
        raise UsageError(
            f"{what} = {clean(repr(name))}: must be at most {LONGEST} characters that can be shown, without line "
            "breaks, control characters and marks of writing direction."
        )
    return name


def markdown(text: str) -> str:
    """Clean text as Markdown shows it: no HTML, no links and pictures, no new cell of a table."""
    # Without definitions, which `]:` makes, brackets are brackets.
    text = re.sub(r"([\\|])", r"\\\1", text).replace("](", "]\\(").replace("]:", "]\\:")
    return re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", text)


def markdown_code(text: str) -> str:
    """Clean text as code in Markdown, whatever backticks it has."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if text.startswith("`") or text.endswith("`") else f"{fence}{text}{fence}"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, of cells in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def console(*, stderr: bool = False) -> Console:
    """A terminal that takes nothing in what it shows for markup, and colours no numbers."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)
