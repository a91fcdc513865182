"""Super Mario Bros.: frames, buttons and distance against the machine's own memory; states that are exact."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parts import demanded, reason

from curiax import SimulatorError, UsageError
from curiax.envs import _emulator_worker, mario
from curiax.envs._emulators import EmulatorFleet
from curiax.envs.mario import Mario, checked_rom, library, region, rom_path
from curiax.testing.fleets import check_host_task

installed = all(importlib.util.find_spec(name) for name in ("nes_py", "gym_super_mario_bros"))
needs_the_game = pytest.mark.skipif(not installed and not demanded("mario"), reason=reason("mario"))
#: An action by the buttons that it holds.
BUTTONS = ("", "up", "down", "left", "right", "A", "B", "A B")
BUTTONS += ("left A", "left B", "left A B", "right A", "right B", "right A B")
RIGHT, RUN = BUTTONS.index("right"), BUTTONS.index("right A B")


def seeds(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint32)


def opened(count: int = 2, processes: int = 1, **settings: Any) -> EmulatorFleet:
    fleet = Mario(**settings).open(count, processes)
    fleet.reset(seeds(count))
    return fleet


class Played:
    """A machine in this process, whose memory can be looked at."""

    def __init__(self, skip: int = 4) -> None:
        self.machine = _emulator_worker.Mario(str(library()), str(rom_path()), skip)
        self.frame, self.memory = np.zeros((84, 84), np.uint8), self.machine._nes.memory
        self.machine.reset(0)
        self.machine.show(self.frame)

    def step(self, action: int) -> tuple[float, bool]:
        outcome = self.machine.step(action)
        self.machine.show(self.frame)
        return outcome

    @property
    def scroll(self) -> int:
        return int(self.memory[0x71A]) * 256 + int(self.memory[0x71C])


@pytest.fixture(scope="module")
def first_fleet() -> Iterator[EmulatorFleet]:
    """One game, just begun, for tests that do not play it: beginning takes longer than what they look at."""
    fleet = opened(1)
    yield fleet
    fleet.close()


@needs_the_game
def test_it_keeps_the_contract_of_a_task() -> None:
    check_host_task(Mario, skip=1)  # four times as fast; the other tests play as the paper does


@needs_the_game
def test_a_frame_is_the_cropped_screen_scaled_by_a_triangle_filter() -> None:
    """224 x 240 to 110 x 84 by a filter written out here, rows 18 to 101; fractions are cut off."""
    played = Played()
    for _ in range(25):
        played.step(RUN)
    pixels = played.machine._nes.screen
    assert pixels.shape == (240, 256)
    colours = np.stack([(pixels >> shift) % 256 for shift in (16, 8, 0)], axis=-1)[8:232, 8:248].astype(np.float64)
    assert colours.shape == (224, 240, 3)
    np.testing.assert_array_equal(played.machine.screen(), colours)

    def weights(size: int, small: int) -> np.ndarray:
        scale = size / small
        centres = (np.arange(small) + 0.5) * scale
        triangle = np.maximum(1.0 - np.abs(np.arange(size) + 0.5 - centres[:, None]) / scale, 0.0)
        return triangle / triangle.sum(axis=1, keepdims=True)

    scaled = weights(224, 110) @ (colours @ [0.299, 0.587, 0.114]) @ weights(240, 84).T
    expected = scaled[18:102]
    assert np.ptp(expected) > 100  # there is something to see
    assert ((expected - played.frame > -1e-3) & (expected - played.frame < 1.0 + 1e-3)).all()


@needs_the_game
def test_another_side_scales_and_cuts_in_proportion() -> None:
    """42 x 42 are rows 9 to 50 of 55; the picture is the same, so it is near the large one's means of 2 x 2."""
    assert Mario(side=42).spec.obs_shape == (42, 42, 4)
    large, small, single = opened(1), opened(1, side=42), Mario(side=42).open(1, stacked=False)
    single.reset(seeds(1))
    for _ in range(25):
        for fleet in (large, small, single):
            fleet.step(np.full(1, RUN, np.int32), seeds(1))
    assert small.obs.shape == (1, 42, 42, 4)
    assert single.obs.shape == (1, 42, 42, 1)
    np.testing.assert_array_equal(single.frame, small.frame)
    means = large.frame[0].reshape(42, 2, 42, 2).mean(axis=(1, 3))
    difference = np.abs(small.frame[0] - means)
    assert difference.mean() < 0.5 * min(np.abs(np.roll(small.frame[0], 1, axis=k) - means).mean() for k in (0, 1))


@needs_the_game
def test_the_game_sees_the_buttons_of_the_fourteen_actions() -> None:
    """The game keeps the buttons that it has read, one bit for each."""
    bits = {"A": 128, "B": 64, "up": 8, "down": 4, "left": 2, "right": 1}
    played = Played()
    assert Mario().spec.action.n == len(BUTTONS) == 14  # pyright: ignore[reportAttributeAccessIssue]
    for action, names in enumerate(BUTTONS):
        played.step(action)
        assert played.memory[0x6FC] == sum(bits[name] for name in names.split()), names


@needs_the_game
def test_an_action_is_held_for_four_frames() -> None:
    whole, single = Played(), Played(skip=1)
    for action in (RUN, RIGHT, RUN, 0):
        won = whole.step(action)[0]
        assert won == sum(single.step(action)[0] for _ in range(4))
        np.testing.assert_array_equal(whole.frame, single.frame)
        assert whole.memory.tobytes() == single.memory.tobytes()


@needs_the_game
def test_a_game_begins_in_the_first_level_with_three_lives() -> None:
    played = Played()
    lives, stage, world = (int(played.memory[place]) for place in (0x75A, 0x75C, 0x75F))
    assert (lives, stage, world) == (2, 0, 0)  # lives that are left
    assert played.memory[0x7F8:0x7FB].tolist() == [4, 0, 0]  # the clock
    assert played.scroll == 0
    assert played.memory[0x0E] == 8  # Mario moves as told


@needs_the_game
def test_a_game_ends_with_the_third_life_and_its_rewards_are_the_furthest_scroll() -> None:
    """One who only walks to the right runs into the first enemy three times; distance counts once for all lives."""
    played, furthest, total, lives = Played(), 0, 0.0, [2]
    for _ in range(1000):
        reward, over = played.machine.step(RIGHT)  # nobody looks at the frames
        total += reward
        furthest = max(furthest, played.scroll)
        if played.memory[0x75A] != lives[-1]:
            lives.append(int(played.memory[0x75A]))
        assert over == (lives[-1] == 255)
        assert played.machine.facts() == (total,)
        if over:
            break
    assert lives == [2, 1, 0, 255]
    assert 100 < furthest <= total <= furthest + 12  # between two steps it may have been a frame's walk further
    played.machine.reset(0)
    assert played.machine.facts() == (0.0,)


@needs_the_game
def test_distances_of_levels_add_up() -> None:
    """The game itself goes on to Level 1-3, told that Mario has reached the castle; scroll counts from 0 there."""
    played, furthest = Played(skip=1), {}
    before = 0.0

    def walk(frames: int) -> None:
        nonlocal before
        for _ in range(frames):
            level = int(played.memory[0x75F]), int(played.memory[0x75C])
            before += played.step(RUN)[0]
            if level == (int(played.memory[0x75F]), int(played.memory[0x75C])):  # the scroll is this level's
                furthest[level] = max(furthest.get(level, 0), played.scroll)
            assert before == sum(furthest.values())

    walk(200)
    # The level's last task is done, and it was the second: the game then loads the third.
    for place, value in ((0x0E, 5), (0x746, 5), (0x75C, 1), (0x760, 2)):
        played.memory[place] = value
    first = played.scroll
    assert played.step(0)[0] == 0.0
    assert played.scroll == first  # that of the level before, which does not count again
    walk(300)
    assert set(furthest) == {(0, 0), (0, 2)}
    assert min(furthest.values()) > 100


@needs_the_game
def test_states_are_exact_where_the_game_changes_most() -> None:
    """Put back at each tenth step of a life, its loss and the next one, a twin goes on as the first, in every byte."""
    played, twin = Played(), Played()
    for step in range(110):
        if step % 10 == 0:
            twin.machine.load(played.machine.save())
            assert twin.machine._nes.save() == played.machine._nes.save()
        action = RIGHT if step < 70 else step % 14
        assert twin.step(action) == played.step(action)
        np.testing.assert_array_equal(twin.frame, played.frame)
    assert played.memory[0x75A] == 1  # a life is lost
    assert twin.machine.save() == played.machine.save()


@needs_the_game
def test_a_machine_is_found_in_memory_that_holds_what_lay_there_before() -> None:
    """Its registers have no value at first; here each of them could be the address of a vector of sprites."""
    for size in range(246_000, 300_000, 2_048):
        before = np.arange(size // 8, dtype=np.uint64) * 256 + (1 << 40)
        del before
        played = Played()
        assert played.step(RIGHT) == (0.0, False)
        assert len(played.machine.save()) > played.machine._nes.MAIN


@needs_the_game
def test_states_hold_sprites_of_a_line_and_buttons_half_read() -> None:
    """Frames of a long game end in the middle of a picture, on a line with sprites; here they are put there."""
    played, twin = Played(), Played()
    nes, other = played.machine._nes, twin.machine._nes
    begin = int(nes._line[0])
    _emulator_worker.memory_at(begin, np.uint8, 3)[:] = 0, 5, 9
    nes._line[1] = begin + 3
    pads = _emulator_worker.memory_at(nes.buttons.ctypes.data - 1, np.uint8, 6)
    pads[:] = 0, 1, 0b0101, 1, 2, 0b1010
    twin.machine.load(played.machine.save())
    line = _emulator_worker.memory_at(int(other._line[0]), np.uint8, int(other._line[1] - other._line[0]))
    assert line.tolist() == [0, 5, 9]
    loaded = _emulator_worker.memory_at(other.buttons.ctypes.data - 1, np.uint8, 6)
    assert loaded.tolist() == [0, 1, 0b0101, 1, 2, 0b1010]
    for action in (RUN, 0, RIGHT):
        assert twin.step(action) == played.step(action)
        np.testing.assert_array_equal(twin.frame, played.frame)
    assert twin.machine.save() == played.machine.save()


@needs_the_game
def test_a_state_that_is_none_is_refused() -> None:
    """The library checks nothing: a line or a sprite that does not exist would have it write anywhere."""
    played = Played()
    nes = played.machine._nes
    good = nes.save()
    wrong = {
        "bytes are not the state": [b"wrong", bytes([9]) + good[1:]],
        "no such sprite": [bytes([1, 64]) + good[2:]],
    }
    for message, states in wrong.items():
        for state in states:
            with pytest.raises(ValueError, match=message):
                nes.load(state)
    for registers in ((4, 0, 0), (-1, 0, 0), (1, 342, 0), (1, -1, 0), (1, 0, 240), (2, 0, 262), (1, 0, -1)):
        place = np.array(registers, "<i4").tobytes()
        with pytest.raises(ValueError, match="a machine cannot be at dot"):
            nes.load(good[: nes._dots] + place + good[nes._dots + len(place) :])
    endless = _emulator_worker.zlib.compress(bytes(10**7))
    with pytest.raises(ValueError, match=f"{nes.size + 1} bytes are not the state"):
        played.machine.load(played.machine.save()[: played.machine.OWN.size] + endless)
    assert nes.save() == good


@needs_the_game
def test_a_state_is_what_the_library_itself_keeps() -> None:
    """Its own snapshot, which it does not hand out, puts the same machine back as ours; so does ours, byte for byte."""
    import ctypes

    played = Played()
    nes = played.machine._nes
    calls, console = nes._calls, ctypes.c_void_p(nes._console)
    # All of the object between its buses and the screen, pointers and padding too.
    whole = _emulator_worker.memory_at(nes.screen.ctypes.data - nes.BEFORE, np.uint8, nes.BEFORE)
    for _ in range(40):
        played.step(RUN)
    ours, raw = nes.save(), whole.tobytes()
    calls.Backup(console)
    for _ in range(13):
        played.step(BUTTONS.index("left A"))
    assert nes.save() != ours
    theirs_differs = whole.tobytes() != raw
    nes.load(ours)
    assert theirs_differs
    assert whole.tobytes() == raw
    for _ in range(13):
        played.step(BUTTONS.index("left A"))
    after = nes.save()
    calls.Restore(console)
    pads = slice(1 + nes.LINE, 1 + nes.LINE + 6)  # theirs leaves them out
    line = slice(1, 1 + nes.LINE)  # beyond the end of a line's sprites anything may be
    restored = bytearray(nes.save())
    restored[pads], restored[line] = ours[pads], ours[line]
    assert bytes(restored) == ours
    for _ in range(13):
        played.step(BUTTONS.index("left A"))
    assert nes.save() == after


@needs_the_game
def test_a_game_goes_on_in_other_processes() -> None:
    rng = np.random.default_rng(0)
    moves = np.where(rng.random((50, 2)) < 0.5, RUN, rng.integers(14, size=(50, 2))).astype(np.int32)
    fleet = opened(2)
    for move in moves[:30]:
        fleet.step(move, seeds(2))
    state, expected = fleet.state(), []
    assert state["sizes"].max() < _emulator_worker.STATE // 4
    for move in moves[30:]:
        fleet.step(move, seeds(2))
        expected.append((fleet.obs.copy(), fleet.points.copy(), fleet.reward.copy()))
    last = fleet.state()
    fleet.close()
    other = opened(2, processes=2)
    other.step(np.full(2, 5, np.int32), seeds(2))
    other.restore(state)
    for move, (obs, points, reward) in zip(moves[30:], expected, strict=True):
        other.step(move, seeds(2))
        np.testing.assert_array_equal(other.obs, obs)
        np.testing.assert_array_equal(other.points, points)
        np.testing.assert_array_equal(other.reward, reward)
    assert all(np.array_equal(other.state()[name], value) for name, value in last.items())
    assert last["record"][:, 1].min() > 0.0  # both have come some way


@needs_the_game
def test_a_state_of_another_rom_is_refused(tmp_path: Path, first_fleet: EmulatorFleet) -> None:
    other = opened(1, rom=str(altered(tmp_path / "other.nes", 16 + 32768 + 8191)))
    with pytest.raises(SimulatorError, match="ValueError: the state is of a game with another ROM"):
        other.restore(first_fleet.state())


@needs_the_game
def test_pictures_are_the_cropped_screen(first_fleet: EmulatorFleet) -> None:
    picture = first_fleet.render(0, 240, 224)
    assert picture.shape == (224, 240, 3)
    sky = picture[100, 100]
    assert sky[2] > sky[0]
    assert (picture[:100] == sky).all(axis=-1).mean() > 0.8


def altered(path: Path, place: int) -> Path:
    """A copy of the game with one byte changed."""
    raw = bytearray(rom_path().read_bytes())
    raw[place] ^= 1
    path.write_bytes(raw)
    return path


@needs_the_game
def test_the_region_is_told_by_the_game_not_by_its_header(tmp_path: Path) -> None:
    assert region() == "Europe (PAL)"
    assert region(str(altered(tmp_path / "mirrored.nes", 6))) == "Europe (PAL)"
    assert region(str(altered(tmp_path / "changed.nes", 16))).startswith("unknown (SHA-1 ")


@needs_the_game
def test_the_european_clock_ticks_every_twenty_frames() -> None:
    """As measured for the card; the American one every 24."""
    played, ticks = Played(skip=1), []
    for frame in range(70):
        before = played.memory[0x7FA]
        played.step(0)
        if played.memory[0x7FA] != before:
            ticks.append(frame)
    assert set(np.diff(ticks)) == {20}


def header(program: int = 2, pictures: int = 1, low: int = 1) -> bytes:
    return b"NES\x1a" + bytes([program, pictures, low, *[0] * 9])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not begin with an iNES header"),
        (b"NES\x1a", "not Super Mario Bros.*has 4 bytes"),
        (header() + bytes(40959), "has 40975 bytes"),
        (header(8, 0) + bytes(8 * 16384), "says 128 and 0 KiB"),
        (header(low=0x11) + bytes(40960), "memory controller 1"),
        (header(low=0x03) + bytes(40960), "nothing else"),
    ],
)
def test_a_file_that_is_no_such_rom_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "wrong.nes"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        Mario(rom=str(path))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone.nes': cannot be read \(No such file"):
        Mario(rom=str(tmp_path / "gone.nes"))


def test_the_right_header_is_enough_to_be_read(tmp_path: Path) -> None:
    path = tmp_path / "zeros.nes"
    path.write_bytes(header() + bytes(40960))
    assert len(checked_rom(path)) == 40976
    digest = hashlib.sha1(bytes(40960), usedforsecurity=False).hexdigest()
    assert Mario(rom=str(path)).notes() == {"version of the game": f"unknown (SHA-1 {digest})"}


@needs_the_game
def test_another_game_does_not_begin(tmp_path: Path) -> None:
    path = tmp_path / "zéros.nes"
    path.write_bytes(header() + b"\x02" * 40960)  # a command that the emulator does not know, and says so
    task, message = Mario(rom=str(path)), "does not begin: this is not Super Mario Bros"
    with pytest.raises(UsageError, match=rf"task\.rom = .*zéros\.nes.*{message}\.$") as raised:
        task.require()
    assert isinstance(raised.value.__context__, SimulatorError)  # what opening it says


@needs_the_game
def test_a_changed_game_may_be_played(tmp_path: Path) -> None:
    Mario(rom=str(altered(tmp_path / "changed.nes", 16 + 32768 + 8191))).require()


@needs_the_game
def test_paths_may_have_any_letters(tmp_path: Path, first_fleet: EmulatorFleet) -> None:
    path = tmp_path / "Märio ☆.nes"
    path.write_bytes(rom_path().read_bytes())
    np.testing.assert_array_equal(opened(1, rom=str(path)).obs, first_fleet.obs)


def test_without_the_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mario.importlib.util, "find_spec", lambda name: None)
    task = Mario()
    with pytest.raises(UsageError, match=r"'mario' needs nes-py 8.2: pip install 'curiax\[mario\]'"):
        task.require()
    monkeypatch.setattr(mario, "library", lambda: Path("there"))
    with pytest.raises(UsageError, match=r"'mario' needs the game of gym-super-mario-bros 7.4: pip install"):
        task.require()


def test_packages_without_library_or_game_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mario, "folder", lambda package, what: tmp_path / package)
    with pytest.raises(UsageError, match=r"no compiled library \(lib_nes_env\); install it again: pip install"):
        Mario().require()
    (tmp_path / "nes_py").mkdir()
    (tmp_path / "nes_py" / "lib_nes_env.so").touch()
    with pytest.raises(UsageError, match=r"super-mario-bros\.nes is missing\)\. Set task\.rom to a file that you own"):
        Mario().require()


def test_there_is_no_time_limit_unless_set() -> None:
    assert Mario().spec.horizon is None
    assert Mario(horizon=4500).spec.horizon == 4500
