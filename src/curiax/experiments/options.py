"""How a run is carried out: what keeps it safe, not what it computes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from .._errors import UsageError

OnNonfinite = Literal["stop", "drop"]


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out; two runs that differ only here are the same run.

    Args:
        checkpoint_seconds: so much work at most is lost to a kill: each checkpoint is on the disk so many seconds after
            the one before, or as soon as that is possible where iterations or the disk take longer. Infinity makes one
            only when the run is told to stop.
        keep: how many checkpoints stay until the run is finished.
        on_nonfinite: what happens at a NaN, an infinity or a value beyond all bounds: `stop` ends the run and says
            where it was; `drop` goes on and leaves that seed out of the results, the others being what they would have
            been.
        allow_drift: continue a run that was begun with other versions of packages or another layout of devices: the
            last bits will differ, and the manifest says so.
        wait: where another process works on the same run, wait for it instead of leaving.
        devices_per_seed: of arcade games, so many devices share the environments of each seed; only the last bits
            differ. A run that is continued keeps the number that it was begun with.
        headline: the metric that is shown first, as `coverage/bins`; by default the preset's, or what the task is
            about.
    """

    checkpoint_seconds: float = 15.0
    keep: int = 3
    on_nonfinite: OnNonfinite = "stop"
    allow_drift: bool = False
    wait: bool = False
    devices_per_seed: int = 1
    headline: str | None = None

    def __post_init__(self) -> None:
        seconds = self.checkpoint_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds) or seconds < 0:
            raise UsageError(f"checkpoint_seconds = {seconds!r}: must be a number of seconds, 0 or more.")
        if isinstance(self.keep, bool) or not isinstance(self.keep, int) or self.keep < 1:
            raise UsageError(f"keep = {self.keep!r}: must be 1 or more.")
        team = self.devices_per_seed
        if isinstance(team, bool) or not isinstance(team, int) or team < 1:
            raise UsageError(f"devices_per_seed = {team!r}: must be 1 or more.")
        if self.headline is not None and not isinstance(self.headline, str):
            raise UsageError(f"headline = {self.headline!r}: must be the name of a metric, such as 'coverage/bins'.")
        if self.on_nonfinite not in get_args(OnNonfinite):
            raise UsageError(
                f"on_nonfinite = {self.on_nonfinite!r}: must be one of {', '.join(get_args(OnNonfinite))}."
            )
