"""From keys and values, of flags, files or results, to a config whose values are in range."""

from __future__ import annotations

import math
import numbers
import operator
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from harness.config._modes import in_mode, mode_rules
from harness.config._spec import RUN_SETTINGS, RunConfig
from harness.errors import InputError, unknown
from harness.keys import read_table


def from_mapping(values: Mapping[str, Any], base: RunConfig | None = None, source: str = "config") -> RunConfig:
    """A config from keys and values laid over `base`.

    Raises:
        InputError: an unknown key (the nearest one is named) or a value of the wrong type or out of range.
    """
    config = laid_over(values, base, source)
    check(config)
    return config


def laid_over(values: Mapping[str, Any], base: RunConfig | None = None, source: str = "config") -> RunConfig:
    """As `from_mapping`, but ranges are not checked: other values follow, and only all together must fit."""
    flat = {key.replace("-", "_"): value for key, value in values.items()}
    for key in flat:
        if key not in RUN_SETTINGS:
            raise unknown(f"{source} key", key, RUN_SETTINGS)
    return (base or RunConfig()).changed(**{key: _converted(value, key, source) for key, value in flat.items()})


def from_record(values: Mapping[str, Any], source: str) -> RunConfig:
    """The config of a result file: earlier versions accepted settings that are idle in its mode; they are left out.

    Raises:
        InputError: as `from_mapping`.
    """
    config = laid_over(values, source=source)
    config = in_mode(config, config.run.mode)
    check(config)
    return config


def _converted(value: Any, key: str, source: str) -> Any:
    kind = RUN_SETTINGS[key].type
    try:
        return msgspec.convert(_plain(value, kind), kind, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{source}: {error} - at `$.{key}`") from None


def _plain(value: Any, kind: Any) -> Any:
    """Paths as texts, and numbers of other libraries (NumPy's) as Python's, where such a setting is wanted."""
    if kind is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    if kind is int and isinstance(value, numbers.Integral):
        return value if isinstance(value, bool) else operator.index(value)
    if kind is float and isinstance(value, numbers.Real):
        return value if isinstance(value, bool) else float(value)
    return value


def from_toml(path: Path, base: RunConfig | None = None, leave_out: Collection[str] = ()) -> RunConfig:
    """What a TOML file with the keys of a run says, laid over `base`, as `laid_over`: flags may follow.

    `leave_out`: keys, with underscores, that are not taken from the file.
    """
    table = read_table(path, "config file")
    kept = {key: value for key, value in table.items() if key.replace("-", "_") not in leave_out}
    return laid_over(kept, base, source=path.name)


def check(config: RunConfig) -> None:
    """Raise InputError for values out of range, before anything is loaded."""
    records = (config.data, config.model, config.training, config.cut, config.run, config.cluster)
    rules = [rule for record in records for rule in record.rules()]
    rules += [
        (math.isfinite(value), f"{key.replace('_', '-')} must be a finite number")
        for key, value in config.flat().items()
        if isinstance(value, float)
    ]
    rules += [
        (abs(value) < 2**63, f"{key.replace('_', '-')} must have fewer than 19 digits")
        for key, value in config.flat().items()
        if isinstance(value, int)
    ]
    rules += mode_rules(config)
    for holds, message in rules:
        if not holds:
            raise InputError(message)
