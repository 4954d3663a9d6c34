"""The settings of one run as six frozen records. A field's name is its flag (`--eval-every`) and its key in TOML.

Where that would only repeat the record's name the field is called `name`: `--model` is `config.model.name`. Every
record says which values it refuses; what must fit between records is said in `_reading` and `_modes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from harness import keys

Mode = Literal["loopback", "sim", "real"]
Rule = tuple[bool, str]
"""Whether it holds, and what must be so."""


def option(default: Any, help: str, key: str = "", unit: str = "") -> Any:
    """A setting with the help text that command line and reference print; `key` where it is not the field's name."""
    return keys.key(help, default=default, unit=unit, **({"key": key} if key else {}))


LONGEST_S = 1e8
"""Three years: the longest that anyone waits."""

UP_TO = f" (seconds), and at most {LONGEST_S:g}"


MOST_THREADS = 4096
"""CPU threads of a rank; the libraries below count them in 32 bits."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The graph: where it comes from, and what is made of its nodes."""

    dataset: str = option(
        "synthetic:",
        "the name of an .npz in the data folder, or the path of one, of a .pt file (PyG), of a .bin file (DGL) or of a "
        "folder of .npy files; or synthetic:KEY=VALUE,... | standin:NAME | pyg:NAME | ogb:NAME | "
        "edges:FILE,features=FILE,labels=FILE (see `haloscope datasets` and docs/graphs.md); with --shapes-only also "
        "workload:NAME or a .toml or .json description of counts",
    )
    split: str = option(
        "auto",
        "auto | public | random:0.6/0.2/0.2 | counts:1408/300/1000 | position:1408/300/1000, and :keep=0.3 behind it",
    )
    protocol: Literal["transductive", "inductive"] = option(
        "transductive", "inductive trains on the subgraph of training nodes"
    )
    features: Literal["raw", "row", "standard", "projected"] = option(
        "raw", "feature scaling: none, row sums to 1, standardised, or standardised after projection to 256 columns"
    )

    def rules(self) -> Iterator[Rule]:
        """Names are checked by those who look for them."""
        return iter(())


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The layers, from features to classes."""

    name: str = option(
        "gcn",
        "gcn | gcn-no-loop | sage | gat, a model of an installed package, or module:factory of your own",
        key="model",
    )
    layers: int = option(2, "number of graph layers")
    linear_layers: int = option(0, "how many of the layers, from the end, are dense and read no neighbours")
    hidden: int = option(16, "hidden width (per head for gat)")
    heads: int = option(1, "attention heads (gat)")
    hidden_heads: Literal["concat", "mean"] = option(
        "concat", "heads of hidden layers side by side, or their mean (gat); the last layer has the mean"
    )
    dropout: float = option(0.0, "dropout probability, 0 to 1")
    norm: Literal["none", "layer", "l2"] = option(
        "none", "normalisation after every layer but the last: LayerNorm, or rows divided by their L2 norm"
    )
    order: Literal["method", "aggregate-first", "linear-first", "auto"] = option(
        "method",
        "order of linear map and aggregation; auto: linear first where the output is narrower and the method can; "
        "method: as the method's system does, aggregation first where it has no order of its own",
    )
    attention: Literal["auto", "fused", "composed"] = option(
        "auto",
        "attention over neighbours (gat) as one operator, fused, or composed of several with values for every edge; "
        "auto: fused on GPUs, real and modelled, composed on CPUs",
    )
    precision: Literal["fp32", "bf16"] = option(
        "fp32",
        "bf16 computes and sends rows and gradients in bfloat16, accumulated in fp32, with parameters in fp32; exact "
        "methods are exact up to that rounding",
    )

    def rules(self) -> Iterator[Rule]:
        """Ranges."""
        yield self.layers >= 1, "layers must be at least 1"
        yield 0 <= self.linear_layers < self.layers, "linear-layers must be fewer than layers"
        yield self.hidden >= 1, "hidden must be at least 1"
        yield self.heads >= 1, "heads must be at least 1"
        yield 0.0 <= self.dropout < 1.0, "dropout must be in [0, 1)"


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The method, and how long and how fast it learns."""

    method: str = option("vanilla", "method and its options, e.g. bns-gcn:p=0.1 (see `haloscope methods`)")
    layer0: Literal["auto", "precompute", "cache", "exchange"] = option(
        "auto", "what is done about the input features of halo nodes"
    )
    epochs: int = option(100, "training epochs")
    lr: float = option(0.01, "Adam learning rate")
    weight_decay: float = option(0.0, "Adam weight decay")
    seed: int = option(0, "root of every random stream")

    def rules(self) -> Iterator[Rule]:
        """Ranges."""
        yield self.epochs >= 1, "epochs must be at least 1"
        yield self.lr > 0, "lr must be positive"
        yield self.weight_decay >= 0, "weight-decay must not be negative"
        yield self.seed >= 0, "seed must not be negative"


@dataclass(frozen=True, kw_only=True)
class CutConfig:
    """How the graph is divided among ranks."""

    parts: int = option(2, "number of partitions = ranks")
    partitioner: str = option(
        "auto",
        "metis-cut | metis (volume objective, slower) | label-propagation | kaminpar | fennel | hash | contiguous | "
        "ranges; "
        "vertex cuts: ebv | hep | dne | libra | hdrf, with options (ebv:gamma=0.1, see `haloscope partitioners`); "
        "auto: metis-cut (label-propagation from 20 M directed edges on), or ebv where the method cuts vertices, or "
        "what the method names (distgnn: libra, roc: ranges)",
    )
    hosts: int = option(1, "hosts the parts are spread over in equal blocks, for hierarchical partitioners (ebv)")
    renumber: str = option("auto", "sort nodes inside a part by clusters: auto, or the most nodes of one (0 = off)")

    def rules(self) -> Iterator[Rule]:
        """Ranges."""
        yield self.parts >= 1, "parts must be at least 1"
        yield self.hosts >= 1, "hosts must be at least 1"
        number = self.renumber.isascii() and self.renumber.isdigit() and len(self.renumber) < 10
        yield self.renumber == "auto" or number, "renumber must be auto or a number of nodes"


@dataclass(frozen=True, kw_only=True)
class ExecutionConfig:
    """Where and how the ranks run, who evaluates, and how long anyone waits."""

    mode: Mode = option(
        "loopback", "loopback (one process, no clock) | sim (modelled cluster) | real (torch.distributed)"
    )
    eval_every: int = option(10, "epochs between evaluations; 0 evaluates after the last epoch only; -1 never")
    evaluate: Literal["ranks", "spare"] = option(
        "ranks", "who evaluates: all ranks, while training waits, or a spare CPU process beside them (real mode)"
    )
    threads: int = option(0, "CPU threads per rank; 0 shares the cores of this machine among the ranks")
    device: str = option("cpu", "cpu | cuda (real mode; several ranks share a GPU where there are fewer)")
    backend: Literal["auto", "gloo", "nccl"] = option(
        "auto", "torch.distributed backend (real mode); auto: nccl for cuda, gloo for cpu"
    )
    cuda_graphs: bool = option(
        False,
        "record what a GPU rank computes between two exchanges as CUDA graphs, once, and launch those in later epochs: "
        "spares its host every operator; for methods whose epochs are all alike (GPUs, in real mode and modelled)",
    )
    deterministic: bool = option(True, "all-reduce adds in rank order, so that losses are bit-equal in every mode")
    timeout: float = option(60.0, "seconds that one exchange may take (real mode)", unit="s")
    startup_timeout: float = option(
        300.0, "seconds that ranks may take to find each other and begin, and for a checkpoint (real mode)", unit="s"
    )
    prepare_timeout: float = option(
        3600.0,
        "seconds that the first rank of a machine may take to load and partition the graph (real mode)",
        unit="s",
    )

    def rules(self) -> Iterator[Rule]:
        """Ranges, and what only one mode can do."""
        yield self.eval_every >= -1, "eval-every must be at least -1, which never evaluates"
        yield 0 <= self.threads <= MOST_THREADS, f"threads must be from 0 to {MOST_THREADS}"
        yield 0 < self.timeout <= LONGEST_S, f"timeout must be positive{UP_TO}"
        yield (
            0 < self.startup_timeout <= LONGEST_S,
            f"startup-timeout must be positive, and at most {LONGEST_S:g} (seconds)",
        )
        yield (
            0 < self.prepare_timeout <= LONGEST_S,
            f"prepare-timeout must be positive, and at most {LONGEST_S:g} (seconds)",
        )
        yield self.mode == "real" or self.evaluate == "ranks", "evaluate=spare needs --mode real"
        yield self.device in ("cpu", "cuda"), "device must be cpu or cuda"
        yield (
            not self.cuda_graphs or self.mode == "sim" or (self.mode == "real" and self.device == "cuda"),
            "cuda-graphs needs --mode real --device cuda, or --mode sim and a cluster with GPUs",
        )


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """The cluster that is modelled or, of a lab, built."""

    name: str = option(
        "local",
        "cluster model: a name from `haloscope clusters`, a TOML file, here: this machine as it was calibrated, or "
        "hosts=4,devices=8,device=a100-80gb,nic=100Gb/s,bus=24GB/s (sim); lab:3x1gbit: modelled in sim, built in real "
        "mode (docs/lab.md)",
        key="cluster",
    )
    shapes_only: bool = option(False, "sim only: follow shapes on meta tensors, no numbers, no accuracy")
    rates: str = option("", "shapes-only: result file of a run of this method with numbers, for what depends on data")

    def rules(self) -> Iterator[Rule]:
        """What goes with what."""
        yield self.shapes_only or not self.rates, "rates are for --shapes-only; other runs observe their own"
