"""Many seeds at once: `vmap` over seeds, the seeds split over devices, a chunk of iterations per call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .._stats import Moments
from ..curiosity import AbstractCuriosity
from .loop import Metrics, Setup, Stream, TrainState, example_steps, first_worlds, iterate

Arrays = Any


def first_states(
    setup: Setup, build_model: Callable[[jax.Array], AbstractCuriosity], seeds: Sequence[int]
) -> TrainState:
    """The state of every seed before training, stacked along a leading axis `S`.

    Each seed's state depends on nothing but its own number, so adding a seed leaves the others' unchanged.
    """

    def one(seed: int) -> tuple[Any, AbstractCuriosity, jax.Array]:
        root = jax.random.key(seed)
        agent = setup.agent.start(setup.task.spec, key=jax.random.fold_in(root, Stream.AGENT_INIT))
        return agent, build_model(jax.random.fold_in(root, Stream.MODEL_INIT)), root

    agents, models, roots = zip(*map(one, seeds), strict=True)
    roots = jnp.stack(roots)
    lead = len(seeds)
    learner = repeat(setup.learner.start(models[0], example_steps(setup)), lead)
    return TrainState(
        stack(agents),
        stack(models),
        learner,
        repeat(Moments.start(setup.task.spec.obs_shape), lead),
        jax.jit(jax.vmap(functools.partial(first_worlds, setup)))(roots),
        {grid.name: jnp.zeros((lead, grid.size), bool) for grid in setup.task.grids},
        roots,
        jnp.zeros(lead, jnp.int32),
    )


def stack(trees: Sequence[Any]) -> Any:
    """Trees of one structure as one tree with a leading axis, stacked on the host."""
    return jax.tree.map(
        lambda *leaves: np.stack([np.asarray(x) for x in leaves]) if eqx.is_array(leaves[0]) else leaves[0], *trees
    )


def repeat(tree: Any, times: int) -> Any:
    """The same tree `times` over, along a leading axis."""
    return jax.tree.map(lambda x: np.repeat(np.asarray(x)[None], times, axis=0), tree)


def seed_mesh(devices: Sequence[Any]) -> Mesh:
    """A line of devices along the axis `seed`."""
    return Mesh(np.asarray(devices), ("seed",))


def padded(seeds: Sequence[int], devices: int) -> tuple[int, ...]:
    """The seeds, with the last one repeated until they divide evenly over the devices."""
    missing = -len(seeds) % devices
    return (*seeds, *([seeds[-1]] * missing))


def place(state: TrainState, mesh: Mesh) -> tuple[Arrays, Any]:
    """The arrays of the state, spread over the mesh by seed, and its static rest."""
    arrays, static = eqx.partition(state, eqx.is_array_like)
    return jax.device_put(arrays, NamedSharding(mesh, PartitionSpec("seed"))), static


def compile_chunk(
    setup: Setup, static: Any, mesh: Mesh, iterations: int, arrays: Arrays
) -> Callable[[Arrays], tuple[Arrays, Metrics]]:
    """`iterations` of the loop for all seeds as one compiled program `[S, ...] → [S, ...], metrics [S, K]`.

    The program takes over the arrays it is given: only the newest state exists.
    """

    def one_seed(arrays: Arrays) -> tuple[Arrays, Metrics]:
        def body(arrays: Arrays, _: None) -> tuple[Arrays, Metrics]:
            state, metrics = iterate(setup, eqx.combine(arrays, static))
            return eqx.filter(state, eqx.is_array), metrics

        return jax.lax.scan(body, arrays, None, length=iterations)

    seed = PartitionSpec("seed")
    spread = jax.shard_map(jax.vmap(one_seed), mesh=mesh, in_specs=seed, out_specs=seed, check_vma=False)
    # Said explicitly because the compiler would replicate empty arrays, and the next call would not fit.
    program = jax.jit(spread, donate_argnums=0, out_shardings=NamedSharding(mesh, seed))
    return program.lower(arrays).compile()
