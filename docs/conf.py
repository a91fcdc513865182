"""The documentation: `make docs`. Nothing in the build or in the pages needs a network."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from curiax._version import __version__  # noqa: E402

project = "Curiax"
author = "The Curiax developers"
version = release = __version__
project_copyright = "the Curiax developers, MIT licence"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml", "reports"]
exclude_patterns = ["_build", "_ext", "_static"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 4
html_math_renderer = "mathml"
nitpicky = True

# The docstrings use single backquotes for code.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_mock_imports = ["stable_baselines3"]
autoclass_content = "both"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"Curiax {__version__}"
html_static_path = ["_static"]
html_css_files = ["curiax.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}


def plain_docstring(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Plain text in our docstrings that is markup to Sphinx: the bar of q(z|s), a colon in an attribute's comment."""
    lines[:] = [re.sub(r"(`[^`]*`)|\|", lambda found: found[1] or r"\|", line) for line in lines]
    if what in ("attribute", "data") and lines:
        lines[0] = lines[0].replace(": ", ", that is ", 1)


def setup(app: Sphinx) -> None:
    """Before Napoleon sees the docstrings."""
    app.connect("autodoc-process-docstring", plain_docstring, priority=100)
