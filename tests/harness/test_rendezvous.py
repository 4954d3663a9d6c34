"""What an all-to-all gives every rank does not depend on how many ranks' counts are compared at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harness import rendezvous
from harness.effects import AllToAll, Rows, Tag
from harness.errors import ProgramError

SENT = np.asarray([[0, 1, 2, 3, 4], [5, 0, 6, 7, 8], [9, 1, 0, 2, 3], [4, 5, 6, 0, 7], [8, 9, 1, 2, 0]])
"""Rows from every rank (row) to every other."""


def effects(known: bool, device: str) -> list[AllToAll]:
    """The ranks' all-to-alls; a row has the numbers of its sender and receiver."""
    made = []
    for rank, send in enumerate(SENT):
        rows = torch.tensor([[rank, to] for to, count in enumerate(send) for _ in range(count)], device=device)
        part = Rows(rows, send, np.ascontiguousarray(SENT[:, rank]) if known else None)
        made.append(AllToAll(tag=Tag("h", "forward", 0, 0), parts=(part,)))
    return made


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("at_a_time", [1, 2, 5, 256])
def test_every_rank_gets_its_rows(known: bool, device: str, at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "RECEIVERS", at_a_time)
    for rank, received in enumerate(rendezvous.deal(effects(known, device))):
        assert received.counts[0].tolist() == SENT[:, rank].tolist()
        assert received.tensors[0].shape == (SENT[:, rank].sum(), 2)
        if device == "cpu":
            assert received.tensors[0].tolist() == [
                [source, rank] for source in range(5) for _ in range(SENT[source, rank])
            ]


@pytest.mark.parametrize("at_a_time", [1, 2, 5, 256])
def test_a_rank_that_expects_other_rows_is_named(at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "RECEIVERS", at_a_time)
    made = effects(True, "meta")
    assert made[3].parts[0].recv is not None
    made[3].parts[0].recv[4] += 1
    with pytest.raises(ProgramError, match="rank 3 expects 3 rows from rank 4, which sends 2"):
        rendezvous.deal(made)
