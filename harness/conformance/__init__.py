"""Checks that a method has the properties that its `Facts` declare: each fact selects checks.

Methods run in process on small graphs, without clusters or further processes. The reference is one process on the whole
graph with dense matrices.
"""

from harness.conformance._ground import Ground
from harness.conformance._reference import adjacency, dense_forward, reference_gradients
from harness.conformance._rounds import NotKept
from harness.conformance._suite import CHECKS, Check, CheckResult, checks, claimed, conform, selected

__all__ = [
    "CHECKS",
    "Check",
    "Ground",
    "NotKept",
    "CheckResult",
    "adjacency",
    "checks",
    "claimed",
    "conform",
    "dense_forward",
    "reference_gradients",
    "selected",
]
