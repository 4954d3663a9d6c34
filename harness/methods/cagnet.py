"""CAGNET, one-dimensional: every rank receives the whole blocks of all others, boundary or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import InputError
from harness.exchanges import AllBlocks, BlockPull, Blocks
from harness.graphs import Part, Totals
from harness.methods.base import Facts, Seen, WireBytes, all_reduce_bytes
from harness.methods.edge_cut import EdgeCut, EdgeCutState
from harness.nn import GNN, Conv
from harness.rank import Rank
from harness.tape import Exchange


@dataclass(frozen=True, eq=False)
class BlockState(EdgeCutState):
    """The state of an edge cut, and the blocks of all ranks."""

    blocks: Blocks


@dataclass(frozen=True, kw_only=True)
class BlockRows(EdgeCut):
    """Base of methods that broadcast whole blocks of rows: H forwards and G, the gradient of a layer's output, back."""

    def input_layer(self, model: GNN) -> str:
        """`layer0`; auto means exchange, as the authors' code does."""
        return "exchange" if self.layer0 == "auto" else super().input_layer(model)

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if not totals.symmetric:
            raise InputError(
                f"{self.name} multiplies gradients by the matrix of the forward pass: use a symmetric graph"
            )
        read = [model.layers[l] for l in range(model.depth) if model.exchanges(l)]
        if any(getattr(layer, "aggregation", None) is None for layer in read):
            raise InputError(f"{self.name} needs layers whose aggregation is linear in rows (gcn, sage)")

    async def setup(self, rank: Rank, part: Part, model: GNN) -> BlockState:
        state = await super().setup(rank, part, model)
        return BlockState(**vars(state), blocks=await Blocks.of(rank, part.plan, state.graph.num_own))

    def sent_blocks(self, model: GNN, layer0: str) -> dict[str, dict[int, int]]:
        """Direction -> layer -> width of the rows that are broadcast."""
        layers = [l for l in range(model.depth) if model.exchanges(l) and (l > 0 or layer0 == "exchange")]
        return {
            "forward": {l: model.widths[l] for l in layers},
            "backward": {l: model.widths[l + 1] for l in layers},
        }


@dataclass(frozen=True, kw_only=True)
class CAGNET(BlockRows):
    """Exact training by broadcasts of whole blocks (1D): z += A_ij H_j for every rank j, then z W.

    Backwards every rank broadcasts G, the gradient of its layer's output, and S = A G gives the gradients of rows,
    S W^T, and of weights, H^T S; so G travels in layer 0 too. Bytes over all ranks and per epoch: 4 n (P - 1) x the sum
    over layers of input and output width, whatever the partition: the volume that vanilla reaches where every node is
    on every boundary. Layers aggregate first; `--order` changes nothing. The authors' blocks are consecutive nodes of
    equal number (`--partitioner contiguous`); with other partitions the bytes are the same.

    In brief:
        travels: every rank's whole block of rows H forwards, of output gradients G backwards, to all ranks
        bytes: 4 n (P - 1) x (input + output width) a layer, over all ranks; n nodes
        memory: vanilla's, and one rank's whole block at a time
    """

    name = "cagnet"
    facts = Facts(cut="edge", exact=True, repeats=True, paper="CAGNET, 1D; the comparison of BNS-GCN and CDFGNN")

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: Any) -> Exchange:
        assert isinstance(state, BlockState)
        layer = model.layers[l]
        assert isinstance(layer, Conv)
        forwards, backwards = AllBlocks(state.blocks, l, "forward"), AllBlocks(state.blocks, l, "backward")
        return BlockPull(layer, state.graph, forwards, backwards)

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes | None:
        """The formula of the class."""
        nodes, size = ranks[0].part.totals.num_nodes, len(ranks)
        widths = self.sent_blocks(model, ranks[0].state.layer0)
        sent = {way: {l: 4 * nodes * (size - 1) * d for l, d in by.items()} for way, by in widths.items()}
        return {**sent, "reduce": {-1: all_reduce_bytes(model, size)}}
