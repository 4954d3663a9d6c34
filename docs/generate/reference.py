"""Writes `docs/reference.md`: every key of run, cluster, device, transport and workload files, from the records.

python -m docs.generate.reference            # write the page
python -m docs.generate.reference --check    # exit code 1 if the page is not what would be written
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from docs.generate.pages import table_lines, write_or_check
from harness.config import COMMAND_DEFAULTS, RunConfig
from harness.keys import default_of, records_in
from harness.workloads import Description
from sims.cluster import ClusterFile
from sims.device import DeviceProfile
from sims.records import Content, path_of
from sims.transport import TransportFile
from sims.units import SOURCES, SPREADS, UNITS, Quantity, format_quantity

DOCS = Path(__file__).resolve().parent.parent
PAGE = DOCS / "reference.md"
EXAMPLES = {name: f"docs/examples/{name}.toml" for name in ("run", "sweep", "workload", "cluster", "device")} | {
    "transport": "sims/transport/presets/nccl.toml"
}
MOST_SHOWN = 40  # lines of an example; of a longer one its first tables
HEAD = ("key", "type", "unit", "default", "meaning")
LEFT_OUT = " The table may be left out."
SCALARS = {str: "text", int: "whole number", float: "number", bool: "true or false"}

SWEEPS = """\
`haloscope sweep FILE` runs every combination of the values on all axes, each a cell; with `--dry-run` it counts the
cells and estimates their time."""
SWEEP_TABLES = """\
* `[run]`: what all cells share, keys of run files with the same defaults.
* `[grid]`: the axes, each a key of run files or an option of a method (here `bits` and `p`) with a value or a list of
  them. An option is an axis of those methods only that have it. `[[grid]]`, several times, makes several grids.
* `[cluster]`: changes to the cluster's file, keys of [cluster files](#cluster-files); a list is an axis. All cells
  must have `mode = "sim"`.

Equal cells run once: a method that keeps the graph whole, such as `single`, runs on one part, whatever `parts` says.
Speed-ups are over the first method with equal values on all axes but options of methods; a first method that keeps
the graph whole is the base for any number of parts. The folder `sweeps/NAME` (`--out`) has a JSON file for every
cell, which is then not run again, and all rows as `sweep.csv` and `sweep.parquet`."""


@dataclass
class Section:
    """One table of the page: a table of a file, the remark above it, and a row per key."""

    title: str
    remark: str = ""
    rows: list[tuple[str, str, str, str, str]] = field(default_factory=list)


def page() -> str:
    """The whole page."""
    return "\n".join([*_introduction(), *_run(), *_sweep(), *_workload(), *_modelled()]).rstrip() + "\n"


def _introduction() -> Iterator[str]:
    yield "# Reference of the files"
    yield ""
    yield "Made from the records that read the files, by `make reference`; not written by hand."
    yield ""
    yield "Every file is TOML (a workload may be JSON). An unknown key is an error that names the nearest known one."
    yield ""
    yield "| file | read by | example |"
    yield "|---|---|---|"
    for name, by in (
        ("run", "`haloscope run --config FILE`"),
        ("sweep", "`haloscope sweep FILE`"),
        ("workload", "`--dataset FILE --shapes-only --mode sim`, or `workload:NAME`"),
        ("cluster", "`--cluster FILE`, or a name of `haloscope clusters`"),
        ("device", "`hosts.device` of a cluster file"),
        ("transport", "clusters whose transport is `nccl`"),
    ):
        yield f"| [{name}](#{name}-files) | {by} | [`{EXAMPLES[name]}`](../{EXAMPLES[name]}) |"
    yield ""


def _run() -> Iterator[str]:
    yield from _file("run", "The keys are the flags of `haloscope run`, with underscores for dashes; a flag wins.")
    yield from _table(Section("", rows=list(_plain_rows(RunConfig, COMMAND_DEFAULTS.flat()))))


def _sweep() -> Iterator[str]:
    yield from _file("sweep", SWEEPS)
    yield from SWEEP_TABLES.splitlines()
    yield ""


def _workload() -> Iterator[str]:
    yield from _file(
        "workload",
        "What the counts mean is in [workloads.md](workloads.md). A number may say where it is from, as\n"
        '`{ value = 1000, from = "published", note = "Table 1" }`; `from` is published, derived, measured, assumed or '
        "given.",
    )
    for section in _plain_sections(Description):
        yield from _table(section)


def _modelled() -> Iterator[str]:
    yield "## Numbers of cluster, device and transport files"
    yield ""
    yield 'A number with a unit is a text, `"25 GB/s"`, and is then assumed; or it says where it is from:'
    yield '`{ value = "25 GB/s", from = "datasheet", note = "x16" }`. `from` is ' + _listed(SOURCES) + "."
    yield 'A `range`, as in `{ value = "10 us", from = "assumed", range = "5 us..30 us" }`, holds the number with 90 %;'
    spreads = ", ".join(f"{factor:g} ({source})" for source, factor in SPREADS.items())
    yield f"without one it lies within a factor that belongs to its source: {spreads}."
    yield ""
    yield "| type | units |"
    yield "|---|---|"
    for dimension, units in UNITS.items():
        yield f"| {dimension} | {', '.join(f'`{unit}`' for unit in units)} |"
    yield "| number | none: a plain number |"
    yield ""
    for name, record, remark in (
        ("cluster", ClusterFile, "Any key can be changed in place: `--cluster NAME:links.nic.bandwidth=40Gb/s`."),
        ("device", DeviceProfile, "`haloscope calibrate` measures one."),
        ("transport", TransportFile, "The library's own tuning model; the other libraries have no file."),
    ):
        yield from _file(name, remark)
        for section in _sections(record, ""):
            yield from _table(section)


def _file(name: str, remark: str) -> Iterator[str]:
    yield f"## {name.capitalize()} files"
    yield ""
    yield remark
    yield ""
    yield "```toml"
    lines = (DOCS.parent / EXAMPLES[name]).read_text().splitlines()
    end = len(lines) if len(lines) <= MOST_SHOWN else lines.index("", 8)
    yield from lines[:end]
    yield from [] if end == len(lines) else ["", "# and so on"]
    yield "```"
    yield ""


def _table(section: Section) -> Iterator[str]:
    if section.title:
        yield f"### {section.title}"
        yield ""
    if section.remark:
        yield section.remark
        yield ""
    if section.rows:
        yield from table_lines(HEAD, section.rows)
        yield ""


# -- records that msgspec fills: run, workload -------------------------------------------------------------------------


def _plain_rows(record: type, defaults: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str, str]]:
    """A row per key; a group of keys that is a record of its own in the code, but no table in the file, is opened."""
    types = get_type_hints(record)
    for member in fields(record):
        if is_dataclass(types[member.name]):
            yield from _plain_rows(types[member.name], defaults)
        else:
            name, unit = member.metadata.get("key", member.name), member.metadata.get("unit", "")
            yield f"`{name}`", _spelled(types[member.name]), unit, _default(member, defaults), member.metadata["help"]


def _plain_sections(record: type, title: str = "", remark: str = "") -> Iterator[Section]:
    """A section per table of the file, the record's own first."""
    types, own, inner = get_type_hints(record), Section(title, remark), []
    for member in fields(record):
        found, help = list(records_in(types[member.name])), member.metadata["help"]
        name = f"{title.strip('`[]')}.{member.name}".strip(".")
        if not is_dataclass(types[member.name]):
            unit = member.metadata["unit"]
            own.rows.append((f"`{member.name}`", _spelled(types[member.name]), unit, _default(member), help))
        inner += [(each, name, help) for each in found]
    if own.rows:
        yield own
    for each in dict.fromkeys(each for each, _, _ in inner):
        names = [name for found, name, _ in inner if found is each]
        help = " ".join((each.__doc__ or "").split())
        yield from _plain_sections(each, ", ".join(f"`[{name}]`" for name in names), help)


def _spelled(annotation: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in SCALARS:
        return SCALARS[annotation]
    if origin is Literal:
        return " or ".join(f'`"{value}"`' for value in arguments)
    if origin is list:
        return "list of " + _many(_spelled(arguments[0]))
    if origin is tuple:
        return "pair of " + _many(_spelled(arguments[0]))
    if isinstance(annotation, type) and is_dataclass(annotation):
        return "table"
    return " or ".join(_spelled(each) for each in arguments if each is not NoneType)


def _many(words: str) -> str:
    first, of, rest = words.partition(" of ")
    return f"{first}s{of}{rest}"


# -- records that sims.records fills: cluster, device, transport -------------------------------------------------------


def _sections(
    record: type, path: str, remark: str = "", defaults: Mapping[str, Any] | None = None
) -> Iterator[Section]:
    """A section per table of the file, the record's own first; keys that are tables have sections of their own."""
    own, groups, needed = Section(f"`[{path}]`" if path else "", remark), dict[str, Section](), set()
    kinds: dict[str, Content] = {member.name: member.metadata["kind"] for member in fields(record)}
    nothing_else = bool(path) and all(_is_table(kind) for kind in kinds.values())
    for member in fields(record):
        inside, _, name = path_of(member).rpartition(".")
        row = _row(name, kinds[member.name], _default(member, defaults or {}), member.metadata["help"])
        if inside:
            groups.setdefault(inside, Section(f"`[{inside}]`", LEFT_OUT.strip())).rows.append(row)
            needed |= {inside} if default_of(member) is MISSING else set()
        elif not _is_table(kinds[member.name]) or nothing_else:
            own.rows.append(row)
    yield own
    yield from (
        Section(group.title, "" if name in needed else group.remark, group.rows) for name, group in groups.items()
    )
    records = [kind.record for kind in kinds.values()]
    for number, (member, kind) in enumerate(zip(fields(record), kinds.values(), strict=True)):
        if kind.record is None or records.count(kind.record) == 1:
            yield from _inner(member, kind, f"{path}.{member.name}".strip("."), _default(member, defaults or {}))
        elif records.index(kind.record) == number:
            yield from _sections(
                kind.record, f"{path}.KIND", "Every kind that has no section of its own.", {"tier": "by kind"}
            )


def _is_table(kind: Content) -> bool:
    """Whether a key holds a table that has a section of its own."""
    return bool(kind.rows) or kind.record is not None


def _inner(member: Field[Any], kind: Content, name: str, default: str) -> Iterator[Section]:
    """The sections of a key that holds a table."""
    remark = f"{member.metadata['help'][0].upper()}{member.metadata['help'][1:]}."
    remark += "" if default == "needed" else LEFT_OUT
    if kind.record is not None:
        of = kind.each if kind.free and kind.each is not None else kind
        yield from _sections(kind.record, f"{name}.NAME" if kind.free else name, remark, of.defaults)
    elif kind.rows and kind.each is not None:
        rest = "needed" if kind.all_needed else "absent"
        yield Section(f"`[{name}]`", remark, [_row(row, kind.each, rest, words) for row, words in kind.rows.items()])


def _row(name: str, kind: Content, default: str, help: str) -> tuple[str, str, str, str, str]:
    tier = kind.defaults.get("tier")
    unit = kind.unit or (kind.each.unit if kind.each is not None else "")
    words = help + (f' (tier `"{tier}"`)' if tier else "")
    return f"`{name}`", re.sub(r'"\w+"', r"`\g<0>`", kind.words), next(iter(UNITS.get(unit, {"": 1.0}))), default, words


def _default(member: Field[Any], defaults: Mapping[str, Any] | None = None) -> str:
    """The default of a key."""
    value = (defaults or {}).get(member.name, default_of(member))
    if isinstance(value, str) and value == "by kind":
        return value
    if member.metadata.get("together"):
        return "needed"
    if member.metadata.get("shown"):
        return str(member.metadata["shown"])
    if value is MISSING:
        return "needed"
    if isinstance(value, Quantity):
        dimension = member.metadata["unit"]
        return f"{value.value:g}" if dimension == "number" else format_quantity(value.value, dimension)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value is None or value in ([], {}) or is_dataclass(value):
        return "absent"
    return f'`"{value}"`' if isinstance(value, str) else f"{value:g}"


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words[:-1]) + f" or {words[-1]}"


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or with --check compare it."""
    return write_or_check(page(), PAGE, arguments, __doc__ or "", "what the records say")


if __name__ == "__main__":
    sys.exit(main())
