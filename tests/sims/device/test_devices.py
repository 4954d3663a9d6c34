"""Device profiles: roofline seconds, files, and messages about bad ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import InputError
from sims.device import DeviceProfile, OperatorCost, Work, load_device, save_device
from sims.device._profile import DEVICES, known_devices
from sims.units import SOURCES, Quantity


@pytest.mark.parametrize("name", known_devices())
def test_profiles_load_and_round_trip(name: str, tmp_path: Path) -> None:
    profile = load_device(name)
    assert profile.name == name
    assert all(value.source in SOURCES for _, _, value in profile.quantities())
    save_device(profile, tmp_path / "copy.toml")
    assert load_device(tmp_path / "copy.toml") == profile


def test_notes_survive_quoting(tmp_path: Path) -> None:
    profile = load_device("cpu-epyc-1core")
    odd = replace(profile, summary='a "quoted" \\ name', launch=replace(profile.launch, note='x\\y "z"'))
    save_device(odd, tmp_path / "odd.toml")
    assert load_device(tmp_path / "odd.toml") == odd


def test_new_memory_may_cost_from_the_first_byte_on(tmp_path: Path) -> None:
    profile = replace(load_device("cpu-epyc-1core"), fresh_above=Quantity(0.0, "measured"))
    save_device(profile, tmp_path / "zero.toml")
    assert load_device(tmp_path / "zero.toml") == profile


def test_roofline() -> None:
    profile = load_device("cpu-epyc-1core")
    peak = profile.gemm_peak.value * profile.gemm_efficiency.value
    launch = profile.launch.value
    assert profile.seconds(Work("gemm", nbytes=1, flops=10**9)) == pytest.approx(1e9 / peak + launch)
    assert profile.seconds(Work("gemm", nbytes=10**9, flops=1)) == pytest.approx(
        1e9 / profile.gemm_bandwidth.value + launch
    )
    assert profile.seconds(Work("free")) == 0.0
    assert profile.seconds(Work("copy")) == launch
    assert profile.fresh is not None
    large = int(profile.fresh_above.value) + 1
    extra = profile.seconds(Work("copy", large, fresh=large)) - profile.seconds(Work("copy", large))
    assert extra == pytest.approx(large / profile.fresh.value)
    assert profile.seconds(Work("copy", large, fresh=large - 1)) == profile.seconds(Work("copy", large))


def test_sparse_cost_between_measured_widths() -> None:
    profile = load_device("cpu-epyc-1core")
    widths = sorted(profile.spmm)
    for width in widths:
        assert profile.spmm_cost(width) == profile.spmm[width].value
    assert profile.spmm_cost(1) == profile.spmm[widths[0]].value
    assert profile.spmm_cost(10_000) == profile.spmm[widths[-1]].value
    assert profile.spmm[16].value < profile.spmm_cost(64) < profile.spmm[128].value
    assert profile.codec_rate(3) == profile.codec[2].value
    assert profile.codec_rate(32) == profile.codec[16].value


def test_a_class_is_as_good_as_its_weakest_number() -> None:
    assert load_device("cpu-epyc-1core").source_of("spmm") == "measured"
    assert load_device("rtx-3090").source_of("gemm") == "datasheet"
    assert load_device("rtx-2080ti").source_of("gemm") == "assumed"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('memory = { value = "24 GiB"', 'memory = { value = "24 GHz"', "memory: '24 GHz' is not a size"),
        ("elementwise =", "elementwize =", "'elementwize'; did you mean 'elementwise'"),
        ("value = 0.677", "value = 1.75", "gemm.efficiency: must be at most 1"),
        ("value = 0.677", 'value = "much"', "gemm.efficiency: must be a number"),
        ('kind = "gpu"', 'kind = "tpu"', "kind: 'tpu'"),
        ("64 =", "wide =", "spmm.wide: the key must be a whole number"),
        ("[codec]\n1 =", "[codec]\n[old]\n1 =", "codec: is empty"),
    ],
)
def test_bad_device_files_give_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (DEVICES / "rtx-3090.toml").read_text()
    assert old in text
    path = tmp_path / "card.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=message) as error:
        load_device(path)
    assert "card.toml" in str(error.value) and "\n" not in str(error.value)


def test_a_gpu_launches_beside_its_work() -> None:
    gpu, cpu = load_device("rtx-3090"), load_device("cpu-epyc-1core")
    assert gpu.host_launch == gpu.launch.value and cpu.host_launch == 0.0
    assert gpu.seconds(Work("copy", 10**9)) == pytest.approx(1e9 / gpu.bandwidth["copy"].value)
    assert gpu.seconds(Work("copy")) == 0.0 and cpu.seconds(Work("copy")) == cpu.launch.value


def test_what_operators_take_the_host_counts_in_launches() -> None:
    cost = OperatorCost(Quantity(1e-6), {}, {}, Quantity(0.1), host=Quantity(5e-5))
    gpu, cpu = (replace(load_device(name), operators={"mm": cost}) for name in ("rtx-3090", "cpu-epyc-1core"))
    work = Work("gemm", nbytes=8, flops=8, name="mm")
    assert gpu.launches(work) == pytest.approx(1 + 5e-5 / gpu.launch.value)
    assert gpu.launches(replace(work, name="add")) == cpu.launches(work) == 1
    assert gpu.seconds(work) == 1e-6 and gpu.seconds(Work("gemm", name="mm")) == 0, "an operator on nothing"


def test_a_crowd_slows_all_but_codecs() -> None:
    alone = load_device("cpu-epyc-1core")
    crowded = replace(alone, crowding=Quantity(1.25, "measured"))
    for kind, factor in (("gemm", 1.25), ("copy", 1.25), ("codec", 1.0), ("free", 1.0)):
        work = Work(kind, nbytes=10**6, flops=10**6, width=8, bits=1)
        assert crowded.seconds(work) == pytest.approx(factor * alone.seconds(work))


def test_streams_slow_each_other_down_as_the_file_says(tmp_path: Path) -> None:
    text = (DEVICES / "rtx-3090.toml").read_text()
    path = tmp_path / "card.toml"
    path.write_text(
        f'{text}\n[overlap]\ncompute = {{ value = 1.2, from = "measured", note = "all-reduce beside GEMM" }}\n'
    )
    profile = load_device(path)
    assert (profile.slowdown("compute"), profile.slowdown("communication")) == (1.2, 1.0)
    assert profile.overlap["compute"].source == "measured"
    save_device(profile, tmp_path / "copy.toml")
    assert load_device(tmp_path / "copy.toml") == profile
    for bad, message in (
        ("compute = 0.9", "overlap.compute: must be at least 1"),
        ("comunication = 1.1", "'comunication'; did you mean 'communication'"),
    ):
        path.write_text(f"{text}\n[overlap]\n{bad}\n")
        with pytest.raises(InputError, match=message):
            load_device(path)


def test_products_and_sums_in_bfloat16_are_as_much_faster_as_the_file_says(tmp_path: Path) -> None:
    path, text = tmp_path / "card.toml", (DEVICES / "gtx-1080ti.toml").read_text()
    half = '[bf16]\ngemm = { value = 8, from = "measured" }\nspmm = { value = 1.6, from = "assumed" }\n'
    path.write_text(f"{text}\n{half}")
    profile, plain = load_device(path), load_device("gtx-1080ti")
    save_device(profile, tmp_path / "copy.toml")
    assert load_device(tmp_path / "copy.toml") == profile
    named = OperatorCost(Quantity(1e-6), {1: Quantity(1e-12)}, {64: Quantity(1e-11)}, Quantity(0.1))
    for kind, faster in (("gemm", 8.0), ("spmm", 1.6)):
        size = {"flops" if kind == "gemm" else "entries": 10**9}
        work = Work(kind, nbytes=4, width=64, name=kind, **size)  # type: ignore[arg-type]
        half_work = replace(work, half=True)
        assert profile.seconds(work) == plain.seconds(work) == plain.seconds(half_work)
        assert profile.seconds(half_work) == pytest.approx(profile.seconds(work) / faster, rel=1e-5)
        timed = replace(profile, operators={kind: named})
        assert timed.seconds(half_work) == pytest.approx(1e-6 + 4e-12 + 1e-2 / faster)
    cached = replace(load_device("a100-80gb"), bf16={"spmm": Quantity(1.6)})
    small, large = (Work("spmm", entries=10**9, width=128, rows=rows, row_bytes=512) for rows in (10**4, 10**8))
    kept, missed = (replace(each, half=True, row_bytes=256) for each in (small, large))
    assert cached.seconds(missed) == pytest.approx(cached.seconds(large) / 1.6, rel=0.05)
    assert cached.cache is not None and cached.seconds(kept) == pytest.approx(
        10**9 * cached.cache.row_cost(kept), rel=0.1
    ), "rows in the cache are priced by their bytes, of which there are half as many already"
    copy = Work("copy", nbytes=10**6, half=True)
    assert profile.seconds(copy) == plain.seconds(copy), "priced by its bytes, of which there are half as many"
    path.write_text(f"{text}\n[bf16]\ncopy = 2\n")
    with pytest.raises(InputError, match=r"bf16.*'copy'"):
        load_device(path)


def test_unknown_device_and_unwritable_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown device 'rtx-3091'; did you mean 'rtx-3090'"):
        load_device("rtx-3091")
    profile: DeviceProfile = load_device("rtx-3090")
    with pytest.raises(InputError, match="cannot write device file"):
        save_device(profile, tmp_path / "no" / "where.toml")
