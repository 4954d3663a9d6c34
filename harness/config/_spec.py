"""The frozen configuration of one run: what the flags, the config file, the run id and the result file share.

Values only: nothing here loads a graph or starts a run. An unknown key is an error that names the nearest one.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import msgspec

from harness.errors import InputError, unknown

Mode = Literal["loopback", "sim", "real"]
BESIDE_TRAINING = frozenset({"epochs", "eval_every", "evaluate", "timeout", "startup_timeout", "prepare_timeout"})
"""Fields that change how long a run goes on and what is noted of it, but no number that it computes."""

BESIDE_RUNS = frozenset({"prepare_timeout"})
"""Fields that change nothing at all about a run that succeeds: its id is the same, so a kept result stays good."""

LAYER0 = ("auto", "precompute", "cache", "exchange")


def option(default: Any, help: str) -> Any:
    """A dataclass field with the help text that the command line and the docs print."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run, complete. The field names are the flags (`--eval-every`) and the keys of a TOML file (`eval_every`)."""

    dataset: str = option(
        "synthetic:",
        "graph name, path to an .npz, or synthetic:KEY=VALUE,... (see `haloscope datasets`); with --shapes-only also "
        "workload:NAME or a .toml or .json description of counts",
    )
    split: str = option("auto", "auto | public | random:0.6/0.2/0.2 | counts:1408/300/1000, and :keep=0.3 behind it")
    protocol: Literal["transductive", "inductive"] = option(
        "transductive", "inductive trains on the subgraph of training nodes"
    )
    features: Literal["raw", "row", "standard", "projected"] = option(
        "raw", "feature scaling: none, row sums to 1, standardised, or standardised after projection to 256 columns"
    )
    model: str = option("gcn", "gcn | gcn-no-loop | sage | gat, or a model of an installed package")
    layers: int = option(2, "number of graph layers")
    linear_layers: int = option(0, "how many of the layers, from the end, are dense and read no neighbours")
    hidden: int = option(16, "hidden width (per head for gat)")
    heads: int = option(1, "attention heads (gat)")
    dropout: float = option(0.0, "dropout probability, 0 to 1")
    norm: Literal["none", "layer"] = option("none", "normalisation after every layer but the last")
    order: Literal["aggregate-first", "linear-first", "auto"] = option(
        "aggregate-first", "order of linear map and aggregation; auto: linear first where the output is narrower"
    )
    method: str = option("vanilla", "method and its options, e.g. bns-gcn:p=0.1 (see `haloscope methods`)")
    layer0: Literal["auto", "precompute", "cache", "exchange"] = option(
        "auto", "what is done about the input features of halo nodes"
    )
    parts: int = option(2, "number of partitions = ranks")
    partitioner: str = option(
        "auto",
        "metis-cut | metis (volume objective, slower) | hash | contiguous; vertex cuts: ebv | hep | dne | libra | "
        "hdrf, with options (ebv:gamma=0.1); auto: metis-cut, or ebv where the method cuts vertices",
    )
    hosts: int = option(1, "hosts the parts are spread over in equal blocks, for hierarchical partitioners (ebv)")
    renumber: str = option("auto", "clusters for renumbering nodes inside a part: auto, or a number (0 = off)")
    mode: Mode = option(
        "loopback", "loopback (one process, no clock) | sim (modelled cluster) | real (torch.distributed)"
    )
    cluster: str = option(
        "local",
        "cluster model: a name from `haloscope clusters` or a TOML file (sim); lab:3x1gbit: modelled in sim, built in "
        "real mode (docs/lab.md)",
    )
    shapes_only: bool = option(False, "sim only: follow shapes on meta tensors, no numbers, no accuracy")
    rates: str = option("", "shapes-only: result file of a run of this method with numbers, for what depends on data")
    epochs: int = option(100, "training epochs")
    lr: float = option(0.01, "Adam learning rate")
    weight_decay: float = option(0.0, "Adam weight decay")
    seed: int = option(0, "root of every random stream")
    eval_every: int = option(10, "epochs between evaluations; 0 evaluates after the last epoch only; -1 never")
    evaluate: Literal["ranks", "spare"] = option(
        "ranks", "who evaluates: all ranks, while training waits, or a spare CPU process beside them (real mode)"
    )
    threads: int = option(0, "CPU threads per rank; 0 shares the cores of this machine among the ranks")
    device: str = option("cpu", "cpu | cuda (real mode; several ranks share a GPU where there are fewer)")
    backend: Literal["auto", "gloo", "nccl"] = option(
        "auto", "torch.distributed backend (real mode); auto: nccl for cuda, gloo for cpu"
    )
    deterministic: bool = option(True, "all-reduce adds in rank order, so that losses are bit-equal in every mode")
    timeout: float = option(60.0, "seconds that one exchange may take (real mode)")
    startup_timeout: float = option(
        300.0, "seconds that ranks may take to find each other and begin, and for a checkpoint (real mode)"
    )
    prepare_timeout: float = option(
        3600.0, "seconds that the first rank of a machine may take to load and partition the graph (real mode)"
    )

    def run_id(self) -> str:
        """SHA-256 hex of the canonical JSON of every field but `BESIDE_RUNS`."""
        return _hash({name: value for name, value in asdict(self).items() if name not in BESIDE_RUNS})

    def training_id(self) -> str:
        """SHA-256 hex of the fields that training depends on: what a checkpoint and the run that goes on must share."""
        return _hash({name: value for name, value in asdict(self).items() if name not in BESIDE_TRAINING})


def _hash(values: dict[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(values, order="sorted")).hexdigest()


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
    names = {f.name for f in fields(RunConfig)}
    flat = {key.replace("-", "_"): value for key, value in values.items()}
    for key in flat:
        if key not in names:
            raise unknown(f"{source} key", key, names)
    merged = {**asdict(base or RunConfig()), **flat}
    try:
        return msgspec.convert(merged, RunConfig, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{source}: {error}") from None


def from_toml(path: Path) -> RunConfig:
    """What a TOML file with the fields of `RunConfig` as keys says, as `laid_over`: flags may follow."""
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"cannot read config file {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"config file {path} is not TOML: {error}") from None
    return laid_over(values, source=path.name)


def check(config: RunConfig) -> None:
    """Raise InputError for values out of range, before anything is loaded."""
    rules = [
        (config.layers >= 1, "layers must be at least 1"),
        (0 <= config.linear_layers < config.layers, "linear-layers must be fewer than layers"),
        (config.hidden >= 1, "hidden must be at least 1"),
        (config.heads >= 1, "heads must be at least 1"),
        (0.0 <= config.dropout < 1.0, "dropout must be in [0, 1)"),
        (config.parts >= 1, "parts must be at least 1"),
        (config.hosts >= 1, "hosts must be at least 1"),
        (config.epochs >= 1, "epochs must be at least 1"),
        (config.lr > 0, "lr must be positive"),
        (config.threads >= 0, "threads must not be negative"),
        (config.timeout > 0, "timeout must be positive (seconds)"),
        (config.startup_timeout > 0, "startup-timeout must be positive (seconds)"),
        (config.prepare_timeout > 0, "prepare-timeout must be positive (seconds)"),
        (config.mode == "real" or config.evaluate == "ranks", "evaluate=spare needs --mode real"),
        (config.device in ("cpu", "cuda"), "device must be cpu or cuda"),
        (config.mode == "sim" or not config.shapes_only, "shapes-only needs --mode sim"),
        (config.shapes_only or not config.rates, "rates are for --shapes-only; other runs observe their own"),
        (config.renumber == "auto" or config.renumber.isdigit(), "renumber must be auto or a number of clusters"),
    ]
    for fine, message in rules:
        if not fine:
            raise InputError(message)
