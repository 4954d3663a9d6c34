"""Records of all ranks reach rank 0 whole, in pieces of any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import loopback
from harness.effects import Rows
from harness.rank import Rank
from harness.running.results import RankEpoch, RankResult
from real.launch._gathered import gather_bytes, packed, unpacked


@settings(deadline=None, max_examples=30)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.integers(1, 60))
def test_every_rank_s_bytes_arrive(data: list[bytes], at_once: int) -> None:
    async def program(rank: Rank) -> list[bytes]:
        return await gather_bytes(rank, data[rank.index], at_once)

    found = loopback.run_ranks(program, len(data))
    assert found == [data, *([[]] * (len(data) - 1))]


def test_rank_0_receives_no_more_at_once_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = list[int]()
    original = Rank.all_to_all

    def counting(rank: Rank, rows: list[Rows], *more: object, **named: object) -> object:
        sent.append(rows[0].tensor.numel() * rows[0].tensor.element_size())
        return original(rank, rows, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Rank, "all_to_all", counting)

    async def program(rank: Rank) -> int:
        return sum(map(len, await gather_bytes(rank, bytes(1000), 400)))

    assert loopback.run_ranks(program, 4)[0] == 4000
    assert max(sent) <= 100


records = st.lists(
    st.builds(
        RankEpoch,
        epoch=st.integers(0, 99),
        loss=st.none() | st.floats(allow_nan=False),
        seconds=st.just({"epoch": 1.0}),
        layers=st.just({"forward": {0: 3}}),
        to=st.sampled_from([np.arange(3).tobytes(), np.zeros(3, np.int64).tobytes()]),
        counts=st.none(),
        peak_memory=st.integers(0, 9),
    ),
    max_size=5,
)


@given(records, st.integers(0, 3))
def test_a_record_is_unpacked_as_it_was(epochs: list[RankEpoch], host: int) -> None:
    result = RankResult(2, epochs, {"cut": "edge"})
    assert unpacked(packed(result, host)) == (result, host)


def test_what_repeats_is_sent_and_kept_once() -> None:
    to = np.arange(1000).tobytes()
    epochs = [RankEpoch(epoch, 1.0, {}, {}, bytes(bytearray(to)), None, 0) for epoch in range(50)]
    data = packed(RankResult(0, epochs), 0)
    assert len(data) < 2 * len(to)
    assert len({id(epoch.to) for epoch in unpacked(data)[0].epochs}) == 1
