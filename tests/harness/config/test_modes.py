"""Settings that act in one mode only: refused elsewhere, given to the right modes of one command, same run ids."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.config import MEASURED_ONLY, Mode, RunConfig, check, from_mapping, from_record, in_mode, in_modes
from harness.errors import InputError

MODES: tuple[Mode, ...] = get_args(Mode)
OTHERS: dict[str, Any] = {
    "device": "cuda", "backend": "gloo", "timeout": 5.0, "startup_timeout": 9.0, "prepare_timeout": 7.0,
    "cluster": "ethernet-10g",
}  # fmt: skip
SETTINGS = st.dictionaries(st.sampled_from(sorted(OTHERS)), st.none()).map(lambda d: {key: OTHERS[key] for key in d})


@pytest.mark.parametrize("key", OTHERS)
@pytest.mark.parametrize("mode", MODES)
def test_a_setting_is_refused_where_it_does_nothing(key: str, mode: Mode) -> None:
    acts = ("sim",) if key == "cluster" else ("real",)
    if mode in acts:
        from_mapping({key: OTHERS[key], "mode": mode})
        return
    with pytest.raises(InputError, match=f"^{key.replace('_', '-')}=.* needs --mode {acts[0]}: mode {mode} does"):
        from_mapping({key: OTHERS[key], "mode": mode})


def test_labs_are_built_and_modelled() -> None:
    for mode in ("sim", "real"):
        from_mapping({"cluster": "lab:2x1gbit", "mode": mode})
    with pytest.raises(InputError, match="needs --mode sim or --mode real"):
        from_mapping({"cluster": "lab:2x1gbit"})


@given(SETTINGS, st.lists(st.sampled_from(MODES), min_size=1, unique=True))
def test_of_several_modes_each_has_what_acts_in_it(values: dict[str, Any], modes: list[Mode]) -> None:
    """What acts in one of the modes stays there alone, so that runs have the ids of runs that were given nothing else;
    what acts in none is refused."""
    configs = in_modes(RunConfig.of(**values), modes)
    assert [config.run.mode for config in configs] == modes
    useful = {key for key in values if ("sim" if key == "cluster" else "real") in modes}
    for config in configs:
        own = {key: values[key] for key in useful if (config.run.mode == "sim") == (key == "cluster")}
        own = own if config.run.mode != "loopback" else {}
        if useful == set(values):
            check(config)
            assert config.run_id() == RunConfig.of(mode=config.run.mode, **own).run_id()
        else:
            with pytest.raises(InputError, match="does nothing with it"):
                check(config)


@given(SETTINGS, st.sampled_from(MODES))
def test_results_of_earlier_versions_can_be_read(values: dict[str, Any], mode: Mode) -> None:
    """They may hold settings that were ignored."""
    kept = RunConfig.of(**values, mode=mode)
    read = from_record(kept.flat(), "old.json")
    assert read == in_mode(kept, mode) and {*MEASURED_ONLY, "cluster"} == set(OTHERS)
    if not values:
        assert read == kept
