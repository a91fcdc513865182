"""Which values no computation should see, and where the first of them was.

A value from outside (observation, action, reward, tracked point) is sound while it is finite and smaller than `HUGE`;
one that was computed from such values (bonus, loss, gradient) while it is finite and smaller than `LIMIT`.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Shaped

#: A value from outside beyond this is a simulation that has run away; MuJoCo's own bound is the same.
HUGE = 1e10
#: Beyond this the square of a float32 overflows, and with it norms, variances and Adam's second moment.
LIMIT = 1e19

#: What was found, in words.
FROM_OUTSIDE = f"NaN, infinity or a value beyond {HUGE:.0e}".replace("e+", "e")
COMPUTED = f"NaN, infinity or a value beyond {LIMIT:.0e}".replace("e+", "e")
#: What to look for.
ADVICE = "Look for divisions by 0, logarithms, overflow, or a learning rate that is too high."
#: How to go on from a run that was stopped.
GO_ON = "The same command with --on-nonfinite drop goes on from the last checkpoint without this seed."


class Check(NamedTuple):
    """Something that is looked at in every iteration.

    Args:
        name: a word for it.
        what: what it is, for a sentence; `{task!r}` and `{method!r}` stand for their names.
        counts: what its place counts: the environments' first observations, `t · N + n` of a rollout's steps, gradient
            steps, or nothing.
        outside: whether it comes from outside.
    """

    name: str
    what: str
    counts: Literal["starts", "steps", "updates", "nothing"]
    outside: bool = False


class Checks(eqx.Module):
    """What was looked at, in the order in which a fault spreads, and where each first was unsound: −1 for nowhere."""

    places: Int[Array, "*lead checks"]
    each: tuple[Check, ...] = eqx.field(static=True)

    @staticmethod
    def of(*found: tuple[Check, Int[Array, ""]]) -> Checks:
        """Checks and their places."""
        places = jnp.stack([place for _, place in found]) if found else jnp.zeros((0,), jnp.int32)
        return Checks(places, tuple(check for check, _ in found))

    def __add__(self, later: Checks) -> Checks:
        return Checks(jnp.concatenate([self.places, later.places], axis=-1), (*self.each, *later.each))

    def then(self, later: Checks, step: Int[Array, ""]) -> Checks:
        """The same checks of one more gradient step, which has this number."""
        return Checks(jnp.where((self.places < 0) & (later.places >= 0), step, self.places), self.each)


def within(x: Shaped[Array, "..."], bound: float) -> Bool[Array, "..."]:
    """Where values are sound; NaN compares as False. Whole numbers always are."""
    return jnp.abs(x) < bound if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.ones(x.shape, bool)


def unsound(x: Shaped[Array, "..."], lead: int, bound: float = HUGE) -> Bool[Array, "..."]:
    """Whether anything is wrong in each entry along the first `lead` axes."""
    return ~jnp.all(within(x, bound).reshape(*x.shape[:lead], -1), axis=-1)


def all_within(tree: Any, bound: float = LIMIT) -> Bool[Array, ""]:
    """Whether all floating-point arrays of a tree are sound."""
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(jnp.asarray(x).dtype, jnp.inexact)]
    return jnp.all(jnp.stack([jnp.ones((), bool), *(jnp.all(within(x, bound)) for x in floats)]))


def first(wrong: Bool[Array, "..."]) -> Int[Array, ""]:
    """The flat index of the first True, −1 where there is none."""
    return jnp.where(jnp.any(wrong), jnp.argmax(wrong.reshape(-1)), -1).astype(jnp.int32)


def spot(seed: int, env: int, step: int, envs: int, iteration: int) -> str:
    """A place in a run, in words.

    `step` counts the steps of this one environment: what step 1 led to is of step 1, a first reset of step 0. The
    seed's total counts those of all its environments, as the column `step` of the metrics does.
    """
    return (
        f"seed {seed}, environment {env}, step {step:,} of that environment (iteration {iteration}, after "
        f"{step * envs:,} steps of the seed in all)"
    )
