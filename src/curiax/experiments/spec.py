"""An experiment as the user says it, and as it is resolved before anything is compiled."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import jax
import numpy as np

from .._contract import build_method
from .._errors import ContractError, CuriaxError, UsageError, unknown
from .._metrics import Metric, headline
from .._settings import checked, defaults, signature
from .._text import checked_name
from .._types import Discrete, Spec
from .._version import __version__
from ..agents import PPO, AbstractAgent, AbstractPolicyLearner, CuriousAgent, PPOSettings, Uniform
from ..curiosity import AbstractCuriosity, Learner, LearnerSettings
from ..envs import AbstractAnyTask, RemoteSettings, with_remote
from ..train.loop import LoopSettings, Setup
from ..train.measures import measured, metrics_of
from .options import OnNonfinite
from .presets import FOR_TASK_REWARD, PRESETS
from .registry import (
    AgentEntry,
    MethodEntry,
    TaskEntry,
    class_name,
    find_agent,
    find_method,
    find_task,
    foreign,
    look_here,
    whence,
)

#: A bound against slips of the finger; memory ends long before.
MOST_SEEDS = 65_536
#: Settings that earlier versions had, and what to do instead.
RETIRED = {
    "loop.coverage": "which metric is shown first is no setting of a run any more: --headline coverage/cells or "
    "coverage/bins (in Python RunOptions(headline=...))"
}
#: The parameter of an agent of the user's that takes a method; it is no setting.
METHOD = "build_method"
GROUPS = {"ppo": PPOSettings, "learner": LearnerSettings, "loop": LoopSettings, "remote": RemoteSettings}


@dataclass(frozen=True)
class Experiment:
    """One task, one method, some seeds.

    Args:
        task: a name from `curiax list`, `module:Class`, `gymnasium:ID`, `atari:GAME`, or a subclass of `AbstractTask`
            or `AbstractHostTask`.
        method: a name from `curiax list`, `module:Class`, or a subclass of `AbstractCuriosity`.
        seeds: how many (0, 1, ...), or which.
        steps: environment steps of each seed; None is the task's full budget.
        preset: `paper-code`, `paper-text`, `clean`, `curiax` or, for arcade games, `small`.
        settings: whatever else differs from the preset, by dotted name: `ppo.*`, `learner.*`, `loop.*`,
            `remote.*`, `method.*` (the method's constructor), `task.*` (the task's constructor), `agent.*` (that of an
            agent of your own).
        label: what tables and figures call it; empty: the method's name, or that of an agent of your own.
        agent: who acts and learns: `ppo`, `uniform`, `module:Class` or a subclass of `curiax.agents.AbstractAgent`;
            empty: as the method has it, which is PPO but for `random`.
    """

    task: str | type[AbstractAnyTask]
    method: str | type[AbstractCuriosity]
    seeds: int | Iterable[int] = 8
    steps: int | None = None
    preset: str = "paper-code"
    settings: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    agent: str | type[AbstractAgent] = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seeds", seed_list(self.seeds))
        if isinstance(self.steps, np.integer):
            object.__setattr__(self, "steps", int(self.steps))
        if not isinstance(self.preset, str):
            raise UsageError(f"preset = {self.preset!r}: must be one of {', '.join(PRESETS)}.")
        if not isinstance(self.label, str):
            raise UsageError(f"label = {self.label!r}: must be text.")
        checked_name("label", self.label)
        if not isinstance(self.settings, Mapping) or not all(isinstance(name, str) for name in self.settings):
            raise UsageError(f"settings = {self.settings!r}: must map dotted names to values, as {{'ppo.clip': 0.1}}.")
        # Plain data from the start, so that nothing fails when the manifest is written.
        object.__setattr__(self, "settings", {name: plain(name, value) for name, value in self.settings.items()})

    def as_json(self) -> dict[str, Any]:
        """Plain data; without the agent where none is asked for, as earlier versions had it."""
        agent = self.agent if isinstance(self.agent, str) else class_name(self.agent)
        return {
            **({"agent": agent} if agent else {}),
            "task": self.task if isinstance(self.task, str) else class_name(self.task),
            "method": self.method if isinstance(self.method, str) else class_name(self.method),
            "seeds": list(seed_list(self.seeds)),
            "steps": self.steps,
            "preset": self.preset,
            "settings": dict(self.settings),
            "label": self.label,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Experiment:
        """The experiment that `as_json` wrote."""
        known = {"task", "method", "seeds", "steps", "preset", "settings", "label"}
        if not isinstance(data, Mapping) or set(data) - {"agent"} != known:
            raise UsageError(f"not an experiment: expected the fields {', '.join(sorted(known))}.")
        return Experiment(**{**data, "seeds": tuple(data["seeds"])})


@dataclass(frozen=True)
class Plan:
    """An experiment with every choice made and checked."""

    experiment: Experiment
    task_entry: TaskEntry
    method_entry: MethodEntry
    agent_entry: AgentEntry
    seeds: tuple[int, ...]
    steps: int
    iterations: int
    settings: Mapping[str, Any]
    setup: Setup
    method_settings: Mapping[str, Any]

    def with_nonfinite(self, choice: OnNonfinite) -> Plan:
        """The same plan with this choice of what happens to values that are not finite."""
        return replace(self, setup=replace(self.setup, on_nonfinite=choice))

    @property
    def build_method(self) -> MethodBuilder | None:
        """What draws the method's networks from a key; None without a method."""
        return MethodBuilder(self.method_entry, self.setup.task.spec, self.method_settings) if self.pays else None

    @property
    def pays(self) -> bool:
        """Whether a bonus is paid."""
        return self.method_entry.cls is not None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What is declared of everything that takes part, in the order in which it is shown."""
        return metrics_of(self.setup.task, self.setup.agent)

    def headline(self, names: Iterable[str], wanted: str | None = None) -> str | None:
        """Which of the metrics with these names is shown first: the wanted one, else the preset's, else by rank."""
        return headline(measured(names, self.metrics), wanted, PRESETS[self.experiment.preset].headline)

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the result: two runs with equal identity are the same run."""
        return {
            "task": self.task_entry.name,
            "method": self.method_entry.name,
            "seeds": list(self.seeds),
            "steps": self.steps,
            "settings": dict(self.settings),
            "source": self.task_entry.source + self.method_entry.source + self.agent_entry.source,
            **({"agent": self.agent_entry.name} if self.experiment.agent else {}),
            "curiax": __version__,
        }

    @property
    def name(self) -> str:
        """What tables and figures call it."""
        own = "" if self.agent_entry.curious else self.agent_entry.name.rpartition(":")[2]
        return self.experiment.label or own or self.method_entry.name

    @property
    def learner(self) -> str:
        """The name of the method, or of an agent of the user's own."""
        return self.method_entry.name if self.agent_entry.curious else self.agent_entry.name

    @property
    def run_id(self) -> str:
        """A short digest of the identity."""
        text = json.dumps(self.identity, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


@dataclass(frozen=True, eq=False)
class MethodBuilder:
    """Draws a method's networks; two with equal parts are equal, so that programs compiled with one serve the other."""

    entry: MethodEntry
    spec: Spec
    settings: Mapping[str, Any]

    def __call__(self, key: jax.Array) -> AbstractCuriosity:
        return build_method(self.entry.method, self.spec, key, self.entry.name, **self.settings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MethodBuilder) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[Any, ...]:
        return self.entry.cls, self.entry.name, self.spec, repr(sorted(self.settings.items()))


def plain(name: str, value: Any) -> Any:
    """A setting's value as it reads back from JSON: tuples become lists, NumPy's numbers Python's."""

    def describe(thing: Any) -> Any:
        if isinstance(thing, np.generic | np.ndarray):
            return thing.tolist()
        raise UsageError(f"{name} = {thing!r}: settings must be plain data: numbers, text, lists.")

    try:
        text = json.dumps(value, default=describe, allow_nan=False, ensure_ascii=False)
        text.encode()  # what no file could hold must not be noticed when the run is written
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"{name} = {value!r}: must be a finite number, text, or a list of such.") from None


def seed_list(seeds: int | Iterable[int]) -> tuple[int, ...]:
    """0..n-1 for a number, or the seeds as given; each a distinct integer in 0..2³²−1."""
    if isinstance(seeds, int | np.integer) and not isinstance(seeds, bool):
        if seeds > MOST_SEEDS:
            raise UsageError(f"seeds = {seeds}: at most {MOST_SEEDS} seeds can be trained at once.")
        seeds = range(int(seeds))
    if isinstance(seeds, bool | str) or not isinstance(seeds, Iterable):
        raise UsageError(f"seeds = {seeds!r}: give a number of seeds, or a list of them.")
    listed = tuple(seeds)
    if not listed:
        raise UsageError("seeds: give at least one seed.")
    for seed in listed:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
            raise UsageError(f"seeds: {seed!r} is not an integer between 0 and 2^32 - 1.")
    chosen = tuple(int(seed) for seed in listed)
    if len(set(chosen)) != len(chosen):
        raise UsageError(f"seeds: {', '.join(map(str, chosen))} repeats a seed; each run needs its own.")
    return chosen


def resolve(experiment: Experiment, *, trust: bool = True) -> Plan:
    """Find the names, apply the preset, check every setting and shape.

    Names are the user's, and may be of their own classes; without `trust` they are a file's, and only Curiax's are
    looked up.
    """
    if not trust:
        refuse_foreign(experiment)
    if experiment.preset not in PRESETS:
        raise unknown("preset", experiment.preset, PRESETS)
    preset = PRESETS[experiment.preset]
    task_entry, method_entry = find_task(experiment.task), find_method(experiment.method)
    agent_entry = find_agent(experiment.agent or method_entry.agent)
    if method_entry.cls is None and agent_entry.curious and agent_entry.name != method_entry.agent:
        # Trained on, it would be called what it is not.
        raise UsageError(
            f"agent = {agent_entry.name!r}: {method_entry.name!r} stands for the agent {method_entry.agent!r} "
            "without a method (random: uniform, none: ppo); leave one of them out."
        )
    seeds = seed_list(experiment.seeds)
    overrides = by_group(experiment.settings)
    if trust and ":" in str(overrides.get("task", {}).get("id", "")):
        look_here()

    def group(name: str, *layers: Mapping[str, Any]) -> Any:
        values = {key: value for layer in layers for key, value in layer.items()}
        return GROUPS[name](**checked(GROUPS[name], values, name))

    named = by_group(task_entry.settings)
    remote = group("remote", named.get("remote", {}), overrides.get("remote", {}))
    above = by_group(preset.above)
    if above and not task_entry.cls.screen:
        raise UsageError(f"preset {experiment.preset!r} is for arcade games; task {task_entry.name!r} is none.")
    task_settings = {
        **named.get("task", {}),
        **known(task_entry.cls, above.get("task", {})),
        **overrides.get("task", {}),
    }
    task_settings = checked(task_entry.cls, task_settings, "task")
    task = build_task(task_entry, task_settings, remote)

    of_preset = by_group(preset.settings)
    cls, plain_ppo = method_entry.cls, method_entry.cls is None and agent_entry.name != "uniform"
    first: dict[str, Any] = {
        # Without a bonus there is only the task's reward to learn from.
        "extrinsic_weight": float(plain_ppo),
        "intrinsic_weight": float(not plain_ppo),
        "normalise_obs": not scaled_image(task.spec),
    }

    layers = [{"loop": first}, of_preset, named, above, overrides]
    if group("loop", *(by.get("loop", {}) for by in layers)).extrinsic_weight != 0:
        layers.insert(2, by_group(FOR_TASK_REWARD))
    ppo, learner, loop = (group(name, *(by.get(name, {}) for by in layers)) for name in ("ppo", "learner", "loop"))
    asked = {
        **preset.method_settings(cls, task),
        **by_group(method_entry.settings).get("method", {}),
        **({} if cls is None else known(cls, above.get("method", {}))),
        **overrides.get("method", {}),
    }
    if cls is None and asked:
        raise UsageError(f"method.{next(iter(asked))}: {method_entry.name!r} is no method and has no settings.")
    method_settings = {} if cls is None else {**defaults(cls), **checked(cls, asked, "method")}
    if loop.mixed_precision and not task.screen:
        raise UsageError(f"loop.mixed_precision is for arcade games; task {task_entry.name!r} is none.")
    steps, iterations = whole_iterations(experiment.steps, task_entry.cls.budget, loop)
    builder = None if cls is None else MethodBuilder(method_entry, task.spec, method_settings)
    parts = {"ppo": asdict(ppo), "learner": asdict(learner), "loop": asdict(loop), "remote": asdict(remote)}
    parts |= {"method": method_settings, "task": {**defaults(task_entry.cls), **task_settings}}
    agent: AbstractAgent
    if agent_entry.curious:
        if "agent" in overrides:
            raise UsageError(f"agent.{next(iter(overrides['agent']))}: only an agent of your own has such settings.")
        check_sizes(ppo, learner, loop)
        no_choice = isinstance(task.spec.action, Discrete) and task.spec.action.n == 1
        uniform = no_choice or agent_entry.name == "uniform"
        policy: AbstractPolicyLearner = Uniform() if uniform else PPO(ppo)
        if not uniform:
            check_heads(ppo, loop)
        agent = CuriousAgent(task.spec, policy, Learner(learner), builder, loop, () if cls is None else cls.metrics)
    else:
        for name in ("ppo", "learner"):
            if name in overrides:
                setting = f"{name}.{next(iter(overrides[name]))}"
                raise UsageError(f"{setting}: the agent {agent_entry.name!r} has settings of its own, agent.*.")
            del parts[name]
        own = checked(agent_entry.cls, overrides.get("agent", {}), "agent")
        parts["agent"] = {name: value for name, value in (defaults(agent_entry.cls) | own).items() if name != METHOD}
        agent = build_agent(agent_entry, task.spec, builder, parts["agent"])
    flat = {
        f"{name}.{key}": f"{value.__module__}:{value.__qualname__}"
        if callable(value)
        else plain(f"{name}.{key}", value)
        for name, values in parts.items()
        for key, value in values.items()
    }
    setup = Setup(task, agent, loop)
    return Plan(
        experiment, task_entry, method_entry, agent_entry, seeds, steps, iterations, flat, setup, method_settings
    )


def build_agent(
    entry: AgentEntry, spec: Spec, builder: MethodBuilder | None, settings: Mapping[str, Any]
) -> AbstractAgent:
    """An agent of the user's; one that takes a method gets what draws its networks, or None without a method."""
    takes = inspect.signature(entry.cls).parameters
    given: dict[str, Any] = {METHOD: builder} if METHOD in takes else {}
    if builder is not None and not given:
        raise UsageError(
            f"the agent {entry.name!r} takes no method: train it with --method none, or give its constructor a "
            f"parameter `{METHOD}`, which draws the method's networks from a key."
        )
    try:
        return entry.cls(spec, **given, **settings)
    except CuriaxError:
        raise
    except (Exception, SystemExit) as error:
        raise ContractError(f"constructing agent {entry.name!r} failed: {type(error).__name__}: {error}") from error


def refuse_foreign(experiment: Experiment) -> None:
    """Refuse whatever is not Curiax's own, before anything is imported."""
    data = experiment.as_json()
    for name in foreign(data["task"], data["method"], data["settings"], data.get("agent", "")):
        raise UsageError(f"{name!r} is not Curiax's own: it would import and run {whence(name)}.")


def known(cls: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the settings that a class has."""
    return {name: value for name, value in settings.items() if name in signature(cls)}


def scaled_image(spec: Spec) -> bool:
    """Whether observations are images that are not said to leave 0..1: these are left as they are.

    Running statistics would make a spectacle of pixels that hardly ever change; bytes of 0..255 still need them.
    """
    return spec.image and all(0 <= bound <= 1 for bound in (*(spec.obs_low or ()), *(spec.obs_high or ())))


def require(plan: Plan) -> None:
    """Refuse a task that needs something which is not installed."""
    plan.setup.task.require()


def by_group(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Dotted names as a dictionary for each group."""
    known = (*GROUPS, "method", "task", "agent")
    groups: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        if name in RETIRED:
            raise UsageError(f"{name}: {RETIRED[name]}.")
        group, dot, key = name.partition(".")
        if not dot:
            options = [f"{g}.{s}" for g, cls in GROUPS.items() for s in signature(cls)]
            raise unknown("setting", name, options, "Settings are named group.setting.")
        if group not in known:
            raise unknown("group of settings", group, known)
        groups.setdefault(group, {})[key] = value
    return groups


def build_task(entry: TaskEntry, settings: Mapping[str, Any], remote: RemoteSettings) -> AbstractAnyTask:
    """The task, inside its remote where it has one."""
    try:
        task = entry.cls(**settings)
    except CuriaxError:
        raise
    except (Exception, SystemExit) as error:
        raise ContractError(f"constructing task {entry.name!r} failed: {type(error).__name__}: {error}") from error
    if remote.mode == "none":
        return task
    if task.screen:
        raise UsageError(
            f"task {entry.name!r} shows images and cannot take the noisy remote: leave remote.mode at none."
        )
    try:
        return with_remote(task, remote)
    except ValueError as error:
        raise UsageError(f"task {entry.name!r} cannot take the noisy remote: {error}.") from None


def whole_iterations(steps: int | None, budget: int, loop: LoopSettings) -> tuple[int, int]:
    """The number of whole rollouts in the budget, and their steps."""
    per_iteration = loop.rollout * loop.envs
    wanted = budget if steps is None else steps
    if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1:
        raise UsageError(f"steps = {wanted!r}: must be a positive whole number.")
    if wanted < per_iteration:
        raise UsageError(
            f"steps = {wanted} is less than one rollout of {loop.rollout} steps x {loop.envs} environments = "
            f"{per_iteration}: ask for more steps or a smaller loop.rollout."
        )
    iterations = wanted // per_iteration
    return iterations * per_iteration, iterations


def check_sizes(ppo: PPOSettings, learner: LearnerSettings, loop: LoopSettings) -> None:
    """Refuse sizes that leave nothing to learn from."""
    samples = loop.rollout * loop.envs
    if samples < 2:
        raise UsageError("loop.rollout x loop.envs = 1: standardising advantages needs at least two samples.")
    for name, size in (("ppo.minibatch_size", ppo.minibatch_size), ("learner.minibatch_size", learner.minibatch_size)):
        if size > samples:
            raise UsageError(
                f"{name} = {size} exceeds the {samples} samples of one rollout ({loop.rollout} steps x "
                f"{loop.envs} environments): lower it or raise loop.rollout."
            )
    if learner.minibatch_size < loop.envs:
        raise UsageError(
            f"learner.minibatch_size = {learner.minibatch_size} is less than loop.envs = {loop.envs}: the model's "
            "minibatches take all environments of a time step; raise it."
        )
    if loop.extrinsic_weight == 0 and loop.intrinsic_weight == 0:
        raise UsageError(
            "loop.extrinsic_weight and loop.intrinsic_weight are both 0: there is no reward to learn from."
        )


def check_heads(ppo: PPOSettings, loop: LoopSettings) -> None:
    """Refuse a value head for a reward that does not count."""
    for name, weight in (("extrinsic", loop.extrinsic_weight), ("intrinsic", loop.intrinsic_weight)):
        if ppo.value_heads == "two" and weight == 0:
            raise UsageError(
                f"ppo.value_heads = 'two', but loop.{name}_weight = 0: a head for a reward that counts for nothing "
                "would only disturb the layers that it shares. With one head, ppo.discount and ppo.episode_ends are "
                "those of the only reward."
            )
