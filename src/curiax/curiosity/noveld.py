"""NovelD: novelty difference.

Zhang, Xu, Wang, Wu, Keutzer, Gonzalez, Tian: NovelD: A Simple yet Effective Exploration Criterion, NeurIPS 2021.

    n(s)  = ‖ĝ(s) − g(s)‖₂ / √d, the root of the error of Random Network Distillation
    bonus = max(n(s′) − α n(s), 0) · 1[first visit to s′ in this episode]
    loss  = ‖ĝ(s′) − g(s′)‖² / d

Choices:

* α = 0.5 (original); RND as in `rnd.py`; n is the norm, as in the original, not its square, which RND pays.
* Two states are the same if their SimHash codes are, the signs of `bits` = 12 random projections of the normalised
  observation: exact equality means little in continuous spaces. An episode's set of codes is a table of 2^bits entries.
* `offset=True` puts the planes of the hash off the mean of the observations, as in `simhash.py`, for the same reason.
* The state that a step starts from counts as visited, so the first one of an episode is never new.
* `first_visit=False` is the ablation without the restriction: every visit is paid.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._settings import Bits, Count, NonNegative, Positive
from .._types import PRNGKey, Scalar, Spec, Transition
from ..nn import generator
from ._base import AbstractCuriosity, Memory, Terms
from .features import Distillation, SimHash


class NovelD(AbstractCuriosity):
    """Pays the rise in novelty from a state to the next, once per state and episode."""

    bibtex: ClassVar[str] = """@inproceedings{zhang2021noveld,
  title     = {{NovelD}: A Simple yet Effective Exploration Criterion},
  author    = {Zhang, Tianjun and Xu, Huazhe and Wang, Xiaolong and Wu, Yi and Keutzer, Kurt and Gonzalez, Joseph E.
               and Tian, Yuandong},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {34},
  year      = {2021}
}"""
    nonnegative: ClassVar[bool] = True

    distillation: Distillation
    code: SimHash | None
    alpha: float = eqx.field(static=True)

    def __init__(
        self,
        spec: Spec,
        *,
        key: PRNGKey,
        alpha: NonNegative = 0.5,
        first_visit: bool = True,
        bits: Bits = 12,
        offset: bool = True,
        width: Count = 32,
        feature_size: Count = 32,
        clip: Positive = 5.0,
    ) -> None:
        """Build the networks.

        Args:
            spec: the task's spaces.
            key: draws the parameters.
            alpha: α, the share of the earlier state's novelty that is taken off.
            first_visit: pay a state only when the episode meets it for the first time.
            bits: planes of the hash that says which states are the same; the table has 2^bits entries.
            offset: put each plane off the mean of the observations, at random; without it all pass through the mean.
            width: hidden units in each layer.
            feature_size: outputs of the distilled network.
            clip: bound of the normalised observation in the distilled network.
        """
        rng = generator(key)
        self.distillation = Distillation(spec, size=feature_size, width=width, linear_target=False, clip=clip, key=rng)
        self.code = SimHash(spec, bits, offset=offset, key=rng) if first_visit else None
        self.alpha = alpha

    def memory(self) -> Memory:
        return None if self.code is None else jnp.zeros(self.code.codes, bool)

    def novelty(self, obs: Float[Array, "..."]) -> Scalar:
        """n(s)."""
        return jnp.sqrt(self.distillation.error(obs))

    def reward(self, memory: Memory, t: Transition, *, key: PRNGKey) -> tuple[Memory, Scalar]:
        rise = jnp.maximum(self.novelty(t.next_obs) - self.alpha * self.novelty(t.obs), 0.0)
        if self.code is None:
            return memory, rise
        # New in the table at the first step of an episode, and after a step that does not count.
        visited = memory.at[self.code(t.obs)].set(True)
        code = self.code(t.next_obs)
        return visited.at[code].set(True), jnp.where(visited[code], 0.0, rise)

    def loss(self, t: Transition, *, draw: PyTree) -> tuple[Scalar, Terms]:
        return self.distillation.error(t.next_obs), {}
