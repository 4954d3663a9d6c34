"""The choice of the master among the replicas of every node, shared by parts, plans and quality.

CDFGNN (Sec. 3, Fig. 4) makes one replica the master without stating a rule. Its Table 3 indicates one: EBV with
gamma = 0 treats all parts alike, so with 2 x 2, 2 x 4 and 2 x 8 devices shares of 0.67, 0.57 and 0.53 of all messages
would leave a host if masters were placed without regard to hosts. The printed shares are 0.57, 0.48 and 0.45, which
result from masters on the host with most replicas of their node. Therefore the criteria here are first the host, then
the number of edges, then balance.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_COUNTERS = 2**27  # int32 counters of (node, part) held at a time


def masters(
    u: np.ndarray, v: np.ndarray, part: np.ndarray, num_nodes: int, num_parts: int, hosts: int = 1
) -> np.ndarray:
    """The part of every node's master, int32 [N], from the pairs and their parts; parts lie on hosts in equal blocks.

    Among the hosts with most replicas of the node, the part with most of its edges. Nodes are processed in ascending
    order; ties (for a node without edges, among all parts) go to the part with the fewest masters so far, then to the
    lowest.
    `hosts` divides `num_parts`. O(M + N P) time, 512 MiB at most.
    """
    block = max(1, min(num_nodes, _COUNTERS // num_parts))
    owner, load = np.empty(num_nodes, np.int32), np.zeros(num_parts, np.int64)
    for low in range(0, num_nodes, block):
        counts = np.zeros((min(block, num_nodes - low), num_parts), np.int32)
        _count(u, v, part, low, counts)
        _choose(counts, load, num_parts // hosts, owner[low : low + block])
    return owner


@njit(cache=True, nogil=True)
def _count(u: np.ndarray, v: np.ndarray, part: np.ndarray, low: int, counts: np.ndarray) -> None:
    """Edges of the nodes from `low` on in every part; a self loop is one edge."""
    for e in range(len(u)):
        a, b = u[e] - low, v[e] - low
        if 0 <= a < len(counts):
            counts[a, part[e]] += 1
        if a != b and 0 <= b < len(counts):
            counts[b, part[e]] += 1


@njit(cache=True, nogil=True)
def _choose(counts: np.ndarray, load: np.ndarray, host_size: int, owner: np.ndarray) -> None:
    for node in range(len(counts)):
        best, best_held = 0, -1
        for first in range(0, counts.shape[1], host_size):
            held = 0  # replicas on this host
            for i in range(first, first + host_size):
                held += counts[node, i] > 0
            if held < best_held:
                continue
            for i in range(first, first + host_size):
                more = held - best_held if held != best_held else counts[node, i] - counts[node, best]
                if more > 0 or (more == 0 and load[i] < load[best]):
                    best, best_held = i, held
        owner[node] = best
        load[best] += 1
