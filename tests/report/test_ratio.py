"""Reports on tasks that compare the bonuses of two kinds of transitions: numbers, claims, pictures and words."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from synthetic import KINDS, SAMPLES, compared_manifest, compared_metrics, manifest, metrics

from curiax import OutputError
from curiax.cli._tables import print_content
from curiax.envs import NoisyMNIST
from curiax.experiments import pictures
from curiax.experiments.progress import Lines
from curiax.experiments.registry import TASKS
from curiax.experiments.spec import Experiment, resolve
from curiax.paper.published import DESCRIBED, RATIO
from curiax.paper.suites import MNIST, PLAIN
from curiax.report import figures, ratio, samples, statistics
from curiax.report.assemble import assemble, distinct
from curiax.report.charts import left_curves, main_curves
from curiax.report.claims import judge
from curiax.report.content import Content
from curiax.report.publish import publish, verify
from curiax.report.record import Heading, Record, condense, load, save
from curiax.report.table import rows
from curiax.report.words import OF_RATIOS

HEADING = Heading("Two kinds", "A lead.", "mnist", "lbs", "curiax reproduce mnist")
FULL = TASKS[MNIST].cls.budget


def bonuses(end: float, seeds: int = 8, count: int = 50, spread: float = 0.02) -> tuple[np.ndarray, np.ndarray]:
    """Bonuses `[S, N]` that fall to some hundredths while their ratio goes from 2 to about `end`."""
    rng = np.random.default_rng(round(1000 * end))
    time = np.linspace(0, 1, count)
    second = 5.0 * np.exp(-4 * time) * rng.uniform(0.9, 1.1, (seeds, count))
    own = end * np.exp(spread * np.linspace(-1, 1, seeds))[:, None]
    return second * (own + (2 - own) * np.exp(-20 * time)), second


def made(method: str, end: float, steps: int = FULL // 50, seeds: int = 8, **changes: Any) -> Record:
    first, second = bonuses(end, seeds, changes.pop("count", 50), changes.pop("spread", 0.02))
    facts = compared_manifest(method, range(seeds), first.shape[1], **changes)
    return condense(facts, compared_metrics(first, second, range(seeds), steps))


def papers(**ends: float) -> list[Record]:
    """As the paper has it, but for what is said otherwise."""
    return [
        made(method, end) for method, end in ({"lbs": 1.0, "disagreement": 1.1, "icm": 1.8, "rnd": 2.5} | ends).items()
    ]


def content(records: list[Record]) -> Content:
    kept = distinct(records)
    return assemble(kept, rows(kept, "s"), HEADING)


def verdicts(records: list[Record]) -> list[str]:
    """Of LBS, Disagreement, ICM and RND."""
    return [judged.verdict for judged in judge(records, None)]


# --- numbers ----------------------------------------------------------------------------------------------


def test_rows_are_what_numpy_makes_of_the_bonuses() -> None:
    first, second = bonuses(1.3)
    table = {row.metric: row for row in rows([made("icm", 1.3)], "s")}
    # Exactly as the table of metrics has them, which is in single precision.
    first, second, ratios = (x.astype(np.float32).astype(float) for x in (first, second, first / second))
    late = slice(45, 50)
    expected = {
        RATIO: ratios[:, late].mean(1),
        "first/start": first[:, 0],
        "first/end": first[:, late].mean(1),
        "first/left": 100 * first[:, late].mean(1) / first[:, 0],
        "second/start": second[:, 0],
        "second/end": second[:, late].mean(1),
        "second/left": 100 * second[:, late].mean(1) / second[:, 0],
    }
    assert set(table) == set(expected)
    for metric, values in expected.items():
        np.testing.assert_allclose(table[metric].values, values, rtol=1e-6)
        assert table[metric].mean == pytest.approx(values.mean(), rel=1e-6)
        assert (table[metric].ci_low, table[metric].ci_high) == pytest.approx(statistics.interval(values), rel=1e-5)
    assert table[RATIO].paper_words == "above 1"
    assert table[RATIO].paper is table[RATIO].p is None


def test_a_long_run_keeps_its_very_first_bonus_and_all_of_its_last_tenth() -> None:
    """Curves are thinned to a hundred points: each is the mean since the one before."""
    first, second = bonuses(1.3, seeds=2, count=1000)
    record = made("icm", 1.3, steps=FULL // 1000, seeds=2, count=1000)
    assert len(record.steps) == 101
    assert record.moments[0] == record.steps[0] == FULL // 1000
    np.testing.assert_allclose(ratio.at_the_start(record, "ratio/first"), first[:, 0], rtol=1e-6)
    np.testing.assert_allclose(record.in_the_end("ratio/second"), second[:, 900:].mean(1), rtol=1e-6)
    np.testing.assert_allclose(record.in_the_end(RATIO), (first / second)[:, 900:].mean(1), rtol=1e-6)


@pytest.mark.parametrize(
    ("interval", "place"),
    [
        ((0.8, 1.25), "near 1"),
        ((1.0, 1.3), "undecided"),
        ((0.7, 1.4), "undecided"),
        ((1.26, 3.0), "above"),
        ((0.2, 0.79), "below"),
        (None, "untested"),
    ],
)
def test_a_ratio_is_where_all_of_its_interval_is(interval: tuple[float, float] | None, place: str) -> None:
    assert ratio.place(interval) == place


def test_twice_as_much_is_as_far_from_1_as_half_as_much() -> None:
    far = ratio.distance(np.array([2.0, 0.5, 1.0, 0.0]))
    np.testing.assert_allclose(far, [np.log(2), np.log(2), 0.0, np.inf])
    # Closer is better: neither the higher nor the lower ratio as such.
    (table,) = content([made("lbs", 1.0), made("icm", 1.6), made("rnd", 0.5)]).statistics
    assert table.header[-1] == "P(closer to 1 than lbs)"
    assert [row[-1].text for row in table.rows] == ["–", "0.00 [0.00, 0.00]", "0.00 [0.00, 0.00]"]


def test_a_bonus_that_began_with_nothing_has_no_share_left() -> None:
    zeros = np.zeros((3, 50))
    frame = compared_metrics(zeros + 1, zeros + 1, range(3), FULL // 50)
    frame = frame.with_columns(**{"ratio/second": frame["ratio/second"] * 0})
    record = condense(compared_manifest("lbs", range(3), 50), frame)
    assert "second/left" not in {row.metric for row in rows([record], "s")}
    assert content([record]).ratios[1].rows[0][-1].text == "–"
    assert [series.task for series in left_curves([record])[0].series] == [f"{MNIST} ratio/first"]


def test_curves_start_at_the_whole_bonus_and_stay_on_a_logarithmic_axis() -> None:
    (ratios, _), (left,) = main_curves([made("lbs", 1.0)]), left_curves([made("lbs", 1.0)])
    assert ratios.log
    assert left.log
    assert (ratios.ideal, left.ideal) == (1.0, None)
    assert [series.task for series in left.series] == [f"{MNIST} ratio/first", f"{MNIST} ratio/second"]
    for series in left.series:
        assert series.mean[0] == series.low[0] == series.high[0] == 100.0
        assert min(series.low) > 0


# --- claims -----------------------------------------------------------------------------------------------


def test_claims_hold_where_the_ratios_are_the_papers() -> None:
    assert verdicts(papers()) == ["held"] * 4


def test_claims_fail_and_stay_open_by_the_interval() -> None:
    assert verdicts(papers(lbs=1.6, disagreement=0.6, icm=1.0, rnd=0.5)) == ["not held"] * 4
    assert verdicts([made("lbs", 1.25, spread=0.3), made("icm", 1.25, spread=0.3)]) == ["open", "open"]
    found = {claim.text: claim for claim in content(papers(lbs=1.6)).claims}
    (lbs,) = [claim for text, claim in found.items() if "LBS" in text]
    assert lbs.verdict == "not held"
    assert re.search(r"1\.6\d \[1\.\d\d, 1\.\d\d\], claimed: 0\.8 to 1\.25", lbs.finding)
    assert lbs.comparisons.rows[0][-1].text == "other way"


def test_a_claim_about_a_ratio_says_what_is_left_to_divide() -> None:
    first, second = bonuses(1.0)
    shares = [100 * np.mean(x[:, 45:].mean(1) / x[:, 0]) for x in (first, second)]
    assert all(1 < share < 10 for share in shares)
    (claim,) = [claim for claim in content(papers()).claims if "LBS" in claim.text]
    assert claim.finding.endswith(f"; {shares[0]:.2g} % and {shares[1]:.2g} % of the two bonuses are left.")
    nothing = compared_metrics(first, second, range(8), FULL // 50)
    nothing = nothing.with_columns(**{"ratio/second": nothing["ratio/second"] * 0})
    bare = condense(compared_manifest("lbs", range(8), 50), nothing)
    assert [claim.finding for claim in content([bare]).claims if "left" in claim.finding] == []


def test_claims_are_about_full_runs_of_the_methods_as_they_are() -> None:
    short = [made("lbs", 1.0, steps=512)]
    assert verdicts(short) == []
    assert any("does not say how long" in notice.text for notice in content(short).notices)
    assert verdicts([made("lbs", 1.0, label="lbs, beta 9", settings={"method.beta": 9.0})]) == []
    assert verdicts([made("lbs", 1.0, seeds=2)]) == []


def test_every_method_that_the_paper_speaks_of_is_judged() -> None:
    methods = {d.method for d in DESCRIBED if d.metric == RATIO}
    sides = [side for judged in judge(papers(), None) for o in judged.outcomes for side in o.comparison.sides]
    assert {side.label for side in sides} == methods == {"lbs", "disagreement", "icm", "rnd"}


# --- pictures and words -----------------------------------------------------------------------------------


def test_pictures_survive_their_address() -> None:
    image = np.random.default_rng(0).random((5, 7))
    data = base64.b64decode(samples.address(pictures.encoded(image)).partition(",")[2])
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), np.round(255 * image).astype(np.uint8))


def test_samples_are_shaded_by_what_the_second_kind_is_paid() -> None:
    paid = samples.payment("lbs", "end", np.array([4.0, 0.25, 1.5, 0.5, 1.0, 1.5]), 3)
    assert paid.shades == (4, -4, 1, -2, 0, 1)
    assert paid.ratio == "1.92"
    assert [samples.brief(x) for x in (0.0421, 3.14, 31.44, 128.3, 4.2e-5, 0.0)] == [
        *("0.042", "3.1", "31.4", "128", "4.2e−5", "0"),
    ]


def test_the_gallery_shows_the_tasks_own_pictures() -> None:
    (gallery,) = content(papers()).galleries
    assert (gallery.kinds, gallery.first, len(gallery.samples)) == (KINDS, SAMPLES // 2, SAMPLES)
    task = NoisyMNIST()
    found = task.samples()
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(base64.b64decode(s.after[22:])))) for s in gallery.samples])
    expected = [np.asarray(task.observe(jax_at(found.next_states, k)))[..., 0] for k in range(SAMPLES)]
    np.testing.assert_allclose(pixels / 255, expected, atol=0.002)


def jax_at(states: Any, k: int) -> Any:
    import jax

    return jax.tree.map(lambda leaf: leaf[k], states)


def test_pictures_are_the_records_and_no_task_is_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the task is called, and one that kept none is reported without them."""
    monkeypatch.setattr(NoisyMNIST, "samples", None)
    record = made("lbs", 1.0)
    facts = {**record.facts, "identity": {**record.facts["identity"], "task": "not_there:Task"}}
    without = {name: fact for name, fact in facts.items() if name != "samples"}
    for each, seen in ((facts, SAMPLES), (without, 0)):
        (gallery,) = content([dataclasses.replace(record, facts=each)]).galleries
        assert sum(bool(sample.before) for sample in gallery.samples) == seen
        assert len(gallery.payments) == 2


def changed(png: bytes) -> str:
    return base64.b64encode(png).decode()


def drawn(kind: str, size: tuple[int, int], **options: Any) -> str:
    file = io.BytesIO()
    Image.new(kind, size).save(file, options.pop("format", "PNG"), **options)
    return changed(file.getvalue())


@pytest.mark.parametrize(
    ("picture", "why"),
    [
        ('"><script>alert(1)</script>', "not a small grey PNG"),
        (changed(b"<svg onload='alert(1)'/>"), "cannot identify image file"),
        (drawn("L", (9, 9), format="GIF"), "cannot identify image file"),
        (drawn("L", (20_000, 3)), "it is 'L' of 20000 x 3"),
        (drawn("RGB", (9, 9)), "it is 'RGB' of 9 x 9"),
        (changed(base64.b64decode(drawn("L", (9, 9)))[:-30]), "not a small grey PNG"),
        ("A" * (1 << 18), "at most 131072 characters"),
    ],
)
def test_pictures_of_a_record_are_small_grey_pngs_or_refused(tmp_path: Path, picture: str, why: str) -> None:
    save([made("lbs", 1.0)], HEADING, tmp_path)
    assert load(tmp_path)[0].facts["samples"] == made("lbs", 1.0).facts["samples"]
    document = json.loads((tmp_path / "runs.json").read_text())
    document["samples"]["mnist"]["after"][3] = picture
    (tmp_path / "runs.json").write_text(json.dumps(document))
    with pytest.raises(OutputError, match=rf"runs\.json is damaged \(samples: .*mnist\.after\.3: .*{why}"):
        load(tmp_path)


def test_publishing_leaves_every_file_and_no_word_of_coverage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_of = publish(papers(), HEADING, tmp_path / "out")
    assert {path.stem for path in (tmp_path / "out" / "figures").iterdir()} == {"ratio", "ratio-final", "samples"}
    found = verify(tmp_path / "out")
    assert (found.rows, found.differences) == (28, [])
    text = (tmp_path / "out" / "report.html").read_text()
    seen = re.sub(r"<(style|script).*?</\1>", "", text, flags=re.DOTALL)
    assert "coverage" not in re.sub(r"<section id=\"choices\".*?</section>", "", seen, flags=re.DOTALL).lower()
    assert seen.count("<img") == 2 * SAMPLES
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "| icm | 1.8" in readme
    assert "coverage" not in readme.lower()
    print_content(made_of.content)
    output = capsys.readouterr().out
    assert "coverage" not in output.lower()
    assert "near 1" in output


def test_ratios_can_be_read_off_the_picture_and_nothing_is_said_twice(tmp_path: Path) -> None:
    """Numbers around 3.5 at the axis, the ideal named there, and one title where task and suite have the same."""
    heading = Heading("Noisy MNIST", "A lead.", "mnist", "lbs", "curiax reproduce mnist")
    publish(papers(rnd=3.5, icm=0.35), heading, tmp_path)
    words = {
        stem: re.findall(r"<text[^>]*>([^<]*)</text>", (tmp_path / "figures" / f"{stem}.svg").read_text())
        for stem in ("ratio", "ratio-final")
    }
    for texts in words.values():
        assert {"0.4", "0.5", "2", "3"} <= set(texts)
        assert texts.count("Noisy MNIST") == 1
    assert "ideal 1" in words["ratio"]


def test_an_interval_that_leaves_the_axis_has_an_arrowhead_there() -> None:
    from matplotlib.figure import Figure

    table = [row for row in rows([made("lbs", 1.0), made("icm", 2.0)], "s") if row.metric == RATIO]
    wide = dataclasses.replace(table[0], ci_low=0.0, ci_high=100.0)
    drawn = Figure().subplots()
    drawn.set(xscale="log", xlim=figures.ratio_limits([wide, table[1]]))
    figures.mark_cut(drawn, [(wide, 0, "red"), (table[1], 1, "blue")])
    low, high = drawn.get_xlim()
    assert 0.4 < low < min(wide.values)
    assert max(table[1].values) < high < 4
    heads = [(line.get_marker(), np.asarray(line.get_xdata())[0], line.get_color()) for line in drawn.get_lines()]
    assert heads == [("<", low, "red"), (">", high, "red")]


def test_lines_that_are_named_at_the_axis_share_one_colour_before_two_of_them_do() -> None:
    few = content([made("lbs", 1.0, label=f"line {k}") for k in range(10)])
    many = content([made("lbs", 1.0, label=f"line {k}") for k in range(11)])
    for page, count in ((few, 10), (many, 1)):
        assert len(set(figures.bar_colours(page, [line.label for line in page.lines]).values())) == count


def test_a_page_may_hold_both_kinds_of_tasks() -> None:
    finals = [90.0, 91.0, 92.0]
    car = condense(manifest(PLAIN, "lbs", range(3)), metrics(finals, range(3)))
    both = content([car, made("lbs", 1.0, seeds=3)])
    assert [table.caption for table in both.tables] == ["Mountain Car"]
    assert len(both.ratios) == 2
    assert [curves.key for curves in both.curves[:3]] == ["coverage/cells", "coverage/bins", RATIO]
    border = next(curves for curves in both.curves if curves.key == "bonus/border_share")
    assert {series.task for series in border.series} == {PLAIN}


def test_progress_tells_the_ratio() -> None:
    progress = Lines()
    progress.declare(resolve(Experiment("mnist", "lbs")))
    assert progress.headline({"bonus/mean": np.array([3.0]), RATIO: np.array([1.0, 1.5])}) == "ratio 1.25 ×"


def test_tables_say_how_their_intervals_come_about() -> None:
    """Three seeds: Student's t by the book, cut at 0, as the note says; the function itself cuts nothing."""
    values = np.array([0.4, 1.04, 1.19])
    half = 4.302652729911275 * values.std(ddof=1) / np.sqrt(3)
    assert statistics.interval(values) == pytest.approx((values.mean() - half, values.mean() + half))
    assert values.mean() - half < 0
    assert ratio.interval(values) == pytest.approx((0.0, values.mean() + half))
    page = content([made("lbs", 1.0, seeds=3)])
    assert OF_RATIOS in page.ratios[0].note
    assert "bootstrap from 5 seeds on, Student's t for 3 or 4" in OF_RATIOS
    assert not [table for table in (*page.ratios, *page.statistics) if "bootstrap interval" in table.note]
