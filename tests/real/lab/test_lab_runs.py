"""Training in the lab: results equal to other modes, and bytes by pair of hosts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from harness.config import RunConfig
from harness.running import run
from harness.running.results import Result
from tests.support.labs import namespaces_of, needs_lab

pytestmark = pytest.mark.processes

DATA = "synthetic:nodes=90,degree=6,classes=3,features=8"


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    needs_lab()
    yield
    assert namespaces_of(os.getpid()) == []


def both(cluster: str, parts: int) -> tuple[Result, Result]:
    """The same two epochs in the lab and in this process."""
    config = RunConfig.of(dataset=DATA, cluster=cluster, parts=parts, epochs=2, eval_every=1, threads=1, mode="real")
    return run(config), run(config.changed(mode="loopback"))


def outcomes(result: Result) -> list[object]:
    return [(epoch["loss"], epoch["train"], epoch["val"], epoch["test"]) for epoch in result.epochs]


def total(epoch: dict[str, Any]) -> int:
    counts = epoch["bytes"]
    return int(sum(counts["forward"]) + sum(counts["backward"]) + counts["reduce"] + counts["other"])


def test_three_hosts() -> None:
    real, alone = both("lab:2x100mbit,20mbit", 3)
    assert real.state == "done" and outcomes(real) == outcomes(alone)
    for there, here in zip(real.epochs, alone.epochs, strict=True):
        tiers = there["bytes"]["tiers"]
        assert tiers["loopback"] == 0 and tiers["ethernet"] == total(there) == total(here) > 0


def test_two_ranks_on_a_host_and_one_on_another() -> None:
    real, alone = both("lab:2x100mbit:ranks=2", 3)
    assert real.state == "done" and outcomes(real) == outcomes(alone)
    for there, here in zip(real.epochs, alone.epochs, strict=True):
        tiers = there["bytes"]["tiers"]
        assert tiers["loopback"] > 0 and tiers["ethernet"] > 0
        assert sum(tiers.values()) == total(there) == total(here)
