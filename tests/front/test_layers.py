"""The folder tree is the architecture: who may import whom, what is light, what is never there."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import curiax
from curiax.experiments.registry import TASKS
from curiax.integrations import GYMNASIUM_IDS
from curiax.paper.suites import ARCADE

ROOT = Path(curiax.__file__).parent
#: Lower layers first; a package imports only from layers below its own, or from itself.
LAYERS = [
    {
        "_errors",
        "_types",
        "_tree",
        "_stats",
        "dist",
        "_frames",
        "_settings",
        "_sound",
        "_version",
        "_files",
        "_matplotlib",
        "_metrics",
        "_source",
        "_text",
        "nn",
    },
    {"curiosity", "envs"},
    {"agents", "_contract"},
    {"train"},
    {"paper"},
    {"experiments", "testing"},
    {"report", "integrations", "watch", "trained", "launch"},
    {"cli", "__init__"},
    {"__main__"},
]


def imports(file: Path) -> set[str]:
    """The packages of Curiax that a file imports."""
    found = set()
    depth = len(file.relative_to(ROOT).parts)
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            found |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
    return found


def test_layers() -> None:
    level = {name: k for k, names in enumerate(LAYERS) for name in names}
    for file in ROOT.rglob("*.py"):
        own = file.relative_to(ROOT).parts[0].removesuffix(".py")
        for other in imports(file) - {own}:
            assert level[other] <= level[own], f"{file.relative_to(ROOT)} imports {other}, which lies above it"
    assert not imports(ROOT / "curiosity" / "learner.py") & {"envs", "agents", "train"}


def test_shapes_are_executed(pytestconfig: pytest.Config) -> None:
    """Each module with shapes in its annotations is checked at run time, and the list of those names no other."""
    *checked, _ = pytestconfig.getoption("jaxtyping_packages").split(",")
    parts = {name: tuple(name.split(".")) for name in checked}
    shaped = set()
    for file in ROOT.rglob("*.py"):
        nodes = ast.walk(ast.parse(file.read_text()))
        if any("jaxtyping" in ast.unparse(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)):
            shaped.add((ROOT.name, *file.relative_to(ROOT).with_suffix("").parts))
    for module in shaped:
        assert any(module[: len(part)] == part for part in parts.values()), f"add {'.'.join(module)} in pyproject.toml"
    for name, part in parts.items():
        assert any(module[: len(part)] == part for module in shaped), f"{name} has no shapes; take it out"


def test_curiosity_stands_alone() -> None:
    for file in (ROOT / "curiosity").glob("*.py"):
        assert not imports(file) & {"envs", "agents", "train", "experiments"}, file.name


def test_import_is_light() -> None:
    """`import curiax` pulls in nothing that only some users need."""
    heavy = ["torch", "matplotlib", "polars", "mujoco", "pydantic", "tyro", "rich.progress", "pandas"]
    heavy += ["PIL", "safetensors", "jax", "equinox"]
    code = f"import sys, curiax; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_stable_baselines3_is_asked_for_by_one_module_only() -> None:
    """Nothing else imports PyTorch; where Stable-Baselines3 is missing, the error says how to get it."""
    code = """
import sys
sys.modules["stable_baselines3"] = None  # importing it fails, as where it is not installed
import curiax
curiax.Bonus, curiax.CuriousVectorEnv
assert "torch" not in sys.modules
try:
    import curiax.integrations.sb3
except curiax.UsageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'curiax[sb3]'" in done.stdout


def test_every_task_has_a_name_for_gymnasium() -> None:
    """Listed apart from the tasks, so that registering them takes no JAX; games have names of their own packages."""
    assert sorted(GYMNASIUM_IDS.values()) == sorted(set(TASKS) - set(ARCADE))


def test_names_come_when_they_are_asked_for() -> None:
    for name in curiax.__all__:
        assert getattr(curiax, name) is not None
    assert not hasattr(curiax, "nonsense")
