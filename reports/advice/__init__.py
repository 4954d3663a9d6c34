"""Advice: which method, on how many devices, reaches a target score first on a cluster; with the evidence.

Candidates are timed by recording and replay (`sims.replay`), trained in loopback with paired seeds, and most of them
dropped early. `make_advice` returns the result object; the command prints it.
"""

from reports.advice._advise import Advice, make_advice
from reports.advice._candidates import TRIED_METHODS, Candidate
from reports.advice._choices import CandidateOutcome, Recommendation
from reports.advice._progress import Tell
from reports.advice._question import Question

__all__ = [
    "TRIED_METHODS",
    "Advice",
    "Candidate",
    "CandidateOutcome",
    "Question",
    "Tell",
    "Recommendation",
    "make_advice",
]
