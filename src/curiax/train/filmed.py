"""Training on emulators: a lane of one seed whose frames are kept once, on the device.

The environments are in two groups that take turns: while one group's frames are on the device and its actions are
computed, the other's emulators work. The model's training needs nothing of the emulators and nobody acts by it, so
its gradient steps are slipped in, one at each time step of the next rollout; on a CPU, where several programs can run
at once, another thread begins them. Nothing of this changes what is computed: each program sees what it would have seen
had everything been done in turn.

    collect   T times for each group: newest frame → device → actions → emulators     a gradient step of the model
    learn     bonus → reward → policy → cells                                         now and then, as long as
              minibatches of the model's training are laid out                        there are any
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt8

from .._errors import SimulatorError, UsageError
from .._stats import Moments
from .._types import Film, Pixels, PRNGKey, Rollout, Transition
from ..curiosity import AbstractCuriosity
from ..envs import AbstractEmulatorTask, EmulatorFleet
from ..envs._host import require_like
from . import devices
from .lane import AbstractLane, HostMetrics, part_of
from .loop import Metrics, Setup, Stream, TrainState, learn_policy, model_metrics, stream_keys

#: Groups of environments. More than two were slower: each step of a group costs the host as much as a larger one's.
GROUPS = 2
#: So many environments play at random before training: a few that see whole games rather than many beginnings.
PLAYERS = 16


class Columns(NamedTuple):
    """What the host has written down of a rollout, beside the frames: `rows` and `next_rows` say which those are."""

    rows: Any
    next_rows: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    points: Any
    #: The last frames of episodes `[T, N, side, side]`; None where nobody looks at them.
    last: Any


class Group:
    """Some of the environments: their emulators, and their frames on the device.

    Row t + stack − 1 of the frames is the newest of the t-th observation. `rows[t]` names the frames of that
    observation, the newest last, −1 for black ones before an episode's first. What an action is computed from goes to
    the device in one packet, as every transfer has its price: the newest frames, then (t, first, rows[t]) as words.
    """

    def __init__(self, task: AbstractEmulatorTask, setup: Setup, first: int, count: int, processes: int) -> None:
        steps, (side, _, stack) = setup.loop.rollout, task.spec.obs_shape
        self.first, self.count, self.slice = first, count, slice(first, first + count)
        self.fleet: EmulatorFleet = task.open(count, processes, stacked=False)
        self.fleet.first = first
        self.shape, self.stack = (steps + stack, count, side, side), stack
        self.rows = np.zeros((steps + 1, count, stack), np.int32)
        #: Frames since an episode's first, so far as they matter.
        self.age = np.zeros(count, np.int32)
        pixels = padded(count * side * side)
        self.packet = np.zeros(pixels + 4 * (2 + count * stack), np.uint8)
        self.frame = self.packet[: count * side * side].reshape(count, side, side)
        self._words = self.packet[pixels:].view(np.int32)
        #: The frames on the device; made where a rollout begins.
        self.film: Any = None

    def show(self, t: int) -> None:
        """The t-th observation: the newest frame, and which it is stacked with."""
        self.frame[...] = self.fleet.frame
        self.place(t)

    def place(self, t: int) -> None:
        """Name the frames of the t-th observation."""
        back = np.arange(self.stack - 1, -1, -1)
        self.rows[t] = np.where(back <= self.age[:, None], t + self.stack - 1 - back, -1)
        self._words[:2], self._words[2:] = (t, self.first), self.rows[t].reshape(-1)


def padded(count: int) -> int:
    """A number of bytes up to the next whole word."""
    return -(-count // 4) * 4


def unpacked(
    packet: UInt8[Array, " bytes"], count: int, side: int, stack: int
) -> tuple[UInt8[Array, "N side side"], Int[Array, ""], Int[Array, ""], Int[Array, "N stack"]]:
    """A group's newest frames, the time, the number of its first environment, and the rows of its observations."""
    pixels = count * side * side
    words = jax.lax.bitcast_convert_type(packet[padded(pixels) :].reshape(-1, 4), jnp.int32)
    return packet[:pixels].reshape(count, side, side), words[0], words[1], words[2:].reshape(count, stack)


class Games:
    """The scores and lengths of episodes, for the metrics."""

    def __init__(self, envs: int) -> None:
        #: The score of each environment's episode so far; score and length last told; the best score of all.
        self.score, self.recent, self.best = np.zeros(envs), np.zeros(2), np.zeros(())
        self.count = np.zeros((), np.int64)
        self._ended: list[tuple[float, float]] = []

    def add(self, reward: np.ndarray, length: np.ndarray, ended: np.ndarray, rows: slice) -> None:
        """A step of some environments."""
        self.score[rows] += reward
        if ended.any():
            self._ended += zip(self.score[rows][ended].tolist(), length[ended].tolist(), strict=True)
            self.score[rows][ended] = 0.0

    def told(self) -> dict[str, float]:
        """Means over the episodes that ended since the last time, or what was told then; best and number of all.

        Before the first end there is nothing to tell: NaN.
        """
        if self._ended:
            self.recent[:] = np.mean(self._ended, axis=0)
            best = max(score for score, _ in self._ended)
            self.best[...] = np.maximum(self.best, best) if self.count else best
            self.count += len(self._ended)
            self._ended.clear()
        score, length, best = (*self.recent, float(self.best)) if self.count else [np.nan] * 3
        return {"score": score, "length": length, "best": best, "episodes": float(self.count)}

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as plain arrays; asked for between rollouts."""
        return {"score": self.score, "recent": self.recent, "best": self.best, "count": self.count}


class FilmLane(AbstractLane):
    """One seed on one device."""

    def __init__(
        self,
        setup: Setup,
        build_model: Callable[[PRNGKey], AbstractCuriosity],
        seeds: Sequence[int],
        device: Any,
        processes: int = 1,
    ) -> None:
        task, loop = setup.task, setup.loop
        assert isinstance(task, AbstractEmulatorTask)
        if setup.learner.settings.replay:
            raise UsageError(
                "learner.replay keeps observations, and frames are kept for one rollout only: set it to 0."
            )
        if len(seeds) != 1:
            raise ValueError("a lane of emulators has one seed")
        super().__init__(setup, build_model, seeds, device)
        self.task, (side, _, stack) = task, task.spec.obs_shape
        sizes = [len(part) for part in np.array_split(np.arange(loop.envs), min(GROUPS, loop.envs))]
        self.groups = [Group(task, setup, sum(sizes[:k]), size, processes) for k, size in enumerate(sizes)]
        lead, entries = (loop.rollout, loop.envs), self.groups[0].fleet.record.shape[1]
        self.action, self.record = np.zeros(lead, np.int32), np.zeros((*lead, entries))
        self.terminated, self.truncated = np.zeros(lead, bool), np.zeros(lead, bool)
        keeps_last = loop.successor == "true" or setup.agent.sees_successors
        self.last = np.zeros((*lead, side, side), np.uint8) if keeps_last else None
        self.next_rows = np.zeros((*lead, stack), np.int32)
        #: The step at which each environment's episode began.
        self.began, self.games = np.zeros(loop.envs, np.int64), Games(loop.envs)
        plain = Pixels(np.zeros(task.spec.obs_shape, np.float32), np.asarray(255.0, np.float32))
        self.pixels = jax.device_put(plain, device)
        self._training: Training | None = None
        # JAX has the programs that one thread began run in turn: those of another need not wait for them.
        self._teacher = ThreadPoolExecutor(1) if device.platform == "cpu" else None

    @property
    def obs_stats(self) -> Moments:
        mean, deviation = self.pixels
        spread = jnp.broadcast_to(deviation**2, mean.shape)
        return jax.tree.map(lambda x: jnp.asarray(x)[None], Moments(mean, spread, jnp.asarray(1.0)))

    def close(self) -> None:
        if self._teacher is not None:
            self._teacher.shutdown()
        for group in self.groups:
            group.fleet.close()

    def compile(self) -> None:
        setup, static, (side, _, stack) = self.setup, self.static, self.task.spec.obs_shape
        loop, spec, learner = setup.loop, setup.task.spec, setup.learner
        kind = jnp.bfloat16 if loop.mixed_precision else jnp.float32

        def whole(arrays: Any) -> TrainState:
            return eqx.combine(jax.tree.map(lambda x: x[0], arrays), static)

        def parts(state: Any) -> Any:
            return jax.tree.map(lambda x: x[None], eqx.filter(state, eqx.is_array))

        def draw(arrays: Any) -> tuple[Any, Any]:
            state = whole(arrays)
            keys = stream_keys(state.root, state.iteration)
            noise = setup.agent.noise(spec, (loop.rollout, loop.envs), key=keys[Stream.ACTIONS])
            return noise, jax.random.bits(keys[Stream.RESETS], (loop.rollout, loop.envs))

        def act(agent: Any, film: Array, packet: Array, noise: Array, pixels: Any) -> tuple[Array, Array]:
            frame, t, first, rows = unpacked(packet, film.shape[1], side, stack)
            film = jax.lax.dynamic_update_index_in_dim(film, frame, t + stack - 1, 0)
            seen = Film(film.reshape(-1, side, side), *pixels, kind=kind)
            state = eqx.combine(jax.tree.map(lambda x: x[0], agent), static.agent)
            mine = jax.lax.dynamic_slice_in_dim(noise[t], first, len(frame))
            each = jax.vmap(lambda numbers, n: setup.agent.act(spec, state, seen(numbers), n))
            return film, each(numbered(rows), mine)

        def study(arrays: Any, films: Sequence[Array], columns: Columns, pixels: Any):
            """The first half of learning; what the second half needs; the films as the next rollout begins."""
            state, frames = whole(arrays), jnp.concatenate(films, axis=1)
            if columns.last is not None:
                frames = jnp.concatenate([frames, columns.last])
            film = Film(frames.reshape(-1, side, side), *pixels, kind=kind)
            obs, next_obs, nothing = numbered(columns.rows), numbered(columns.next_rows), columns.terminated
            step = Transition(
                obs[:-1],
                columns.action,
                next_obs,
                columns.reward,
                columns.terminated,
                columns.truncated,
                jnp.ones_like(nothing),
            )
            state, seen, metrics = learn_policy(setup, state, Rollout(step, obs[1:], columns.points, film))
            lessons = None
            if learner.trains(state.curiosity):
                after, lessons = learner.lessons(state.curiosity, state.learner, seen, key=state.keys()[Stream.MODEL])
                state = replace(state, learner=after)
            # The next rollout is drawn by the next iteration's keys while the model is still trained on this one.
            state = replace(state, iteration=state.iteration + 1)
            begun = [jnp.concatenate([film[-stack:], film[stack:]]) for film in films]
            return parts(state), begun, (lessons, film.frames), metrics

        def lesson(model: Any, learnt: Any, lessons: Any, frames: Array, k: Array, report: Any, pixels: Any):
            """One gradient step of the model."""
            one = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, k, 1), lessons)
            whole = eqx.combine(jax.tree.map(lambda x: x[0], (model, learnt)), (static.curiosity, static.learner))
            model, learnt, told = learner.train(
                whole[0], whole[1], one, mask=setup.mask, film=Film(frames, *pixels, kind=kind)
            )
            return parts(model), parts(learnt), added(report, told, k)

        def finish(arrays: Any, report: Any, count: int) -> Metrics:
            return model_metrics(setup, whole(arrays), averaged(report, count))

        def calibrate(model: Any, frames: Array, numbers: Array, pixels: Any) -> Any:
            whole = eqx.combine(jax.tree.map(lambda x: x[0], model), static.curiosity)
            return parts(whole.calibrated(jax.vmap(Film(frames, *pixels, kind=kind))(numbers)))

        options: Any = devices.compiler_options(self.device)

        def jitted(call: Any, *given: int, fixed: Sequence[int] = ()) -> Any:
            return jax.jit(call, donate_argnums=given, static_argnums=fixed, compiler_options=options)

        self._draw, self._act, self._study = jitted(draw), jitted(act, 1), jitted(study, 0, 1)
        self._lesson, self._finish = jitted(lesson, 0, 1, 5), jitted(finish, fixed=(2,))
        self._calibrate = jitted(calibrate)
        self._put = jitted(lambda film, frame: film.at[-1].set(frame), 0)

    def iterate(self) -> Future[HostMetrics]:
        try:
            # Emulators fail with errors of their own; whatever else is raised in here comes from the programs.
            with self.blaming_environments(SimulatorError):
                if self.now == 0:
                    self._play_at_random()
                    self._begin()
                self._collect()
        finally:
            # Whatever happened, what was promised is kept.
            self.settle()
        return self._learn()

    def _learn(self) -> Future[HostMetrics]:
        """The first half of learning from the rollout; the second half is left to be done beside the next one."""
        films = [group.film for group in self.groups]
        self.arrays, films, (lessons, frames), metrics = self._study(self.arrays, films, self._columns(), self.pixels)
        for group, film in zip(self.groups, films, strict=True):
            group.film = film
            group.place(0)
        taught = (self.arrays.curiosity, self.arrays.learner)
        self._training = Training(taught, lessons, frames, metrics, self.games.told())
        return self._training.promise

    def settle(self) -> None:
        training, self._training = self._training, None
        if training is None:
            return
        try:
            if training.beside is not None:
                training.beside.result()
            self._teach_all(training)
            self.arrays = eqx.tree_at(lambda s: (s.curiosity, s.learner), self.arrays, training.taught)
            told = self._finish(self.arrays, training.report, training.count)
            metrics = {name: np.asarray(value)[None] for name, value in {**training.metrics, **told}.items()}
            if self.setup.mask:
                metrics["masked/updates"] += np.asarray(training.metrics["masked/updates"])
            games = {f"game/{name}": np.full(1, value) for name, value in training.games.items()}
            training.promise.set_result({**metrics, **games})
        except BaseException as error:
            training.promise.set_exception(error)
            raise

    def _teach(self, training: Training) -> bool:
        """Begin one more gradient step of the model; False if there was none left."""
        if training.done == training.count:
            return False
        model, learnt, training.report = self._lesson(
            *training.taught, training.lessons, training.frames, training.done, training.report, self.pixels
        )
        training.taught = (model, learnt)
        training.done += 1
        return True

    def _teach_all(self, training: Training) -> None:
        """Begin all gradient steps that are left."""
        while self._teach(training):
            pass

    def _columns(self) -> Columns:
        """What was written down of this rollout: copies, as it may be computed with while the next one is written."""
        points, reward = (values.astype(np.float32) for values in self.groups[0].fleet.measure(self.record))
        rows = np.concatenate([group.rows for group in self.groups], axis=1)
        kept = (self.next_rows, self.action, reward, self.terminated, self.truncated, points, self.last)
        return Columns(rows, *(None if column is None else column.copy() for column in kept))

    def _begin(self) -> None:
        """Reset every environment for the first time."""
        root = self.train_state.root[0]
        seeds = np.asarray(jax.random.bits(jax.random.fold_in(root, Stream.FIRST_RESET), (self.setup.loop.envs,)))
        for group in self.groups:
            group.fleet.reset(seeds[group.slice])
            group.age[:] = 0
            group.show(0)
            group.film = jax.device_put(jnp.zeros(group.shape, jnp.uint8), self.device)

    def _collect(self) -> None:
        """Step every environment `loop.rollout` times with the current policy, the groups in turn."""
        noise, resets = self._draw(self.arrays)
        resets, agent, horizon = np.asarray(resets), self.arrays.agent, self.task.spec.horizon or np.inf
        self.terminated[:], self.truncated[:] = False, False
        training = self._training
        if training is not None and self._teacher is not None:
            training.beside = self._teacher.submit(self._teach_all, training)
        for t in range(self.setup.loop.rollout):
            for group in self.groups:
                if t:
                    self._wait(group, t - 1)
                at = (t, group.slice)
                self.action[at] = self._acted(group, agent, noise)
                self.truncated[at] = self.now + t + 1 - self.began[group.slice] >= horizon
                group.fleet.begin_play(self.action[at], resets[at], self.truncated[at])
                if training is not None and training.beside is None and group.first == 0:
                    # Now both groups' emulators work, and nobody waits for the device.
                    self._teach(training)
        for group in self.groups:
            self._wait(group, self.setup.loop.rollout - 1)
            # The newest frames have not been acted on yet, and so are not on the device.
            group.film = self._put(group.film, group.frame)
        self.now += self.setup.loop.rollout

    def _acted(self, group: Group, agent: Any, noise: Array) -> np.ndarray:
        """A group's newest frames to the device, its actions back."""
        group.film, action = self._act(agent, group.film, group.packet, noise, self.pixels)
        return np.asarray(action)

    def _wait(self, group: Group, t: int) -> None:
        """What a group's t-th step led to."""
        fleet, at = group.fleet, (t, group.slice)
        fleet.end_step()
        self.record[at], self.terminated[at] = fleet.record, fleet.terminated
        self.truncated[at] &= ~fleet.terminated
        ended = self.terminated[at] | self.truncated[at]
        began = self.began[group.slice]
        self.games.add(fleet.reward, self.now + t + 1 - began, ended, group.slice)
        group.age += 1
        group.age[ended], began[ended] = 0, self.now + t + 1
        group.show(t + 1)
        self.next_rows[at] = group.rows[t + 1]
        if self.last is not None and ended.any():
            self.last[at][ended] = fleet.last[ended]
            newest = np.full((ended.sum(), 1), group.shape[0] + t)
            self.next_rows[at][ended] = np.concatenate([group.rows[t, ended, 1:], newest], axis=1)

    def _play_at_random(self) -> None:
        """Measure pixels, and what the model measures once, on steps of random play."""
        key = jax.random.fold_in(self.train_state.root[0], Stream.BEFORE)
        rng = np.random.default_rng(np.asarray(jax.random.bits(key, (4,))))
        frames, numbers = random_play(self.task, self.groups, rng)
        mean, deviation = moments_of(frames, numbers)
        if self.setup.loop.normalise_obs:
            self.pixels = jax.device_put(Pixels(mean, deviation), self.device)
        if self.train_state.curiosity.calibrates:
            model = self._calibrate(self.arrays.curiosity, frames, numbers, self.pixels)
            self.arrays = eqx.tree_at(lambda s: s.curiosity, self.arrays, model)

    def _newest(self, group: Group) -> np.ndarray:
        """The frames that a rollout begins with."""
        side = (group.stack, *group.shape[1:])
        return np.zeros(side, np.uint8) if group.film is None else np.asarray(group.film[: group.stack])

    def state(self) -> dict[str, np.ndarray]:
        own = {
            "now": np.asarray(self.now),
            "began": self.began,
            "mean": np.asarray(self.pixels.mean),
            "deviation": np.asarray(self.pixels.deviation),
            "frames": np.concatenate([self._newest(group) for group in self.groups], axis=1),
            "age": np.concatenate([group.age for group in self.groups]),
            **{f"games/{name}": array for name, array in self.games.state().items()},
        }
        fleets = {
            f"fleet{k}/{name}": array
            for k, group in enumerate(self.groups)
            for name, array in group.fleet.state().items()
        }
        return {**own, **fleets}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        like = {name: array for name, array in self.state().items() if not name.startswith("fleet")}
        require_like(state, like)
        self.now, self.began[:] = int(state["now"]), state["began"]
        self.pixels = jax.device_put(Pixels(state["mean"], state["deviation"]), self.device)
        for name, array in self.games.state().items():
            array[...] = state[f"games/{name}"]
        if self.now == 0:
            return
        for k, group in enumerate(self.groups):
            group.fleet.restore(part_of(state, f"fleet{k}/"))
            newest = state["frames"][:, group.slice]
            group.age[:], group.frame[...] = state["age"][group.slice], newest[-1]
            group.place(0)
            film = jnp.zeros(group.shape, jnp.uint8).at[: group.stack].set(newest)
            group.film = jax.device_put(film, self.device)


class Training:
    """The model's training of one iteration, some of it still to be done; and what is promised when it is over."""

    def __init__(self, taught: Any, lessons: Any, frames: Array, metrics: Metrics, games: Mapping[str, float]) -> None:
        #: Model and learner's state: here until the training is over, as each gradient step uses up those before it.
        self.taught = taught
        self.lessons, self.frames, self.metrics, self.games = lessons, frames, metrics, games
        self.count = 0 if lessons is None else lessons.batches.reward.shape[0]
        self.done, self.report = 0, {}
        #: What another thread does of it.
        self.beside: Future[None] | None = None
        self.promise: Future[HostMetrics] = Future()


def numbered(rows: Int[Array, "*T N stack"]) -> Int[Array, "*T N stack"]:
    """Rows of frames, one for each environment, as numbers of single frames; −1 stays."""
    count = rows.shape[-2]
    return jnp.where(rows < 0, -1, rows * count + jnp.arange(count)[:, None])


def added(report: Metrics, told: Metrics, k: Array) -> Metrics:
    """Sums of what gradient steps tell; of what was unsound, the first step."""

    def one(name: str, new: Array) -> Array:
        if name.startswith("unsound/"):
            found = jnp.where(new >= 0, k, -1)
            return jnp.where(report[name] >= 0, report[name], found) if name in report else found
        return report[name] + new if name in report else new

    return {name: one(name, value) for name, value in told.items()}


def averaged(report: Metrics, count: int) -> Metrics:
    """Means of what the gradient steps told, of those that were taken."""
    taken = jnp.maximum(count - report.get("masked/updates", 0), 1)
    whole = ("unsound/", "masked/")
    return {name: value if name.startswith(whole) else value / taken for name, value in report.items()}


def random_play(
    task: AbstractEmulatorTask, groups: Sequence[Group], rng: np.random.Generator
) -> tuple[UInt8[np.ndarray, "count side side"], Int[np.ndarray, "steps stack"]]:
    """Frames of random play, and which of them each step's observation is made of."""
    side, _, stack = task.spec.obs_shape
    each = [min(group.count, math.ceil(PLAYERS / len(groups))) for group in groups]
    steps = math.ceil(task.random_steps / sum(each))
    all_frames, all_numbers, before = [], [], 0
    for group, players in zip(groups, each, strict=True):
        # Those of as many processes as possible.
        who = np.unique(np.linspace(0, group.count - 1, players).round().astype(int))
        still = np.ones(group.count, bool)
        still[who] = False
        frames, rows = (
            np.zeros((steps + 1, len(who), side, side), np.uint8),
            np.zeros((steps + 1, len(who), stack), int),
        )
        age, length, back = np.zeros(len(who), int), np.zeros(len(who), int), np.arange(stack - 1, -1, -1)
        fleet, horizon = group.fleet, task.spec.horizon or np.inf
        fleet.reset(rng.integers(2**32, size=group.count, dtype=np.uint32))
        frames[0] = fleet.frame[who]
        for t in range(1, steps + 1):
            fleet.step(rng.integers(task.spec.action.size, size=group.count), np.zeros(group.count, np.uint32), still)
            age, length = age + 1, length + 1
            ended = fleet.terminated[who] | (length >= horizon)
            if ended.any():
                chosen = np.zeros(group.count, bool)
                chosen[who[ended]] = True
                fleet.reset(rng.integers(2**32, size=group.count, dtype=np.uint32), chosen)
                age[ended], length[ended] = 0, 0
            frames[t] = fleet.frame[who]
            rows[t] = np.where(back <= age[:, None], t - back, -1)
        numbers = np.where(rows < 0, -1, before + rows * len(who) + np.arange(len(who))[:, None])
        all_frames.append(frames.reshape(-1, side, side))
        all_numbers.append(numbers[1:].reshape(-1, stack))
        before += len(all_frames[-1])
    return np.concatenate(all_frames), np.concatenate(all_numbers).astype(np.int32)


def moments_of(
    frames: UInt8[np.ndarray, "count side side"], numbers: Int[np.ndarray, "steps stack"]
) -> tuple[np.ndarray, np.ndarray]:
    """The mean of each pixel of stacked frames, and the mean over pixels of their deviations."""
    places = [numbers[:, k] for k in range(numbers.shape[1])]
    sums, squares = np.zeros((2, *frames.shape[1:], len(places)))
    for k, place in enumerate(places):
        for part in np.array_split(place[place >= 0], 64):
            pixels = frames[part].astype(np.float64)
            sums[..., k] += pixels.sum(0)
            squares[..., k] += np.square(pixels).sum(0)
    mean = sums / len(numbers)
    deviation = np.sqrt(np.maximum(squares / len(numbers) - mean**2, 0.0)).mean()
    return mean.astype(np.float32), np.asarray(deviation, np.float32)
