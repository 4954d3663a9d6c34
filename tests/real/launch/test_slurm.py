"""The Slurm job script: its text, and its execution with stubs of Slurm's commands and the real torchrun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import cli
from harness.errors import InputError
from harness.running import results
from real.launch import SlurmJob, script
from real.launch._slurm import MOST_REQUEUES

JOB = SlurmJob(arguments=["--epochs", "3"], nodes=2, gpus_per_node=4)

SRUN = """
echo "$*" > "$STUBS/options"
while [[ "$1" == --* ]]; do shift; done
echo $$ > "$STUBS/step"
exec "$@"
"""
WAITS = (
    "from torch.distributed.launcher.api import LaunchConfig; "
    "print(LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=1).shutdown_timeout)"
)
"""Prints how long torchrun waits for its ranks after SIGTERM."""

SCONTROL = """
if [ "$1" = show ]; then echo localhost; echo other; else echo "$*" >> "$STUBS/asked"; fi
"""
SCANCEL = """
echo "scancel $*" >> "$STUBS/asked"
kill -TERM "$(cat "$STUBS/step")"
"""


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    """A folder with stubs of Slurm's commands, which record their arguments."""
    folder = tmp_path / "stubs"
    folder.mkdir()
    for name, text in {"srun": SRUN, "scontrol": SCONTROL, "scancel": SCANCEL}.items():
        put(folder / name, text)
    return folder


def put(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}")
    path.chmod(0o755)


def begin(text: str, stubs: Path, **more: str) -> subprocess.Popen[str]:
    """The script as Slurm starts it, in the folder above the stubs."""
    path = stubs.parent / "job.sh"
    path.write_text(text)
    places = f"{stubs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    slurm = {"SLURM_JOB_ID": "4242", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_CPUS_ON_NODE": "48", "STUBS": str(stubs)}
    return subprocess.Popen(
        ["bash", str(path)], cwd=stubs.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PATH": places, **slurm, **more},
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=240)
    return process.returncode, said


def written(tmp_path: Path, *words: str) -> str:
    """The output of `haloscope launch slurm`."""
    out = tmp_path / "written.sh"
    assert cli.main(["launch", "slurm", "--out", str(out), *words]) == 0
    return out.read_text()


def is_bash(text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_header_and_step() -> None:
    text = script(replace(JOB, time="02:00:00", partition="gpu", account="lab", cpus_per_node=48, restarts=2))
    is_bash(text)
    lines = text.splitlines()
    assert lines[0] == "#!/bin/bash"
    for option in (
        "nodes=2", "ntasks-per-node=1", "gpus-per-node=4", "cpus-per-task=48", "time=02:00:00", "partition=gpu",
        "account=lab", "signal=B:USR1@120", "requeue",
    ):  # fmt: skip
        assert f"#SBATCH --{option}" in lines
    assert "torchrun --nnodes=2 --nproc-per-node=4 --max-restarts=2" in text
    assert '--rdzv-backend=c10d --rdzv-endpoint="$first:$port"' in text


def test_what_was_not_asked_for_is_not_said() -> None:
    text = script(SlurmJob(arguments=[], nodes=1))
    is_bash(text)
    for word in (
        "gpus-per-node",
        "--time",
        "--partition",
        "--account",
        "#SBATCH --cpus-per-task",
        "activate",
        "IFNAME",
    ):
        assert word not in text


@pytest.mark.parametrize(("asked", "given_"), [(0, 48), (12, 12)])
def test_the_ranks_of_a_node_get_its_cores(asked: int, given_: int, stubs: Path) -> None:
    """Slurm's own default is one core per task, and torchrun with all its ranks is one task."""
    put(stubs / "torchrun", "exit 0")
    text = script(replace(JOB, cpus_per_node=asked))
    assert finish(begin(text, stubs)) == (0, "")
    assert f"--cpus-per-task={given_} " in (stubs / "options").read_text()
    assert ("#SBATCH --exclusive" in text) == (asked == 0)


def test_torchrun_waits_for_checkpoints_as_long_as_slurm(stubs: Path) -> None:
    """Its own default is 30 s."""
    put(stubs / "torchrun", f'exec {sys.executable} -c "{WAITS}"')
    text = script(JOB)
    assert finish(begin(text, stubs)) == (0, "110\n")
    assert "#SBATCH --signal=B:USR1@120" in text


@given(st.lists(st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs"))), max_size=4))
def test_any_words_are_still_bash(words: list[str]) -> None:
    try:
        text = script(replace(JOB, arguments=words, venv="/a b/" + "".join(words)))
    except InputError as error:
        assert "control characters" in str(error)
    else:
        is_bash(text)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"nodes": 0}, "--nodes must be at least 1"),
        ({"gpus_per_node": -1}, "--gpus-per-node must not be negative"),
        ({"time": "2h"}, "--time '2h' is no time limit"),
        ({"partition": "gpu\n#SBATCH --nodes=9"}, "--partition .* is no name"),
        ({"interface": "$(id)"}, "--interface .* is no name"),
        ({"arguments": ["a\nb"]}, "control characters"),
    ],
)
def test_what_slurm_would_not_take(change: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        replace(JOB, **change)  # type: ignore[arg-type]


def test_flags_reach_torchrun_word_by_word(tmp_path: Path, stubs: Path) -> None:
    put(stubs / "torchrun", 'printf "%s\\n" "$@" > "$STUBS/words"\necho "$GLOO_SOCKET_IFNAME"')
    dataset = "a b'c\"$(touch here).npz"
    text = written(tmp_path, "--nodes", "2", "--interface", "ib0", "--", "--dataset", dataset, "--restarts=1")
    code, said = finish(begin(text, stubs, SLURM_RESTART_COUNT="1"))
    assert (code, said) == (0, "ib0\n")
    words = (stubs / "words").read_text().splitlines()
    assert words == [
        "--nnodes=2", "--nproc-per-node=1", "--max-restarts=1", "--rdzv-backend=c10d",
        f"--rdzv-endpoint=localhost:{20000 + 4242}", "--rdzv-id=4242-1", "-m", "real", "--dataset", dataset,
        "--parts", "2", "--checkpoint", "checkpoints", "--resume",
    ]  # fmt: skip
    assert not (tmp_path / "here").exists()


def test_environment_is_activated(tmp_path: Path, stubs: Path) -> None:
    (tmp_path / "my env" / "bin").mkdir(parents=True)
    (tmp_path / "my env" / "bin" / "activate").write_text("export FOUND=yes; echo ${NOT_SET}")
    put(stubs / "torchrun", 'echo "found $FOUND"')
    assert finish(begin(script(replace(JOB, venv=f"{tmp_path}/my env/")), stubs)) == (0, "\nfound yes\n")
    assert finish(begin(script(replace(JOB, venv="/no/env")), stubs))[0] == 2


def signalled(stubs: Path, *numbers: signal.Signals, **more: str) -> tuple[int, str, list[str]]:
    """Exit code and output of a job that gets signals once its ranks train, and its calls of Slurm."""
    put(
        stubs / "torchrun",
        "trap 'sleep 0.3; echo saved; exit 1' TERM; echo begun; for i in {1..600}; do sleep 0.1; done",
    )
    process = begin(script(JOB), stubs, **more)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    for number in numbers:
        time.sleep(0.1)
        process.send_signal(number)
    code, said = finish(process)
    assert said.splitlines()[0] == "saved"
    return code, said, (stubs / "asked").read_text().splitlines()


def test_the_notice_stops_the_ranks_and_queues_again(stubs: Path) -> None:
    code, said, asked = signalled(stubs, signal.SIGUSR1)
    assert code == 0 and "queued again to go on" in said
    assert asked == ["scancel --signal=TERM 4242", "requeue 4242"]


@pytest.mark.parametrize("numbers", [(signal.SIGTERM,), (signal.SIGUSR1, signal.SIGTERM)])
def test_a_cancelled_job_is_not_queued_again(stubs: Path, numbers: tuple[signal.Signals, ...]) -> None:
    code, said, asked = signalled(stubs, *numbers)
    assert code == 1 and "queued" not in said
    assert set(asked) == {"scancel --signal=TERM 4242"}


def test_a_job_is_not_queued_again_for_ever(stubs: Path) -> None:
    most = str(MOST_REQUEUES)
    code, said, asked = signalled(stubs, signal.SIGUSR1, SLURM_RESTART_COUNT=most)
    assert code == 1 and f"not queued again: it was {most} times" in said
    assert asked == ["scancel --signal=TERM 4242"]
    code, said = finish(begin(script(JOB), stubs, SLURM_RESTART_COUNT=str(MOST_REQUEUES + 1)))  # by Slurm itself
    assert (code, said) == (1, f"queued again {MOST_REQUEUES + 1} times; not tried any more\n")


def test_a_failure_is_not_queued_again(stubs: Path) -> None:
    put(stubs / "torchrun", "exit 7")
    assert finish(begin(script(JOB), stubs))[0] == 7
    assert not (stubs / "asked").exists()


@pytest.mark.processes
def test_two_ranks_of_a_node_train(tmp_path: Path, stubs: Path) -> None:
    flags = "--dataset synthetic:nodes=90,degree=6,classes=3,features=8 --epochs 3 --threads 1 --quiet --out runs"
    text = written(tmp_path, "--nodes", "1", "--ranks-per-node", "2", "--", *flags.split())
    code, said = finish(begin(text, stubs))
    assert code == 0, said
    [file] = (tmp_path / "runs").glob("*.json")
    record = results.load_result(file)
    assert (record["state"], record["config"]["mode"], record["config"]["parts"]) == ("done", "real", 2)
    assert list((tmp_path / "checkpoints").glob("*/*")), "no checkpoint to go on from"


def test_gpu_ranks_by_default_where_there_are_gpus(tmp_path: Path) -> None:
    text = written(tmp_path, "--nodes", "2", "--gpus-per-node", "4", "--", "--checkpoint", "/scratch/here")
    assert "-m real --checkpoint /scratch/here --parts 8 --device cuda " in text


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--nodes", "2", "--", "--method", "vanila"], "did you mean 'vanilla'"),
        (["--nodes", "2", "--", "--hiden", "3"], "did you mean --hidden"),
        (["--nodes", "2", "--", "--parts", "3"], "3 parts, but 2 nodes x 1 are 2 ranks"),
        (["--nodes", "2", "--", "--mode", "sim"], "a job runs in mode real"),
        (["--nodes", "2", "--", "--device", "cuda"], "needs --gpus-per-node"),
        (["--nodes", "2", "--", "--cluster", "lab:2x1gbit"], "leave --cluster out"),
        (["--nodes", "2", "--", "--checkpoint-every", "-1"], "--checkpoint-every: must be from 0"),
        (["--nodes", "2", "--", "--partitioner", "ebv"], "cuts edges"),
        (["--nodez", "2"], "did you mean --nodes"),
    ],
)
def test_errors_appear_now_and_not_on_the_cluster(
    flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["launch", "slurm", *flags]) == 2
    said = capsys.readouterr()
    assert says in said.err and said.out == ""


def test_script_goes_to_stdout_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["launch", "slurm", "--nodes", "3", "--", "--epochs", "2"]) == 0
    text = capsys.readouterr().out
    is_bash(text)
    assert "--parts 3" in text
