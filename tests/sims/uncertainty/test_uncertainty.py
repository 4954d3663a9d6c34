"""Ranges of inputs, draws that methods share, and intervals of small predictions."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.config import RunConfig
from harness.errors import InputError
from harness.kernels.work import Work
from harness.running.intervals import LEFT_OPEN, widened
from sims.cluster import SHAPED, known_clusters, load_cluster, place
from sims.device import load_device, save_device
from sims.device._costs import OperatorCost
from sims.replay import Changes
from sims.uncertainty import (
    PACE,
    Draws,
    RecordedPrediction,
    inputs_of,
    interval_of,
    predicted,
    prediction_of,
    recorded_epochs,
    replays_for,
)
from sims.uncertainty._inputs import ROWS, Input, changed_cluster, device_loader
from sims.units import SPREADS, Quantity, quantity
from tests.real.measure.test_calibrate import MEASURED, files

CLUSTER = "ethernet-10g"


@cache
def prediction(method: str = "vanilla", cluster: str = CLUSTER, parts: int = 2) -> RecordedPrediction:
    """Of a small graph."""
    config = RunConfig.of(
        dataset="synthetic:nodes=300,degree=6,classes=3,features=8", method=method, mode="sim", parts=parts, epochs=4,
        cluster=cluster, eval_every=-1,
    )  # fmt: skip
    return predicted(config, place(load_cluster(cluster), parts))


def test_a_number_may_state_its_range(tmp_path: Path) -> None:
    given = {"value": "10 us", "from": "assumed", "range": "5 us..30 us"}
    found = quantity(given, "time", "here")
    assert found.factors == pytest.approx((0.5, 3.0)) and quantity("10 us", "time", "here").factors == (0.5, 2.0)
    for text in ("5 us", "20 us..30 us", "a..b", "5 us..9 us", "0 us..20 us"):
        with pytest.raises(InputError, match=r"here: range: .*(is not LOW..HIGH|is not a time)"):
            quantity({**given, "range": text}, "time", "here")
    share = quantity({"value": 0.8, "from": "assumed", "range": "0.5..0.9"}, "number", "here")
    assert share.range == (0.5, 0.9)
    profile = replace(load_device("cpu-epyc-1core"), launch=found, gemm_efficiency=share)
    save_device(profile, tmp_path / "device.toml")
    assert load_device(tmp_path / "device.toml") == replace(profile, name="cpu-epyc-1core")


def test_inputs_have_the_range_of_their_source_and_what_a_user_sets_is_exact() -> None:
    found = {each.name: each for each in inputs_of(load_cluster(CLUSTER), {})}
    assert found["transport.message"].high == SPREADS["assumed"] and found["links.nic.bandwidth"].source == "datasheet"
    assert found["device.cpu-epyc-1core.pace"].high == SPREADS["measured"]
    assert not [name for name in found if name.startswith("device.") and not name.endswith(".pace")]
    changed = inputs_of(load_cluster(f"{CLUSTER}:links.nic.bandwidth=40Gb/s"), {})
    assert {each.name for each in changed} == set(found) - {"links.nic.bandwidth"}
    fewer = inputs_of(load_cluster(CLUSTER), {}, exact=["links.nic.latency"])
    assert {each.name for each in fewer} == set(found) - {"links.nic.latency"}
    whole, half = ({each.name for each in inputs_of(load_cluster("a100-8"), {}, (), p)} for p in ("fp32", "bf16"))
    assert half - whole == {"device.a100-80gb.bf16.gemm", "device.a100-80gb.bf16.spmm"} and whole < half
    lab = {each.name for each in inputs_of(load_cluster("lab:2x1gbit"), {})}
    assert "links.nic.bandwidth" not in lab and "links.spine.bandwidth" in lab


def test_rows_are_uncertain_where_a_description_assumes_them() -> None:
    counts = {"sources": {"parts.degrees": {"from": "assumed"}, "parts.inner": {"from": "assumed"}}}
    (rows,) = [each for each in inputs_of(load_cluster(CLUSTER), counts) if each.name == ROWS]
    assert (rows.low, rows.high, rows.value) == (0.5, 2.0, "parts.degrees")
    given = {"sources": {"parts.boundary": {"from": "given"}}}
    assert ROWS not in {each.name for each in inputs_of(load_cluster(CLUSTER), given)}


def test_draws_are_even_and_belong_to_the_name() -> None:
    draws, wide = Draws(40), Input("a", "1", "assumed", 0.5, 4.0, "")
    factors = np.asarray([draws.factors([wide], number)["a"] for number in range(40)])
    assert ((factors < 0.5).sum(), (factors > 4.0).sum(), (factors < 1).sum()) == (2, 2, 20)
    again = [Draws(40).factors([replace(wide, name="b"), wide], number)["a"] for number in range(40)]
    assert again == factors.tolist(), "an input's draws do not depend on what else is drawn"
    assert abs(np.corrcoef(draws.normal("a"), draws.normal("b"))[0, 1]) < 0.5


def test_operators_scatter_by_the_residual_of_their_own_fit() -> None:
    no = Quantity(0.0, "measured")
    cost = OperatorCost(call=no, bytes={}, work={}, error=Quantity(0.1, "measured"))
    profile = replace(load_device("cpu-epyc-1core"), operators={"aten::mm": cost})
    works = [Work("gemm", 1 << 20, width=n, name="aten::mm") for n in range(1, 400)]
    factors = Draws(8).scatter(profile, [*works, Work("copy", 5, name="aten::copy_")], 3)
    assert factors[-1] == 1 and float(np.std(np.log(factors[:-1]))) == pytest.approx(0.148, rel=0.15)
    assert float(np.mean(factors[:-1])) == pytest.approx(1.0, abs=0.02), "their sum is what the fit says"
    sizes = [Work("gemm", round(2.0 ** (10 + at / 64)), width=64, name="aten::mm") for at in range(640)]
    along = np.log(Draws(8).scatter(profile, sizes, 3))
    assert np.abs(np.diff(along)).max() < 0.02 and float(np.std(along)) > 0.05, "parts of nearly equal size are alike"
    (fits,) = [each for each in _device_inputs(profile) if each.is_scatter]
    assert math.log(fits.high) == pytest.approx(1.645 * 0.148, rel=0.01)


def _device_inputs(profile: object) -> list[Input]:
    from sims.uncertainty._inputs import _of_device

    return list(_of_device(profile, shared=False, half=False))  # type: ignore[arg-type]


def test_a_factor_changes_its_input_alone() -> None:
    cluster = load_cluster(CLUSTER)
    found = changed_cluster(cluster, {"links.nic.bandwidth": 2.0, "transport.process": 0.5})
    assert found.links["nic"].bandwidth.value == 2 * cluster.links["nic"].bandwidth.value
    assert found.links["nic"].latency == cluster.links["nic"].latency
    assert found.transport.process is not None and cluster.transport.process is not None
    assert found.transport.process.value == 0.5 * cluster.transport.process.value
    nccl = changed_cluster(load_cluster("h100-8"), {"transport.library": 3.0})
    assert nccl.constants.latencies()[0].value > 0 and nccl.constants is not None


def test_every_input_of_a_calibrated_cluster_changes_something(tmp_path: Path) -> None:
    """An input that is listed and not drawn would narrow all intervals without a word."""
    cluster = load_cluster(calibrated(tmp_path))
    for each in inputs_of(cluster, {}):
        device = device_loader({each.name: 2.0}, load_device)(cluster.device)
        changed = changed_cluster(cluster, {each.name: 2.0}) != cluster or device != load_device(cluster.device)
        assert changed or each.is_scatter, each.name
    assert {"transport.beside", "transport.process", "transport.copying", "links.loopback.bandwidth"} <= {
        each.name for each in inputs_of(cluster, {})
    }


def test_what_cores_do_beside_operators_has_their_pace(tmp_path: Path) -> None:
    cluster_file = calibrated(tmp_path)
    cluster = load_cluster(cluster_file)
    slow = changed_cluster(cluster, {f"device.{load_device(cluster.device).name}.{PACE}": 2.0})
    before, after = cluster.transport, slow.transport
    for key, by_kind in before.costs().items():
        for kind, costs in by_kind.items():
            assert [q.value for q in after.costs()[key][kind].values()] == [2 * q.value for q in costs.values()]
    assert set(before.rates()) == {"process", "beside", "copying"}
    for key, rate in before.rates().items():
        assert 2 * after.rates()[key].value == rate.value
    assert 2 * slow.links["loopback"].bandwidth.value == cluster.links["loopback"].bandwidth.value
    given = load_cluster(f"{cluster_file}:links.loopback.bandwidth=5GB/s")
    slow = changed_cluster(given, {f"device.{load_device(given.device).name}.{PACE}": 2.0})
    assert slow.links["loopback"] == given.links["loopback"], "what a user sets stays"
    described = load_cluster(CLUSTER)  # from data sheets: the pace of one core says nothing of its network
    assert changed_cluster(described, {f"device.{load_device(described.device).name}.{PACE}": 2.0}) == described


def calibrated(folder: Path) -> str:
    """The cluster file of a calibration in which nothing is certain."""
    files(folder, MEASURED)
    return str(folder / "cluster.toml")


def test_a_slower_pace_is_longer_for_every_measured_cost() -> None:
    profile = load_device("cpu-epyc-1core")
    slow = device_loader({f"device.{profile.name}.pace": 2.0}, load_device)(profile.name)
    works = [Work("gemm", 4_000, 10**8), Work("copy", 10**8, fresh=10**8), Work("codec", 10**6, bits=8)]
    works.append(Work("spmm", 10**6, entries=10**6, width=64))
    for work in works:
        assert slow.seconds(work) == pytest.approx(2 * profile.seconds(work), rel=1e-9), work
    assert slow.memory == profile.memory and device_loader({}, load_device)(profile.name) is not slow


def test_without_factors_a_prediction_is_the_replay_itself() -> None:
    made = prediction()
    timed = made.replay.time(made.cluster).typical(made.config)[0]
    assert made.seconds({}) == timed
    assert made.seconds({"links.nic.latency": 1.0, ROWS: 1.0}) == timed
    more = made.seconds({ROWS: 3.0})
    assert more["halo"] > timed["halo"] and more["compute"] == timed["compute"]


def test_every_replay_of_an_interval_is_told() -> None:
    """As many as the progress bar counts to; the recording is as long as `recorded_epochs` says."""
    made, seen = prediction(), list[int]()
    seconds = made.seconds({})
    watched = replace(made, replayed=lambda: seen.append(1))
    assert interval_of(watched, seconds, 8) == interval_of(made, seconds, 8) and len(seen) == 1 + 8
    config = made.config.changed(epochs=100)
    epochs: list[int] = []
    again = predicted(config, place(load_cluster(CLUSTER), 2), lambda record: epochs.append(record.epoch))
    assert len(epochs) == again.config.training.epochs == recorded_epochs(config) < 100
    assert recorded_epochs(config.changed(epochs=1)) == 1


def test_an_interval_holds_the_prediction_and_is_the_same_again() -> None:
    made = prediction()
    seconds = made.seconds({})
    found = interval_of(made, seconds, 8)
    low, high = found["seconds"]["epoch"]
    assert low < seconds["epoch"] < high and found == interval_of(made, seconds, 8)
    assert found["replays"] == len(found["ratios"]) == 8 and found["seconds"]["swap"] == [0.0, 0.0]
    twice = interval_of(made, {name: 2 * value for name, value in seconds.items()}, 8)
    assert twice["seconds"]["epoch"] == pytest.approx([2 * low, 2 * high])
    exact = replace(made, inputs=())
    found = interval_of(exact, seconds, 8)
    for name, more in LEFT_OPEN.seconds.items():
        ends = [seconds[name] * math.exp(-more), seconds[name] * math.exp(more)]
        assert found["seconds"][name] == pytest.approx(ends), "what the model leaves out is left"
    assert set(found["ratios"]) == {1.0}


def test_an_interval_after_a_brief_calibration_is_wider(tmp_path: Path) -> None:
    """The device file says how much was measured, and the result does; devices of data sheets say nothing."""
    config, found = prediction().config, {}
    for depth in ("", "quick", "brief"):
        file = tmp_path / f"{depth or 'none'}.toml"
        save_device(replace(load_device("cpu-epyc-1core"), depth=depth, name="one"), file)
        assert load_device(file).depth == depth
        cluster = load_cluster(f"hosts=2,devices=1,device={file},nic=10Gb/s")
        made = predicted(config, place(cluster, 2))
        found[depth] = interval_of(made, made.seconds({}), 8)
    assert [one.get("depth") for one in found.values()] == [None, "quick", "brief"]
    assert found["quick"]["seconds"] == found[""]["seconds"] and found["brief"]["ratios"] == found[""]["ratios"]
    for name in ("epoch", "compute", "halo"):
        (low, high), (least, most) = (found[depth]["seconds"][name] for depth in ("quick", "brief"))
        assert least < low < high < most


@given(value=st.floats(1e-6, 1e3), below=st.floats(0.0, 2.0), above=st.floats(0.0, 2.0), more=st.floats(0.0, 1.0))
def test_what_the_model_leaves_out_is_an_independent_error(
    value: float, below: float, above: float, more: float
) -> None:
    low, high = widened(value, value * math.exp(-below), value * math.exp(above), more)
    for end, known in ((value / low, below), (high / value, above)):
        assert math.log(end) ** 2 == pytest.approx(known**2 + more**2, rel=1e-6, abs=1e-9)
    assert widened(0.0, 0.0, 0.0, more) == (0.0, 0.0) and widened(1.0, 0.0, 2.0, more) == (0.0, 2.0)


@pytest.mark.parametrize("name", [*known_clusters(), "lab:2xunshaped", "lab:3x1gbit", "lab:4x100mbit"])
def test_ranges_hold_their_value_and_are_no_more_than_a_factor_of_four_either_way(name: str) -> None:
    """A rate that is drawn as nearly none makes a simulation endless."""
    for each in inputs_of(load_cluster(name), {}):
        assert 0.25 <= each.low <= 1 <= each.high <= 4, each


@pytest.mark.parametrize("links", ["100mbit", "1gbit", "unshaped"])
def test_a_lab_whose_ranks_share_cores_has_an_interval(links: str) -> None:
    made = prediction(cluster=f"lab:3x{links}", parts=3)
    seconds = made.seconds({})
    low, high = interval_of(made, seconds, 8)["seconds"]["epoch"]
    assert seconds["epoch"] / 3 < low < seconds["epoch"] < high < 3 * seconds["epoch"]


def test_knowing_an_input_narrows_the_interval() -> None:
    made, draws = prediction(), Draws(16)
    whole, less = ([each["epoch"] for each in made.draws(draws, without)] for without in ("", "transport.operation"))
    assert np.ptp(less) < np.ptp(whole)


def test_every_method_that_changes_its_rows_is_replayed_whole() -> None:
    """Stale exchanges begin in one recorded epoch and end in the next; counts that only senders know are scaled too."""
    for method in ("pipegcn", "bns-gcn:p=0.5", "cdfgnn"):
        made = prediction(method)
        assert made.seconds({ROWS: 2.0})["epoch"] >= made.seconds({})["epoch"], method


def test_replays_are_fewer_for_many_ranks() -> None:
    assert [replays_for(ranks) for ranks in (1, 40, 100, 512, 513)] == [40, 40, 16, 8, 0]
    assert replays_for(4096, 100) == 100 and replays_for(2, 0) == 0
    with pytest.raises(InputError, match="--replays 3: at least 8, or 0"):
        replays_for(2, 3)


def test_a_recording_that_exists_is_taken_as_it_is() -> None:
    made = prediction()
    again = prediction_of(made.config, made.replay, place(made.cluster, 2), exact=["transport.message"])
    assert {each.name for each in made.inputs} - {each.name for each in again.inputs} == {"transport.message"}


@pytest.mark.parametrize(("cluster", "shaped", "sharing"), [
    ("lab:4x1gbit", True, True), ("lab:4xunshaped", False, True), (CLUSTER, False, False),
])  # fmt: skip
def test_labs_have_the_errors_of_their_links_and_cores(cluster: str, shaped: bool, sharing: bool) -> None:
    names = {each.name for each in inputs_of(load_cluster(cluster), {})}
    assert (SHAPED in names, any(name.endswith(".sharing") for name in names)) == (shaped, sharing)


def test_what_sharing_cores_costs_is_paid_where_they_are_shared() -> None:
    """Four ranks of a lab on the two cores of its machine, and on a machine with cores for all of them."""
    config = RunConfig.of(
        dataset="synthetic:nodes=40000,degree=10,classes=3,features=64", method="subgraph-approximation:overlap=0",
        mode="sim", parts=4, epochs=3, hidden=64, cluster="lab:4xunshaped", eval_every=-1,
    )  # fmt: skip
    cluster = load_cluster("lab:4xunshaped")
    recorded = predicted(config, place(cluster, 4))
    for cores, share in ((cluster.cores, 0.2), (64, 0.0)):
        plain, longer = (
            recorded.replay.time(replace(cluster, cores=cores), Changes(device_loader(by, load_device))).epochs[-1]
            for by in ({}, {f"device.{cluster.device}.sharing": 1.2})
        )
        assert longer["seconds"]["epoch"] / plain["seconds"]["epoch"] - 1 == pytest.approx(share, abs=0.02)


def test_a_shaped_link_is_slower_by_its_factor() -> None:
    config = RunConfig.of(
        dataset="synthetic:nodes=4000,degree=10,classes=3,features=64", mode="sim", parts=2, epochs=3, hidden=64,
        cluster="lab:2x100mbit", eval_every=-1,
    )  # fmt: skip
    cluster = load_cluster("lab:2x100mbit")
    recorded = predicted(config, place(cluster, 2))
    plain, slower = (
        recorded.replay.time(changed_cluster(cluster, {SHAPED: factor})).epochs[-1]["seconds"]["halo"]
        for factor in (1.0, 0.8)
    )
    assert slower / plain == pytest.approx(1.25, rel=0.03)
