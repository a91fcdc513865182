"""Curiosity methods: one file each, all against `AbstractCuriosity`."""

from ._base import AbstractCuriosity, explanation, score, start_memory
from .disagreement import Disagreement
from .icm import ICM
from .lbs import LBS
from .learner import Learner, LearnerSettings, LearnerState
from .ngu import NGU
from .none import NoBonus
from .random import Random
from .ride import RIDE
from .rnd import RND
from .vime import VIME

__all__ = [
    "ICM",
    "LBS",
    "NGU",
    "RIDE",
    "RND",
    "VIME",
    "AbstractCuriosity",
    "Disagreement",
    "Learner",
    "LearnerSettings",
    "LearnerState",
    "NoBonus",
    "Random",
    "explanation",
    "score",
    "start_memory",
]
