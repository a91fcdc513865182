"""What a report says, on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..report.content import Content


def print_content(content: Content) -> None:
    """Notices, tables and verdicts on claims, for people."""
    for table in (*content.games, *content.ratios):
        print_table(
            table.caption, [name or "method" for name in table.header], [[c.text for c in r] for r in table.rows]
        )
        if table.note:
            print(table.note)
    for table in content.tables[1:] if len(content.tables) > 1 else content.tables:
        columns = [k for k, name in enumerate(table.header) if name != "p"]
        lines = [[row[k].text for k in columns] for row in table.rows]
        print_table(table.caption, [table.header[k] or "method" for k in columns], lines)
    if content.tables:
        from ..report.table import TEST
        from ..report.words import OF_COVERAGE

        print(f"coverage (%): mean over seeds [95 % interval]. {OF_COVERAGE} {TEST}")
    for claim in content.claims:
        print(f"  {claim.verdict:9s} {claim.text}: {claim.finding}")
    for notice in content.notices:
        print(f"{notice.level}: {notice.text}")


def print_table(title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """A table for people."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for k, name in enumerate(header):
        table.add_column(name, justify="left" if k == 0 else "right", no_wrap=True)
    for line in lines:
        table.add_row(*map(escape, line))
    console = Console()
    # Not a terminal: no folding to some assumed width.
    (console if console.is_terminal else Console(width=200)).print(table)
