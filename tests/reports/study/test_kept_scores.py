"""Scores of a study's runs in the tables of its paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import InputError
from reports.study import Store, file_of, kept_scores, read_claims, study_run_settings
from reports.study import _items as items
from tests.support.studies import line_of

ROWS = {"p=0.1": {"method": "bns-gcn:p=0.1", "parts": 2}, "p=1": {"method": "single"}, "none": {"method": "vanilla"}}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Of the first claim of BNS-GCN, Reddit in 2 parts: 6 runs of p = 0.1, the fifth missing, and 5 of p = 1."""
    monkeypatch.setattr(items, "RESULTS", tmp_path)
    claim = read_claims(file_of("bns-gcn"))[0]
    made = Store.open(tmp_path / "bns-gcn.csv")
    for seed in range(6):
        sampled, full = claim.cells(seed)
        if seed != 4:
            made.keep(line_of(sampled, 90.0 + seed))
        if seed < 5:
            made.keep(line_of(full, 95.0))
    return made


def test_scores_are_means_over_seeds_without_a_gap(store: Store) -> None:
    run = kept_scores("bns-gcn", "reddit", ROWS, where="2 parts")
    assert run.each("p=0.1") == pytest.approx([90.0, 91.0, 92.0, 93.0]) and len(run.each("p=1")) == 5
    assert run.mean("p=0.1") == pytest.approx(91.5) and run.mean("none") is None
    assert run.data == "standin:reddit-dense stands in for reddit" and run.where == "standin:reddit-dense, 2 parts"
    assert "4 to 5 seeds" in run.summary and len(run.commands) == 2


def test_a_run_with_other_settings_is_another_one(store: Store) -> None:
    other = {"p=0.1": {**ROWS["p=0.1"], "lr": 0.5}, "parts": {"method": "bns-gcn:p=0.1", "parts": 4}}
    run = kept_scores("bns-gcn", "reddit", other)
    assert not run.scores and "no runs" in run.summary


def test_a_run_that_diverged_scores_nothing(store: Store) -> None:
    claim = read_claims(file_of("bns-gcn"))[0]
    store.keep({**line_of(claim.cells(0)[0], 90.0), "state": "diverged"})
    assert kept_scores("bns-gcn", "reddit", ROWS).each("p=0.1")[0] == 0.0


def test_runs_of_other_studies_count(store: Store) -> None:
    """Sylvie's DGL on ogbn-products is the same run of one device."""
    claim = next(claim for claim in read_claims(file_of("bns-gcn")) if "ogbn-products, 5 parts" in claim.key)
    for seed in range(5):
        store.keep(line_of(claim.cells(seed)[1], 79.0))
    run = kept_scores("sylvie", "ogbn-products", {"DGL": {"method": "single", "parts": 8}}, model="GraphSAGE")
    assert len(run.each("DGL")) == 5


def test_a_real_graph_is_one_for_all_seeds_and_no_stand_in(store: Store) -> None:
    claim = next(claim for claim in read_claims(file_of("ec-graph")) if claim.key.endswith("Table V, cora (no worse)"))
    for seed in range(5):
        store.keep(line_of(claim.cells(seed)[1], 88.0 + seed))
    run = kept_scores("ec-graph", "cora", {"DGL": {"method": "single"}})
    assert run.each("DGL") == pytest.approx([88.0, 89.0, 90.0, 91.0, 92.0]) and run.data == ""


def test_settings_of_a_run_are_those_of_the_claim() -> None:
    claim = read_claims(file_of("bns-gcn"))[0]
    found = study_run_settings("bns-gcn", "reddit", ROWS["p=0.1"], seed=3)
    assert found == dict(claim.cells(3)[0].settings)


@pytest.mark.parametrize(("graph", "model"), [("friendster", ""), ("reddit", "GIN")])
def test_unknown_graphs_and_models_are_refused(graph: str, model: str) -> None:
    with pytest.raises(InputError, match="friendster|GIN"):
        kept_scores("sylvie", graph, ROWS, model=model)
