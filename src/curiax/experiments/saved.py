"""What a finished run has learnt: every seed's policy, curiosity model and observation statistics.

`exports.py` says how it lies on disk. Here it is made from a plan and from what was trained, and read back into the
networks that training had: their structure is built anew from the experiment, so reading executes no code but Curiax's
own, or the user's where they say so.
"""

from __future__ import annotations

import importlib.metadata
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated, Any

import equinox as eqx
import jax
import numpy as np
from pydantic import Field

from .._errors import OutputError, UsageError
from .._files import damaged
from .._settings import defaults, signature
from .._stats import Moments
from .._types import Box, Spec
from ..nn import at_most
from ..train.batch import stack
from . import exports, folder
from .exports import AGENTS, FORMAT, REMEDY, TENSORS, About
from .manifest import ExperimentSchema, Name, Schema, Seeds, Settings, checked, read_listed
from .presets import FOR_TASK_REWARD
from .registry import foreign, whence
from .spec import GROUPS, RETIRED, Experiment, Plan, resolve
from .tensors import filled, tensors

__all__ = ["AGENTS", "FORMAT", "TENSORS", "Saved", "fresh", "parts_of", "read", "seen", "tensors", "write"]


#: The first part of the names of the statistics' arrays.
STATS = "obs_stats"


class Saved(eqx.Module):
    """Trained networks and statistics, all stacked along a leading axis `S`."""

    #: What `AbstractAgent.build` makes, without optimisers.
    networks: Any
    obs_stats: Moments
    #: The seed of each entry.
    seeds: tuple[int, ...] = eqx.field(static=True)

    def one(self, seed: int) -> Saved:
        """The networks and statistics of one seed, without the leading axis."""
        if seed not in self.seeds:
            raise UsageError(f"seed {seed!r} is not in this run; there are: {', '.join(map(str, self.seeds))}.")
        row = self.seeds.index(seed)
        arrays, static = eqx.partition(self, eqx.is_array)
        return eqx.combine(jax.tree.map(lambda x: x[row], arrays), static)


def parts_of(saved: Saved) -> dict[str, Any]:
    """What is kept, by the first part of its arrays' names."""
    return {
        **{field.name: getattr(saved.networks, field.name) for field in fields(saved.networks)},
        STATS: saved.obs_stats,
    }


def fresh(plan: Plan, seeds: tuple[int, ...]) -> Saved:
    """The untrained networks of these seeds, as training starts with them."""
    setup, roots = plan.setup, [jax.random.key(seed) for seed in np.asarray(seeds, np.uint32)]
    networks = [setup.agent.build(key=root) for root in roots]
    moments = [Moments.start(setup.task.spec.obs_shape) for _ in roots]
    return Saved(stack(networks), stack(moments), seeds)


def write(stage: Path, plan: Plan, saved: Saved) -> None:
    """The two files, into a folder that is there."""
    with folder.written(stage):
        exports.write(stage, described(plan, saved), tensors(parts_of(saved)))


def described(plan: Plan, saved: Saved) -> dict[str, Any]:
    """What `agents.json` says beside the tensors."""
    loop, entry = plan.setup.loop, plan.method_entry
    group = {name.partition(".")[2]: value for name, value in plan.settings.items() if name.startswith("method.")}
    # A function cannot be written down; whoever reads takes the one that the method has by default.
    known = {} if entry.cls is None else signature(entry.cls)
    plain = {name: value for name, value in group.items() if not callable(known[name][1])}
    return {
        "format": FORMAT,
        "curiax": plan.identity["curiax"],
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("jax", "equinox", "numpy", "safetensors")},
        },
        "run_id": plan.run_id,
        "task": plan.task_entry.name,
        "method": entry.name,
        "experiment": plan.experiment.as_json(),
        "settings": dict(plan.settings),
        "seeds": list(saved.seeds),
        "spec": spec_data(plan.setup.task.spec),
        "observations": seen(plan),
        "policy": plan.setup.agent.described(saved.networks),
        "bonus": {"method": entry.name, "settings": plain, "action": loop.model_action},
    }


def seen(plan: Plan) -> dict[str, Any]:
    """How the networks saw observations: standardised or not, with which epsilon, clipped to which bound.

    Frames of emulators are always standardised and never clipped, as `FrameStore` has it: without measured statistics
    those in force are mean 0 and deviation 255.
    """
    loop = plan.setup.loop
    if plan.setup.task.screen:
        return {"normalised": True, "epsilon": 1e-16, "clip": 1e30}
    return {"normalised": loop.normalise_obs, "epsilon": loop.obs_epsilon, "clip": loop.obs_clip}


def spec_data(spec: Spec) -> dict[str, Any]:
    """The spaces as plain data; bounds that are infinite are none."""

    def bounds(listed: Sequence[float] | None) -> list[float | None] | None:
        return None if listed is None else [float(x) if math.isfinite(x) else None for x in listed]

    action = (
        {"kind": "box", "low": list(spec.action.low), "high": list(spec.action.high)}
        if isinstance(spec.action, Box)
        else {"kind": "discrete", "n": spec.action.n}
    )
    data = {**asdict(spec), "obs_shape": list(spec.obs_shape), "action": action}
    return {**data, "obs_low": bounds(spec.obs_low), "obs_high": bounds(spec.obs_high)}


class OldTensor(Schema):
    """An array in format 1."""

    shape: Annotated[list[Annotated[int, Field(ge=0, le=1 << 40)]], Field(max_length=16)]
    dtype: Name


class OldAbout(Schema):
    """What `agents.json` said in format 1, which was no export: it needs the manifest beside it, and the task."""

    run_id: Name
    experiment: ExperimentSchema
    settings: Settings
    curiax: Name
    seeds: Seeds
    tensors: Annotated[dict[Name, OldTensor], Field(max_length=65_536)]


def read(path: Path, *, trust: bool = False) -> tuple[Plan, Saved]:
    """The plan of a finished run or an export, and what it has learnt; everything is checked before it is used.

    A run of a user's own `module:Class` is refused without `trust`: reading it imports their module.
    """
    data, manifest = exports.described(path)
    about: About | OldAbout
    if data["format"] == FORMAT:
        about = exports.about_of(path, data)
    else:
        about = checked(OldAbout, data, lambda why: damaged(path / AGENTS, why, REMEDY))
        if manifest is None:
            raise OutputError(f"{path} is not a finished run: no {folder.MANIFEST} of Curiax in it.")
    arrays = (
        old_tensors(path, about, manifest) if isinstance(about, OldAbout) else exports.tensors_of(path, about, manifest)
    )
    plan = planned(path, data, trust, sum(array.size for array in arrays.values()))
    seeds = tuple(about.seeds)
    if any(seed not in plan.seeds or seeds.count(seed) > 1 for seed in seeds):
        raise damaged(path / AGENTS, "its seeds are not those of its experiment", REMEDY)
    if isinstance(about, About) and data["spec"] != spec_data(plan.setup.task.spec):
        raise OutputError(f"{path} was trained on another task: {about.task!r} has other spaces here.")
    with at_most(sum(array.size for array in arrays.values()), str(path)):
        skeleton = fresh(plan, seeds)
    parts = filled(path / TENSORS, parts_of(skeleton), arrays)
    stats = parts.pop(STATS)
    return plan, Saved(replace(skeleton.networks, **parts), stats, seeds)


def old_tensors(path: Path, about: OldAbout, manifest: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    """The arrays of format 1, as its description lists them."""
    # No type of number has more than eight bytes.
    most = sum(8 * math.prod(tensor.shape) for tensor in about.tensors.values()) + exports.HEADER
    arrays = exports.unpacked(path / TENSORS, read_listed(path, TENSORS, manifest, most))
    expected = {name: (tensor.shape, tensor.dtype) for name, tensor in about.tensors.items()}
    exports.refuse_other_names(path / TENSORS, arrays, expected)
    return arrays


def planned(path: Path, about: Mapping[str, Any], trust: bool, most: int) -> Plan:
    """The plan of the run, if its classes may be imported and still mean what they meant.

    `most` numbers are in its arrays: what is far larger is refused before anything is made of it.
    """
    file_settings = present(about["settings"])
    experiment = {**about["experiment"], "settings": present(about["experiment"]["settings"])}
    others = foreign(experiment["task"], experiment["method"], experiment["settings"], experiment.get("agent", ""))
    if others and not trust:
        raise UsageError(
            f"{path} was trained with {others[0]!r}, which is not Curiax's: reading it imports and runs "
            f"{whence(others[0])}. If you trust it, add --trust (in Python: trust=True)."
        )
    for settings in (about["settings"], experiment["settings"]):
        sizes = {name: value for name, value in settings.items() if name.startswith(("method.", "remote.", "agent."))}
        exports.refuse_large_settings(path / AGENTS, sizes, most)
    try:
        plan = with_its_defaults(Experiment.from_json(experiment), file_settings, trust)
    except (UsageError, TypeError, ValueError) as error:
        raise OutputError(f"{path / AGENTS}: its experiment cannot be set up again: {error}") from None
    # A setting may be newer than the file, but not all of a group.
    groups = {name.partition(".")[0] for name in file_settings}
    whole = {name for name in plan.settings if name.partition(".")[0] not in groups}
    known = {name: plan.settings.get(name) for name in {*file_settings, *experiment["settings"], *whole}}
    if known != file_settings:
        changed = folder.difference({"settings": file_settings}, {"settings": known})
        raise OutputError(
            f"{path} was trained by Curiax {about['curiax']} with other settings than the same experiment has here "
            f"(they differ in {changed}): run it again, or read it with that version."
        )
    return plan


def present(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without those that only earlier versions had, and that decided nothing of a run."""
    return {name: value for name, value in settings.items() if name not in RETIRED}


def with_its_defaults(experiment: Experiment, settings: Mapping[str, Any], trust: bool) -> Plan:
    """The plan of an experiment with the defaults that were in force when these settings were written down.

    A setting that has come since then takes its class's default, which stands for what was done before it was there.
    """
    plan = resolve(experiment, trust=trust)
    before = {name: defaults(GROUPS[name.partition(".")[0]])[name.partition(".")[2]] for name in FOR_TASK_REWARD}
    others = {
        name: value
        for name, value in {**before, **settings}.items()
        if name not in experiment.settings and plan.settings.get(name, value) != value
    }
    if not others:
        return plan
    whole = replace(experiment, settings={**experiment.settings, **others})
    return replace(resolve(whole, trust=trust), experiment=experiment)
