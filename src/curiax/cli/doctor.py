"""`curiax doctor`."""

from __future__ import annotations

import dataclasses
import io
import json

from .._version import __version__
from ._arguments import parse

#: Extra → a module that must import for it to work; of `mujoco` and `mario` more is looked at. Not `dmc`: so far it
#: enables nothing.
EXTRAS = {
    "mujoco": "mujoco.batch",
    "video": "imageio_ffmpeg",
    "atari": "ale_py",
    "mario": "",
    "sb3": "stable_baselines3",
    "ray": "ray",
}
#: What else to know before installing one.
BEFORE = {"mario": " (needs a C++ compiler; the game's package: proprietary, free for educational use)"}


def command_doctor(args: list[str]) -> int:
    """Versions, devices, extras."""
    import contextlib
    import importlib
    import importlib.metadata
    import platform

    kind = dataclasses.make_dataclass("Doctor", [("json", bool, False)], frozen=True)
    options = parse(kind, args, "doctor", "Versions, devices and which extras work.")
    import jax

    from ..experiments.session import PACKAGES
    from ..train import devices

    devices.prepare()
    extras = {}
    more = {"mujoco": mujoco_works, "mario": mario_works}
    for extra, module in EXTRAS.items():
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # gym's obituary, which Stable-Baselines3 has it print
                if module:
                    importlib.import_module(module)
            extras[extra] = more[extra]() if extra in more else "works"
        except ImportError:
            extras[extra] = f"missing: pip install 'curiax[{extra}]'{BEFORE.get(extra, '')}"
        except Exception as error:
            extras[extra] = f"broken: {type(error).__name__}: {error}"
    found = jax.devices()
    extras["cuda"] = (
        "works" if found[0].platform == "gpu" else "no GPU seen: pip install 'curiax[cuda]' on a GPU machine"
    )
    extras["dmc"] = "not needed: nothing in this release uses it"
    data = {
        "curiax": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "devices": [str(device) for device in found],
        "cores": devices.cpu_cores(),
        "compilation_cache": jax.config.jax_compilation_cache_dir,  # pyright: ignore[reportAttributeAccessIssue]
        "extras": extras,
    }
    if options.json:
        print(json.dumps(data, indent=2))
        return 0
    for name, value in data.items():
        if isinstance(value, dict):
            print(name)
            for key, text in value.items():
                print(f"  {key:12s} {text}")
        else:
            print(f"{name:18s} {', '.join(value) if isinstance(value, list) else value}")
    return 0


def mujoco_works() -> str:
    """Whether simulations can be drawn, too."""
    from .._errors import UsageError
    from ..envs import HalfCheetah

    fleet = HalfCheetah().open(1)
    try:
        fleet.render(0, 64, 64)
    except UsageError as error:
        return f"works, but not films: {error}"
    finally:
        fleet.close()
    return "works, films too"


def mario_works() -> str:
    """Which version of Super Mario Bros. runs, found as the task finds it: without importing nes-py."""
    import importlib.util

    from ..envs.mario import library, region

    for package in ("nes_py", "gym_super_mario_bros"):
        if importlib.util.find_spec(package) is None:
            raise ImportError(package)
    library()
    return f"works; version of the game: {region()}"
