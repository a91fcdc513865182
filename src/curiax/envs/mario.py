"""Super Mario Bros. from pixels, by nes-py's emulator.

Preprocessed as in the LBS paper's arcade experiments, after Burda et al. 2019: 14 actions, an action held for 4 frames,
the last of them shown, the screen without 8 pixels on each side, grey, 84 columns x 110 rows, of which 84 are kept,
four frames stacked. A game begins in Level 1-1 and ends with the last of three lives; there is no other limit. Nothing
is drawn: all games begin alike.

The reward is Burda et al.'s: the distance gained, in pixels that a level has been scrolled further than before. It
counts from 0 in each level, so an episode's sum is the paper's measure, the furthest scroll summed over levels. The
task tracks that sum too.

Choices:

* The paper's gym-retro needs the game's Japanese and American version, which nobody may hand on. The ROM that comes
  with gym-super-mario-bros is the European one, in which Mario moves further in each frame: distances are not
  comparable with the paper's. `region()` says which one runs; whoever owns another ROM sets `rom`.
* A game begins when its clock ticks for the first time. gym-retro's begins from a state that it keeps.
* nes-py's frames are a few dots longer than a picture. So a frame ends ever later in the picture, 12 lines after 3000
  frames; the lines above are new, those below still show the picture before.
"""

from __future__ import annotations

import hashlib
import importlib.util
import stat
from pathlib import Path
from typing import ClassVar

import equinox as eqx

from .._errors import SimulatorError, UsageError
from .._metrics import Metric
from .._settings import Count, Side
from .._types import Discrete, Grid, Spec
from ._emulator_worker import SIDE, STACK
from ._emulator_worker import Mario as Machine
from ._emulators import RANDOM_STEPS, AbstractEmulatorTask, EmulatorFleet, game_metrics, true_speed

#: The version that gym-super-mario-bros brings.
EUROPE = "Europe (PAL)"
#: The paper's.
WORLD = "World (NTSC)"
#: What is known of the game's versions: SHA-1 of the ROM without its header → region.
REGIONS = {
    "0c4992fc08d2278697339d3b48066e7b5f943598": EUROPE,
    "facee9c577a5262dbe33ac4930bb0b58c8c037f7": WORLD,
}
#: What a run's notes call the region.
VERSION = "version of the game"
#: The header of a ROM file, and what it says of this game: banks of program and of pictures; no battery, no trainer, no
#: memory controller, whose registers the saved state would lack.
HEADER, PROGRAM, PICTURES = 16, 2, 1
INSTALL = (
    "pip install 'curiax[mario]' (or, in a checkout, pip install -e '.[mario]'); nes-py needs a C++ compiler, and "
    "gym-super-mario-bros, which brings the game, is proprietary and free for educational use."
)


class Mario(AbstractEmulatorTask):
    """Super Mario Bros.; the distance is the reward, which only `none` looks at."""

    rom: str | None = eqx.field(static=True)
    skip: int = eqx.field(static=True)
    side: int = eqx.field(static=True)
    random_steps: int = eqx.field(static=True)
    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)
    budget: ClassVar[int] = 100_000_000

    def __init__(
        self,
        *,
        rom: str | None = None,
        horizon: Count | None = None,
        skip: Count = 4,
        side: Side = SIDE,
        random_steps: Count = RANDOM_STEPS,
    ) -> None:
        """Set up the task.

        Args:
            rom: a ROM file of the game that you own; None takes the European one that gym-super-mario-bros brings.
            horizon: steps of one episode at most; None for no limit (released code).
            skip: frames that an action is held for.
            side: rows and columns of a frame (paper: 84); the screen is scaled and cut in proportion.
            random_steps: steps of random play before training, on which mean and deviation of pixels are measured.
        """
        if rom is not None:
            checked_rom(Path(rom))
        self.rom, self.skip, self.side, self.random_steps, self.grids = rom, skip, side, random_steps, ()
        self.spec = Spec((side, side, STACK), Discrete(len(Machine.ACTIONS)), horizon)

    @property
    def steps_per_second(self) -> int:
        return true_speed(self.skip)

    @property
    def packages(self) -> tuple[str, ...]:
        return ("nes-py", "gym-super-mario-bros", "pillow")

    def require(self) -> None:
        library()
        if region(self.rom) in REGIONS.values():
            return
        # A file of the right size may be any game: only playing it tells.
        try:
            self.open(1).close()
        except SimulatorError as error:
            raise UsageError(f"task.rom = {str(rom_path(self.rom))!r}: {error}") from None

    def notes(self) -> dict[str, str]:
        return {VERSION: region(self.rom)}

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return game_metrics("distance", "pixels")

    def open(self, count: int, threads: int = 1, stacked: bool = True) -> EmulatorFleet:
        machine, rom = library(), rom_path(self.rom)
        checked_rom(rom)
        settings = {"library": str(machine), "rom": str(rom), "skip": self.skip}
        return EmulatorFleet("mario", settings, count, threads, 1, self.side, stacked)


def region(rom: str | None = None) -> str:
    """Which version of the game runs: Europe (PAL), World (NTSC), which the paper has, or an unknown one's digest."""
    digest = hashlib.sha1(checked_rom(rom_path(rom))[HEADER:], usedforsecurity=False).hexdigest()
    return REGIONS.get(digest, f"unknown (SHA-1 {digest})")


def library() -> Path:
    """nes-py's compiled library, found without its Python, which needs gym."""
    found = sorted(folder("nes_py", "nes-py 8.2").glob("lib_nes_env*"))
    if not found:
        raise UsageError(f"task 'mario': nes-py has no compiled library (lib_nes_env); install it again: {INSTALL}")
    return found[0]


def rom_path(rom: str | None = None) -> Path:
    """The game: a file of the user's, or the one that gym-super-mario-bros brings."""
    if rom is not None:
        return Path(rom).absolute()
    found = folder("gym_super_mario_bros", "the game of gym-super-mario-bros 7.4") / "_roms" / "super-mario-bros.nes"
    if not found.is_file():
        raise UsageError(
            f"task 'mario': gym-super-mario-bros has no game ({found} is missing). Set task.rom to a file that you "
            f"own, or install it again: {INSTALL}"
        )
    return found


def folder(package: str, what: str) -> Path:
    """Where a package lies, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"task 'mario' needs {what}: {INSTALL}")
    return Path(next(iter(spec.submodule_search_locations)))


def checked_rom(path: Path) -> bytes:
    """What a ROM file holds, if it can be this game: the emulator believes anything, and crashes."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(None, "it is no file")
        with path.open("rb") as file:
            raw = file.read(1 << 20)  # a file may say that it lies in /dev/zero
    except OSError as error:
        raise UsageError(f"task.rom = {str(path)!r}: cannot be read ({error.strerror}).") from None
    if raw[:4] != b"NES\x1a":
        raise UsageError(f"task.rom = {str(path)!r}: not a ROM file: it does not begin with an iNES header.")
    program, pictures, low, high = raw[4:8].ljust(4, b"\0")
    same = (program, pictures, low & 0xFE, high & 0xF0) == (PROGRAM, PICTURES, 0, 0)
    if not same or len(raw) != HEADER + 16384 * PROGRAM + 8192 * PICTURES:
        raise UsageError(
            f"task.rom = {str(path)!r}: not Super Mario Bros., whose cartridge holds 32 KiB of program and 8 KiB of "
            f"pictures and nothing else; this file has {len(raw)} bytes and says {16 * program} and {8 * pictures} "
            f"KiB, memory controller {low >> 4 | high & 0xF0}."
        )
    return raw
