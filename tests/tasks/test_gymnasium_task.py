"""Gymnasium's environments as tasks: true successors in every auto-reset mode, exact restores, clear refusals."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from curiax._errors import SimulatorError, UsageError
from curiax._settings import checked
from curiax._types import Box, Discrete
from curiax.envs import GymnasiumTask
from curiax.envs.gymnasium_task import GymnasiumFleet, fitted, refuse
from curiax.experiments.registry import TaskEntry, find_task, gymnasium_task

COUNT, LIMIT = 4, 7


class Toy(gymnasium.Env[np.ndarray, Any]):
    """Shows which episode it is in (a number drawn at the reset), the step, and a noisy sum of its actions.

    Its choices are numbered 5, 6, 7; choice 7 ends an episode from the third step on.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 1}
    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(3, start=5)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.seen = np.array([float(self.np_random.integers(1_000_000)), 0.0, 0.0])
        return self.seen.copy(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.seen[1] += 1
        self.seen[2] += int(action) - 6 + 0.1 * self.np_random.standard_normal()
        return self.seen.copy(), float(self.seen[2]), bool(action == 7 and self.seen[1] >= 3), False, {}

    def render(self) -> np.ndarray:
        return np.full((4, 8, 3), int(self.seen[1]), np.uint8)


class OwnVector(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A package's own vector environment: one seed for all, buffers that it goes on writing into."""

    def __init__(
        self, num_envs: int, mode: Any = None, mask: bool = False, final: bool = True, max_episode_steps: int = LIMIT
    ) -> None:
        self.num_envs, self.mode, self.mask, self.final = num_envs, mode, mask, final
        self.metadata = {"autoreset_mode": mode} if mode else {}
        self.envs = [gymnasium.wrappers.TimeLimit(Toy(), max_episode_steps) for _ in range(num_envs)]
        self.single_observation_space, self.single_action_space = Toy.observation_space, Toy.action_space
        self.observation_space = batch_space(Toy.observation_space, num_envs)
        self.action_space = batch_space(Toy.action_space, num_envs)
        self.seen, self.done = np.zeros((num_envs, 3)), np.zeros(num_envs, bool)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert seed is None or isinstance(seed, int)
        who = options["reset_mask"] if self.mask and options else np.ones(self.num_envs, bool)
        for k in np.flatnonzero(who):
            self.seen[k], _ = self.envs[k].reset(seed=None if seed is None else seed + int(k))
            self.done[k] = False
        return self.seen, {}

    def step(self, actions: Any) -> Any:
        assert self.action_space.contains(actions)
        reward, terminated, truncated = np.zeros(self.num_envs), *np.zeros((2, self.num_envs), bool)
        infos, final = {}, np.zeros((self.num_envs, 3))
        for k, env in enumerate(self.envs):
            if self.mode == AutoresetMode.NEXT_STEP and self.done[k]:
                self.seen[k], reward[k] = env.reset()[0], 9.0
            else:
                self.seen[k], reward[k], terminated[k], truncated[k], _ = env.step(actions[k])
            self.done[k] = terminated[k] or truncated[k]
            if self.mode == AutoresetMode.SAME_STEP and self.done[k]:
                final[k], self.seen[k] = self.seen[k], env.reset()[0]
        if self.final and self.mode == AutoresetMode.SAME_STEP:
            infos = {"final_obs": final, "_final_obs": self.done.copy()}
        actions[:] = 0  # allowed, if unkind
        return self.seen, reward, terminated, truncated, infos


numbers = itertools.count()


def register(entry_point: Any = None, **settings: Any) -> str:
    """The new id of an environment."""
    name = f"curiax-test/Made{next(numbers)}-v0"
    gymnasium.register(name, entry_point, **settings)
    return name


class Spaces(gymnasium.Env[Any, Any]):
    """Has the spaces it is told, and shows what it is told."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, observation: Any = None, action: Any = None, shown: Any = None, fails: str = "") -> None:
        self.observation_space = spaces.Box(-1, 1, (2,)) if observation is None else observation
        self.action_space = spaces.Discrete(2) if action is None else action
        self.shown, self.fails, self.taken = iter(shown or ()), fails, []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if self.fails == "reset":
            raise RuntimeError("no route to the robot")
        return next(self.shown, None) if self.fails != "shape" else np.zeros(7, np.float32), {}

    def step(self, action: Any) -> Any:
        if self.fails == "step":
            raise RuntimeError("the robot fell off the table")
        self.taken.append(action)
        return next(self.shown, None), 0.0, False, False, {}


def made(**settings: Any) -> str:
    """The id of a `Spaces`."""
    return register(Spaces, disable_env_checker=True, kwargs=settings)


TOY = register(Toy, max_episode_steps=LIMIT)
NEXT_VECTOR = register(vector_entry_point=OwnVector, kwargs={"mode": AutoresetMode.NEXT_STEP})
SAME_VECTOR = register(vector_entry_point=OwnVector, kwargs={"mode": AutoresetMode.SAME_STEP})
DISABLED_VECTOR = register(vector_entry_point=OwnVector, kwargs={"mode": AutoresetMode.DISABLED, "mask": True})

#: Each way to run the toy, with the auto-reset mode it should come to.
CASES = {
    "single": (lambda: GymnasiumTask(id=TOY), "disabled"),
    "same-step": (lambda: GymnasiumTask(id=TOY, autoreset="same-step"), "same-step"),
    "next-step": (lambda: GymnasiumTask(id=TOY, autoreset="next-step"), "next-step"),
    "own-same-step": (lambda: GymnasiumTask(id=SAME_VECTOR, vectorization="vector_entry_point"), "same-step"),
    "own-next-step": (lambda: GymnasiumTask(id=NEXT_VECTOR, vectorization="vector_entry_point"), "next-step"),
    "own-disabled": (lambda: GymnasiumTask(id=DISABLED_VECTOR, vectorization="vector_entry_point"), "disabled"),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[str, GymnasiumTask]:
    build, mode = CASES[request.param]
    task = build()
    assert task.autoreset == mode
    return request.param, task


@dataclass
class Lived:
    """What one step of a fleet showed."""

    before: np.ndarray
    successor: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    filler: np.ndarray
    after: np.ndarray
    new_seeds: np.ndarray


def drive(fleet: GymnasiumFleet, actions: np.ndarray, seeds: np.ndarray) -> Iterator[Lived]:
    """What the loop does: act, keep the successor, reset where episodes ended."""
    for action, fresh in zip(actions, seeds, strict=True):
        before = fleet.obs.copy()
        fleet.step(action, fresh)
        obs, terminated, truncated = fleet.obs.copy(), fleet.terminated.copy(), fleet.truncated.copy()
        reward = fleet.reward.copy()
        filler = np.zeros(len(before), bool) if fleet.filler is None else fleet.filler.copy()
        fleet.reset(fresh, terminated | truncated)
        yield Lived(before, obs, reward, terminated, truncated, filler, fleet.obs.copy(), fresh)


def inputs(steps: int, number: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Actions, seeds for every step, and seeds for the first reset."""
    rng = np.random.default_rng(number)
    actions = rng.integers(0, 3, (steps, COUNT)).astype(np.int32)
    return actions, rng.integers(0, 2**32, (steps, COUNT), np.uint32), rng.integers(0, 2**32, COUNT, np.uint32)


def seed_of(name: str, k: int, seeds: np.ndarray, who: np.ndarray) -> int:
    """What environment `k` should be seeded with when `who` are reset."""
    if not name.startswith("own"):
        return int(seeds[k])
    return k + int(np.random.SeedSequence(seeds[who].tolist()).generate_state(1)[0])


def test_true_successors_in_every_mode(case: tuple[str, GymnasiumTask]) -> None:
    """Each environment does what a plain one does: same observations, rewards and ends, fillers apart."""
    name, task = case
    actions, seeds, start = inputs(120)
    fleet = task.open(COUNT)
    fleet.reset(start)
    first = fleet.obs.copy()
    lived = list(drive(fleet, actions, seeds))
    ends = {"terminated": 0, "truncated": 0, "filler": 0}
    for k in range(COUNT):
        env = gymnasium.wrappers.TimeLimit(Toy(), LIMIT)
        expected, _ = env.reset(seed=seed_of(name, k, start, np.ones(COUNT, bool)))
        assert np.array_equal(first[k], expected)
        owed = False
        for t, step in enumerate(lived):
            assert np.array_equal(step.before[k], expected)
            assert step.filler[k] == owed
            if owed:
                expected, reward, terminated, truncated = env.reset()[0], 0.0, False, False
            else:
                expected, reward, terminated, truncated, _ = env.step(np.int64(actions[t, k] + 5))
            assert np.array_equal(step.successor[k], expected), (t, k)
            assert (step.reward[k], step.terminated[k], step.truncated[k]) == (reward, terminated, truncated)
            ends["terminated"] += terminated
            ends["truncated"] += truncated
            ends["filler"] += owed
            owed = (terminated or truncated) and task.autoreset == "next-step"
            if (terminated or truncated) and not owed:
                ended = step.terminated | step.truncated
                seeded = task.autoreset == "disabled"
                seed = seed_of(name, k, step.new_seeds, ended) if seeded else None
                expected, _ = env.reset(seed=seed)
            assert np.array_equal(step.after[k], expected)
    assert ends["terminated"] > 10
    assert ends["truncated"] > 10
    assert (ends["filler"] > 20) == (task.autoreset == "next-step")
    assert (fleet.filler is not None) == (task.autoreset == "next-step")
    points, reward = fleet.measure(np.stack([fleet.record] * 2))
    assert points.shape == (2, COUNT, 0)
    assert reward.tolist() == [fleet.reward.tolist()] * 2
    fleet.close()


@pytest.mark.parametrize("number", range(6))
def test_restore_is_exact_at_any_cut(case: tuple[str, GymnasiumTask], number: int) -> None:
    _, task = case
    actions, seeds, start = inputs(60, number)
    cut = int(np.random.default_rng(number).integers(0, 50))
    fleet = task.open(COUNT)
    fleet.reset(start)
    for _ in drive(fleet, actions[:cut], seeds[:cut]):
        pass
    if number % 2:
        # A state in the middle of a step too, where the ended episodes still show their last observation.
        fleet.step(actions[cut], seeds[cut])
    kept = fleet.state()
    assert all(isinstance(value, np.ndarray) and value.dtype != object for value in kept.values())
    again = task.open(COUNT)
    if number > 2:
        again.reset(start[::-1].copy())
        for _ in drive(again, actions[::-1], seeds):
            pass
    again.restore({key: value.copy() for key, value in kept.items()})
    kept_again = again.state()
    assert kept.keys() == kept_again.keys()
    for key in kept:
        assert np.array_equal(kept[key], kept_again[key]), key
    for one in (fleet, again):
        one.reset(seeds[cut], one.terminated | one.truncated)
    assert np.array_equal(fleet.obs, again.obs)
    rest = slice(cut + 1, None)
    for left, right in zip(
        drive(fleet, actions[rest], seeds[rest]), drive(again, actions[rest], seeds[rest]), strict=True
    ):
        for field, value in vars(left).items():
            assert np.array_equal(value, getattr(right, field)), field
    assert again.steps == fleet.steps


def test_state_before_the_first_reset(case: tuple[str, GymnasiumTask]) -> None:
    _, task = case
    fleet, again = task.open(COUNT), task.open(COUNT)
    again.restore(fleet.state())
    actions, seeds, start = inputs(5)
    for one in (fleet, again):
        one.reset(start)
        list(drive(one, actions, seeds))
    assert np.array_equal(fleet.obs, again.obs)


def test_state_is_of_the_same_fleet() -> None:
    task = GymnasiumTask(id=TOY)
    fleet = task.open(2)
    fleet.reset(np.zeros(2, np.uint32))
    with pytest.raises(UsageError, match=r"2 environments .* does not fit this fleet of 3"):
        task.open(3).restore(fleet.state())


@pytest.mark.parametrize("autoreset", ["disabled", "same-step", "next-step"])
def test_position_in_the_row_does_not_matter(autoreset: Any) -> None:
    task = GymnasiumTask(id=TOY, autoreset=autoreset)
    actions, seeds, start = inputs(40)
    order = np.array([2, 0, 3, 1])
    fleet, turned = task.open(COUNT), task.open(COUNT)
    fleet.reset(start)
    turned.reset(start[order])
    for left, right in zip(
        drive(fleet, actions, seeds), drive(turned, actions[:, order], seeds[:, order]), strict=True
    ):
        assert np.array_equal(left.successor[order], right.successor)


@pytest.mark.parametrize("autoreset", ["disabled", "same-step", "next-step"])
def test_unended_episodes_can_be_reset_alone(autoreset: Any) -> None:
    task = GymnasiumTask(id=TOY, autoreset=autoreset)
    actions, seeds, start = inputs(30)
    who = np.array([False, True, False, False])
    fleet = task.open(COUNT)
    fleet.reset(start)
    fleet.step(actions[0], seeds[0])
    others = fleet.obs[~who].copy()
    fleet.reset(seeds[1], who)
    expected, _ = Toy().reset(seed=int(seeds[1][1]))
    assert np.array_equal(fleet.obs[1], expected)
    assert np.array_equal(fleet.obs[~who], others)
    fleet.step(np.zeros(COUNT, np.int32), seeds[2])
    assert fleet.obs[:, 1].tolist() == [2.0, 1.0, 2.0, 2.0]
    again = task.open(COUNT)
    again.restore(fleet.state())
    assert np.array_equal(again.obs, fleet.obs)


def test_own_vector_without_a_mask_cannot_reset_alone() -> None:
    task = GymnasiumTask(id=SAME_VECTOR, vectorization="vector_entry_point")
    actions, seeds, start = inputs(3)
    fleet = task.open(COUNT)
    fleet.reset(start)
    fleet.step(actions[0], seeds[0])
    fleet.reset(seeds[0], np.zeros(COUNT, bool))
    with pytest.raises(SimulatorError, match=r"environment 1 of 4, step 1.*reset alone.*reset_mask.*others as well"):
        fleet.reset(seeds[1], np.array([False, True, False, False]))


def test_standing_still() -> None:
    task = GymnasiumTask(id=TOY)
    _, seeds, start = inputs(20)
    still = np.array([True, False, True, False])
    fleet, moved = task.open(COUNT), task.open(COUNT)
    for one in (fleet, moved):
        one.reset(start)
        one.step(np.zeros(COUNT, np.int32), seeds[0])
    before = fleet.obs.copy()
    fleet.step(np.ones(COUNT, np.int32), seeds[1], still)
    moved.step(np.ones(COUNT, np.int32), seeds[1])
    assert np.array_equal(fleet.obs[still], before[still])
    assert np.array_equal(fleet.obs[~still], moved.obs[~still])
    assert fleet.reward.tolist() == np.where(still, 0.0, moved.reward).tolist()
    again = task.open(COUNT)
    again.restore(fleet.state())
    assert np.array_equal(again.obs, fleet.obs)
    assert np.array_equal(again.record, fleet.record)
    # Once it moves again, nothing has been lost.
    fleet.step(np.ones(COUNT, np.int32), seeds[2], ~still)
    assert np.array_equal(fleet.obs, moved.obs)
    vector = GymnasiumTask(id=TOY, autoreset="next-step").open(COUNT)
    vector.reset(start)
    vector.step(np.ones(COUNT, np.int32), seeds[2], np.zeros(COUNT, bool))
    with pytest.raises(SimulatorError, match=r"environment 0, 2 of 4, step 1.*stand still.*task.autoreset=disabled"):
        vector.step(np.ones(COUNT, np.int32), seeds[2], still)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0"])
def test_classic_control_equals_a_plain_loop(name: str) -> None:
    task, steps = GymnasiumTask(id=name), 260
    rng = np.random.default_rng(3)
    start, seeds = rng.integers(0, 2**32, 2, np.uint32), rng.integers(0, 2**32, (steps, 2), np.uint32)
    discrete = isinstance(task.spec.action, Discrete)
    # Beyond the box as well: the fleet clips.
    actions = rng.integers(0, 2, (steps, 2)) if discrete else rng.normal(0, 2, (steps, 2, 1)).astype(np.float32)
    fleet = task.open(2)
    fleet.reset(start)
    lived = list(drive(fleet, actions, seeds))
    assert fleet.obs.dtype == np.float64
    for k in range(2):
        env = gymnasium.make(name)
        space: Any = env.action_space
        obs, _ = env.reset(seed=int(start[k]))
        for t, step in enumerate(lived):
            assert np.array_equal(step.before[k], obs)
            action = (
                actions[t, k] if isinstance(space, spaces.Discrete) else np.clip(actions[t, k], space.low, space.high)
            )
            obs, reward, terminated, truncated, _ = env.step(action)
            assert np.array_equal(step.successor[k], obs)
            assert (step.reward[k], step.terminated[k], step.truncated[k]) == (float(reward), terminated, truncated)
            if terminated or truncated:
                obs, _ = env.reset(seed=int(seeds[t, k]))
    if name != "MountainCarContinuous-v0":
        assert any(step.terminated.any() or step.truncated.any() for step in lived)
    again = task.open(2)
    again.restore(fleet.state())
    assert np.array_equal(again.obs, fleet.obs)


def test_the_vector_environment_that_gymnasium_brings() -> None:
    task = GymnasiumTask(id="CartPole-v1", vectorization="vector_entry_point")
    assert task.autoreset == "next-step"
    actions, seeds, start = inputs(80)
    fleet = task.open(COUNT)
    fleet.reset(start)
    lived = list(drive(fleet, actions // 2, seeds))
    assert sum(step.filler.sum() for step in lived) > 4
    for step, later in itertools.pairwise(lived):
        assert np.array_equal(later.filler, step.terminated | step.truncated)
        assert (np.abs(later.successor[later.filler]) <= 0.05).all()
    again = task.open(COUNT)
    again.restore(fleet.state())
    assert np.array_equal(again.obs, fleet.obs)
    with pytest.raises(SimulatorError, match="reset_mask"):
        fleet.reset(start, np.array([False, False, False, True]) & ~(fleet.terminated | fleet.truncated))


def test_spec_of_boxes() -> None:
    cart = GymnasiumTask(id="CartPole-v1")
    assert cart.spec.obs_shape == (4,)
    assert cart.spec.action == Discrete(2)
    assert cart.spec.horizon is None
    assert cart.spec.obs_low is None  # two of the four have no bound
    assert cart.grids == ()
    assert cart.budget == 102_400
    assert cart.unlearnable(jnp.zeros(())) is None
    car = GymnasiumTask(id="MountainCarContinuous-v0")
    assert car.spec.action == Box((-1.0,), (1.0,))
    assert car.spec.obs_high == pytest.approx((0.6, 0.07))
    picture = GymnasiumTask(id=made(observation=spaces.Box(0, 255, (4, 3, 2), np.uint8)))
    assert picture.spec.obs_shape == (4, 3, 2)
    assert picture.spec.obs_high == (255.0,) * 24
    assert hash(picture) == hash(picture)
    assert jax.tree.leaves(eqx.filter(picture, eqx.is_array)) == []


def test_observations_without_an_axis_get_one() -> None:
    name = made(observation=spaces.Box(-1, 1, ()), shown=[np.float32(0.5), np.float32(-0.25)])
    task = GymnasiumTask(id=name)
    fleet = task.open(1)
    fleet.reset(np.zeros(1, np.uint32))
    assert fleet.obs.tolist() == [[0.5]]
    assert task.spec.obs_shape == (1,)


@pytest.mark.parametrize(
    ("space", "shown", "seen"),
    [
        (spaces.Discrete(4), np.int64(2), [0, 0, 1, 0]),
        (spaces.Discrete(3, start=-1), -1, [1, 0, 0]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 0]), [0, 1, 1, 0, 0]),
        (spaces.MultiDiscrete([2, 3], start=[4, 5]), np.array([4, 7]), [1, 0, 0, 0, 1]),
        (spaces.MultiDiscrete(np.full((2, 2), 2)), np.array([[0, 1], [1, 0]]), [1, 0, 0, 1, 0, 1, 1, 0]),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (spaces.MultiBinary((2, 2)), np.array([[1, 0], [0, 1]], np.int8), [1, 0, 0, 1]),
    ],
)
def test_whole_numbers_become_vectors(space: Any, shown: Any, seen: list[int]) -> None:
    task = GymnasiumTask(id=made(observation=space, shown=[shown, shown]))
    assert task.spec.obs_shape == (len(seen),)
    assert task.spec.obs_low == (0.0,) * len(seen)
    assert task.spec.obs_high == (1.0,) * len(seen)
    fleet = task.open(2)
    fleet.reset(np.zeros(2, np.uint32))
    fleet.step(np.zeros(2, np.int32), np.zeros(2, np.uint32))
    assert fleet.obs.tolist() == [seen, seen]


def test_discrete_observations_in_a_vector() -> None:
    task = GymnasiumTask(id="FrozenLake-v1", autoreset="same-step")
    fleet = task.open(2)
    fleet.reset(np.arange(2, dtype=np.uint32))
    assert task.spec.obs_shape == (16,)
    assert fleet.obs.argmax(axis=1).tolist() == [0, 0]
    for step in drive(fleet, np.ones((40, 2), np.int32), np.zeros((40, 2), np.uint32)):
        assert (step.successor.sum(axis=1) == 1).all()
        ended = step.terminated | step.truncated
        assert (step.after[ended].argmax(axis=1) == 0).all()
        assert (step.successor[ended].argmax(axis=1) > 0).all()


@pytest.mark.parametrize(
    ("space", "given", "taken"),
    [
        (spaces.Discrete(3, start=7), np.array([2]), 9),
        (spaces.Box(-1, 1, (2, 2)), np.array([[0.5, -3, 3, 0]], np.float32), [[0.5, -1], [1, 0]]),
        (spaces.Box(-2, 2, ()), np.array([[5.0]]), 2),
        (spaces.Box(0, 3, (2,), np.int64), np.array([[1.7, -4.0]]), [2, 0]),
    ],
)
def test_actions_as_the_environment_takes_them(space: Any, given: np.ndarray, taken: Any) -> None:
    seen = [np.zeros(2, np.float32)] * 2
    name = made(action=space, shown=seen)
    task = GymnasiumTask(id=name)
    fleet: Any = task.open(1)
    fleet.reset(np.zeros(1, np.uint32))
    fleet.step(given, np.zeros(1, np.uint32))
    (action,) = fleet._envs[0].unwrapped.taken
    assert np.asarray(action).tolist() == taken
    assert action.dtype == space.dtype
    assert space.contains(action)


def test_an_action_written_into_does_not_spoil_the_state() -> None:
    class Writes(Toy):
        action_space = spaces.Box(-1, 1, (1,), np.float32)  # pyright: ignore[reportAssignmentType]

        def step(self, action: Any) -> Any:
            action *= 0.5
            self.seen[1:] += action
            return self.seen.copy(), 0.0, False, False, {}

    task = GymnasiumTask(id=register(Writes, disable_env_checker=True))
    fleet, again = task.open(1), task.open(1)
    fleet.reset(np.zeros(1, np.uint32))
    for _ in range(3):
        fleet.step(np.ones((1, 1), np.float32), np.zeros(1, np.uint32))
    assert fleet.obs[0, 1] == 1.5
    again.restore(fleet.state())
    assert np.array_equal(again.state()["actions"], np.ones((1, 3, 1)))


UNSUPPORTED = [
    (spaces.Dict(a=spaces.Discrete(2)), r"Dict\(.*FlattenObservation"),
    (spaces.Tuple([spaces.Discrete(2)]), r"Tuple\(.*FlattenObservation"),
    (spaces.Text(4), r"Text\(.*ObservationWrapper"),
    (spaces.Box(-1, 1, (0,)), r"Box\(.*ObservationWrapper"),
]


@pytest.mark.parametrize(("space", "words"), UNSUPPORTED)
def test_unsupported_observations(space: Any, words: str) -> None:
    name = made(observation=space)
    with pytest.raises(UsageError, match=f"{name}.*observations in {words}"):
        GymnasiumTask(id=name)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Box(-np.inf, 1, (2,)), "have no bounds.*RescaleAction"),
        (spaces.Box(1, 1, (2,)), "nothing to choose"),
        (spaces.MultiDiscrete([2, 3]), "not supported.*ActionWrapper"),
        (spaces.MultiBinary(2), "not supported.*ActionWrapper"),
        (spaces.Dict(a=spaces.Discrete(2)), "not supported.*ActionWrapper"),
    ],
)
def test_unsupported_actions(space: Any, words: str) -> None:
    name = made(action=space)
    with pytest.raises(UsageError, match=f"{name}.*actions in .*{words}"):
        GymnasiumTask(id=name)


def test_unknown_ids() -> None:
    with pytest.raises(UsageError, match=r"task\.id: name a Gymnasium environment.*gymnasium:CartPole-v1"):
        GymnasiumTask()
    with pytest.raises(UsageError, match=r"unknown Gymnasium environment 'CartPol-v1'. Did you mean 'CartPole-v1'"):
        GymnasiumTask(id="CartPol-v1")
    with pytest.raises(UsageError, match=r"'CartPole-v9'. Did you mean 'CartPole-v1'.*gymnasium:MODULE:ID"):
        GymnasiumTask(id="CartPole-v9")
    with pytest.raises(UsageError, match="unknown Gymnasium environment 'not an id'"):
        GymnasiumTask(id="not an id")
    with pytest.raises(UsageError, match="could not be made: ValueError"):
        GymnasiumTask(id="a:b:c")


def needs(error: Exception) -> Callable[[], Any]:
    def build() -> Any:
        raise error

    return build


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            gymnasium.error.DependencyNotInstalled('MuJoCo is not installed, run `pip install "gymnasium[mujoco]"`'),
            r"pip install 'curiax\[mujoco\]'",
        ),
        (gymnasium.error.DependencyNotInstalled("Box2D is not installed"), r"pip install 'gymnasium\[box2d\]'"),
        (gymnasium.error.DependencyNotInstalled("a key is missing"), "a key is missing.*see its documentation"),
        (ModuleNotFoundError("No module named 'mujoco'", name="mujoco"), r"pip install 'curiax\[mujoco\]'"),
        (ModuleNotFoundError("No module named 'maze.x'", name="maze.x"), "pip install maze"),
        (ImportError("mujoco v2 environments have moved"), "have moved.*see its documentation"),
        (OSError("no display"), "could not be made: OSError: no display.*gymnasium.make"),
    ],
)
def test_missing_packages(error: Exception, words: str) -> None:
    name = register(needs(error))
    with pytest.raises(UsageError, match=f"{name}.*{words}"):
        GymnasiumTask(id=name)


def test_missing_modules_and_namespaces() -> None:
    with pytest.raises(UsageError, match=r"'no_such_module:Thing-v0' needs a package.*pip install no_such_module"):
        GymnasiumTask(id="no_such_module:Thing-v0")
    with pytest.raises(
        UsageError, match=r"'nowhere/Thing-v0'.*pip install nowhere; .*gymnasium:MODULE:nowhere/Thing-v0"
    ):
        GymnasiumTask(id="nowhere/Thing-v0")
    with pytest.raises(UsageError, match=r"pip install 'curiax\[atari\]'"):
        refuse("ALE/Pong-v5", gymnasium.error.NamespaceNotFound("Namespace ALE not found."))
    with pytest.raises(UsageError, match=r"unknown Gymnasium environment 'Gone-v1'.*use `Gone-v2`"):
        refuse("Gone-v1", gymnasium.error.DeprecatedEnv("Please use `Gone-v2` instead."))


def test_vectors_and_modes_that_do_not_exist() -> None:
    with pytest.raises(UsageError, match=r"no vector environment of its own: set task.vectorization=sync"):
        GymnasiumTask(id=TOY, vectorization="vector_entry_point")
    with pytest.raises(UsageError, match=r"as a vector only: set task.vectorization=vector_entry_point"):
        GymnasiumTask(id=NEXT_VECTOR)
    with pytest.raises(UsageError, match="in 'next-step' mode and cannot be asked for 'same-step'"):
        GymnasiumTask(id=NEXT_VECTOR, vectorization="vector_entry_point", autoreset="same-step")
    assert GymnasiumTask(id=NEXT_VECTOR, vectorization="vector_entry_point", autoreset="next-step")
    silent = register(vector_entry_point=OwnVector)
    with pytest.raises(UsageError, match=r"does not declare its auto-reset mode.*task\.autoreset: disabled"):
        GymnasiumTask(id=silent, vectorization="vector_entry_point")
    task = GymnasiumTask(id=silent, vectorization="vector_entry_point", autoreset="disabled")
    assert task.autoreset == "disabled"
    fixed = register(vector_entry_point=OwnVector, kwargs={"mode": AutoresetMode.NEXT_STEP, "num_envs": 3})
    with pytest.raises(UsageError, match=r"2 environments were asked for.*has 3"):
        GymnasiumTask(id=fixed, vectorization="vector_entry_point").open(2)
    with pytest.raises(UsageError, match=r"task\.autoreset = 'never': must be 'disabled', 'same-step' or 'next-step'"):
        checked(GymnasiumTask, {"autoreset": "never"}, "task")


def test_a_same_step_vector_must_hand_over_the_last_observation() -> None:
    name = register(vector_entry_point=OwnVector, kwargs={"mode": AutoresetMode.SAME_STEP, "final": False})
    fleet = GymnasiumTask(id=name, vectorization="vector_entry_point").open(COUNT)
    actions, seeds, start = inputs(20)
    fleet.reset(start)
    with pytest.raises(SimulatorError, match=rf"{name}.*environment \d of 4, step \d.*final_obs.*vectorization=sync"):
        list(drive(fleet, actions, seeds))


@pytest.mark.parametrize("autoreset", ["disabled", "next-step"])
def test_failures_inside_an_environment(autoreset: Any) -> None:
    zeros, action, good = np.zeros(2, np.uint32), np.zeros(2, np.int32), np.zeros(2, np.float32)
    where = "environment 0 of 2" if autoreset == "disabled" else "one of 2"

    def opened(**settings: Any) -> GymnasiumFleet:
        return GymnasiumTask(id=made(**settings), autoreset=autoreset).open(2)

    with pytest.raises(SimulatorError, match=rf"\({where}, step 0\) failed in reset\(seed=.*no route.*check_env"):
        opened(fails="reset").reset(zeros)
    fleet = opened(fails="step", shown=[good])
    fleet.reset(zeros)
    with pytest.raises(SimulatorError, match=rf"{where}, step 0.*RuntimeError: the robot fell off.*correct or wrap it"):
        fleet.step(action, zeros)
    with pytest.raises(SimulatorError, match=r"step 0\) failed in reset.*Error.*(shape|broadcast)"):
        opened(fails="shape").reset(zeros)
    fleet = opened(observation=spaces.Discrete(3), shown=[0, 9])
    fleet.reset(zeros)
    with pytest.raises(SimulatorError, match=r"step 1.*environment 0 shows 9, which lies outside Discrete\(3\)"):
        fleet.step(action, zeros)


@pytest.mark.parametrize("autoreset", ["disabled", "same-step"])
def test_an_environment_that_is_not_deterministic_is_not_continued(autoreset: Any) -> None:
    class Drifts(Toy):
        episodes = itertools.count()

        def reset(self, **options: Any) -> Any:
            super().reset(**options)
            self.seen[2] = next(self.episodes)
            return self.seen.copy(), {}

    name = register(Drifts, disable_env_checker=True)
    task = GymnasiumTask(id=name, autoreset=autoreset)
    fleet = task.open(2)
    fleet.reset(np.zeros(2, np.uint32))
    fleet.step(np.zeros(2, np.int32), np.zeros(2, np.uint32))
    with pytest.raises(SimulatorError, match=rf"{name}.*environment 0 of 2, step 1\) is not deterministic.*np_random"):
        task.open(2).restore(fleet.state())


@pytest.mark.parametrize("autoreset", ["disabled", "same-step"])
def test_a_record_of_unsound_actions_is_repeated_as_it_was(autoreset: Any) -> None:
    """A policy that is lost may hand over NaN; where it is kept as something else, another episode comes out."""

    class Leans(Toy):
        action_space = spaces.Box(-1.0, 1.0, (1,))

        def step(self, action: Any) -> Any:
            self.seen[2] += 1.0 if action[0] >= 0 else -1.0
            return self.seen.copy(), 0.0, False, False, {}

    task = GymnasiumTask(id=register(Leans, disable_env_checker=True), autoreset=autoreset)
    fleet, other = task.open(2), task.open(2)
    fleet.reset(np.zeros(2, np.uint32))
    fleet.step(np.array([[np.nan], [0.5]], np.float32), np.zeros(2, np.uint32))
    other.restore(fleet.state())
    np.testing.assert_array_equal(other.obs, fleet.obs)
    assert fleet.obs[0, 2] == -1.0
    for name, forged in (("obs", np.float32), ("record", np.float32), ("actions", np.float64)):
        state = fleet.state()
        with pytest.raises(ValueError, match=name):
            task.open(2).restore({**state, name: state[name].astype(forged)})


@pytest.mark.parametrize("render", [True, False])
@pytest.mark.parametrize("autoreset", ["disabled", "same-step"])
def test_pictures(autoreset: Any, render: bool) -> None:
    """A fleet opened without pictures takes them as well, and goes on as if none had been taken."""
    task = GymnasiumTask(id=TOY, autoreset=autoreset)
    actions, seeds, start = inputs(30)
    fleet, undrawn = task.open(COUNT, render=render), task.open(COUNT)
    for one in (fleet, undrawn):
        one.reset(start)
        list(drive(one, actions[:10], seeds[:10]))
    picture = fleet.render(1, 16, 16)
    assert picture.shape == (16, 16, 3)
    assert picture.dtype == np.uint8
    assert (picture[4:12] == fleet.obs[1, 1]).all()
    assert not picture[:4].any()
    assert not picture[12:].any()
    for left, right in zip(
        drive(fleet, actions[10:], seeds[10:]), drive(undrawn, actions[10:], seeds[10:]), strict=True
    ):
        assert np.array_equal(left.successor, right.successor)
        assert np.array_equal(left.after, right.after)
    assert (fleet.render(2, 8, 4) == fleet.obs[2, 1]).all()


@pytest.mark.parametrize("autoreset", ["disabled", "same-step"])
def test_environments_that_cannot_be_drawn(autoreset: Any) -> None:
    task = GymnasiumTask(id=made(shown=[np.zeros(2, np.float32)]), autoreset=autoreset)
    with pytest.raises(UsageError, match="no render mode 'rgb_array'"):
        task.open(1, render=True)
    fleet = task.open(1)
    fleet.reset(np.zeros(1, np.uint32))
    with pytest.raises(UsageError, match="no render mode 'rgb_array'"):
        fleet.render(0, 4, 4)

    def blank(error: Exception) -> GymnasiumFleet:
        class Blank(Toy):
            def render(self) -> Any:
                raise error

        fleet = GymnasiumTask(id=register(Blank), autoreset=autoreset).open(1, render=True)
        fleet.reset(np.zeros(1, np.uint32))
        return fleet

    with pytest.raises(UsageError, match=r"pygame is not installed\): pip install 'gymnasium\[classic-control\]'"):
        blank(gymnasium.error.DependencyNotInstalled("pygame is not installed")).render(0, 4, 4)
    with pytest.raises(SimulatorError, match="could not be drawn: OSError: out of ink"):
        blank(OSError("out of ink")).render(0, 4, 4)


def test_pictures_are_scaled_without_distortion() -> None:
    frame = np.zeros((2, 2, 3), np.uint8)
    frame[0, 0] = 200
    large = fitted(frame, 8, 4)
    assert (large[:2, 2:4] == 200).all()
    assert large.sum() == 200 * 3 * 4
    assert fitted(large, 2, 1).shape == (1, 2, 3)


def test_name_resolution() -> None:
    entry = find_task("gymnasium:CartPole-v1")
    assert (entry.name, entry.cls) == ("gymnasium:CartPole-v1", GymnasiumTask)
    assert entry.settings == {"task.id": "CartPole-v1"}
    assert isinstance(entry, TaskEntry)
    assert find_task("gymnasium:some.module:space/Thing-v0").settings == {"task.id": "some.module:space/Thing-v0"}
    assert find_task(GymnasiumTask).cls is GymnasiumTask
    with pytest.raises(UsageError, match="after the colon, as gymnasium:CartPole-v1"):
        gymnasium_task("gymnasium:")
    settings = checked(GymnasiumTask, {"id": "CartPole-v1", "autoreset": "next-step"}, "task")
    assert GymnasiumTask(**settings).autoreset == "next-step"


def test_a_module_in_the_working_directory_registers_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "maze_of_mine.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import PendulumEnv\n"
        "gymnasium.register('mine/Maze-v0', PendulumEnv, max_episode_steps=3)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    before = find_task("gymnasium:maze_of_mine:mine/Maze-v0").source
    assert GymnasiumTask(id="maze_of_mine:mine/Maze-v0").spec.obs_shape == (3,)
    assert before == find_task("gymnasium:maze_of_mine:mine/Maze-v0").source != ""
    with (tmp_path / "maze_of_mine.py").open("a") as file:
        file.write("# changed\n")
    assert find_task("gymnasium:maze_of_mine:mine/Maze-v0").source != before
