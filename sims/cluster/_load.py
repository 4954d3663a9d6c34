"""Clusters read from TOML, by name or path, with changes on one line; and the clusters that model labs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.config import LabSpec, is_lab, parse_lab
from harness.errors import InputError
from harness.machine import HERE, calibration_folder
from sims import units
from sims.cluster import _overrides as overrides
from sims.cluster._cluster import Cluster, LinkSpec
from sims.cluster._described import cluster_text, is_described, tables_of
from sims.cluster._file import LINKS, ClusterFile, Hosts, Links
from sims.cluster._lab_links import with_shaped_links
from sims.records import filled
from sims.units import Quantity, Table

CLUSTERS = Path(__file__).with_name("presets")


def known_clusters() -> list[str]:
    """Names of the clusters that come with haloscope, sorted."""
    return units.toml_names(CLUSTERS)


def load_cluster(name_or_path: str | Path) -> Cluster:
    """A cluster by name, from a TOML file, described on a line (`_described`), or of a lab.

    `NAME:KEY=VALUE:...` changes keys of a file (`_overrides`).

    `here` is this machine, as `haloscope calibrate` measured it.

    Raises:
        InputError: unknown name, unreadable file, unknown key, bad unit, counts that do not divide, or links that the
            transport lacks.
    """
    if is_lab(str(name_or_path)):
        return of_lab(parse_lab(str(name_or_path)))
    name, changes = overrides.split(str(name_or_path))
    path, read = _read(name)
    top = overrides.changed(read, changes)
    file = filled(ClusterFile, top, name=path.stem)
    hosts = file.hosts
    cluster = Cluster(
        name=":".join([file.name, *changes]),
        summary=file.summary,
        reference=file.reference,
        hosts=hosts.count,
        devices=hosts.devices,
        profiles=_profiles(hosts, overrides.paths_from(changes, path), f"cluster file {path.name}: hosts.device"),
        devices_per_switch=hosts.devices_per_switch,
        nics=hosts.nics,
        nics_on=hosts.nics_on,
        mesh_groups=file.links.mesh.groups if file.links.mesh is not None else 1,
        per_rack=hosts.per_rack,
        ranks_per_host=hosts.ranks_per_host or hosts.devices,
        spread=hosts.spread,
        cores=hosts.cores,
        links=_links(file.links),
        sharp=file.links.peer is not None and file.links.peer.sharp,
        transport=file.transport,
        stragglers=file.stragglers,
    )
    _check(cluster, f"cluster file {path.name}")
    return cluster


def _here() -> Path:
    """The cluster file that this machine was measured as. Raises InputError where it was not."""
    path = calibration_folder() / "cluster.toml"
    if not path.exists():
        raise InputError(
            f"cluster {HERE} is this machine as it was measured, and this version has not measured it: run "
            "`haloscope calibrate`, or `haloscope calibrate --brief` (a minute)"
        )
    return path


def _read(name: str) -> tuple[Path, Table]:
    """The file of a cluster and its tables; of one that is described on a line, where device files are looked up."""
    if not is_described(name):
        if Path(name).suffix != ".toml" and (" " in name or "," in name):
            raise InputError(
                f"unknown cluster {name!r}; on a line it reads hosts=4,devices=8,device=h100-80gb,nic=100Gb/s, a file "
                "ends in .toml; names: haloscope clusters, questions: haloscope clusters --ask"
            )
        path = _here() if name == HERE else units.find(name, "cluster", CLUSTERS)
        return path, units.read_toml(path, "cluster")
    return Path.cwd() / "the command line", Table(tables_of(name, _lent), f"cluster {name!r}")


def _lent(lender: str) -> dict[str, Any]:
    """What software costs in a shipped cluster."""
    found: dict[str, Any] = units.read_toml(CLUSTERS / f"{lender}.toml", "cluster").values["transport"]
    return found


def file_of_line(line: str, name: str, summary: str) -> str:
    """The text of a cluster file that says what a line such as `hosts=4,device=l4,nic=10Gb/s,bus=12GB/s` describes.

    Raises:
        InputError: as `load_cluster` of the line.
    """
    load_cluster(line)
    return cluster_text({**tables_of(line, _lent), "name": name, "summary": summary})


def of_lab(lab: LabSpec) -> Cluster:
    """The cluster that models a lab: its hosts are one machine, as `lab.calibration` measured it (else as `local` is).

    Raises:
        InputError: the calibration folder has no cluster file, or a bad one.
    """
    machine = load_cluster(Path(lab.calibration, "cluster.toml") if lab.calibration else "local")
    loopback = machine.links["loopback"].latency
    hosts = replace(
        machine,
        name=lab.name,
        summary=f"{lab.hosts} hosts on one machine: {machine.summary}",
        hosts=lab.hosts,
        ranks_per_host=lab.ranks_per_host,
        per_rack=1 if lab.hosts > 1 else 0,
        one_machine=True,
    )
    return with_shaped_links(hosts, Quantity(lab.delay / 2 + loopback.value / 2, loopback.source), lab.rates)


def _profiles(hosts: Hosts, folder: Path, where: str) -> tuple[str, ...]:
    """`device` of a cluster file as one profile per device: "NAME", or "NAME x COUNT, NAME x COUNT".

    The counts cover the devices of one host, every host being alike, or those of all hosts in order. A profile's name
    stays as it is; a profile's path is relative to `folder`.
    """
    names: list[str] = []
    for entry in hosts.device.split(","):
        name, by, times = entry.strip().rpartition(" x ")
        if by and not times.strip().isdigit():
            raise InputError(f"{where}: {entry.strip()!r} is not a profile, or PROFILE x COUNT")
        name = (name if by else times).strip()
        names += [str(folder / name) if name.endswith(".toml") else name] * (int(times) if by else 1)
    if len(names) == 1:
        return tuple(names)
    devices, every = hosts.devices, hosts.count * hosts.devices
    if len(names) not in (devices, every):
        raise InputError(f"{where}: lists {len(names)} devices; a host has {devices}, all hosts {every}")
    return tuple(names)


def _links(links: Links) -> dict[str, LinkSpec]:
    given = {kind: getattr(links, kind) for kind in LINKS}
    return {kind: LinkSpec(link.bandwidth, link.latency, link.tier) for kind, link in given.items() if link is not None}


def _check(cluster: Cluster, where: str) -> None:
    """Raise InputError when a pair of ranks would have no path, or counts do not fit each other."""
    links, missing, software = cluster.links, [], cluster.transport
    if software.measured and software.message.value:
        raise InputError(
            f"{where}: transport: what is `measured` has the messages of its collectives in it: leave out `message`"
        )
    if not cluster.transport.staged and "bus" not in links:
        missing.append(f"bus ({cluster.transport.kind} moves device memory)")
    if cluster.transport.staged and cluster.ranks_per_host > 1 and "loopback" not in links:
        missing.append(f"loopback ({cluster.transport.kind} between ranks of one host)")
    if cluster.hosts > 1 and "nic" not in links:
        missing.append("nic (there are several hosts)")
    if cluster.racks > 1 and not {"rack", "spine"} & set(links):
        missing.append("rack or spine (there are several racks)")
    if cluster.devices_per_switch and "switch" not in links:
        missing.append("switch (hosts.devices_per_switch)")
    if missing:
        raise InputError(f"{where}: links: missing {', '.join(missing)}")
    for kind, needs, given in (
        ("switch", "hosts.devices_per_switch", cluster.devices_per_switch),
        ("rack", "hosts.per_rack", cluster.per_rack),
        ("spine", "hosts.per_rack", cluster.per_rack),
    ):
        if kind in links and not given:
            raise InputError(f"{where}: links.{kind} needs {needs}")
    switches = cluster.devices / cluster.devices_per_switch if cluster.devices_per_switch else 1
    for name, parts, of in (
        ("hosts.devices_per_switch", switches, cluster.devices),
        ("hosts.nics", cluster.nics, cluster.devices),
        ("links.mesh.groups", cluster.mesh_groups, cluster.devices),
    ):
        if parts != int(parts) or of % int(parts):
            raise InputError(f"{where}: {name} does not deal {of} devices in equal blocks")
    if "mesh" in links and cluster.mesh_groups == cluster.devices:
        raise InputError(f"{where}: links.mesh joins groups of at least two devices")
    if cluster.nics_on == "switch" and (not cluster.devices_per_switch or cluster.nics % int(switches)):
        raise InputError(f'{where}: hosts.nics_on = "switch" needs switches, each with as many of the nics')
