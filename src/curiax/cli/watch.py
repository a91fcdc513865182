"""`curiax watch`."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from .._text import clean_lines, console
from ._arguments import parse


def command_watch(args: list[str]) -> int:
    """Film a trained agent."""
    import tyro

    from ..watch import watch

    def arg(text: str, metavar: str | None = None) -> Any:
        return tyro.conf.arg(help=text, metavar=metavar)

    flag = tyro.conf.FlagCreatePairsOff[bool]
    fields = [
        ("run", Annotated[tyro.conf.Positional[Path], arg("the folder of a finished run or an export", "RUN")]),
        ("seed", Annotated[int | None, arg("which of its seeds; None: the first")], None),
        ("out", Annotated[Path | None, arg("FILE.mp4 or FILE.gif; None: watch-seed<k>.mp4 in the run's folder")], None),
        ("steps", Annotated[int | None, arg("at most so many steps; None: as many as the episodes have")], None),
        (
            "episodes",
            Annotated[int | None, arg("at most so many; None: one, or as many as --steps has room for")],
            None,
        ),
        ("fps", Annotated[int | None, arg("steps shown in a second; None: 30, and a game's true speed, 15")], None),
        ("width", Annotated[int, arg("of the film, in pixels; even")], 640),
        ("height", Annotated[int, arg("of the film, the strip of the bonus included; even")], 480),
        (
            "deterministic",
            Annotated[flag, arg("take the likeliest action instead of drawing one as in training")],
            False,
        ),
        ("trust", Annotated[flag, arg("import the task or method of a run of your own classes")], False),
        ("quiet", Annotated[flag, arg("show no progress")], False),
    ]
    kind = dataclasses.make_dataclass("Watch", fields, frozen=True)
    options = parse(
        kind, args, "watch", "Film a trained agent of a finished run, with the raw bonus of every step below."
    )
    settings = {name: value for name, value in vars(options).items() if name != "quiet"}
    with filming(quiet=options.quiet or not sys.stderr.isatty()) as tell:
        made = watch(**settings, tell=tell)
    if made.notice:
        print(f"curiax: {clean_lines(made.notice)}", file=sys.stderr)
    many = f"{made.episodes} episode{'s' if made.episodes > 1 else ''}"
    score = f", {made.score_name} {scores_text(made.scores)}" if made.scores else ""
    text = (
        f"{made.method} on {made.task}, seed {made.seed}: {len(made.bonus)} steps in {many}, "
        f"bonus {made.bonus.mean():.4g} on average, {made.bonus.max():.4g} at most{score}\n  {made.path}"
    )
    print(clean_lines(text))
    return 0


def scores_text(scores: Sequence[float]) -> str:
    """Each score, or their mean and largest where they are many."""
    if len(scores) > 8:
        return f"{sum(scores) / len(scores):,.1f} on average, {max(scores):,.0f} at most"
    return ", ".join(f"{score:,.0f}" for score in scores)


@contextlib.contextmanager
def filming(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A live bar for each part of making a film."""
    if quiet:
        yield lambda what, done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True)) as bar:
        parts: dict[str, Any] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in parts:
                parts[what] = bar.add_task(what)
            bar.update(parts[what], completed=done, total=total)

        yield tell
