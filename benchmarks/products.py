"""The full-size ogbn-products stand-in on this machine: generate, cut in two by hash, train on two real gloo ranks.

    python -m benchmarks.products [--scale 1.0] [--epochs 3] [--order method] [--precision bf16] [--renumber 0]

Setting: 2.45 M nodes, 124 M directed edges, 100 features, 47 classes; GraphSAGE 3 x 128, vanilla, layer 0 precomputed,
fp32, `--order auto`, own nodes sorted by clusters, 1 thread per rank. Needs about 12 GiB of memory at full size.
"""

from __future__ import annotations

import argparse
import resource
import time

from harness.config import RunConfig
from harness.running import prepare, run


def main(arguments: list[str] | None = None) -> None:
    """Print seconds and memory of every step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--method", default="vanilla")
    parser.add_argument("--order", default="auto", help="of linear map and aggregation, as of `haloscope run`")
    parser.add_argument("--precision", default="fp32", help="fp32 or bf16")
    parser.add_argument("--renumber", default="auto", help="clusters of own nodes, as of `haloscope run`; 0: none")
    options = parser.parse_args(arguments)
    config = RunConfig.of(
        dataset=f"synthetic:products-like,scale={options.scale}", model="sage", layers=3, hidden=128, parts=2,
        partitioner="hash", renumber=options.renumber, method=options.method, mode="real", epochs=options.epochs,
        threads=1, eval_every=-1, order=options.order, precision=options.precision,
    )  # fmt: skip
    begin = time.perf_counter()
    prepared = prepare(config)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    graph = prepared.describe()
    print(f"{graph['num_nodes']:,} nodes, {graph['num_edges']:,} directed edges", flush=True)
    print(f"generated and cut in two by hash: {time.perf_counter() - begin:.0f} s, peak {peak:.1f} GiB", flush=True)
    result = run(config, progress=lambda r: print(f"epoch {r.epoch}: {r.seconds['epoch']:.1f} s", flush=True))
    summary = result.summary()
    seconds = {name: round(value, 2) for name, value in summary["seconds"].items()}
    what = f"{options.method}, {options.order}, {options.precision}, renumber {options.renumber}"
    print(f"{what}: {summary['epoch_seconds']:.2f} s/epoch (median after the first), {seconds}")
    print(f"bytes per epoch, both ranks: {summary['bytes_per_epoch'] / 1e9:.2f} GB")
    print(f"peak memory of the largest rank: {summary['peak_memory'] / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
