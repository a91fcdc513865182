"""Atari games from pixels, by the Arcade Learning Environment.

Bellemare et al. 2013; preprocessed as in the LBS paper's arcade experiments, after Burda et al. 2019: no sticky
actions, the game's own minimal set of actions, 1 to 30 frames without action at the start, an action held for 4 frames,
the maximum of the last two, grey, 84 x 84, four frames stacked, 4501 steps of the agent at most. Lives, reward and
start are the game's own: no end at a lost life, no clipped reward, no button pressed at the start.

Choices:

* Grey is made of each of the two frames before the maximum is taken, as ale-py's own vector environment does it; the
  released code takes the maximum of colours first.
* Every game begins from the same state of the machine, and the number of frames without action is all that differs.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import equinox as eqx

from .._errors import UsageError, unknown
from .._settings import Count, CountOrZero, Fraction, Side
from .._types import Axis, Discrete, Grid, Spec
from ._emulator_worker import SIDE, STACK
from ._emulators import RANDOM_STEPS, AbstractEmulatorTask, EmulatorFleet, true_speed

#: What the names of games as tasks begin with.
ATARI = "atari:"
#: The games of the paper, by ale-py's names.
PAPER = (
    *("beam_rider", "breakout", "montezuma_revenge", "pong"),
    *("qbert", "riverraid", "seaquest", "space_invaders"),
)
#: Where in the machine's memory Montezuma's Revenge keeps the number of the room, and how many rooms its level has.
ROOM, ROOMS = 3, 24


class Atari(AbstractEmulatorTask):
    """A game of the Atari 2600; its score is the reward, which only `none` looks at.

    In Montezuma's Revenge the rooms that were visited are counted.
    """

    game: str = eqx.field(static=True)
    sticky: float = eqx.field(static=True)
    noops: int = eqx.field(static=True)
    skip: int = eqx.field(static=True)
    side: int = eqx.field(static=True)
    random_steps: int = eqx.field(static=True)
    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)
    budget: ClassVar[int] = 100_000_000

    def __init__(
        self,
        *,
        game: str = "breakout",
        horizon: Count = 4501,
        sticky: Fraction = 0.0,
        noops: CountOrZero = 30,
        skip: Count = 4,
        side: Side = SIDE,
        random_steps: Count = RANDOM_STEPS,
    ) -> None:
        """Set up the task.

        Args:
            game: a game that ale-py has, as `breakout` or `space_invaders`.
            horizon: steps of one episode at most (released code: the one after 4500).
            sticky: chance that the machine repeats the last action instead (paper: 0).
            noops: frames without action at the start: 1 to so many, drawn anew for each episode; 0 for none.
            skip: frames that an action is held for.
            side: rows and columns of a frame (paper: 84).
            random_steps: steps of random play before training, on which mean and deviation of pixels are measured.
        """
        self.game = known(game)
        self.sticky, self.noops, self.skip, self.side = float(sticky), noops, skip, side
        self.random_steps = random_steps
        self.spec = Spec((side, side, STACK), Discrete(actions(self.game)), horizon)
        rooms = Grid("rooms", (Axis("room", -0.5, ROOMS - 0.5, ROOMS),), "floor")
        self.grids = (rooms,) if self.game == "montezuma_revenge" else ()

    @property
    def steps_per_second(self) -> int:
        return true_speed(self.skip)

    @property
    def packages(self) -> tuple[str, ...]:
        return ("ale-py", "pillow")

    def require(self) -> None:
        import_ale(f"atari:{self.game}")

    def open(self, count: int, threads: int = 1, stacked: bool = True) -> EmulatorFleet:
        tracked = [ROOM] if self.grids else []
        settings = {"game": self.game, "sticky": self.sticky, "noops": self.noops, "skip": self.skip}
        settings = {**settings, "tracked": tracked}
        return EmulatorFleet("atari", settings, count, threads, len(tracked), self.side, stacked)


def import_ale(task: str) -> Any:
    """ale-py, or an error that says how to install it."""
    try:
        import ale_py
    except ImportError as error:
        raise UsageError(
            f"task {task!r} needs ale-py 0.12 ({error}): pip install 'curiax[atari]' (or, in a checkout, "
            "pip install -e '.[atari]')."
        ) from None
    return ale_py


def known(game: str) -> str:
    """A game by ale-py's name, whatever its spelling: Space Invaders, SpaceInvaders, space-invaders."""
    roms = import_ale(f"atari:{game}").roms
    names = {plain(name): name for name in roms.get_all_rom_ids()}
    if plain(game) not in names:
        raise unknown("game", game, names.values())
    return names[plain(game)]


def plain(name: str) -> str:
    """A name without case and separators."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


@functools.cache
def actions(game: str) -> int:
    """How many actions a game knows."""
    ale_py = import_ale(f"atari:{game}")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.loadROM(str(ale_py.roms.get_rom_path(game)))
    return len(ale.getMinimalActionSet())
