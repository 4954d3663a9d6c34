"""What must be equal on all ranks of a run, in words: compared before they exchange anything else.

torchrun is typed once per host, in environments and beside folders that may differ. Ranks that train with other
settings or on another split exchange the same shapes, so that no check of an exchange would notice.
"""

from __future__ import annotations

import hashlib
import os

import msgspec
import torch

from harness import machine
from harness.config import BESIDE_RUNS, RunConfig
from harness.running import Checkpoints, Prepared

SHOWN = 12
"""Characters of a hash that messages show."""


def settings_compared(config: RunConfig, checkpoints: Checkpoints | None) -> dict[str, str]:
    """Flag or library -> value, of a rank that has read its flags and no data."""
    settings = {f"--{key.replace('_', '-')}": str(value) for key, value in config.flat().items()}
    for key in BESIDE_RUNS:
        del settings[f"--{key.replace('_', '-')}"]
    return {
        **settings,
        "--checkpoint": "not given" if checkpoints is None else "given",
        "--checkpoint-every": "" if checkpoints is None else str(checkpoints.every),
        "HALOSCOPE_DEBUG": os.environ.get("HALOSCOPE_DEBUG", ""),
        "haloscope's code": machine.code_version("harness", "real")[:SHOWN],
        "torch": str(torch.__version__),
    }


def data_compared(prepared: Prepared) -> dict[str, str]:
    """Name -> hash of the graph and of its parts."""
    qualities = [folder.quality.summary() for folder in (prepared.train, prepared.evaluate)]
    quality = hashlib.sha256(msgspec.json.encode(qualities, order="sorted")).hexdigest()
    return {
        "the graph (hash of edges, features, labels and split)": str(prepared.graph["fingerprint"])[:SHOWN],
        "the partition": prepared.train.path.name[:SHOWN],
        "the partition for evaluation": prepared.evaluate.path.name[:SHOWN],
        "the cut of the partition": quality[:SHOWN],
    }
