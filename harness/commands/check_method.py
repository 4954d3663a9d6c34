"""`haloscope check-method`: checks that a method, built in or of another package, has the properties it declares."""

from __future__ import annotations

import argparse

from rich.table import Table

from harness.commands.shared.tables import table
from harness.conformance import CheckResult, Ground, checks, conform
from harness.console import StepLines, show, stdout
from harness.methods.registry import parse_method


def main(args: argparse.Namespace) -> int:
    """Run every check that the method's facts select; returns 1 if one fails."""
    method = parse_method(args.method)
    found = conform(method, Ground(quick=args.quick))
    selected = checks(method)
    steps, outcomes = StepLines([1.0] * len(selected), args.quiet), list[CheckResult]()
    for check in selected:
        steps.begin(check.name)
        outcomes.append(next(found))
    failed = [f"{o.check}: {o.message}" for o in outcomes if not o.passed]
    show(failed if args.quiet else [_table(args.method, outcomes), *failed], stdout())
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _table(method: str, outcomes: list[CheckResult]) -> Table:
    rows = [
        [", ".join(o.facts) or "-", o.check, "passed" if o.passed else "FAILED", f"{o.seconds:.1f}"] for o in outcomes
    ]
    return table(f"{method}: declared properties", ["fact", "check", "outcome", "s"], rows, left=3)
