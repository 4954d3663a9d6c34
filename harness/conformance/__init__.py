"""Whether a method keeps what its `Facts` promise: each fact selects checks, each check says what is not kept.

Runs methods in process on small graphs; knows no cluster and starts no process. The reference is one process on the
whole graph in dense matrices.
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
