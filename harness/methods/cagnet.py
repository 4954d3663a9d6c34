"""CAGNET in one dimension, or one and a half: ranks receive the whole blocks of others, boundary or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from harness.errors import InputError
from harness.exchanges import AllBlocks, BlockPull, Blocks, BlockShare, LayerExchange, SharedBlocks
from harness.graphs import BOTH_DIRECTIONS, Part, RankGrid, Totals
from harness.methods.bases.base import Facts, Seen, WireBytes, all_reduce_bytes
from harness.methods.bases.edge_cut import EdgeCut, EdgeCutState
from harness.nn import GNN, Conv
from harness.rank import Rank


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
                f"{self.name} multiplies gradients by the matrix of the forward pass: the graph must be symmetric; "
                + BOTH_DIRECTIONS
            )
        read = [model.layers[l] for l in range(model.depth) if model.exchanges(l)]
        if any(getattr(layer, "aggregation", None) is None for layer in read):
            raise InputError(f"{self.name} needs layers whose aggregation is linear in rows (gcn, sage)")

    async def setup(self, rank: Rank, part: Part, model: GNN) -> BlockState:
        state = await super().setup(rank, part, model)
        return BlockState(**vars(state), blocks=await Blocks.of(rank, part.plan, state.graph.num_own))

    def maps_first(self, model: GNN, l: int) -> bool:
        """Aggregation is first in every layer whose blocks are broadcast, whatever the model's order."""
        return l == 0 and self.input_layer(model) == "cache" and model.linear_first(l)

    def sent_blocks(self, model: GNN, layer0: str) -> dict[str, dict[int, int]]:
        """Direction -> layer -> width of the rows that are broadcast."""
        layers = [l for l in range(model.depth) if model.exchanges(l) and (l > 0 or layer0 == "exchange")]
        return {
            "forward": {l: model.widths[l] for l in layers},
            "backward": {l: model.widths[l + 1] for l in layers},
        }


@dataclass(frozen=True, eq=False)
class ShareState(BlockState):
    """The same, and the blocks that the rank's column multiplies."""

    share: BlockShare


@dataclass(frozen=True, kw_only=True)
class CAGNET(BlockRows):
    """Exact training by broadcasts of whole blocks: z += A_ij H_j for every block j, then z W.

    Backwards G, the gradient of a layer's output, is broadcast, and S = A G gives the gradients of rows, S W^T, and of
    weights, H^T S; so G travels in layer 0 too. Layers aggregate first; `--order` changes nothing. With f the sum over
    layers of input and output width, bytes over all P ranks and per epoch are, whatever the partition:

    1d: 4 n f (P - 1). Every rank has one block and receives all others: the volume that vanilla reaches where every
    node is on every boundary.
    1.5d, with c = replication: 4 n f (P / c - 1 + 2 (c - 1)). Rank r is in row r // c and column r % c of a grid. The c
    ranks of a row hold one of P / c blocks; column k broadcasts the floor(P / c^2) blocks from number k floor(P / c^2)
    on among its P / c ranks, the last column all that remain, and every row adds up its partial sums of z, or of S.
    Memory of rows is c times that of 1d. Loads are equal where c^2 divides P. Gradients of weights are summed over each
    column, which has every node once: 8 (P - c) (parameters + 1). All ranks of a row compute the loss and the dense
    part of a layer alike; evaluation counts the nodes of the first column.
    2d on q x q ranks: 4 P [(1 - 1/q)/q (6 nnz + 3 n (f_l + f_(l+1))) + n f_l / P + f_l f_(l+1)] a layer, and
    3d on q x q x q ranks: 4 P (1 - 1/q)/q^2 (6 nnz + 3 n (f_l + f_(l+1))) a layer for its two products, are formulas
    of the authors' code; they need blocks of columns and sparse blocks that travel, and cannot be run here.

    The authors' blocks are consecutive nodes of equal number (`--partitioner contiguous`); with other partitions the
    bytes are the same.

    Options:
        algorithm: 1d, 1.5d; 2d and 3d are refused with the bytes that they would send, beside those of the others.
        replication: with algorithm=1.5d the number of ranks that hold each block; it must divide the ranks.

    In brief:
        travels: whole blocks of rows H forwards, of output gradients G backwards, to all ranks, or down their columns
            and added over their rows
        bytes: 4 n (P - 1) x (input + output width) a layer, over all ranks; 4 n (P / c - 1 + 2 (c - 1)) x it in 1.5D
        memory: vanilla's, and one rank's whole block at a time; c times the rows in 1.5D
    """

    algorithm: Literal["1d", "1.5d", "2d", "3d"] = "1d"
    replication: int = 2

    name = "cagnet"
    facts = Facts(
        cut="edge", exact=True, repeats=True, static=True, paper="CAGNET; the comparison of BNS-GCN and CDFGNN"
    )

    def validate(self) -> None:
        if self.replication < 1:
            raise InputError(f"cagnet: replication must be at least 1, not {self.replication}")

    def idle(self) -> dict[str, str]:
        return {} if self.algorithm == "1.5d" else {"replication": f"algorithm={self.algorithm}"}

    def replicas(self) -> int:
        return self.replication if self.algorithm == "1.5d" else 1

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if self.algorithm in ("2d", "3d"):
            raise InputError(_refusal(self.algorithm, model, totals, num_parts))

    async def setup(self, rank: Rank, part: Part, model: GNN) -> BlockState:
        state = await super().setup(rank, part, model)
        if self.algorithm == "1d":
            return state
        grid = RankGrid(rank.size, self.replication)
        return ShareState(**vars(state), share=BlockShare.of(grid, rank.index, state.blocks, state.graph))

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: Any) -> LayerExchange:
        assert isinstance(state, BlockState)
        layer = model.layers[l]
        assert isinstance(layer, Conv)
        if isinstance(state, ShareState):
            ways = SharedBlocks(state.share, l, "forward"), SharedBlocks(state.share, l, "backward")
            return BlockPull(layer, state.share.graph, *ways)
        forwards, backwards = AllBlocks(state.blocks, l, "forward"), AllBlocks(state.blocks, l, "backward")
        return BlockPull(layer, state.graph, forwards, backwards)

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes | None:
        """The formulas of the class."""
        nodes, size, c = ranks[0].part.totals.num_nodes, len(ranks), self.replicas()
        copies = size // c - 1 + 2 * (c - 1)
        widths = self.sent_blocks(model, ranks[0].state.layer0)
        sent = {way: {l: 4 * nodes * copies * d for l, d in by.items()} for way, by in widths.items()}
        return {**sent, "reduce": {-1: c * all_reduce_bytes(model, size // c)}}


def grid_bytes(algorithm: Literal["2d", "3d"], widths: Sequence[int], totals: Totals, ranks: int) -> float:
    """Bytes of an epoch over all ranks of CAGNET's 2D or 3D algorithm, without the gradients of 3D's weights.

    Args:
        widths: of the rows from the input to the classes.

    Raises:
        InputError: the ranks do not make up a square or a cube.
    """
    power = 2 if algorithm == "2d" else 3
    q = round(ranks ** (1 / power))
    if q**power != ranks:
        below, above = (side**power for side in ((q, q + 1) if q**power < ranks else (q - 1, q)))
        kind = "square" if power == 2 else "cube"
        raise InputError(f"cagnet: algorithm={algorithm} needs a {kind} of ranks: {below} or {above}, not {ranks}")
    nodes, total = totals.num_nodes, 0.0
    if q == 1:
        return total
    for before, after in pairwise(widths):
        products = (1 - 1 / q) / q ** (power - 1) * (6 * totals.num_edges + 3 * nodes * (before + after))
        total += 4 * ranks * (products + (nodes * before / ranks + before * after if power == 2 else 0.0))
    return total


def _refusal(algorithm: Literal["2d", "3d"], model: GNN, totals: Totals, ranks: int) -> str:
    """What an algorithm that is a formula only would send, beside those that run."""
    would = grid_bytes(algorithm, model.widths, totals, ranks)
    block = 4 * totals.num_nodes * sum(before + after for before, after in pairwise(model.widths))
    others = [f"algorithm=1d sends {block * (ranks - 1) / 1e6:.4g} MB"]
    if ranks % 2 == 0:
        others.append(f"algorithm=1.5d:replication=2 {block * (ranks // 2 + 1) / 1e6:.4g} MB")
    return (
        f"cagnet: algorithm={algorithm} is a formula of bytes, {would / 1e6:.4g} MB an epoch here, and cannot be run; "
        f"{', '.join(others)}"
    )
