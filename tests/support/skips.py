"""Limits of the numbers of skipped tests by reason, in a run of the whole suite."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import pytest

BUDGET = {
    r"needs a (CUDA device|GPU)": 38,
    r"kernels are compiled in this process": 29,
    r"no Triton on this machine": 400,
    r"options that do not go together": 2,
    r"says what happens without a GPU": 2,
    r"no real graphs in ": 60,
    r"no reference scenarios at ": 3,
    r"no lab here: ": 60,
    r"no Chromium on this machine": 15,
    r"not a git checkout": 1,
    r"this system has no affinity|looks for orphans in /proc|reads Linux's list of processes|no mallopt": 5,
    r"no C compiler": 4,
}
"""Pattern of a reason -> most tests that may be skipped for it; to be raised with every such test."""


def over(reasons: Sequence[str]) -> list[str]:
    """Reasons with more skips than their limit, or without a limit."""
    counts: Counter[str] = Counter()
    for reason in reasons:
        counts[next((pattern for pattern in BUDGET if re.search(pattern, reason)), reason)] += 1
    return [
        f"{what}: {n} tests, {BUDGET.get(what, 0)} allowed" for what, n in counts.items() if n > BUDGET.get(what, 0)
    ]


def whole(config: pytest.Config) -> bool:
    """Whether this process reports on all tests: not a worker, and no files or names selected."""
    chosen = config.option.keyword or any(str(arg) != "tests" for arg in config.args)
    return not hasattr(config, "workerinput") and not chosen
