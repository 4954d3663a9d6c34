"""Delivers what a command lists; torch, which other commands' output needs, is imported with `--json` only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from harness.console import show, stdout


def show_list(content: Mapping[str, Any], tables: Sequence[RenderableType], target: str | None) -> None:
    """Print the tables; with a target, as of `--json`, also write the content there.

    Raises:
        InputError: the target cannot be written.
    """
    if target is None:
        show(tables, stdout())
        return
    from harness.commands.shared.cells import deliver, json_target

    json_target(target)
    deliver(content, list(tables), target)
