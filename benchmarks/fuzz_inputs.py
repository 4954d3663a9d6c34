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
import pyarrow
import torch
from pyarrow import parquet

from harness import cli
from reports.study._cells import COLUMNS
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

TOO_LONG = ("9" * 5000, "[" * 3000 + "1" + "]" * 3000)
"""A number of more digits than Python converts, and a list that is nested deeper than it can recurse."""

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
    "eval-every": ("1",), "threads": ("1",), "timeout": ("60",), "startup-timeout": ("60",), "rates": ("rates.json",),
    "norm": ("none", "layer"), "order": ("auto",), "layer0": ("auto", "cache"), "features": ("raw", "row"),
    "protocol": ("inductive",), "mode": ("loopback", "sim"), "checkpoint-every": ("2",), "config": ("run.toml",),
}  # fmt: skip
"""Flags of `run` -> good values."""

COMMANDS: dict[tuple[str, ...], dict[str, tuple[str, ...]]] = {
    ("launch", "slurm"): {
        "nodes": ("2",), "gpus-per-node": ("4",), "ranks-per-node": ("2",), "cpus-per-node": ("8",), "name": ("train",),
        "time": ("02:00:00", "1-12", "90"), "partition": ("gpu",), "account": ("lab",), "venv": ("~/env",),
        "interface": ("ib0",), "out": ("job.sh",),
    },
    ("launch", "kubernetes", "--image", "reg.example/a:1", "--claim", "data"): {
        "image": ("reg.example/a@sha256:0f",), "claim": ("my.claim",), "memory": ("64Gi", "1.5T"), "name": ("train-2",),
        "namespace": ("ml",), "queue": ("gpus",), "retries": ("3",), "port": ("29400",), "nodes": ("2",),
        "interface": ("eth0",), "out": ("job.yaml",),
    },
    ("what-if", "--dataset", DATA, "--methods", "sylvie-s", "--cluster", "ethernet-1g", "--points", "2", "--quiet"): {
        "bandwidth": ("nic=1Gb/s..10Gb/s", "nic"), "latency": ("nic=1us..1ms",), "points": ("2",), "bits": ("1,2",),
        "devices": ("cpu-epyc-1core",), "transports": ("gloo,grpc",), "recorded": ("2",), "replays": ("0", "2"),
        "ranks": ("2,4",), "methods": ("vanilla,bns-gcn:p=0.5",), "html": ("page.html",), "results": ("results",),
    },
    ("explain", *SMALL[1:-2], "--dataset", DATA, "--mode", "sim", "--cluster", "ethernet-1g"): {
        "replays": ("0", "2"), "parts": ("2",), "method": ("vanilla",), "out": ("critical.png",),
    },
    ("partition", "--dataset", DATA): {
        "parts": ("2",), "partitioner": FLAGS["partitioner"], "hosts": ("2",), "renumber": ("4",), "seed": ("1",),
        "export": ("there",), "split": FLAGS["split"], "method": ("bns-gcn:p=0.1",), "json": ("cut.json",),
    },
    ("study", "mine.toml", "--dry-run", "--quiet"): {
        "only": ("a;b",), "most": ("5",), "budget": ("90s", "1h30m"), "jobs": ("1",), "scale": ("0.5",),
        "file": ("mine.csv",), "on": ("local",),
    },
    ("sweep", "sweep.toml", "--dry-run"): {
        "budget": ("30m",), "jobs": ("1",), "replays": ("0",), "reuse": ("any",), "on": ("local",), "out": ("cells",),
    },
    ("report", "list"): {"only": ("sylvie/table3,bns-gcn",), "budget": ("1h",), "jobs": ("1",), "reuse": ("same",)},
    ("trace", "result.json", "--quiet"): {"epochs": ("1",), "out": ("trace.json",)},
    ("flows", "flows.json"): {"coalesce": ("0.1",), "json": ("times.json", "-")},
    ("collect", "results"): {"to": ("all.csv", "all.parquet")},
    ("export", "results/one.json", "--quiet", "--to", "mlflow"): {"to": ("wandb",), "title": ("mine",), "out": ("ml",)},
    ("doctor",): {"out": ("runs",)},
    ("compare", *SMALL[1:-2], "--dataset", DATA, "--modes", "sim", "--cluster", "ethernet-1g"): {
        "methods": ("vanilla,sylvie-s:bits=1",), "modes": ("sim", "loopback,sim"), "jobs": ("1",), "out": ("compared",),
        "replays": ("0", "2"), "reuse": ("any",), "json": ("compared.json",), "on": ("local",),
    },
    ("run", *SMALL[1:]): {
        "replays": ("2",), "restarts": ("1",), "prepare-timeout": ("60",), "device": ("cpu", "cuda"), "out": ("runs",),
        "backend": ("gloo",), "evaluate": ("spare", "ranks"), "tensorboard": ("board",), "reuse": ("any",),
        "checkpoint": ("kept",), "json": ("one.json", "-"),
    },
    ("advise", "--dataset", "nowhere.npz", "--cluster", "ethernet-1g"): {
        "methods": ("vanilla,sylvie-s",), "within": ("0.5",), "budget": ("15m",), "seeds": ("3",), "price": ("2.5",),
        "sample": ("1000",), "jobs": ("1",), "parts": ("2,4",), "on": ("local",), "out": ("advice",),
    },
    ("validate", "--calibration", "nowhere"): {
        "methods": ("vanilla",), "datasets": (DATA,), "parts": ("2,4",), "epochs": ("7",), "layers": ("2",),
        "hidden": ("8",), "replays": ("2",), "budget": ("5m",), "partitioner": ("hash",), "model": ("gcn",),
    },
    ("serve", "--dataset", "nowhere.npz", "--cluster", "ethernet-1g"): {
        "port": ("8080",), "host": ("127.0.0.1",), "methods": ("vanilla",), "bits": ("1,2",), "ranks": ("2,4",),
        "recorded": ("2",), "replays": ("2",), "devices": ("cpu-epyc-1core",), "transports": ("gloo",),
    },
    ("standin", "fit", "reddit-bns", "--budget", "0.001s", "--out", "here"): {
        "seeds": ("3",), "evaluations": ("5",), "jobs": ("1",), "file": ("fits.csv",), "scale": ("0.5",),
    },
    ("standin", "figure", "reddit-bns", "--budget", "0.001s", "--out", "here"): {"knobs": ("signal,degree",)},
    ("calibrate", "--device", "cuda"): {"out": ("here",), "lab": ("lab:2x1gbit",)},
    ("clusters",): {"": ("show",), "ask": ("mine.toml",), "draw": ("drawn.png",)},
    ("clusters", "show"): {"": ("ethernet-1g", "hosts=2,devices=2,device=a100-80gb,nic=1Gb/s,bus=1GB/s", "here")},
    ("methods",): {"": ("sylvie-s", "bns-gcn:p=0.1")},
    ("partitioners",): {"": ("hdrf", "ebv:gamma=0.1")},
    ("completion",): {"": ("bash", "fish")},
    ("standin", "list"): {"": ("reddit-bns",), "json": ("standins.json",)},
    ("lab",): {"": ("lab:2x1gb", "lab:0x1gbit", "lab:999x1gbit", "lab:2x1gbit:delay=-1ms", "lab:2x1gbit:ranks=0")},
}  # fmt: skip
"""The beginnings of other command lines -> their flags with good values; "" is a word without a flag.

Commands that measure or serve for long are given something beside that is refused: what is tried is how they read."""

MINE_TOML = (
    f'paper = "mine"\n[graphs]\nmine = {{ dataset = "{DATA}", settings = {{ epochs = 1, parts = 2 }} }}\n'
    '[[claims]]\nname = "sampling"\ntext = "a tenth is enough"\njudge = ["no worse"]\nmargin = 0.5\n'
    'margin_from = "my users"\nfirst = { method = "bns-gcn:p=0.1" }\nsecond = { method = "vanilla" }\n'
    'each = [{ dataset = "mine" }]\n'
)
"""Claims of one's own, for `haloscope study`."""

EDGES = [[*RUN, "--dataset", "edges:edges.csv,features=x.npy,labels=labels.csv"]]
PAPERS = [[*RUN, "--dataset", "ogb:ogbn-papers100M"]]
SWEPT = ["sweep", "sweep.toml", "--jobs", "1", "--quiet", "--out", "swept"]
STUDY = [["study", "mine.toml", "--dry-run", "--quiet", "--file", "mine.csv"]]
SAMPLED = [*SMALL, "--method", "bns-gcn:p=0.5"]
CHECKPOINTED = [*SMALL, "--checkpoint", "kept", "--force", "--resume"]
RECORDED = ["what-if", "--dataset", DATA, "--methods", "vanilla", "--cluster", "ethernet-1g", "--points", "2"]
GOOD: dict[str, list[list[str]]] = {
    "run.toml": [[*SMALL, "--config", "run.toml"]],
    "sweep.toml": [["sweep", "sweep.toml", "--jobs", "1", "--quiet"]],
    "work.toml": [[*RUN, "--dataset", "./work.toml", "--mode", "sim", "--shapes-only", "--cluster", "ethernet-1g"]],
    "cluster.toml": [[*SMALL, "--mode", "sim", "--cluster", "cluster.toml"], ["clusters", "show", "cluster.toml"]],
    "device.toml": [[*SMALL, "--mode", "sim", "--cluster", "cluster.toml"]],
    "flows.json": [["flows", "flows.json"], ["flows", "flows.json", "--coalesce", "0.1"]],
    "result.json": [
        ["trace", "result.json", "--quiet", "--epochs", "1"],
    ],
    "rates.json": [
        [*SAMPLED, "--mode", "sim", "--shapes-only", "--cluster", "ethernet-1g", "--rates", "rates.json"],
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
    "ogbn_papers100M/raw/data.npz": PAPERS,
    "ogbn_papers100M/raw/node-label.npz": PAPERS,
    "edges.csv": EDGES,
    "labels.csv": EDGES,
    "x.npy": EDGES,
    "edges.parquet": [[*RUN, "--dataset", "edges:edges.parquet,undirected=true,features=rows.npz,labels=y.npy"]],
    "rows.npz": [[*RUN, "--dataset", "edges:edges.parquet,features=rows.npz,labels=y.npy"]],
    "y.npy": [[*RUN, "--dataset", "edges:edges.parquet,features=rows.npz,labels=y.npy"]],
    "graph.pt": [[*RUN, "--dataset", "graph.pt"]],
    "types.bin": [[*RUN, "--dataset", "types.bin"]],
    "swept/seconds.jsonl": [SWEPT, [*SWEPT, "--dry-run"]],
    "swept.json": [SWEPT, ["collect", "swept", "--to", "all.csv"]],
    "mine.csv": STUDY,
    "mine.toml": [["study", "mine.toml", "--dry-run", "--quiet"]],
    "kept.rec": [[*RECORDED, "--quiet"]],
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
EXPORTED_TOML = "[graph]\nfeatures = 8\nclasses = 3\ntrain = 30\n" + '[parts]\npartition = "export/partition.json"\n'
FLOWS = {
    "format": "flow-reference/1",
    "scenarios": [
        {
            "name": "one",
            "links": {"a": {"bandwidth_Bps": 1e9}, "b": {"bandwidth_Bps": 2e9}},
            "flows": [
                {"id": "f", "route": ["a", "b"], "bytes": 1e6, "start_s": 0.0, "latency_s": 1e-6},
                {"id": "g", "route": ["b"], "bytes": 3e6, "after": ["f"]},
            ],
        }
    ],
}


def good_files() -> None:
    """Write every file of `GOOD` into the current folder."""
    texts = {"run": RUN_TOML, "sweep": SWEEP_TOML, "work": WORK_TOML, "exported": EXPORTED_TOML, "mine": MINE_TOML}
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
    raw_files.write_papers(Path())
    _own_files(arrays["edge_index"], arrays["y"])
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        made = [
            cli.main([*SMALL, "--mode", "sim", "--cluster", "ethernet-1g", "--out", "results"]),
            cli.main(["partition", "--dataset", DATA, "--partitioner", "hash", "--export", "export"]),
            cli.main([*SMALL, "--checkpoint", "kept"]),
            cli.main([*RECORDED, "--quiet"]),
            cli.main(SWEPT),
            cli.main([*SAMPLED, "--out", "sampled"]),
        ]
    assert made == [0, 0, 0, 0, 0, 0]
    (recording,) = Path("what-if/recordings").glob("*.rec")
    Path("kept.rec").symlink_to(recording.absolute())
    (result,) = Path("results").glob("*.json")
    shutil.copy(result, "result.json")
    shutil.copy(next(Path("sampled").glob("*.json")), "rates.json")
    result.rename("results/one.json")
    Path("swept.json").symlink_to(next(path for path in Path("swept").glob("*.json")).absolute())
    (folder,) = Path("kept").glob("*/epoch-*")
    Path("checkpoint").symlink_to(folder.absolute())


def _own_files(edges: np.ndarray, y: np.ndarray) -> None:
    """Tables, arrays and files of libraries, as people have them; and the lines of a study."""
    rows = "\n".join(f"{source},{target}" for source, target in edges.T)
    Path("edges.csv").write_text(f"source,target\n{rows}\n")
    parquet.write_table(pyarrow.table({"a": edges[0], "b": edges[1]}), "edges.parquet")
    splits = ("train", "train", "train", "train", "val", "val", "test", "test")
    labels = "\n".join(f"{node},{label},{splits[node]}" for node, label in enumerate(y))
    Path("labels.csv").write_text(f"node,label,split\n{labels}\n")
    x = np.eye(8, 3, dtype=np.float32)
    np.save("x.npy", x)
    np.save("y.npy", y)
    np.savez("rows.npz", x_indptr=np.arange(9), x_indices=np.arange(8) % 3, x_data=x[:, 0], x_shape=[8, 3])
    masks = {f"{name}_mask": torch.tensor([word == name for word in splits]) for name in ("train", "val", "test")}
    content = {"x": torch.from_numpy(x), "y": torch.from_numpy(y), "edge_index": torch.from_numpy(edges).long()}
    torch.save(content | masks, "graph.pt")
    shutil.copy(REPOSITORY / "tests" / "harness" / "datasets" / "dgl" / "types.bin", "types.bin")
    line = dict.fromkeys(COLUMNS, "1") | {"dataset": DATA, "method": "vanilla", "state": "done", "curve": ""}
    Path("mine.csv").write_text(f"{','.join(line)}\n" + ",".join(f'"{value}"' for value in line.values()) + "\n")


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
    other = dice.choice(
        (*NASTY[2:16], "-5", "3.7", "1e18", "4294967296", "9223372036854775808", "[1]", '"1"', *TOO_LONG)
    )
    return content[: at.start()] + other.encode() + content[at.end() :]


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
