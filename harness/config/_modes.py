"""Which settings act in one mode alone, and the configs of several modes that share a command or a file.

A setting that a mode has no use for is refused there: it would change the run's id, and nothing that is computed. One
command for several modes gives it to those that it acts in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from harness.config._lab import is_lab
from harness.config._records import ClusterConfig, ExecutionConfig, Mode, Rule
from harness.config._spec import RunConfig

MEASURED_ONLY = ("device", "backend", "timeout", "startup_timeout", "prepare_timeout")
"""Settings of processes that really exchange: of mode real. Modelled clusters and loopback do nothing with them."""

DEFAULTS = {key: getattr(ExecutionConfig(), key) for key in MEASURED_ONLY} | {"cluster": ClusterConfig().name}


def idle_settings(config: RunConfig) -> list[str]:
    """Keys of settings that differ from their defaults and do nothing in the config's mode."""
    mode, flat = config.run.mode, config.flat()
    given = [key for key, default in DEFAULTS.items() if flat[key] != default]
    return [key for key in given if mode not in _acts_in(key, config)]


def in_mode(config: RunConfig, mode: Mode) -> RunConfig:
    """The config in one of several modes: settings that act in others only have their defaults."""
    moved = config.changed(mode=mode)
    return moved.changed(**{key: DEFAULTS[key] for key in idle_settings(moved)})


def in_modes(config: RunConfig, modes: Collection[Mode]) -> list[RunConfig]:
    """The config in each of the modes, in order, without settings that act in another of them only.

    A setting that acts in none of the modes stays, so that `check` refuses it.
    """
    found = []
    for mode in modes:
        moved = config.changed(mode=mode)
        used = [key for key in idle_settings(moved) if any(each in _acts_in(key, config) for each in modes)]
        found.append(moved.changed(**{key: DEFAULTS[key] for key in used}))
    return found


def mode_rules(config: RunConfig) -> Iterator[Rule]:
    """What is valid in some modes only."""
    mode, flat = config.run.mode, config.flat()
    yield mode == "sim" or not config.cluster.shapes_only, "shapes-only needs --mode sim"
    for key in idle_settings(config):
        where = " or ".join(f"--mode {each}" for each in _acts_in(key, config))
        also = " (of mode real only labs are built: lab:3x1gbit)" if key == "cluster" and mode == "real" else ""
        yield False, f"{key.replace('_', '-')}={flat[key]} needs {where}: mode {mode} does nothing with it{also}"


def _acts_in(key: str, config: RunConfig) -> tuple[Mode, ...]:
    """The modes in which a setting of `MEASURED_ONLY`, or the cluster, does something."""
    if key == "cluster":
        return ("sim", "real") if is_lab(config.cluster.name) else ("sim",)
    return ("real",)
