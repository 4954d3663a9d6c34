"""The table of checks by fact, the checks that a method's facts select, and their execution."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields

from harness.conformance import _course, _exactness, _loss, _static
from harness.conformance._ground import Ground
from harness.conformance._rounds import NotKept
from harness.errors import InputError
from harness.methods.bases.base import Facts, Method
from harness.methods.registry import parse_method

NO_CLAIM = ("paper",)
"""Facts that declare no property."""


@dataclass(frozen=True)
class Check:
    """A test of some facts, and the methods whose facts select it."""

    name: str
    facts: tuple[str, ...]
    selected: Callable[[Method, Facts], bool]
    run: Callable[[Method, Ground], None]


def _always(method: Method, facts: Facts) -> bool:
    return True


def _fresh(method: Method, facts: Facts) -> bool:
    """Stale methods, and those whose lossless form is close enough to exact to tell the two apart."""
    if facts.cut in ("none", "overlap") or facts.vanishes_with or _exactness.on_one_exchange(method.lossless()) is None:
        return facts.staleness > 0
    return facts.staleness > 0 or not method.lossless().promises().lossy


CHECKS: tuple[Check, ...] = (
    Check("cut", ("cut",), _always, _course.check_cut),
    Check("exact", ("exact", "exact_when"), lambda m, f: f.exact, _exactness.check_exact),
    Check("inexact", ("exact", "lossy"), lambda m, f: not f.exact, _exactness.check_inexact),
    Check("exact when", ("exact_when",), lambda m, f: bool(f.exact_when) and not f.exact, _exactness.check_exact_when),
    Check("vanishes with", ("vanishes_with",), lambda m, f: bool(f.vanishes_with), _exactness.check_vanishes_with),
    Check("severed with", ("severed_with",), lambda m, f: bool(f.severed_with), _exactness.check_severed_with),
    Check("staleness", ("staleness",), _fresh, _exactness.check_staleness),
    Check("lossy", ("lossy",), lambda m, f: f.lossy and m.lossless() != m, _loss.check_lossy),
    Check("unbiased", ("unbiased",), lambda m, f: f.unbiased, _loss.check_unbiased),
    Check("bounded", ("bounded",), lambda m, f: f.bounded, _loss.check_bounded),
    Check("compensated", ("compensated",), lambda m, f: f.compensated, _loss.check_compensated),
    Check("isolated", ("isolated",), lambda m, f: f.isolated, _exactness.check_isolated),
    Check("repeats", ("repeats",), lambda m, f: m.epoch_kind(1) is not None, _course.check_repeats),
    Check("static", ("static",), lambda m, f: f.static, _static.check_static),
    Check("settles", ("settles",), lambda m, f: f.settles > 0, _course.check_settles),
    Check("timed", ("timed",), _always, _course.check_untimed),
    Check("cycle", (), lambda m, f: not f.adaptive, _course.check_cycle),
    Check("adaptive", ("adaptive",), lambda m, f: f.adaptive, _course.check_adaptive),
    Check("bytes", (), _always, _course.check_bytes),
    Check("memory", (), _always, _course.check_memory),
)
"""Those without facts check `cycle`, `wire_bytes` and the memory of a method."""


@dataclass(frozen=True)
class CheckResult:
    """One check of one method; `message` describes the failure, and is empty if the check passed."""

    check: str
    facts: tuple[str, ...]
    seconds: float
    message: str

    @property
    def passed(self) -> bool:
        """Whether the check passed."""
        return not self.message


def claimed(facts: Facts) -> list[str]:
    """Names of the facts that declare a property: all that are set, and those without a default."""
    names = []
    for f in fields(facts):
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        if f.name not in NO_CLAIM and (default is MISSING or getattr(facts, f.name) != default):
            names.append(f.name)
    return names


def selected(method: Method) -> list[Check]:
    """The checks that the method's facts select."""
    facts = method.promises()
    return [check for check in CHECKS if check.selected(method, facts)]


def check_claims(method: Method, ground: Ground) -> None:
    """Every declared fact selects a check, and the facts are consistent."""
    facts = method.promises()
    tested = {name for check in selected(method) for name in check.facts}
    untested = [name for name in claimed(facts) if name not in tested]
    if untested:
        raise NotKept(f"no check tests {', '.join(untested)}: a promise that nothing tests is none")
    default = type(method)()
    if default.promises() != method.facts:
        raise NotKept(f"facts say {method.facts}, with default options the method promises {default.promises()}")
    if facts.exact and (facts.lossy or facts.staleness):
        raise NotKept("exact, and lossy or stale at once")
    if not facts.exact and not facts.lossy and not facts.staleness:
        raise NotKept("neither exact, nor lossy, nor stale: nothing says why gradients differ")
    limits = (facts.unbiased, facts.bounded, facts.compensated, facts.vanishes_with, facts.severed_with)
    if facts.lossy and not any(limits):
        raise NotKept("lossy, and neither unbiased, nor bounded, nor compensated, nor with options where it vanishes")


CLAIMS = Check("claims", (), _always, check_claims)


def checks(method: Method) -> list[Check]:
    """`check_claims`, then the selected checks."""
    return [CLAIMS, *selected(method)]


def conform(method: Method | str, ground: Ground | None = None) -> Iterator[CheckResult]:
    """Run every check that the method's facts select, one after the other.

    Args:
        method: or its text, `name:option=value:...`.
        ground: models and sizes; by default those of `Ground`.

    Raises:
        InputError: an unknown method, or options that it refuses.
    """
    made, place = parse_method(method) if isinstance(method, str) else method, ground or Ground()
    for check in checks(made):
        begin, message = time.perf_counter(), ""
        try:
            check.run(made, place)
        except (NotKept, InputError) as error:
            message = str(error)
        except Exception as error:  # a hook of another package may raise anything, which is a result of the check
            message = f"{type(error).__name__}: {error}"
        yield CheckResult(check.name, check.facts, time.perf_counter() - begin, message)
