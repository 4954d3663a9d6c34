"""Mutation tests of the conformance checks: `python -m tests.mutations`.

Every mutation violates one declared fact of a method by replacing one piece of a module's text in a separate process,
which then runs the checks that the method's facts select. A mutation that no check detects survives, and the command
returns 1. `--write FILE` writes the table (docs/mutations.md); `--only TEXT` selects methods that begin with TEXT.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.machinery
import importlib.util
import multiprocessing
import sys
import time
import tomllib
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

LOADED_ONCE = ("torch", "torch._dynamo", "numba", "scipy.sparse", "msgspec", "rich.table")
"""Other packages, imported before processes are forked."""

HEAD = """# Mutations: each promise of each method, broken once

Made by `python -m tests.mutations --write docs/mutations.md`. A row is one change to the text of one file; the check is
the first of `haloscope check-method` that fails with it, the fact's own checks first. None may survive.

| method | fact | broken by | in | noticed by |
|---|---|---|---|---|
"""


class Mutation(NamedTuple):
    """Method text, violated fact, description of the change, file, and the text before and after.

    `options` are fields of a run that the checks use, such as `model`.
    """

    method: str
    fact: str
    what: str
    file: str
    old: str
    new: str
    options: Mapping[str, Any] = MappingProxyType({})


def mutations() -> list[Mutation]:
    """All mutations, from `tests/support/mutations.toml`."""
    listed = tomllib.loads((Path(__file__).parent / "support" / "mutations.toml").read_text())["mutation"]
    return [Mutation(**each) for each in listed]


class Patched(importlib.machinery.SourceFileLoader):
    """Loads one module from changed source, and never from compiled code kept beside the file."""

    def __init__(self, mutation: Mutation) -> None:
        super().__init__(mutation.file.removesuffix(".py").replace("/", "."), str(Path(mutation.file).resolve()))
        self.mutation = mutation

    def find_spec(
        self, name: str, path: Any, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The finder of `sys.meta_path`: this loader for its module, None for all others."""
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def path_stats(self, path: str) -> Any:
        """No statistics: they are what compiled code is compared with."""
        raise OSError(f"{path} is loaded from its text")

    def get_data(self, path: str) -> bytes:
        """The text with the change made.

        Raises:
            SystemExit: the text before the change is not there exactly once.
        """
        text = Path(path).read_text()
        if text.count(self.mutation.old) != 1:
            raise SystemExit(f"{self.mutation.file} has {text.count(self.mutation.old)} times {self.mutation.old!r}")
        return text.replace(self.mutation.old, self.mutation.new).encode()


def judge(mutation: Mutation, answer: Connection) -> None:
    """Run in a separate process: send the first failing check and its message, or two empty texts."""
    sys.meta_path.insert(0, Patched(mutation))
    from harness.conformance import Ground, checks
    from harness.methods.registry import parse_method

    method = parse_method(mutation.method)
    found = sorted(checks(method), key=lambda check: mutation.fact not in (*check.facts, check.name))
    for check in found:
        try:
            check.run(method, Ground(quick=True, options=mutation.options))
        except Exception as error:
            answer.send((check.name, str(error) or type(error).__name__))
            return
    answer.send(("", ""))


def tried(mutation: Mutation) -> tuple[str, str]:
    """The check that detects a mutation, and its message; empty if it survives."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=judge, args=(mutation, theirs))
    process.start()
    theirs.close()
    try:
        found: tuple[str, str] = ours.recv()
    except EOFError:
        found = ("?", f"the process ended with {process.exitcode}")
    process.join()
    return found


def main() -> int:
    """Try all mutations; returns 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="methods that begin with this")
    parser.add_argument("--write", type=Path, help="write the table here")
    args = parser.parse_args()
    for name in LOADED_ONCE:
        importlib.import_module(name)
    importlib.import_module("torch").set_num_threads(1)
    rows, survivors = [], 0
    for mutation in (m for m in mutations() if m.method.startswith(args.only)):
        begin = time.perf_counter()
        check, message = tried(mutation)
        survivors += not check or check == "?"
        place = mutation.file.removeprefix("harness/")
        rows.append(f"| {mutation.method} | {mutation.fact} | {mutation.what} | `{place}` | {check or 'SURVIVES'} |")
        print(f"{rows[-1]} {time.perf_counter() - begin:.1f} s: {message[:140]}", flush=True)
    print(f"{len(rows)} mutations, {survivors} survive")
    if args.write:
        args.write.write_text(HEAD + "\n".join(rows) + f"\n\n{len(rows)} mutations, {survivors} survive.\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
