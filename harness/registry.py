"""Names -> things of one kind, built in or of other packages, and the options written behind a name.

Methods, models, partitioners, transports, samplers and sources of data sets are all found this way. Other packages
add theirs through the entry-point group of the kind, and nothing of theirs is loaded before it is asked for.
Where a name takes options they are the fields of a frozen dataclass, written `name:option=value:option=value`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from harness.errors import InputError, unknown

T = TypeVar("T")
R = TypeVar("R", bound="Optioned")

Unbounded = Annotated[float, "inf is a value"]
"""The type of a number that may be infinite; other numbers must be finite."""


class Registry(Generic[T]):
    """The things of one kind by name.

    Attributes:
        kind: what messages call one of them, such as "method".
        group: the entry-point group in which other packages offer theirs.
        builtin: those that come with haloscope; they win over entry points of the same name. One that is given as an
            entry point (see `class_places`) is imported when it is asked for.
    """

    def __init__(self, kind: str, group: str, builtin: Mapping[str, T | EntryPoint]) -> None:
        self.kind, self.group, self.builtin = kind, group, dict(builtin)

    def names(self) -> list[str]:
        """All names, those built in first; loads nothing."""
        return list(dict.fromkeys([*self.builtin, *self._outside()]))

    def known(self) -> dict[str, T]:
        """Everything by name; loads what other packages offer."""
        return {name: self.find(name) for name in self.names()}

    def own(self) -> dict[str, T]:
        """Everything that comes with haloscope by name, loaded."""
        return {name: self.find(name) for name in self.builtin}

    def __contains__(self, name: str) -> bool:
        return name in self.builtin or name in self._outside()

    def find(self, name: str) -> T:
        """What `name` means; loads nothing but that.

        Raises:
            InputError: an unknown name; the nearest one is named.
        """
        if name in self.builtin:
            own = self.builtin[name]
            if isinstance(own, EntryPoint):
                own = self.builtin[name] = cast(T, own.load())
            return own
        outside = self._outside()
        if name not in outside:
            raise unknown(self.kind, name, [*self.builtin, *outside])
        found: T = outside[name].load()
        return found

    def check(self, name: str) -> None:
        """Raise the InputError of `find` for an unknown name; loads nothing."""
        if name not in self:
            raise unknown(self.kind, name, self.names())

    def _outside(self) -> Mapping[str, EntryPoint]:
        return _offered(entry_points, self.group, tuple(sys.path))


@cache
def _offered(find: Callable[..., Iterable[EntryPoint]], group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """What other packages offer in a group, by name: the folders of `path` are looked through once in a process."""
    return {point.name: point for point in find(group=group)}


def class_places(package: str, group: str, classes: Mapping[str, str]) -> dict[str, EntryPoint]:
    """Name -> where its class is, as a registry's `builtin` takes it.

    Args:
        classes: name -> "module:class", the module below `package`.
    """
    return {name: EntryPoint(name, f"{package}.{place}", group) for name, place in classes.items()}


@dataclass(frozen=True)
class Optioned:
    """Base of what a name with options means: a frozen dataclass whose fields are the options, all with defaults.

    A field whose name would be a Python keyword ends in an underscore, which the text omits (`lambda`).
    """

    name: ClassVar[str]

    def validate(self) -> None:
        """Raise InputError for options out of range; called when the name is read, before anything is loaded."""

    def idle(self) -> dict[str, str]:
        """Options that change nothing beside the others, and which others: giving them is refused."""
        return {}


def option_fields(kind: type[Any]) -> dict[str, Field[Any]]:
    """The options of a dataclass, as a text names them."""
    return {f.name.removesuffix("_"): f for f in fields(kind)}


def text_of(thing: Optioned) -> str:
    """The text that is read as `thing`, every option written out in alphabetical order."""
    values = sorted((option, getattr(thing, f.name)) for option, f in option_fields(type(thing)).items())
    return ":".join([thing.name, *(f"{option}={value}" for option, value in values)])


def short_text(thing: Optioned) -> str:
    """The text that is read as `thing`, with the options that are not at their defaults."""
    found = ((option, getattr(thing, f.name), f.default) for option, f in option_fields(type(thing)).items())
    changed = (
        (option, str(value).lower() if value in (True, False) else value)
        for option, value, default in found
        if value != default
    )
    return ":".join([thing.name, *(f"{option}={value}" for option, value in changed)])


def syntax(name: str, kind: type[Any]) -> str:
    """`name` with every option and its default, in the order in which they are declared."""
    return ":".join([name, *(f"{option}={f.default}" for option, f in option_fields(kind).items())])


def parse_named(registry: Registry[type[R]], text: str, **defaults: Any) -> R:
    """What `name` or `name:option=value:...` means; `defaults` apply where it has that option.

    Raises:
        InputError: an unknown name or option (the nearest one is named), a value of the wrong type or out of range, or
            one that changes nothing beside the other options.
    """
    name, *words = text.split(":")
    kind = registry.find(name)
    options, where = option_fields(kind), f"{registry.kind} {text!r}"
    given = pairs(words, options, f"option of {name}", where)
    values: dict[str, Any] = {key: value for key, value in defaults.items() if key in options} | given
    types = get_type_hints(kind, include_extras=True)
    values = {key: converted(value, types[options[key].name], f"{where}: {key}") for key, value in values.items()}
    made: R = kind(**{options[key].name: value for key, value in values.items()})
    made.validate()
    for key, others in made.idle().items():
        if key in given and values[key] != options[key].default:
            raise InputError(f"{where}: {key} changes nothing with {others}")
    return made


def pairs(words: Sequence[str], known: Collection[str], kind: str, where: str) -> dict[str, str]:
    """Words `option=value` by option. InputError for an unknown option, one given twice, or another kind of word."""
    given: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"{where}: {word!r} is not option=value")
        if key not in known:
            raise unknown(kind, key, known)
        if key in given:
            raise InputError(f"{where}: option {key} is given twice")
        given[key] = value
    return given


def converted(value: Any, kind: Any, where: str) -> Any:
    """A value as its type. InputError "`where` must be ..." where it is none of that type."""
    infinite = kind is Unbounded
    kind = float if infinite else kind
    try:
        found = msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        found = None
    if found is not None and not _odd(found, infinite):
        return found
    raise InputError(f"{where} must be {_fitting(kind, infinite)}, not {value!r}")


def _fitting(kind: Any, infinite: bool) -> str:
    """The values of a type in words."""
    if get_origin(kind) is Literal:
        words = [str(value) for value in get_args(kind)]
        return f"one of {', '.join(words)}" if len(words) > 1 else words[0]
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_fitting(each, infinite) for each in get_args(kind))
    numbers = {int: "a whole number", float: "a number" if infinite else "a finite number"}
    return {**numbers, bool: "true or false"}.get(kind, str(kind))


def _odd(found: Any, infinite: bool) -> bool:
    """Whether a number is nan, infinite where it must not be, or longer than a machine's."""
    if isinstance(found, int) and abs(found) >= 2**63:
        return True
    return isinstance(found, float) and (math.isnan(found) or (math.isinf(found) and not infinite))
