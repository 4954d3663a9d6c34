"""Ablations: every mechanism changes what it is about, on a model in which all of them count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from harness.config import RunConfig
from real.measure.link_probes import KINDS, following
from sims.cluster import load_cluster, place
from sims.device import OperatorCost, save_device
from sims.explain import MECHANISMS, at_pace, without
from sims.uncertainty import RecordedPrediction, predicted
from sims.units import Quantity
from tests.real.measure.test_calibrate import MEASURED, files


@pytest.fixture(scope="module", params=["4x100mbit", "4xunshaped", "2x100mbit"])
def foretold(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RecordedPrediction:
    return in_lab(request.param, "sylvie-a:quantiser=inline", tmp_path_factory.mktemp("calibration"))


def in_lab(name: str, method: str, folder: Path) -> RecordedPrediction:
    """Ranks of a lab on two cores that run a method, on a device with all kinds of costs."""
    ranks = int(name[0])
    links = {
        size: by_kind | {following(kind): msgspec.structs.replace(by_kind[kind], alpha=2e-5) for kind in KINDS}
        for size, by_kind in MEASURED["links"].items()
    }
    cores = {
        size: by_kind | {following(kind): msgspec.structs.replace(by_kind[kind], alpha=1e-5) for kind in KINDS}
        for size, by_kind in MEASURED["cores"].items()
    }
    device, _ = files(folder, {**MEASURED, "links": links, "cores": cores})
    cost = OperatorCost(Quantity(1e-5, "measured"), {}, {}, Quantity(0.1))
    made = replace(
        device, operators={"haloscope::gather_sum": cost}, crowding=Quantity(1.3), effect=Quantity(2e-4, "measured"),
        release=Quantity(1e9, "measured"), fresh=None, step=Quantity(5e-4, "measured"),
        idle={2: Quantity(2e-4, "measured"), 300: Quantity(4e-3, "measured")}, idle_factor=Quantity(3.0, "measured"),
    )  # fmt: skip
    save_device(made, folder / "device.toml")
    config = RunConfig.of(
        dataset="synthetic:nodes=2000,degree=8,classes=4,features=64", hidden=64, parts=ranks, threads=1, eval_every=-1,
        method=method, cluster=f"lab:{name}:calibration={folder}", mode="sim", epochs=6,
    )  # fmt: skip
    return predicted(config, place(load_cluster(config.cluster.name), ranks))


SLOW = {
    "frames around payload", "acknowledgements", "senders that are done before their receivers",
    "frames of shaped links on cores that ranks share",
}  # fmt: skip
"""Mechanisms that only count on shaped links, and"""

FAST = {"copies of all hosts by the same cores", "most that one process moves"}
"""on unshaped ones;"""

CROWDED = {
    "cores that ranks share", "caches of cores that ranks share", "seconds of cores of a collective",
    "copies between ranks on cores that these share", "frames of shaped links on cores that ranks share",
}  # fmt: skip
"""those of more ranks than cores;"""

ALONE = {"what hidden exchanges take of compute", "copies of all hosts by the same cores"}
"""those of ranks with a core each, in whose place copies take the cores that ranks share."""


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_changes_what_it_is_about(foretold: RecordedPrediction, mechanism: str) -> None:
    whole, less = without(foretold, "")["epoch"], without(foretold, mechanism)["epoch"]
    shaped, crowded = "mbit" in foretold.cluster.name, foretold.cluster.hosts > foretold.cluster.cores
    if mechanism in (FAST if shaped else SLOW) | (ALONE if crowded else CROWDED):
        assert less == pytest.approx(whole, rel=0.05)
    else:
        assert less != pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize("name", ["3x100mbit", "3xunshaped"])
def test_senders_that_are_done_first_count_in_broadcasts_over_shaped_links(name: str, tmp_path: Path) -> None:
    foretold = in_lab(name, "cagnet", tmp_path)
    whole, less = without(foretold, ""), without(foretold, "senders that are done before their receivers")
    if name == "3xunshaped":
        assert less == whole
    else:
        assert less["halo"] > 1.01 * whole["halo"], "ranks wait for what they send"


def test_a_slower_machine_takes_longer_but_its_links_do_not(foretold: RecordedPrediction) -> None:
    whole = without(foretold, "")
    assert at_pace(foretold, 1.0) == pytest.approx(whole)
    slower, crowded = at_pace(foretold, 2.0), foretold.cluster.hosts > foretold.cluster.cores
    # on shared cores, work that no longer fits into a turn waits for others before it ends, not before it begins
    assert 1.8 < slower["compute"] / whole["compute"] < (3.2 if crowded else 2.01)
    assert 1 < slower["epoch"] / whole["epoch"] < (2.1 if crowded else 2.01)
