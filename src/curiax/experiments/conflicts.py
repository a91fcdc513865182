"""Where the paper and its released code disagree or leave things open, and the setting that decides each. Data only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Conflict:
    """One such point; `setting` is the dotted name that decides it, `method` the only one that has it."""

    topic: str
    paper: str
    code: str
    setting: str
    method: str = ""


CONFLICTS: tuple[Conflict, ...] = (
    Conflict("entropy weight, control", "0.001", "0.01 in every README command", "ppo.entropy_weight"),
    Conflict(
        "entropy of a Gaussian policy", "–", "averaged over action dimensions, by a typo", "ppo.entropy_reduction"
    ),
    Conflict("headline coverage", "10 × 10 bins", "ceil without a clamp: 11 × 11 cells ÷ 100", "loop.coverage"),
    Conflict(
        "clipping the bonus",
        "to (−3, 3)",
        "raw bonus to ±3 old deviations, before updating and dividing",
        "learner.clip_order",
    ),
    Conflict("successor at an episode's end", "–", "the reset observation of the next episode", "loop.successor"),
    Conflict("time limits in GAE", "–", "ignored: values run through resets", "ppo.episode_ends"),
    Conflict("posterior's input", "s, a, s′", "the prior's hidden vector and s′", "method.posterior", "lbs"),
    Conflict("optimiser of the model: ε", "the policy's", "1e-8 instead of the policy's 1e-5", "learner.adam_epsilon"),
    Conflict("optimiser of the model: gradient norm", "the policy's", "not clipped", "learner.max_gradient_norm"),
    Conflict("β", "0.1; 2 on stochastic tasks", "default 1, README as the paper", "method.beta", "lbs"),
    Conflict("episode length", "–", "100", "task.horizon"),
    Conflict("rollout", "2048", "2048", "loop.rollout"),
    Conflict("action that the model sees", "a", "the unclipped sample", "loop.model_action"),
    Conflict("RND's target network", "–", "unused helper: one linear layer", "method.target", "rnd"),
)
