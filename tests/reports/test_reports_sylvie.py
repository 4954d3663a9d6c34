"""Sylvie's report: every printed number is in its table, fitted rows do not count, figures are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from harness.errors import InputError
from harness.workloads import halo_spread
from reports import sylvie
from reports.core.claims import distinct_claims, judged_errors
from reports.core.context import Context
from reports.core.load import published
from reports.core.predict import Seconds, device_and_host
from reports.core.table import POINTS
from reports.sylvie._curves import BITS
from reports.sylvie._programs import (
    OF_OPERATOR,
    operator_s,
    speed_ups,
)
from reports.sylvie._testbed import (
    CLUSTER,
    GRAPHS,
    METHOD_OF,
    MODEL_OF,
    ON_ONE_SERVER,
    ON_TWO_SERVERS,
    anchor,
    boundary_of,
    case,
    constants,
    halo_rows,
    logged,
    logged_epochs,
    settings_of,
    sylvie_bed,
    training_of,
)
from reports.sylvie._times import case_rows
from tests.support.made_up_runs import quick, trained

ANCHOR = "Yelp, GraphSAGE, DGL"


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with quick(monkeypatch, "sylvie._scores"):
        yield


def test_the_report_has_all_tables_and_figures() -> None:
    logs = [f"logs-{what}" for what in ("epochs", "halo", "reduce", "compute", "memory")]
    assert list(sylvie.TABLES) == [*(f"table{n}" for n in range(1, 5)), "section5", *logs]
    assert list(sylvie.FIGURES) == [f"figure{n}" for n in (1, 2, 5, 6, 7, 8, 9, 10)]


@pytest.mark.parametrize("name", [f"table{n}" for n in range(1, 5)])
def test_every_printed_number_has_its_cell(name: str, context: Context, made_up: None) -> None:
    table = sylvie.TABLES[name](context)
    assert table.key == f"sylvie/{name}"
    cells = [row for row in table.rows if row.at]
    assert Counter(row.published for row in cells) == Counter(published(f"sylvie-{name}")["value"])
    assert len({row.at for row in cells}) == len(cells)
    beside = "none" if name == "table1" else "difference"  # sampling against the full graph: with --full only
    assert all(row.judge == beside for row in table.rows if not row.at)
    assert all(row.null for row in table.rows if row.counts and row.of_time)


def test_every_logged_number_has_its_row(context: Context, made_up: None) -> None:
    """All components that were timed, of every system of Table 2 on two servers and on one."""
    columns = {"epochs": "epoch_s", "halo": "halo_s", "reduce": "reduce_s", "compute": "compute_s",
               "memory": "peak_memory_mb"}  # fmt: skip
    frame = published("sylvie-logs")
    frame = frame[frame["model"].isin(["graphsage", "gcn", "gat"]) & frame["precision"].isin(["fp32", "int1"])]
    frame = frame[frame["synchronise_every"].isin(["", "NA"]) & ~frame["source_file"].str.contains("oregon|sar_n8.csv")]
    assert len(frame) == 2 * 4 * 3 * 6  # systems on graphs with models
    for name, column in columns.items():
        table = sylvie.TABLES[f"logs-{name}"](context)
        there = [float(number) for number in frame[column] if float(number or 0)]
        shown = [row for row in table.rows if row.quantity != "halo and reduce"]
        assert Counter(row.published for row in shown) == Counter(there), name
        assert len({row.at for row in table.rows}) == len(table.rows)
        assert not table.orderings
        assert all(bool(row.null) != row.label.startswith(ANCHOR) for row in table.rows if row.of_time)


def test_fitted_rows_and_what_follows_from_them_are_no_predictions(context: Context, made_up: None) -> None:
    """Both anchors have their epoch and compute by the fit, and so nearly their exchanges; and the rows that say
    what the host of BNS-GCN's program takes are no test of it."""
    anchors = [f"{ANCHOR}, {where}" for where in ("two servers", "one server")]
    tables = {name: sylvie.TABLES[f"logs-{name}"](context).rows for name in ("epochs", "halo", "reduce", "compute")}
    for name, rows in tables.items():
        fitted = [row.label for row in rows if row.how == "fitted"]
        assert fitted == (anchors if name in ("epochs", "compute") else []), name
    assert not any(row.counts for row in tables["halo"] if row.label in anchors)
    uncounted = [row.label for row in tables["epochs"] if not row.counts and row.judge != "readings"]
    assert sorted(uncounted) == sorted(
        [*anchors, "Reddit, GAT, BNS-GCN, one server", "Yelp, GAT, BNS-GCN, two servers"]
    )


@pytest.mark.parametrize("parts", [ON_ONE_SERVER, ON_TWO_SERVERS])
def test_null_models_start_from_the_anchor_on_as_many_servers(context: Context, made_up: None, parts: int) -> None:
    where = {ON_ONE_SERVER: "one server", ON_TWO_SERVERS: "two servers"}[parts]
    rows = [row for row in sylvie.TABLES["logs-epochs"](context).rows if row.label.endswith(where) and row.null]
    assert rows and {row.null.same for row in rows if row.null} == {anchor(parts).epoch}
    (like,) = [row for row in rows if row.label.startswith("Yelp, GCN, DGL")]  # as many rows of the same width
    assert like.null and like.null.by_bytes == pytest.approx(anchor(parts).epoch)


def test_late_rows_are_judged_with_the_all_reduce_that_waits_for_them(context: Context, made_up: None) -> None:
    halo, reduce = (sylvie.TABLES[f"logs-{name}"](context).rows for name in ("halo", "reduce"))
    late = [row for row in (*halo, *reduce) if row.label.split(", ")[2] in ("Sylvie-A", "PipeGCN")]
    judged = [row for row in late if row.judge == "readings"]
    assert judged and {row.quantity for row in judged} == {"halo and reduce"}
    one = next(row for row in judged if row.label == "Yelp, GCN, Sylvie-A, two servers")
    parts = [row for row in late if row.label == one.label and row.quantity in ("halo", "reduce")]
    assert one.published == pytest.approx(sum(row.published or 0 for row in parts))
    assert one.ours == pytest.approx(sum(row.ours or 0 for row in parts))
    assert len(one.readings) == 2, "its ranks"


def test_memory_of_section_5_is_judged_once(context: Context, made_up: None) -> None:
    rows = sylvie.TABLES["section5"](context).rows
    assert [row.published for row in rows] == [6882, 6642, 6918] and all(row.counts for row in rows)
    logs = {row.label: row.judge for row in sylvie.TABLES["logs-memory"](context).rows}
    assert logs["ogbn-products, GraphSAGE, DGL, one server"] == "none"
    assert logs["ogbn-products, GraphSAGE, DGL, two servers"] == "error"


def test_settings_are_those_of_the_scripts() -> None:
    """4 x 256, 4 x 512 of which 2 linear, 3 x 128; GAT has one head and fewer layers."""
    shape = ("layers", "linear_layers", "hidden")
    found = {name: tuple(settings_of(name).get(key, 0) for key in shape) for name in GRAPHS}
    assert found == {"reddit": (4, 0, 256), "yelp": (4, 2, 512), "ogbn-products": (3, 0, 128), "amazon": (4, 2, 512)}
    heads = {name: tuple(settings_of(name, "GAT")[key] for key in (*shape, "heads")) for name in GRAPHS}
    assert heads["reddit"] == heads["yelp"] == (2, 0, 256, 1)
    assert heads["ogbn-products"] == heads["amazon"] == (3, 0, 128, 1)


def test_full_training_is_the_authors() -> None:
    full = training_of("amazon", "GAT")
    assert (full["layers"], full["hidden"], full["dropout"], full["lr"], full["protocol"]) == (
        3,
        128,
        0.1,
        0.01,
        "inductive",
    )
    assert (logged_epochs("amazon", "GAT"), logged_epochs("reddit", "GCN")) == (1000, 2000)


def test_two_servers_hold_eight_parts_and_one_holds_four(context: Context) -> None:
    amazon = sylvie_bed(context, "amazon")
    assert amazon.parts == ON_TWO_SERVERS == 8 and amazon.cluster == "sylvie-2x8"
    assert isinstance(amazon.workload, dict) and amazon.workload["graph"]["train"] == 1_255_968
    assert {row.parts for row in logged(4)} == {4}
    assert logged(4)[0].bed(context).cluster == "sylvie-2x8:hosts.count=1"
    reddit = boundary_of("reddit", 8)
    assert isinstance(reddit, list) and sum(reddit) == pytest.approx(halo_rows("reddit"), rel=1e-4)
    assert max(reddit) > 1.5 * halo_rows("reddit") / 8
    amazon_in_4 = {"mean": round(halo_rows("amazon") * 3 / 7 / 4), "spread": round(halo_spread(4), 3)}
    assert boundary_of("amazon", 4) == amazon_in_4


def test_components_that_bns_gcn_times_without_its_gpu_are_not_judged(context: Context, made_up: None) -> None:
    tables = {name: sylvie.TABLES[f"logs-{name}"](context).rows for name in ("halo", "reduce", "compute", "epochs")}
    judged = {
        name: {row.judge for row in rows if row.label.split(", ")[2] == "BNS-GCN"} for name, rows in tables.items()
    }
    assert all(judged.pop(name) == {"none"} for name in ("halo", "reduce", "compute"))
    assert judged == {"epochs": {"error", "none"}}, "but the epochs whose compute says what its host takes"
    plain = {row.judge for row in tables["compute"] if row.label.split(", ")[2] == "DGL"}
    assert plain == {"readings", "none"}, "the anchors' are fitted"


def test_work_after_the_last_exchange_is_in_the_logged_all_reduce() -> None:
    found = Seconds(epoch=9.0, comm=3.0, compute=5.0, codec=1.0, sample=0.0, reduce=1.0, tail=1.5)
    assert found.logged == 2.5


def test_four_constants_are_fitted_on_two_rows_of_one_graph(context: Context, made_up: None) -> None:
    fit = constants(context)
    assert {fitted.constant: fitted.amount for fitted in context.fits} == {
        "factor on device speed": f"x {1 / fit.compute:.3g}", "host in an epoch": f"{1e3 * fit.host:.3g} ms",
        "factor on the ceiling of a process": f"x {fit.process:.3g}",
        "factor on the bandwidth of links": f"x {fit.bandwidth:.3g}",
    }  # fmt: skip
    assert all(ANCHOR in fitted.row and fitted.testbed == CLUSTER for fitted in context.fits)
    for name in ("table2", "table3", "logs-epochs", "logs-halo"):
        sylvie.TABLES[name](context)
    others = [fitted for fitted in context.fits if ANCHOR not in fitted.row]
    assert len(context.fits) == 4 + len(others) and case(context, "reddit").fit == fit
    assert [fitted.testbed for fitted in others].count("BNS-GCN's program") == 2, "the host of another program"
    (other,) = [fitted for fitted in others if fitted.testbed == CLUSTER]
    assert (other.constant, other.value) == (OF_OPERATOR, pytest.approx(1e6 * operator_s()))


@pytest.mark.parametrize("parts", [ON_ONE_SERVER, ON_TWO_SERVERS])
def test_the_anchors_have_their_logged_compute_and_epoch(context: Context, parts: int) -> None:
    row = anchor(parts)
    seconds = row.bed(context).seconds("vanilla", constants(context))
    assert seconds.logged == pytest.approx(row.compute, rel=1e-3)
    assert seconds.epoch == pytest.approx(row.epoch, rel=0.005)


@pytest.mark.parametrize(("larger", "smaller"), [(0.5, 0.05), (0.05, 0.06)])
def test_no_host_is_found_where_compute_grows_otherwise_than_the_device_says(
    context: Context, larger: float, smaller: float
) -> None:
    """By far more, so that the host would take less than nothing, or not at all."""
    one, two = (anchor(parts).bed(context) for parts in (ON_ONE_SERVER, ON_TWO_SERVERS))
    with pytest.raises(InputError, match="no device and host give both rows.*some rows"):
        device_and_host((one, larger), (two, smaller), "some rows", CLUSTER)
    with pytest.raises(InputError, match="no device and host give both rows"):
        device_and_host((one, larger), (one, smaller), "the same part twice", CLUSTER)
    assert not context.fits


def test_repeated_claims_count_once(context: Context, made_up: None) -> None:
    """Who is faster on two servers stands in Tables 2 and 3 and in Fig. 5 and 6."""
    items = [sylvie.TABLES[name](context) for name in ("table2", "table3")]
    figures = [sylvie.FIGURES[name](context) for name in ("figure5", "figure6")]
    claims = Counter(o.claim for item in (*items, *figures) for o in item.orderings if "throughput on two" in o.claim)
    assert len(claims) == len(GRAPHS) * len(MODEL_OF)
    assert max(claims.values()) == claims["sylvie: throughput on two servers, amazon, GraphSAGE"] == 4
    once = [claim for _, (_, claim) in distinct_claims([*items, *figures]) if claim.claim in claims]
    assert len(once) == len(claims)


def test_a_time_of_table_3_that_the_logs_have_counts_once(context: Context, made_up: None) -> None:
    table, *logs = (sylvie.TABLES[name](context) for name in ("table3", "logs-epochs", "logs-halo"))
    by_claim = {row.claim: row for item in logs for row in item.rows if row.claim}
    times = [row for row in table.rows if row.unit == "s"]
    assert len(times) == 16 and all(row.claim in by_claim for row in times)
    for row in times:
        assert row.published == pytest.approx(by_claim[row.claim].published, abs=0.0051), row.label
    assert len(judged_errors([table, *logs])) == len(judged_errors(logs))


@pytest.mark.parametrize("name", sylvie.FIGURES)
def test_figures_are_drawn(name: str, context: Context, made_up: None) -> None:
    plot = sylvie.FIGURES[name](context)
    assert plot.key == f"sylvie/{name}"
    assert [path.suffix for path in plot.paths] == [".png", ".svg"]
    assert all(path.stat().st_size > 1000 for path in plot.paths)
    assert plot.orderings or name in ("figure1", "figure8")  # whose runs are judged in Table 2, and by the study
    assert all(row.published is not None and row.ours is not None for row in plot.rows)


def test_numbers_that_figures_print_are_judged(context: Context, made_up: None) -> None:
    printed = {name: [row.published for row in sylvie.FIGURES[name](context).rows] for name in sylvie.FIGURES}
    two = sylvie.FIGURES["figure2"](context).rows
    assert printed["figure2"][-1] == 89.23 and two[-1].label == "Reddit, GraphSAGE" and two[-1].counts
    anchored = [row.quantity for row in two if row.label == "Yelp, GraphSAGE" and row.judge == "none"]
    assert len(two) == 6 * 4 + 1 and anchored == ["communication"]
    assert {row.judge for row in two if row.quantity not in ("epoch", "share of communication", *anchored)} == {
        "readings"
    }
    seven = {row.published: row for row in sylvie.FIGURES["figure7"](context).rows}
    assert len(seven) == 2 * 3 * 5 + 1 and all(row.null for row in seven.values())
    assert all(row.counts != (", SAR" in row.label) for row in seven.values())  # whose model is not known
    assert seven[7.0].label == "ogbn-products, GraphSAGE, Sylvie-A" and seven[9.3].label.startswith("Amazon")
    assert "SY10, resolved" in seven[9.3].note and not seven[9.3].conflict
    nine = sylvie.FIGURES["figure9"](context).rows
    quoted = [row.published for row in nine if row.label in ("Yelp, FP32", "Yelp, 1 bit")]
    assert quoted == pytest.approx([1.21, 0.99, 0.191, 0.101], rel=0.01)
    assert not any(row.conflict for row in nine) and sum(row.counts for row in nine) == 5 + 1
    assert nine[-1].judge == "none"  # accuracy, which the study judges
    assert printed["figure10"][:2] == [5.9, 6.7]
    assert printed["figure5"] == [12.2, 21.6, 1.4, 2.3, 15.2, 28.1, 1.8, 3.3]
    ranges = sylvie.FIGURES["figure5"](context).rows
    assert all(
        low.ours <= high.ours for low, high in zip(ranges[::2], ranges[1::2], strict=True) if low.ours and high.ours
    )


def test_figures_say_what_they_compare(context: Context, made_up: None) -> None:
    systems = "DGL, SAR, PipeGCN, BNS-GCN, Sylvie-S, Sylvie-A"
    five = sylvie.FIGURES["figure5"](context)
    assert five.assumptions[0] == f"compared in the 12 cases: {systems}"
    ten = [ordering.text for ordering in sylvie.FIGURES["figure10"](context).orderings]
    assert [text for text in ten if "half" in text] == [
        f"either half of the quantiser is smaller than all other parts, {servers}"
        for servers in ("1 server", "2 servers")
    ]
    nine = {ordering.text.partition(",")[0]: ordering for ordering in sylvie.FIGURES["figure9"](context).orderings}
    assert nine["communication falls with the bits"].outcome == "theory"
    full = sylvie.FIGURES["figure9"](replace(context, full=True)).orderings
    assert [ordering.ties for ordering in full if "accuracy is level" in ordering.text] == ["demanded"]
    assert len(sylvie.FIGURES["figure8"](replace(context, full=True)).orderings) == 4


def test_the_fitted_row_comes_out_and_counts_nowhere(context: Context, made_up: None) -> None:
    rows = sylvie.TABLES["table3"](context).rows
    fitted = [row for row in rows if row.how == "fitted"]
    assert [row.published for row in fitted if row.unit == "s"] == [4.98]
    assert [row.published for row in fitted if row.unit == "MB"] == [10.7, 4.5, 26.6, 11]  # SIDE_BYTES
    assert all(row.error == pytest.approx(0, abs=0.01) for row in fitted if row.unit == "s")
    assert not any(row.counts for row in fitted)
    volumes = [row for row in rows if row.unit == "MB"]
    assert volumes and all(row.judge == "none" for row in volumes)
    assert sum(row.counts for row in rows) == 7  # epochs of all graphs and systems but one
    assert sum(row.judge == "readings" for row in rows) == 7  # and their communication, which rank 0 logged


def test_volumes_are_those_that_runs_send(context: Context) -> None:
    """No volume is judged: those of 1 bit follow from DGL's and from SIDE_BYTES. They have to be what is sent."""
    made = case(context, "yelp")
    rows = {row.quantity: row for row in case_rows(made)[0] if row.label == "Yelp, Sylvie-S"}
    volumes = [rows[f"volume, {kind}"] for kind in ("main data", "scales")]
    assert not any(row.counts for row in volumes)
    (record,) = context.runs([made.bed.config(METHOD_OF["Sylvie-S"], made.fit)])
    sent = sum(record["epochs"][-1]["bytes"]["forward"]) + sum(record["epochs"][-1]["bytes"]["backward"])
    assert sent == pytest.approx(1e6 * sum(row.ours or 0.0 for row in volumes), rel=0.02)


def test_throughput_of_every_system(context: Context, made_up: None) -> None:
    made = case(context, "reddit")
    found = speed_ups(made.bed, made.fit, ["SAR", "Sylvie-S", "Sylvie-A"])
    assert 1 < found["Sylvie-S"] < found["Sylvie-A"] and found["SAR"] < found["Sylvie-A"]
    tables = [sylvie.TABLES[name](context) for name in ("table2", "logs-epochs")]
    rows = [row for table in tables for row in table.rows if ", SAR" in row.label and row.unit != "%"]
    assert rows and all(row.ours is not None for row in rows)


def test_sampling_fills_table_1(context: Context, made_up: None) -> None:
    one = sylvie.TABLES["table1"](context)
    assert len(one.rows) == 4 and not one.orderings  # the study judges the claims
    full = sylvie.TABLES["table1"](replace(context, full=True))
    assert {row.how for row in full.rows} == {"trained"} and len(full.orderings) == 1
    gaps = [row for row in full.rows if row.judge == "difference"]
    assert [row.published for row in gaps] == [-5.64, -4.32, -2.35]


def test_table_2_judges_every_claim_of_accuracy(context: Context, made_up: None) -> None:
    """With --full: both of Sylvie's systems beside DGL where printed level, and BNS-GCN behind Sylvie-S on GAT."""
    full = sylvie.TABLES["table2"](replace(context, full=True))
    claims = [o.text for o in full.orderings if "accura" in o.text]
    assert sum("BNS-GCN is less accurate than Sylvie-S, GAT" in text for text in claims) == 4
    level = [text for text in claims if "as accurate as DGL" in text]
    assert {text.split(" ")[0] for text in level} == {"Sylvie-S", "Sylvie-A"} and len(level) > 12
    assert all(float(text.partition("(")[2].split(" ")[0]) < POINTS for text in level)


@pytest.mark.parametrize(("name", "least"), [("table2", 60), ("table4", 18)])
def test_accuracies_are_those_of_the_study_which_judges_them(
    name: str, least: int, context: Context, made_up: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.sylvie._scores.accuracies", lambda *_, **__: pytest.fail("trained"))
    table = sylvie.TABLES[name](context)
    scores = [row for row in table.rows if row.quantity == "accuracy" and row.ours is not None]
    assert len(scores) >= least and all((row.seeds or 0) >= 5 and row.interval for row in scores)
    assert {row.how for row in table.rows if row.quantity == "accuracy" and row.ours is None} <= {"needs data"}
    assert not any("accura" in ordering.text for ordering in table.orderings)
    assert any("study/sylvie" in line for line in table.assumptions)


def test_quantising_everything_is_judged_by_its_place(context: Context, made_up: None) -> None:
    table = sylvie.TABLES["table4"](replace(context, full=True))
    assert len(table.orderings) == 9 and all(ordering.verdict == "right" for ordering in table.orderings)
    assert len({ordering.runs for ordering in table.orderings}) == 9  # made-up runs of nine graphs and models
    assert {row.judge for row in table.rows if row.at} == {"order"} and table.median_error() is None
    gaps = [row for row in table.rows if row.judge == "difference"]
    assert len(gaps) == 9 and gaps[0].published == -26.52 and gaps[0].ours == pytest.approx(-20)


def test_early_accuracy_is_that_of_the_first_half(context: Context) -> None:
    run = trained(context, "reddit", {"DGL": "vanilla"}, parts=2)
    assert run.early("DGL") == pytest.approx([(17.5 + 35.0) / 2] * 5)


def test_bits_fall_from_left_to_right() -> None:
    assert list(BITS) == ["FP32", "FP16", "8 bits", "4 bits", "2 bits", "1 bit"]
    assert BITS["1 bit"] == METHOD_OF["Sylvie-S"]


def test_other_rows_are_predicted_from_the_anchors(context: Context) -> None:
    """One bit, and other models, follow within a fifth."""
    fit, made = constants(context), {row.label: row for row in logged(ON_TWO_SERVERS)}
    errors = {}
    for label in ("Yelp, GCN, DGL", "Yelp, GraphSAGE, Sylvie-S", "Yelp, GAT, Sylvie-A"):
        row = made[label]
        errors[label] = row.bed(context).seconds(METHOD_OF[row.system], fit).epoch / row.epoch - 1
    assert all(abs(error) < 0.2 for error in errors.values()), errors
