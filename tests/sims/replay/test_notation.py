"""The numbering of counts per rank: equal ones are one, and what may change later is copied."""

from __future__ import annotations

import numpy as np

from sims.replay._notation import NumberedCounts


def test_equal_counts_have_one_number() -> None:
    counts = NumberedCounts()
    first = np.asarray([1, 2, 3])
    assert counts.number(first) == 0 and counts.number(np.asarray([3, 2, 1])) == 1
    assert counts.number(first.astype(np.int32)) == 0 and counts.number(np.asarray([1, 2, 3])[::-1]) == 1
    assert [each.tolist() for each in counts.values] == [[1, 2, 3], [3, 2, 1]]
    assert counts.number(counts.values[1]) == 1


def test_counts_that_can_be_written_are_copied_and_others_referred_to() -> None:
    counts, table, written = NumberedCounts(), np.arange(6).reshape(2, 3), np.asarray([7, 8, 9])
    table.flags.writeable = False
    rows = [table[0], table[1]]
    assert [counts.number(row) for row in (*rows, *rows, written)] == [0, 1, 0, 1, 2]
    assert all(kept is row for kept, row in zip(counts.values, rows, strict=False))
    written[0] = 0
    assert counts.values[2].tolist() == [7, 8, 9] and counts.number(written) == 3
    assert not any(each.flags.writeable for each in counts.values)
