"""Times of collectives and of operators that others published, and their prediction. Nothing is fitted to collectives.

Contains `curves/*.csv` (bytes, microseconds), `curves.toml` (machine, operation, software and address of each),
`machines/*.toml` (clusters that are not among the shipped ones); the same of operators: `operators`, `operators.toml`,
`devices`.
"""

from sims.published._curves import CURVE_OPERATIONS, PublishedCurve, load_curves, machine_of
from sims.published._operators import OperatorTable, TimedOperator, load_operators, without_cache
from sims.published._predict import Errors, Prediction, errors_of, predict

__all__ = [
    "PublishedCurve",
    "Errors",
    "OperatorTable",
    "TimedOperator",
    "CURVE_OPERATIONS",
    "Prediction",
    "errors_of",
    "load_curves",
    "load_operators",
    "machine_of",
    "predict",
    "without_cache",
]
