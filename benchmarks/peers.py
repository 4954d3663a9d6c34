"""Seconds per training epoch beside other systems' own programs, interleaved in one run.

    python -m benchmarks.peers --sar DIR --bns-gcn DIR --pipegcn DIR [--python PYTHON] [--nodes 100000] [--epochs 12]
                               [--rounds 3]

Setting and columns are those of `benchmarks.epoch`: GraphSAGE 3 x 256 with LayerNorm and dropout 0.5, the sums of the
input computed once, two gloo ranks of one thread on METIS parts; DGL and PyG in one process of two threads. The other
systems are checkouts that are there already (github.com/IntelLabs/SAR, GATECH-EIC/BNS-GCN, GATECH-EIC/PipeGCN), and
PYTHON an interpreter that has DGL; what is changed of their programs from outside stands in `benchmarks/peer_rank.py`.
Each contender runs in processes of its own, one after the other in every round. The last column is how much longer an
epoch takes than with the same method here; every system has its usual order of products and sums, and haloscope
`--order auto`, but for its one rank, which sums first as PyG does.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.epoch import haloscope, middle, run_contender, setting
from harness import datasets
from harness.config import RunConfig
from harness.errors import InputError
from harness.running import prepare

PROGRAM = Path(__file__).with_name("peer_rank.py")

Found = dict[str, Any]
"""Seconds of every epoch, peak bytes of a rank."""


@dataclass(frozen=True)
class Peer:
    """Another system.

    Attributes:
        system: its name in `peer_rank`.
        beside: the contender here that does the same.
        settings: of its program.
    """

    system: str
    beside: str
    ranks: int = 2
    settings: tuple[tuple[str, Any], ...] = ()


OURS: dict[str, str] = {
    "haloscope, vanilla": "vanilla",
    "haloscope, sar": "sar",
    "haloscope, bns-gcn:p=0.1": "bns-gcn:p=0.1",
    "haloscope, pipegcn": "pipegcn",
}
"""Contenders of two ranks -> method."""
ALONE, PYG = "haloscope, 1 rank x 2 threads", "PyG SAGEConv on torch CSR"
PEERS: dict[str, Peer] = {
    "SAR": Peer("sar", "haloscope, vanilla"),
    "BNS-GCN, p=1": Peer("bns-gcn", "haloscope, vanilla", settings=(("rate", 1.0),)),
    "BNS-GCN, p=0.1": Peer("bns-gcn", "haloscope, bns-gcn:p=0.1", settings=(("rate", 0.1),)),
    "PipeGCN": Peer("pipegcn", "haloscope, pipegcn"),
    "DGL, 1 process x 2 threads": Peer("dgl", ALONE, ranks=1),
}


@dataclass(frozen=True)
class Workplace:
    """Where the other systems are and what they read.

    Attributes:
        python: an interpreter with DGL.
        checkouts: system -> folder of its code.
        folder: for the graph and the parts.
    """

    python: str
    checkouts: dict[str, Path]
    folder: Path
    common: dict[str, Any]

    def run(self, peer: Peer) -> Found:
        """The slowest rank of one run of a peer.

        Raises:
            InputError: a process of it failed; with the end of what it wrote.
        """
        asked = {**self._asked(peer), "port": _free_port(), "threads": 2 // peer.ranks}
        ranks = [self._started({**asked, "rank": rank}) for rank in range(peer.ranks)]
        try:
            found = [_finished(process) for process in ranks]
        finally:
            for process in ranks:
                process.kill()  # the others of a rank that failed; nothing for those that have ended
        return {
            "seconds": [max(times) for times in zip(*(each["seconds"] for each in found), strict=True)],
            "peak": max(each["peak"] for each in found),
        }

    def partition(self, system: str) -> None:
        """Write the parts of a system, with DGL's METIS."""
        _finished(self._started({**self._asked(Peer(system, "")), "what": "partition", "threads": 2}), answers=False)

    def _asked(self, peer: Peer) -> dict[str, Any]:
        place = {"checkout": str(self.checkouts.get(peer.system, "")), "folder": str(self.folder / peer.system)}
        return {"system": peer.system, **self.common, **place, **dict(peer.settings)}

    def _started(self, asked: dict[str, Any]) -> subprocess.Popen[str]:
        Path(asked["folder"]).mkdir(exist_ok=True)
        threads = {name: str(asked["threads"]) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        environment = {**os.environ, **threads, "GLOO_SOCKET_IFNAME": "lo", "DGLBACKEND": "pytorch"}
        return subprocess.Popen(
            [self.python, str(PROGRAM), json.dumps(asked)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment,
        )  # fmt: skip


def _finished(process: subprocess.Popen[str], *, answers: bool = True) -> Found:
    """The last line of a process as JSON."""
    out, err = process.communicate()
    if process.returncode:
        raise InputError((err.strip().splitlines() or [f"ended with {process.returncode}"])[-1])
    return dict(json.loads(out.strip().splitlines()[-1])) if answers else {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def written(config: RunConfig, folder: Path) -> dict[str, Any]:
    """Write the graph of a config as the peers read it; returns what their programs have to know of it."""
    graph = datasets.load(config.data.dataset)
    assert graph.train is not None and graph.y is not None and isinstance(graph.x, np.ndarray)
    path = folder / "graph.npz"
    np.savez(path, indptr=graph.indptr, indices=graph.indices, x=graph.x, y=graph.y, train=graph.train)
    return {
        "graph": str(path), "classes": graph.num_classes, "num_train": len(graph.train),
        "hidden": config.model.hidden, "epochs": config.training.epochs,
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has DGL")
    for name in ("sar", "bns-gcn", "pipegcn"):
        parser.add_argument(f"--{name}", type=Path, metavar="DIR", help="its checkout; left out without")
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    config = setting(options.nodes, options.epochs)
    checkouts = {name: path.resolve() for name in ("sar", "bns-gcn", "pipegcn")
                 if (path := getattr(options, name.replace("-", "_")))}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        place = Workplace(options.python, checkouts, Path(folder), written(config, Path(folder)))
        prepare(config), prepare(config.changed(parts=2)), prepare(config.changed(renumber="0"))
        for system in checkouts:
            print(f"partitioning for {system}", file=sys.stderr, flush=True)
            place.partition(system)
        _print(_rounds(_contenders(place, config, options), options.rounds))


def _contenders(place: Workplace, config: RunConfig, options: argparse.Namespace) -> dict[str, Callable[[], Found]]:
    """What runs in a round, in order: every peer right after what it is compared with."""
    found: dict[str, Callable[[], Found]] = {}
    for name, method in OURS.items():
        ours = config.changed(parts=2, threads=1, order="auto", method=method, layer0="auto")
        found[name] = partial(haloscope, ours)
        found |= {other: partial(place.run, peer) for other, peer in PEERS.items()
                  if peer.beside == name and peer.system in place.checkouts}  # fmt: skip
    for name in (ALONE, PYG):
        found[name] = partial(run_contender, name, options)
    found |= {name: partial(place.run, peer) for name, peer in PEERS.items() if peer.beside == ALONE}
    return found


def _rounds(contenders: dict[str, Callable[[], Found]], count: int) -> dict[str, list[Found]]:
    rounds: dict[str, list[Found]] = {name: [] for name in contenders}
    for number in range(count):
        for name in list(rounds):
            print(f"round {number + 1} of {count}: {name}", file=sys.stderr, flush=True)
            try:
                rounds[name].append(contenders[name]())
            except InputError as error:
                print(f"{name:32} not run: {error}")
                del rounds[name]
    return rounds


def _print(rounds: dict[str, list[Found]]) -> None:
    """A line for every contender: median over rounds of a round's median epoch, and how it compares."""
    medians = {name: statistics.median(middle(run["seconds"]) for run in runs) for name, runs in rounds.items()}
    beside = {**{name: peer.beside for name, peer in PEERS.items()}, PYG: ALONE, "haloscope, sar": ""}
    for name, runs in rounds.items():
        each = sorted(middle(run["seconds"]) for run in runs)
        base = beside.get(name, "")
        against = f"  {medians[name] / medians[base]:5.2f} x {base}" if base in medians else ""
        print(f"{name:32} {medians[name]:7.3f} s/epoch ({each[0]:.3f} to {each[-1]:.3f})  "
              f"peak {max(run['peak'] for run in runs) / 2**20:,.0f} MiB{against}")  # fmt: skip


if __name__ == "__main__":
    main()
