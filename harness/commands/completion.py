"""`haloscope completion`: a script that completes commands, flags, choices and names in bash, zsh or fish.

The script holds all words, so that completing starts no Python.
"""

from __future__ import annotations

import argparse
import re

from harness.commands.arguments import COMMANDS, parsers
from harness.console import show, stdout

NAMES = ("method", "methods", "partitioner", "cluster", "dataset", "model")
"""Flags whose values are names that are found when the script is written."""


def main(args: argparse.Namespace) -> int:
    """Write the script of a shell to stdout."""
    words = {name: _flags(parser) for name, parser in parsers()[1].items()}
    made = {"bash": bash, "zsh": zsh, "fish": fish}[args.shell](words)
    show(made.splitlines(), stdout())
    return 0


ShellWords = dict[str, dict[str, list[str]]]
"""Command -> flag -> its values; none where any text or file fits."""


def bash(words: ShellWords) -> str:
    """A function for `complete`, which also completes the last of several values with commas between."""
    cases = [
        f'    "{command} {flag}") values="{" ".join(values)}" ;;'
        for command, flags in words.items()
        for flag, values in flags.items()
        if values
    ]
    flags = [f'    {command}) flags="{" ".join(flags)}" ;;' for command, flags in words.items()]
    return "\n".join(
        [
            "_haloscope() {",
            '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[1]}"',
            '  local values="" flags="" last="${cur##*,}"',
            "  COMPREPLY=()",
            '  if [ "$COMP_CWORD" -eq 1 ]; then',
            f'    COMPREPLY=($(compgen -W "{" ".join(COMMANDS)} --help --version" -- "$cur"))',
            "    return",
            "  fi",
            '  case "$command $prev" in',
            *cases,
            "  esac",
            '  if [ -n "$values" ]; then',
            '    COMPREPLY=($(compgen -P "${cur%"$last"}" -W "$values" -- "$last"))',
            "    return",
            "  fi",
            '  case "$command" in',
            *flags,
            "  esac",
            '  if [[ "$cur" == -* ]]; then COMPREPLY=($(compgen -W "$flags" -- "$cur")); fi',
            "}",
            "complete -o default -F _haloscope haloscope",
        ]
    )


def zsh(words: ShellWords) -> str:
    """The same function, through zsh's own support of bash's completions."""
    return "\n".join(
        ["autoload -U +X compinit && compinit", "autoload -U +X bashcompinit && bashcompinit", bash(words)]
    )


def fish(words: ShellWords) -> str:
    """One line for every command and flag."""
    lines = [
        f"complete -c haloscope -n __fish_use_subcommand -a {name} -d {_quoted(text)}"
        for name, text in COMMANDS.items()
    ]
    for command, flags in words.items():
        for flag, values in flags.items():
            given = f" -x -a {_quoted(' '.join(values))}" if values else ""
            seen = _quoted(f"__fish_seen_subcommand_from {command}")
            lines.append(f"complete -c haloscope -n {seen} -l {flag.removeprefix('--')}{given}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _flags(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """Every long flag of a command with the values that it takes, as far as they are known."""
    found: dict[str, list[str]] = {}
    for action in parser._actions:
        values = [str(choice) for choice in action.choices or ()]
        for flag in action.option_strings:
            if flag.startswith("--"):
                known = values if values else names_of_flag(flag.removeprefix("--"))
                found[flag] = [word for word in known if re.fullmatch(r"[\w:./+=-]+", word)]
    return found


def names_of_flag(flag: str) -> list[str]:
    """What a flag names: methods, clusters, ...; none for other flags."""
    if flag not in NAMES:
        return []
    from harness.datasets import known_datasets
    from harness.machine import HERE
    from harness.methods.registry import METHODS
    from harness.nn import MODELS
    from harness.partition import PARTITIONERS
    from sims.cluster import known_clusters

    return {
        "method": METHODS.names,
        "methods": METHODS.names,
        "partitioner": PARTITIONERS.names,
        "cluster": lambda: [HERE, *known_clusters()],
        "dataset": lambda: [name for name, _, here in known_datasets() if here],
        "model": MODELS.names,
    }[flag]()
