"""Critical paths of known timelines, and the influence of inputs on a small prediction."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from harness.config import RunConfig
from harness.running.intervals import LEFT_OPEN
from harness.running.trace import Message, Span, Steps, Trace
from sims.cluster import load_cluster, place
from sims.explain import SOFTWARE, STEP, critical_path, influences, replays_of_influences
from sims.uncertainty import Draws, predicted
from sims.units import NORMAL_90
from tests.sims.uncertainty.test_uncertainty import prediction


def compute(rank: int, start: float, end: float) -> Span:
    return Span(rank, "compute", "compute", "compute", start, end, 0, {"epoch": 0})


def exchange(rank: int, start: float, end: float, name: str = "h1", component: str = "halo") -> Span:
    details: dict[str, Any] = {"kind": "AllToAll", "direction": "forward", "layer": 1, "epoch": 0}
    return Span(rank, "communication", component, name, start, end, 8, details)


def test_the_path_goes_to_the_rank_that_came_last() -> None:
    spans = [
        compute(0, 0, 2),
        exchange(0, 2, 7),
        compute(0, 7, 9),
        compute(1, 0, 5),
        exchange(1, 5, 7),
        compute(1, 7, 8),
    ]
    links = {"host0.nic0.tx": Steps([0.0, 5.0, 7.0], [0.0, 0.9, 0.0])}
    path = critical_path(Trace([0, 1], spans, [Message(1, 0, 5, 7, 8), Message(0, 1, 5, 7, 8)], links), (0.0, 9.0))
    assert [(step.rank, step.start_s, step.end_s, step.component) for step in path.steps] == [
        (1, 0, 5, "compute"), (0, 5, 7, "halo"), (0, 7, 9, "compute"),
    ]  # fmt: skip
    assert path.by("component") == {"compute": 7.0, "halo": 2.0} and path.by("link") == {"nic": 2.0}
    assert (path.changes, path.seconds) == (1, 9.0)


def test_a_rank_does_not_wait_for_one_that_sends_it_nothing() -> None:
    spans = [
        compute(0, 0, 2),
        exchange(0, 2, 9),
        compute(1, 0, 5),
        exchange(1, 5, 7),
        compute(2, 0, 3),
        exchange(2, 3, 9),
    ]
    path = critical_path(Trace([0, 1, 2], spans, [Message(2, 0, 3, 9, 8), Message(0, 2, 3, 9, 8)]), (0.0, 9.0))
    assert [step.rank for step in path.steps][0] == 2 and path.steps[-1].link == SOFTWARE


def test_hidden_exchanges_are_not_on_the_path_and_windows_cut_it() -> None:
    spans = [compute(0, 0, 4), exchange(0, 1, 3), compute(0, 4, 6), exchange(0, 6, 8, "w", "reduce")]
    path = critical_path(Trace([0], spans), (1.0, 8.0))
    assert path.by("component") == {"compute": 5.0, "reduce": 2.0}
    assert critical_path(Trace([0]), (0.0, 1.0)).steps == []
    gap = critical_path(Trace([0], [compute(0, 0, 1), compute(0, 3, 4)]), (0.0, 4.0))
    assert gap.by("component") == {"compute": 2.0, "wait": 2.0}


def test_exchanges_of_one_name_are_told_apart_by_their_order() -> None:
    spans = [exchange(0, 0, 1), exchange(0, 1, 6), exchange(1, 0, 1), compute(1, 1, 4), exchange(1, 4, 6)]
    path = critical_path(Trace([0, 1], spans), (0.0, 6.0))
    assert [(step.rank, step.component) for step in path.steps[-2:]] in (
        [(1, "compute"), (0, "halo")],
        [(1, "compute"), (1, "halo")],
    )


def test_a_gap_beside_an_exchange_is_part_of_it() -> None:
    """Software of an exchange on cores that ranks share has no span of its own; other gaps are waits."""
    spans = [compute(0, 0, 2), exchange(0, 4, 5), compute(0, 6, 7), compute(0, 8, 9)]
    path = critical_path(Trace([0], spans), (0.0, 9.0))
    assert [(step.start_s, step.end_s, step.component) for step in path.steps] == [
        (0, 2, "compute"), (2, 4, "halo"), (4, 5, "halo"), (5, 6, "halo"), (6, 7, "compute"), (7, 8, "wait"),
        (8, 9, "compute"),
    ]  # fmt: skip
    assert path.by("component") == {"compute": 4, "halo": 4, "wait": 1} and path.by("link") == {SOFTWARE: 4}


def test_the_scatter_of_operators_has_its_share_of_the_variance() -> None:
    wide = RunConfig.of(dataset="synthetic:nodes=400000,degree=20,features=128", hidden=256, parts=1, method="single",
                        mode="sim", cluster="h200-1", shapes_only=True, epochs=3, eval_every=-1)  # fmt: skip
    made = predicted(wide, place(load_cluster("h200-1"), 1))
    found = influences(made, Draws(8))
    scattered = [one for one in found if one.input.is_scatter]
    assert scattered and all(0 < one.share < 1 and one.without is not None for one in scattered[:1])
    assert 0 < sum(one.share for one in found) < 1


def test_influences_are_derivatives_by_replay() -> None:
    made, replays = prediction(), list[int]()
    found = influences(replace(made, replayed=lambda: replays.append(1)), Draws(8))
    assert len(replays) == replays_of_influences(made, 8), "what the progress bar counts to"
    assert {one.input.name for one in found} == {each.name for each in made.inputs}
    by_name = {one.input.name: one for one in found}
    base, more = made.seconds({})["epoch"], made.seconds({"transport.operation": 1 + STEP})["epoch"]
    assert by_name["transport.operation"].change == pytest.approx(more / base - 1)
    assert by_name["transport.operation"].change > 0 >= by_name["links.nic.bandwidth"].change
    assert found[0].share >= found[-1].share and found[0].without is not None and found[-1].without is None
    one = by_name["transport.operation"]
    variance = (math.log1p(one.change) / math.log1p(STEP) * math.log(one.input.width) / (2 * NORMAL_90)) ** 2
    left = 1 - sum(each.share for each in found)
    assert left / one.share == pytest.approx((LEFT_OPEN.seconds["epoch"] / NORMAL_90) ** 2 / variance), (
        "the model's own"
    )
