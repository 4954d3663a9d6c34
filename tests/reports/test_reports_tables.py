"""Tables of a report: verdicts, orderings, formats, the published frames, and the summary of a report."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InputError
from reports.core import load
from reports.core.claims import distinct_claims, judged_errors, orderings_right, verdict_line
from reports.core.null_models import Null
from reports.core.rendering import paper_layout, shown_frame, shown_number, table_csv, table_latex, table_markdown
from reports.core.table import CLOSE, ENOUGH, Fitted, Ordering, PaperTable, Plot, Row, shared_stand_ins
from reports.whole.papers import PAPERS, chosen, everything
from reports.whole.produce import Entry
from reports.whole.verdicts import (
    claim_counts,
    fitted_constants,
    paper_rows,
    summary,
    uncounted_orderings,
    unjudged,
    worst_rows,
)

NASTY = '<script>alert("1")</script> | a_b & 50 % {x} \\ $y$'


def row(published: float | None = 2.0, ours: float | None = 3.0, how: str = "simulated", **more: str) -> Row:
    """A row of an epoch time."""
    given = {"label": "Reddit, vanilla", "quantity": "epoch time", "unit": "s", **more}
    return Row(published=published, ours=ours, how=how, **given)  # type: ignore[arg-type]


def table(*rows: Row, key: str = "sylvie/table3", orderings: tuple[Ordering, ...] = ()) -> PaperTable:
    """A table of these rows."""
    return PaperTable(key=key, title=f"Sylvie, {NASTY}", rows=rows, orderings=orderings, assumptions=("one | two",))


@pytest.mark.parametrize(
    ("given", "verdict", "counts"),
    [
        (row(2.0, 2.2), "within 15 %", True),
        (row(2.0, 3.0), "off by +50 %", True),
        (row(2.0, 1.0), "off by -50 %", True),
        (row(2.0, 3.0, conflict="SY5"), "off by +50 %; paper contradicts itself (SY5)", False),
        (row(2.0, 2.0, how="fitted"), "fitted", False),
        (row(2.0, 2.0, how="quoted", conflict="CD7"), "input; paper contradicts itself (CD7)", False),
        (row(2.0, 2.0, judge="none", conflict="BN7"), "not judged; paper contradicts itself (BN7)", False),
        (row(97.0, 97.9, judge="points"), "within 1 point", False),
        (row(97.0, 94.0, judge="points"), "off by -3.0 points", False),
        (row(0.0, 0.5, judge="points"), "within 1 point", False),
        (row(2.0, 2.0, how="quoted"), "input", False),
        (row(2.0, None, how="needs data"), "needs data", False),
        (row(2.0, math.nan), "no result", False),
        (row(None, 3.0), "not published", False),
        (row(0.0, 3.0), "off by published 0", False),
        (row(2.0, 3.0, judge="order"), "order only", False),
        (row(2.0, 3.0, judge="none"), "not judged", False),
        (row(2.0, 0.1, judge="bound"), "a lower bound", False),
        (row(2.0, 3.0, judge="bound"), "off by +50 %", False),
        (row(2.0, 1.0, judge="readings", readings=(None, 8.0)), "within readings, 1.00 to 8.00", False),
        (row(2.0, 1.0, judge="readings", readings=(1.75,)), "near readings, 1.00 to 1.75", False),
        (row(2.0, 1.0, judge="readings", readings=(None,)), "one reading only", False),
        (row(2.0, 3.0, judge="readings", readings=(8.0,)), "outside of readings, 3.00 to 8.00", False),
    ],
)
def test_a_row_says_what_became_of_it(given: Row, verdict: str, counts: bool) -> None:
    assert (given.verdict, given.counts) == (verdict, counts)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_errors_are_relative_and_signed(published: float, ours: float) -> None:
    error = row(published, ours).error
    assert error is not None and math.isclose(published * (1 + error), ours, rel_tol=1e-6)
    assert row(published, ours).verdict.startswith("within") == (abs(error) <= CLOSE)


@pytest.mark.parametrize(
    ("ours", "tolerance", "verdict"),
    [
        ((3.0, 2.0, 1.0), 0.0, "right"),
        ((3.0, 1.0, 2.0), 0.0, "wrong"),
        ((3.0, 1.0, 1.5), 1.0, "right"),
        ((1.0, 1.0), 0.0, "wrong"),
        ((1.0, 1.0), 0.1, "right"),
        ((3.0, math.nan, 1.0), 0.0, "right"),
        ((1.0, None, 3.0), 0.0, "wrong"),
        ((3.0, math.nan, None), 0.0, "not judged"),
    ],
)
def test_orderings(ours: tuple[float | None, ...], tolerance: float, verdict: str) -> None:
    ordering = Ordering(text="x", expected=tuple("abc"[: len(ours)]), ours=ours, tolerance=tolerance)
    assert ordering.verdict == verdict
    assert verdict in ordering.line()


@pytest.mark.parametrize(
    ("ours", "ties", "verdict"),
    [
        ((1.0, 1.05), "not judged", "not judged"),
        ((1.05, 1.0), "not judged", "not judged"),  # ahead by too little is no more judged than behind by as much
        ((1.0, 1.2), "not judged", "wrong"),
        ((1.2, 1.0), "not judged", "right"),
        ((1.2, 1.0, 1.05), "not judged", "right"),  # the pair that ties says nothing, the others decide
        ((1.2, 1.0, 1.15), "not judged", "wrong"),
        ((1.05, 1.0), "demanded", "right"),
        ((1.2, 1.0), "demanded", "wrong"),
        ((1.0, 1.2), "demanded", "wrong"),
        ((1.2, 1.0), "right", "right"),
    ],
)
def test_ties(ours: tuple[float, ...], ties: str, verdict: str) -> None:
    expected = tuple("abc"[: len(ours)])
    assert Ordering(text="x", expected=expected, ours=ours, tolerance=0.1, ties=ties).verdict == verdict  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "ties", "verdict"),
    [
        ((5.0, 5.2, 5.1, 4.9, 5.3), "not judged", "right"),
        ((4.0, 6.0, 5.0, 4.5, 5.2), "not judged", "undecided"),  # some seeds say otherwise
        ((3.0, 3.2, 3.1, 2.9, 3.3), "not judged", "wrong"),
        ((5.0, 5.2, 5.1, 4.9), "not judged", "not enough runs"),
        ((4.8, 5.2, 5.1, 4.9, 5.3), "demanded", "right"),  # level within a point
        ((3.6, 3.8, 4.4, 4.0, 4.6), "demanded", "undecided"),
        ((6.6, 6.8, 7.1, 6.9, 7.3), "demanded", "wrong"),
        ((3.0, 3.2, 3.1, 2.9, 3.3), "demanded", "wrong"),  # whichever is ahead
        ((4.8, 4.9, 4.7, 4.6, 4.8), "right", "right"),  # behind by less than a point
        ((3.6, 4.4, 3.8, 4.0, 4.6), "right", "undecided"),
        ((3.0, 3.2, 3.1, 2.9, 3.3), "right", "wrong"),
    ],
)
def test_trained_scores_are_judged_seed_by_seed(first: tuple[float, ...], ties: str, verdict: str) -> None:
    other = (4.7, 4.9, 4.8, 4.6, 5.0)[: len(first)]
    made = Ordering.of_seeds("x", ("a", "b"), (first, other), tolerance=1.0, ties=ties)
    assert made.verdict == verdict and verdict in made.line()
    assert made.ours == (pytest.approx(sum(first) / len(first)), pytest.approx(sum(other) / len(other)))
    outcomes = {"right": "reproduced", "wrong": "contradicted"}
    assert made.outcome == outcomes.get(verdict, "undecided") and made.counts == (verdict in outcomes)


def test_all_pairs_of_a_chain_have_to_hold() -> None:
    chain = [(9.0, 9.1, 9.2, 9.1, 9.0), (8.0, 8.1, 8.2, 8.0, 8.1), (8.5, 7.2, 8.9, 8.0, 7.7)]
    assert Ordering.of_seeds("x", ("a", "b", "c"), chain).verdict == "undecided"
    assert Ordering.of_seeds("x", ("b", "a", "c"), [chain[1], chain[0], chain[2]]).verdict == "wrong"
    assert Ordering.of_seeds("x", ("a", "b"), chain[:2]).verdict == "right"


@pytest.mark.parametrize("judge", ["points", "difference"])
def test_scores_of_few_seeds_judge_nothing(judge: str) -> None:
    few, enough = (row(2.0, 2.1, judge=judge, interval=0.1, seeds=count) for count in (ENOUGH - 1, ENOUGH))  # type: ignore[arg-type]
    assert (few.verdict, few.outcome, few.points) == ("not enough runs", "undecided", None)
    assert enough.outcome == "reproduced"


def test_where_nothing_was_learnt_nothing_is_judged() -> None:
    def over(floor: float) -> Ordering:
        return Ordering(text="x", expected=("a", "b"), ours=(31.0, 30.0), floor=floor)

    assert (over(31.5).verdict, over(30.5).verdict) == ("not judged", "right")


def test_what_the_same_runs_say_counts_once() -> None:
    def said(runs: str) -> Ordering:
        return Ordering(text=runs, expected=("a", "b"), ours=(2.0, 1.0), runs=runs)

    assert orderings_right([table(orderings=(said("one"), said("one"), said("two"), said(""), said("")))]) == (4, 4)


def test_only_runs_that_nothing_contradicts_count() -> None:
    def ahead(**more: str) -> Ordering:
        return Ordering(text="x", expected=("a", "b"), ours=(1.0, 2.0), **more)  # type: ignore[arg-type]

    theory, conflict = ahead(theory="a formula"), ahead(conflict="BN12")
    assert theory.verdict == conflict.verdict == "wrong" and not theory.counts and not conflict.counts
    assert (theory.outcome, conflict.outcome) == ("theory", "cannot be judged")
    assert "theory" in theory.line() and "(BN12)" in conflict.line()
    assert orderings_right([table(orderings=(theory, conflict, ahead()))]) == (0, 1)
    assert sum(uncounted_orderings([Entry("k", table(orderings=(theory, conflict, ahead())))]).values()) == 2


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=6))
def test_an_ordering_is_right_exactly_when_sorted(values: list[float]) -> None:
    ordering = Ordering(text="x", expected=tuple(map(str, range(len(values)))), ours=tuple(values))
    strictly = all(a > b for a, b in zip(values, values[1:], strict=False))
    assert (ordering.verdict == "right") == strictly


def test_a_table_in_its_formats() -> None:
    found = table(row(2.0, 3.0, label=NASTY, note="why"), row(100.0, None, how="needs data"), row(2.0, 2.1))
    frame = pd.read_csv(io.StringIO(table_csv(found)))
    assert list(frame["published"]) == [2.0, 100.0, 2.0]
    assert frame["error"][0] == pytest.approx(0.5) and math.isnan(frame["error"][1])
    assert found.median_error() == pytest.approx(0.275)
    text = table_markdown(found)
    body = [line for line in text.splitlines() if line.startswith("|")]
    assert len(body) == 5
    assert len({line.replace("\\|", "").count("|") for line in body}) == 1  # names do not open columns
    assert "<script>" not in text and "* one \\| two" in text
    latex = table_latex(found)
    assert r"a\_b \& 50 \%" in latex and "\\toprule" in latex
    assert not {"data", "conflict"} & set(shown_frame(found)) and "note" in shown_frame(found)
    assert "conflict" in shown_frame(table(row(conflict="SY5"))) and "conflict" in frame


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0"), (100.0, "100"), (0.05, "0.05"), (1.8713, "1.871"), (2683902.0, "2,683,902"),
     (3.231e9, "3.231e+09"), (-0.5, "-0.5"), (999.97, "1,000")],
)  # fmt: skip
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert shown_number(value) == text


def test_verdicts_of_a_report() -> None:
    right = Ordering(text="o", expected=("a", "b"), ours=(2.0, 1.0))
    wrong = Ordering(text="o", expected=("a", "b"), ours=(1.0, 2.0))
    first = table(row(2.0, 2.2), row(2.0, 6.0), row(1.0, 1.0, how="fitted"), orderings=(right, wrong))
    second = table(row(1.0, 0.1), row(1.0, 2.0, conflict="BN4"), key="bns-gcn/table6")
    drawn = (row(10.0, 12.0, unit="%"), row(97.0, 97.5, unit="%", judge="points"))
    plot = Plot(key="sylvie/figure1", title="f", caption="", paths=(Path("x.svg"),), orderings=(right,), rows=drawn)
    entries = [Entry("sylvie/table3", first), Entry("bns-gcn/table6", second), Entry("sylvie/figure1", plot)]
    entries.append(Entry("sylvie/table4", None, "no data"))
    sylvie, bns, everyone = paper_rows(entries)
    assert (sylvie["tables"], sylvie["figures"], sylvie["failed"], sylvie["rows"]) == (1, 1, 1, 5)
    assert sylvie["median_error_of_times"] == pytest.approx(1.05)  # of the table; the share is not a time
    assert sylvie["median_error_of_others"] == pytest.approx(0.2) and sylvie["judged_others"] == 1
    assert (sylvie["close_scores"], sylvie["scores"]) == (1, 1)
    assert (sylvie["orderings_right"], sylvie["orderings"]) == (2, 3)
    assert bns["median_error_of_times"] == pytest.approx(0.9) and everyone["judged_rows"] == 4
    assert [line["ours"] for line in worst_rows(entries)] == [
        0.1,
        6.0,
        12.0,
        2.2,
    ]  # a tenth is further off than the triple
    assert unjudged(entries) == {"fitted": 1, "the paper contradicts itself": 1}
    assert [line["key"] for line in summary(entries)["wrong_orderings"]] == ["sylvie/table3"]
    assert summary(entries)["failed"] == [{"key": "sylvie/table4", "reason": "no data"}]
    assert "speed-ups 105.0 % over 2" in verdict_line(first) and "1 of 2" in verdict_line(first)
    assert "other numbers 20.0 % over 1" in verdict_line(plot)


@pytest.mark.parametrize(
    ("published", "ours", "interval", "outcome"),
    [
        (-0.3, -0.2, 0.1, "reproduced"),
        (-0.3, 0.1, 0.05, "reproduced"),  # half a point apart counts as level
        (-0.3, 0.5, 0.1, "contradicted"),
        (-0.3, 0.1, 0.6, "undecided"),
        (-42.0, -0.5, 0.2, "contradicted"),  # no effect where a large one is printed
        (-42.0, -35.0, 2.0, "reproduced"),  # a quarter of the printed difference
        (-42.0, -30.0, 5.0, "undecided"),
        (-42.0, -30.0, None, "cannot be judged"),
    ],
)
def test_differences_need_an_interval(published: float, ours: float, interval: float | None, outcome: str) -> None:
    found = row(published, ours, unit="points", judge="difference", how="trained", interval=interval)
    assert found.outcome == found.verdict == outcome and not found.counts
    assert interval is None or "\u00b1" in shown_frame(table(found))["ours"][0]


@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        (row(2.0, 2.2), "reproduced"),
        (row(2.0, 2.4), "contradicted"),
        (row(2.0, None), "cannot be judged"),
        (row(2.0, 2.0, how="needs data"), "cannot be judged"),
        (row(2.0, 2.0, conflict="SY5"), "cannot be judged"),
        (row(2.0, 2.0, how="fitted"), None),
        (row(2.0, 2.0, how="quoted"), None),
        (row(2.0, 2.0, judge="order"), None),
        (row(None, 2.0), None),
        (row(2.0, 2.0, judge="bound"), "cannot be judged"),
        (row(2.0, 2.4, judge="bound"), "contradicted"),
        (row(2.0, 1.0, judge="readings", readings=(8.0,)), "undecided"),
        (row(2.0, 1.75, judge="readings", readings=(1.0, None)), "undecided"),
        (row(2.0, 2.29, judge="readings", readings=(math.nan, 2.3)), "undecided"),
        (row(2.0, 2.0, judge="readings", readings=(math.nan,)), "cannot be judged"),
        (row(2.0, 2.31, judge="readings", readings=(8.0,)), "contradicted"),
        (row(2.0, 1.69, judge="readings", readings=(0.1,)), "contradicted"),
        (row(90.0, 90.8, unit="%", judge="points"), "reproduced"),
        (row(90.0, 91.8, unit="%", judge="points"), "contradicted"),
    ],
)
def test_a_row_is_a_claim_unless_it_is_an_input(made: Row, outcome: str | None) -> None:
    assert made.outcome == outcome


def test_a_claim_counts_once_with_what_speaks_most_against_it() -> None:
    def said(ours: tuple[float, float], **more: str) -> Ordering:
        return Ordering(text="o", expected=("a", "b"), ours=ours, **more)  # type: ignore[arg-type]

    first = table(row(2.0, 2.1, claim="gain"), orderings=(said((2.0, 1.0), claim="a over b"), said((2.0, 1.0))))
    later = table(row(2.0, 4.0, claim="gain"), key="k/table2", orderings=(said((1.0, 2.0), claim="a over b"),))
    found = distinct_claims([first, later])
    assert [(outcome, key) for outcome, (key, _) in found] == [
        ("contradicted", "k/table2"),
        ("contradicted", "k/table2"),
        ("reproduced", first.key),
    ]
    assert [error for error, _, _ in judged_errors([first, later])] == [1.0], "its largest error, once"
    assert [error for error, _, _ in judged_errors([table(row(2.0, 3.0), row(2.0, 3.0))])] == [0.5, 0.5]
    counts = claim_counts([Entry(first.key, first), Entry(later.key, later)])
    assert counts["contradicted"] == 2 and sum(counts.values()) == 3 and orderings_right([first, later]) == (1, 2)


def test_what_never_flips_is_theory_unless_it_is_wrong() -> None:
    def ordering(ours: tuple[float, float], perturbed: str) -> Ordering:
        return Ordering(text="o", expected=("a", "b"), ours=ours, perturbed=perturbed)  # type: ignore[arg-type]

    outcomes = [
        ordering(ours, perturbed).outcome
        for ours in ((2.0, 1.0), (1.0, 2.0))
        for perturbed in ("", "flips", "never flips")
    ]
    assert outcomes == ["reproduced", "reproduced", "theory", "contradicted", "contradicted", "contradicted"]


def test_skill_is_against_the_same_rows() -> None:
    rows = (
        row(2.0, 2.2, null=Null(same=4.0, by_bytes=2.0)),
        row(2.0, 2.0, null=Null(same=3.0)),
        row(2.0, 9.0),  # without a null model it says nothing about skill
        row(2.0, 9.0, how="fitted", null=Null(same=2.0)),
    )
    found = {skill.null: skill for skill in table(*rows).skills()}
    same, by_bytes = found["equal to the fitted row"], found["in proportion to bytes"]
    assert (same.rows, by_bytes.rows) == (2, 1) and len(found) == 2
    assert same.value == pytest.approx(1 - 0.05 / 0.75) and by_bytes.value is None
    assert "exact" in by_bytes.text() and "in proportion to bytes" in verdict_line(table(*rows))  # the hardest one


def test_the_paper_s_layout_keeps_its_order() -> None:
    cells = [("Cora", "4 bits"), ("Cora", "1 bit"), ("Reddit", "4 bits"), ("Reddit", "4 bits")]
    found = table(*(row(2.0, 3.0, at=at) for at in cells), row(2.0, 3.0))
    layout = paper_layout(found)
    assert layout is not None and (layout.rows, layout.columns) == (("Cora", "Reddit"), ("4 bits", "1 bit"))
    assert len(layout.cells["Reddit", "4 bits"]) == 2 and ("Reddit", "1 bit") not in layout.cells
    assert "| Reddit | 2 / 3; 2 / 3 | - |" in table_markdown(found)
    assert paper_layout(table(row(2.0, 3.0))) is None


def test_published_numbers_are_typed_and_private() -> None:
    frame = load.published("sylvie-table3")
    assert frame["value"].dtype == float and frame["setting"].map(type).eq(str).all()
    line = frame[(frame["dataset"] == "reddit") & (frame["metric"] == "epoch_time") & (frame["method"] == "DGL")]
    assert line["value"].item() == 7.28
    frame["value"] = 0.0
    assert load.published("sylvie-table3")["value"].sum() > 0
    for name in sorted(path.stem for path in load.PUBLISHED.glob("*-table*.csv")):
        assert load.published(name)["paper"].isin(PAPERS).all(), name


def test_every_paper_has_setup_text_and_claims() -> None:
    for paper in PAPERS.keys() - {"study"}:
        assert load.setup(paper)["paper"]["key"] == paper
        assert load.text(paper)["value"].notna().any()
        assert set(load.claims(paper)["kind"]) == {"claim"}
    with pytest.raises(InputError, match="did you mean 'sylvie'"):
        load.setup("silvie")
    with pytest.raises(InputError, match="did you mean 'sylvie-table3'"):
        load.published("sylvie-tabel3")


def test_a_set_up_that_is_changed_is_read_as_printed_again() -> None:
    """Set-ups are parsed once a process: nothing that one table does to its copy may reach another."""
    printed = load.setup("sylvie")
    load.setup("sylvie")["paper"]["key"] = "another"
    first = load.entries("sylvie", "dataset")[0]
    first["name"] = "another"
    assert load.setup("sylvie") == printed and load.entries("sylvie", "dataset")[0] != first


def test_every_printed_table_and_figure_has_a_function() -> None:
    """28 tables; the figures that show data."""
    numbers = {"ec-graph": range(2, 6), "subgraph-approximation": range(1, 5), "sylvie": range(1, 5),
               "bns-gcn": range(1, 14), "cdfgnn": range(1, 4)}  # fmt: skip
    drawn = {"ec-graph": range(6, 12), "subgraph-approximation": range(3, 9), "sylvie": [1, 2, *range(5, 11)],
             "bns-gcn": range(3, 10), "cdfgnn": range(5, 9)}  # fmt: skip
    tables = {f"{paper}/table{number}" for paper, count in numbers.items() for number in count}
    figures = {f"{paper}/figure{number}" for paper, count in drawn.items() for number in count}
    logs = {f"sylvie/logs-{what}" for what in ("epochs", "halo", "reduce", "compute", "memory")}
    others = {"sylvie/section5", *logs}  # numbers of the text, and of the authors' public logs
    studies = {
        f"study/{name}{what}" for name in (*numbers, "causes", "real-graphs", "stand-ins") for what in ("", "-effects")
    }
    assert set(everything()) == tables | figures | others | studies and len(tables) == 28


def test_chosen_keys() -> None:
    assert chosen(["cdfgnn/table3", "sylvie/table3"]) == ["sylvie/table3", "cdfgnn/table3"]
    assert len(chosen(["bns-gcn"])) == 20
    assert chosen([]) == list(everything())
    with pytest.raises(InputError, match="did you mean 'sylvie/table3'"):
        chosen(["sylvie/tabel3"])


def test_rows_of_one_stand_in_for_several_graphs_are_not_independent() -> None:
    rows = [
        row(data=f"{graph} stands in for {name}") for graph, name in (("a", "x"), ("a", "y"), ("b", "z"), ("a", "x"))
    ]
    (said,) = shared_stand_ins(rows)
    assert said.startswith("a stands in for x and y: ") and "not independent" in said
    assert shared_stand_ins([row(), row(data="b stands in for z")]) == ()


@pytest.mark.parametrize(
    ("value", "unit", "far"), [(0.19, "", True), (5.1, "", True), (0.2, "", False), (0.0193, "ms", False)]
)
def test_a_factor_far_from_one_says_that_it_stands_for_more(value: float, unit: str, far: bool) -> None:
    fitted = Fitted(testbed="a", constant="b", value=value, row="c", unit=unit)
    assert bool(fitted.remark) == far == ("stands for more" in fitted.text())
    item = PaperTable(key="sylvie/table3", title="t", fits=(fitted,))
    ((line),) = fitted_constants([Entry(item.key, item)])
    assert line["value"].startswith(fitted.amount) and ("stands for more" in line["value"]) == far
