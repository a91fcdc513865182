"""Experiments as data: presets, settings, names, identities, and the errors for bad ones."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import curiax
from curiax._errors import ContractError, UsageError
from curiax.curiosity import LBS
from curiax.experiments.presets import PRESETS
from curiax.experiments.registry import METHODS, TASKS, find_method
from curiax.experiments.spec import Experiment, resolve, seed_list
from curiax.paper.suites import ARCADE


def settings_of(preset: str, task: str = "mountain-car", method: str = "lbs", **settings: Any) -> dict[str, Any]:
    return dict(resolve(Experiment(task, method, preset=preset, settings=settings)).settings)


def test_paper_code_is_the_released_code() -> None:
    """Every number of the method cards' sections 2.2 to 2.6 for control tasks."""
    s = settings_of("paper-code")
    expected = {
        "ppo.learning_rate": 3e-4,
        "ppo.adam_epsilon": 1e-5,
        "ppo.max_gradient_norm": 0.5,
        "ppo.epochs": 10,
        "ppo.minibatch_size": 64,
        "ppo.discount": 0.99,
        "ppo.trace": 0.95,
        "ppo.clip": 0.2,
        "ppo.value_weight": 0.5,
        "ppo.entropy_weight": 0.01,
        "ppo.entropy_reduction": "mean",
        "ppo.episode_ends": "ignore",
        "ppo.width": 64,
        "learner.learning_rate": 3e-4,
        "learner.adam_epsilon": 1e-8,
        "learner.max_gradient_norm": None,
        "learner.epochs": 10,
        "learner.clip": 3.0,
        "learner.clip_order": "before",
        "loop.envs": 1,
        "loop.rollout": 2048,
        "loop.successor": "reset",
        "loop.model_action": "sampled",
        "loop.extrinsic_weight": 0.0,
        "loop.intrinsic_weight": 1.0,
        "loop.obs_clip": 10.0,
        "loop.obs_epsilon": 1e-8,
        "method.beta": 0.1,
        "method.posterior": "trunk",
        "method.width": None,  # 32 for vectors
        "task.horizon": 100,
    }
    assert {name: s[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        (
            "paper-text",
            {
                "ppo.entropy_weight": 0.001,
                "learner.clip_order": "after",
                "method.posterior": "full",
            },
        ),
        ("clean", {"loop.successor": "true", "ppo.episode_ends": "bootstrap"}),
        (
            "curiax",
            {
                "loop.rollout": 512,
                "ppo.episode_ends": "bootstrap",
                "loop.model_action": "executed",
                "method.beta": 2.0,
            },
        ),
    ],
)
def test_presets_change_what_they_say_and_nothing_else(preset: str, changes: dict[str, Any]) -> None:
    base, changed = settings_of("paper-code"), settings_of(preset)
    assert {name: value for name, value in changed.items() if base[name] != value} == changes


def test_beta_follows_the_noise() -> None:
    for preset, (quiet, noisy) in {name: p.beta for name, p in PRESETS.items() if not p.above}.items():
        assert settings_of(preset)["method.beta"] == quiet
        assert settings_of(preset, "mountain-car-frozen")["method.beta"] == noisy
        assert settings_of(preset, **{"remote.mode": "evolving"})["method.beta"] == noisy
        assert settings_of(preset, "mountain-car-frozen", **{"method.beta": 0.1})["method.beta"] == 0.1


def test_ablations_and_plain_methods() -> None:
    assert settings_of("paper-code", method="lbs-mean")["method.bonus"] == "mean"
    assert settings_of("paper-code", method="lbs-nll")["method.bonus"] == "kl+nll"
    assert settings_of("paper-code", method="ride-no-count")["method.count"] is False
    none = settings_of("paper-code", method="none")
    assert (none["loop.extrinsic_weight"], none["loop.intrinsic_weight"]) == (1.0, 0.0)


def test_full_runs_have_the_papers_length() -> None:
    assert resolve(Experiment("mountain-car", "lbs")).iterations == 50
    assert resolve(Experiment("mountain-car", "lbs", preset="curiax")).iterations == 200
    plan = resolve(Experiment("mountain-car", "lbs", steps=10_000))
    assert (plan.steps, plan.iterations) == (8192, 4)


def test_json_round_trip_and_identity() -> None:
    first = Experiment("mountain-car", "lbs", seeds=(0, 1, 5), preset="clean", settings={"method.beta": 2})
    again = Experiment.from_json(json.loads(json.dumps(first.as_json())))
    assert resolve(again).run_id == resolve(first).run_id
    others = [
        Experiment("mountain-car", "lbs", seeds=(0, 1), preset="clean", settings={"method.beta": 2}),
        Experiment("mountain-car", "lbs", seeds=(0, 1, 5), preset="clean"),
        Experiment("mountain-car-frozen", "lbs", seeds=(0, 1, 5), preset="clean", settings={"method.beta": 2}),
    ]
    assert len({resolve(e).run_id for e in [first, *others]}) == 4


def test_seeds() -> None:
    assert seed_list(3) == (0, 1, 2)
    assert seed_list([5, 0]) == (5, 0)
    for bad in (0, -1, [], [1, 1], [-1], [2**32], [True], True):
        with pytest.raises(UsageError, match="seed"):
            seed_list(bad)  # pyright: ignore


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "montain-car"}, "unknown task 'montain-car'.*mountain-car"),
        ({"method": "isc"}, "unknown method"),
        ({"method": "lbss"}, "Did you mean 'lbs'"),
        ({"preset": "paper"}, "unknown preset 'paper'. Did you mean 'paper-"),
        ({"settings": {"ppo.clipp": 0.1}}, "unknown setting of ppo 'clipp'. Did you mean 'clip'"),
        ({"settings": {"pppo.clip": 0.1}}, "unknown group of settings 'pppo'. Did you mean 'ppo'"),
        ({"settings": {"clip": 0.1}}, "unknown setting 'clip'"),
        ({"settings": {"ppo.clip": "much"}}, "ppo.clip = 'much': must be a valid number"),
        ({"settings": {"ppo.clip": -0.1}}, "ppo.clip = -0.1: must be greater than 0"),
        ({"settings": {"ppo.discount": 1.0}}, "ppo.discount = 1.0: must be less than 1"),
        ({"settings": {"loop.rollout": 2.5}}, "loop.rollout = 2.5"),
        ({"settings": {"loop.successor": "rest"}}, "loop.successor = 'rest': must be 'reset', 'true' or 'drop'"),
        ({"settings": {"loop.extrinsic_weight": float("nan")}}, "must be a finite number"),
        ({"settings": {"method.beat": 1.0}}, "unknown setting of method 'beat'. Did you mean 'beta'"),
        ({"settings": {"task.horizon": 0}}, "task.horizon = 0: must be greater than or equal to 1"),
        (
            {"method": "random", "settings": {"method.beta": 1.0}},
            "method.beta: 'random' is no method and has no settings",
        ),
        ({"steps": 100}, "steps = 100 is less than one rollout of 2048 steps"),
        ({"steps": 0}, "steps = 0: must be a positive whole number"),
        ({"settings": {"ppo.minibatch_size": 4096}}, "ppo.minibatch_size = 4096 exceeds the 2048 samples"),
        ({"settings": {"loop.intrinsic_weight": 0.0}}, "both 0"),
        ({"settings": {"loop.envs": 65, "loop.rollout": 64}}, "is less than loop.envs = 65"),
        ({"seeds": 10**9}, "at most 65536 seeds"),
        ({"task": "nowhere:Task"}, "no module 'nowhere'"),
        ({"task": "json:JSONDecoder"}, "not a subclass of curiax.AbstractTask or curiax.AbstractHostTask"),
        ({"method": "curiax:AbstractCuriosity"}, "does not define loss, reward"),
        ({"method": "my/file.py:Mine"}, "name a module, not a file: my.file:Mine"),
        ({"method": "curiax.testing:NoisyArn"}, "Did you mean 'NoisyArm'"),
    ],
)
def test_bad_requests_are_refused_with_a_remedy(change: dict[str, Any], message: str) -> None:
    request = {"task": "mountain-car", "method": "lbs", **change}
    with pytest.raises(UsageError, match=message):
        resolve(Experiment(**request))


def test_a_subclass_of_lbs_gets_the_presets_beta() -> None:
    class Mine(LBS):
        """LBS under another name."""

    assert resolve(Experiment("mountain-car-frozen", Mine)).settings["method.beta"] == 2.0


BROKEN = """
    import jax.numpy as jnp
    import curiax

    class Method(curiax.AbstractCuriosity):
        '''A method.'''
        def __init__(self, spec, *, key, size: int = 3): {init}
        def reward(self, memory, t, *, key): {reward}
        def loss(self, t, *, draw): {loss}
"""


def broken(folder: Path, name: str, **parts: str) -> str:
    """A module with one method, wrong in the parts given."""
    right = {"init": "pass", "reward": "return memory, jnp.sum(t.obs)", "loss": "return jnp.sum(t.obs), {}"}
    (folder / f"{name}.py").write_text(textwrap.dedent(BROKEN).format(**{**right, **parts}))
    return f"{name}:Method"


@pytest.mark.parametrize(
    ("name", "parts", "message"),
    [
        ("vector_bonus", {"reward": "return memory, t.obs"}, r"bonus of .* must be float32\[\], not float32\[2\]"),
        ("no_pair", {"reward": "return jnp.sum(t.obs)"}, r"reward\(\) must return \(memory, bonus\)"),
        ("raises", {"reward": "return memory, t.nothing"}, r"reward\(\) failed: AttributeError"),
        ("whole_number", {"reward": "return memory, jnp.zeros((), int)"}, "must be float32"),
        ("new_memory", {"reward": "return jnp.zeros(2), jnp.sum(t.obs)"}, "changes its structure"),
        ("bad_terms", {"loss": "return jnp.sum(t.obs), 3"}, "terms of .* must be a dict"),
        ("bad_loss", {"loss": "return t.obs, {}"}, "loss of .* must be float32"),
        ("bad_init", {"init": "raise ValueError('no such size')"}, "constructing .* failed: ValueError: no such size"),
    ],
)
def test_a_method_that_breaks_the_contract_is_refused_before_compilation(
    name: str, parts: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "out"
    with pytest.raises(ContractError, match=message):
        curiax.run(Experiment("mountain-car", broken(tmp_path, name, **parts)), out)
    assert not out.exists()
    assert not list(tmp_path.glob(".out*"))


def test_a_task_that_cannot_be_built_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "unbuilt.py").write_text(
        "import curiax\n"
        "class Task(curiax.AbstractTask):\n"
        "    spec: curiax.Spec\n"
        "    grids: tuple\n"
        "    def __init__(self): self.spec = curiax.Spec((2,), curiax.Box((1.0,), (0.0,)))\n"
        "    def reset(self, *, key): ...\n"
        "    def step(self, state, action, *, key): ...\n"
        "    def observe(self, state): ...\n"
        "    def track(self, state): ...\n"
    )
    with pytest.raises(
        ContractError, match="constructing task 'unbuilt:Task' failed: ValueError: Box needs low < high"
    ):
        resolve(Experiment("unbuilt:Task", "lbs"))


def test_users_classes_are_found_by_name_and_as_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    plan = resolve(Experiment("mountain-car", broken(tmp_path, "fine"), settings={"method.size": 5}))
    assert plan.settings["method.size"] == 5
    assert plan.method_entry.name == "fine:Method"
    assert find_method(LBS).cls is LBS


def test_the_remote_keeps_the_tasks_budget(tmp_path: Path) -> None:
    from curiax.testing import ProbeTask

    class Short(ProbeTask):
        budget = 4096

    assert resolve(Experiment(Short, "lbs", settings={"remote.mode": "frozen"})).steps == 4096


def test_wrong_python_types_are_refused_in_words() -> None:
    """In a process of its own: here the executed annotations would refuse them first."""
    cases = {
        "seeds=None": "give a number of seeds, or a list",
        "seeds=2.5": "give a number of seeds, or a list",
        "seeds='abc'": "give a number of seeds, or a list",
        "seeds=[1.5]": "1.5 is not an integer",
        "preset=None": "preset = None: must be one of paper-code",
        "settings=['ppo.clip']": "must map dotted names to values",
        "settings={1: 2}": "must map dotted names to values",
        "settings={'ppo.clip': object()}": "settings must be plain data",
        "settings={'ppo.width': True}": "ppo.width = True: must be a number",
        "settings={'loop.extrinsic_weight': 'nan'}": "must be a finite number",
        "steps='many'": "steps = 'many': must be a positive whole number",
    }
    code = "import curiax\n"
    for case in cases:
        code += f"try: curiax.resolve(curiax.Experiment('mountain-car', 'lbs', {case})); print('accepted')\n"
        code += "except curiax.UsageError as error: print(str(error).splitlines()[0])\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for (case, message), line in zip(cases.items(), done.stdout.splitlines(), strict=True):
        assert message in line, (case, line)


def test_seeds_may_be_any_iterable_once() -> None:
    experiment = Experiment("mountain-car", "lbs", seeds=(k for k in (4, 2)))
    assert resolve(experiment).seeds == resolve(experiment).seeds == (4, 2)
    assert experiment.as_json()["seeds"] == [4, 2]


def test_a_changed_method_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = broken(tmp_path, "edited")
    before = resolve(Experiment("mountain-car", name)).run_id
    with (tmp_path / "edited.py").open("a") as file:
        file.write("\n# better\n")
    assert resolve(Experiment("mountain-car", name)).run_id != before


def test_every_registered_name_resolves() -> None:
    for task in TASKS:
        for method in METHODS:
            # The budgets of the released code's commands, in rollouts of 2048, of games 16,384.
            rollouts = {"half-cheetah": 245, "ant-maze": 123, "mnist": 1500, **dict.fromkeys(ARCADE, 6103)}.get(
                task, 50
            )
            assert resolve(Experiment(task, method)).iterations == rollouts
