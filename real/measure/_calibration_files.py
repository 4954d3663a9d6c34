"""The files of a calibration: measured numbers as a device file and a cluster file, in the model's TOML format."""

from __future__ import annotations

from typing import Any

from real.measure._lines import Line, copying_rates
from real.measure.link_probes import KINDS, RESTED_S, following

UNITS = {
    "launch": (1e-6, "us"),
    "memory": (1e9, "GB"),
    "fresh.above": (2**20, "MiB"),
    "gemm.peak": (1e9, "Gflop/s"),
    "spmm": (1e-12, "ps"),
}
"""Key, or first half of a key, -> scale and unit in the file; everything else is in GB/s."""


def device_toml(measured: dict[str, Any]) -> str:
    """The text of a CPU's device file."""
    about = measured["provenance"]
    head = [*_provenance(about), *_named(_summary(about)), 'kind = "cpu"', f"cores = {about['threads']}"]
    return "\n".join([*head, *_tables(measured["device"])]) + "\n"


def gpu_device_toml(measured: dict[str, Any]) -> str:
    """The text of a GPU's device file."""
    about = measured["provenance"]
    head = [*_gpu_provenance(about), *_named(about["machine"]), 'kind = "gpu"']
    return "\n".join([*head, *_tables(measured["device"])]) + "\n"


def _named(summary: str) -> list[str]:
    return [
        "# Neighbour sums (spmm) on random graphs of degree 10 and 40 with half of the edges inside communities.",
        'name = "calibrated"',
        f"summary = {_quoted(summary)}",
    ]


def _tables(device: dict[str, float]) -> list[str]:
    """The numbers of a device file, table by table."""
    lines: list[str] = []
    section = ""
    numbers = sorted(device.items(), key=lambda item: "." in item[0])  # a table ends the plain keys
    for key, value in numbers:
        table, _, name = key.rpartition(".")
        if table != section:
            section = table
            lines += ["", f"[{table}]"]
        lines.append(f"{name} = {_quantity(key, value)}")
    return lines


def cluster_toml(measured: dict[str, Any]) -> str:
    """The text of a cluster file: this machine, its ranks talking as measured, beside `device.toml`."""
    about, links = measured["provenance"], measured["links"]
    cores: dict[int, dict[str, Line]] = measured["cores"]
    one, together = copying_rates(links, cores, about["cores"])
    where = "over loopback" if about["hosts"] == 1 else f"between {about['hosts']} hosts of a lab"
    fewest = min(links)
    hidden, copies = links[fewest]["started"], cores[fewest]["all_to_all"]
    alone = links if fewest <= about["cores"] else cores  # see `copying_rates`
    count, apart = ", ".join(map(str, links)), alone[fewest]["all_to_all"].beta_error
    rate = _with_unit(together, 1e9, "GB/s", note=f"of {count} ranks the most, all together", error=apart)
    text = [
        *_provenance(about),
        f"# Collectives of {count} ranks {where}: mean microseconds by bytes that one rank sends, and a line",
        "# through them (all ranks send at once; `ring` is the library's all-reduce, `all_reduce` adds in rank order;",
        "# `started` is what an exchange costs a rank that hides it behind compute). Ranks compute in between for",
        f"# {1e3 * RESTED_S:g} ms, but not where one is following another.",
        *(_row(size, kind, line) for size, by_kind in links.items() for kind, line in by_kind.items()),
        "# The same of the seconds that the threads of a rank run on cores for it:",
        *(_row(size, kind, line) for size, by_kind in cores.items() for kind, line in by_kind.items()),
        'name = "calibrated"',
        f"summary = {_quoted(_summary(about))}",
        "",
        "[hosts]",
        "count = 1",
        "ranks_per_host = 64",
        f"cores = {about['cores']}",
        'device = "device.toml"',
        "",
        "[links.loopback]",
        'tier = "loopback"',
        f"bandwidth = {rate}",
        f"latency = {_with_unit(0.0, 1e-6, 'us', note='in the collectives below')}",
        "",
        "[transport]",
        'kind = "gloo"',
        f"process = {_with_unit(one, 1e9, 'GB/s', note=f'one of {fewest} ranks', error=apart)}",
        f"beside = {_with_unit(1 / hidden.beta, 1e9, 'GB/s', note=f'of {fewest} ranks', error=hidden.beta_error)}",
        f"copying = {_with_unit(1 / copies.beta, 1e9, 'GB/s', note=f'of {fewest} ranks', error=copies.beta_error)}",
        f"rested = {_with_unit(RESTED_S, 1e-3, 'ms')}",
    ]
    for timed in next(iter(links.values())):
        kind = next((kind for kind in KINDS if following(kind) == timed), "")
        head, after = ("measured", "cores") if not kind else ("following", "cores_following")
        text += _costs(f"transport.{head}.{kind or timed}", {size: by_kind[timed] for size, by_kind in links.items()})
        if timed in next(iter(cores.values())):
            text += _costs(f"transport.{after}.{kind or timed}", {size: of[timed] for size, of in cores.items()})
    for size, shares in measured["resting"].items():
        text += ["", f"[transport.resting.{size}]"] if shares else []
        text += [f'{ms} = {{ value = {max(share, 1e-3):.3f}, from = "measured" }}' for ms, share in shares.items()]
    note = "deviation of the logarithm of equal stretches of about 20 ms"
    text += ["", "[stragglers]", f'jitter = {{ value = {measured["jitter"]:.3g}, from = "measured", note = "{note}" }}']
    return "\n".join(text) + "\n"


def _costs(table: str, by_ranks: dict[int, Line]) -> list[str]:
    """A table of what a collective takes without bytes, by number of ranks."""
    text = ["", f"[{table}]"]
    for ranks, line in by_ranks.items():
        note = f"fits {len(line.points)} sizes within {100 * line.error:.0f} %"
        text.append(f"{ranks} = {_with_unit(line.alpha, 1e-6, 'us', note=note, error=line.error)}")
    return text


def gpu_cluster_toml(measured: dict[str, Any]) -> str:
    """The text of a cluster file of this host and its GPUs, connected only by the bus that their copies take."""
    about, copies = measured["provenance"], measured["copies"]
    slower = min(copies["to_host"], copies["from_host"])
    there, back = copies["to_host"] / 1e9, copies["from_host"] / 1e9
    rates = f"pinned copies of 256 MiB: {there:.3g} GB/s to the host, {back:.3g} GB/s back"
    text = [
        *_gpu_provenance(about),
        "# Between GPUs, and what NCCL takes, nothing was measured: see sims/cluster/presets for hosts with NVLink.",
        'name = "calibrated"',
        f"summary = {_quoted('{gpus} x {machine}'.format_map(about))}",
        "",
        "[hosts]",
        "count = 1",
        f"devices = {about['gpus']}",
        'device = "device.toml"',
        "",
        "[links.bus]",
        'tier = "pcie"',
        f"bandwidth = {_with_unit(slower, 1e9, 'GB/s', note=rates)}",
        f"latency = {_with_unit(copies['latency'], 1e-6, 'us', note='1 KiB to the host, from call to arrival')}",
        "",
        "[transport]",
        'kind = "nccl"',
    ]
    return "\n".join(text) + "\n"


def _row(size: int, kind: str, line: Line) -> str:
    """One line of the measured times, as a comment."""
    points = "  ".join(f"{int(nbytes)}: {1e6 * seconds:.0f}" for nbytes, seconds, _ in line.points)
    rate = f"{1e6 * line.alpha:.0f} us + bytes at {1e-9 / line.beta:.3g} GB/s within {100 * line.error:.0f} %"
    return f"#   {size} ranks, {kind}: {points}; {rate}"


def _provenance(about: dict[str, Any]) -> list[str]:
    return [
        f"# Measured on {about['date']} by `haloscope calibrate` in {about['seconds']:g} s: {about['machine']},",
        f"# {about['ranks']} ranks x {about['threads']} threads, torch {about['torch']}, Python {about['python']}.",
    ]


def _gpu_provenance(about: dict[str, Any]) -> list[str]:
    return [
        f"# Measured on {about['date']} by `haloscope calibrate --device cuda` in {about['seconds']:g} s on one GPU of",
        "# {gpus}: {machine}, torch {torch}, CUDA {cuda}, Triton {triton}.".format_map(about),
    ]


def _summary(about: dict[str, Any]) -> str:
    return f"{about['threads']} of {about['cores']} cores per rank, {about['machine']}"


def _quantity(key: str, value: float) -> str:
    if key.startswith("bf16."):
        return f'{{ value = {value:.4g}, from = "measured" }}'
    if key == "gemm.efficiency" or key.startswith("overlap."):
        return f'{{ value = {value:.3f}, from = "measured" }}'
    scale, unit = UNITS.get(key) or UNITS.get(key.partition(".")[0]) or (1e9, "GB/s")
    return _with_unit(value, scale, unit)


def _with_unit(
    value: float, scale: float, unit: str, source: str = "measured", note: str = "", error: float = 0.0
) -> str:
    """A number with its source; `error`: its relative error either way, which is its range."""
    extra = f", note = {_quoted(note)}" if note else ""
    if error:
        written, either_way = float(f"{value / scale:.4g}"), 1 + max(error, 1e-3)
        extra += f', range = "{written / either_way:.6g} {unit}..{written * either_way:.6g} {unit}"'
    return f'{{ value = "{value / scale:.4g} {unit}", from = "{source}"{extra} }}'


def _quoted(text: str) -> str:
    return '"' + "".join(c for c in text if c.isprintable() and c not in '"\\') + '"'
