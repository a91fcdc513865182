"""Atari games: frames against ale-py's own; emulators in processes, and what becomes of those that fail."""

from __future__ import annotations

import gc
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curiax import SimulatorError, UsageError
from curiax._settings import checked
from curiax.envs import _emulator_worker, _emulators
from curiax.envs._emulators import EmulatorFleet
from curiax.envs.atari import PAPER, Atari, actions
from curiax.testing.fleets import check_host_task

ale_py = pytest.importorskip("ale_py")


def seeds(count: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + count, dtype=np.uint32)


def opened(count: int = 2, processes: int = 1, **settings: Any) -> EmulatorFleet:
    fleet = Atari(**settings).open(count, processes)
    fleet.reset(seeds(count))
    return fleet


def vector(game: str, side: tuple[int, int], **options: Any) -> Any:
    """ale-py's own vector environment of one game, set up as the paper's is."""
    from ale_py.vector_env import AtariVectorEnv

    usual = {"use_fire_reset": False, "reward_clipping": False, "repeat_action_probability": 0.0, "stack_num": 1}
    return AtariVectorEnv(game, num_envs=1, img_height=side[0], img_width=side[1], **usual, **options)


@pytest.mark.parametrize("game", ["breakout", "montezuma_revenge", "space_invaders"])
def test_frames_are_those_of_ale_py(game: str) -> None:
    """At the screen's own size every pixel, score and end is as in ale-py's vector environment, frame by frame."""
    machine = _emulator_worker.Atari(game, sticky=0.0, noops=30, skip=4, tracked=[])
    size = machine.picture.shape
    peer = vector(game, size, max_num_frames_per_episode=10**6)
    first = peer.reset(seed=3)[0][0, 0]
    # Which of the thirty beginnings ale-py drew is found by looking.
    beginnings = []
    for noops in range(30):
        machine.reset(noops)
        if np.array_equal(machine.picture, first):
            beginnings.append(noops)
    assert beginnings, "no beginning of ours is ale-py's"
    moves = np.random.default_rng(0).integers(actions(game), size=700)

    def alike(start: int) -> int:
        """Steps that went alike from this beginning, up to the game's end; 0 if some did not."""
        peer.reset(seed=3)
        machine.reset(start)
        for count, move in enumerate(moves, start=1):
            shown, reward, over, _, _ = peer.step(np.array([move]))
            outcome = machine.step(int(move))
            if outcome != (reward[0], over[0]) or not (over[0] or np.array_equal(shown[0, 0], machine.picture)):
                return 0
            if over[0]:  # ale-py shows the next game already
                return count
        return len(moves)

    # Several beginnings look alike where nothing moves at first; one of them goes on alike.
    assert max(map(alike, beginnings)) >= 100


def scaled(pictures: list[np.ndarray], side: int, together: int = 1) -> list[np.ndarray]:
    """Pictures one after the other, as the worker scales those of so many emulators."""
    # Emulators without a game: only their pictures count.
    emulators = [_emulator_worker.Atari.__new__(_emulator_worker.Atari) for _ in range(together)]
    for emulator in emulators:
        emulator.picture = np.zeros_like(pictures[0])
    shower = _emulator_worker.ChangedRows(emulators, side)
    frames, found = np.zeros((together, side, side), np.uint8), []
    for first in range(0, len(pictures), together):
        part = pictures[first : first + together]
        for emulator, picture in zip(emulators, part, strict=False):
            emulator.picture[:] = picture
        shower.show(range(len(part)), frames)
        found += list(frames[: len(part)].copy())
    return found


def by_pillow(picture: np.ndarray, side: int) -> np.ndarray:
    """Pillow's bilinear filter, first across, then down: what its `resize` does in one call for frames of 84."""
    from PIL import Image

    narrow = Image.fromarray(picture).resize((side, len(picture)), Image.Resampling.BILINEAR)
    return np.asarray(narrow.resize((side, side), Image.Resampling.BILINEAR))


@pytest.mark.parametrize(("rows", "side"), [(210, 84), (210, 42), (250, 84), (210, 36), (210, 97), (210, 240)])
def test_scaling_is_pillow_s_to_the_bit(rows: int, side: int) -> None:
    """Random pictures, then ones with a few other rows, the first and the last too, then the same again."""
    from PIL import Image

    rng = np.random.default_rng(side)
    pictures = list(rng.integers(0, 256, (4, rows, 160), dtype=np.uint8))
    pictures += [np.full((rows, 160), value, np.uint8) for value in (0, 255)]
    for changed in ([0], [rows - 1], [0, 1, 100], *rng.integers(rows, size=(12, 5)).tolist(), []):
        picture = pictures[-1].copy()
        picture[changed, : rng.integers(1, 160)] = rng.integers(256)
        pictures.append(picture)
    expected = [by_pillow(picture, side) for picture in pictures]
    for together in (1, 3):
        np.testing.assert_array_equal(scaled(pictures, side, together), expected)
    if side in (42, 84) and rows == 210:
        for picture, frame in zip(pictures, expected, strict=True):
            whole = Image.fromarray(picture).resize((side, side), Image.Resampling.BILINEAR)
            np.testing.assert_array_equal(frame, np.asarray(whole))


@pytest.mark.parametrize("game", ["qbert", "riverraid", "pong"])
def test_frames_of_a_game_are_scaled_by_pillow_s_filter(game: str) -> None:
    """Nine machines, so that they are shown in two groups; some stand still, begin anew or get a state put back."""
    from PIL import Image

    count, rng = 9, np.random.default_rng(0)
    fleet = opened(count, game=game)
    machines = [_emulator_worker.Atari(game, sticky=0.0, noops=30, skip=4, tracked=[]) for _ in range(count)]
    for seed, machine in enumerate(machines):
        machine.reset(seed)
    kept = fleet.state(), [machine.save() for machine in machines], [machine.picture.copy() for machine in machines]
    for t in range(40):
        still, moves = rng.random(count) < 0.2, rng.integers(6, size=count).astype(np.int32)
        fleet.step(moves, seeds(count), still)
        for k in np.flatnonzero(~still):
            machines[k].step(int(moves[k]))
        if t == 15:
            fleet.restore(kept[0])
            for machine, state, picture in zip(machines, *kept[1:], strict=True):
                machine.load(state)
                machine.picture[:] = picture
        if t == 25:
            fleet.reset(seeds(count, 40), still)
            for k in np.flatnonzero(still):
                machines[k].reset(40 + int(k))
        for k, machine in enumerate(machines):
            expected = Image.fromarray(machine.picture).resize((84, 84), Image.Resampling.BILINEAR)
            np.testing.assert_array_equal(fleet.frame[k], np.asarray(expected))


def test_the_scaled_frame_is_a_triangle_filter() -> None:
    """84 x 84 from 210 x 160: each pixel the mean of those around it, weighted by a triangle of its own width."""
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (210, 160), dtype=np.uint8)
    (frame,) = scaled([picture], 84)

    def weights(size: int) -> np.ndarray:
        scale = size / 84
        centres = (np.arange(84) + 0.5) * scale
        distance = np.abs(np.arange(size) + 0.5 - centres[:, None]) / scale
        triangle = np.maximum(1.0 - distance, 0.0)
        return triangle / triangle.sum(axis=1, keepdims=True)

    expected = weights(210) @ picture.astype(np.float64) @ weights(160).T
    assert np.abs(frame - expected).max() <= 1.0  # rounded twice, once for each axis


def test_frames_are_near_those_that_ale_py_scales() -> None:
    """Its filter is another; the difference is as the cards measured it, a grey level or two on average."""
    fleet, peer = opened(1, noops=0), vector("breakout", (84, 84), noop_max=0)
    shown = peer.reset(seed=0)[0][0, 0]
    differences = [np.abs(shown.astype(float) - fleet.frame[0]).mean()]
    for move in np.random.default_rng(1).integers(4, size=40):
        shown = peer.step(np.array([move]))[0][0, 0]
        fleet.step(np.array([move], np.int32), seeds(1))
        differences.append(np.abs(shown.astype(float) - fleet.frame[0]).mean())
    assert 0.0 < max(differences) < 2.5


def test_it_keeps_the_contract_of_a_task() -> None:
    check_host_task(Atari, game="pong")


def test_the_stack_is_black_after_a_reset_and_then_fills() -> None:
    fleet = opened(2, processes=2)
    assert fleet.obs.shape == (2, 84, 84, 4)
    assert fleet.obs.dtype == np.uint8
    assert not fleet.obs[..., :3].any()
    frames = [fleet.frame.copy()]
    for t in range(5):
        fleet.step(np.array([t % 4, 3], np.int32), seeds(2))
        frames.append(fleet.frame.copy())
    np.testing.assert_array_equal(fleet.obs, np.stack(frames[-4:], axis=-1))
    other = fleet.obs[1].copy()
    fleet.reset(seeds(2, 7), np.array([True, False]))
    assert not fleet.obs[0, :, :, :3].any()
    np.testing.assert_array_equal(fleet.obs[1], other)


def test_frames_may_be_of_another_size() -> None:
    """The same game, each frame scaled from the screen at once, not from 84 x 84."""
    task, moves = Atari(side=42), np.random.default_rng(0).integers(4, size=12)
    assert task.spec.obs_shape == (42, 42, 4)
    fleet = task.open(2, 2)
    fleet.reset(seeds(2))
    machine = _emulator_worker.Atari("breakout", sticky=0.0, noops=30, skip=4, tracked=[])
    machine.reset(1)
    for move in moves:
        fleet.step(np.full(2, move, np.int32), seeds(2))
        machine.step(int(move))
        np.testing.assert_array_equal(fleet.frame[1], by_pillow(machine.picture, 42))
    assert fleet.obs.shape == (2, 42, 42, 4)
    np.testing.assert_array_equal(fleet.obs[..., -1], fleet.frame)


def test_a_side_too_small_for_the_networks_is_refused() -> None:
    with pytest.raises(UsageError, match=r"task\.side = 35: must be greater than or equal to 36 \(default 84\)"):
        checked(Atari, {"side": 35}, "task")


def test_frames_need_not_be_stacked() -> None:
    """Then the newest alone is shown and kept, and it is what it would have been; a state goes on to the same bits."""
    plain, single = opened(2), Atari().open(2, 1, stacked=False)
    single.reset(seeds(2))
    obs = single.obs
    assert obs.shape == (2, 84, 84, 1)
    moves, state = np.random.default_rng(0).integers(4, size=(20, 2)).astype(np.int32), {}
    for t, move in enumerate(moves):
        if t == 10:
            state = single.state()
        for fleet in (plain, single):
            fleet.step(move, seeds(2))
        np.testing.assert_array_equal(single.frame, plain.frame)
        np.testing.assert_array_equal(obs, plain.obs[..., -1:])
    assert state["stack"].shape == (2, 1, 84, 84)
    assert single.obs is obs
    again = Atari().open(2, 2, stacked=False)
    again.restore(state)
    for move in moves[10:]:
        again.step(move, seeds(2))
    np.testing.assert_array_equal(again.obs, single.obs)
    with pytest.raises(ValueError, match=r"stack is uint8\[2, 1, 84, 84\], not uint8\[2, 4, 84, 84\]"):
        plain.restore(state)


def test_games_begin_with_different_numbers_of_frames() -> None:
    """All thirty beginnings occur, each as often as the others, and the seed alone says which."""
    machine = _emulator_worker.Atari("breakout", sticky=0.0, noops=30, skip=4, tracked=[])
    played = []
    for seed in [*range(60)][::-1]:
        machine.reset(seed)
        played.append(machine._ale.getEpisodeFrameNumber())
    first = min(played)
    assert sorted(played) == sorted([*range(first, first + 30)] * 2)


def test_a_beginning_is_played_once_and_then_put_back() -> None:
    """What is put back goes on as what was played: pictures, scores and machine."""
    machines = [_emulator_worker.Atari("seaquest", sticky=0.25, noops=30, skip=4, tracked=[]) for _ in range(2)]
    machines[0]._beginnings.clear()
    machines[0].reset(7)
    pictures = []
    for machine in machines:
        machine.reset(7)
        shown = [machine.picture.copy()]
        for action in (1, 2, 5, 0, 11, 3) * 5:
            machine.step(action)
            shown.append(machine.picture.copy())
        pictures.append(np.stack(shown))
    np.testing.assert_array_equal(pictures[0], pictures[1])
    ale = machines[0]._ale
    ale.restoreState(machines[0]._fresh)
    for _ in range(1 + 7 % 30):
        ale.act(machines[0]._actions[0])
    np.testing.assert_array_equal(ale.getScreenGrayscale(), pictures[0][0])


def test_actions_stick_by_the_episode_s_seed() -> None:
    """Games with equal beginnings and other seeds go apart; in a quarter of the frames an action is repeated."""
    machine = _emulator_worker.Atari("seaquest", sticky=0.25, noops=30, skip=1, tracked=[])
    actions, pictures, repeated = np.random.default_rng(0).integers(2, 18, 2000), {}, 0
    for seed in (5, 35, 5):
        machine.reset(seed)
        shown = []
        for action in actions[:200]:
            machine.step(int(action))
            shown.append(machine.picture.copy())
        before = pictures.setdefault(seed, np.stack(shown))
        np.testing.assert_array_equal(before, np.stack(shown))
    assert (pictures[5] != pictures[35]).any()
    machine.reset(1)
    for action in actions:
        last = machine._last_action
        machine.step(int(action))
        repeated += machine._last_action != action
        assert machine._last_action in (action, last)
    # Actions that are the same anyway are one in sixteen.
    assert repeated / 2000 == pytest.approx(0.25 * 15 / 16, abs=0.04)
    # A state goes on with the same draws as the game that nobody interrupted, and with the action that may be repeated.
    kept, ends = machine.save(), []
    for again in (False, True):
        if again:
            machine.load(kept)
        taken = []
        for action in actions[:100]:
            machine.step(int(action))
            taken.append(machine._last_action)
        ends.append((taken, machine.save()))
    assert ends[0] == ends[1]


def test_a_sticky_game_goes_on_in_another_machine() -> None:
    """One that has played another game: seed, frames and the action that is likely repeated come with the state."""
    one, other = (_emulator_worker.Atari("seaquest", sticky=0.8, noops=30, skip=1, tracked=[]) for _ in range(2))
    actions, repeated = np.random.default_rng(0).integers(2, 18, 60), 0
    one.reset(5)
    other.reset(8)
    for begin in range(0, 60, 6):
        kept, before, taken = one.save(), one._last_action, []
        other.step(1)
        other.load(kept)
        for action in actions[begin : begin + 6]:
            for machine in (one, other):
                machine.step(int(action))
            taken.append(one._last_action)
            assert one._last_action == other._last_action
        repeated += taken[0] == before
    assert repeated >= 5
    assert one.save() == other.save()


def test_games_that_end_begin_anew_within_the_step() -> None:
    """`begin_play` is a step and, where it ended or was due to, a reset: frames, last frames, scores, ends."""
    apart, at_once = opened(3, game="pong"), opened(3, game="pong")
    begin = np.arange(3, dtype=np.uint32)
    for fleet in (apart, at_once):
        fleet.reset(begin)
    for t in range(12):
        actions, renewed = np.full(3, t % 6), np.arange(3, dtype=np.uint32) + t
        due = np.array([t % 5 == 4, False, t % 3 == 2])
        apart.step(actions, seeds(3))
        last, record = apart.frame.copy(), apart.record.copy()
        if due.any():
            apart.reset(renewed, due)
        at_once.begin_play(actions, renewed, due)
        at_once.end_step()
        np.testing.assert_array_equal(at_once.obs, apart.obs)
        np.testing.assert_array_equal(at_once.last[due], last[due])
        np.testing.assert_array_equal(at_once.record, record)
        assert not at_once.terminated.any()


def test_a_game_ends_and_its_score_counts() -> None:
    """Pong is lost 0 : 21 by one who does nothing: the rewards are -1, and they add up to the score."""
    fleet, total = opened(1, game="pong"), 0.0
    for _ in range(1200):
        fleet.step(np.zeros(1, np.int32), seeds(1))
        assert fleet.reward[0] in (-1.0, 0.0, 1.0)
        total += fleet.reward[0]
        if fleet.terminated[0]:
            break
    assert fleet.terminated[0]
    assert total == -21.0


def test_actions_of_the_paper_s_games() -> None:
    counts = dict(zip(PAPER, (9, 4, 18, 6, 6, 18, 18, 6), strict=True))
    assert {game: actions(game) for game in PAPER} == counts


def test_rooms_of_montezuma() -> None:
    """The game begins in room 1; the room is what the machine's memory says."""
    fleet = opened(2, game="MontezumaRevenge")
    np.testing.assert_array_equal(fleet.points, [[1.0], [1.0]])
    (rooms,) = Atari(game="montezuma revenge").grids
    assert rooms.nominal == 24
    assert opened(1, game="pong").points.shape == (1, 0)


def test_pictures_are_the_screen_s() -> None:
    fleet = opened(3, processes=2)
    picture = fleet.render(2, 160, 210)
    assert picture.shape == (210, 160, 3)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 3


@pytest.mark.parametrize("wrong", ["breakot", "Space Invader"])
def test_unknown_games_are_named_with_the_nearest(wrong: str) -> None:
    with pytest.raises(UsageError, match=r"unknown game .*Did you mean '(breakout|space_invaders)'"):
        Atari(game=wrong)


def test_without_ale_py_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ale_py", None)
    with pytest.raises(UsageError, match=r"'atari:pong' needs ale-py.*pip install 'curiax\[atari\]'"):
        Atari(game="pong")


def test_a_dead_emulator_is_told_at_once() -> None:
    fleet = opened(4, processes=2)
    fleet._processes[1].kill()
    began = time.monotonic()
    with pytest.raises(SimulatorError, match=r"process 1 ended with exit code -9 \(environments 2 to 3\).*continued"):
        fleet.step(np.zeros(4, np.int32), seeds(4))
    assert time.monotonic() - began < 2.0
    assert all(process.poll() is not None for process in fleet._processes)


def test_a_hanging_emulator_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _emulators.PATIENCE <= 5.0
    fleet = opened(2, processes=2)
    monkeypatch.setattr(_emulators, "PATIENCE", 0.5)
    os.kill(fleet._processes[0].pid, signal.SIGSTOP)
    with pytest.raises(SimulatorError, match=r"process 0 gave no answer within 0.5 s \(environment 0\)"):
        fleet.step(np.zeros(2, np.int32), seeds(2))
    assert all(process.poll() is not None for process in fleet._processes)


def test_an_error_inside_an_emulator_is_passed_on() -> None:
    fleet = opened(1)
    with pytest.raises(SimulatorError, match=r"emulators of 'breakout' failed \(environment 0\): IndexError"):
        fleet.step(np.full(1, 99, np.int32), seeds(1))
    fleet.step(np.zeros(1, np.int32), seeds(1))  # nothing is lost


def test_nothing_is_left_behind() -> None:
    fleet = opened(2, processes=2)
    processes = fleet._processes
    folder = _emulators.shared_folder()
    assert folder is None or not list(Path(folder).glob(f"curiax-{os.getpid()}-*"))
    del fleet
    gc.collect()
    assert all(process.poll() is not None for process in processes)


def test_a_state_that_does_not_fit_is_refused() -> None:
    fleet = opened(2)
    state = fleet.state()
    with pytest.raises(ValueError, match="machines has"):
        fleet.restore({**state, "machines": state["machines"][:-1]})
    with pytest.raises(ValueError, match="stack is"):
        fleet.restore({**state, "stack": state["stack"][:1]})
