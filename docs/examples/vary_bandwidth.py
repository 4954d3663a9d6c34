"""Which method wins at which bandwidth: runs are recorded once and timed again at every point.

python docs/examples/vary_bandwidth.py [FOLDER]
"""

import sys
from pathlib import Path

import harness

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "examples")
folder.mkdir(parents=True, exist_ok=True)

found = harness.what_if(
    "vanilla,sylvie-s",
    bits="1,8",
    bandwidth="nic=1Gb/s..100Gb/s",
    points=5,
    dataset="synthetic:nodes=600,degree=8,classes=4,features=16",
    hidden=64,
    partitioner="hash",
    parts=4,
    cluster="ethernet-10g",
    out=folder / "what-if",
)

# Sentences: where methods cross, and what limits them.
for sentence in found.said:
    print(sentence)

# The fastest method at every bandwidth (bytes per second).
frame = found.frame()
fastest = frame.loc[frame.groupby("value")["epoch_seconds"].idxmin(), ["value", "method", "epoch_seconds"]]
print(fastest.to_string(index=False))

found.plot().savefig(folder / "what-if.png")
