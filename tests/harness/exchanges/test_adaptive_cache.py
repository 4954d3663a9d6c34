"""The exchange of a vertex cut: equal totals on all replicas, and caches that stay equal on both sides."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from harness import loopback
from harness.codecs import Cast, Codec, LinearRows
from harness.exchanges import CachedSync, Leg, Memory, PlainSync, Wires, empty_cache
from harness.exchanges._adaptive_cache import FlagBits
from harness.graphs import VertexPart
from harness.kernels.changed import changed_rows
from harness.rank import Rank
from tests.support.graphs import random_graph
from tests.support.vertex import replicas_of, summed, totals, vertex_parts

FORWARD = Leg("z", 0, "forward")


def walk(
    parts: list[VertexPart], syncs: list[CachedSync], epochs: int
) -> tuple[list[Tensor], list[Tensor], list[Memory]]:
    """Rows that drift for some epochs; returns the last rows, their totals, and the caches."""
    rng = np.random.default_rng(1)
    rows = [torch.from_numpy(rng.normal(size=(part.num_local, 6))).float() for part in parts]
    for epoch in range(epochs):
        rows = [r + 0.05 * torch.from_numpy(rng.normal(size=r.shape)).float() / (1 + epoch / 10) for r in rows]
        found = totals(parts, syncs, rows, FORWARD, epoch)  # type: ignore[arg-type]
    return rows, found, [sync.memory["forward"]["0"] for sync in syncs]


def cached_syncs(parts: list[VertexPart], codec: Codec | None, threshold: float) -> list[CachedSync]:
    """A synchronisation per rank with empty caches of width 6."""
    made = []
    for part, replicas in zip(parts, replicas_of(parts), strict=True):
        like = torch.zeros(part.num_local, 1)
        memory: Memory = {d: {"0": empty_cache(replicas, like, 6)} for d in ("forward", "backward")}
        made.append(CachedSync(replicas, Wires.of(replicas), codec, threshold, memory))  # type: ignore[arg-type]
    return made


def by_node(parts: list[VertexPart], name: str, caches: list[Memory]) -> list[list[Tensor]]:
    """Every node's rows of a cache, one per replica."""
    found: list[list[Tensor]] = [[] for _ in range(parts[0].totals.num_nodes)]
    for part, cache in zip(parts, caches, strict=True):
        for node, row in zip(part.nodes[part.num_inner :].tolist(), cache[name], strict=True):
            found[node].append(row)
    return found


@pytest.mark.parametrize("codec", [None, LinearRows(8), LinearRows(2)], ids=["exact", "8-bit", "2-bit"])
@pytest.mark.parametrize("threshold", [0.0, 0.1])
def test_both_sides_of_a_cache_stay_equal_bit_by_bit(codec: LinearRows | None, threshold: float) -> None:
    """After 200 epochs a master's copies equal its mirrors' cached rows, and totals are equal on all replicas."""
    parts = vertex_parts(random_graph(30, 90, seed=3), 4, dtype=torch.float32)
    syncs = cached_syncs(parts, codec, threshold)
    rows, found, caches = walk(parts, syncs, 200)
    for rank, part in enumerate(parts):
        copies = caches[rank]["copies"].split(part.plan.send_counts.tolist())
        for other, copy_ in enumerate(copies):
            theirs = caches[other]["part"][parts[other].num_shared :]
            assert torch.equal(copy_, theirs.split(parts[other].plan.recv_counts.tolist())[rank])
    assert all(torch.equal(row, held[0]) for held in by_node(parts, "total", caches) for row in held)
    whole = [sum(held) for held in by_node(parts, "part", caches)]
    sizes = [sum(float(row.abs().max()) for row in held) for held in by_node(parts, "part", caches)]
    lost = 1e-5 if codec is None else 0.05 / (2**codec.bits - 1)  # half a step of what moves in an epoch, about 0.03
    for part, cache, r, out in zip(parts, caches, rows, found, strict=True):
        assert torch.equal(out[: part.num_inner], r[: part.num_inner]), "rows without other replicas stay fresh"
        assert torch.equal(out[part.num_inner :], cache["total"])
        for node, row in zip(part.nodes[part.num_inner :].tolist(), cache["total"], strict=True):
            assert (row - whole[node]).abs().max() <= threshold * sizes[node] + lost
        still = ~changed_rows(r[part.num_inner :], cache["part"], threshold)
        assert still[: part.num_shared].all(), "a master's own part is never further off than the threshold allows"
        off = (r[part.num_inner :] - cache["part"]).abs().amax(1)
        assert (off <= threshold * cache["part"].abs().amax(1) + lost).all()


@pytest.mark.parametrize("codec", [LinearRows(8), LinearRows(2)], ids=str)
def test_what_quantisation_loses_is_sent_later(codec: LinearRows) -> None:
    """Constant rows converge: the error is sent with the next difference."""
    parts = vertex_parts(random_graph(30, 90, seed=3), 4, dtype=torch.float32)
    syncs, rng = cached_syncs(parts, codec, 0.0), np.random.default_rng(2)
    rows = [torch.from_numpy(rng.normal(size=(part.num_local, 6))).float() for part in parts]
    errors = []
    for epoch in range(25):
        found = totals(parts, syncs, rows, FORWARD, epoch)  # type: ignore[arg-type]
        wanted = summed(parts, rows)
        errors.append(max(float((f - w).abs().max()) for f, w in zip(found, wanted, strict=True)))
    assert errors[0] > 1e-3 and errors[-1] < 1e-5, "no more than float32 loses"


def rows_sent(parts: list[VertexPart], syncs: list[CachedSync], rows: list[Tensor], epoch: int) -> float:
    """One epoch; returns the number of rows sent by all ranks."""

    async def program(rank: Rank) -> float:
        rank.epoch = epoch
        await syncs[rank.index].total(rank, rows[rank.index], FORWARD)
        return rank.take_observed()["sent/0"][0]

    return float(sum(loopback.run_ranks(program, len(parts))))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("threshold", [0.3, 0.1, 0.01])
def test_rows_that_stand_still_end_inside_the_threshold_and_are_sent_no_more(bits: int, threshold: float) -> None:
    """For parts and totals: the coding error of the last total counts as a change too."""
    parts = vertex_parts(random_graph(30, 90, seed=3), 4, dtype=torch.float32)
    syncs, rng = cached_syncs(parts, LinearRows(bits), threshold), np.random.default_rng(4)
    rows = [torch.from_numpy(rng.normal(size=(part.num_local, 6))).float() for part in parts]
    sent = [rows_sent(parts, syncs, rows, epoch) for epoch in range(60)]
    caches = [sync.memory["forward"]["0"] for sync in syncs]
    whole = [sum(held) for held in by_node(parts, "part", caches)]
    for part, cache, r in zip(parts, caches, rows, strict=True):
        for node, total in zip(part.nodes[part.num_inner :].tolist(), cache["total"], strict=True):
            assert (total - whole[node]).abs().max() <= threshold * total.abs().max() + 1e-5
        assert not changed_rows(r[part.num_inner :], cache["part"], threshold).any()
    assert sent[0] == sum(part.num_mirrors + int(part.plan.send_counts.sum()) for part in parts)
    assert not any(sent[30:])


@pytest.mark.parametrize("codec", [Cast(None), LinearRows(4)], ids=["exact", "4-bit"])
def test_without_a_cache_replicas_see_one_total(codec: Codec) -> None:
    parts = vertex_parts(random_graph(30, 90, seed=4), 4, dtype=torch.float32)
    rng = np.random.default_rng(5)
    rows = [torch.from_numpy(rng.normal(size=(part.num_local, 6))).float() for part in parts]
    syncs = [PlainSync(replicas, codec) for replicas in replicas_of(parts)]
    found, wanted = totals(parts, syncs, rows, FORWARD), summed(parts, rows)  # type: ignore[arg-type]
    seen: dict[int, Tensor] = {}
    for part, out, want in zip(parts, found, wanted, strict=True):
        assert (out - want).abs().max() < (1e-5 if isinstance(codec, Cast) else 1.0)
        for node, row in zip(part.nodes.tolist(), out, strict=True):
            assert torch.equal(row, seen.setdefault(node, row))


@given(counts=st.lists(st.integers(0, 20), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_flags_survive_the_wire(counts: list[int], seed: int) -> None:
    wire = FlagBits.of(np.asarray(counts, np.int64), torch.device("cpu"))
    flags = torch.from_numpy(np.random.default_rng(seed).random(sum(counts)) < 0.4)
    packed = wire.pack(flags)
    assert packed.dtype == torch.uint8 and len(packed) == sum(-(-count // 8) for count in counts)
    assert torch.equal(wire.unpack(packed), flags)
    pieces = packed.split(wire.num_bytes.tolist())
    for piece, mine in zip(pieces, flags.split(counts), strict=True):
        assert np.array_equal(np.unpackbits(piece.numpy(), bitorder="little")[: len(mine)], mine.numpy())
