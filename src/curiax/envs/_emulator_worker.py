"""The process that some emulators run in: it does as the fleet in `_emulators.py` says, through shared memory.

It is run as a script, and imports no more than NumPy, Pillow and the emulator: it starts in a fraction of a second and
needs little memory, where JAX would take a second and hundreds of megabytes in each of many processes. A process
rather than a thread, because an emulator that crashes or hangs must not take the training with it.

Commands come as single bytes on the standard input, and each is answered by one on the standard output: `.` when it was
done, `!` when it failed, with the reason in the shared memory. At the end of the input the process ends.
"""

from __future__ import annotations

import abc
import json
import mmap
import sys
from typing import Any

import numpy as np

#: Frames are grey and square, as the networks see them, and so many are seen at once.
SIDE, STACK = 84, 4
#: Bytes for the state of one emulator, for one worker's error message, and of the largest screen.
STATE, MESSAGE, SCREEN = 1 << 16, 4096, (256, 256, 3)
STEP, RESET, SAVE, LOAD, DRAW = (bytes([letter]) for letter in b"srkld")
DONE, FAILED = b".", b"!"


def columns(count: int, workers: int, facts: int) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """What is shared: name → type and shape. The first axis counts emulators, or workers."""
    return {
        "action": (np.int32, (count,)),
        "seed": (np.uint32, (count,)),
        "chosen": (np.bool_, (count,)),
        "stack": (np.uint8, (count, STACK, SIDE, SIDE)),
        "reward": (np.float64, (count,)),
        "over": (np.bool_, (count,)),
        "facts": (np.float64, (count, facts)),
        "state": (np.uint8, (count, STATE)),
        "state_size": (np.int64, (count,)),
        "screen": (np.uint8, (workers, *SCREEN)),
        "screen_size": (np.int64, (workers, 2)),
        "message": (np.uint8, (workers, MESSAGE)),
    }


def size_of(count: int, workers: int, facts: int) -> int:
    """Bytes of the shared memory."""
    return sum(padded(kind, shape) for kind, shape in columns(count, workers, facts).values())


def padded(kind: Any, shape: tuple[int, ...]) -> int:
    """Bytes of a column, up to the next line of a processor's cache."""
    return -(-int(np.prod(shape)) * np.dtype(kind).itemsize // 64) * 64


def views(memory: mmap.mmap, count: int, workers: int, facts: int) -> dict[str, np.ndarray]:
    """The columns of the shared memory as arrays."""
    found, at = {}, 0
    for name, (kind, shape) in columns(count, workers, facts).items():
        found[name] = np.ndarray(shape, kind, memory, at)
        at += padded(kind, shape)
    return found


class AbstractEmulator(abc.ABC):
    """One machine with a game in it."""

    @abc.abstractmethod
    def reset(self, seed: int, frame: np.ndarray) -> None:
        """Begin a new episode and show it."""

    @abc.abstractmethod
    def step(self, action: int, frame: np.ndarray) -> tuple[float, bool]:
        """One action of the agent; shows what it led to, returns the score won and whether the game is over."""

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
    pixelwise maximum of the last two of them, in grey, scaled to 84 x 84 by Pillow's bilinear filter, without a crop.
    """

    def __init__(self, game: str, sticky: float, noops: int, skip: int, tracked: list[int]) -> None:
        from ale_py import ALEInterface, LoggerMode, roms

        ALEInterface.setLoggerMode(LoggerMode.Error)
        self._ale = ale = ALEInterface()
        ale.setFloat("repeat_action_probability", sticky)
        # All that is random is the library's own: ALE draws nothing but whether an action sticks.
        ale.setInt("random_seed", 0)
        ale.loadROM(str(roms.get_rom_path(game)))
        ale.reset_game()
        self._fresh = ale.cloneState(include_rng=True)
        self._actions = ale.getMinimalActionSet()
        self._noops, self._skip, self._tracked = noops, skip, tracked
        height, width = ale.getScreenDims()
        self._last, self._before = (np.zeros((height, width), np.uint8) for _ in range(2))

    def reset(self, seed: int, frame: np.ndarray) -> None:
        ale = self._ale
        ale.restoreState(self._fresh)
        for _ in range(1 + seed % self._noops if self._noops else 0):
            ale.act(self._actions[0])
            if ale.game_over():
                ale.restoreState(self._fresh)
        ale.getScreenGrayscale(self._last)
        show(self._last, frame)

    def step(self, action: int, frame: np.ndarray) -> tuple[float, bool]:
        ale, chosen, score, over = self._ale, self._actions[action], 0.0, False
        for left in reversed(range(self._skip)):
            score += ale.act(chosen)
            over = ale.game_over()
            if left == 1 and not over:
                ale.getScreenGrayscale(self._before)
            if over:
                break
        ale.getScreenGrayscale(self._last)
        if not over and self._skip > 1:
            np.maximum(self._last, self._before, out=self._last)
        show(self._last, frame)
        return score, over

    def facts(self) -> tuple[float, ...]:
        memory = self._ale.getRAM() if self._tracked else ()
        return tuple(float(memory[place]) for place in self._tracked)

    def save(self) -> bytes:
        return self._ale.cloneState(include_rng=True).serialize()

    def load(self, state: bytes) -> None:
        from ale_py import ALEState

        self._ale.restoreState(ALEState(state))

    def screen(self) -> np.ndarray:
        return self._ale.getScreenRGB()


def show(picture: np.ndarray, frame: np.ndarray) -> None:
    """Scale a grey picture into a frame."""
    from PIL import Image

    frame[...] = Image.fromarray(picture).resize((SIDE, SIDE), Image.Resampling.BILINEAR)


#: The machines there are, by name.
MACHINES = {"atari": Atari}


class Worker:
    """The emulators of one process: those from `first` to `last` of the fleet."""

    def __init__(self, order: dict[str, Any], memory: mmap.mmap) -> None:
        self._shared = views(memory, order["count"], order["workers"], order["facts"])
        self._number, self._rows = order["number"], range(order["first"], order["last"])
        machine = MACHINES[order["machine"]]
        self._emulators = {row: machine(**order["settings"]) for row in self._rows}
        self._doing = {STEP: self._step, RESET: self._reset, SAVE: self._save, LOAD: self._load, DRAW: self._draw}

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

    def _chosen(self) -> list[int]:
        return [row for row in self._rows if self._shared["chosen"][row]]

    def _step(self) -> None:
        shared = self._shared
        action, reward, over = shared["action"], shared["reward"], shared["over"]
        for row in self._chosen():
            emulator, stack = self._emulators[row], shared["stack"][row]
            stack[:-1] = stack[1:]
            reward[row], over[row] = emulator.step(int(action[row]), stack[-1])
            shared["facts"][row] = emulator.facts()

    def _reset(self) -> None:
        shared = self._shared
        for row in self._chosen():
            shared["stack"][row, :-1] = 0
            self._emulators[row].reset(int(shared["seed"][row]), shared["stack"][row, -1])
            shared["reward"][row], shared["over"][row] = 0.0, False
            shared["facts"][row] = self._emulators[row].facts()

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
        for row in self._chosen():
            picture = self._emulators[row].screen()
            height, width = picture.shape[:2]
            self._shared["screen"][self._number, :height, :width] = picture
            self._shared["screen_size"][self._number] = height, width


def main() -> None:
    """Obey until the input ends."""
    order = json.loads(sys.argv[1])
    with open(order["memory"], "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
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
