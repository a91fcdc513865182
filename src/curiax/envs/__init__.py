"""Tasks: one file each, all against `AbstractTask`."""

from ._base import AbstractTask, Probe
from .mountain_car import MountainCar
from .remote import NoisyRemote, RemoteSettings

__all__ = ["AbstractTask", "MountainCar", "NoisyRemote", "Probe", "RemoteSettings"]
