"""Defects that were met in other libraries: a test for each here, or in the place that `ELSEWHERE` names."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium import spaces

from curiax import AbstractCuriosity, Bonus, LearnerSettings
from curiax._tree import adam

#: Defect → the tests elsewhere that hold Curiax to better, by file.
ELSEWHERE: dict[str, dict[str, tuple[str, ...]]] = {
    "the filter of returns runs along the wrong axis": {
        "test_stats.py": (
            "test_environments_are_filtered_along_time_and_apart",
            "test_return_scale_equals_the_plain_loop",
        ),
        "test_bonus.py": ("test_pays_what_the_method_pays",),
    },
    "rewards are replaced by their discounted sum": {
        "test_stats.py": ("test_a_bonus_is_divided_by_one_number_and_not_replaced_by_its_returns",),
        "test_bonus.py": ("test_pays_what_the_method_pays",),
    },
    "an evaluation changes the running statistics": {
        "test_bonus.py": ("test_only_asking_changes_nothing",),
        "test_sb3.py": ("test_evaluation_leaves_the_bonus_alone",),
    },
    "the user's environment is stepped by the bonus": {"test_vector.py": ("test_true_successors_in_every_mode",)},
    "the successor is the next episode's first observation": {
        "test_vector.py": ("test_true_successors_in_every_mode",),
        "test_sb3.py": ("test_the_bonus_sees_true_successors_and_is_added_to_the_reward",),
        "test_loop.py": ("test_what_the_model_sees_at_an_episode_end",),
    },
    "the advantage of a truncated step is set to 0": {
        "test_gae.py": ("test_values_at_episode_ends", "test_gae_equals_the_plain_sums"),
    },
    "a corrupted checkpoint is read in silence": {
        "test_checkpoint.py": (
            "test_damaged_files_are_found",
            "test_a_damaged_step_is_named_and_set_aside_and_the_run_ends_as_it_would_have",
        ),
        "test_bonus.py": ("test_every_flipped_byte_is_found",),
    },
    "the seed of confidence intervals is ignored": {
        "test_statistics.py": ("test_wider_at_higher_levels_and_the_same_each_time",),
    },
    "examples and tests call what is no longer there": {"test_examples.py": ("test_example_runs",)},
}


@pytest.mark.parametrize("defect", ELSEWHERE)
def test_every_test_that_is_pointed_to_exists(defect: str) -> None:
    assert ELSEWHERE[defect]
    for file, names in ELSEWHERE[defect].items():
        tree = ast.parse((Path(__file__).parent / file).read_text(encoding="utf-8"))
        found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert set(names) <= found, f"{file} no longer has {set(names) - found}"
        assert names


def test_a_clipped_norm_is_a_norm() -> None:
    """A bound on the gradient's norm shortens it; clipping each entry would turn it."""
    gradient = jnp.asarray([30.0, 40.0, 0.5])
    # With this epsilon Adam's first step is the gradient itself, times the rate over epsilon.
    large = 1e8
    clipped = adam(large, large, 1.0)
    step, _ = clipped.update(gradient, clipped.init(gradient), gradient)
    expected = np.asarray(gradient) / np.linalg.norm(gradient)
    np.testing.assert_allclose(-np.asarray(step), expected, rtol=1e-4)
    assert isinstance(clipped, optax.GradientTransformation)


def test_numbers_do_not_depend_on_the_order_of_names() -> None:
    """Python's order of sets and attributes changes from process to process; what is drawn must not."""
    code = (
        "import numpy as np, jax, hashlib; from gymnasium import spaces; import curiax; "
        "b = curiax.Bonus('ngu', spaces.Box(-1, 1, (3,)), spaces.Discrete(2), num_envs=2, horizon=5); "
        "print(hashlib.sha256(b''.join(np.asarray(x).tobytes() for x in jax.tree.leaves(b.state))).hexdigest())"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


class Telling(AbstractCuriosity):
    """Pays a number drawn from the key that it is given, and reports the one that training is given."""

    scale: Any = eqx.field(default=None)

    def __init__(self, spec: Any, *, key: Any) -> None:
        self.scale = jnp.ones(())

    def reward(self, memory: Any, t: Any, *, key: Any) -> Any:
        return memory, jax.random.uniform(key)

    def loss(self, t: Any, *, draw: Any) -> Any:
        return 0.0 * self.scale, {"drawn": jax.random.uniform(draw)}


def test_asking_and_training_have_keys_of_their_own() -> None:
    """What a question draws is not what training draws, now or after the next update."""
    settings = LearnerSettings(epochs=1, minibatch_size=1, scale=False)
    bonus = Bonus(Telling, spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(2), num_envs=1, learner=settings)
    seen: list[float] = []
    for k in range(3):
        obs = np.full((1, 2), k / 4)
        seen.append(float(bonus.reward(obs, [0], obs + 0.1, [True], [False])[0]))
        seen.append(bonus.update()["drawn"])
    assert len(set(seen)) == len(seen)
