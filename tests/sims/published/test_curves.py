"""Published curves: files that are well formed, and predictions that stay as good as they are."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from urllib.parse import urlparse

import numpy as np
import pytest

from benchmarks.nccl_ablations import ABLATIONS
from harness.errors import InputError
from sims.cluster import place
from sims.published import (
    CURVE_OPERATIONS,
    Prediction,
    PublishedCurve,
    errors_of,
    load_curves,
    machine_of,
    predict,
)
from sims.published._curves import FOLDER

MIB = 1 << 20
CURVES = {curve.name: curve for curve in load_curves()}

MOST = {
    "abci-a100-8-all-reduce": (0.30, 0.60),
    "abci-a100-2x8-all-reduce": (0.40, 0.80),
    "abci-a100-4x8-all-reduce": (0.40, 0.60),
    "oci-a100-2x8-all-reduce": (0.45, 0.30),
    "hgx-h100-8-all-reduce": (None, 0.10),
    "hgx-h100-2x8-all-reduce": (0.20, 0.25),
    "hgx-h100-4x8-all-reduce": (0.20, 0.30),
    "nebius-h100-2x8-all-reduce": (0.30, 0.30),
    "a3mega-h100-2x8-all-reduce": (0.70, 0.70),
    "abci-v100-4-all-reduce": (0.30, 0.20),
    "abci-v100-2x4-all-reduce": (0.25, 0.40),
    "abci-v100-8x4-all-reduce": (0.20, 0.40),
    "rtx2080ti-2-all-reduce": (0.15, 0.40),
    "rtx2080ti-2-broadcast": (0.15, 0.15),
    "rtx2080ti-2-all-to-all": (0.30, 0.30),
    "abci-a100-8-broadcast": (0.15, 0.35),
    "abci-a100-2x8-broadcast": (0.50, 0.80),
    "abci-v100-4-broadcast": (0.45, 0.40),
    "nig-v100-2x2-all-to-all": (0.30, 0.45),
    "leonardo-a100-2-send-receive": (0.30, 0.40),
    "openmpi-10g-send-receive": (0.45, 0.60),
    "juno-gigabit-send-receive": (0.80, 0.15),
}
"""Curve -> most median error up to 1 MiB and over it (None: no such sizes), of every second size."""


@cache
def predicted(name: str) -> Prediction:
    """Every second size of a curve, its largest among them."""
    curve = CURVES[name]
    some = slice((len(curve.nbytes) - 1) % 2, None, 2)
    return predict(replace(curve, nbytes=curve.nbytes[some], seconds=curve.seconds[some]))


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_a_curve_says_what_was_timed_on_which_machine(curve: PublishedCurve) -> None:
    assert curve.operation in CURVE_OPERATIONS
    address = urlparse(curve.source)
    assert address.scheme == "https" and "." in address.netloc and len(address.path) > 1
    assert curve.software
    cluster = machine_of(curve)
    assert cluster.hosts * cluster.devices >= curve.ranks and curve.launches <= cluster.devices
    assert int(place(cluster, curve.ranks).ranks_on_host.sum()) == curve.ranks
    assert bool(curve.launches) == (cluster.transport.kind == "nccl"), "kernels are launched on GPUs"
    assert all(link.bandwidth.source != "measured" for link in cluster.links.values()), "nothing fitted"


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_sizes_ascend_and_rates_are_possible(curve: PublishedCurve) -> None:
    """Microseconds, not milli- or nanoseconds: nothing ends below 1 us or moves faster than the fastest NVLinks do.

    Over 1 MiB more bytes take longer, but for a change of algorithm; a mistyped line would show.
    """
    assert (np.diff(curve.nbytes) > 0).all() and len(curve.nbytes) > 5
    assert curve.seconds.min() > 1e-6 and curve.seconds.max() < 1
    assert (curve.nbytes / curve.seconds).max() < 900e9
    large = curve.seconds[curve.nbytes > MIB]
    assert (large[1:] > 0.75 * large[:-1]).all()


def test_machines_are_all_used() -> None:
    files = {path.stem for path in (FOLDER / "machines").glob("*.toml")}
    assert files <= {curve.machine for curve in CURVES.values()}


def test_a_line_is_bytes_and_microseconds() -> None:
    line = (FOLDER / "curves" / "abci-a100-8-all-reduce.csv").read_text().splitlines()[1]
    curve = CURVES["abci-a100-8-all-reduce"]
    assert line == "4,17.29" and (curve.nbytes[0], curve.seconds[0]) == (4, pytest.approx(17.29e-6))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size,us\n8,1\n", "must have the columns bytes,us"),
        ("bytes,us\n", "at least one row"),
        ("bytes,us\n8,fast\n", "not a whole number of bytes"),
        ("bytes,us\n8\n", "not a whole number of bytes"),
        ("bytes,us\n16,1\n8,1\n", "sizes must ascend"),
        ("bytes,us\n0,1\n8,1\n", "more than 0"),
        ("bytes,us\n8,0\n", "more than 0"),
    ],
)
def test_tables_are_checked(tmp_path: Path, text: str, message: str) -> None:
    copied(tmp_path)
    (tmp_path / "curves" / "hgx-h100-8-all-reduce.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        load_curves(tmp_path)


def test_entries_are_checked(tmp_path: Path) -> None:
    copied(tmp_path)
    entries = tmp_path / "curves.toml"
    text = entries.read_text()
    entries.write_text(text.replace('operation = "broadcast"', 'operation = "brodcast"', 1))
    with pytest.raises(InputError, match="broadcast"):
        load_curves(tmp_path)
    entries.write_text(text)
    (tmp_path / "curves" / "another.csv").write_text("bytes,us\n8,1\n")
    with pytest.raises(InputError, match="another has a table in curves.toml or a file in curves, not both"):
        load_curves(tmp_path)


def copied(folder: Path) -> None:
    """The shipped files in a folder of the test's own."""
    shutil.copytree(FOLDER / "curves", folder / "curves")
    shutil.copy(FOLDER / "curves.toml", folder)


# -- predictions -------------------------------------------------------------------------------------------------------


def test_every_curve_has_a_bound() -> None:
    assert list(MOST) == list(CURVES)


@pytest.mark.parametrize("name", CURVES)
def test_predictions_are_as_good_as_they_were(name: str) -> None:
    for most, (low, high) in zip(MOST[name], ((0, MIB), (MIB, np.inf)), strict=True):
        errors = errors_of([predicted(name)], low, high)
        assert bool(errors.points) == (most is not None)
        assert most is None or errors.median <= most


def test_all_curves_together() -> None:
    every = [predicted(name) for name in CURVES]
    assert errors_of(every, 0, MIB).median <= 0.30
    assert errors_of(every, MIB).median <= 0.28


def test_peaks_on_hosts_of_h100_follow_from_their_links() -> None:
    """The largest sizes, where only bandwidth is left: 8, 16 and 32 devices."""
    for name in ("hgx-h100-8-all-reduce", "hgx-h100-2x8-all-reduce", "hgx-h100-4x8-all-reduce"):
        assert abs(predicted(name).error[-1]) < 0.06


def test_launches_of_a_queue_overlap_with_kernels() -> None:
    """A small operation takes as long as the launches of all devices of its process, or as it runs."""
    curve = replace(CURVES["rtx2080ti-2-all-reduce"], nbytes=np.asarray([8]), seconds=np.asarray([12e-6]))
    runs = predict(replace(curve, launches=0)).seconds[0]
    assert predict(curve).seconds[0] == pytest.approx(max(2 * 6e-6, runs))
    assert predict(replace(curve, launches=20)).seconds[0] == pytest.approx(20 * 6e-6)
    assert predict(curve, queued=False).seconds[0] == pytest.approx(6e-6 + runs)


def test_broadcasts_of_a_queue_overlap_where_senders_do_not_wait() -> None:
    """8 bytes under LL: a hop instead of seven. 32 MiB under Simple: all hops."""
    curve = replace(CURVES["abci-a100-8-broadcast"], nbytes=np.asarray([8, 2**25]), seconds=np.asarray([1e-5, 1e-3]))
    queued, alone = predict(curve).seconds, predict(curve, queued=False).seconds
    assert queued[0] == pytest.approx(6.6e-6 + 0.6e-6, rel=1e-2)
    assert alone[0] == pytest.approx(6e-6 + 6.6e-6 + 7 * 0.6e-6, rel=1e-2)
    assert alone[1] - queued[1] == pytest.approx(6e-6)
    assert queued[1] == pytest.approx(8.4e-6 + 7 * 3.4e-6 + 2**25 / 240e9, rel=1e-2)


@pytest.mark.parametrize(
    ("mechanism", "name", "nbytes", "slower"),
    [
        ("sums in NVLink switches", "hgx-h100-8-all-reduce", 2**30, True),
        ("few channels for small tensors", "abci-v100-4-all-reduce", 2**16, False),
        ("rings over every link of a mesh", "abci-v100-4-all-reduce", 2**25, True),
        ("start and protocols of grouped sends", "rtx2080ti-2-all-to-all", 2**12, False),
    ],
)
def test_leaving_out_a_mechanism_changes_what_it_is_for(mechanism: str, name: str, nbytes: int, slower: bool) -> None:
    curve = replace(CURVES[name], nbytes=np.asarray([nbytes]), seconds=np.asarray([1e-3]))
    without = predict(curve, library=ABLATIONS[mechanism]).seconds[0]
    assert without > 1.05 * predict(curve).seconds[0] if slower else without < 0.95 * predict(curve).seconds[0]


def test_every_mechanism_is_tested() -> None:
    mark = test_leaving_out_a_mechanism_changes_what_it_is_for.pytestmark[0]  # type: ignore[attr-defined]
    assert {row[0] for row in mark.args[1]} == set(ABLATIONS)


def test_errors_are_of_the_sizes_asked_for() -> None:
    curve = replace(CURVES["hgx-h100-8-all-reduce"], nbytes=np.asarray([1, 10, 100]), seconds=np.ones(3))
    prediction = Prediction(curve, np.asarray([0.5, 1.1, 1.2]))
    assert prediction.error == pytest.approx([-0.5, 0.1, 0.2])
    found = errors_of([prediction], 1, 100)
    assert (found.points, found.median) == (2, pytest.approx(0.15))
    assert found.most == pytest.approx(0.19)
    assert errors_of([prediction], 0, 1).median == pytest.approx(0.5)
    assert errors_of([prediction], 100).points == 0 and errors_of([]).points == 0
