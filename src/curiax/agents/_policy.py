"""What a policy learner is: it acts without a memory, and learns from a rollout and what its steps earned."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Shaped

from .._metrics import Metric
from .._sound import Checks
from .._types import PRNGKey, Rewards, Rollout, Spec
from ._base import HostActor

PolicyState = Any


class AbstractPolicyLearner(eqx.Module):
    """Settings of a policy learner; what it learns is in an explicit state."""

    #: What it reports of its learning.
    metrics: ClassVar[tuple[Metric, ...]] = ()

    @property
    def sees_successors(self) -> bool:
        """Whether `learn` looks at the true last observations of episodes."""
        return True

    @abc.abstractmethod
    def build(self, spec: Spec, *, key: PRNGKey) -> Any:
        """The networks, drawn on the host."""

    @abc.abstractmethod
    def start(self, networks: Any) -> PolicyState:
        """The state before any learning."""

    @abc.abstractmethod
    def networks(self, state: PolicyState) -> Any:
        """The networks as they are now."""

    @abc.abstractmethod
    def noise(self, spec: Spec, shape: tuple[int, ...], *, key: PRNGKey) -> Float[Array, "..."]:
        """The randomness of many actions, drawn in bulk."""

    @abc.abstractmethod
    def act(
        self, spec: Spec, networks: Any, obs: Float[Array, "..."], noise: Float[Array, " _"], *, greedy: bool = False
    ) -> Shaped[Array, "..."]:
        """One action for one observation; the likeliest if `greedy`."""

    @abc.abstractmethod
    def described(self, networks: Any, name: str) -> dict[str, Any]:
        """What an export says of the networks, whose arrays' names begin so: enough to act without this code."""

    def host_actor(self, spec: Spec, networks: Any, noise: Shaped[np.ndarray, "T S N _"]) -> HostActor | None:
        """`act` in NumPy for one rollout, of all seeds and environments at once; None for the compiled one."""
        return None

    @abc.abstractmethod
    def learn(
        self, spec: Spec, state: PolicyState, rollout: Rollout, rewards: Rewards, *, key: PRNGKey
    ) -> tuple[PolicyState, dict[str, Array], Checks | None]:
        """The state after learning from a rollout and what its steps earned, diagnostics, and checks of its steps."""

    def check(self, state: PolicyState) -> Checks | None:
        """What must be sound after it; None for a learner that keeps nothing."""
        return None
