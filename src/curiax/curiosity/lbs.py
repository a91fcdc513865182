"""Latent Bayesian Surprise (LBS).

Mazzaglia, Catal, Verbelen, Dhoedt: Curiosity-Driven Exploration via Latent Bayesian Surprise, AAAI 2022.

    prior p(z′|s,a),  posterior q(z′|s,a,s′),  reconstruction p(s′|z′) = N(W z′ + b, I)
    loss  = β KL[q ‖ p] − log p(s′|z′),  z′ ~ q        (eq. 1, the negative β-ELBO)
    bonus = KL[q ‖ p]                                  (eq. 2)

Choices, where the paper is open or its released code differs from it:

* `posterior="trunk"`: the posterior sees the prior's last hidden vector beside s′ (released code);
  `"full"` gives it s, a and s′ themselves, as q(z′|s,a,s′) is written.
* `latent_size=None`: as many latents as observation entries (paper, control tasks).
* Deviations are softplus + 1e-4; means and deviations have linear heads of their own (released code).
* KL and log-density are summed over dimensions and gradients reach both q and p: no balancing, no free nats.
* `bonus="mean"` pays the mean squared distance of the two means instead of the KL, `"kl+nll"` adds the
  reconstruction's negative log-likelihood at the posterior mean: both flags exist, off, in the released code.
* Images: s and s′ pass through convolutions of their own, which train; layers have LeakyReLU. What is reconstructed
  are 128 (MNIST) or 512 random features of s′, standardised once; `target="pixels"` reconstructs s′ itself. Which of
  the two the paper's MNIST task was run with is not known.
* `decoder=None`: pixels of images with sides of at least 36 come from transposed convolutions that mirror the
  encoder's (paper, appendix on arcade games), all else from one linear layer (released code).
* β is 0.1 on deterministic and 2 on noisy control tasks in the paper; the preset in force sets it. A noise
  dimension of variance v in the normalised observation is encoded, and paid for, exactly when β < v.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._errors import UsageError
from .._metrics import Metric
from .._settings import Count, NonNegative
from .._types import PRNGKey, Scalar, Spec, Transition
from ..dist import LOG_2PI, DiagGaussian
from ..nn import MLP, GaussianHead, Linear, generator, join
from ._base import AbstractCuriosity, Memory, Terms
from .encoders import Eye, Mirror, activation_for, default_width, feature_count, large_image
from .features import Target


class LBS(AbstractCuriosity):
    """Pays the information that s′ brings about the latent z′."""

    bibtex: ClassVar[str] = """@inproceedings{mazzaglia2022curiosity,
  title     = {Curiosity-Driven Exploration via Latent {Bayesian} Surprise},
  author    = {Mazzaglia, Pietro and Catal, Ozan and Verbelen, Tim and Dhoedt, Bart},
  booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence},
  volume    = {36},
  pages     = {7752--7760},
  year      = {2022}
}"""
    nonnegative: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("kl", "KL of posterior and prior", "nats", "The bonus itself: H(q, p) - H(q).", low=0.0),
        Metric("posterior_entropy", "entropy of the posterior", "nats"),
        Metric("cross_entropy", "cross entropy of posterior and prior", "nats"),
        Metric("reconstruction", "reconstruction error", "nats", "-log p(s' | z'), z' the posterior's mean."),
    )

    eye: Eye
    next_eye: Eye
    target: Target
    trunk: MLP
    prior_head: GaussianHead
    posterior_trunk: MLP
    posterior_head: GaussianHead
    reconstruction: Linear | Mirror
    latents: int = eqx.field(static=True)
    spec: Spec = eqx.field(static=True)
    beta: float = eqx.field(static=True)
    bonus: str = eqx.field(static=True)
    posterior: str = eqx.field(static=True)

    def __init__(
        self,
        spec: Spec,
        *,
        key: PRNGKey,
        beta: NonNegative = 0.1,
        bonus: Literal["kl", "mean", "kl+nll"] = "kl",
        posterior: Literal["trunk", "full"] = "trunk",
        width: Count | None = None,
        latent_size: Count | None = None,
        target: Literal["features", "pixels"] = "features",
        decoder: Literal["linear", "mirror"] | None = None,
    ) -> None:
        """Build the networks.

        Args:
            spec: the task's spaces.
            key: draws the parameters.
            beta: weight of the KL in the loss; noise of normalised variance below it is ignored.
            bonus: `kl`, or the ablations `mean` (distance of the means) and `kl+nll`.
            posterior: what the posterior sees beside s′: the prior's `trunk`, or s and a in `full`.
            width: hidden units in each layer; None takes 32, for images the number of their features.
            latent_size: number of latents; None takes the observation's size, for images the number of their features.
            target: what is reconstructed of an image: random `features`, or its `pixels`; a vector is itself.
            decoder: what reconstructs: a `linear` layer, or, of an image's pixels, the `mirror` of the convolutions;
                None takes the mirror for large images.
        """
        drawn = spec.image and target == "pixels"
        if decoder == "mirror" and not drawn:
            raise UsageError("method.decoder = 'mirror' draws pixels of images: set method.target = 'pixels'.")
        rng = generator(key)
        width, activation = width or default_width(spec), activation_for(spec)
        self.eye, self.next_eye = Eye(spec, key=rng), Eye(spec, key=rng)
        self.target = Target(spec, key=rng, pixels=target == "pixels")
        seen = self.eye.size + spec.action.size
        latents = latent_size or feature_count(spec)
        self.trunk = MLP([seen, width, width], key=rng, activation=activation, activate_last=True)
        self.prior_head = GaussianHead(width, latents, key=rng)
        inputs = (width if posterior == "trunk" else seen) + self.next_eye.size
        self.posterior_trunk = MLP([inputs, width, width], key=rng, activation=activation, activate_last=True)
        self.posterior_head = GaussianHead(width, latents, key=rng)
        mirrored = decoder == "mirror" or (decoder is None and drawn and large_image(spec))
        self.reconstruction = Mirror(spec, latents, key=rng) if mirrored else Linear(latents, self.target.size, key=rng)
        self.latents, self.spec, self.beta, self.bonus, self.posterior = latents, spec, beta, bonus, posterior

    def beliefs(self, t: Transition) -> tuple[DiagGaussian, DiagGaussian]:
        """The posterior q(z′|s,a,s′) and the prior p(z′|s,a)."""
        seen = join(self.eye(t.obs), self.spec.action.vector(t.action))
        h = self.trunk(seen)
        g = self.posterior_trunk(join(h if self.posterior == "trunk" else seen, self.next_eye(t.next_obs)))
        return self.posterior_head(g), self.prior_head(h)

    def nll(self, z: Float[Array, " latents"], t: Transition) -> Scalar:
        """−log N(s′; d(z), I), d(z) = W z + b or the mirror; of an image, what `target` makes of s′."""
        error = self.reconstruction(z) - self.target(t.next_obs)
        return 0.5 * jnp.sum(error**2) + 0.5 * LOG_2PI * error.size

    def reward(self, memory: Memory, t: Transition, *, key: PRNGKey) -> tuple[Memory, Scalar]:
        q, p = self.beliefs(t)
        if self.bonus == "mean":
            return memory, jnp.mean((q.mean - p.mean) ** 2)
        if self.bonus == "kl+nll":
            return memory, q.kl(p) + self.nll(q.mean, t)
        return memory, q.kl(p)

    def draw(self, key: PRNGKey) -> PyTree:
        return jax.random.normal(key, (self.latents,))

    def loss(self, t: Transition, *, draw: PyTree) -> tuple[Scalar, Terms]:
        q, p = self.beliefs(t)
        z = q.sample(draw)
        return self.beta * q.kl(p) + self.nll(z, t), {}

    def explain(self, t: Transition, *, key: PRNGKey) -> Terms:
        q, p = self.beliefs(t)
        return {
            "kl": q.kl(p),
            "posterior_entropy": jnp.sum(q.entropy()),
            "cross_entropy": q.cross_entropy(p),
            "reconstruction": self.nll(q.mean, t),
        }
