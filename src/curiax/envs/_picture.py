"""Pictures of MuJoCo simulations, drawn off-screen: no display is needed, nor a graphics card."""

from __future__ import annotations

import copy
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._errors import UsageError

#: Of Gymnasium's robots: their colour and what it is drawn as; a dark robot on a dark floor is hard to see.
TAN, ORANGE = (0.8, 0.6, 0.4), (0.88, 0.42, 0.08)
FLOOR = ((0.93, 0.94, 0.92), (0.79, 0.82, 0.83))
SKY = ((0.98, 0.98, 0.97), (0.72, 0.80, 0.90))


class Studio:
    """Draws states of one model at one size.

    `camera` makes the camera for a copy of the model, in which it may change how things look.
    """

    def __init__(self, mujoco: Any, model: Any, width: int, height: int, camera: Callable[[Any], Any]) -> None:
        self.width, self.height = width, height
        self._mujoco, self._model = mujoco, copy.copy(model)
        # A simulation of its own: computing what a picture needs would move the solver's warm start.
        self._data = mujoco.MjData(self._model)
        whiten(mujoco, self._model, width, height)
        self._camera = camera(self._model)
        self._scene, self._options = mujoco.MjvScene(self._model, maxgeom=2000), mujoco.MjvOption()
        self._canvas, self._context = open_context(mujoco, self._model, width, height)
        self._size = mujoco.MjrRect(0, 0, width, height)
        # At the interpreter's end too, before the libraries it needs are gone.
        self.close = weakref.finalize(self, free, self._canvas, self._context)

    def picture(self, state: np.ndarray) -> np.ndarray:
        """The picture `[height, width, 3]` of a row of `mjSTATE_INTEGRATION`."""
        mujoco, model, data = self._mujoco, self._model, self._data
        mujoco.mj_setState(model, data, state, mujoco.mjtState.mjSTATE_INTEGRATION.value)
        mujoco.mj_forward(model, data)
        self._canvas.make_current()
        every = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(model, data, self._options, None, self._camera, every, self._scene)
        mujoco.mjr_render(self._size, self._scene, self._context)
        pixels = np.empty((self.height, self.width, 3), np.uint8)
        mujoco.mjr_readPixels(pixels, None, self._size, self._context)
        return pixels[::-1]


def free(canvas: Any, context: Any) -> None:
    """Give graphics memory back."""
    canvas.make_current()
    context.free()
    canvas.free()


def whiten(mujoco: Any, model: Any, width: int, height: int) -> None:
    """Gymnasium's robots in daylight: a pale floor without end, a pale sky, soft light from the side."""
    look, kinds = model.vis, mujoco.mjtTexture
    look.global_.offwidth = max(look.global_.offwidth, width)
    look.global_.offheight = max(look.global_.offheight, height)
    look.quality.offsamples, look.quality.shadowsize = 4, 2048
    look.headlight.ambient[:], look.headlight.diffuse[:], look.headlight.specular[:] = 0.42, 0.08, 0.0
    for texture in range(model.ntex):
        sides, across = model.tex_height[texture], model.tex_width[texture]
        start = model.tex_adr[texture]
        pixels = model.tex_data[start : start + sides * across * 3].reshape(sides, across, 3)
        if model.tex_type[texture] == kinds.mjTEXTURE_SKYBOX:
            # A cube's six sides, one below the other; what counts is the height on those around the horizon.
            shade = np.linspace(0.0, 1.0, across)[np.arange(sides) % across, None]
            pixels[:] = np.round(255 * (np.asarray(SKY[1]) * (1 - shade) + np.asarray(SKY[0]) * shade))[:, None]
        elif model.tex_type[texture] == kinds.mjTEXTURE_2D:
            odd = (np.arange(sides)[:, None] * 2 // sides + np.arange(across) * 2 // across) % 2
            pixels[:] = np.round(255 * np.asarray(FLOOR)[odd])
    model.mat_reflectance[:], model.mat_specular[:] = 0.0, 0.0
    for geom in range(model.ngeom):
        if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_PLANE:
            model.geom_size[geom, :2], model.geom_rgba[geom] = 0.0, 1.0
            material = model.geom_matid[geom]
            model.mat_texuniform[material], model.mat_texrepeat[material] = True, 1.0
        elif np.allclose(model.geom_rgba[geom, :3], TAN):
            model.geom_rgba[geom, :3] = ORANGE
    # The lights follow the robot: shadows are drawn near a light only.
    model.light_mode[:], model.light_bodyid[:] = mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM.value, 1
    model.light_poscom0[:], model.light_dir0[:] = (-1.4, -1.8, 4.0), np.array([0.35, 0.45, -1.0]) / 1.151
    model.light_diffuse[:], model.light_specular[:] = 0.58, 0.1


def fixed_camera(mujoco: Any, model: Any, name: str) -> Any:
    """A camera of the model."""
    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_FIXED.value
    camera.fixedcamid = model.camera(name).id
    return camera


def open_context(mujoco: Any, model: Any, width: int, height: int) -> tuple[Any, Any]:
    """An OpenGL context and MuJoCo's drawing state in it, by the first way that works."""
    faults = []
    for name, find in backends(mujoco).items():
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                canvas = find()(width, height)
                canvas.make_current()
                require_window(canvas, caught)
            context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, context)
        except Exception as error:  # whatever a missing or broken driver raises
            faults.append(f"{name}: {str(error) or type(error).__name__}")
        else:
            return canvas, context
    raise UsageError(
        f"MuJoCo finds no OpenGL to draw with ({'; '.join(faults)}). On Debian or Ubuntu: apt install libegl1 "
        "libgl1-mesa-dri; or, without EGL: apt install libosmesa6, and set MUJOCO_GL=osmesa."
    )


def require_window(canvas: Any, caught: Sequence[warnings.WarningMessage]) -> None:
    """Refuse a context of GLFW that is none: it only warns, and MuJoCo's second try without one ends the process."""
    if type(canvas).__module__.endswith("glfw"):
        import glfw

        if not glfw.get_current_context():
            raise RuntimeError(str(caught[0].message) if caught else "no window")


def backends(mujoco: Any) -> dict[str, Callable[[], Any]]:
    """Ways to an OpenGL context: EGL first, because it needs no display, unless MUJOCO_GL says otherwise."""

    def egl() -> Any:
        import mujoco.egl

        return mujoco.egl.GLContext

    backend = os.environ.get("MUJOCO_GL", "").strip().lower()
    # MuJoCo reads the variable when it is imported, which may have been earlier.
    ways = {"EGL": egl} if sys.platform.startswith("linux") and backend in ("", "egl") else {}
    return ways if backend == "egl" else {**ways, backend or "MuJoCo's default": lambda: mujoco.GLContext}
