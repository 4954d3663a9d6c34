"""Verdicts on claims by intervals: paired differences, bands, the rate of wrong verdicts, power, how many seeds.

Pure functions of numbers: nothing here knows of papers, graphs or files.
"""

from reports.statistics._discoveries import adjusted, interval_level
from reports.statistics._estimate import CONFIDENCE, Estimate, estimate
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
    "interval_level",
    "judged",
    "more_seeds",
    "p_value",
    "power",
    "seeds_needed",
    "within",
]
