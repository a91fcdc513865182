"""Any Gymnasium environment as a task: `gymnasium:ID`.

Gymnasium's vector environments begin the next episode in one of three ways (https://farama.org/Vector-Autoreset-Mode):
not at all, in the step that ended the last one, or in the step after it. A fleet shows the same in all three: the
true successor after a step, and the first observation of the next episode after the reset that follows.
"""

from __future__ import annotations

import abc
import contextlib
import ctypes
import math
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import equinox as eqx
import numpy as np
from jaxtyping import Float, Shaped

from .._errors import SimulatorError, UsageError, unknown
from .._types import Box, Discrete, Grid, Spec
from ._host import AbstractFleet, AbstractHostTask, Mask, Seeds, require_like
from ._single import FleetSingle

Vectorization = Literal["sync", "vector_entry_point"]
Autoreset = Literal["disabled", "same-step", "next-step"]

#: What to install for a module or namespace whose package has another name.
PACKAGES = {
    "mujoco": "'curiax[mujoco]'",
    "ale": "'curiax[atari]'",
    "ale_py": "'curiax[atari]'",
    "box2d": "'gymnasium[box2d]'",
    "pygame": "'gymnasium[classic-control]'",
}
#: What grows in a fleet's state with all that was done with it.
GROWING = ("actions", "reset_after", "reset_who", "reset_seeds")


class GymnasiumTask(AbstractHostTask):
    """An environment of Gymnasium's registry; it tracks no coordinates, so no visited cells are counted.

    Its time limit is Gymnasium's own. Observations are boxes of any shape, or whole numbers and bits, which
    become one-hot vectors; actions are a bounded box, flattened, or one choice of several.
    """

    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)
    id: str = eqx.field(static=True)
    vectorization: Vectorization = eqx.field(static=True)
    autoreset: Autoreset = eqx.field(static=True)
    #: Whether the environment can draw itself into an array.
    draws: bool = eqx.field(static=True)

    def __init__(
        self, *, id: str = "", vectorization: Vectorization = "sync", autoreset: Autoreset | None = None
    ) -> None:
        """Make the environment once, to learn its spaces.

        Args:
            id: the environment's name in Gymnasium's registry; `module:ID` imports the module first.
            vectorization: `sync` steps single environments one after another; `vector_entry_point` uses the
                vector environment that the package itself brings. That one takes a single seed for all its
                environments, so results depend on how many are stepped together.
            autoreset: how episodes begin anew; None is `disabled` for `sync` and what the environment declares
                for `vector_entry_point`. Only in `disabled` mode does every episode have a seed of its own.
        """
        if not id:
            raise UsageError("task.id: name a Gymnasium environment, as in the task gymnasium:CartPole-v1.")
        self.id, self.vectorization, self.grids = id, vectorization, ()
        alone = vectorization == "sync"
        env = make_single(id) if alone else make_vector(id, 1, vectorization, None)
        try:
            self.autoreset = (autoreset or "disabled") if alone else declared_mode(id, env, autoreset)
            self.draws = "rgb_array" in (env.metadata.get("render_modes") or ())
            seen = Reader.of(id, env.observation_space if alone else env.single_observation_space)
            action = Writer.of(id, env.action_space if alone else env.single_action_space)
            fillers = self.autoreset == "next-step"
            self.spec = Spec(seen.shape, action.space, None, seen.low, seen.high, fillers)
        finally:
            env.close()

    @property
    def stops(self) -> bool:
        return self.vectorization == "sync" and self.autoreset == "disabled"

    @property
    def packages(self) -> tuple[str, ...]:
        return ("gymnasium", "mujoco")

    def open(self, count: int, threads: int = 1, render: bool = False) -> GymnasiumFleet:
        """A fleet; one thread steps Python's environments, and they can draw themselves from the start if asked to."""
        alone = self.vectorization == "sync" and self.autoreset == "disabled"
        return (SingleEnvironments if alone else VectorEnvironment)(self, count, render)

    def single(self) -> FleetSingle:
        """Able to draw itself from the start, where it can."""
        prefer_egl()
        return FleetSingle(self.open(1, render=self.draws), self.draws)

    def make(self, count: int, render: bool) -> Any:
        """A list of single environments, or the vector environment; able to draw themselves only where asked to."""
        if render and not self.draws:
            raise UsageError(
                f"Gymnasium environment {self.id!r} has no render mode 'rgb_array', so no picture can be taken of it: "
                "add the mode to the environment's render() and metadata['render_modes']."
            )
        options = {"render_mode": "rgb_array"} if render else {}
        if self.vectorization == "sync" and self.autoreset == "disabled":
            return [make_single(self.id, **options) for _ in range(count)]
        vector = make_vector(self.id, count, self.vectorization, self.autoreset, **options)
        if vector.num_envs != count:
            raise UsageError(
                f"Gymnasium environment {self.id!r}: {count} environments were asked for, its vector environment has "
                f"{vector.num_envs}. Leave 'num_envs' out of what the id is registered with."
            )
        return vector


def prefer_egl() -> None:
    """Have Gymnasium's own MuJoCo environments drawn without a display, where there is none."""
    if sys.platform.startswith("linux") and not os.environ.get("DISPLAY"):
        # Where EGL is missing, MuJoCo could not even be imported with this variable.
        with contextlib.suppress(OSError):
            ctypes.CDLL("libEGL.so.1")
            os.environ.setdefault("MUJOCO_GL", "egl")


def make_single(id: str, **options: Any) -> Any:
    """One environment, or an error that says what is missing."""
    import gymnasium

    try:
        return gymnasium.make(id, **options)
    except (Exception, SystemExit) as error:
        refuse(id, error)


def make_vector(id: str, count: int, vectorization: Vectorization, autoreset: Autoreset | None, **options: Any) -> Any:
    """A vector environment; only Gymnasium's own takes the mode from us."""
    import gymnasium

    if vectorization == "sync":
        options["vector_kwargs"] = {"autoreset_mode": mode_names()[autoreset or "disabled"]}
    try:
        with warnings.catch_warnings():
            # `declared_mode` says the same as an error.
            warnings.filterwarnings("ignore", message=".*AutoresetMode")
            return gymnasium.make_vec(id, count, vectorization_mode=vectorization, **options)
    except (Exception, SystemExit) as error:
        refuse(id, error)


def mode_names() -> dict[Autoreset, Any]:
    """Gymnasium's value for each auto-reset mode."""
    from gymnasium.vector import AutoresetMode

    return {
        "disabled": AutoresetMode.DISABLED,
        "same-step": AutoresetMode.SAME_STEP,
        "next-step": AutoresetMode.NEXT_STEP,
    }


def declared_mode(id: str, vector: Any, wanted: Autoreset | None) -> Autoreset:
    """The auto-reset mode of a package's own vector environment; nobody can ask it for another."""
    entry = vector.metadata.get("autoreset_mode")
    declared: Autoreset | None = next((n for n, mode in mode_names().items() if entry in (mode, mode.value)), None)
    if declared is None and wanted is None:
        raise UsageError(
            f"Gymnasium environment {id!r}: its vector environment does not declare its auto-reset mode "
            f"(metadata['autoreset_mode'] = {entry!r}): say it with task.autoreset: {', '.join(mode_names())}."
        )
    if declared is not None and wanted not in (None, declared):
        raise UsageError(
            f"Gymnasium environment {id!r}: its own vector environment resets itself in {declared!r} mode and cannot "
            f"be asked for {wanted!r}: leave task.autoreset out, or set task.vectorization=sync."
        )
    mode = declared or wanted
    assert mode is not None
    return mode


def refuse(id: str, error: Exception | SystemExit) -> NoReturn:
    """Say why an environment could not be made, and what to install or name instead."""
    import gymnasium

    name = id.rpartition(":")[2]
    what, known = f"Gymnasium environment {id!r}", gymnasium.registry.get(name)
    if isinstance(error, gymnasium.error.NamespaceNotFound):
        namespace = name.partition("/")[0]
        raise UsageError(
            f"{what}: {error} If its package is missing: {pip_install(namespace)}; then name the module that "
            f"registers it too: gymnasium:MODULE:{name}."
        ) from None
    if isinstance(error, gymnasium.error.DependencyNotInstalled | ImportError):
        missing = next(filter(None, (getattr(e, "name", None) for e in (error, error.__cause__))), None)
        if missing is None and isinstance(error, gymnasium.error.DependencyNotInstalled):
            missing = next((key for key in PACKAGES if key in str(error).lower()), None)
        advice = pip_install(missing) if missing else "see its documentation for what to install"
        raise UsageError(f"{what} needs a package that is not installed ({error}): {advice}.") from None
    if known is None and isinstance(error, gymnasium.error.Error):
        hint = str(error) if isinstance(error, gymnasium.error.DeprecatedEnv) else ""
        hint += " An environment of another package is named gymnasium:MODULE:ID, so that MODULE can register it."
        raise unknown("Gymnasium environment", name, gymnasium.registry, hint.strip()) from None
    if known is not None and known.entry_point is None and isinstance(error, gymnasium.error.Error):
        raise UsageError(f"{what} exists as a vector only: set task.vectorization=vector_entry_point.") from None
    if known is not None and known.vector_entry_point is None and isinstance(error, gymnasium.error.Error):
        raise UsageError(f"{what} has no vector environment of its own: set task.vectorization=sync.") from None
    raise UsageError(
        f"{what} could not be made: {type(error).__name__}: {error}. Try gymnasium.make({id!r}) alone."
    ) from error


def pip_install(name: str) -> str:
    """The command that brings a module or a namespace, as far as one can tell from its name."""
    top = name.partition(".")[0]
    return f"pip install {PACKAGES.get(top.lower(), top)}"


@dataclass(frozen=True)
class Reader:
    """How a space's observations become arrays of floats.

    Args:
        text: the space, for messages.
        raw_shape, raw_kind: what the environment returns.
        shape: what the agent sees.
        encode: the second from the first, for any number of environments.
        low, high: bounds of what the agent sees, if all of them are finite.
    """

    text: str
    raw_shape: tuple[int, ...]
    raw_kind: type
    shape: tuple[int, ...]
    encode: Callable[[np.ndarray], np.ndarray]
    low: tuple[float, ...] | None
    high: tuple[float, ...] | None

    @classmethod
    def of(cls, id: str, space: Any) -> Reader:
        """The reader of a space, or an error if the library cannot learn from it."""
        from gymnasium import spaces

        if isinstance(space, spaces.Box) and 0 not in space.shape:
            # A network needs at least one axis.
            shape = space.shape or (1,)
            finite = [bound if np.isfinite(bound).all() else None for bound in (space.low, space.high)]
            low, high = (None if b is None else tuple(b.astype(np.float64).ravel().tolist()) for b in finite)
            return cls(str(space), space.shape, np.float64, shape, lambda raw: raw.reshape(-1, *shape), low, high)
        if isinstance(space, spaces.MultiBinary):
            size, encode = math.prod(space.shape), lambda raw: raw.reshape(len(raw), -1).astype(np.float64)
        elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            sizes = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec).astype(np.int64)
            starts = np.ravel(space.start).astype(np.int64)
            size, encode = int(sizes.sum()), one_hot(str(space), sizes, starts)
        else:
            raise UsageError(
                f"Gymnasium environment {id!r}: observations in {space} are not supported; supported are Box, "
                "Discrete, MultiDiscrete and MultiBinary. Register an id whose environment wraps this one in "
                "gymnasium.wrappers.FlattenObservation, or in an ObservationWrapper of yours that returns one array."
            )
        return cls(str(space), space.shape or (), np.int64, (size,), encode, (0.0,) * size, (1.0,) * size)

    def checked(self, value: Any, *lead: int) -> np.ndarray:
        """What an environment returned, as an array of the promised shape."""
        array = np.asarray(value)
        if array.shape != (*lead, *self.raw_shape):
            raise ValueError(
                f"an observation of shape {array.shape} where its space promises {(*lead, *self.raw_shape)}"
            )
        return array


def one_hot(text: str, sizes: np.ndarray, starts: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """An encoder of whole numbers: a one-hot vector for each, side by side."""
    offsets = np.cumsum(sizes) - sizes

    def encode(raw: np.ndarray) -> np.ndarray:
        number = raw.reshape(len(raw), -1) - starts
        inside = ((number >= 0) & (number < sizes)).all(axis=1)
        if not inside.all():
            row = int(np.argmin(inside))
            raise ValueError(f"environment {row} shows {raw[row]}, which lies outside {text}")
        seen = np.zeros((len(raw), int(sizes.sum())))
        np.put_along_axis(seen, number + offsets, 1.0, axis=1)
        return seen

    return encode


@dataclass(frozen=True)
class Writer:
    """How the agent's actions become those of a space.

    Args:
        space: the action space as the agent knows it.
        shape, kind: what the environment takes.
        start: number of the first of several choices.
    """

    space: Box | Discrete
    shape: tuple[int, ...]
    kind: np.dtype[Any]
    start: int = 0

    @classmethod
    def of(cls, id: str, space: Any) -> Writer:
        """The writer of a space, or an error if no agent of the library can act in it."""
        from gymnasium import spaces

        what = f"Gymnasium environment {id!r}: actions in {space}"
        try:
            if isinstance(space, spaces.Discrete):
                return cls(Discrete(int(space.n)), (), np.dtype(space.dtype), int(space.start))
            if isinstance(space, spaces.Box):
                if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
                    raise UsageError(
                        f"{what} have no bounds, which exploration needs: register an id whose environment wraps this "
                        "one in gymnasium.wrappers.ClipAction or RescaleAction around a Box with finite bounds."
                    )
                box = Box(*(tuple(bound.astype(np.float64).ravel().tolist()) for bound in (space.low, space.high)))
                return cls(box, space.shape, np.dtype(space.dtype))
        except ValueError as error:
            raise UsageError(f"{what} leave nothing to choose: {error}.") from None
        raise UsageError(
            f"{what} are not supported; supported are Box and Discrete. Register an id whose environment wraps this "
            "one in a gymnasium.ActionWrapper of yours that numbers the combinations as one Discrete, or takes a Box."
        )

    def executed(self, actions: np.ndarray) -> np.ndarray:
        """The agent's actions as the environment takes them; continuous ones clipped to the box."""
        if isinstance(self.space, Discrete):
            return (actions.astype(np.int64) + self.start).astype(self.kind)
        clipped = np.clip(actions.astype(np.float64), self.space.low, self.space.high)
        whole = np.rint(clipped) if np.issubdtype(self.kind, np.integer) else clipped
        return whole.astype(self.kind).reshape(-1, *self.shape)


class GymnasiumFleet(AbstractFleet):
    """What fleets of single environments and of a vector environment share.

    No environment can be asked for its state, but it is a function of its seeds and actions: those are kept,
    and `restore` repeats them. That takes as long as the steps did.
    """

    def __init__(self, task: GymnasiumTask, count: int, render: bool, obs_space: Any, action_space: Any) -> None:
        self.id, self.steps, self._task, self._draws = task.id, 0, task, render
        self._reader, self._writer = Reader.of(task.id, obs_space), Writer.of(task.id, action_space)
        #: What `obs` shows, as the environments returned it.
        self._shown = np.zeros((count, *self._reader.raw_shape), self._reader.raw_kind)
        self.obs = np.zeros((count, *self._reader.shape))
        self.record = np.zeros((count, 1))
        #: The last step's reward, all that is recorded of it.
        self._reward = self.record[:, 0]
        self.terminated, self.truncated = np.zeros(count, bool), np.zeros(count, bool)

    def measure(
        self, record: Float[np.ndarray, "*lead 1"]
    ) -> tuple[Float[np.ndarray, "*lead 0"], Float[np.ndarray, "*lead"]]:
        return np.zeros((*record.shape[:-1], 0)), record[..., 0]

    def _show(self) -> None:
        try:
            self.obs[...] = self._reader.encode(self._shown)
        except ValueError as error:
            raise self._failure(None, "returned what it must not", error) from error

    def _failure(self, index: int | None, what: str, error: Exception | SystemExit) -> SimulatorError:
        """The error to raise when an environment's own code fails."""
        where = f"one of {len(self.obs)}" if index is None else f"environment {index} of {len(self.obs)}"
        return SimulatorError(
            f"Gymnasium environment {self.id!r} ({where}, step {self.steps}) {what}: {type(error).__name__}: {error}. "
            f"The fault lies in the environment: run gymnasium.utils.env_checker.check_env on gymnasium.make("
            f"{self.id!r}), correct or wrap it, and start the run again."
        )

    def _seen(self) -> dict[str, np.ndarray]:
        """What the fleet shows, as part of its state."""
        return {
            "obs": self.obs.copy(),
            "record": self.record.copy(),
            "terminated": self.terminated.copy(),
            "truncated": self.truncated.copy(),
            "steps": np.asarray(self.steps),
        }

    def _check_fits(self, state: Mapping[str, np.ndarray]) -> None:
        kept, here = state["obs"].shape, self.obs.shape
        if kept != here:
            raise UsageError(
                f"a state of {kept[0]} environments with observations of shape {kept[1:]} does not fit this fleet of "
                f"{here[0]} of Gymnasium's {self.id!r} with shape {here[1:]}."
            )
        require_like(state, self.state(), GROWING)

    def _check_same(self, state: Mapping[str, np.ndarray]) -> None:
        """Refuse to go on from anything but the very state that was kept."""
        for k, (now, kept) in enumerate(zip(self.obs, state["obs"], strict=True)):
            if now.tobytes() != kept.tobytes():
                raise SimulatorError(
                    f"Gymnasium environment {self.id!r} (environment {k} of {len(self.obs)}, step {self.steps}) is not "
                    "deterministic: the same seed and actions led to another observation than before, so the run "
                    "cannot be continued exactly. Make the environment draw all randomness from self.np_random, or "
                    "start the run again."
                )

    def render(self, index: int, width: int, height: int) -> np.ndarray:
        import gymnasium

        if not self._draws:
            # Drawing must be asked for when an environment is made, so others take over where these are.
            made, state = self._task.make(len(self.obs), True), self.state()
            self.close()
            self._take(made)
            self.restore(state)
            self._draws = True
        try:
            return fitted(np.asarray(self._frame(index)), width, height)
        except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
            refuse(self.id, error)
        except (Exception, SystemExit) as error:
            raise self._failure(index, "could not be drawn", error) from error

    @abc.abstractmethod
    def _take(self, made: Any) -> None:
        """Step these environments from now on."""

    @abc.abstractmethod
    def _frame(self, index: int) -> Any:
        """The environment's picture of itself."""


def fitted(frame: np.ndarray, width: int, height: int) -> np.ndarray:
    """A picture scaled to fit `[height, width, 3]`, on black."""
    tall, wide = frame.shape[:2]
    scale = min(width / wide, height / tall)
    rows, columns = max(1, round(tall * scale)), max(1, round(wide * scale))
    from_rows = ((np.arange(rows) + 0.5) * tall / rows).astype(int)
    from_columns = ((np.arange(columns) + 0.5) * wide / columns).astype(int)
    picture = np.zeros((height, width, 3), np.uint8)
    top, left = (height - rows) // 2, (width - columns) // 2
    picture[top : top + rows, left : left + columns] = frame[from_rows][:, from_columns, :3]
    return picture


class SingleEnvironments(GymnasiumFleet):
    """Environments stepped one by one; each episode begins with a seed, so it stands for itself."""

    def __init__(self, task: GymnasiumTask, count: int, render: bool) -> None:
        self._envs: Sequence[Any] = task.make(count, render)
        super().__init__(task, count, render, self._envs[0].observation_space, self._envs[0].action_space)
        self._seeds, self._begun = np.zeros(count, np.uint32), np.zeros(count, bool)
        #: The actions of each environment's present episode.
        self._actions: list[list[Any]] = [[] for _ in range(count)]

    def _take(self, made: Any) -> None:
        self._envs = made

    def reset(self, seeds: Seeds, who: Mask | None = None) -> None:
        for k in range(len(self._envs)) if who is None else np.flatnonzero(who):
            self._reset_one(int(k), seeds[k])
        self._show()

    def _reset_one(self, k: int, seed: np.uint32) -> None:
        try:
            first, _ = self._envs[k].reset(seed=int(seed))
            self._shown[k] = self._reader.checked(first)
        except (Exception, SystemExit) as error:
            raise self._failure(k, f"failed in reset(seed={seed})", error) from error
        self._seeds[k], self._begun[k], self._actions[k], self._reward[k] = seed, True, [], 0.0

    def step(self, actions: Shaped[np.ndarray, "M ..."], seeds: Seeds, still: Mask | None = None) -> None:
        executed = self._writer.executed(actions)
        # An environment may write into its action; what is kept must stay as it was.
        handed = executed.copy()
        for k in range(len(self._envs)):
            if still is None or not still[k]:
                self._step_one(k, handed[k], executed[k])
            else:
                # As with tasks in JAX: what does not move earns nothing.
                self._reward[k], self.terminated[k], self.truncated[k] = 0.0, False, False
        self.steps += 1
        self._show()

    def _step_one(self, k: int, handed: Any, kept: Any) -> None:
        # What a box of no axes takes is an array nevertheless; one of several choices is a number.
        handed = handed if isinstance(self._writer.space, Discrete) else np.asarray(handed)
        try:
            after, self._reward[k], self.terminated[k], self.truncated[k], _ = self._envs[k].step(handed)
            self._shown[k] = self._reader.checked(after)
        except (Exception, SystemExit) as error:
            raise self._failure(k, "failed in step", error) from error
        self._actions[k].append(kept)

    def state(self) -> dict[str, np.ndarray]:
        lengths = np.array([len(actions) for actions in self._actions])
        actions = np.zeros((len(lengths), max(lengths), *self._writer.shape), self._writer.kind)
        for k, taken in enumerate(self._actions):
            if taken:
                actions[k, : len(taken)] = taken
        arrays = {"seeds": self._seeds.copy(), "begun": self._begun.copy(), "lengths": lengths, "actions": actions}
        return {**arrays, **self._seen()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._check_fits(state)
        self.steps = int(state["steps"])
        for k in np.flatnonzero(state["begun"]):
            self._reset_one(int(k), state["seeds"][k])
            taken = state["actions"][k, : state["lengths"][k]]
            for handed, kept in zip(taken.copy(), taken.copy(), strict=True):
                self._step_one(int(k), handed, kept)
        self._show()
        self._check_same(state)
        # An environment that stood still in the last step differs in these from a repetition of its own last step.
        for name in ("record", "terminated", "truncated"):
            getattr(self, name)[...] = state[name]

    def _frame(self, index: int) -> Any:
        return self._envs[index].render()

    def close(self) -> None:
        for env in self._envs:
            env.close()


class VectorEnvironment(GymnasiumFleet):
    """A vector environment, whichever way it resets itself.

    Where it does, it takes no seed for it: the first episodes' seeds decide everything after them, so all that
    happened since is kept for `restore`.
    """

    def __init__(self, task: GymnasiumTask, count: int, render: bool) -> None:
        self._vector, self._mode = task.make(count, render), task.autoreset
        spaces = self._vector.single_observation_space, self._vector.single_action_space
        super().__init__(task, count, render, *spaces)
        #: What the vector environment shows: in same-step mode the next episode's first observation.
        self._current = self._shown.copy()
        #: Where the last step ended an episode and the vector environment itself begins the next one.
        self._due = np.zeros(count, bool)
        if self._mode == "next-step":
            self.filler = np.zeros(count, bool)
        self._first_seeds: np.ndarray | None = None
        self._actions: list[np.ndarray] = []
        self._resets: list[tuple[int, np.ndarray, np.ndarray]] = []

    def _take(self, made: Any) -> None:
        self._vector = made

    def reset(self, seeds: Seeds, who: Mask | None = None) -> None:
        if who is None:
            self._first_seeds, self._actions, self._resets = seeds.copy(), [], []
            self._current[...] = self._reset_vector(seeds, None)
            self._shown[...] = self._current
            self._due[:], self._reward[:], self.terminated[:], self.truncated[:] = False, 0.0, False, False
            if self.filler is not None:
                self.filler[:] = False
            self._show()
            return
        if not who.any():
            return
        self._resets.append((len(self._actions), who.copy(), seeds.copy()))
        asked = who & ~self._due
        if asked.any():
            after = self._reset_vector(seeds, asked)
            if after[~asked].tobytes() != self._current[~asked].tobytes():
                raise self._not_alone(asked, "it began new episodes in others as well")
            self._current[asked] = after[asked]
        # In next-step mode the terminal observation stays until the next step, which is spent on the reset.
        fresh = asked if self._mode == "next-step" else who
        self._shown[fresh], self._reward[fresh] = self._current[fresh], 0.0
        self._show()

    def _reset_vector(self, seeds: Seeds, who: Mask | None) -> np.ndarray:
        """Reset everything, or `who` by Gymnasium's mask; what the vector environment shows after it."""
        from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

        chosen = seeds if who is None else seeds[who]
        # Only Gymnasium's own take a seed for each environment; the interface promises no more than one for all.
        each = isinstance(self._vector.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        seed = seeds.tolist() if each else int(np.random.SeedSequence(chosen.tolist()).generate_state(1)[0])
        options = {} if who is None else {"options": {"reset_mask": who.copy()}}
        try:
            first, _ = self._vector.reset(seed=seed, **options)
            return self._reader.checked(first, len(seeds)).astype(self._current.dtype)
        except (Exception, SystemExit) as error:
            if who is None:
                raise self._failure(None, f"failed in reset(seed={seed})", error) from error
            raise self._not_alone(who, f"reset raised {type(error).__name__}: {error}") from error

    def _not_alone(self, who: Mask, why: str) -> SimulatorError:
        which = ", ".join(map(str, np.flatnonzero(who)))
        return SimulatorError(
            f"Gymnasium environment {self.id!r} (environment {which} of {len(who)}, step {self.steps}) had to be reset "
            f"alone, but its vector environment cannot do that by options['reset_mask']: {why}. Set "
            "task.vectorization=sync, or let its reset honour the mask."
        )

    def step(self, actions: Shaped[np.ndarray, "M ..."], seeds: Seeds, still: Mask | None = None) -> None:
        if still is not None and still.any():
            which = ", ".join(map(str, np.flatnonzero(still)))
            raise SimulatorError(
                f"Gymnasium environment {self.id!r} (environment {which} of {len(still)}, step {self.steps}) had to "
                "stand still while others moved, which a vector environment cannot do: set task.vectorization=sync "
                "and task.autoreset=disabled."
            )
        self._advance(self._writer.executed(actions))

    def _advance(self, executed: np.ndarray) -> None:
        try:
            # An environment may write into its actions; what is kept must stay as it was.
            after, reward, terminated, truncated, infos = self._vector.step(executed.copy())
            self._current[...] = self._reader.checked(after, len(self.obs))
            self._reward[:], self.terminated[:], self.truncated[:] = reward, terminated, truncated
        except (Exception, SystemExit) as error:
            raise self._failure(None, "failed in step", error) from error
        ended = self.terminated | self.truncated
        self._shown[...] = self._current
        if self.filler is not None:
            self.filler[:] = self._due
            self._reward[self.filler], self.terminated[self.filler], self.truncated[self.filler] = 0.0, False, False
        elif self._mode == "same-step":
            for k in np.flatnonzero(ended):
                self._shown[k] = self._final(infos, int(k))
        if self._mode != "disabled":
            self._due[:] = ended
        self._actions.append(executed)
        self.steps += 1
        self._show()

    def _final(self, infos: Mapping[str, Any], k: int) -> np.ndarray:
        """The observation that ended an episode, which a vector environment in same-step mode hands over aside."""
        final = infos.get("final_obs")
        if final is None or final[k] is None:
            raise SimulatorError(
                f"Gymnasium environment {self.id!r} (environment {k} of {len(self.obs)}, step {self.steps}) ended "
                "an episode in same-step mode without infos['final_obs'], so the step's true successor is lost. Set "
                "task.vectorization=sync, or let the vector environment report it."
            )
        try:
            return self._reader.checked(final[k])
        except ValueError as error:
            raise self._failure(k, "failed in step", error) from error

    def state(self) -> dict[str, np.ndarray]:
        count, resets = len(self.obs), len(self._resets)
        begun = self._first_seeds is not None
        return {
            "begun": np.asarray(begun),
            "seeds": np.zeros(count, np.uint32) if self._first_seeds is None else self._first_seeds.copy(),
            "actions": np.array(self._actions, self._writer.kind).reshape(-1, count, *self._writer.shape),
            "reset_after": np.array([after for after, _, _ in self._resets], np.int64),
            "reset_who": np.array([who for _, who, _ in self._resets], bool).reshape(resets, count),
            "reset_seeds": np.array([seeds for _, _, seeds in self._resets], np.uint32).reshape(resets, count),
            **self._seen(),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._check_fits(state)
        self.steps = int(state["steps"]) - len(state["actions"])
        if not state["begun"]:
            return
        self.reset(state["seeds"])
        resets = list(zip(state["reset_after"], state["reset_who"], state["reset_seeds"], strict=True))
        for time in range(len(state["actions"]) + 1):
            while resets and resets[0][0] == time:
                _, who, seeds = resets.pop(0)
                self.reset(seeds, who)
            if time < len(state["actions"]):
                self._advance(state["actions"][time].copy())
        self._check_same(state)

    def _frame(self, index: int) -> Any:
        frames = self._vector.render()
        return frames[index]

    def close(self) -> None:
        self._vector.close()
