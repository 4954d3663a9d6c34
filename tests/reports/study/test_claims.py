"""Claims as data: every shipped one is found in the published tables, and damaged files say what is wrong."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from harness.datasets._recipe import PARAMETERS
from harness.errors import InputError
from reports.statistics import Band
from reports.study import AccuracyClaim, band_text, designs, file_of, names, read_claims
from reports.study._margins import Margin, printed_margin
from reports.study._metrics import SCORES
from reports.study._printed import ROUNDING, printed_score
from tests.support.studies import CLAIMS, line_of


def read(tmp_path: Path, text: str) -> list[AccuracyClaim]:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return read_claims(path)


@pytest.mark.parametrize("name", names())
def test_every_shipped_claim_has_runs_that_can_be_begun(name: str) -> None:
    claims = read_claims(file_of(name))
    assert len(claims) >= 8
    for claim in claims:
        first, second = claim.cells(3)
        assert first.key != second.key and first.config.training.seed == second.config.training.seed == 3
        assert claim.width > 0 and (claim.difference is not None or claim.judge != "size")
        if claim.standin:
            name, *changed, seed = first.settings["dataset"].split(",")
            assert name == f"standin:{claim.standin}" and seed == "seed=3"
            assert all(key in PARAMETERS for key in (one.partition("=")[0] for one in changed))


def test_printed_differences_are_those_of_the_tables() -> None:
    claims = {claim.key: claim for name in ("bns-gcn", "sylvie", "ec-graph") for claim in read_claims(file_of(name))}
    random = claims["bns-gcn/p=0, random parts, reddit, 8 parts (size)"]
    assert random.difference == pytest.approx(96.84 - 93.37) and random.band == Band(1.735, 5.205)
    assert random.width == pytest.approx(3.47 / 2)
    everything = claims["sylvie/quantise all, reddit, GraphSAGE (order)"]
    assert everything.difference == pytest.approx(97.15 - 70.63) and everything.band == Band(0.0, least=6.63)
    assert claims["sylvie/Sylvie-A, yelp, GAT (no worse)"].band == Band(-1.24), "the largest loss that is called none"
    assert claims["bns-gcn/p=0.1, reddit, 2 parts (no worse)"].band == Band(-0.1), "no margin is smaller"
    eight = claims["ec-graph/Fig. 6, 8 bits, reddit (size)"]
    assert eight.difference == pytest.approx(90.72 - 75.67) and eight.metric == "best"


def test_no_claim_is_what_a_stand_in_was_fitted_to() -> None:
    fitted = {
        (name, frozenset((design.full.method, design.isolated.method)), design.training["parts"])
        for name, design in designs().items()
    }
    same = {"vanilla": "single"}
    for claim in (claim for name in names() for claim in read_claims(file_of(name))):
        if claim.metric not in SCORES:  # no number but a score was fitted
            continue
        design = designs().get(claim.standin)
        methods = [str(settings["method"]) for settings in claim.settings]
        parts = max(int(settings["parts"]) for settings in claim.settings)
        alike = design is not None and all(
            settings.get(key) == value
            for settings in claim.settings
            for key, value in design.training.items()
            if key != "parts"
        )
        plain = all(settings.get("partitioner") in (None, "metis-cut") for settings in claim.settings)
        if alike and plain:
            assert (claim.standin, frozenset(same.get(m, m) for m in methods), parts) not in fitted, claim.key


def test_designs_name_printed_scores_and_graphs_of_full_size() -> None:
    for name, design in designs().items():
        full, isolated = design.goal.scores
        assert full > isolated, name
        assert design.graph["nodes"] >= 20_000 and set(design.search) == {"label_noise", "signal"}
        assert all(knob.low < knob.start < knob.high for knob in design.knobs)


def test_a_claim_compares_what_it_says(tmp_path: Path) -> None:
    sampling, isolation = read(tmp_path, CLAIMS)
    assert sampling.key == "mine/sampling, small (no worse)" and sampling.band == Band(-0.5)
    assert [settings["method"] for settings in sampling.settings] == ["bns-gcn:p=0.1", "vanilla"]
    assert isolation.difference is None and isolation.width == 1.0
    first, second = isolation.cells(2)
    assert first.settings["dataset"] == second.settings["dataset"], "a graph that is not fitted is not drawn anew"
    one, other = line_of(first, 80.0), line_of(second, 75.5)
    assert isolation.gap(one, other) == pytest.approx(4.5)
    assert isolation.gap(one, line_of(second, 75.5, "diverged")) == pytest.approx(80.0), "a diverged run scores nothing"


def test_bytes_are_compared_by_their_ratio(tmp_path: Path) -> None:
    (claim,) = read(tmp_path, CLAIMS.split("[[claims]]")[0] + "[[claims]]" + CLAIMS.split("[[claims]]")[2].replace(
        'judge = ["order"]', 'judge = ["order"]\nmetric = "megabytes"'
    ))  # fmt: skip
    first, second = claim.cells(0)
    gap = claim.gap(line_of(first, 0.0, megabytes=1.1), line_of(second, 0.0, megabytes=1.0))
    assert gap == pytest.approx(9.53, abs=0.01) and claim.width == 5.0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('judge = ["order"]', 'judge = ["ordre"]', "did you mean|known"),
        ('judge = ["order"]', 'judge = ["size"]', "no difference is printed"),
        ("margin = 0.5\n", "", "needs a margin above 0"),
        ("margin = 0.5", 'margin = "large"', "margin is a number"),
        ('name = "isolation"', 'name = "isolation"\ncolour = 1', "colour"),
        ('each = [{ dataset = "small" }]', 'each = [{ dataset = "smal" }]', "small"),
        ('name = "isolation"', 'name = "isolation"\ntable = "bns-gcn-table5"', "different scores"),
        ('name = "isolation"', 'name = "isolation"\ntable = "bns-gcn-tabel4"', "bns-gcn-table4"),
        ("paper =", "paper", "mine.toml"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in CLAIMS
    with pytest.raises(InputError, match=said):
        read(tmp_path, CLAIMS.replace(old, new))


def test_two_claims_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="two claims are called"):
        read(
            tmp_path,
            CLAIMS.replace('name = "isolation"', 'name = "sampling"').replace(
                '["order"]', '["no worse"]\nmargin = 1.0'
            ),
        )


def test_unknown_studies_and_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sylvie"):
        file_of("sylvi")
    with pytest.raises(InputError, match="no such file"):
        file_of(str(tmp_path / "none.toml"))
    with pytest.raises(InputError, match="no column overlap"):
        printed_score("bns-gcn-table4", {"overlap": 1})
    with pytest.raises(InputError, match="different scores"):
        printed_score("bns-gcn-table4", {"dataset": "reddit"})


def test_a_printed_reduction_is_a_ratio() -> None:
    claims = {claim.key: claim for claim in read_claims(file_of("cdfgnn"))}
    claim = claims["cdfgnn/remote accesses, reddit (size)"]
    assert claim.difference == pytest.approx(100 * math.log(1 / (1 - 0.6314)), abs=1e-3) and claim.unit == "%"


def test_printed_epochs_are_a_ratio() -> None:
    claims = {claim.key: claim for claim in read_claims(file_of("ec-graph"))}
    assert claims["ec-graph/Fig. 6, 8 bits, epochs, reddit (size)"].difference == pytest.approx(47.0, abs=0.01)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ('judge = ["order"]\nmetric = "epochs to target"', "needs target_below"),
        ('judge = ["order"]\nmetric = "epochs"', "metric"),
        ('judge = ["order"]\ntarget_below = 1.0', "goes with epochs to target"),
        ('judge = ["order"]\nreduction = { metric = "quiet_epochs" }', "reduction goes with megabytes"),
    ],
)
def test_metric_target_and_reduction_have_to_fit(tmp_path: Path, changed: str, says: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(CLAIMS.replace('judge = ["order"]', changed))
    with pytest.raises(InputError, match=says):
        read_claims(path)


def test_no_claim_is_judged_more_sharply_than_its_paper_knows() -> None:
    claims = {claim.key: claim for name in ("bns-gcn", "sylvie") for claim in read_claims(file_of(name))}
    # 0.35 and 0.36 are printed for means of 10 runs: t(18) = 2.1009
    means = 2.1009 * math.hypot(0.35, 0.36) / math.sqrt(10)
    size = claims["bns-gcn/p=0, ogbn-products, 8 parts (size)"]
    assert size.band.high - size.difference == pytest.approx(means, abs=1e-4)  # type: ignore[operator]
    assert size.margin_from == "± 0.35 and 0.36 in bns-gcn-table5, 95 % for means of 10 runs"
    assert claims["bns-gcn/p=0.1, ogbn-products, 5 parts (no worse)"].band.low == pytest.approx(-means, abs=1e-4)
    wide = claims["sylvie/Sylvie-S, reddit, GAT (no worse)"]
    assert wide.band.low == pytest.approx(-math.hypot(0.77, 0.60), abs=1e-4) and "quadrature" in wide.margin_from
    narrow = claims["bns-gcn/p=0, reddit, 8 parts (size)"]
    assert narrow.margin_from == "half of the printed difference", "nothing is printed of how Reddit's scores scatter"


def test_every_band_says_where_it_comes_from() -> None:
    for claim in (claim for name in names() for claim in read_claims(file_of(name))):
        assert claim.margin_from or claim.judge == "order", claim.key


def test_a_margin_gives_way_to_a_wider_one_only() -> None:
    stated = Margin(0.5, "stated")
    assert stated.or_wider(None) == stated.or_wider(Margin(0.4, "printed")) == stated
    assert stated.or_wider(Margin(0.6, "printed")).source == "printed"
    assert (
        printed_margin("ec-graph", (("ec-graph-table5", {"dataset": "cora", "method": "DGL"}),) * 2).points == ROUNDING
    )


def test_bands_are_said_in_short() -> None:
    assert [band_text(band) for band in (Band(-0.5), Band(high=2.0), Band(0.2, 0.6), Band(0.0, least=0.5))] == [
        "> -0.5", "< 2", "0.2 to 0.6", "> 0 (counts from 0.5)",
    ]  # fmt: skip


def test_a_model_can_have_a_graph_of_its_own() -> None:
    claims = {claim.key: claim for claim in read_claims(file_of("subgraph-approximation"))}
    name = "subgraph-approximation/50 % overlap, reddit, {}, 3 parts (order)"
    assert claims[name.format("GraphSAGE")].standin == "reddit-subgraph"
    assert claims[name.format("KW-GCN")].standin == "reddit-kwgcn"


def test_a_larger_stand_in_has_the_settings_of_its_design_and_is_drawn_anew_for_every_seed() -> None:
    claims = {claim.key: claim for claim in read_claims(file_of("stand-ins"))}
    first, second = claims["stand-ins/score, nodes, large (level)"].cells(4)
    assert first.settings["dataset"] == "standin:reddit-bns,nodes=200000,communities=1230,seed=4"
    assert second.settings["dataset"] == "standin:reddit-bns,seed=4"
    assert {**first.settings, "dataset": ""} == {**second.settings, "dataset": ""}
