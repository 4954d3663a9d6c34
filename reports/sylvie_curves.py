"""Sylvie's figures with accuracies: 8 (convergence and staleness) and 9 (bits)."""

from __future__ import annotations

from reports import load
from reports.charts import colours_of, curves, grouped, split, stacked
from reports.context import Context
from reports.drawing import panels
from reports.graphs import SMALL_SAID, commands, epochs_of, select, value
from reports.sylvie_figures import BOUNDARY, single, single_fit
from reports.sylvie_scores import NOISE, settings
from reports.table import Ordering, Plot
from reports.train import Trained, accuracies

STALE = {
    "DGL": "vanilla",
    "Sylvie-S": "sylvie-s:bits=1:side=fp16",
    "Sylvie-A, eps 2": "sylvie-a:bits=1:side=fp16:staleness=2",
    "Sylvie-A, eps 5": "sylvie-a:bits=1:side=fp16:staleness=5",
    "Sylvie-A": "sylvie-a:bits=1:side=fp16",
}
BITS = {"FP32": "vanilla", **{f"{b} bits": f"sylvie-s:bits={b}:side=fp16" for b in (16, 8, 4, 2)}}
BITS["1 bit"] = "sylvie-s:bits=1:side=fp16"


def early(run: Trained, name: str) -> float:
    """Mean test accuracy over the first half of the epochs: the area under the curve early in training."""
    epochs, scores = run.curve(name)
    half = [score for epoch, score in zip(epochs, scores, strict=True) if epoch <= max(epochs) / 2]
    return sum(half) / max(len(half), 1)


def figure8(context: Context) -> Plot:
    """Accuracy against epochs with stale rows and periodic synchronisation, Reddit."""
    key, paths = "sylvie/figure8", context.figure_paths("sylvie/figure8")
    run = accuracies(
        context, "reddit", STALE, parts=8, model=settings(context, "reddit", "GraphSAGE"),
        epochs=epochs_of("reddit"), seeds=1,
    )  # fmt: skip
    with panels(paths, 1) as (axes,):
        curves(axes, {name: run.curve(name) for name in STALE}, colours_of(STALE))
        axes.set_xlabel("epoch")
        axes.set_ylabel("test accuracy (%)")
    ours = {name: early(run, name) for name in STALE}
    chains = (
        ("early accuracy: stale rows slow training down", ("DGL", "Sylvie-A")),
        ("early accuracy: one bit does not", ("Sylvie-S", "Sylvie-A")),
        (
            "early accuracy: synchronising helps, more the more often",
            ("Sylvie-A, eps 2", "Sylvie-A, eps 5", "Sylvie-A"),
        ),
    )
    return Plot(
        key=key, title="Sylvie Fig. 8: convergence with bounded staleness, Reddit",
        caption=f"Test accuracy during training; {run.data or 'the real graph'}.", paths=paths,
        orderings=tuple(
            Ordering(text=text, expected=chain, ours=tuple(ours[n] for n in chain), tolerance=NOISE)
            for text, chain in chains
        ),
        assumptions=(run.said, SMALL_SAID, "early: mean over the first half of the epochs"), commands=run.commands,
    )  # fmt: skip


def figure9(context: Context) -> Plot:
    """Epoch and accuracy against bits, Yelp on one server."""
    key, fit = "sylvie/figure9", single_fit(context)
    bed, paths = single(context, "yelp"), context.figure_paths("sylvie/figure9")
    times = dict(zip(BITS, bed.all_seconds([(m, fit, None) for m in BITS.values()], "bits"), strict=True))
    text = select(load.text("sylvie"), dataset="yelp", model="GraphSAGE", partitions=8.0)
    whole, comm = (value(text, setting="fp32", metric=m) for m in ("epoch_time", "epoch_time_comm"))
    cut, less = (value(text, setting="1-bit", metric=f"{m}_time_reduction") for m in ("epoch", "comm"))
    printed = {"FP32": whole, "1 bit": whole * (1 - cut / 100)}
    run = accuracies(
        context, "yelp", BITS, parts=8, model=settings(context, "yelp", "GraphSAGE"), epochs=epochs_of("yelp"), seeds=1
    )
    with panels(paths, 2, columns=2) as (left, right):
        stacked(left, {name: split(seconds) for name, seconds in times.items()}, printed)
        left.tick_params(axis="x", labelrotation=30)
        scores = {"test score": [run.mean(name) for name in BITS]}
        grouped(right, list(BITS), scores, {"test score": (0.35, 0.35, 0.35)})
        right.tick_params(axis="x", labelrotation=30)
        right.set_ylabel("F1-micro (%)")
    order = tuple(BITS)
    ours = times["FP32"].comm / times["16 bits"].comm
    said = f"communication of 1 bit: {comm * (1 - less / 100):.3f} s printed, {times['1 bit'].comm:.3f} s here"
    return Plot(
        key=key, title="Sylvie Fig. 9: bits, Yelp on one server",
        caption=f"Simulated epochs, hollow: printed; {said}. "
        f"FP32 over FP16 communication: {ours:.2f} (printed: about 2). "
        f"Accuracy: {run.data or 'the real graph'}.",
        paths=paths,
        orderings=(
            Ordering(text="communication falls with the bits", expected=order,
                     ours=tuple(times[n].comm for n in order)),
            Ordering(text="FP16 nearly halves it", expected=("2 x FP16", "FP32", "1.6 x FP16"),
                     ours=(2 * times["16 bits"].comm, times["FP32"].comm, 1.6 * times["16 bits"].comm)),
        ),
        assumptions=(fit.text(), BOUNDARY, run.said, SMALL_SAID),
        commands=(*commands(bed, BITS.values(), fit), *run.commands),
    )  # fmt: skip
