"""Pages of reference that are made from the code: every command's help, and what `import harness` has."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from unittest.mock import patch

import harness
from harness.commands.arguments import parsers
from harness.commands.python.outcomes import Comparison, CutResult, RunOutcome, WhatIf
from harness.commands.welcome import FAMILIES
from reports.advice import Advice

WIDTH = 110
"""Characters of a line of help."""


def commands_page() -> str:
    """Every command by what it is for, with its help as it is printed."""
    with patch.dict(os.environ, {"COLUMNS": str(WIDTH)}):
        _, commands = parsers()
        lines = ["# Commands", "", "As `haloscope COMMAND --help` prints them.", ""]
        for family, names in FAMILIES.items():
            lines += [f"## To {family}" if family in VERBS else f"## {family.capitalize()}", ""]
            for name in names:
                lines += [f"### {name}", "", f"```text\n{commands[name].format_help().rstrip()}\n```", ""]
    return "\n".join(lines)


VERBS = frozenset(FAMILIES) - {"papers"}


def python_page() -> str:
    """The functions of `import harness` and the results that they return."""
    lines = [
        "# In Python", "",
        "`import harness` loads nothing heavy; its functions do what the commands do. Settings of a run are",
        "keywords: [reference](reference.md#run-files). What lies below these functions: [Python API](api.md).", "",
    ]  # fmt: skip
    for name in harness.__all__:
        thing = getattr(harness, name)
        if inspect.isfunction(thing):
            lines += [f"## harness.{name}", "", *_described(name, thing)]
    lines += ["## Results", ""]
    for kind in (RunOutcome, Comparison, WhatIf, CutResult, Advice):
        lines += [f"### {kind.__name__}", "", f"```text\n{inspect.getdoc(kind)}\n```", ""]
        for name, member in vars(kind).items():
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                said = (inspect.getdoc(member) or "").partition("\n")[0]
                lines.append(f"- `.{name}{'()' * inspect.isfunction(member)}`: {said}")
        lines.append("")
    return "\n".join(lines)


def _described(name: str, function: object) -> Iterator[str]:
    """Signature and docstring."""
    assert callable(function)
    signature = inspect.signature(function)
    arguments = ",\n    ".join(str(each) for each in signature.parameters.values())
    yield f"```python\n{name}(\n    {arguments},\n)\n```"
    yield ""
    yield f"```text\n{inspect.getdoc(function)}\n```"
    yield ""
