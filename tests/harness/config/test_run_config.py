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
    "dataset", "split", "protocol", "features", "model", "layers", "linear_layers", "hidden", "heads", "hidden_heads",
    "dropout", "norm", "order", "attention", "precision", "method", "layer0", "parts", "partitioner", "hosts",
    "renumber", "mode", "cluster", "shapes_only", "rates", "epochs", "lr", "weight_decay", "seed", "eval_every",
    "evaluate",
    "threads", "device", "backend", "cuda_graphs", "deterministic", "timeout", "startup_timeout", "prepare_timeout",
]  # fmt: skip
"""Flags, TOML keys and the `config` of result files."""

IDS: list[tuple[dict[str, Any], str, str]] = [
    (
        {},
        "ec246908770398191c4b5a47844f0f2e72e001a1ee7e1410c1985914292447fc",
        "7e149339f46567692d0bb46a768e8b4127a561114850ae9c3722ac60820583d2",
    ),
    (
        {"method": "bns-gcn:p=0.1", "parts": 4, "model": "sage", "layers": 3, "hidden": 128, "dropout": 0.5},
        "303fe26c69f6bd95921e0ece22073c626fed66716c9cf092dc320972ad66d220",
        "cd369e05f1080825b9939e0584bfc9375c87bcc71129ba02ae3fb3cf9ab84241",
    ),
    (
        {
            "mode": "sim", "cluster": "ethernet-10g", "epochs": 3, "lr": 0.003, "weight_decay": 5e-4, "seed": 7,
            "dataset": "synthetic:nodes=300", "partitioner": "ebv:gamma=0.2", "hosts": 2, "method": "cdfgnn",
        },
        "d86339ad739e2cc4b25db57cda6cc7d85a0709cd76d502af7f855f47f36bb0fc",
        "3ba209c36d4112b105ec037ab92552132982278a95d4dbdd99807d59e50c07ef",
    ),
    (
        {"mode": "sim", "shapes_only": True, "rates": "x.json", "dataset": "workload:papers100m-192", "parts": 192},
        "3a9e63b90e1dfc279ca4dc4d0af01ec307a8ac7c34524fbcd415cd98381a5265",
        "ab4b8794ed5832cbe2ec31eb5b0656ddc900560a4786d2b9185b5f748a6ec128",
    ),
    (
        {
            "mode": "real", "evaluate": "spare", "device": "cuda", "backend": "nccl", "timeout": 5,
            "prepare_timeout": 9.0, "startup_timeout": 8.0, "deterministic": False, "eval_every": 0, "threads": 2,
            "norm": "layer", "order": "auto", "features": "standard", "protocol": "inductive", "split": "public",
            "renumber": "4", "heads": 2, "linear_layers": 1, "layer0": "cache",
        },
        "8dbe4d861d6070ec70d8af085da41a2a308438ad3165dd9c90849c29a7e50944",
        "d5f1717cadd24a3d7b445e817b60d81fb09cd42fd466e0be5ab9e2e82bf8fe33",
    ),
]  # fmt: skip
"""Settings, run id, training id, by which results of earlier versions and checkpoints are found."""


@pytest.mark.parametrize(("values", "run_id", "training_id"), IDS, ids=["default", "model", "sim", "shapes", "real"])
def test_identities_stay_what_they_were(values: dict[str, Any], run_id: str, training_id: str) -> None:
    config = from_mapping(values)
    assert (config.run_id(), config.training_id()) == (run_id, training_id)
    assert from_mapping(config.flat()) == config
    other = from_mapping({"hidden": 17}, config)
    assert other.run_id() != run_id and other.training_id() != training_id


def test_a_setting_that_was_added_is_part_of_identities_where_it_changes_something() -> None:
    before = RunConfig()
    for after in (RunConfig.of(precision="bf16"), RunConfig.of(attention="fused")):
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
        ({"renumber": "some"}, "renumber must be auto or a number of nodes"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"lr": 0}, "lr must be positive"),
        ({"eval_every": -2}, "eval-every must be at least -1, which never evaluates"),
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
