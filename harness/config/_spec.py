"""The frozen configuration of one run: what the flags, the config file, the run id and the result file share.

Values only: nothing here loads a graph or starts a run. Flags, files and results know the settings by one flat list of
keys; code knows them by record. An unknown key is an error that names the nearest one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, NamedTuple, get_type_hints

import msgspec

from harness.config._records import ClusterConfig, CutConfig, DataConfig, ExecutionConfig, ModelConfig, TrainingConfig

BESIDE_TRAINING = frozenset({"epochs", "eval_every", "evaluate", "timeout", "startup_timeout", "prepare_timeout"})
"""Keys that change how long a run goes on and what is noted of it, but no number that it computes."""

TOLD_BY_CHECKPOINTS = {"threads": 0}
"""Keys that change numbers, but that checkpoints tell themselves, each with the value that it has in a training's id.

A training that goes on elsewhere must be able to name what an earlier run left to its machine.
"""

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
        """SHA-256 hex of what training depends on: what a checkpoint and the run that goes on must share.

        `TOLD_BY_CHECKPOINTS` are compared by the checkpoint: the run that goes on finds it, and is told the difference.
        """
        values = {**self.flat(), **TOLD_BY_CHECKPOINTS}
        return _hash({key: value for key, value in values.items() if key not in BESIDE_TRAINING})


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
