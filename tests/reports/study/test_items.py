"""What a report shows of the studies: the verdicts of the kept runs, without training anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.core.context import Context
from reports.study import FIGURES, TABLES, Store, file_of, names, read_claims, results_of
from reports.study import _items as items
from reports.whole.papers import everything
from tests.support.studies import line_of


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Results in which the first claim of BNS-GCN holds, the second has two seeds; returns their texts."""
    monkeypatch.setattr(items, "RESULTS", tmp_path)
    first, second, *_ = read_claims(file_of("bns-gcn"))
    store = Store.open(tmp_path / "bns-gcn.csv")
    for claim, seeds in ((first, 6), (second, 2)):
        for seed in range(seeds):
            one, other = claim.cells(seed)
            for cell, score in ((one, 90.0), (other, 90.0 - 0.01 * seed)):
                store.keep(line_of(cell, score, code="0" * 16))
    return [first.text, second.text]


def test_a_table_shows_the_verdicts_of_the_kept_runs(kept: list[str]) -> None:
    table = items.judged_claims("bns-gcn")
    same_runs = "p = 0.1 converges in fewer epochs than p = 1: reddit, 2 parts (order)"
    assert [row.label for row in table.rows] == [*(f"{text} (no worse)" for text in kept), same_runs]
    reproduced, few, _ = table.rows
    assert reproduced.verdict == reproduced.outcome == "reproduced" and reproduced.interval is not None
    assert reproduced.published == 0.06 and reproduced.ours == pytest.approx(0.025)
    assert "6 seeds, power 100 %" in reproduced.note
    assert few.outcome == "cannot be judged" and not table.errors(), "differences have no relative error"
    assert any("stale" in line for line in table.assumptions), "these lines are of other code"


def test_without_runs_the_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "RESULTS", tmp_path)
    table = items.judged_claims("cdfgnn")
    assert not table.rows and "haloscope study cdfgnn" in table.assumptions[1]
    figure = items.forest("cdfgnn", Context(tmp_path))
    assert all(path.is_file() for path in figure.paths) and "no runs yet" in figure.assumptions[1]


def test_a_figure_shows_effects(kept: list[str], tmp_path: Path) -> None:
    figure = items.forest("bns-gcn", Context(tmp_path / "report"))
    assert figure.key == "study/bns-gcn-effects" and all(path.stat().st_size > 1000 for path in figure.paths)


def test_the_report_has_a_table_and_a_figure_of_every_study() -> None:
    assert set(TABLES) == set(names()) and len(FIGURES) == len(names())
    assert {f"study/{name}" for name in (*TABLES, *FIGURES)} <= set(everything())


def test_results_lie_in_the_project_or_beside_a_users_claims(tmp_path: Path) -> None:
    assert results_of("sylvie") == items.RESULTS / "sylvie.csv"
    assert results_of("sylvie", 0.5).name == "sylvie-scale-0.5.csv"
    mine = tmp_path / "mine.toml"
    mine.write_text("")
    assert results_of(str(mine)) == tmp_path / "mine.csv"


def test_studies_of_the_project_share_their_runs(kept: list[str]) -> None:
    """One device on Reddit's stand-in is in two papers."""
    store = items.store_of("sylvie")
    claims = {claim.key: claim for claim in read_claims(file_of("sylvie"))}
    _, single = claims["sylvie/Sylvie-S, reddit, GraphSAGE (no worse)"].cells(0)
    assert single.method == "single" and not store.lines and store.finished(single) is not None
    assert Store.open(items.results_of("sylvie")).finished(single) is None
