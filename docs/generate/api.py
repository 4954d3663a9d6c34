"""Writes the list of `docs/api.md`: signature and first sentence of what people import, by package.

python -m docs.generate.api            # write the list
python -m docs.generate.api --check    # exit code 1 if the page does not have what would be written
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from docs.generate.pages import between_marks, write_or_check

PAGE = Path(__file__).resolve().parent.parent / "api.md"
MARK = "python -m docs.generate.api"
WIDTH = 110
"""Characters of a line of a signature."""

PLAIN = (bool, int, float, str, type(None))
"""Types of defaults that a signature shows."""

ENTRIES = {
    "harness": "run compare what_if advise partition_graph load_results Config InputError",
    "harness.commands.python.outcomes": "RunOutcome Comparison WhatIf CutResult",
    "harness.running": "open_run run run_opened plan_of prepare OpenedRun Plan Prepared",
    "harness.running.results": "load_result collect Result Collected",
    "harness.running.summary": "row_of comparison",
    "harness.running.sweep": "read_sweep",
    "harness.datasets": "load write_graph known_datasets",
    "harness.graphs": "from_edges from_csr Graph",
    "harness.partition": "partitioned parse_partitioner",
    "harness.methods.registry": "parse_method",
    "harness.methods.bases.base": "Method Facts",
    "harness.nn": "build_model",
    "harness.conformance": "conform",
    "harness.trackers": "export_records",
    "sims.cluster": "load_cluster known_clusters place varied file_of_line",
    "sims.device": "load_device save_device known_devices fit_cost",
    "sims.network": "schedule fair_shares Schedule",
    "sims.replay": "record record_placed Replay traced load_recording settled_epochs",
    "sims.study": "open_driver variants kept_recording Explorer run_file",
    "sims.uncertainty": "predicted interval_of inputs_of Draws",
    "sims.explain": "critical_path influences without at_pace",
    "real.launch": "run_rank launch measured_timeline script manifest",
    "real.rank": "run_program",
    "real.lab": "built links run_on_first abilities",
    "real.measure.calibrate": "calibrate_to calibrate_gpu_to",
    "reports.advice": "make_advice Advice",
    "reports.study": "read_claims Study findings Store Fitting",
    "reports.statistics": "estimate judged power seeds_needed",
    "reports.draw.figures": "breakdown_figure breakdown_and_accuracy",
    "reports.draw.what_if": "what_if_figure",
    "reports.draw.timeline": "timeline",
    "reports.draw.heatmap": "link_heatmap completion",
    "reports.draw.validation": "write_validation",
    "reports.draw.advice": "advice_figure",
    "reports.live": "live_page",
}
"""Module -> the names that people import from it. A door (`__init__`) stands for its folder."""


def listing() -> str:
    """Every entry of `ENTRIES`, by module."""
    lines: list[str] = []
    for module, names in ENTRIES.items():
        held = import_module(module)
        lines += [f"## {module}", "", first_sentence(held), ""]
        for name in names.split():
            lines += [*_entry(module, name, getattr(held, name)), ""]
    return "\n".join(lines)


def _entry(module: str, name: str, thing: Any) -> Iterator[str]:
    """Signature, first sentence and file of a function or class, and what a class has."""
    yield f"### {module}.{name}"
    yield ""
    yield f"```python\n{_signature(name, thing)}\n```"
    yield ""
    place = f"{thing.__module__.replace('.', '/')}"
    path = f"{place}.py" if (PAGE.parent.parent / f"{place}.py").exists() else f"{place}/__init__.py"
    yield f"{first_sentence(thing)} ([`{path}`](../{path}))"
    if inspect.isclass(thing):
        described = _attributes(thing)
        members = list(_members(thing))
        if described or members:
            yield ""
        yield from (f"- `.{attribute}`: {text}" for attribute, text in described.items())
        yield from members


def first_sentence(thing: Any) -> str:
    """The first sentence of a docstring, in one line."""
    paragraph = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    sentence = re.match(r".*?(?<!al)(?<!e\.g)(?<!i\.e)[.](?= [A-Z`]|$)", paragraph)
    return sentence[0] if sentence else paragraph


def _attributes(kind: type) -> dict[str, str]:
    """The section `Attributes:` of a class's docstring."""
    _, _, section = (inspect.getdoc(kind) or "").partition("\nAttributes:\n")
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        entry = re.fullmatch(r" {4}(\w[\w, ]*): (.*)", line)
        if not line.startswith("    "):
            break
        if entry:
            names = entry[1].split(", ")
            found |= dict.fromkeys(names, entry[2])
        else:
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found


def _members(kind: type) -> Iterator[str]:
    """Public methods and properties that a class defines, with their first sentences."""
    for name, member in vars(kind).items():
        inner = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if name.startswith("_") or not (inspect.isfunction(inner) or isinstance(inner, property)):
            continue
        said = f": {first_sentence(inner)}" if inspect.getdoc(inner) else ""
        yield f"- `.{name}{'' if isinstance(inner, property) else '(...)'}`{said}"


def _signature(name: str, thing: Any) -> str:
    """A call with types and defaults; of an error its name alone."""
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        return name
    signature = inspect.signature(thing)
    shown = list(_parameters(signature, thing))
    returned = "" if inspect.isclass(thing) else f" -> {_type(signature.return_annotation)}"
    line = f"{name}({', '.join(shown)}){returned}"
    return line if len(line) <= WIDTH else "\n".join([f"{name}(", *(f"    {each}," for each in shown), f"){returned}"])


def _parameters(signature: inspect.Signature, thing: Callable[..., Any]) -> Iterator[str]:
    """Parameters as they are written, with the stars between."""
    made = (
        {each.name for each in fields(thing) if each.default_factory is not MISSING} if is_dataclass(thing) else set()
    )
    keyword_only = False
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            yield "*"
        keyword_only |= each.kind is each.VAR_POSITIONAL
        stars = "*" * (each.kind is each.VAR_POSITIONAL) + "**" * (each.kind is each.VAR_KEYWORD)
        typed = "" if each.annotation is each.empty else f": {_type(each.annotation)}"
        default = "" if each.default is each.empty else f" = {'...' if each.name in made else _default(each.default)}"
        yield f"{stars}{each.name}{typed}{default}"


def _default(value: Any) -> str:
    """A default as it is written; dots for what is no plain value."""
    if isinstance(value, float):
        return repr(float(f"{value:.12g}"))
    return repr(value).replace("'", '"') if isinstance(value, PLAIN) else "..."


def _type(annotation: Any) -> str:
    return (
        annotation if isinstance(annotation, str) else re.sub(r"(?:\w+\.)+", "", inspect.formatannotation(annotation))
    )


def main(arguments: list[str] | None = None) -> int:
    """Write the list into the page, or with --check compare it."""
    page = between_marks(PAGE.read_text(), MARK, listing())
    return write_or_check(page, PAGE, arguments, __doc__ or "", "what the code says")


if __name__ == "__main__":
    sys.exit(main())
