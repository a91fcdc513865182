"""The programs of a lane of emulators: one seed, its frames on the device or on each of several.

Several devices share the seed's environments: what looks at a rollout, and each minibatch, is dealt out over them by
JAX's own sharding, which adds up their gradients. Frames, networks and statistics are on all of them, so acting needs
no word between devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Int, UInt8

from .._frames import FrameStore
from .._types import Rollout, Transition
from ..curiosity.learner import Minibatches
from . import devices
from .loop import Metrics, Setup, Stream, TrainState, learn_policy, model_metrics, stream_keys


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


class FramePrograms:
    """What a lane computes; the arrays of training have a leading axis of 1, as in every lane."""

    def __init__(self, setup: Setup, static: Any, line: Sequence[Any]) -> None:
        self.setup, self.static = setup, static
        self.side, _, self.stack = setup.task.spec.obs_shape
        self.kind = jnp.bfloat16 if setup.loop.mixed_precision else jnp.float32
        home, options = devices.home(line), devices.compiler_options(line[0])
        self.share = NamedSharding(home.mesh, PartitionSpec(None, devices.SHARED)) if len(line) > 1 else None
        # Said explicitly because the compiler would leave some of it spread out, and the next call would not fit.
        where = {"out_shardings": home} if len(line) > 1 else {}

        def jitted(call: Any, *given: int, fixed: Sequence[int] = ()) -> Any:
            how: Any = {"donate_argnums": given, "static_argnums": fixed, "compiler_options": options, **where}
            return jax.jit(call, **how)

        self.draw, self.act, self.learn = jitted(self._draw), jitted(self._act, 1), jitted(self._learn, 0, 1)
        self.train_step, self.finish = jitted(self._train_step, 0, 1, 4), jitted(self._finish, fixed=(2,))
        self.calibrate = jitted(self._calibrate)
        self.put = jitted(lambda frames, newest: frames.at[-1].set(newest), 0)

    def _store(self, frames: UInt8[Array, "*lead side side"], pixels: Any) -> FrameStore:
        return FrameStore(frames.reshape(-1, self.side, self.side), *pixels, kind=self.kind, share=self.share)

    def _whole(self, arrays: Any) -> TrainState:
        return eqx.combine(without_seed(arrays), self.static)

    def _draw(self, arrays: Any) -> tuple[Any, Any]:
        """The randomness of a rollout: of the actions, and the seeds of the games that begin in it."""
        state, loop = self._whole(arrays), self.setup.loop
        keys, lead = stream_keys(state.root, state.iteration), (loop.rollout, loop.envs)
        noise = self.setup.agent.noise(self.setup.task.spec, lead, key=keys[Stream.ACTIONS])
        return noise, jax.random.bits(keys[Stream.RESETS], lead)

    def _act(self, agent: Any, frames: Array, packet: Array, noise: Array, pixels: Any) -> tuple[Array, Array]:
        """A group's frames with its newest ones, and its actions."""
        frame, t, first, rows = unpacked(packet, frames.shape[1], self.side, self.stack)
        frames = jax.lax.dynamic_update_index_in_dim(frames, frame, t + self.stack - 1, 0)
        see, spec = self._store(frames, pixels), self.setup.task.spec
        state = eqx.combine(without_seed(agent), self.static.agent)
        mine = jax.lax.dynamic_slice_in_dim(noise[t], first, len(frame))
        each = jax.vmap(lambda numbers, n: self.setup.agent.act(spec, state, see(numbers), n))
        return frames, each(numbered(rows), mine)

    def _learn(self, arrays: Any, groups: Sequence[Array], columns: Columns, pixels: Any) -> Any:
        """The first half of learning; what the second half needs; the frames as the next rollout begins."""
        state, learner, stack = self._whole(arrays), self.setup.learner, self.stack
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
        step, following, points = store.shared((step, obs[1:], columns.points))
        state, seen, metrics = learn_policy(self.setup, state, Rollout(step, following, points, store))
        batches = None
        if learner.trains(state.curiosity):
            after, batches = learner.minibatches(state.curiosity, state.learner, seen, key=state.keys()[Stream.MODEL])
            state = replace(state, learner=after)
        # The next rollout is drawn by the next iteration's keys while the model is still trained on this one.
        state = replace(state, iteration=state.iteration + 1)
        begun = [jnp.concatenate([kept[-stack:], kept[stack:]]) for kept in groups]
        return of_one_seed(state), begun, batches, metrics

    def _train_step(self, model: Any, learnt: Any, batches: Minibatches, k: Array, report: Any) -> Any:
        """One gradient step of the model."""
        steps, draws = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, k, 1), (batches.steps, batches.draws))
        one = Minibatches(steps, draws, None, batches.frames)
        static = (self.static.curiosity, self.static.learner)
        model, learnt = eqx.combine(without_seed((model, learnt)), static)
        model, learnt, found = self.setup.learner.train(model, learnt, one)
        return of_one_seed(model), of_one_seed(learnt), added(report, found, k)

    def _finish(self, arrays: Any, report: Any, count: int) -> Metrics:
        """What is told of the model's training once it is over."""
        return model_metrics(self.setup, self._whole(arrays), averaged(report, count))

    def _calibrate(self, model: Any, frames: Array, numbers: Array, pixels: Any) -> Any:
        """The model with what it measures once."""
        whole = eqx.combine(without_seed(model), self.static.curiosity)
        return of_one_seed(whole.calibrated(jax.vmap(self._store(frames, pixels))(numbers)))


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


def added(report: Metrics, step: Metrics, k: Array) -> Metrics:
    """Sums of what gradient steps report; of what was unsound, the first step."""

    def one(name: str, new: Array) -> Array:
        if name.startswith("unsound/"):
            found = jnp.where(new >= 0, k, -1)
            return jnp.where(report[name] >= 0, report[name], found) if name in report else found
        return report[name] + new if name in report else new

    return {name: one(name, value) for name, value in step.items()}


def averaged(report: Metrics, count: int) -> Metrics:
    """Means of what the gradient steps report."""
    return {name: value if name.startswith("unsound/") else value / max(count, 1) for name, value in report.items()}
