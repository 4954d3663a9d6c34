"""EC-Graph's sampling rivals, DistDGL, AGL and AliGraph-FG: their runs, and what they sample of graphs not on disk.

Expected sizes rest on the share of edges that a partition cuts and a negative binomial distribution of degrees, and on
which neighbours a node draws being independent of all else. Nodes with more neighbours are reached more often, which is
counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.workloads import Degrees
from reports.core.clusters import hosts_slowed
from reports.core.context import SHAPES
from reports.core.predict import Seconds
from reports.ec_graph._metis import PARTITIONER, cut_by_metis, metis_workload
from reports.ec_graph._times import DEVICES, METHOD_OF, Machines, gcn, on_disk, split_of, timed_counts, workload

RIVALS = ("DistDGL", "AGL", "AliGraph-FG")
FULL = math.inf
BATCH = 1000
"""DistDGL's batch in its example; the tables print none."""

SAMPLED_BY = (
    "DistDGL, AGL and AliGraph-FG: fan-outs as printed, from the training nodes outwards; one step an "
    "epoch on all training nodes of a machine, since the text says full-batch mode and no batch is printed; rows 'in "
    f"batches of {BATCH:,}' beside, of two layers. Cora is sampled where it is on disk; elsewhere sizes are "
    "expected ones, in closed form"
)
PARTS_OF_RIVALS = (
    "DistDGL's parts are METIS', the default of DGL (`part_method` of dgl.distributed.partition_graph, and of "
    "partition_graph.py beside the example), with training nodes balanced as that example's README has it. The paper "
    "names no partition of DistDGL's; Hash is what it says of EC-Graph (Sec. V-D). Of AGL and AliGraph-FG nothing of "
    "the graph travels in training, so that parts do not matter"
)
SUMS_FIRST = (
    "AliGraph-FG (alibaba/graph-learn of May 2021): a layer sums rows first and multiplies then, whatever their widths "
    "(graphlearn/python/model/tf/layers/gcn_conv.py), and lists are cut off at the fan-out, as its full sampler does "
    "(graphlearn/core/operator/sampler/full_sampler.cc). The sampler topk of its example would fill short lists up to "
    "the fan-out (topk_sampler.cc): several times the printed times on Cora and Pubmed, and more than the 2 GB of "
    "constants that a graph of TensorFlow may have with 4 and 3 layers (as Reddit's trees are by either sampler)"
)
MACHINES_OF_RIVALS = (
    "no constant is fitted for them: AGL, which the authors re-implemented on EC-Graph, takes the constants of "
    "EC-Graph's code; DistDGL and AliGraph-FG sum rows as DGL does, with DGL's factor, on the same machines, and their "
    "messages are EC-Graph's. AGL's reads from disk are in no time: no disk is printed, and no one "
    "rate explains its times. They are lower bounds, which only a longer prediction would contradict, and are in no "
    "ordering"
)
LEFT_OUT = frozenset({"AGL"})
"""Systems of whose times a part is not predicted."""


def rival_method(system: str, fanouts: str, batch: int = 0) -> str:
    """The text of a rival's method with fan-outs, the training nodes' own first. `batch` is not AliGraph-FG's: its
    batch is what it trains on at all."""
    sized = "" if system == "AliGraph-FG" else f":batch={batch}"
    return f"{METHOD_OF[system]}:fanout={fanouts}{sized}"


def rival_config(bed: Machines, system: str, fanouts: str, batch: int = 0, library: float = 1.0) -> dict[str, Any]:
    """A rival's run on the machines; `library` is DGL's factor on the device, for all but AGL."""
    cluster, slow = bed.cluster, bed.constants.device
    if system != "AGL":
        device = DEVICES[cluster.partition(":")[0]]
        cluster, slow = (
            cluster.replace(f"hosts.device={device}", f"hosts.device={device.removesuffix('-coo')}"),
            library,
        )
    order = {"order": "aggregate-first"} if system == "AliGraph-FG" else {}
    run = {
        **gcn(bed.dataset, bed.layers), **order, "cluster": hosts_slowed(cluster, bed.parts, slow), "parts": bed.parts,
        "epochs": 3 if batch else 4, "method": rival_method(system, fanouts, batch),
    }  # fmt: skip
    if bed.dataset == "cora" and on_disk("cora"):
        plain = {"mode": "sim", "eval_every": -1, "deterministic": False}
        partitioner = PARTITIONER if system == "DistDGL" else "hash"
        return {**plain, **run, "dataset": "cora", "split": split_of("cora"), "partitioner": partitioner}
    counts = timed_counts(bed.dataset, printed=bed.printed)
    own = counts["train"] / bed.parts
    cut, described = 1 - 1 / bed.parts, workload(bed.context, bed.dataset, printed=bed.printed)
    if system == "DistDGL":
        cut, described = cut_by_metis(bed).edges, metis_workload(bed)
    sample = Sampling(bed.degrees(), counts["vertices"], bed.parts, cut)
    rates = sample.rates(METHOD_OF[system], min(batch or own, own), _numbers(fanouts))
    path = bed.context.rates(METHOD_OF[system], rates)
    return {**SHAPES, **run, "dataset": described, "rates": path}


def rival_seconds(bed: Machines, system: str, fanouts: str, batch: int = 0, library: float = 1.0) -> Seconds:
    """An epoch of a rival."""
    return Seconds.mean(bed.record(rival_config(bed, system, fanouts, batch, library), system))


def disk_bytes(bed: Machines, fanouts: str) -> float:
    """Bytes that AGL reads from disk on one machine in an epoch, for its own training nodes."""
    counts = timed_counts(bed.dataset, printed=bed.printed)
    sample = Sampling(bed.degrees(), counts["vertices"], bed.parts, 1 - 1 / bed.parts)
    rows = sample.tree(_numbers(fanouts))
    each = (1 + sum(rows)) * (4 * counts["features"] + 8) + 16 * sum(rows)
    return float(counts["train"] / bed.parts * each)


def _numbers(fanouts: str) -> list[float]:
    return [FULL if word == "full" else int(word) for word in fanouts.split("/")]


@dataclass(frozen=True)
class Sampling:
    """Expected sizes of sampled neighbourhoods in a graph of this many nodes on so many machines.

    Attributes:
        cut: share of the edges that lead from one part to another: 1 - 1 / parts for hash.
    """

    degrees: Degrees
    nodes: int
    parts: int
    cut: float

    def _shape(self) -> float:
        return 1 / (self.degrees.spread**2 - 1 / self.degrees.mean)

    def _fewer(self, fanout: float) -> np.ndarray:
        """P(degree = k) for k below the fan-out."""
        shape, mean, count = self._shape(), self.degrees.mean, np.arange(fanout)
        ways = np.array([math.lgamma(k + shape) - math.lgamma(k + 1) for k in count]) - math.lgamma(shape)
        found: np.ndarray = np.exp(
            ways + shape * math.log(shape / (shape + mean)) + count * math.log(mean / (shape + mean))
        )
        return found

    def kept(self, fanout: float, z: float = 1.0) -> float:
        """E[z^degree min(degree, fan-out)]."""
        mean, shape = self.degrees.mean, self._shape()
        if fanout == FULL:
            return z * mean * float((1 + mean * (1 - z) / shape) ** (-shape - 1))
        k, p = np.arange(fanout), self._fewer(fanout)
        return float(fanout * self.degrees.generating(z) - ((fanout - k) * p * z**k).sum())

    def tree(self, fanouts: Sequence[float]) -> list[float]:
        """Rows of each hop of one node's tree; a node that is reached by an edge is so in proportion to its degree."""
        mean, rows, found = self.degrees.mean, 1.0, list[float]()
        for hop, fanout in enumerate(fanouts):
            if hop == 0:
                each = self.kept(fanout)
            elif fanout == FULL:
                each = mean * (1 + self.degrees.spread**2)
            else:
                k = np.arange(fanout)
                each = (fanout * mean - (k * (fanout - k) * self._fewer(fanout)).sum()) / mean
            rows *= float(each)
            found.append(rows)
        return found

    def hops(self, seeds: float, fanouts: Sequence[float]) -> list[tuple[float, float, float]]:
        """(nodes that draw, entries drawn, new nodes) of each hop from `seeds` nodes anywhere in the graph; those that
        the last hop reached draw."""
        others, edges = self.nodes - seeds, self.nodes * self.degrees.mean
        missed, before, found = 1.0, 1.0, list[tuple[float, float, float]]()
        for hop, fanout in enumerate(fanouts):
            drawing, entries = seeds, seeds * self.kept(fanout)
            if hop:
                drawing = others * (self.degrees.generating(before) - self.degrees.generating(missed))
                entries = others * (self.kept(fanout, before) - self.kept(fanout, missed))
            before = missed
            missed *= max(1 - entries / edges, 0.0)
            new = others * (self.degrees.generating(before) - self.degrees.generating(missed))
            found.append((drawing, entries, new))
        return found

    def rates(self, method: str, seeds: float, fanouts: Sequence[float]) -> dict[str, float]:
        """What the method observes in a step, as shares; layers and hops as it names them."""
        if method == "distdgl":
            return self._from_a_part(seeds, fanouts)
        found = dict[str, float]()
        if method == "aligraph-fg":
            rows = [1.0, *self.tree(fanouts)]
            for hop, fanout in enumerate(fanouts):
                found |= {f"kept_edges/{hop}": rows[hop + 1] / rows[hop] / _limit(fanout), f"kept_rows/{hop}": 1.0}
            return found
        for hop, (drawing, entries, new) in enumerate(self.hops(seeds, fanouts)):
            limit = _limit(fanouts[hop])
            found |= {
                f"kept_edges/{hop}": entries / max(drawing, 1e-9) / limit,
                f"kept_rows/{hop}": new / max(entries, 1e-9),
            }
        return found

    def _from_a_part(self, seeds: float, fanouts: Sequence[float]) -> dict[str, float]:
        """Shares of DistDGL, from `seeds` nodes of one part: all that were reached draw again in every hop.

        Own and other nodes are two populations. An edge of an own node leads to the others with probability `cut`, one
        of the others' to own nodes with `cut` / (parts - 1).
        """
        found, depth, parts = dict[str, float](), len(fanouts), self.parts
        away = np.array([self.cut, 1 - self.cut / max(parts - 1, 1)])  # ends of edges of own nodes, of others
        nodes = self.nodes * np.array([1 / parts, 1 - 1 / parts])
        edges, unseen = np.maximum(nodes * self.degrees.mean, 1e-9), np.maximum(nodes - [seeds, 0.0], 0.0)
        missed, reached = np.ones(2), np.array([seeds, 0.0])
        for hop, fanout in enumerate(fanouts):
            layer, limit, kept = depth - 1 - hop, _limit(fanout), self.kept(fanout)
            entries = unseen * (kept - np.array([self.kept(fanout, float(z)) for z in missed])) + [seeds * kept, 0.0]
            missed = missed * np.maximum(1 - np.array([entries @ (1 - away), entries @ away]) / edges, 0.0)
            before = reached
            reached = unseen * (1 - np.array([self.degrees.generating(float(z)) for z in missed])) + [seeds, 0.0]
            found |= {
                f"sampled_edges/{layer}": float(entries[0] / before[0]) / limit,
                f"remote_edges/{layer}": float(entries[1] / before[1]) / limit if before[1] else 0.0,
                f"remote_nodes/{layer}": float(before[1] / before.sum()),
                f"sampled_rows/{layer}": float((reached - before).sum() / max(entries.sum(), 1e-9)),
            }
        return found | {"remote_x/0": float(reached[1] / reached.sum()), "remote_labels": 0.0}


def _limit(fanout: float) -> float:
    """What recorded shares of entries are of: nodes x fan-out, or nodes."""
    return 1.0 if fanout == FULL else fanout
