"""The programs of a lane of emulators: one seed, its frames on the device or on each of several.

Several devices share the seed's environments: what looks at a rollout, and each minibatch, is dealt out over them by
JAX's own sharding, which adds up their gradients. Frames, networks and statistics are on all of them, so acting needs
no word between devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Int, UInt8

from .._frames import FrameStore
from .._types import Rollout, Transition
from ..agents import Work
from . import devices
from .loop import Report, Setup, Stream, TrainState, learn


class Columns(NamedTuple):
    """What the host has written down of a rollout, beside the frames: `rows` and `next_rows` say which those are."""

    rows: Any
    next_rows: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    points: Any
    first: Any
    #: The last frames of episodes `[T, N, side, side]`; None where nobody looks at them.
    last: Any


class FramePrograms:
    """What a lane computes; the arrays of training have a leading axis of 1, as in every lane."""

    def __init__(self, setup: Setup, static: Any, line: Sequence[Any]) -> None:
        self.setup, self.static = setup, static
        self.side, _, self.stack = setup.task.spec.obs_shape
        self.kind = jnp.bfloat16 if setup.loop.mixed_precision else jnp.float32
        placement, options = devices.placement(line), devices.compiler_options(line[0])
        self.share = NamedSharding(placement.mesh, PartitionSpec(None, devices.SHARED)) if len(line) > 1 else None
        # Said explicitly because the compiler would leave some of it spread out, and the next call would not fit.
        where = {"out_shardings": placement} if len(line) > 1 else {}

        def jitted(call: Any, *given: int, fixed: Sequence[int] = ()) -> Any:
            how: Any = {"donate_argnums": given, "static_argnums": fixed, "compiler_options": options, **where}
            return jax.jit(call, **how)

        self.draw, self.actor, self.act = jitted(self._draw), jitted(self._actor), jitted(self._act, 1)
        self.learn, self.train_step = jitted(self._learn, 0, 1), jitted(self._train_step, 0, 3)
        self.finish, self.calibrate = jitted(self._finish, fixed=(2,)), jitted(self._calibrate)
        self.put = jitted(lambda frames, newest: frames.at[-1].set(newest), 0)

    def _store(self, frames: UInt8[Array, "*lead side side"], pixels: Any) -> FrameStore:
        return FrameStore(frames.reshape(-1, self.side, self.side), *pixels, kind=self.kind, share=self.share)

    def _whole(self, arrays: Any) -> TrainState:
        return eqx.combine(without_seed(arrays), self.static)

    def _agent(self, arrays: Any) -> Any:
        return eqx.combine(without_seed(arrays), self.static.agent)

    def _draw(self, arrays: Any) -> tuple[Any, Any]:
        """The randomness of a rollout: of the actions, and the seeds of the games that begin in it."""
        keys, lead = self._whole(arrays).keys(), (self.setup.loop.rollout, self.setup.loop.envs)
        noise = self.setup.agent.noise(lead, key=keys[Stream.ACTIONS])
        return noise, jax.random.bits(keys[Stream.RESETS], lead)

    def _actor_of(self, state: Any) -> Any:
        return self.setup.agent.actor(self.setup.agent.networks(state))

    def _actor(self, arrays: Any) -> Any:
        """What acting needs of the agent: copies, because gradient steps use up the agent's own."""
        return jax.tree.map(jnp.copy, eqx.filter(self._actor_of(self._whole(arrays).agent), eqx.is_array))

    def _act(
        self, actor: Any, frames: Array, packet: Array, carry: Any, first: Array, noise: Array, pixels: Any
    ) -> tuple[Array, Any, Array]:
        """A group's frames with its newest ones, the agent's memories, and its actions."""
        frame, t, offset, rows = unpacked(packet, frames.shape[1], self.side, self.stack)
        frames = jax.lax.dynamic_update_index_in_dim(frames, frame, t + self.stack - 1, 0)
        see, agent = self._store(frames, pixels), self.setup.agent
        actor = eqx.combine(actor, self._actor_of(self.static.agent))
        mine = jax.lax.dynamic_slice_in_dim(noise[t], offset, len(frame))
        carry, action = jax.vmap(lambda c, numbers, f, n: agent.act(actor, c, see(numbers), f, n))(
            carry, numbered(rows), first, mine
        )
        return frames, carry, action

    def _learn(self, arrays: Any, groups: Sequence[Array], columns: Columns, carry: Any, pixels: Any) -> Any:
        """All learning but the gradient steps that are left to do; the frames as the next rollout begins."""
        state, stack = self._whole(arrays), self.stack
        frames = jnp.concatenate(groups, axis=1)
        if columns.last is not None:
            frames = jnp.concatenate([frames, columns.last])
        store = self._store(frames, pixels)
        obs, next_obs = numbered(columns.rows), numbered(columns.next_rows)
        step = Transition(
            obs[:-1],
            columns.action,
            next_obs,
            columns.reward,
            columns.terminated,
            columns.truncated,
            jnp.ones_like(columns.terminated),
        )
        step, following, points, first = store.shared((step, obs[1:], columns.points, columns.first))
        state, report, work = learn(self.setup, state, Rollout(step, following, points, store, first, carry))
        begun = [jnp.concatenate([kept[-stack:], kept[stack:]]) for kept in groups]
        actor = jax.tree.map(jnp.copy, eqx.filter(self._actor_of(state.agent), eqx.is_array))
        return of_one_seed(state), begun, actor, work, report

    def _train_step(self, agent: Any, work: Work, k: Array, before: Report | None) -> tuple[Any, Report]:
        """One gradient step of the agent, and sums of what all of them report."""
        state, metrics, checks = self.setup.agent.work(self._agent(agent), work.at(k))
        if before is not None:
            metrics = jax.tree.map(jnp.add, before.metrics, metrics)
            checks = before.checks.then(checks, k)
        return of_one_seed(state), Report(metrics, checks)

    def _finish(self, agent: Any, worked: Report | None, count: int) -> Report:
        """What is reported of the gradient steps once they are over."""
        checks = self.setup.agent.check(self._agent(agent))
        if worked is None:
            return Report({}, checks)
        return Report(jax.tree.map(lambda total: total / count, worked.metrics), worked.checks + checks)

    def _calibrate(self, agent: Any, frames: Array, numbers: Array, pixels: Any) -> Any:
        """The agent with what it measures once."""
        obs = jax.vmap(self._store(frames, pixels))(numbers)
        return of_one_seed(self.setup.agent.calibrated(self._agent(agent), obs))


def without_seed(arrays: Any) -> Any:
    """Arrays without the axis of seeds."""
    return jax.tree.map(lambda x: x[0], arrays)


def of_one_seed(tree: Any) -> Any:
    """The arrays of a tree with an axis of one seed."""
    return jax.tree.map(lambda x: x[None], eqx.filter(tree, eqx.is_array))


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


def numbered(rows: Int[Array, "*T N stack"]) -> Int[Array, "*T N stack"]:
    """Rows of frames, one for each environment, as numbers of single frames; −1 stays."""
    count = rows.shape[-2]
    return jnp.where(rows < 0, -1, rows * count + jnp.arange(count)[:, None])
