"""Devices: the cost of an operator from its shapes, and the memory that a rank needs.

Contains `presets/*.toml`, the roofline per class of operator, fits of measured operators, and live memory.
"""

from typing import TYPE_CHECKING

from harness.kernels.work import UNKNOWN, Work
from harness.lazily import lazy_names
from sims.device._cache import EVEN, CountedRates, GammaRates, Popularity, RowCache
from sims.device._costs import OperatorCost, fit_cost
from sims.device._profile import DEPTHS, STRENGTH, DeviceProfile, known_devices, load_device, save_device

if TYPE_CHECKING:
    from sims.device._memory import Fullest, LiveMemory, fullest
    from sims.device._operators import Operator
    from sims.device._shapes import Call, ShapeMemory, tensors_of
else:  # torch
    __getattr__ = lazy_names(
        __name__,
        {
            "_memory": ("Fullest", "LiveMemory", "fullest"),
            "_operators": ("Operator",),
            "_shapes": ("Call", "ShapeMemory", "tensors_of"),
        },
    )

__all__ = [
    "Call",
    "CountedRates",
    "DEPTHS",
    "DeviceProfile",
    "EVEN",
    "Fullest",
    "GammaRates",
    "LiveMemory",
    "Operator",
    "OperatorCost",
    "Popularity",
    "RowCache",
    "STRENGTH",
    "ShapeMemory",
    "UNKNOWN",
    "Work",
    "fit_cost",
    "fullest",
    "known_devices",
    "load_device",
    "save_device",
    "tensors_of",
]
