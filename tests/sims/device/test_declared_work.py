"""Operators declare their work beside their kernels, and a ledger prices them by it, a stranger's as well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness.codecs import MixedRows
from harness.kernels import work as kernels_work
from harness.kernels.work import CLASSES, BitsArgument, NeighbourSum, RowCodec, Streamed, declare_work, declared_work
from harness.methods.registry import METHODS
from sims.device import UNKNOWN, Operator, Work, load_device
from sims.device._profile import STREAMS

DOUBLED = "stranger::doubled"


def operators(namespace: str) -> Iterator[torch._ops.OpOverload]:
    """Every overload that was defined in a namespace."""
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space == namespace:
            yield getattr(getattr(torch.ops, space), name).default


@pytest.fixture
def doubled(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch._ops.OpOverload]:
    """A stranger's operator, whose work is not declared yet; what a test declares of it is forgotten."""
    monkeypatch.setattr(kernels_work, "_DECLARED", dict(kernels_work._DECLARED))
    with torch.library._scoped_library("stranger", "FRAGMENT") as library:
        library.define("doubled(Tensor rows, int bits) -> Tensor")
        library.impl("doubled", lambda rows, bits: 2 * rows, "CPU")
        yield torch.ops.stranger.doubled.default


def priced(func: Any, *args: Any) -> tuple[Operator, Work]:
    """One call, sized."""
    operator, out = Operator(func), func(*args)
    return operator, operator.work(args, [a for a in args if isinstance(a, Tensor)], [out])


def test_every_operator_of_the_project_declares_its_work() -> None:
    METHODS.own()  # their modules define every operator
    found = {op._schema.name: Operator(op) for op in operators("haloscope")}
    assert len(found) >= 16
    assert [name for name in found if declared_work(name) is None] == []
    assert {operator.kind for operator in found.values()} <= set(CLASSES)
    assert all(operator.known and operator.name == name for name, operator in found.items())


def test_a_strangers_operator_is_priced_as_it_declares(doubled: torch._ops.OpOverload) -> None:
    rows = torch.ones(8, 4)
    operator, work = priced(doubled, rows, 2)
    assert not operator.known and work == Work(UNKNOWN, 2 * rows.nbytes, fresh=rows.nbytes, name=DOUBLED)
    declare_work(DOUBLED, RowCodec(rows=0, bits=BitsArgument(1)))
    operator, work = priced(doubled, rows, 2)
    assert operator.known and work == Work(
        "codec", rows.nbytes, lines=len(rows), width=rows.shape[1], bits=2, fresh=rows.nbytes, name=f"{DOUBLED}:2"
    )
    assert load_device("l4").seconds(work) > 0
    with pytest.raises(ValueError, match="declared already"):
        declare_work(DOUBLED, Streamed("copy"))
    with pytest.raises(ValueError, match=r"stranger::copied is of no known class: 'copyy'; known: gemm, spmm"):
        declare_work("stranger::copied", Streamed("copyy"))
    assert set(STREAMS) < set(CLASSES), "what a device file prices"


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("bits", "mean"), [((2, 2, 2, 2), 2), ((8, 8, 2, 2), 5), ((8, 8, 8, 4), 7), ((4, 4, 2, 4), 4)])
def test_rows_with_different_bits_are_priced_by_their_mean(bits: tuple[int, ...], mean: int, device: str) -> None:
    """And their operator has one name, with which devices timed it."""
    layout = MixedRows.of(torch.tensor(bits, dtype=torch.uint8), 8, np.array([4]))
    rows, codes = (
        torch.randn(4, 8, device=device),
        torch.empty(int(layout.nbytes.sum()), dtype=torch.uint8, device=device),
    )
    side = torch.zeros(4, 2, dtype=torch.bfloat16, device=device)
    coding, decoding = (
        Operator(getattr(torch.ops.haloscope, f"{name}_mixed").default) for name in ("quantize", "dequantize")
    )
    there = (layout.bits.to(device), layout.offsets.to(device))
    encoded = coding.work((rows, *there, 1, codes.numel()), [rows, *there], [codes, side])
    decoded = decoding.work((codes, side, *there, 8), [codes, side, *there], [rows])
    for work, name in ((encoded, "haloscope::quantize_mixed"), (decoded, "haloscope::dequantize_mixed")):
        assert (work.kind, work.bits, work.name, work.nbytes) == ("codec", mean, name, rows.nbytes)
    profile = load_device("cpu-epyc-1core")
    fewest = profile.seconds(replace(encoded, bits=1, name="", fresh=0)) - profile.launch.value
    found = profile.seconds(replace(encoded, name="", fresh=0)) - profile.launch.value
    assert found == pytest.approx(fewest * profile.codec_rate(1) / profile.codec_rate(mean))


def test_a_codec_without_a_choice_of_bits_has_their_number() -> None:
    rows = torch.ones(8, 4)
    assert RowCodec(rows=0, bits=16)([rows], [rows], [rows.half()]).bits == 16


def test_formulas_go_by_shapes_alone() -> None:
    indices, x, out = torch.zeros(12, dtype=torch.int32), torch.ones(6, 2, 8), torch.ones(4, 2, 8)
    for where in ("cpu", "meta"):
        args = [torch.zeros(5, device=where), indices.to(where), x.to(where)]
        work = NeighbourSum(columns=1, rows=2)(args, args, [out.to(where)])
        assert work == Work("spmm", out.nbytes, entries=12 * 16, width=8)
        assert (work.rows, work.row_bytes) == (6, 8 * 4)
