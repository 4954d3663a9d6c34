"""Sampling of boundary nodes on the host: which are drawn, and the block of their columns.

Random draws and index arrays are made by a core of the host, also where the rank computes on a GPU. As operators of
the class `host` they are priced at the host's rate, `host.bandwidth` of a device file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from harness.kernels.columns import Arrays, select_columns
from harness.kernels.custom_operator import custom_operator
from harness.kernels.work import Work, bytes_of, declare_work


@custom_operator(
    "haloscope::draw_rows", "(Tensor nodes, int[] available, float p, bool fixed, int key, int expected) -> Tensor"
)
def draw_rows(nodes: Tensor, available: Sequence[int], p: float, fixed: bool, key: int, expected: int) -> Tensor:
    """Positions of the nodes that are kept, ascending int64 [k], drawn from `key`.

    Args:
        nodes: int64 [n], only its length matters.
        available: how many nodes, one after the other, belong to each owner; they sum to n.
        p: each is kept with this probability.
        fixed: int(p * count) of each owner's nodes are kept instead, uniformly without replacement.
        expected: k where tensors have no numbers; ignored where they have.
    """
    draw = np.random.Generator(np.random.Philox(key)).random(nodes.shape[0], dtype=np.float32)
    if not fixed:
        return torch.from_numpy(np.flatnonzero(draw < p))
    chosen, start = [np.zeros(0, np.int64)], 0
    for count in available:
        wanted = int(p * count)
        if wanted:
            lowest = np.argpartition(draw[start : start + count], wanted - 1)[:wanted]
            chosen.append(np.sort(lowest) + start)
        start += count
    return torch.from_numpy(np.concatenate(chosen))


@draw_rows.register_fake
def _(nodes: Tensor, available: Sequence[int], p: float, fixed: bool, key: int, expected: int) -> Tensor:
    return nodes.new_empty(expected)


@custom_operator(
    "haloscope::host_select_columns",
    "(Tensor indptr, Tensor indices, Tensor t_indptr, Tensor t_indices, Tensor columns)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def host_select_columns(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, t_indices: Tensor, columns: Tensor
) -> Arrays:
    """`select_columns` of arrays that lie in the host's memory."""
    kept: Arrays = select_columns(indptr, indices, t_indptr, t_indices, columns)
    return kept


@host_select_columns.register_fake
def _(indptr: Tensor, indices: Tensor, t_indptr: Tensor, t_indices: Tensor, columns: Tensor) -> Arrays:
    kept: Arrays = select_columns(indptr, indices, t_indptr, t_indices, columns)
    return kept


@dataclass(frozen=True)
class Written:
    """Work of the host: bytes that it writes, a random float32 for every node among them.

    Attributes:
        draws: whether there is one for every entry of the first tensor.
    """

    draws: bool
    kind: ClassVar[str] = "host"

    def __call__(self, args: Sequence[Any], inputs: list[Tensor], outputs: list[Tensor]) -> Work:
        return Work(self.kind, bytes_of(outputs) + 4 * inputs[0].numel() * self.draws)


declare_work("haloscope::draw_rows", Written(draws=True))
declare_work("haloscope::host_select_columns", Written(draws=False))
