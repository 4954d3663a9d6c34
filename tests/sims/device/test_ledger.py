"""Operator work from shapes, charging and caching of operators, and live memory."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.kernels import dropout, quantize
from harness.kernels.work import ACROSS, ADDED
from harness.nn import _aggregate as spmm
from sims.device import Call, LiveMemory, OperatorCost, ShapeMemory, Work, load_device
from sims.engine import Ledger, Prices
from sims.engine._ledger import Price
from sims.units import Quantity

assert dropout and quantize  # imported for the operators they register


class Meter:
    """Seconds charged so far."""

    def __init__(self) -> None:
        self.paused, self.kind, self.total, self.calls = False, "compute", 0.0, 0

    def charge(self, seconds: float, launches: float = 1) -> None:
        self.total += seconds
        self.calls += 1


class Recorder(Prices):
    """Prices that record the priced work."""

    def __init__(self) -> None:
        super().__init__(load_device("cpu-epyc-1core"))
        self.works: list[tuple[str, Work]] = []

    def price(
        self, func: Any, args: Any, inputs: list[Tensor], outputs: list[Tensor], call: Call | None = None
    ) -> Price:
        operator = self.operator(func)
        self.works.append((operator.name, operator.work(args, inputs, outputs)))
        return super().price(func, args, inputs, outputs, call)


def works_of(run: Any, shapes: ShapeMemory | None = None) -> list[tuple[str, Work]]:
    """The work of every operator that `run` calls, free ones left out; their names stand beside it."""
    recorder = Recorder()
    with Ledger(recorder, Meter(), LiveMemory(), shapes):
        run()
    assert not recorder.unknown
    plain = [
        (name, work.name.removesuffix("_").removesuffix(ADDED).removesuffix(ACROSS), work.bits)
        for name, work in recorder.works
    ]
    assert all(named == (f"{name}:{bits}" if bits else name) for name, named, bits in plain)
    return [(name, replace(work, name="")) for name, work in recorder.works]


def csr(rows: int, nnz: int, columns: int, device: str) -> tuple[Tensor, Tensor]:
    if device == "meta":
        return torch.empty(rows + 1, dtype=torch.int32, device=device), torch.empty(
            nnz, dtype=torch.int32, device=device
        )
    indptr = torch.linspace(0, nnz, rows + 1).to(torch.int32)
    return indptr, torch.arange(nnz, dtype=torch.int32) % columns


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_work_of_products(device: str) -> None:
    a, b = torch.ones(5, 7, device=device), torch.ones(7, 3, device=device)
    bias, batch = torch.ones(3, device=device), torch.ones(2, 5, 7, device=device)

    def run() -> None:
        a @ b
        torch.addmm(bias, a, b)
        torch.bmm(batch, batch.transpose(1, 2))
        functional.linear(a, b.t())
        a.mv(a[0])

    flops = [(name, work.kind, work.flops) for name, work in works_of(run)]
    assert [work.width for _, work in works_of(run)] == [3, 3, 5, 3, 1]  # the shortest side
    assert flops == [
        ("mm", "gemm", 2 * 5 * 7 * 3),
        ("addmm", "gemm", 2 * 5 * 7 * 3),
        ("bmm", "gemm", 2 * 2 * 5 * 7 * 5),
        ("mm", "gemm", 2 * 5 * 7 * 3),
        ("mv", "gemm", 2 * 5 * 7),
    ]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_codecs_of_bfloat16_rows_work_on_float32(device: str) -> None:
    x = torch.ones(6, 8, device=device)

    def run(rows: Tensor) -> None:
        torch.ops.haloscope.quantize_rows(rows, 2, 5, False)

    name = "haloscope::quantize_rows"
    wide, narrow = dict(works_of(lambda: run(x)))[name], dict(works_of(lambda: run(x.bfloat16())))[name]
    assert wide.nbytes == narrow.nbytes == 6 * 8 * 4


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_work_of_row_kernels(device: str) -> None:
    indptr, indices = csr(4, 12, 6, device)
    x, weights = torch.ones(6, 8, device=device), torch.ones(12, 2, device=device)
    heads = torch.ones(6, 2, 8, device=device)
    ops = torch.ops.haloscope

    def run() -> None:
        ops.gather_sum(indptr, indices, x)
        ops.gather_weighted_sum(indptr, indices, weights, heads)
        ops.edge_dot(indptr, indices, heads[:4], heads)
        codes, side = ops.quantize_rows(x, 2, 5, False)
        ops.dequantize_rows(codes, side, 2, 8)
        ops.dropout_rows(x, torch.arange(6, device=device), 0.5, 1)

    works = dict(works_of(run))
    assert works["haloscope::gather_sum"] == Work("spmm", 4 * 8 * 4, entries=12 * 8, width=8, fresh=4 * 8 * 4)
    assert works["haloscope::gather_weighted_sum"].entries == 12 * 16
    assert works["haloscope::edge_dot"].entries == 12 * 16
    for name in ("haloscope::quantize_rows", "haloscope::dequantize_rows"):
        assert (works[name].kind, works[name].nbytes, works[name].bits) == ("codec", 6 * 8 * 4, 2)
    assert works["haloscope::dropout_rows"].kind == "dropout"


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_and_sums_of_two_byte_numbers_are_marked(device: str, dtype: torch.dtype) -> None:
    indptr, indices = csr(4, 12, 6, device)
    x, w = (torch.ones(n, 8, dtype=dtype, device=device) for n in (6, 9))

    def run() -> None:
        torch.ops.haloscope.gather_sum(indptr, indices, x)
        x @ w.t()
        x + x

    works = dict(works_of(run))
    marked = [works[name].half for name in ("haloscope::gather_sum", "mm", "add")]
    assert marked == [dtype == torch.bfloat16, dtype == torch.bfloat16, False]


def test_work_of_bytes() -> None:
    x, rows = torch.ones(10, 4), torch.tensor([1, 3])

    def run() -> None:
        x + x
        x.add_(x)
        x.index_select(0, rows)
        x.index_add_(0, rows, torch.ones(2, 4))
        torch.cat([x, x])
        x.sum()
        torch.zeros(10, 4)
        x.t()[0].detach()
        torch.empty(5)

    size = 10 * 4 * 4
    assert works_of(run) == [
        ("add", Work("elementwise", 3 * size, fresh=size)),
        ("add", Work("elementwise", 3 * size)),
        ("index_select", Work("gather", 2 * 32 + 16, lines=2, width=4, fresh=32)),
        ("ones", Work("elementwise", 32, fresh=32)),
        ("index_add", Work("gather", 3 * (16 + 32), lines=2, width=4)),
        ("cat", Work("copy", 4 * size, fresh=2 * size)),
        ("sum", Work("reduction", size + 4, lines=10, width=4, fresh=4)),
        ("zeros", Work("elementwise", size, fresh=size)),
    ]


def test_sums_over_rows_have_a_name_of_their_own() -> None:
    recorder, x = Recorder(), torch.ones(50, 3, 4)
    with Ledger(recorder, Meter(), LiveMemory()):
        x.sum(0), x.sum(-1), x[:, 0].sum(0, keepdim=True), x[:, 0].mean(1)
    assert [work.name for _, work in recorder.works] == ["sum" + ACROSS, "sum", "sum" + ACROSS, "mean"]


def test_products_over_rows_and_onto_matrices_have_names_of_their_own() -> None:
    """The gradient of weights sums over nodes; GraphSAGE adds one product to another."""
    recorder = Recorder()
    x, weight, bias = torch.ones(50, 6), torch.ones(6, 4), torch.ones(4)
    with Ledger(recorder, Meter(), LiveMemory()):
        out = x @ weight
        x.T @ out, torch.addmm(bias, x, weight), torch.addmm(out, x, weight), torch.addmm(weight, x.T, out)
    names = [work.name for _, work in recorder.works]
    assert names == ["mm", "mm" + ACROSS, "addmm", "addmm" + ADDED, "addmm" + ACROSS + ADDED]


def test_a_form_that_was_not_timed_costs_what_its_plain_form_does() -> None:
    known = OperatorCost(Quantity(1e-6), {}, {}, Quantity(0.1))
    other = replace(known, call=Quantity(2e-6))
    profile = replace(load_device("cpu-epyc-1core"), operators={"addmm": known, "mm" + ACROSS: other})
    for name in ("addmm", "addmm_", "addmm" + ACROSS, "addmm" + ADDED, "addmm" + ACROSS + ADDED):
        assert profile.cost_of(Work("gemm", name=name)) is known
    assert profile.cost_of(Work("gemm", name="mm" + ACROSS)) is other
    assert profile.cost_of(Work("gemm", name="mm")) is None


def test_operators_on_nothing_have_no_work() -> None:
    rows = torch.ones(0, 4)
    works = works_of(lambda: (rows @ torch.ones(4, 5), rows * torch.ones(4), rows.sum(1), torch.cat([rows, rows])))
    assert [work.empty for _, work in works] == [False, True, False, True, True, True]  # the ones are work


def train_step(device: str) -> None:
    """The operators of ordinary layers, forwards and backwards."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)).to(device)
    x, y = torch.ones(9, 6, device=device), torch.zeros(9, dtype=torch.int64, device=device)
    optimizer = torch.optim.Adam(model.parameters())
    functional.cross_entropy(model(x), y, reduction="sum").backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def test_real_and_meta_tensors_cost_the_same_forwards_and_backwards() -> None:
    real, meta = works_of(lambda: train_step("cpu")), works_of(lambda: train_step("meta"))
    assert [w for w in real if w[0] != "_to_copy"] == [w for w in meta if w[0] != "_to_copy"]
    assert sum(work.kind == "gemm" for _, work in real) == 2 + 3, "two forwards, and backwards all but the input's"


def test_remembered_shapes_are_the_shapes() -> None:
    shapes = ShapeMemory()
    once = works_of(lambda: train_step("meta"))
    for _ in range(3):  # learned, remembered, remembered
        assert works_of(lambda: train_step("meta"), shapes) == once

    def odd(x: Tensor) -> list[Any]:
        one, true, real = x + 1, x + True, x + 1.0
        y = x.clone()
        y.t_()
        low, high = torch.aminmax(x)
        split = torch.ops.aten.split_with_sizes_copy(x, [2, 3])
        return [
            (t.shape, t.stride(), t.dtype)
            for t in (one, true, real, y, y.add_(1), low, high, *split, x.t(), x.sum(0), x.sum(1), x.mT.contiguous())
        ]

    for dtype in (torch.float32, torch.int64):
        real = odd(torch.ones(5, 4, dtype=dtype))
        with Ledger(Prices(load_device("cpu-epyc-1core")), Meter(), LiveMemory(), shapes):
            for _ in range(3):
                assert odd(torch.empty(5, 4, dtype=dtype, device="meta")) == real
                with pytest.raises(RuntimeError):
                    torch.empty(5, 4, device="meta") @ torch.empty(5, 4, device="meta")


def test_a_random_key_does_not_make_a_new_shape() -> None:
    shapes = ShapeMemory()
    x, nodes = torch.empty(6, 8, device="meta"), torch.empty(6, dtype=torch.int64, device="meta")
    for key in range(5):
        out, _ = shapes.call(torch.ops.haloscope.dropout_rows.default, (x, nodes, 0.5, key), {}, [])
        assert out.shape == x.shape
    assert len(shapes._known) == 1


def test_aggregation_is_charged_backwards() -> None:
    from harness.graphs import Block

    block = Block.meta(4, 6, 12)
    x = torch.ones(6, 8, device="meta", requires_grad=True)
    works = works_of(lambda: torch.autograd.grad(spmm.aggregate(block, x).sum(), x))
    assert [work.entries for _, work in works if work.kind == "spmm"] == [96, 96]


def test_unknown_operators_are_reported_and_charged_by_bytes() -> None:
    prices, meter = Prices(load_device("cpu-epyc-1core")), Meter()
    x = torch.ones(64, 64)
    with Ledger(prices, meter, LiveMemory()) as ledger:
        torch.linalg.qr(x)
        torch.linalg.qr(x)
    assert prices.unknown == {"linalg_qr": 2}
    assert set(ledger.seconds) == {"unknown"}
    expected = prices.profile.seconds(Work("elementwise", 3 * x.nbytes))
    assert meter.total == pytest.approx(2 * expected)


def test_nothing_is_charged_while_paused_and_prices_are_remembered() -> None:
    prices, meter = Prices(load_device("cpu-epyc-1core")), Meter()
    x = torch.ones(8, 8)
    with Ledger(prices, meter, LiveMemory()):
        x @ x
        once = meter.total
        x @ x
        meter.paused = True
        x @ x
    assert meter.total == 2 * once > 0 and meter.calls == 2


def test_the_mode_changes_no_number() -> None:
    def run() -> Tensor:
        torch.manual_seed(1)
        x = torch.randn(50, 20, requires_grad=True)
        loss = functional.log_softmax(functional.layer_norm(x @ torch.randn(20, 20), (20,)).relu(), 1).sum()
        return torch.autograd.grad(loss, x)[0]

    plain = run()
    with Ledger(Prices(load_device("cpu-epyc-1core")), Meter(), LiveMemory()):
        assert torch.equal(run(), plain)


# -- memory --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_peak_counts_what_lives_together(device: str) -> None:
    memory = LiveMemory()
    resident = torch.ones(100, device=device)
    with Ledger(Prices(load_device("cpu-epyc-1core")), Meter(), memory):
        a = resident + 1  # 800 with the input
        view = a[:10]
        del a
        assert memory.live == 800, "a view keeps its storage"
        del view
        assert memory.live == 400
        b = torch.ones(50, device=device)
    assert (memory.live, memory.peak) == (600, 800)
    memory.hold(1000)
    assert memory.peak == 1600 and memory.at_peak["halo"] == 1000
    memory.release(1000)
    del b
    assert memory.live == 400


def test_autograd_keeps_what_it_saves() -> None:
    memory = LiveMemory()
    x = torch.ones(100, requires_grad=True)
    with Ledger(Prices(load_device("cpu-epyc-1core")), Meter(), memory):
        y = (x * 2).exp().sum()
        kept = memory.live
        del y
    gc.collect()
    assert kept >= 800, "exp saves its result"
    assert memory.live == 400


def test_excluded_storages_do_not_count() -> None:
    memory = LiveMemory()
    host = torch.ones(100)
    memory.exclude(host)
    with Ledger(Prices(load_device("cpu-epyc-1core")), Meter(), memory):
        host.add_(1)
    assert memory.peak == 0


def test_in_place_arithmetic_has_a_price_of_its_own() -> None:
    """Sums and scatters that write where they read are named apart; other in-place forms are not."""
    rows, total, where = torch.ones(4, 2), torch.ones(8, 2), torch.arange(4)
    recorder = Recorder()
    with Ledger(recorder, Meter(), LiveMemory()):
        _ = total + 1, total.add_(1), total.zero_()
        _ = total.index_add_(0, where, rows), total.index_add(0, where, rows)
    assert [work.name for _, work in recorder.works] == ["add", "add_", "zero", "index_add_", "index_add"]
