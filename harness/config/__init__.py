"""The frozen configuration of one run, and the names of labs: values that flags, TOML files and result files share.

Imports nothing heavy, so that `haloscope --help` is quick. Open to every folder.
"""

from harness.config._lab import (
    ACKNOWLEDGED,
    AHEAD_BYTES,
    MTU,
    PAYLOAD_SHARE,
    QUEUE_S,
    LabSpec,
    burst,
    framing_rate,
    is_lab,
    parse_lab,
    segment,
)
from harness.config._modes import MEASURED_ONLY, in_mode, in_modes
from harness.config._reading import check, from_mapping, from_record, from_toml, laid_over
from harness.config._records import (
    ClusterConfig,
    CutConfig,
    DataConfig,
    ExecutionConfig,
    Mode,
    ModelConfig,
    TrainingConfig,
)
from harness.config._spec import BESIDE_RUNS, RUN_SETTINGS, RunConfig
from harness.config._typed import COMMAND_DEFAULTS

__all__ = [
    "ACKNOWLEDGED",
    "AHEAD_BYTES",
    "BESIDE_RUNS",
    "COMMAND_DEFAULTS",
    "ClusterConfig",
    "CutConfig",
    "DataConfig",
    "ExecutionConfig",
    "LabSpec",
    "MEASURED_ONLY",
    "MTU",
    "Mode",
    "ModelConfig",
    "PAYLOAD_SHARE",
    "QUEUE_S",
    "RunConfig",
    "RUN_SETTINGS",
    "TrainingConfig",
    "burst",
    "check",
    "from_mapping",
    "from_record",
    "from_toml",
    "framing_rate",
    "in_mode",
    "in_modes",
    "is_lab",
    "laid_over",
    "parse_lab",
    "segment",
]
