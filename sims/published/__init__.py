"""Times of collectives that others published, and their prediction from data sheets. Nothing is fitted to them.

Contains `curves/*.csv` (bytes, microseconds), `curves.toml` (machine, operation, software and address of each) and
`machines/*.toml` (clusters that are not among the shipped ones).
"""

from sims.published._curves import CURVE_OPERATIONS, PublishedCurve, load_curves, machine_of
from sims.published._predict import Errors, Prediction, errors_of, predict

__all__ = [
    "PublishedCurve",
    "Errors",
    "CURVE_OPERATIONS",
    "Prediction",
    "errors_of",
    "load_curves",
    "machine_of",
    "predict",
]
