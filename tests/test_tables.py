"""Tables, claims and verdicts from runs with known numbers; kept tables recomputed."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from synthetic import manifest, metrics, write_run

from curiax._errors import OutputError
from curiax.experiments.published import MEASURED, PUBLISHED, PUBLISHED_CHANGES, published
from curiax.experiments.registry import METHODS, TASKS
from curiax.experiments.reproduce import experiments
from curiax.experiments.spec import resolve
from curiax.experiments.suites import EVOLVING, FROZEN, PLAIN, SUITES
from curiax.report import claims
from curiax.report.assemble import assemble, distinct
from curiax.report.claims import CLAIMS, judge
from curiax.report.publish import publish, verify
from curiax.report.record import Heading, Record, condense, gather
from curiax.report.table import relative_change, rows

HEADING = Heading("A title", "A lead.", "a-suite", "lbs", "curiax reproduce a-suite")
CELLS = "coverage/cells"


def made(task: str, method: str, finals: list[float], **changes: object) -> Record:
    seeds = tuple(range(len(finals)))
    return condense(manifest(task, method, seeds, **changes), metrics(finals, seeds, task != PLAIN))  # pyright: ignore


def around(mean: float, count: int = 12, spread: float = 2.0) -> list[float]:
    return (mean + spread * np.linspace(-1, 1, count)).tolist()


# --- published numbers ------------------------------------------------------------------------------------


def test_the_papers_changes_follow_from_its_means() -> None:
    """The table prints both; they must agree, or one of them was mistyped here."""
    for (task, method), change in PUBLISHED_CHANGES.items():
        now, before = published(task, method, CELLS), published(PLAIN, method, CELLS)
        assert now is not None
        assert before is not None
        assert 100 * (now.value / before.value - 1) == pytest.approx(change, abs=0.01)


def test_the_papers_means_are_means_of_whole_cells() -> None:
    """Distinct cells per run are whole numbers, so a mean over n runs is a multiple of 1/n, up to its printing."""
    for number in PUBLISHED:
        total = number.value * number.seeds
        assert abs(total - round(total)) <= 0.005 * number.seeds + 1e-9, number
    assert sum(number.seeds == 7 for number in PUBLISHED) == 1


def test_published_numbers_are_about_things_that_exist() -> None:
    assert {n.task for n in (*PUBLISHED, *MEASURED)} == set(TASKS)
    assert {n.method for n in (*PUBLISHED, *MEASURED)} <= set(METHODS)
    assert all(n.source for n in (*PUBLISHED, *MEASURED))
    keys = [(n.task, n.method) for n in PUBLISHED]
    assert len(set(keys)) == len(keys)


# --- suites -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", SUITES.values(), ids=lambda suite: suite.name)
def test_every_suite_resolves_with_labels_of_its_own(suite: object) -> None:
    found = experiments(suite, methods=None, seeds=2, steps=None, preset=None)  # pyright: ignore
    assert len({(e.task, e.label) for e in found}) == len(found)


def test_the_ablation_walks_from_one_preset_to_the_other() -> None:
    """The steps between `paper-code` and `curiax` change one thing each, and the last one arrives."""
    found = experiments(SUITES["lbs-ablation"], methods=None, seeds=2, steps=None, preset=None)
    plain = {e.label: resolve(e).settings for e in found if e.task == PLAIN}
    path = ["lbs", "rollout 512", "rollout 512, bootstrap", "rollout 512, bootstrap, executed", "curiax"]
    for before, after in itertools.pairwise(path):
        changed = [name for name in plain[before] if plain[before][name] != plain[after][name]]
        assert len(changed) == 1, (before, after, changed)
    for label in (name for name in plain if name.startswith("curiax, ")):
        changed = [name for name in plain[label] if plain[label][name] != plain["curiax"][name]]
        assert len(changed) == 1, (label, changed)


def test_claims_are_about_lines_of_the_suites() -> None:
    lines = {(v.label, t) for s in SUITES.values() for v in s.variants for t in s.tasks}
    for claim in CLAIMS:
        assert claim.source.startswith('"')
        for comparison in claim.comparisons:
            assert {(s.label, s.task) for s in (comparison.left, comparison.right)} <= lines


# --- rows -------------------------------------------------------------------------------------------------


def test_rows_hold_the_papers_number_and_the_authors_runs() -> None:
    bins, cells = rows([made(PLAIN, "lbs", around(91.0))], "s")
    assert (cells.metric, bins.metric) == (CELLS, "coverage/bins")
    assert (cells.paper, cells.paper_seeds, cells.authors) == (91.75, 8, (95, 90, 91))
    assert cells.authors_verdict == "agrees"
    assert cells.mean == pytest.approx(91.0, abs=1e-4)
    assert cells.ci_low is not None
    assert cells.ci_low < 91.0 < (cells.ci_high or 0)
    assert (bins.paper, bins.verdict, bins.authors) == (None, "", ()), "the paper's numbers are in cells"


@pytest.mark.parametrize(("mean", "verdict"), [(91.0, "agrees"), (99.0, "above"), (80.0, "below")])
def test_verdicts(mean: float, verdict: str) -> None:
    row = next(r for r in rows([made(PLAIN, "lbs", around(mean))], "s") if r.metric == CELLS)
    assert row.verdict == verdict
    assert row.authors_verdict == verdict
    assert row.p is not None
    assert (row.p < 0.05) == (verdict != "agrees")


def test_what_cannot_be_compared_is_not() -> None:
    one = next(r for r in rows([made(PLAIN, "lbs", [91.0])], "s") if r.metric == CELLS)
    assert (one.verdict, one.p, one.ci_low, one.iqm) == ("untested", None, None, None)
    changed = made(PLAIN, "lbs", around(91.0), settings={"method.beta": 0.5}, label="beta 0.5")
    assert next(r for r in rows([changed], "s") if r.metric == CELLS).paper is None
    short = made(PLAIN, "lbs", around(91.0))
    short = Record(short.facts, short.steps[:20], {k: v[:, :20] for k, v in short.curves.items()}, short.moments, {})
    row = next(r for r in rows([short], "s") if r.metric == CELLS)
    assert (row.paper, row.verdict, row.authors) == (91.75, "not comparable", ())


def test_changes_against_the_task_without_noise() -> None:
    table = rows([made(PLAIN, "icm", around(90.0)), made(FROZEN, "icm", around(30.0))], "s")
    (change,) = (row for row in table if row.metric == "change/cells")
    assert change.mean == pytest.approx(-66.67, abs=0.01)
    assert (change.task, change.paper) == (FROZEN, -68.66)
    assert change.ci_low is not None
    assert change.ci_low < change.mean < (change.ci_high or 0)
    other = [made(PLAIN, "icm", around(90.0)), made(FROZEN, "icm", around(30.0), preset="curiax")]
    assert not [row for row in rows(other, "s") if row.metric.startswith("change/")], "not across presets"


def test_the_interval_of_a_change_is_the_deltas() -> None:
    """Against the textbook variance of a ratio of independent means."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(30, 5, 200), rng.normal(90, 4, 200)
    mean, low, high = relative_change(x.tolist(), y.tolist())
    ratio = x.mean() / y.mean()
    deviation = 100 * ratio * np.sqrt(x.var() / 200 / x.mean() ** 2 + y.var() / 200 / y.mean() ** 2)
    assert mean == pytest.approx(100 * (ratio - 1))
    assert low == pytest.approx(mean - 1.96 * deviation, abs=0.15 * deviation)
    assert high == pytest.approx(mean + 1.96 * deviation, abs=0.15 * deviation)


# --- claims -----------------------------------------------------------------------------------------------


def six(**means: tuple[float, float, float]) -> list[Record]:
    base = {
        "lbs": (91, 82, 87),
        "disagreement": (91, 69, 77),
        "icm": (91, 29, 17),
        "rnd": (67, 31, 28),
        "vime": (90, 69, 84),
        "random": (15, 11, 12),
    } | means
    return [
        made(task, method, around(mean))
        for method, values in base.items()
        for task, mean in zip((PLAIN, FROZEN, EVOLVING), values, strict=True)
    ]


def test_claims_hold_where_the_numbers_are_the_papers() -> None:
    verdicts = {j.claim.text: j.verdict for j in judge(six(), CELLS)}
    assert verdicts["LBS is best or tied with the best on every variant"] == "held"
    assert verdicts["The noisy TV breaks ICM and RND, and breaks them more than LBS"] == "held"
    assert verdicts["RND is behind the other methods on Mountain Car and ahead of Random"] == "held"
    assert not [text for text in verdicts if "RIDE" in text], "no claim about methods that were not run"


def test_a_claim_that_is_contradicted_or_undecided_says_so() -> None:
    worse = {j.claim.text: j for j in judge(six(lbs=(80, 82, 87)), CELLS)}
    best = worse["LBS is best or tied with the best on every variant"]
    assert best.verdict == "not held"
    against = {(o.comparison.right.label, o.comparison.right.task) for o in best.outcomes if o.contradicted}
    assert against == {("disagreement", PLAIN), ("icm", PLAIN), ("vime", PLAIN)}
    tied = {j.claim.text: j.verdict for j in judge(six(vime=(90, 81.9, 87)), CELLS)}
    assert tied["LBS is ahead of every other method on both noisy variants"] == "open"
    assert tied["LBS is best or tied with the best on every variant"] == "held"


def test_a_claim_that_is_tested_in_part_stays_open() -> None:
    plain = [record for record in six() if record.task == PLAIN]
    judged = {j.claim.text: j for j in judge(plain, CELLS)}
    best = judged["LBS is best or tied with the best on every variant"]
    assert (best.verdict, best.missing, len(best.outcomes)) == ("open", 10, 5)
    assert judged["RND is behind the other methods on Mountain Car and ahead of Random"].verdict == "held"


def test_the_first_30000_steps_are_looked_up_before_the_mark() -> None:
    record = made(PLAIN, "lbs", around(90.0))
    side = claims.Side("lbs", PLAIN, steps=30_000)
    found = claims.values(side, {("lbs", PLAIN): record}, CELLS)
    assert record.steps[13] == 28_672
    np.testing.assert_allclose(found, record.curves[CELLS][:, 13])


def test_p_values_are_corrected_within_a_claim() -> None:
    judged = next(j for j in judge(six(), CELLS) if len(j.outcomes) > 5)
    raw = min(
        claims.statistics.difference_test(
            claims.values(o.comparison.left, {(r.label, r.task): r for r in six()}, CELLS),
            claims.values(o.comparison.right, {(r.label, r.task): r for r in six()}, CELLS),
        )
        for o in judged.outcomes
    )
    assert min(o.p for o in judged.outcomes) >= raw * len(judged.outcomes) * 0.999


# --- labels, notices, files -------------------------------------------------------------------------------


def test_runs_of_one_name_are_told_apart() -> None:
    same = [
        made(PLAIN, "lbs", around(90.0)),
        made(PLAIN, "lbs", around(95.0), preset="curiax"),
        made(PLAIN, "lbs", around(80.0), preset="curiax", settings={"method.beta": 0.5}),
        made(PLAIN, "icm", around(80.0)),
    ]
    labels = [record.label for record in distinct(same)]
    assert labels == ["lbs (paper-code)", "lbs (curiax) (as it is)", "lbs (curiax) (beta 0.5)", "icm"]


def content(records: list[Record]) -> object:
    kept = distinct(records)
    return assemble(kept, rows(kept, "s"), HEADING)


def test_notices_say_what_is_mixed_or_missing() -> None:
    def texts(records: list[Record]) -> str:
        return " ".join(notice.text for notice in content(records).notices)  # pyright: ignore

    assert texts([made(PLAIN, "lbs", around(90.0))]) == ""
    assert "One seed only for lbs" in texts([made(PLAIN, "lbs", [90.0]), made(PLAIN, "icm", around(90.0))])
    assert "different numbers of seeds (1, 12)" in texts([made(PLAIN, "lbs", [90.0]), made(PLAIN, "icm", around(90.0))])
    mixed = [made(PLAIN, "lbs", around(90.0)), made(PLAIN, "icm", around(90.0), preset="curiax")]
    assert "different presets: curiax, paper-code" in texts(mixed)
    gap = [made(PLAIN, "lbs", around(90.0)), made(FROZEN, "icm", around(90.0))]
    assert "icm on mountain-car, lbs on mountain-car-frozen" in texts(gap)
    old = made(PLAIN, "lbs", around(90.0))
    old.facts["identity"]["curiax"] = "0.0.9"  # pyright: ignore
    assert "Made from runs of Curiax 0.0.9" in texts([old])
    short = made(PLAIN, "icm", around(90.0))
    short = Record(short.facts, short.steps[:20], {k: v[:, :20] for k, v in short.curves.items()}, short.moments, {})
    assert "different length (40,960, 102,400 steps)" in texts([made(PLAIN, "lbs", around(90.0)), short])


def test_a_task_that_counts_nothing_is_reported_without_coverage(tmp_path: Path) -> None:
    full = made(PLAIN, "lbs", around(90.0))
    curves = {name: values for name, values in full.curves.items() if name.startswith("bonus/")}
    bare = Record({**full.facts, "grids": []}, full.steps, curves, full.moments, {})
    done = publish([bare], HEADING, tmp_path)
    assert done.rows == []
    assert done.content.tables == done.content.statistics == done.content.claims == done.content.occupancy == ()
    assert "count no cells" in done.content.notices[0].text
    assert (tmp_path / "figures" / "bonus.png").exists()
    assert verify(tmp_path) == (0, [])


def test_claims_are_not_judged_on_unequal_ground() -> None:
    records = [*six()[:-1], made(EVOLVING, "random", around(12.0), preset="curiax")]
    assert content(six()).claims  # pyright: ignore
    assert content(records).claims == ()  # pyright: ignore


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("kept")
    for task, mean in ((PLAIN, 90.0), (FROZEN, 80.0)):
        for method in ("lbs", "icm", "random"):
            write_run(base / "runs" / f"{task}-{method}", task, method, around(mean, 6))
    publish(gather([base / "runs"])[0], HEADING, base / "out")
    return base


def test_publishing_leaves_every_file_and_the_same_bytes_again(kept: Path, tmp_path: Path) -> None:
    files = {p.relative_to(kept / "out"): p.read_bytes() for p in (kept / "out").rglob("*") if p.is_file()}
    names = {str(name) for name in files}
    assert {"report.html", "table.json", "README.md", "figures/coverage.svg", "figures/coverage.png"} <= names
    assert {"figures/occupancy.png", "figures/surprise.png", "figures/noise.png", "figures/final.svg"} <= names
    publish(gather([kept / "runs"])[0], HEADING, tmp_path)
    assert {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == files
    row = json.loads(files[Path("table.json")])["rows"][0]
    wanted = {"suite", "task", "method", "metric", "seeds", "mean", "ci_low", "ci_high", "paper", "verdict"}
    assert wanted <= set(row)


def test_a_kept_table_is_recomputed(kept: Path) -> None:
    count, differences = verify(kept / "out")
    assert count == 6 * 2 + 3 * 2
    assert differences == []


def test_a_changed_table_or_curve_is_found(kept: Path, tmp_path: Path) -> None:
    import shutil

    import polars as pl

    shutil.copytree(kept / "out", tmp_path / "out")
    path = tmp_path / "out" / "table.json"
    data = json.loads(path.read_text())
    data["rows"][0]["mean"] += 0.5
    data["rows"][1]["verdict"] = "splendid"
    gone = data["rows"].pop()
    path.write_text(json.dumps(data))
    found = verify(tmp_path / "out")[1]
    assert len(found) == 3
    assert "mean is" in found[0]
    assert "verdict is 'splendid'" in found[1]
    assert f"{gone['method']} / {gone['metric']}: missing" in found[2]
    shutil.copy(kept / "out" / "table.json", path)
    curves = pl.read_parquet(tmp_path / "out" / "record" / "curves.parquet")
    curves.with_columns(pl.col(CELLS) + 1).write_parquet(tmp_path / "out" / "record" / "curves.parquet")
    assert len(verify(tmp_path / "out")[1]) > 6
    with pytest.raises(OutputError, match=r"no readable table\.json"):
        verify(tmp_path)
