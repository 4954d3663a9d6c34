"""What a rank keeps of an epoch is its record, and nothing else: not a tensor, not an effect, not a closure.

Objects are counted by type after full collections, which also empty the interpreter's lists of free ones: memory as
the system sees it (`benchmarks.soak`) grows by those too.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator

import pytest

from harness import loopback
from harness.config import RunConfig
from harness.methods.registry import typical_methods
from harness.running import run
from harness.running.results import RankEpoch
from sims.cluster import load_cluster, place
from sims.engine import simulate
from tests.support import lifetimes

PARTS, AT = 2, (20, 30, 40)
"""Ranks; epochs after which objects are counted, of which the first is later than any period or delay."""


def objects() -> Counter[type]:
    gc.collect()
    return Counter(map(type, gc.get_objects()))


def containers(value: object) -> int:
    """The dicts and lists in a record."""
    if isinstance(value, RankEpoch):
        return sum(containers(getattr(value, name)) for name in value.__struct_fields__)
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, dict | list) + sum(map(containers, inside))


@pytest.fixture(autouse=True)
def older_objects_aside() -> Iterator[None]:
    """Objects of the process before the test are not looked at, which would take longer than the run."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("method", ["single", *typical_methods(2)])
def test_an_epoch_leaves_its_record_and_nothing_else(method: str) -> None:
    found: dict[int, Counter[type]] = {}
    most = 0

    def look(record: RankEpoch) -> None:
        nonlocal most
        most = max(most, containers(record))
        if record.epoch in AT:
            found[record.epoch] = objects()

    parts = 1 if method == "single" else PARTS
    config = RunConfig.of(
        dataset="synthetic:nodes=80,degree=5,classes=3,features=5", method=method, parts=parts, epochs=AT[-1] + 2,
        eval_every=5, threads=1, hidden=8,
    )  # fmt: skip
    run(config, look)
    first, second, last = (found[epoch] for epoch in AT)  # what is made at the first use of a library comes once
    more = (second - first) & (last - second)
    records, epochs = more.pop(RankEpoch), AT[1] - AT[0]
    assert abs(records - parts * epochs) < parts, "other ranks may be an epoch ahead"
    assert more.pop(dict, 0) + more.pop(list, 0) <= most * records
    assert not {kind.__qualname__: count for kind, count in more.items() if count >= epochs}, "one an epoch, or more"


@pytest.mark.parametrize("driver", ["loopback", "sim"])
def test_only_the_program_holds_tensors_of_exchanges(driver: str) -> None:
    """While it computes. For processes see `tests.real.rank.test_real_driver`."""
    if driver == "loopback":
        found = loopback.run_ranks(lifetimes.let_go, 3)
    else:
        found = simulate(lifetimes.let_go, place(load_cluster("ethernet-1g"), 3)).results
    assert found == [[[]] * 3] * 3
