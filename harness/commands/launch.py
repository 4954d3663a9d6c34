"""`haloscope launch`: writes the job file of a run on a Slurm or Kubernetes cluster, after checking its flags."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.commands.arguments import given_config, parse_arguments, settings_given
from harness.commands.arguments.clusters import OF_SCHEDULER
from harness.commands.shared.cells import writable
from harness.config import check, is_lab
from harness.console import show, stderr, stdout
from harness.errors import InputError
from harness.machine import write_atomically
from harness.running import Checkpoints, plan_of
from real import launch

CHECKPOINTS = "checkpoints"  # default folder

COMMON = ("nodes", "gpus_per_node", "ranks_per_node", "cpus_per_node", "interface", "name")
"""Flags that every scheduler takes."""

SUBMITTED_BY = {"slurm": "sbatch", "kubernetes": "kubectl apply -f"}


def main(args: argparse.Namespace) -> int:
    """Write the job file, by default to stdout."""
    writable(args.out, folder=False)
    flags = parse_arguments(["run", *args.words])
    common: dict[str, Any] = {name: getattr(args, name) for name in COMMON}
    common |= {"arguments": _without(args.words, "--restarts"), "restarts": flags.restarts, **_own(args)}
    job: Any
    if args.scheduler == "slurm":
        job = launch.SlurmJob(**common)
    else:
        job = launch.KubernetesJob(**{"image": "", "claim": "", **common})
    job = replace(job, arguments=[*job.arguments, *_checked(flags, job)])
    text = launch.script(job) if args.scheduler == "slurm" else launch.manifest(job)
    if args.out is None:
        stdout().file.write(text)
    else:
        write_atomically(args.out, text.encode())
        submit = f"{SUBMITTED_BY[args.scheduler]} {args.out}"
        show([f"written: {args.out}, {job.ranks} ranks on {job.nodes} nodes; submit it: {submit}"], stderr())
    return 0


def _own(args: argparse.Namespace) -> Mapping[str, Any]:
    """The given flags of this scheduler alone.

    Raises:
        InputError: one is another scheduler's.
    """
    own: dict[str, Any] = {}
    for scheduler, names in OF_SCHEDULER.items():
        given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
        if scheduler == args.scheduler:
            own = given
        elif given:
            raise InputError(f"--{next(iter(given))} is for launch {scheduler}, not for launch {args.scheduler}")
    return own


def _checked(flags: argparse.Namespace, job: launch.ClusterJob) -> list[str]:
    """Check the flags; returns those that a job needs in addition.

    Data, devices and folders are not checked, because they are on the cluster.
    """
    given, asked_for = settings_given(flags), given_config(flags)
    if "mode" in given and asked_for.run.mode != "real":
        raise InputError(f"mode {asked_for.run.mode} needs no cluster: a job runs in mode real; leave mode out")
    more = [] if "parts" in given else ["--parts", str(job.ranks)]
    if "device" not in given and job.gpus_per_node:
        more += ["--device", "cuda"]
    if flags.checkpoint is None:
        more += ["--checkpoint", CHECKPOINTS]
    asked = parse_arguments(["run", *job.arguments, *more])
    asked.mode = "real"  # as `real` sets it
    config = given_config(asked)
    if is_lab(config.cluster.name):
        raise InputError(f"{config.cluster.name} is a lab on one machine; leave --cluster out of a job")
    check(config)
    if config.cut.parts != job.ranks:
        ranks = f"{job.nodes} nodes x {job.per_node} are {job.ranks} ranks"
        raise InputError(f"{config.cut.parts} parts, but {ranks}; leave --parts out")
    if config.run.device == "cuda" and not job.gpus_per_node:
        raise InputError("--device cuda needs --gpus-per-node")
    plan_of(config)
    Checkpoints(asked.checkpoint, asked.checkpoint_every or 0)
    return more


def _without(words: Sequence[str], flag: str) -> list[str]:
    """The arguments without a flag and its value, for which torchrun has its own flag."""
    kept: list[str] = []
    skip = False
    for word in words:
        if not skip and word != flag and not word.startswith(f"{flag}="):
            kept.append(word)
        skip = word == flag and not skip
    return kept
