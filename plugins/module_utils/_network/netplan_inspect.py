# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything on a host that conflicts with the planned netplan file, found without changing anything."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import WARNING, Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    floating_addresses,
    neighbors,
    netplan,
    netplan_generator,
    netplan_others,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job

FileState = job.FileState
#: of a file of the same meaning, which is adopted all the same
CARRIER_BOUND = "carrier_bound"
#: findings by which a file of ours is not what holds at the next reboot, although it is as planned
_OVERRULED = frozenset(("foreign_file", "foreign_settings", "shadowed", "invalid_yaml"))
#: what is known of a host before a change; see :func:`inspect`
Inspection = dict[str, Any]


def written(path: str, links: list[dict[str, Any]], renderer: str) -> dict[str, FileState | None]:
    """Our files as planned if they are on the host and nothing hides them, else nothing.

    The generator is asked only where the text of another file may be about our NICs.
    """
    static = netplan_others.static_settings()
    if netplan_others.edits_of_ours(static):
        return {}
    if not renderer and netplan_generator.profiled(job.generated_files(), {link["netdev"] for link in links}):
        renderer = "NetworkManager"
    planned = netplan.files(path, links, renderer)
    for name, state in planned.items():
        current = job.read_state(name)
        if (current and current["content"]) != (state and state["content"]):
            return {}
    if _may_be_overruled(path, links, static):
        found = inspect(path, links, renderer)["findings"]
        return {} if _OVERRULED.intersection(finding.id for finding in found) else planned
    return planned


def _may_be_overruled(path: str, links: list[dict[str, Any]], static: dict[str, str]) -> bool:
    """Whether another file may set up our NICs too, or hide ours, by its text and name alone."""
    try:
        sources = netplan_generator.source_files()
    except netplan_generator.NetplanError:
        return True
    if _shadowing_files(path, {"sources": sources}):
        return True
    live = job.live_links()
    macs = {link["netdev"]: live.get(link["netdev"], {}).get("mac", "") for link in links}
    others = [content for name, content in sources.items() if name != path]
    return bool(netplan_others.foreign_settings(macs, {}, {}, static)) or any(
        netplan_others.may_be_about(content, netdev, mac) for content in others for netdev, mac in macs.items()
    )


def inspect(path: str, links: list[dict[str, Any]], renderer: str = "", floating: Iterable[str] = ()) -> Inspection:
    """Everything that would go wrong with a change, found without changing anything.

    ``floating``: addresses of which this host may have one now and another host the next moment; whoever has them, they
    are in nobody's file.

    Returns ``findings``, the renderer of our NICs and, for the module, what netplan makes of the files as they are,
    without ours, and as planned.
    """
    try:
        files, unread = netplan_generator.source_files(), None
    except netplan_generator.NetplanError as error:
        files, unread = {}, _refused(error)
    at_path = files.get(path)
    seen: Inspection = {
        "findings": [],
        "own": at_path,
        "sources": {name: text for name, text in files.items() if name != path},
        "live": job.live_links(),
        "run": job.generated_files(),
        "wanted": {},
        "generated": {},
        "others": {},
        "renderer": "",
        "ids": set(),
        "previous": set(),
        "aside": [],
        "static": netplan_others.static_settings(),
        "edited": {},
        "floating": floating_addresses.known(floating),
        "adoptable": False,
        "planned": {},
        "foreign": at_path is not None and not netplan.is_ours(at_path),
    }
    seen["edited"] = netplan_others.edits_of_ours(seen["static"])
    findings: list[Finding] = seen["findings"]
    findings += _shadowing_files(path, seen)
    refusal = unread or _generate_as_is(path, seen)
    if refusal:
        findings.append(refusal)
        return seen
    ids_of_ours = (_ids(seen["generated"]) - _ids(seen["others"])) | set(seen["edited"].values())
    seen["previous"] = ids_of_ours
    seen["ids"] = ids_of_ours | {link["netdev"] for link in links}
    findings += _settings_of_others(links, seen)
    findings += _pending_edits(seen)
    findings += _runtime_addresses(seen)
    if links:
        findings += [*_without_renderer(renderer), *_compare_with_plan(path, links, renderer, seen)]
    return seen


def _without_renderer(renderer: str) -> list[Finding]:
    """networkd is there wherever netplan is, and is started; NetworkManager is a choice of the host's owner."""
    if renderer != "NetworkManager" or job.unit_active("NetworkManager.service"):
        return []
    return [
        Finding(
            "no_network_manager",
            "roce_network_renderer is NetworkManager, which does not run here",
            "remove the variable to have the renderer that the host has, or set it to networkd",
        )
    ]


def _ids(generated: dict[str, FileState]) -> set[str]:
    """The netplan ids that generated files belong to."""
    return {netplan_generator.file_owner_of(name) for name in generated} - {""}


def _shadowing_files(path: str, seen: Inspection) -> list[Finding]:
    return [
        Finding(
            "shadowed",
            f"{name} hides {path}",
            f"remove {name} or move what it sets to a file of another name",
            where=name,
        )
        for name in seen["sources"]
        if os.path.basename(name) == os.path.basename(path) and name.startswith("/run/")
    ]


def _refused(error: netplan_generator.NetplanError) -> Finding:
    return Finding(
        "invalid_yaml",
        f"netplan refuses {error.path or 'its files'}: {error}",
        f"correct {error.path or 'the file'} (sudo netplan generate shows the same error)",
        where=error.path,
    )


def _generate_as_is(path: str, seen: Inspection) -> Finding | None:
    """Fill in ``others`` (without our file) and ``generated`` (with it); a finding where netplan refuses."""
    at_path, others = seen["own"], seen["sources"]
    try:
        seen["others"] = netplan_generator.generate(others)
    except netplan_generator.NoNetplanError as error:
        return Finding("no_netplan", str(error), "install the package netplan.io (sudo apt install netplan.io)")
    except netplan_generator.NetplanError as error:
        return _refused(error)
    try:
        seen["generated"] = (
            netplan_generator.generate({**others, path: at_path}) if at_path is not None else seen["others"]
        )
    except netplan_generator.NetplanError as error:
        if not netplan.is_ours(at_path or ""):
            return Finding(
                "invalid_yaml",
                f"netplan refuses {error.path or path}: {error}",
                f"correct or remove {error.path or path}",
                where=error.path or path,
            )
        seen["generated"] = seen["others"]  # ours and broken: it is about to be written anew
    return None


def _settings_of_others(links: list[dict[str, Any]], seen: Inspection) -> list[Finding]:
    """Files of others that configure our NICs; ``aside`` becomes those about nothing else."""
    macs = {link["netdev"]: seen["live"].get(link["netdev"], {}).get("mac", "") for link in links}
    static = {path: content for path, content in seen["static"].items() if path not in seen["edited"]}
    foreign = netplan_others.foreign_settings(macs, seen["others"], seen["sources"], static)
    findings = []
    for item in foreign:
        # the other cage is the fabric's as well: what NVIDIA Sync or a former ring set there goes with the file
        item["alone"] = _only_about({*macs, *neighbors.SPARK_PORTS}, item, seen)
        findings.append(
            Finding(
                "foreign_file" if item["alone"] else "foreign_settings",
                f"{item['path']} also configures fabric NIC {item['netdev']}",
                f"remove {item['netdev']} from {item['path']}"
                + (", or set roce_network_replace_foreign: true to have the file set aside" if item["alone"] else ""),
                where=item["netdev"],
            )
        )
    seen["aside"] = sorted({item["path"] for item in foreign if item["alone"]})
    return findings


def _only_about(netdevs: set[str], item: dict[str, Any], seen: Inspection) -> bool:
    """Whether the file of a foreign setting configures fabric NICs and nothing else."""
    path = item["path"]
    if not path.startswith("/etc/"):
        return False
    content = seen["sources" if item["netplan"] else "static"][path]
    with contextlib.suppress(netplan_generator.NetplanError):
        if item["netplan"] and _ids(netplan_generator.generate({path: content})) <= netdevs:
            return True
        return netplan_others.nics_of(path, content, seen["live"]) <= netdevs
    return False


def _pending_edits(seen: Inspection) -> list[Finding]:
    findings: list[Finding] = []
    for item in netplan_generator.pending_edits(seen["generated"], seen["run"], seen["ids"]):
        if not item["id"] and findings:
            continue  # shared rules follow from the file already named
        named = netplan_generator.files_defining(item["id"], seen["sources"]) if item["id"] else []
        findings.append(
            Finding(
                "pending_edit",
                f"{' and '.join(named) or 'a netplan file'} holds a change that was never applied"
                f" ({item['id'] or os.path.basename(item['path'])}: {item['detail']})",
                "apply it (sudo netplan try) or take it back, then run again, or list pending_edit in preflight_accept",
                where=named[0] if named else item["path"],
            )
        )
    return findings


def _runtime_addresses(seen: Inspection) -> list[Finding]:
    return [
        Finding(
            "runtime_address",
            f"{item['netdev']} has {item['address']} at run time only; the next netplan apply or reboot would drop it",
            f"add {item['address']} to the netplan file of {item['netdev']} and apply it, or remove it, or list"
            " runtime_address in preflight_accept",
            where=item["netdev"],
        )
        for item in netplan_others.runtime_addresses(seen["live"], seen["run"], seen["static"], seen["ids"])
        if item["address"].partition("/")[0] not in seen["floating"]
    ]


def _compare_with_plan(path: str, links: list[dict[str, Any]], renderer: str, seen: Inspection) -> list[Finding]:
    """What netplan makes of the planned file; fills in ``planned, wanted, renderer, adoptable``."""
    netdevs = {link["netdev"] for link in links}
    aside = {name: text for name, text in seen["sources"].items() if name in seen["aside"]}
    kept = {name: text for name, text in seen["sources"].items() if name not in aside}
    try:
        if aside:  # nothing of it stays where the network services read
            seen["ids"] |= _ids(netplan_generator.generate(aside))
        seen["wanted"] = netplan_generator.generate({**kept, path: netplan.render(links, renderer)})
        if not renderer and netplan_generator.profiled(seen["wanted"], netdevs):
            renderer = "NetworkManager"
            seen["wanted"] = netplan_generator.generate({**kept, path: netplan.render(links, renderer)})
    except netplan_generator.NetplanError as error:
        return [
            Finding(
                "invalid_plan",
                f"netplan refuses the file planned for {path}: {error}",
                "correct fabric_cidr, fabric_mtu or fabric_overrides",
                where=path,
            )
        ]
    seen["planned"] = netplan.files(path, links, renderer)
    seen["renderer"] = "NetworkManager" if netplan_generator.profiled(seen["wanted"], netdevs) else "networkd"
    seen["adoptable"] = seen["own"] is not None and netplan_generator.same_meaning(
        seen["generated"], netplan_generator.generate({**seen["sources"], path: netplan.render(links, renderer)})
    )
    findings = []
    if seen["foreign"] and not seen["adoptable"]:
        findings.append(
            Finding(
                "foreign_file",
                f"{path} was not written by this collection and means something else than the plan",
                "make it match, remove it, or set roce_network_replace_foreign: true (a backup is kept)",
                where=path,
            )
        )
    elif seen["foreign"] and (bound := netplan_others.bound_to_carrier(seen["generated"], netdevs)):
        findings.append(
            Finding(
                CARRIER_BOUND,
                f"{path} was not written by this collection and lacks ignore-carrier: while the other end of a cable is"
                f" off, as when a peer restarts, {', '.join(bound)} loses its address",
                "set roce_network_replace_foreign: true to have the file replaced (a backup is kept), or, with the"
                " renderer networkd, add ignore-carrier: true",
                where=path,
                severity=WARNING,
            )
        )
    return findings + _foreign_addresses(links, seen)


def _foreign_addresses(links: list[dict[str, Any]], seen: Inspection) -> list[Finding]:
    """Addresses on fabric NICs that are neither planned nor from our file.

    A lease of DHCP is nobody's setting where no file is about the NIC: a machine comes from the factory with a
    profile that asks everywhere. It goes with that profile when ours takes the NIC over.
    """
    known = netplan_others.configured_addresses(
        [
            state["content"]
            for name, state in seen["generated"].items()
            if netplan_generator.file_owner_of(name) in seen["previous"]
        ]
        + [seen["static"][name] for name in seen.get("edited", ())]
    )
    return [
        Finding(
            "foreign_address",
            f"fabric NIC {link['netdev']} has {address}, which is neither planned nor from our file",
            f"remove it (sudo ip address del {address} dev {link['netdev']}), allot it with"
            " fabric_overrides, or set roce_network_replace_foreign: true",
            where=link["netdev"],
        )
        for link in links
        for address, item in seen["live"].get(link["netdev"], {}).get("addresses", {}).items()
        if item["family"] == "inet"
        and item["scope"] == "global"
        and not item.get("dynamic")
        and address != link["address"]
        and address.partition("/")[0] not in seen.get("floating", ())
        and netplan_others.normal_address(address) not in known
    ]
