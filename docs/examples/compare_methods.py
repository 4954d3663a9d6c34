"""Several methods on one graph and one modelled cluster: a table, a figure, and the table as a data frame.

python docs/examples/compare_methods.py [FOLDER]
"""

import sys
from pathlib import Path

import harness

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "examples")

# Every setting of a run is a keyword. A config holds those that several calls share.
base = harness.Config.of(
    dataset="synthetic:nodes=600,degree=8,classes=4,features=16,signal=0.7",
    hidden=16,
    parts=4,
    epochs=6,
    eval_every=2,
    mode="sim",
    cluster="ethernet-10g",
)

# All methods treat the input layer alike, so that their times can be compared. In a notebook, `found` shows its table.
found = harness.compare(["vanilla", "bns-gcn:p=0.1", "sylvie-s:bits=1", "ec-graph"], base, out=folder / "runs")
print(found)

# Seconds and bytes per epoch, one row per method.
frame = found.frame().set_index("method")
print(frame[["layer0", "epoch_seconds", "halo_seconds", "bytes_per_epoch", "speedup"]])

# The same figure as `haloscope compare` draws.
found.plot().savefig(folder / "compare.png")

# What was run earlier is read again from its folder.
again = harness.load_results(folder / "runs")
assert set(found.frame()["run_id"]) <= set(again.frame()["run_id"])
