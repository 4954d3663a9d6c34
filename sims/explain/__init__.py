"""Where a predicted epoch comes from: its critical path over ranks and links, and the inputs that it depends on."""

from sims.explain._critical_path import SOFTWARE, CriticalPath, Step, critical_path
from sims.explain._influence import STEP, Influence, influences

__all__ = ["SOFTWARE", "STEP", "Influence", "CriticalPath", "Step", "critical_path", "influences"]
