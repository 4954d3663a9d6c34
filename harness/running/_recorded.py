"""What every rank has recorded so far, for the result of a run that fails."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.running.results import RankEpoch, RankResult, merge


class RecordedEpochs:
    """Records of the ranks by epoch; those of an epoch that is repeated after a restart replace the earlier ones."""

    def __init__(self, parts: int) -> None:
        self._records: list[dict[int, RankEpoch]] = [{} for _ in range(parts)]

    def add(self, rank: int, record: RankEpoch) -> None:
        """Keep the record of an epoch of one rank."""
        self._records[rank][record.epoch] = record

    def epochs(self, depth: int) -> list[dict[str, Any]]:
        """The epochs that all ranks have recorded, merged as in a result; bytes are not told apart by tier."""
        whole = set.intersection(*(set(known) for known in self._records))
        done = next(epoch for epoch in range(len(whole) + 1) if epoch not in whole)
        ranks = [RankResult(rank, [known[epoch] for epoch in range(done)]) for rank, known in enumerate(self._records)]
        return merge(ranks, depth, [], np.empty((len(ranks), 0), np.int8))
