"""The check of `static`: an epoch is recorded operator by operator and replayed, and ends in the same bits."""

from __future__ import annotations

import torch

from harness.conformance._ground import Ground, parts_for_method, random_graph
from harness.conformance._rounds import EpochSettings, NotKept, run_epochs
from harness.methods.bases.base import Method
from harness.static_epochs import BEFORE_RECORDING

EPOCHS = BEFORE_RECORDING + 4
"""One is recorded, three are replayed."""

DROPOUT = 0.3


def check_static(method: Method, ground: Ground) -> None:
    """Epochs that are replayed from a recorded one end with the same parameters, losses and bytes, bit for bit."""
    num_parts = 1 if method.facts.cut == "none" else 3
    graph = random_graph(40, 160, seed=5)
    model = ground.model(method, graph, num_parts, dtype=torch.float32)
    model.dropout = DROPOUT
    parts = parts_for_method(method, graph, num_parts, "hash", torch.float32)
    plain, replayed = (run_epochs(method, model, parts, EpochSettings(EPOCHS, replayed=r)) for r in (False, True))
    for index, (a, b) in enumerate(zip(plain, replayed, strict=True)):
        for epoch, (mine, theirs) in enumerate(zip(a.epochs, b.epochs, strict=True)):
            where = f"rank {index}, epoch {epoch} of {EPOCHS}, epochs from {BEFORE_RECORDING + 1} on replayed"
            if not all(torch.equal(p, q) for p, q in zip(mine.parameters, theirs.parameters, strict=True)):
                raise NotKept(f"static: replayed epochs end with other parameters ({where})")
            if mine.loss != theirs.loss or mine.observed != theirs.observed:
                raise NotKept(f"static: replayed epochs have another loss, or observe something else ({where})")
            if mine.traffic.layers != theirs.traffic.layers or mine.traffic.others != theirs.traffic.others:
                raise NotKept(f"static: replayed epochs send other bytes ({where})")
