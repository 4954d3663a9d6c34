"""Epochs of one GPU beside the model's predictions from the calibration of that GPU.

    haloscope calibrate --device cuda --out calibration
    python -m benchmarks.gpu_epoch [--cluster calibration/cluster.toml] [--epochs 20]

Full-graph training on one rank, no exchange: made graphs of three sizes, two models, two widths. Measured: median of
the epochs after the first five, by events on the stream. The calibration has seen none of these runs.
"""

from __future__ import annotations

import argparse
import statistics

import torch

from harness.config import RunConfig, from_mapping
from harness.running import run

SKIPPED = 5
GRAPHS = ((5_000, 10), (100_000, 20), (400_000, 30))
MODELS = ("gcn", "gat")
WIDTHS = (64, 256)


def cells(cluster: str, epochs: int) -> list[RunConfig]:
    """The runs, simulated."""
    return [
        from_mapping(
            {
                "dataset": f"synthetic:nodes={nodes},degree={degree},features={hidden},classes=16,seed=1",
                "method": "single",
                "parts": 1,
                "model": model,
                "hidden": hidden,
                "layers": 3,
                "epochs": epochs,
                "eval_every": -1,
                "mode": "sim",
                "cluster": cluster,
                "shapes_only": True,
            }
        )
        for nodes, degree in GRAPHS
        for model in MODELS
        for hidden in WIDTHS
    ]


def seconds(config: RunConfig) -> float:
    """Median compute of an epoch once it has settled."""
    return statistics.median(epoch["seconds"]["compute"] for epoch in run(config).epochs[SKIPPED:])


def main() -> None:
    parser = argparse.ArgumentParser(description="Measured and predicted epochs of one GPU.")
    parser.add_argument("--cluster", default="calibration/cluster.toml", metavar="FILE")
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("no GPU is visible here")
    if options.epochs <= SKIPPED:
        parser.error(f"--epochs must be more than the {SKIPPED} that warm up")
    print(f"{torch.cuda.get_device_name()}, predicted from {options.cluster}")
    print(f"{'nodes':>9}{'degree':>8}{'model':>7}{'width':>7}{'measured':>13}{'predicted':>13}{'error':>9}")
    errors = []
    for config in cells(options.cluster, options.epochs):
        real = config.changed(mode="real", device="cuda", cluster="", shapes_only=False)
        measured, predicted = seconds(real), seconds(config)
        errors.append(abs(predicted / measured - 1))
        nodes, degree = (part.partition("=")[2] for part in config.data.dataset.partition(":")[2].split(",")[:2])
        figures = f"{1e3 * measured:>10.3f} ms{1e3 * predicted:>10.3f} ms{predicted / measured - 1:>+9.1%}"
        print(f"{nodes:>9}{degree:>8}{config.model.name:>7}{config.model.hidden:>7}{figures}", flush=True)
    print(f"median error {statistics.median(errors):.1%}, largest {max(errors):.1%}, {len(errors)} cells")


if __name__ == "__main__":
    main()
