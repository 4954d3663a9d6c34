"""The settings of a run for which a user has given none, on a command line or as keywords."""

from __future__ import annotations

from harness.config._spec import RunConfig

COMMAND_DEFAULTS = RunConfig.of(order="auto")
"""What commands and keywords start from: each layer in its cheaper order. The records' own defaults, from which
reports and studies start, train every method in the order of its own system, as the papers did."""
