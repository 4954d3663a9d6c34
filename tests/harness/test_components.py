"""Components of a rank's time: which there are, and under which the time that a rank blocks in an effect is counted."""

from __future__ import annotations

import pytest
import torch

from harness import loopback
from harness.effects import AllReduce, Effect, Handle, HostCopy, Start, Tag, Wait, component_of
from harness.errors import ProgramError
from harness.rank import Rank

HERE = "test_components.py"


def test_a_wrong_span_is_refused_whether_a_driver_has_time_or_not() -> None:
    async def program(rank: Rank) -> None:
        with rank.span("encode"):  # type: ignore[arg-type]
            pass

    with pytest.raises(
        ProgramError, match=rf"rank 0: no such component of time: 'encode' at .*{HERE}.*; known: compute"
    ):
        loopback.run_ranks(program, 2)


def test_what_is_carried_out_and_the_component_it_is_counted_under() -> None:
    rank = Rank(0, 2)
    built: dict[str, Effect] = {
        "halo": rank.send(torch.zeros(1), to=1, label="a"),
        "reduce": AllReduce(tag=Tag("b", "reduce", -1, 0), tensor=torch.zeros(1)),
        "swap": HostCopy(tag=Tag("c", "reduce", -1, 0), tensor=torch.zeros(1), to_host=True),
    }
    for component, effect in built.items():
        started = Start(tag=effect.tag, effect=effect)
        awaited = Wait(tag=effect.tag, handle=Handle(effect))
        assert effect.wire is started.wire is awaited.wire is effect
        assert {component_of(each) for each in (effect, started, awaited)} == {component}
