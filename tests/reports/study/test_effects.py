"""The figure of effects: which claims it shows, in which panel."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from reports.study import Store, draw_effects, findings, read_claims
from reports.study._effects import _panel, axis_ticks, shown_findings
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
    _panel(panel, [one], "points", 3)
    bar = panel.patches[0]
    assert bar.get_x() == -0.5 and bar.get_x() + bar.get_width() == panel.get_xlim()[1]
    assert bar.get_y() + bar.get_height() / 2 == panel.get_yticks()[0] == 2, "at the top"
    assert [text.get_text() for text in panel.get_yticklabels()] == ["sampling, small"]
    assert one.judgement.verdict in panel.get_legend_handles_labels()[1]


def test_a_long_axis_has_ticks_at_powers_of_ten_only() -> None:
    assert axis_ticks(1.0, 15.0) == [1.0, 3.0, 10.0]
    assert axis_ticks(1.0, 45.0) == [1.0, 10.0]
    assert axis_ticks(10.0, 400.0) == [10.0, 100.0]
