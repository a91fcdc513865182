"""The names of methods, tasks and agents, and how `module:Class` is found.

Whose names they are decides how. `find_task` and `find_method` take what the user types: `module:Class` is imported,
from the working directory first. `builtin_task` and `builtin_method` take what a file says: they look among Curiax's
own, import nothing and leave `sys.path` alone. Whoever says `--trust` makes a file's names their own.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from .._errors import UsageError, unknown
from ..agents import AbstractAgent, CuriousAgent
from ..agents.ppo import BIBTEX
from ..curiosity import (
    E3B,
    ICM,
    LBS,
    NGU,
    RE3,
    RIDE,
    RND,
    VIME,
    AbstractCuriosity,
    Disagreement,
    NovelD,
    SimHashCounts,
    Surprisal,
)
from ..envs import AbstractAnyTask, AntMaze, Atari, GymnasiumTask, HalfCheetah, Mario, MountainCar, NoisyMNIST
from ..envs.atari import ATARI, PAPER, known

Kind = TypeVar("Kind")
Entry = TypeVar("Entry", "MethodEntry", "TaskEntry", "AgentEntry")


@dataclass(frozen=True)
class MethodEntry:
    """A method under a name, with the settings that make it an ablation; or an agent that no bonus is paid to."""

    name: str
    #: None where there is no bonus.
    cls: type[AbstractCuriosity] | None
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: Digest of a user's source file, so that a changed method is not taken for the one already run.
    source: str = ""
    #: Who acts: PPO, or uniformly random actions.
    agent: Literal["ppo", "uniform"] = "ppo"

    @property
    def method(self) -> type[AbstractCuriosity]:
        """The class of the method, where there must be one."""
        if self.cls is None:
            raise UsageError(f"{self.name!r} pays no bonus: {self.summary}. Name a method that does (curiax list).")
        return self.cls

    @property
    def bibtex(self) -> str:
        """How to cite it; without a method, the agent."""
        return self.cls.bibtex if self.cls is not None else BIBTEX if self.agent == "ppo" else ""


@dataclass(frozen=True)
class AgentEntry:
    """An agent under a name."""

    name: str
    cls: type[AbstractAgent]
    summary: str
    source: str = ""

    @property
    def curious(self) -> bool:
        """Whether it is one of Curiax's own pairs of a policy learner and a method."""
        return self.cls is CuriousAgent


#: Whom a method may be paired with; who is not asked for comes from the method.
AGENTS: dict[str, AgentEntry] = {
    entry.name: entry
    for entry in (
        AgentEntry("ppo", CuriousAgent, "proximal policy optimisation, which the bonus is paid to"),
        AgentEntry("uniform", CuriousAgent, "uniformly random actions, which a method's model may learn from"),
    )
}


@dataclass(frozen=True)
class TaskEntry:
    """A task under a name, with what it sets: its noisy remote if it has one, its own way of being trained on."""

    name: str
    cls: type[AbstractAnyTask]
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""


METHODS: dict[str, MethodEntry] = {
    entry.name: entry
    for entry in (
        MethodEntry("lbs", LBS, "latent Bayesian surprise: KL of posterior and prior over a latent next state"),
        MethodEntry("icm", ICM, "error of a forward model in inverse-dynamics features"),
        MethodEntry("rnd", RND, "error of imitating a random network on the state reached"),
        MethodEntry("disagreement", Disagreement, "variance of an ensemble's predictions of the next state"),
        MethodEntry("vime", VIME, "information gained about the weights of a Bayesian network"),
        MethodEntry("ride", RIDE, "impact on learnt features, divided by an episodic count"),
        MethodEntry("ngu", NGU, "episodic novelty, modulated by random network distillation"),
        MethodEntry("re3", RE3, "distance to the nearest neighbours among random embeddings of earlier states"),
        MethodEntry("e3b", E3B, "features that point where the episode has not been, in inverse-dynamics features"),
        MethodEntry("noveld", NovelD, "rise of random network distillation's error, at first visits of the episode"),
        MethodEntry("simhash", SimHashCounts, "count of the state's hash: one over its root"),
        MethodEntry("surprisal", Surprisal, "error of predicting random features of the next state"),
        MethodEntry("random", None, "uniformly random actions, no learning", agent="uniform"),
        MethodEntry("none", None, "plain PPO on the task's own reward"),
        MethodEntry(
            "surprisal-idf", Surprisal, "surprisal in inverse-dynamics features", {"method.features": "inverse"}
        ),
        MethodEntry("surprisal-vae", Surprisal, "surprisal in an autoencoder's features", {"method.features": "vae"}),
        MethodEntry("surprisal-pixels", Surprisal, "surprisal in pixels themselves", {"method.features": "pixels"}),
        MethodEntry(
            "lbs-pixels",
            LBS,
            "LBS that reconstructs the next image itself, not features of it; β as in the paper's appendix",
            {"method.target": "pixels", "method.beta": 1.0},
        ),
        MethodEntry("ride-no-count", RIDE, "ablation: RIDE without the episodic count", {"method.count": False}),
        MethodEntry("ngu-no-count", NGU, "ablation: NGU without episodic novelty, i.e. RND", {"method.count": False}),
        MethodEntry("lbs-mean", LBS, "ablation: LBS paying the distance of the means only", {"method.bonus": "mean"}),
        MethodEntry("lbs-nll", LBS, "ablation: LBS paying KL plus reconstruction error", {"method.bonus": "kl+nll"}),
    )
}

#: What names of Gymnasium's environments begin with.
GYMNASIUM = "gymnasium:"

#: How the paper trains on arcade games: 128 environments x 128 steps, 3 epochs of 8 minibatches.
ARCADE_SETTINGS: Mapping[str, Any] = {
    "loop.envs": 128,
    "loop.rollout": 128,
    "loop.normalise_obs": True,
    # The released code does not clip images, and no standardised pixel comes near this.
    "loop.obs_clip": 1e6,
    "ppo.width": 512,
    "ppo.epochs": 3,
    "ppo.minibatch_size": 2048,
    "ppo.learning_rate": 1e-4,
    "ppo.clip": 0.1,
    "ppo.entropy_weight": 0.001,
    "learner.epochs": 3,
    "learner.minibatch_size": 2048,
    "learner.learning_rate": 1e-4,
}


def game_entry(game: str) -> TaskEntry:
    """The entry of a game by ale-py's name."""
    title = game.replace("_", " ").title()
    summary = f"Atari's {title} from pixels, score and length of episodes; needs curiax[atari]"
    return TaskEntry(f"{ATARI}{game}", Atari, summary, {"task.game": game, **ARCADE_SETTINGS})


TASKS: dict[str, TaskEntry] = {
    entry.name: entry
    for entry in (
        TaskEntry("mountain-car", MountainCar, "sparse continuous Mountain Car, coverage of (position, velocity)"),
        TaskEntry(
            "mountain-car-frozen",
            MountainCar,
            "Mountain Car with a noisy remote that freezes the car",
            {"remote.mode": "frozen"},
        ),
        TaskEntry(
            "mountain-car-evolving",
            MountainCar,
            "Mountain Car with a noisy remote that lets the car drift",
            {"remote.mode": "evolving"},
        ),
        TaskEntry(
            "half-cheetah",
            HalfCheetah,
            "MuJoCo's Half-Cheetah, coverage of (x-velocity, pitch velocity); needs curiax[mujoco]",
        ),
        TaskEntry(
            "ant-maze",
            AntMaze,
            "MuJoCo's Ant in a C-shaped corridor, coverage of its seven cells; needs curiax[mujoco]",
        ),
        TaskEntry(
            "mnist",
            NoisyMNIST,
            "pictures of digits: 0 goes to some 1, 1 to any of 2..9; nothing to choose, only bonuses to compare",
            # One gradient step for each batch of 128 fresh transitions.
            {
                "loop.envs": 128,
                "loop.rollout": 4,
                "loop.successor": "true",
                "learner.epochs": 1,
                "learner.minibatch_size": 128,
                "learner.learning_rate": 1e-4,
            },
        ),
        *map(game_entry, PAPER),
        TaskEntry(
            "mario",
            Mario,
            "Super Mario Bros. from pixels, distance and length of episodes; needs curiax[mario], a proprietary game",
            ARCADE_SETTINGS,
        ),
    )
}


def paths(*classes: type) -> dict[str, type]:
    """The classes by the module that defines them, and by the package that shows them."""
    modules = ((cls, cls.__module__) for cls in classes)
    return {f"{place}:{cls.__name__}": cls for cls, own in modules for place in (own, own.rpartition(".")[0])}


#: Curiax's own classes by their paths, `curiax.curiosity.lbs:LBS` or `curiax.curiosity:LBS`.
BUILTIN_METHODS: Mapping[str, type[AbstractCuriosity]] = paths(
    *(entry.cls for entry in METHODS.values() if entry.cls is not None)
)
BUILTIN_TASKS: Mapping[str, type[AbstractAnyTask]] = paths(GymnasiumTask, *(entry.cls for entry in TASKS.values()))


def find_method(name: str | type[AbstractCuriosity]) -> MethodEntry:
    """The method that the user means by a name, their own `module:Class` or a class."""
    own = builtin_method(name) if isinstance(name, str) else None
    if own is not None:
        return own
    return class_entry(MethodEntry, user_class(name, AbstractCuriosity, "method", METHODS))


def find_task(name: str | type[AbstractAnyTask]) -> TaskEntry:
    """The task that the user means by a name, `gymnasium:ID`, `atari:GAME`, their own `module:Class` or a class."""
    own = builtin_task(name) if isinstance(name, str) else None
    if own is not None:
        return own
    if isinstance(name, str) and name.startswith(GYMNASIUM):
        return gymnasium_task(name)
    return class_entry(TaskEntry, user_class(name, AbstractAnyTask, "task", TASKS))


def builtin_method(name: str) -> MethodEntry | None:
    """The method of Curiax that a file names, also by the path of its class; None for any other."""
    cls = BUILTIN_METHODS.get(name)
    return METHODS.get(name) or (cls and class_entry(MethodEntry, cls))


def builtin_task(name: str) -> TaskEntry | None:
    """The task of Curiax that a file names; None for any other, and for `gymnasium:module:ID`, which imports."""
    if name.startswith(GYMNASIUM):
        return None if ":" in name.removeprefix(GYMNASIUM) else gymnasium_task(name)
    if name.startswith(ATARI):
        return atari_task(name)
    cls = BUILTIN_TASKS.get(name)
    return TASKS.get(name) or (cls and class_entry(TaskEntry, cls))


def find_agent(name: str | type[AbstractAgent]) -> AgentEntry:
    """The agent that the user means by a name, their own `module:Class` or a class."""
    own = AGENTS.get(name) if isinstance(name, str) else None
    return own or class_entry(AgentEntry, user_class(name, AbstractAgent, "agent", AGENTS))


def foreign(task: str, method: str, settings: Mapping[str, Any], agent: str = "") -> list[str]:
    """Whatever in an experiment is code that is not Curiax's: setting it up would import and run that."""
    # `module:ID` as a setting makes Gymnasium import the module. No setting of Curiax's own has a colon in it.
    modules = [value for value in settings.values() if isinstance(value, str) and ":" in value]
    own = task.startswith(ATARI) or builtin_task(task) is not None
    agents = [agent] * (agent not in ("", *AGENTS))
    return [task] * (not own) + [method] * (builtin_method(method) is None) + agents + modules


def whence(name: str) -> str:
    """What importing `module:Class`, `gymnasium:module:ID` or `module:ID` would run, in words; nothing is imported."""
    module, colon, _ = name.removeprefix(GYMNASIUM).partition(":")
    if not colon:
        return "what this version does not know"
    found = importlib.machinery.PathFinder.find_spec(module.partition(".")[0], [os.getcwd(), *sys.path])
    return f"the module {module!r} ({(found and found.origin) or 'which is not found here'})"


def class_entry(kind: type[Entry], cls: type) -> Entry:
    """The entry of a class that goes by its path."""
    return kind(class_name(cls), cls, (cls.__doc__ or "").strip().split("\n")[0], source=source_digest(cls))


def gymnasium_task(name: str) -> TaskEntry:
    """The entry of `gymnasium:ID` or `gymnasium:module:ID`; whether there is such an environment shows later."""
    env_id = name.removeprefix(GYMNASIUM)
    if not env_id:
        raise UsageError(f"task {name!r}: name a Gymnasium environment after the colon, as gymnasium:CartPole-v1.")
    source = module_digest(env_id.rpartition(":")[0])
    return TaskEntry(name, GymnasiumTask, f"Gymnasium's {env_id}", {"task.id": env_id}, source=source)


def atari_task(name: str) -> TaskEntry:
    """The entry of `atari:GAME`, any game that ale-py has, however it is spelt."""
    game = name.removeprefix(ATARI)
    if not game.strip():
        raise UsageError(f"task {name!r}: name a game after the colon, as atari:breakout.")
    entry = game_entry(known(game))
    return TASKS.get(entry.name, entry)


def module_digest(module: str) -> str:
    """A digest of the file of a module that registers environments; empty where there is none to read."""
    if not module:
        return ""
    look_here()
    try:
        found = importlib.util.find_spec(module)
        return hashlib.blake2b(Path((found and found.origin) or "").read_bytes(), digest_size=6).hexdigest()
    except (ImportError, ValueError, OSError):
        return ""


def source_digest(cls: type) -> str:
    """A digest of the file that defines a class; empty where there is none to read."""
    try:
        text = Path(inspect.getfile(cls)).read_bytes()
    except (OSError, TypeError):
        return ""
    return hashlib.blake2b(text, digest_size=6).hexdigest()


def class_name(cls: type) -> str:
    """`module:Class`."""
    return f"{cls.__module__}:{cls.__qualname__}"


def user_class(name: str | type, base: type[Kind], kind: str, known: Mapping[str, Any]) -> type[Kind]:
    """The class meant by `module:Class`, checked to be a finished subclass of `base`."""
    cls = load_class(name, kind, known) if isinstance(name, str) else name
    wanted = "AbstractTask or curiax.AbstractHostTask" if base is AbstractAnyTask else base.__name__
    wanted = f"agents.{wanted}" if base is AbstractAgent else wanted
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise UsageError(f"{kind} {name!r} is not a subclass of curiax.{wanted}.")
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        raise UsageError(f"{kind} {name!r} does not define {', '.join(missing)}, which curiax.{wanted} asks for.")
    return cls


def look_here() -> str:
    """Let modules of the working directory be found: the user has named one, or says to trust the file that does."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        raise UsageError("the working directory, where modules are looked for, is gone: change into another.") from None
    if here not in sys.path:
        sys.path.insert(0, here)
    return here


def load_class(name: str, kind: str, known: Mapping[str, Any]) -> Any:
    """Import `module:Class`, looking in the working directory first."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        hint = f"Your own {kind} is named module:Class, for example my_file:MyClass."
        if kind == "task":
            hint += " A Gymnasium environment is named gymnasium:ID, a game of Atari's atari:GAME."
        raise unknown(kind, name, known, hint)
    if module_name.endswith(".py") or "/" in module_name:
        suggestion = module_name.removesuffix(".py").replace("/", ".")
        raise UsageError(f"{kind} {name!r}: name a module, not a file: {suggestion}:{attribute}.")
    here = look_here()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.split(".")[0] == error.name.split(".")[0]:
            raise UsageError(f"{kind} {name!r}: no module {module_name!r} in {here} or on the Python path.") from None
        raise UsageError(f"{kind} {name!r}: importing it failed: {error}.") from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"{kind} {name!r}: importing it failed: {type(error).__name__}: {error}") from error
    found = getattr(module, attribute, None)
    if found is None:
        names = [n for n, value in vars(module).items() if isinstance(value, type)]
        raise unknown(f"class in {module_name}", attribute, names)
    return found
