"""ROC: exact training operator by operator, with what lies between operators in host memory where it does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from harness.codecs import Cast
from harness.errors import InputError
from harness.exchanges import AllBlocks, BlockSum, HaloPull, LayerExchange, Memory, SwapTape
from harness.graphs import Part
from harness.methods.bases.base import Facts, Seen, WireBytes, all_reduce_bytes
from harness.methods.bases.edge_cut import EdgeCutState, exchanged_layers, message_width
from harness.methods.cagnet import BlockRows, BlockState
from harness.nn import GNN
from harness.rank import Rank
from harness.tape import Tape

GB = 1e9


@dataclass(frozen=True, kw_only=True)
class ROC(BlockRows):
    """Exact full-graph training in which activations and gradients live in host memory and visit the device.

    A layer is six operators: dropout, linear map, sum over neighbours with a scaling by degree before and after it, and
    the rest (own rows, bias, norm, ReLU). Each reads its inputs on the device and leaves its result; where that and
    what the backward pass needs exceed `memory`, they are copied to host memory and back (component `swap`). What
    autograd saved first leaves first, since it is needed last, so the fewest bytes move, to within one tensor; a larger
    `memory` never moves more, and once everything fits nothing moves. Values are those of an epoch without swaps, bit
    for bit. The linear map comes first, `--order` overrides it, and input features are not summed beforehand
    (layer0=exchange), as in the authors' code.

    Copies of a rank with n_i nodes and memory=0, numbers per layer from width f to width g: GCN, linear map first,
    with dropout and without norm copies n_i (2 f + 10 g) to the host and n_i (3 f + 11 g) back, n_i g less in the last
    layer, which has no ReLU; layer 0 has no gradient of its input features, n_i f less each way. Both directions are
    recorded as `bytes to the host` and `bytes from the host`, means over ranks; on a CPU rank a copy is the tensor
    itself, so they are counted and take no time. Parameters, graph and input features stay on the device. `memory`
    does not bind inside an operator (its inputs, result and received rows), nor for rows that the layer reads again
    after the sum (GraphSAGE).

    The sum over neighbours copies all n rows to every device, of features forwards and of gradients backwards, for
    symmetric graphs: 4 n d (P - 1) bytes over all ranks, layer and direction, d the width that is summed; with
    rows=neighbours 4 d a halo row.

    ROC's ranks on one machine share host memory, where rows of others only need to be fetched; here every rank has its
    own, and rows travel between ranks as in every method (component `halo`), over the library of the cluster. The two
    scalings copy rows only, as the factors are in the sum here. Left out: the authors' program has ReLU, the map of own
    rows and their sum as operators of their own, and reads features from host memory; the dynamic programme that plans
    memory in the paper, for which the order above stands; and the regression that learns bounds from measured times
    while it trains, since parts are built before. The bounds are consecutive nodes with equal predicted cost under
    fixed weights, by default edges alone as in the published code (`haloscope partitioners ranges`).

    In brief:
        travels: whole blocks of rows forwards and of gradients backwards, to all ranks; activations and gradients
            between device and host
        bytes: 4 n d (P - 1) a layer and direction, over all ranks; 4 d a halo row with rows=neighbours
        memory: `memory` between operators, and the operands of one operator with one block of another rank

    Options:
        memory: GB (10^9 bytes) of a device for what lies between operators; 0 keeps all of it in host memory, as the
            authors' code does; with as much as the activations need nothing moves.
        rows: what a rank fetches for a sum: all nodes, as the authors' code does, or its neighbours only.
    """

    memory: float = 0.0
    rows: Literal["all", "neighbours"] = "all"

    name = "roc"
    default_partitioner: ClassVar[str] = "ranges"
    facts = Facts(cut="edge", exact=True, repeats=True, paper="ROC; the comparison of BNS-GCN")

    def validate(self) -> None:
        if self.memory < 0:
            raise InputError(f"roc: memory is in GB of a device and must be at least 0, not {self.memory}")

    def maps_first(self, model: GNN, l: int) -> bool:
        return model.linear_first(l)

    async def setup(self, rank: Rank, part: Part, model: GNN) -> BlockState:
        model.prefer(["linear-first"] * model.depth)
        return await super().setup(rank, part, model)

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: Any) -> LayerExchange:
        assert isinstance(state, BlockState)
        aggregation = model.aggregation(l)
        assert aggregation is not None
        if self.rows == "neighbours":
            return HaloPull(state.route, l, Cast(None), Cast(None), state.graph, aggregation)
        ways = AllBlocks(state.blocks, l, "forward"), AllBlocks(state.blocks, l, "backward")
        return BlockSum(state.graph, aggregation, *ways)

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes | None:
        """The formulas of the class."""
        model.prefer(["linear-first"] * model.depth)
        found: WireBytes = {"forward": {}, "backward": {}, "reduce": {-1: all_reduce_bytes(model, len(ranks))}}
        every = ranks[0].part.totals.num_nodes * (len(ranks) - 1)
        rows = every if self.rows == "all" else self.rows_sent(ranks)
        for l, direction in exchanged_layers(model, ranks[0].state.layer0):
            found[direction][l] = 4 * rows * message_width(model, l)
        return found

    def tape(self, rank: Rank, part: Part, model: GNN, state: EdgeCutState) -> Tape:
        inputs = (part.x, part.nodes, state.z0, state.halo_x)
        resident = [*model.buffers(), *(tensor for tensor in inputs if tensor is not None)]
        return SwapTape(rank, model.parameters(), GB * self.memory, resident)

    async def forward(
        self, rank: Rank, part: Part, model: GNN, state: EdgeCutState, memory: Memory, tape: Tape
    ) -> Tensor:
        assert part.x is not None
        h = part.x
        for l in range(model.depth):
            key = rank.key("dropout", l, per_rank=False)
            with tape.operator():
                h = model.drop(h, part.nodes, key)
            (h,) = await tape.pass_on(h)
            if l == 0 and state.z0 is not None:
                with tape.operator():
                    z = model.drop(state.z0, part.nodes, rank.key("dropout/z", 0, per_rank=False))
                z, h = await tape.pass_on(z, h)
                with tape.operator():
                    h = model.combine(l, h, z, transformed=False)
            elif l == 0 and state.halo_x is not None:
                with tape.operator():
                    halo = self.cached_input(part, model, state, None, key)
                    h = model.update(l, state.graph, h, model.message(l, h), halo)
            elif model.exchanges(l):
                z, *own = await self._summed(l, model, state, tape, h)
                with tape.operator():
                    h = model.combine(l, own[0] if own else z, z, transformed=model.linear_first(l))
            else:
                with tape.operator():
                    h = model.update(l, state.graph, h, h, h[:0])
            z, own = h, []  # the operands are free
            (h,) = await tape.pass_on(h)
        return h

    async def _summed(self, l: int, model: GNN, state: EdgeCutState, tape: Tape, h: Tensor) -> tuple[Tensor, ...]:
        """Rows h -> the sums over all neighbours of their messages, and h where the layer reads it again."""
        again = [h] if model.reads_own(l) else []
        with tape.operator():
            message = model.message(l, h)
        if message is not h:
            message, *again = await tape.pass_on(message, *again)
        message, *again = await _scaled(tape, message, *again)
        exchange = self.exchange(l, model, state, None)
        z, *again = await tape.apply(exchange, message, *again)
        z, *again = await tape.pass_on(z, *again)
        return await _scaled(tape, z, *again)


async def _scaled(tape: Tape, x: Tensor, *keep: Tensor) -> tuple[Tensor, ...]:
    """The authors' scaling by degree, an operator that reads rows and leaves as many; its factors are in the sum."""
    with tape.operator():
        x = x.clone()
    return await tape.pass_on(x, *keep)
