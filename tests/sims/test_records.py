"""Tables that are records: keys inside tables, keys that belong together, defaults of a place, and the way back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from harness.errors import InputError
from sims.records import (
    TEXT,
    dimensioned,
    factor,
    filled,
    integer,
    key,
    listed,
    named,
    numbered,
    quantities_of,
    subtable,
)
from sims.units import Quantity, Table

ROWS = {"up": "towards the root", "down": "away from it"}


@dataclass(frozen=True)
class Part:
    weight: Quantity = key("a weight", dimensioned("size"))
    color: str = key("a color", TEXT, default="grey")


@dataclass(frozen=True, kw_only=True)
class Thing:
    count: int = key("how many", integer())
    share: Quantity = key("a share", factor(most=1.0), at="tank.share")
    level: Quantity = key(
        "a level", dimensioned("size", zero=True), default=Quantity(0.0), at="pump.level", together=True
    )
    rate: Quantity | None = key("a rate", dimensioned("bandwidth"), default=None, at="pump.rate")
    steps: dict[int, Quantity] = key("steps", numbered("time", "WIDTH"), default={})
    ways: dict[str, Quantity] = key("ways", named(ROWS, factor(least=1.0)), default={})
    part: Part | None = key("a part", subtable(Part, color="red"), default=None)
    parts: dict[str, Part] = key("more", listed(subtable(Part)), default={})
    delay: Quantity = key("a delay", dimensioned("time"), default=Quantity(0.0))


FULL: dict[str, Any] = {
    "count": 2,
    "tank": {"share": 0.5},
    "pump": {"level": "0 B", "rate": "1 GB/s"},
    "steps": {"8": "1 us", "4": "2 us"},
    "ways": {"down": 2.0},
    "part": {"weight": "1 kB"},
    "parts": {"a::b": {"weight": "2 kB", "color": "blue"}},
    "delay": "3 s",
}


def thing(values: dict[str, Any]) -> Thing:
    return filled(Thing, Table(values, "file x"))


def test_tables_fill_records() -> None:
    made = thing(FULL)
    assert (made.count, made.share.value, made.rate) == (2, 0.5, Quantity(1e9))
    assert list(made.steps) == [4, 8] and made.ways == {"down": Quantity(2.0)}
    assert made.part == Part(Quantity(1e3), "red"), "the default of its place"
    assert made.parts == {"a::b": Part(Quantity(2e3), "blue")}
    least = thing({"count": 1, "tank": {"share": 1.0}})
    assert (least.rate, least.steps, least.part, least.level) == (None, {}, None, Quantity(0.0))


def test_every_quantity_has_its_key_and_those_of_tables_come_last() -> None:
    assert [(name, dimension) for name, dimension, _ in quantities_of(thing(FULL))] == [
        ("delay", "time"), ("tank.share", "number"), ("pump.level", "size"), ("pump.rate", "bandwidth"),
        ("steps.4", "time"), ("steps.8", "time"), ("ways.down", "number"), ("part.weight", "size"),
        ('parts."a::b".weight', "size"),
    ]  # fmt: skip
    assert [name for name, _, _ in quantities_of(thing({"count": 1, "tank": {"share": 1.0}}))] == ["tank.share"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cuont": 1}, "unknown key in file x: 'cuont'; did you mean 'count'"),
        ({"tank": {"shaer": 1.0}}, "unknown key in file x: tank: 'shaer'; did you mean 'share'"),
        ({"tank": {}}, "file x: tank.share: a number is missing"),
        ({"tank": 3}, r"file x: tank: must be a table, \[tank\]"),
        ({"tank": {"share": 1.5}}, "file x: tank.share: must be at most 1"),
        ({"ways": {"up": 0.5}}, "file x: ways.up: must be at least 1"),
        ({"ways": {"upp": 1.5}}, "'upp'; did you mean 'up'"),
        ({"pump": {"rate": "1 GB/s"}}, "file x: pump.level: a size is missing"),
        ({"part": {}}, "file x: part.weight: a size is missing"),
        ({"count": 0}, "file x: count: must be a whole number of at least 1, not 0"),
    ],
)
def test_what_does_not_fit_names_its_key(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        thing({**FULL, **change})
    assert "\n" not in str(error.value)


def test_a_needed_table_is_missed_by_name() -> None:
    with pytest.raises(InputError, match=r"file x: tank: the table \[tank\] is missing"):
        thing({"count": 1})
