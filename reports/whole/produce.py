"""Makes the tables and figures of a report in worker processes, and keeps them until their inputs change.

An item is stored in `<out>/<paper>/<name>.json` with the hash of all its inputs; while that hash is unchanged, it is
not made again. Beside it are the same table as Markdown, CSV and LaTeX, or the figure.
"""

from __future__ import annotations

import ast
import hashlib
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import torch

from harness.datasets import data_folder
from harness.errors import HaloscopeError, InputError
from harness.machine import Died, cache_root, code_version, kept_json, write_atomically
from harness.running.engines import CellEngine
from reports.core.context import COMPUTING, ROOT, Context, versions
from reports.core.load import PUBLISHED
from reports.core.rendering import table_csv, table_latex, table_markdown
from reports.core.table import Item, PaperTable, Plot, shared_stand_ins
from reports.study import RESULTS
from reports.whole.flips import with_flips
from reports.whole.papers import PAPERS, everything

FORMAT = 2
TABLE_FILES: dict[str, Callable[[Item], str]] = {".md": table_markdown, ".csv": table_csv, ".tex": table_latex}
DRAWING = ("matplotlib", "pandas")
EXPECTED_S = 15.0  # of an item that was never made
DAMAGED = "its file is damaged"


@dataclass(frozen=True)
class Entry:
    """One table or figure of a report, or why there is none. `seconds` is the time it took to make.

    `message` is why there is no item, or what is wrong with one that is there.
    """

    key: str
    item: Item | None
    message: str = ""
    seconds: float = 0.0
    reused: bool = False

    @property
    def paper(self) -> str:
        """The key of its paper."""
        return self.key.partition("/")[0]


class Kept(msgspec.Struct):
    """The file of one item."""

    format: int
    made_of: str
    kind: Literal["table", "plot", "failed"]
    seconds: float
    item: msgspec.Raw
    message: str = ""


def made_of(key: str, context: Context) -> str:
    """Hash of an item's inputs: sources, libraries, all printed numbers, the budget, the available graphs."""
    digest = hashlib.sha256(f"{FORMAT} {key} {context.seconds} {context.full} ".encode())
    digest.update(f"{code_version('harness', 'sims')} {versions(*COMPUTING, *DRAWING)} ".encode())
    for name in sorted(sources(PAPERS[key.partition("/")[0]].module)):
        digest.update(name.encode() + _source(name).read_bytes())
    for path in sorted(PUBLISHED.iterdir()):  # an item may read the numbers of other papers
        digest.update(path.name.encode() + path.read_bytes())
    for path in sorted(RESULTS.parent.rglob("*.*")):  # finished runs of studies, and what they are of
        if path.suffix not in (".csv", ".toml"):
            continue
        digest.update(path.name.encode() + path.read_bytes())
    for path in sorted(data_folder().rglob("*")):
        if path.is_file():
            state = path.stat()
            digest.update(f"{path.relative_to(data_folder())} {state.st_size} {state.st_mtime_ns}".encode())
    return digest.hexdigest()


@cache
def sources(module: str) -> frozenset[str]:
    """A module of this package with all modules of it that it imports, and those import."""
    reached, waiting = set[str](), [module, "reports.core.table"]
    while waiting:
        name = waiting.pop()
        if name in reached or not name.startswith("reports.") or not _source(name).is_file():
            continue
        reached.add(name)
        for node in ast.walk(ast.parse(_source(name).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                waiting += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
    return frozenset(reached)


def _source(module: str) -> Path:
    place = ROOT.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def finished_item(key: str, context: Context) -> Entry | None:
    """The finished item of a key; None if it is missing, damaged or out of date."""
    kept = _kept(_place(key, context))
    if kept is None or kept.kind == "failed" or kept.made_of != made_of(key, context):
        return None
    item = _decoded(kept, key, context.out)
    if item is None:
        return None
    paths = item.paths if isinstance(item, Plot) else tuple(_beside(key, context, suffix) for suffix in TABLE_FILES)
    if not all(path.is_file() for path in paths):
        return None
    return Entry(key, item, seconds=kept.seconds, reused=True)


def kept_entry(key: str, context: Context) -> Entry:
    """What the folder holds of a key, whatever it was made of; the message says what is wrong. Makes nothing."""
    place = _place(key, context)
    kept = _kept(place)
    if kept is None:
        return Entry(key, None, DAMAGED if place.exists() else "it was not made")
    if kept.kind == "failed":
        return Entry(key, None, kept.message or "it could not be made", kept.seconds)
    item = _decoded(kept, key, context.out)
    if item is None:
        return Entry(key, None, DAMAGED, kept.seconds)
    older = "" if kept.made_of == made_of(key, context) else "it was made of other code, data or --budget"
    return Entry(key, item, older, kept.seconds, reused=True)


def expected_seconds(key: str, context: Context) -> float:
    """Seconds that making an item took last time, from whatever inputs; `EXPECTED_S` where it was never made."""
    kept = _kept(_place(key, context))
    return EXPECTED_S if kept is None else kept.seconds


def produce(
    keys: Sequence[str], context: Context, engine: CellEngine, force: bool, begin: Callable[[int], None]
) -> Iterator[Entry]:
    """Yield every item: first the finished ones, then the others as an engine completes them.

    `begin` is called with the number of items that have to be made, before any is.
    """
    finished = {} if force else {key: entry for key in keys if (entry := finished_item(key, context)) is not None}
    todo = [key for key in keys if key not in finished]
    begin(len(todo))
    yield from finished.values()
    if not todo:
        return
    there = replace(context, out=context.out.absolute())
    call = partial(make, context=there, stamps={key: made_of(key, context) for key in todo})
    for key, message in engine.map(call, todo, lambda _: True):
        yield _read(key, message.why if isinstance(message, Died) else message, context)


def make(key: str, context: Context, stamps: Mapping[str, str]) -> str:
    """Make one item and write its files, in this process; returns "" or why it could not be made.

    Args:
        stamps: `made_of` by key, taken before: if an input changes while the item is made, it is made again next time.
    """
    begin, stamp = time.monotonic(), stamps[key]
    context = replace(context, out=context.out.absolute(), commands={}, fits={}, modelled={})
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as many items at a time as there are cores
    try:
        item = everything()[key](context)
        if item.key != key:
            raise ValueError(f"the function of {key} returned {item.key}")
        item = replace(item, fits=tuple(dict.fromkeys([*item.fits, *context.fits])))
        if context.modelled:
            item = with_flips(item, everything()[key], context)
    except Exception as error:
        message = _said(error)
        _write(key, context, stamp, "failed", None, time.monotonic() - begin, message)
        return message
    finally:
        torch.set_num_threads(threads)
    shared = tuple(line for line in shared_stand_ins(item.rows) if line not in item.assumptions)
    item = replace(
        item,
        commands=tuple(dict.fromkeys([*item.commands, *context.commands])),
        assumptions=(*item.assumptions, *shared),
    )
    _place(key, context).parent.mkdir(parents=True, exist_ok=True)
    if isinstance(item, PaperTable):
        for suffix, text in TABLE_FILES.items():
            write_atomically(_beside(key, context, suffix), text(item).encode())
    else:
        item = replace(item, paths=tuple(path.absolute().relative_to(context.out) for path in item.paths))
    _write(key, context, stamp, "table" if isinstance(item, PaperTable) else "plot", item, time.monotonic() - begin)
    return ""


def _said(error: Exception) -> str:
    """One line; with the source line for errors that are defects."""
    if isinstance(error, HaloscopeError):
        return " ".join(str(error).split())
    at = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(at.filename).name}:{at.lineno}"
    return " ".join(f"{type(error).__name__}: {error} ({where}; a defect)".split())


def _place(key: str, context: Context) -> Path:
    return context.out / f"{key}.json"


def _beside(key: str, context: Context, suffix: str) -> Path:
    return context.out / f"{key}{suffix}"


def _kept(path: Path) -> Kept | None:
    kept = kept_json(path, Kept)
    return kept if kept is not None and kept.format == FORMAT else None


def _write(
    key: str, context: Context, stamp: str, kind: str, item: Item | None, seconds: float, message: str = ""
) -> None:
    content = msgspec.json.encode(item, enc_hook=_plain)
    kept = {"format": FORMAT, "made_of": stamp, "kind": kind, "seconds": seconds, "message": message}
    place = _place(key, context)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(place, msgspec.json.encode({**kept, "item": msgspec.Raw(content)}))


def _plain(value: Any) -> Any:
    """Paths and numpy's numbers as JSON has them."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} in a table")


def _decoded(kept: Kept, key: str, out: Path) -> Item | None:
    """The item; None where it is damaged, or another one."""
    try:
        if kept.kind == "table":
            table = msgspec.json.decode(kept.item, type=PaperTable)
            return table if table.key == key else None
        plot = msgspec.json.decode(kept.item, type=Plot, dec_hook=lambda kind, value: kind(value))
    except (msgspec.DecodeError, RecursionError, TypeError, ValueError):
        return None
    return replace(plot, paths=tuple(out / path for path in plot.paths)) if plot.key == key else None


def _read(key: str, message: str, context: Context) -> Entry:
    kept = _kept(_place(key, context))
    item = None if message or kept is None else _decoded(kept, key, context.out)
    seconds = 0.0 if kept is None else kept.seconds
    return Entry(key, item, "" if item is not None else message or DAMAGED, seconds)


def check_places(out: Path) -> None:
    """Raise InputError where the report or its cache cannot be written, before any work is done."""
    for folder in (out, cache_root()):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write {folder}: {error.strerror}") from None
        if not os.access(folder, os.W_OK):
            raise InputError(f"cannot write {folder}: it is not writable")
