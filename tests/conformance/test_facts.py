"""Every registered method has its declared properties, and a declared fact without a check fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch

from harness.codecs import Cast
from harness.conformance import CHECKS, Ground, NotKept, _course, checks, claimed, conform, selected
from harness.conformance._rounds import EpochSettings, run_epochs
from harness.conformance._static import check_static
from harness.effects import Direction
from harness.errors import InputError, ProgramError
from harness.exchanges import HaloPush, LayerExchange
from harness.methods.bases.base import Facts, Method
from harness.methods.bases.edge_cut import EdgeCut, EdgeCutState, message_width
from harness.methods.registry import METHODS, parse_method
from harness.nn import GNN
from harness.rank import Rank
from harness.registry import short_text
from tests.support.settings import SETTINGS, label


def cases() -> list[Any]:
    """Every known method with its default options, and every other row of settings, with each of its checks.

    The checks of a row share their ground, and with it the runs that several of them look at.
    """
    found = []
    for name in METHODS.names():
        default = parse_method(name)
        ground = Ground()
        found += [pytest.param(default, check, ground, id=f"{name}-{check.name}") for check in checks(default)]
        for row in SETTINGS.get(name, ()):
            if row.get("precision") == "bf16":
                continue  # facts are promises of full precision
            options = {key: value for key, value in row.items() if key not in ("method", "parts")}
            method = parse_method(row["method"], **{key: options.pop(key) for key in ("layer0",) if key in options})
            if method == default and not options:
                continue
            ground = Ground(quick=True, options=options)  # every method once in full, other settings in short
            found += [pytest.param(method, c, ground, id=f"{label(row)}-{c.name}") for c in checks(method)]
    return found


@pytest.mark.parametrize(("method", "check", "ground"), cases())
def test_a_method_keeps_what_it_promises(method: Method, check: Any, ground: Ground) -> None:
    check.run(method, ground)


def test_every_fact_but_the_source_has_a_check() -> None:
    tested = {fact for check in CHECKS for fact in check.facts}
    assert tested == set(Facts.__dataclass_fields__) - {"paper"}


@dataclass(frozen=True, kw_only=True)
class Clairvoyant(Facts):
    """Facts with a field that no check tests."""

    clairvoyant: bool = False


@dataclass(frozen=True, kw_only=True)
class Good(EdgeCut):
    """A method of another package that sends rows unchanged."""

    name = "good"
    facts = Facts(cut="edge", exact=True, paper="an example")

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: Any) -> LayerExchange:
        return HaloPush(state.route, l, Cast(None), Cast(None))


@dataclass(frozen=True, kw_only=True)
class Half(Good):
    """A method with rows in 16 bits that declares no error bound."""

    facts = Facts(cut="edge", exact=False, lossy=True)

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: Any) -> LayerExchange:
        return HaloPush(state.route, l, Cast(torch.float16), Cast(None))


def claiming(method: type[Method], facts: Facts) -> Method:
    """The method with other facts."""
    made: type[Method] = type("Claiming", (method,), {"facts": facts})
    return made()


def unkept(method: type[Method], facts: Facts) -> dict[str, str]:
    """Check -> message, of the checks that fail for the method with these facts."""
    outcomes = conform(claiming(method, facts), Ground(quick=True))
    return {outcome.check: outcome.message for outcome in outcomes if not outcome.passed}


def test_a_method_that_says_what_it_does_passes() -> None:
    assert not unkept(Good, Good.facts)


def test_a_promise_that_selects_no_check_fails() -> None:
    made = claiming(Good, Clairvoyant(cut="edge", exact=True, clairvoyant=True))
    with pytest.raises(NotKept, match="no check tests clairvoyant"):
        checks(made)[0].run(made, Ground())


@pytest.mark.parametrize(
    ("method", "facts", "check", "message"),
    [
        (Good, {"exact": False, "staleness": 1}, "inexact", "exact=False is idle"),
        (Good, {"exact": False, "staleness": 1}, "staleness", "already in epoch 0"),
        (Good, {"exact": False}, "claims", "neither exact, nor lossy, nor stale"),
        (Good, {"staleness": 1}, "claims", "exact, and lossy or stale at once"),
        (Good, {"exact": False, "lossy": True, "unbiased": True}, "unbiased", "unbiased is idle"),
        (Good, {"exact": False, "lossy": True, "compensated": True}, "compensated", "compensated is idle"),
        (Good, {"exact": False, "lossy": True, "bounded": True}, "bounded", "states no error_bound"),
        (Good, {"settles": 2}, "settles", "settles=2 is idle"),
        (Good, {"timed": True}, "timed", "timed is idle"),
        (Good, {"cut": "overlap"}, "exact", "gradients of rank 0 are off"),
        (Good, {"cut": "vertex"}, "cut", "VertexPart"),
        (Good, {"cut": "none"}, "cut", r"accepts \d ranks"),
        (Half, {"exact": True, "lossy": False}, "exact", "gradients of rank"),
        (Half, {}, "claims", "lossy, and neither unbiased"),
        (Half, {"unbiased": True}, "unbiased", "standard errors"),
        (Half, {"compensated": True}, "compensated", "compensated is idle"),
        (Half, {"vanishes_with": {"layer0": "exchange"}}, "vanishes with", "gradients are off"),
        (Good, {"severed_with": {"layer0": "exchange"}}, "severed with", "gradients are off"),
        (Half, {"exact_when": {"layer0": "exchange"}}, "exact when", "gradients of rank"),
        (Half, {"lossy": False, "staleness": 1}, "staleness", "is off by"),
    ],
    ids=str,
)
def test_a_method_that_lies_is_found_out(method: type[Method], facts: dict[str, Any], check: str, message: str) -> None:
    made = claiming(method, replace(method.facts, **facts))
    (judge,) = [found for found in checks(made) if found.name == check]
    with pytest.raises((NotKept, InputError, ProgramError), match=message):
        judge.run(made, Ground(quick=True))


def test_checks_on_one_ground_share_their_training(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[EpochSettings] = []

    def counted(method: Method, model: GNN, parts: Any, settings: EpochSettings) -> Any:
        asked.append(settings)
        return run_epochs(method, model, parts, settings)

    monkeypatch.setattr(_course, "run_epochs", counted)
    made, ground = Good(), Ground(quick=True)
    for check in selected(made):
        if check.name in ("timed", "cycle", "memory"):
            check.run(made, ground)
    plain = [each for each in asked if each == EpochSettings(each.last)]
    assert len(plain) == 2, "the course, and the run that is broken off"
    assert len(asked) == 4, "beside these the other order of ranks, and the run that goes on"


class Odd(Good):
    """Runs another operator in every epoch, so that epochs do not repeat."""

    async def forward(self, rank: Rank, part: Any, *rest: Any) -> torch.Tensor:
        logits = await super().forward(rank, part, *rest)
        for _ in range(rank.epoch):
            logits = logits + 0
        return logits


def test_epochs_that_do_not_repeat_are_found_out() -> None:
    assert set(unkept(Odd, replace(Good.facts, repeats=True))) == {"repeats"}


class Growing(Good):
    """Multiplies by the number of the epoch, which a recorded epoch would keep."""

    async def forward(self, rank: Rank, part: Any, *rest: Any) -> torch.Tensor:
        return await super().forward(rank, part, *rest) * (1 + rank.epoch)


def test_epochs_that_are_not_static_are_found_out() -> None:
    assert "static" in unkept(Growing, replace(Good.facts, static=True))
    assert "static" not in unkept(Good, replace(Good.facts, static=True))


def chosen_options(method: Method) -> Iterator[Method]:
    """The method with every value that one of its options may take, where these are listed."""
    for option, kind in get_type_hints(type(method)).items():
        if option in {field.name for field in fields(method)}:
            values = (False, True) if kind is bool else get_args(kind) if get_origin(kind) is Literal else ()
            yield from (replace(method, **{option: value}) for value in values)


def static_methods() -> list[Method]:
    """Every method whose epochs are recorded for --cuda-graphs, with each value of each option."""
    known = [method for name in METHODS.names() for method in chosen_options(parse_method(name))]
    return [method for method in dict.fromkeys(known) if method.promises().static]


@pytest.mark.parametrize("method", static_methods(), ids=short_text)
def test_epochs_are_static_with_any_option(method: Method) -> None:
    try:
        check_static(method, Ground(quick=True))
    except InputError as error:
        pytest.skip(f"options that do not go together: {error}")


class Miscounted(Good):
    """Declares half of the bytes that it sends."""

    def row_bytes(self, model: GNN, l: int, direction: Direction) -> int:
        return 2 * message_width(model, l)


class Hoarding(Good):
    """Keeps state outside of its memory, which checkpoints do not contain."""

    async def epoch(self, rank: Rank, part: Any, model: GNN, state: Any, memory: Any, optimizer: Any) -> torch.Tensor:
        memory["epochs"] = memory.get("epochs", 0) + 1
        return await super().epoch(rank, part, model, state, memory, optimizer)


@pytest.mark.parametrize(
    ("method", "check", "message"), [(Miscounted, "bytes", "the formula has"), (Hoarding, "memory", "holds a int")]
)
def test_what_is_no_fact_is_checked_too(method: type[Method], check: str, message: str) -> None:
    found = unkept(method, Good.facts)
    assert set(found) == {check} and message in found[check]


def test_claims_are_what_is_set() -> None:
    assert claimed(Good.facts) == ["cut", "exact"]
    assert claimed(parse_method("sylvie-a").facts) == ["cut", "exact", "staleness", "lossy", "unbiased"]
    assert {"staleness", "unbiased"} <= {check.name for check in selected(parse_method("sylvie-a"))}
    with pytest.raises(NotKept, match="lossy, and neither"):
        checks(Half())[0].run(Half(), Ground())
