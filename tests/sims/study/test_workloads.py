"""The training runs in which a calibration times operators."""

from __future__ import annotations

from harness.methods.registry import METHODS
from harness.running.validation_study import takes_model
from sims.study.calibrated import workloads


def test_every_method_can_train_what_it_is_timed_on() -> None:
    """Also those with more layers than others, for which fan-outs have to fit."""
    configs = workloads(1, True)
    refused = [c for c in configs if not takes_model(c.training.method, c)]
    assert not refused, "these end a calibration"
    timed = {config.training.method.partition(":")[0] for config in configs}
    assert timed == set(METHODS.builtin) - {"single"}
    wide = [c for c in configs if c.training.method.startswith("ec-graph") and c.model.layers == 3]
    assert {config.model.hidden for config in wide} == {64, 128}
