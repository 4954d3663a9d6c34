"""What would decide a claim: runs that are missing, and their time."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.study import Forecast, Store, StudyCell, findings, need_of, read_claims
from reports.study import _needs as needs
from reports.study._study import ClaimFinding
from tests.support.studies import CLAIMS, GRAPH, line_of


@pytest.fixture
def claims_path(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(CLAIMS)
    return path


def found_with(path: Path, gaps: list[float]) -> tuple[ClaimFinding, Forecast]:
    """The claim on sampling with these differences, and a forecast from the runs: a second each."""
    claim = read_claims(path)[0]
    store, known = Store.open(path.with_suffix(".csv")), list[tuple[StudyCell, dict[str, str]]]()
    for seed, gap in enumerate(gaps):
        for cell, score in zip(claim.cells(seed), (80.0 + gap, 80.0), strict=True):
            line = line_of(cell, score)
            store.keep(line)
            known.append((cell, line))
    return findings([claim], store)[0], Forecast(list(known))


def test_too_few_seeds_need_the_rest(claims_path: Path) -> None:
    need = need_of(*found_with(claims_path, [0.1, -0.1]))
    assert need is not None and (need.seeds, need.runs) == (5, 6) and need.seconds == pytest.approx(6, rel=0.01)


def test_an_undecided_claim_needs_the_seeds_of_its_interval(claims_path: Path) -> None:
    need = need_of(*found_with(claims_path, [-2.0, 1.0, -2.0, 1.0, -0.5]))
    assert need is not None and need.seeds > 20 and need.runs == 2 * (need.seeds - 5)


def test_a_decided_claim_needs_nothing(claims_path: Path) -> None:
    assert need_of(*found_with(claims_path, [2.0, 2.1, 1.9, 2.0, 2.05])) is None


def test_the_cost_of_a_stand_in_that_is_not_fitted_is_known(claims_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "read_standins", dict)
    head, _, claims = CLAIMS.partition("[[claims]]")
    graphs = head.partition("[graphs]")[0] + '[graphs]\nsmall = { standin = "reddit-bns" }\n'
    claims_path.write_text(f"{graphs}[[claims]]{claims}")
    claim = read_claims(claims_path)[0]
    (finding,) = findings([claim], Store.open(claims_path.with_suffix(".csv")))
    need = need_of(finding, Forecast())
    assert need is not None and need.standin == "reddit-bns" and need.seconds > 0


def test_the_cost_on_a_graph_of_a_file_is_not_told(claims_path: Path) -> None:
    claims_path.write_text(CLAIMS.replace(GRAPH, "cora"))
    claim = read_claims(claims_path)[0]
    need = need_of(findings([claim], Store.open(claims_path.with_suffix(".csv")))[0], Forecast())
    assert need is not None and (need.seeds, need.runs, need.seconds) == (5, 10, None), "nor is the file needed"
