"""Mutation tests of the kernels of GPUs, interpreted: `python -m tests.kernel_mutations`.

Every mutation changes one piece of a kernel's text in a separate process, which then runs the tests that the mutation
names. One that they pass with survives, and the command returns 1.
"""

from __future__ import annotations

import contextlib
import importlib
import linecache
import multiprocessing
import os
import sys
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mutations import LOADED_ONCE, Patched
from tests.support import kernel_devices

NOTICED, MISSED = 10, 11
"""Exit codes of a process, beside which others say that the tests did not run to an end."""


class KernelMutation(NamedTuple):
    """A file, the description of the change, the text before and after, and the file of the tests that notice it."""

    file: str
    what: str
    old: str
    new: str
    tests: str


def kernel_mutations() -> list[KernelMutation]:
    """All mutations of kernels, from `tests/support/mutations.toml`."""
    listed = tomllib.loads((Path(__file__).parent / "support" / "mutations.toml").read_text())["kernel"]
    return [KernelMutation(**each) for each in listed]


def judge(mutation: KernelMutation) -> None:
    """Run in a separate process, whose exit code is NOTICED or MISSED."""
    loader = Patched(mutation)  # type: ignore[arg-type]
    text = loader.get_data(loader.path).decode()
    # Triton reads a kernel's text through this cache; without a time, an entry is not compared with the file
    linecache.cache[loader.path] = (len(text), None, text.splitlines(keepends=True), loader.path)
    sys.meta_path.insert(0, loader)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "--hypothesis-profile=unshrunk", mutation.tests])
    sys.exit({pytest.ExitCode.TESTS_FAILED: NOTICED, pytest.ExitCode.OK: MISSED}.get(code, 1))


def main() -> int:
    """Try all mutations; returns 1 if one survives."""
    if not kernel_devices.INTERPRETED:
        sys.exit(f"{kernel_devices.VARIABLE}=1 must be set where there is a GPU")
    for name in (*LOADED_ONCE, "triton"):
        importlib.import_module(name)
    survivors, listed = 0, kernel_mutations()
    for mutation in listed:
        begin = time.perf_counter()
        process = multiprocessing.get_context("fork").Process(target=judge, args=(mutation,))
        process.start()
        process.join()
        noticed = process.exitcode == NOTICED
        survivors += not noticed
        said = "noticed" if noticed else f"SURVIVES (exit code {process.exitcode})"
        print(f"{mutation.file}: {mutation.what}: {said}, {time.perf_counter() - begin:.1f} s", flush=True)
    print(f"{len(listed)} mutations of kernels, {survivors} survive")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
