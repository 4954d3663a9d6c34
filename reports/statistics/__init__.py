"""Verdicts on claims by intervals: paired differences, bands of values, Holm's correction, power, how many seeds.

Pure functions of numbers: nothing here knows of papers, graphs or files.
"""

from reports.statistics._estimate import CONFIDENCE, Estimate, estimate
from reports.statistics._holm import adjusted
from reports.statistics._power import power
from reports.statistics._seeds import more_seeds, seeds_needed
from reports.statistics._verdict import FEWEST_SEEDS, Band, Judgement, above, judged, p_value, within

__all__ = [
    "CONFIDENCE",
    "FEWEST_SEEDS",
    "Band",
    "Estimate",
    "Judgement",
    "above",
    "adjusted",
    "estimate",
    "judged",
    "more_seeds",
    "p_value",
    "power",
    "seeds_needed",
    "within",
]
