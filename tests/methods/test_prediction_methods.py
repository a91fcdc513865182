"""RND, ICM and Disagreement in float64, and the sizes of every method's networks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import Doubles, action_vector, double, linear, random_steps, relu_mlp
from scipy import special, stats

from curiax import AbstractCuriosity, Box, Discrete, Learner, LearnerSettings, Spec, Transition
from curiax._tree import flatten
from curiax.curiosity import ICM, LBS, NGU, RIDE, RND, VIME, Disagreement
from curiax.nn import Linear

SPEC = Spec((3,), Box((-1.0, -1.0), (1.0, 1.0)))
CHOICES = Spec((3,), Discrete(4))
BATCH = 32


@cache
def batch(spec: Spec) -> Transition:
    return random_steps(spec, np.random.default_rng(0), BATCH, scale=2.0)


def rewards(model: AbstractCuriosity, t: Transition) -> Doubles:
    return double(jax.jit(jax.vmap(lambda t: model.reward(None, t, key=jax.random.key(0))[1]))(t))


def losses(model: AbstractCuriosity, t: Transition, draws: Any = None) -> Doubles:
    if draws is None:
        return double(jax.jit(jax.vmap(lambda t: model.loss(t, draw=None)[0]))(t))
    return double(jax.jit(jax.vmap(lambda t, d: model.loss(t, draw=d)[0]))(t, draws))


# Random Network Distillation.


def distillation_error(model: RND, obs: Doubles, clip: float = 5.0) -> Doubles:
    x = np.clip(obs, -clip, clip)
    target = model.distillation.target.net
    aim = linear(target, x) if isinstance(target, Linear) else relu_mlp(target, x)
    return ((relu_mlp(model.distillation.predictor, x) - aim) ** 2).mean(-1)


@pytest.mark.parametrize(("target", "clip"), [("mlp", 5.0), ("linear", 1.5)])
def test_rnd_pays_and_minimises_the_distillation_error(target: Any, clip: float) -> None:
    t = batch(SPEC)
    model = RND(SPEC, key=jax.random.key(0), target=target, width=8, feature_size=6, clip=clip)
    assert isinstance(model.distillation.target.net, Linear) == (target == "linear")
    expected = distillation_error(model, double(t.next_obs), clip)
    np.testing.assert_allclose(rewards(model, t), expected, rtol=1e-4)
    np.testing.assert_allclose(losses(model, t), expected, rtol=1e-4)
    assert (np.abs(double(t.next_obs)) > clip).any()


def test_rnd_pays_nothing_for_a_perfect_copy() -> None:
    """The predictor's extra layer becomes the identity, which a rectified vector passes unchanged."""
    model = RND(SPEC, key=jax.random.key(0), width=8, feature_size=6)
    first, second, last = model.distillation.target.net.layers
    extra = eqx.tree_at(lambda x: (x.weight, x.bias), second, (jnp.eye(8), jnp.zeros(8)))
    copied = eqx.tree_at(lambda m: m.distillation.predictor.layers, model, (first, second, extra, last))
    assert rewards(copied, batch(SPEC)).max() < 1e-12
    assert rewards(model, batch(SPEC)).min() > 1e-4


def test_rnd_training_lowers_the_error_and_leaves_the_target() -> None:
    model = RND(SPEC, key=jax.random.key(0), width=8, feature_size=6)
    learner = Learner(LearnerSettings(learning_rate=1e-2, minibatch_size=16, epochs=20))
    steps = random_steps(SPEC, np.random.default_rng(1), 64, 1)
    trained, _, _ = jax.jit(lambda m: learner.update(m, learner.start(m, steps), steps, key=jax.random.key(1)))(model)
    assert eqx.tree_equal(trained.distillation.target, model.distillation.target)
    seen = double(steps.next_obs)
    assert distillation_error(trained, seen).mean() < 0.2 * distillation_error(model, seen).mean()
    # The optimiser keeps no state for the target: predictor 3-8-8-8-6 alone.
    assert flatten(model)[0].size == (3 + 1) * 8 + 2 * (8 + 1) * 8 + (8 + 1) * 6


# Intrinsic Curiosity Module.


def icm_parts(model: ICM, spec: Spec, t: Transition) -> tuple[Doubles, Doubles]:
    """The inverse loss and the mean squared forward error of a batch."""
    phi, next_phi = (relu_mlp(model.features.encoder, double(x)) for x in (t.obs, t.next_obs))
    action = action_vector(spec, t.action)
    out = relu_mlp(model.features.inverse, np.concatenate([phi, next_phi], axis=-1))
    if isinstance(spec.action, Box):
        inverse = ((out - action) ** 2).mean(-1)
    else:
        inverse = -special.log_softmax(out, axis=-1)[np.arange(len(out)), np.asarray(t.action)]
    guess = relu_mlp(model.forward, np.concatenate([phi, action], axis=-1))
    return inverse, ((guess - next_phi) ** 2).mean(-1)


@pytest.mark.parametrize("spec", [SPEC, CHOICES], ids=["box", "discrete"])
def test_icm_loss_and_reward_in_float64(spec: Spec) -> None:
    model, t = ICM(spec, key=jax.random.key(0), width=8, feature_size=5, forward_weight=0.3), batch(spec)
    inverse, error = icm_parts(model, spec, t)
    loss, terms = jax.jit(jax.vmap(lambda t: model.loss(t, draw=None)))(t)
    np.testing.assert_allclose(terms["inverse_loss"], inverse, rtol=1e-4)
    np.testing.assert_allclose(terms["forward_loss"], 0.5 * error, rtol=1e-4)
    np.testing.assert_allclose(loss, 0.7 * inverse + 0.3 * 0.5 * error, rtol=1e-4)
    np.testing.assert_allclose(rewards(model, t), error, rtol=1e-4)


@pytest.mark.parametrize("mode", ["inverse", "both"])
def test_icm_forward_loss_reaches_the_features_only_if_asked(mode: Any) -> None:
    """With all weight on the forward loss, the encoder's slope is that of the forward error, or none."""
    model, t = ICM(SPEC, key=jax.random.key(0), width=8, forward_weight=1.0, feature_gradient=mode), batch(SPEC)
    gradient = jax.jit(jax.grad(lambda m: jnp.mean(jax.vmap(lambda t: m.loss(t, draw=None)[0])(t))))(model)

    def slope(where: Callable[[ICM], jax.Array], k: int) -> float:
        sides = []
        for sign in (1, -1):
            moved = double(where(model))
            moved[k] += sign * 1e-4
            sides.append(0.5 * icm_parts(eqx.tree_at(where, model, moved), SPEC, t)[1].mean())
        return (sides[0] - sides[1]) / 2e-4

    encoder = gradient.features.encoder
    numeric = slope(lambda m: m.features.encoder.layers[-1].bias, 0)
    assert abs(numeric) > 1e-3
    np.testing.assert_allclose(encoder.layers[-1].bias[0], numeric if mode == "both" else 0.0, rtol=1e-3)
    assert np.any(encoder.layers[0].weight) == (mode == "both")
    np.testing.assert_allclose(
        gradient.forward.layers[-1].bias[0], slope(lambda m: m.forward.layers[-1].bias, 0), rtol=1e-3
    )
    assert not np.any(gradient.features.inverse.layers[0].weight)


def test_icm_inverse_loss_always_trains_the_features() -> None:
    model, t = ICM(SPEC, key=jax.random.key(0), width=8, forward_weight=0.0), batch(SPEC)
    gradient = jax.jit(jax.grad(lambda m: jnp.mean(jax.vmap(lambda t: m.loss(t, draw=None)[0])(t))))(model)
    assert np.any(gradient.features.encoder.layers[0].weight)
    assert np.any(gradient.features.inverse.layers[0].weight)
    assert not np.any(gradient.forward.layers[0].weight)


# Disagreement.


def ensemble_predictions(model: Disagreement, spec: Spec, t: Transition) -> Doubles:
    x = np.concatenate([double(t.obs), action_vector(spec, t.action)], axis=-1)
    count = model.members.layers[0].bias.shape[0]
    return np.stack([relu_mlp(jax.tree.map(lambda leaf, k=k: leaf[k], model.members), x) for k in range(count)])


@pytest.mark.parametrize("spec", [SPEC, CHOICES], ids=["box", "discrete"])
def test_disagreement_in_float64(spec: Spec) -> None:
    model, t = Disagreement(spec, key=jax.random.key(0), width=8, ensemble_size=4, keep=0.5), batch(spec)
    guesses = ensemble_predictions(model, spec, t)
    assert guesses.shape == (4, BATCH, 3)
    np.testing.assert_allclose(rewards(model, t), np.var(guesses, axis=0).mean(-1), rtol=1e-3)
    masks = np.random.default_rng(1).integers(2, size=(BATCH, 4)) * 2.0
    errors = ((guesses - double(t.next_obs)) ** 2).mean(-1).T
    np.testing.assert_allclose(losses(model, t, jnp.asarray(masks)), (errors * masks).sum(-1), rtol=1e-4)


def test_members_start_apart_and_agree_when_made_equal() -> None:
    model = Disagreement(SPEC, key=jax.random.key(0), width=8)
    assert rewards(model, batch(SPEC)).min() > 1e-4
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), model.members)
    assert rewards(eqx.tree_at(lambda m: m.members, model, same), batch(SPEC)).max() < 1e-12


@pytest.mark.parametrize("keep", [0.8, 1.0])
def test_each_member_skips_samples_on_its_own(keep: float) -> None:
    model = Disagreement(SPEC, key=jax.random.key(0), width=8, keep=keep)
    masks = double(jax.jit(jax.vmap(model.draw))(jax.random.split(jax.random.key(1), 5000)))
    assert masks.shape == (5000, 5)
    kept = masks > 0
    np.testing.assert_allclose(masks[kept], 1 / keep, rtol=1e-6)
    if keep == 1.0:
        assert kept.all()
        return
    for column in kept.T:
        assert stats.binomtest(int(column.sum()), 5000, keep).pvalue > 1e-4
    assert np.abs(np.corrcoef(kept.T) - np.eye(5)).max() < 0.07


# Sizes.

SPECS = {
    "discrete": Spec((3,), Discrete(4)),
    "many": Spec((7,), Box((-1.0,) * 5, (1.0,) * 5)),
    "image": Spec((2, 3), Box((-2.0,), (0.5,))),
}
WIDE = {"width": 8}
BUILDERS: dict[str, tuple[type[AbstractCuriosity], dict[str, Any]]] = {
    "lbs": (LBS, WIDE),
    "lbs-full": (LBS, {**WIDE, "posterior": "full", "latent_size": 2}),
    "icm": (ICM, WIDE),
    "rnd": (RND, WIDE),
    "disagreement": (Disagreement, WIDE),
    "vime": (VIME, WIDE),
    "ride": (RIDE, WIDE),
    "ngu": (NGU, WIDE),
}


@pytest.mark.parametrize("shape", SPECS)
@pytest.mark.parametrize("method", BUILDERS)
def test_every_method_takes_every_kind_of_action_and_observation(method: str, shape: str) -> None:
    cls, settings = BUILDERS[method]
    spec = SPECS[shape]
    model = cls(spec, key=jax.random.key(0), **settings)
    t = jax.tree.map(lambda x: x[0], random_steps(spec, np.random.default_rng(0), 1))

    def both(t: Transition, key: jax.Array) -> tuple[Any, Any]:
        return model.reward(model.memory(), t, key=key)[1], model.loss(t, draw=model.draw(key))[0]

    for out in jax.eval_shape(both, t, jax.random.key(0)):
        assert out.shape == ()
        assert out.dtype == jnp.float32


@pytest.mark.parametrize("shape", SPECS)
def test_first_layers_see_what_the_equations_name(shape: str) -> None:
    """Observation entries n and action entries a, by hand for each space."""
    spec = SPECS[shape]
    n, a = {"discrete": (3, 4), "many": (7, 5), "image": (6, 1)}[shape]
    made = {name: cls(spec, key=jax.random.key(0), **settings) for name, (cls, settings) in BUILDERS.items()}

    def inputs(net: Any) -> int:
        return net.layers[0].weight.shape[-2]

    assert inputs(made["lbs"].trunk) == n + a
    assert inputs(made["lbs-full"].posterior_trunk) == n + a + n
    assert made["lbs"].reconstruction.weight.shape == (n, n)
    assert made["lbs-full"].reconstruction.weight.shape == (2, n)
    assert inputs(made["icm"].features.encoder) == n
    assert made["icm"].features.inverse.layers[-1].weight.shape[1] == a
    assert inputs(made["icm"].forward) == n + a
    assert inputs(made["rnd"].distillation.predictor) == n
    assert inputs(made["disagreement"].members) == n + a
    assert made["disagreement"].members.layers[-1].weight.shape == (5, 8, n)
    assert made["vime"].layers[0].mean.shape == (n + a + 1, 8)
    assert made["vime"].layers[-1].mean.shape == (8 + 1, n)
    assert inputs(made["ride"].forward) == n + a
    assert made["ride"].counter.size == n
    assert made["ngu"].counter.size == 32
