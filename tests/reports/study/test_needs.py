"""What would decide a claim: runs that are missing, and their time."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.statistics import seeds_needed
from reports.study import Forecast, NeededRuns, Store, Study, StudyCell, findings, need_of, needed_runs, read_claims
from reports.study import _needs as needs
from reports.study._study import ClaimFinding
from tests.support.studies import CLAIMS, GRAPH, MadeUpRuns, line_of


@pytest.fixture
def claims_path(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(CLAIMS)
    return path


Known = tuple[ClaimFinding, Store, Forecast]


def found_with(path: Path, gaps: list[float]) -> Known:
    """The claim on sampling with these differences, its runs, and a forecast from them: a second each."""
    claim = read_claims(path)[0]
    store, known = Store.open(path.with_suffix(".csv")), list[tuple[StudyCell, dict[str, str]]]()
    for seed, gap in enumerate(gaps):
        for cell, score in zip(claim.cells(seed), (80.0 + gap, 80.0), strict=True):
            line = line_of(cell, score)
            store.keep(line)
            known.append((cell, line))
    return findings([claim], store)[0], store, Forecast(list(known))


def test_too_few_seeds_need_the_rest(claims_path: Path) -> None:
    finding, store, forecast = found_with(claims_path, [0.1, -0.1])
    need = need_of(finding, store)
    assert need is not None and need.seeds == 5 and {cell.settings["seed"] for cell in need.cells} == {2, 3, 4}
    cost = needed_runs([need, need], forecast)
    assert (cost.runs, cost.untold) == (6, 0) and cost.seconds == pytest.approx(6, rel=0.01), "each run once"


def test_an_undecided_claim_needs_the_seeds_of_its_interval(claims_path: Path) -> None:
    finding, store, _ = found_with(claims_path, [-2.0, 1.0, -2.0, 1.0, -0.5])
    need = need_of(finding, store)
    assert need is not None and need.seeds > 20 and len(need.cells) == 2 * (need.seeds - 5)


def test_a_claim_that_stays_undecided_needs_the_next_precision(claims_path: Path) -> None:
    """Not one seed more until it is decided; with the seeds that it names the interval is as narrow as that."""
    claim = read_claims(claims_path)[0]
    edge = [claim.band.low + gap for gap in (-0.15, 0.1, -0.1, 0.15, 0.0)]
    finding, store, _ = found_with(claims_path, edge)
    need = need_of(finding, store)
    assert finding.judgement.verdict == "undecided" and finding.precision is not None
    assert need is not None and 0.125 <= need.precision < finding.precision <= 0.5
    assert need.precision == 0.25 and need.seeds == seeds_needed(finding.found.deviation, claim.width_at(0.25))  # type: ignore[union-attr]
    study = Study([claim], MadeUpRuns.of(lambda cell: 80.0, claims_path.with_suffix(".csv")), precision=need.precision)
    assert set(need.cells) == set(study.expected_cells())


def test_a_decided_claim_needs_nothing(claims_path: Path) -> None:
    finding, store, _ = found_with(claims_path, [2.0, 2.1, 1.9, 2.0, 2.05])
    assert need_of(finding, store) is None


def test_the_cost_of_a_stand_in_that_is_not_fitted_is_known(claims_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "read_standins", dict)
    head, _, claims = CLAIMS.partition("[[claims]]")
    graphs = head.partition("[graphs]")[0] + '[graphs]\nsmall = { standin = "reddit-bns" }\n'
    claims_path.write_text(f"{graphs}[[claims]]{claims}")
    finding, store, _ = found_with(claims_path, [])
    need = need_of(finding, store)
    assert need is not None and need.standin == "reddit-bns"
    cost = needed_runs([need], Forecast())
    assert cost.seconds > 0 and not cost.untold


def test_the_cost_on_a_graph_of_a_file_is_not_told(claims_path: Path) -> None:
    claims_path.write_text(CLAIMS.replace(GRAPH, "cora"))
    finding, store, _ = found_with(claims_path, [])
    need = need_of(finding, store)
    assert need is not None and needed_runs([need], Forecast()) == NeededRuns(10, 0, 10), "nor is the file needed"
