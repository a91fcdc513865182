"""The presets: every conflict between the paper and its released code, decided one way.

Defaults of all settings are the released code's, so a preset lists only what it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..curiosity import LBS, AbstractCuriosity
from ..envs import AbstractAnyTask, AbstractEmulatorTask, NoisyMNIST

#: LBS's settings on tasks where experiments settled what the paper leaves open. Of MNIST's digits no direction of the
#: pixels varies by more than 8 after either kind of picture: above that β never takes noise for something to be learnt
#: (docs/mnist.md).
LBS_ON: tuple[tuple[type[AbstractAnyTask], Mapping[str, Any]], ...] = (
    (AbstractEmulatorTask, {"beta": 0.01}),
    (NoisyMNIST, {"target": "pixels", "beta": 10.0}),
)


@dataclass(frozen=True)
class Preset:
    """Settings that differ from the released code's, by dotted name."""

    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: Settings that hold against what a task itself sets; those of the task and of the method where it has them.
    above: Mapping[str, Any] = field(default_factory=dict)
    #: LBS's β on deterministic and on noisy tasks.
    beta: tuple[float, float] = (0.1, 2.0)
    #: LBS's own settings.
    lbs: Mapping[str, Any] = field(default_factory=dict)
    #: The metric that is shown first where a task counts cells in both ways.
    headline: str = "coverage/cells"

    def method_settings(self, method: type[AbstractCuriosity] | None, task: AbstractAnyTask) -> dict[str, Any]:
        """What the preset sets of a method on a task."""
        if method is None or not issubclass(method, LBS):
            return {}
        settled = next((settings for kind, settings in LBS_ON if isinstance(task, kind)), {})
        return {"beta": self.beta[task.stochastic], **settled, **self.lbs}


#: Defaults wherever the task's own reward weighs in (η_e ≠ 0): above the preset's, below those of a task and of a user.
#: The paper's runs have η_e = 0 and leave out what such a reward needs: ends that are ends, one scale for all tasks,
#: and a critic that may follow a return that grows with the policy.
FOR_TASK_REWARD: Mapping[str, Any] = {
    "ppo.episode_ends": "bootstrap",
    "ppo.clip_value": False,
    "loop.normalise_reward": True,
}

PRESETS: dict[str, Preset] = {
    "paper-code": Preset("the released code, as its README runs it"),
    "paper-text": Preset(
        "the paper's text wherever it differs from the code: entropy weight 0.001, bonus clipped after scaling, "
        "posterior fed (s, a, s') itself, 10 x 10 bins",
        {"ppo.entropy_weight": 0.001, "learner.clip_order": "after"},
        lbs={"posterior": "full"},
        headline="coverage/bins",
    ),
    "clean": Preset(
        "the released code with its border defects mended: true successors, time limits bootstrapped, honest bins",
        {"loop.successor": "true", "ppo.episode_ends": "bootstrap"},
        headline="coverage/bins",
    ),
    "curiax": Preset(
        "the best setting known, at the same cost: rollouts of 512, time limits bootstrapped, "
        "the model sees the executed action, β = 2 everywhere",
        {"loop.rollout": 512, "ppo.episode_ends": "bootstrap", "loop.model_action": "executed"},
        beta=(2.0, 2.0),
    ),
    "small": Preset(
        "arcade games on a laptop: frames of 36 x 36, 64 environments, rollouts of 32, narrow networks, one epoch; "
        "else as `paper-code`",
        above={
            "task.side": 36,
            "task.random_steps": 1000,
            "loop.envs": 64,
            "loop.rollout": 32,
            "ppo.width": 64,
            "ppo.epochs": 1,
            "ppo.minibatch_size": 128,
            "learner.epochs": 1,
            "learner.minibatch_size": 128,
            "method.width": 64,
            "method.latent_size": 64,
        },
    ),
}
