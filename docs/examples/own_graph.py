"""A graph of one's own: written to an npz file, cut in four, and trained on with one method.

python docs/examples/own_graph.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np

import harness

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "examples")
folder.mkdir(parents=True, exist_ok=True)

# A ring of communities. Keys: edge_index [2, E] with both directions, x [N, F], y [N], and the split.
random = np.random.default_rng(0)
nodes, classes = 400, 4
y = np.arange(nodes) * classes // nodes
source = random.integers(0, nodes, 2000)
target = (source + random.integers(1, 40, 2000)) % nodes
order = random.permutation(nodes)
np.savez(
    folder / "ring.npz",
    edge_index=np.unique(np.concatenate([[source, target], [target, source]], axis=1), axis=1).astype(np.int32),
    x=(np.eye(classes)[y] + random.normal(0, 0.8, (nodes, classes))).astype(np.float32),
    y=y,
    train_idx=np.sort(order[:200]),
    val_idx=np.sort(order[200:300]),
    test_idx=np.sort(order[300:]),
)
settings = {"dataset": str(folder / "ring.npz"), "split": "public", "parts": 4}

# What every part would hold: own nodes, halo nodes, rows sent.
cut = harness.partition_graph(**settings)
print(cut.frame().to_string(index=False))
cut.plot().savefig(folder / "cut.png")

# Loopback runs in this process, without a clock: losses, accuracies and bytes.
trained = harness.run(
    **settings, model="sage", hidden=8, method="bns-gcn:p=0.5", epochs=20, eval_every=5, out=folder / "runs"
)
print(trained.frame()[["epoch", "loss", "val", "test"]].dropna().to_string(index=False))
assert trained.summary["test"] > 0.5

# Bad settings are refused with the line that the command would print.
try:
    harness.run(**settings, method="vanila")
except harness.InputError as error:
    print(error)
