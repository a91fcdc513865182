"""The process that some emulators run in: it does as the fleet in `_emulators.py` says, through shared memory.

It is run as a script, and imports no more than NumPy, Pillow and the emulator: it starts in a fraction of a second and
needs little memory, where JAX would take a second and hundreds of megabytes in each of many processes. A process
rather than a thread, because an emulator that crashes or hangs must not take the training with it.

Commands come as single bytes on the standard input, and each is answered by one on the standard output: `.` when it was
done, `!` when it failed, with the reason in the shared memory. At the end of the input the process ends.
"""

from __future__ import annotations

import abc
import ctypes
import hashlib
import json
import mmap
import os
import struct
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

#: Frames are grey and square, by default of so many rows and columns, and so many of them are seen at once.
SIDE, STACK = 84, 4
#: Bytes for the state of one emulator, for one worker's error message, and of the largest screen.
STATE, MESSAGE, SCREEN = 1 << 16, 4096, (256, 256, 3)
STEP, PLAY, RESET, SAVE, LOAD, DRAW = (bytes([letter]) for letter in b"sprkld")
DONE, FAILED = b".", b"!"
#: How much of the grey is red, green and blue.
GREY = (0.299, 0.587, 0.114)


class Sizes(NamedTuple):
    """What decides how much is shared: emulators, processes, and facts tracked of each emulator."""

    machines: int
    workers: int
    facts: int
    #: Rows and columns of a frame, and frames of a stack.
    side: int = SIDE
    depth: int = STACK


def columns(sizes: Sizes) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """What is shared: name → type and shape. The first axis counts emulators, or workers."""
    count, workers, facts, side, depth = sizes
    return {
        "action": (np.int32, (count,)),
        "seed": (np.uint32, (count,)),
        "chosen": (np.bool_, (count,)),
        "due": (np.bool_, (count,)),
        "last": (np.uint8, (count, side, side)),
        "stack": (np.uint8, (count, depth, side, side)),
        "reward": (np.float64, (count,)),
        "over": (np.bool_, (count,)),
        "facts": (np.float64, (count, facts)),
        "state": (np.uint8, (count, STATE)),
        "state_size": (np.int64, (count,)),
        "screen": (np.uint8, (workers, *SCREEN)),
        "screen_size": (np.int64, (workers, 2)),
        "message": (np.uint8, (workers, MESSAGE)),
    }


def size_of(sizes: Sizes) -> int:
    """Bytes of the shared memory."""
    return sum(padded(kind, shape) for kind, shape in columns(sizes).values())


def padded(kind: Any, shape: tuple[int, ...]) -> int:
    """Bytes of a column, up to the next line of a processor's cache."""
    return -(-int(np.prod(shape)) * np.dtype(kind).itemsize // 64) * 64


def views(memory: mmap.mmap, sizes: Sizes) -> dict[str, np.ndarray]:
    """The columns of the shared memory as arrays."""
    found, at = {}, 0
    for name, (kind, shape) in columns(sizes).items():
        found[name] = np.ndarray(shape, kind, memory, at)
        at += padded(kind, shape)
    return found


class AbstractEmulator(abc.ABC):
    """One machine with a game in it."""

    @abc.abstractmethod
    def reset(self, seed: int) -> None:
        """Begin a new episode."""

    @abc.abstractmethod
    def step(self, action: int) -> tuple[float, bool]:
        """One action of the agent; returns the score won and whether the game is over."""

    @abc.abstractmethod
    def facts(self) -> tuple[float, ...]:
        """What is tracked of the machine, for evaluation only."""

    @abc.abstractmethod
    def save(self) -> bytes:
        """Everything that decides what happens next."""

    @abc.abstractmethod
    def load(self, state: bytes) -> None:
        """Put a state back."""

    @abc.abstractmethod
    def screen(self) -> np.ndarray:
        """The screen in colours, `[height, width, 3]`."""


class Atari(AbstractEmulator):
    """A game of the Atari 2600, preprocessed as in large-scale curiosity (Burda et al. 2019).

    A game begins with 1 to 30 frames without action. An action is held for `skip` frames; what is shown is the
    pixelwise maximum of the last two of them, in grey, scaled to the frame by Pillow's bilinear filter, without a crop.
    """

    #: Beginnings of a game, by the number of frames without action: a game begins often, and they would be played anew.
    _beginnings: ClassVar[dict[tuple[str, int], tuple[Any, np.ndarray]]] = {}
    #: What a state holds before the machine's own: the three that actions stick by.
    OWN: ClassVar[struct.Struct] = struct.Struct("<IQI")

    def __init__(self, game: str, sticky: float, noops: int, skip: int, tracked: list[int]) -> None:
        from ale_py import ALEInterface, LoggerMode, roms

        ALEInterface.setLoggerMode(LoggerMode.Error)
        self._ale = ale = ALEInterface()
        # All that is random is the library's own. ALE would draw whether an action sticks, from a stream that a state
        # put back would begin anew, the same for every game.
        ale.setFloat("repeat_action_probability", 0.0)
        ale.setInt("random_seed", 0)
        ale.loadROM(str(roms.get_rom_path(game)))
        ale.reset_game()
        self._fresh = ale.cloneState(include_rng=True)
        self._actions = ale.getMinimalActionSet()
        self._game, self._noops, self._skip, self._tracked, self._sticky = game, noops, skip, tracked, sticky
        #: The episode's seed, frames of it so far, and the machine's last action.
        self._seed, self._frames, self._last_action = 0, 0, 0
        #: What is to be scaled to the frame.
        self.picture: np.ndarray = np.zeros(ale.getScreenDims(), np.uint8)
        self._before = np.zeros_like(self.picture)

    def reset(self, seed: int) -> None:
        frames = 1 + seed % self._noops if self._noops else 0
        if (self._game, frames) not in self._beginnings:
            self._beginnings[self._game, frames] = self._begin(frames)
        state, picture = self._beginnings[self._game, frames]
        self._ale.restoreState(state)
        self.picture[...] = picture
        self._seed, self._frames, self._last_action = seed, 0, 0

    def _begin(self, frames: int) -> tuple[Any, np.ndarray]:
        """The game after so many frames without action, and what it shows then."""
        ale = self._ale
        ale.restoreState(self._fresh)
        for _ in range(frames):
            ale.act(self._actions[0])
            if ale.game_over():
                ale.restoreState(self._fresh)
        return ale.cloneState(include_rng=True), ale.getScreenGrayscale()

    def step(self, action: int) -> tuple[float, bool]:
        ale, score, over = self._ale, 0.0, False
        for left in reversed(range(self._skip)):
            if not (self._sticky and self._sticks()):
                self._last_action = action
            score += ale.act(self._actions[self._last_action])
            over = ale.game_over()
            if left == 1 and not over:
                ale.getScreenGrayscale(self._before)
            if over:
                break
        ale.getScreenGrayscale(self.picture)
        if not over and self._skip > 1:
            np.maximum(self.picture, self._before, out=self.picture)
        return score, over

    def _sticks(self) -> bool:
        """Whether the machine repeats what it was last told: drawn for each frame, from the episode's seed."""
        self._frames += 1
        drawn = hashlib.blake2b(struct.pack("<IQ", self._seed, self._frames), digest_size=8).digest()
        return int.from_bytes(drawn, "little") < self._sticky * 2**64

    def facts(self) -> tuple[float, ...]:
        memory = self._ale.getRAM() if self._tracked else ()
        return tuple(float(memory[place]) for place in self._tracked)

    def save(self) -> bytes:
        return (
            self.OWN.pack(self._seed, self._frames, self._last_action)
            + self._ale.cloneState(include_rng=True).serialize()
        )

    def load(self, state: bytes) -> None:
        from ale_py import ALEState

        self._seed, self._frames, self._last_action = self.OWN.unpack_from(state)
        if self._last_action >= len(self._actions):
            raise ValueError(f"the state's last action is {self._last_action}; the game has {len(self._actions)}")
        self._ale.restoreState(ALEState(state[self.OWN.size :]))

    def screen(self) -> np.ndarray:
        return self._ale.getScreenRGB()


class AbstractShower(abc.ABC):
    """What makes frames of the screens of a group of emulators."""

    #: Emulators of a group, at most.
    MOST: ClassVar[int] = 1

    @abc.abstractmethod
    def __init__(self, emulators: Sequence[Any], side: int) -> None:
        """Get to know the emulators."""

    @abc.abstractmethod
    def show(self, chosen: Sequence[int], frames: np.ndarray) -> None:
        """Write the frames of some emulators of the group; the others have not moved."""


class ChangedRows(AbstractShower):
    """Scales the pictures of several Ataris as Pillow's bilinear filter does, to the bit, but only what has changed.

    From one step to the next most rows of most games stay as they are. So the changed rows of all pictures are made
    narrower by Pillow in one call, and of the narrow rows those rows of the frames that they are part of. Always in
    this order, as the bytes between the two passes are rounded; Pillow 13 takes the other one for some sizes.
    """

    #: The more at once, the less it costs, as long as they fit into a processor's cache.
    MOST = 8
    #: Bits of a weight behind the point, as in Pillow.
    BITS = 22

    def __init__(self, emulators: Sequence[Atari], side: int) -> None:
        count, (height, width) = len(emulators), emulators[0].picture.shape
        # The rows of all pictures, of those that were scaled last, of the narrow ones and of the frames.
        self._new, self._old = (np.zeros((count * height, width), np.uint8) for _ in range(2))
        self._narrow, self._frames = (np.zeros((count * rows, side), np.uint8) for rows in (height, side))
        for emulator, picture in zip(emulators, self._new.reshape(count, height, width), strict=True):
            emulator.picture = picture
        sources, weights = triangle(height, side)
        self._sources = np.concatenate([sources + height * number for number in range(count)])
        self._weights = np.tile(weights, (count, 1))

    def show(self, chosen: Sequence[int], frames: np.ndarray) -> None:
        # Eight pixels are compared at once.
        changed = (self._new.view(np.uint64) != self._old.view(np.uint64)).any(axis=1)
        if changed.any():
            self._scale(changed)
        scaled = self._frames.reshape(frames.shape)
        for number in chosen:
            frames[number] = scaled[number]

    def _scale(self, changed: np.ndarray) -> None:
        from PIL import Image

        rows, side = np.flatnonzero(changed), self._frames.shape[1]
        pixels = self._new.take(rows, axis=0)
        self._old[rows] = pixels
        picture = Image.frombuffer("L", pixels.shape[::-1], pixels, "raw", "L", 0, 1)
        self._narrow[rows] = np.asarray(picture.resize((side, len(rows)), Image.Resampling.BILINEAR))
        touched = np.flatnonzero(changed.take(self._sources.T).any(axis=0))
        parts = self._narrow.take(self._sources[touched], axis=0).astype(np.int32)
        summed = np.einsum("rsx,rs->rx", parts, self._weights[touched])
        self._frames[touched] = (summed + (1 << self.BITS >> 1)) >> self.BITS


def triangle(size: int, small: int) -> tuple[np.ndarray, np.ndarray]:
    """How Pillow's bilinear filter scales one axis: for each place the places it is made of and their whole weights."""
    scale = size / small
    width, centres = max(scale, 1.0), (np.arange(small)[:, None] + 0.5) * scale
    begin = np.maximum((centres - width + 0.5).astype(int), 0)
    end = np.minimum((centres + width + 0.5).astype(int), size)
    places = begin + np.arange((end - begin).max())
    weights = np.maximum(1.0 - np.abs((places + 0.5 - centres) / width), 0.0) * (places < end)
    weights /= weights.sum(axis=1, keepdims=True)
    whole = (weights * (1 << ChangedRows.BITS) + 0.5).astype(np.int32)
    # Beyond the end weights are 0; any place will do.
    return np.minimum(places, size - 1), whole


class Nes:
    """A Nintendo Entertainment System in nes-py's compiled library, called without its Python.

    The library keeps one snapshot inside the machine and hands out none. But the machine is one object in memory, and
    what it consists of is found there: the screen and the main memory by their addresses, which the library tells, and
    before the screen, in the order of their declaration, the picture memory, the palette, the processor's registers,
    the sprites and the picture processor's registers. Registers of a cartridge are left out: this one has none.
    """

    #: The machine's screen, and how many bytes of the object before it are looked at: no more than lie there.
    HEIGHT, WIDTH, BEFORE = 240, 256, 240
    #: Bytes of main memory, of picture memory, of the palette, of the sprites and of the processor's registers.
    MAIN, PICTURE, PALETTE, SPRITES, REGISTERS = 2048, 2048, 32, 256, 16
    #: Sprites on one line, at most.
    LINE = 8
    #: The picture processor's first registers: what it does, one of four, the second being to draw; dot and line.
    DOINGS, DRAWING, DOTS, LINES = 4, 1, 341, 262

    def __init__(self, library: str, rom: str) -> None:
        self._calls = calls = ctypes.CDLL(library)
        calls.Initialize.argtypes, calls.Initialize.restype = [ctypes.c_wchar_p], ctypes.c_void_p
        for call in (calls.Screen, calls.Memory, calls.Reset, calls.Step):
            call.argtypes, call.restype = [ctypes.c_void_p], ctypes.c_void_p
        calls.Reset.restype = calls.Step.restype = None
        calls.Controller.argtypes, calls.Controller.restype = [ctypes.c_void_p, ctypes.c_uint], ctypes.c_void_p
        # The library makes a byte of each letter: so it gets letters that are the bytes of the path.
        self._console = calls.Initialize(os.fsencode(rom).decode("latin-1"))
        screen = calls.Screen(self._console)
        self.screen = memory_at(screen, np.uint32, self.HEIGHT, self.WIDTH)
        self.memory = memory_at(calls.Memory(self._console), np.uint8, self.MAIN)
        pads = calls.Controller(self._console, 0)
        self.buttons = memory_at(pads, np.uint8, 1)
        sprites, pictures = self._find(screen)
        #: A vector whose length changes: where its pointers are.
        self._line = memory_at(sprites + 24, np.uint64, 3)
        flat = [
            (pads - 1, 6),  # two pads: strobe, buttons, what is still to be read of them
            (self._pointer(pictures), self.PICTURE),
            (self._pointer(pictures + 56), self.PALETTE),
            (pictures + 88, self.REGISTERS),
            (self._pointer(sprites), self.SPRITES),
            (sprites + 48, screen - sprites - 48),
        ]
        self._parts = [memory_at(where, np.uint8, size) for where, size in flat]
        #: Where in a state the picture processor's registers begin.
        self._dots = 1 + self.LINE + sum(size for _, size in flat[:-1])
        # Some registers have no value when the machine is made; they get one, so that all machines are alike.
        for part in self._parts:
            part[:] = 0
        self.screen[:] = 0
        calls.Reset(self._console)
        if self._line[2] - self._line[0] != self.LINE:
            raise RuntimeError("nes-py's library is not the one of version 8.2: its state cannot be read")
        self._parts += [self.memory, self.screen.reshape(-1).view(np.uint8)]

    def _find(self, screen: int) -> tuple[int, int]:
        """Where the objects with the sprites and with the picture memory are: told by the lengths of their vectors.

        A full vector ends where its memory ends. What has no value yet, registers say, may hold anything that lay there
        before, two addresses of some other vector too; that lies behind what is looked for.
        """
        start = screen - screen % 8 - self.BEFORE
        words = memory_at(start, np.uint64, self.BEFORE // 8)
        full = [k for k in range(len(words) - 2) if words[k] and words[k + 1] == words[k + 2]]
        long = {k: int(words[k + 1]) - int(words[k]) for k in full}
        sprites = [k for k, size in long.items() if size == self.SPRITES]
        pictures = [k for k, size in long.items() if size == self.PICTURE and long.get(k + 7) == self.PALETTE]
        if not sprites or not pictures:
            raise RuntimeError("nes-py's library is not the one of version 8.2: its state cannot be found in memory")
        return start + 8 * sprites[0], start + 8 * pictures[0]

    def _pointer(self, where: int) -> int:
        return int(memory_at(where, np.uint64, 1)[0])

    def frame(self, buttons: int) -> None:
        """One frame, with some buttons held."""
        self.buttons[0] = buttons
        self._calls.Step(self._console)

    def save(self) -> bytes:
        """The whole machine. The screen is part of it, as a frame may end in the middle of a picture."""
        begin, end = int(self._line[0]), int(self._line[1])
        line = memory_at(begin, np.uint8, self.LINE).tobytes()[: end - begin]
        parts = [part.tobytes() for part in self._parts]
        return b"".join([bytes([len(line)]), line.ljust(self.LINE, b"\0"), *parts])

    @property
    def size(self) -> int:
        """Bytes of a state."""
        return 1 + self.LINE + sum(part.size for part in self._parts)

    def load(self, state: bytes) -> None:
        """Put a machine's state into this one."""
        if len(state) != self.size or state[0] > self.LINE:
            raise ValueError(f"{len(state)} bytes are not the state of a machine")
        # What would have the library write beyond its memory.
        doing, dot, line = struct.unpack_from("<3i", state, self._dots)
        lines = self.HEIGHT if doing == self.DRAWING else self.LINES
        if not (0 <= doing < self.DOINGS and 0 <= dot <= self.DOTS and 0 <= line < lines):
            raise ValueError(f"a machine cannot be at dot {dot} of line {line} in state {doing}")
        if max(state[1 : 1 + self.LINE]) >= self.SPRITES // 4:
            raise ValueError("a machine has no such sprite")
        begin = int(self._line[0])
        memory_at(begin, np.uint8, self.LINE)[:] = np.frombuffer(state, np.uint8, self.LINE, 1)
        self._line[1] = begin + state[0]
        at = 1 + self.LINE
        for part in self._parts:
            part[:] = np.frombuffer(state, np.uint8, part.size, at)
            at += part.size


def memory_at(where: int, kind: Any, *shape: int) -> np.ndarray:
    """Some memory of this process as an array."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    return np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(where)), kind).reshape(shape)


class Mario(AbstractEmulator):
    """Super Mario Bros., preprocessed as in large-scale curiosity (Burda et al. 2019).

    A game begins in Level 1-1 when its clock has ticked for the first time, with three lives. An action is held for
    `skip` frames, and the last of them is shown. Eight rows and columns are cut off on each side, as gym-retro's
    machine does it: what televisions hid, where games leave scraps. 224 rows of 240 columns are left; they are made
    grey, scaled to 110 x 84 by Pillow's bilinear filter, and rows 18 to 101 are kept; of a frame of another size, as
    large a part.

    The score is the distance: how much further the level has been scrolled than ever before in this visit to it.
    """

    #: Bits of the buttons.
    A, B, START, UP, DOWN, LEFT, RIGHT = 1, 2, 8, 16, 32, 64, 128
    ACTIONS = (
        *(0, UP, DOWN, LEFT, RIGHT, A, B, A | B),
        *(LEFT | A, LEFT | B, LEFT | A | B, RIGHT | A, RIGHT | B, RIGHT | A | B),
    )
    #: Where in memory the game keeps: pages and pixels scrolled, lives left, stage, world, what it is doing, its clock.
    PAGE, PIXEL, LIVES, STAGE, WORLD, MODE, CLOCK = 0x71A, 0x71C, 0x75A, 0x75C, 0x75F, 0x770, slice(0x7F8, 0x7FB)
    #: The number of lives when none is left, and frames that the game may take to begin.
    NONE, PATIENCE = 0xFF, 1200
    #: Pixels cut off on each side.
    HIDDEN = 8
    #: Rows that the screen is scaled to for a frame of 84, and the first of them that is kept.
    ROWS, FIRST = 110, 18
    #: The part of a state that is not the machine's: whose it is; world, stage, furthest in the level, distance.
    OWN = struct.Struct("<20sBBId")
    #: The beginning of the game, by library and ROM: played once for all machines of a process.
    _beginnings: ClassVar[dict[tuple[str, str], bytes]] = {}

    def __init__(self, library: str, rom: str, skip: int) -> None:
        self._nes, self._skip = Nes(library, rom), skip
        # Pixels are 32-bit numbers, 0x00RRGGBB, of a machine that keeps the low byte first.
        colours = self._nes.screen.view(np.uint8).reshape(*self._nes.screen.shape, 4)[..., 2::-1]
        self._picture = colours[self.HIDDEN : -self.HIDDEN, self.HIDDEN : -self.HIDDEN]
        self._digest = hashlib.sha1(Path(rom).read_bytes(), usedforsecurity=False).digest()
        if (library, rom) not in self._beginnings:
            self._beginnings[library, rom] = self._begin()
        self._fresh = self._beginnings[library, rom]
        self._level, self._furthest, self._distance = (0, 0), 0, 0.0

    def _begin(self) -> bytes:
        """Play from switching on to the first tick of the game's clock, and make sure that states are exact."""
        self._until(lambda memory: memory[self.MODE] == 1, self.START)
        self._until(lambda memory: memory[self.CLOCK].any())
        clock = self._nes.memory[self.CLOCK].copy()
        self._until(lambda memory: (memory[self.CLOCK] != clock).any())
        state, after = self._nes.save(), []
        for _ in range(2):
            self._nes.load(state)
            for _ in range(3):
                self._nes.frame(self.RIGHT | self.A)
            after.append(self._nes.save())
        if after[0] != after[1] or after[0] == state:
            raise RuntimeError("nes-py's library is not the one of version 8.2: its state cannot be put back")
        return state

    def _until(self, reached: Callable[[np.ndarray], bool | np.bool], button: int = 0) -> None:
        """Let frames pass until the game has got somewhere, pressing a button in every other one."""
        for count in range(self.PATIENCE):
            self._nes.frame(button if count % 2 else 0)
            if reached(self._nes.memory):
                return
        raise RuntimeError("the game does not begin: this is not Super Mario Bros")

    def reset(self, seed: int) -> None:
        self._nes.load(self._fresh)
        self._level, self._furthest, self._distance = (0, 0), 0, 0.0

    def step(self, action: int) -> tuple[float, bool]:
        buttons, before, over = self.ACTIONS[action], self._distance, False
        for _ in range(self._skip):
            self._nes.frame(buttons)
            self._walk()
            over = bool(self._nes.memory[self.LIVES] == self.NONE)
            if over:
                break
        return self._distance - before, over

    def _walk(self) -> None:
        """Follow how far the game has been scrolled; a level that has just begun counts from the next frame on."""
        world, stage, page, pixel = map(int, self._nes.memory[[self.WORLD, self.STAGE, self.PAGE, self.PIXEL]])
        level, at = (world, stage), 256 * page + pixel
        if level != self._level:
            self._level, self._furthest = level, 0
        elif at > self._furthest:
            self._distance += at - self._furthest
            self._furthest = at

    def show(self, frame: np.ndarray) -> None:
        """Scale the screen into a frame."""
        from PIL import Image

        red, green, blue = (np.multiply(self._picture[..., k], w, dtype=np.float32) for k, w in enumerate(GREY))
        grey, side = Image.fromarray(red + green + blue), len(frame)
        rows, first = (round(number * side / SIDE) for number in (self.ROWS, self.FIRST))
        scaled = np.asarray(grey.resize((side, rows), Image.Resampling.BILINEAR))
        # The released code cuts fractions off rather than rounding them.
        frame[...] = scaled[first : first + side].astype(np.uint8)

    def facts(self) -> tuple[float, ...]:
        return (self._distance,)

    def save(self) -> bytes:
        own = self.OWN.pack(self._digest, *self._level, self._furthest, self._distance)
        return own + zlib.compress(self._nes.save(), 1)

    def load(self, state: bytes) -> None:
        digest, world, stage, furthest, distance = self.OWN.unpack_from(state)
        if digest != self._digest:
            raise ValueError("the state is of a game with another ROM")
        self._nes.load(zlib.decompressobj().decompress(state[self.OWN.size :], self._nes.size + 1))
        self._level, self._furthest, self._distance = (world, stage), furthest, distance

    def screen(self) -> np.ndarray:
        return self._picture.copy()


class OneByOne(AbstractShower):
    """Has every emulator show its own frame."""

    def __init__(self, emulators: Sequence[Mario], side: int) -> None:
        self._emulators = emulators

    def show(self, chosen: Sequence[int], frames: np.ndarray) -> None:
        for number in chosen:
            self._emulators[number].show(frames[number])


#: The machines there are, by name, and what makes frames of their screens.
MACHINES: dict[str, tuple[Callable[..., AbstractEmulator], type[AbstractShower]]] = {
    "atari": (Atari, ChangedRows),
    "mario": (Mario, OneByOne),
}


class Worker:
    """The emulators of one process: those from `first` to `last` of the fleet, in groups that are shown together."""

    def __init__(self, order: dict[str, Any], memory: mmap.mmap) -> None:
        sizes = Sizes(*order["sizes"])
        self._shared = views(memory, sizes)
        self._number, self._rows = order["number"], range(order["first"], order["last"])
        machine, shower = MACHINES[order["machine"]]
        self._emulators = {row: machine(**order["settings"]) for row in self._rows}
        self._groups = [self._rows[k : k + shower.MOST] for k in range(0, len(self._rows), shower.MOST)]
        self._showers = [shower([self._emulators[row] for row in group], sizes.side) for group in self._groups]
        self._doing = {
            **{STEP: self._step, PLAY: self._play, RESET: self._reset},
            **{SAVE: self._save, LOAD: self._load, DRAW: self._draw},
        }

    def obey(self, command: bytes) -> bytes:
        """Do what is asked; a failure is told, not raised."""
        try:
            self._doing[command]()
        except Exception as error:
            self.complain(f"{type(error).__name__}: {error}")
            return FAILED
        return DONE

    def complain(self, text: str) -> None:
        """Leave a message."""
        raw = text.encode()[:MESSAGE]
        self._shared["message"][self._number] = 0
        self._shared["message"][self._number, : len(raw)] = np.frombuffer(raw, np.uint8)

    def _moving(self, who: np.ndarray) -> Iterator[int]:
        """Some emulators, one after the other; when those of a group have moved, their frames are written."""
        for group, shower in zip(self._groups, self._showers, strict=True):
            part = slice(group.start, group.stop)
            chosen = np.flatnonzero(who[part]).tolist()
            for number in chosen:
                yield group[number]
            if chosen:
                shower.show(chosen, self._shared["stack"][part, -1])

    def _step(self) -> None:
        shared = self._shared
        action, reward, over, stacks = (shared[name] for name in ("action", "reward", "over", "stack"))
        deep, tracking = stacks.shape[1] > 1, shared["facts"].shape[1] > 0
        for row in self._moving(shared["chosen"]):
            emulator = self._emulators[row]
            reward[row], over[row] = emulator.step(int(action[row]))
            if tracking:
                shared["facts"][row] = emulator.facts()
            if deep:
                stack = stacks[row]
                stack[:-1] = stack[1:]

    def _play(self) -> None:
        self._step()
        shared = self._shared
        ended = (shared["over"] | shared["due"]) & shared["chosen"]
        for row in filter(ended.__getitem__, self._rows):
            shared["last"][row] = shared["stack"][row, -1]
        self._begin(ended)

    def _reset(self) -> None:
        shared = self._shared
        self._begin(shared["chosen"])
        for row in filter(shared["chosen"].__getitem__, self._rows):
            shared["reward"][row], shared["over"][row] = 0.0, False
            shared["facts"][row] = self._emulators[row].facts()

    def _begin(self, who: np.ndarray) -> None:
        """New episodes of some emulators."""
        for row in self._moving(who):
            self._shared["stack"][row, :-1] = 0
            self._emulators[row].reset(int(self._shared["seed"][row]))

    def _save(self) -> None:
        for row in self._rows:
            state = self._emulators[row].save()
            if len(state) > STATE:
                raise ValueError(f"an emulator's state has {len(state)} bytes, more than {STATE}")
            self._shared["state"][row, : len(state)] = np.frombuffer(state, np.uint8)
            self._shared["state_size"][row] = len(state)

    def _load(self) -> None:
        for row in self._rows:
            size = int(self._shared["state_size"][row])
            self._emulators[row].load(self._shared["state"][row, :size].tobytes())

    def _draw(self) -> None:
        for row in filter(self._shared["chosen"].__getitem__, self._rows):
            picture = self._emulators[row].screen()
            height, width = picture.shape[:2]
            self._shared["screen"][self._number, :height, :width] = picture
            self._shared["screen_size"][self._number] = height, width


def main() -> None:
    """Obey until the input ends."""
    order = json.loads(sys.argv[1])
    # Whoever acts must not wait for a core: all the others wait for it.
    os.nice(5)
    with open(order["memory"], "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What an emulator prints is no answer.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        worker = Worker(order, memory)
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
    sink.write(DONE)
    sink.flush()
    while command := source.read(1):
        answer = worker.obey(command)
        sink.write(answer)
        sink.flush()


if __name__ == "__main__":
    main()
