"""What job files of every scheduler have in common: the nodes, their ranks, and the words that the ranks run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import InputError

SAVING_S = 110
"""Seconds from SIGTERM that torchrun gives its ranks to write a checkpoint; by itself it would give them 30."""

SAVING_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
"""Variable in which torchrun reads those seconds."""

_WORD = re.compile(r"[A-Za-z0-9_.,:+@/%-]+")


@dataclass(frozen=True, kw_only=True)
class ClusterJob:
    """Nodes of a cluster, and what each rank runs.

    Attributes:
        arguments: flags of `haloscope run`, one word each.
        nodes: number of nodes.
        gpus_per_node: GPUs and ranks of each node; 0 for ranks on CPUs.
        ranks_per_node: ranks of each node where it has no GPUs.
        restarts: how often torchrun restarts all ranks in place after a failure.
        cpus_per_node: CPU cores of each node; 0 takes whole nodes from Slurm, and leaves it to Kubernetes.
        interface: network interface that gloo and NCCL begin from, e.g. ib0; empty for their own choice.
        name: name of the job.
    """

    arguments: Sequence[str]
    nodes: int
    gpus_per_node: int = 0
    ranks_per_node: int = 1
    restarts: int = 0
    cpus_per_node: int = 0
    interface: str = ""
    name: str = "haloscope"

    def __post_init__(self) -> None:
        counts = {"nodes": self.nodes, "ranks-per-node": self.ranks_per_node}
        for flag, count in counts.items():
            if count < 1:
                raise InputError(f"--{flag} must be at least 1")
        for flag, count in {"gpus-per-node": self.gpus_per_node, "cpus-per-node": self.cpus_per_node}.items():
            if count < 0:
                raise InputError(f"--{flag} must not be negative")
        if any(not word.isprintable() for word in self.arguments):
            raise InputError("a job file takes no control characters in its words")
        self.check_words(interface=self.interface)

    @staticmethod
    def check_words(**words: str) -> None:
        """Raise InputError unless every word, by its flag, is empty or a plain name without spaces or quotes."""
        for flag, word in words.items():
            if word and not _WORD.fullmatch(word):
                raise InputError(f"--{flag} {word!r} is no name that a scheduler takes")

    @property
    def per_node(self) -> int:
        """Ranks of each node."""
        return self.gpus_per_node or self.ranks_per_node

    @property
    def ranks(self) -> int:
        """Ranks of the whole job."""
        return self.nodes * self.per_node
