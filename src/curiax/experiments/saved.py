"""What a finished run has learnt: every seed's policy, curiosity model and observation statistics, as plain tensors.

Two files beside the metrics: `agents.safetensors` holds the arrays, stacked over seeds and named by their place in the
tree; `agents.json` says what they belong to. Nothing else is stored: the structure is built anew from the experiment,
so reading executes no code but Curiax's own, or the user's where they say so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._errors import OutputError, UsageError
from .._stats import Moments
from ..agents.ppo import PPOState
from ..curiosity import AbstractCuriosity
from ..train.batch import stack
from ..train.loop import Stream
from . import folder
from .registry import METHODS, TASKS
from .spec import Experiment, Plan, resolve

FORMAT = "curiax-agents-1"
AGENTS, TENSORS = "agents.json", "agents.safetensors"


class Saved(eqx.Module):
    """Trained networks and statistics, all stacked along a leading axis `S`."""

    #: What `AbstractAgent.build` makes: the policy, without the optimiser.
    agent: Any
    curiosity: AbstractCuriosity
    obs_stats: Moments
    #: The seed of each entry.
    seeds: tuple[int, ...] = eqx.field(static=True)

    def one(self, seed: int) -> Saved:
        """The networks and statistics of one seed, without the leading axis."""
        if seed not in self.seeds:
            raise UsageError(f"seed {seed} is not in this run; there are: {', '.join(map(str, self.seeds))}.")
        row = self.seeds.index(seed)
        arrays, static = eqx.partition(self, eqx.is_array)
        return eqx.combine(jax.tree.map(lambda x: x[row], arrays), static)


def networks(agent: Any) -> Any:
    """The networks inside what `AbstractAgent.learn` carries: what `AbstractAgent.start` was given."""
    return agent.policy if isinstance(agent, PPOState) else agent


def fresh(plan: Plan, seeds: tuple[int, ...]) -> Saved:
    """The untrained networks of these seeds, as training starts with them."""
    setup, roots = plan.setup, [jax.random.key(seed) for seed in np.asarray(seeds, np.uint32)]
    agents = [setup.agent.build(setup.task.spec, key=jax.random.fold_in(root, Stream.AGENT_INIT)) for root in roots]
    models = [plan.build_model(jax.random.fold_in(root, Stream.MODEL_INIT)) for root in roots]
    moments = [Moments.start(setup.task.spec.obs_shape) for _ in roots]
    return Saved(stack(agents), stack(models), stack(moments), seeds)


def tensors(saved: Saved) -> dict[str, np.ndarray]:
    """Every array by its name; random keys are left out, as they follow from the seed."""
    found = jax.tree_util.tree_leaves_with_path(saved)
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf)
        for path, leaf in found
        if eqx.is_array(leaf) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    }


def write(stage: Path, plan: Plan, saved: Saved) -> None:
    """The two files, into a folder that is there."""
    import safetensors.numpy

    arrays = {name: np.ascontiguousarray(array) for name, array in tensors(saved).items()}
    about = {
        "format": FORMAT,
        "run_id": plan.run_id,
        "experiment": plan.experiment.as_json(),
        "settings": dict(plan.settings),
        "curiax": plan.identity["curiax"],
        "seeds": list(saved.seeds),
        "tensors": {name: {"shape": list(a.shape), "dtype": a.dtype.name} for name, a in arrays.items()},
    }
    with folder.written(stage):
        safetensors.numpy.save_file(arrays, stage / TENSORS, metadata={"format": FORMAT})
        (stage / TENSORS).chmod(0o644)  # as the other files; safetensors writes for the owner alone
        (stage / AGENTS).write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n")


def read(path: Path, *, trust: bool = False) -> tuple[Plan, Saved]:
    """The plan of a finished run and what it has learnt; everything is checked before it is used.

    A run of a user's own `module:Class` is refused without `trust`: reading it imports their module.
    """
    about = described(path)
    plan = planned(path, about, trust)
    arrays, seeds = loaded(path, about), tuple(about["seeds"])
    if not seeds or any(seed not in plan.seeds or seeds.count(seed) > 1 for seed in seeds):
        raise damaged(path / AGENTS, "its seeds are not those of its experiment")
    return plan, filled(path, fresh(plan, seeds), arrays)


def damaged(file: Path, why: str) -> OutputError:
    """An error about a file that is not what was written."""
    return OutputError(f"{file} is damaged: {why}. Remove its folder and run the experiment again.")


def described(path: Path) -> dict[str, Any]:
    """`agents.json`, its fields there and of the right kind."""
    manifest = folder.read_manifest(path)
    if manifest is None:
        raise OutputError(f"{path} is not a finished run: no {folder.MANIFEST} of Curiax in it.")
    if not (path / AGENTS).exists():
        raise OutputError(
            f"{path} holds no trained agents: it was run before Curiax kept them. Remove the folder and run it again: "
            f"{manifest.get('command', 'curiax run ...')}"
        )
    try:
        about = json.loads((path / AGENTS).read_text())
    except (OSError, ValueError) as error:
        raise damaged(path / AGENTS, str(error)) from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        tag = about.get("format") if isinstance(about, dict) else None
        raise OutputError(f"{path / AGENTS} has the format {tag!r}; this version of Curiax reads {FORMAT!r}.")
    kinds = {"run_id": str, "experiment": dict, "settings": dict, "curiax": str, "seeds": list, "tensors": dict}
    for name, kind in kinds.items():
        if not isinstance(about.get(name), kind):
            raise damaged(path / AGENTS, f"{name} is missing or not a {kind.__name__}")
    if about["run_id"] != manifest["run_id"]:
        raise OutputError(f"{path / AGENTS} belongs to another run ({about['run_id']}, not {manifest['run_id']}).")
    return about


def planned(path: Path, about: Mapping[str, Any], trust: bool) -> Plan:
    """The plan of the run, if its classes may be imported and still mean what they meant."""
    said = about["experiment"]
    kinds = {"task": str, "method": str, "label": str, "settings": dict}
    for name, kind in kinds.items():
        if not isinstance(said.get(name), kind):
            raise damaged(path / AGENTS, f"its experiment has no {name}")
    others = foreign(said)
    if others and not trust:
        raise UsageError(
            f"{path} was trained with {others[0]!r}, which is not Curiax's: reading it imports and runs that code. If "
            "you trust it, add --trust (in Python: trust=True)."
        )
    try:
        plan = resolve(Experiment.from_json(said))
    except (UsageError, TypeError, ValueError) as error:
        raise OutputError(f"{path / AGENTS}: its experiment cannot be set up again: {error}") from None
    if dict(plan.settings) != about["settings"]:
        changed = folder.difference({"settings": about["settings"]}, {"settings": plan.settings})
        raise OutputError(
            f"{path} was trained by Curiax {about['curiax']} with other settings than the same experiment has here "
            f"(they differ in {changed}): run it again, or read it with that version."
        )
    return plan


def foreign(said: Mapping[str, Any]) -> list[str]:
    """Whatever an experiment names that setting it up would import, and that is neither Curiax's nor Gymnasium's."""

    def ours(name: str) -> bool:
        module, _, rest = name.partition(":")
        return module.split(".")[0] == "curiax" or (module == "gymnasium" and ":" not in rest)

    classes = [said["task"]] * (said["task"] not in TASKS) + [said["method"]] * (said["method"] not in METHODS)
    # `module:ID` as a setting makes Gymnasium import the module.
    modules = [value for value in said["settings"].values() if isinstance(value, str) and ":" in value]
    return [name for name in classes if not ours(name)] + modules


def loaded(path: Path, about: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays, as `agents.json` lists them."""
    import safetensors
    import safetensors.numpy

    try:
        arrays = safetensors.numpy.load((path / TENSORS).read_bytes())
    except (OSError, safetensors.SafetensorError, KeyError, ValueError) as error:
        raise damaged(path / TENSORS, str(error)) from None
    found = {name: {"shape": list(array.shape), "dtype": array.dtype.name} for name, array in arrays.items()}
    if found != about["tensors"]:
        names = sorted({*found, *about["tensors"]})
        name = next(name for name in names if found.get(name) != about["tensors"].get(name))
        here, there = told(found, name), told(about["tensors"], name)
        raise damaged(path / TENSORS, f"{name} is {here}, where {AGENTS} says {there}")
    return arrays


def told(listed: Mapping[str, Any], name: str) -> str:
    """A tensor's entry in words."""
    entry = listed.get(name)
    return f"{entry.get('dtype')}{entry.get('shape')}" if isinstance(entry, Mapping) else "missing"


def filled(path: Path, skeleton: Saved, arrays: Mapping[str, np.ndarray]) -> Saved:
    """The skeleton with these arrays in it, each of the shape and type that it has there."""
    expected = tensors(skeleton)
    for name in sorted({*expected, *arrays}):
        if name not in arrays:
            raise damaged(path / TENSORS, f"{name} is missing")
        if name not in expected:
            raise damaged(path / TENSORS, f"{name} has no place in the networks of this experiment")
        wanted, array = expected[name], arrays[name]
        if (wanted.shape, wanted.dtype) != (array.shape, array.dtype):
            raise damaged(
                path / TENSORS,
                f"{name} is {array.dtype}{list(array.shape)}, the experiment's is {wanted.dtype}{list(wanted.shape)}",
            )
        # A constant of a method may be infinite on purpose; what was finite at first must be finite still.
        if not np.all(np.isfinite(array) | ~np.isfinite(wanted)):
            raise damaged(path / TENSORS, f"{name} holds NaN or infinity")

    def put(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        return jnp.asarray(arrays[name]) if name in expected else leaf

    return jax.tree_util.tree_map_with_path(put, skeleton)
