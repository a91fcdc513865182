"""Plain float64 NumPy versions of the networks, and random transitions: shared by the tests of the methods."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from curiax import Box, Spec, Transition
from curiax.nn import MLP, Linear

Doubles = NDArray[np.float64]


def double(x: Any) -> Doubles:
    return np.asarray(x, np.float64)


def linear(layer: Linear, x: Doubles) -> Doubles:
    return x @ double(layer.weight) + double(layer.bias)


def relu_mlp(net: MLP, x: Doubles, *, activate_last: bool = False) -> Doubles:
    """The network in float64; the activation is written out so that the library's own is not trusted."""
    for layer in net.layers[:-1]:
        x = np.maximum(linear(layer, x), 0.0)
    x = linear(net.layers[-1], x)
    return np.maximum(x, 0.0) if activate_last else x


def softplus(x: Doubles) -> Doubles:
    return np.logaddexp(0.0, x)


def kl_terms(mean: Doubles, std: Doubles, other_mean: Doubles, other_std: Doubles) -> Doubles:
    """KL of diagonal Gaussians, one term for each dimension."""
    return np.log(other_std / std) + (std**2 + (mean - other_mean) ** 2) / (2 * other_std**2) - 0.5


def random_steps(spec: Spec, rng: np.random.Generator, *lead: int, scale: float = 1.0) -> Transition:
    """Transitions of unrelated normal numbers under the given leading axes."""
    if isinstance(spec.action, Box):
        action = jnp.asarray(rng.normal(size=(*lead, spec.action.size)), jnp.float32)
    else:
        action = jnp.asarray(rng.integers(spec.action.n, size=lead), jnp.int32)
    obs, next_obs = (jnp.asarray(scale * rng.normal(size=(*lead, *spec.obs_shape)), jnp.float32) for _ in range(2))
    flag = jnp.zeros(lead, bool)
    return Transition(obs, action, next_obs, jnp.zeros(lead), flag, flag, ~flag)


def action_vector(spec: Spec, action: Any) -> Doubles:
    """What a network sees of an action."""
    return double(action) if isinstance(spec.action, Box) else np.eye(spec.action.n)[np.asarray(action)]
