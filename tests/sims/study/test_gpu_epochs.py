"""Epochs of a GPU beside what the model says of them: `h200_epochs.json`, taken from runs of `benchmarks.gpu_epoch`."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest

from benchmarks.gpu_epoch import cells, named, predicted

MEASURED = json.loads((Path(__file__).parents[1] / "device" / "h200_epochs.json").read_text())["cells"]
CONFIGS = {tuple(named(config).values()): config for config in cells(7)}
FITTED = 5_000
"""Nodes of the cells to which the host's numbers in the profile were fitted; the profile has seen no others."""


@pytest.fixture(scope="module")
def errors() -> dict[tuple[int, str, int], float]:
    """Nodes, model and width of the other cells -> relative error."""
    found = {}
    for cell in MEASURED:
        if cell["nodes"] != FITTED:
            config = CONFIGS[cell["nodes"], cell["degree"], cell["model"], cell["width"]]
            seconds = cell["contenders"]["haloscope"]["seconds"]
            found[cell["nodes"], cell["model"], cell["width"]] = predicted(config, "h200-1") / seconds - 1
    return found


def test_epochs_are_predicted(errors: dict[tuple[int, str, int], float]) -> None:
    assert len(errors) == 18
    assert median(map(abs, errors.values())) <= 0.10
    assert max(map(abs, errors.values())) <= 0.25


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_every_model_is_predicted(errors: dict[tuple[int, str, int], float], model: str) -> None:
    """Attention was two to four times too fast when it was priced as the operators that CPUs compose it of."""
    assert median(abs(error) for (_, name, _), error in errors.items() if name == model) <= 0.15


def test_composed_attention_is_priced_as_what_it_is() -> None:
    config = CONFIGS[400_000, 30, "gat", 64]
    assert predicted(config.changed(attention="composed"), "h200-1") > 2 * predicted(config, "h200-1")
