"""A replayed run equals the full simulation exactly, on the cluster it was recorded on and on every other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cli import main
from harness.config import RunConfig
from harness.effects import Rows
from harness.errors import InputError
from harness.methods.registry import METHODS
from harness.methods.vanilla import Vanilla
from harness.rank import Rank
from harness.running import make_job, plan_of, program, run
from sims.cluster import Cluster, load_cluster, place, varied
from sims.engine import Simulation, simulate
from sims.replay import Recorder, Recording, Replay, load_recording, record, settled_epochs
from sims.replay._replay import needed
from tests.conformance.test_drivers import config
from tests.support.background import halved
from tests.support.settings import SETTINGS
from tests.support.simulated import each

HERE = "sylvie-2x8"
ELSEWHERE = ("cdfgnn-2x8a800", "ethernet-1g:stragglers.jitter=0.2", "h100-8:hosts.device=h100-80gb-vm")


async def busy(rank: Rank) -> list[dict[str, float]]:
    """Every kind of effect, compute of several components in between, started exchanges that overlap epochs."""
    epochs, handle, beside = [], None, None
    x = torch.ones(40 + 7 * rank.index, 8)
    with rank.off_the_clock():
        await rank.all_reduce(x[:3].sum(0), label="set-up")
    for epoch in range(3):
        rank.epoch = epoch
        rank.clock.begin_epoch()
        with rank.span("sample"):
            rows = torch.relu(x @ torch.ones(8, 8))[: 5 * (rank.size - 1)]
        counts = each(rank.size, 5, rank.index)
        if handle is not None:
            await rank.wait(handle)
        handle = await rank.start(
            rank.all_to_all([Rows(rows, counts, None)], label="late", direction="forward", layer=0)
        )
        if beside is not None:
            x = x + (await rank.wait(beside)).mean()
        beside = await halved(rank, rows * 3, counts, counts, label="beside")
        y = (x * 2 + 1).sum(1)
        copied = await rank.host_copy(y, to_host=True, label="out")
        with rank.span("codec"):
            z = copied[: 1 + rank.index] * 3
        sizes = np.arange(rank.size, dtype=np.int64)
        received = await rank.all_to_all(
            [Rows(z.repeat(int(sizes.sum()))[: int(sizes.sum())], sizes, np.full(rank.size, rank.index))], label="a"
        )
        y = y + received.tensors[0].sum()
        if rank.index == 0:
            await rank.send(y[:4], to=1, label="pair")
        elif rank.index == 1:
            y = y + (await rank.recv(torch.empty(4), source=0, label="pair")).sum()
        y = await rank.broadcast(y[:6], root=2 % rank.size, label="b")
        if rank.index < 2:
            y = y + await rank.all_reduce(y, label="pair of ranks", group=(0, 1))
        if rank.index > 0:
            y = y + await rank.broadcast(y, root=1, label="the others", group=range(1, rank.size))
        await rank.all_reduce(y.exp(), label="g")
        epochs.append(rank.clock.end_epoch())
        x = x.tanh()  # passes outside of the epochs
        with rank.off_the_clock():
            await rank.all_reduce(x[:3], label="evaluation")
            quiet = await halved(rank, rows, counts, counts, label="off the clock")
            await rank.wait(quiet)
    await rank.wait(handle)
    await rank.wait(beside)
    return epochs


def recorded(
    program: Callable[[Rank], Any], size: int, cluster: Cluster, **options: Any
) -> tuple[Simulation, Recording]:
    recorder = Recorder(size)
    simulation = simulate(program, place(cluster, size), observers=[recorder], **options)
    return simulation, recorder.recording(
        {"layers": 1, "seed": options.get("seed", 0), "method": "busy"}, {}, {}, needed(simulation)
    )


def assert_equal(replay: Replay, full: Simulation, cluster: Cluster) -> None:
    """Clocks, bytes and links, to the last bit."""
    found = replay.time(cluster).simulation
    assert found.results == full.results
    assert found.makespan_s == full.makespan_s
    assert found.memory == full.memory
    assert found.link_bytes == full.link_bytes and found.tiers == full.tiers


@pytest.mark.parametrize("deterministic", [True, False], ids=["chunks", "ring"])
@pytest.mark.parametrize("name", ["sylvie-2x8", "cdfgnn-2x8a800", "ethernet-10g", "local", "h100-8"])
def test_every_effect_on_every_kind_of_cluster(name: str, deterministic: bool) -> None:
    options: dict[str, Any] = {"deterministic": deterministic, "seed": 3}
    _, recording = recorded(busy, 4, load_cluster("local"), **options)
    cluster = load_cluster(name)
    assert_equal(Replay(recording), simulate(busy, place(cluster, 4), **options), cluster)


@pytest.mark.parametrize("cluster", ["h200-1", "ethernet-1g"])
def test_attention_is_recorded_as_it_runs(cluster: str) -> None:
    """One operator on a GPU; composed on a CPU, and everywhere where the setting says so."""
    base = config("single", mode="sim", model="gat", parts=1, cluster=cluster, shapes_only=True, epochs=3)
    for chosen in ("auto", "fused", "composed"):
        setting = base.changed(attention=chosen)
        recording = record(setting)
        fused = chosen == "fused" or (chosen == "auto" and cluster == "h200-1")
        assert any(work.name == "haloscope::attend" for work in recording.works) == fused
        full = run(setting).epochs[-1]["seconds"]["epoch"]
        replayed = Replay(recording).time(load_cluster(cluster)).epochs[-1]["seconds"]["epoch"]
        assert replayed == pytest.approx(full)


@given(size=st.integers(3, 6), rate=st.floats(1e5, 1e12), latency=st.floats(1e-9, 1e-2))
@settings(max_examples=8)
def test_any_bandwidth_and_latency(size: int, rate: float, latency: float) -> None:
    base = load_cluster("ethernet-10g")
    _, recording = recorded(busy, size, base)
    changed = varied(varied(base, "nic", "bandwidth", rate), "nic", "latency", latency)
    assert_equal(Replay(recording), simulate(busy, place(changed, size)), changed)


def test_stragglers_and_jitter_are_those_of_the_seed() -> None:
    cluster = load_cluster("ethernet-1g:stragglers.jitter=0.3:stragglers.ranks.1=2.0")
    full, recording = recorded(busy, 3, cluster, seed=5)
    assert_equal(Replay(recording), full, cluster)
    other = Replay(msgspec.structs.replace(recording, config={**recording.config, "seed": 6})).time(cluster)
    assert other.simulation.makespan_s != full.makespan_s


@dataclass(frozen=True, kw_only=True)
class Racing(Vanilla):
    """A method with `Facts.timed`, which no registered method declares."""

    name = "racing"
    facts = replace(Vanilla.facts, timed=True)


def test_a_method_that_decides_by_when_messages_arrive_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(METHODS.builtin, Racing.name, Racing)
    replay = Replay(record(config(method="racing", mode="sim", epochs=2, cluster=HERE)))
    with pytest.raises(InputError, match="decisions of method racing depend on when messages arrive.*haloscope sweep"):
        replay.time(load_cluster(ELSEWHERE[0]))
    argv = ["what-if", "--methods", "vanilla,racing", "--dataset", "synthetic:nodes=120", "--cluster", "ethernet-1g"]
    assert main([*argv, "--points", "2", "--out", str(tmp_path / "out")]) == 2
    assert "the decisions of method racing depend on when messages arrive" in capsys.readouterr().err
    assert not (tmp_path / "out").exists(), "said before anything is recorded"


@pytest.mark.parametrize("method", list(SETTINGS))
def test_every_method(method: str) -> None:
    """Recorded on one cluster, equal on others: seconds of all components, bytes by layer, direction and tier."""
    row = SETTINGS[method][0]
    base = config(**{**row, "mode": "sim", "epochs": 2, "eval_every": 1, "cluster": HERE})
    replay = Replay(record(base))
    for name in ELSEWHERE:
        full = run(base.changed(cluster=name))
        epochs = replay.time(load_cluster(name)).epochs
        assert [e["seconds"] for e in epochs] == [e["seconds"] for e in full.epochs]
        assert [e["bytes"] for e in epochs] == [e["bytes"] for e in full.epochs]


def test_a_file_holds_all_of_it(tmp_path: Path) -> None:
    recording = record(
        RunConfig.of(dataset="synthetic:nodes=120", mode="sim", cluster="ethernet-1g", epochs=2, parts=3)
    )
    path = tmp_path / "run.rec"
    recording.save(path)
    assert path.stat().st_size < 20_000
    again = load_recording(path)
    assert again == recording
    cluster = load_cluster("ethernet-10g")
    assert Replay(again).time(cluster).epochs == Replay(recording).time(cluster).epochs
    assert [e["loss"] for e in Replay(again).time(cluster).epochs] == [None, None]


def test_recording_changes_nothing() -> None:
    cluster = load_cluster(HERE)
    full, _ = recorded(busy, 3, cluster)
    assert full.makespan_s == simulate(busy, place(cluster, 3)).makespan_s


def test_stretches_operators_and_effects_are_kept_once() -> None:
    """Equal epochs of equal shapes share their values: a recording of ten epochs is little larger than one of two."""
    sizes = {}
    for epochs in (2, 10):
        made = record(RunConfig.of(dataset="synthetic:nodes=120", mode="sim", epochs=epochs, parts=2, eval_every=-1))
        sizes[epochs] = (len(made.works), len(made.stretches), len(made.counts), len(made.effects))
    assert sizes[2] == sizes[10]


def test_memory_is_judged_on_the_devices_of_the_cluster() -> None:
    """The recording has the memory that ranks needed; whether it fits depends on the cluster of the replay."""
    base = RunConfig.of(
        dataset="synthetic:nodes=120", mode="sim", cluster="sylvie-2x8", epochs=2, parts=2, eval_every=-1
    )
    recording = record(base)
    full = run(base)
    timed = Replay(recording).time(load_cluster("sylvie-2x8"))
    assert timed.simulation.peak_memory == full.epochs[-1]["peak_memory"] and not timed.simulation.too_large
    assert asdict(timed.simulation.fullest) == full.facts["memory"]
    memory = recording.memory
    for rank in (memory.rank, 1 - memory.rank):  # 20 GB fit an RTX 3090 (24 GiB), not a V100
        peaks = [20 * 10**9 if r == rank else 10**6 for r in range(2)]
        large = Replay(msgspec.structs.replace(recording, memory=msgspec.structs.replace(memory, peaks=peaks)))
        assert not large.time(load_cluster("sylvie-2x8")).simulation.too_large
        found = large.time(load_cluster("bns-32x6v100")).simulation.too_large
        assert found.startswith(f"1 rank does not fit: rank {rank} needs 20.0 GB") and "its device has 1" in found
        assert ("in all 20.0 GB" in found) == (rank != memory.rank)


def _sent(epoch: dict[str, Any]) -> int:
    found = epoch["bytes"]
    return int(sum(found["forward"]) + sum(found["backward"]) + found["reduce"] + found["other"])


@pytest.mark.parametrize("method", ["adaqp:period=3:group=4", "distgnn:delay=4", "ec-graph:period=3"])
def test_a_typical_epoch_of_a_periodic_method(method: str) -> None:
    """The means of whole periods, after the epochs whose traffic depends on the beginning."""
    cut = {"partitioner": "ebv"} if method.startswith("distgnn") else {}
    base = config(method, mode="sim", epochs=17, cluster=HERE, **cut)
    settled = settled_epochs(base)
    timed = Replay(record(base)).time(load_cluster(HERE))
    seconds, sent = timed.typical(base)
    counted = settled.of(17)
    assert counted.start == settled.first > 1 and len(counted) % settled.cycle == 0 and settled.cycle > 1
    later = timed.epochs[counted.start : counted.stop]
    assert seconds["epoch"] == pytest.approx(np.mean([e["seconds"]["epoch"] for e in later]), rel=1e-12)
    assert sent == round(np.mean([_sent(epoch) for epoch in later]))
    assert sent != round(np.mean([_sent(epoch) for epoch in timed.epochs[1:]])), "the beginning sends otherwise"


def test_a_typical_epoch_of_a_cache_that_fills() -> None:
    base = config("cdfgnn:bits=8", mode="sim", epochs=8, cluster=HERE)
    timed = Replay(record(base)).time(load_cluster(HERE))
    median, sent = timed.typical(base)
    later = timed.epochs[settled_epochs(base).first :]
    assert settled_epochs(base).first == 3 and len(later) == 5
    assert median["epoch"] == sorted(e["seconds"]["epoch"] for e in later)[2]
    assert sent == round(np.mean([_sent(epoch) for epoch in later]))


@pytest.mark.parametrize("method", ["vanilla", "sylvie-a", "bns-gcn:p=0.5"])
def test_what_compute_times_rest_on_is_known_without_a_run(method: str) -> None:
    """Seconds by the source of their costs, as the full simulation adds them up."""
    base = config(method, mode="sim", epochs=3, cluster=HERE, eval_every=-1)
    replay = Replay(record(base))
    for name in (HERE, "h100-8:hosts.device=h100-80gb-vm"):
        job, prepared = make_job(plan_of(base))
        full = simulate(program(job), place(load_cluster(name), 3), seed=base.training.seed, skew=prepared.totals.skew)
        found = replay.source_seconds(load_cluster(name))
        assert found == pytest.approx(full.source_seconds) and sum(found.values()) > 0
    assert found.get("measured", 0.0) > 0.5 * sum(found.values()), "an H100 that was measured"


def test_recordings_hold_a_settled_period() -> None:
    texts = ("vanilla", "sylvie-a", "ec-graph", "adaqp", "adaqp:bits=8", "distgnn:delay=5", "cdfgnn:bits=1", "pipegcn")
    found = {text: settled_epochs(config(text)) for text in texts}
    assert {text: (each.first, each.recorded) for text, each in found.items()} == {
        "vanilla": (1, 2), "sylvie-a": (2, 3), "ec-graph": (12, 22), "adaqp": (50, 100), "adaqp:bits=8": (1, 2),
        "distgnn:delay=5": (10, 15), "cdfgnn:bits=1": (14, 15), "pipegcn": (2, 3),
    }  # fmt: skip
    too_few = found["ec-graph"].of(13)
    assert too_few == range(1, 13) and found["ec-graph"].of(1) == range(1) and found["vanilla"].of(5) == range(1, 5)


def test_cuda_graphs_are_timed_once_they_are_recorded() -> None:
    """Epochs 0 to 2 launch every operator; a recording for what-if and intervals reaches beyond them."""
    base = config("vanilla", mode="sim", cluster="h200-1", parts=1)
    graphs = base.changed(cuda_graphs=True, epochs=settled_epochs(base.changed(cuda_graphs=True)).recorded)
    assert settled_epochs(graphs).first == 3
    one_by_one = Replay(record(base.changed(epochs=4))).time(load_cluster("h200-1")).typical(base)[0]
    launched = Replay(record(graphs)).time(load_cluster("h200-1")).typical(graphs)[0]
    assert launched["epoch"] < 0.7 * one_by_one["epoch"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "cannot read recording"),
        (b"\x80\x04\x95 the start of a pickle", "cannot read recording"),
        (b"x\x9c\x03\x00\x00\x00\x00\x01", "cannot read recording"),
        (None, "No such file"),
    ],
)
def test_what_is_no_recording_is_refused(content: bytes | None, says: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.rec"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=says):
        load_recording(path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    _, recording = recorded(busy, 3, load_cluster("ethernet-1g"))
    path = tmp_path / "old.rec"
    msgspec.structs.replace(recording, format=0).save(path)
    with pytest.raises(InputError, match="format 0"):
        load_recording(path)


def test_too_few_devices_are_refused() -> None:
    _, recording = recorded(busy, 3, load_cluster("ethernet-1g"))
    with pytest.raises(InputError, match="takes 2 ranks"):
        Replay(recording).time(load_cluster("ethernet-1g:hosts.count=2"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ethernet-1g:links.nic.bandwith=1Gb/s", "did you mean 'bandwidth'"),
        ("ethernet-1g:faster", "is not KEY=VALUE"),
        ("ethernet-1g:links.nic.bandwidth=5", "must be a string with a unit"),
        ("ethernet-1g:name.first=x", "name is not a table"),
        ("ethernet-2g:hosts.count=2", "ethernet-1"),
    ],
)
def test_changes_to_a_cluster_that_make_no_sense(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        load_cluster(text)


def test_changes_to_a_cluster() -> None:
    cluster = load_cluster("ethernet-1g:links.nic.bandwidth=25GB/s:hosts.count=4:hosts.spread=true")
    assert cluster.links["nic"].bandwidth.value == 25e9 and cluster.links["nic"].bandwidth.source == "assumed"
    assert cluster.hosts == 4 and cluster.spread
    assert cluster.name == "ethernet-1g:links.nic.bandwidth=25GB/s:hosts.count=4:hosts.spread=true"
    with pytest.raises(InputError, match="unknown link"):
        varied(cluster, "nicc", "bandwidth", 1.0)
