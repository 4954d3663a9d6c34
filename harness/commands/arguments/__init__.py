"""The flags of every command, checked and read into settings; imports nothing heavy, so that `--help` is at once.

`_parser` puts them together, and derives those of a run from the records of `RunConfig`; one module more per family of
commands.
"""

from harness.commands.arguments._parser import (
    COMMANDS,
    REAL_ONLY,
    RECORDED,
    check_settings,
    config_of,
    given_config,
    ignored_keys,
    parse_arguments,
    parsers,
    settings_given,
)

__all__ = [
    "COMMANDS",
    "REAL_ONLY",
    "RECORDED",
    "check_settings",
    "config_of",
    "given_config",
    "ignored_keys",
    "parse_arguments",
    "parsers",
    "settings_given",
]
