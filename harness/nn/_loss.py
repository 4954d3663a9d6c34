"""Training loss and evaluation counts on one rank's rows; sums over ranks are the caller's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from harness.graphs import Part


def training_loss(logits: Tensor, part: Part) -> Tensor:
    """Sum over local training nodes of the cross entropy, or of the binary cross entropies of all classes. Scalar.

    A rank without training nodes has the loss 0, still attached to its logits.
    """
    assert part.y is not None
    return summed_loss(logits.index_select(0, part.train), part.y.index_select(0, part.train), part.totals.multilabel)


def summed_loss(rows: Tensor, target: Tensor, multilabel: bool, weight: Tensor | None = None) -> Tensor:
    """Sum over rows [n, C] of the same losses, each times its `weight` [n] if there are any. Scalar, never bfloat16."""
    rows = rows.float() if rows.dtype == torch.bfloat16 else rows
    reduction = "sum" if weight is None else "none"
    if multilabel:
        loss = functional.binary_cross_entropy_with_logits(rows, target, reduction=reduction)
        loss = loss if weight is None else loss.sum(1)
    else:
        loss = functional.cross_entropy(rows, target, reduction=reduction)
    return loss if weight is None else (loss * weight).sum()


def counts(logits: Tensor, part: Part) -> Tensor:
    """True positives, false positives and false negatives for train, val and test: float64 [3, 3].

    Single-label: a wrong prediction is one false positive and one false negative, so micro-F1 is the accuracy. Of the
    ranks that hold the same part, the first one counts.
    """
    assert part.y is not None
    table = torch.zeros(3, 3, dtype=torch.float64, device=logits.device)
    if part.replica:
        return table
    for at, nodes in enumerate((part.train, part.val, part.test)):
        rows, target = logits.index_select(0, nodes), part.y.index_select(0, nodes)
        if part.totals.multilabel:
            guess, truth = rows > 0, target > 0
            hits = (guess & truth).sum()
            table[at] = torch.stack([hits, guess.sum() - hits, truth.sum() - hits])
        elif len(nodes):
            hits = (rows.argmax(1) == target).sum()
            table[at] = torch.stack([hits, len(nodes) - hits, len(nodes) - hits])
    return table


def micro_f1(row: Sequence[float]) -> float | None:
    """Micro-F1 (accuracy where there is one label) of one row of `counts`, or None for an empty split."""
    hits, false_positive, false_negative = row
    total = 2 * hits + false_positive + false_negative
    return 2 * hits / total if total else None
