"""Curiosity methods: one file each, all against `AbstractCuriosity`."""

from ._base import AbstractCuriosity, explanation, score, start_memory
from .disagreement import Disagreement
from .e3b import E3B
from .icm import ICM
from .lbs import LBS
from .learner import Learner, LearnerSettings, LearnerState
from .ngu import NGU
from .noveld import NovelD
from .re3 import RE3
from .ride import RIDE
from .rnd import RND
from .simhash import SimHashCounts
from .surprisal import Surprisal
from .vime import VIME

__all__ = [
    "E3B",
    "ICM",
    "LBS",
    "NGU",
    "RE3",
    "RIDE",
    "RND",
    "VIME",
    "AbstractCuriosity",
    "Disagreement",
    "Learner",
    "LearnerSettings",
    "LearnerState",
    "NovelD",
    "SimHashCounts",
    "Surprisal",
    "explanation",
    "score",
    "start_memory",
]
