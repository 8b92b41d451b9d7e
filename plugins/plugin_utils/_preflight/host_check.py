# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA, netplan, clock, kernel and image: of each host, and of the hosts of one kind compared."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import machine
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import ERROR, WARNING, Finding
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fabric_speed
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight.facts import (
    Node,
    Plan,
    interfaces_of,
)

#: seconds that a clock may be off: certificates are judged by it, and logs of several hosts are read together
CLOCK_LIMIT: t.Final = 30
#: what failed on machines of others and cannot be seen on a host before, so it is a warning: ``fact`` is a path into
#: sparkthor_node, ``match`` a shell pattern
KNOWN_BAD: t.Final[tuple[dict[str, str], ...]] = (
    {
        "fact": "kernel",
        "match": "6.17.0-1008-nvidia*",
        "reason": "it panics under load",
        "fix": "update to a 6.17.0-103x-nvidia kernel",
    },
)


def rdma_problems(host: str, entry: t.Any, node: Node, probe: Mapping[str, t.Any]) -> list[Finding]:
    """RDMA where the plan needs it: a device on every planned NIC, Ethernet, active with a carrier, at full rate."""
    found = probe.get("rdma") or node.get("rdma")
    # the ranks of a whole line use TCP as well, but two neighbours alone use RDMA
    if found is None or entry["kind"] == "thor":
        return []
    by_netdev = {link["netdev"]: link for link in found["links"] if link["netdev"]}
    if not found["links"]:
        return [
            Finding(
                "rdma",
                f"it has no RDMA device, which a {entry['topology']} fabric needs",
                "see that its ConnectX-7 is cabled and its driver loaded (sudo modprobe mlx5_ib; dmesg), or set "
                "fabric_topology: lan",
                host,
            )
        ]
    present = interfaces_of(node)
    problems = []
    for link in entry["links"]:
        rdma = by_netdev.get(link["netdev"])
        if rdma is not None:
            problems += _rdma_device_problems(host, rdma, probe)
        elif link["netdev"] in present:
            problems.append(
                Finding(
                    "rdma",
                    f"NIC {link['netdev']} has no RDMA device; those of this host are "
                    + ", ".join(f"{name} ({item['device']})" for name, item in sorted(by_netdev.items())),
                    "reload the driver (sudo modprobe -r mlx5_ib && sudo modprobe mlx5_ib) or reboot the host",
                    host,
                    link["netdev"],
                )
            )
    return problems


def rate_problems(plan: Plan, probes: Mapping[str, Mapping[str, t.Any]]) -> list[Finding]:
    """Links that negotiated less than they are planned for: all alike is a warning, mixed speeds stop the run."""
    rates: dict[str, dict[str, float]] = {}
    for host, entry in plan.items():
        probe = probes.get(host) or {}
        if entry["kind"] != "spark" or entry["addressing"] != "managed":
            continue
        ports = probe.get("ports") or {}
        for link in (probe.get("rdma") or {}).get("links", ()):
            port = ports.get(link["netdev"]) or {}
            # what RDMA says now of a port that was only set up for the probe, it says of one that is down again
            known = link.get("rate") if link.get("state") != "down" else None
            rate = port.get("rate") if link["netdev"] in (probe.get("raised") or ()) else known
            if port.get("carrier") and rate:
                rates.setdefault(host, {})[link["netdev"]] = rate
    return [
        Finding(
            "speed" if one.mixed else "rate",
            one.what,
            one.fix,
            ", ".join(one.hosts),
            severity=ERROR if one.mixed else WARNING,
        )
        for one in fabric_speed.slow(plan, rates)
    ]


def _rdma_device_problems(host: str, rdma: Mapping[str, t.Any], probe: Mapping[str, t.Any]) -> list[Finding]:
    netdev = rdma["netdev"]
    problems = []
    if rdma.get("link_layer") == "InfiniBand":
        problems.append(
            Finding(
                "rdma",
                f"RDMA device {rdma['device']} of NIC {netdev} is in InfiniBand mode, the plan is RoCE",
                "set LINK_TYPE to Ethernet (2) with mlxconfig and power the host off and on",
                host,
                netdev,
            )
        )
    carrier = (probe.get("ports") or {}).get(netdev, {}).get("carrier")
    # a port that was only set up for the probe may still be training, and a peer that did so has set its end down
    # again: the carrier that counts is the one that was read with the state
    trained = carrier and rdma.get("state") != "down" and not (probe.get("raised") or ())
    if trained and rdma.get("port_state") not in ("", None, "ACTIVE"):
        problems.append(
            Finding(
                "rdma",
                f"RDMA device {rdma['device']} is {rdma['port_state']} although its NIC {netdev} has a carrier",
                "reload the driver (sudo modprobe -r mlx5_ib && sudo modprobe mlx5_ib) or reboot the host",
                host,
                netdev,
            )
        )
    return problems


def netplan_problems(host: str, probe: Mapping[str, t.Any]) -> list[Finding]:
    """What would stop a change of the netplan file, as the probe found it."""
    found = (probe.get("netplan") or {}).get("findings", ())
    return [dataclasses.replace(Finding.from_dict(item), host=host) for item in found]


def clock_problems(host: str, node: Node) -> list[Finding]:
    """A clock that is wrong now is wrong before any service of ours could set it right."""
    offset = float(node.get("clock_offset") or 0)
    if abs(offset) <= CLOCK_LIMIT:
        return []
    way = "ahead of" if offset > 0 else "behind"
    return [
        Finding(
            "clock",
            f"its clock is {abs(offset):.0f} s {way} the controller's, by which tokens and TLS certificates are judged",
            "let it synchronise (sudo timedatectl set-ntp true; timedatectl shows when it has), or list clock in "
            "preflight_accept",
            host,
        )
    ]


def machine_problems(nodes: Mapping[str, Node]) -> list[Finding]:
    """Hosts that cannot be told apart: one machine under two names, or disks that were cloned with their machine-id."""
    by_machine: dict[str, list[str]] = {}
    for host, node in nodes.items():
        if node.get("machine"):
            by_machine.setdefault(str(node["machine"]), []).append(host)
    problems = []
    for hosts in by_machine.values():
        if len(hosts) < 2:
            continue
        nics = {
            frozenset(link.get("mac") for link in nodes[host].get("interfaces") or () if link["name"] != "lo")
            for host in hosts
        }
        same_machine = len(nics) == 1 and any(any(macs) for macs in nics)
        if same_machine:
            what, fix = "these names lead to one machine", "correct ansible_host, or remove all names but one"
        else:
            what = (
                "they have one machine-id, as clones of a disk do, so none of them is known again under a new name, "
                "and a DHCP server may give them one address"
            )
            fix = (
                "on all but one: sudo rm /etc/machine-id /var/lib/dbus/machine-id, sudo systemd-machine-id-setup, and "
                "a reboot"
            )
        problems.append(Finding("machine", what, fix, ", ".join(hosts), severity=ERROR if same_machine else WARNING))
    return problems


def known_bad_problems(host: str, node: Node, known_bad: Sequence[Mapping[str, str]]) -> list[Finding]:
    problems = []
    for entry in known_bad:
        value: t.Any = node
        for key in entry["fact"].split("."):
            value = value.get(key, "") if isinstance(value, Mapping) else ""
        if value and fnmatchcase(str(value), entry["match"]):
            what = f"{entry['fact']} {value} is known bad: {entry['reason']}"
            problems.append(Finding("known_bad", what, entry["fix"], host, severity=WARNING))
    return problems


def handover_problems(host: str, node: Node) -> list[Finding]:
    """A kernel that keeps memory for a successor of its own (Kexec HandOver): RDMA and CUDA get none of that.

    Its sign is more free contiguous memory than there is in total. The kernel's name says nothing: one and the same
    build is sound with ``kho=off``. Source: NVIDIA's package nvidia-spark-grub-kho of DGX OS 26.09.2.
    """
    cma = node.get("cma") or {}
    if not {"free", "total"} <= set(cma) or cma["free"] <= cma["total"]:
        return []
    seen = f"CmaFree is {cma['free'] / 2**30:.1f} GiB, CmaTotal {cma['total'] / 2**30:.1f} GiB"
    kho = (node.get("kernel_parameters") or {}).get("kho")
    return [
        Finding(
            "known_bad",
            f"kernel {node.get('kernel', '')} keeps memory for Kexec HandOver ({seen}), so RDMA cannot register memory "
            f"and CUDA allocations fail; its command line has {'no kho=off' if kho is None else f'kho={kho}'}",
            "sudo apt install nvidia-spark-grub-kho (DGX OS 26.09.2), or add kho=off to the kernel's command line, and "
            f"reboot; or list 'known_bad={node.get('kernel', '')}' in preflight_accept",
            host,
            where=str(node.get("kernel", "")),
        )
    ]


def parameter_problems(plan: Plan, nodes: Mapping[str, Node]) -> list[Finding]:
    """Hosts of one kind whose kernels were started with other parameters than the others'."""
    problems = []
    for kind in dict.fromkeys(entry["kind"] for entry in plan.values()):
        hosts = [host for host, entry in plan.items() if entry["kind"] == kind and "kernel_parameters" in nodes[host]]
        for name in sorted({name for host in hosts for name in nodes[host]["kernel_parameters"]}):
            values: dict[str | None, list[str]] = {}
            for host in hosts:
                values.setdefault(nodes[host]["kernel_parameters"].get(name), []).append(host)
            usual = max(values, key=lambda value: len(values[value]))
            for value, odd in values.items():
                if value != usual:
                    own, theirs = (f"{name}={one}" if one is not None else f"no {name}" for one in (value, usual))
                    what = f"the kernel's command line has {own}, and {theirs} on {', '.join(values[usual])}"
                    fix = "start the kernels of all hosts alike (/etc/default/grub, sudo update-grub, reboot)"
                    problems.append(Finding("parity", what, fix, ", ".join(odd), severity=WARNING))
    return problems


def system_problems(host: str, node: Node) -> list[Finding]:
    """An operating system or release that nobody tried: it may well work, so it stops nothing."""
    system = node.get("os") or {}
    known = (str(system.get("id") or ""), str(system.get("version") or ""))
    if not known[0] or known in machine.SYSTEMS:
        return []
    tried = ", ".join(name for name, _libc in machine.SYSTEMS.values())
    seen = f"/etc/os-release: ID={known[0]}, VERSION_ID={known[1] or 'not given'}"
    return [
        Finding(
            "system",
            f"its operating system was not tried with this collection: {system.get('pretty') or known[0]} ({seen})",
            f"expect differences in packages and network services, or install one that was tried: {tried}",
            host,
            severity=WARNING,
        )
    ]


def torn_problems(host: str, node: Node) -> list[Finding]:
    """Driver 580.173.02 without the firmware of its update: the GPU is gone after the next power-off.

    The score may be above 0 on a healthy host that lacks the desktop's packages, so it is a warning.
    """
    if node.get("driver") != machine.TORN_DRIVER or not (node.get("os") or {}).get("ota_torn"):
        return []
    return [
        Finding(
            "known_bad",
            f"nvidia-spark-ota-check torn-score is {node['os']['ota_torn']:g} with driver {machine.TORN_DRIVER}: an "
            "update was applied in part, and this driver does not start with older firmware (Xid 119)",
            "see sudo nvidia-spark-ota-check summary, then sudo apt full-upgrade, sudo fwupdmgr update and a power-off",
            host,
            severity=WARNING,
        )
    ]


def _image(node: Node) -> str:
    """The OS and its release of DGX OS or Jetson Linux."""
    system = node.get("os") or {}
    dgx, tegra = machine.dgx_version(system.get("dgx") or ""), system.get("tegra")
    vendors = f"DGX OS {dgx}" if dgx else f"Jetson Linux {tegra}" if tegra else ""
    return " ".join(filter(None, [system.get("pretty", ""), vendors]))


def _firmware(node: Node, probe: Mapping[str, t.Any]) -> str:
    links = (probe.get("rdma") or node.get("rdma") or {}).get("links", ())
    return ", ".join(sorted({link["firmware"] for link in links if link.get("firmware")}))


def parity_problems(plan: Plan, nodes: Mapping[str, Node], probes: Mapping[str, Mapping[str, t.Any]]) -> list[Finding]:
    """Kernel, driver, firmware and OS image must be one across the hosts of one kind: mixed ranks fail in odd ways."""
    problems = []
    kinds: dict[str, list[str]] = {}
    for host, entry in plan.items():
        kinds.setdefault(entry["kind"], []).append(host)
    for kind, hosts in kinds.items():
        differs = False
        for what, value_of in (
            ("kernel", lambda host: nodes[host].get("kernel", "")),
            ("NVIDIA driver", lambda host: nodes[host].get("driver", "")),
            ("ConnectX firmware", lambda host: _firmware(nodes[host], probes.get(host) or {})),
            ("OS image", lambda host: _image(nodes[host])),
        ):
            values: dict[str, list[str]] = {}
            for host in hosts:
                if value_of(host):
                    values.setdefault(str(value_of(host)), []).append(host)
            if len(values) < 2:
                continue
            usual = max(values, key=lambda value: len(values[value]))
            # an image carries its maker's name and build; what ranks depend on is kernel, driver and firmware
            image = what == "OS image"
            differs = differs or not image
            for value, odd in values.items():
                if value != usual:
                    problems.append(
                        Finding(
                            "parity",
                            f"{what} is {value}, but {usual} on {', '.join(values[usual])}: "
                            + (
                                f"with one kernel, driver and firmware {kind} hosts of several makers work together"
                                if image and not differs
                                else f"all {kind} hosts of a cluster must have the same"
                            ),
                            f"update them to the same version, or list 'parity={value}' in preflight_accept",
                            ", ".join(odd),
                            where=value,
                            severity=WARNING if image and not differs else ERROR,
                        )
                    )
    if any(entry["addressing"] == "adopted" for entry in plan.values()):
        problems += _lan_mtu_parity(plan, nodes)
    return problems


def _lan_mtu_parity(plan: Plan, nodes: Mapping[str, Node]) -> list[Finding]:
    mtus: dict[int, list[str]] = {}
    for host, entry in plan.items():
        for link in entry["links"]:
            interface = interfaces_of(nodes[host]).get(link["netdev"])
            if interface and link["mtu"] is None:
                mtus.setdefault(interface["mtu"], []).append(host)
    if len(mtus) < 2:
        return []
    smallest = min(mtus)
    return [
        Finding(
            "mtu",
            f"its NIC has an MTU of {mtu}, but {smallest} on {', '.join(mtus[smallest])}",
            "give all hosts of the lan one MTU",
            ", ".join(hosts),
            severity=WARNING,
        )
        for mtu, hosts in mtus.items()
        if mtu != smallest
    ]
