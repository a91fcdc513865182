"""Many seeds at once: `vmap` over seeds, the seeds split over devices, a chunk of iterations per call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from .._errors import CheckpointError
from .._sound import Check
from .._stats import Moments
from .._tree import is_key, leaf_name
from . import devices
from .loop import Report, Setup, TrainState, calibrated, collect, first_envs, iterate

Arrays = Any


class HostReport(NamedTuple):
    """A report on the host: metrics and the places of its checks `[S, ...]`, or `[S, K, ...]` of several iterations."""

    metrics: dict[str, np.ndarray]
    places: np.ndarray
    checks: tuple[Check, ...]

    @staticmethod
    def of(report: Report, seeds: slice = slice(None)) -> HostReport:
        """A report of these seeds, once it is there."""
        metrics = {name: np.asarray(value)[seeds] for name, value in report.metrics.items()}
        return HostReport(metrics, np.asarray(report.checks.places)[seeds], report.checks.each)

    @staticmethod
    def joined(parts: Sequence[HostReport], axis: int = 0) -> HostReport:
        """Reports of several lanes as one; with axis 1, of several iterations."""
        metrics = {name: np.concatenate([p.metrics[name] for p in parts], axis=axis) for name in parts[0].metrics}
        return HostReport(metrics, np.concatenate([part.places for part in parts], axis=axis), parts[0].checks)

    def as_iterations(self) -> HostReport:
        """One iteration's report with an axis of iterations."""
        metrics = {name: value[:, None] for name, value in self.metrics.items()}
        return HostReport(metrics, self.places[:, None], self.checks)


def first_states(setup: Setup, seeds: Sequence[int]) -> TrainState:
    """The state of every seed before training, stacked along a leading axis `S`.

    Each seed's state depends on nothing but its own number, so adding a seed leaves the others' unchanged.
    Networks are drawn on the host, seed by seed; everything else is one small program. An agent that measures something
    once, before training, does so here; on the host it waits for the first rollout.
    """
    hosted, lead = setup.task.hosted, (setup.loop.rollout, setup.loop.envs)
    numbers = jnp.asarray(np.asarray(seeds, np.uint32))

    @eqx.filter_jit
    @eqx.filter_vmap
    def begin(seed: Array, networks: Any) -> TrainState:
        root = jax.random.key(seed)
        return TrainState(
            setup.agent.start(networks, lead),
            None if hosted else Moments.start(setup.task.spec.obs_shape),
            None if hosted else first_envs(setup, root),
            {grid.name: jnp.zeros(grid.size, bool) for grid in setup.task.grids},
            root,
            jnp.zeros((), jnp.int32),
        )

    states = begin(numbers, stack([setup.agent.build(key=key) for key in jax.vmap(jax.random.key)(numbers)]))
    if hosted or not setup.agent.calibrates(states.agent):
        return states

    @eqx.filter_jit
    @eqx.filter_vmap
    def calibrate(state: TrainState) -> TrainState:
        # A rollout of the untrained agent, of which nothing else is kept.
        return calibrated(setup, state, collect(setup, state)[1])

    return calibrate(states)


def stack(trees: Sequence[Any]) -> Any:
    """Trees of one structure as one tree with a leading axis, stacked on the host."""

    def leaf(*leaves: Any) -> Any:
        if not isinstance(leaves[0], jax.Array | np.ndarray):
            return leaves[0]
        if is_key(leaves[0]):
            return jnp.stack(leaves)
        return jnp.asarray(np.stack([np.asarray(x) for x in leaves]))

    return jax.tree.map(leaf, *trees)


def seed_mesh(line: Sequence[Any]) -> Mesh:
    """A line of devices along the axis `seed`."""
    return Mesh(np.asarray(line), ("seed",))


def padded(seeds: Sequence[int], count: int) -> tuple[int, ...]:
    """The seeds, with the last one repeated until they divide evenly over the devices."""
    missing = -len(seeds) % count
    return (*seeds, *([seeds[-1]] * missing))


def place(state: TrainState, mesh: Mesh) -> tuple[Arrays, Any]:
    """The arrays of the state, spread over the mesh by seed, and its static rest."""
    arrays, static = eqx.partition(state, eqx.is_array)
    return spread(arrays, mesh), static


def spread(arrays: Arrays, mesh: Mesh) -> Arrays:
    """Arrays `[S, ...]` spread over the mesh by seed."""
    # By way of the host: moving dozens of small arrays from device to device, one by one, is much slower.
    arrays = jax.tree.map(lambda x: x if is_key(x) else np.asarray(x), arrays)
    return jax.device_put(arrays, NamedSharding(mesh, PartitionSpec("seed")))


def host_copies(arrays: Arrays) -> dict[str, np.ndarray]:
    """Every array by name, in memory of its own: the device's is handed to the next call. Keys as their words."""
    found = jax.tree_util.tree_leaves_with_path(arrays)
    return {leaf_name(path): np.array(jax.random.key_data(x) if is_key(x) else x) for path, x in found}


def refilled(arrays: Arrays, kept: Mapping[str, np.ndarray]) -> Arrays:
    """The arrays that `host_copies` made, in the tree of these, each of the shape and type it has there."""

    def put(path: Any, leaf: Any) -> Any:
        name = leaf_name(path)
        if name not in kept:
            raise CheckpointError(f"the checkpoint lacks {name}: it is of another experiment or version.")
        array = kept[name]
        wanted = jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf
        if (array.shape, array.dtype) != (wanted.shape, wanted.dtype):
            raise CheckpointError(
                f"the checkpoint's {name} is {array.dtype}{list(array.shape)}, this run's {wanted.dtype}"
                f"{list(wanted.shape)}: it is of another experiment or version."
            )
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf)) if is_key(leaf) else array

    names = {leaf_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(arrays)}
    if strangers := sorted(set(kept) - names):
        raise CheckpointError(f"the checkpoint has {strangers[0]}: it is of another experiment or version.")
    return jax.tree_util.tree_map_with_path(put, arrays)


def compile_chunk(
    setup: Setup, static: Any, mesh: Mesh, iterations: int, arrays: Arrays
) -> Callable[[Arrays], tuple[Arrays, Report]]:
    """`iterations` of the loop for all seeds as one compiled program `[S, ...] → [S, ...], report [S, K]`.

    The program takes over the arrays it is given: only the newest state exists.
    """

    def one_seed(arrays: Arrays) -> tuple[Arrays, Report]:
        def body(arrays: Arrays, _: None) -> tuple[Arrays, Report]:
            state, report = iterate(setup, eqx.combine(arrays, static))
            return eqx.filter(state, eqx.is_array), report

        return jax.lax.scan(body, arrays, None, length=iterations)

    seed = PartitionSpec("seed")
    by_seed = jax.shard_map(jax.vmap(one_seed), mesh=mesh, in_specs=seed, out_specs=seed, check_vma=False)
    # Said explicitly because the compiler would replicate empty arrays, and the next call would not fit.
    program = jax.jit(by_seed, donate_argnums=0, out_shardings=NamedSharding(mesh, seed))
    options: Any = devices.compiler_options(mesh.devices.flat[0])
    lowered = program.lower(arrays)
    return devices.in_thread(lambda: lowered.compile(compiler_options=options))
