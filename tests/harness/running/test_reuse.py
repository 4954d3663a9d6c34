"""Results are reused while all their inputs are unchanged, independent of modification times."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import cli
from harness.commands.shared.cells import finished, run_or_reuse
from harness.config import RunConfig
from harness.errors import InputError
from harness.running import open_run, prepare, results, run
from sims.cluster._load import CLUSTERS
from sims.device._profile import DEVICES

TINY = "synthetic:nodes=120,degree=6,classes=3,features=8"
DEVICE = (DEVICES / "cpu-epyc-1core.toml").read_text()
CLUSTER = (CLUSTERS / "ethernet-1g.toml").read_text().replace('"cpu-epyc-1core"', '"dev.toml"')
WORKLOAD = "[graph]\nnodes = {}\nedges = 8000\nfeatures = 8\nclasses = 3\ntrain = 500\n[parts]\ncut = 'hash'\n"


def older(path: Path, text: str) -> None:
    """Other content with an old modification time."""
    path.write_text(text)
    os.utime(path, (1e9, 1e9))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A cluster and the device that it names."""
    older(tmp_path / "lab.toml", CLUSTER)
    older(tmp_path / "dev.toml", DEVICE)
    return tmp_path / "lab.toml", tmp_path / "dev.toml"


@pytest.fixture
def reused(tmp_path: Path) -> Callable[..., bool]:
    """Run a config or reuse its result; returns whether it was reused."""

    def cell(**settings: Any) -> bool:
        config = RunConfig.of(**{"dataset": TINY, "epochs": 1, "mode": "sim", "eval_every": -1, **settings})
        return run_or_reuse(open_run(config), tmp_path / "out", quiet=True).reused

    return cell


def test_what_a_cluster_is_made_of(files: tuple[Path, Path], reused: Callable[..., bool]) -> None:
    cluster, device = files
    assert not reused(cluster=str(cluster)) and reused(cluster=str(cluster))
    older(device, DEVICE.replace('launch = { value = "', 'launch = { value = "1'))
    assert not reused(cluster=str(cluster)), "a device file that the cluster names"
    assert reused(cluster=str(cluster))
    older(cluster, CLUSTER.replace('"1 Gb/s"', '"2 Gb/s"'))
    assert not reused(cluster=str(cluster)), "the cluster's file"
    cluster.touch()
    assert reused(cluster=str(cluster)), "a newer file that says the same"


def test_a_device_that_the_command_line_names(
    tmp_path: Path, files: tuple[Path, Path], reused: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, device = files
    named = f"ethernet-1g:hosts.device={device}"
    assert not reused(cluster=named) and reused(cluster=named)
    older(device, DEVICE.replace('launch = { value = "', 'launch = { value = "1'))
    assert not reused(cluster=named)
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / device.name).write_text(device.read_text())
    monkeypatch.chdir(tmp_path)
    config = RunConfig.of(dataset=TINY, mode="sim", cluster="ethernet-1g:hosts.device=dev.toml")
    before = open_run(config).inputs()
    monkeypatch.chdir(moved)
    assert open_run(config).inputs() == before
    device.unlink()
    with pytest.raises(InputError, match="cannot read device file"):
        reused(cluster=named)


def test_the_graph(tmp_path: Path, reused: Callable[..., bool]) -> None:
    nodes, path = np.arange(8), tmp_path / "ring.npz"

    def write(labels: np.ndarray) -> None:
        edges = np.stack([nodes, (nodes + 1) % 8])
        split = {"train_idx": nodes[:4], "val_idx": nodes[4:6], "test_idx": nodes[6:]}
        np.savez(path, edge_index=edges, x=np.ones((8, 3), np.float32), x_shape=np.array([8, 3]), y=labels, **split)

    write(nodes % 2)
    assert not reused(dataset=str(path), mode="loopback") and reused(dataset=str(path), mode="loopback")
    path.touch()
    assert reused(dataset=str(path), mode="loopback"), "a newer file that holds the same"
    write(nodes % 4)
    os.utime(path, (1e9, 1e9))
    assert not reused(dataset=str(path), mode="loopback")


def test_rates_and_workloads(tmp_path: Path, reused: Callable[..., bool]) -> None:
    rates, counts = tmp_path / "rates.json", tmp_path / "counts.toml"
    record = run(RunConfig.of(dataset=TINY, method="cdfgnn", epochs=2, eval_every=-1)).to_dict()
    older(rates, json.dumps(record))
    shapes: dict[str, Any] = {"shapes_only": True, "method": "cdfgnn", "rates": str(rates), "cluster": "ethernet-1g"}
    assert not reused(**shapes) and reused(**shapes)
    for epoch in record["epochs"]:
        epoch["observed"] = {name: value / 2 for name, value in epoch["observed"].items()}
    older(rates, json.dumps(record))
    assert not reused(**shapes), "a file of --rates"
    described: dict[str, Any] = {"shapes_only": True, "dataset": str(counts), "cluster": "ethernet-1g"}
    older(counts, WORKLOAD.format(1000))
    assert not reused(**described) and reused(**described)
    older(counts, WORKLOAD.format(1001))
    assert not reused(**described)


def test_a_partition_that_a_workload_names(tmp_path: Path) -> None:
    described, parts = tmp_path / "counts.toml", tmp_path / "partition.json"
    described.write_text(WORKLOAD.format(1000).replace("cut = 'hash'", "partition = 'partition.json'"))
    config = RunConfig.of(dataset=str(described), shapes_only=True, mode="sim", cluster="ethernet-1g")
    older(parts, "{}")
    before = open_run(config).inputs()
    older(parts, '{"parts": []}')
    assert {name for name, found in open_run(config).inputs().items() if found != before[name]} == {"partition"}


def test_results_that_do_not_say_what_they_were_made_of(tmp_path: Path, reused: Callable[..., bool]) -> None:
    assert not reused(mode="loopback") and reused(mode="loopback")
    (path,) = (tmp_path / "out").glob("*.json")
    record = json.loads(path.read_text())
    del record["environment"]["inputs"]
    path.write_text(json.dumps(record))
    assert not reused(mode="loopback")


def test_what_did_not_fit_is_tried_again_on_another_device(files: tuple[Path, Path], tmp_path: Path) -> None:
    cluster, device = files
    older(device, DEVICE.replace('value = "24 GB"', 'value = "1 kB"'))
    grid, out = tmp_path / "grid.toml", tmp_path / "cells"
    grid.write_text(f'[run]\ndataset = "{TINY}"\nepochs = 1\nmode = "sim"\ncluster = "{cluster}"\neval_every = -1\n')

    def swept() -> tuple[int, dict[str, Any], int]:
        code = cli.main(["sweep", str(grid), "--out", str(out), "--jobs", "1", "--quiet"])
        (path,) = out.glob("*.json")
        return code, results.load_result(path), path.stat().st_mtime_ns

    code, record, when = swept()
    assert code == 1 and record["state"] == "out_of_memory"
    assert swept()[2] == when, "a verdict that still holds"
    older(device, DEVICE)
    code, record, _ = swept()
    assert code == 0 and record["state"] == "done"


def test_a_recording_of_other_rates_is_not_used_again(tmp_path: Path) -> None:
    rates = tmp_path / "rates.json"
    record = run(RunConfig.of(dataset=TINY, method="cdfgnn", epochs=2, eval_every=-1)).to_dict()
    argv = ["what-if", "--methods", "cdfgnn", "--dataset", TINY, "--shapes-only", "--rates", str(rates)]
    argv += ["--cluster", "ethernet-1g", "--points", "2", "--out", str(tmp_path / "what-if")]
    for halves in (1, 1, 2):
        for epoch in record["epochs"]:
            epoch["observed"] = {name: value / halves for name, value in epoch["observed"].items()}
        older(rates, json.dumps(record))
        assert cli.main(argv) == 0
    assert len(list((tmp_path / "what-if" / "recordings").glob("*.rec"))) == 2


@pytest.mark.processes
def test_measured_results_are_of_one_machine_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, flags = tmp_path / "out", ["--dataset", TINY, "--epochs", "1", "--mode", "real", "--eval-every", "-1"]
    command = ["run", *flags, "--parts", "1", "--threads", "1", "--out", str(out)]
    assert cli.main(command) == 0 and cli.main(command) == 0
    assert "finished earlier on " in capsys.readouterr().out
    (path,) = out.glob("*.json")
    record = json.loads(path.read_text())
    measured = record["environment"]["inputs"]
    assert measured.keys() == {"host", "libraries", "code", "method"} and "1 threads a rank" in measured["host"]
    for name in measured:
        changed = {**record, "environment": {**record["environment"], "inputs": {**measured, name: "another"}}}
        path.write_text(json.dumps(changed))
        opened = open_run(RunConfig.of(**record["config"]))
        assert finished(path, lambda opened=opened: opened) is None, name
        assert finished(path, lambda opened=opened: opened, reuse="any") == changed
    path.write_text(json.dumps({**record, "environment": {**record["environment"], "inputs": {"host": "elsewhere"}}}))
    assert cli.main([*command, "--reuse", "any"]) == 0
    assert "finished earlier on elsewhere" in capsys.readouterr().out
    assert cli.main(command) == 0
    assert "finished earlier" not in capsys.readouterr().out


BROKEN = {
    "utf8": b"\xff\xfe{",
    "bare": b'{"schema": 1}',
    "list": b"[]",
    "epochs": b'{"schema": 1, "run_id": "x", "state": "done", "epochs": 3}',
}


def test_what_is_not_a_result_is_named_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = RunConfig.of(dataset=TINY, epochs=2, mode="loopback", eval_every=-1)
    run(config).save(tmp_path)
    results.Result(config.changed(seed=5), "out_of_memory", [], message="too large").save(tmp_path)
    for name, content in BROKEN.items():
        (tmp_path / f"{name}.json").write_bytes(content)
        with pytest.raises(InputError, match=f"{name}.json"):
            results.load_result(tmp_path / f"{name}.json")
    assert cli.main(["collect", str(tmp_path), "--to", str(tmp_path / "all.csv")]) == 0
    said = capsys.readouterr().out
    assert "1 run, 2 epochs" in said and "left out, without epochs: 1" in said and "out_of_memory: too large" in said
    assert "left out, not results: 4" in said and all(f"{name}.json" in said.replace("\n", "") for name in BROKEN)


@pytest.mark.parametrize("content", [b"{}", b"\xff", b'{"train": 1}'])
def test_a_damaged_index_is_made_again(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path))
    config = RunConfig.of(dataset=TINY, parts=2)
    before = prepare(config).describe()
    (index,) = (tmp_path / "prepared").iterdir()
    index.write_bytes(content)
    assert prepare(config).describe() == before
