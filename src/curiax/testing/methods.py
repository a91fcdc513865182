"""The contract of a curiosity method."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._contract import build_method, check_method_shapes
from .._errors import ContractError
from .._tree import Frozen, flatten
from .._types import Box, Discrete, PRNGKey, Scalar, Spec, Transition
from ..curiosity import AbstractCuriosity, Learner, LearnerSettings, score
from ..curiosity._base import start_memory
from ._demand import close, demand

#: The spaces every method must work for.
SPECS: dict[str, Spec] = {
    "vector, Box of 3": Spec((4,), Box((-1.0,) * 3, (1.0,) * 3), 6),
    "vector, Box of 1": Spec((2,), Box((-1.0,), (1.0,)), 6),
    "vector, Discrete": Spec((3,), Discrete(4), 6),
    "image, Discrete": Spec((6, 6, 2), Discrete(3), 6),
}
T, N = 7, 3


def random_steps(spec: Spec, lead: tuple[int, ...], seed: int = 0) -> Transition:
    """Random transitions with some episode ends, all valid."""
    rng = np.random.default_rng(seed)
    obs, next_obs = (jnp.asarray(rng.normal(size=(*lead, *spec.obs_shape)), jnp.float32) for _ in range(2))
    if isinstance(spec.action, Discrete):
        action = jnp.asarray(rng.integers(spec.action.n, size=lead), jnp.int32)
    else:
        action = jnp.asarray(rng.uniform(spec.action.low, spec.action.high, (*lead, spec.action.size)), jnp.float32)
    ended = jnp.asarray(rng.random(lead) < 0.25)
    truncated = jnp.asarray(rng.random(lead) < 0.5)
    reward = jnp.asarray(rng.normal(size=lead), jnp.float32)
    return Transition(obs, action, next_obs, reward, ended & ~truncated, ended & truncated, jnp.ones(lead, bool))


class MethodCase:
    """One method on one kind of task, with what several checks need compiled once."""

    def __init__(self, cls: Callable[..., AbstractCuriosity], spec: Spec, settings: dict[str, Any]) -> None:
        self.cls, self.spec, self.settings = cls, spec, settings
        self.name = getattr(cls, "__name__", str(cls))
        self.key = jax.random.key(1)
        self.model = self.build(self.key)
        self.steps = random_steps(spec, (T, N))
        self.traces = 0
        arrays, static = eqx.partition(self.model, eqx.is_array)

        def scored(arrays: Any, steps: Transition, key: PRNGKey) -> tuple[Any, Array]:
            self.traces += 1
            model = eqx.combine(arrays, static)
            return score(model, start_memory(model, steps.reward.shape[1]), steps, key=key)

        self._scored = jax.jit(scored)
        self._arrays = arrays

    def build(self, key: jax.Array) -> AbstractCuriosity:
        """The method with networks drawn from the key."""
        return build_method(self.cls, self.spec, key, self.name, **self.settings)

    def score(self, steps: Transition, key: jax.Array | None = None, model: Any = None) -> tuple[Any, np.ndarray]:
        """Final memories and bonuses `[T, N]`."""
        arrays = self._arrays if model is None else eqx.filter(model, eqx.is_array)
        memory, bonus = self._scored(arrays, steps, self.key if key is None else key)
        return memory, np.asarray(bonus)

    @property
    def random_bonus(self) -> bool:
        """Whether the bonus itself is random."""
        other = jax.random.key(99)
        return not np.array_equal(self.score(self.steps)[1], self.score(self.steps, other)[1])


def _leaves(model: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(eqx.filter(model, eqx.is_array))]


def initialisation(case: MethodCase) -> None:
    """The same key gives the same networks, another key others."""
    again, other = case.build(case.key), case.build(jax.random.key(2))
    same = all(np.array_equal(a, b) for a, b in zip(_leaves(case.model), _leaves(again), strict=True))
    demand(same, f"{case.name}(spec, key=k) twice with the same k gave different parameters.")
    parameters = flatten(case.model)[0]
    differ = parameters.size == 0 or not np.array_equal(parameters, flatten(other)[0])
    demand(differ, f"{case.name} ignores its key: two keys gave the same parameters.")


def shapes(case: MethodCase) -> None:
    """reward, loss, draw, explain and forget return what the interface asks for."""
    check_method_shapes(case.model, case.spec, case.name)


def finite_bonus(case: MethodCase) -> None:
    """The bonus is finite float32, and not negative where the method says so."""
    _, bonus = case.score(case.steps)
    demand(bonus.dtype == np.float32, f"the bonus of {case.name} is {bonus.dtype}, not float32.")
    demand(np.isfinite(bonus).all(), f"the bonus of {case.name} is not finite on ordinary transitions.")
    if case.model.nonnegative:
        demand((bonus >= 0).all(), f"{case.name} says its bonus is never negative, but {bonus.min():.3g} occurred.")


def extreme_values(case: MethodCase) -> None:
    """Huge, zero and constant observations give a finite bonus."""
    for scale in (0.0, 1e-6, 1e6):
        steps = eqx.tree_at(
            lambda t: (t.obs, t.next_obs), case.steps, (case.steps.obs * scale, case.steps.next_obs * scale)
        )
        _, bonus = case.score(steps)
        demand(np.isfinite(bonus).all(), f"the bonus of {case.name} is not finite for observations of size {scale:g}.")


def score_is_a_loop(case: MethodCase) -> None:
    """Scoring a rollout equals asking about one transition after another."""
    if case.random_bonus and not case.model.shares_key:
        return
    arrays, static = eqx.partition(case.model, eqx.is_array)

    @jax.jit
    def single(arrays: Any, memory: Any, t: Transition) -> tuple[Any, Scalar]:
        return eqx.combine(arrays, static).reward(memory, t, key=case.key)

    _, expected = case.score(case.steps)
    on_host = jax.tree.map(np.asarray, case.steps)
    for n in range(N):
        memory = case.model.memory()
        for t in range(T):
            step = jax.tree.map(lambda x, t=t, n=n: jnp.asarray(x[t, n]), on_host)
            memory, bonus = single(arrays, memory, step)
            demand(
                close(bonus, expected[t, n]),
                f"{case.name}: step {t} of environment {n} is worth {float(bonus):.6g} alone, "
                f"{expected[t, n]:.6g} in a rollout.",
            )
            if bool(step.ended):
                memory = case.model.forget(memory)


def environments_are_independent(case: MethodCase) -> None:
    """One environment's bonus does not depend on the others' experience."""
    other = random_steps(case.spec, (T, N), seed=1)
    mixed = jax.tree.map(lambda a, b: a.at[:, 1:].set(b[:, 1:]), case.steps, other)
    demand(
        close(case.score(case.steps)[1][:, 0], case.score(mixed)[1][:, 0]),
        f"the bonus of {case.name} in environment 0 changes with what environments 1 and 2 see.",
    )


def memory_is_cut(case: MethodCase) -> None:
    """After an episode's end the memory is what `forget` leaves, and the next episode scores accordingly."""
    if case.model.memory() is None:
        return
    ended = eqx.tree_at(lambda t: t.truncated, case.steps, case.steps.truncated.at[-1].set(True))
    ended = eqx.tree_at(lambda t: t.terminated, ended, ended.terminated.at[-1].set(False))
    hidden = eqx.tree_at(lambda t: t.valid, ended, ended.valid.at[-1].set(False))
    for steps in (ended, hidden):
        memory, _ = case.score(steps)
        cut = jax.vmap(case.model.forget)(memory)
        pairs = zip(jax.tree.leaves(cut), jax.tree.leaves(memory), strict=True)
        same = all(np.array_equal(a, b) for a, b in pairs)
        demand(same, f"the memory of {case.name} after an episode's end is not what forget() leaves.")


def memory_catches_up(case: MethodCase) -> None:
    """A memory one step behind, brought up to date, is the memory to the last bit, after valid steps and others."""
    model = case.model
    if not model.spares_memory:
        return
    memories, row = [model.memory()], [jax.tree.map(lambda x, t=t: x[t, 0], case.steps) for t in range(T)]
    for t, step in enumerate(row):
        step = eqx.tree_at(lambda s: s.valid, step, jnp.asarray(t % 3 != 1))
        memories.append(model.reward(memories[-1], step, key=case.key)[0])
    for behind, memory in itertools.pairwise(memories):
        try:
            found = model.caught_up(behind, memory)
        except NotImplementedError:
            raise ContractError(f"{case.name} has spares_memory and needs caught_up(behind, memory).") from None
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(memory), strict=True)
        demand(all(np.array_equal(a, b) for a, b in pairs), f"caught_up() of {case.name} does not give the memory.")


def invalid_steps(case: MethodCase) -> None:
    """Invalid steps earn 0, leave the memory alone and train nothing, whatever they hold."""
    valid = case.steps.valid.at[2].set(False)
    hidden = eqx.tree_at(lambda t: t.valid, case.steps, valid)
    poisoned = eqx.tree_at(lambda t: t.next_obs, hidden, hidden.next_obs.at[2].set(jnp.nan))
    memory, bonus = case.score(hidden)
    demand((bonus[2] == 0).all(), f"{case.name} pays a bonus for steps marked invalid.")
    no = jnp.zeros_like(valid)
    nothing = eqx.tree_at(lambda t: (t.valid, t.terminated, t.truncated), case.steps, (no, no, no))
    still = zip(jax.tree.leaves(case.score(nothing)[0]), jax.tree.leaves(start_memory(case.model, N)), strict=True)
    demand(all(np.array_equal(a, b) for a, b in still), f"{case.name} remembers steps marked invalid.")
    poisoned_memory, poisoned_bonus = case.score(poisoned)
    untouched = close(bonus, poisoned_bonus) and all(
        close(a, b) for a, b in zip(jax.tree.leaves(memory), jax.tree.leaves(poisoned_memory), strict=True)
    )
    demand(untouched, f"what an invalid step holds changes the bonus or the memory of {case.name}.")
    learner = Learner(LearnerSettings(epochs=1, minibatch_size=T * N))
    arrays, static = eqx.partition(case.model, eqx.is_array)

    @jax.jit
    def learnt(arrays: Any, steps: Transition) -> Array:
        model = eqx.combine(arrays, static)
        return flatten(learner.update(model, learner.start(model, case.steps), steps, key=case.key)[0])[0]

    after, poisoned_after = learnt(arrays, hidden), learnt(arrays, poisoned)
    demand(np.array_equal(after, poisoned_after), f"{case.name} learns from what an invalid step holds.")


def losses_are_each_loss(case: MethodCase) -> None:
    """A batch's losses and terms are those of its transitions one by one."""
    model, batch = case.model, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), case.steps)
    keys = case.key if model.shares_key else jax.random.split(case.key, T * N)
    draws = model.draw(keys) if model.shares_key else jax.vmap(model.draw)(keys)
    found = eqx.filter_jit(lambda m, b, d: m.losses(b, d))(model, batch, draws)
    expected = eqx.filter_jit(AbstractCuriosity.losses)(model, batch, draws)
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    same = jax.tree.structure(found) == jax.tree.structure(expected) and all(close(a, b) for a, b in pairs)
    demand(same, f"losses() of {case.name} is not loss() of each transition.")


def training(case: MethodCase) -> None:
    """Gradients are finite, frozen parts stay, at least one parameter moves, and the loss falls."""
    size = flatten(case.model)[0].size
    if size == 0:
        return
    steps = random_steps(case.spec, (32, 2), seed=3)
    learner = Learner(LearnerSettings(epochs=25, minibatch_size=16, learning_rate=1e-3))

    @eqx.filter_jit
    def update(model: Any, state: Any, key: PRNGKey) -> tuple[Any, Any, Array]:
        model, state, report = learner.update(model, state, steps, key=key)
        return model, state, report["loss"]

    model, state, early = update(case.model, learner.start(case.model, steps), jax.random.key(4))
    after, _, late = update(model, state, jax.random.key(5))
    demand(np.isfinite(flatten(after)[0]).all(), f"training {case.name} on 200 ordinary batches gave NaN or infinity.")
    demand(not np.array_equal(flatten(after)[0], flatten(case.model)[0]), f"training {case.name} changed no parameter.")
    demand(late < early, f"200 updates on one batch did not lower the loss of {case.name}: {early:.4g} to {late:.4g}.")

    def frozen(model: Any) -> list[np.ndarray]:
        nodes = jax.tree.leaves(model, is_leaf=lambda x: isinstance(x, Frozen))
        return [leaf for node in nodes if isinstance(node, Frozen) for leaf in _leaves(node)]

    still = all(np.array_equal(a, b) for a, b in zip(frozen(case.model), frozen(after), strict=True))
    demand(still, f"training changed a Frozen part of {case.name}.")


def eager_is_jit(case: MethodCase) -> None:
    """Compiled and uncompiled evaluation agree, for bonus and loss."""
    step = jax.tree.map(lambda x: x[0, 0], case.steps)
    arrays, static = eqx.partition(case.model, eqx.is_array)

    def both(arrays: Any, step: Transition) -> tuple[Scalar, Scalar]:
        model = eqx.combine(arrays, static)
        bonus = model.reward(model.memory(), step, key=case.key)[1]
        return bonus, model.loss(step, draw=model.draw(case.key))[0]

    eager, compiled = both(arrays, step), jax.jit(both)(arrays, step)
    demand(close(eager[0], compiled[0]), f"the bonus of {case.name} differs under jit.")
    demand(close(eager[1], compiled[1]), f"the loss of {case.name} differs under jit.")


def serialisation(case: MethodCase) -> None:
    """Written and read back, the method pays the same bonus to the last bit."""
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, case.model)
    file.seek(0)
    restored = eqx.tree_deserialise_leaves(file, case.build(jax.random.key(7)))
    same = np.array_equal(case.score(case.steps)[1], case.score(case.steps, model=restored)[1])
    demand(same, f"{case.name} pays another bonus after being written and read back.")


def one_trace(case: MethodCase) -> None:
    """Scoring again with the same shapes compiles nothing anew."""
    case.score(case.steps)
    before = case.traces
    case.score(random_steps(case.spec, (T, N), seed=5), jax.random.key(11))
    demand(case.traces == before, f"scoring {case.name} twice with the same shapes traced it twice.")


METHOD_CHECKS: tuple[Callable[[MethodCase], None], ...] = (
    shapes,
    initialisation,
    finite_bonus,
    extreme_values,
    score_is_a_loop,
    environments_are_independent,
    memory_is_cut,
    memory_catches_up,
    invalid_steps,
    losses_are_each_loss,
    training,
    eager_is_jit,
    serialisation,
    one_trace,
)


def method_checks(cls: Callable[..., AbstractCuriosity], **settings: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    """Each check of the contract as a sentence and a call that raises `ContractError` if it is broken.

    The first kind of task gets all checks, the others those that depend on the spaces.
    """
    for index, (kind, spec) in enumerate(SPECS.items()):
        case = MethodCase(cls, spec, settings)
        for check in METHOD_CHECKS if index == 0 else (shapes, finite_bonus):
            sentence = (check.__doc__ or "").strip().split("\n")[0]
            yield f"{kind}: {sentence}", lambda check=check, case=case: check(case)


def check_curiosity(cls: Callable[..., AbstractCuriosity], **settings: Any) -> None:
    """Run the whole contract on a method; raises `ContractError` at the first broken promise."""
    for _, check in method_checks(cls, **settings):
        check()
