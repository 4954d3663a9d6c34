"""Collectives that others timed on known machines, beside their prediction from data sheets.

    python -m benchmarks.published_curves [--only NAME] [--points] [--ablation] [--figure PATH]

Nothing is fitted to the curves (`sims/published/README.md`); every size goes through the model of networks and
libraries that simulated runs use. Errors are |predicted - published| / published. `--ablation` leaves out one mechanism
at a time.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.nccl_ablations import ABLATIONS
from sims.published import Errors, Prediction, PublishedCurve, errors_of, load_curves, predict

MIB = 1 << 20
DECADES = tuple(10**power for power in range(12))


def shown(errors: Errors) -> str:
    """Number of points, median and 90th percentile in percent."""
    if not errors.points:
        return f"{'':>6}{'-':>9}{'-':>9}"
    return f"{errors.points:>6}{errors.median:>8.0%} {errors.most:>8.0%} "


def by_decade(predictions: Sequence[Prediction]) -> list[str]:
    """A line of median predicted / published for each decade of sizes that has points."""
    lines = []
    for low, high in zip(DECADES, DECADES[1:], strict=False):
        ratio = [1 + p.error[(p.curve.nbytes >= low) & (p.curve.nbytes < high)] for p in predictions]
        every = np.concatenate(ratio)
        if len(every):
            errors = errors_of(list(predictions), low - 1, high - 1)
            lines.append(f"{low:>16,} B{shown(errors)}{np.median(every):>22.2f}")
    return lines


def print_points(prediction: Prediction) -> None:
    """Every size of a curve."""
    curve = prediction.curve
    for nbytes, published, predicted in zip(curve.nbytes, curve.seconds, prediction.seconds, strict=True):
        error = predicted / published - 1
        print(f"{nbytes:>34,} B {published * 1e6:>12.1f} us {predicted * 1e6:>12.1f} us {error:>+7.0%}")


def ablate(curves: Sequence[PublishedCurve], predictions: list[Prediction]) -> None:
    """Errors of all curves with one mechanism left out."""
    print(f"\n{'without':<40}{'points':>6}{'median':>9}{'90 %':>9}{'points':>8}{'median':>9}{'90 %':>9}")
    rows = {"nothing": predictions}
    nccl = [curve for curve in curves if curve.launches]
    rest = [p for p in predictions if not p.curve.launches]
    for name, library in ABLATIONS.items():
        rows[name] = [predict(curve, library=library) for curve in nccl] + rest
    rows["overlap of operations in a queue"] = [predict(curve, queued=False) for curve in nccl] + rest
    for name, found in rows.items():
        print(f"{name:<40}{shown(errors_of(found, 0, MIB))}  {shown(errors_of(found, MIB))}", flush=True)


def draw(predictions: Sequence[Prediction], path: Path) -> None:
    """Published and predicted times by size, a panel per curve."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import NullFormatter

    columns = 5
    rows = -(-len(predictions) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(3.1 * columns, 2.3 * rows), squeeze=False, layout="constrained"
    )
    for axis, prediction in zip(axes.flat, predictions, strict=False):
        curve = prediction.curve
        axis.loglog(curve.nbytes, curve.seconds * 1e6, "o", markersize=3, color="black", label="published")
        axis.loglog(curve.nbytes, prediction.seconds * 1e6, color="tab:orange", label="predicted")
        axis.set_title(curve.name, fontsize=8)
        axis.tick_params(labelsize=7)
        for side in (axis.xaxis, axis.yaxis):
            side.set_minor_formatter(NullFormatter())
    for axis in axes.flat[len(predictions) :]:
        axis.set_axis_off()
    axes.flat[0].legend(fontsize=7, frameon=False)
    figure.supxlabel("bytes", fontsize=9)
    figure.supylabel("microseconds", fontsize=9)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    """Print a line per curve, then all points by decade of sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="curves whose names contain this")
    parser.add_argument("--points", action="store_true", help="every size")
    parser.add_argument("--ablation", action="store_true", help="errors without each mechanism")
    parser.add_argument("--figure", type=Path, help="draw the curves into this file")
    options = parser.parse_args()
    curves = [curve for curve in load_curves() if options.only in curve.name]
    if not curves:
        parser.error(f"no curve has {options.only!r} in its name")
    print(f"{'':<34}{'up to 1 MiB':>24}{'over 1 MiB':>26}")
    print(f"{'curve':<34}{'points':>6}{'median':>9}{'90 %':>9}{'points':>8}{'median':>9}{'90 %':>9}")
    predictions = []
    for curve in curves:
        prediction = predict(curve)
        predictions.append(prediction)
        small, large = errors_of([prediction], 0, MIB), errors_of([prediction], MIB)
        print(f"{curve.name:<34}{shown(small)}  {shown(large)}", flush=True)
        if options.points:
            print_points(prediction)
    print(f"{'all':<34}{shown(errors_of(predictions, 0, MIB))}  {shown(errors_of(predictions, MIB))}")
    print(f"\n{'sizes from':>18}{'points':>6}{'median':>9}{'90 %':>9}{'predicted / published':>22}")
    print("\n".join(by_decade(predictions)))
    if options.ablation:
        ablate(curves, predictions)
    if options.figure:
        draw(predictions, options.figure)


if __name__ == "__main__":
    main()
