"""Noisy MNIST: pictures of digits, with one kind of transition that can be learnt and one that cannot.

Mazzaglia et al. 2022, "Image Task", after Pathak et al. 2019:

    a picture of 0 goes to a picture of 1, a picture of 1 to a picture of any of 2..9

each drawn uniformly from MNIST's test set. Half the transitions begin at a 0, half at a 1, and there is nothing to
choose. Both kinds show a picture never seen before, but what follows a 1 is far more varied: a method that is
not drawn to noise comes to pay both alike, and the ratio of the two bonuses goes to 1.

The pictures are MNIST's test set, which comes with Curiax (`data/README.md` has its licence).
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8

from .._types import Discrete, Grid, PRNGKey, Scalar, Spec
from ._base import AbstractTask
from ._evaluation import Samples


@functools.cache
def mnist() -> tuple[UInt8[np.ndarray, "10000 28 28"], UInt8[np.ndarray, "10000"]]:
    """Pictures and labels of MNIST's test set, in the original order; read once."""
    with (
        resources.files("curiax").joinpath("data", "mnist_t10k.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as kept,
    ):
        return kept["x"], kept["y"]


class Album(eqx.Module):
    """The pictures as JAX holds them, and which of them show which digits."""

    pictures: UInt8[Array, "10000 28 28"]
    labels: Int[Array, "10000"]
    zeros: Int[Array, " _"]
    ones: Int[Array, " _"]
    others: Int[Array, " _"]


@functools.cache
def album() -> Album:
    """One copy for all environments, seeds and programs."""
    pictures, labels = mnist()
    # Arrays of their own even where a program that needs them is just being traced.
    with jax.ensure_compile_time_eval():
        groups = (np.flatnonzero(group) for group in (labels == 0, labels == 1, labels > 1))
        return Album(jnp.asarray(pictures), *(jnp.asarray(x, jnp.int32) for x in (labels, *groups)))


class Picture(eqx.Module):
    """The picture that is shown, by number, and the digit of the one before it (at first its own)."""

    number: Int[Array, ""]
    left: Int[Array, ""]


def one_of(group: Int[Array, " _"], key: PRNGKey) -> Int[Array, ""]:
    """A picture of a group, drawn uniformly."""
    return group[jax.random.randint(key, (), 0, group.size)]


class NoisyMNIST(AbstractTask):
    """Every transition is an episode of its own; the tracked point is (digit left, digit reached)."""

    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)
    budget: ClassVar[int] = 768_000
    stochastic: ClassVar[bool] = True
    compared: ClassVar[tuple[str, str] | None] = ("1 → 2…9", "0 → 1")

    def __init__(self) -> None:
        """Set up the task; it has no settings."""
        self.spec = Spec((28, 28, 1), Discrete(1), 1)
        self.grids = ()

    def reset(self, *, key: PRNGKey) -> Picture:
        which, draw = jax.random.split(key)
        digit = jax.random.bernoulli(which).astype(jnp.int32)
        return Picture(jnp.where(digit == 0, one_of(album().zeros, draw), one_of(album().ones, draw)), digit)

    def step(self, state: Picture, action: Int[Array, ""], *, key: PRNGKey) -> tuple[Picture, Scalar, Bool[Array, ""]]:
        digit = album().labels[state.number]
        following = jnp.where(digit == 0, one_of(album().ones, key), one_of(album().others, key))
        return Picture(following, digit), jnp.zeros(()), jnp.zeros((), bool)

    def observe(self, state: Picture) -> Float[Array, "28 28 1"]:
        return album().pictures[state.number][:, :, None].astype(jnp.float32) / 255.0

    def track(self, state: Picture) -> Float[Array, " 2"]:
        return jnp.stack([state.left, album().labels[state.number]]).astype(jnp.float32)

    def kind(self, point: Float[Array, " 2"]) -> Int[Array, ""]:
        return (point[0] == 0).astype(jnp.int32)

    def samples(self) -> Samples:
        """Six pictures of 1 that go to one of 2, 3, 4, 5, 7 and 9 each, then six of 0 that go to a 1."""
        labels = mnist()[1]
        zeros, ones = (np.flatnonzero(labels == digit) for digit in (0, 1))
        others = [np.flatnonzero(labels == digit)[0] for digit in (2, 3, 4, 5, 7, 9)]
        before, after, left = (
            jnp.asarray(x, jnp.int32) for x in ([*ones[:6], *zeros[:6]], [*others, *ones[6:12]], [1] * 6 + [0] * 6)
        )
        states = [jax.vmap(Picture)(number, left) for number in (before, after)]
        return Samples(states[0], jnp.zeros(12, jnp.int32), states[1])

    def draw(self, state: Picture, width: int, height: int) -> UInt8[np.ndarray, "height width 3"]:
        """The picture, as large as it fits."""
        from PIL import Image

        side = min(width, height)
        picture = Image.fromarray(mnist()[0][int(state.number)]).resize((side, side), Image.Resampling.NEAREST)
        canvas = Image.new("RGB", (width, height))
        canvas.paste(picture.convert("RGB"), ((width - side) // 2, (height - side) // 2))
        return np.asarray(canvas)
