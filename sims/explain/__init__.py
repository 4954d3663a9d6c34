"""Where a predicted epoch comes from: its critical path over ranks and links, the inputs that it depends on, and what
every mechanism of the model adds to it."""

from sims.explain._ablation import MECHANISMS, at_pace, without
from sims.explain._critical_path import SOFTWARE, CriticalPath, Step, critical_path
from sims.explain._influence import STEP, Influence, influences, replays_of_influences

__all__ = [
    "MECHANISMS",
    "SOFTWARE",
    "STEP",
    "Influence",
    "CriticalPath",
    "Step",
    "at_pace",
    "critical_path",
    "influences",
    "replays_of_influences",
    "without",
]
