"""AdaQP: volumes beside Sylvie's, the ends of lambda, periods, overlap, and shapes."""

from __future__ import annotations

from typing import Any

import pytest

from harness import loopback
from harness.effects import AllToAll, Start, Wait
from harness.errors import Diverged, InputError
from harness.exchanges._mixed_pull import SplitSum
from harness.methods.adaqp import AdaQP
from harness.methods.registry import parse_method
from harness.rank import Rank
from harness.running import prepare, run
from tests.conformance.test_drivers import config
from tests.support.conformance import make_model, make_parts, step
from tests.support.graphs import owners, random_graph

WIDE = {"hidden": 16, "dataset": "synthetic:nodes=300,degree=8,classes=4,features=16,seed=1"}


def volumes(method: str, **values: Any) -> list[list[int]]:
    """Bytes forwards and backwards by layer of the last epoch."""
    sent = run(config(method, **{**WIDE, **values})).epochs[-1]["bytes"]
    return [sent["forward"], sent["backward"]]


def test_eight_bits_have_the_volume_of_sylvie_with_a_16_bit_side() -> None:
    ours = volumes("adaqp:bits=8", epochs=2)
    assert ours == volumes("sylvie-s:bits=8:side=fp16", layer0="exchange", epochs=2)
    assert volumes("adaqp", epochs=2) == ours, "before the first assignment"
    four = volumes("adaqp:bits=4", epochs=2)
    assert [4 * (a - b) for a, b in zip(ours[0], four[0], strict=True)] == [
        2 * w * a // (w + 4) for a, w in zip(ours[0], (16, 16, 16), strict=True)
    ]


def test_the_ends_of_lambda_are_8_bits_and_2() -> None:
    for weight, bits in ((1, 8), (0, 2)):
        epochs = run(config(f"adaqp:period=2:lambda={weight}", **WIDE, epochs=4)).epochs
        fixed = run(config(f"adaqp:bits={bits}", **WIDE, epochs=4)).epochs
        for direction in ("forward", "backward"):
            assert epochs[3]["bytes"][direction] == fixed[3]["bytes"][direction]
        assert epochs[3]["bytes"]["other"] == 0 < epochs[2]["bytes"]["other"]
    some = volumes("adaqp:period=2:group=10", epochs=4)
    assert sum(volumes("adaqp:bits=2", epochs=2)[0]) < sum(some[0]) < sum(volumes("adaqp:bits=8", epochs=2)[0])


def test_bits_are_assigned_at_the_start_of_every_period_but_the_first() -> None:
    epochs = run(config("adaqp:period=3:group=10", **WIDE, epochs=10)).epochs
    assert [e["bytes"]["other"] > 0 for e in epochs] == [at in (3, 6, 9) for at in range(10)]
    shares = ["code bytes/1" in e["observed"] for e in epochs]
    assert shares == [False] * 3 + [True] * 7
    assert [e["bytes"]["forward"] for e in epochs[4:6]] == [epochs[3]["bytes"]["forward"]] * 2


def test_an_assignment_books_groups_and_rows() -> None:
    """Five messages: 4 bytes a group to rank 0 and 1 back from it, a byte a row to its reader, 8 per pair of ranks."""
    result = run(config("adaqp:period=2:group=1", **WIDE, epochs=3))
    prepared = prepare(config("adaqp", **WIDE))
    sent = [int(prepared.training(rank).plan.send_counts.sum()) for rank in range(3)]
    assert result.epochs[2]["bytes"]["other"] == 5 * (5 * sum(sent[1:]) + sum(sent)) + 8 * 6


def test_quantised_gradients_are_close_and_training_works() -> None:
    exact, ours = (run(config(m, layer0="exchange", epochs=20)) for m in ("vanilla", "adaqp:period=5:group=20"))
    assert ours.epochs[-1]["loss"] == pytest.approx(exact.epochs[-1]["loss"], rel=0.1)
    assert ours.epochs[0]["loss"] == pytest.approx(exact.epochs[0]["loss"], rel=0.01)
    assert ours.epochs[0]["loss"] != exact.epochs[0]["loss"]


def test_central_rows_are_summed_while_the_exchange_is_under_way() -> None:
    """On one rank's time line: start, sum, wait, sum, in every exchange of both directions."""
    graph = random_graph(90, 200, seed=4)
    parts = make_parts(graph, owners(graph, 3, "random"), 3)
    seen: list[str] = []

    class Watched(Rank):
        def issued(self, effect: Any) -> None:
            wire = effect.wire
            if self.index == 1 and not isinstance(effect, Wait) and isinstance(wire, AllToAll) and wire.tag.layer >= 0:
                seen.append("start" if isinstance(effect, Start) else "blocking")
            if self.index == 1 and isinstance(effect, Wait):
                seen.append("wait")
            super().issued(effect)

    plain = SplitSum.central

    def noted(total: SplitSum) -> None:
        if total.split.graph is parts[1].graph:
            seen.append("central")
        plain(total)

    async def program(rank: Rank) -> None:
        method, model = AdaQP(), make_model("sage", graph)
        part = parts[rank.index]
        state = await method.setup(rank, part, model)
        memory = method.remember(rank, part, model, state)
        if rank.index == 1:
            seen.clear()
        await method.epoch(rank, part, model, state, memory, method.optimizer(rank, model, 0.1, 0.0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SplitSum, "central", noted)
        loopback.run_ranks(program, 3, make_rank=lambda i: Watched(i, 3))
    assert seen == ["start", "central", "wait"] * 5


def test_nan_is_refused_by_rank_layer_and_epoch() -> None:
    graph = random_graph(30, 90, seed=6)
    parts = make_parts(graph, owners(graph, 3, "random"), 3)
    assert parts[2].x is not None
    parts[2].x[:] = float("nan")
    with pytest.raises(Diverged, match=r"rank 2, layer 0, epoch 5: forward h0: row \d+ holds nan or inf"):
        step(AdaQP(), make_model("gcn", graph), parts, epoch=5)


def test_shapes_take_their_rates_from_a_recorded_run(tmp_path: Any) -> None:
    setting: dict[str, Any] = {**WIDE, "mode": "sim", "cluster": "ethernet-1g", "epochs": 7}
    method = "adaqp:period=3:group=10"
    with pytest.raises(InputError, match="'central rows'"):
        run(config(method, **setting, shapes_only=True))
    full = run(config(method, **setting))
    path = full.save(tmp_path)
    shapes = run(config(method, **setting, shapes_only=True, rates=str(path)))
    for ours, theirs in zip(shapes.epochs, full.epochs, strict=True):
        assert ours["bytes"]["other"] == theirs["bytes"]["other"]
        for direction in ("forward", "backward"):
            assert ours["bytes"][direction] == pytest.approx(theirs["bytes"][direction], rel=0.05)
    assert shapes.epochs[0]["bytes"]["forward"] == full.epochs[0]["bytes"]["forward"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("adaqp:bits=3", "bits must be one of adaptive, 2, 4, 8"),
        ("adaqp:period=0", "period and group must be at least 1"),
        ("adaqp:group=0", "period and group must be at least 1"),
        ("adaqp:lambda=1.5", "lambda must be from 0 to 1"),
        ("adaqp:bits=8:period=3", "period changes nothing with bits=8"),
        ("adaqp:bits=8:lambda=0.3", "lambda changes nothing with bits=8"),
    ],
)
def test_options_that_make_no_sense_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_method(text)


def test_attention_is_refused() -> None:
    with pytest.raises(InputError, match="linear in rows"):
        run(config("adaqp", model="gat"))
