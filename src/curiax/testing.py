"""The contract that every method and task keeps, as checks anyone can run on their own.

    from curiax.testing import check_curiosity, check_task
    check_curiosity(MyBonus)        # raises ContractError at the first broken promise
    check_task(MyTask)

`curiax check module:Class` runs the same checks and prints them one by one. The module also holds small
probe tasks with known answers.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ._contract import build_method, check_method_shapes, check_task_shapes, one_action
from ._errors import ContractError
from ._tree import Frozen, flatten
from ._types import Box, Discrete, Grid, PRNGKey, Scalar, Spec, Transition
from .curiosity import AbstractCuriosity, Learner, LearnerSettings, score
from .curiosity._base import start_memory
from .envs import AbstractTask

#: The spaces every method must work for.
SPECS: dict[str, Spec] = {
    "vector, Box of 3": Spec((4,), Box((-1.0,) * 3, (1.0,) * 3), 6),
    "vector, Box of 1": Spec((2,), Box((-1.0,), (1.0,)), 6),
    "vector, Discrete": Spec((3,), Discrete(4), 6),
    "image, Discrete": Spec((5, 5, 2), Discrete(3), 6),
}
T, N = 7, 3


def demand(condition: Any, message: str) -> None:
    """Raise `ContractError` unless the condition holds."""
    if not bool(condition):
        raise ContractError(message)


def close(a: Any, b: Any, tolerance: float = 1e-5) -> bool:
    """Equal to a tolerance relative to the larger value."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return bool(np.all(np.abs(a - b) <= tolerance * (1.0 + np.maximum(np.abs(a), np.abs(b)))))


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


# --- methods ----------------------------------------------------------------------------------------------


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
    for n in range(N):
        memory = case.model.memory()
        for t in range(T):
            step = jax.tree.map(lambda x, t=t, n=n: x[t, n], case.steps)
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
    memory, _ = case.score(ended)
    cut = jax.vmap(case.model.forget)(memory)
    pairs = zip(jax.tree.leaves(cut), jax.tree.leaves(memory), strict=True)
    same = all(np.array_equal(a, b) for a, b in pairs)
    demand(same, f"the memory of {case.name} after an episode's end is not what forget() leaves.")


def invalid_steps(case: MethodCase) -> None:
    """Invalid steps earn 0, leave the memory alone and train nothing, whatever they hold."""
    valid = case.steps.valid.at[2].set(False)
    hidden = eqx.tree_at(lambda t: t.valid, case.steps, valid)
    poisoned = eqx.tree_at(lambda t: t.next_obs, hidden, hidden.next_obs.at[2].set(jnp.nan))
    memory, bonus = case.score(hidden)
    demand((bonus[2] == 0).all(), f"{case.name} pays a bonus for steps marked invalid.")
    poisoned_memory, poisoned_bonus = case.score(poisoned)
    untouched = close(bonus, poisoned_bonus) and all(
        close(a, b) for a, b in zip(jax.tree.leaves(memory), jax.tree.leaves(poisoned_memory), strict=True)
    )
    demand(untouched, f"what an invalid step holds changes the bonus or the memory of {case.name}.")
    learner = Learner(LearnerSettings(epochs=1, minibatch_size=T * N))
    state = learner.start(case.model, case.steps)
    after, poisoned_after = (
        flatten(learner.update(case.model, state, steps, key=case.key)[0])[0] for steps in (hidden, poisoned)
    )
    demand(np.array_equal(after, poisoned_after), f"{case.name} learns from what an invalid step holds.")


def training(case: MethodCase) -> None:
    """Gradients are finite, frozen parts stay, at least one parameter moves, and the loss falls."""
    size = flatten(case.model)[0].size
    if size == 0:
        return
    steps = random_steps(case.spec, (32, 2), seed=3)
    learner = Learner(LearnerSettings(epochs=25, minibatch_size=16, learning_rate=1e-3))
    arrays, static = eqx.partition(case.model, eqx.is_array)

    @jax.jit
    def train(arrays: Any) -> tuple[Any, Array, Array]:
        model = eqx.combine(arrays, static)
        first = learner.update(model, learner.start(model, steps), steps, key=jax.random.key(4))
        second = learner.update(first[0], first[1], steps, key=jax.random.key(5))
        return eqx.filter(second[0], eqx.is_array), first[2]["loss"], second[2]["loss"]

    after_arrays, early, late = train(arrays)
    after = eqx.combine(after_arrays, static)
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
    invalid_steps,
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


# --- tasks ------------------------------------------------------------------------------------------------


class TaskCase:
    """One task, with a compiled walk through it."""

    def __init__(self, task: AbstractTask) -> None:
        self.task, self.name = task, type(task).__name__
        check_task_shapes(task, self.name)
        spec = task.spec

        def walk(key: PRNGKey) -> tuple[Array, Array, Array, Array]:
            reset_key, keys = jax.random.fold_in(key, 0), jax.random.split(jax.random.fold_in(key, 1), 64)

            def step(state: Any, key: PRNGKey) -> tuple[Any, tuple[Array, Array, Array, Array]]:
                draw_key, step_key = jax.random.split(key)
                state, reward, terminated = task.step(state, random_action(spec, draw_key), key=step_key)
                return state, (task.observe(state), reward, terminated, task.track(state))

            return jax.lax.scan(step, task.reset(key=reset_key), keys)[1]

        self.walk = jax.jit(walk)


def random_action(spec: Spec, key: PRNGKey) -> Array:
    """A uniformly random action."""
    if isinstance(spec.action, Discrete):
        return jax.random.randint(key, (), 0, spec.action.n, jnp.int32)
    return jax.random.uniform(
        key, spec.action.shape, minval=jnp.array(spec.action.low), maxval=jnp.array(spec.action.high)
    )


def task_finite(case: TaskCase) -> None:
    """Random actions lead to finite observations, rewards and tracked points."""
    obs, reward, _, point = case.walk(jax.random.key(0))
    for what, value in (("observations", obs), ("rewards", reward), ("tracked points", point)):
        demand(np.isfinite(value).all(), f"random actions lead {case.name} to {what} that are not finite.")


def task_repeatable(case: TaskCase) -> None:
    """The same key gives the same walk to the last bit; other keys give others."""

    def equal(a: tuple[Array, ...], b: tuple[Array, ...]) -> bool:
        return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))

    first, again, *others = (case.walk(jax.random.key(seed)) for seed in (0, 0, *range(1, 9)))
    demand(equal(first, again), f"{case.name} is not repeatable.")
    demand(not all(equal(first, other) for other in others), f"{case.name} ignores its keys and actions.")


def task_vmap(case: TaskCase) -> None:
    """Many instances side by side do what one does alone."""
    keys = jax.random.split(jax.random.key(3), 3)
    together = jax.vmap(case.walk)(keys)
    alone = case.walk(keys[1])
    same = all(close(a[1], b) for a, b in zip(together, alone, strict=True))
    demand(same, f"{case.name} behaves differently beside other instances than alone.")


def task_bounds(case: TaskCase) -> None:
    """Observations stay within the bounds the task declares, if it declares any."""
    spec, obs = case.task.spec, np.asarray(case.walk(jax.random.key(0))[0]).reshape(64, -1)
    low = np.asarray(spec.obs_low or (-math.inf,), np.float32)
    high = np.asarray(spec.obs_high or (math.inf,), np.float32)
    inside = (obs >= low).all() and (obs <= high).all()
    demand(inside, f"an observation of {case.name} left the bounds that its spec declares.")


def task_grids(case: TaskCase) -> None:
    """Tracked points fall into cells of every grid."""
    points = case.walk(jax.random.key(0))[3]
    for grid in case.task.grids:
        cells = np.asarray(grid.index(points))
        demand((cells >= 0).all() and (cells < grid.size).all(), f"grid {grid.name!r} of {case.name} has no such cell.")
        limit = grid.reachable
        demand(
            limit is None or 0 < limit <= grid.size, f"grid {grid.name!r} of {case.name}: reachable must be 1..size."
        )


TASK_CHECKS: tuple[Callable[[TaskCase], None], ...] = (task_finite, task_repeatable, task_vmap, task_bounds, task_grids)


def task_checks(cls: Callable[..., AbstractTask], **settings: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    """Each check of a task's contract as a sentence and a call that raises `ContractError` if it is broken."""
    try:
        task = cls(**settings)
    except Exception as error:
        raise ContractError(f"constructing {cls} failed: {type(error).__name__}: {error}") from error
    cases: list[TaskCase] = []
    yield "reset, step, observe and track return what spec and grids promise.", lambda: cases.append(TaskCase(task))
    for check in TASK_CHECKS:
        yield (check.__doc__ or "").strip().split("\n")[0], lambda check=check: check(cases[0])


def check_task(cls: Callable[..., AbstractTask], **settings: Any) -> None:
    """Run the whole contract on a task; raises `ContractError` at the first broken promise."""
    for _, check in task_checks(cls, **settings):
        check()


# --- probe tasks with known answers -----------------------------------------------------------------------


class Probe(eqx.Module):
    """State of a probe: a random sign, and the time within the episode."""

    sign: Scalar
    time: Int[Array, ""]


class ProbeTask(AbstractTask):
    """Tiny tasks whose values and best actions are known, from the simplest wiring to the whole.

    * `constant`: one step, reward 1: the value must become 1.
    * `sign`: one step, reward equals the observed sign: the value must follow the observation.
    * `delayed`: two steps, reward 1 at the end: the first value must become the discount.
    * `action`: one step, reward 1 for pushing right, −1 for left: the policy must push right.
    * `match`: one step, reward for pushing towards the observed sign: policy and observation together.
    * `endless`: no termination, reward 1 each step, time limit 5: with bootstrapping the value is 1/(1 − γ).
    """

    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)
    kind: str = eqx.field(static=True)

    def __init__(self, *, kind: str = "constant", discrete: bool = False) -> None:
        action = Discrete(2) if discrete else Box((-1.0,), (1.0,))
        self.spec = Spec((2,), action, 5 if kind == "endless" else 2)
        self.grids, self.kind = (), kind

    def reset(self, *, key: PRNGKey) -> Probe:
        return Probe(jnp.where(jax.random.bernoulli(key), 1.0, -1.0), jnp.zeros((), jnp.int32))

    def step(self, state: Probe, action: Array, *, key: PRNGKey) -> tuple[Probe, Scalar, Bool[Array, ""]]:
        push = 2.0 * action - 1.0 if isinstance(self.spec.action, Discrete) else action[0]
        direction = jnp.where(push > 0, 1.0, -1.0)
        last = state.time == 1
        reward = {
            "constant": jnp.ones(()),
            "sign": state.sign,
            "delayed": jnp.where(last, 1.0, 0.0),
            "action": direction,
            "match": direction * state.sign,
            "endless": jnp.ones(()),
        }[self.kind]
        ends = {"delayed": last, "endless": jnp.zeros((), bool)}.get(self.kind, jnp.ones((), bool))
        return Probe(state.sign, state.time + 1), reward, ends

    def observe(self, state: Probe) -> Float[Array, " 2"]:
        return jnp.stack([state.sign, state.time.astype(jnp.float32)])

    def track(self, state: Probe) -> Float[Array, " 0"]:
        return jnp.zeros(0)


class NoisyArm(AbstractTask):
    """The noisy TV as a choice of two arms: action 0 shows noise, action 1 moves a dial that can be learnt.

    A bonus that is drawn to noise pulls arm 0; one that wants to learn pulls arm 1.
    """

    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)
    stochastic = True

    def __init__(self) -> None:
        self.spec, self.grids = Spec((3,), Discrete(2), 20), ()

    def reset(self, *, key: PRNGKey) -> Float[Array, " 2"]:
        return jnp.zeros(2)

    def step(
        self, state: Float[Array, " 2"], action: Int[Array, ""], *, key: PRNGKey
    ) -> tuple[Float[Array, " 2"], Scalar, Bool[Array, ""]]:
        noise = jax.random.uniform(key, minval=-1.0, maxval=1.0)
        after = jnp.where(action == 0, jnp.stack([noise, state[1]]), jnp.stack([0.0, state[1] + 0.3]))
        return after, jnp.where(action == 1, 1.0, 0.0), jnp.zeros((), bool)

    def observe(self, state: Float[Array, " 2"]) -> Float[Array, " 3"]:
        return jnp.stack([state[0], jnp.cos(state[1]), jnp.sin(state[1])])

    def track(self, state: Float[Array, " 2"]) -> Float[Array, " 0"]:
        return jnp.zeros(0)


__all__ = [
    "METHOD_CHECKS",
    "SPECS",
    "NoisyArm",
    "ProbeTask",
    "check_curiosity",
    "check_task",
    "method_checks",
    "one_action",
    "random_steps",
    "task_checks",
]
