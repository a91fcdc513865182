"""Curiax: curiosity-driven exploration in JAX.

Latent Bayesian Surprise (AAAI 2022) and the methods it is compared with, trained at the speed of the hardware.

    import curiax
    result = curiax.run(curiax.Experiment("mountain-car", "lbs", seeds=8))
    result.final()            # coverage of each seed
"""

from . import envs, nn
from ._errors import ContractError, CuriaxError, NonFiniteError, OutputError, SimulatorError, UsageError
from ._tree import Frozen
from ._types import Axis, Box, Discrete, Grid, PRNGKey, Rollout, Scalar, Spec, Transition
from ._version import __version__
from .agents import PPOSettings
from .curiosity import AbstractCuriosity, Learner, LearnerSettings
from .envs import AbstractFleet, AbstractHostTask, AbstractTask, HostRemote, NoisyRemote, RemoteSettings
from .experiments.options import RunOptions
from .experiments.run import RunResult, run
from .experiments.spec import Experiment, resolve
from .integrations import gymnasium as _gymnasium
from .train.loop import LoopSettings

__all__ = [
    "AbstractCuriosity",
    "AbstractFleet",
    "AbstractHostTask",
    "AbstractTask",
    "Axis",
    "Box",
    "ContractError",
    "CuriaxError",
    "Discrete",
    "Experiment",
    "Frozen",
    "Grid",
    "HostRemote",
    "Learner",
    "LearnerSettings",
    "LoopSettings",
    "NoisyRemote",
    "NonFiniteError",
    "OutputError",
    "PPOSettings",
    "PRNGKey",
    "RemoteSettings",
    "Rollout",
    "RunOptions",
    "RunResult",
    "Scalar",
    "SimulatorError",
    "Spec",
    "Transition",
    "UsageError",
    "__version__",
    "envs",
    "nn",
    "resolve",
    "run",
]

_gymnasium.register()
