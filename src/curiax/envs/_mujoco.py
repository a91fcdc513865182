"""MuJoCo on the host: `M` simulations of one model, stepped in C threads.

Each simulation is one row of `mjSTATE_INTEGRATION`, which holds the solver's warm start too: it decides the next
step to the last bit, so taking it out and putting it back is exact.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from .._errors import UsageError
from ._host import AbstractFleet, Mask, Seeds, require_like
from ._picture import Studio


def import_mujoco(task: str) -> Any:
    """MuJoCo, or an error that says how to install it."""
    try:
        import mujoco
        import mujoco.batch  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise UsageError(
            f"task {task!r} needs MuJoCo 3.17 ({error}): pip install 'curiax[mujoco]' (or, in a checkout, "
            "pip install -e '.[mujoco]')."
        ) from None
    return mujoco


def gymnasium_model(name: str) -> Path:
    """A robot's description among those that Gymnasium brings; found without importing its MuJoCo parts."""
    import gymnasium

    return Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / name


class AbstractMuJoCoFleet(AbstractFleet):
    """Simulations of one model; a subclass says what is seen of them.

    An action is held for `SUBSTEPS` steps of the simulator; MuJoCo itself clamps it to the actuators' range.
    """

    SUBSTEPS = 5
    ends = False

    def __init__(self, mujoco: Any, model: Any, count: int, threads: int) -> None:
        # MuJoCo would put a diverged simulation back to its start and say nothing; the loop must see it.
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        self.mujoco, self.model = mujoco, model
        # One MjData for each thread, not for each simulation: the smaller working set is faster in the training loop.
        self.batch = mujoco.batch.Batch(model, count, threads)
        self.qpos, self.qvel, self._ctrl = self.batch.qpos, self.batch.qvel, self.batch.ctrl
        self._step = self.batch.step
        self.interval = model.opt.timestep * self.SUBSTEPS
        self.terminated, self.truncated = np.zeros(count, bool), np.zeros(count, bool)
        self._renderer: Studio | None = None

    @abc.abstractmethod
    def _begun(self, who: Mask | slice) -> None:
        """Renew `obs` and `record` after a reset of `who`."""

    @abc.abstractmethod
    def _mark(self) -> None:
        """Keep what the next `_look` compares with."""

    @abc.abstractmethod
    def _look(self) -> None:
        """Renew `obs` and `record` after a step."""

    def reset(self, seeds: Seeds, who: Mask | None = None) -> None:
        """qpos₀ + U(−0.1, 0.1), qvel₀ + 0.1 N(0, 1), in every coordinate."""
        chosen = np.arange(len(self.terminated)) if who is None else np.flatnonzero(who)
        self.batch.reset(chosen, stage=self.mujoco.mjtStage.mjSTAGE_NONE.value)
        for k in chosen:
            rng = np.random.default_rng(int(seeds[k]))
            self.qpos[k] += rng.uniform(-0.1, 0.1, self.model.nq)
            self.qvel[k] += 0.1 * rng.standard_normal(self.model.nv)
        self._begun(slice(None) if who is None else who)

    def state(self) -> dict[str, np.ndarray]:
        return {"simulation": self.batch.state.copy(), "obs": self.obs.copy(), "record": self.record.copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        if state["simulation"].shape != self.batch.state.shape:
            raise UsageError(
                f"a state of {state['simulation'].shape[0]} simulations with {state['simulation'].shape[-1]} numbers "
                f"each does not fit this fleet of {self.batch.state.shape[0]} with {self.batch.state.shape[-1]}."
            )
        require_like(state, self.state())
        self.batch.state[:], self.obs[:], self.record[:] = state["simulation"], state["obs"], state["record"]

    def step(self, actions: Float[np.ndarray, "M size"], seeds: Seeds, still: Mask | None = None) -> None:
        if still is None:
            self._mark()
            np.copyto(self._ctrl, actions)
            self._step(nstep=self.SUBSTEPS)
            self._look()
            return
        kept = [(array, array[still]) for array in (self.obs, self.record)]
        self._mark()
        moving = np.flatnonzero(~still)
        self._ctrl[moving] = actions[moving]
        if len(moving):
            self._step(moving, nstep=self.SUBSTEPS)
        self._look()
        for array, values in kept:
            array[still] = values

    def render(self, index: int, width: int, height: int) -> np.ndarray:
        if self._renderer is None or (self._renderer.width, self._renderer.height) != (width, height):
            self.close()
            self._renderer = Studio(self.mujoco, self.model, width, height, self._camera)
        return self._renderer.picture(self.batch.state[index])

    @abc.abstractmethod
    def _camera(self, model: Any) -> Any:
        """The MjvCamera that pictures are taken with, of a copy of the model whose looks may be changed."""

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
