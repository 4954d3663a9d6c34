"""Collectives that follow one another cost less software than those after a stretch of compute."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness.rank import Rank
from sims.cluster import load_cluster
from sims.cluster._software import TransportSpec
from sims.uncertainty import inputs_of
from sims.uncertainty._inputs import changed_cluster
from sims.units import Quantity
from tests.support.simulated import LATENCY, everyone_sends, plain, seconds_of, timed, work

SOFTWARE = """
[transport.measured.all_reduce]
2 = "3 ms"
[transport.following.all_reduce]
2 = "1 ms"
"""


def reduced(tmp_path: Path, computed: float, software: str = SOFTWARE, rested: str = "20 ms") -> float:
    """Seconds that the second of two all-reduces of nothing takes, `computed` seconds after the first."""
    cluster = plain(tmp_path, transport=f'rested = "{rested}"\n{software}')

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


@pytest.mark.parametrize(("computed", "more"), [(0.0, 0.0), (10e-3, 1e-3), (1.0, 2e-3)])
def test_hidden_exchanges_cost_less_too_where_they_follow_one_another(
    tmp_path: Path, computed: float, more: float
) -> None:
    """What a rank spends on one that it starts so long after another has ended: 1 ms, and more."""
    software = '[transport.measured.started]\n2 = "3 ms"\n[transport.following.started]\n2 = "1 ms"\n'
    cluster = plain(tmp_path, transport=f'rested = "20 ms"\n{software}')

    async def program(rank: Rank, apart: float) -> None:
        for index in range(2):
            if index:
                work(rank, apart)
            await rank.wait(await rank.start(rank.all_to_all(everyone_sends(rank, 0), label="x")))

    halos = [
        seconds_of(timed(lambda rank, apart=apart: program(rank, apart), 2, cluster, shapes_only=True), 0)["halo"]
        for apart in (0.0, computed)
    ]
    assert halos[1] - halos[0] == pytest.approx(more, abs=0.4 * LATENCY)


def test_a_rank_may_need_no_rest(tmp_path: Path) -> None:
    assert reduced(tmp_path, 0.0, rested="0 ms") == pytest.approx(3e-3, abs=4 * LATENCY)


@pytest.mark.parametrize(
    ("computed", "seconds"), [(0.0, 1e-3), (5e-3, 2e-3), (10e-3, 2.2e-3), (20e-3, 3e-3), (50e-3, 4e-3), (1.0, 5e-3)]
)
def test_how_it_grows_may_be_measured(tmp_path: Path, computed: float, seconds: float) -> None:
    """Half the way after 5 ms, 0.6 after 10, all of it after 20, twice as far from 80 ms on."""
    measured = SOFTWARE + "[transport.resting.2]\n5 = 0.5\n10 = 0.6\n80 = 2\n"
    assert reduced(tmp_path, computed, measured) == pytest.approx(seconds, abs=4 * LATENCY)


def test_of_other_numbers_of_ranks_the_nearest_counts() -> None:
    shares = {2: {10: Quantity(0.25)}, 4: {10: Quantity(0.75)}}
    spec = TransportSpec("gloo", rested=Quantity(20e-3), resting=shares)
    assert [spec.rested_share(ranks)(10e-3) for ranks in (2, 3, 4, 64)] == [0.25, 0.25, 0.75, 0.75]
    assert spec.rested_share(4)(15e-3) == pytest.approx(0.875) and spec.rested_share(4)(9.0) == 1.0


def test_a_collective_is_never_cheaper_for_rest(tmp_path: Path) -> None:
    """Where noise made the measured cost the smaller one."""
    software = SOFTWARE.replace("3 ms", "0.5 ms")
    assert reduced(tmp_path, 0.3, software) == pytest.approx(1e-3, abs=4 * LATENCY)


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
