"""A run's settings: one flat list of keys outside, six records inside, and identities that never change unasked."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from harness.config import RUN_SETTINGS, ModelConfig, RunConfig, from_mapping, from_toml
from harness.errors import InputError

KEYS = [
    "dataset", "split", "protocol", "features", "model", "layers", "linear_layers", "hidden", "heads", "dropout",
    "norm", "order", "precision", "method", "layer0", "parts", "partitioner", "hosts", "renumber", "mode", "cluster",
    "shapes_only", "rates", "epochs", "lr", "weight_decay", "seed", "eval_every", "evaluate", "threads", "device",
    "backend", "deterministic", "timeout", "startup_timeout", "prepare_timeout",
]  # fmt: skip
"""Flags, TOML keys and the `config` of result files."""

IDS: list[tuple[dict[str, Any], str, str]] = [
    (
        {},
        "cb40ac0ea42738095af6a6e684812b5d1db3fcced0e8da4db94e863e399f601b",
        "da8cd31989165ae2634532c11ad93bac7d94b9524d739fceede37e87278f1e5b",
    ),
    (
        {"method": "bns-gcn:p=0.1", "parts": 4, "model": "sage", "layers": 3, "hidden": 128, "dropout": 0.5},
        "d5d25cdf0841fd775137e8a3b4fad9d8ee690ce516428ad5964b8fd1f55024bc",
        "0c5326df671651c0aaa989cc0ae6875bca75d9ec7d6a19a170858411f4b8b8f0",
    ),
    (
        {
            "mode": "sim", "cluster": "ethernet-10g", "epochs": 3, "lr": 0.003, "weight_decay": 5e-4, "seed": 7,
            "dataset": "synthetic:nodes=300", "partitioner": "ebv:gamma=0.2", "hosts": 2, "method": "cdfgnn",
        },
        "0af255906ac8097456e082afd649d1e954aa6d264a9dd256e78a77cadb0bec2f",
        "629e5993ab196c806db18612b0acaeffd5a6453fdc678f69ccc75f517b8a87f7",
    ),
    (
        {"mode": "sim", "shapes_only": True, "rates": "x.json", "dataset": "workload:papers100m-192", "parts": 192},
        "546bdb9f1df4f410092f8e390db172cd7cea6906c0f09cd968115b5a3d7a9410",
        "6f9c7e0f77e6f2eb9227342b9c42e590f725d1eddacce4419222aa05d82dc5c6",
    ),
    (
        {
            "mode": "real", "evaluate": "spare", "device": "cuda", "backend": "nccl", "timeout": 5,
            "prepare_timeout": 9.0, "startup_timeout": 8.0, "deterministic": False, "eval_every": 0, "threads": 2,
            "norm": "layer", "order": "auto", "features": "standard", "protocol": "inductive", "split": "public",
            "renumber": "4", "heads": 2, "linear_layers": 1, "layer0": "cache",
        },
        "f99c1f6a93790f4804806ba799a1f38f11d85a2f812d7d3947e410eddfb195f2",
        "29b61179e18479a5afad12a3a7a987078049e065651d6595592bf95d14ec222e",
    ),
]  # fmt: skip
"""Settings, run id, training id, by which results and checkpoints of earlier versions are found."""


@pytest.mark.parametrize(("values", "run_id", "training_id"), IDS, ids=["default", "model", "sim", "shapes", "real"])
def test_identities_stay_what_they_were(values: dict[str, Any], run_id: str, training_id: str) -> None:
    config = from_mapping(values)
    assert (config.run_id(), config.training_id()) == (run_id, training_id)
    assert from_mapping(config.flat()) == config
    other = from_mapping({"hidden": 17}, config)
    assert other.run_id() != run_id and other.training_id() != training_id


def test_a_setting_that_was_added_is_part_of_identities_where_it_changes_something() -> None:
    before, after = RunConfig(), RunConfig.of(precision="bf16")
    assert before.run_id() != after.run_id() and before.training_id() != after.training_id()


def test_the_keys_are_those_of_flags_and_files() -> None:
    assert sorted(RUN_SETTINGS) == sorted(KEYS) and sorted(RunConfig().flat()) == sorted(KEYS)
    records = ["data", "model", "training", "cut", "run", "cluster"]
    assert list(dict.fromkeys(setting.record for setting in RUN_SETTINGS.values())) == records


def test_a_key_changes_its_record_and_no_other() -> None:
    before = RunConfig()
    after = before.changed(model="gat", heads=4, cluster="l4-4x8")
    assert after.model == ModelConfig(name="gat", heads=4) and after.cluster.name == "l4-4x8"
    assert (after.data, after.training, after.cut, after.run) == (
        before.data, before.training, before.cut, before.run,
    )  # fmt: skip
    assert after == RunConfig.of(model="gat", heads=4, cluster="l4-4x8") and hash(after) != hash(before)
    with pytest.raises(KeyError):
        before.changed(name="gat")
    with pytest.raises(FrozenInstanceError):
        before.model.hidden = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"modle": "gat"}, "unknown config key 'modle'; did you mean 'mode'?"),
        ({"name": "gat"}, "unknown config key 'name'"),
        ({"layers": "two"}, "config: Expected `int`, got `str` - at `$.layers`"),
        ({"model": 3}, "config: Expected `str`, got `int` - at `$.model`"),
        ({"mode": "rael"}, "config: Invalid enum value 'rael' - at `$.mode`"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"linear_layers": 2}, "linear-layers must be fewer than layers"),
        ({"hidden": 0}, "hidden must be at least 1"),
        ({"heads": 0}, "heads must be at least 1"),
        ({"dropout": 1.0}, "dropout must be in [0, 1)"),
        ({"parts": 0}, "parts must be at least 1"),
        ({"hosts": 0}, "hosts must be at least 1"),
        ({"renumber": "some"}, "renumber must be auto or a number of clusters"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"lr": 0}, "lr must be positive"),
        ({"threads": -1}, "threads must be from 0 to 4096"),
        ({"timeout": 0}, "timeout must be positive (seconds), and at most 1e+08"),
        ({"evaluate": "spare"}, "evaluate=spare needs --mode real"),
        ({"device": "tpu"}, "device must be cpu or cuda"),
        ({"shapes_only": True}, "shapes-only needs --mode sim"),
        ({"rates": "x.json"}, "rates are for --shapes-only"),
    ],
)
def test_a_bad_value_is_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        from_mapping(values)


def test_a_file_has_the_same_flat_keys(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("model = 'sage'\neval-every = 5\ncluster = 'l4-4x8'\nlr = 1\n")
    assert from_toml(file) == RunConfig.of(model="sage", eval_every=5, cluster="l4-4x8", lr=1.0)
    file.write_text("[model]\nname = 'sage'\n")
    with pytest.raises(InputError, match="run.toml: Expected `str`, got `object` - at `.*model`"):
        from_toml(file)
