"""Exchanges of rows between ranks, each with its adjoint, which methods put between layers.

Contains push, pull, late and compensated exchanges of edge cuts, gather and scatter of vertex cuts, parameter servers,
and the `Memory` that they keep for the next epoch. Uses effects, codecs and parts; independent of methods.
"""

from harness.exchanges._adaptive_cache import CachedSync, Wires, empty_cache
from harness.exchanges._attention_pull import AttentionPull, AttentionRowsPull
from harness.exchanges._bit_assignment import BitAssignment, CodedMessage
from harness.exchanges._blocks import AllBlocks, BlockPull, Blocks, BlockShare, BlockSum, HistoricalBlocks, SharedBlocks
from harness.exchanges._delayed_sum import DelayedSum, LeafBin, drain_delayed, leaf_bins
from harness.exchanges._error_feedback import Boundary, CompensatedPull, Compressed, Exact, Fetch
from harness.exchanges._gather_scatter import Leg, PlainSync, Replicas, ReplicaSum, ReplicaSync, replica_maximum
from harness.exchanges._layer_pull import HaloFetch, LayerPull
from harness.exchanges._memory import Memory
from harness.exchanges._mixed_pull import CODE_SHARE, CentralSplit, MixedPull
from harness.exchanges._overlap import OverlappedPull, OverlappedPush
from harness.exchanges._parameter_server import ParameterServers
from harness.exchanges._pipeline import Late, Quantiser, drain_pipeline
from harness.exchanges._push_pull import HaloPull, HaloPush, Route, encode_rows, ship
from harness.exchanges._quantised_push import QuantisedPush
from harness.exchanges._request import Requested
from harness.exchanges._returns import AttentionExchange, LayerExchange, Returns, returned_by
from harness.exchanges._sequential import Pieces, SequentialAttention, SequentialSum
from harness.exchanges._smoothing import Smoothed
from harness.exchanges._swap import SwapTape
from harness.exchanges._trend import Select, Trend, Tuner
from harness.exchanges._turns import FetchTurn, Turn

__all__ = [
    "AllBlocks",
    "AttentionExchange",
    "AttentionPull",
    "AttentionRowsPull",
    "BitAssignment",
    "BlockPull",
    "BlockShare",
    "BlockSum",
    "Blocks",
    "Boundary",
    "CODE_SHARE",
    "CachedSync",
    "CentralSplit",
    "CodedMessage",
    "CompensatedPull",
    "Compressed",
    "DelayedSum",
    "Exact",
    "Fetch",
    "FetchTurn",
    "HaloFetch",
    "HaloPull",
    "HaloPush",
    "HistoricalBlocks",
    "SharedBlocks",
    "Late",
    "Quantiser",
    "LayerExchange",
    "LayerPull",
    "LeafBin",
    "Leg",
    "ReplicaSync",
    "Memory",
    "MixedPull",
    "OverlappedPull",
    "OverlappedPush",
    "ParameterServers",
    "Pieces",
    "PlainSync",
    "QuantisedPush",
    "ReplicaSum",
    "Replicas",
    "Requested",
    "Returns",
    "Route",
    "Select",
    "SequentialAttention",
    "SequentialSum",
    "Smoothed",
    "SwapTape",
    "Trend",
    "Tuner",
    "Turn",
    "Wires",
    "drain_delayed",
    "drain_pipeline",
    "empty_cache",
    "encode_rows",
    "leaf_bins",
    "replica_maximum",
    "returned_by",
    "ship",
]
