"""Curiax: curiosity-driven exploration in JAX.

Latent Bayesian Surprise (AAAI 2022) and the methods it is compared with, trained at the speed of the hardware.

    import curiax
    result = curiax.run(curiax.Experiment("mountain-car", "lbs", seeds=8))
    result.final()            # coverage of each seed
    agent = curiax.load("runs/...")
    agent.act(observation)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._errors import (
    BusyError,
    CheckpointError,
    ContractError,
    CuriaxError,
    Interrupted,
    NonFiniteError,
    OutputError,
    SimulatorError,
    UsageError,
)
from ._version import __version__
from .integrations import register as _register

if TYPE_CHECKING:
    from . import dist, envs, nn
    from ._metrics import Metric
    from ._tree import Frozen
    from ._types import Axis, Box, Discrete, Grid, PRNGKey, Rollout, Scalar, Spec, Transition
    from .agents import PPOSettings
    from .curiosity import AbstractCuriosity, Learner, LearnerSettings
    from .envs import AbstractFleet, AbstractHostTask, AbstractTask, HostRemote, NoisyRemote, RemoteSettings
    from .experiments.options import RunOptions
    from .experiments.run import RunResult, run
    from .experiments.spec import Experiment, resolve
    from .integrations.bonus import Bonus
    from .integrations.vector import CuriousVectorEnv
    from .train.loop import LoopSettings
    from .trained import Trained, export, load

#: Where the names live that are imported when they are first asked for: to load an agent and act takes neither JAX nor
#: anything of training.
_HOMES = {
    "_metrics": "Metric",
    "_tree": "Frozen",
    "_types": "Axis Box Discrete Grid PRNGKey Rollout Scalar Spec Transition",
    "agents": "PPOSettings",
    "curiosity": "AbstractCuriosity Learner LearnerSettings",
    "envs": "AbstractFleet AbstractHostTask AbstractTask HostRemote NoisyRemote RemoteSettings",
    "experiments.options": "RunOptions",
    "experiments.run": "RunResult run",
    "experiments.spec": "Experiment resolve",
    "integrations.bonus": "Bonus",
    "integrations.vector": "CuriousVectorEnv",
    "train.loop": "LoopSettings",
    "trained": "Trained export load",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in ("dist", "envs", "nn"):
        return importlib.import_module(f".{name}", __name__)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    return value


__all__ = [
    "AbstractCuriosity",
    "AbstractFleet",
    "AbstractHostTask",
    "AbstractTask",
    "Axis",
    "Bonus",
    "Box",
    "BusyError",
    "CheckpointError",
    "ContractError",
    "CuriaxError",
    "CuriousVectorEnv",
    "Discrete",
    "Experiment",
    "Frozen",
    "Grid",
    "HostRemote",
    "Interrupted",
    "Learner",
    "LearnerSettings",
    "LoopSettings",
    "Metric",
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
    "Trained",
    "Transition",
    "UsageError",
    "__version__",
    "dist",
    "envs",
    "export",
    "load",
    "nn",
    "resolve",
    "run",
]

_register()
