"""`curiax.Bonus`: a curiosity bonus beside somebody else's agent, NumPy in and NumPy out.

It holds everything that a method needs to pay and to learn, and nothing of the environment: it never steps one, and
it learns only from the transitions that it was asked about. The object is a handle; its `state` is an immutable tree,
and every call either replaces it whole or leaves it alone.
"""

from __future__ import annotations

import functools
import math
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._contract import build_method, check_method_shapes
from .._errors import NonFiniteError, UsageError
from .._files import as_path
from .._frames import Pixels
from .._settings import checked, defaults
from .._sound import COMPUTED, LIMIT
from .._stats import Moments
from .._types import Box, Spec, Transition
from ..curiosity import AbstractCuriosity, Learner, LearnerSettings
from ..curiosity.encoders import large_image
from ..experiments.registry import find_method
from ..experiments.spec import plain
from . import spaces
from .bonus_programs import BonusState, Steps, cut, frame_of, programs, rounded
from .spaces import Actions, Observations

Done = TypeVar("Done", bound=Callable[..., Any])


def one_at_a_time(method: Done) -> Done:
    """A method of `Bonus` that no other thread may interleave with."""

    @functools.wraps(method)
    def alone(self: Bonus, *args: Any, **options: Any) -> Any:
        with self._lock:
            return method(self, *args, **options)

    return cast(Done, alone)


#: Numbers that the memories of all environments may hold.
MOST_MEMORY = 1 << 28


class Asked(NamedTuple):
    """The last question and its answer."""

    steps: Steps
    paid: np.ndarray


class Bonus:
    """A curiosity bonus for any agent.

        bonus = curiax.Bonus("lbs", envs.single_observation_space, envs.single_action_space, num_envs=8)
        reward += 0.01 * bonus.reward(obs, action, next_obs, terminated, truncated)    # every step, or a rollout
        bonus.update()                                                                 # where the agent learns

    `next_obs` is what the step led to: at an episode's end its last observation, not the first of the next
    (`curiax.CuriousVectorEnv` and the Stable-Baselines3 wrapper see to that).

    Args:
        method: a name from `curiax list`, `module:Class`, or a subclass of `AbstractCuriosity`.
        observation_space: of one environment: Box, Discrete, MultiDiscrete or MultiBinary. Boxes of bytes with two or
            three axes, and bounded boxes with three, are images; all other boxes are vectors.
        action_space: of one environment: Box, Discrete, MultiDiscrete or MultiBinary.
        num_envs: environments stepped side by side.
        seed: what the networks and all else that is random are drawn from.
        learner: how the model is trained and its bonus scaled, as `curiax.LearnerSettings` or a mapping of its fields;
            with `scale` False the bonus is paid raw.
        normalise_obs: standardise vector observations by the statistics of those seen, and clip them to ±10. They, like
            the scale of the bonus, change in `update` and `calibrate` only. Large images (sides of at least 36) are
            standardised as in arcade training, by a mean for each pixel and one deviation for all: measured once, by
            `calibrate` or in the first `update`, and not clipped. Until then, and always those of smaller ones, pixels
            are only scaled to 0..1.
        horizon: time limit of an episode in steps, where there is one: methods with an episodic memory make it so long.
        waiting: how many transitions are kept for the next `update`; beyond it the oldest go, with a warning.
        settings: settings of the method, as `beta=2.0`.
    """

    def __init__(
        self,
        method: str | type[AbstractCuriosity],
        observation_space: Any,
        action_space: Any,
        *,
        num_envs: int,
        seed: int = 0,
        learner: LearnerSettings | Mapping[str, Any] | None = None,
        normalise_obs: bool = True,
        horizon: int | None = None,
        waiting: int = 65_536,
        **settings: Any,
    ) -> None:
        entry = find_method(method)
        self.method, self._cls = entry.name, entry.method
        self.observation_space, self.action_space = observation_space, action_space
        self._observations, self._actions = Observations.of(observation_space), Actions.of(action_space)
        self.num_envs, self.waiting = count("num_envs", num_envs), count("waiting", waiting)
        if self.waiting < self.num_envs:
            raise UsageError(f"waiting = {waiting}: less than one step of num_envs={num_envs} environments.")
        self.seed = count("seed", seed, least=0, most=2**32 - 1)
        if not isinstance(normalise_obs, bool | np.bool_):
            raise UsageError(f"normalise_obs = {normalise_obs!r}: must be True or False.")
        self.horizon = None if horizon is None else count("horizon", horizon)
        self.learner = learner_of(learner)
        self.spec = Spec(self._observations.shape, self._actions.known, self.horizon)
        # A small image's pixels are only scaled by their bounds, as in training; it is features that are standardised.
        large, shape = large_image(self.spec), self.spec.obs_shape
        self.normalise_obs = bool(normalise_obs) and (large or self._observations.kind != "image")
        given = {name.removeprefix("method."): value for name, value in entry.settings.items()}
        self.settings = {**defaults(self._cls), **checked(self._cls, {**given, **settings}, f"method {entry.name!r}")}
        self._root = jax.random.key(np.uint32(self.seed))
        model = build_method(self._cls, self.spec, jax.random.fold_in(self._root, 0), entry.name, **self.settings)
        self._refuse_memories(model)
        check_method_shapes(model, self.spec, entry.name)
        learning = Learner(self.learner)
        stats = (
            Pixels.plain(shape) if self.normalise_obs and large else Moments.start(shape if self.normalise_obs else ())
        )
        state = BonusState(
            model,
            learning.start(model, self._example()),
            stats,
            jnp.zeros((), bool),
            jnp.zeros((), jnp.int32),
        )
        self._frame = frame_of(state, learning, self.normalise_obs, self._observations, self._actions)
        self._programs = programs(self._frame)
        #: The state, taken apart: putting it together at each step would take longer than paying.
        self._arrays, self._memory = self._frame.apart(state)
        #: Memories as they were one step ago, if that was all that happened since: a program may use them up.
        self._behind: list[list[jax.Array]] = []
        self._spares = bool(self._memory) and model.spares_memory
        self._lock = threading.RLock()
        self._updates = 0
        self._waiting: list[tuple[Steps, np.ndarray]] = []
        self._count = 0
        self._asked: Asked | None = None
        self._dropped = False

    def __repr__(self) -> str:
        return (
            f"<Bonus {self.method!r} of {self.num_envs} environments, {self.updates} updates, "
            f"{self.seen} transitions waiting>"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Bonus:
        """Another Bonus that goes on from here by itself."""
        twin = type(self)(
            self._cls,
            self.observation_space,
            self.action_space,
            num_envs=self.num_envs,
            seed=self.seed,
            learner=self.learner,
            normalise_obs=self.normalise_obs,
            horizon=self.horizon,
            waiting=self.waiting,
            **self.settings,
        )
        twin.method = self.method
        with self._lock:
            twin.put(self.state, self.waiting_steps())
            twin._asked = self._asked
        return twin

    def __copy__(self) -> Bonus:
        return self.__deepcopy__({})

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Bonus is not pickled: save() writes it to a file, Bonus.load() reads it again.")

    @property
    @one_at_a_time
    def state(self) -> BonusState:
        """Everything that was learnt and is remembered; assign it to go back. Transitions that wait are not in it."""
        # A copy of the memories: those that are here are written into, one step late.
        return self._frame.whole(self._arrays, [jnp.array(array) for array in self._memory])

    @state.setter
    @one_at_a_time
    def state(self, value: BonusState) -> None:
        self._put(value, self._waiting)

    @property
    def updates(self) -> int:
        """How often `update` has trained."""
        return self._updates

    @property
    def seen(self) -> int:
        """Transitions that wait for the next `update`."""
        return self.num_envs * self._count

    def about(self) -> dict[str, Any]:
        """What was asked for, as plain data: with it and `state` an equal Bonus can be made."""
        # A function as a setting cannot be written down; whoever reads takes the method's default.
        plainly = {name: plain(name, value) for name, value in self.settings.items() if not callable(value)}
        return {
            "method": self.method,
            "settings": plainly,
            "observation_space": spaces.data_of(self.observation_space),
            "action_space": spaces.data_of(self.action_space),
            "num_envs": self.num_envs,
            "seed": self.seed,
            "learner": asdict(self.learner),
            "normalise_obs": self.normalise_obs,
            "horizon": self.horizon,
            "waiting": self.waiting,
        }

    @one_at_a_time
    def reward(
        self,
        obs: Any,
        action: Any,
        next_obs: Any,
        terminated: Any,
        truncated: Any,
        *,
        valid: Any = None,
        record: bool = True,
    ) -> np.ndarray:
        """The bonus of one step of all environments `[N]`, or of a rollout `[T, N]`; float32 of the same leading axes.

        Nothing is trained. The transitions are kept for `update`, and methods with an episodic memory remember them.
        Asked the last question again, it answers the same and counts it once. Only where a single step could as well be
        the next one (every episode had ended or stands still) it is taken for that. A rollout never is, and nothing
        with `record=False`.

        Args:
            obs: observations that were acted on, as the environment gives them.
            action: actions as the environment carried them out.
            next_obs: what the steps led to.
            terminated, truncated: whether the episode ended with the step.
            valid: False for steps that are none, as the extra step of a vector environment that resets itself in the
                next one: they earn 0 and teach nothing. None: all are.
            record: False only asks: nothing is kept or remembered.
        """
        if not isinstance(record, bool | np.bool_):
            raise UsageError(f"record = {record!r}: must be True or False.")
        steps, lead = self._read(obs, action, next_obs, terminated, truncated, valid)
        last = self._asked
        # A single step may happen twice: where nothing moves, or an episode has one step. A rollout hardly does.
        if last is not None and last.steps.same(steps) and (steps.length > 1 or not last.steps.goes_on(steps)):
            return last.paid.reshape(lead).copy()
        before = self._memory
        memory, raw, paid = self._pay(steps, record)
        if record:
            # The end of an episode changes more of a memory than one step does.
            behind = [before] if self._spares and steps.length == 1 and not steps.ended.any() else []
            asked, count, kept = Asked(steps, paid), self._count + steps.length, self._waiting.append
            # Nothing is called between these: an interrupt comes before all of them or after.
            self._memory, self._behind, self._asked, self._count = memory, behind, asked, count
            kept((steps, raw))
            self._drop_excess(warn=True)
        return paid.reshape(lead).copy()

    def check_action(self, action: Any, *, valid: Any = None) -> None:
        """Refuse the actions of one step that `reward` would refuse: for before an environment carries them out."""
        array, shape = spaces.array_of("action", action), (self.num_envs, *(self.action_space.shape or ()))
        if array.shape != shape:
            raise UsageError(
                f"action: shape {list(array.shape)}; expected {list(shape)}, an element of {self.action_space} for "
                "each environment."
            )
        self._actions.read("action", array, self._there(valid, shape[:1]))

    @one_at_a_time
    def update(self) -> dict[str, float]:
        """Train on everything seen since the last update; what the method reports of it, as its loss.

        With nothing to train on it does nothing and returns an empty dictionary.
        """
        if not self._waiting:
            return {}
        parts, raws = zip(*self._waiting, strict=True)
        if not any(part.valid.any() for part in parts):
            self.discard()
            return {}
        joined, raw = parts[0], raws[0]
        if len(parts) > 1:
            joined, raw = Steps(*map(np.concatenate, zip(*parts, strict=True))), np.concatenate(raws)
        length = rounded(joined.length)
        if length > joined.length:
            raw = np.concatenate([raw, np.zeros((length - len(raw), self.num_envs), np.float32)])
        after, outcome = self._programs.train(
            self._memory, self._arrays, self._root, joined.long(length), raw, np.int32(joined.length)
        )
        report, sound = jax.device_get(outcome)
        if not sound:
            raise NonFiniteError(
                f"update: training {self.method!r} gave {COMPUTED}; nothing was changed. Lower learner.learning_rate, "
                "or set learner.max_gradient_norm; discard() drops the transitions that wait."
            )
        self._arrays, self._updates = after, self._updates + 1
        self._waiting, self._count, self._asked = [], 0, None
        return {name: float(value) for name, value in report.items()}

    @one_at_a_time
    def discard(self) -> None:
        """Drop the transitions that wait for the next update."""
        self._waiting, self._count, self._asked = [], 0, None

    @one_at_a_time
    def calibrate(self, obs: Any) -> None:
        """Let the statistics of observations start with these, before the first bonus is paid.

        Of images it is measured once how the pixels of large ones are standardised, and the features that some methods
        predict; a second call changes nothing. Without this call the statistics start with what is seen until the first
        update, and the bonuses until then are paid for observations as they come.

        Large images in which nothing moves are refused: divided by a deviation of next to nothing, the first one that
        differs would be enormous. An update that has seen nothing else leaves pixels as they are, and the next one
        measures them.

        Args:
            obs: observations `[N, ...]` or `[T, N, ...]` of this or another number of environments, as of some random
                steps.
        """
        array = spaces.array_of("obs", obs)
        shape = self.observation_space.shape or ()
        lead = array.shape[: max(0, array.ndim - len(shape))]
        if array.shape[len(lead) :] != shape or not 1 <= len(lead) <= 2 or 0 in lead:
            raise UsageError(
                f"obs: shape {list(array.shape)}; expected [B{''.join(f', {n}' for n in shape)}], elements of "
                f"{self.observation_space}."
            )
        flat = array.reshape(-1, *shape)
        kept = self._observations.read("obs", flat, np.ones(len(flat), bool))
        length = rounded(len(kept))
        index, where = np.arange(length) % len(kept), np.arange(length) < len(kept)
        arrays = self._programs.calibrate(self._memory, self._arrays, kept[index], where)
        state = self._frame.whole(arrays, self._memory)
        if isinstance(state.obs_stats, Pixels) and not state.calibrated:
            raise UsageError(
                "obs: nothing moves in these images, so their pixels have no deviation to be standardised by; nothing "
                "was changed. Give some random steps, or leave calibrate() out: the first update() that has seen "
                "something move measures it."
            )
        self._arrays, self._asked = arrays, None

    @one_at_a_time
    def forget(self, which: Any = None) -> None:
        """Say that the episodes of these environments were broken off: by default those of all.

        What the episode's end would have cut from a memory is cut.

        Args:
            which: True for each environment that was reset; None is all.
        """
        mask = (
            np.ones(self.num_envs, bool)
            if which is None
            else spaces.flags("which", which, (self.num_envs,), "environment")
        )
        self._asked = None
        if self._frame.memories and mask.any():
            state = self._frame.whole(self._arrays, self._memory)
            self._memory, self._behind = jax.tree.leaves(cut(state.model, state.learner.memory, mask)), []

    @one_at_a_time
    def save(self, path: str | Path) -> None:
        """Write everything to one file: networks, optimiser, statistics, memories, waiting transitions. No pickle.

        It replaces a Bonus that was saved there before, and nothing else.
        """
        from . import bonus_file

        bonus_file.write(path_of(path), self)

    @one_at_a_time
    def restore(self, path: str | Path) -> None:
        """Put what `save` wrote into this Bonus, which must be of the same method, spaces and settings."""
        from . import bonus_file

        bonus_file.restore(path_of(path), self)

    @staticmethod
    def load(path: str | Path, *, method: str | type[AbstractCuriosity] | None = None) -> Bonus:
        """The Bonus that `save` wrote.

        Args:
            path: the file.
            method: for a method of your own, its class or `module:Class`: the file only names it, and no code is
                imported because a file says so.
        """
        from . import bonus_file

        return bonus_file.read(path_of(path), method)

    @one_at_a_time
    def waiting_steps(self, *, example: bool = False) -> dict[str, np.ndarray]:
        """The transitions that wait, by name, `[T, N, ...]`, and their raw bonus; as an `example`, one of zeros."""
        if example:
            shape = self.observation_space.shape or ()
            obs = np.zeros((1, self.num_envs, *shape), self.observation_space.dtype)
            no = np.zeros((1, self.num_envs), bool)
            kept = self._observations.read("obs", obs, no)
            action = np.zeros((1, self.num_envs, *(self.action_space.shape or ())), self.action_space.dtype)
            taken = self._actions.read("action", action, no)
            parts = [(Steps(kept, taken, kept, no, no, no), np.zeros((1, self.num_envs), np.float32))]
        else:
            parts = self._waiting
        if not parts:
            return {}
        steps = zip(*(steps for steps, _ in parts), strict=True)
        named = dict(zip(Steps._fields, map(np.concatenate, steps), strict=True))
        return {**named, "raw": np.concatenate([raw for _, raw in parts])}

    @one_at_a_time
    def put(self, state: BonusState, waiting: Mapping[str, np.ndarray]) -> None:
        """Take a state and transitions that wait, as `state` and `waiting_steps` give them."""
        steps = [(Steps(*(waiting[name] for name in Steps._fields)), waiting["raw"])] if waiting else []
        self._put(state, steps)
        self._drop_excess()

    def _put(self, value: BonusState, waiting: list[tuple[Steps, np.ndarray]]) -> None:
        """Take a state whole, with these transitions waiting, or refuse it and change nothing."""
        mine, theirs = (eqx.filter(x, eqx.is_array) for x in (self.state, value))
        same = jax.tree.structure(mine) == jax.tree.structure(theirs)
        if not same or any(
            (a.shape, a.dtype) != (b.shape, b.dtype)
            for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True)
        ):
            raise UsageError("state: not a state of a Bonus with this method, these spaces and settings.")
        arrays, memory = self._frame.apart(value)
        memory = jax.block_until_ready([jnp.array(array) for array in memory])
        updates, count = int(value.updates), sum(steps.length for steps, _ in waiting)
        self._arrays, self._memory, self._behind, self._updates = arrays, memory, [], updates
        self._waiting, self._count, self._asked = waiting, count, None

    def _refuse_memories(self, model: AbstractCuriosity) -> None:
        """Refuse memories that no machine holds, before they are made."""
        leaves = jax.tree.leaves(eqx.filter_eval_shape(model.memory))
        size = sum(math.prod(leaf.shape) for leaf in leaves if hasattr(leaf, "shape"))
        if size * self.num_envs > MOST_MEMORY:
            raise UsageError(
                f"method {self.method!r} would remember {size:,} numbers for each of {self.num_envs} environments: "
                "lower horizon, its capacity, or the number of environments."
            )

    def _example(self) -> Transition:
        """A transition of each environment, all zeros."""
        lead, spec = (1, self.num_envs), self.spec
        kind = jnp.float32 if isinstance(spec.action, Box) else jnp.int32
        obs, no = jnp.zeros((*lead, *spec.obs_shape)), jnp.zeros(lead, bool)
        return Transition(obs, jnp.zeros((*lead, *spec.action.shape), kind), obs, jnp.zeros(lead), no, no, no)

    def _read(
        self, obs: Any, action: Any, next_obs: Any, terminated: Any, truncated: Any, valid: Any
    ) -> tuple[Steps, tuple[int, ...]]:
        """The arguments, all checked before any is used, and their leading axes."""
        seen = spaces.steps_of("obs", obs, self.observation_space, self.num_envs)
        lead = seen.shape[: seen.ndim - len(self.observation_space.shape or ())]
        parts = {"next_obs": (next_obs, self.observation_space), "action": (action, self.action_space)}
        read = {name: spaces.steps_of(name, value, space, self.num_envs) for name, (value, space) in parts.items()}
        for name, array in read.items():
            if array.shape[: array.ndim - len(parts[name][1].shape or ())] != lead:
                raise UsageError(f"{name}: shape {list(array.shape)} does not fit obs of shape {list(seen.shape)}.")
        ends = [
            spaces.flags(name, value, lead) for name, value in (("terminated", terminated), ("truncated", truncated))
        ]
        there = self._there(valid, lead)
        steps = Steps(
            self._observations.read("obs", seen, there),
            self._actions.read("action", read["action"], there),
            self._observations.read("next_obs", read["next_obs"], there),
            ends[0],
            ends[1],
            there,
        )
        axes = (1,) * (2 - len(lead))
        # Copies: environments are free to write the next step into the same memory.
        return Steps(*(np.array(part).reshape(*axes, *part.shape) for part in steps)), lead

    def _there(self, valid: Any, lead: tuple[int, ...]) -> np.ndarray:
        """Which steps are steps: without a word all of them."""
        return np.ones(lead, bool) if valid is None else spaces.flags("valid", valid, lead)

    def _pay(self, steps: Steps, record: bool) -> tuple[list[jax.Array], np.ndarray, np.ndarray]:
        """Memories after the steps, the raw bonus and the paid one; nothing is changed."""
        length = rounded(steps.length)
        padded = steps.long(length)
        if length > steps.length:
            there = np.arange(length)[:, None] < steps.length
            padded = padded._replace(
                valid=padded.valid & there, terminated=padded.terminated & there, truncated=padded.truncated & there
            )
        given = (self._memory, self._arrays, self._root, padded)
        if record and length == 1 and self._behind:
            memory, rewards = self._programs.pay_step(self._behind.pop(), *given)
        else:
            memory, rewards = self._programs.pay(*given)
        raw, paid = np.asarray(rewards, np.float32)[:, : steps.length]
        if not (np.abs(raw) < LIMIT).all():
            raise NonFiniteError(
                f"reward: {self.method!r} gave {COMPUTED} (at {spaces.place(~(np.abs(raw) < LIMIT), 2)}); nothing was "
                "changed. Calibrate with typical observations, or lower learner.learning_rate."
            )
        return memory, raw, paid

    def _drop_excess(self, *, warn: bool = False) -> None:
        """Drop the oldest transitions beyond `waiting`, and say so once."""
        rows = -(-(self.seen - self.waiting) // self.num_envs)
        if rows <= 0:
            return
        left, count = list(self._waiting), self._count - rows
        while rows and left:
            first, raw = left[0]
            gone = min(rows, first.length)
            rows -= gone
            left[:1] = [(Steps(*(x[gone:] for x in first)), raw[gone:])] if gone < first.length else []
        self._waiting, self._count = left, count
        if warn and not self._dropped:
            self._dropped = True
            warnings.warn(
                f"more than waiting={self.waiting:,} transitions wait for update(): the oldest are dropped. Call "
                "update() more often, or make the Bonus with a larger waiting.",
                RuntimeWarning,
                stacklevel=4,
            )


def count(name: str, value: Any, *, least: int = 1, most: int = 2**31 - 1) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise UsageError(f"{name} = {value!r}: must be a whole number from {least} to {most}.")
    return int(value)


def path_of(value: Any) -> Path:
    """A file's path."""
    return as_path("path", value)


def learner_of(given: LearnerSettings | Mapping[str, Any] | None) -> LearnerSettings:
    """The settings of training, every one of them checked."""
    if given is None:
        return LearnerSettings()
    if not isinstance(given, LearnerSettings | Mapping):
        raise UsageError(f"learner = {given!r}: give curiax.LearnerSettings or a mapping of its fields.")
    values = asdict(given) if isinstance(given, LearnerSettings) else given
    settings = LearnerSettings(**checked(LearnerSettings, values, "learner"))
    if settings.replay:
        raise UsageError(
            "learner.replay: a Bonus trains on what waits for update() and keeps no earlier rollouts; set 0."
        )
    return settings
