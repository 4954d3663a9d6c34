"""Records whose fields are keys of files: what is missing, unknown or of the wrong type gives one line."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import pytest

from harness.errors import InputError
from harness.keys import convert, key


@dataclass(frozen=True)
class Inner:
    width: int = key("a width")
    names: list[str] = key("some names", default=[])


@dataclass(frozen=True)
class Whole:
    inner: Inner | float = key("a table or a number")
    speed: float = key("a speed", default=1.0, unit="m/s")


def test_a_record_is_filled_and_says_what_its_keys_mean() -> None:
    made = convert({"inner": {"width": 3}}, Whole, "file x")
    assert (made.inner, made.speed) == (Inner(3, []), 1.0)
    assert made.inner != convert({"inner": 3.0}, Whole, "file x").inner
    assert [(f.metadata["help"], f.metadata["unit"]) for f in fields(Whole)] == [
        ("a table or a number", ""), ("a speed", "m/s"),
    ]  # fmt: skip
    first, second = Inner(1), Inner(2)
    first.names.append("own")
    assert second.names == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"inner": 1.0, "spead": 2.0}, "unknown key in file x: 'spead'; did you mean 'speed'"),
        ({"inner": {"widht": 3}}, "unknown key in file x: inner: 'widht'; did you mean 'width'"),
        ({"inner": {"width": "wide"}}, r"file x: Expected `int`, got `str` - at `\$.inner.width`"),
        ({"inner": 1.0, "speed": math.nan}, "file x: speed: nan is no number that can be meant here"),
        ({"inner": {"width": [3, -math.inf]}}, "file x: inner.width: -inf is no number"),
        ({"speed": 2.0}, "file x: Object missing required field `inner`"),
    ],
)
def test_what_does_not_fit_gives_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        convert(values, Whole, "file x")
    assert "\n" not in str(error.value)
