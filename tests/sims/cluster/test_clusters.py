"""The shipped clusters: agreement with the papers, output of the command, drawings."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.image import imread

from harness.cli import main
from harness.errors import InputError
from sims.cluster import LINKS, known_clusters, load_cluster, place
from sims.cluster._load import CLUSTERS
from sims.device import load_device, save_device
from sims.device._profile import DEVICES
from sims.study import quantities
from sims.study._remarks import link_kind, source_shares
from sims.units import Quantity, read_toml

PAPERS = {  # preset -> hosts, devices per host, device, transport
    "ec-graph": (6, 1, "xeon-e3-1226v3", "grpc"),
    "ec-graph-13": (13, 1, "xeon-e3-1226v3", "grpc"),
    "ec-graph-papers": (6, 1, "xeon-silver-4110-2x", "grpc"),
    "subgraph-20x1080ti": (20, 1, "gtx-1080ti", "gloo"),
    "sylvie-2x8": (2, 8, "rtx-3090", "gloo"),
    "sylvie-3x8": (3, 8, "rtx-3090", "gloo"),
    "bns-10x2080ti": (1, 10, "rtx-2080ti", "gloo"),
    "bns-32x6v100": (32, 6, "v100-16gb", "gloo"),
    "cdfgnn-2x8a800": (2, 8, "a800-80gb", "nccl"),
}
TODAY = {
    "a100-8": (1, 8, "a100-80gb", "nccl"),
    "h100-1": (1, 1, "h100-80gb-vm", "nccl"),
    "h200-1": (1, 1, "h200-141gb-vm", "nccl"),
    "h100-8": (1, 8, "h100-80gb", "nccl"),
    "h100-8x": (16, 8, "h100-80gb", "nccl"),
    "h200-8x": (16, 8, "h200-141gb", "nccl"),
    "h100-512x8": (512, 8, "h100-80gb", "nccl"),
    "l4-4x8": (4, 8, "l4", "nccl"),
}


@pytest.mark.parametrize(("name", "made_of"), [*PAPERS.items(), *TODAY.items()])
def test_presets_are_made_of_what_they_should_be(name: str, made_of: tuple[int, int, str, str]) -> None:
    cluster = load_cluster(name)
    assert (cluster.hosts, cluster.devices, cluster.device, cluster.transport.kind) == made_of
    assert bool(cluster.reference) == (name in PAPERS)
    assert cluster.capacity == cluster.hosts * cluster.devices


def test_published_values_are_those_of_the_papers() -> None:
    published = {
        (name, key): quantity.value
        for name in PAPERS
        for key, quantity in load_cluster(name).quantities()
        if quantity.source == "published" and key == "links.nic.bandwidth"
    }
    gigabit = dict.fromkeys(("ec-graph", "ec-graph-13", "ec-graph-papers", "subgraph-20x1080ti"), 125e6)
    assert published == {
        (name, "links.nic.bandwidth"): value for name, value in {**gigabit, "cdfgnn-2x8a800": 8.27e9}.items()
    }
    assert load_cluster("cdfgnn-2x8a800").links["bus"].bandwidth.value == 22.70e9
    memory = {name: load_device(made_of[2]).memory.value / 1e9 for name, made_of in PAPERS.items()}
    printed = {"ec-graph": 32, "ec-graph-papers": 250, "subgraph-20x1080ti": 11, "sylvie-2x8": 24,
               "bns-10x2080ti": 11, "bns-32x6v100": 16, "cdfgnn-2x8a800": 80}  # fmt: skip
    assert all(memory[name] == pytest.approx(gb, rel=0.08) for name, gb in printed.items()), "GB and GiB differ by 7 %"


def test_eight_parts_lie_evenly_on_two_servers() -> None:
    """Sylvie's logs have eight parts on two servers; CDFGNN's table 3 says 2 x 2 and 2 x 4."""
    for name in ("sylvie-2x8", "cdfgnn-2x8a800"):
        assert place(load_cluster(name), 8).host.tolist() == [0] * 4 + [1] * 4


@pytest.mark.parametrize("name", known_clusters())
def test_every_number_says_where_it_is_from(name: str) -> None:
    """Every value in the files has a source, also assumed ones."""
    path = Path(load_cluster.__code__.co_filename).with_name("presets") / f"{name}.toml"
    tables = tomllib.loads(path.read_text())
    rows = [*tables["links"].values(), tables["transport"]]
    values = {
        key: value for row in rows for key, value in row.items() if key not in ("tier", "groups", "kind", "sharp")
    }
    assert values and all(set(value) >= {"value", "from"} for value in values.values())
    assert read_toml(path, "cluster").text("name") == name
    known = quantities(load_cluster(name))
    assert len(known) > 12 and all(quantity.source for quantity in known)


def test_link_names_tell_their_kind() -> None:
    found = set()
    for name in ("h100-512x8", "bns-32x6v100", "l4-4x8"):
        cluster = load_cluster(name)
        found |= {link_kind(link) for link in place(cluster, min(cluster.capacity, 512)).names}
    assert found == {*LINKS, "process"}


def test_shares_of_sources_add_up_and_begin_with_the_best() -> None:
    assert source_shares({"assumed": 3.0, "measured": 1.0}) == {"measured": 0.25, "assumed": 0.75}
    assert list(source_shares({"assumed": 3.0, "measured": 1.0})) == ["measured", "assumed"]
    assert source_shares({}) == {} and source_shares({"assumed": 0.0}) == {}


def test_show_names_racks_switches_memory_and_stragglers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clusters", "show", "h100-512x8:links.nic.latency=1us"]) == 0
    assert "changed: links.nic.latency=1us (assumed;" in capsys.readouterr().out
    assert main(["clusters", "show", "h100-512x8"]) == 0
    text = capsys.readouterr().out
    for words in (
        "hosts: 512, each with 8 devices", "devices: 4096, h100-80gb (85.0 GB)", "PCIe switches: 4 per host",
        "network adapters: 8 per host, on the PCIe switches", "racks: 16, of up to 32 hosts", "links.spine.bandwidth",
        "extrapolated",
    ):  # fmt: skip
        assert words in text
    lab = tmp_path / "lab.toml"
    lab.write_text(
        '[hosts]\ncount = 2\ndevices = 2\ndevice = "rtx-3090 x 2, l4 x 2"\n'
        '[links.bus]\nbandwidth = "12 GB/s"\nlatency = "5 us"\n[links.nic]\nbandwidth = "1 GB/s"\nlatency = "5 us"\n'
        '[transport]\nkind = "nccl"\n[stragglers]\njitter = 0.1\n[stragglers.ranks]\n3 = 1.5\n'
    )
    assert main(["clusters", "show", str(lab)]) == 0
    text = capsys.readouterr().out
    assert "stragglers: rank 3: x 1.5, jitter 0.1" in text
    assert "device rtx-3090:" in text and "device l4:" in text


def test_devices_on_the_command_line_are_looked_up_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And those that a cluster file names, beside that file."""
    device = (DEVICES / "cpu-epyc-1core.toml").read_text()
    for folder in ("here", "there", "a, b x c"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "dev.toml").write_text(device.replace("cpu-epyc-1core", folder))
    text = (CLUSTERS / "ethernet-1g.toml").read_text()
    (tmp_path / "there" / "lab.toml").write_text(text.replace('"cpu-epyc-1core"', '"dev.toml"'))
    monkeypatch.chdir(tmp_path / "here")
    for named, folder in (
        ("ethernet-1g:hosts.device=dev.toml", "here"),
        ("../there/lab.toml", "there"),
        ("../there/lab.toml:hosts.device=dev.toml  x 1", "here"),
        ("../there/lab.toml:hosts.device=../there/dev.toml", "there"),
    ):
        assert main(["clusters", "show", named]) == 0
        assert f"device {folder}:" in capsys.readouterr().out, named
    monkeypatch.chdir(tmp_path / "a, b x c")
    assert main(["clusters", "show", "ethernet-1g:hosts.device=dev.toml"]) == 0
    assert "device a, b x c:" in capsys.readouterr().out


def test_show_says_what_a_number_is_for_and_counts_one_thing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clusters", "show", "local"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in (
        "hosts: 1, each with one device and up to 64 ranks", "spmm.16 63 ps per stored entry and column",
        "codec.1 15 GB/s of float32 rows", "launch 1.1 us per operator", "transport.process 1250 MB/s per process",
        "transport.message 120 us per message", "transport.operation 20 us per collective",
    ):  # fmt: skip
        assert words in text
    assert main(["clusters", "show", "ethernet-1g"]) == 0
    assert "hosts: 8, each with one device and up to one rank" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("device=h100", "ethernet-1g.toml: write hosts.device=h100, not device=h100"),
        ("nic.bandwidth=9Gb/s", "write links.nic.bandwidth=9Gb/s, not nic.bandwidth=9Gb/s"),
        ("nosuch=1", "unknown key in cluster file ethernet-1g.toml: 'nosuch'"),
    ],
)
def test_a_change_of_half_a_key_is_told_the_whole(change: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clusters", "show", f"ethernet-1g:{change}"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["cdfgnn-2x8a800", "bns-32x6v100", "h100-512x8", "local", "ec-graph"])
def test_clusters_are_drawn(name: str, tmp_path: Path) -> None:
    assert main(["clusters", "show", name, "--draw", str(tmp_path / "it.png")]) == 0
    picture = imread(tmp_path / "it.png")
    assert picture.shape[0] > 400 and picture.shape[1] > 400
    assert float(picture[..., :3].std()) > 0.02, "something is drawn"


def test_a_drawing_says_what_it_folds(tmp_path: Path) -> None:
    """Text in the SVG names the number of hosts left out and the capacities."""
    assert main(["clusters", "show", "h100-512x8", "--draw", str(tmp_path / "it.svg")]) == 0
    text = (tmp_path / "it.svg").read_text()
    for words in ("host 0", "host 511", "510 more hosts", "spine between 16 racks, 98.3 TB/s", "switch of rack 15"):
        assert words in text
    assert text.count(">NIC<") == 16 and text.count(">PCIe switch<") == 8 and text.count(">h100<") == 16


def test_bad_drawings_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["clusters", "--draw", "x.png"], "name a cluster"),
        (["clusters", "show", "h100-8", "--draw", "x.txt"], "write a .png, .svg or .pdf file"),
        (["clusters", "show", "h100-8", "--draw", str(tmp_path / "no" / "x.png")], "cannot write"),
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err.strip()
        assert message in error and "\n" not in error


def test_a_measured_collective_has_its_messages_in_it(tmp_path: Path) -> None:
    text = (CLUSTERS / "ethernet-1g.toml").read_text()
    where = text.index("[transport]")
    both = text[:where] + '[transport.measured.all_to_all]\n2 = "1 ms"\n\n' + text[where:]
    path = tmp_path / "both.toml"
    path.write_text(both)
    assert "message" in text[where:]
    with pytest.raises(InputError, match="leave out `message`"):
        load_cluster(path)


def test_a_gpu_without_launches_is_refused(tmp_path: Path) -> None:
    """Its host would be priced as a CPU's."""
    profile = load_device("h100-80gb-vm")
    save_device(replace(profile, launch=Quantity(0.0)), tmp_path / "quick.toml")
    with pytest.raises(InputError, match=r"quick.toml: a GPU's `launch` must be above 0"):
        load_device(tmp_path / "quick.toml")
    cpu = load_device("cpu-epyc-1core")
    save_device(replace(cpu, launch=Quantity(0.0)), tmp_path / "cpu.toml")
    assert load_device(tmp_path / "cpu.toml").launch.value == 0
