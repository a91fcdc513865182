"""The report's page: its bytes, and what a reader sees, clicks and prints in a real browser."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import parts
import pytest
from browser import start_browser
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from curiax._errors import CuriaxError
from curiax.experiments.pictures import encoded
from curiax.report.content import (
    Cell,
    Claim,
    Content,
    Curves,
    Gallery,
    Line,
    Map,
    MapAxis,
    Maps,
    Notice,
    Panel,
    Payment,
    Sample,
    Series,
    Table,
)
from curiax.report.page import page
from curiax.report.samples import address

HOSTILE = "</script><img src=x onerror=alert(1)>"
LABELS = ("LBS", "LBS small", HOSTILE, "random")
LINES = tuple(
    Line(label, label, colour, "7 3" if label == "LBS small" else "")
    for label, colour in zip(LABELS, ("#D55E00", "#E69F00", "#222222", "#767676"), strict=True)
)
PANELS = (Panel("car", "Mountain Car"), Panel("remote", "Noisy remote"), Panel("frozen", f"Frozen {HOSTILE}"))
STEPS = (0, 1000, 2000, 3000, 4000)
MOMENTS = (1000, 2000, 4000)
YELLOW, PURPLE = [253, 231, 37, 255], [68, 1, 84, 255]


def mean(task: int, line: int, step: int) -> float:
    """The curve of a line on a task: every value is another one."""
    return 10 * line + task + step / 1000 + 0.5


def series(task: int, line: int) -> Series:
    # The last line was measured at fewer steps and by one seed only, so it has no band.
    steps = STEPS if line < 3 else STEPS[::2]
    values = tuple(mean(task, line, step) for step in steps)
    if line == 3:
        return Series(PANELS[task].name, LABELS[line], steps, values, (), (), {7: values})
    low, high = tuple(value - 0.25 for value in values), tuple(value + 0.25 for value in values)
    return Series(PANELS[task].name, LABELS[line], steps, values, low, high, {3: low, 4: high})


def curves(key: str, title: str, unit: str, top: float | None = None) -> Curves:
    drawn = tuple(series(task, line) for task in range(3) for line in range(4))
    return Curves(key, title, unit, f"A note {HOSTILE}.", drawn, top)


def maps(key: str, title: str, *, scale: str = "linear", shared: bool = True) -> Maps:
    """Three by two cells; the first is always empty, the others grow over training and differ between lines."""

    def values(line: int, moment: int) -> tuple[float | None, ...]:
        return (None, *(float(cell * (moment + 1) * (line + 1)) for cell in range(1, 6)))

    x, y = MapAxis("position", -1.2, 0.6, 3), MapAxis("velocity", -0.07, 0.07, 2)
    drawn = tuple(
        Map(panel.name, label, x, y, MOMENTS, tuple(values(line, moment) for moment in range(3)))
        for panel in PANELS
        for line, label in enumerate(LABELS)
    )
    return Maps(key, title, "visits", "A note.", drawn, scale, shared)


def table(caption: str, rows: int = 4) -> Table:
    header = ("method", "ours", "interval", "paper", "authors' code", "difference", "verdict")
    tones = ("good", "bad", "above", "below")
    body = tuple(
        (
            Cell(LABELS[k % 4]),
            *(Cell(f"{k}.{column} [1.25, 3.75]") for column in range(5)),
            Cell("in range", tones[k % 4], f"Why {HOSTILE}"),
        )
        for k in range(rows)
    )
    return Table(caption, header, body, "A note on the table.")


CONTENT = Content(
    title=f"A report {HOSTILE}",
    lead="First paragraph.\n\nSecond one, see https://example.org.",
    notices=(Notice("warning", f"Two runs are missing {HOSTILE}."), Notice("note", "Read off a figure.")),
    lines=LINES,
    panels=PANELS,
    tables=(table("Coverage"), table(f"Return {HOSTILE}")),
    curves=(curves("coverage", "Coverage of cells", "%", 100.0), curves("return", "Return of the task", "reward")),
    occupancy=(maps("visits", "Visits", scale="log"),),
    surprise=(maps("paid", "Bonus paid", shared=False), maps("would", "Bonus of moving")),
    noise=(curves("noise", "Share paid on noise", "%"),),
    claims=(
        Claim("LBS is robust.", f"“A quote.” {HOSTILE}", "held", "It is.", table("Behind it")),
        Claim("RND is not.", "“A quote.”", "not held", "It is.", table("Behind that")),
        Claim("NGU is fast.", "“A quote.”", "open", "Too few seeds.", table("Behind the third")),
    ),
    statistics=(table("Tests"),),
    cost=(table("Seconds"),),
    choices=(table("Choices"),),
    runs=(table("All runs", 40),),
    command=f"curiax reproduce --note '{HOSTILE}'",
    version="Curiax 0.0.0",
)
#: A ratio on a logarithmic axis with its ideal, and a gallery whose pictures are three by two pixels.
PICTURE = address(encoded(np.linspace(0, 1, 6).reshape(2, 3)))
RATIO = Curves(
    "ratio", "Ratio", "×", "", (Series("car", "LBS", (0, 1000, 2000), (100.0, 10.0, 1.0), (), ()),), None, True, 1.0
)
PAID = tuple(
    Payment(label, moment, ("1.5", "4e−5"), (4, -4), "2.00") for label in LABELS[:3] for moment in ("start", "end")
)
GALLERY = Gallery(
    "car", f"Samples {HOSTILE}", ("a → b", HOSTILE), 1, (Sample(PICTURE, PICTURE), Sample("", "")), PAID, "A note."
)
COMPARED = replace(CONTENT, ratios=(table("Ratio"),), curves=(RATIO,), left=(RATIO, RATIO), galleries=(GALLERY,))
EMPTY = Content("Nothing", "", (), (), (), (), (), (), (), (), (), (), (), (), (), "", "")
SECTIONS = ["results", "curves", "occupancy", "surprise", "claims", "statistics", "cost", "choices", "runs"]


# ---- Without a browser ----


class Structure(HTMLParser):
    """Checks that elements close in the order they open, and keeps what the tests ask for."""

    VOID = frozenset({"meta", "link", "br", "img", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def named(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag in tags]


def test_same_content_same_bytes() -> None:
    assert page(CONTENT) == page(replace(CONTENT))


def test_nests_and_says_what_tables_are() -> None:
    structure = Structure(page(CONTENT))
    assert len(structure.named("caption")) == len(structure.named("table")) == 9
    assert all(cell.get("scope") in ("row", "col") for cell in structure.named("th"))
    identifiers = [attributes["id"] for _, attributes in structure.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    headings = [int(tag[1]) for tag, _ in structure.elements if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(headings))


def test_needs_no_network() -> None:
    text = page(CONTENT)
    for _, attributes in Structure(text).elements:
        for name in ("src", "href", "srcset", "action", "data"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    code = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)
    assert not re.search(r"fetch\(|XMLHttpRequest|WebSocket|@import|url\(|import\(", code)
    assert set(re.findall(r"https?://[^\s\"'<]*", code)) == {"http://www.w3.org/2000/svg", "https://example.org."}


def test_embeds_numbers_that_cannot_break_out() -> None:
    text = page(CONTENT)
    assert HOSTILE not in text
    assert "<img" not in text
    found = re.search(r'<script type="application/json" id="numbers">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    numbers = json.loads(found[1])
    assert [line["label"] for line in numbers["lines"]] == list(LABELS)
    assert numbers["curves"][0]["series"][0]["mean"] == [mean(0, 0, step) for step in STEPS]


def test_what_is_not_finite_is_left_out() -> None:
    odd = Series("car", "LBS", (0, 1000, 2000), (1.0, float("nan"), float("inf")), (), ())
    text = page(replace(CONTENT, curves=(Curves("odd", "Odd", "", "", (odd,)),)))
    assert '"mean":[1,null,null]' in text


def test_refuses_what_it_could_never_show() -> None:
    with pytest.raises(CuriaxError, match=r"random.*Content\.lines"):
        page(replace(CONTENT, lines=LINES[:3]))
    with pytest.raises(CuriaxError, match=r"remote.*Content\.panels"):
        page(replace(CONTENT, panels=PANELS[:1]))


def test_leaves_out_empty_sections() -> None:
    def sections(content: Content) -> list[str | None]:
        structure = Structure(page(content))
        listed = [link["href"] for link in structure.named("a") if link.get("class") != "skip"]
        found = [section["id"] for section in structure.named("section")]
        assert listed == [f"#{name}" for name in found]
        return found

    assert sections(CONTENT) == SECTIONS
    assert sections(EMPTY) == []
    assert sections(replace(CONTENT, tables=(), surprise=(), claims=())) == [
        name for name in SECTIONS if name not in ("results", "claims")
    ]
    assert sections(replace(EMPTY, command="curiax")) == ["runs"]


def test_a_gallery_is_a_table_of_pictures() -> None:
    text = page(COMPARED)
    structure = Structure(text)
    assert [image["src"] for image in structure.named("img")] == [PICTURE, PICTURE]
    assert {image["alt"] for image in structure.named("img")} == {"sample 1, before", "sample 1, after"}
    assert HOSTILE not in text
    assert [s["id"] for s in structure.named("section")] == [*SECTIONS[:4], "samples", *SECTIONS[4:]]
    assert len([row for row in structure.named("tr") if row.get("data-of") == HOSTILE]) == 2


# ---- In a browser ----


@pytest.mark.parametrize(
    ("chromium", "fault"), [("", "no chromium and no chromedriver on the PATH"), ("exit 1", "it does not start: ")]
)
def test_without_a_browser_its_tests_are_left_out_unless_they_are_demanded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chromium: str, fault: str
) -> None:
    for name in ("chromium", "chromedriver"):
        if chromium:
            (tmp_path / name).write_text(f"#!/bin/sh\n{chromium}\n")
            (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CURIAX_REQUIRE_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception) as skipped:
        start_browser(tmp_path)
    line = parts.summary([str(skipped.value), "another reason", str(skipped.value)])
    assert line == "Left out: the report's page in a browser (apt-get install chromium chromium-driver)"
    monkeypatch.setenv("CURIAX_REQUIRE_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match=fault):
        start_browser(tmp_path)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    chrome = start_browser(tmp_path_factory.mktemp("profile"))
    yield chrome
    chrome.quit()


Opener = Callable[..., Chrome]


@pytest.fixture
def show(browser: Chrome, tmp_path: Path) -> Iterator[Opener]:
    """Opens the page of a content; afterwards the console must be silent."""

    def opened(content: Content = CONTENT, *, width: int = 1440, scheme: str = "light", media: str = "") -> Chrome:
        file = tmp_path / "page.html"
        file.write_text(page(content))
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        emulate(browser, scheme, media)
        browser.get(file.as_uri())
        browser.execute_script("document.documentElement.style.scrollBehavior = 'auto'")
        return browser

    yield opened
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []


def emulate(browser: Chrome, scheme: str, media: str = "") -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def find(browser: Chrome, selector: str) -> WebElement:
    return browser.find_element("css selector", selector)


def count(browser: Chrome, selector: str) -> int:
    return len(browser.find_elements("css selector", selector))


def click(browser: Chrome, element: WebElement) -> None:
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def control(browser: Chrome, section: str, label: str) -> WebElement:
    """The select or checkbox that a label of a section names."""
    labels = browser.find_elements("css selector", f"{section} label")
    [found] = [each for each in labels if label in each.get_property("textContent")]  # pyright: ignore[reportOperatorIssue]
    return found.find_element("css selector", "select, input")


def choose(browser: Chrome, section: str, label: str, text: str) -> None:
    Select(control(browser, section, label)).select_by_visible_text(text)


def settle(browser: Chrome) -> None:
    """Waits for two frames: the event of scrolling comes with the next one, and it hides the tooltip."""
    browser.execute_async_script("const [done] = arguments; requestAnimationFrame(() => requestAnimationFrame(done))")


def point(browser: Chrome, element: WebElement, across: float = 0.5, down: float = 0.5) -> None:
    """Moves the mouse to a place within an element, both in shares of its size."""
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    settle(browser)
    size = element.size
    offset = round((across - 0.5) * size["width"]), round((down - 0.5) * size["height"])
    ActionChains(browser, duration=0).move_to_element_with_offset(element, *offset).perform()


def tooltip(browser: Chrome) -> tuple[str, list[tuple[str, str]], list[str]]:
    """Its title, its rows and what stands below."""
    box = find(browser, "#tooltip")
    assert box.is_displayed()
    title = box.find_element("css selector", ".title").text
    rows = [row.find_elements("css selector", "span") for row in box.find_elements("css selector", ".value-row")]
    below = [line.text for line in box.find_elements("css selector", ".extra")]
    return title, [(row[1].text, row[2].text) for row in rows], below


def pixel(browser: Chrome, canvas: WebElement, column: int, row: int) -> list[int]:
    """Colour and opacity in the middle of a cell of a map of 3 by 2 cells."""
    return browser.execute_script(
        "const [canvas, x, y] = arguments; const copy = document.createElement('canvas').getContext('2d');"
        "copy.drawImage(canvas, -(x + 0.5) * canvas.width / 3, -(1.5 - y) * canvas.height / 2);"
        "return [...copy.getImageData(0, 0, 1, 1).data]",
        canvas,
        column,
        row,
    )


def canvases(browser: Chrome, section: str) -> list[WebElement]:
    return browser.find_elements("css selector", f"{section} canvas")


def test_draws_everything(show: Opener) -> None:
    browser = show()
    assert count(browser, "#curves svg") == 3
    assert count(browser, "#curves .mean") == 12
    assert count(browser, "#curves .band") == 9  # one line has one seed only
    assert count(browser, "[data-curves=noise] .mean") == 12
    assert len(canvases(browser, "#occupancy")) == len(canvases(browser, "#surprise")) == 12
    dash = "return getComputedStyle(document.querySelector(arguments[0])).strokeDasharray"
    assert browser.execute_script(dash, "[data-label='LBS small'] .mean") != "none"
    assert browser.execute_script(dash, "[data-label='LBS'] .mean") == "none"
    assert count(browser, ".card") == 3
    words = (
        "return [...document.querySelectorAll('.card .badge')]"
        ".map((each) => each.textContent.split(/\\s+/).join(' ').trim())"
    )
    assert browser.execute_script(words) == ["✓good: held", "✗bad: not held", "?unsure: open"]


def test_a_logarithmic_axis_has_equal_steps_and_its_ideal(show: Opener) -> None:
    browser = show(COMPARED)
    path = find(browser, "#curves .mean").get_attribute("d") or ""
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path)]
    assert heights[1] - heights[0] == pytest.approx(heights[2] - heights[1], abs=0.2)
    assert heights[0] < heights[1] < heights[2]
    ideal = find(browser, "#curves .ideal line")
    assert float(ideal.get_attribute("y1") or "nan") == pytest.approx(heights[2], abs=0.1)
    assert find(browser, "#curves .ideal text").text == "ideal"
    ticks = [each.text for each in browser.find_elements("css selector", "[data-curves=curves] .gridline + text")]
    assert ticks == ["1", "10", "100"]
    assert count(browser, "[data-curves=left] svg") == 1
    point(browser, find(browser, "#curves svg"), 0.6)
    assert tooltip(browser)[1] == [("LBS", "10")]


@pytest.mark.parametrize("apart", [False, True])
def test_panels_have_one_vertical_axis_or_their_own(show: Opener, apart: bool) -> None:
    """Two games, one of which has a hundred times the score of the other, over millions of steps."""
    steps = (0, 5_000_000, 10_000_000)
    games = [
        Series(PANELS[k].name, LABELS[0], steps, (0.0, 1.0 * top, 2.0 * top), (), ()) for k, top in enumerate((1, 100))
    ]
    drawn = Curves("game/episodes", "Scores", "", "", tuple(games), apart=apart)
    browser = show(replace(CONTENT, curves=(drawn,)))
    charts = browser.find_elements("css selector", "[data-curves=curves] svg")
    ends = [re.findall(r"[ML][\d.]+ ([\d.]+)", find_in(chart, ".mean"))[-1] for chart in charts]
    assert (ends[0] == ends[1]) is apart
    assert all("millions of steps" in chart.text for chart in charts)


def find_in(chart: WebElement, selector: str) -> str:
    return chart.find_element("css selector", selector).get_attribute("d") or ""


def test_a_gallery_shows_its_pictures_and_follows_the_legend(show: Opener) -> None:
    browser = show(COMPARED)
    widths = "return [...document.querySelectorAll('.gallery img')].map((each) => each.naturalWidth)"
    assert browser.execute_script(widths) == [3, 3]
    assert count(browser, ".gallery .swatch") == 3
    ground = "return getComputedStyle(document.querySelector(arguments[0])).backgroundColor"
    assert len({browser.execute_script(ground, f".gallery .{shade}") for shade in ("shade4", "shade-4", "sum")}) == 3
    rows_shown = "return [...document.querySelectorAll('.gallery [data-of]')].filter((row) => !row.hidden).length"
    assert browser.execute_script(rows_shown) == 6
    click(browser, find(browser, ".toggle"))
    assert browser.execute_script(rows_shown) == 4


def test_hostile_labels_are_inert(show: Opener) -> None:
    browser = show()
    assert count(browser, "img") == 0
    assert count(browser, "script") == 2
    assert find(browser, "h1").text == f"A report {HOSTILE}"
    assert HOSTILE in [toggle.text for toggle in browser.find_elements("css selector", ".toggle")]
    point(browser, find(browser, "#curves svg"))
    assert HOSTILE in dict(tooltip(browser)[1])
    assert count(browser, "img") == 0


@pytest.mark.parametrize("label", LABELS)
def test_a_toggle_switches_its_line_in_every_chart(show: Opener, label: str) -> None:
    browser = show()
    toggles = browser.find_elements("css selector", ".toggle")
    toggle = toggles[LABELS.index(label)]

    def lines(selector: str) -> list[Any]:
        return [each.get_property("textContent") for each in browser.find_elements("css selector", selector)]

    def labels(section: str) -> set[str | None]:
        groups = browser.find_elements("css selector", f"[data-curves={section}] [data-label]")
        return {group.get_attribute("data-label") for group in groups}

    for pressed in (False, True):
        click(browser, toggle)
        assert toggle.get_attribute("aria-pressed") == str(pressed).lower()
        left = 4 if pressed else 3
        assert count(browser, "#curves .mean") == count(browser, "[data-curves=noise] .mean") == 3 * left
        assert len(canvases(browser, "#occupancy")) == len(canvases(browser, "#surprise")) == 3 * left
        assert (label in labels("curves")) == (label in labels("noise")) == pressed
        assert (label in lines(".map figcaption")) == pressed


def test_all_and_none(show: Opener) -> None:
    browser = show()
    everyone, no_one = browser.find_elements("css selector", ".everything button")
    click(browser, no_one)
    assert count(browser, ".mean, canvas") == 0
    assert count(browser, ".nothing") == 4
    assert count(browser, ".toggle[aria-pressed=false]") == 4
    click(browser, everyone)
    assert count(browser, ".mean") == 24
    assert count(browser, ".toggle[aria-pressed=true]") == 4


def test_every_run(show: Opener) -> None:
    browser = show()
    assert count(browser, ".seed") == 0
    click(browser, control(browser, "#curves", "every run"))
    assert count(browser, "#curves .seed") == 3 * (2 + 2 + 2 + 1)
    assert count(browser, "[data-curves=noise] .seed") == 0
    choose(browser, "#curves", "Quantity", "Return of the task")
    # The mouse goes to the end of a run of the third line on the first task.
    path = browser.find_elements("css selector", "#curves [data-seed='3']")[2]
    browser.execute_script("arguments[0].ownerSVGElement.scrollIntoView({block: 'center'})", path)
    settle(browser)
    x, y = browser.execute_script(
        "const [path] = arguments; const end = path.getPointAtLength(path.getTotalLength());"
        "const box = path.ownerSVGElement.getBoundingClientRect(); return [box.x + end.x, box.y + end.y]",
        path,
    )
    chain = ActionChains(browser, duration=0)
    chain.w3c_actions.pointer_action.move_to_location(round(x), round(y) + 1)
    chain.perform()
    assert tooltip(browser)[2] == [f"{HOSTILE}, seed 3: {mean(0, 2, 4000) - 0.25}"]
    assert count(browser, ".seed.near") == 1
    click(browser, control(browser, "#curves", "every run"))
    assert count(browser, ".seed") == 0


def test_quantity(show: Opener) -> None:
    browser = show()

    def ticks() -> list[str]:
        return [text.text for text in browser.find_elements("css selector", "#curves svg:first-of-type text")]

    assert find(browser, "#curves h3").text == "Coverage of cells"
    assert {"0", "20", "100", "%"} <= set(ticks())
    choose(browser, "#curves", "Quantity", "Return of the task")
    assert find(browser, "#curves h3").text == "Return of the task"
    assert "reward" in ticks()
    assert "100" not in ticks()
    assert "40" in ticks()


def expected_rows(task: int, step: int) -> list[tuple[str, str]]:
    """The tooltip's rows at a step where all lines were measured, largest first."""
    rows = [(LABELS[3], f"{mean(task, 3, step):g} %")]
    for line in (2, 1, 0):
        value = mean(task, line, step)
        rows.append((LABELS[line], f"{value:g} % [{value - 0.25:g}, {value + 0.25:g}]"))
    return rows


def test_curves_say_their_values_to_the_mouse(show: Opener) -> None:
    browser = show()
    chart = browser.find_elements("css selector", "#curves svg")[1]
    point(browser, chart, across=0.54)
    assert tooltip(browser) == ("Noisy remote, 2,000 steps", expected_rows(1, 2000), [])
    assert count(browser, ".rule") == 1
    assert count(browser, ".dot") == 4
    point(browser, chart, across=0.31)  # here the last line was not measured
    title, rows, _ = tooltip(browser)
    assert title == "Noisy remote, 1,000 steps"
    assert rows[0][1].endswith(" at 0")
    point(browser, find(browser, "h1"))
    assert not find(browser, "#tooltip").is_displayed()
    assert count(browser, ".rule, .dot") == 0


def test_curves_say_their_values_to_keys(show: Opener) -> None:
    browser = show()
    control(browser, "#curves", "every run").send_keys(Keys.TAB)
    chart = browser.switch_to.active_element
    assert chart.tag_name == "svg"
    assert tooltip(browser)[:2] == ("Mountain Car, 4,000 steps", expected_rows(0, 4000))
    chart.send_keys(Keys.LEFT, Keys.LEFT)
    assert tooltip(browser)[:2] == ("Mountain Car, 2,000 steps", expected_rows(0, 2000))
    chart.send_keys(Keys.HOME)
    assert tooltip(browser)[:2] == ("Mountain Car, 0 steps", expected_rows(0, 0))
    browser.execute_script("scrollBy(0, 40)")
    settle(browser)
    assert tooltip(browser)[0] == "Mountain Car, 0 steps"  # scrolling does not end reading by keys
    chart.send_keys(Keys.ESCAPE)
    assert not find(browser, "#tooltip").is_displayed()


def test_curves_say_their_values_to_a_finger(show: Opener) -> None:
    browser = show(width=375)
    chart = find(browser, "#curves svg")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
    settle(browser)
    box = browser.execute_script("return arguments[0].getBoundingClientRect().toJSON()", chart)
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    touch = {"x": box["x"] + 0.54 * box["width"], "y": box["y"] + 0.5 * box["height"]}
    browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [touch]})
    browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
    assert tooltip(browser)[:2] == ("Mountain Car, 2,000 steps", expected_rows(0, 2000))


def test_the_legend_points_out_a_line(show: Opener) -> None:
    browser = show()
    point(browser, find(browser, ".toggle"))
    assert count(browser, "#curves .faint .mean") == 9
    point(browser, find(browser, "h1"))
    assert count(browser, ".faint") == 0


def move(browser: Chrome, section: str, moment: int) -> None:
    slider = find(browser, f"{section} input[type=range]")
    slider.send_keys(Keys.HOME, *[Keys.RIGHT] * moment)


def test_one_slider_moves_all_maps(show: Opener) -> None:
    browser = show()
    output = find(browser, "#occupancy output")
    assert output.text == "4,000 steps"
    first, *_, last = canvases(browser, "#occupancy")
    before = pixel(browser, first, 2, 1), pixel(browser, last, 2, 1)
    assert before[1] == YELLOW  # the largest value of all
    move(browser, "#occupancy", 0)
    assert output.text == "1,000 steps"
    assert find(browser, "#occupancy input").get_attribute("aria-valuetext") == "1,000 steps"
    assert pixel(browser, first, 2, 1) != before[0]
    assert pixel(browser, last, 2, 1) != before[1]
    assert pixel(browser, first, 0, 1) == PURPLE  # the smallest value of all
    assert pixel(browser, first, 0, 0)[3] == 0  # nothing there
    assert find(browser, "#surprise output").text == "4,000 steps"  # the other section has its own


def test_play_and_pause(show: Opener) -> None:
    browser = show()
    output, play = find(browser, "#occupancy output"), find(browser, "#occupancy button")
    click(browser, play)
    assert output.text == "1,000 steps"
    assert "Pause" in play.text
    deadline = time.monotonic() + 10
    while output.text != "4,000 steps" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert output.text == "4,000 steps"
    assert "Play" in play.text
    click(browser, play)
    click(browser, play)
    seen = output.text
    assert "Play" in play.text
    time.sleep(0.8)
    assert output.text == seen


def test_maps_share_a_scale_or_have_their_own(show: Opener) -> None:
    browser = show()
    assert count(browser, "#occupancy .bar") == 1
    assert [tick.text for tick in browser.find_elements("css selector", "#occupancy .ticks span")] == [
        "1",
        "7.75",
        "60",
    ]
    assert count(browser, "#surprise .bar") == 12
    own = canvases(browser, "#surprise")
    assert pixel(browser, own[0], 2, 1) == pixel(browser, own[3], 2, 1) == YELLOW
    choose(browser, "#surprise", "Map", "Bonus of moving")
    assert find(browser, "#surprise h3").text == "Bonus of moving"
    assert count(browser, "#surprise .bar") == 1
    shared = canvases(browser, "#surprise")
    assert pixel(browser, shared[3], 2, 1) == YELLOW
    assert pixel(browser, shared[0], 2, 1) != YELLOW


def test_tasks_of_maps(show: Opener) -> None:
    browser = show()
    assert count(browser, "#occupancy .row") == 3
    choose(browser, "#occupancy", "Task", "Noisy remote")
    assert [each.text for each in browser.find_elements("css selector", "#occupancy h4")] == ["Noisy remote"]
    assert len(canvases(browser, "#occupancy")) == 4
    assert len(canvases(browser, "#surprise")) == 12
    choose(browser, "#occupancy", "Task", "all")
    assert len(canvases(browser, "#occupancy")) == 12


def test_a_kind_of_map_offers_only_the_tasks_that_have_it(show: Opener) -> None:
    paid, would = CONTENT.surprise
    some = replace(would, maps=tuple(map for map in would.maps if map.task != PANELS[0].name))
    browser = show(replace(CONTENT, surprise=(paid, some)))
    choose(browser, "#surprise", "Task", PANELS[0].title)
    assert len(canvases(browser, "#surprise")) == 4
    choose(browser, "#surprise", "Map", some.title)
    offered = [option.text for option in Select(control(browser, "#surprise", "Task")).options]
    assert offered == ["all", PANELS[1].title, PANELS[2].title]
    assert len(canvases(browser, "#surprise")) == 4
    assert find(browser, "#surprise h4").text == PANELS[1].title


def test_one_freak_value_leaves_the_others_their_colours(show: Opener) -> None:
    """The outermost hundredth at either end takes the end's colour."""
    axis = MapAxis("x", 0.0, 1.0, 20)
    values = tuple(float(k + 1) for k in range(400))
    freak = (*values[:-1], 1e9)
    drawn = tuple(Map(PANELS[0].name, LABELS[0], axis, axis, (1000,), (row,)) for row in (freak,))
    browser = show(replace(CONTENT, occupancy=(Maps("visits", "Visits", "visits", "", drawn),), surprise=()))
    assert [tick.text for tick in browser.find_elements("css selector", "#occupancy .ticks span")] == [
        "5",
        "201",
        "396",
    ]


def test_cells_say_their_values(show: Opener) -> None:
    browser = show()
    move(browser, "#occupancy", 1)
    point(browser, canvases(browser, "#occupancy")[1], across=5 / 6, down=3 / 4)  # column 2, row 0: cell 4
    title, rows, ranges = tooltip(browser)
    assert title == "Mountain Car"
    assert rows == [(LABELS[line], str(4 * 2 * (line + 1))) for line in (3, 2, 1, 0)]
    assert ranges == ["position 0 to 0.6", "velocity −0.07 to 0"]
    assert find(browser, "#tooltip .strong").text.startswith("LBS small")
    assert count(browser, ".pointer") == 4
    point(browser, canvases(browser, "#occupancy")[1], across=1 / 6, down=3 / 4)
    assert {text for _, text in tooltip(browser)[1]} == {"nothing there"}
    point(browser, find(browser, "h1"))
    assert count(browser, ".pointer") == 0


def with_maze() -> Content:
    """A maze of 3 by 2 cells with a wall in the middle of its lower row; its runs are twice as long as the others'."""
    x, y = MapAxis("x", -1.0, 5.0, 3), MapAxis("y", -1.0, 1.0, 2)
    values = tuple((1.0, 2.0, None, 4.0, None, 6.0 * (k + 1)) for k in range(2))
    drawn = tuple(Map(PANELS[1].name, label, x, y, (4000, 8000), values, (2,)) for label in LABELS)
    visits = CONTENT.occupancy[0]
    others = tuple(map for map in visits.maps if map.task != PANELS[1].name)
    return replace(CONTENT, occupancy=(replace(visits, maps=(*others, *drawn)),), surprise=())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_walls_are_solid_and_say_so(show: Opener, scheme: str) -> None:
    browser = show(with_maze(), scheme=scheme)
    field = find(browser, ".field.walled")
    assert count(browser, ".field.walled") == 4
    assert field.size["width"] / field.size["height"] == pytest.approx(3, rel=0.1), "to scale: 6 by 2 units"
    style = (
        "const style = getComputedStyle(arguments[0]); return [style.fill, style.borderColor, style.backgroundColor]"
    )
    wall = browser.execute_script(style, find(browser, ".walled .walls"))[0]
    assert browser.execute_script(style, field)[1] == wall == browser.execute_script(style, find(browser, ".wall"))[2]
    assert wall == {"light": "rgb(107, 116, 128)", "dark": "rgb(114, 125, 138)"}[scheme]
    box = browser.execute_script("return arguments[0].getBoundingClientRect().toJSON()", find(browser, ".walls path"))
    whole = browser.execute_script("return arguments[0].getBoundingClientRect().toJSON()", find(browser, ".walls"))
    assert box["width"] == pytest.approx(whole["width"] / 3, abs=1)
    assert box["left"] - whole["left"] == pytest.approx(whole["width"] / 3, abs=1)
    assert box["bottom"] == pytest.approx(whole["bottom"], abs=1)
    canvas = field.find_element("css selector", "canvas")
    assert pixel(browser, canvas, 1, 0)[3] == 0
    point(browser, canvas, across=0.5, down=0.75)
    assert {text for _, text in tooltip(browser)[1]} == {"wall"}
    point(browser, canvas, across=5 / 6, down=0.75)
    assert {text for _, text in tooltip(browser)[1]} == {"nothing there"}
    assert "wall" in find(browser, "#occupancy .bar").text
    choose(browser, "#occupancy", "Task", PANELS[0].title)
    assert "wall" not in find(browser, "#occupancy .bar").text


def test_tasks_of_other_lengths_have_moments_of_their_own(show: Opener) -> None:
    browser = show(with_maze())
    output = find(browser, "#occupancy output")
    assert output.text == "8,000 steps"
    ended = [each.text for each in browser.find_elements("css selector", "#occupancy h4")]
    assert ended == [
        f"{PANELS[0].title}, ended at 4,000 steps",
        PANELS[1].title,
        f"{PANELS[2].title}, ended at 4,000 steps",
    ]
    choose(browser, "#occupancy", "Task", PANELS[0].title)
    assert output.text == "4,000 steps"
    choose(browser, "#occupancy", "Task", PANELS[1].title)
    assert output.text == "8,000 steps", "the end stays the end"
    move(browser, "#occupancy", 0)
    assert output.text == "4,000 steps"


def test_hints_of_cells(show: Opener) -> None:
    browser = show()
    hint = find(browser, "#results .hint")
    point(browser, hint)
    assert tooltip(browser)[0] == f"Why {HOSTILE}"


LEAST_CONTRAST = """
const brush = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
function channels(colour) {
  brush.clearRect(0, 0, 1, 1); brush.fillStyle = colour; brush.fillRect(0, 0, 1, 1);
  return [...brush.getImageData(0, 0, 1, 1).data];
}
function luminance(colour) {
  const [r, g, b] = colour.map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function ground(node) {
  for (let each = node; each; each = each.parentElement) {
    const colour = channels(getComputedStyle(each).backgroundColor);
    if (colour[3] > 230) return colour;
  }
  throw new Error('no background');
}
let least = [99, ''];
for (const node of document.body.querySelectorAll('*')) {
  const words = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
  if (!words || !node.checkVisibility() || node.closest('script, .unseen, .skip, option')) continue;
  const style = getComputedStyle(node);
  const own = luminance(channels(node.closest('svg') ? style.fill : style.color)), back = luminance(ground(node));
  const contrast = (Math.max(own, back) + 0.05) / (Math.min(own, back) + 0.05);
  if (contrast < least[0]) least = [contrast, node.outerHTML.slice(0, 200)];
}
return least;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_is_readable(show: Opener, scheme: str) -> None:
    browser = show(scheme=scheme)
    browser.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true })")
    click(browser, find(browser, ".toggle"))
    contrast, where = browser.execute_script(LEAST_CONTRAST)
    assert contrast >= 4.5, where


def test_dark_mode_changes_ground_and_dark_lines(show: Opener) -> None:
    browser = show()
    look = (
        "const line = document.querySelectorAll('#curves svg .mean')[2];"
        "return [getComputedStyle(document.body).backgroundColor, getComputedStyle(line).stroke]"
    )
    light = browser.execute_script(look)
    assert light == ["rgb(250, 250, 248)", "rgb(34, 34, 34)"]
    emulate(browser, "dark")
    assert browser.execute_script(look) == ["rgb(20, 23, 27)", "rgb(221, 221, 221)"]


@pytest.mark.parametrize("width", [375, 768, 1440])
def test_nothing_overflows(show: Opener, width: int) -> None:
    browser = show(width=width)
    browser.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true })")
    wide, inner = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide <= inner == width
    if width == 375:
        stacked = "return [...document.querySelectorAll('#curves svg')].map((each) => each.getBoundingClientRect().x)"
        assert len(set(browser.execute_script(stacked))) == 1
        header = find(browser, "#results tbody th")
        browser.execute_script("document.querySelector('#results .scroll').scrollLeft = 300")
        assert header.rect["x"] >= 0  # the first column stays


def test_the_legend_stays_in_sight(show: Opener) -> None:
    browser = show()
    browser.execute_script("document.querySelector('[data-curves=noise]').scrollIntoView()")
    top = browser.execute_script("return document.querySelector('.toggle').getBoundingClientRect().top")
    assert 0 <= top < 200


def test_charts_follow_the_width(show: Opener) -> None:
    browser = show()

    def width() -> float:
        return browser.execute_script("return document.querySelector('#curves svg').viewBox.baseVal.width")

    before = width()
    screen = {"width": 800, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    deadline = time.monotonic() + 5
    while width() == before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert width() != before


def test_print(show: Opener) -> None:
    browser = show(scheme="dark")
    click(browser, find(browser, ".toggle"))
    emulate(browser, "dark", "print")
    assert not any(
        each.is_displayed() for each in browser.find_elements("css selector", ".controls, .contents, .everything")
    )
    toggles = [each.text for each in browser.find_elements("css selector", ".toggle") if each.is_displayed()]
    assert toggles == list(LABELS[1:])  # the legend names what is drawn
    assert find(browser, "#occupancy .moment").text == "At 4,000 steps."
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    heights = (
        "return [...document.querySelectorAll('details table')].map((each) => each.getBoundingClientRect().height)"
    )
    assert min(browser.execute_script(heights)) > 50
    assert browser.execute_script(LEAST_CONTRAST)[0] >= 4.5
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert count(browser, "details:not([open])") == 0
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert count(browser, "details[open]") == 0


def test_without_javascript_the_tables_are_there(show: Opener, browser: Chrome) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show()
        assert "JavaScript" in find(browser, "noscript").text
        assert find(browser, "#results table").is_displayed()
        assert count(browser, "svg, canvas, .toggle") == 0
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_little_content(show: Opener) -> None:
    """Nothing at all, then one seed of one line on one task with a gap in its curve."""
    browser = show(EMPTY)
    assert find(browser, "h1").text == "Nothing"
    curve = Series("car", "LBS", STEPS, (1.0, 2.0, float("nan"), 3.0, 4.0), (), ())
    browser = show(
        replace(EMPTY, lines=LINES[:1], panels=PANELS[:1], curves=(Curves("one", "One", "cells", "", (curve,)),))
    )
    assert count(browser, ".mean") == 1
    assert count(browser, ".band, .controls") == 0
    path = find(browser, ".mean").get_attribute("d")
    assert path is not None
    assert path.count("M") == 2  # the pen is lifted over the gap
    point(browser, find(browser, "#curves svg"), across=0.99)
    assert tooltip(browser) == ("Mountain Car, 4,000 steps", [("LBS", "4")], [])
