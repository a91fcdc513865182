"""Trained agents on disk: read back exactly, and nothing damaged or foreign is taken in."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kept import edit, retensor, untrained
from small import SMALL

import curiax
from curiax import Experiment, OutputError, UsageError, resolve
from curiax._files import digest
from curiax.agents.ppo import Policy
from curiax.curiosity import RE3
from curiax.experiments import exports, folder, registry, saved
from curiax.experiments.registry import ATARI, METHODS, TASKS
from curiax.experiments.scoring import refuse_large_memory
from curiax.train.batch import compile_chunk, first_states, place, seed_mesh


def same(one: Any, other: Any) -> bool:
    return bool(eqx.tree_equal(one, other))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return untrained(tmp_path / "run", "mountain-car")


@pytest.mark.parametrize("method", sorted({entry.cls: name for name, entry in reversed(METHODS.items())}.values()))
def test_every_method_reads_back_exactly(method: str, tmp_path: Path) -> None:
    path = untrained(tmp_path / "run", "mountain-car-frozen", method, seeds=(7, 2))
    plan, read = saved.read(path)
    assert plan.seeds == read.seeds == (7, 2)
    assert same(read, saved.fresh(plan, (7, 2)))
    one = read.one(2)
    build = plan.build_method
    assert same(one.networks.curiosity, build and build(jax.random.fold_in(jax.random.key(2), 1)))
    assert one.obs_stats.mean.shape == plan.setup.task.spec.obs_shape


#: One game is enough: all have the same networks, and large ones.
@pytest.mark.parametrize("task", [task for task in TASKS if not task.startswith(ATARI)])
def test_every_task_reads_back(task: str, tmp_path: Path) -> None:
    plan, read = saved.read(untrained(tmp_path / "run", task))
    assert plan.task_entry.name == task
    assert read.obs_stats.mean.shape == (2, *plan.setup.task.spec.obs_shape)


def test_fresh_networks_are_those_that_training_starts_with() -> None:
    plan = resolve(Experiment("mountain-car", "lbs", seeds=(3, 5)))
    state = first_states(plan.setup, plan.seeds)
    fresh = saved.fresh(plan, plan.seeds)
    assert same(plan.setup.agent.networks(state.agent), fresh.networks)
    assert same(state.obs_stats, fresh.obs_stats)


@pytest.mark.slow
def test_trained_state_reads_back_exactly(tmp_path: Path) -> None:
    plan = resolve(Experiment("mountain-car", "icm", seeds=(3, 5), steps=256, settings=SMALL))
    arrays, static = place(first_states(plan.setup, plan.seeds), seed_mesh(jax.devices()[:2]))
    arrays, _ = compile_chunk(plan.setup, static, seed_mesh(jax.devices()[:2]), 2, arrays)(arrays)
    state = eqx.combine(arrays, static)
    kept = saved.Saved(plan.setup.agent.networks(state.agent), state.obs_stats, plan.seeds)
    path = untrained(tmp_path / "run", "mountain-car", "icm", steps=256, settings=SMALL)
    saved.write(path, plan, kept)
    _, read = saved.read(path)
    assert isinstance(read.networks.agent, Policy)
    for name, array in saved.tensors(saved.parts_of(kept)).items():
        np.testing.assert_array_equal(saved.tensors(saved.parts_of(read))[name], array)
    assert not same(read.networks.agent, saved.fresh(plan, plan.seeds).networks.agent)


@pytest.mark.slow
def test_a_run_keeps_its_agents(tmp_path: Path) -> None:
    result = curiax.run(Experiment("mountain-car", "lbs", seeds=3, steps=256, settings=SMALL), tmp_path / "run")
    plan, read = saved.read(tmp_path / "run")
    assert plan.identity == result.plan.identity
    assert read.seeds == (0, 1, 2)
    assert float(read.obs_stats.count[0]) > 200
    assert not same(read.networks.agent, saved.fresh(plan, plan.seeds).networks.agent)
    assert curiax.run(result.plan.experiment, tmp_path / "run").reused
    others = [path for path in (tmp_path / "run").iterdir() if path.name != folder.MANIFEST]
    listed = json.loads((tmp_path / "run" / folder.MANIFEST).read_text())["files"]
    assert listed == {path.name: digest(path.read_bytes()) for path in others}
    assert len(listed) == 3


def test_random_keys_are_drawn_again_from_the_seed() -> None:
    class Keyed(eqx.Module):
        key: jax.Array
        weight: jax.Array

    plan = resolve(Experiment("mountain-car", "random", seeds=1))
    fresh = saved.fresh(plan, (0,))
    holding = eqx.tree_at(
        lambda s: s.networks.agent,
        fresh,
        Keyed(jax.random.split(jax.random.key(1), 1), jnp.ones((1, 2))),
        is_leaf=lambda x: x is None,
    )
    assert sorted(saved.tensors(saved.parts_of(holding))) == [
        "agent.weight",
        "obs_stats.count",
        "obs_stats.mean",
        "obs_stats.var",
    ]


def test_seeds_that_are_not_there_are_listed(run: Path) -> None:
    with pytest.raises(UsageError, match="seed 4 is not in this run; there are: 3, 5"):
        saved.read(run)[1].one(4)


def test_some_of_the_seeds_may_be_missing(run: Path) -> None:
    """A seed whose simulation ran away is not kept."""
    plan = resolve(Experiment("mountain-car", "lbs", seeds=(3, 5)))
    saved.write(run, plan, saved.fresh(plan, (5,)))
    assert saved.read(run)[1].seeds == (5,)


def refused(path: Path, match: str) -> None:
    with pytest.raises(OutputError, match=match):
        saved.read(path)


def test_what_is_no_run_is_refused(tmp_path: Path, run: Path) -> None:
    refused(tmp_path / "nowhere", "not a finished run")
    refused(tmp_path, "not a finished run")
    (run / folder.MANIFEST).write_text("{}")
    assert saved.read(run)[1].seeds == (3, 5)  # the two files alone are an export
    (run / saved.AGENTS).unlink()
    refused(run, "not a finished run")


def test_a_run_from_before_agents_were_kept(run: Path) -> None:
    (run / saved.AGENTS).unlink()
    refused(run, "run before Curiax kept them.*run it again")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"format": "curiax-agents-9"}, "format 'curiax-agents-9'.*written by a newer Curiax: update"),
        ({"format": "curiax-agents-0"}, "it is damaged"),
        ({"format": "PK"}, "has the format 'PK'; this version of Curiax reads 'curiax-agents-2'"),
        ({"run_id": "abc"}, "belongs to another run"),
        ({"run_id": None}, "belongs to another run"),
        ({"seeds": None}, "seeds: Input should be a valid list"),
        ({"seeds": []}, "seeds: List should have at least 1 item"),
        ({"seeds": [3, 3]}, "a seed occurs twice"),
        ({"seeds": [3, 99]}, "its seeds are not those"),
        ({"seeds": [[3], {}]}, "seeds.0: Input should be a valid integer"),
        ({"seeds": [3.0, 5]}, "seeds.0: Input should be a valid integer"),
        ({"seeds": [3]}, "has not one entry for each seed"),
        ({"tensors": {}}, "where agents.json says missing"),
        ({"tensors": {"agent.head.bias": 3}}, "tensors.agent.head.bias"),
        ({"experiment": {}}, "experiment.task: Field required"),
        ({"experiment": {"task": "x", "method": "y", "label": "", "settings": []}}, "experiment.settings"),
        (
            {"experiment": {"task": "mountain-car", "method": "lbs", "label": "", "settings": {}}},
            "experiment.steps: Field required",
        ),
        (
            {"experiment": {"task": "mountain-car", "method": "lbs", "steps": None, "settings": {}}},
            "cannot be set up again: not an experiment",
        ),
        ({"spec": None}, "spec: "),
        ({"extra": 1}, "extra: Extra inputs are not permitted"),
        ({"settings": {}}, "other settings"),
    ],
)
def test_a_changed_description_is_refused(run: Path, change: dict[str, Any], match: str) -> None:
    edit(run, lambda about: about.update(change))
    refused(run, match)


@pytest.mark.parametrize("text", ["", "[]", "{", "3", "\x00"])
def test_a_description_that_is_none_is_refused(run: Path, text: str) -> None:
    (run / saved.AGENTS).write_text(text)
    refused(run, r"agents\.json is damaged|has the format None")


@pytest.mark.parametrize("field", ["task", "method", "seeds", "steps", "preset", "settings", "label"])
@pytest.mark.parametrize("value", [None, [], {}, 0.5, "x", [{}], {"a": 1}])
def test_nonsense_in_the_experiment_is_refused(run: Path, field: str, value: Any) -> None:
    edit(run, lambda about: about["experiment"].update({field: value}))
    try:
        saved.read(run)
    except (OutputError, UsageError):
        return
    assert (field, value) in [("steps", None), ("settings", {}), ("label", "x")]


def test_settings_that_mean_something_else_now_are_refused(run: Path) -> None:
    """What the experiment says itself cannot have been another default."""

    def other(about: dict[str, Any]) -> None:
        about["experiment"]["settings"] = {"ppo.epochs": 2}
        about["settings"]["ppo.epochs"] = 3

    edit(run, other)
    refused(run, r"other settings.*differ in ppo.epochs")


def test_defaults_of_its_own_time_hold(run: Path) -> None:
    """A default that has changed since is as it was written down; a setting that is new takes its present one."""
    now = saved.read(run)[0]

    def older(about: dict[str, Any]) -> None:
        about["settings"]["ppo.clip"] = 0.3
        del about["settings"]["loop.model_action"]

    edit(run, older)
    plan, _ = saved.read(run)
    assert plan.settings["ppo.clip"] == 0.3
    assert plan.setup.agent.policy.settings.clip == 0.3
    assert plan.settings["loop.model_action"] == now.settings["loop.model_action"]
    assert plan.experiment == now.experiment
    edit(run, lambda about: about["settings"].update({"ppo.gone": 1}))
    refused(run, r"differ in ppo.gone")


@pytest.mark.parametrize("keep", [0, 4, 8, 100, -1])
def test_cut_tensors_are_refused(run: Path, keep: int) -> None:
    data = (run / saved.TENSORS).read_bytes()
    (run / saved.TENSORS).write_bytes(data[:keep])
    refused(run, "agents.safetensors is damaged")


def test_missing_and_foreign_tensor_files_are_refused(run: Path) -> None:
    (run / saved.TENSORS).write_bytes(b"PK\x03\x04" * 100)
    refused(run, "agents.safetensors is damaged")
    (run / saved.TENSORS).write_bytes(b"\xff" * 64)
    refused(run, "agents.safetensors is damaged")
    (run / saved.TENSORS).unlink()
    refused(run, "agents.safetensors is damaged")


def test_every_flipped_bit_is_found(run: Path) -> None:
    """In every region of both files: the result is an error of ours that names the file, or nothing has changed."""
    rng = np.random.default_rng(0)
    before = saved.read(run)[1]
    for name in (saved.AGENTS, saved.TENSORS):
        data = (run / name).read_bytes()
        for spot in rng.integers(0, len(data), 150):
            broken = bytearray(data)
            broken[spot] ^= 1 << int(rng.integers(8))
            (run / name).write_bytes(broken)
            if name == saved.AGENTS and bytes(broken).lower() == data.lower():
                continue  # the exponent of a number may be e or E
            with pytest.raises(OutputError, match=r"agents\."):
                exports.tensors_of(run, exports.about_of(run, exports.described(run)[0]), None)
        (run / name).write_bytes(data)
    assert same(saved.read(run)[1], before)


@pytest.mark.parametrize("name", ["agents.json", "agents.safetensors"])
def test_a_file_of_another_run_is_found(run: Path, tmp_path: Path, name: str) -> None:
    other = untrained(tmp_path / "other", "mountain-car", seeds=(4, 5))
    (run / name).write_bytes((other / name).read_bytes())
    refused(run, "belongs to another run|is not what its digest")


def test_digests_in_the_manifest_are_checked(run: Path) -> None:
    manifest = {**json.loads((run / folder.MANIFEST).read_text()), "format": "curiax-run-1"}
    del manifest["seal"]
    for name in (saved.AGENTS, saved.TENSORS):
        files = {name: digest((run / name).read_bytes()) for name in (saved.AGENTS, saved.TENSORS)}
        (run / folder.MANIFEST).write_text(json.dumps(manifest | {"files": files}))
        assert saved.read(run)[1].seeds == (3, 5)
        (run / folder.MANIFEST).write_text(json.dumps(manifest | {"files": files | {name: "0" * 32}}))
        refused(run, rf"{name} is damaged \(its digest is not the one in manifest.json")


def test_networks_beyond_the_file_are_never_built(run: Path) -> None:
    """A file that asks for networks of terabytes is refused before any of them is drawn."""
    plan = resolve(Experiment("mountain-car", "lbs", seeds=(3, 5), settings={"ppo.width": 1_000_000}))

    def grow(about: dict[str, Any]) -> None:
        about["experiment"]["settings"] = {"ppo.width": 1_000_000}
        about["settings"] = dict(plan.settings)

    edit(run, grow)
    refused(run, "asks for more parameters than it holds")


def drop(arrays: dict[str, np.ndarray]) -> None:
    del arrays["agent.head.weight"]


def add(arrays: dict[str, np.ndarray]) -> None:
    arrays["agent.extra"] = np.zeros((2, 3), np.float32)


def reshape(arrays: dict[str, np.ndarray]) -> None:
    arrays["agent.head.weight"] = arrays["agent.head.weight"].reshape(2, 1, 64)


def retype(arrays: dict[str, np.ndarray]) -> None:
    arrays["obs_stats.var"] = arrays["obs_stats.var"].astype(np.float64)


def poison(arrays: dict[str, np.ndarray]) -> None:
    arrays["obs_stats.mean"][1, 0] = np.nan


def burst(arrays: dict[str, np.ndarray]) -> None:
    arrays["agent.log_std"][0] = np.inf


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (drop, "agent.head.weight is missing"),
        (add, "agent.extra has no place"),
        (reshape, r"agent.head.weight is float32\[2, 1, 64\], the experiment's is float32\[2, 64, 1\]"),
        (retype, r"obs_stats.var is float64\[2, 2\], the experiment's is float32\[2, 2\]"),
        (poison, "obs_stats.mean holds NaN or infinity"),
        (burst, "agent.log_std holds NaN or infinity"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(run: Path, change: Callable[..., None], match: str) -> None:
    retensor(run, change)
    refused(run, match)


def test_code_of_others_runs_only_where_it_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs.py").write_text(
        "import pathlib\nfrom curiax.curiosity import LBS\npathlib.Path('ran').touch()\nclass Mine(LBS):\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; from kept import untrained; "
        "untrained(Path('run'), 'mountain-car', 'theirs:Mine')"
    )
    subprocess.run([sys.executable, "-c", code, str(Path(__file__).parents[1])], check=True)
    (tmp_path / "ran").unlink()
    with pytest.raises(UsageError, match=r"'theirs:Mine', which is not Curiax's.*add --trust"):
        saved.read(Path("run"))
    assert not (tmp_path / "ran").exists()
    plan, read = saved.read(Path("run"), trust=True)
    assert type(read.networks.curiosity).__name__ == "Mine"
    assert plan.method_entry.name == "theirs:Mine"


def test_names_that_import_nothing_foreign() -> None:
    def foreign(task: str = "mountain-car", method: str = "lbs", **settings: Any) -> list[str]:
        return registry.foreign(task, method, settings)

    assert foreign() == []
    assert foreign("curiax.envs:MountainCar", "curiax.curiosity:LBS") == []
    assert foreign("curiax.envs.mountain_car:MountainCar", "curiax.curiosity.vime:VIME") == []
    assert foreign("curiax.testing:ProbeTask", "curiax.curiosity:os") == [
        "curiax.testing:ProbeTask",
        "curiax.curiosity:os",
    ]
    assert foreign("gymnasium:CartPole-v1", beta=3.0) == []
    assert foreign("gymnasium:theirs:CartPole-v1") == ["gymnasium:theirs:CartPole-v1"]
    assert foreign("gymnasium:CartPole-v1", id="theirs:Thing") == ["theirs:Thing"]
    assert foreign("curiaxx:Thing", "theirs:Mine") == ["curiaxx:Thing", "theirs:Mine"]
    assert foreign("theirs") == ["theirs"]


# --- sizes that no file of these bytes can mean -----------------------------------------------------------

LARGE = [
    ("lbs", "remote.noise_dims", 300_000),
    ("lbs", "method.latent_size", 100_000_000),
    ("icm", "method.inverse_layers", 100_000_000),
    ("re3", "method.capacity", 100_000_000),
    ("disagreement", "method.ensemble_size", 1 << 40),
    ("vime", "method.width", 12_000),
    ("icm", "method.inverse_layers", 1_000_000),
]


@pytest.mark.parametrize("asked", [True, False], ids=["asked", "resolved"])
@pytest.mark.parametrize(("method", "name", "value"), LARGE)
def test_sizes_beyond_the_file_are_refused_before_they_are_made(
    method: str, name: str, value: int, asked: bool, tmp_path: Path
) -> None:
    """Whether they are said to have been asked for, or only to be what was in force."""
    path = untrained(tmp_path / "run", "mountain-car-frozen", method)

    def large(about: dict[str, Any]) -> None:
        about["settings"][name] = value
        about["bonus"]["settings"] |= {name.partition(".")[2]: value} if name.startswith("method.") else {}
        if asked:
            about["experiment"]["settings"][name] = value

    edit(path, large)
    begun = time.perf_counter()
    with pytest.raises(OutputError, match=r"larger than all of its arrays|asks for more parameters than it holds"):
        saved.read(path)
    if name.startswith("method."):
        spec = curiax.load(path).spec
        zeros = np.zeros(spec.obs_shape), np.zeros(spec.action.shape), np.zeros(spec.obs_shape)
        with pytest.raises(OutputError, match=r"larger than all of its arrays|asks for more parameters than it holds"):
            curiax.load(path).bonus(*zeros)
    assert time.perf_counter() - begun < 5.0


@pytest.mark.parametrize("value", ["3", [], ["3"], {"a": 3}, None, [[3]], 1e300, float("nan"), True])
@pytest.mark.parametrize("name", ["remote.noise_dims", "method.width"])
def test_what_is_no_size_is_left_to_who_reads_the_setting(name: str, value: Any) -> None:
    exports.refuse_large_settings(Path("agents.json"), {name: value}, 10)


def test_a_memory_that_no_file_holds_is_bounded(tmp_path: Path) -> None:
    path = untrained(tmp_path / "run", "mountain-car", "re3", settings={"method.capacity": 3})
    plan, learnt = saved.read(path)
    model = learnt.one(3).networks.curiosity
    refuse_large_memory(path, model)
    large = RE3(plan.setup.task.spec, key=jax.random.key(0), capacity=3_000_000)
    with pytest.raises(OutputError, match="an episode's memory of its method has more than 33,554,432 numbers"):
        refuse_large_memory(path, large)


def test_a_name_in_two_lines_begins_no_line_of_a_message(tmp_path: Path) -> None:
    path = untrained(tmp_path / "run", "mountain-car")
    edit(path, lambda about: about["tensors"].update({"x\ncuriax: all is well": about["tensors"]["agent.head.bias"]}))
    with pytest.raises(OutputError) as raised:
        saved.read(path)
    assert "\n" not in str(raised.value)
    assert "x curiax: all is well is missing" in str(raised.value)


def test_a_large_weight_is_no_size(tmp_path: Path) -> None:
    path = untrained(tmp_path / "run", "mountain-car", settings={"method.beta": 3e7})
    assert saved.read(path)[0].settings["method.beta"] == 3e7
