"""Training on host tasks: lanes of seeds, each with environments, statistics and programs of its own.

A lane is a thread that owns some seeds, one JAX device and one fleet. It collects a rollout (the actor in NumPy,
because one dispatch of a jitted program costs more than the whole small network; physics in C without the
interpreter's lock), then learns from it with the same jitted `learn` as the pure-JAX family.
Lanes never wait for each other, so that one's physics overlaps with another's learning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped, UInt32

from .._errors import NonFiniteError
from .._sound import ADVICE, FROM_OUTSIDE, GO_ON, HUGE, spot
from .._stats import Moments
from .._types import PRNGKey, Rollout, Transition
from ..agents import HostActor
from ..envs import AbstractFleet, AbstractHostTask
from ..envs._host import require_like
from . import devices
from .batch import HostReport
from .lane import AbstractLane, part_of
from .loop import Report, Setup, Stream, TrainState, calibrated, finish, first_carries, learn
from .moments import HostMoments


class Draws(NamedTuple):
    """The randomness of one rollout `[T, S, N]`, drawn in bulk: of actions, of the dynamics, of new episodes."""

    noise: Any
    steps: Any
    resets: Any


class Tape:
    """The buffers of one rollout `[T, S, N, ...]`, and a view of each for every step, made once."""

    def __init__(self, setup: Setup, seeds: int, entries: int) -> None:
        spec, loop = setup.task.spec, setup.loop
        steps, lead = loop.rollout, (loop.rollout, seeds, loop.envs)
        kind = np.int32 if spec.action.shape == () else np.float32
        self.obs = np.zeros((steps + 1, *lead[1:], *spec.obs_shape), np.float32)
        self.next_obs = np.zeros((*lead, *spec.obs_shape), np.float32)
        self.action = np.zeros((*lead, *spec.action.shape), kind)
        self.record = np.zeros((*lead, entries))
        self.terminated, self.truncated, self.valid, self.first = (np.zeros(lead, bool) for _ in range(4))
        rows = seeds * loop.envs
        # What a step reads and writes, in the order of `collect`.
        self.views = list(
            zip(
                self.obs[:-1],
                self.obs[1:],
                self.action,
                self.action.reshape(steps, rows, *spec.action.shape),
                self.record.reshape(steps, rows, entries),
                strict=True,
            )
        )

    def sent(self, fleet: AbstractFleet, device: Any) -> tuple[Shaped[Array, "_ S N ..."], ...]:
        """The columns of the rollout on a device; these buffers must not change before it has been learnt from."""
        with np.errstate(over="ignore"):
            points, reward = (values.astype(np.float32) for values in fleet.measure(self.record))
        step = (self.obs[:-1], self.action, self.next_obs, reward, self.terminated, self.truncated, self.valid)
        return jax.device_put((*step, self.obs[1:], points, self.first), device)


def sound(values: np.ndarray, lead: int) -> np.ndarray:
    """Whether all is well in each entry along the first `lead` axes."""
    return np.all(np.abs(values.reshape(*values.shape[:lead], -1)) < HUGE, axis=-1)


def one_rollout(columns: Sequence[Array], carry: Any) -> Rollout:
    """One seed's columns, as `Tape.sent` orders them, as a rollout that began with these memories of the agent."""
    acted_next, points, first = columns[7:]
    return Rollout(Transition(*columns[:7]), acted_next, points, first=first, carry=carry)


class Lane(AbstractLane):
    """Seeds whose observations are small: NumPy acts, all seeds learn in one program."""

    def __init__(
        self,
        setup: Setup,
        seeds: Sequence[int],
        line: Sequence[Any],
        threads: int = 1,
    ) -> None:
        super().__init__(setup, seeds, line)
        task, loop = setup.task, setup.loop
        assert isinstance(task, AbstractHostTask)
        self.fleet: AbstractFleet = task.open(len(seeds) * loop.envs, threads)
        self.moments = HostMoments(len(seeds), loop.envs, task.spec.obs_shape, loop.obs_epsilon, loop.obs_clip)
        self.tape = Tape(setup, len(seeds), self.fleet.record.shape[1])
        #: The step at which each environment's episode began.
        self.began = np.zeros(len(seeds) * loop.envs, np.int64)
        #: The agent's memories `[S, N, ...]`.
        self.carry = jax.tree.map(lambda x: jnp.repeat(x[None], len(seeds), axis=0), first_carries(setup))
        self._begin()

    @property
    def obs_stats(self) -> Moments:
        moments = self.moments
        columns = (moments.mean[:, 0], moments.spread[:, 0] / moments.count, np.full(len(self.seeds), moments.count))
        return jax.vmap(Moments)(*(jnp.asarray(column, jnp.float32) for column in columns))

    def close(self) -> None:
        self.fleet.close()

    def compile(self) -> None:
        setup, static = self.setup, self.static
        lead = (setup.loop.rollout, setup.loop.envs)

        def draw(arrays: Any) -> Draws:
            state: TrainState = eqx.combine(arrays, static)
            keys = state.keys()
            noise = setup.agent.noise(lead, key=keys[Stream.ACTIONS])
            return Draws(noise, jax.random.bits(keys[Stream.STEPS], lead), jax.random.bits(keys[Stream.RESETS], lead))

        def step(arrays: Any, columns: Sequence[Array], carry: Any) -> tuple[Any, Report]:
            state, learnt, work = learn(setup, eqx.combine(arrays, static), one_rollout(columns, carry))
            state, worked = finish(setup, state, work)
            report = Report({**learnt.metrics, **worked.metrics}, learnt.checks + worked.checks)
            return eqx.filter(state, eqx.is_array), report

        def calibrate(arrays: Any, columns: Sequence[Array], carry: Any) -> Any:
            state = calibrated(setup, eqx.combine(arrays, static), one_rollout(columns, carry))
            return eqx.filter(state, eqx.is_array)

        options: Any = devices.compiler_options(self.placement)
        example = self.tape.sent(self.fleet, self.placement)
        self._draw = jax.jit(jax.vmap(draw, out_axes=1)).lower(self.arrays).compile()
        self._calibrate = jax.jit(jax.vmap(calibrate, in_axes=(0, 1, 0)))
        learning = jax.jit(jax.vmap(step, in_axes=(0, 1, 0)), donate_argnums=0)
        self._learn = learning.lower(self.arrays, example, self.carry).compile(compiler_options=options)

    def _begin(self) -> None:
        """Reset every environment for the first time; a reset does not enter the observation statistics."""
        envs = self.setup.loop.envs

        def first(root: PRNGKey) -> UInt32[Array, " N"]:
            return jax.random.bits(jax.random.fold_in(root, Stream.FIRST_RESET), (envs,))

        self.fleet.reset(np.asarray(jax.vmap(first)(self.train_state.root)).reshape(-1))
        self.tape.obs[-1] = self._normalised(self._raw())

    def _normalised(self, obs: np.ndarray) -> np.ndarray:
        """Observations by the statistics as they are."""
        return self.moments.normalise(obs) if self.setup.loop.normalise_obs else obs

    def _raw(self) -> np.ndarray:
        """What the fleet shows now, `[S, N, ...]`."""
        obs = self.fleet.obs
        return obs.reshape(len(self.seeds), self.setup.loop.envs, *obs.shape[1:])

    def iterate(self) -> HostReport:
        draws, agent, carry = Draws(*map(np.asarray, self._draw(self.arrays))), self.setup.agent, self.carry
        actor = agent.host_actor(agent.actor(agent.networks(self.train_state.agent)), carry, draws.noise)
        with self.blaming_environments():
            self.collect(actor, draws)
        self.carry = actor.carry
        columns = self.tape.sent(self.fleet, self.placement)
        if self.now == self.setup.loop.rollout and agent.calibrates(self.train_state.agent):
            self.arrays = self._calibrate(self.arrays, columns, carry)
        self.arrays, report = self._learn(self.arrays, columns, carry)
        return HostReport.of(report)

    def collect(self, actor: HostActor, draws: Draws) -> None:
        """Fill the tape: step every environment `loop.rollout` times with the current policy."""
        tape, fleet = self.tape, self.fleet
        tape.obs[0] = tape.obs[-1]
        tape.terminated[:], tape.truncated[:], tape.valid[:] = False, False, True
        rows = len(self.began)
        step_seeds = draws.steps.reshape(-1, rows)
        raw, step, ends, due = self._raw(), fleet.step, fleet.ends, self._due()
        # Only a reset can have left an unsound observation behind: what steps lead to was seen to.
        wrong = ~sound(raw, 2)
        if wrong.any():
            self._blame(wrong, None)
            tape.obs[0][wrong] = 0.0
        take = self.moments.merge if self.setup.loop.normalise_obs else self._copied
        borders: list[tuple[int, np.ndarray, np.ndarray]] = []
        for t, (obs, next_obs, action, executed, record) in enumerate(tape.views):
            first = tape.first[t]
            np.equal(self.began, self.now, out=first.reshape(-1))
            actor(t, obs, first, action)
            step(executed, step_seeds[t])
            self.now += 1
            record[:] = fleet.record
            if ends or self.now >= due:
                border = self._end_episodes(t, draws)
                due = self._due()
                if border is not None:
                    borders.append((t, *border))
            if not take(raw, next_obs):
                self._abandon(t, draws)
                take(self._shown(), next_obs)
            if borders and borders[-1][0] == t:
                _, ended, successor = borders[-1]
                borders[-1] = (t, ended, self._normalised(successor))
        tape.next_obs[:] = tape.obs[1:]
        for t, ended, successor in borders:
            tape.next_obs[t][ended] = successor[ended]

    def _copied(self, obs: np.ndarray, out: np.ndarray) -> bool:
        """Observations as they are; False where they are not sound."""
        out[...] = obs
        return self.moments.sound(obs)

    def _due(self) -> float:
        """The step at which the time limit ends the oldest episode."""
        horizon = self.setup.task.spec.horizon
        return float(self.began.min() + horizon) if horizon else np.inf

    def _end_episodes(self, t: int, draws: Draws) -> tuple[np.ndarray, np.ndarray] | None:
        """Reset environments whose episode ended: where that was `[S, N]`, and all true successors before it."""
        fleet, tape, horizon = self.fleet, self.tape, self.setup.task.spec.horizon
        over = self.now - self.began >= horizon if horizon else np.zeros(len(self.began), bool)
        terminated, truncated = fleet.terminated, (fleet.truncated | over) & ~fleet.terminated
        ended = terminated | truncated
        shape = tape.valid.shape[1:]
        if fleet.filler is not None:
            tape.valid[t] = ~fleet.filler.reshape(shape)
            # A step spent on a reset is none of the new episode's.
            self.began[fleet.filler] = self.now
        if not ended.any():
            return None
        tape.terminated[t], tape.truncated[t] = terminated.reshape(shape), truncated.reshape(shape)
        if not self.moments.sound(self._raw()):
            self._abandon(t, draws)
        successor = self._shown()
        fleet.reset(draws.resets[t].reshape(-1), ended)
        self.began[ended] = self.now
        return ended.reshape(shape), successor

    def _abandon(self, t: int, draws: Draws) -> None:
        """Begin the episodes anew whose simulation ran away, as at a time limit, unless that stops the run.

        The others go on undisturbed.
        """
        tape, bad = self.tape, ~sound(self._raw(), 2)
        self._blame(bad, t)
        rows = bad.reshape(-1)
        self.fleet.reset(draws.resets[t].reshape(-1), rows)
        self.began[rows] = self.now
        tape.record[t].reshape(len(rows), -1)[rows] = self.fleet.record[rows]
        tape.terminated[t][bad], tape.truncated[t][bad] = False, True

    def _blame(self, bad: np.ndarray, t: int | None) -> None:
        """Say which observations ran away in step `t` of the rollout, or before it: as an error, or of lost seeds.

        What a lost seed does from here on is left out of the results.
        """
        raw, loop = self._raw(), self.setup.loop
        iteration = (self.now - (t is not None)) // loop.rollout
        for s, n in np.argwhere(bad):
            place = spot(self.seeds[s], int(n), self.now, loop.envs, iteration)
            entries = raw[s, n].ravel()
            entry = np.flatnonzero(~(np.abs(entries) < HUGE))[0]
            message = f"{FROM_OUTSIDE} in the task's observations: {place}: entry {entry} became {entries[entry]:g}"
            if t is not None and not sound(self.tape.action[t], 2)[s, n]:
                message = f"{FROM_OUTSIDE} in the policy's actions: {place}: the task's observations followed"
            if self.setup.on_nonfinite == "stop":
                raise NonFiniteError(f"{message}. The run was stopped. {ADVICE} {GO_ON}")
            # Another thread reads it: it is replaced, never changed.
            self.lost = {self.seeds[s]: message, **self.lost}

    def _shown(self) -> np.ndarray:
        """What the fleet shows now, with the mean of what was seen before in the place of what is unsound."""
        raw = self._raw()
        return np.where(sound(raw, 2).reshape(*raw.shape[:2], *[1] * (raw.ndim - 2)), raw, self.moments.mean)

    def state(self) -> dict[str, np.ndarray]:
        own = {"obs": self.tape.obs[-1].copy(), "now": np.asarray(self.now), "began": self.began.copy()}
        parts = {"fleet": self.fleet.state(), "moments": self.moments.state()}
        parts["carry"] = {str(k): np.array(x) for k, x in enumerate(jax.tree.leaves(self.carry))}
        return {**own, **{f"{part}/{name}": value for part, values in parts.items() for name, value in values.items()}}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        like = {name: value for name, value in self.state().items() if not name.startswith("fleet/")}
        require_like(state, like)
        self.fleet.restore(part_of(state, "fleet/"))
        self.moments.restore(part_of(state, "moments/"))
        self.tape.obs[-1], self.now, self.began[:] = state["obs"], int(state["now"]), state["began"]
        leaves, tree = jax.tree.flatten(self.carry)
        self.carry = tree.unflatten(jnp.asarray(state[f"carry/{k}"]) for k in range(len(leaves)))
