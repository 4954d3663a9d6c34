"""ReqEC-FP: readers predict rows from a trend; owners send codes where those are more accurate (EC-Graph, Sec. IV-B).

Owner and reader keep the last exact rows and their rate of change; every `period` epochs both are sent again. In
between the owner compares, for every reader's bits, the predicted, the averaged and the compressed form. Independent of
the layers' arithmetic and of the names of options.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from harness.codecs import BUCKET_BITS, Bucket
from harness.effects import Counts, Rows
from harness.exchanges._error_feedback import Boundary, refused
from harness.exchanges._memory import Memory
from harness.kernels.packed import code_bytes
from harness.kernels.trend import AVERAGE, COMPRESSED, PREDICTED
from harness.rank import Rank

Select = Literal["vertex", "element", "matrix"]
Tuner = Literal["responder", "pooled"]
FLAGS_PER_BYTE = 4
RAISE_ABOVE, LOWER_BELOW = 0.6, 0.4

_BY_RANK = (PREDICTED, AVERAGE, COMPRESSED)
"""Flags in the order of the scores; of equal scores the first wins."""


def tuned(bits: int, predicted: float) -> int:
    """The Bit-Tuner (Alg. 3, lines 14 to 18): twice the bits above 60 % predicted, half below 40 %, within 1 to 16."""
    if predicted > RAISE_ABOVE:
        return min(2 * bits, BUCKET_BITS[-1])
    return max(bits // 2, BUCKET_BITS[0]) if predicted < LOWER_BELOW else bits


def flag_bytes(counts: Counts) -> Counts:
    """Bytes of `counts` two-bit flags, each message rounded up."""
    return -(-counts // FLAGS_PER_BYTE)


def _places(counts: Counts, device: torch.device) -> Tensor:
    """Positions of the flags of messages, if every message begins with a new byte: int64 [sum(counts)]."""
    room = flag_bytes(counts) * FLAGS_PER_BYTE
    shift = (np.cumsum(room) - room) - (np.cumsum(counts) - counts)
    return torch.from_numpy(np.arange(counts.sum()) + np.repeat(shift, counts)).to(device)


def pack_flags(flags: Tensor, counts: Counts) -> Tensor:
    """Flags uint8 [sum(counts)] -> four to a byte, the first in the lowest bits, a new byte for every message."""
    size = int(flag_bytes(counts).sum())
    if flags.is_meta:
        return flags.new_empty(size)
    spread = flags.new_zeros(size * FLAGS_PER_BYTE)
    spread[_places(counts, flags.device)] = flags
    a, b, c, d = spread.view(-1, FLAGS_PER_BYTE).unbind(1)
    return a | b << 2 | c << 4 | d << 6


def unpack_flags(packed: Tensor, counts: Counts) -> Tensor:
    """The inverse of `pack_flags`."""
    if packed.is_meta:
        return packed.new_empty(int(counts.sum()))
    shifts = torch.arange(0, 8, 2, dtype=torch.uint8, device=packed.device)
    return ((packed[:, None] >> shifts) & 3).view(-1)[_places(counts, packed.device)]


@dataclass(frozen=True, eq=False)
class Trend:
    """The forward fetch of one layer in one epoch.

    `memory` holds, under the layer's number: `base` and `rate` [n_boundary, d] of the rows that others read,
    `halo_base` and `halo_rate` [n_halo, d] of the rows read here, `since`, the epoch of both bases. An owner needs them
    once per vertex, not per reader: exact rows go to all readers in the same epochs.

    The Bit-Tuner runs at the reader, which asks every owner for bits, from the last layer's share of predicted rows.
    `responder`: that of each owner over all its readers, which is part of every reply (Alg. 4, lines 17 and 18), so all
    readers of an owner ask it for the same bits. `pooled`: that of all rows which the reader reads.

    Exact epochs: the first, then those with (t + 1) mod period = 0. The rate divides by the epochs since the last base.
    A prediction for epoch t is base + (t - since) rate, which is Eq. 7 with its base at epoch k T - 1, where Alg. 4
    really takes it.

    Args:
        scope, table: of the ranges, as in `Bucket`; with ranges of requests the boundary is that of `by_request`.
        peer_bits: bits that every reader requests, int64 [P].
        bits: bits that this rank requests of every owner, int64 [P].
        tuner: whose share of predicted rows changes the bits; None where they stay.
        last: whether this layer's share is the one that changes `memory["bits"]`.
        told: the ranks that request bits of each other in any layer, where they are more than those of `boundary`.
    """

    boundary: Boundary
    layer: int
    scope: str
    select: Select
    period: int
    memory: Memory
    peer_bits: Counts
    bits: Counts
    tuner: Tuner | None = None
    last: bool = False
    table: str = "range"
    told: Boundary | None = None

    @property
    def _codec(self) -> Bucket:
        """Of the ranges; bits are those of every message."""
        return Bucket(scope=self.scope, table=self.table)

    async def __call__(self, rank: Rank, x: Tensor) -> Tensor:
        trends = self.memory.setdefault("trend", {})
        trend = trends.get(str(self.layer))
        if trend is None or (rank.epoch + 1) % self.period == 0:
            trends[str(self.layer)], halo = await self._renew(rank, x, trend)
            return halo
        return await self._choose(rank, x, trend)

    async def _renew(self, rank: Rank, x: Tensor, trend: Memory | None) -> tuple[Memory, Tensor]:
        """An exact epoch: rows, and their rates if there was a base. Returns the new memory entry, and the halo."""
        boundary, plan = self.boundary, self.boundary.plan
        base = x.index_select(0, boundary.rows)
        with rank.span("codec"), refused(rank, self.layer, "forward trend"):
            # nan and inf would spoil the predictions of a whole period
            self._codec.measure(base, x, boundary.groups(self._codec))
        rate = torch.zeros_like(base)
        sent = [base.index_select(0, boundary.position)]
        if trend is not None:
            rate = (base - trend["base"]) / (rank.epoch - int(trend["since"]))
            sent.append(rate.index_select(0, boundary.position))
        parts = [Rows(t, plan.send_counts, plan.recv_counts) for t in sent]
        received = await rank.all_to_all(parts, label=f"h{self.layer}", direction="forward", layer=self.layer)
        halo = received.tensors[0]
        halo_rate = received.tensors[1] if trend is not None else torch.zeros_like(halo)
        since = torch.tensor(rank.epoch)
        return {"base": base, "rate": rate, "halo_base": halo, "halo_rate": halo_rate, "since": since}, halo

    async def _choose(self, rank: Rank, x: Tensor, trend: Memory) -> Tensor:
        """An epoch of predictions and codes."""
        boundary, plan = self.boundary, self.boundary.plan
        step = float(rank.epoch - int(trend["since"]))
        counted = [self._flags_of(counts, x.shape[1]) for counts in (plan.send_counts, plan.recv_counts)]
        with rank.span("codec"):
            flags, packed, sizes, ranges = self._replies(rank, x, trend, step)
            parts = [
                Rows(pack_flags(flags, counted[0]), flag_bytes(counted[0]), flag_bytes(counted[1])),
                ranges,
                Rows(packed, sizes, None),
            ]
            if self.tuner == "responder":
                parts.append(self._proportion(rank, self._row_flags(flags, plan.send_counts, x.shape[1])))
        received = await rank.all_to_all(parts, label=f"h{self.layer}", direction="forward", layer=self.layer)
        with rank.span("codec"):
            wire, side, packed = received.tensors[:3]
            flags = self._row_flags(unpack_flags(wire, counted[1]), plan.recv_counts, x.shape[1])
            if self.tuner == "responder":
                self._tune_owners(received.tensors[3])
            else:
                self._watch(rank, flags)
            side = boundary.received(self._codec, side, self.bits)
            return self._restore(packed, flags, side, trend, step, x.shape[1]).to(x.dtype)

    def _restore(self, packed: Tensor, flags: Tensor, side: Tensor, trend: Memory, step: float, width: int) -> Tensor:
        """Halo rows from the replies of all owners, those in a row that were asked for the same bits at once."""
        counts, halo, first = self.boundary.plan.recv_counts, list[Tensor](), 0
        runs = [(bits, counts[owners]) for bits, owners in _runs(self.bits, counts)]
        if not runs:
            return trend["halo_base"]  # type: ignore[no-any-return]
        sizes = [int(mine.sum()) for _, mine in runs]
        pieces = zip(runs, flags.split(sizes), strict=True)
        length = torch.cat([_lengths(piece, bits, width)[1] for (bits, _), piece in pieces])
        given = (flags, length.cumsum(0) - length, trend["halo_base"], trend["halo_rate"])
        for (bits, mine), *piece in zip(runs, *(t.split(sizes) for t in given), strict=True):
            sides = side[first : first + (int(mine.sum()) if self.scope == "row" else len(mine))]
            first += sides.shape[0]
            starts = self._codec.starts(sides, mine)
            halo.append(torch.ops.haloscope.trend_restore(packed, *piece, step, sides, starts, bits))
        return halo[0] if len(halo) == 1 else torch.cat(halo)

    def _flags_of(self, counts: Counts, width: int) -> Counts:
        """Number of flags in messages of `counts` rows."""
        if self.select == "matrix":
            return (counts > 0).astype(np.int64)
        return counts * (width if self.select == "element" else 1)

    def _row_flags(self, flags: Tensor, counts: Counts, width: int) -> Tensor:
        """Flags of messages expanded to flags of rows [n], or of elements [n, d]."""
        if self.select == "element":
            return flags.view(-1, width)
        return _repeat(flags, counts[counts > 0]) if self.select == "matrix" else flags

    def _replies(self, rank: Rank, x: Tensor, trend: Memory, step: float) -> tuple[Tensor, Tensor, Counts, Rows]:
        """Flags of all messages, the codes that are sent (uint8 [bytes]) with their bytes per rank, and the ranges."""
        boundary, codec = self.boundary, self._codec
        groups = boundary.groups(codec)
        rows = x.index_select(0, boundary.rows)
        with refused(rank, self.layer, "forward trend"):
            side = codec.measure(rows, x, groups)
        starts = codec.starts(side, groups)
        operator = torch.ops.haloscope.trend_choose if self.select == "element" else torch.ops.haloscope.trend_score
        requested = sorted({int(b) for b in self.peer_bits[boundary.readers > 0]})
        forms = {b: operator(rows, trend["base"], trend["rate"], step, side, starts, b) for b in requested}
        sizes, flags, packed = np.zeros(rank.size, np.int64), [], []
        for bits, peers in _runs(self.peer_bits, boundary.plan.send_counts):
            mine = self._message(rank, forms[bits], bits, peers, x.shape[1])
            flags.append(mine[0])
            packed.append(mine[1])
            sizes[peers] = mine[2]
        nothing = torch.empty(0, dtype=torch.uint8, device=x.device)
        ranges = boundary.ranges(codec, side, self.peer_bits, self.bits)
        return torch.cat([nothing, *flags]), torch.cat([nothing, *packed]), sizes, ranges

    def _message(
        self, rank: Rank, form: tuple[Tensor, Tensor], bits: int, peers: list[int], width: int
    ) -> tuple[Tensor, Tensor, Counts]:
        """Flags, codes and bytes per peer of the messages to consecutive ranks that request the same bits."""
        counts = self.boundary.plan.send_counts
        begin = int(counts[: peers[0]].sum())
        position = self.boundary.position[begin : begin + int(counts[peers].sum())]
        codes, chosen = form[0], form[1].index_select(0, position)
        if rank.shapes_only:
            share = 1.0 - rank.rate("predicted", self.layer)
            sizes = np.asarray([_expected(self.select, share, int(n), width, bits) for n in counts[peers]])
            flags = chosen.new_empty(int(self._flags_of(counts[peers], width).sum()), dtype=torch.uint8)
            return flags, codes.new_empty(int(sizes.sum())), sizes
        flags = _cheapest(chosen, counts[peers], self.select)
        by_row = self._row_flags(flags, counts[peers], width)
        sent, length = _lengths(by_row, bits, width)
        if self.select == "element":
            block = codes.index_select(0, position)
            packed = block[torch.arange(block.shape[1], device=block.device) < length[:, None]]
        else:
            packed = codes.index_select(0, position[sent]).view(-1)
        ends = np.concatenate([[0], length.cumsum(0).cpu().numpy()])[np.concatenate([[0], np.cumsum(counts[peers])])]
        return flags.reshape(-1), packed, np.diff(ends)

    def _watch(self, rank: Rank, flags: Tensor) -> None:
        """Record the shares of predicted and averaged rows (or elements); a pooled tuner uses the former."""
        if flags.is_meta or not flags.numel():
            return
        predicted = self._observe(rank, flags)
        if self.tuner == "pooled" and self.last:
            self.memory["bits"] = torch.from_numpy(np.asarray([tuned(int(bits), predicted) for bits in self.bits]))

    def _observe(self, rank: Rank, flags: Tensor) -> float:
        predicted, averaged = int((flags == PREDICTED).sum()), int((flags == AVERAGE).sum())
        rank.observe("predicted", predicted, flags.numel(), self.layer)
        rank.observe("averaged", averaged, flags.numel(), self.layer)
        return predicted / flags.numel()

    def _proportion(self, rank: Rank, flags: Tensor) -> Rows:
        """What this rank tells its readers: the share of predicted rows (or elements) in all its replies, in fp32.

        Not a number where it had no row to reply with; its bits then stay.
        """
        told = self.told or self.boundary
        readers, owners = told.readers, told.owners
        share = float("nan") if flags.is_meta or not flags.numel() else self._observe(rank, flags)
        shares = torch.full((int(readers.sum()),), share, dtype=torch.float32, device=flags.device)
        return Rows(shares, readers, owners)

    def _tune_owners(self, shares: Tensor) -> None:
        """Change what is asked of every owner by the share that it told."""
        if shares.is_meta or not self.last:
            return
        bits, owners = self.bits.copy(), np.flatnonzero((self.told or self.boundary).owners)
        exact = [round(share, 6) for share in shares.tolist()]  # 0.6 in fp32 is more than 0.6
        bits[owners] = [tuned(int(bits[p]), share) for p, share in zip(owners, exact, strict=True)]
        self.memory["bits"] = torch.from_numpy(bits)


def _runs(bits: Counts, counts: Counts) -> list[tuple[int, list[int]]]:
    """Groups of consecutive readers that request the same bits; ranks that read nothing are left out."""
    readers = [p for p in range(len(counts)) if counts[p]]
    return [(width, list(peers)) for width, peers in groupby(readers, lambda p: int(bits[p]))]


def _cheapest(chosen: Tensor, counts: Counts, select: Select) -> Tensor:
    """Flags from scores [n, 3] of rows: of every row, or of every message; flags of elements are returned unchanged."""
    if select == "element":
        return chosen
    if select == "matrix":
        message = _repeat(torch.arange(len(counts), device=chosen.device), counts)
        chosen = chosen.new_zeros((len(counts), 3), dtype=torch.float64).index_add_(0, message, chosen.double())
    order = torch.tensor(_BY_RANK, dtype=torch.uint8, device=chosen.device)
    return order[chosen.argmin(1)]


def _lengths(flags: Tensor, bits: int, width: int) -> tuple[Tensor, Tensor]:
    """Which rows send codes, and how many bytes, int64 [n]."""
    if flags.ndim == 2:
        length = ((flags != PREDICTED).sum(1) * bits + 7) >> 3
        return length > 0, length
    sent = flags != PREDICTED
    return sent, sent * code_bytes(width, bits)


def _expected(select: Select, share: float, rows: int, width: int, bits: int) -> int:
    """Bytes of a message whose share of sent rows (or elements) is known from a recorded run."""
    if select == "element":
        return round(share * rows * width * bits / 8)
    return round(share * rows) * code_bytes(width, bits)


def _repeat(values: Tensor, counts: Counts) -> Tensor:
    """Every value `counts` times."""
    size = int(counts.sum())
    return values.repeat_interleave(torch.tensor(counts).to(values.device), output_size=size)
