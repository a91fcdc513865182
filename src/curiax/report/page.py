"""The report as one HTML file that needs nothing but itself: no network, no fonts, no libraries.

`page.html` is the frame with every table and text, `page.css` its looks, `page.js` the curves and maps, which it draws
from the numbers embedded as JSON. Labels and texts come from users: the template escapes them, the script writes them
as text only, and a content security policy runs no script but ours.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from importlib import resources
from typing import Any

from .._errors import CuriaxError
from .content import DECIDED, Content


def page(content: Content) -> str:
    """The page of a report: the same content gives the same bytes."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    check(content)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    style, script = read("page.css"), read("page.js")
    text = environment.from_string(read("page.html")).render(
        content=content,
        decided=DECIDED,
        policy=policy(style, script),
        style=Markup(style),
        script=Markup(script),
        numbers=Markup(embedded(numbers(content))),
    )
    return text.lstrip()


def check(content: Content) -> None:
    """Refuses curves and maps that no line or panel of the page would ever show."""
    labels, tasks = [line.label for line in content.lines], [panel.name for panel in content.panels]
    everything = (*content.curves, *content.left, *content.noise, *content.other_curves)
    drawn = [item for curves in everything for item in curves.series]
    drawn += [item for maps in (*content.occupancy, *content.surprise) for item in maps.maps]
    refuse("lines", (item.label for item in drawn), labels)
    refuse("panels", (item.task for item in drawn), tasks)


def refuse(what: str, used: Iterable[str], known: list[str]) -> None:
    """Complains about names that are used but not known."""
    if strange := sorted(set(used) - set(known)):
        raise CuriaxError(f"The report draws {strange}, but its {what} are {known}: add them to `Content.{what}`.")


def read(name: str) -> str:
    """A file that lies beside this one."""
    return resources.files(__package__ or "curiax.report").joinpath(name).read_text("utf-8")


def policy(style: str, script: str) -> str:
    """Content security policy: our own style and script run, nothing else does and nothing is fetched."""
    return f"default-src 'none'; img-src data:; style-src {digest(style)}; script-src {digest(script)}"


def digest(text: str) -> str:
    """How the policy names an inline text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def numbers(content: Content) -> dict[str, Any]:
    """What the script draws."""
    names = ("lines", "panels", "curves", "noise", "occupancy", "surprise")
    some = [name for name in ("left", "other_curves") if getattr(content, name)]
    return {name: plain(getattr(content, name)) for name in (*names, *some)}


def plain(value: Any) -> Any:
    """As JSON has it: five digits are more than a screen shows, and what is not finite is left out as null."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() else float(f"{value:.5g}")
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if is_dataclass(value):
        return {part.name: plain(getattr(value, part.name)) for part in fields(value)}
    return value


def embedded(value: Any) -> str:
    """JSON that cannot end the script element around it."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
