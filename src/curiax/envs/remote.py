"""The noisy remote: a one-pixel (or larger) noisy TV that any task can take.

An action more (continuous: one dimension more, pulled when it exceeds 0; discrete: one choice more) draws
fresh noise in observation entries of its own. Mazzaglia et al. 2022, stochastic Mountain Car.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped, UInt8

from .._metrics import Metric
from .._settings import Count, CountOrZero
from .._types import Box, Discrete, Grid, PRNGKey, Rollout, Scalar, Spec
from ._base import AbstractAnyTask, AbstractTask
from ._evaluation import Probe
from ._host import AbstractFleet, AbstractHostTask, Mask, Seeds, require_like
from ._single import FleetSingle


@dataclass(frozen=True)
class RemoteSettings:
    """A noisy remote around the task.

    Args:
        mode: `none`; `frozen`: pulling stops the task for a step; `evolving`: pulling steps it with no action.
        noise_dims: number of noisy observation entries.
        between: `hold` keeps the last noise until the next pull (paper); `fresh` draws it anew at every step.
        idle_action: what `evolving` does to a task with discrete actions.
    """

    mode: Literal["none", "frozen", "evolving"] = "none"
    noise_dims: Count = 1
    between: Literal["hold", "fresh"] = "hold"
    idle_action: CountOrZero = 0


class Screen(eqx.Module):
    """The task's state and what the screen shows."""

    inner: Any
    noise: Float[Array, " dims"]


def spec_with_remote(inner: Spec, settings: RemoteSettings) -> Spec:
    """A task's spaces with the remote's action and the screen's entries."""
    if len(inner.obs_shape) != 1:
        raise ValueError(f"the remote adds entries to vector observations; this task's are {inner.obs_shape}")
    if isinstance(inner.action, Box):
        action = Box((*inner.action.low, -1.0), (*inner.action.high, 1.0))
    else:
        action = Discrete(inner.action.n + 1)
        if settings.idle_action >= inner.action.n:
            raise ValueError(f"remote.idle_action must be one of the task's {inner.action.n} actions")
    dims = settings.noise_dims
    return replace(
        inner,
        obs_shape=(inner.obs_shape[0] + dims,),
        action=action,
        obs_low=None if inner.obs_low is None else (*inner.obs_low, *[-1.0] * dims),
        obs_high=None if inner.obs_high is None else (*inner.obs_high, *[1.0] * dims),
    )


def pulled(space: Box | Discrete, action: Shaped[Array, "..."]) -> Bool[Array, ""]:
    """Whether an action pulls the remote of a task whose own actions are `space`."""
    return action[-1] > 0 if isinstance(space, Box) else action == space.n


class NoisyRemote(AbstractTask):
    """A task with a remote that shows noise and, pulled, freezes the task or lets it drift."""

    task: AbstractTask
    settings: RemoteSettings = eqx.field(static=True)
    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)
    stochastic: ClassVar[bool] = True

    def __init__(self, task: AbstractTask, settings: RemoteSettings) -> None:
        self.task, self.settings, self.grids = task, settings, task.grids
        self.spec = spec_with_remote(task.spec, settings)

    def notes(self) -> Mapping[str, str]:
        return self.task.notes()

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return self.task.metrics

    def measure(self, rollout: Rollout) -> dict[str, Array]:
        return self.task.measure(rollout)

    def reset(self, *, key: PRNGKey) -> Screen:
        return Screen(self.task.reset(key=key), jnp.zeros(self.settings.noise_dims))

    def step(
        self, state: Screen, action: Shaped[Array, "..."], *, key: PRNGKey
    ) -> tuple[Screen, Scalar, Bool[Array, ""]]:
        noise_key, task_key = jax.random.split(key)
        own, idle, drew = self._part(action)
        if self.settings.mode == "evolving":
            own = jnp.where(drew, idle, own)
        inner, reward, terminated = self.task.step(state.inner, own, key=task_key)
        if self.settings.mode == "frozen":
            inner = jax.tree.map(lambda old, new: jnp.where(drew, old, new), state.inner, inner)
            reward, terminated = jnp.where(drew, 0.0, reward), terminated & ~drew
        noise = jax.random.uniform(noise_key, state.noise.shape, minval=-1.0, maxval=1.0)
        if self.settings.between == "hold":
            noise = jnp.where(drew, noise, state.noise)
        return Screen(inner, noise), reward, terminated

    def _part(self, action: Array) -> tuple[Array, Array, Bool[Array, ""]]:
        """The task's own action, its idle one, and whether the remote was pulled."""
        space = self.task.spec.action
        if isinstance(space, Box):
            own = action[:-1]
            return own, space.executed(jnp.zeros_like(own)), pulled(space, action)
        idle = jnp.full_like(action, self.settings.idle_action)
        return jnp.minimum(action, space.n - 1), idle, pulled(space, action)

    def unlearnable(self, action: Shaped[Array, "..."]) -> Bool[Array, ""]:
        return pulled(self.task.spec.action, action) | (self.settings.between == "fresh")

    def probe(self) -> Probe | None:
        """The task's own probe with the remote untouched, and, as `noise`, the remote pulled eight times."""
        inner = self.task.probe()
        if inner is None:
            return None
        cells = jax.tree.leaves(inner.states)[0].shape[0]
        states = jax.vmap(Screen)(inner.states, jnp.zeros((cells, self.settings.noise_dims)))
        space, pulls = self.task.spec.action, 8
        if isinstance(space, Box):
            untouched = {k: jnp.pad(a, ((0, 0), (0, 1)), constant_values=-1.0) for k, a in inner.actions.items()}
            noisy = jnp.zeros((pulls, space.size + 1)).at[:, -1].set(1.0)
        else:
            untouched, noisy = inner.actions, jnp.full(pulls, space.n)
        return Probe(inner.grid, states, {**untouched, "noise": noisy})

    def observe(self, state: Screen) -> Float[Array, " size"]:
        return jnp.concatenate([self.task.observe(state.inner), state.noise])

    def track(self, state: Screen) -> Float[Array, " axes"]:
        return self.task.track(state.inner)

    def draw(self, state: Screen, width: int, height: int) -> UInt8[np.ndarray, "height width 3"] | None:
        """The task's own picture with a television on it."""
        picture = self.task.draw(state.inner, width, height)
        return None if picture is None else with_television(picture, np.asarray(state.noise))


def with_television(
    picture: UInt8[np.ndarray, "height width 3"], noise: Float[np.ndarray, " dims"]
) -> UInt8[np.ndarray, "height width 3"]:
    """A picture with a small television in its upper left corner; each noise entry is one of its pixels."""
    from PIL import Image, ImageDraw

    fine, height = 3, picture.shape[0]
    wide, high = round(0.2 * height), round(0.18 * height)
    corner = round(0.04 * height)
    sheet = Image.fromarray(picture)
    size = (wide * fine, high * fine)
    patch = sheet.crop((corner, corner, corner + wide, corner + high)).resize(size)
    pen, unit = ImageDraw.Draw(patch), high * fine / 100
    middle = size[0] / 2
    for tip in (-26, 26):
        pen.line([(middle, 22 * unit), (middle + tip * unit, 2 * unit)], fill="#444b54", width=round(2.5 * unit))
    pen.rounded_rectangle((2 * unit, 20 * unit, size[0] - 2 * unit, 98 * unit), 9 * unit, fill="#444b54")
    across = int(np.ceil(np.sqrt(noise.size)))
    pixels = np.zeros(across * int(np.ceil(noise.size / across)), np.uint8)
    pixels[: noise.size] = np.clip(np.round(127.5 * (noise + 1)), 0, 255)
    left, top, right, bottom = (round(n) for n in (10 * unit, 28 * unit, size[0] - 10 * unit, 90 * unit))
    screen = Image.fromarray(pixels.reshape(-1, across)).resize((right - left, bottom - top), Image.Resampling.NEAREST)
    patch.paste(screen.convert("RGB"), (left, top))
    sheet.paste(patch.resize((wide, high), Image.Resampling.BOX), (corner, corner))
    return np.asarray(sheet)


class HostRemote(AbstractHostTask):
    """`NoisyRemote` around a task on the host."""

    task: AbstractHostTask
    settings: RemoteSettings = eqx.field(static=True)
    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)
    stochastic: ClassVar[bool] = True

    def __init__(self, task: AbstractHostTask, settings: RemoteSettings) -> None:
        if settings.mode == "frozen" and not task.stops:
            raise ValueError(
                "its environments cannot stop one by one; take remote.mode=evolving or task.autoreset=disabled"
            )
        self.task, self.settings, self.grids = task, settings, task.grids
        self.spec = spec_with_remote(task.spec, settings)

    @property
    def stops(self) -> bool:
        return self.task.stops

    @property
    def packages(self) -> tuple[str, ...]:
        return self.task.packages

    def require(self) -> None:
        self.task.require()

    def notes(self) -> Mapping[str, str]:
        return self.task.notes()

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return self.task.metrics

    def measure(self, rollout: Rollout) -> dict[str, Array]:
        return self.task.measure(rollout)

    def open(self, count: int, threads: int = 1) -> RemoteFleet:
        return RemoteFleet(self.task.open(count, threads), self.task.spec.action, self.settings)

    def single(self) -> FleetSingle:
        inside = self.task.single()
        assert isinstance(inside, FleetSingle)
        return FleetSingle(RemoteFleet(inside.fleet, self.task.spec.action, self.settings), inside.draws)

    def unlearnable(self, action: Shaped[Array, "..."]) -> Bool[Array, ""]:
        return pulled(self.task.spec.action, action) | (self.settings.between == "fresh")


def with_remote(task: AbstractAnyTask, settings: RemoteSettings) -> AbstractAnyTask:
    """A task of either family inside its remote; a `ValueError` says why it cannot be."""
    if isinstance(task, AbstractHostTask):
        return HostRemote(task, settings)
    assert isinstance(task, AbstractTask)
    return NoisyRemote(task, settings)


def uniform(seeds: Seeds, dims: int) -> Float[np.ndarray, "M dims"]:
    """Numbers in [−1, 1) that depend on nothing but each seed (the finaliser of SplitMix64)."""
    word = seeds[:, None].astype(np.uint64) * np.uint64(dims) + np.arange(dims, dtype=np.uint64)
    word = (word + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((word ^ (word >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0


class RemoteFleet(AbstractFleet):
    """A fleet whose environments have a remote and a screen each."""

    def __init__(self, inner: AbstractFleet, space: Box | Discrete, settings: RemoteSettings) -> None:
        self.inner, self.space, self.settings, self.ends = inner, space, settings, inner.ends
        count, size = inner.obs.shape
        self.obs = np.zeros((count, size + settings.noise_dims))
        self._noise = self.obs[:, size:]
        # The task's own record, and whether the remote stopped the task in this step.
        self.record = np.zeros((count, inner.record.shape[1] + 1))
        self.terminated, self.truncated = inner.terminated, inner.truncated

    @property
    def filler(self) -> Mask | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.filler

    def reset(self, seeds: Seeds, who: Mask | None = None) -> None:
        self.inner.reset(seeds, who)
        chosen = slice(None) if who is None else who
        self._noise[chosen], self.record[chosen, -1] = 0.0, 0.0
        self._show()

    def step(self, actions: Shaped[np.ndarray, "M ..."], seeds: Seeds, still: Mask | None = None) -> None:
        if isinstance(self.space, Box):
            own, drew = actions[:, :-1], actions[:, -1] > 0
        else:
            own, drew = np.minimum(actions, self.space.n - 1), actions == self.space.n
        moved = np.ones(len(drew), bool) if still is None else ~still
        drew = drew & moved
        if self.settings.mode == "evolving":
            idle = self._idle(own)
            own = np.where(drew.reshape((-1,) + (1,) * (own.ndim - 1)), idle, own)
            self.inner.step(own, seeds, still)
        else:
            self.inner.step(own, seeds, drew | ~moved)
            self.terminated[drew], self.truncated[drew] = False, False
            self.record[moved, -1] = drew[moved]
        fresh = moved if self.settings.between == "fresh" else drew
        self._noise[fresh] = uniform(seeds, self.settings.noise_dims)[fresh]
        self._show()

    def _idle(self, own: np.ndarray) -> np.ndarray:
        """What a task does while the remote lets it drift."""
        if isinstance(self.space, Box):
            return np.clip(np.zeros_like(own), np.asarray(self.space.low), np.asarray(self.space.high)).astype(
                own.dtype
            )
        return np.full_like(own, self.settings.idle_action)

    def _show(self) -> None:
        """Renew what is seen of the task."""
        self.obs[:, : self.inner.obs.shape[1]] = self.inner.obs
        self.record[:, :-1] = self.inner.record

    def measure(self, record: Float[np.ndarray, "*lead entries"]) -> tuple[np.ndarray, np.ndarray]:
        points, reward = self.inner.measure(record[..., :-1])
        return points, np.where(record[..., -1] > 0, 0.0, reward)

    def state(self) -> dict[str, np.ndarray]:
        return {**self.inner.state(), "screen": self._noise.copy(), "stopped": self.record[:, -1].copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.inner.restore({name: value for name, value in state.items() if name not in ("screen", "stopped")})
        require_like(state, {"screen": self._noise, "stopped": self.record[:, -1]})
        self._noise[:], self.record[:, -1] = state["screen"], state["stopped"]
        self._show()

    def render(self, index: int, width: int, height: int) -> np.ndarray | None:
        picture = self.inner.render(index, width, height)
        return None if picture is None else with_television(picture, self._noise[index])

    def close(self) -> None:
        self.inner.close()
