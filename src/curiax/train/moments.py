"""Running statistics of observations on the host: updated and applied at every step of every rollout.

A step of a few small environments takes a hundred microseconds of physics; the dozen NumPy calls of an update would add
ten, the compiled form adds two. It is used where Numba is installed (it comes with `curiax[mujoco]`); the two agree to
rounding. Compiling the small actor as well was tried and gained nothing over NumPy's products.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from .._sound import HUGE


class HostMoments:
    """`Moments` of every seed's observations, in float64 and in place."""

    def __init__(self, seeds: int, envs: int, shape: tuple[int, ...], epsilon: float, clip: float) -> None:
        self.count = 1e-4
        self.mean = np.zeros((seeds, 1, *shape))
        #: Variance times count.
        self.spread = np.full((seeds, 1, *shape), self.count)
        self._envs, self._epsilon, self._clip = envs, epsilon, clip
        self._delta, self._shifted = np.zeros((seeds, envs, *shape)), np.zeros((seeds, envs, *shape))
        self._scratch = np.zeros((seeds, 1, *shape))
        self._compiled = compiled_merge() if len(shape) == 1 else None

    def sound(self, obs: Float[np.ndarray, "S N ..."]) -> bool:
        """Whether observations are finite and within all bounds."""
        return bool(np.all(np.abs(obs) < HUGE))

    def merge(self, obs: Float[np.ndarray, "S N ..."], out: Float[np.ndarray, "S N ..."]) -> bool:
        """Let observations enter the statistics, and write them standardised and clipped.

        For the mean distance d of `size` new observations from the old mean: mean′ = mean + d · size/total,
        spread′ = spread + d² · count · size/total + their own spread. Unsound observations are refused: False, and
        nothing has changed.
        """
        if self._compiled is not None:
            done = self._compiled(obs, self.mean, self.spread, self.count, self._epsilon, self._clip, out)
            self.count += self._envs if done else 0
            return done
        size, count, delta, scratch = self._envs, self.count, self._delta, self._scratch
        mean, spread, shifted = self.mean, self.spread, self._shifted
        if not self.sound(obs):
            return False
        np.subtract(obs, mean, delta)
        total = self.count = count + size
        distance = delta if size == 1 else delta.mean(axis=1, keepdims=True)
        if size > 1:
            spread += np.sum((delta - distance) ** 2, axis=1, keepdims=True)
        np.multiply(distance, size / total, scratch)
        np.add(mean, scratch, mean)
        np.subtract(delta, scratch, shifted)
        np.multiply(scratch, distance * count, scratch)
        np.add(spread, scratch, spread)
        np.sqrt(spread / total + self._epsilon, scratch)
        np.divide(shifted, scratch, shifted)
        np.clip(shifted, -self._clip, self._clip, out=shifted)
        out[...] = shifted
        return True

    def normalise(self, obs: Float[np.ndarray, "S N ..."]) -> Float[np.ndarray, "S N ..."]:
        """Any observations, standardised and clipped."""
        deviation = np.sqrt(self.spread / self.count + self._epsilon)
        return np.clip((obs - self.mean) / deviation, -self._clip, self._clip)

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as plain arrays."""
        return {"count": np.asarray(self.count), "mean": self.mean.copy(), "spread": self.spread.copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Put a state back."""
        self.count = float(state["count"])
        self.mean[:], self.spread[:] = state["mean"], state["spread"]


@functools.cache
def compiled_merge() -> Callable[..., bool] | None:
    """`merge_vectors` compiled at its first call and free of the interpreter's lock, or None without Numba."""
    try:
        import numba
    except ImportError:
        return None
    # Not cached on disk: it takes a third of a second, and Numba's cache would load serialised objects.
    build: Any = numba.njit(nogil=True, error_model="numpy")
    return build(inspect.unwrap(merge_vectors))


def merge_vectors(
    obs: np.ndarray,
    mean: np.ndarray,
    spread: np.ndarray,
    count: float,
    epsilon: float,
    clip: float,
    out: np.ndarray,
) -> bool:
    """`HostMoments.merge` on vectors `[S, N, size]`."""
    seeds, envs, size = obs.shape
    total = count + envs
    for s in range(seeds):
        for n in range(envs):
            for i in range(size):
                if not abs(obs[s, n, i]) < HUGE:
                    return False
    for s in range(seeds):
        for i in range(size):
            old = mean[s, 0, i]
            distance = 0.0
            for n in range(envs):
                distance += obs[s, n, i] - old
            distance /= envs
            within = 0.0
            for n in range(envs):
                within += (obs[s, n, i] - old - distance) ** 2
            new = old + distance * (envs / total)
            new_spread = spread[s, 0, i] + within + distance * distance * (count * envs / total)
            mean[s, 0, i], spread[s, 0, i] = new, new_spread
            deviation = np.sqrt(new_spread / total + epsilon)
            for n in range(envs):
                out[s, n, i] = min(max((obs[s, n, i] - new) / deviation, -clip), clip)
    return True
