# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an update of the hosts' packages will do, and whether a host is as sound after it.  On the controller; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import host_gpu
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import host_check

#: packages named for each host; the others are counted
NAMED: Final = 12
#: firmware that is the same in the machines of all makers
_NVIDIA: Final = ("ConnectX", "VBIOS")
#: what an owner wants to see first
_FIRST: Final = ("linux-", "nvidia-", "libnvidia", "cuda", "rdma", "libibverbs", "mlnx", "docker", "containerd")


def order(hosts: Sequence[str], heads: Sequence[str]) -> list[str]:
    """Workers first, each by itself; a head only when they are done."""
    return [*(host for host in hosts if host not in heads), *heads]


def _packages(plan: Mapping[str, Any]) -> list[str]:
    changes = [f"{one['name']} {one['old']} -> {one['new']}" for one in plan.get("updates") or ()]
    changes += [f"{one['name']} {one['new']} (new)" for one in plan.get("new") or ()]
    changes += [f"{one['name']} {one['old']} (goes)" for one in plan.get("removed") or ()]
    changes.sort(key=lambda text: (not text.startswith(_FIRST), text))
    more = [f"and {len(changes) - NAMED} more"] if len(changes) > NAMED else []
    return [*changes[:NAMED], *more]


def lines(
    plans: Mapping[str, Mapping[str, Any]], heads: Sequence[str], before: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Order, packages, way back and firmware, for people. ``before`` is each host's status."""
    changing = [host for host in order(list(plans), heads) if _packages(plans[host])]
    text = []
    for number, host in enumerate(changing, 1):
        reboot = ", and a reboot" if plans[host].get("reboots") else ""
        text.append(f"{number}. {host}: {'; '.join(_packages(plans[host]))}{reboot}")
    if changing:
        text.append("way back: each host's former packages, put aside on it before anything changes")
        text.append("a host that fails its proof gets them back, and those after it stay as they are")
    else:
        text.append("no host has an update")
    return [*text, *kept_back_lines(plans), *firmware_lines(plans, before)]


def kept_back_lines(plans: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Packages that stay although there is an update of them: a host that holds some is updated in part."""
    by_names: dict[tuple[str, ...], list[str]] = {}
    for host, plan in plans.items():
        if names := tuple(sorted(plan.get("kept_back") or ())):
            by_names.setdefault(names, []).append(host)
    return [
        f"kept back on {', '.join(hosts)}: {', '.join(names[:NAMED])}"
        f"{f' and {len(names) - NAMED} more' if len(names) > NAMED else ''}"
        " (apt-mark showhold tells what is held, sudo apt-mark unhold NAME lets it go along)"
        for names, hosts in by_names.items()
    ]


def firmware_lines(plans: Mapping[str, Mapping[str, Any]], before: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Firmware that differs between hosts of one kind; it is named and never written.

    NIC and GPU are NVIDIA's in all of them; BIOS, EC and the like are numbered by each maker as it likes.
    """
    alike: dict[tuple[str, str], dict[str, dict[str, list[str]]]] = {}
    for host, plan in plans.items():
        status = before.get(host) or {}
        node = status.get("node") or {}
        kind, product = str(node.get("kind") or ""), str(node.get("product") or "")
        known = {**(plan.get("firmware") or {})}
        if nic := (status.get("versions") or {}).get("NIC firmware"):
            known["ConnectX"] = nic
        for name, version in known.items():
            of = (kind, "" if name in _NVIDIA else product)
            alike.setdefault(of, {}).setdefault(str(name), {}).setdefault(str(version), []).append(host)
    return [
        f"firmware differs, and is not written: {name} is "
        + ", ".join(f"{version} on {', '.join(hosts)}" for version, hosts in sorted(versions.items()))
        for by_name in alike.values()
        for name, versions in sorted(by_name.items())
        if len(versions) > 1
    ]


def _of_kernel(host: str, node: Mapping[str, Any]) -> list[Finding]:
    return [
        *host_check.handover_problems(host, node),
        *host_check.known_bad_problems(host, node, host_check.KNOWN_BAD),
        *host_check.torn_problems(host, node),
    ]


def _dark(node: Mapping[str, Any], former: Mapping[str, Any], told: set[str]) -> list[str]:
    """Cabled ports without RDMA that had a carrier: those of a LAN, and the lanes of a Thor. A radio comes and goes."""
    now = {link["name"]: link for link in node.get("interfaces") or ()}
    return [
        f"{link['name']} has no carrier, and had one" if link["name"] in now else f"{link['name']} is gone"
        for link in former.get("interfaces") or ()
        if link.get("carrier") and not link.get("virtual") and not link["name"].startswith("wl")
        if link["name"] not in told
        if not now.get(link["name"], {}).get("carrier")
    ]


def worse(host: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is worse on a host than before its update; ``before`` and ``now`` are its status."""
    node, former = now.get("node") or {}, before.get("node") or {}
    reasons = []
    what, fix = host_gpu.missing(node)
    if what:
        reasons.append(f"{what}; {fix}")
    elif (node.get("gpus") or 0) < (former.get("gpus") or 0):
        reasons.append(f"it has {node.get('gpus') or 0} GPUs, and had {former['gpus']}")
    links = {link["netdev"]: link for link in (now.get("rdma") or {}).get("links") or ()}
    for link in (before.get("rdma") or {}).get("links") or ():
        seen = links.get(link["netdev"])
        if seen is None:
            reasons.append(f"{link['netdev']} is gone")
        elif link.get("state") == "up" and seen.get("state") != "up":
            reasons.append(f"{link['netdev']} has no carrier, and had one")
    told = {link["netdev"] for link in (before.get("rdma") or {}).get("links") or ()}
    reasons += _dark(node, former, told | set(links))
    known = {problem.what for problem in _of_kernel(host, former)}
    reasons += [
        f"{problem.what} (fix: {problem.fix})" for problem in _of_kernel(host, node) if problem.what not in known
    ]
    failed = {name for name, unit in (before.get("units") or {}).items() if unit.get("active") == "failed"}
    for name, unit in (now.get("units") or {}).items():
        if unit.get("active") == "failed" and name not in failed:
            reasons.append(f"{name} has failed ({unit.get('result') or 'no reason'})")
    return reasons
