"""Each line against its rival, and who leads."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import permutation_test
from synthetic import manifest, metrics

from curiax._metrics import Metric
from curiax.paper.suites import SUITES
from curiax.report.comparisons import against_rivals, rivals_of
from curiax.report.record import Heading, Record, condense
from curiax.report.result_tables import findings, leader
from curiax.report.table import Row, rows

SEEDS = range(6)


def record(label: str, finals: list[float]) -> Record:
    return condense(manifest("mountain-car", "lbs", SEEDS, label=label), metrics(finals, SEEDS))


def test_a_suite_says_who_is_compared_with_whom_unless_the_reader_does() -> None:
    labels = [variant.label for variant in SUITES["lbs-ablation"].variants]
    rivals = rivals_of(Heading("", suite="lbs-ablation", reference="lbs"), labels)
    assert rivals["rollout 512"] == "lbs"
    assert rivals["rollout 512, bootstrap"] == "rollout 512"
    assert rivals["curiax"] == "rollout 512, bootstrap, executed"
    assert rivals["curiax, beta 0.1"] == "curiax"
    asked = rivals_of(Heading("", suite="lbs-ablation", reference="beta 2"), labels)
    assert set(asked.values()) == {"beta 2"}
    assert rivals_of(Heading("", reference="rnd"), ["lbs", "rnd"]) == {"lbs": "rnd", "rnd": "rnd"}


@pytest.mark.parametrize("name", SUITES)
def test_every_rival_of_a_suite_is_one_of_its_lines(name: str) -> None:
    labels = {variant.label for variant in SUITES[name].variants}
    assert {variant.against for variant in SUITES[name].variants if variant.against} <= labels


def welch(x: np.ndarray, y: np.ndarray) -> float:
    return (x.mean() - y.mean()) / np.sqrt(x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y))


def test_lines_are_tested_against_their_rivals_and_corrected_with_those_of_the_same_rival() -> None:
    rng = np.random.default_rng(0)
    values = {name: rng.normal(mean, 1.0, 6) for name, mean in (("a", 5.0), ("b", 6.5), ("c", 5.5), ("d", 8.0))}
    rivals = {"a": "a", "b": "a", "c": "a", "d": "b"}
    header, cells, note = against_rivals(values, rivals, digits=2)
    assert header == ("against", "difference", "p (Holm)", "P(better)")
    assert "its rival" in note

    def exact(x: np.ndarray, y: np.ndarray) -> float:
        return float(permutation_test((x, y), welch, n_resamples=np.inf, alternative="two-sided").pvalue)

    p = {name: exact(values[name], values["a"]) for name in "bc"}
    small, large = sorted(p, key=lambda name: p[name])
    holm = {small: min(1.0, 2 * p[small]), large: max(min(1.0, 2 * p[small]), p[large])}
    for name in "bc":
        assert float(cells[name][2].text) == pytest.approx(holm[name], abs=6e-4)
    assert float(cells["d"][2].text) == pytest.approx(exact(values["d"], values["b"]), abs=6e-4)
    for name, rival in (("b", "a"), ("c", "a"), ("d", "b")):
        assert cells[name][0].text == rival
        assert float(cells[name][1].text.replace("−", "-")) == pytest.approx(
            values[name].mean() - values[rival].mean(), abs=6e-3
        )
        wins = np.mean(values[name][:, None] > values[rival][None])
        assert float(cells[name][3].text.split()[0]) == pytest.approx(wins, abs=6e-3)
    assert [cell.text for cell in cells["a"]] == ["–"] * 4


def test_where_lower_is_better_the_lower_line_wins() -> None:
    values = {"far": np.array([3.0, 4.0, 5.0]), "near": np.array([1.0, 2.0, 2.5])}
    header, cells, _ = against_rivals(values, {"far": "far", "near": "far"}, lower=True, better="closer")
    assert header == ("mean − far", "p (Holm)", "P(closer than far)")
    assert cells["near"][0].text == "−2.2"
    assert cells["near"][2].text.startswith("1.00")


def test_nothing_to_compare_gives_no_columns() -> None:
    assert against_rivals({"a": np.ones(3)}, {"a": "b"}) == ((), {}, "")
    assert against_rivals({"a": np.ones(1), "b": np.ones(3)}, {"a": "b", "b": "b"}) == ((), {}, "")


def test_findings_name_the_leader_and_who_cannot_be_told_apart_from_it() -> None:
    lines = {
        "high": [90.0, 91.0, 92.0, 93.0, 94.0, 95.0],
        "as high": [90.5, 91.5, 92.5, 91.0, 94.0, 94.5],
        "low": [10.0, 11.0, 12.0, 13.0, 14.0, 15.0],
    }
    records = [record(label, finals) for label, finals in lines.items()]
    (finding,) = findings(records, rows(records, ""))
    assert finding.startswith("Mountain Car: high has the highest coverage in the paper's cells, 92.5 [")
    assert finding.endswith("; “as high” cannot be told apart from it.")
    (finding,) = findings([records[0], records[2]], rows([records[0], records[2]], ""))
    assert finding.endswith("; every other line is significantly worse.")
    assert findings(records[:1], rows(records[:1], "")) == ()


def test_the_leader_of_what_should_be_low_is_the_lowest() -> None:
    records = [record("high", [90.0, 91.0, 92.0, 93.0, 94.0, 95.0]), record("low", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])]
    own: list[Row] = [row for row in rows(records, "") if row.metric == "coverage/cells"]
    sentence = leader("mountain-car", own, Metric("coverage/cells", "error", better="lower"))
    assert sentence.startswith("Mountain Car: low has the lowest error")
