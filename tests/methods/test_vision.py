"""Agents of large images: saved, loaded and watched; what NumPy computes against the policy of training."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kept import CHOICE, DATA, edit, expected, retensor, untrained

import curiax
from curiax import AbstractTask, Box, Grid, OutputError, Spec
from curiax._frames import FrameStore
from curiax.agents.ppo import VisionPolicy
from curiax.cli import main
from curiax.cli.watch import scores_text
from curiax.envs import EmulatorFleet
from curiax.experiments import saved, scoring
from curiax.experiments.spec import Experiment, resolve
from curiax.experiments.training import Training
from curiax.trained import TOGETHER
from curiax.watch import film, watch

SIDE = 36
TINY = {
    "loop.envs": 4,
    "loop.rollout": 8,
    "task.side": SIDE,
    "task.random_steps": 50,
    "ppo.width": 32,
    "ppo.epochs": 1,
    "ppo.minibatch_size": 16,
    "learner.epochs": 1,
    "learner.minibatch_size": 16,
    "method.width": 32,
    "method.latent_size": 16,
}
WITHOUT_METHOD = {name: value for name, value in TINY.items() if not name.startswith("method.")}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A game after two rollouts of `curiax run`; tests that change it take a copy."""
    pytest.importorskip("ale_py")
    out = tmp_path_factory.mktemp("vision") / "run"
    settings = [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert (
        main(
            ["run", "atari:breakout", "--method", "lbs", "--seeds", "1", "--steps", "64", "--out", str(out), *settings]
        )
        == 0
    )
    return out


@pytest.fixture(scope="module")
def played(run: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations, actions and next observations of random play: bytes, as the emulator shows them."""
    task = saved.read(run)[0].setup.task
    fleet = task.open(1)  # pyright: ignore[reportAttributeAccessIssue]
    rng, seen = np.random.default_rng(0), []
    fleet.reset(np.zeros(1, np.uint32))
    actions = rng.integers(4, size=90).astype(np.int32)
    for action in actions:
        seen.append(fleet.obs[0].copy())
        fleet.step(np.array([action]), np.zeros(1, np.uint32))
    seen.append(fleet.obs[0].copy())
    fleet.close()
    return np.stack(seen[:-1]), actions, np.stack(seen[1:])


def logits(path: Path, obs: np.ndarray) -> np.ndarray:
    """What training's policy makes of raw observations, seen as training sees them."""
    _, learnt = saved.read(path)
    one = learnt.one(learnt.seeds[0])
    assert isinstance(one.networks.agent, VisionPolicy)
    view = FrameStore(jnp.zeros((1, SIDE, SIDE), jnp.uint8), one.obs_stats.mean, jnp.sqrt(one.obs_stats.var.ravel()[0]))
    each = jax.jit(jax.vmap(lambda pixels: one.networks.agent.distribution(view.standardised(pixels)).logits))
    return np.asarray(each(jnp.asarray(obs)))


def output(path: Path, obs: np.ndarray) -> np.ndarray:
    agent = curiax.load(path)
    return agent._output(agent._about.policy, obs)  # pyright: ignore[reportPrivateUsage, reportArgumentType]


# --- acting -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_games_agent_acts_as_in_training(run: Path, played: tuple[np.ndarray, ...], tmp_path: Path) -> None:
    """With logits of some size: those of an agent that has just begun are all but 0."""

    def stir(arrays: dict[str, np.ndarray]) -> None:
        rng = np.random.default_rng(0)
        arrays["agent.head.weight"] *= 2000
        for name in arrays:
            if name.startswith("agent.") and name.endswith("bias"):
                arrays[name] += rng.normal(0, 0.1, arrays[name].shape).astype(np.float32)

    path = curiax.export(run, tmp_path / "stirred")
    retensor(path, stir)
    obs, agent = played[0], curiax.load(path)
    assert obs.dtype == np.uint8
    assert len(obs) > TOGETHER
    theirs = logits(path, obs)
    assert theirs.std(0).min() > 0.01, "different pictures have different logits"
    np.testing.assert_allclose(output(path, obs), theirs, rtol=0, atol=1e-4)
    acted = agent.act(obs)
    np.testing.assert_array_equal(acted, theirs.argmax(-1))
    np.testing.assert_array_equal(agent.act(obs.astype(np.float32)), acted)
    assert agent.act(obs[3]).shape == ()
    assert agent.act(obs[3]) == acted[3]
    assert agent.act(obs[:0]).shape == (0,)
    drawn = agent.act(np.repeat(obs[:1], 4000, axis=0), deterministic=False, rng=0)
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 4000, jax.nn.softmax(theirs[0]), atol=0.03)


@pytest.mark.slow
def test_statistics_of_pixels_are_those_of_random_play(run: Path, played: tuple[np.ndarray, ...]) -> None:
    _, learnt = saved.read(run)
    stats = learnt.one(0).obs_stats
    assert np.ptp(np.asarray(stats.var)) == 0, "one deviation for all pixels"
    assert np.ptp(np.asarray(stats.mean)) > 50, "a mean for each"
    agent = curiax.load(run)
    view = (played[0] - np.asarray(stats.mean)) / np.sqrt(np.asarray(stats.var))
    np.testing.assert_allclose(agent._seen(played[0]), view, rtol=1e-5, atol=1e-5)  # pyright: ignore[reportPrivateUsage]


def test_frames_without_measured_statistics_are_seen_in_0_to_1(tmp_path: Path) -> None:
    """Without `loop.normalise_obs` training divides pixels by 255, and so does an export."""
    pytest.importorskip("ale_py")
    plan = resolve(Experiment("atari:breakout", "rnd", 1, settings={**WITHOUT_METHOD, "loop.normalise_obs": False}))
    training = Training(plan)
    saved.write(tmp_path, plan, training.saved())
    training.close()
    obs = np.random.default_rng(0).integers(256, size=(3, SIDE, SIDE, 4)).astype(np.uint8)
    agent = curiax.load(tmp_path)
    np.testing.assert_allclose(agent._seen(obs), obs / 255, rtol=1e-6)  # pyright: ignore[reportPrivateUsage]
    np.testing.assert_allclose(output(tmp_path, obs), logits(tmp_path, obs), rtol=0, atol=1e-4)


class Window(AbstractTask):
    """A large image with an odd side, and continuous actions."""

    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)

    def __init__(self) -> None:
        size = 41 * 37 * 3
        self.spec = Spec((41, 37, 3), Box((-0.1, -9.0), (0.1, 9.0)), 10, (0.0,) * size, (1.0,) * size)
        self.grids = ()

    def reset(self, *, key: Any) -> Any:
        return jnp.zeros(self.spec.obs_shape)

    def step(self, state: Any, action: Any, *, key: Any) -> Any:
        return state, jnp.zeros(()), jnp.zeros((), bool)

    def observe(self, state: Any) -> Any:
        return state

    def track(self, state: Any) -> Any:
        return jnp.zeros(1)


def test_continuous_actions_of_large_images(tmp_path: Path) -> None:
    path = untrained(tmp_path / "run", Window, "random", settings={})
    assert curiax.load(path).act(np.zeros((41, 37, 3)), rng=0).shape == (2,)
    path = untrained(
        tmp_path / "other",
        Window,
        "rnd",
        settings={"ppo.width": 16, "ppo.value_heads": "two", "loop.extrinsic_weight": 0.5},
    )
    agent, obs = curiax.load(path), np.random.default_rng(0).random((5, 41, 37, 3))
    policy = saved.read(path, trust=True)[1].one(3).networks.agent
    mean = np.asarray(jax.vmap(lambda image: policy.distribution(image).mean)(jnp.asarray(obs, jnp.float32)))
    np.testing.assert_allclose(agent.act(obs), np.clip(mean, [-0.1, -9.0], [0.1, 9.0]), rtol=0, atol=1e-5)
    drawn = agent.act(np.repeat(obs[:1], 3000, axis=0), deterministic=False, rng=0)[:, 1]
    assert drawn.mean() == pytest.approx(mean[0, 1], abs=0.06)
    assert drawn.std() == pytest.approx(1.0, abs=0.05)


# --- paying -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_games_bonus_is_the_methods(
    run: Path, played: tuple[np.ndarray, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    obs, action, after = played
    one = saved.read(run)[1].one(0)
    mean, deviation = np.asarray(one.obs_stats.mean), np.sqrt(np.asarray(one.obs_stats.var))
    paid = curiax.load(run).bonus(obs, action, after)
    assert paid.std() > 0
    for k in (0, 41, 89):
        step = curiax.Transition(
            jnp.asarray((obs[k] - mean) / deviation, jnp.float32),
            jnp.asarray(action[k]),
            jnp.asarray((after[k] - mean) / deviation, jnp.float32),
            *(jnp.asarray(flag) for flag in (0.0, False, False, True)),
        )
        alone = one.networks.curiosity.reward(None, step, key=jax.random.key(0))[1]
        assert paid[k] == pytest.approx(float(alone), rel=1e-4)
    monkeypatch.setattr(scoring, "TOGETHER", 16 * obs[0].size)
    np.testing.assert_allclose(curiax.load(run).bonus(obs, action, after), paid, rtol=1e-5)


def test_a_memory_goes_on_from_piece_to_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    golden = expected(CHOICE)
    monkeypatch.setattr(scoring, "TOGETHER", 4 * 30)
    steps = golden["obs"][: len(golden["taken"])], golden["taken"], golden["next_obs"]
    assert len(steps[1]) % 30
    np.testing.assert_allclose(curiax.load(CHOICE).bonus(*steps), golden["bonuses"][0], rtol=1e-5, atol=1e-6)


# --- files --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_games_agent_is_exported(run: Path, played: tuple[np.ndarray, ...], tmp_path: Path) -> None:
    assert main(["export", str(run), "--out", str(tmp_path / "out")]) == 0
    agent = curiax.load(tmp_path / "out")
    np.testing.assert_array_equal(agent.act(played[0]), curiax.load(run).act(played[0]))
    assert agent.spec == saved.read(tmp_path / "out")[0].setup.task.spec
    about = json.loads((tmp_path / "out" / "agents.json").read_text())
    page = (DATA.parent.parent / "docs" / "howto-export.md").read_text()
    words = {*about["policy"], *about["policy"]["convolutions"][0], "vision"}
    assert [word for word in words if f"`{word}`" not in page] == []


def policy(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda about: about["policy"].update(changes)


def convolution(k: int, **changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda about: about["policy"]["convolutions"][k].update(changes)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (policy(kind="mlp"), "policy"),
        (policy(kind="other"), "policy"),
        (policy(convolutions=[]), "convolutions: List should have at least 1 item"),
        (policy(slope=float(2)), "slope"),
        (policy(slope=None), "slope"),
        (policy(activation="tanh"), "activation"),
        (policy(layers=[]), "layers"),
        (policy(layers=["agent.trunk.layers.0", "agent.critic"]), "the policy has 1 outputs, its actions 4"),
        (policy(layers=["agent.head"], features="agent.nothing"), "agent.nothing.weight is no matrix of each seed"),
        (policy(features="agent.head"), r"agent.trunk.layers.0.weight is not float32\[4, 32\]"),
        (policy(log_std="agent.head.bias"), "its policy does not fit its actions"),
        (policy(extra=1), "extra"),
        (convolution(0, side=0), "side"),
        (convolution(0, side=8.0), "side"),
        (convolution(0, stride=0), "stride"),
        (convolution(0, padding=1), "padding"),
        (convolution(0, side=SIDE + 1), "nothing is left of an image for agent.eye.convolutions.0"),
        (convolution(1, side=9), "nothing is left of an image for agent.eye.convolutions.1"),
        (convolution(1, side=3), r"convolutions.1.weight is not float32\[144, 32\]"),
        (convolution(1, stride=1), r"eye.head.layers.0.weight is not float32\[800, 32\]"),
        (convolution(1, layer="agent.eye.convolutions.0"), r"eye.head.layers.0.weight is not float32\[144, 32\]"),
        (lambda about: about["spec"].update(obs_shape=[SIDE * SIDE * 4]), "its policy is one of images"),
        (lambda about: about["spec"].update(obs_shape=[SIDE, SIDE, 3]), r"obs_stats.mean is not float32\[36, 36, 3\]"),
    ],
)
@pytest.mark.slow
def test_a_changed_description_of_a_policy_is_refused(run: Path, tmp_path: Path, change: Any, match: str) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    edit(tmp_path / "run", change)
    with pytest.raises(OutputError, match=match):
        curiax.load(tmp_path / "run")


@pytest.mark.slow
def test_unsound_convolutions_are_refused(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    name = "agent.eye.convolutions.1.weight"
    retensor(tmp_path / "run", lambda arrays: arrays[name].fill(np.nan))
    with pytest.raises(OutputError, match=f"{name} holds NaN"):
        curiax.load(tmp_path / "run")


# --- films --------------------------------------------------------------------------------------------------


class Notes:
    """What the emulators of a film were told and have shown."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[np.ndarray] = []
        self.actions: list[int] = []
        self.rewards: list[float] = []
        self.begun: list[int] = []
        reset, step = EmulatorFleet.reset, EmulatorFleet.step

        def noted_reset(fleet: EmulatorFleet, *given: Any) -> None:
            reset(fleet, *given)
            self.begun.append(len(self.actions))
            self.seen.append(fleet.obs[0].copy())

        def noted_step(fleet: EmulatorFleet, actions: Any, *given: Any) -> None:
            step(fleet, actions, *given)
            self.actions.append(int(actions[0]))
            self.rewards.append(float(fleet.reward[0]))
            self.seen.append(fleet.obs[0].copy())

        monkeypatch.setattr(EmulatorFleet, "reset", noted_reset)
        monkeypatch.setattr(EmulatorFleet, "step", noted_step)


@pytest.mark.slow
def test_a_film_of_a_game(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bonus is what the exported agent pays for what the emulator showed; its score what the emulator paid."""
    notes = Notes(monkeypatch)
    monkeypatch.setattr(scoring, "TOGETHER", 16 * SIDE * SIDE * 4)  # several pieces
    made = watch(run, steps=90, width=320, height=240, out=tmp_path / "a.gif")
    assert (made.task, made.method, made.episodes) == ("atari:breakout", "lbs", 1)
    obs = np.stack(notes.seen)
    paid = curiax.load(run).bonus(obs[:-1], notes.actions, obs[1:])
    np.testing.assert_allclose(made.bonus, paid, rtol=1e-4)
    assert made.scores == (sum(notes.rewards),)
    assert sum(notes.rewards) > 0
    assert made.score_name == "score"
    with film_of(made.path) as pictures:
        assert pictures.n_frames == 91
        assert pictures.info["duration"] == 70  # 15 steps in a second, in hundredths
        first = np.asarray(pictures.convert("RGB"))
    assert first.shape == (240, 320, 3)
    assert first[:192, 32:288].std() > 30, "there is something to see"
    assert np.ptp(first[:192, :30].astype(int), axis=(0, 1)).max() == 0, "bars beside it"


def film_of(path: Path) -> Any:
    from PIL import Image

    return Image.open(path)


@pytest.mark.slow
def test_the_command_tells_the_score_of_each_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ale_py")
    path = untrained(tmp_path / "run", "atari:breakout", "rnd", settings={**WITHOUT_METHOD, "task.horizon": 40})
    notes = Notes(monkeypatch)
    line = ["watch", str(path), "--episodes", "2", "--width", "320", "--height", "240", "--fps", "50"]
    assert main([*line, "--out", str(tmp_path / "a.gif")]) == 0
    assert notes.begun == [0, 40]
    scores = [sum(notes.rewards[:40]), sum(notes.rewards[40:])]
    ending = ", score " + ", ".join(f"{score:.0f}" for score in scores)
    assert capsys.readouterr().out.splitlines()[0].endswith(ending)
    with film_of(tmp_path / "a.gif") as pictures:
        assert pictures.info["duration"] == 20


def test_many_scores_are_told_as_two() -> None:
    assert scores_text([9.0, 1234.0]) == "9, 1,234"
    assert scores_text([*[0.0] * 8, 18.0]) == "2.0 on average, 18 at most"


@pytest.mark.parametrize(("skip", "steps"), [(4, 15), (2, 30), (1, 60), (100, 1)])
def test_a_game_is_shown_at_its_true_speed(skip: int, steps: int) -> None:
    pytest.importorskip("ale_py")
    task = resolve(Experiment("atari:pong", "lbs", settings={"task.skip": skip})).setup.task
    assert task.steps_per_second == steps
    assert resolve(Experiment("mountain-car", "lbs")).setup.task.steps_per_second is None


@pytest.mark.parametrize(("width", "height", "across", "up"), [(640, 384, 512, 384), (320, 400, 320, 240)])
def test_a_screen_has_the_shape_of_a_television(width: int, height: int, across: int, up: int) -> None:
    asked = []

    def draw(width: int, height: int) -> np.ndarray:
        asked.append((width, height))
        return np.full((height, width, 3), 200, np.uint8)

    picture = film.screen_picture(draw, width, height)
    assert picture.shape == (height, width, 3)
    rows, columns = np.nonzero((picture == 200).all(-1))
    assert (columns.max() + 1 - columns.min(), rows.max() + 1 - rows.min()) == (across, up)
    assert len(rows) == across * up
    assert abs(columns.min() + columns.max() + 1 - width) <= 1
    assert abs(rows.min() + rows.max() + 1 - height) <= 1
    assert asked == [(film.FINE * across, film.FINE * up)]


def test_a_bonus_that_hardly_changes_shows_its_course() -> None:
    """Its lowest and highest step are far apart in height; one that falls below half begins at 0."""
    high = [heights(np.array([low, 10.0])) for low in (9.0, 4.0)]
    assert high[0][0] < 0.2 * high[0][1]
    assert high[1][0] == pytest.approx(0.4 * high[1][1], abs=2)
    flat = heights(np.array([9.9999, 10.0]))
    assert flat[0] == pytest.approx(flat[1], abs=2), "rounding is no course"


def heights(bonus: np.ndarray) -> list[int]:
    """The filled pixels at the ends of two steps, in a strip that is all played."""
    strip = film.Strip(bonus, np.zeros(2, bool), "", "#0072b2", 400, 96).picture(2)
    solid = (strip == np.array(film.mixed("#0072b2", 0.85))).all(-1)
    return [int(solid[:, x].sum()) for x in (200, 389)]


def test_the_caption_has_the_score() -> None:
    bonus, ended = np.ones(3), np.zeros(3, bool)
    plain, scored, other = (
        film.Strip(bonus, ended, "", "#0072b2", 400, 96, score).picture(2)[:30]
        for score in (None, np.array([0.0, 7.0, 8.0]), np.array([0.0, 1234.0, 8.0]))
    )
    dark = [int((picture.sum(-1) < 300).sum()) for picture in (plain, scored, other)]
    assert dark[0] < dark[1] < dark[2]
