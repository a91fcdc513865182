"""Cells and bins of Mountain Car: borders, and a search of what the car can reach at all."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from curiax import Axis, Grid
from curiax.envs import MountainCar
from curiax.envs.mountain_car import Car

Doubles = NDArray[np.float64]
LOW, HIGH = np.array([-1.2, -0.07]), np.array([0.6, 0.07])
CELLS, BINS = MountainCar().grids
index = {grid.name: jax.jit(grid.index) for grid in (CELLS, BINS)}


def author_cells(points: Doubles) -> NDArray[np.int64]:
    """`ceil((x − low) / width)` of the released code, in float64, both indices in one number."""
    index = np.ceil((points - LOW) / ((HIGH - LOW) / 10)).astype(int)
    return index[..., 0] * 11 + index[..., 1]


def honest_bins(points: Doubles) -> NDArray[np.int64]:
    index = np.clip(np.floor((points - LOW) / ((HIGH - LOW) / 10)).astype(int), 0, 9)
    return index[..., 0] * 10 + index[..., 1]


def test_sizes() -> None:
    assert (CELLS.shape, CELLS.size, CELLS.nominal) == ((11, 11), 121, 100)
    assert (BINS.shape, BINS.size, BINS.nominal) == ((10, 10), 100, 100)


def test_interior_points_agree_with_the_formulas() -> None:
    points = np.random.default_rng(0).uniform(LOW, HIGH, (100, 200, 2))
    # Points within rounding of a border have their own test.
    steps = (points - LOW) / ((HIGH - LOW) / 10)
    inside = (np.abs(steps - np.round(steps)) > 1e-4).all(-1)
    assert inside.mean() > 0.99
    seen = jnp.asarray(points, jnp.float32)
    assert np.array_equal(np.asarray(index["cells"](seen))[inside], author_cells(points)[inside])
    assert np.array_equal(np.asarray(index["bins"](seen))[inside], honest_bins(points)[inside])


@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize(
    ("point", "cell", "floor_bin"),
    [
        ((-1.2, -0.07), (0, 0), (0, 0)),  # the lower border has an index of its own in the released code
        ((-1.2, 0.0), (0, 5), (0, 5)),  # a car at rest against the left wall
        ((-0.5, 0.0), (4, 5), (3, 5)),  # a car at rest in the valley
        ((-0.5, -0.07), (4, 0), (3, 0)),
        ((0.6, 0.07), (10, 10), (9, 9)),  # the upper border stays inside
        ((0.6, 0.0), (10, 5), (9, 5)),
        ((-0.3, 0.014), (5, 6), (5, 6)),  # an inner border belongs to the cell below it, to the bin above it
    ],
)
def test_borders(point: tuple[float, float], cell: tuple[int, int], floor_bin: tuple[int, int], wide: bool) -> None:
    with jax.enable_x64(wide):
        seen = jnp.asarray(point, jnp.float64 if wide else jnp.float32)
        assert int(CELLS.index(seen)) == cell[0] * 11 + cell[1]
        assert int(BINS.index(seen)) == floor_bin[0] * 10 + floor_bin[1]


def test_every_inner_border_in_both_precisions() -> None:
    """The k-th border, as the nearest float of either kind, ends cell k and begins bin k."""
    exact = [float(f"{-1.2 + 0.18 * k:.2f}") for k in range(11)]
    axis = Axis("x", -1.2, 0.6, 10)
    for wide, kind in ((False, np.float32), (True, np.float64)):
        with jax.enable_x64(wide):
            points = jnp.asarray(exact, kind)[:, None]
            assert np.array_equal(Grid("c", (axis,), "ceil").index(points), np.arange(11))
            assert np.array_equal(Grid("b", (axis,), "floor").index(points), [*range(10), 9])


def test_first_axis_is_the_slow_one_for_unequal_parts() -> None:
    grid = Grid("g", (Axis("a", 0.0, 2.0, 2), Axis("b", 0.0, 3.0, 3)), "floor")
    points = jnp.asarray([[x + 0.5, y + 0.5] for x in range(2) for y in range(3)])
    assert grid.shape == (2, 3)
    assert np.array_equal(grid.index(points), np.arange(6))


def move(x: Doubles, v: Doubles, force: Doubles) -> tuple[Doubles, Doubles]:
    """One step of card 1 in float64."""
    v = np.clip(v + 0.0015 * np.clip(force, -1, 1) - 0.0025 * np.cos(3 * x), -0.07, 0.07)
    x = np.clip(x + v, -1.2, 0.6)
    return x, np.where((x == -1.2) & (v < 0), 0.0, v)


Step = Callable[[NDArray, NDArray, NDArray], tuple[NDArray, NDArray]]
Index = Callable[[NDArray], NDArray]


def reach(step: Step, indices: tuple[Index, Index], kind: type) -> tuple[set[int], set[int]]:
    """Cells and bins met within 100 steps: breadth first, one representative for each square of a fine grid.

    A square is expanded once, when it is first met, which is when most of the episode is left.
    """
    forces = np.linspace(-1, 1, 5)
    fine = 600
    met = np.zeros((fine + 1) * (fine + 1), bool)
    x, v = np.linspace(-0.6, -0.4, 201).astype(kind), np.zeros(201, kind)
    found: tuple[set[int], set[int]] = (set(), set())
    for _ in range(100):
        x, v = step(np.repeat(x, len(forces)), np.repeat(v, len(forces)), np.tile(forces, len(x)).astype(kind))
        points = np.stack([x, v], axis=-1)
        for cells, number in zip(found, indices, strict=True):
            cells.update(np.unique(number(points)).tolist())
        square = np.round((points.astype(np.float64) - LOW) / (HIGH - LOW) * fine).astype(int) @ [fine + 1, 1]
        _, first = np.unique(square, return_index=True)
        first = first[~met[square[first]]]
        met[square[first]] = True
        x, v = x[first], v[first]
        if not len(x):
            break
    return found


PAD = 16_384


def padded(call: Callable[..., tuple[jax.Array, ...]]) -> Callable[..., tuple[NDArray, ...]]:
    """Run a compiled function of one fixed length over arrays of any length."""

    def run(*arrays: NDArray) -> tuple[NDArray, ...]:
        length, parts = len(arrays[0]), []
        for start in range(0, length, PAD):
            cut = [a[start : start + PAD] for a in arrays]
            full = [np.concatenate([a, np.repeat(a[-1:], PAD - len(a), axis=0)]) for a in cut]
            parts.append([np.asarray(out)[: len(cut[0])] for out in call(*full)])
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))

    return run


@pytest.fixture(scope="module")
def reachable() -> tuple[set[int], set[int]]:
    return reach(move, (author_cells, honest_bins), np.float64)


def test_a_search_in_float64_finds_the_documented_counts(reachable: tuple[set[int], set[int]]) -> None:
    cells, bins = reachable
    assert (len(cells), len(bins)) == (96, 91)
    assert (CELLS.reachable, BINS.reachable) == (96, 91)
    absent = {(0, 8), (0, 9), (1, 9), (7, 0), (8, 0), (8, 1), (9, 0), (9, 1), (9, 2)}
    assert set(range(100)) - bins == {10 * x + v for x, v in absent}


def test_the_counts_hold_for_the_paper_episode_only() -> None:
    assert [grid.reachable for grid in MountainCar(horizon=50).grids] == [None, None]


def test_our_float32_car_and_grids_reach_the_same_cells(reachable: tuple[set[int], set[int]]) -> None:
    """Rounding must not invent a cell: the released code in float32 counts an index 11 that cannot exist."""
    task, key = MountainCar(), jax.random.key(0)

    @jax.jit
    def compiled(x: jax.Array, v: jax.Array, force: jax.Array) -> tuple[jax.Array, jax.Array]:
        after = jax.vmap(lambda x, v, a: task.step(Car(x, v), a[None], key=key)[0])(x, v, force)
        return after.position, after.velocity

    indices = tuple(
        lambda points, name=name: padded(lambda p: (index[name](jnp.asarray(p)),))(points)[0]
        for name in ("cells", "bins")
    )
    cells, bins = reach(padded(compiled), indices, np.float32)
    assert cells == reachable[0]
    assert bins == reachable[1]
