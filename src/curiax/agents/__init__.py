"""Agents: who acts, and everything that learns."""

from .._sound import Check, Checks
from ._base import AbstractAgent, HostActor, Learnt, Work
from ._policy import AbstractPolicyLearner
from .curious import CuriousAgent, RewardSettings
from .ppo import PPO, PPOSettings, gae
from .uniform import Uniform

__all__ = [
    "PPO",
    "AbstractAgent",
    "AbstractPolicyLearner",
    "Check",
    "Checks",
    "CuriousAgent",
    "HostActor",
    "Learnt",
    "PPOSettings",
    "RewardSettings",
    "Uniform",
    "Work",
    "gae",
]
