"""`haloscope doctor`: checks what this machine and this installation support, without changing anything.

`--clean` lists and removes what dead runs left, and nothing of a living one.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
from torch import distributed

from harness.commands.shared.listing import show_list
from harness.commands.shared.tables import table
from harness.console import show, stdout
from harness.datasets import data_folder
from harness.errors import InputError
from harness.machine import HERE, cache_root, core_count, kept_calibration, leftovers, remove_leftover
from harness.numbers import byte_text
from real.lab import remove as remove_namespaces
from real.lab import stale as stale_namespaces

NEEDED = (
    "torch", "torch_geometric", "numpy", "scipy", "numba", "pymetis", "kaminpar", "simpy", "pandas", "pyarrow",
    "matplotlib", "msgspec", "rich",
)  # fmt: skip
OPTIONAL = {"triton": "compiled kernels on CUDA; compiles with a C compiler"}
EXTRAS = {
    "slurm": "cells as Slurm jobs, --on slurm",
    "dask": "cells on the workers of a Dask cluster, --on dask",
    "serve": "the live what-if page: serve, what-if --html",
    "tensorboard": "export tensorboard, run --tensorboard",
}
"""Extras of the package, and what each is for."""

CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21  # bits of CapEff, capabilities(7)


class Finding(NamedTuple):
    """One line of the report; `good` is None for an absent optional feature."""

    what: str
    found: str
    good: bool | None


def main(args: argparse.Namespace) -> int:
    """Print every check; returns 1 if a requirement is missing, or with `--clean` if something cannot be removed."""
    if args.clean:
        if args.json is not None:
            raise InputError("--json is of the checks, --clean removes: give one of them")
        return _clean(args.out)
    checks = [*_installation(), *_extras(), *_machine(), *_folders(), _left(args.out)]
    marks = {True: "ok", False: "MISSING", None: "not here"}
    rows = [[check.what, marks[check.good], check.found] for check in checks]
    content = {"checks": [{"what": what, "state": state, "found": found} for what, state, found in rows]}
    show_list(content, [table("", ["what", "state", "found"], rows, left=3)], args.json)
    return 1 if any(check.good is False for check in checks) else 0


def _installation() -> Iterator[Finding]:
    yield Finding("python", platform.python_version(), sys.version_info >= (3, 11))
    for name in ("haloscope", *NEEDED):
        yield Finding(name, _version(name) or "not installed", _version(name) is not None)
    for name, use in OPTIONAL.items():
        found = _version(name) if find_spec(name) else None
        yield Finding(name, found or f"not installed; for {use}", found is not None or None)


def _extras() -> Iterator[Finding]:
    """Which extras are complete, by the packages that this project's metadata names for them."""
    for extra, use in EXTRAS.items():
        packages = packages_of(extra)
        if not packages:
            yield Finding(f"extra {extra}", "not known, since haloscope is not installed as a package", None)
            continue
        lacking = [name for name in packages if _version(name) is None]
        said = f"lacks {', '.join(lacking)}: pip install 'haloscope[{extra}]'; for {use}"
        yield Finding(f"extra {extra}", said if lacking else f"installed; for {use}", not lacking or None)


def packages_of(extra: str) -> list[str]:
    """The packages of an extra, without their versions; none where the project is not installed."""
    try:
        needed = requires("haloscope") or []
    except PackageNotFoundError:
        return []
    marked = (line.partition(";") for line in needed)
    return [
        re.split(r"[<>=!~ \[(]", package.strip(), maxsplit=1)[0]
        for package, _, marker in marked
        if re.search(rf"extra\s*==\s*[\"']{re.escape(extra)}[\"']", marker)
    ]


def _machine() -> Iterator[Finding]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    threads = f"torch uses {torch.get_num_threads()} threads"
    yield Finding("cores", f"{core_count()} usable, {threads}; {platform.machine()}", True)
    yield Finding("memory", byte_text(memory), True)
    units = [name for name in ("amx_bf16", "avx512_bf16") if name in _cpu_flags()]
    without = "no instructions of this CPU: --precision bf16 is computed all the same, slower than fp32"
    yield Finding("bfloat16", f"{units[0]}, for --precision bf16" if units else without, bool(units) or None)
    gloo = distributed.is_available() and distributed.is_gloo_available()
    yield Finding("gloo", "real mode on CPU" if gloo else "this torch has no gloo: --mode real cannot run", gloo)
    nccl = distributed.is_available() and distributed.is_nccl_available()
    yield Finding("nccl", "real mode on CUDA" if nccl else "this torch has no NCCL", nccl or None)
    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    yield Finding("cuda", ", ".join(cuda) or "no device visible", bool(cuda) or None)
    for tool, bit in (("tc", CAP_NET_ADMIN), ("ip", CAP_SYS_ADMIN)):
        path, allowed = shutil.which(tool), _capable(bit)
        use = "shape links" if tool == "tc" else "network namespaces"
        found = f"{path or 'not installed'}, {'allowed' if allowed else 'not allowed'} to this user; for {use}"
        yield Finding(tool, found, (path is not None and allowed) or None)


def _folders() -> Iterator[Finding]:
    root = cache_root()
    nearest = next(folder for folder in (root, *root.absolute().parents) if folder.exists())
    fine = nearest.is_dir() and os.access(nearest, os.W_OK)
    yield Finding("cache folder", f"{root}{'' if fine else ' cannot be written; set HALOSCOPE_CACHE'}", fine)
    known = kept_calibration()
    said = f"none yet; haloscope calibrate makes --cluster {HERE}"
    if known is not None:
        said = f"{known.text()}, as --cluster {HERE}" + (f"; {known.disturbed}" if known.disturbed else "")
    yield Finding("calibration", said, known is not None or None)
    count = len(list(data_folder().glob("*.npz")))
    hint = "" if count else " (HALOSCOPE_DATA names another folder; synthetic graphs need none)"
    yield Finding("graph files", f"{count} npz files in {data_folder().absolute()}{hint}", count > 0 or None)


def _left(results: Path) -> Finding:
    count = len(leftovers(results)) + len(stale_namespaces())
    return Finding("leftovers", f"{count} of dead runs; doctor --clean removes them" if count else "none", True)


def _clean(results: Path) -> int:
    """Remove what dead runs left, with a line for each."""
    lines, kept = [], 0
    for left in leftovers(results):
        gone = remove_leftover(left)
        kept += not gone
        lines.append(f"{'removed' if gone else 'cannot remove'} {left.path}: {left.what}")
    for name in stale_namespaces():
        try:
            remove_namespaces([name])
            lines.append(f"removed network namespace {name}")
        except InputError as error:
            kept += 1
            lines.append(f"cannot remove network namespace {name}: {error}")
    show(lines or ["nothing is left of dead runs"], stdout())
    return 1 if kept else 0


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_flags() -> set[str]:
    """Instruction sets of the first core as Linux names them; none where it does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())


def _capable(bit: int) -> bool:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return False
    lines = [line for line in status.splitlines() if line.startswith("CapEff:")]
    return bool(lines) and bool(int(lines[0].split()[1], 16) >> bit & 1)
