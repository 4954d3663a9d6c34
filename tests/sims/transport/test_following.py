"""Collectives that follow one another cost less software than those after a stretch of compute."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness.rank import Rank
from sims.cluster import load_cluster
from sims.uncertainty import inputs_of
from sims.uncertainty._inputs import changed_cluster
from tests.support.simulated import LATENCY, plain, seconds_of, timed, work

SOFTWARE = """
[transport.measured.all_reduce]
2 = "3 ms"
[transport.following.all_reduce]
2 = "1 ms"
"""


def reduced(tmp_path: Path, computed: float, software: str = SOFTWARE, rested: str = "20 ms", cores: int = 0) -> float:
    """Seconds that the second of two all-reduces of nothing takes, `computed` seconds after the first."""
    cluster = plain(tmp_path, transport=f'rested = "{rested}"\n{software}')
    cluster = replace(cluster, cores=cores, one_machine=True)

    async def program(rank: Rank, count: int) -> None:
        for index in range(count):
            if index:
                work(rank, computed)
            await rank.all_reduce(torch.empty(0, device="meta"), label="g")

    both, first = (
        seconds_of(timed(lambda rank, count=count: program(rank, count), 2, cluster, shapes_only=True), 0)["reduce"]
        for count in (2, 1)
    )
    return both - first


@pytest.mark.parametrize(("computed", "seconds"), [(0.0, 1e-3), (10e-3, 2e-3), (20e-3, 3e-3), (1.0, 3e-3)])
def test_software_grows_with_the_time_since_the_last_one(tmp_path: Path, computed: float, seconds: float) -> None:
    assert reduced(tmp_path, computed) == pytest.approx(seconds, abs=4 * LATENCY)


def test_a_rank_may_need_no_rest(tmp_path: Path) -> None:
    assert reduced(tmp_path, 0.0, rested="0 ms") == pytest.approx(3e-3, abs=4 * LATENCY)


@pytest.mark.parametrize(("cores", "seconds"), [(1, 3e-3), (2, 1e-3)])
def test_threads_that_wait_for_a_core_are_not_warm(tmp_path: Path, cores: int, seconds: float) -> None:
    assert reduced(tmp_path, 0.0, cores=cores) == pytest.approx(seconds, abs=4 * LATENCY)


def test_without_such_costs_it_is_what_was_measured(tmp_path: Path) -> None:
    software = '[transport.measured.all_reduce]\n2 = "3 ms"\n'
    assert reduced(tmp_path, 0.0, software) == pytest.approx(3e-3, abs=4 * LATENCY)


def test_both_costs_of_a_kind_are_one_uncertain_input(tmp_path: Path) -> None:
    cluster = plain(tmp_path, transport=SOFTWARE)
    names = [each.name for each in inputs_of(cluster, {}) if each.name.startswith("transport.")]
    assert names == ["transport.measured.all_reduce"]
    spec = changed_cluster(cluster, {"transport.measured.all_reduce": 2.0}).transport
    assert (spec.seconds("all_reduce", 2), spec.seconds("all_reduce", 2, following=True)) == (6e-3, 2e-3)
    assert load_cluster("local").transport.following == {}
