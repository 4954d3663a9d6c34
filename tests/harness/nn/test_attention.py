"""Attention as one operator: values and gradients of the composition of plain operators, also with GPU kernels."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from harness.graphs import Block, LocalGraph
from harness.nn import GATConv, _layers
from harness.nn._attention import Attended, attend
from harness.nn._attention_torch import attend_torch
from harness.nn._messages import edge_rows, edge_softmax
from sims.device import Operator
from tests.support.kernel_devices import KernelDevice

SLOPE = 0.2


class Case:
    """Two blocks and the values of their nodes; `edges` in each of 16 is the share of all possible edges."""

    def __init__(
        self, sizes: tuple[int, int, int, int], edges: tuple[int, int], seed: int, spread: float = 1.0
    ) -> None:
        num_own, num_halo, heads, width = sizes
        rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
        self.own, self.halo = (
            _block(rng.random((num_own, columns)) * 16 < share)
            for columns, share in zip((num_own, num_halo), edges, strict=True)
        )
        scores = [torch.randn(n, heads, generator=generator) * spread for n in (num_own, num_own, num_halo)]
        rows = [torch.randn(n, heads, width, generator=generator) for n in (num_own, num_halo)]
        self.values, self.gradient = [*scores, *rows], torch.randn(num_own, heads, width, generator=generator)

    def fused(self, device: str, kernels: AbstractContextManager[None]) -> list[Tensor]:
        """Rows, and the gradients of the five values, of the operator."""
        values = [v.to(device).requires_grad_() for v in self.values]
        with kernels:
            out = attend(self.own.to(device), self.halo.to(device), SLOPE, Attended(*values))
            gradients = torch.autograd.grad(out, values, self.gradient.to(device))
        return [t.detach().cpu() for t in (out, *gradients)]

    def composed(self) -> list[Tensor]:
        """The same of plain operators, in double precision."""
        values = [v.double().requires_grad_() for v in self.values]
        target, *sources = values[:3]
        rows = torch.cat([edge_rows(self.own), edge_rows(self.halo)])
        ends = [side[block.indices.long()] for side, block in zip(sources, (self.own, self.halo), strict=True)]
        score = functional.leaky_relu(torch.cat(ends) + target[rows], SLOPE)
        messages = [x[block.indices.long()] for x, block in zip(values[3:], (self.own, self.halo), strict=True)]
        weighted = edge_softmax(score, rows, len(target))[:, :, None] * torch.cat(messages)
        out = torch.zeros_like(values[3]).index_add(0, rows, weighted)
        gradients = torch.autograd.grad(out, values, self.gradient.double(), materialize_grads=True)
        return [t.detach() for t in (out, *gradients)]


def _block(edges: np.ndarray) -> Block:
    rows, columns = np.nonzero(edges)
    indptr = np.searchsorted(rows, np.arange(edges.shape[0] + 1)).astype(np.int32)
    return Block.from_csr(indptr, columns.astype(np.int32), edges.shape[1])


def _check(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    names = ("out", *Attended._fields)
    for name, ours, theirs in zip(names, found, expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=2e-5, atol=2e-5, msg=lambda text, n=name: f"{n}: {text}")


SIZES = st.tuples(st.integers(1, 7), st.integers(0, 5), st.integers(1, 5), st.integers(1, 9))
EDGES = st.tuples(st.sampled_from([0, 2, 8, 16]), st.sampled_from([0, 4, 16]))


@given(sizes=SIZES, edges=EDGES, seed=st.integers(0, 2**31), spread=st.sampled_from([1.0, 50.0]))
def test_torch_operators_are_the_composition(
    sizes: tuple[int, int, int, int], edges: tuple[int, int], seed: int, spread: float
) -> None:
    case = Case(sizes, edges, seed, spread)
    _check(case.fused("cpu", nullcontext()), case.composed())


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=SIZES, edges=EDGES, seed=st.integers(0, 2**31), spread=st.sampled_from([1.0, 50.0]))
def test_kernels_are_the_composition(
    where: KernelDevice, sizes: tuple[int, int, int, int], edges: tuple[int, int], seed: int, spread: float
) -> None:
    """Any number of heads and columns, rows and blocks without edges, scores whose exponentials would overflow."""
    case = Case(sizes, edges, seed, spread)
    _check(case.fused(where.type, where.kernels()), case.composed())


@pytest.mark.parametrize(
    ("sizes", "edges"),
    [
        ((5, 0, 1, 4), (16, 0)),  # no halo, one head
        ((6, 4, 3, 5), (0, 16)),  # halo edges only
        ((4, 3, 2, 6), (0, 0)),  # no edge at all
        ((2, 9, 3, 130), (16, 16)),  # more entries, heads and columns than a program takes at once
    ],
)
def test_kernels_at_the_ends(where: KernelDevice, sizes: tuple[int, int, int, int], edges: tuple[int, int]) -> None:
    case = Case(sizes, edges, 1)
    found, again = (case.fused(where.type, where.kernels()) for _ in range(2))
    _check(found, case.composed())
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))


def test_what_is_kept_is_that_of_torch_operators(where: KernelDevice) -> None:
    case = Case((6, 4, 3, 5), (8, 8), 2)
    arrays = (case.own.indptr, case.own.indices, case.halo.indptr, case.halo.indices)
    with where.kernels():
        given = [where.there(t) for t in (*arrays, *case.values)]
        found = torch.ops.haloscope.attend(*given, SLOPE, True)
        bare = torch.ops.haloscope.attend(*given, SLOPE, False)
    for ours, theirs in zip(found, attend_torch(*arrays, *case.values, SLOPE, True), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)
    assert torch.equal(bare[0], found[0]) and bare[1].numel() == bare[2].numel() == 0


@pytest.mark.parametrize("mean_heads", [False, True])
def test_layers_attend_with_it_where_it_is_faster(
    where: KernelDevice, mean_heads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case((6, 4, 3, 5), (8, 8), 5)
    layer = GATConv(7, 5, 3, mean_heads)
    degrees = torch.ones(6), torch.ones(4)
    results = []
    for device, kernels in (("cpu", nullcontext()), (where.type, where.kernels())):
        graph = LocalGraph(case.own, case.halo, *degrees).to(device)
        generator = torch.Generator().manual_seed(1)
        own, halo = (torch.randn(n, 7, generator=generator).to(device).requires_grad_() for n in (6, 4))
        with kernels:
            out = layer.to(device)(graph, own, halo)
            gradients = torch.autograd.grad(out.square().sum(), [own, halo, *layer.parameters()])
        results.append([t.detach().cpu() for t in (out, *gradients)])
        monkeypatch.setattr(_layers, "fuses", lambda x, attention: True)
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)


def test_prices_count_what_the_kernels_gather() -> None:
    """One operator reads a row and its source score per edge and head; its gradient four numbers beside the row."""
    case, ops = Case((6, 4, 3, 5), (8, 8), 6), torch.ops.haloscope
    arrays = (case.own.indptr, case.own.indices, case.halo.indptr, case.halo.indices)
    forward = [*arrays, *case.values, SLOPE, True]
    found = ops.attend(*forward)
    work = Operator(ops.attend.default).work(forward, [], list(found))
    assert (work.kind, work.entries) == ("spmm", (case.own.nnz + case.halo.nnz) * 3 * 6)
    assert (work.rows, work.row_bytes, work.nbytes) == (10, 3 * 6 * 4, 4 * (2 * 6 * 3 * 5 + 6 * 3 * 4))
    backward = [case.own.t_indptr, case.own.t_indices, found[2], case.values[1], case.values[3], case.gradient, SLOPE]
    work = Operator(ops.attend_source_gradient.default).work(backward, [], list(ops.attend_source_gradient(*backward)))
    assert (work.kind, work.entries, work.rows) == ("spmm", case.own.nnz * 3 * 9, 6)


@pytest.mark.parametrize("keep", [True, False])
def test_shapes_are_known_without_values(keep: bool) -> None:
    case, ops = Case((6, 4, 3, 5), (8, 8), 7), torch.ops.haloscope
    forward = [case.own.indptr, case.own.indices, case.halo.indptr, case.halo.indices, *case.values]
    found = ops.attend(*forward, SLOPE, keep)
    calls = [(ops.attend, [*forward, SLOPE, keep])]
    if keep:
        calls.append((ops.attend_target_gradient, [case.gradient, *found, SLOPE]))
        given = [found[2], case.values[1], case.values[3], case.gradient, SLOPE]
        calls.append((ops.attend_source_gradient, [case.own.t_indptr, case.own.t_indices, *given]))
    for operator, arguments in calls:
        on_meta = [a.to("meta") if isinstance(a, Tensor) else a for a in arguments]
        for real, shape_only in zip(operator(*arguments), operator(*on_meta), strict=True):
            assert (real.shape, real.dtype) == (shape_only.shape, shape_only.dtype)


def test_only_what_is_asked_for_has_gradients(where: KernelDevice) -> None:
    case = Case((5, 3, 2, 4), (8, 8), 3)
    values = [where.there(v) for v in case.values]
    values[3].requires_grad_()
    with where.kernels():
        out = attend(case.own.to(where.type), case.halo.to(where.type), SLOPE, Attended(*values))
        (found,) = torch.autograd.grad(out, values[3], where.there(case.gradient))
    torch.testing.assert_close(found.cpu().double(), case.composed()[4], rtol=2e-5, atol=2e-5)
