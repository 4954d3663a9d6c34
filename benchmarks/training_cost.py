"""What an epoch of training costs beside what a report expects of it (`reports.core.train.epoch_seconds`).

    python -m benchmarks.training_cost [--epochs 6]

CPU seconds of an epoch of a loopback run on one thread, evaluated every third epoch, from the difference of a long and
a short run; then the expected seconds, and their ratio. Needs HALOSCOPE_DATA.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch

from harness.config import from_mapping
from harness.running import _runner as runner
from reports.core.train import SETTINGS, epoch_seconds

GCN = {"model": "gcn", "layers": 2, "hidden": 16}
SAGE = {"model": "sage", "layers": 3, "hidden": 64, "norm": "layer"}
GAT = {"model": "gat", "layers": 2, "hidden": 16, "heads": 4}
CASES: tuple[tuple[str, int, str, dict[str, Any]], ...] = (
    ("cora", 1, "single", GCN),
    ("cora", 6, "ec-graph:fp=exact:bp=exact", GCN),
    ("cora", 6, "ec-graph", GCN),
    ("cora", 6, "ec-graph-s:fanouts=10/5", GCN),
    ("amazon_computers", 1, "single", GCN),
    ("amazon_computers", 4, "vanilla", GCN),
    ("amazon_computers", 6, "ec-graph", GCN),
    ("amazon_computers", 4, "vanilla", SAGE),
    ("amazon_computers", 4, "sylvie-s:bits=1", SAGE),
    ("amazon_computers", 4, "bns-gcn:p=0.1", SAGE),
    ("amazon_computers", 4, "cdfgnn", SAGE),
    ("amazon_computers", 4, "cdfgnn", GCN),
    ("mnist_knn15", 8, "cdfgnn", GCN),
    ("amazon_computers", 4, "vanilla", GAT),
    ("amazon_computers", 4, "cdfgnn", GAT),
    ("amazon_computers", 3, "subgraph-approximation:overlap=0.25", GCN),
    ("amazon_computers", 3, "subgraph-approximation:overlap=0.25:batch=256:fanouts=10/5", {**SAGE, "layers": 2}),
    ("mnist_knn15", 2, "sylvie-s:bits=1", SAGE),
    ("mnist_knn15", 2, "vanilla", GCN),
)


def measured(case: dict[str, Any], epochs: int) -> float:
    """CPU seconds of an epoch."""

    def spent(count: int) -> float:
        begin = time.process_time()
        runner.run(from_mapping({**case, "epochs": count, "eval_every": 3}))
        return time.process_time() - begin

    spent(1)
    return max(spent(epochs + 3) - spent(3), 0.0) / epochs


def main() -> None:
    """Print one line per case, and the median ratio."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--epochs", type=int, default=6)
    given = options.parse_args()
    torch.set_num_threads(1)
    print(f"{'graph':<18}{'P':>2}  {'model':<6}{'method':<62}{'measured':>10}{'expected':>10}{'ratio':>7}")
    ratios = []
    for graph, parts, method, model in CASES:
        case = {"dataset": graph, "parts": parts, "method": method, "threads": 1, **SETTINGS.get(graph, {}), **model}
        found, expected = measured(case, given.epochs), epoch_seconds(case)
        ratios.append(found / expected)
        print(
            f"{graph:<18}{parts:>2}  {model['model']:<6}{method:<62}{1e3 * found:>8.0f}ms{1e3 * expected:>8.0f}ms"
            f"{ratios[-1]:>7.1f}", flush=True,
        )  # fmt: skip
    print(f"median ratio {statistics.median(ratios):.1f}, from {min(ratios):.1f} to {max(ratios):.1f}")


if __name__ == "__main__":
    main()
