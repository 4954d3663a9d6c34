"""Programs and servers of Sylvie's report: what each trains, what its timers hold, what the authors' notebook says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

import pytest

from reports import sylvie
from reports.bns_gcn.testbed import as_coded, program_host, shape
from reports.core.context import Context
from reports.core.load import published
from reports.core.rows import seconds_row
from reports.sylvie._programs import (
    OPERATORS,
    TIMED,
    beds_for,
    of_rank_0,
    operator_s,
    speed_ups,
    system_seconds,
    with_quantiser,
)
from reports.sylvie._servers import OREGON, PCIE3, OneServer
from reports.sylvie._testbed import (
    GRAPHS,
    METHOD_OF,
    MODEL_OF,
    ON_TWO_SERVERS,
    boundary_of,
    constants,
    halo_rows,
    logged,
    rank_0_rows,
    sylvie_bed,
)
from sims.cluster import load_cluster
from tests.support.made_up_runs import quick

ANCHOR = "Yelp, GraphSAGE, DGL"


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with quick(monkeypatch, "sylvie._scores"):
        yield


@pytest.mark.parametrize(
    ("name", "parts", "rows"),
    [("reddit", 4, 53_750), ("yelp", 4, 96_170), ("ogbn-products", 4, 244_680), ("yelp", 6, 51_910)],
)
def test_rank_0_has_the_boundary_nodes_that_its_memory_says(name: str, parts: int, rows: int) -> None:
    """The same by what fp16 saves and by what 8 bits save, and by GCN and GAT, whose layers are others."""
    frame = published("sylvie-logs-one-server")
    frame = frame[(frame["dataset"] == name) & (frame["partitions"] == parts) & (frame["pipeline"] == "False")]
    found = []
    for _, run in frame.groupby(["model", "layers", "hidden"]):
        peak = {line.precision: float(line.peak_memory_mb) for line in run.itertuples()}
        layers, hidden = int(run["layers"].iloc[0]), int(run["hidden"].iloc[0])
        exchanged = layers - 1 - (2 if name == "yelp" and run["model"].iloc[0] != "gat" else 0)
        for saved in (2 * (peak["fp32"] - peak["fp16"]), 4 / 3 * (peak["fp32"] - peak["int8"])):
            found.append(saved * 2**20 / (exchanged * 2 * 4 * hidden))
    assert len(found) == (2 if parts == 6 else 6)
    assert all(one == pytest.approx(rows, rel=0.05) for one in found)
    first, *others = boundary_of(name, parts)
    assert first == pytest.approx(rows, abs=20) and len(others) == parts - 1 and len(set(others)) == 1
    assert first + sum(others) == pytest.approx(halo_rows(name, parts), rel=1e-4)
    assert rank_0_rows(name, 8) is None


@pytest.mark.parametrize("server", [PCIE3, OREGON])
def test_a_server_of_its_own_has_one_constant_of_its_own(context: Context, server: OneServer) -> None:
    """What its processes move at most, from Yelp's fp32 epoch; its anchor has its epoch by it, and nothing else."""
    shared, fit = constants(context), server.fit(context)
    assert fit.process != shared.process and replace(fit, process=shared.process) == shared
    (own,) = [fitted for fitted in context.fits if fitted.testbed == server.text]
    assert own.constant == "factor on the ceiling of a process" and ANCHOR in own.row
    row = server.anchor()
    seconds = server.bed(context, "yelp").seconds("vanilla", fit)
    assert seconds.epoch == pytest.approx(row.epoch, rel=0.005) and seconds.comm > 0.8 * row.epoch


def test_servers_of_figures_are_those_of_the_authors_notebook(context: Context) -> None:
    """Fig. 9: 6 GPUs on a bus of PCIe 3; Fig. 2 and 7: 8 GPUs of one server, with the printed 89.23 %, 7.0 and 9.3."""
    assert (PCIE3.parts, PCIE3.bed(context, "yelp").parts, OREGON.bed(context, "yelp").parts) == (6, 6, 8)
    bus = [load_cluster(server.cluster).links["bus"].bandwidth.value for server in (PCIE3, OREGON)]
    assert bus[0] == bus[1] / 2 and load_cluster(OREGON.cluster).hosts == 1
    rows = {(row.name, row.model, row.system): row for row in OREGON.logged()}
    assert len(rows) == len(GRAPHS) * len(MODEL_OF) * len(METHOD_OF)
    reddit = rows["reddit", "GraphSAGE", "DGL"]
    assert reddit.halo / reddit.epoch == pytest.approx(0.8923, abs=5e-5)
    for name, printed in (("ogbn-products", 7.0), ("amazon", 9.3)):
        gain = rows[name, "GraphSAGE", "DGL"].epoch / rows[name, "GraphSAGE", "Sylvie-A"].epoch
        assert gain == pytest.approx(printed, abs=0.05)
    assert (PCIE3.anchor().epoch, PCIE3.anchor().halo) == pytest.approx((1.21, 0.99), abs=0.005)


def test_seconds_on_three_servers_are_judged(context: Context, made_up: None) -> None:
    """Those of the notebook, whose two-server seconds are the logs'."""
    frame = published("sylvie-notebook")
    two = {row.system: row.epoch for row in logged(ON_TWO_SERVERS) if row.label.startswith("Amazon, GraphSAGE")}
    for line in frame[(frame["figure"] == "6") & (frame["servers"] == "2")].itertuples():
        assert two[line.method] == pytest.approx(float(line.seconds), rel=2e-3)
    rows = {row.label: row for row in sylvie.FIGURES["figure6"](context).rows}
    printed = {label.rpartition(", ")[2]: row.published for label, row in rows.items()}
    assert printed == {"DGL": 21.47, "SAR": 43.96, "PipeGCN": 20.02, "BNS-GCN": 2.45, "Sylvie-S": 1.07}
    assert all(row.null for row in rows.values())
    assert [row.judge for row in rows.values()] == ["error", "readings", "error", "error", "error"]


def test_the_quantiser_takes_an_operators_time_for_every_other_rank(context: Context) -> None:
    """One constant, from both halves on one server in Fig. 10: it has each of them, and those on two servers."""
    rows = {row.label: row for row in sylvie.FIGURES["figure10"](context).rows if row.unit == "s"}
    halves = [f"{servers}, {half}" for servers in ("1 server", "2 servers") for half in ("quantise", "dequantise")]
    assert [rows[label].how for label in halves] == ["fitted", "fitted", "simulated", "simulated"]
    assert all(abs(rows[label].error or 1.0) < 0.15 for label in halves)
    taken = [sum(rows[f"1 server, {half}"].published or 0.0 for half in ("quantise", "dequantise"))]
    assert taken == pytest.approx([6 * 3 * sum(OPERATORS) * operator_s()])
    assert {row.published for row in rows.values()} >= {0.0603, 0.0598, 0.2807, 0.0248, 0.0452}


def test_timers_hold_one_half_of_the_quantiser_in_exchanges_and_one_in_computation(context: Context) -> None:
    """As logged: rows are quantised inside a timed exchange, and turned back after it, late ones too."""
    bed, fit = sylvie_bed(context, "reddit"), constants(context)
    plain, ours = bed.seconds(METHOD_OF["Sylvie-S"], fit), system_seconds(bed, fit, "Sylvie-S")
    timed, calls = {name: part(ours) for name, part in TIMED.items()}, 6 * 7
    assert timed["compute"] == pytest.approx(plain.logged + calls * OPERATORS[1] * operator_s())
    assert timed["halo"] == pytest.approx(ours.comm + calls * OPERATORS[0] * operator_s())
    assert ours.comm - plain.comm == pytest.approx(2 * (6 * 50e-6 + calls * 15e-6)), "3 messages in place of 1"
    assert sum(timed.values()) == pytest.approx(ours.epoch)
    for rank in ours.ranks:
        assert sum(part(rank) for part in TIMED.values()) == pytest.approx(ours.epoch, rel=0.01), "all wait for the end"
    assert len(ours.ranks) == 8
    means = {name: fmean(part(rank) for rank in ours.ranks) for name, part in TIMED.items()}
    assert means == pytest.approx(timed, rel=0.01)
    late, hidden = system_seconds(bed, fit, "Sylvie-A"), bed.seconds(METHOD_OF["Sylvie-A"], fit)
    assert late.compute - hidden.compute == pytest.approx(calls * OPERATORS[1] * operator_s())
    large = with_quantiser(replace(plain, codec=9.0, compute=plain.compute + 9.0 - plain.codec), bed)
    assert large.codec == pytest.approx(9.0) and large.decode == pytest.approx(4.5), (
        "the traffic, where it takes longer"
    )


def test_what_rank_0_logged_is_contradicted_where_it_is_no_ranks(context: Context) -> None:
    """Undecided within what all ranks have, or near it; a rank with less work waits for longer."""
    bed = sylvie_bed(context, "reddit")
    seconds = bed.seconds("vanilla", constants(context))
    found = {name: of_rank_0(seconds, part) for name, part in TIMED.items()}
    computes = found["compute"]["readings"]
    assert min(computes) < 0.9 * found["compute"]["ours"] < 1.1 * found["compute"]["ours"] < max(computes)
    order = sorted(range(8), key=lambda rank: computes[rank])
    waits = [found["halo"]["readings"][rank] + found["reduce"]["readings"][rank] for rank in order]
    assert waits == sorted(waits, reverse=True)
    for name, one in found.items():
        low, high = min(one["readings"]), max(one["readings"])
        rows = [seconds_row("a row", name, value, **one) for value in (0.5 * low, low, high, 2 * high)]
        assert [row.outcome for row in rows] == ["contradicted", "undecided", "undecided", "contradicted"]
        assert not any(row.counts for row in rows)
    shown = seconds_row("a row", "halo", 1.0, **of_rank_0(seconds, TIMED["halo"], judged=False))
    assert shown.outcome is None and not shown.readings


def test_sar_fetches_its_input_rows_in_rounds(context: Context) -> None:
    """Slower than DGL, as printed: more rows, and one remote part after the other."""
    bed = sylvie_bed(context, "yelp")
    assert bed.model["layer0"] == "precompute" and beds_for(bed, "SAR")[0].model["layer0"] == "exchange"
    assert beds_for(bed, "PipeGCN") == [bed]
    assert speed_ups(bed, constants(context), ["SAR"])["SAR"] < 0.9


def test_sar_trains_on_the_whole_graph_with_the_model_of_its_example(context: Context) -> None:
    """Nodes that Sylvie's program leaves out of inductive training are in the parts, and so are their boundary nodes;
    what no log says is read in three ways, or in fewer where they are the same."""
    bed = sylvie_bed(context, "yelp", "GAT")
    first, *others = beds_for(bed, "SAR")
    wanted = {"heads": 2, "hidden_heads": "mean", "norm": "none", "dropout": 0.0, "linear_layers": 0}
    assert wanted.items() <= first.model.items() and (first.model["layers"], first.model["hidden"]) == (2, 256)
    assert [(one.model["layers"], one.model["hidden"]) for one in others] == [(3, 256)]
    depths = [one.model["layers"] for one in beds_for(sylvie_bed(context, "yelp"), "SAR")]
    assert depths == [4, 2, 3]
    assert isinstance(bed.workload, dict) and isinstance(first.workload, dict)
    trained, whole = (described["graph"]["nodes"] for described in (bed.workload, first.workload))
    assert (trained, whole) == (shape("yelp")[0], shape("yelp", whole=True)[0]) and whole > 1.3 * trained
    means = [described["parts"]["boundary"]["mean"] for described in (bed.workload, first.workload)]
    assert means[1] / means[0] == pytest.approx(whole / trained, rel=1e-4)


def test_rows_of_sar_are_judged_by_readings(context: Context, made_up: None) -> None:
    tables = [sylvie.TABLES["table2"](context), sylvie.TABLES["logs-epochs"](context)]
    rows = [row for table in tables for row in table.rows if ", SAR" in row.label and row.unit in ("s", "x")]
    assert len(rows) == 12 + 24 and {row.judge for row in rows} == {"readings"}
    assert all(row.readings for row in rows if ", GAT" not in row.label)
    assert all("its example" in " ".join(table.assumptions) for table in tables)


@pytest.mark.parametrize(("system", "layer0"), [("DGL", "cache"), ("Sylvie-A", "cache"), ("BNS-GCN", "precompute")])
def test_gcn_sums_its_input_once_in_bns_gcns_program_alone(context: Context, system: str, layer0: str) -> None:
    bed, fit = sylvie_bed(context, "reddit", "GCN"), constants(context)
    (own,) = beds_for(bed, system)
    assert own.model["layer0"] == layer0
    once = sylvie_bed(context, "reddit", "GCN", layer0="precompute").seconds("vanilla", fit)
    every = bed.seconds("vanilla", fit)
    assert every.compute > 1.05 * once.compute and every.comm == pytest.approx(once.comm, rel=0.05)


def test_bns_gcn_is_timed_with_the_draws_of_its_authors_program(context: Context) -> None:
    """Both ends know how many nodes were drawn, so that one message less goes to every other part."""
    fit, bed = constants(context), sylvie_bed(context, "yelp")
    ours, alone = system_seconds(bed, fit, "BNS-GCN"), bed.seconds(METHOD_OF["BNS-GCN"], fit)
    hosts = fit.of_program(*program_host()).host_s(bed.parts), fit.host_s(bed.parts)
    assert 0 < ours.blocked["sample"] < alone.blocked["sample"] and ours.epoch - hosts[0] < alone.epoch - hosts[1]


@pytest.mark.parametrize(
    ("system", "own"),
    [("BNS-GCN", program_host()), ("SAR", (0.0, 0.0)), ("DGL", None), ("PipeGCN", None), ("Sylvie-S", None)],
)
def test_every_program_has_its_own_host(context: Context, system: str, own: tuple[float, float] | None) -> None:
    """Late rows travel while it works."""
    fit, bed = constants(context), sylvie_bed(context, "yelp")
    expected = fit.host if own is None else own[0] + 7 * own[1]
    ours = system_seconds(bed, fit, system)
    without = beds_for(bed, system)[0].seconds(as_coded(METHOD_OF[system]), fit.of_program(0.0))
    assert ours.work - without.work == pytest.approx(expected)
    hidden = expected if system == "PipeGCN" else 0.0
    if system == "Sylvie-S":
        without = with_quantiser(without, bed)
    assert without.comm - ours.comm == pytest.approx(hidden)
    assert ours.epoch - without.epoch == pytest.approx(expected - hidden)


def test_all_reduce_waits_behind_late_rows(context: Context) -> None:
    """SY5: with late rows on the same links the all-reduce takes several times as long, as in the logs."""
    fit, bed = constants(context), sylvie_bed(context, "yelp")
    before, late = (bed.seconds(METHOD_OF[name], fit).reduce for name in ("Sylvie-S", "Sylvie-A"))
    assert late > 2 * before
    made = {row.label: row.reduce for row in logged(ON_TWO_SERVERS)}
    assert made["Yelp, GraphSAGE, Sylvie-A"] > 2 * made["Yelp, GraphSAGE, Sylvie-S"]
