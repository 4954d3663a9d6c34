"""The job script that runs `real` on a Slurm cluster: one torchrun per node, with the rendezvous on the first node.

Before the time limit, or on an operator's request, Slurm sends SIGUSR1 to the script, which passes it on to the ranks
as SIGTERM: they write a checkpoint after their epoch, and the job is requeued to continue from there. Slurm itself
requeues a job that lost a node or was preempted; that one too continues from its last checkpoint. A job that was
cancelled (SIGTERM) is not requeued, and the number of requeues is limited.

Slurm gives a task one core unless it is asked for more, however many ranks the task starts. Without a number of cores
the job therefore takes whole nodes, and its step all cores of them.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from harness.errors import InputError
from real.launch._job import SAVING_S, SAVING_VARIABLE, ClusterJob

NOTICE_S = SAVING_S + 10
"""Seconds before the time limit at which the ranks are asked to stop."""

MOST_REQUEUES = 50
"""How often a job may be requeued: a job that makes no progress must not run for ever."""

_TIME = re.compile(r"\d+(:\d\d){0,2}|\d+-\d+(:\d\d){0,2}")


@dataclass(frozen=True, kw_only=True)
class SlurmJob(ClusterJob):
    """The resources requested from Slurm, and what each rank runs.

    Attributes:
        time: Slurm's time limit, e.g. 02:00:00 or 1-12; empty for the partition's.
        partition, account: empty for the user's default.
        venv: folder of a Python environment to activate; empty for none.
    """

    time: str = ""
    partition: str = ""
    account: str = ""
    venv: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_words(partition=self.partition, account=self.account, name=self.name)
        if self.time and not _TIME.fullmatch(self.time):
            raise InputError(f"--time {self.time!r} is no time limit; write minutes, HH:MM:SS or DAYS-HH:MM:SS")
        if not self.venv.isprintable():
            raise InputError("a job file takes no control characters in its words")


def script(job: SlurmJob) -> str:
    """The text of the job script, for `sbatch`."""
    return "\n".join([*_header(job), "", *_surroundings(job), "", *_step(job), "", *_ending(), ""])


def _header(job: SlurmJob) -> list[str]:
    options = {
        "job-name": job.name,
        "nodes": job.nodes,
        "ntasks-per-node": 1,
        "gpus-per-node": job.gpus_per_node or "",
        "cpus-per-task": job.cpus_per_node or "",
        "time": job.time,
        "partition": job.partition,
        "account": job.account,
        "output": "%x-%j.log",
        "open-mode": "append",
        "signal": f"B:USR1@{NOTICE_S}",
    }
    lines = [f"#SBATCH --{key}={value}" for key, value in options.items() if value != ""]
    whole = [] if job.cpus_per_node else ["#SBATCH --exclusive"]
    return ["#!/bin/bash", *lines, *whole, "#SBATCH --requeue"]


def _surroundings(job: SlurmJob) -> list[str]:
    lines = []
    if job.venv:
        lines.append(f"source {shlex.quote(job.venv.rstrip('/') + '/bin/activate')} || exit 2")
    if job.interface:
        lines.append(f"export GLOO_SOCKET_IFNAME={job.interface} NCCL_SOCKET_IFNAME={job.interface}")
    return [
        *lines,
        f"export {SAVING_VARIABLE}={SAVING_S}  # seconds from SIGTERM that torchrun gives its ranks",
        "set -u",
        'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "port=$((20000 + SLURM_JOB_ID % 20000))",
        "again=()",
        'times="${SLURM_RESTART_COUNT:-0}"  # that this job was queued again, by Slurm or by the end of this script',
        f"most={MOST_REQUEUES}  # that it may be: a job that gets nowhere ends here; raise it where a run needs more",
        'if [ "$times" -gt "$most" ]; then echo "queued again $times times; not tried any more"; exit 1; fi',
        'if [ "$times" -gt 0 ]; then again=(--resume); fi',
    ]


def _step(job: SlurmJob) -> list[str]:
    cores = str(job.cpus_per_node or '"$SLURM_CPUS_ON_NODE"')  # srun does not take them from sbatch
    tasks = f"--nodes={job.nodes} --ntasks={job.nodes} --ntasks-per-node=1 --cpus-per-task={cores}"
    words = [
        f"srun {tasks} --kill-on-bad-exit=1",
        f"torchrun --nnodes={job.nodes} --nproc-per-node={job.per_node} --max-restarts={job.restarts}",
        '--rdzv-backend=c10d --rdzv-endpoint="$first:$port" --rdzv-id="$SLURM_JOB_ID-$times"',
        f'-m real {shlex.join(job.arguments)} ${{again[@]+"${{again[@]}}"}} &',
    ]
    return [
        "stopped=0",
        "# The notice before the time limit, or an operator's: scancel --batch --signal=USR1 JOB. Without --batch, as",
        "# here, a signal goes to the ranks and not to this script.",
        "trap 'stopped=1; scancel --signal=TERM \"$SLURM_JOB_ID\"' USR1",
        "# Cancelled (scancel JOB), which is final, or preempted, after which Slurm itself queues the job again.",
        "trap 'stopped=0; scancel --signal=TERM \"$SLURM_JOB_ID\"' TERM",
        " \\\n  ".join(words),
        "step=$!",
        'wait "$step"; code=$?',
        'while kill -0 "$step" 2>/dev/null; do wait "$step"; code=$?; done  # a signal ends a wait early',
    ]


def _ending() -> list[str]:
    return [
        'if [ "$code" -ne 0 ] && [ "$stopped" -eq 1 ]; then',
        '  if [ "$times" -lt "$most" ]; then',
        '    echo "stopped before the end; queued again to go on from the last checkpoint"',
        '    scontrol requeue "$SLURM_JOB_ID" && exit 0',
        "  else",
        '    echo "stopped before the end; not queued again: it was $times times, and may be $most times"',
        "  fi",
        "fi",
        'exit "$code"',
    ]
