"""The contract suite over every method and task that is registered, and over broken ones that must fail it."""

from __future__ import annotations

import pytest

from curiax.experiments.registry import METHODS
from curiax.testing import check_curiosity


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_keeps_the_contract(name: str) -> None:
    entry = METHODS[name]
    check_curiosity(entry.cls, **{key.removeprefix("method."): value for key, value in entry.settings.items()})
