"""Equations as MathML: browsers draw it themselves, so that the pages need no script and no network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


def mathml(node: nodes.Node, display: str) -> str:
    """The equation; a warning, which fails a strict build, about commands that the converter does not know."""
    text = convert(node.astext().strip(), display=display)
    if "\\" in text or "&amp;" in text or "&#x00026;" in text:
        logger.warning("cannot convert %r to MathML", node.astext(), location=node)
    return text


def visit_inline(self: Any, node: nodes.math) -> None:
    """`$…$`."""
    self.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.math_block) -> None:
    """`$$…$$`."""
    anchors = "".join(f' id="{name}"' for name in node.get("ids", [])[:1])
    self.body.append(f'<div class="equation"{anchors}>{mathml(node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer the renderer under the name `mathml`."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
