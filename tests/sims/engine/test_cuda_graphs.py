"""Modelled epochs that are recorded as CUDA graphs: what they cost the host, and from which epoch on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.config import RunConfig, from_mapping
from harness.errors import InputError
from harness.running import run
from harness.static_epochs import BEFORE_RECORDING
from sims.cluster import load_cluster
from sims.device import load_device
from sims.replay import Replay, record

EPOCHS = BEFORE_RECORDING + 6
TINY = "synthetic:nodes=60,degree=4,features=8,classes=4,seed=1"


def _config(**values: object) -> RunConfig:
    base = {"dataset": TINY, "method": "single", "parts": 1, "hidden": 8, "layers": 3, "epochs": EPOCHS}
    return from_mapping({**base, "eval_every": -1, "mode": "sim", "cluster": "h200-1", **values})


def _seconds(**values: object) -> list[float]:
    return [epoch["seconds"]["epoch"] for epoch in run(_config(**values)).epochs]


@pytest.mark.parametrize("shapes_only", [False, True])
def test_epochs_after_the_recorded_one_cost_a_graph_for_every_exchange(shapes_only: bool) -> None:
    plain, graphs = _seconds(shapes_only=shapes_only), _seconds(shapes_only=shapes_only, cuda_graphs=True)
    assert graphs[: BEFORE_RECORDING + 1] == pytest.approx(plain[: BEFORE_RECORDING + 1], rel=1e-9)
    # two exchanges forwards, two backwards and the gradients; this graph is bound by the host
    assert graphs[BEFORE_RECORDING + 1 :] == pytest.approx(
        [5 * load_device("h200-141gb-vm").graph_seconds()] * 5, rel=0.05
    )


def test_a_busy_device_hides_what_the_host_does() -> None:
    large: dict[str, Any] = {"dataset": TINY.replace("60", "3000"), "hidden": 4096, "shapes_only": True}
    plain, graphs = (_seconds(**large, cuda_graphs=on)[-1] for on in (False, True))
    assert graphs == pytest.approx(plain, rel=0.35) and graphs <= plain
    assert graphs > 20 * 5 * load_device("h200-141gb-vm").graph_seconds() / 10


def test_bytes_and_losses_are_the_same() -> None:
    plain, graphs = (run(_config(method="vanilla", parts=4, cluster="h100-8", cuda_graphs=on)) for on in (False, True))
    assert [(e["loss"], e["bytes"]) for e in plain.epochs] == [(e["loss"], e["bytes"]) for e in graphs.epochs]
    assert graphs.epochs[-1]["seconds"]["epoch"] < plain.epochs[-1]["seconds"]["epoch"]


def test_a_replayed_recording_costs_the_same() -> None:
    config = _config(cuda_graphs=True)
    timed = Replay(record(config)).time(load_cluster("h200-1"))
    assert [e["seconds"]["epoch"] for e in timed.epochs] == pytest.approx(_seconds(cuda_graphs=True), rel=1e-9)


@pytest.mark.parametrize(("cluster", "why"), [("ethernet-1g", "is no GPU"), ("h100-1", "give it `graph`")])
def test_devices_without_graphs_are_refused(cluster: str, why: str) -> None:
    with pytest.raises(InputError, match=f"--cuda-graphs: device .* {why}"):
        run(_config(cluster=cluster, cuda_graphs=True))


def test_a_method_whose_epochs_differ_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cuda-graphs.*pipegcn"):
        run(_config(method="pipegcn", parts=2, cluster="h100-8", cuda_graphs=True))
