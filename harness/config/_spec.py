"""The frozen configuration of one run: what the flags, the config file, the run id and the result file share.

Values only: nothing here loads a graph or starts a run. Flags, files and results know the settings by one flat list of
keys; code knows them by record. An unknown key is an error that names the nearest one.
"""

from __future__ import annotations

import hashlib
import math
import numbers
import operator
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec

from harness.config._modes import in_mode, mode_rules
from harness.config._records import ClusterConfig, CutConfig, DataConfig, ExecutionConfig, ModelConfig, TrainingConfig
from harness.errors import InputError, unknown
from harness.keys import read_table

BESIDE_TRAINING = frozenset({"epochs", "eval_every", "evaluate", "timeout", "startup_timeout", "prepare_timeout"})
"""Keys that change how long a run goes on and what is noted of it, but no number that it computes."""

BESIDE_RUNS = frozenset({"prepare_timeout"})
"""Keys that change nothing at all about a run that succeeds: its id is the same, so a kept result stays good."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run, complete."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    cut: CutConfig = field(default_factory=CutConfig)
    run: ExecutionConfig = field(default_factory=ExecutionConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)

    @classmethod
    def of(cls, **values: Any) -> RunConfig:
        """The defaults with other values, by key."""
        return cls().changed(**values)

    def changed(self, **values: Any) -> RunConfig:
        """The same run with other values, by key. They are not checked; an unknown key is a KeyError."""
        by_record: dict[str, dict[str, Any]] = {}
        for key, value in values.items():
            place = RUN_SETTINGS[key]
            by_record.setdefault(place.record, {})[place.field.name] = value
        return replace(self, **{name: replace(getattr(self, name), **part) for name, part in by_record.items()})

    def flat(self) -> dict[str, Any]:
        """Every value by its key, as flags, config files and result files have them."""
        return {key: getattr(getattr(self, at.record), at.field.name) for key, at in RUN_SETTINGS.items()}

    def run_id(self) -> str:
        """SHA-256 hex of the canonical JSON of every key but `BESIDE_RUNS`."""
        return _hash({key: value for key, value in self.flat().items() if key not in BESIDE_RUNS})

    def training_id(self) -> str:
        """SHA-256 hex of what training depends on: what a checkpoint and the run that goes on must share."""
        return _hash({key: value for key, value in self.flat().items() if key not in BESIDE_TRAINING})


class Setting(NamedTuple):
    """Where a value lies in a `RunConfig`."""

    record: str
    field: Field[Any]
    type: Any


def _settings() -> Iterator[tuple[str, Setting]]:
    for name, record in get_type_hints(RunConfig).items():
        types = get_type_hints(record)
        for at in fields(record):
            yield at.metadata.get("key", at.name), Setting(name, at, types[at.name])


RUN_SETTINGS: dict[str, Setting] = dict(_settings())
"""Every setting of a run by its key, record by record."""


ADDED = {"precision": "fp32", "attention": "auto", "cuda_graphs": False, "hidden_heads": "concat"}
"""Settings that earlier versions did not have, and the value that does what those did: it is not part of identities."""


def _hash(values: dict[str, Any]) -> str:
    known = {key: value for key, value in values.items() if key not in ADDED or value != ADDED[key]}
    return hashlib.sha256(msgspec.json.encode(known, order="sorted")).hexdigest()


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
