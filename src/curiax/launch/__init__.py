"""Spreading the runs of a suite over processes of this machine, or over a Ray cluster.

A run is an idempotent function of its experiment that continues from its folder, so all a launcher has to see to is
that every run gets finished there: a lost worker means "call it again". The results are then read from the folders, as
those of any finished run are.
"""

from . import show
from ._base import AbstractLauncher, Ending
from .driver import launch
from .job import Job
from .local import Local
from .ray_cluster import RayCluster
from .sweep import choose, launch_experiments

__all__ = ["AbstractLauncher", "Ending", "Job", "Local", "RayCluster", "choose", "launch", "launch_experiments", "show"]
