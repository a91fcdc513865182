"""Playing a trained agent in one environment: a picture of every state, the bonus of every step."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import NonFiniteError, SimulatorError
from .._text import clean
from .._types import Transition
from ..experiments import saved
from ..experiments.scoring import Scorer
from ..experiments.spec import Plan
from ..paper.suites import score_name
from ..report.looks import look
from . import film

#: What is being done, how much of it is done, and of how much.
Tell = Callable[[str, int, int], None]


class Reel:
    """The frames of a film: the pictures, packed while they wait, with the strip below."""

    def __init__(
        self,
        pictures: list[bytes],
        bonus: np.ndarray,
        ended: np.ndarray,
        strip: film.Strip,
        size: Any,
        score: np.ndarray | None,
    ) -> None:
        self.bonus, self.ended, self.score = bonus, ended, score
        self._pictures, self._strip, self._size = pictures, strip, size

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, k: int) -> film.Picture:
        """The frame after `k` steps."""
        width, height = self._size
        picture = np.frombuffer(zlib.decompress(self._pictures[k]), np.uint8)
        return np.concatenate([picture.reshape(-1, width, 3), self._strip.picture(k)])[:height]


def play(
    plan: Plan,
    learnt: saved.Saved,
    seed: int,
    most: tuple[int, int],
    deterministic: bool,
    size: tuple[int, int],
    tell: Tell,
) -> Reel:
    """Play the policy in a fresh environment, draw every state and score every transition.

    The bonus of an episode's last step is that of its true successor, which is what the picture shows, also
    where training looked at the next episode's first observation.
    """
    setup, spec, (steps, episodes) = plan.setup, plan.setup.task.spec, most
    agent, actor = setup.agent, setup.agent.actor(learnt.networks)
    behaviour = "greedy" if deterministic and "greedy" in agent.behaviours else agent.behaviours[0]
    act = eqx.filter_jit(
        lambda carry, obs, first, noise: agent.act(actor, carry, obs, first, noise, behaviour=behaviour)
    )
    seen = saved.seen(plan)
    see = eqx.filter_jit(
        lambda obs: learnt.obs_stats.normalise(obs, seen["epsilon"], seen["clip"]) if seen["normalised"] else obs
    )
    # Apart from the streams of training, so that nothing of it is repeated.
    noise_key, begin_key, step_key, bonus_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), 0xF117), 4)
    noise, carry = agent.noise((steps,), key=noise_key), agent.carry()
    name, method = plan.task_entry.name, plan.name
    colour = look(method, [method])[0]
    width, height = size
    below = film.strip_height(height)
    world = setup.task.single()
    scorer = Scorer(getattr(learnt.networks, "curiosity", None), spec, bonus_key)
    waiting: list[Transition] = []
    paid: list[np.ndarray] = []
    ended: list[bool] = []
    scores: list[float] = []
    pictures: list[bytes] = []
    path: list[np.ndarray] = []
    begun = 0

    def word(key: Array, number: int) -> int:
        """A seed for the environment."""
        return int(jax.random.bits(jax.random.fold_in(key, number), (1,))[0])

    def pay() -> None:
        """Score what waits for it: in pieces, because the observations of a whole film may not fit into memory."""
        paid.append(scorer(jax.tree.map(lambda *xs: np.stack(xs), *waiting)))
        waiting.clear()

    def shoot(obs: Array) -> None:
        """Take a picture of the world as it is."""
        path.append(world.point)
        if setup.task.screen:
            picture = film.screen_picture(world.picture, width, height - below)
        else:
            picture = world.picture(width, height - below)
        if picture is None:
            grid = next((grid for grid in setup.task.grids if len(grid.axes) == 2), None)
            picture = (
                film.bars_picture(np.ravel(obs), colour, width, height - below)
                if grid is None
                else film.map_picture(grid, np.stack(path), begun, colour, width, height - below)
            )
        pictures.append(zlib.compress(picture.tobytes(), 1))

    try:
        world.begin(word(begin_key, 0))
        obs, elapsed, over, total = see(world.obs), 0, 0, 0.0
        shoot(obs)
        for t in range(steps):
            carry, action = act(carry, obs, jnp.asarray(elapsed == 0), noise[t])
            executed = spec.action.executed(action)
            world.step(np.asarray(executed), word(step_key, t))
            if not np.all(np.isfinite(world.obs)):
                raise SimulatorError(f"task {name!r}: the simulation ran away at step {t + 1} of the film.")
            elapsed = elapsed + 1 if world.valid else 0
            truncated = not world.terminated and (
                world.truncated or (spec.horizon is not None and elapsed >= spec.horizon)
            )
            after = see(world.obs)
            model_action = executed if setup.loop.model_action == "executed" else action
            flags = (world.reward, world.terminated, truncated, world.valid)
            waiting.append(Transition(obs, model_action, after, *(jnp.asarray(flag) for flag in flags)))
            total += world.reward
            ended.append(world.terminated or truncated)
            scores.append(total)
            if len(waiting) == scorer.most:
                pay()
            shoot(after)
            tell("playing", t + 1, steps)
            obs = after
            if ended[-1]:
                over += 1
                if over >= episodes:
                    break
                world.begin(word(begin_key, over))
                obs, elapsed, begun, total = see(world.obs), 0, len(path), 0.0
    finally:
        world.close()
    tell("playing", len(ended), len(ended))
    if waiting:
        pay()
    bonus = np.concatenate(paid).astype(np.float64)
    if not np.all(np.isfinite(bonus)):
        raise NonFiniteError(f"NaN or infinity in the bonus of method {method!r}: there is nothing to show.")
    over_at = np.asarray(ended)
    score = np.asarray(scores) if setup.task.screen else None
    title = clean(f"{name} · {method} · seed {seed}")
    strip = film.Strip(bonus, over_at, title, colour, width, below, score, score_name(name))
    return Reel(pictures, bonus, over_at, strip, size, score)
