"""Defects that were met in other libraries and that no other file of tests is about."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces

from curiax import AbstractCuriosity, Bonus, LearnerSettings
from curiax._tree import adam


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
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


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
