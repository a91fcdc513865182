"""Half-Cheetah and Ant Maze: their physics, geometry and state, against Gymnasium, the model itself and brute force."""

import dataclasses
import hashlib
import io
import subprocess
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import SMALL

import curiax
from curiax.envs import AntMaze, HalfCheetah
from curiax.envs.ant_maze import CORRIDOR, WALLS
from curiax.experiments.spec import resolve
from curiax.train.hosted import Lane

TASKS = {"half-cheetah": HalfCheetah, "ant-maze": AntMaze}
BOTH = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def seeds(count: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + count, dtype=np.uint32)


def actions(task, steps: int, count: int, seed: int = 0) -> np.ndarray:
    size = task.spec.action.size
    return np.random.default_rng(seed).uniform(-1.5, 1.5, (steps, count, size)).astype(np.float32)


def opened(task, count: int, threads: int = 1):
    fleet = task.open(count, threads)
    fleet.reset(seeds(count))
    return fleet


def walked(fleet, moves: np.ndarray) -> np.ndarray:
    """Everything a fleet shows on its way."""
    rows = []
    for move in moves:
        fleet.step(move, seeds(len(move)))
        rows.append(np.concatenate([fleet.obs, fleet.points, fleet.reward[:, None]], axis=1))
    return np.stack(rows)


def test_one_step_is_gymnasiums_from_ten_thousand_states():
    """HalfCheetah-v5 and our fleet agree to 1e-12 after one step from the same state, warm start included."""
    env = gymnasium.make("HalfCheetah-v5").unwrapped
    env.reset(seed=0)
    rng, count, worst = np.random.default_rng(1), 100, 0.0
    fleet = opened(HalfCheetah(), count, threads=2)
    state = fleet.state()
    for _ in range(100):
        qpos = env.init_qpos + rng.normal(0, 0.5, (count, 9))
        qvel = rng.normal(0, 5.0, (count, 9))
        moves = rng.uniform(-1.5, 1.5, (count, 6)).astype(np.float32)
        fleet.restore(state)
        expected, speeds = [], []
        for k in range(count):
            env.set_state(qpos[k], qvel[k])
            fleet.qpos[k], fleet.qvel[k] = qpos[k], qvel[k]
            fleet.batch.qacc_warmstart[k] = env.data.qacc_warmstart
            obs, _, _, _, info = env.step(moves[k])
            expected.append(obs)
            speeds.append(info["x_velocity"])
        fleet.step(moves, seeds(count))
        worst = max(worst, np.abs(fleet.obs - expected).max(), np.abs(fleet.points[:, 0] - speeds).max())
    assert worst <= 1e-12
    env.close()


def test_resets_are_gymnasiums_distribution():
    """qpos₀ + U(−0.1, 0.1) and 0.1 N(0, 1) in every coordinate: bounds, means and deviations."""
    for task in (HalfCheetah(), AntMaze()):
        fleet = task.open(2000)
        fleet.reset(seeds(2000))
        start = fleet.qpos - fleet.model.qpos0
        assert np.abs(start).max() <= 0.1
        np.testing.assert_allclose(start.std(0), 0.2 / 12**0.5, rtol=0.08)
        np.testing.assert_allclose(fleet.qvel.std(0), 0.1, rtol=0.08)
        np.testing.assert_allclose(start.mean(0), 0, atol=0.006)
        both = np.corrcoef(np.concatenate([start, fleet.qvel], axis=1).T)
        assert np.abs(both - np.eye(len(both))).max() < 0.12, "each coordinate has a displacement of its own"
        assert len(np.unique(start[:, 0])) == 2000


@BOTH
def test_position_and_threads_do_not_matter(task):
    """An environment does the same to the last bit wherever it stands in the row, beside whomever, on any threads."""
    task = task()
    moves = actions(task, 40, 6)
    whole = walked(opened(task, 6, threads=2), moves)
    order = np.array([4, 1, 5, 0])
    fleet = task.open(4, 3)
    fleet.reset(seeds(6)[order])
    np.testing.assert_array_equal(walked(fleet, moves[:, order]), whole[:, order])


@BOTH
@pytest.mark.parametrize("cut", [0, 1, *np.random.default_rng(4).integers(2, 60, 6).tolist()])
def test_state_is_put_back_exactly(task, cut):
    """A state written to bytes, read elsewhere and continued on other threads gives the very same bits."""
    task = task()
    moves = actions(task, cut + 30, 3, seed=cut)
    fleet = opened(task, 3)
    walked(fleet, moves[:cut]) if cut else None
    if cut % 2:  # in the midst of some other's new episode
        fleet.reset(seeds(3, 90), np.array([False, True, False]))
    buffer = io.BytesIO()
    np.savez(buffer, **fleet.state())
    expected = walked(fleet, moves[cut:])
    buffer.seek(0)
    with np.load(buffer, allow_pickle=False) as kept:
        again = task.open(3, 2)
        again.reset(seeds(3, 500))
        again.restore(dict(kept))
    np.testing.assert_array_equal(walked(again, moves[cut:]), expected)


ELSEWHERE = """
import sys, hashlib, numpy as np
from curiax.envs import AntMaze, HalfCheetah
task = {"HalfCheetah": HalfCheetah, "AntMaze": AntMaze}[sys.argv[1]]()
fleet = task.open(2, 2)
with np.load(sys.argv[2], allow_pickle=False) as kept:
    fleet.reset(np.zeros(2, np.uint32))
    fleet.restore({name: kept[name] for name in ("simulation", "obs", "record")})
    for move in kept["moves"]:
        fleet.step(move, np.zeros(2, np.uint32))
print(hashlib.sha256(fleet.obs.tobytes()).hexdigest())
"""


@BOTH
def test_state_is_put_back_in_another_process(task, tmp_path):
    moves = actions(task(), 30, 2)
    fleet = opened(task(), 2)
    walked(fleet, moves[:11])
    np.savez(tmp_path / "state.npz", moves=moves[11:], **fleet.state())
    walked(fleet, moves[11:])
    command = [sys.executable, "-c", ELSEWHERE, task.__name__, str(tmp_path / "state.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == hashlib.sha256(fleet.obs.tobytes()).hexdigest()


def test_episodes_are_gymnasiums_from_the_reset_on():
    """From our reset on, HalfCheetah-v5 goes the same way to the last bit."""
    env = gymnasium.make("HalfCheetah-v5").unwrapped
    env.reset(seed=0)
    task = HalfCheetah()
    fleet = opened(task, 2)
    env.set_state(fleet.qpos[1].copy(), fleet.qvel[1].copy())
    np.testing.assert_array_equal(fleet.batch.qacc_warmstart[1], env.data.qacc_warmstart)
    for move in actions(task, 200, 2):
        fleet.step(move, seeds(2))
        np.testing.assert_array_equal(fleet.obs[1], env.step(move[1])[0])
    env.close()


@BOTH
def test_a_new_episode_knows_nothing_of_the_last(task):
    """What is shown after a reset depends on its seed alone: no speed, no record of the episode before."""
    task = task()
    fleet, fresh = opened(task, 3), task.open(3)
    walked(fleet, actions(task, 25, 3))
    others = fleet.obs[[0, 2]].copy(), fleet.record[[0, 2]].copy()
    fleet.reset(seeds(3, 40), np.array([False, True, False]))
    fresh.reset(seeds(3, 40))
    for name in ("obs", "record", "points", "reward"):
        np.testing.assert_array_equal(getattr(fleet, name)[1], getattr(fresh, name)[1], err_msg=name)
    np.testing.assert_array_equal(fleet.obs[[0, 2]], others[0])
    np.testing.assert_array_equal(fleet.record[[0, 2]], others[1])
    assert np.abs(fleet.points[1]).max() < 0.11, "at rest, or at the start of the maze"


@pytest.mark.parametrize("value", [np.nan, 1e12])
def test_a_cheetah_that_runs_away_is_seen(value):
    """MuJoCo would put it back to its start and say nothing; the loop must see it, and lose this seed only if asked."""
    plan = resolve(curiax.Experiment("half-cheetah", "rnd", seeds=2, steps=1024, settings=SMALL))
    setup = dataclasses.replace(plan.setup, on_nonfinite="drop")
    lane = Lane(setup, (0, 1), jax.devices()[:1])
    lane.compile()
    lane.iterate()
    lane.fleet.qvel[1, 3] = value
    metrics = lane.iterate().metrics
    assert list(lane.lost) == [1]
    # What it shows is a view of the simulation, so it is seen even before the next step.
    assert "observations: seed 1, environment 0, step 128 of that environment (iteration 1, " in lane.lost[1]
    assert all(np.isfinite(values).all() for values in metrics.values())


@BOTH
def test_still_environments_stay_as_they_are(task):
    task = task()
    moves = actions(task, 30, 3)
    fleet, free = opened(task, 3), opened(task, 3)
    walked(fleet, moves[:10]), walked(free, moves[:10])
    before = fleet.state()
    still = np.array([False, True, False])
    for move in moves[10:20]:
        fleet.step(move, seeds(3), still)
    after = fleet.state()
    for name in before:
        np.testing.assert_array_equal(after[name][1], before[name][1])
    expected = walked(free, moves[10:20])
    np.testing.assert_array_equal(fleet.obs[[0, 2]], expected[-1][[0, 2], : fleet.obs.shape[1]])
    fleet.step(moves[0], seeds(3), np.ones(3, bool))
    np.testing.assert_array_equal(fleet.obs, after["obs"])


def test_cheetah_shows_what_the_card_says():
    """17 entries: all positions but x, all velocities; tracked: finite differences of x and pitch over the step."""
    task = HalfCheetah()
    fleet = opened(task, 2)
    assert (task.spec.horizon, task.budget, task.spec.action.size) == (500, 501_760, 6)
    assert task.budget == 245 * 2048
    np.testing.assert_array_equal(fleet.obs, np.concatenate([fleet.qpos[:, 1:], fleet.qvel], axis=1))
    before = fleet.qpos.copy()
    fleet.step(actions(task, 1, 2)[0], seeds(2))
    np.testing.assert_allclose(fleet.points, (fleet.qpos - before)[:, [0, 2]] / 0.05, rtol=1e-12)
    np.testing.assert_array_equal(fleet.reward, 0)
    fleet.qpos[1, 0] = 11.0
    fleet.step(actions(task, 1, 2)[0], seeds(2))
    np.testing.assert_array_equal(fleet.reward, [0, 1])
    assert not fleet.ends


def test_cheetah_cells():
    """The paper's rule, ceil after clipping into the range, by its own arithmetic in float64; and honest bins."""
    cells, bins = HalfCheetah().grids
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.uniform((-12, -25), (12, 25), (4000, 2)), [[-9, -18], [-9.1, 0.1], [9, 18], [30, 1]]])
    low, high = np.array([-9.0, -18.0]), np.array([9.0, 18.0])
    index = np.ceil((np.clip(points, low, high) - low) / ((high - low) / 10)).astype(int)
    np.testing.assert_array_equal(cells.index(jnp.asarray(points, jnp.float32)), index[:, 0] * 11 + index[:, 1])
    floor = np.clip(np.floor((points - low) / ((high - low) / 10)).astype(int), 0, 9)
    np.testing.assert_array_equal(bins.index(jnp.asarray(points, jnp.float32)), floor[:, 0] * 10 + floor[:, 1])
    assert (cells.nominal, bins.nominal, cells.size, bins.size) == (100, 100, 121, 100)


def test_ant_is_the_cards():
    task = AntMaze()
    fleet = opened(task, 2)
    model = fleet.model
    sizes = (model.nq, model.nv, model.nu, model.ngeom, model.opt.integrator, model.opt.timestep)
    assert sizes == (15, 14, 8, 32, 1, 0.01)  # 1: Runge-Kutta of fourth order
    assert model.body_mass.sum() == pytest.approx(0.911, abs=5e-4)
    np.testing.assert_array_equal(model.actuator_gear[:, 0], 150)
    np.testing.assert_array_equal(model.actuator_ctrlrange, [[-1, 1]] * 8)
    np.testing.assert_allclose(model.qpos0, [0, 0, 0.75, 1, *[0] * 11])
    assert (task.spec.horizon, task.budget, task.spec.obs_shape) == (300, 123 * 2048, (31,))
    np.testing.assert_array_equal(fleet.obs, np.concatenate([np.zeros((2, 2)), fleet.qpos, fleet.qvel], axis=1))
    before = fleet.qpos[:, :2].copy()
    fleet.step(actions(task, 1, 2)[0], seeds(2))
    speed = (fleet.qpos[:, :2] - before) / 0.05
    np.testing.assert_allclose(fleet.obs, np.concatenate([speed, fleet.qpos, fleet.qvel], axis=1), rtol=1e-12)
    np.testing.assert_array_equal(fleet.points, fleet.qpos[:, :2])


def wall_boxes(model) -> np.ndarray:
    """Lower and upper corners `[walls, 2, 3]` of the boxes of the compiled model."""
    boxes = model.geom_type == 6
    return np.stack([model.geom_pos[boxes] - model.geom_size[boxes], model.geom_pos[boxes] + model.geom_size[boxes]], 1)


def test_maze_walls_are_the_cards():
    """18 blocks of 2 × 2 × 6 on a 5 × 5 grid: the ring, and inside it (0, 2) and (2, 2)."""
    walls = wall_boxes(AntMaze().open(1).model)
    assert walls.shape == (18, 2, 3)
    np.testing.assert_allclose(walls[:, 1] - walls[:, 0], [[2, 2, 6]] * 18)
    centres = {tuple(np.round(centre).astype(int)) for centre in walls.mean(1)[:, :2]}
    ring = {(x, y) for x in range(-2, 7, 2) for y in range(-2, 7, 2) if x in (-2, 6) or y in (-2, 6)}
    assert centres == ring | {(0, 2), (2, 2)} == set(WALLS)
    assert CORRIDOR == ((0, 0), (2, 0), (4, 0), (4, 2), (4, 4), (2, 4), (0, 4))


def test_what_is_reachable_in_the_maze():
    """A ball of the torso's size, moved in small steps from the start, reaches the corridor's cells and no others."""
    task = AntMaze()
    walls, radius, pitch = wall_boxes(task.open(1).model)[..., :2], 0.25, 0.125

    def free(x: float, y: float) -> bool:
        gap = np.maximum(np.maximum(walls[:, 0] - (x, y), (x, y) - walls[:, 1]), 0)
        return bool((np.hypot(gap[:, 0], gap[:, 1]) > radius - 1e-9).all())

    found, front = {(0, 0)}, [(0, 0)]
    while front:
        i, j = front.pop()
        for near in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            if near not in found and free(near[0] * pitch, near[1] * pitch):
                assert max(map(abs, near)) * pitch < 10, "the maze leaks"
                found.add(near)
                front.append(near)
    points = np.array(sorted(found)) * pitch
    cells, bins = task.grids
    middles = {(x, y) for x, y in 2 * np.round(points / 2).astype(int)}
    assert middles == set(CORRIDOR)
    assert set(np.unique(cells.index(jnp.asarray(points, jnp.float32)))) == set(np.flatnonzero(cells.counted))
    assert set(np.unique(bins.index(jnp.asarray(points, jnp.float32)))) == set(np.flatnonzero(bins.counted))
    assert (cells.nominal, bins.nominal, len(cells.closed), len(bins.closed)) == (7, 112, 2, 32)
    order = [int(cells.index(jnp.asarray(c, jnp.float32))) for c in CORRIDOR]
    assert order == [0, 3, 6, 7, 8, 5, 2]


@pytest.mark.slow
def test_the_ant_stays_in_the_maze():
    """However it is shaken, the torso never enters a wall."""
    task = AntMaze()
    fleet = opened(task, 8, threads=2)
    rng = np.random.default_rng(0)
    for step in range(600):
        if step % 50 == 0:
            push = rng.choice([-1.0, 1.0], (8, 8)).astype(np.float32)
        fleet.step(push, seeds(8))
        assert (fleet.points > -1).all()
        assert (fleet.points < 5).all()
        assert (
            np.isin(np.asarray(task.grids[0].index(jnp.asarray(fleet.points, jnp.float32))), task.grids[0].closed).sum()
            == 0
        )


def test_a_state_of_another_size_is_refused():
    fleet = opened(HalfCheetah(), 2)
    other = opened(HalfCheetah(), 3).state()
    with pytest.raises(Exception, match=r"3 simulations .* does not fit this fleet of 2"):
        fleet.restore(other)


def test_actions_beyond_the_range_are_clamped_by_the_simulator():
    task = HalfCheetah()
    one, other = opened(task, 2), opened(task, 2)
    move = actions(task, 1, 2)[0] * 5
    one.step(move, seeds(2))
    other.step(np.clip(move, -1, 1), seeds(2))
    np.testing.assert_array_equal(one.obs, other.obs)
