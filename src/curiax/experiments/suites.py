"""Suites: named sets of tasks and methods that are trained and shown together."""

from __future__ import annotations

from dataclasses import dataclass

from .._errors import unknown


@dataclass(frozen=True)
class Suite:
    """Every method on every task."""

    name: str
    title: str
    summary: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]


SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite(
            "noisy-tv",
            "Who ignores the noisy TV?",
            "LBS, ICM, RND and Random on Mountain Car, without and with a remote that shows noise",
            ("mountain-car", "mountain-car-frozen"),
            ("lbs", "icm", "rnd", "random"),
        ),
    )
}


def find_suite(name: str) -> Suite:
    """The suite of that name."""
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    return SUITES[name]
