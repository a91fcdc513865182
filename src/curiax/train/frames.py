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

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from threading import Lock
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import SimulatorError, UsageError
from .._frames import Pixels
from .._stats import Moments
from ..envs import AbstractEmulatorTask, EmulatorFleet
from ..envs._host import require_like
from .batch import HostReport
from .frame_programs import Columns, FramePrograms, padded
from .lane import AbstractLane, part_of
from .loop import Report, Setup, Stream, first_carries
from .random_play import moments_of, random_play

#: Groups of environments. More than two were slower: each step of a group costs the host as much as a larger one's.
GROUPS = 2
#: Devices that talk to each other must run their programs in the same order: whoever begins such a one holds this.
TURN = Lock()


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
        self.frames: Any = None

    def show(self, t: int) -> None:
        """The t-th observation: the newest frame, and which it is stacked with."""
        self.frame[...] = self.fleet.frame
        self.place(t)

    def place(self, t: int) -> None:
        """Name the frames of the t-th observation."""
        back = np.arange(self.stack - 1, -1, -1)
        self.rows[t] = np.where(back <= self.age[:, None], t + self.stack - 1 - back, -1)
        self._words[:2], self._words[2:] = (t, self.first), self.rows[t].reshape(-1)


class Games:
    """The scores and lengths of episodes, for the metrics."""

    def __init__(self, envs: int) -> None:
        #: The score of each environment's episode so far; the newest means of score and length; the best score of all.
        self.score, self.recent, self.best = np.zeros(envs), np.zeros(2), np.zeros(())
        self.count = np.zeros((), np.int64)
        self._ended: list[tuple[float, float]] = []

    def add(self, reward: np.ndarray, length: np.ndarray, ended: np.ndarray, rows: slice) -> None:
        """A step of some environments."""
        self.score[rows] += reward
        if ended.any():
            self._ended += zip(self.score[rows][ended].tolist(), length[ended].tolist(), strict=True)
            self.score[rows][ended] = 0.0

    def episode_metrics(self) -> dict[str, float]:
        """Means over the episodes that ended since the last call, or what it returned; best and number of all.

        NaN before the first end.
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


class FrameLane(AbstractLane):
    """One seed."""

    def __init__(
        self,
        setup: Setup,
        seeds: Sequence[int],
        line: Sequence[Any],
        processes: int = 1,
    ) -> None:
        task, loop = setup.task, setup.loop
        assert isinstance(task, AbstractEmulatorTask)
        if setup.agent.keeps_observations:
            raise UsageError(
                "the agent keeps observations beyond their rollout, and frames of emulators are kept no longer: use an "
                "agent without a replay (of a method's learner: set learner.replay to 0)."
            )
        if len(seeds) != 1:
            raise ValueError("a lane of emulators has one seed")
        super().__init__(setup, seeds, line)
        self.task, (side, _, stack) = task, task.spec.obs_shape
        sizes = [len(part) for part in np.array_split(np.arange(loop.envs), min(GROUPS, loop.envs))]
        self.groups = [Group(task, setup, sum(sizes[:k]), size, processes) for k, size in enumerate(sizes)]
        lead, entries = (loop.rollout, loop.envs), self.groups[0].fleet.record.shape[1]
        self.action, self.record = np.zeros(lead, np.int32), np.zeros((*lead, entries))
        self.terminated, self.truncated = np.zeros(lead, bool), np.zeros(lead, bool)
        self.first = np.zeros(lead, bool)
        self.last = np.zeros((*lead, side, side), np.uint8) if setup.agent.sees_successors else None
        self.next_rows = np.zeros((*lead, stack), np.int32)
        #: The step at which each environment's episode began.
        self.began, self.games = np.zeros(loop.envs, np.int64), Games(loop.envs)
        plain = Pixels(np.zeros(task.spec.obs_shape, np.float32), np.asarray(255.0, np.float32))
        self.pixels = jax.device_put(plain, self.placement)
        #: What acting needs of the agent, apart from what its gradient steps use up; and the agent's memories.
        self.actor: Any = None
        self.carry = first_carries(setup)
        self._pending: PendingUpdate | None = None
        alone = len(self.devices) == 1
        self._turn = nullcontext() if alone else TURN
        # GPUs run programs in the order in which they were begun; CPUs do not, so each must be over before the next.
        self._waits = not alone and self.devices[0].platform == "cpu"
        # JAX has the programs that one thread began run in turn: those of another need not wait for them.
        self._trainer = ThreadPoolExecutor(1) if alone and self.devices[0].platform == "cpu" else None

    @property
    def obs_stats(self) -> Moments:
        mean, deviation = self.pixels
        spread = jnp.broadcast_to(deviation**2, mean.shape)
        return jax.tree.map(lambda x: jnp.asarray(x)[None], Moments(mean, spread, jnp.asarray(1.0)))

    def close(self) -> None:
        if self._trainer is not None:
            self._trainer.shutdown()
        for group in self.groups:
            group.fleet.close()

    def compile(self) -> None:
        self.programs = FramePrograms(self.setup, self.static, self.devices)

    def iterate(self) -> Future[HostReport]:
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

    def _learn(self) -> Future[HostReport]:
        """The first half of learning from the rollout; the second half is left to be done beside the next one."""
        given = [group.frames for group in self.groups], self._columns(), self._began_with, self.pixels
        self.arrays, frames, self.actor, work, report = self._in_turn(self.programs.learn, self.arrays, *given)
        for group, kept in zip(self.groups, frames, strict=True):
            group.frames = kept
            group.place(0)
        self._pending = PendingUpdate(self.arrays.agent, work, report, self.games.episode_metrics())
        return self._pending.promise

    def _in_turn(self, program: Callable[..., Any], *given: Any) -> Any:
        """Begin a program in which devices talk to each other."""
        with self._turn:
            found = program(*given)
            return jax.block_until_ready(found) if self._waits else found

    def settle(self) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        try:
            if pending.beside is not None:
                pending.beside.result()
            self._train_all(pending)
            self.arrays = eqx.tree_at(lambda s: s.agent, self.arrays, pending.agent)
            worked = self.programs.finish(pending.agent, pending.worked, pending.count)
            checks = pending.report.checks + worked.checks
            report = jax.tree.map(lambda x: x[None], Report({**pending.report.metrics, **worked.metrics}, checks))
            found = HostReport.of(report)
            games = {f"game/{name}": np.full(1, value) for name, value in pending.games.items()}
            pending.promise.set_result(found._replace(metrics={**found.metrics, **games}))
        except BaseException as error:
            pending.promise.set_exception(error)
            raise

    def _train_step(self, pending: PendingUpdate) -> bool:
        """Begin one more gradient step; False if there was none left."""
        if pending.done == pending.count:
            return False
        given = pending.agent, pending.work, pending.done, pending.worked
        pending.agent, pending.worked = self._in_turn(self.programs.train_step, *given)
        pending.done += 1
        return True

    def _train_all(self, pending: PendingUpdate) -> None:
        """Begin all gradient steps that are left."""
        while self._train_step(pending):
            pass

    def _columns(self) -> Columns:
        """What was written down of this rollout: copies, as it may be computed with while the next one is written."""
        points, reward = (values.astype(np.float32) for values in self.groups[0].fleet.measure(self.record))
        rows = np.concatenate([group.rows for group in self.groups], axis=1)
        kept = (self.next_rows, self.action, reward, self.terminated, self.truncated, points, self.first, self.last)
        return Columns(rows, *(None if column is None else column.copy() for column in kept))

    def _begin(self) -> None:
        """Reset every environment for the first time."""
        root = self.train_state.root[0]
        seeds = np.asarray(jax.random.bits(jax.random.fold_in(root, Stream.FIRST_RESET), (self.setup.loop.envs,)))
        for group in self.groups:
            group.fleet.reset(seeds[group.slice])
            group.age[:] = 0
            group.show(0)
            group.frames = jax.device_put(jnp.zeros(group.shape, jnp.uint8), self.placement)

    def _collect(self) -> None:
        """Step every environment `loop.rollout` times with the current policy, the groups in turn."""
        noise, resets = self.programs.draw(self.arrays)
        if self.actor is None:
            self.actor = self.programs.actor(self.arrays)
        resets, horizon = np.asarray(resets), self.task.spec.horizon or np.inf
        self._began_with = self.carry
        carries = [jax.tree.map(lambda x, group=group: x[group.slice], self.carry) for group in self.groups]
        self.terminated[:], self.truncated[:] = False, False
        pending = self._pending
        if pending is not None and self._trainer is not None:
            pending.beside = self._trainer.submit(self._train_all, pending)
        for t in range(self.setup.loop.rollout):
            for k, group in enumerate(self.groups):
                if t:
                    self._wait(group, t - 1)
                at = (t, group.slice)
                self.first[at] = self.began[group.slice] == self.now + t
                carries[k], self.action[at] = self._acted(group, carries[k], self.first[at], noise)
                self.truncated[at] = self.now + t + 1 - self.began[group.slice] >= horizon
                group.fleet.begin_play(self.action[at], resets[at], self.truncated[at])
                if pending is not None and pending.beside is None and group.first == 0:
                    # Now both groups' emulators work, and nobody waits for the device.
                    self._train_step(pending)
        for group in self.groups:
            self._wait(group, self.setup.loop.rollout - 1)
            # The newest frames have not been acted on yet, and so are not on the device.
            group.frames = self.programs.put(group.frames, group.frame)
        self.carry = jax.tree.map(lambda *parts: jnp.concatenate(parts), *carries)
        self.now += self.setup.loop.rollout

    def _acted(self, group: Group, carry: Any, first: np.ndarray, noise: Array) -> tuple[Any, np.ndarray]:
        """A group's newest frames to the device, its memories and actions back."""
        given = group.packet, carry, first, noise, self.pixels
        group.frames, carry, action = self.programs.act(self.actor, group.frames, *given)
        return carry, np.asarray(action)

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
        frames, numbers = random_play(self.task, [group.fleet for group in self.groups], rng)
        mean, deviation = moments_of(frames, numbers)
        if self.setup.loop.normalise_obs:
            self.pixels = jax.device_put(Pixels(mean, deviation), self.placement)
        if self.setup.agent.calibrates(self.train_state.agent):
            agent = self.programs.calibrate(self.arrays.agent, frames, numbers, self.pixels)
            self.arrays = eqx.tree_at(lambda s: s.agent, self.arrays, agent)

    def _newest(self, group: Group) -> np.ndarray:
        """The frames that a rollout begins with."""
        side = (group.stack, *group.shape[1:])
        return np.zeros(side, np.uint8) if group.frames is None else np.asarray(group.frames[: group.stack])

    def state(self) -> dict[str, np.ndarray]:
        own = {
            "now": np.asarray(self.now),
            "began": self.began,
            "mean": np.asarray(self.pixels.mean),
            "deviation": np.asarray(self.pixels.deviation),
            "frames": np.concatenate([self._newest(group) for group in self.groups], axis=1),
            "age": np.concatenate([group.age for group in self.groups]),
            **{f"games/{name}": array for name, array in self.games.state().items()},
            **{f"carry/{k}": np.asarray(x) for k, x in enumerate(jax.tree.leaves(self.carry))},
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
        self.pixels = jax.device_put(Pixels(state["mean"], state["deviation"]), self.placement)
        for name, array in self.games.state().items():
            array[...] = state[f"games/{name}"]
        leaves, tree = jax.tree.flatten(self.carry)
        self.carry, self.actor = tree.unflatten(jnp.asarray(state[f"carry/{k}"]) for k in range(len(leaves))), None
        if self.now == 0:
            return
        for k, group in enumerate(self.groups):
            group.fleet.restore(part_of(state, f"fleet{k}/"))
            newest = state["frames"][:, group.slice]
            group.age[:], group.frame[...] = state["age"][group.slice], newest[-1]
            group.place(0)
            frames = jnp.zeros(group.shape, jnp.uint8).at[: group.stack].set(newest)
            group.frames = jax.device_put(frames, self.placement)


class PendingUpdate:
    """The gradient steps of one iteration, some of them still to be done; and what is promised when they are over."""

    def __init__(self, agent: Any, work: Any, report: Report, games: Mapping[str, float]) -> None:
        #: The agent's state: here until the work is done, as each gradient step uses up those before it.
        self.agent = agent
        self.work, self.report, self.games = work, report, games
        self.count = 0 if work is None else work.count
        #: How many are done, and sums of what they reported.
        self.done, self.worked = 0, None
        #: What another thread does of it.
        self.beside: Future[None] | None = None
        self.promise: Future[HostReport] = Future()
