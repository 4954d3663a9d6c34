"""Writes `docs/methods.md`: one row and one section for every built-in method, from its facts, options and docstring.

python -m docs.generate.methods            # write the page
python -m docs.generate.methods --check    # exit code 1 if the page is not what would be written

A method states what its row needs in the section `In brief:` of its docstring (`STATED`), and every option in the
section `Options:`; `missing` names what a method does not state.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from docs.generate.pages import BAR, write_or_check
from harness.methods.bases.base import Facts, Method, options_text
from harness.methods.registry import METHODS
from harness.registry import option_fields, syntax

PAGE = Path(__file__).resolve().parent.parent / "methods.md"
HEAD = ("method", "cut", "exact", "age of rows", "travels", "bytes", "memory", "options", "source", "file")
STATED = ("travels", "bytes", "memory")
"""What the section `In brief:` of a method's docstring has to state; `staleness` where the facts' number is not all."""
SECTIONS = ("In brief", "Options")
CUTS = {"none": "nothing (one device)", "edge": "edges", "vertex": "vertices", "overlap": "overlapping parts"}
TITLE = re.compile(rf"({'|'.join(SECTIONS)}):")
ENTRY = re.compile(r" {4}(\w[\w, ]*): (.*)")


def section(kind: type, title: str) -> dict[str, str]:
    """The entries of one section of a class's own docstring by name; several names may share a text."""
    found, names, inside = dict[str, str](), list[str](), False
    for line in (inspect.getdoc(kind) or "").splitlines():
        entry = ENTRY.fullmatch(line)
        if not line.startswith(" "):
            inside = line == f"{title}:"
        elif inside and entry is not None:
            names = entry[1].split(", ")
            found |= dict.fromkeys(names, entry[2])
        elif inside:
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found


def prose(kind: type) -> list[str]:
    """The lines of a class's docstring outside the sections."""
    kept, inside = list[str](), False
    for line in (inspect.getdoc(kind) or "").splitlines():
        inside = bool(TITLE.fullmatch(line)) or (inside and (line.startswith(" ") or not line))
        if not inside:
            kept.append(line)
    while kept and not kept[-1]:
        kept.pop()
    return kept


def meanings(kind: type[Method]) -> dict[str, str]:
    """What every described option means, by the docstrings of the class and of those that it inherits from."""
    found = dict[str, str]()
    for base in reversed(kind.__mro__):
        if base is not object and "__doc__" in vars(base):
            found |= section(base, "Options")
    return {name: found[name] for name in option_fields(kind) if name in found}


def missing(name: str, kind: type[Method]) -> list[str]:
    """What a method has to state and does not, a line each."""
    brief, described = section(kind, "In brief"), meanings(kind)
    found = [f"{name}: `{key}` in the section `In brief:` of its docstring" for key in STATED if not brief.get(key)]
    found += [f"{name}: no `{key}` is expected in `In brief:`" for key in brief if key not in (*STATED, "staleness")]
    found += [
        f"{name}: `{option}` in the section `Options:`" for option in option_fields(kind) if option not in described
    ]
    return found + [f"{name}: the source, `paper` of its facts"] * (not kind.facts.paper)


def page() -> str:
    """The whole page."""
    known = METHODS.own()
    lines = [*_introduction(), *_row(HEAD), *_row(("---",) * len(HEAD))]
    for name, kind in known.items():
        lines += _row(cells(name, kind))
    for name, kind in known.items():
        lines += _section(name, kind)
    return "\n".join(lines).rstrip() + "\n"


def _introduction() -> Iterator[str]:
    yield "# Methods"
    yield ""
    yield "Made from the methods' facts, options and docstrings, by `make reference`; not written by hand."
    yield "`haloscope methods NAME` prints the same of one method, also of other packages."
    yield ""
    yield "Bytes are those of one epoch, over all ranks, in fp32. d is the width of a row that a layer exchanges, P"
    yield "the number of ranks; a halo row is the row of a node at a rank that reads but does not own it. With"
    yield "several ranks, gradients and the loss are summed besides: 8 (P - 1) (parameters + 1) bytes. Whether layer"
    yield "0 exchanges is the option `layer0`. Exact are gradients that equal those of one process with the whole"
    yield "graph. Age is in epochs."
    yield ""


def _row(cells: tuple[str, ...]) -> list[str]:
    escaped = (cell.replace("|", BAR) for cell in cells)
    return [f"| {' | '.join(escaped)} |"]


def cells(name: str, kind: type[Method]) -> tuple[str, ...]:
    """One row of the table, as `HEAD` names it."""
    brief, facts = section(kind, "In brief"), kind.facts
    age = brief.get("staleness", str(facts.staleness))
    options = ", ".join(f"`{option}`" for option in option_fields(kind))
    stated = (brief.get(key, "not stated") for key in STATED)
    return (
        f"[`{name}`](#{name})",
        CUTS[facts.cut],
        _exact(facts, kind),
        age,
        *stated,
        options,
        facts.paper,
        _file(kind),
    )


def _exact(facts: Facts, kind: type[Method]) -> str:
    """When gradients are exact, and what is promised where they are not."""
    fields = option_fields(kind)
    when = facts.exact_when or facts.vanishes_with
    default = all(str(fields[option].default) == str(value) for option, value in when.items())
    found = "yes" if facts.exact else "no"
    if when:
        found = f"with `{options_text(when)}`{' (default)' * default}"
    promised = {"unbiased": facts.unbiased, "error bounded": facts.bounded, "error compensated": facts.compensated}
    return ", ".join([found, *(word for word, holds in promised.items() if holds)])


def _file(kind: type[Method]) -> str:
    path = f"{kind.__module__.replace('.', '/')}.py"
    return f"[`{path.rpartition('/')[2]}`](../{path})"


def _section(name: str, kind: type[Method]) -> Iterator[str]:
    """What the docstring says, and every option with its default."""
    yield ""
    yield f"## {name}"
    yield ""
    yield from prose(kind)
    yield ""
    yield f"`--method {syntax(name, kind)}`"
    described = list(options_lines(kind))
    if described:
        yield ""
    yield from described


def options_lines(kind: type[Method]) -> Iterator[str]:
    """A line for every meaning, with the options that share it."""
    described = meanings(kind)
    for text in dict.fromkeys(described.values()):
        sharing = (f"`{option}`" for option, its in described.items() if its == text)
        yield f"- {', '.join(sharing)}: {text}"


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or with --check compare it."""
    return write_or_check(page(), PAGE, arguments, __doc__ or "", "what the methods state")


if __name__ == "__main__":
    sys.exit(main())
