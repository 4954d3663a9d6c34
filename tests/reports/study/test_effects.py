"""The figure of effects: which claims it shows, in which panel."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from reports.study import Store, draw_effects, findings, found_of, read_claims
from reports.study._effects import COUNTED, VERDICT_COLOURS, axis_ticks, draw_panel, sentence_rows, shown_findings
from reports.study._study import ClaimFinding
from tests.support.studies import CLAIMS, line_of


def found_of_both(folder: Path) -> list[ClaimFinding]:
    """A claim on scores that holds and one on bytes that does not, with five seeds each."""
    path = folder / "mine.toml"
    path.write_text(CLAIMS.replace('judge = ["order"]', 'judge = ["order"]\nmetric = "megabytes"'))
    claims, store = read_claims(path), Store.open(folder / "mine.csv")
    for claim in claims:
        for seed in range(5):
            one, other = claim.cells(seed)
            store.keep(line_of(one, 80.0 + 0.01 * seed, megabytes=1.0))
            store.keep(line_of(other, 80.0, megabytes=2.0))
    return findings(claims, store)


def test_scores_and_bytes_have_a_panel_each(tmp_path: Path) -> None:
    found = found_of_both(tmp_path)
    assert [one.claim.key for one in shown_findings(found, "points")] == ["mine/sampling, small (no worse)"]
    assert [one.claim.key for one in shown_findings(found, "%")] == ["mine/isolation, small (order)"]
    paths = tmp_path / "figure.png", tmp_path / "figure.svg"
    draw_effects(found, paths)
    assert all(path.stat().st_size > 1000 for path in paths)


def test_a_row_shows_effect_verdict_and_where_the_claim_holds(tmp_path: Path) -> None:
    (one,) = shown_findings(found_of_both(tmp_path), "points")
    panel = Figure().subplots()
    draw_panel(panel, sentence_rows([one]), "points", ["small"])
    bar = panel.patches[0]
    assert bar.get_x() == -0.5 and bar.get_x() + bar.get_width() == panel.get_xlim()[1]
    assert bar.get_y() + bar.get_height() / 2 == panel.get_yticks()[0]
    assert [text.get_text() for text in panel.get_yticklabels()] == [one.claim.text.rpartition(": ")[0]]
    counts = [text.get_text() for text in panel.texts]
    assert counts == ["1" if verdict == one.judgement.verdict else "" for verdict in COUNTED]
    assert panel.texts[0].get_color() == VERDICT_COLOURS[COUNTED[0]]
    assert {one.judgement.verdict, "small"} <= set(panel.get_legend_handles_labels()[1])


def test_differences_too_small_to_count_are_shaded_apart(tmp_path: Path) -> None:
    (one,) = shown_findings(found_of_both(tmp_path), "%")
    panel = Figure().subplots()
    draw_panel(panel, sentence_rows([one]), "%", ["small"])
    holds, small = panel.patches
    assert one.claim.band.low < one.claim.band.fails_below
    assert (small.get_x(), holds.get_x()) == (one.claim.band.low, one.claim.band.fails_below)
    assert small.get_x() + small.get_width() == holds.get_x() and small.get_facecolor() != holds.get_facecolor()


def test_graphs_of_one_sentence_share_its_row(tmp_path: Path) -> None:
    found = [one for one in found_of("bns-gcn") if one.claim.unit == "points"]
    rows = sentence_rows(found)
    assert len(rows) == 23 and sum(map(len, rows.values())) == len(found) > 40
    sized = [one for one in found_of("cdfgnn") if one.claim.judge == "size"]
    assert sized and set(map(id, shown_findings(sized, "%"))) == set(map(id, sized)), "sizes without an order are shown"


def test_a_long_axis_has_ticks_at_powers_of_ten_only() -> None:
    assert axis_ticks(1.0, 15.0) == [1.0, 3.0, 10.0]
    assert axis_ticks(1.0, 45.0) == [1.0, 10.0]
    assert axis_ticks(10.0, 400.0) == [10.0, 100.0]
