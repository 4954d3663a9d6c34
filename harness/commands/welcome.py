"""What a newcomer reads: `haloscope` without arguments, the end of the demo, examples of the commands.

Imports nothing heavy at once: every `--help` uses it.
"""

from __future__ import annotations

import argparse

NEXT = (
    "next:",
    "  haloscope calibrate                      measure this machine for minutes: narrower errors of --cluster here",
    "  haloscope advise --dataset FILE.npz --cluster ethernet-10g --budget 15m    what to run on a graph of yours",
    "  haloscope what-if --methods vanilla,sylvie-s --dataset synthetic:nodes=4000 --parts 4 --cluster ethernet-10g",
)
"""Three commands to go on with."""

WELCOME = """haloscope trains graph neural networks on graphs too large for one device, for
real or on a model of a cluster, and says where an epoch's time goes: which way
of moving boundary data wins, on your graph, model and cluster.

begin here:
  haloscope demo                           this machine, three methods, predicted beside measured: a minute or two
  haloscope datasets | methods | clusters  what there is; `haloscope methods NAME` explains one
  haloscope advise --dataset FILE.npz --cluster ethernet-10g --budget 15m
                                           which method, on how many devices, at what price in accuracy
  haloscope compare --methods vanilla,bns-gcn:p=0.1,sylvie-s --dataset synthetic:nodes=4000 --parts 4 \\
                    --mode sim --cluster ethernet-10g
  haloscope what-if --methods vanilla,sylvie-s --dataset synthetic:nodes=4000 --parts 4 --cluster ethernet-10g

five flags to know: --dataset (a graph), --method, --parts (ranks),
                    --mode sim or real, --cluster (what is modelled)
all commands: haloscope --help; flags of one: haloscope run --help
tab completion: haloscope completion bash
in Python: import harness; help(harness.advise)
"""

FIRST_FLAGS = ("dataset", "method", "parts", "mode", "cluster")
"""The settings that one needs first."""

FAMILIES = {
    "see": ("demo", "methods", "partitioners", "datasets", "clusters", "doctor"),
    "train and compare": ("run", "compare", "sweep", "collect", "export", "trace", "launch"),
    "decide": ("advise", "what-if", "serve", "explain"),
    "model a cluster": ("calibrate", "validate", "flows", "lab"),
    "cut": ("partition",),
    "papers": ("report", "study", "standin"),
    "extend": ("check-method", "completion"),
}
"""The commands by what they are for; a command that is in none of them is listed at the end."""

EXAMPLES = {
    "run": (
        "haloscope run --dataset synthetic:nodes=2000 --method sylvie-s:bits=1 --parts 4 --mode real",
        "haloscope run --dataset graph.npz --model sage --layers 3 --hidden 128 --method bns-gcn:p=0.1 --parts 8 "
        "--mode sim --cluster ethernet-10g",
    ),
    "compare": (
        "haloscope compare --methods vanilla,bns-gcn:p=0.1,sylvie-s --modes sim,real --parts 2 --cluster here",
        "haloscope compare --methods vanilla,ec-graph --layer0 auto      (every method as its own system has it)",
    ),
    "what-if": (
        "haloscope what-if --methods vanilla,sylvie-s --bits 1,4 --parts 4 --cluster ethernet-10g",
        "haloscope what-if --methods vanilla,sylvie-a --parts 4 --cluster ethernet-10g --latency nic=1us..1ms",
    ),
    "advise": (
        "haloscope advise --dataset graph.npz --model sage --layers 3 --hidden 128 --cluster ethernet-10g --budget 15m",
        "haloscope advise --dataset graph.npz --cluster hosts=4,devices=8,device=a100-80gb,nic=100Gb/s,bus=24GB/s "
        "--price 2.5",
    ),
    "serve": ("haloscope serve --methods vanilla,sylvie-s --bits 1,4 --ranks 2,4 --parts 4 --cluster ethernet-10g",),
    "explain": ("haloscope explain --method sylvie-s --parts 4 --cluster ethernet-10g --out path.png",),
    "partition": (
        "haloscope partition --dataset graph.npz --parts 8 --partitioner metis-cut --export parts/",
        "haloscope partition --dataset graph.npz --parts 8 --compare metis-cut,label-propagation,kaminpar",
    ),
    "sweep": ("haloscope sweep grid.toml --dry-run", "haloscope sweep grid.toml --jobs 4 --budget 2h"),
    "calibrate": (
        "haloscope calibrate --brief              one to two minutes, for a first look",
        "haloscope calibrate                      kept for this machine, as --cluster here",
    ),
    "collect": ("haloscope collect runs/ --to runs.parquet",),
    "export": (
        "haloscope export runs/ --to mlflow       then: mlflow migrate-filestore --source mlruns ...",
        "haloscope export runs/ sweeps/widths --to tensorboard --out tb",
    ),
    "demo": ("haloscope demo --out demo",),
    "clusters": (
        "haloscope clusters --ask mine.toml",
        "haloscope clusters show ethernet-10g --draw cluster.png",
    ),
    "completion": (
        "haloscope completion bash > ~/.local/share/bash-completion/completions/haloscope",
        "haloscope completion zsh > ~/.haloscope.zsh; echo 'source ~/.haloscope.zsh' >> ~/.zshrc",
        "haloscope completion fish > ~/.config/fish/completions/haloscope.fish",
    ),
}
"""Command -> lines that work, shown at the end of its --help."""


def main(args: argparse.Namespace) -> int:
    """Say where to begin."""
    from harness.console import show, stdout

    show(WELCOME.splitlines(), stdout())
    return 0


def examples_of(command: str) -> str:
    """The end of a command's --help; empty where it has no examples."""
    return "\n".join(["examples:", *(f"  {line}" for line in EXAMPLES[command])]) if command in EXAMPLES else ""


def command_list(commands: dict[str, str]) -> str:
    """All commands with what they do, by family."""
    rest = tuple(name for name in commands if not any(name in family for family in FAMILIES.values()))
    lines = []
    for title, names in {**FAMILIES, "more": rest}.items():
        known = [name for name in names if name in commands]
        lines += [f"{title}:", *(f"  {name:<14}{commands[name]}" for name in known)] if known else []
    return "\n".join([*lines, "", "flags of one: haloscope COMMAND --help; where to begin: haloscope"])
