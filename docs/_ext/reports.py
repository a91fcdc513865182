"""Interactive reports for the site, made anew from the records under results/; and a check of every link inside it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.util import logging

RESULTS = Path(__file__).parent.parent.parent / "results"
logger = logging.getLogger(__name__)


def build_reports(app: Sphinx) -> None:
    """`reports/NAME.html` for every results/NAME that holds a record and has changed since; empty ones with `stub`."""
    if app.builder.format != "html":
        return
    import curiax.report
    from curiax.report import record
    from curiax.report.assemble import assemble, distinct
    from curiax.report.page import page
    from curiax.report.table import rows

    out = Path(app.outdir) / "reports"
    out.mkdir(parents=True, exist_ok=True)
    code = max(path.stat().st_mtime for path in Path(curiax.report.__file__).parent.iterdir())
    for folder in sorted(RESULTS.glob("*/record")):
        made = out / f"{folder.parent.name}.html"
        if app.config.curiax_reports == "stub":
            made.write_text("<!doctype html><title>stub</title>")
            continue
        newest = max(code, *(path.stat().st_mtime for path in folder.iterdir()))
        if made.exists() and made.stat().st_mtime > newest and made.stat().st_size > 1000:
            continue
        heading, kept = record.read_heading(folder), distinct(record.load(folder))
        made.write_text(page(assemble(kept, rows(kept, heading.suite), heading)), encoding="utf-8")


class Page(HTMLParser):
    """What a page links to, and what can be linked to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect `href`, `src` and `id`."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.targets.append(value)
            if name in ("id", "name") and value:
                self.anchors.add(value)


def check_links(app: Sphinx, error: Exception | None) -> None:
    """Warn, and so fail a strict build, about links inside the site that lead nowhere and things fetched from outside.

    Links to other sites are not followed.
    """
    if error or app.builder.format != "html":
        return
    out = Path(app.outdir)
    own = {name: out / app.builder.get_target_uri(name) for name in app.env.found_docs}
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in own.values()}
    for path, page in pages.items():
        for target in page.targets:
            parts: Any = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            aim = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            anchors = next((p.anchors for other, p in pages.items() if other.resolve() == aim), None)
            if not aim.exists():
                logger.warning("%s links to %s, which is not there", path.name, target)
            elif anchors is not None and unquote(parts.fragment) not in anchors:
                logger.warning("%s links to %s, which has no such place", path.name, target)


def setup(app: Sphinx) -> dict[str, bool]:
    """Before and after the pages."""
    app.add_config_value("curiax_reports", "build", "")
    app.connect("builder-inited", build_reports)
    app.connect("build-finished", check_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
