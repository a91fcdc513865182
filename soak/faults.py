"""Faults put into a run on purpose: one value at one exact place of one seed, to see that it is found and contained.

    plan = inject(resolve(experiment), Injection("reward", math.nan, seed=3, iteration=1, step=17, environment=0))

Every use of randomness has a key of its own, so a key says where a computation is: the wrappers below look for one key
and put the value there. What a compiled program must know of it are arrays in the training state, so that one program
serves many injections; only a task in JAX holds them itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped, UInt32

from curiax._sound import Checks
from curiax._tree import flatten, shuffle
from curiax._types import Grid, PRNGKey, Rewards, Rollout, Scalar, Spec, Transition, stream_keys
from curiax.agents import PPO, AbstractPolicyLearner, CuriousAgent, HostActor, curious
from curiax.agents.ppo import AnyPolicy, Batch, PPOState
from curiax.curiosity import AbstractCuriosity
from curiax.curiosity._base import Memory, Terms
from curiax.envs import AbstractFleet, AbstractHostTask, AbstractTask, Probe
from curiax.envs._host import Mask, Seeds
from curiax.experiments.spec import MethodBuilder, Plan
from curiax.train.loop import Stream

Field = Literal[
    "start",
    "action",
    "observation",
    "point",
    "reward",
    "bonus",
    "model_loss",
    "model_gradient",
    "policy_loss",
    "policy_gradient",
]
FIELDS: tuple[Field, ...] = get_args(Field)
#: An observation that no normalised one can be: it marks the sample of a policy's poisoned gradient step.
MARK = 77.0


@dataclass(frozen=True)
class Injection:
    """A value and its place.

    `step` is the step of the rollout, from 0, or the number of the gradient step (of the policy's: in its first epoch).
    The field `start` is the observation of the very first reset. A method whose draws are shared by the whole batch
    pays a poisoned bonus for all of a rollout.
    """

    field: Field
    value: float
    seed: int
    iteration: int = 0
    step: int = 0
    environment: int = 0


class Target(eqx.Module):
    """An injection as arrays; whole numbers, because floating-point ones would be trained."""

    field: Int[Array, ""]
    key: UInt32[Array, " words"]
    index: Int[Array, ""]
    step: Int[Array, ""]
    bits: UInt32[Array, ""]

    @staticmethod
    def of(plan: Plan, injection: Injection) -> Target:
        """The target of an injection into a plan."""
        envs, numbers = plan.setup.loop.envs, np.int32
        return Target(
            jnp.asarray(FIELDS.index(injection.field), numbers),
            jax.random.key_data(key_of(plan, injection)),
            jnp.asarray(injection.step * envs + injection.environment, numbers),
            jnp.asarray(injection.step, numbers),
            jnp.asarray(np.float32(injection.value).view(np.uint32)),
        )

    @property
    def value(self) -> Scalar:
        """What is put there."""
        return jax.lax.bitcast_convert_type(self.bits, jnp.float32)

    def means(self, *fields: Field) -> Bool[Array, ""]:
        """Whether one of these fields is meant."""
        return jnp.isin(self.field, jnp.asarray([FIELDS.index(field) for field in fields]))

    def hit(self, key: PRNGKey, *fields: Field) -> Bool[Array, ""]:
        """Whether this is the place."""
        return self.means(*fields) & jnp.all(jax.random.key_data(key) == self.key)


def model_steps(plan: Plan) -> tuple[int, int]:
    """How many gradient steps the model makes in an iteration, of how many transitions each."""
    loop, learner = plan.setup.loop, agent_of(plan).learner.settings
    times = max(1, min(loop.rollout, learner.minibatch_size // loop.envs))
    return learner.epochs * (loop.rollout // times), times * loop.envs


def policy_steps(plan: Plan) -> int:
    """How many gradient steps the policy makes in its first epoch; none where it does not learn."""
    policy = agent_of(plan).policy
    if not isinstance(policy, PPO):
        return 0
    samples = plan.setup.loop.rollout * plan.setup.loop.envs
    return samples // min(policy.settings.minibatch_size, samples)


def agent_of(plan: Plan) -> CuriousAgent:
    """The plan's agent."""
    assert isinstance(plan.setup.agent, CuriousAgent)
    return plan.setup.agent


def key_of(plan: Plan, injection: Injection) -> PRNGKey:
    """The key that the computation at this place is given."""
    lead = (plan.setup.loop.rollout, plan.setup.loop.envs)
    root, place = jax.random.key(injection.seed), (injection.step, injection.environment)
    now = jax.random.fold_in(root, injection.iteration)
    keys, agents = stream_keys(now, Stream), stream_keys(now, curious.Stream)
    shared = plan.method_entry.cls is not None and plan.method_entry.cls.shares_key
    match injection.field:
        case "start":
            return jax.random.split(jax.random.fold_in(root, Stream.FIRST_RESET), lead[1])[injection.environment]
        case "action":
            return keys[Stream.ACTIONS]
        case "observation" | "point" | "reward":
            return jax.random.split(keys[Stream.STEPS], lead)[place]
        case "bonus":
            key = agents[curious.Stream.BONUS]
            return key if shared else jax.random.split(key, lead)[place]
        case "model_loss" | "model_gradient":
            losses = jax.random.split(agents[curious.Stream.METHOD])[1]
            count, size = model_steps(plan)
            return jax.random.split(losses, count if shared else (count, size))[injection.step, *() if shared else (0,)]
        case "policy_loss" | "policy_gradient":
            return agents[curious.Stream.POLICY]


def word_of(plan: Plan, injection: Injection) -> int:
    """The 32-bit seed that an environment on the host is given at this place."""
    lead, root = (plan.setup.loop.rollout, plan.setup.loop.envs), jax.random.key(injection.seed)
    if injection.field == "start":
        return int(jax.random.bits(jax.random.fold_in(root, Stream.FIRST_RESET), lead[1:])[injection.environment])
    keys = stream_keys(jax.random.fold_in(root, injection.iteration), Stream)
    return int(jax.random.bits(keys[Stream.STEPS], lead)[injection.step, injection.environment])


def inject(plan: Plan, injection: Injection) -> Plan:
    """The plan with a fault in it."""
    target, setup, entry = Target.of(plan, injection), plan.setup, plan.method_entry
    build: Any = entry.cls or AbstractCuriosity

    class Poisoned(PoisonedMethod):
        """The method of this plan with its fault."""

        shares_key: ClassVar[bool] = build.shares_key

        def __init__(self, spec: Spec, *, key: PRNGKey, **settings: Any) -> None:
            self.model, self.target = build(spec, key=key, **settings), target

    task = setup.task
    if isinstance(task, AbstractHostTask):
        task = PoisonedHostTask(task, injection.field, word_of(plan, injection), injection.value)
    else:
        assert isinstance(task, AbstractTask)
        task = PoisonedTask(task, target)
    # Without a method there is none to poison.
    agent, method_entry = agent_of(plan), dataclasses.replace(entry, cls=Poisoned if plan.pays else None)
    builder = MethodBuilder(method_entry, setup.task.spec, plan.method_settings) if plan.pays else None
    agent = dataclasses.replace(agent, policy=PoisonedPolicy(agent.policy, target), build_method=builder)
    setup = dataclasses.replace(setup, task=task, agent=agent)
    return dataclasses.replace(plan, setup=setup, method_entry=method_entry)


def retarget(tree: PyTree, target: Target) -> PyTree:
    """A setup or a training state with faults in it, aimed elsewhere: the same program serves it."""

    def aim(node: Any) -> Any:
        if not isinstance(node, Target):
            return node
        return jax.tree.map(lambda new, old: jnp.broadcast_to(new, old.shape), target, node)

    return jax.tree.map(aim, tree, is_leaf=lambda node: isinstance(node, Target))


def poke(x: Shaped[Array, "..."], where: Bool[Array, ""], value: Scalar) -> Shaped[Array, "..."]:
    """An array with its first entry replaced, where that is wanted."""
    first = (jnp.arange(x.size) == 0).reshape(x.shape)
    return jnp.where(where & first, value.astype(x.dtype), x)


@jax.custom_vjp
def slope(x: Scalar, steep: Scalar) -> Scalar:
    """0, with the gradient `steep` with respect to `x`, whatever comes after it."""
    # A zero of its own for every `steep`: what a batch shares would have its gradient counted once for each of it.
    return jnp.where(jnp.isnan(steep), jnp.zeros_like(x), jnp.zeros_like(x))


def _slope_forward(x: Scalar, steep: Scalar) -> tuple[Scalar, Scalar]:
    return slope(x, steep), steep


def _slope_backward(steep: Scalar, _: Scalar) -> tuple[Scalar, Scalar]:
    return steep, jnp.zeros_like(steep)


slope.defvjp(_slope_forward, _slope_backward)


# --- tasks in JAX -----------------------------------------------------------------------------------------


class PoisonedState(eqx.Module):
    """A task's state, and what of it is shown wrongly."""

    inner: Any
    obs: Bool[Array, ""]
    point: Bool[Array, ""]


class PoisonedTask(AbstractTask):
    """A task in JAX with a fault in it."""

    task: AbstractTask
    target: Target
    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)

    def __init__(self, task: AbstractTask, target: Target) -> None:
        self.task, self.target, self.spec, self.grids = task, target, task.spec, task.grids

    def reset(self, *, key: PRNGKey) -> PoisonedState:
        return PoisonedState(self.task.reset(key=key), self.target.hit(key, "start"), jnp.zeros((), bool))

    def step(
        self, state: PoisonedState, action: Shaped[Array, "..."], *, key: PRNGKey
    ) -> tuple[PoisonedState, Scalar, Bool[Array, ""]]:
        inner, reward, terminated = self.task.step(state.inner, action, key=key)
        reward = jnp.where(self.target.hit(key, "reward"), self.target.value, reward)
        state = PoisonedState(inner, self.target.hit(key, "observation"), self.target.hit(key, "point"))
        return state, reward, terminated

    def observe(self, state: PoisonedState) -> Float[Array, "..."]:
        return poke(self.task.observe(state.inner), state.obs, self.target.value)

    def track(self, state: PoisonedState) -> Float[Array, " axes"]:
        return poke(self.task.track(state.inner), state.point, self.target.value)

    def unlearnable(self, action: Shaped[Array, "..."]) -> Bool[Array, ""] | None:
        return self.task.unlearnable(action)

    def notes(self) -> Mapping[str, str]:
        return self.task.notes()

    def probe(self) -> Probe | None:
        probe = self.task.probe()
        if probe is None:
            return None
        no = jnp.zeros(jax.tree.leaves(probe.states)[0].shape[0], bool)
        return Probe(probe.grid, jax.vmap(PoisonedState)(probe.states, no, no), probe.actions)


# --- tasks on the host ------------------------------------------------------------------------------------


class PoisonedHostTask(AbstractHostTask):
    """A task on the host with a fault in it."""

    task: AbstractHostTask
    field: Field = eqx.field(static=True)
    word: int = eqx.field(static=True)
    value: float = eqx.field(static=True)
    spec: Spec = eqx.field(static=True)
    grids: tuple[Grid, ...] = eqx.field(static=True)

    def __init__(self, task: AbstractHostTask, field: Field, word: int, value: float) -> None:
        self.task, self.field, self.word, self.value = task, field, word, value
        self.spec, self.grids = task.spec, task.grids

    @property
    def stops(self) -> bool:
        return self.task.stops

    @property
    def packages(self) -> tuple[str, ...]:
        return self.task.packages

    def require(self) -> None:
        self.task.require()

    def notes(self) -> Mapping[str, str]:
        return self.task.notes()

    def unlearnable(self, action: Shaped[Array, "..."]) -> Bool[Array, ""] | None:
        return self.task.unlearnable(action)

    def open(self, count: int, threads: int = 1) -> PoisonedFleet:
        fleet = PoisonedFleet(self.task.open(count, threads))
        fleet.aim(self.field, self.word, self.value)
        return fleet


class PoisonedFleet(AbstractFleet):
    """A fleet of which one environment shows something wrong in the step that is given one certain seed."""

    def __init__(self, inner: AbstractFleet) -> None:
        self.inner, self.ends = inner, inner.ends
        self.obs = np.zeros(inner.obs.shape, inner.obs.dtype)
        # The task's own record, and whether its reward and its point are poisoned.
        self.record = np.zeros((len(inner.record), inner.record.shape[1] + 2))
        self.terminated, self.truncated = inner.terminated, inner.truncated

    def aim(self, field: Field, word: int, value: float) -> None:
        """Say where and what."""
        self.field, self.word, self.value = field, word, value

    @property
    def filler(self) -> Mask | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.filler

    def reset(self, seeds: Seeds, who: Mask | None = None) -> None:
        self.inner.reset(seeds, who)
        self._show()
        if who is None and self.field == "start":
            self.obs[seeds == self.word, ..., 0] = self.value

    def step(self, actions: Shaped[np.ndarray, "M ..."], seeds: Seeds, still: Mask | None = None) -> None:
        self.inner.step(actions, seeds, still)
        self._show()
        here = seeds == self.word
        if self.field == "observation":
            self.obs[here, ..., 0] = self.value
        self.record[here, -2:] = self.field == "reward", self.field == "point"

    def _show(self) -> None:
        """Renew what is seen of the task."""
        self.obs[:] = self.inner.obs
        self.record[:, :-2], self.record[:, -2:] = self.inner.record, 0.0

    def measure(self, record: Float[np.ndarray, "*lead entries"]) -> tuple[np.ndarray, np.ndarray]:
        points, reward = self.inner.measure(record[..., :-2])
        reward = np.where(record[..., -2] > 0, self.value, reward)
        return np.where(record[..., -1:] > 0, self.value, points), reward

    def state(self) -> dict[str, np.ndarray]:
        return {**self.inner.state(), "shown": self.obs.copy(), "poisoned": self.record[:, -2:].copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.inner.restore({name: value for name, value in state.items() if name not in ("shown", "poisoned")})
        self._show()
        self.obs[:], self.record[:, -2:] = state["shown"], state["poisoned"]

    def close(self) -> None:
        self.inner.close()


# --- methods and agents -----------------------------------------------------------------------------------


class PoisonedMethod(AbstractCuriosity):
    """A method with a fault in it; `inject` says which."""

    model: AbstractCuriosity
    target: Target

    def memory(self) -> Memory:
        return self.model.memory()

    def forget(self, memory: Memory) -> Memory:
        return self.model.forget(memory)

    def explain(self, t: Transition, *, key: PRNGKey) -> Terms:
        return self.model.explain(t, key=key)

    def reward(self, memory: Memory, t: Transition, *, key: PRNGKey) -> tuple[Memory, Scalar]:
        memory, bonus = self.model.reward(memory, t, key=key)
        return memory, jnp.where(self.target.hit(key, "bonus"), self.target.value, bonus)

    def draw(self, key: PRNGKey) -> PyTree:
        return self.model.draw(key), self.target.hit(key, "model_loss"), self.target.hit(key, "model_gradient")

    def loss(self, t: Transition, *, draw: PyTree) -> tuple[Scalar, Terms]:
        inner, loss_hit, gradient_hit = draw
        loss, terms = self.model.loss(t, draw=inner)
        steep = jnp.where(gradient_hit, self.target.value, 0.0)
        return jnp.where(loss_hit, self.target.value, loss) + slope(flatten(self)[0][0], steep), terms


class PoisonedPPO(PPO):
    """PPO with a fault in one of its gradient steps."""

    target: Target
    hit: Bool[Array, ""]

    def learn(
        self,
        spec: Spec,
        state: PPOState,
        rollout: Rollout,
        rewards: Rewards,
        *,
        key: PRNGKey,
    ) -> tuple[PPOState, dict[str, Array], Checks]:
        """Mark the first sample of the step that is meant, and learn as ever."""
        s, obs = self.settings, rollout.step.obs
        order = shuffle(jax.random.split(key, s.epochs)[0], rewards.bonus.size)
        sample = order[self.target.step * min(s.minibatch_size, rewards.bonus.size)]
        marked = obs.reshape(rewards.bonus.size, -1).at[sample, 0].set(MARK).reshape(obs.shape)
        rollout = eqx.tree_at(lambda r: r.step.obs, rollout, jnp.where(self.hit, marked, obs))
        return super().learn(spec, state, rollout, rewards, key=key)

    def _loss(
        self, policy: AnyPolicy, batch: Batch, see: Callable[[Array], Array] = lambda obs: obs
    ) -> tuple[Scalar, dict[str, Scalar]]:
        loss, report = super()._loss(policy, batch, see)
        here = self.hit & jnp.any(batch.obs.reshape(len(batch.obs), -1)[:, 0] == MARK)
        steep = jnp.where(here & self.target.means("policy_gradient"), self.target.value, 0.0)
        loss = jnp.where(here & self.target.means("policy_loss"), self.target.value, loss)
        return loss + slope(flatten(policy)[0][0], steep), report


class PoisonedPart(eqx.Module):
    """What a policy learner carries, or its networks, and what its fault is."""

    inner: Any
    target: Target


class PoisonedPolicy(AbstractPolicyLearner):
    """A policy learner with a fault in it. Its noise carries the key it was drawn from, in halves, and its place."""

    policy: AbstractPolicyLearner
    target: Target

    def build(self, spec: Spec, *, key: PRNGKey) -> Any:
        return self.policy.build(spec, key=key)

    def start(self, networks: Any) -> PoisonedPart:
        return PoisonedPart(self.policy.start(networks), self.target)

    def networks(self, state: PoisonedPart) -> PoisonedPart:
        return PoisonedPart(self.policy.networks(state.inner), state.target)

    def noise(self, spec: Spec, shape: tuple[int, ...], *, key: PRNGKey) -> Float[Array, "..."]:
        noise = self.policy.noise(spec, shape, key=key)
        index = jnp.arange(np.prod(shape), dtype=jnp.float32).reshape(*shape, 1)
        words = jnp.broadcast_to(halves(jax.random.key_data(key)), (*shape, 4))
        return jnp.concatenate([noise, words, index], axis=-1)

    def act(
        self,
        spec: Spec,
        networks: PoisonedPart,
        obs: Float[Array, "..."],
        noise: Float[Array, " _"],
        *,
        greedy: bool = False,
    ) -> Shaped[Array, "..."]:
        action, target = self.policy.act(spec, networks.inner, obs, noise[:-5], greedy=greedy), networks.target
        here = jnp.all(noise[-5:-1] == halves(target.key)) & (noise[-1] == target.index)
        return poke(action, target.means("action") & here, target.value)

    def described(self, networks: Any, name: str) -> dict[str, Any]:
        return self.policy.described(networks, name)

    def host_actor(self, spec: Spec, networks: PoisonedPart, noise: Shaped[np.ndarray, "T S N _"]) -> HostActor:
        inner = self.policy.host_actor(spec, networks.inner, noise[..., :-5])
        assert inner is not None
        return PoisonedActor(inner, networks.target, noise)

    def learn(
        self, spec: Spec, state: PoisonedPart, rollout: Rollout, rewards: Rewards, *, key: PRNGKey
    ) -> tuple[PoisonedPart, dict[str, Array], Checks | None]:
        policy = self.policy
        if isinstance(policy, PPO):
            hit = state.target.hit(key, "policy_loss", "policy_gradient")
            policy = PoisonedPPO(policy.settings, state.target, hit)
        inner, report, checks = policy.learn(spec, state.inner, rollout, rewards, key=key)
        return PoisonedPart(inner, state.target), report, checks

    def check(self, state: PoisonedPart) -> Checks | None:
        return self.policy.check(state.inner)


class PoisonedActor(HostActor):
    """An actor on the host with a fault in one of its actions."""

    def __init__(self, inner: HostActor, target: Target, noise: Shaped[np.ndarray, "T S N _"]) -> None:
        self._inner, self.carry = inner, inner.carry
        halved = np.asarray(jax.vmap(halves)(target.key))
        here = np.all(noise[..., -5:-1] == halved[:, None], axis=-1) & (
            noise[..., -1] == np.asarray(target.index)[:, None]
        )
        self._here = here & (np.asarray(target.field) == FIELDS.index("action"))[:, None]
        self._values = np.broadcast_to(np.asarray(target.bits).view(np.float32)[:, None], here.shape[1:])

    def __call__(self, t: int, obs: np.ndarray, first: np.ndarray, out: np.ndarray) -> None:
        self._inner(t, obs, first, out)
        if (here := self._here[t]).any():
            out[here, 0] = self._values[here]


def halves(words: UInt32[Array, " words"]) -> Float[Array, " twice"]:
    """Words in 16-bit halves, which floating-point numbers hold exactly."""
    return jnp.concatenate([words >> 16, words & 0xFFFF]).astype(jnp.float32)
