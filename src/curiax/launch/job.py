"""A job: one run, as plain data that any process can be handed."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._errors import UsageError
from .._version import __version__
from ..experiments.options import RunOptions
from ..experiments.spec import Experiment


@dataclass(frozen=True)
class Job:
    """One call of `run`, and what a fresh process needs for it.

    Args:
        experiment: as `Experiment.as_json` writes it.
        folder: the run's folder; absolute, because a worker may live elsewhere.
        devices: how many JAX devices the worker makes of its CPU, however few cores it has: the layout of the devices
            decides the last bits of the results.
        options: how the run is carried out.
        path: folders to look in for the user's own `module:Class`.
        command: what the user typed, for the manifest.
        version: Curiax's; another one would make another run.
    """

    experiment: dict[str, Any]
    folder: str
    devices: int
    options: RunOptions
    path: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    version: str = __version__

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{self.label} on {self.experiment['task']}"

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.experiment["label"] or self.experiment["method"]

    @property
    def progress_file(self) -> Path:
        """Where the worker says how far it is: beside the run, hence in a folder that both sides share."""
        folder = Path(self.folder)
        return folder.parent / f".{folder.name}.progress"

    def as_experiment(self) -> Experiment:
        """The experiment itself."""
        return Experiment.from_json(self.experiment)

    def to_text(self) -> str:
        """One line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_text(text: str) -> Job:
        """The job that `to_text` wrote, every field checked."""
        import pydantic

        try:
            return pydantic.TypeAdapter(Job).validate_json(text, strict=True)
        except pydantic.ValidationError as error:
            raise UsageError(f"not a job: {error}") from None
