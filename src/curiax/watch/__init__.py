"""Watching a trained agent: play one seed's policy in one environment, and film it with the bonus below.

`play.py` plays, `film.py` draws and encodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import OutputError, UsageError
from .._files import as_path
from ..experiments import folder, saved
from ..experiments.scoring import refuse_large_memory
from ..experiments.spec import Plan
from ..paper.suites import score_name
from ..train import devices
from . import film
from .play import Tell, play

#: Steps to watch of a task whose episodes may never end.
ENDLESS = 1000
LEAST_SIZE, MOST_SIZE = (320, 240), (3840, 2160)
MOST_STEPS = 100_000
#: Steps shown in a second, where there is no true speed; frames that a game's machine makes in one.
FPS = 30


@dataclass(frozen=True)
class Watched:
    """A film that was made."""

    path: Path
    task: str
    method: str
    seed: int
    bonus: np.ndarray
    episodes: int
    #: What the user should know of how it was made.
    notice: str = ""
    #: Of a game, the score of each episode, the last one's as far as it was played.
    scores: tuple[float, ...] = ()
    #: What that is called.
    score_name: str = "score"


def watch(
    run: str | Path,
    *,
    seed: int | None = None,
    out: str | Path | None = None,
    steps: int | None = None,
    episodes: int | None = None,
    fps: int | None = None,
    width: int = 640,
    height: int = 480,
    deterministic: bool = False,
    trust: bool = False,
    tell: Tell = lambda what, done, total: None,
) -> Watched:
    """Film a trained agent of a finished run or an export, as mp4 or gif.

    The policy and the statistics of observations are as training left them; the bonus is the model's raw one. The
    same arguments give the same film.

    Args:
        run: the run's folder, or that of an export.
        seed: which of its seeds; None is the first.
        out: the film's file; None is `watch-seed<k>.mp4` in the run's folder. Only a film that was made so before is
            replaced.
        steps: at most so many steps; None is as many as the episodes have.
        episodes: at most so many episodes; None is one, or as many as `steps` has room for.
        fps: steps shown in a second; None is 30, and a game's true speed, which is 15 where an action is held for 4
            frames.
        width: pixels of the film, the strip included.
        height: likewise.
        deterministic: take the likeliest action instead of drawing one as in training.
        trust: import a user's own task or method.
        tell: called while playing and while encoding.
    """
    out = None if out is None else as_path("out", out)
    check_request(out, steps, episodes, fps, (width, height))
    where = as_path("run", run)
    refuse_others(where)
    devices.prepare()
    plan, trained = saved.read(where, trust=trust)
    seed = trained.seeds[0] if seed is None else seed
    learnt, notice = trained.one(seed), ""
    refuse_large_memory(where / saved.AGENTS, getattr(learnt.networks, "curiosity", None))
    if out is None:
        ending = ".mp4" if film.ffmpeg() else ".gif"
        notice = "" if ending == ".mp4" else "a gif, because an mp4 needs an encoder: pip install 'curiax[video]'"
        out = where / f"watch-seed{seed}{ending}"
    elif Path(out).suffix.lower() == ".mp4" and film.ffmpeg() is None:
        raise UsageError("an mp4 needs an encoder: pip install 'curiax[video]', or give --out a name ending in .gif.")
    film.refuse_to_replace(Path(out))
    reel = play(plan, learnt, seed, limits(plan, steps, episodes), deterministic, (width, height), tell)
    film.encode(
        reel, Path(out), fps or plan.setup.task.steps_per_second or FPS, lambda done: tell("encoding", done, len(reel))
    )
    last = np.flatnonzero([*reel.ended[:-1], True])
    scores = () if reel.score is None else tuple(reel.score[last].tolist())
    task, method = plan.task_entry.name, plan.learner
    return Watched(Path(out), task, method, seed, reel.bonus, len(last), notice, scores, score_name(task))


def check_request(out: Any, steps: Any, episodes: Any, fps: Any, size: tuple[int, int]) -> None:
    """Refuse a film that cannot be made, before anything is loaded."""
    if out is not None and Path(out).suffix.lower() not in (".mp4", ".gif"):
        raise UsageError(f"--out {out}: the name must end in .mp4 or .gif.")
    if out is not None and Path(out).is_dir():
        raise UsageError(f"--out {out} is a folder: name a file in it.")
    for name, number, most in (("steps", steps, MOST_STEPS), ("episodes", episodes, MOST_STEPS), ("fps", fps, 120)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most):
            raise UsageError(f"--{name} {number}: must be a whole number from 1 to {most:,}.")
    for name, pixels, least, most in zip(("width", "height"), size, LEAST_SIZE, MOST_SIZE, strict=True):
        if isinstance(pixels, bool) or not isinstance(pixels, int) or not least <= pixels <= most or pixels % 2:
            raise UsageError(f"--{name} {pixels}: must be an even number from {least} to {most}.")


def refuse_others(where: Path) -> None:
    """Say what there is where the folder is no run, but holds some."""
    if folder.read_manifest(where) is not None or (where / saved.AGENTS).exists():
        return
    if not where.is_dir():
        raise OutputError(
            f"{where} is not a folder of a run{', but a file' if where.exists() else ': it is not there'}."
        )
    below = sorted(path.parent for pattern in ("*", "runs/*") for path in where.glob(f"{pattern}/{folder.MANIFEST}"))
    runs = [path for path in below if not path.name.startswith(".") and readable(path)]
    if runs:
        lines = [*(f"\n  {path}" for path in runs[:20]), *(["\n  ..."] if len(runs) > 20 else [])]
        raise OutputError(f"{where} holds {len(runs)} run{'s' * (len(runs) > 1)}; name one to watch:{''.join(lines)}")


def readable(path: Path) -> bool:
    """Whether a folder is a run that could be watched."""
    try:
        return folder.read_manifest(path) is not None
    except OutputError:
        return False


def limits(plan: Plan, steps: int | None, episodes: int | None) -> tuple[int, int]:
    """The most steps and episodes to play."""
    horizon = plan.setup.task.spec.horizon or ENDLESS
    if episodes is None:
        episodes = 1 if steps is None else steps
    return min(steps or MOST_STEPS, MOST_STEPS, horizon * episodes), episodes
