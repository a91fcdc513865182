"""Tables, claims and verdicts from runs with known numbers; kept tables recomputed."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from synthetic import cheetah, long_metrics, manifest, maze, metrics, write_run

from curiax._errors import OutputError, UsageError
from curiax.envs import Mario
from curiax.experiments.registry import METHODS, TASKS
from curiax.experiments.reproduce import experiments, lead, seeds_of_tasks
from curiax.experiments.spec import Experiment, resolve
from curiax.paper.conflicts import CONFLICTS, HEADLINE, MUJOCO_CONFLICTS
from curiax.paper.published import DESCRIBED, MEASURED, PUBLISHED, PUBLISHED_CHANGES, STEPS, published
from curiax.paper.suites import ANT_MAZE, ARCADE, EVOLVING, FROZEN, HALF_CHEETAH, MNIST, PLAIN, SUITES, Suite
from curiax.report import claims, statistics
from curiax.report.assemble import assemble, distinct
from curiax.report.charts import noise_curves, occupancy_maps, surprise_maps
from curiax.report.claims import CLAIMS, judge
from curiax.report.content import Content
from curiax.report.figures import WALL
from curiax.report.looks import LOOKS, look
from curiax.report.publish import publish, verify
from curiax.report.record import Heading, Record, condense, gather, read_heading
from curiax.report.statistics import relative_change
from curiax.report.table import as_json, rows
from curiax.report.words import number

HEADING = Heading("A title", "A lead.", "a-suite", "lbs", "curiax reproduce a-suite")
CELLS = "coverage/cells"
RESULTS_FOLDER = Path(__file__).parents[2] / "results"


def made(task: str, method: str, finals: list[float], **changes: object) -> Record:
    seeds = tuple(range(len(finals)))
    return condense(manifest(task, method, seeds, **changes), metrics(finals, seeds, task != PLAIN))  # pyright: ignore


def mujoco(task: str, method: str, coverage: np.ndarray, lost: tuple[int, ...] = (), **changes: object) -> Record:
    facts = manifest(task, method, range(len(coverage) + len(lost)), **changes)  # pyright: ignore
    seeds = [seed for seed in range(len(coverage) + len(lost)) if seed not in lost]
    if lost:
        facts["lost"] = {str(seed): "the simulation diverged at step 77." for seed in lost}
    return condense(facts, long_metrics(task, coverage, seeds))


#: Iterations in which the runs of a method have all cells of the maze; 150,000 steps are 73 of them.
ARRIVALS = {
    "lbs": [30, 40, 45, 50, 55, 60, 65, 70],
    "disagreement": [35, 40, 45, 50, 55, 60, 65, 70],
    "icm": [32, 40, 45, 50, 55, 60, 65, 71],
    "vime": [72, 80, 85, 90, 95, 100, 105, 110],
}


def mazes(**changed: Record) -> list[Record]:
    """Ant Maze as the paper has it."""
    found = {method: mujoco(ANT_MAZE, method, maze([7] * 8, at)) for method, at in ARRIVALS.items()}
    found["rnd"] = mujoco(ANT_MAZE, "rnd", maze([4, 5, 4, 3, 4, 4, 5, 4], [60] * 8))
    found["random"] = mujoco(ANT_MAZE, "random", maze([4] * 8, [40] * 8))
    return list((found | changed).values())


def cheetahs() -> list[Record]:
    """Half-Cheetah as the paper has it."""
    means = {"lbs": 73, "disagreement": 60, "icm": 60, "vime": 49, "rnd": 26, "random": 17}
    return [mujoco(HALF_CHEETAH, method, cheetah(around(mean, 8))) for method, mean in means.items()]


def around(mean: float, count: int = 12, spread: float = 2.0) -> list[float]:
    return (mean + spread * np.linspace(-1, 1, count)).tolist()


def content(records: list[Record]) -> Content:
    kept = distinct(records)
    return assemble(kept, rows(kept, "s"), HEADING)


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
    for each in PUBLISHED:
        total = each.value * each.seeds
        assert abs(total - round(total)) <= 0.005 * each.seeds + 1e-9, each
    assert sum(each.seeds == 7 for each in PUBLISHED) == 1


def test_published_numbers_are_about_things_that_exist() -> None:
    assert {n.task for n in (*PUBLISHED, *MEASURED, *DESCRIBED)} == set(TASKS) - set(ARCADE)
    assert {n.method for n in (*PUBLISHED, *MEASURED, *DESCRIBED)} <= set(METHODS)
    assert all(n.source for n in (*PUBLISHED, *MEASURED, *DESCRIBED))
    keys = [(n.task, n.method) for n in (*PUBLISHED, *DESCRIBED)]
    assert len(set(keys)) == len(keys)


def test_the_papers_runs_are_as_long_as_ours_are_by_default() -> None:
    """Of Noisy MNIST it does not say how long they are; games have curves to compare with at any length."""
    budgets = {task: entry.cls.budget for task, entry in TASKS.items() if task != MNIST}
    assert {task: budget for task, budget in budgets.items() if task not in ARCADE} == STEPS
    assert {budgets[task] for task in ARCADE} == {100_000_000}


def test_the_conflicts_of_a_task_are_decided_where_they_say() -> None:
    for conflict in (*CONFLICTS, *MUJOCO_CONFLICTS):
        for task in conflict.tasks or TASKS:
            settings = resolve(Experiment(task, conflict.method or "lbs", seeds=1)).settings
            if conflict.setting != HEADLINE:
                assert conflict.setting in settings if conflict.setting else conflict.ours
            if conflict.setting == "task.horizon":
                assert str(settings["task.horizon"]) == conflict.code


# --- suites -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", SUITES.values(), ids=lambda suite: suite.name)
def test_every_suite_resolves_with_labels_of_its_own(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mario, "require", lambda self: None)  # whether its game is installed or not
    found = experiments(suite, methods=None, seeds=2, steps=None, preset=None)
    assert len({(e.task, e.label) for e in found}) == len(found)


def numbered(text: str) -> int | tuple[int, ...]:
    first, dash, last = text.partition("-")
    return tuple(range(int(first), int(last) + 1)) if dash else int(first)


def test_a_task_of_a_suite_may_have_seeds_of_its_own() -> None:
    suite = SUITES["episodic"]
    seeds = seeds_of_tasks(suite, "3000-3031 half-cheetah=8 ant-maze=4-6", numbered)
    found = experiments(suite, methods=["lbs"], seeds=seeds, steps=None, preset=None)
    assert [len(e.as_json()["seeds"]) for e in found] == [32, 32, 32, 8, 3]
    assert lead(suite, found) == (
        "lbs on Episodic counts. 32 seeds of 102,400 steps on mountain-car, mountain-car-frozen, "
        "mountain-car-evolving; 8 seeds of 501,760 steps on half-cheetah; 3 seeds of 251,904 steps on ant-maze; "
        "preset paper-code."
    )
    assert set(seeds_of_tasks(suite, " ".join(f"{task}=8" for task in suite.tasks), numbered).values()) == {8}
    assert set(seeds_of_tasks(suite, "0, 1, 5", lambda text: (len(text),)).values()) == {(7,)}, "one list"
    for text, message in (
        ("8 9", "said once"),
        ("8 walker=8", "walker"),
        ("8 ant-maze=8 ant-maze=9", "named twice"),
        ("ant-maze=8", "no seeds for mountain-car, "),
    ):
        with pytest.raises(UsageError, match=message):
            seeds_of_tasks(suite, text, numbered)


def test_the_lead_of_kept_results_is_written_here() -> None:
    folder = RESULTS_FOLDER / "stochastic-mountain-car"
    suite = SUITES[folder.name]
    found = experiments(suite, methods=None, seeds=tuple(range(3000, 3032)), steps=None, preset=None)
    assert lead(suite, found) == read_heading(folder / "record").lead


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
            assert comparison.sides
            assert {(s.label, s.task) for s in comparison.sides} <= lines


# --- rows -------------------------------------------------------------------------------------------------


def test_rows_hold_the_papers_number_and_the_authors_runs() -> None:
    cells, bins = rows([made(PLAIN, "lbs", around(91.0))], "s")
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
    """Against the textbook variance of a ratio of independent means, with as much spread in either group."""
    rng = np.random.default_rng(1)
    for spread in ((5.0, 1.0), (1.0, 20.0)):
        x, y = rng.normal(30, spread[0], 200), rng.normal(90, spread[1], 200)
        mean, low, high = relative_change(x, y)
        ratio = x.mean() / y.mean()
        deviation = 100 * ratio * np.sqrt(x.var() / 200 / x.mean() ** 2 + y.var() / 200 / y.mean() ** 2)
        assert mean == pytest.approx(100 * (ratio - 1))
        assert low == pytest.approx(mean - 1.96 * deviation, abs=0.2 * deviation)
        assert high == pytest.approx(mean + 1.96 * deviation, abs=0.2 * deviation)


def test_the_interval_of_a_change_covers_what_it_should() -> None:
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(400):
        _, low, high = relative_change(100 * rng.beta(8, 3, 8), 100 * rng.beta(12, 2, 8))
        assert low is not None
        assert high is not None
        hits += low <= 100 * ((8 / 11) / (12 / 14) - 1) <= high
    assert 0.92 <= hits / 400 <= 0.985


def test_two_seeds_give_no_interval_of_anything() -> None:
    table = rows([made(PLAIN, "icm", [90.0, 80.0]), made(FROZEN, "icm", [30.0, 20.0])], "s")
    assert {(row.ci_low, row.iqm_low) for row in table} == {(None, None)}


def test_the_verdict_on_a_change_counts_the_papers_scatter() -> None:
    """By hand: the difference of log ratios over its standard error, both sides' runs counted."""
    plain, frozen = around(90.0, 12, 6.0), around(30.0, 12, 6.0)
    change = next(
        r for r in rows([made(PLAIN, "icm", plain), made(FROZEN, "icm", frozen)], "s") if r.metric == "change/cells"
    )
    x, y = np.array(frozen), np.array(plain)
    variance = sum((v.std(ddof=1) / v.mean()) ** 2 * (1 / 12 + 1 / 8) for v in (x, y))
    gap = np.log(x.mean() / y.mean()) - np.log(1 - 0.6866)
    assert change.p == pytest.approx(2 * norm.sf(abs(gap) / np.sqrt(variance)), rel=1e-3)


def test_the_resolution_is_where_the_verdict_turns() -> None:
    row = next(r for r in rows([made(PLAIN, "lbs", around(91.0, 12, 6.0))], "s") if r.metric == CELLS)
    values = np.asarray(row.values)
    assert row.resolution is not None
    for shift, verdict in ((0.99, "agrees"), (1.01, "above")):
        assert statistics.agreement(values, row.mean - shift * row.resolution, 8)[0] == verdict


# --- the page's tables ------------------------------------------------------------------------------------


def cells(table: Any, label: str) -> dict[str, str]:
    row = next(row for row in table.rows if row[0].text == label)
    return {name: cell.text for name, cell in zip(table.header, row, strict=True)}


def test_statistics_by_hand() -> None:
    """Curves rise evenly, so every number follows from the final values: 12 runs from 58 to 62."""
    record = made(PLAIN, "lbs", around(60.0))
    found = cells(content([record, made(PLAIN, "icm", around(80.0))]).statistics[0], "lbs")
    # Coverage c after a share s of training is c·s, and c/0.96 of the reachable cells: 50 % of them at s = 48/c.
    steps = sorted(2048 * int(np.ceil(np.round(50 * 48 / c, 6))) for c in around(60.0))
    assert found["steps to 50 %"] == f"{np.median(steps) / 1000:.0f}k (12/12)"
    assert found["75 %"] == "never"
    assert found["mean over training"].startswith("30.")
    assert found["collapsed"].startswith("6/12: 0, 1, 2, 3, 4, 5")


def test_cost_is_of_a_step() -> None:
    """A run of twice the seeds at twice the CPU time costs as much as RND."""
    rnd, lbs = made(PLAIN, "rnd", around(60.0, 6)), made(PLAIN, "lbs", around(60.0, 12))
    lbs.facts["seconds"]["cpu"] = 8.0
    found = cells(content([rnd, lbs]).cost[0], "lbs")
    assert found["relative to RND"] == "1.00"
    assert found["CPU µs per step"] == number(8e6 / (12 * 102_400), 2)
    assert found["steps/s, all seeds"] == f"{12 * 102_400 / 2.0:,.0f}"


def test_maps_of_noise_are_in_units_of_the_car_in_the_same_place() -> None:
    record = made(FROZEN, "icm", around(60.0))
    kinds = {maps.key: maps.maps[0] for maps in surprise_maps([record])}
    noise, car = record.maps["probe/noise"], record.maps["probe/car"]
    np.testing.assert_allclose(np.array(kinds["probe/noise"].values), noise / car, rtol=6e-3)
    np.testing.assert_allclose(np.array(kinds["probe/car"].values), car / np.median(car, 1, keepdims=True), rtol=6e-3)
    assert np.isnan(np.array(kinds["paid"].values, float)[:, 7]).all(), "nobody was there"


def test_what_the_noise_would_earn_is_a_share() -> None:
    record = made(FROZEN, "icm", around(60.0))
    curve = next(curves for curves in noise_curves([record]) if curves.key == "probe")
    noise, car = record.curves["probe/noise"], record.curves["probe/car"]
    np.testing.assert_allclose(curve.series[0].mean, (100 * noise / (noise + car)).mean(0), rtol=1e-3)


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
    against = {(o.comparison.sides[1].label, o.comparison.sides[1].task) for o in best.outcomes if o.contradicted}
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


def test_shares_are_compared_with_the_uncertainty_of_all_four_groups() -> None:
    """The claim's p value by hand, and no more false alarms than promised where both keep the same share."""
    records = {(r.label, r.task): r for r in six()}
    pair = claims.Comparison(
        claims.Side("vime", EVOLVING, relative=True), claims.Side("disagreement", EVOLVING, relative=True)
    )
    (found,) = claims.compare([pair], records, CELLS)
    groups = [
        np.asarray(records[key].final(CELLS), float)
        for key in (("vime", EVOLVING), ("vime", PLAIN), ("disagreement", EVOLVING), ("disagreement", PLAIN))
    ]
    means = [group.mean() for group in groups]
    assert (found.left, found.right) == (pytest.approx(means[0] / means[1]), pytest.approx(means[2] / means[3]))
    gap = np.log(means[0] / means[1]) - np.log(means[2] / means[3])
    error = np.sqrt(sum(g.var(ddof=1) / g.mean() ** 2 / len(g) for g in groups))
    assert found.p == pytest.approx(2 * norm.sf(abs(gap) / error), rel=1e-3)
    rng = np.random.default_rng(3)
    draws = [[rng.normal(mean, 5, 32) for mean in (80, 90, 64, 72)] for _ in range(1000)]
    assert 0.03 <= np.mean([statistics.ratio_test(*four) < 0.05 for four in draws]) <= 0.075


def test_lbs_against_the_authors_runs() -> None:
    judged = {j.claim.text: j for j in judge(six(), CELLS)}
    fine = judged["LBS is not worse than the authors' released code on any variant"]
    assert (fine.verdict, len(fine.outcomes)) == ("held", 3)
    worse = next(j for j in judge(six(lbs=(70, 82, 87)), CELLS) if "released code" in j.claim.text)
    assert worse.verdict == "not held"
    assert [o.contradicted for o in worse.outcomes] == [True, False, False]
    assert not [j for j in judge(six()[3:], CELLS) if "released code" in j.claim.text]


def test_p_values_are_corrected_within_a_claim() -> None:
    judged = next(j for j in judge(six(), CELLS) if len(j.outcomes) > 5)
    raw = min(
        claims.statistics.difference_test(
            *(claims.values(side, {(r.label, r.task): r for r in six()}, CELLS) for side in o.comparison.sides)
        )
        for o in judged.outcomes
    )
    assert min(o.p for o in judged.outcomes) >= raw * len(judged.outcomes) * 0.999


# --- Half-Cheetah and Ant Maze ----------------------------------------------------------------------------


def test_rounded_numbers_and_words_of_the_paper() -> None:
    """Ours at 75.5: away from 73, but a mean of 74 rounds to it, too."""
    table = rows([mujoco(HALF_CHEETAH, "lbs", cheetah(around(75.5, 8))), *mazes()], "s")
    found = {(row.task, row.method): row for row in table if row.metric == CELLS}
    lbs = found[HALF_CHEETAH, "lbs"]
    assert (lbs.paper, lbs.paper_words, lbs.steps) == (73.0, "≈73", 501_760)
    assert lbs.p == pytest.approx(statistics.agreement(np.asarray(lbs.values), 74.0, 8)[1])
    assert lbs.resolution is not None
    for shift, verdict in ((0.99, "agrees"), (1.01, "above")):
        paper = lbs.mean - shift * lbs.resolution
        assert statistics.agreement(np.asarray(lbs.values), paper, 8, within=1.0)[0] == verdict
    rnd = found[ANT_MAZE, "rnd"]
    assert (rnd.paper, rnd.paper_words, rnd.verdict) == (None, "far below 100", "")
    by_method = {row["method"]: row for row in as_json(table) if (row["task"], row["metric"]) == (ANT_MAZE, CELLS)}
    assert by_method["rnd"]["paper_words"] == "far below 100"
    assert "paper_words" not in by_method["lbs"]


def test_runs_without_any_spread_give_plain_numbers(tmp_path: Path) -> None:
    """All at 100 %: no division by nothing anywhere (warnings are errors), and nothing that is no number."""
    done = publish([*mazes(), *cheetahs()], HEADING, tmp_path)
    page = done.content
    every = (*page.tables, *page.statistics, *page.cost, *(claim.comparisons for claim in page.claims))
    assert not [cell.text for table in every for row in table.rows for cell in row if "nan" in cell.text.lower()]
    found = cells(next(table for table in page.tables if table.caption == "Ant Maze"), "vime")
    assert found["ours"] == "100.0 [100.0, 100.0]"
    assert found["verdict"] == "agrees"
    assert found["steps to all 7 cells: median"].endswith("k (8/8)")
    speed = next(table for table in page.statistics if table.caption == "Ant Maze")
    assert cells(speed, "icm")["P(better than lbs)"] == "0.50 [0.50, 0.50]"
    assert "collapsed" not in speed.header
    assert all(row.collapsed == () for row in done.rows)
    assert verify(tmp_path).differences == []


def test_the_steps_to_all_cells() -> None:
    """From the curves: seven runs at known iterations, one that never gets there."""
    record = mujoco(ANT_MAZE, "icm", maze([7] * 7 + [6], [40, 41, 42, 43, 44, 45, 46, 47]))
    steps = statistics.steps_to(record.steps, record.curves[CELLS], claims.WHOLE)
    for step, iteration in zip(steps[:7], range(40, 47), strict=True):
        assert step is not None
        assert 0 <= step - 2048 * iteration <= 2048, "the next recorded step"
    table = next(table for table in content([record]).tables if table.caption == "Ant Maze")
    found = cells(table, "icm")
    middle = statistics.median_steps(steps)
    assert middle is not None
    assert found["steps to all 7 cells: median"] == f"{middle / 1000:.0f}k (7/8)"
    assert found["slowest run"] == "never"
    assert not [name for name in content([made(PLAIN, "lbs", around(90.0))]).tables[0].header if "steps" in name]


def verdicts(records: list[Record]) -> dict[str, str]:
    return {judged.claim.text: judged.verdict for judged in judge(records, CELLS)}


SOON = "LBS, ICM and Disagreement visit all seven cells of Ant Maze in all runs before 150,000 steps"
LATER = "VIME visits all seven cells of Ant Maze in all runs, but takes longer than LBS, ICM and Disagreement"
FAR = "RND and Random stay far below 100 % in Ant Maze"
ORDER = "On Half-Cheetah LBS leads, ICM and Disagreement follow, then VIME, then RND, then Random"


def test_claims_about_mujoco_hold_where_the_numbers_are_the_papers() -> None:
    found = verdicts([*mazes(), *cheetahs()])
    assert set(found) == {SOON, LATER, FAR, ORDER, "LBS covers no less than around 73 % of Half-Cheetah"}
    assert set(found.values()) == {"held"}


def test_all_runs_means_all_runs() -> None:
    """One too late: not shown. So many that the paper's 8 of 8 would be a wonder: contradicted."""
    late = {n: [30] * (8 - n) + [100] * n for n in (0, 1, 4, 5)}
    found = {n: verdicts(mazes(icm=mujoco(ANT_MAZE, "icm", maze([7] * 8, at)))) for n, at in late.items()}
    assert {n: found[n][SOON] for n in late} == {0: "held", 1: "open", 4: "open", 5: "open"}
    far = mazes(icm=mujoco(ANT_MAZE, "icm", maze([7] * 8, [30] + [100] * 7)))
    assert verdicts(far)[SOON] == "not held"
    assert verdicts(mazes(vime=mujoco(ANT_MAZE, "vime", maze([7] * 8, [20] * 8))))[LATER] == "not held"
    assert verdicts(mazes(rnd=mujoco(ANT_MAZE, "rnd", maze([7] * 8, [90] * 8))))[FAR] == "not held"
    close = mazes(rnd=mujoco(ANT_MAZE, "rnd", maze([5, 6, 7, 6, 5, 7, 6, 6], [90] * 8)))
    assert verdicts(close)[FAR] == "open"


def test_a_line_that_lost_a_seed_is_judged_by_the_rest_and_said_to() -> None:
    lost = mazes(icm=mujoco(ANT_MAZE, "icm", maze([7] * 7, ARRIVALS["icm"][1:]), lost=(2,)))
    assert verdicts(lost)[SOON] == "open", "of all runs one is missing"
    page = content(lost)
    assert (
        "icm on ant-maze lost seed 2 (the simulation diverged at step 77): its numbers are of the 7 of 8 seeds that "
        "finished." in [notice.text for notice in page.notices]
    )
    for claim in page.claims:
        about_icm = any("icm" in cell.text for row in claim.comparisons.rows for cell in row)
        assert ("icm on ant-maze without 1 lost seed" in claim.finding) == about_icm
    row = next(r for r in rows(lost, "s") if (r.method, r.metric) == ("icm", CELLS))
    assert (row.seeds, len(row.values)) == (7, 7)
    runs = cells(page.runs[0], "icm")
    assert runs["seeds"] == "0,1,3,4,5,6,7 (lost: 2)"
    assert "--seeds 0-7" in runs["run it again"]


def test_claims_in_cells_are_judged_in_cells() -> None:
    """Under a preset that headlines bins, all cells are still the paper's seven."""
    honest = [mujoco(ANT_MAZE, method, maze([7] * 8, at), preset="clean") for method, at in ARRIVALS.items()]
    found = {j.claim.text: j.verdict for j in judge(honest, "coverage/bins")}
    assert found[SOON] == found[LATER] == "held"


def test_lengths_are_those_of_each_task() -> None:
    """Full runs of three lengths are judged; one short run anywhere on the paper's tasks, and nothing is."""
    plain = [record for record in six() if record.task == PLAIN]
    together = [*plain, *mazes(), *cheetahs()]
    assert not [n for n in content(together).notices if "length" in n.text]
    assert verdicts(together)[ORDER] == "held"
    r = cheetahs()[0]
    cut = Record(r.facts, r.steps[:20], {k: v[:, :20] for k, v in r.curves.items()}, r.moments, {})
    short = [*plain, *mazes(), cut]
    assert verdicts(short) == {}
    assert "The paper's runs are of 501,760 steps" in " ".join(notice.text for notice in content(short).notices)
    captions = [table.caption for table in content(together).cost]
    assert [caption.partition(": ")[2] for caption in captions] == ["Mountain Car", "Ant Maze", "Half-Cheetah"]
    assert "2.5 minutes on Mountain Car, 10 minutes on Ant Maze, 14 minutes" in content(together).cost[-1].note


def test_tasks_with_seeds_of_their_own_are_told_and_no_fault() -> None:
    together = [*(record for record in six() if record.task == PLAIN), *mazes()]
    (notice,) = content(together).notices
    assert (notice.level, notice.text) == (
        "note",
        "The tasks were run with different seeds: 0-11 on mountain-car; 0-7 on ant-maze.",
    )


def test_maps_of_a_maze_have_walls_and_are_of_the_finest_bins(tmp_path: Path) -> None:
    record = mujoco(ANT_MAZE, "lbs", maze([7] * 3, [30, 40, 50]))
    for kind in (occupancy_maps([record])[0], surprise_maps([record])[0]):
        (drawn,) = kind.maps
        assert (drawn.x.parts, drawn.y.parts, drawn.spatial) == (12, 12, True)
        solid = np.isin(np.arange(144), drawn.closed).reshape(12, 12)
        assert solid[:8, 4:8].all(), "−1 < x < 3, 1 < y < 3"
        assert solid.sum() == 32
        assert all(drawn.values[-1][cell] is None for cell in drawn.closed)
        assert "Solid: walls" in kind.note
        assert "car" not in kind.note
    publish([record, cheetahs()[0]], HEADING, tmp_path)
    picture = (tmp_path / "figures" / "occupancy.svg").read_text()
    assert WALL in picture
    assert "dark grey: walls" in picture
    publish([cheetahs()[0]], HEADING, tmp_path / "open")
    assert WALL not in (tmp_path / "open" / "figures" / "occupancy.svg").read_text()


# --- labels, notices, files -------------------------------------------------------------------------------


def test_runs_of_one_name_are_told_apart() -> None:
    same = [
        made(PLAIN, "lbs", around(90.0)),
        made(PLAIN, "lbs", around(95.0), preset="curiax"),
        made(PLAIN, "lbs", around(80.0), preset="curiax", settings={"method.beta": 0.5}),
        made(PLAIN, "icm", around(80.0)),
    ]
    labels = [record.label for record in distinct(same)]
    assert labels == ["lbs (paper-code)", "lbs (curiax)", "lbs, beta 0.5", "icm"]


def test_notices_say_what_is_mixed_or_missing() -> None:
    def texts(records: list[Record]) -> str:
        return " ".join(notice.text for notice in content(records).notices)

    assert texts([made(PLAIN, "lbs", around(90.0))]) == ""
    assert "One seed only for lbs" in texts([made(PLAIN, "lbs", [90.0]), made(PLAIN, "icm", around(90.0))])
    assert "No line is called 'lbs'" in texts([made(PLAIN, "icm", around(90.0))])
    assert "different numbers of seeds (1, 12)" in texts([made(PLAIN, "lbs", [90.0]), made(PLAIN, "icm", around(90.0))])
    mixed = [made(PLAIN, "lbs", around(90.0)), made(PLAIN, "icm", around(90.0), preset="curiax")]
    assert "different presets (curiax, paper-code)" in texts(mixed)
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
    assert [row.metric for row in done.rows] == ["bonus/mean"]
    assert [table.header for table in done.content.tables] == [("", "mean raw bonus")]
    assert done.content.claims == done.content.occupancy == ()
    assert "nothing says which line is better" in done.content.notices[0].text
    assert (tmp_path / "figures" / "bonus.png").exists()
    found = verify(tmp_path)
    assert (found.rows, found.differences) == (1, [])


def test_claims_are_not_judged_on_unequal_ground() -> None:
    records = [*six()[:-1], made(EVOLVING, "random", around(12.0), preset="curiax")]
    assert content(six()).claims
    assert content(records).claims == ()
    assert judge(records, CELLS) == [], "nor in table.json"


def test_a_line_with_settings_of_its_own_is_not_the_papers_method() -> None:
    """It has its settings in its name, no paper beside it, no change against another setting, no claim about it."""
    records = [r for r in six() if (r.label, r.task) != ("lbs", FROZEN)]
    odd = made(FROZEN, "lbs", around(14.0), settings={"method.beta": 0.1})
    assert odd.label == "lbs, beta 0.1"
    page = content([*records, odd])
    assert not [claim for claim in page.claims if claim.verdict == "not held"]
    named = made(FROZEN, "lbs", around(14.0), settings={"method.beta": 0.1}, label="lbs")
    table = rows([*records, named], "s")
    assert not [row for row in table if row.metric == "change/cells" and (row.task, row.method) == (FROZEN, "lbs")]
    assert not [o for j in judge([*records, named], CELLS) for o in j.outcomes if o.contradicted]


def test_runs_shorter_than_the_papers_are_not_judged() -> None:
    def cut(r: Record) -> Record:
        return Record(r.facts, r.steps[:20], {k: v[:, :20] for k, v in r.curves.items()}, r.moments, {})

    page = content([cut(record) for record in six()])
    assert page.claims == ()
    assert "The paper's runs are of 102,400 steps" in page.notices[0].text


def test_intervals_stay_within_what_is_possible() -> None:
    """Seven runs that stay and one that gets away: wide limits, but none below 0 or above what can be reached."""
    lucky = [12.0, 13.0, 11.0, 12.0, 12.0, 13.0, 11.0, 95.0]
    high = [95.0, 96.0, 95.0, 96.0, 95.0, 96.0, 95.0, 30.0]
    table = rows([made(PLAIN, "icm", high), made(FROZEN, "icm", lucky)], "s")
    found = {(row.task, row.metric): row for row in table}
    assert found[FROZEN, CELLS].ci_low == 0.0
    assert found[PLAIN, CELLS].ci_high == 96.0
    change = found[FROZEN, "change/cells"]
    assert change.ci_high is not None
    assert -100 <= (change.ci_low or 0) <= change.mean <= change.ci_high <= 100 * (96 / np.mean(high) - 1) + 1e-6
    series = content([made(FROZEN, "icm", lucky)]).curves[0].series[0]
    assert min(series.low) >= 0
    assert max(series.high) <= 96


# --- looks ------------------------------------------------------------------------------------------------


def seen(colour: str) -> np.ndarray:
    """CIELAB of a colour as an eye without green cones sees it (Machado, Oliveira and Fernandes 2009)."""
    channels = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    blind = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    xyz_of = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(xyz_of) @ np.clip(np.array(blind) @ linear, 0, 1) / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_methods_can_be_told_apart_by_colour_blind_eyes() -> None:
    """Where two colours look alike, the strokes differ."""
    for (one, (colour, dash)), (two, (other, strokes)) in itertools.combinations(LOOKS.items(), 2):
        assert dash != strokes or np.linalg.norm(seen(colour) - seen(other)) > 20, (one, two)


def test_a_method_has_one_colour_everywhere() -> None:
    labels = ["lbs (paper-code)", "lbs (curiax)", "icm", "ride", "ride-no-count", "mine:Own", "mine:Other"]
    looks = {label: look(label, labels) for label in labels}
    assert looks["lbs (paper-code)"][0] == looks["lbs (curiax)"][0] == LOOKS["lbs"][0]
    assert looks["ride"][0] == looks["ride-no-count"][0]
    assert len(set(looks.values())) == len(labels)


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


RESULTS = [path.parent for path in sorted(RESULTS_FOLDER.glob("*/table.json"))]


@pytest.mark.parametrize("folder", RESULTS, ids=lambda folder: folder.name)
def test_the_results_that_are_kept_are_what_their_curves_give(folder: Path) -> None:
    found = verify(folder)
    assert found.rows > 0
    assert found.differences == []
    assert not any("digests" in warning for warning in found.warnings)


def test_every_suite_is_kept() -> None:
    """All but the arcade suites, of which docs/arcade.md says what has been run."""
    assert {path.name for path in RESULTS} >= {name for name, suite in SUITES.items() if not suite.has_games}


def test_a_kept_table_is_recomputed(kept: Path) -> None:
    found = verify(kept / "out")
    assert found.rows == 6 * 2 + 3 * 2
    assert found.differences == []


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
    found = verify(tmp_path / "out").differences
    assert len(found) == 4
    assert "table.json was changed since Curiax wrote it" in found[0]
    assert "mean is" in found[1]
    assert "verdict is 'splendid'" in found[2]
    assert f"{gone['method']} / {gone['metric']}: missing" in found[3]
    shutil.copy(kept / "out" / "table.json", path)
    curves = pl.read_parquet(tmp_path / "out" / "record" / "curves.parquet")
    (tmp_path / "out" / "README.md").write_text("# Better than ever")
    assert verify(tmp_path / "out").differences == [
        f"{tmp_path / 'out' / 'README.md'} was changed since Curiax wrote it.",
        "README.md is not what the stored curves give.",
    ]
    curves.with_columns(pl.col(CELLS) + 1).write_parquet(tmp_path / "out" / "record" / "curves.parquet")
    assert len(verify(tmp_path / "out").differences) > 6
    with pytest.raises(OutputError, match=r"no readable table\.json"):
        verify(tmp_path)
