"""Types that carry their own range, and the check of settings against a constructor's signature."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, get_type_hints

from annotated_types import Ge, Gt, Le, Lt

from ._errors import UsageError, unknown

Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Fraction = Annotated[float, Ge(0), Le(1)]
Keep = Annotated[float, Gt(0), Le(1)]
Discount = Annotated[float, Ge(0), Lt(1)]
Count = Annotated[int, Ge(1)]
CountOrZero = Annotated[int, Ge(0)]
#: Rows and columns of a square frame; the convolutions for arcade games leave nothing of a smaller one.
Side = Annotated[int, Ge(36)]
#: Bits of a code that numbers the entries of a table.
Bits = Annotated[int, Ge(1), Le(20)]


@cache
def signature(build: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Each setting of a constructor or dataclass: its type and its default.

    A setting is a keyword with a default; what the library itself passes (`spec`, `key`) has none.
    """
    try:
        if inspect.isclass(build):
            # A dataclass has its bases' settings, too: their annotations mean what they mean in their own modules.
            homes = [sys.modules.get(base.__module__) for base in reversed(build.__mro__)]
            names = {name: value for home in homes if home for name, value in vars(home).items()}
            hints = get_type_hints(build.__init__, localns=names, include_extras=True)
        else:
            hints = get_type_hints(build, include_extras=True)
    except NameError:
        # A user's annotation that exists only for the type checker: then values are taken as they come.
        hints = {}
    settings = {}
    for name, parameter in inspect.signature(build).parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            settings[name] = (hints.get(name, Any), parameter.default)
    return settings


def descriptions(build: Callable[..., Any]) -> dict[str, str]:
    """What the docstring's `Args` section says of each setting."""
    from docstring_parser import parse

    texts = [build.__doc__]
    if inspect.isclass(build):
        texts = [*(base.__doc__ for base in reversed(build.__mro__[:-1])), build.__init__.__doc__]
    return {p.arg_name: p.description or "" for text in texts if text for p in parse(text).params}


def defaults(build: Callable[..., Any]) -> dict[str, Any]:
    """The default of every setting."""
    return {name: default for name, (_, default) in signature(build).items()}


def checked(build: Callable[..., Any], values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values, each converted to and checked against its annotation; errors name `where.setting`."""
    from pydantic import TypeAdapter, ValidationError

    known = signature(build)
    result = {}
    for name, value in values.items():
        if name not in known:
            raise (
                unknown(f"setting of {where}", name, known)
                if known
                else UsageError(f"{where} has no settings, so {name!r} cannot be set.")
            )
        kind, default = known[name]
        try:
            result[name] = TypeAdapter(kind).validate_python(value)
        except ValidationError as error:
            why = "; ".join(part["msg"].removeprefix("Input should be ") for part in error.errors())
            raise UsageError(f"{where}.{name} = {value!r}: must be {why} (default {default!r}).") from None
        if isinstance(result[name], float) and not math.isfinite(result[name]):
            raise UsageError(f"{where}.{name} = {value!r}: must be a finite number (default {default!r}).")
        if isinstance(value, bool) and not isinstance(result[name], bool):
            raise UsageError(f"{where}.{name} = {value!r}: must be a number (default {default!r}).")
    return result
