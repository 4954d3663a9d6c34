"""The predictor of epoch times on a small described graph: fits hit their row, files follow their content."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import InputError
from reports import core
from reports.bns_gcn.testbed import bed_of, eq4, halo_of, num_exchanging_layers, sage, shape, trainable
from reports.core.context import Context
from reports.core.load import published, select, value
from reports.core.predict import Fit, Seconds, Testbed, parts_of

WIDTH = 16
MODEL = {"model": "sage", "layers": 2, "hidden": WIDTH, "layer0": "precompute"}


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Testbed:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))
    return Testbed(
        context=Context(out=tmp_path, quiet=True),
        cluster="bns-10x2080ti",
        model=MODEL,
        workload=parts_of(4000, 40_000, 32, 5, count=2, boundary=900),
        parts=2,
    )


def test_epoch_is_the_sum_of_its_parts(bed: Testbed) -> None:
    seconds = bed.seconds("vanilla")
    assert seconds.epoch == pytest.approx(seconds.comm + seconds.compute + seconds.reduce)
    assert min(seconds.comm, seconds.compute, seconds.reduce) > 0
    assert bed.seconds("sylvie-s:bits=1").codec > seconds.codec == 0


def test_what_the_host_takes_is_part_of_every_epoch_and_of_every_fit(bed: Testbed) -> None:
    whole = bed.seconds("vanilla")
    fit = Fit(host=0.2 * whole.epoch)
    found = bed.seconds("vanilla", fit)
    assert found.epoch == pytest.approx(whole.epoch + fit.host)
    assert found.compute == pytest.approx(whole.compute + fit.host)
    assert (found.comm, found.reduce, found.codec) == (whole.comm, whole.reduce, whole.codec)
    (record,) = bed.context.runs([bed.config("vanilla")])
    assert fit.timed(record) == found and Fit().timed(record) == whole
    assert bed.parts > 1 and replace(fit, host_per_part=0.1).timed(record).epoch == pytest.approx(
        found.epoch + 0.1 * (bed.parts - 1)
    )
    slower = bed.fitted("vanilla", fit.host + 1.3 * whole.epoch, source="a row", start=fit)
    assert slower.host == fit.host, "the host is not fitted"
    assert bed.seconds("vanilla", slower.of_program(0.0)).epoch == pytest.approx(1.3 * whole.epoch, rel=0.01)


def test_the_ceiling_of_a_process_is_fitted_apart_from_links(bed: Testbed) -> None:
    wanted = 1.3 * bed.seconds("vanilla").epoch
    fit = bed.fitted("vanilla", wanted, source="a row", free="process")
    assert fit.bandwidth == 1.0 and fit.process is not None and fit.process < 1
    cases = (Fit(), fit, Fit(bandwidth=2.0), Fit(bandwidth=2.0, process=1.0))
    texts = [bed.config("vanilla", case)["cluster"] for case in cases]
    assert ["transport.process=" in text for text in texts] == [False, True, True, False]
    assert ["links.bus.bandwidth=" in text for text in texts] == [False, False, True, True]
    assert bed.seconds("vanilla", fit).epoch == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize("free", ["bandwidth", "messages"])
def test_a_fit_hits_its_row_with_one_constant(bed: Testbed, free: str) -> None:
    wanted = 1.3 * bed.seconds("vanilla").epoch
    fit = bed.fitted("vanilla", wanted, source="a row", free=free)  # type: ignore[arg-type]
    assert bed.seconds("vanilla", fit).epoch == pytest.approx(wanted, rel=0.01)
    assert (fit.bandwidth < 1) == (free == "bandwidth") and (fit.messages > 1) == (free == "messages")
    (found,) = bed.context.fits
    assert found.row == "a row" and found.value == getattr(fit, free) and f"{found.value:.3g}" in fit.text()


def test_a_fit_keeps_what_it_starts_from(bed: Testbed) -> None:
    slow = Fit(bandwidth=0.5)
    wanted = 1.2 * bed.seconds("vanilla", slow).epoch
    fit = bed.fitted("vanilla", wanted, source="a row", free="messages", start=slow, listed=False)
    assert fit.bandwidth == 0.5 and not bed.context.fits
    assert bed.seconds("vanilla", fit).epoch == pytest.approx(wanted, rel=0.01)


def test_a_row_shorter_than_what_stays_is_refused(bed: Testbed) -> None:
    with pytest.raises(InputError, match="a row"):
        bed.fitted("vanilla", 0.5 * bed.seconds("vanilla").compute, source="a row")


def test_a_fit_that_finds_nothing_is_refused(bed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    flat = Seconds(1.0, 0.5, 0.4, 0.0, 0.0, 0.1)
    with monkeypatch.context() as patch, pytest.raises(InputError, match="nothing to fit .a row."):
        patch.setattr(Testbed, "all_seconds", lambda *_, **__: [flat])
        bed.fitted("vanilla", 2.0, source="a row")
    with monkeypatch.context() as patch, pytest.raises(InputError, match="after 1 trials .a row."):
        patch.setattr("reports.core.predict.ROUNDS", 1)
        bed.fitted("vanilla", 2 * bed.seconds("vanilla").epoch, source="a row")


def test_commands_of_what_a_table_shows_are_kept(bed: Testbed) -> None:
    fit = bed.fitted("vanilla", 1.2 * bed.seconds("vanilla").epoch, source="a row")
    bed.seconds("sylvie-s:bits=1", fit)
    shown = list(bed.context.commands)  # the trials of the fit are not among them
    assert len(shown) == 2 and ["sylvie-s:bits=1" in command for command in shown] == [False, True]


def test_slower_bandwidth_slows_communication_only(bed: Testbed) -> None:
    whole, half = bed.seconds("vanilla"), bed.seconds("vanilla", Fit(bandwidth=0.5))
    assert half.comm > whole.comm
    assert half.compute == pytest.approx(whole.compute)
    double = bed.seconds("vanilla", Fit(compute=2.0))
    assert double.compute == pytest.approx(2 * whole.compute, rel=0.01)
    assert double.comm == pytest.approx(whole.comm, rel=0.01)


def test_slower_messages_cost_as_much_whatever_they_carry(bed: Testbed) -> None:
    narrow = replace(bed, model={**bed.model, "hidden": 4})
    more = []
    for one in (bed, narrow):
        before, slow = one.seconds("vanilla"), one.seconds("vanilla", Fit(messages=1000.0))
        more.append(slow.comm - before.comm)
        assert slow.compute == pytest.approx(before.compute) and more[-1] > 0
    assert more[0] == pytest.approx(more[1], rel=0.05)
    assert "time of messages x 2" in Fit(messages=2.0).text()


def test_rates_say_how_much_is_sent(bed: Testbed) -> None:
    method = "bns-gcn:p=0.1:sampling=bes"
    few, many = (bed.config(method, None, {"kept nodes": share}) for share in (0.2, 0.9))
    records = bed.context.runs([few, many])
    assert few["rates"] != many["rates"]
    sent = [sum(record["epochs"][-1]["bytes"]["forward"]) for record in records]
    assert sent[1] == pytest.approx(4.5 * sent[0], rel=0.01)


def test_equal_workloads_share_a_file(bed: Testbed) -> None:
    again = replace(bed, workload=dict(bed.workload))  # type: ignore[arg-type]
    other = replace(bed, workload=parts_of(4000, 40_000, 32, 5, count=2, boundary=901))
    assert bed.config("vanilla")["dataset"] == again.config("vanilla")["dataset"]
    assert bed.config("vanilla")["dataset"] != other.config("vanilla")["dataset"]
    assert replace(bed, workload="reddit-10").config("vanilla")["dataset"] == "workload:reddit-10"


def test_a_failed_run_is_not_a_time(bed: Testbed) -> None:
    record = bed.context.runs([bed.config("vanilla", Fit(compute=-1.0))])[0]
    with pytest.raises(InputError, match="stragglers"):
        Seconds.of(record)


def test_halo_is_what_the_volume_says() -> None:
    model = sage("reddit")
    assert num_exchanging_layers(model) == 3 and num_exchanging_layers(sage("yelp")) == 1
    rows = halo_of(2791.7, model)
    assert 2 * 3 * rows * model["hidden"] * 4 == pytest.approx(2791.7e6)


def test_inductive_graphs_are_those_of_the_training_nodes() -> None:
    assert shape("reddit")[0] == pytest.approx(153_800, rel=0.01)  # CONSISTENCY.md, BN2
    assert shape("ogbn-products")[0] == 2_449_029


def test_one_published_value_or_none() -> None:
    frame = published("bns-gcn-table11")
    assert value(frame, method="FastGCN", metric="epoch_time") == 5.08
    assert set(select(frame, value=lambda v: v > 6)["method"]) == {"GraphSAGE", "BNS-GCN"}
    with pytest.raises(InputError, match="0 published"):
        value(frame, method="nobody")


def test_trained_settings() -> None:
    paper = trainable("reddit", partitioner="hash")
    assert (paper["hidden"], paper["layers"], paper["lr"], paper["protocol"]) == (256, 4, 0.01, "inductive")
    assert paper["partitioner"] == "hash" and trainable("ogbn-products")["protocol"] == "transductive"


def test_eq4_saves_more_where_there_is_more_boundary(bed: Testbed) -> None:
    assert eq4(100, 0, 0.1) == 1.0
    assert eq4(100, 900, 0.1) < eq4(100, 300, 0.1) < 1
    assert eq4(100, 300, 0.0) == 0.5
    configs = [bed.config(method) for method in ("vanilla", "bns-gcn:p=0.5")]
    whole, half = (record["facts"]["feature_bytes"][0] for record in bed.context.runs(configs))
    width, inputs = WIDTH * 4, 3 * 2000 * 32 * 4  # the input layer holds no halo rows
    assert (half - inputs) / (whole - inputs) == pytest.approx(eq4(2000, 900, 0.5), rel=1e-6)
    assert whole == inputs + (3 * 2000 + 900) * width


def test_programs_with_hooks_sum_gradients_early_where_the_method_can(bed: Testbed) -> None:
    assert bed_of(bed.context, "bns-10x2080ti", "reddit", 4, halo=1e5).hooks and not bed.hooks
    bed = replace(bed, hooks=True)
    assert bed.config("vanilla")["method"] == "vanilla:gradients=early"
    assert bed.config("bns-gcn:p=0.1")["method"] == "bns-gcn:p=0.1:gradients=early"
    assert bed.config("cagnet")["method"] == "cagnet", "it has no such option"
    assert replace(bed, hooks=False).config("vanilla")["method"] == "vanilla"


def test_core_has_nothing_of_the_program_of_one_paper() -> None:
    """BNS-GCN's graphs, settings and program are in its folder; papers beside it do not import them."""
    folder = Path(core.__file__).parent
    assert {path.name for path in folder.glob("*.py") if "bns" in path.read_text().lower()} == set()
    users = {path.parent.name for path in folder.parent.rglob("*.py") if "reports.bns_gcn.testbed" in path.read_text()}
    assert users == {"bns_gcn", "sylvie", "ec_graph"}, "both name graphs that BNS-GCN describes"
