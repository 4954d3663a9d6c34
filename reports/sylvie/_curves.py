"""Sylvie's figures with accuracies: 8 (convergence and staleness) and 9 (bits)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from reports.core import load
from reports.core.context import Context
from reports.core.load import select, value
from reports.core.null_models import Null
from reports.core.predict import Seconds
from reports.core.rows import judged_in, seconds_row
from reports.core.table import Ordering, Plot, Row
from reports.core.train import Trained
from reports.draw.charts import colours_of, curves, grouped, paper_parts, stacked
from reports.draw.drawing import panels
from reports.sylvie._programs import PER_PEER, RANK_0, logged_halo, of_rank_0, with_quantiser
from reports.sylvie._scores import accuracy_claim, scores_of_systems
from reports.sylvie._servers import PCIE3
from reports.sylvie._testbed import FITTED, FOLLOWS, GRAPH_NOTES, SIDE_BYTES
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
LOGGED = {"FP32": "fp32", "FP16": "fp16", "8 bits": "int8", "4 bits": "int4", "2 bits": "int2", "1 bit": "int1"}
WIDTH = 512  # values of a row of Yelp's
SAME_ALL_REDUCE = (
    "SY6, resolved by the logs: of the 0.22 s outside communication 0.15 are all-reduce, which waits, and 0.067 are "
    "computation; with one bit 0.021 and 0.071"
)


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
    """Epoch and accuracy against bits, Yelp on 6 GPUs of one server."""
    key, fit = "sylvie/figure9", PCIE3.fit(context)
    bed, paths = PCIE3.bed(context, "yelp"), context.figure_paths("sylvie/figure9")
    found = dict(zip(BITS, bed.all_seconds([(m, fit, None) for m in BITS.values()], "bits"), strict=True))
    times = {name: with_quantiser(seconds, bed) if "bit" in name else seconds for name, seconds in found.items()}
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
        assumptions=(FITTED, PCIE3.assumed, fit.text(), PER_PEER, SAME_ALL_REDUCE, RANK_0, *GRAPH_NOTES,
                     run.summary,
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
    """Epochs and communication of Yelp by bits, beside the logs that Sec. 4.3 quotes (1.21, 0.99; 84.2 and 89.8 % less
    with 1 bit), and what FP16 saves."""
    rows, lines, base = list[Row](), PCIE3.lines, PCIE3.anchor()
    for name, seconds in times.items():
        line = select(lines, precision=LOGGED[name], pipeline="False").iloc[0]
        fitted, sent = name == "FP32", _sent(name)
        nulls = [Null(same=same, by_bytes=same * sent) for same in (base.epoch, base.halo)]
        rows += [
            seconds_row(f"Yelp, {name}", "epoch time", float(line["epoch_s"]), seconds.epoch, fitted=fitted,
                        null=nulls[0]),
            seconds_row(f"Yelp, {name}", "communication", float(line["halo_s"]), null=nulls[1],
                        note=FOLLOWS if fitted else QUANTISER * ("bit" in name),
                        **of_rank_0(seconds, logged_halo, judged=not fitted)),
        ]  # fmt: skip
    text = select(load.text("sylvie"), dataset="yelp", model="GraphSAGE", setting="fp16")
    half = 100 * (1 - times["FP16"].comm / times["FP32"].comm)
    saved = Row(
        label="Yelp, FP16", quantity="communication saved", unit="%", how="simulated", ours=half,
        published=value(text, metric="comm_time_reduction"), note="printed: almost by half; 43 % in the logs",
    )  # fmt: skip
    return (*rows, saved)


def _sent(name: str) -> float:
    """Bytes of a row of Yelp's width over FP32's."""
    bits = {"FP32": 32, "FP16": 16}.get(name) or int(name.split()[0])
    return (WIDTH * bits / 8 + SIDE_BYTES * (bits < 16)) / (4 * WIDTH)
