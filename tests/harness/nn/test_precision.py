"""Training with rows in bfloat16: parameters stay in float32, half the bytes travel, and accuracy holds."""

from __future__ import annotations

import pytest
import torch

from harness.config import ModelConfig
from harness.errors import InputError
from harness.nn import Aggregation, build_model
from harness.running import run
from tests.conformance.test_drivers import config


def test_half_the_bytes_travel_and_the_loss_is_near() -> None:
    whole, half = (run(config("vanilla", epochs=20, precision=precision)) for precision in ("fp32", "bf16"))
    assert [2 * layer for layer in half.epochs[0]["bytes"]["forward"]] == whole.epochs[0]["bytes"]["forward"]
    assert half.epochs[0]["bytes"]["reduce"] == whole.epochs[0]["bytes"]["reduce"], "gradients of parameters are fp32"
    first, second = (result.epochs[0]["loss"] for result in (whole, half))
    assert first != second and second == pytest.approx(first, rel=2e-2)
    assert half.epochs[-1]["train"] > whole.epochs[-1]["train"] - 0.08


def test_parameters_and_their_gradients_stay_in_float32() -> None:
    model = build_model(ModelConfig(name="sage", precision="bf16", norm="layer"), 6, 3, seed=0)
    rows = model.rounded(torch.randn(5, 6))
    out = model.combine(0, rows, rows, transformed=False)
    out.float().sum().backward()
    assert out.dtype == torch.bfloat16
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert len(gradients) == 5 and all(g.dtype == torch.float32 for g in gradients)


def test_factors_of_large_degrees_are_rounded_once() -> None:
    degree, like = torch.tensor([257, 100_003]), torch.zeros(1, dtype=torch.bfloat16)
    found = Aggregation("mean").scale(degree, like)
    assert torch.equal(found[:, 0], (1 / degree.double()).bfloat16())


@pytest.mark.parametrize(
    ("method", "values", "message"),
    [
        ("sar", {}, "sar computes in fp32 only"),
        ("cdfgnn", {}, "cdfgnn computes in fp32 only"),
        ("vanilla", {"model": "gat"}, "only layers of gcn"),
        ("single:style=gather", {"parts": 1}, "style=gather computes in fp32 only"),
    ],
)
def test_what_computes_in_fp32_only_is_refused(method: str, values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(config(method, precision="bf16", **values))
