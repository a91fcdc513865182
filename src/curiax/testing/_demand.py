"""How a check fails."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._errors import ContractError


def demand(condition: Any, message: str) -> None:
    """Raise `ContractError` unless the condition holds."""
    if not bool(condition):
        raise ContractError(message)


def close(a: Any, b: Any, tolerance: float = 1e-5) -> bool:
    """Equal to a tolerance relative to the larger value."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return bool(np.all(np.abs(a - b) <= tolerance * (1.0 + np.maximum(np.abs(a), np.abs(b)))))
