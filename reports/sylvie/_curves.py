"""Sylvie's figures with accuracies: 8 (convergence and staleness) and 9 (bits)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from reports.core import load
from reports.core.context import Context
from reports.core.null_models import Null
from reports.core.predict import Seconds
from reports.core.table import Ordering, Plot, Row
from reports.core.testbeds import judged_in, seconds_row, select, value
from reports.core.train import Trained
from reports.draw.charts import colours_of, curves, grouped, paper_parts, stacked
from reports.draw.drawing import panels
from reports.sylvie._scores import accuracy_claim, scores_of_systems
from reports.sylvie._testbed import (
    CROWDED,
    FITTED,
    GRAPH_NOTES,
    SIDE_BYTES,
    crowded,
    crowded_fit,
)
from reports.sylvie._times import QUANTISER

STALE = {
    "DGL": "vanilla",
    "Sylvie-S": "sylvie-s:bits=1:side=fp16",
    "Sylvie-A, eps 2": "sylvie-a:bits=1:side=fp16:staleness=2",
    "Sylvie-A, eps 5": "sylvie-a:bits=1:side=fp16:staleness=5",
    "Sylvie-A": "sylvie-a:bits=1:side=fp16",
}
BITS = {
    "FP32": "vanilla",
    "FP16": "vanilla:dtype=fp16",
    **{f"{b} bits": f"sylvie-s:bits={b}:side=fp16" for b in (8, 4, 2)},
}
BITS["1 bit"] = "sylvie-s:bits=1:side=fp16"
SENT_1_BIT = (512 / 8 + SIDE_BYTES) / (4 * 512)  # of FP32's bytes, for rows of Yelp's width


def figure8(context: Context) -> Plot:
    """Accuracy against epochs with stale rows and periodic synchronisation, Reddit."""
    key, paths = "sylvie/figure8", context.figure_paths("sylvie/figure8")
    run = scores_of_systems(context, "reddit", "GraphSAGE", STALE, seeds=1)
    drawn = {name: method for name, method in STALE.items() if name in run.scores}
    with panels(paths, 1) as (axes,):
        curves(axes, {name: run.curve(name) for name in drawn}, colours_of(drawn))
        axes.set_xlabel("epoch")
        axes.set_ylabel("test accuracy (%)")
    return Plot(
        key=key, title="Sylvie Fig. 8: convergence with bounded staleness, Reddit",
        caption=f"Test accuracy during training; {run.data or 'the real graph'}.", paths=paths,
        orderings=_early(run) if context.full else (),
        assumptions=(
            run.summary, *judged_in(context, "sylvie"),
            *(("early: mean over the first half of the epochs",) if context.full else ()),
        ),
    )  # fmt: skip


def _early(run: Trained) -> tuple[Ordering, ...]:
    """What the text says of the curves, as accuracy over the first half of the epochs."""
    ours = {name: run.early(name) for name in STALE}
    ahead = (
        ("stale rows slow training down", ("DGL", "Sylvie-A")),
        ("one bit does not", ("Sylvie-S", "Sylvie-A")),
        ("synchronising helps, more the more often", ("Sylvie-A, eps 2", "Sylvie-A, eps 5", "Sylvie-A")),
    )
    level = {"DGL": "DGL", "Sylvie-S": "Sylvie-S"}
    return (
        *(run.ordering(f"early accuracy: {text}, {run.where}", {name: name for name in chain}, values=ours)
          for text, chain in ahead),
        run.ordering(f"early accuracy: one bit is level, {run.where}", level, "demanded", values=ours),
    )  # fmt: skip


def figure9(context: Context) -> Plot:
    """Epoch and accuracy against bits, Yelp on 8 GPUs of one server."""
    key, fit = "sylvie/figure9", crowded_fit(context)
    bed, paths = crowded(context, "yelp"), context.figure_paths("sylvie/figure9")
    times = dict(zip(BITS, bed.all_seconds([(m, fit, None) for m in BITS.values()], "bits"), strict=True))
    rows = _bits(times)
    printed = {row.label.partition(", ")[2]: row.published or 0.0 for row in rows if row.quantity == "epoch time"}
    run = scores_of_systems(context, "yelp", "GraphSAGE", BITS)
    with panels(paths, 2, columns=2) as (left, right):
        stacked(left, {name: paper_parts(seconds) for name, seconds in times.items()}, printed)
        left.tick_params(axis="x", labelrotation=30)
        scores = {"test score": [run.mean(name) for name in BITS]}
        grouped(right, list(BITS), scores, {"test score": (0.35, 0.35, 0.35)})
        right.tick_params(axis="x", labelrotation=30)
        right.set_ylabel("F1-micro (%)")
    order = tuple(BITS)
    sent = Ordering(
        text="communication falls with the bits", expected=order, ours=tuple(times[n].comm for n in order),
        theory="the bytes of a row fall with its bits, and nothing else of an exchange changes",
    )  # fmt: skip
    level = run.ordering(f"accuracy is level at every width, {run.where}", {name: name for name in BITS}, "demanded")
    judged = (replace(level, claim=accuracy_claim("yelp", "GraphSAGE", "Sylvie-S")),) if context.full else ()
    gap = replace(_gap(run), judge="difference" if context.full else "none")
    return Plot(
        key=key, title="Sylvie Fig. 9: bits, Yelp on one server",
        caption=f"Simulated epochs, hollow: printed. Accuracy: {run.data or 'the real graph'}.",
        paths=paths, rows=(*rows, gap), orderings=(sent, *judged),
        assumptions=(FITTED, CROWDED, fit.text(), *GRAPH_NOTES, run.summary,
                     *judged_in(context, "sylvie"),
                     "its accuracies are not printed as numbers: those of FP32 and 1 bit are taken from Table 2"),
    )  # fmt: skip


def _gap(run: Trained) -> Row:
    """Accuracy of 1 bit minus that of FP32, by Table 2's numbers on the same model and graph."""
    frame = select(load.published("sylvie-table2"), dataset="yelp", model="GraphSAGE", metric="f1_micro")
    printed = round(value(frame, method="Sylvie-S") - value(frame, method="DGL"), 2)
    claim = accuracy_claim("yelp", "GraphSAGE", "Sylvie-S")
    return run.difference("Yelp, 1 bit minus FP32", printed, "1 bit", "FP32", claim=claim)


def _bits(times: Mapping[str, Seconds]) -> tuple[Row, ...]:
    """Sec. 4.3's numbers on Yelp's epoch on one server; those of 1 bit follow from printed reductions."""
    text = select(load.text("sylvie"), dataset="yelp", model="GraphSAGE", partitions=8.0)
    whole, comm = (value(text, setting="fp32", metric=m) for m in ("epoch_time", "epoch_time_comm"))
    cut, less = (value(text, setting="1-bit", metric=f"{m}_time_reduction") for m in ("epoch", "comm"))
    half = 100 * (1 - times["FP16"].comm / times["FP32"].comm)
    note = "0.09 s are printed outside communication; on 8 GPUs of two servers compute is logged as 0.047 s"
    epoch, bits = (Null(same=time, by_bytes=time * SENT_1_BIT) for time in (whole, comm))
    return (
        seconds_row("Yelp, FP32", "epoch time", whole, times["FP32"].epoch, fitted=True),
        seconds_row("Yelp, FP32", "communication", comm, times["FP32"].comm, conflict="SY6", null=Null(same=comm)),
        seconds_row("Yelp, 1 bit", "epoch time", whole * (1 - cut / 100), times["1 bit"].epoch, note=note, null=epoch),
        seconds_row("Yelp, 1 bit", "communication", comm * (1 - less / 100), times["1 bit"].comm + times["1 bit"].codec,
                    note=QUANTISER, null=bits),
        Row(label="Yelp, FP16", quantity="communication saved", unit="%", how="simulated", ours=half,
            published=value(text, setting="fp16", metric="comm_time_reduction"), note="printed: almost by half"),
    )  # fmt: skip
