"""Never Give Up (NGU), the bonus alone.

Badia, Sprechmann, Vitvitskyi, Guo, Piot, Kapturowski, Tieleman, Arjovsky, Pritzel, Bolt, Blundell:
Never Give Up: Learning Directed Exploration Strategies, ICLR 2020.

    bonus = r_epi · min(max(α, 1), L),   α = 1 + (e − µ_e) / σ_e
    e     = error of Random Network Distillation on s′, with running mean µ_e and deviation σ_e
    r_epi = pseudo-count bonus of the embedding f(s′) within the episode (`episodic.py`)
    loss  = L_inverse (trains f) + e

Choices:

* f is a ReLU network trained by inverse dynamics, 32 features; RND as in `rnd.py`, also with 32 outputs. Of images both
  are convolutional.
* `kernel_epsilon = 1e-3` (the paper's text), on arcade games too; open implementations use 1e-4.
* The memory holds an episode of the task's time limit; 1000 steps where it has none, as in Super Mario Bros.
* r_epi is 0 until `neighbours` embeddings of the episode are known (two of the open implementations).
* The running statistics of distances and errors are kept per environment and survive episode ends, so one
  environment's bonus never depends on another's.
* `count=False` is the ablation without episodic counts: the bonus is RND's error itself (LBS paper).
* The agent is the loop's PPO, not R2D2 with a family of policies: only the reward is compared.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree

from .._metrics import Metric
from .._settings import Count, Positive
from .._stats import Moments
from .._types import PRNGKey, Scalar, Spec, Transition
from ..nn import generator
from ._base import AbstractCuriosity, Memory, Terms
from .encoders import default_width
from .episodic import EpisodicCount, EpisodicMemory
from .features import Distillation, InverseDynamics


class NGUMemory(eqx.Module):
    """One environment's episode, and the running statistics of the distillation error."""

    episode: EpisodicMemory
    errors: Moments


class NGU(AbstractCuriosity):
    """Pays novelty within the episode, modulated by novelty over the agent's life."""

    bibtex: ClassVar[str] = """@inproceedings{badia2020never,
  title     = {Never Give Up: Learning Directed Exploration Strategies},
  author    = {Badia, Adri{\\`a} Puigdom{\\`e}nech and Sprechmann, Pablo and Vitvitskyi, Alex and Guo, Daniel and
               Piot, Bilal and Kapturowski, Steven and Tieleman, Olivier and Arjovsky, Mart{\\'i}n and
               Pritzel, Alexander and Bolt, Andrew and Blundell, Charles},
  booktitle = {International Conference on Learning Representations},
  year      = {2020}
}"""
    nonnegative: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("inverse_loss", "error of the inverse model", low=0.0),
        Metric("distillation_error", "error of imitating the random network", low=0.0),
    )

    embedding: InverseDynamics
    distillation: Distillation
    counter: EpisodicCount | None
    ceiling: float = eqx.field(static=True)

    def __init__(
        self,
        spec: Spec,
        *,
        key: PRNGKey,
        count: bool = True,
        width: Count | None = None,
        feature_size: Count = 32,
        capacity: Count | None = None,
        neighbours: Count = 10,
        kernel_epsilon: Positive = 1e-3,
        modulation_limit: Positive = 5.0,
        clip: Positive = 5.0,
    ) -> None:
        """Build the networks.

        Args:
            spec: the task's spaces.
            key: draws the parameters.
            count: pay episodic novelty; without it the bonus is the distillation error alone.
            width: hidden units in each layer; None takes 32, for images the number of their features.
            feature_size: size of the embedding, and outputs of the distilled network.
            capacity: embeddings remembered within an episode; None takes the task's horizon.
            neighbours: k of the pseudo-count.
            kernel_epsilon: ε of the pseudo-count's kernel.
            modulation_limit: L, the largest factor that lifelong novelty may contribute.
            clip: bound of the normalised observation in the distilled network.
        """
        rng, width = generator(key), width or default_width(spec)
        self.embedding = InverseDynamics(spec, feature_size, width, key=rng)
        self.distillation = Distillation(spec, size=feature_size, width=width, linear_target=False, clip=clip, key=rng)
        self.counter = (
            EpisodicCount.of(spec, feature_size, capacity=capacity, neighbours=neighbours, epsilon=kernel_epsilon)
            if count
            else None
        )
        self.ceiling = modulation_limit

    def memory(self) -> Memory:
        return None if self.counter is None else NGUMemory(self.counter.start(), Moments.start())

    def forget(self, memory: Memory) -> Memory:
        return None if self.counter is None else NGUMemory(self.counter.forget(memory.episode), memory.errors)

    def reward(self, memory: Memory, t: Transition, *, key: PRNGKey) -> tuple[Memory, Scalar]:
        error = self.distillation.error(t.next_obs)
        if self.counter is None:
            return memory, error
        errors = memory.errors.merge(error[None])
        alpha = 1.0 + (error - errors.mean) / jnp.sqrt(errors.var + 1e-8)
        episode, factor = self.counter.visit(memory.episode, self.embedding(t.next_obs))
        return NGUMemory(episode, errors), factor * jnp.clip(alpha, 1.0, self.ceiling)

    def loss(self, t: Transition, *, draw: PyTree) -> tuple[Scalar, Terms]:
        inverse = self.embedding.action_error(*self.embedding.pair(t), t)
        error = self.distillation.error(t.next_obs)
        return inverse + error, {"inverse_loss": inverse, "distillation_error": error}
