"""Agents: who acts, and how it learns from rewards."""

from ._base import AbstractAgent
from .ppo import PPO, PPOSettings, gae
from .uniform import Uniform

__all__ = ["PPO", "AbstractAgent", "PPOSettings", "Uniform", "gae"]
