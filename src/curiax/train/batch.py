"""Many seeds at once: `vmap` over seeds, the seeds split over devices, a chunk of iterations per call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from .._stats import Moments
from .._types import PRNGKey
from ..curiosity import AbstractCuriosity
from ..envs import AbstractHostTask
from .loop import Metrics, Setup, Stream, TrainState, example_steps, first_worlds, iterate

Arrays = Any


def first_states(setup: Setup, build_model: Callable[[PRNGKey], AbstractCuriosity], seeds: Sequence[int]) -> TrainState:
    """The state of every seed before training, stacked along a leading axis `S`.

    Each seed's state depends on nothing but its own number, so adding a seed leaves the others' unchanged.
    Networks are drawn on the host, seed by seed; everything else is one small program.
    """
    hosted = isinstance(setup.task, AbstractHostTask)
    spec, numbers = setup.task.spec, jnp.asarray(np.asarray(seeds, np.uint32))

    @jax.jit
    @jax.vmap
    def initial_keys(seed: Array) -> tuple[PRNGKey, PRNGKey]:
        root = jax.random.key(seed)
        return jax.random.fold_in(root, Stream.AGENT_INIT), jax.random.fold_in(root, Stream.MODEL_INIT)

    @eqx.filter_jit
    @eqx.filter_vmap
    def begin(seed: Array, networks: Any, model: AbstractCuriosity) -> TrainState:
        root = jax.random.key(seed)
        return TrainState(
            setup.agent.start(networks),
            model,
            setup.learner.start(model, example_steps(setup)),
            None if hosted else Moments.start(spec.obs_shape),
            None if hosted else first_worlds(setup, root),
            {grid.name: jnp.zeros(grid.size, bool) for grid in setup.task.grids},
            root,
            jnp.zeros((), jnp.int32),
        )

    agent_keys, model_keys = initial_keys(numbers)
    networks = stack([setup.agent.build(spec, key=key) for key in agent_keys])
    return begin(numbers, networks, stack([build_model(key) for key in model_keys]))


def stack(trees: Sequence[Any]) -> Any:
    """Trees of one structure as one tree with a leading axis, stacked on the host."""

    def leaf(*leaves: Any) -> Any:
        if not isinstance(leaves[0], jax.Array | np.ndarray):
            return leaves[0]
        if jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
            return jnp.stack(leaves)
        return jnp.asarray(np.stack([np.asarray(x) for x in leaves]))

    return jax.tree.map(leaf, *trees)


def seed_mesh(devices: Sequence[Any]) -> Mesh:
    """A line of devices along the axis `seed`."""
    return Mesh(np.asarray(devices), ("seed",))


def padded(seeds: Sequence[int], devices: int) -> tuple[int, ...]:
    """The seeds, with the last one repeated until they divide evenly over the devices."""
    missing = -len(seeds) % devices
    return (*seeds, *([seeds[-1]] * missing))


def place(state: TrainState, mesh: Mesh) -> tuple[Arrays, Any]:
    """The arrays of the state, spread over the mesh by seed, and its static rest."""
    arrays, static = eqx.partition(state, eqx.is_array)
    # By way of the host: moving dozens of small arrays from device to device, one by one, is much slower.
    arrays = jax.tree.map(lambda x: x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x), arrays)
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
    # LLVM's highest level only lengthens compilation here: the work is in matrix kernels.
    on_cpu = mesh.devices.flat[0].platform == "cpu"
    options: Any = {"xla_backend_optimization_level": 2} if on_cpu else None
    return program.lower(arrays).compile(compiler_options=options)
