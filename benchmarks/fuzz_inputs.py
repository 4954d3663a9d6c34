"""Good inputs of commands that read files, texts that hardly anybody means, and mutations; for `benchmarks.fuzz`."""

from __future__ import annotations

import json
import random
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np

from harness import cli
from tests.support import raw_files

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = "synthetic:nodes=60,degree=4,classes=3,features=5"
RUN = ["run", "--epochs", "1", "--eval-every", "-1", "--quiet"]
SMALL = [*RUN, "--dataset", DATA]

NASTY = (
    "", " ", "-1", "0", "nan", "inf", "-inf", "1e999", "1e-320", "9" * 40, "1" + "0" * 30, "\u00b2", "\u0663", "0x10",
    "1_0", "+1", "1.5", "true", "None", "a" * 3000, "\u00e9\u0301", "[]", "{}", "../..", "/", "/dev/null", ":", "=",
    ",", "::", "a=b", "-", "--", "%s", "$HOME", "~", "*", "\n", "\t", "'", '"', "1e3", "1/0", "2**70",
    "\ud7ff", "null", "0/0/0",
)  # fmt: skip

FLAGS: dict[str, tuple[str, ...]] = {
    "dataset": (
        DATA, "synthetic:reddit-like,scale=0.001", "standin:NAME", "pyg:Reddit", "ogb:ogbn-arxiv,root=.", "graph.npz",
        "workload:reddit-10", "./graph.npz",
    ),
    "method": (
        "vanilla", "bns-gcn:p=0.5", "sylvie-s:bits=1", "ec-graph:period=4:bits=1", "cdfgnn", "pipegcn", "adaqp",
        "sancus", "cagnet:c=1", "distgnn:r=2", "graphsage-ns:fanouts=2/2:batch=8", "graphsaint", "ladies",
        "vr-gcn", "agl",
    ),
    "partitioner": ("metis-cut", "hash", "contiguous", "ebv:gamma=0.1", "hdrf:lambda=1.1:epsilon=1.0", "hep", "dne"),
    "cluster": ("local", "ethernet-1g", "ethernet-1g:links.nic.bandwidth=40Gb/s", "lab:2x1gbit", "cluster.toml"),
    "split": ("auto", "public", "random:0.6/0.2/0.2"),
    "model": ("gcn", "sage", "gat"),
    "parts": ("2",), "epochs": ("1",), "layers": ("2",), "hidden": ("8",), "heads": ("2",), "linear-layers": ("1",),
    "dropout": ("0.5",), "lr": ("0.01",), "weight-decay": ("0.1",), "seed": ("3",), "hosts": ("2",), "renumber": ("4",),
    "eval-every": ("1",), "threads": ("1",), "timeout": ("60",), "startup-timeout": ("60",), "rates": ("result.json",),
    "norm": ("none", "layer"), "order": ("auto",), "layer0": ("auto", "cache"), "features": ("raw", "row"),
    "protocol": ("inductive",), "mode": ("loopback", "sim"), "checkpoint-every": ("2",), "config": ("run.toml",),
}  # fmt: skip
"""Flags of `run` -> good values."""

CHECKPOINTED = [*SMALL, "--checkpoint", "kept", "--force", "--resume"]
GOOD: dict[str, list[list[str]]] = {
    "run.toml": [[*SMALL, "--config", "run.toml"]],
    "sweep.toml": [["sweep", "sweep.toml", "--jobs", "1", "--quiet"]],
    "work.toml": [[*RUN, "--dataset", "./work.toml", "--mode", "sim", "--shapes-only", "--cluster", "ethernet-1g"]],
    "cluster.toml": [[*SMALL, "--mode", "sim", "--cluster", "cluster.toml"], ["clusters", "show", "cluster.toml"]],
    "device.toml": [[*SMALL, "--mode", "sim", "--cluster", "cluster.toml"]],
    "flows.json": [["flows", "flows.json"], ["flows", "flows.json", "--coalesce", "0.1"]],
    "result.json": [
        ["trace", "result.json", "--quiet", "--epochs", "1"],
        [*SMALL, "--mode", "sim", "--shapes-only", "--cluster", "ethernet-1g", "--rates", "result.json"],
    ],
    "results/one.json": [
        ["collect", "results", "--to", "all.csv"],
        ["export", "results/one.json", "--to", "mlflow", "--quiet"],
        ["export", "results", "--to", "wandb", "--quiet"],
    ],
    "graph.npz": [[*RUN, "--dataset", "graph.npz", "--split", "public"], [*RUN, "--dataset", "graph.npz"]],
    "export/partition.json": [
        [*RUN, "--dataset", "./exported.toml", "--mode", "sim", "--shapes-only", "--cluster", "ethernet-1g"]
    ],
    "Reddit/raw/reddit_graph.npz": [[*RUN, "--dataset", "pyg:Reddit"]],
    "Reddit/raw/reddit_data.npz": [[*RUN, "--dataset", "pyg:Reddit"]],
    "Flickr/raw/adj_full.npz": [[*RUN, "--dataset", "pyg:Flickr"]],
    "Flickr/raw/feats.npy": [[*RUN, "--dataset", "pyg:Flickr"]],
    "Flickr/raw/class_map.json": [[*RUN, "--dataset", "pyg:Flickr"]],
    "Flickr/raw/role.json": [[*RUN, "--dataset", "pyg:Flickr"]],
    "ogbn_arxiv/raw/edge.csv.gz": [[*RUN, "--dataset", "ogb:ogbn-arxiv"]],
    "ogbn_arxiv/raw/node-feat.csv.gz": [[*RUN, "--dataset", "ogb:ogbn-arxiv"]],
    "ogbn_arxiv/raw/node-label.csv.gz": [[*RUN, "--dataset", "ogb:ogbn-arxiv"]],
    "ogbn_arxiv/split/time/train.csv.gz": [[*RUN, "--dataset", "ogb:ogbn-arxiv"]],
    "checkpoint/rank-0.pt": [CHECKPOINTED],
    "checkpoint/complete.json": [CHECKPOINTED],
}
"""Files -> command lines that read them; those of checkpoints stand for the folder below `kept`."""

RUN_TOML = 'method = "vanilla"\nepochs = 1\nparts = 2\nlr = 0.01\nseed = 3\ndropout = 0.1\nhidden = 8\n'
SWEEP_TOML = (
    f'[run]\ndataset = "{DATA}"\nepochs = 1\neval_every = -1\nmode = "sim"\ncluster = "ethernet-1g"\n'
    '[grid]\nmethod = ["vanilla", "bns-gcn"]\np = [0.5]\n[cluster]\nlinks.nic.bandwidth = ["1 Gb/s"]\n'
)
WORK_TOML = (
    "[graph]\nnodes = 1000\nedges = 8000\nfeatures = 8\nclasses = 3\ntrain = 500\n"
    "[parts]\ncount = 2\ninner = [500, 500]\nboundary = [100, 120]\n"
)
EXPORTED_TOML = WORK_TOML.partition("[parts]")[0] + '[parts]\npartition = "export/partition.json"\n'
FLOWS = {
    "format": "flow-reference/1",
    "scenarios": [
        {
            "name": "one",
            "links": {"a": 1e9, "b": 2e9},
            "flows": [{"route": ["a", "b"], "bytes": 1e6, "start": 0.0, "latency": 1e-6}],
        }
    ],
}


def good_files() -> None:
    """Write every file of `GOOD` into the current folder."""
    texts = {"run": RUN_TOML, "sweep": SWEEP_TOML, "work": WORK_TOML, "exported": EXPORTED_TOML}
    for name, text in texts.items():
        Path(f"{name}.toml").write_text(text)
    Path("flows.json").write_text(json.dumps(FLOWS))
    presets = REPOSITORY / "sims"
    cluster = (presets / "cluster" / "presets" / "ethernet-1g.toml").read_text()
    Path("cluster.toml").write_text(re.sub(r'"cpu-epyc-1core"', '"device.toml"', cluster))
    shutil.copy(presets / "device" / "presets" / "cpu-epyc-1core.toml", "device.toml")
    ring = np.array([[0, 1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7, 0]])
    arrays = {"edge_index": np.concatenate([ring, ring[::-1]], axis=1).astype(np.int32), "y": np.arange(8) % 3}
    splits = {"train_idx": np.arange(4), "val_idx": np.arange(4, 6), "test_idx": np.arange(6, 8)}
    np.savez("graph.npz", x=np.ones((8, 3), np.float32), num_classes=np.int64(3), **arrays, **splits)
    raw_files.write_reddit(Path())
    raw_files.write_saint(Path(), "Flickr", {"0": 0, "1": 1, "2": 2, "3": 1})
    raw_files.write_ogb(Path(), "ogbn_arxiv", "time")
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        made = [
            cli.main([*SMALL, "--mode", "sim", "--cluster", "ethernet-1g", "--out", "results"]),
            cli.main(["partition", "--dataset", DATA, "--partitioner", "hash", "--export", "export"]),
            cli.main([*SMALL, "--checkpoint", "kept"]),
        ]
    assert made == [0, 0, 0]
    (result,) = Path("results").glob("*.json")
    shutil.copy(result, "result.json")
    result.rename("results/one.json")
    (folder,) = Path("kept").glob("*/epoch-*")
    Path("checkpoint").symlink_to(folder.absolute())


def mutated(content: bytes, dice: random.Random) -> bytes:
    """A changed copy: other bytes, other numbers, a piece too much or too little, other structure."""
    how = dice.choice((_bytes, _number, _number, _piece, _structure, _structure, _token))
    found = how(content, dice)
    return _bytes(found, dice) if dice.random() < 0.15 else found


def _bytes(content: bytes, dice: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(int(2 ** dice.uniform(0, 5)) if data else 0):
        data[dice.randrange(len(data))] = dice.randrange(256)
    return bytes(data)


def _number(content: bytes, dice: random.Random) -> bytes:
    """One number becomes one that is not expected."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?(e-?\d+)?", content))
    if not found:
        return content + dice.choice(NASTY).encode()
    at = dice.choice(found)
    other = dice.choice((*NASTY[2:16], "-5", "3.7", "1e18", "4294967296", "9223372036854775808", "[1]", '"1"')).encode()
    return content[: at.start()] + other + content[at.end() :]


def _piece(content: bytes, dice: random.Random) -> bytes:
    a, b = sorted(dice.randrange(len(content) + 1) for _ in range(2))
    choice = dice.randrange(4)
    if choice == 0:
        return content[:a]
    if choice == 1:
        return content[:a] + content[b:]
    return content[:b] + content[a:] if choice == 2 else content[:a] + dice.randbytes(8) + content[a:]


def _token(content: bytes, dice: random.Random) -> bytes:
    """A line, or a piece between marks, is left out, repeated or exchanged."""
    marks = re.split(rb"([\n,:=])", content)
    at = dice.randrange(len(marks))
    marks[at : at + 1] = dice.choice(([], [marks[at], marks[at]], [dice.choice(marks)], [dice.choice(NASTY).encode()]))
    return b"".join(marks)


def _structure(content: bytes, dice: random.Random) -> bytes:
    """JSON with a value of another type, or without one; other files as `_token`."""
    try:
        top = json.loads(content)
    except (ValueError, UnicodeDecodeError):
        return _token(content, dice)
    places = list(_places(top))
    if not places:
        return b"{}"
    holder, key = dice.choice(places)
    others = (None, True, -1, 1.5, "x", [], {}, [[]], {"a": 1}, 10**30, "nan", [None], dice.choice(NASTY))
    if isinstance(holder, dict) and dice.random() < 0.3:
        del holder[key]
    else:
        holder[key] = dice.choice(others)
    return json.dumps(top).encode()


def _places(value: object) -> list[tuple[object, object]]:
    found: list[tuple[object, object]] = []
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    else:
        return found
    for key, inside in pairs:
        found += [(value, key), *_places(inside)]
    return found
