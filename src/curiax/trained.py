"""Trained agents away from training: `curiax.load` reads a run or an export, acts in NumPy, and pays bonuses.

Acting imports neither JAX nor anything of Curiax's training; the bonus needs JAX, because a method is written in it.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ._errors import CuriaxError, OutputError, UsageError
from ._files import as_path, damaged, locked, make_folder, mark, marked, sync_folder, usable
from .experiments import exports
from .experiments.exports import (
    AGENTS,
    REMEDY,
    TENSORS,
    About,
    AgentSchema,
    BoxSchema,
    DiscreteSchema,
    NetworkSchema,
    VisionSchema,
)

if TYPE_CHECKING:
    from ._types import Spec

#: The file in an export's hidden folder that whoever writes it holds.
LOCK = "lock"
#: So many images are looked at together: their patches take several times their memory.
TOGETHER = 64


def load(path: str | Path, *, seed: int | None = None, trust: bool = False) -> Trained:
    """A trained agent of a run's folder or of an export, ready to act.

    Every file is checked before it is used: a flipped bit is found and named.

    Args:
        path: the folder.
        seed: which of its seeds; None is the first.
        trust: import a user's own method for `bonus` (and, for runs of Curiax before 0.4, their task for anything).
    """
    path = as_path("path", path)
    about, arrays = opened(path, trust)
    row = exports.chosen(about, None if seed is None else [whole(seed)])[0]
    mine = {name: array[row, ...] for name, array in arrays.items()}
    check_policy(path, about, mine)
    return Trained(about.seeds[row], path, trust, about, mine)


def export(path: str | Path, out: str | Path, *, seeds: Iterable[int] | None = None, trust: bool = False) -> Path:
    """Write a run's trained agents, or some of its seeds, into a folder of their own: two files that need no others.

    Args:
        path: the run's folder, or another export.
        out: a folder that is new or empty.
        seeds: which of its seeds; None is all.
        trust: import a user's own task, which only runs of Curiax before 0.4 need.
    """
    source, target = as_path("path", path), as_path("out", out)
    chosen = None
    if seeds is not None:
        if not isinstance(seeds, Iterable):
            raise UsageError(f"seeds = {seeds!r}: give a list of seeds.")
        chosen = [whole(seed) for seed in seeds]
        if not chosen or len(set(chosen)) != len(chosen):
            raise UsageError(f"seeds = {chosen}: name at least one seed, and each once.")
    about, arrays = opened(source, trust)
    rows = exports.chosen(about, chosen)
    body = about.model_dump(exclude={"tensors", "file"}) | {"seeds": [about.seeds[row] for row in rows]}
    try:
        if target.is_symlink() and not target.exists():
            raise OutputError(f"{target} is a link to nowhere: remove it, or choose another --out.")
        if target.is_dir() and any(target.iterdir()):
            raise OutputError(f"{target} is not empty: choose a new folder for --out, or empty it.")
        make_folder(target.parent)
        place = target.resolve()
        with staged_beside(place) as made:
            exports.write(made, body, {name: array[rows] for name, array in arrays.items()})
            sync_folder(made)
            os.rename(made, place)  # puts the whole folder there
        sync_folder(place.parent)
    except OSError as error:
        raise OutputError(f"cannot write to {target}: {error.strerror or error}. Choose another --out.") from None
    return target


@contextlib.contextmanager
def staged_beside(place: Path) -> Iterator[Path]:
    """An empty folder to be moved to a place, in a hidden one beside it; what a kill left of an earlier try goes."""
    from filelock import Timeout

    stage = place.with_name(f".{place.name}.curiax-export")
    try:
        with locked(stage / LOCK, 0):
            if not marked(stage) and {entry.name for entry in stage.iterdir()} != {LOCK}:
                raise OutputError(f"{stage} is in the way and not Curiax's: move it away, or choose another --out.")
            mark(stage)
            made = stage / "made"
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            try:
                yield made
            finally:
                shutil.rmtree(stage, ignore_errors=True)
    except Timeout:
        raise OutputError(f"another process is exporting to {place}: wait for it, or choose another --out.") from None


def opened(path: Path, trust: bool) -> tuple[About, dict[str, np.ndarray]]:
    """The description and the arrays of all seeds, of either format."""
    if not usable(path).is_dir():
        there = ", but a file" if path.exists() else ": it is not there"
        raise OutputError(f"{path} is not a folder of a run or an export{there}.")
    data, manifest = exports.described(path)
    if data["format"] == exports.FORMAT:
        about = exports.about_of(path, data)
        return about, exports.tensors_of(path, about, manifest)
    # Format 1 does not say what the spaces are: only the task knows, so everything is built anew.
    from .experiments import saved

    plan, learnt = saved.read(path, trust=trust)
    arrays = saved.tensors(saved.parts_of(learnt))
    listed = {
        name: {"shape": list(array.shape), "dtype": array.dtype.name, "blake2b": "0" * 32}
        for name, array in arrays.items()
    }
    body = saved.described(plan, learnt) | {"tensors": listed, "file": {"bytes": 1, "blake2b": "0" * 32}}
    return exports.about_of(path, body), arrays


def whole(seed: Any) -> int:
    """A seed that is a whole number."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise UsageError(f"seed = {seed!r}: must be a whole number.")
    return int(seed)


def check_policy(path: Path, about: About, arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse a policy whose layers do not fit each other and the spaces, or that holds NaN."""
    size = math.prod(about.spec.obs_shape)
    outputs = len(about.spec.action.low) if isinstance(about.spec.action, BoxSchema) else about.spec.action.n
    shapes: dict[str, tuple[int, ...]] = {
        f"obs_stats.{name}": tuple(about.spec.obs_shape) for name in ("mean", "var") if about.observations.normalised
    }
    if isinstance(about.policy, NetworkSchema | VisionSchema):
        if (about.policy.log_std is None) == isinstance(about.spec.action, BoxSchema):
            raise damaged(path / AGENTS, "its policy does not fit its actions", REMEDY)

        def count(layer: str, inputs: int) -> int:
            """The outputs of a layer that must have so many inputs."""
            weight = arrays.get(f"{layer}.weight")
            if weight is None or weight.ndim != 2:
                raise damaged(path / TENSORS, f"{layer}.weight is no matrix of each seed", REMEDY)
            shapes.update({f"{layer}.weight": (inputs, weight.shape[1]), f"{layer}.bias": (weight.shape[1],)})
            return weight.shape[1]

        if isinstance(about.policy, VisionSchema):
            if len(about.spec.obs_shape) != 3:
                raise damaged(path / AGENTS, "its policy is one of images, its observations are none", REMEDY)
            *sides, channels = about.spec.obs_shape
            for layer in about.policy.convolutions:
                if min(sides) < layer.side:
                    raise damaged(path / AGENTS, f"nothing is left of an image for {layer.layer}", REMEDY)
                channels = count(layer.layer, layer.side**2 * channels)
                sides = [(length - layer.side) // layer.stride + 1 for length in sides]
            size = count(about.policy.features, math.prod(sides) * channels)
        for layer in about.policy.layers:
            size = count(layer, size)
        if size != outputs:
            raise damaged(path / TENSORS, f"the policy has {size} outputs, its actions {outputs}", REMEDY)
        if about.policy.log_std is not None:
            shapes[about.policy.log_std] = (outputs,)
    for name, shape in shapes.items():
        array = arrays.get(name)
        if array is None or array.shape != shape or array.dtype != np.float32:
            raise damaged(path / TENSORS, f"{name} is not float32{list(shape)} for each seed", REMEDY)
        if not np.isfinite(array).all() or (name == "obs_stats.var" and (array < 0).any()):
            raise damaged(path / TENSORS, f"{name} holds NaN, infinity or a negative variance", REMEDY)


def clipped(box: BoxSchema, action: np.ndarray) -> np.ndarray:
    """What the task carries out of an action."""
    return np.clip(action, np.asarray(box.low, np.float32), np.asarray(box.high, np.float32))


@dataclass(frozen=True, repr=False)
class Trained:
    """One seed's policy and curiosity model, as training left them; `curiax.load` makes it.

    Observations are raw, as the task gives them; what training normalised is normalised inside.
    """

    seed: int
    _path: Path
    _trust: bool
    _about: About
    _arrays: Mapping[str, np.ndarray]

    def __repr__(self) -> str:
        return f"<{self.method} on {self.task}, seed {self.seed}>"

    @property
    def task(self) -> str:
        """Name of the task it was trained on."""
        return self._about.task

    @property
    def method(self) -> str:
        """Name of the curiosity method."""
        return self._about.method

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds in the same folder."""
        return tuple(self._about.seeds)

    @functools.cached_property
    def spec(self) -> Spec:
        """The spaces of observations and actions."""
        from ._types import Box, Discrete, Spec

        spec = self._about.spec
        space = spec.action
        action = Discrete(space.n) if isinstance(space, DiscreteSchema) else Box(tuple(space.low), tuple(space.high))
        low, high = (
            None if bound is None else tuple(fill if x is None else x for x in bound)
            for bound, fill in ((spec.obs_low, -math.inf), (spec.obs_high, math.inf))
        )
        return Spec(tuple(spec.obs_shape), action, spec.horizon, low, high, spec.fillers)

    def act(self, obs: Any, *, deterministic: bool = True, rng: np.random.Generator | int | None = None) -> np.ndarray:
        """The action for one observation, or one for each along a leading axis, as the task carries it out.

        Args:
            obs: raw observations `[...]` or `[B, ...]`.
            deterministic: the likeliest action; False draws one as in training. Uniform agents have no likeliest
                action and always draw.
            rng: what to draw from: a generator or a seed; None is a fresh one at each call.
        """
        if isinstance(self._about.policy, AgentSchema):
            raise UsageError(
                f"{self._path} was trained with the agent {self._about.experiment.agent!r}, whose policy only that "
                "class knows: `curiax.experiments.saved.read(path, trust=True)` gives its networks, for its own `act`."
            )
        batch, single = self._batch("obs", obs, tuple(self._about.spec.obs_shape), np.float32)
        draw = np.random.default_rng(rng)
        policy, action = self._about.policy, self._about.spec.action
        if isinstance(policy, NetworkSchema | VisionSchema):
            out = self._output(policy, batch)
            if isinstance(action, BoxSchema):
                if not deterministic:
                    std = np.exp(self._arrays[policy.log_std or ""])
                    out = out + std * draw.standard_normal(out.shape, np.float32)
                made = clipped(action, out)
            else:
                made = np.argmax(out if deterministic else out + draw.gumbel(size=out.shape), axis=-1).astype(np.int32)
        elif isinstance(action, BoxSchema):
            made = draw.uniform(action.low, action.high, (len(batch), len(action.low))).astype(np.float32)
        else:
            made = draw.integers(0, action.n, len(batch), np.int32)
        return made[0, ...] if single else made

    def bonus(self, obs: Any, action: Any, next_obs: Any) -> np.ndarray:
        """The raw bonus of one transition, or of each along a leading axis: what the trained model pays, unscaled.

        A method that remembers an episode (`ngu`, `ride`, `e3b`, `noveld`) takes the transitions of one call for the
        steps of one episode, in order, from its beginning. One that remembers longer (`re3`, `simhash`) begins each
        call with an empty memory: an export holds what was learnt, not what was remembered.
        """
        shape, space = tuple(self._about.spec.obs_shape), self._about.spec.action
        before, single = self._batch("obs", obs, shape, np.float32)
        after, _ = self._batch("next_obs", next_obs, shape, np.float32)
        if isinstance(space, BoxSchema):
            taken, _ = self._batch("action", action, (len(space.low),), np.float32)
            if self._about.bonus.action == "executed":
                taken = clipped(space, taken)
        else:
            taken, _ = self._batch("action", action, (), np.int32)
            if ((taken < 0) | (taken >= space.n)).any():
                raise UsageError(f"action: must be whole numbers from 0 to {space.n - 1}.")
        if not len(before) == len(after) == len(taken):
            raise UsageError(
                f"bonus: {len(before)} observations, {len(taken)} actions and {len(after)} next observations; "
                "give as many of each."
            )
        paid = self._pay(before, taken, after)
        return paid[0, ...] if single else paid

    def _batch(self, what: str, given: Any, shape: tuple[int, ...], kind: type[np.generic]) -> tuple[np.ndarray, bool]:
        """Input as an array with a leading axis, and whether it had none."""
        try:
            array = np.asarray(given)
            fits = np.can_cast(array.dtype, np.int64 if kind is np.int32 else np.float64, "same_kind")
        except (TypeError, ValueError) as error:
            raise UsageError(f"{what}: not an array of numbers ({error}).") from None
        if not fits or array.dtype == object:
            raise UsageError(f"{what}: {array.dtype} are not the numbers of {self.task!r}.")
        if array.shape != shape and array.shape[1:] != shape:
            lead = ", ".join(["B", *map(str, shape)])
            raise UsageError(f"{what}: shape {array.shape}; {self.task!r} has {shape}, or [{lead}] for many.")
        if kind is not np.float32 or array.dtype != np.uint8:  # bytes stay so: a quarter of the memory
            array = array.astype(kind)
        if array.dtype != np.uint8 and not np.isfinite(array).all():
            raise UsageError(f"{what}: holds NaN or infinity.")
        single = array.shape == shape
        return (array[None] if single else array), single

    def _seen(self, obs: np.ndarray) -> np.ndarray:
        """Raw observations as training saw them."""
        seen, obs = self._about.observations, obs.astype(np.float32, copy=False)
        if not seen.normalised:
            return obs
        mean, var = self._arrays["obs_stats.mean"], self._arrays["obs_stats.var"]
        with np.errstate(over="ignore"):  # an infinite quotient is clipped, too
            standard = (obs - mean) / np.sqrt(var + np.float32(seen.epsilon))
        return np.clip(standard, -np.float32(seen.clip), np.float32(seen.clip))

    def _output(self, policy: NetworkSchema | VisionSchema, obs: np.ndarray) -> np.ndarray:
        """Means or logits of raw observations."""
        if isinstance(policy, NetworkSchema):
            flat = self._seen(obs).reshape(len(obs), math.prod(obs.shape[1:]))
            return self._chain(policy.layers, flat, np.tanh)
        parts = [obs[k : k + TOGETHER] for k in range(0, len(obs), TOGETHER)] or [obs]
        features = np.concatenate([self._features(policy, self._seen(part)) for part in parts])
        return self._chain(policy.layers, features, lambda x: np.maximum(x, np.float32(0)))

    def _features(self, policy: VisionSchema, x: np.ndarray) -> np.ndarray:
        """What convolutions and a linear layer make of images `[B, height, width, channels]`."""
        for layer in policy.convolutions:
            squares = np.lib.stride_tricks.sliding_window_view(x, (layer.side, layer.side), axis=(1, 2))
            squares = squares[:, :: layer.stride, :: layer.stride].transpose(0, 1, 2, 5, 4, 3)
            x = self._linear(layer.layer, squares.reshape(*squares.shape[:3], math.prod(squares.shape[3:])))
            x = np.where(x < 0, np.float32(policy.slope) * x, x)
        return self._linear(policy.features, x.reshape(len(x), math.prod(x.shape[1:])))

    def _chain(
        self, layers: Sequence[str], x: np.ndarray, activation: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        for layer in layers[:-1]:
            x = activation(self._linear(layer, x))
        return self._linear(layers[-1], x)

    def _linear(self, layer: str, x: np.ndarray) -> np.ndarray:
        return x @ self._arrays[f"{layer}.weight"] + self._arrays[f"{layer}.bias"]

    @functools.cached_property
    def _pay(self) -> Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
        from .experiments.scoring import make_scorer

        mine = {name: array for name, array in self._arrays.items() if name.startswith("curiosity.")}
        try:
            return make_scorer(
                self._about, self.spec, self.seed, mine, self._path / TENSORS, self._seen, trust=self._trust
            )
        except CuriaxError:
            raise
        except (TypeError, ValueError) as error:
            raise damaged(self._path / AGENTS, f"method {self.method!r} cannot be set up: {error}", REMEDY) from None
