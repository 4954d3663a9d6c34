"""Questions about a cluster of one's own, and the cluster file that the answers make.

On a terminal an answer that does not fit is asked for again; where answers are piped in, it is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from harness.console import show, stderr
from harness.errors import InputError
from harness.machine import write_atomically
from sims.cluster import file_of_line, load_cluster
from sims.device import known_devices, load_device
from sims.units import parse

NONE, CPU = "none", "cpu-epyc-1core"
MOST = 1 << 20
USUAL = {"peer": NONE, "latency": "10us"}
"""Answers that say nothing: what is assumed of a cluster that is described on a line."""


@dataclass(frozen=True)
class Inquiry:
    """One question.

    Attributes:
        key: of a cluster that is described on a line.
        asks: what is asked.
        default: the answer where the line is empty.
        check: raises InputError for an answer that does not fit.
    """

    key: str
    asks: str
    default: str
    check: Callable[[str], None]


def ask_for_cluster(path: Path) -> Path:
    """Ask what a cluster is like and write its file; returns its path.

    Raises:
        InputError: the file cannot be written; where stdin is no terminal, an answer does not fit or is missing.
    """
    if path.suffix != ".toml":
        raise InputError(f"{path}: a cluster file ends in .toml")
    show(["a cluster in a few answers; an empty line takes the value in brackets"], stderr())
    answers = _answers()
    line = ",".join(f"{key}={value}" for key, value in answers.items() if value != USUAL.get(key))
    text = file_of_line(line, path.stem, _summary(answers))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    return path


def _answers() -> dict[str, str]:
    """The answers by key, in the order of the questions; later questions depend on earlier answers."""
    found: dict[str, str] = {}

    def ask(*inquiries: Inquiry) -> None:
        found.update({inquiry.key: _answer(inquiry) for inquiry in inquiries})

    known = ", ".join(known_devices())
    show([Text(f"devices: {known}; or the .toml file of a calibration")], stderr())
    ask(
        Inquiry("hosts", "how many hosts, or their names as Slurm lists them: gpu[01-04]", "4", _hosts),
        Inquiry("device", "which device is in them", CPU, _device),
    )
    if not found["hosts"].isdigit():
        found = {"nodes": found.pop("hosts"), **found}
    if found["device"].endswith(".toml"):
        found["device"] = str(Path(found["device"]).resolve())
    gpus = load_device(found["device"]).kind == "gpu"
    ask(Inquiry("devices", "how many of them in each host", "8" if gpus else "1", _count))
    if gpus:
        ask(Inquiry("bus", "link from each to its host, each way (PCIe)", "24GB/s", _rate))
        if found["devices"] != "1":
            ask(Inquiry("peer", "link of each to the others, each way (NVLink), or none", USUAL["peer"], _rate_or_none))
    elif found["devices"] != "1":
        ask(Inquiry("loopback", "memory between processes of a host", "10GB/s", _rate))
    if found.get("hosts") != "1":
        ask(
            Inquiry("nic", "link from each adapter to the network", "100Gb/s" if gpus else "10Gb/s", _rate),
            Inquiry("nics", "adapters of each host", "1", _count),
            Inquiry("latency", "time of one crossing of that link (half of host to host)", USUAL["latency"], _time),
        )
    if gpus:
        found["library"] = "nccl"
    return found


def _answer(inquiry: Inquiry) -> str:
    """The answer to one question, asked again on a terminal until it fits."""
    terminal = sys.stdin.isatty()
    while True:
        console = stderr()
        console.print(f"{inquiry.asks} [{inquiry.default}]: ", end="", markup=False, highlight=False)
        line = sys.stdin.readline()
        if not line:
            console.print()
            raise InputError(f"the answers end before {inquiry.asks!r}; an empty line takes {inquiry.default}")
        text = line.strip() or inquiry.default
        if not terminal:
            show([text], console)  # the terminal has shown what was typed
        try:
            inquiry.check(text)
        except InputError as error:
            if not terminal:
                raise
            show([f"  {error}"], console)
        else:
            return text


def _count(text: str) -> None:
    if not (text.isascii() and text.isdigit() and len(text) < 8 and 1 <= int(text) < MOST):
        raise InputError(f"{text!r} is no whole number from 1 to {MOST - 1}")


def _hosts(text: str) -> None:
    if "[" in text or "," in text:
        load_cluster(f"device={CPU},nic=1Gb/s,nodes={text}")  # a list of Slurm's names
    else:
        _count(text)


def _device(text: str) -> None:
    if "," in text or "=" in text:
        raise InputError(f"{text!r}: one name, or one .toml file whose path has no comma and no equals sign")
    load_device(text)


def _rate(text: str) -> None:
    parse(text, "bandwidth", "link")


def _rate_or_none(text: str) -> None:
    if text != NONE:
        _rate(text)


def _time(text: str) -> None:
    parse(text, "time", "crossing")


def _summary(answers: dict[str, str]) -> str:
    between = f", {answers['nics']} x {answers['nic']} each" if "nic" in answers else ""
    hosts, device = answers.get("hosts") or answers["nodes"], Path(answers["device"]).stem
    return f"{hosts} hosts x {answers['devices']} {device}{between}; as answered, the rest assumed"
