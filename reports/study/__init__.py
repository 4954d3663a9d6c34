"""Accuracy studies: fitted stand-ins, claims as data, runs that resume, and verdicts with intervals and power.

`designs/` says which stand-ins are fitted to which printed scores, `claims/` what is judged; `results/` holds a line
per finished run. Reports read the results; commands make them.
"""

from reports.statistics import FEWEST_SEEDS
from reports.study._cells import Store, StudyCell
from reports.study._claims import AccuracyClaim, ClaimFile, file_of, names, read_claims, read_file
from reports.study._effects import draw_effects
from reports.study._forecast import Forecast, cost_lines
from reports.study._items import EFFECTS, RESULTS, figure_of, found_of, results_of, store_of, table_of
from reports.study._kept_scores import kept_scores, study_run_settings
from reports.study._knobs import KNOBS, draw_parameters, moved, sweep
from reports.study._margins import band_text
from reports.study._needs import Need, NeededRuns, need_of, needed_runs
from reports.study._runs import BUDGET_SPENT, Runs, passing_cache
from reports.study._standins import Fitting, design_of, designs
from reports.study._study import MOST_SEEDS, ClaimFinding, Study, findings, verdict_counts

TABLES = {name: table_of(name) for name in names()}
FIGURES = {f"{name}-effects": figure_of(name) for name in names()}

__all__ = [
    "band_text",
    "read_file",
    "need_of",
    "needed_runs",
    "draw_effects",
    "Need",
    "NeededRuns",
    "Forecast",
    "ClaimFile",
    "EFFECTS",
    "BUDGET_SPENT",
    "FEWEST_SEEDS",
    "FIGURES",
    "KNOBS",
    "MOST_SEEDS",
    "RESULTS",
    "TABLES",
    "StudyCell",
    "AccuracyClaim",
    "ClaimFinding",
    "Fitting",
    "Runs",
    "Store",
    "Study",
    "cost_lines",
    "design_of",
    "designs",
    "draw_parameters",
    "file_of",
    "findings",
    "found_of",
    "kept_scores",
    "moved",
    "names",
    "passing_cache",
    "read_claims",
    "results_of",
    "study_run_settings",
    "store_of",
    "sweep",
    "verdict_counts",
]
