"""What a rank of a real run asks of the prepared data."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from harness.config import RunConfig
from real.launch import _execute as executing


@pytest.mark.parametrize(
    ("rank", "local", "per_host", "ranks"), [(2, 0, 2, [2, 3]), (3, 1, 2, [3]), (0, 0, 4, [0, 1, 2, 3]), (3, 3, 4, [3])]
)
def test_the_first_rank_of_a_host_looks_for_the_parts_of_its_host_and_others_for_their_own(
    rank: int, local: int, per_host: int, ranks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", str(local))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(per_host))
    connected = SimpleNamespace(size=4, rank=rank, host_by_host=nullcontext)
    asked = list[Sequence[int]]()

    def make_job(*arguments: Any) -> None:
        asked.append(arguments[-1])
        raise InterruptedError

    monkeypatch.setattr(executing.connection, "connect", lambda **_: nullcontext(connected))
    monkeypatch.setattr(executing, "make_job", make_job)
    with pytest.raises(InterruptedError):
        executing.run_rank(RunConfig.of(parts=4))
    assert [list(found) for found in asked] == [ranks]
