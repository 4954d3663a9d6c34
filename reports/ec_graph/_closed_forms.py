"""EC-Graph's closed forms beside our codec and a run: the example of Fig. 3, Theorem 1, and Table II's bytes."""

from __future__ import annotations

import numpy as np
import torch

from harness.codecs import Bucket
from reports.core.context import Context, demand
from reports.core.table import Ordering, Row
from reports.ec_graph._times import NON_CP, PARTS, gcn, on_disk, split_of

PRINTED_CODE = 3_388_157_968
"""Fig. 3: two rows of eight values at two bits each, in one unsigned integer of 32 bits."""
AVERAGES = (0.2, 0.5, 0.8, 0.0)
"""Fig. 3: values of the buckets 0 to 3; the last stands for zero itself."""
COUNTED = ("cora", "synthetic:nodes=600,degree=4,features=16")
"""The graph whose run is counted: on disk, or a small one elsewhere."""
ASKED = "numbers of the wanted nodes (Alg. 3 and 5, line 1), which the formula leaves out"
STEPS, DRAWS = 40, 200


def example_rows() -> list[Row]:
    """The printed integer taken apart, put through our codec, and put together again."""
    ids = [PRINTED_CODE >> (30 - 2 * at) & 3 for at in range(16)]
    rows = torch.tensor([AVERAGES[i] for i in ids]).reshape(2, 8)
    codec, side = Bucket(bits=2), torch.tensor([[0.0, 1.0]])
    codes, _ = codec.encode(rows, side)
    decoded = codec.decode(codes, side, codec.starts(side, np.array([2])), 8).flatten().tolist()
    ours = [min(range(4), key=lambda i: abs(AVERAGES[i] - value)) for value in decoded]
    again = sum(i << (30 - 2 * at) for at, i in enumerate(ours))
    note = "the figure's buckets end at 0.4, 0.6 and 1, ours at thirds; both keep zero apart"
    return [
        Row(label="Fig. 3, two rows of 8 values", quantity="code", unit="bits", published=32.0,
            ours=8.0 * codes.numel(), how="closed form", note="two 16-bit values, concatenated"),
        Row(label="Fig. 3, code put together from the decoded values", quantity="integer", unit="",
            published=float(PRINTED_CODE), ours=float(again), how="closed form", note=note),
        Row(label="Fig. 3, 0.7 after decoding", quantity="value", unit="", published=0.8, ours=_decoded(0.7),
            how="closed form", note=note),
    ]  # fmt: skip


def _decoded(value: float) -> float:
    codec, side = Bucket(bits=2), torch.tensor([[0.0, 1.0]])
    codes, _ = codec.encode(torch.tensor([[value]]), side)
    return float(codec.decode(codes, side, codec.starts(side, np.array([1])), 1)[0, 0])


def theorem1() -> tuple[Row, Ordering]:
    """Theorem 1 at the last layer: the error that residuals leave on random gradients, and the smallest bound.

    The bound G^2 / (1 - a^2 (1 + 1 / r)) falls with r, which the proof needs below 1 / a^2 - 1; there it is
    G^2 (1 - a^2) / (1 - 2 a^2).
    """
    generator, codec = torch.Generator().manual_seed(0), Bucket(bits=4)
    rest, worst, error, size = torch.zeros(DRAWS, 16), 0.0, 0.0, 0.0
    for _ in range(STEPS):
        gradient = torch.randn(DRAWS, 16, generator=generator)
        whole = gradient + rest
        _, rest = codec.encode(whole, codec.measure(whole, whole), keep_error=True)
        worst = max(worst, float((rest.square().sum() / whole.square().sum()).sqrt()))
        error, size = max(error, float(rest.square().sum())), max(size, float(gradient.square().sum()))
    bound = size * (1 - worst**2) / (1 - 2 * worst**2)
    row = Row(
        label="Theorem 1, last layer, 4 bits", quantity="largest error over its bound", unit="", published=None,
        ours=error / bound, how="closed form", judge="none",
        note=f"{STEPS} epochs of random gradients; alpha {worst:.3f} is measured, below the theorem's 0.707",
    )  # fmt: skip
    claim = Ordering(
        text="Theorem 1: the bound > the error", expected=("bound", "error"), ours=(bound, error),
        theory="a proven bound, many times the error: no run could exceed it",
    )  # fmt: skip
    return row, claim


def counted(context: Context) -> list[Row]:
    """Bytes of a run, each in values of 4 bytes per vertex and epoch, beside Table II's communication cost."""
    dataset = COUNTED[0] if on_disk(COUNTED[0]) else COUNTED[1]
    bits = 2
    both = f"bits={bits}:backward_bits={bits}"
    methods = {
        f"EC-Graph without compensation, {bits} bits": f"ec-graph:fp=compressed:bp=compressed:{both}",
        "Non-cp": NON_CP,
    }
    split = {"split": split_of(COUNTED[0])} if dataset == COUNTED[0] else {}
    configs = [
        {
            **gcn("cora", 3), **split, "dataset": dataset, "method": method, "parts": PARTS, "partitioner": "hash",
            "epochs": 2, "eval_every": -1, "threads": 1,
        }
        for method in methods.values()
    ]  # fmt: skip
    rows = []
    for label, record in zip(methods, map(demand, context.runs(configs, "counted bytes")), strict=True):
        nodes, edges = record["graph"]["num_nodes"], record["graph"]["num_edges"]
        sent, width = record["epochs"][-1]["bytes"], 16
        remote, factor = edges / nodes * (1 - 1 / PARTS), 1.0 if label == "Non-cp" else 32 / bits
        formula = 3 * remote * width / factor
        for what, amount in (
            ("rows", sum(sent["forward"]) + sum(sent["backward"])), ("requests", sent["others"].get("request", 0)),
        ):  # fmt: skip
            note = (
                f"Table II's formula: {formula:.3g}, L g_rmt d over {factor:g}, a message per remote edge; "
                "counted is one per vertex and machine that reads it, in L - 1 layers and both directions"
            )
            rows.append(
                Row(
                    label=f"{dataset}, three layers of 16, {label}, {what}", quantity="counted, per vertex and epoch",
                    unit="values", published=None, ours=amount / 4 / nodes, how="measured", judge="none",
                    note=note if what == "rows" else ASKED,
                )
            )  # fmt: skip
    return rows
