"""Curiax with other libraries' agents: its tasks by their Gymnasium names."""

from __future__ import annotations

from gymnasium import register as tell
from gymnasium import registry

#: Names for `gymnasium.make` → tasks of `curiax list`; here and not in the registry, so that registering is light.
GYMNASIUM_IDS = {
    "curiax/MountainCarSparse-v0": "mountain-car",
    "curiax/MountainCarFrozen-v0": "mountain-car-frozen",
    "curiax/MountainCarEvolving-v0": "mountain-car-evolving",
    "curiax/HalfCheetahSparse-v0": "half-cheetah",
    "curiax/AntMaze-v0": "ant-maze",
    "curiax/NoisyMNIST-v0": "mnist",
}


def register() -> None:
    """Tell Gymnasium about every task that has a Gymnasium id."""
    for name, task in GYMNASIUM_IDS.items():
        if name not in registry:
            tell(name, entry_point="curiax.integrations.gymnasium:TaskEnv", kwargs={"task": task})
