"""Films of trained agents: what they show, that they play, and what is said where they cannot be made."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from kept import untrained
from PIL import Image

from curiax import (
    AbstractCuriosity,
    AbstractTask,
    Box,
    Grid,
    NoisyRemote,
    OutputError,
    RemoteSettings,
    Spec,
    UsageError,
)
from curiax._errors import CuriaxError, SimulatorError
from curiax._types import Axis
from curiax.cli import main
from curiax.envs import AbstractFleet, AbstractHostTask, MountainCar
from curiax.envs.gymnasium_task import prefer_egl
from curiax.envs.mountain_car import Car
from curiax.envs.remote import Screen
from curiax.experiments import folder
from curiax.experiments.spec import Experiment, resolve
from curiax.watch import film, watch

SHORT = {"steps": 6, "width": 320, "height": 240}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return untrained(tmp_path / "run", "mountain-car")


# --- tasks and methods with known answers ------------------------------------------------------------------


class Counting(AbstractCuriosity):
    """Pays the number of the step within its episode: it needs a memory, and a memory that is cut."""

    def __init__(self, spec: Spec, *, key: Any) -> None:
        pass

    def memory(self) -> Any:
        return jnp.zeros(())

    def reward(self, memory: Any, t: Any, *, key: Any) -> Any:
        return memory + 1.0, memory + 1.0

    def loss(self, t: Any, *, draw: Any) -> Any:
        return jnp.zeros(()), {}


class Showing(AbstractCuriosity):
    """Pays the first entry of the observation after the step."""

    def __init__(self, spec: Spec, *, key: Any) -> None:
        pass

    def reward(self, memory: Any, t: Any, *, key: Any) -> Any:
        return memory, t.next_obs[0]

    def loss(self, t: Any, *, draw: Any) -> Any:
        return jnp.zeros(()), {}


class Numbers(AbstractFleet):
    """Counts up; ends by itself after `length` steps, and spends the step after that on nothing."""

    def __init__(self, length: int, burst: int) -> None:
        self.obs, self.record = np.zeros((1, 2)), np.zeros((1, 2))
        self.terminated, self.truncated, self.filler = np.zeros(1, bool), np.zeros(1, bool), np.zeros(1, bool)
        self.length, self.burst, self.closed = length, burst, False

    def reset(self, seeds: Any, who: Any = None) -> None:
        assert seeds.shape == (1,)
        assert seeds.dtype == np.uint32
        self.obs[:], self.record[:] = 0.0, 0.0

    def step(self, actions: Any, seeds: Any, still: Any = None) -> None:
        assert actions.shape == (1, 1)
        assert np.all(np.abs(actions) <= 1)
        self.obs += 1.0
        self.record[:] = self.obs
        self.truncated[:] = self.obs[0, 0] == self.length
        self.filler[:] = self.obs[0, 0] == 2
        if self.obs[0, 0] == self.burst:
            self.obs[:] = np.nan

    def measure(self, record: Any) -> Any:
        return record / 10, np.zeros(record.shape[:-1])

    def state(self) -> dict[str, np.ndarray]:
        return {}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        pass

    def close(self) -> None:
        OPEN.remove(self)


OPEN: list[Numbers] = []


class Counter(AbstractHostTask):
    """A host task that cannot be drawn."""

    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)
    length: int = eqx.field(static=True)
    burst: int = eqx.field(static=True)

    def __init__(self, *, length: int = 4, burst: int = 0, flat: bool = False) -> None:
        self.spec = Spec((2,), Box((-1.0,), (1.0,)), 100)
        axes = (Axis("one", 0.0, 1.0, 5), Axis("other", 0.0, 1.0, 5))
        self.grids = () if flat else (Grid("bins", axes, "floor", closed=(3,)),)
        self.length, self.burst = length, burst

    def open(self, count: int, threads: int = 1) -> Numbers:
        assert count == 1
        OPEN.append(Numbers(self.length, self.burst))
        return OPEN[-1]


# --- films --------------------------------------------------------------------------------------------------


def facts(path: Path) -> str:
    """What the encoder's program says of a film."""
    program = film.ffmpeg()
    assert program is not None
    done = subprocess.run([program, "-i", str(path), "-f", "null", "-"], capture_output=True, text=True, check=True)
    return done.stderr


def frames(path: Path) -> list[np.ndarray]:
    """The pictures of a gif."""
    with Image.open(path) as image:
        found = []
        for k in range(image.n_frames):  # pyright: ignore[reportAttributeAccessIssue]
            image.seek(k)
            found.append(np.asarray(image.convert("RGB")))
    return found


def test_an_mp4_that_every_player_knows(run: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    made = watch(run, **SHORT, seed=5, fps=25, tell=lambda *now: calls.append(now))
    assert made.path == run / "watch-seed5.mp4"
    assert (made.task, made.method, made.seed, made.episodes, made.notice) == ("mountain-car", "lbs", 5, 1, "")
    assert made.bonus.shape == (6,)
    text = facts(made.path)
    assert "h264" in text
    assert "yuv420p" in text
    assert "320x240" in text
    assert "25 fps" in text
    assert "frame=    7" in text
    data = made.path.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat"), "playing can begin before the whole film is there"
    assert calls[0] == ("playing", 1, 6)
    assert calls[-1] == ("encoding", 7, 7)
    assert [path.name for path in run.iterdir() if path.name.startswith(".")] == []


def test_a_film_in_its_folder_leaves_the_run_a_run(run: Path) -> None:
    watch(run, **SHORT)
    plan = resolve(Experiment("mountain-car", "lbs", seeds=(3, 5)))
    assert folder.existing_run(run, plan.identity) is not None


def test_a_gif_and_the_same_one_again(run: Path, tmp_path: Path) -> None:
    one = watch(run, **SHORT, out=tmp_path / "deeper" / "one.gif", fps=50)
    two = watch(run, **SHORT, out=tmp_path / "two.GIF", fps=50)
    assert one.path.read_bytes() == two.path.read_bytes()
    other = watch(run, **SHORT, out=tmp_path / "other.gif", seed=5)
    assert not np.array_equal(other.bonus, one.bonus)
    with Image.open(one.path) as image:
        assert image.size == (320, 240)
        assert image.n_frames == 7  # pyright: ignore[reportAttributeAccessIssue]
        assert image.info["duration"] == 20
        assert image.info["loop"] == 0


def test_the_bonus_follows_each_episode_through_its_memory(tmp_path: Path) -> None:
    run = untrained(tmp_path / "run", "mountain-car", Counting, settings={"task.horizon": 5})
    made = watch(run, out=tmp_path / "a.gif", episodes=2, width=320, height=240, trust=True)
    np.testing.assert_array_equal(made.bonus, [1, 2, 3, 4, 5] * 2)
    assert made.episodes == 2
    made = watch(run, out=tmp_path / "a.gif", steps=7, width=320, height=240, trust=True)
    np.testing.assert_array_equal(made.bonus, [1, 2, 3, 4, 5, 1, 2])
    made = watch(run, out=tmp_path / "a.gif", steps=7, episodes=1, width=320, height=240, trust=True)
    assert len(made.bonus) == 5


def test_what_is_paid_for_is_what_is_shown(tmp_path: Path) -> None:
    """The bonus is the car's position, and the orange of the car is where the position says."""
    run = untrained(tmp_path / "run", "mountain-car", Showing, settings={"loop.obs_clip": 100.0})
    made = watch(run, out=tmp_path / "a.gif", steps=60, width=400, height=300, trust=True)
    assert np.all((made.bonus >= -1.2) & (made.bonus <= 0.6))
    orange = np.array([0xD5, 0x5E, 0x00])
    for picture, position in zip(frames(made.path)[1:], made.bonus, strict=True):
        near = np.abs(picture[:240].astype(int) - orange).sum(-1) < 60
        unit = min(400 / 2.0, 240 / 1.35)
        assert abs(np.nonzero(near)[1].mean() - (200 + unit * (position + 0.3))) < 12


def test_deterministic_takes_the_likeliest_action(tmp_path: Path) -> None:
    run = untrained(tmp_path / "run", "mountain-car", Showing)
    drawn, again = (
        watch(run, **SHORT, out=tmp_path / "a.gif", deterministic=d, trust=True).bonus for d in (False, True)
    )
    assert not np.array_equal(drawn, again)
    run = untrained(tmp_path / "random", "mountain-car", "random")
    assert watch(run, **SHORT, out=tmp_path / "a.gif", deterministic=True).bonus.shape == (6,)


@pytest.mark.parametrize("method", ["ngu", "ride", "vime", "none"])
def test_every_kind_of_method_can_be_watched(method: str, tmp_path: Path) -> None:
    made = watch(untrained(tmp_path / "run", "mountain-car-evolving", method), **SHORT, out=tmp_path / "a.gif")
    assert np.all(np.isfinite(made.bonus))


def test_a_host_task_that_cannot_be_drawn(tmp_path: Path) -> None:
    run = untrained(tmp_path / "run", Counter, Showing, settings={"loop.normalise_obs": False})
    made = watch(run, out=tmp_path / "a.gif", episodes=2, width=320, height=240, trust=True)
    # The second step of each episode was none.
    np.testing.assert_array_equal(made.bonus, [1, 0, 3, 4, 1, 0, 3, 4])
    assert made.episodes == 2
    assert OPEN == []
    run = untrained(tmp_path / "flat", Counter, Showing, settings={"task.flat": True, "task.length": 3})
    assert watch(run, out=tmp_path / "b.gif", width=320, height=240, trust=True).bonus.shape == (3,)


class Dot(gymnasium.Env[np.ndarray, Any]):
    """A bright dot that moves one pixel to the right at every step."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0.0, 100.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.at = render_mode, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = int(self.np_random.integers(5))
        return np.array([self.at], np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.at += 1
        return np.array([self.at], np.float32), 0.0, False, False, {}

    def render(self) -> np.ndarray:  # pyright: ignore[reportIncompatibleMethodOverride]
        picture = np.zeros((40, 60, 3), np.uint8)
        picture[10:30, self.at : self.at + 20] = 255
        return picture


def test_a_gymnasium_environment_draws_itself(tmp_path: Path) -> None:
    gymnasium.register("curiax-test/Dot-v0", Dot, max_episode_steps=30)
    run = untrained(tmp_path / "run", "gymnasium:curiax-test/Dot-v0", "rnd")
    made = watch(run, **SHORT, out=tmp_path / "a.gif")
    first, *_, last = frames(made.path)
    assert first[:192].std() > 10, "there is something to see"
    assert not np.array_equal(first[:192], last[:192])


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("mode", ["frozen", "evolving"])
def test_a_remote_on_the_host_has_its_television(mode: str, tmp_path: Path) -> None:
    settings = {"remote.mode": mode, "remote.between": "fresh"}
    made = watch(untrained(tmp_path / "run", "half-cheetah", "icm", settings=settings), **SHORT, out=tmp_path / "a.gif")
    corners = {tuple(picture[28, 24]) for picture in frames(made.path)[1:]}
    assert len(corners) >= 5, "each step has its shade of grey"
    settings = {"remote.mode": mode, "loop.normalise_obs": False}
    run = untrained(tmp_path / "counter", Counter, Showing, settings=settings)
    assert watch(run, **SHORT, out=tmp_path / "b.gif", trust=True).bonus.shape == (6,)


def test_a_simulation_that_runs_away_is_named(tmp_path: Path) -> None:
    run = untrained(tmp_path / "run", Counter, Showing, settings={"task.burst": 3})
    with pytest.raises(SimulatorError, match=r"Counter'.*ran away at step 3"):
        watch(run, out=tmp_path / "a.gif", trust=True)
    assert OPEN == []
    assert not (tmp_path / "a.gif").exists()


# --- pictures -----------------------------------------------------------------------------------------------


def test_the_strip_is_solid_as_far_as_it_was_played() -> None:
    bonus = np.full(10, 2.0)
    strip = film.Strip(bonus, np.zeros(10, bool), "title", "#0072b2", 400, 96)
    solid, pale = film.mixed("#0072b2", 0.85), film.mixed("#0072b2", 0.28)
    for played in (0, 3, 10):
        row = strip.picture(played)[80]
        found = [tuple(int(n) for n in pixel) for pixel in row]
        assert sum(pixel == solid for pixel in found) == pytest.approx(384 * played / 10, abs=4)
        assert sum(pixel == pale for pixel in found) == pytest.approx(384 * (1 - played / 10), abs=4)


def test_a_few_steps_that_pay_much_do_not_flatten_the_strip() -> None:
    """Where nine of ten steps pay less than a tenth of the largest, it ends at twice what they pay at most."""
    usual = np.array([*[1.0] * 50, *[2.0] * 46])
    solid = film.mixed("#0072b2", 0.85)

    def heights(bonus: np.ndarray) -> list[int]:
        picture = film.Strip(bonus, np.zeros(len(bonus), bool), "title", "#0072b2", 400, 96).picture(len(bonus))
        columns = (picture[:, x] == solid for x in (4 * 8, 4 * 30, 4 * 90))
        return [int(column.all(-1).sum()) for column in columns]

    low, _, high = heights(usual)
    assert high == pytest.approx(2 * low, abs=2)
    for peak in (50.0, 5000.0):
        top, low, high = heights(np.array([*[peak] * 9, *usual]))
        assert (low, high) == (pytest.approx(top / 4, abs=2), pytest.approx(top / 2, abs=2))
    top, low, high = heights(np.array([*[15.0] * 9, *usual]))
    assert (low, high) == (pytest.approx(top / 15, abs=2), pytest.approx(2 * top / 15, abs=2))


@pytest.mark.parametrize("bonus", [[0.0, 0.0], [-1.0, 2.0], [-3.0, -1.0], [1e-12, 1e9], [5.0]])
def test_any_bonus_can_be_drawn(bonus: list[float]) -> None:
    ended = np.arange(len(bonus)) == 0
    strip = film.Strip(np.array(bonus), ended, "a very long title " * 20, "#D55E00", 320, 48)
    for played in range(len(bonus) + 1):
        assert strip.picture(played).shape == (48, 320, 3)


def test_the_television_shows_the_noise() -> None:
    car = Car(jnp.asarray(-0.5), jnp.asarray(0.0))
    task = NoisyRemote(MountainCar(), RemoteSettings("frozen"))
    plain = MountainCar().draw(car, 320, 192)
    for noise in (-1.0, 0.0, 1.0):
        picture = task.draw(Screen(car, jnp.array([noise])), 320, 192)
        assert picture is not None
        changed = np.argwhere((picture != plain).any(-1))
        middle = picture[tuple(changed.mean(0).astype(int))]
        assert abs(int(middle[0]) - 127.5 * (noise + 1)) <= 1
        assert changed.max(0)[0] < 60
    many = NoisyRemote(MountainCar(), RemoteSettings("frozen", noise_dims=5))
    assert many.draw(Screen(car, jnp.linspace(-1, 1, 5)), 320, 192) is not None


def test_a_task_without_a_drawing_draws_nothing() -> None:
    class Plain(AbstractTask):
        spec: Spec = Spec((1,), Box((-1.0,), (1.0,)))
        grids: tuple[Grid, ...] = ()

        def reset(self, *, key: Any) -> Any:
            return jnp.zeros(1)

        def step(self, state: Any, action: Any, *, key: Any) -> Any:
            return state, jnp.zeros(()), jnp.zeros((), bool)

        def observe(self, state: Any) -> Any:
            return state

        def track(self, state: Any) -> Any:
            return state

    assert Plain().draw(jnp.zeros(1), 320, 192) is None
    task = NoisyRemote(Plain(), RemoteSettings("frozen"))
    assert task.draw(Screen(jnp.zeros(1), jnp.zeros(1)), 320, 192) is None


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("task", ["half-cheetah", "ant-maze"])
def test_simulations_are_drawn_and_left_alone(task: str) -> None:
    made = resolve(Experiment(task, "random")).setup.task
    assert isinstance(made, AbstractHostTask)
    fleet, still = made.open(3), made.open(3)
    seeds = np.arange(3, dtype=np.uint32)
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 3, made.spec.action.size))
    fleet.reset(seeds)
    still.reset(seeds)
    for action in actions:
        fleet.step(action, seeds)
        still.step(action, seeds)
        picture = fleet.render(1, 320, 240)
    np.testing.assert_array_equal(fleet.state()["simulation"], still.state()["simulation"])
    assert picture.shape == (240, 320, 3)
    assert picture.dtype == np.uint8
    orange = (picture[..., 0] > 150) & (picture[..., 2] < 80)
    assert 0.002 < orange.mean() < 0.2, "the robot is in the picture"
    assert picture.mean() > 100, "in daylight"
    assert np.abs(picture.astype(int) - fleet.render(2, 320, 240)).max() > 50, "each environment has its own"
    assert fleet.render(0, 800, 600).shape == (600, 800, 3)
    fleet.close()
    still.close()


def test_a_machine_without_opengl_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from curiax.envs import _picture

    def broken() -> Any:
        raise ImportError("no libEGL.so.1")

    monkeypatch.setattr(_picture, "backends", lambda mujoco: {"EGL": broken, "GLX": broken})
    task = resolve(Experiment("half-cheetah", "random")).setup.task
    assert isinstance(task, AbstractHostTask)
    fleet = task.open(1)
    with pytest.raises(UsageError, match=r"EGL: no libEGL.so.1; GLX: .*libegl1 libgl1-mesa-dri.*MUJOCO_GL=osmesa"):
        fleet.render(0, 320, 240)


def test_a_window_that_cannot_be_opened_ends_no_process() -> None:
    """MuJoCo's second try without a window would."""
    code = (
        "from curiax import UsageError; from curiax.envs import HalfCheetah; fleet = HalfCheetah().open(1)\n"
        "for _ in range(2):\n try: fleet.render(0, 64, 64)\n except UsageError as error: print(error)"
    )
    plain = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    command, variables = [sys.executable, "-c", code], {**plain, "MUJOCO_GL": "glfw"}
    done = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall("MuJoCo finds no OpenGL to draw with .glfw: .*DISPLAY", done.stdout) != []
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize("egl", [True, False])
def test_egl_is_asked_for_where_it_is(egl: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        if not egl:
            raise OSError(name)

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("MUJOCO_GL", "")  # so that it is put back
    monkeypatch.delenv("MUJOCO_GL")
    prefer_egl()
    assert os.environ.get("MUJOCO_GL") == ("egl" if egl else None)


# --- what cannot be made ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"out": "film.avi"}, r"must end in \.mp4 or \.gif"),
        ({"out": "film"}, r"must end in \.mp4 or \.gif"),
        ({"width": 641}, "--width 641: must be an even number from 320 to 3840"),
        ({"height": 10_000}, "--height 10000: must be an even number from 240 to 2160"),
        ({"width": 0}, "--width 0"),
        ({"steps": 0}, "--steps 0: must be a whole number from 1"),
        ({"episodes": -1}, "--episodes -1"),
        ({"fps": 0}, "--fps 0"),
        ({"fps": 1000}, "--fps 1000"),
        ({"seed": 4}, "seed 4 is not in this run; there are: 3, 5"),
    ],
)
def test_wrong_requests(run: Path, options: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        watch(run, **options)
    assert sorted(path.name for path in run.iterdir()) == [
        "agents.json",
        "agents.safetensors",
        "manifest.json",
        "metrics.parquet",
    ]


def test_a_folder_of_runs_is_listed(tmp_path: Path, run: Path) -> None:
    with pytest.raises(OutputError, match=r"holds 1 run; name one to watch:\n  .*/run"):
        watch(tmp_path)
    untrained(tmp_path / "suite" / "runs" / "other", "mountain-car", "icm")
    with pytest.raises(OutputError, match=r"holds 1 run; name one to watch:\n  .*suite/runs/other"):
        watch(tmp_path / "suite")
    (tmp_path / "empty").mkdir()
    with pytest.raises(OutputError, match="not a finished run"):
        watch(tmp_path / "empty")
    with pytest.raises(OutputError, match="it is not there"):
        watch(tmp_path / "nowhere")
    with pytest.raises(OutputError, match="but a file"):
        watch(run / "manifest.json")


def test_without_an_encoder(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(film, "ffmpeg", lambda: None)
    with pytest.raises(UsageError, match=r"pip install 'curiax\[video\]', or give --out a name ending in .gif"):
        watch(run, **SHORT, out=tmp_path / "a.mp4")
    made = watch(run, **SHORT)
    assert made.path.suffix == ".gif"
    assert "pip install 'curiax[video]'" in made.notice


def test_an_encoder_that_fails(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\necho 'Unknown encoder libx264' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(film, "ffmpeg", lambda: str(program))
    with pytest.raises(CuriaxError, match="the encoder failed: Unknown encoder libx264"):
        watch(run, **SHORT, out=tmp_path / "films" / "a.mp4")
    assert list((tmp_path / "films").iterdir()) == []


@pytest.mark.parametrize("ending", ["gif", "mp4"])
def test_only_a_film_of_ours_is_replaced(run: Path, tmp_path: Path, ending: str) -> None:
    """And nothing is played before that is known."""
    own, mine = tmp_path / f"own.{ending}", tmp_path / f"mine.{ending}"
    first = watch(run, **SHORT, out=own).path.read_bytes()
    assert watch(run, **SHORT, out=own).path.read_bytes() == first
    edited = bytearray(first)
    edited[len(first) // 2] ^= 1
    for data in (b"", b"holidays", b"GIF89a made by curiax watch, " + b"0" * 32, bytes(edited), first + b"more"):
        mine.write_bytes(data)
        with pytest.raises(OutputError, match=r"is there already and is not as `curiax watch` makes films"):
            watch(run, **SHORT, out=mine, tell=lambda *_: pytest.fail("it was played"))
        assert mine.read_bytes() == data
    mine.unlink()
    mine.symlink_to(own)
    with pytest.raises(OutputError, match="choose another --out"):
        watch(run, **SHORT, out=mine)
    assert own.read_bytes() == first
    assert mine.is_symlink()


def test_a_place_that_cannot_be_written_to(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"cannot write to .*Choose another --out"):
        watch(run, **SHORT, out=tmp_path / "file" / "a.gif")


# --- the command --------------------------------------------------------------------------------------------


def test_the_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.gif"
    size = ["--width", "320", "--height", "240"]
    assert main(["watch", str(run), "--seed", "5", "--steps", "4", "--out", str(out), *size]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("lbs on mountain-car, seed 5: 4 steps in 1 episode, bonus ")
    assert captured.out.endswith(f"  {out}\n")
    assert captured.err == ""
    assert main(["watch", str(run), "--seed", "9"]) == 2
    assert "there are: 3, 5" in capsys.readouterr().err
    assert main(["watch", str(tmp_path / "nowhere")]) == 2
    assert main(["watch"]) == 2


def test_the_command_asks_for_trust(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = untrained(tmp_path / "run", "mountain-car", Counting)
    line = ["watch", str(run), "--steps", "3", "--out", str(tmp_path / "a.gif"), "--deterministic"]
    assert main(line) == 2
    assert "add --trust" in capsys.readouterr().err
    assert main([*line, "--trust"]) == 0


def test_watching_is_light_until_it_is_done() -> None:
    heavy = ["PIL", "mujoco", "imageio_ffmpeg", "safetensors", "matplotlib", "rich.progress"]
    code = f"import sys, curiax, curiax.cli, curiax.watch; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
