"""Tasks: one file each, in two families: pure JAX (`AbstractTask`) and on the host (`AbstractHostTask`)."""

from ._base import AbstractAnyTask, AbstractTask
from ._emulators import AbstractEmulatorTask, EmulatorFleet
from ._evaluation import Probe, Samples
from ._host import AbstractFleet, AbstractHostTask
from .ant_maze import AntMaze
from .atari import Atari
from .gymnasium_task import GymnasiumTask
from .half_cheetah import HalfCheetah
from .mario import Mario
from .mountain_car import MountainCar
from .noisy_mnist import NoisyMNIST
from .remote import HostRemote, NoisyRemote, RemoteSettings, with_remote

__all__ = [
    "AbstractAnyTask",
    "AbstractEmulatorTask",
    "AbstractFleet",
    "AbstractHostTask",
    "AbstractTask",
    "AntMaze",
    "Atari",
    "EmulatorFleet",
    "GymnasiumTask",
    "HalfCheetah",
    "HostRemote",
    "Mario",
    "MountainCar",
    "NoisyMNIST",
    "NoisyRemote",
    "Probe",
    "RemoteSettings",
    "Samples",
    "with_remote",
]
