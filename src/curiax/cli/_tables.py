"""What a report says, on the terminal."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._text import console

if TYPE_CHECKING:
    from ..report.content import Content

#: Characters of a line where nobody has a terminal that says how many it has room for.
ENDLESS = 200
#: Characters between two columns, and the part of a line that names in the first one may take.
GAP, MOST_NAME = 3, 0.6


def print_content(content: Content) -> None:
    """Notices, tables and verdicts on claims, for people."""
    from ..report.result_tables import ALL_TASKS, SIGNS

    for table in (*content.games, *content.ratios):
        print_table(
            table.caption, [name or "method" for name in table.header], [[c.text for c in r] for r in table.rows]
        )
        if table.note:
            print_text(table.note)
    # What is side by side for a page is too wide for a terminal.
    for table in [table for table in content.tables if table.caption != ALL_TASKS] or content.tables:
        columns = [k for k, name in enumerate(table.header) if name != "p"]
        lines = [[row[k].text for k in columns] for row in table.rows]
        print_table(table.caption, [table.header[k] or "method" for k in columns], lines)
    if content.tables:
        print_text(content.tables[0].note.replace(SIGNS, ""))
    for claim in content.claims:
        print_text(f"  {claim.verdict:9s} {claim.text}: {claim.finding}")
    for notice in content.notices:
        print_text(f"{notice.level}: {notice.text}")


def line_width() -> int:
    """The characters of a line."""
    terminal = console()
    return terminal.width if terminal.is_terminal or "COLUMNS" in os.environ else ENDLESS


def print_text(text: str) -> None:
    """Lines that break between words; what follows a break stands a little further in than the line began."""
    width = line_width()
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()))
        # A path that is too long for a line is not cut: it is there to be copied.
        further = f"{indent}    " if indent else ""
        folded = textwrap.wrap(line, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)
        print("\n".join(folded) if width != ENDLESS and len(line) > width else line)


def print_table(title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """A table for people; columns that a line has no room for follow below, beside the names once more."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    terminal = console()
    terminal.width = width = line_width()
    names = min(column_width(header[0], [line[0] for line in lines]), int(MOST_NAME * width))
    widths = [column_width(name, [line[k] for line in lines]) for k, name in enumerate(header)]
    for number, block in enumerate(blocks(widths, names, width)):
        table = Table(title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        table.title = Text(title) if number == 0 else None
        table.add_column(Text(header[0]), width=names, overflow="fold")
        for k in block:
            heading = "\n".join(textwrap.wrap(header[k], widths[k], break_long_words=False))
            table.add_column(Text(heading), justify="right", width=widths[k], overflow="fold", vertical="top")
        for line in lines:
            table.add_row(*(Text(line[k]) for k in (0, *block)))
        terminal.print()
        terminal.print(table)


def column_width(name: str, cells: Sequence[str]) -> int:
    """As wide as its widest cell, and as the longest word of its name, which may take several lines."""
    from rich.cells import cell_len

    return max(cell_len(text) for text in ("-", *name.split(), *cells))


def blocks(widths: Sequence[int], names: int, room: int) -> list[list[int]]:
    """Which columns stand side by side, the names before each block: as many as a line has room for, at least one."""
    found: list[list[int]] = [[]]
    left = room - names
    for k in range(1, len(widths)):
        if found[-1] and left < GAP + widths[k]:
            found.append([])
            left = room - names
        found[-1].append(k)
        left -= GAP + widths[k]
    return found
