"""Shapes that a task and a method must have, checked by abstract evaluation before anything is compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ._errors import ContractError, CuriaxError
from ._metrics import Metric
from ._text import checked_name
from ._types import Box, Grid, Rollout, Spec, Transition
from .curiosity import AbstractCuriosity
from .envs import AbstractAnyTask, AbstractTask, Probe, Samples


def one_action(spec: Spec) -> jax.Array:
    """An action of the right shape: zero, moved into the box."""
    if isinstance(spec.action, Box):
        return spec.action.executed(jnp.zeros(spec.action.size))
    return jnp.zeros((), jnp.int32)


def one_transition(spec: Spec) -> Transition:
    """A transition of the right shapes, all zeros."""
    obs, flag = jnp.zeros(spec.obs_shape), jnp.zeros((), bool)
    return Transition(obs, one_action(spec), obs, jnp.zeros(()), flag, flag, ~flag)


def shaped(who: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes that a call returns; an exception inside it becomes a `ContractError` naming `who`."""
    try:
        return eqx.filter_eval_shape(call, *args, **kwargs)
    except CuriaxError:
        raise
    except (Exception, SystemExit) as error:
        reason = str(error).strip().split("\n")[0][:300]
        raise ContractError(f"{who} failed: {type(error).__name__}: {reason}") from error


def described(leaf: Any) -> str:
    """Shape and type of an array, in words."""
    return f"{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "dtype") else f"a Python {type(leaf).__name__} (use jnp)"


def expect(who: str, leaf: Any, shape: tuple[int, ...], kind: Any, remedy: str = "") -> None:
    """Refuse a result of another shape or kind of number."""
    if not hasattr(leaf, "dtype") or leaf.shape != shape or not jnp.issubdtype(leaf.dtype, kind):
        wanted = {jnp.floating: "float32", jnp.bool_: "bool"}.get(kind, str(kind))
        raise ContractError(f"{who} must be {wanted}{list(shape)}, not {described(leaf)}. {remedy}".rstrip())


def tuple_of(who: str, result: Any, count: int, what: str) -> tuple[Any, ...]:
    """Refuse anything but a tuple of the right length."""
    if not isinstance(result, tuple) or len(result) != count:
        raise ContractError(f"{who} must return {what}; it returned {type(result).__name__}.")
    return result


def same_tree(who: str, before: Any, after: Any) -> None:
    """Refuse a state or memory that changes its structure, shapes or types."""
    if jax.tree.structure(before) != jax.tree.structure(after):
        raise ContractError(f"{who} changes its structure from step to step; every field must stay what it was.")
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        old, new = jax.eval_shape(jnp.asarray, old), jax.eval_shape(jnp.asarray, new)
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise ContractError(f"{who} changes from {described(old)} to {described(new)}; it must stay the same.")


def check_task_shapes(task: AbstractAnyTask, name: str) -> None:
    """Everything a task in JAX returns has the shapes its `spec` and `grids` promise."""
    check_metrics(f"task {name!r}", task.metrics)
    if not isinstance(task, AbstractTask):
        return
    spec, key = task.spec, jax.random.key(0)
    if not isinstance(spec, Spec):
        raise ContractError(f"task {name!r}: spec must be a curiax.Spec, not {type(spec).__name__}.")
    state = shaped(f"{name}.reset()", lambda k: task.reset(key=k), key)
    obs = shaped(f"{name}.observe()", task.observe, state)
    remedy = "Make spec.obs_shape and observe() agree."
    expect(f"{name}.observe()", obs, spec.obs_shape, jnp.floating, remedy)
    result = shaped(f"{name}.step()", lambda s, a, k: task.step(s, a, key=k), state, one_action(spec), key)
    after, reward, terminated = tuple_of(f"{name}.step()", result, 3, "(state, reward, terminated)")
    same_tree(f"the state of {name}", state, after)
    expect(f"the reward of {name}.step()", reward, (), jnp.floating)
    expect(f"terminated of {name}.step()", terminated, (), jnp.bool_)
    if not isinstance(task.grids, tuple) or not all(isinstance(grid, Grid) for grid in task.grids):
        raise ContractError(f"task {name!r}: grids must be a tuple of curiax.Grid; () if nothing is counted.")
    point = shaped(f"{name}.track()", task.track, state)
    axes = len(task.grids[0].axes) if task.grids else math.prod(getattr(point, "shape", ()))
    expect(f"{name}.track()", point, (axes,), jnp.floating, "It needs one entry for each axis of the grids.")
    if any(len(grid.axes) != axes for grid in task.grids):
        raise ContractError(f"the grids of {name} need the same number of axes: all partition what track() returns.")
    if len({grid.name for grid in task.grids}) != len(task.grids):
        raise ContractError(f"the grids of {name} need different names.")
    drew = shaped(f"{name}.unlearnable()", task.unlearnable, one_action(spec))
    if drew is not None:
        expect(f"{name}.unlearnable()", drew, (), jnp.bool_)
    if task.compared is not None:
        expect(f"{name}.kind()", shaped(f"{name}.kind()", task.kind, point), (), jnp.integer, "It is 0 or 1.")
    check_measure(task, state, name)
    check_probe(task, state, name)
    check_samples(task, state, name)


def check_metrics(who: str, metrics: Any) -> None:
    """What is declared are metrics, each once and under a bare name."""
    if not isinstance(metrics, tuple) or not all(isinstance(metric, Metric) for metric in metrics):
        raise ContractError(f"the metrics of {who} must be a tuple of curiax.Metric; () if none are declared.")
    names = [metric.name for metric in metrics]
    for name in names:
        checked_name(f"the name of a metric of {who}", name)
        if names.count(name) > 1:
            raise ContractError(f"{who} declares the metric {name!r} twice.")
        if "/" in name:
            bare = name.rpartition("/")[2]
            raise ContractError(f"{who} declares the metric {name!r}: leave its group out, as {bare!r}.")


def check_measure(task: AbstractTask, state: Any, name: str) -> None:
    """What a task measures of a rollout are numbers by name."""
    one, point = one_transition(task.spec), shaped(f"{name}.track()", task.track, state)

    def stacked(tree: Any) -> Any:
        return jax.tree.map(lambda x: jnp.zeros((2, 3, *jnp.shape(x)), x.dtype), tree)

    rollout = Rollout(stacked(one), stacked(one).obs, stacked(point))
    found = shaped(f"{name}.measure()", task.measure, rollout)
    if not isinstance(found, dict):
        raise ContractError(f"{name}.measure() must return a dict of names and numbers, not {type(found).__name__}.")
    for metric, value in found.items():
        expect(f"the metric {metric!r} of {name}.measure()", value, (), jnp.floating)


def check_samples(task: AbstractTask, state: Any, name: str) -> None:
    """The sample transitions have as many states as actions and next states, each of the right shape."""
    samples = shaped(f"{name}.samples()", task.samples)
    if samples is None:
        return
    if not isinstance(samples, Samples):
        raise ContractError(f"{name}.samples() must return a curiax.envs.Samples or None.")
    one = one_action(task.spec)
    count = samples.actions.shape[0] if getattr(samples.actions, "ndim", 0) else 1
    kind = jnp.integer if jnp.issubdtype(one.dtype, jnp.integer) else jnp.floating
    expect(f"the actions of {name}.samples()", samples.actions, (count, *one.shape), kind)
    stacked = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype), state)
    for which in ("states", "next_states"):
        same_tree(f"the {which} of {name}.samples(), one for each action,", stacked, getattr(samples, which))


def check_probe(task: AbstractTask, state: Any, name: str) -> None:
    """The probe has a state for every cell of one of the task's grids, and actions of the right shape."""
    probe = shaped(f"{name}.probe()", task.probe)
    if probe is None:
        return
    if not isinstance(probe, Probe):
        raise ContractError(f"{name}.probe() must return a curiax.envs.Probe or None, not {type(probe).__name__}.")
    grid = next((grid for grid in task.grids if grid.name == probe.grid), None)
    if grid is None:
        known = ", ".join(grid.name for grid in task.grids)
        raise ContractError(f"{name}.probe() names the grid {probe.grid!r}; the task has {known or 'none'}.")
    stacked = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((grid.size, *leaf.shape), leaf.dtype), state)
    same_tree(
        f"the states of {name}.probe(), one for each of the {grid.size} cells of {grid.name!r},", stacked, probe.states
    )
    if not isinstance(probe.actions, dict) or not probe.actions:
        raise ContractError(f"the actions of {name}.probe() must be a dict of names and actions [samples, ...].")
    one = one_action(task.spec)
    for label, actions in probe.actions.items():
        kind = jnp.integer if jnp.issubdtype(one.dtype, jnp.integer) else jnp.floating
        samples = actions.shape[0] if getattr(actions, "ndim", 0) else 1
        expect(f"the actions {label!r} of {name}.probe()", actions, (samples, *one.shape), kind)


def check_method_shapes(model: AbstractCuriosity, spec: Spec, name: str) -> None:
    """Everything a method returns has the shapes of the interface."""
    check_metrics(f"method {name!r}", model.metrics)
    key, t = jax.random.key(0), one_transition(spec)
    memory = model.memory()
    result = shaped(f"{name}.reward()", lambda m, t, k: model.reward(m, t, key=k), memory, t, key)
    after, bonus = tuple_of(f"{name}.reward()", result, 2, "(memory, bonus)")
    same_tree(f"the memory of {name}", memory, after)
    expect(f"the bonus of {name}.reward()", bonus, (), jnp.floating, "It is asked about one transition at a time.")
    if memory is not None:
        same_tree(f"the memory of {name} after forget()", memory, shaped(f"{name}.forget()", model.forget, memory))
    if memory is not None and model.spares_memory:
        caught_up = shaped(f"{name}.caught_up()", model.caught_up, memory, memory)
        same_tree(f"the memory of {name} after caught_up()", memory, caught_up)
    draw = shaped(f"{name}.draw()", model.draw, key)
    result = shaped(f"{name}.loss()", lambda t, d: model.loss(t, draw=d), t, draw)
    loss, terms = tuple_of(f"{name}.loss()", result, 2, "(loss, terms)")
    expect(f"the loss of {name}.loss()", loss, (), jnp.floating)
    explained = shaped(f"{name}.explain()", lambda t, k: model.explain(t, key=k), t, key)
    for source, mapping in (("loss", terms), ("explain", explained)):
        if not isinstance(mapping, dict):
            raise ContractError(f"the terms of {name}.{source}() must be a dict, not {type(mapping).__name__}.")
        for term, value in mapping.items():
            expect(f"the term {term!r} of {name}.{source}()", value, (), jnp.floating)


def build_method(
    cls: Callable[..., AbstractCuriosity], spec: Spec, key: jax.Array, name: str, **settings: Any
) -> AbstractCuriosity:
    """Construct a method; an exception inside its constructor becomes a `ContractError`."""
    try:
        return cls(spec, key=key, **settings)
    except CuriaxError:
        raise
    except (Exception, SystemExit) as error:
        raise ContractError(f"constructing {name} failed: {type(error).__name__}: {error}") from error
