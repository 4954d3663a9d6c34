"""What-if with other devices and libraries: variants, refused ones, and times equal to those of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import cli
from harness.config import RunConfig
from harness.errors import InputError
from harness.running import make_job, plan_of, program
from sims.cluster import Cluster, file_of_line, load_cluster, place
from sims.engine import simulate
from sims.replay import Replay, record
from sims.study import open_driver, variants
from sims.study._variants import HOST_MEMORY
from sims.transport._gloo import Gloo

GRAPH = "synthetic:nodes=3000,degree=16,classes=4,features=64"
CONFIG = RunConfig.of(
    dataset=GRAPH, layers=2, hidden=256, partitioner="hash", parts=4, mode="sim", epochs=2, eval_every=-1,
    shapes_only=True, cluster="cdfgnn-2x8a800",
)  # fmt: skip


def test_the_cluster_itself_comes_first_and_unchanged() -> None:
    cluster = load_cluster("sylvie-2x8")
    (alone,) = variants(cluster, [], [])
    assert alone.cluster is cluster and alone.label == "" and alone.device == "rtx-3090" and not alone.notes
    assert [v.label for v in variants(cluster, ["rtx-3090"], ["gloo"])] == [""], "its own are no variants"
    labels = [v.label for v in variants(cluster, ["l4", "a100-80gb"], ["grpc"])]
    assert labels == [
        "", "on l4", "on a100-80gb", "over grpc", "on l4 over grpc", "on a100-80gb over grpc",
    ]  # fmt: skip


def test_what_another_library_needs_is_that_of_a_named_cluster() -> None:
    cluster = load_cluster("h100-8")
    (over,) = variants(cluster, [], ["gloo"])[1:]
    assert over.cluster.transport == load_cluster(Gloo.software).transport
    assert over.cluster.links["loopback"] == load_cluster(HOST_MEMORY).links["loopback"]
    assert {name: over.cluster.links[name] for name in cluster.links} == cluster.links
    assert len(over.notes) == 2 and all(name in " ".join(over.notes) for name in (Gloo.software, HOST_MEMORY))
    (back,) = variants(load_cluster("sylvie-2x8"), [], ["nccl"])[1:]
    assert len(back.notes) == 1 and not place(back.cluster, 16).staged


@pytest.mark.parametrize(
    ("cluster", "devices", "transports", "says"),
    [
        ("ethernet-10g", ["l4"], [], r"no links.bus, .* l4 .*--cluster ethernet-10g:links.bus.bandwidth=24GB/s"),
        ("ethernet-10g", [], ["nccl"], "cpu-epyc-1core is a CPU; give gloo or grpc"),
        ("h100-8", ["cpu-epyc-1core"], [], "cpu-epyc-1core is a CPU; give gloo or grpc"),
        ("h100-8", ["l5"], [], "unknown device 'l5'; did you mean 'l4'"),
        ("h100-8", [], ["glo"], "unknown transport 'glo'; did you mean 'gloo'"),
    ],
)
def test_what_cannot_be_is_refused(cluster: str, devices: list[str], transports: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        variants(load_cluster(cluster), devices, transports)


LINE = "hosts=2,devices=2,device=a100-80gb,nic=100Gb/s"


@pytest.mark.parametrize("cluster", [LINE, f"{LINE},library=gloo", f"{LINE},library=grpc", "file"])
def test_gpus_without_a_bus_are_not_simulated(cluster: str, tmp_path: Path) -> None:
    """Their copies to host memory and back would take no time."""
    says = rf"no links.bus, .*24GB/s is typical.*--cluster {cluster},bus=24GB/s"
    if cluster == "file":
        text = file_of_line(f"{LINE},library=gloo", "mine", "")
        cluster, says = str(tmp_path / "mine.toml"), "no links.bus, .*--cluster mine:links.bus.bandwidth=24GB/s"
        Path(cluster).write_text(text)
    with pytest.raises(InputError, match=says):
        open_driver(CONFIG.changed(cluster=cluster))
    assert open_driver(CONFIG.changed(cluster=f"{LINE},library=gloo,bus=24GB/s")).cluster.links["bus"]


def test_combinations_that_cannot_be_are_left_out_where_others_serve() -> None:
    cluster = load_cluster("ethernet-10g:links.bus.bandwidth=12GB/s:links.bus.latency=5us")
    labels = [v.label for v in variants(cluster, ["l4"], ["nccl"])]
    assert labels == ["", "on l4", "on l4 over nccl"], "a CPU has no NCCL"


@pytest.mark.parametrize("method", ["vanilla", "sylvie-s:bits=1"])
def test_a_variant_is_timed_as_a_run_on_it(method: str) -> None:
    """A recording made on the original cluster is timed exactly with another device and library."""
    replay = Replay(record(CONFIG.changed(method=method)))
    found = variants(load_cluster(CONFIG.cluster.name), ["l4", "cpu-epyc-1core"], ["gloo"])
    assert [v.label for v in found][-1] == "on cpu-epyc-1core over gloo"
    compute = []
    for variant in found:
        seconds = simulated(CONFIG.changed(method=method), variant.cluster)
        assert [epochs[1] for epochs in replay.simulator(variant.cluster).run().results] == seconds
        compute.append(seconds[0]["compute"])
    assert compute[1] > compute[0], "an L4 is slower than an A800"
    assert compute[-1] > 10 * compute[0], "and one CPU core is much slower"


def simulated(config: RunConfig, cluster: Cluster) -> list[dict[str, float]]:
    """Every rank's seconds of the second epoch, simulated in full."""
    job, _ = make_job(plan_of(config))
    results = simulate(
        program(job), place(cluster, config.cut.parts), shapes_only=True, seed=config.training.seed,
        deterministic=config.run.deterministic,
    ).results  # fmt: skip
    return [result.epochs[1].seconds for result in results]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["what-if", "--methods", "vanilla,sylvie-s", "--bits", "1", "--dataset", GRAPH, "--parts", "2"]
    argv += ["--partitioner", "hash", "--cluster", "cdfgnn-2x8a800", "--points", "2", "--shapes-only"]
    argv += ["--order", "aggregate-first"]
    argv += ["--devices", "l4", "--transports", "gloo", "--out", str(tmp_path / "out")]
    assert cli.main([*argv, "--json", "-"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    keys = {(row["method"], row["variant"], row["device"], row["transport"]) for row in found["rows"]}
    assert len(keys) == 2 * 4 and ("sylvie-s:bits=1", "on l4 over gloo", "l4", "gloo") in keys
    assert err.count("recording vanilla") >= 1 and "software costs are those of cluster ethernet-10g" in err
    said = "\n".join(found["said"])
    assert (
        "1-bit sylvie-s on l4 over gloo" in said and "vanilla over gloo" in said and "as fast as vanilla on l4" in said
    )
    assert (tmp_path / "out" / "what-if.png").stat().st_size > 10_000
    assert len(list((tmp_path / "out" / "recordings").iterdir())) == 2, "a variant needs no recording of its own"
    assert cli.main([*argv, "--devices", "l5"]) == 2 and "unknown device 'l5'" in capsys.readouterr().err
