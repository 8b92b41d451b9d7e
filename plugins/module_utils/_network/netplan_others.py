# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who else configures our NICs: other netplan files, networkd files, NetworkManager profiles, and files set aside."""

from __future__ import annotations

import fnmatch
import glob
import ipaddress
import os
import re
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan, netplan_generator
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.netplan_job import FileState

#: suffix of a foreign file set aside; netplan and networkd ignore it (for NetworkManager see :func:`aside_name`)
ASIDE = ".sparkthor-aside"


def network_matches(content: str, netdev: str, mac: str) -> bool:
    """Whether a networkd file's [Match] takes this NIC (by name, address or type, as systemd.network(5) has it).

    Conditions that cannot be judged from here (driver, path …) count as met only beside a matching name or address.
    """
    seen = False
    for section, key, value in netplan_generator.ini_items(content):
        if section != "Match":
            continue
        if key in ("Name", "OriginalName"):
            words = value.split()
            negate = bool(words) and words[0].startswith("!")
            if negate:
                words[0] = words[0][1:]
            if any(fnmatch.fnmatchcase(netdev, word) for word in words if word) == negate:
                return False
            seen = True
        elif key in ("MACAddress", "PermanentMACAddress"):
            if mac.lower() not in value.lower().replace("-", ":").split():
                return False
            seen = True
        elif key == "Type":
            if not any(fnmatch.fnmatchcase("ether", word) for word in value.split()):
                return False
            seen = True
    return seen


def profile_matches(content: str, netdev: str, mac: str) -> bool:
    """Whether a NetworkManager keyfile is meant for this NIC by name or address (a profile for any NIC is not)."""
    for section, key, value in netplan_generator.ini_items(content):
        if (section, key) == ("connection", "interface-name") and value == netdev:
            return True
        if (section, key) == ("match", "interface-name") and any(
            fnmatch.fnmatchcase(netdev, word) for word in re.split(r"[;,]", value) if word
        ):
            return True
        if key == "mac-address" and value.lower() == mac.lower() and mac:
            return True
    return False


def may_be_about(content: str, netdev: str, mac: str) -> bool:
    """Whether a netplan file may configure this NIC, by its text: as a key, by name, or by address."""
    names = re.findall(r"name:\s*[\"']?([^\s\"',}]+)", content)
    return (
        bool(netplan_generator.files_defining(netdev, {"": content}))
        or any(fnmatch.fnmatchcase(netdev, name) for name in names)
        or bool(mac and mac.lower() in content.lower())
    )


NETWORKD_FOLDERS = (
    "/etc/systemd/network",
    "/run/systemd/network",
    "/usr/local/lib/systemd/network",
    "/usr/lib/systemd/network",
)
PROFILE_FOLDERS = ("/etc/NetworkManager/system-connections", "/usr/lib/NetworkManager/system-connections")


def static_settings() -> dict[str, str]:
    """networkd files and NetworkManager profiles that do not come from netplan, by path."""
    settings: dict[str, str] = {}
    for folders, suffix in ((NETWORKD_FOLDERS, "*.network"), (PROFILE_FOLDERS, "*.nmconnection")):
        for folder in folders:
            # there NetworkManager reads every name that is not hidden and no backup
            pattern = "*" if folder == PROFILE_FOLDERS[0] else suffix
            for path in sorted(glob.glob(os.path.join(folder, pattern))):
                state = job.read_state(path)
                netplans = folder.startswith("/run/") and "netplan-" in os.path.basename(path)
                if state is not None and not netplans and not path.endswith("~"):
                    settings[path] = state["content"]
    return settings


def edit_of_ours(content: str) -> str:
    """The NIC of a profile of ours that somebody has edited; empty for any other profile.

    NetworkManager keeps the edit as a file of its own that hides ours, without the comment by which we know a file.
    It copies all that netplan made of our file, so name and priority tell it from an edit of somebody else's profile.
    """
    items = {key: value for section, key, value in netplan_generator.ini_items(content) if section == "connection"}
    prefix, nic = items.get("id", "")[:8], items.get("id", "")[8:]
    named = prefix == "netplan-" and items.get("interface-name", nic) == nic
    return nic if named and items.get("autoconnect-priority") == netplan.PRIORITY else ""


def edits_of_ours(static: dict[str, str]) -> dict[str, str]:
    """Of the settings that are not netplan's, our own profiles as somebody edited them: path → NIC."""
    return {
        path: nic
        for path, content in static.items()
        if os.path.dirname(path) == PROFILE_FOLDERS[0] and (nic := edit_of_ours(content))
    }


def is_edit_of_ours(path: str, content: str) -> bool:
    """The same of a file that was set aside, which NetworkManager may have written for netplan (``90-NM-….yaml``)."""
    if not path.endswith(".yaml"):
        return bool(edit_of_ours(content))
    try:
        generated = netplan_generator.generate({path: content})
    except netplan_generator.NetplanError:
        return False
    own = [state["content"] for name, state in generated.items() if netplan_generator.file_owner_of(name)]
    return bool(own) and all(map(edit_of_ours, own))


def foreign_settings(
    netdevs: dict[str, str], others: dict[str, FileState], sources: dict[str, str], static: dict[str, str]
) -> list[dict[str, Any]]:
    """Settings by others for our NICs (name → MAC): ``{path, netdev, netplan}``; ``path`` is the file a person edits.

    Lists of two netplan files merge, and of several networkd files the one first by name wins: either way the NIC
    would not become what the plan says.
    """
    settings: list[dict[str, Any]] = []
    for netdev, mac in netdevs.items():
        paths: dict[str, bool] = {}
        for path, state in others.items():
            # a second file with our NIC as its key merges with ours, whatever it matches by itself
            matches = (
                netplan_generator.file_owner_of(path) == netdev
                or (path.endswith(".network") and network_matches(state["content"], netdev, mac))
                or (path.endswith(".nmconnection") and profile_matches(state["content"], netdev, mac))
            )
            if matches:
                for source in netplan_generator.files_defining(netplan_generator.file_owner_of(path), sources) or [
                    path
                ]:
                    paths[source] = True
        for path, content in static.items():
            if path.endswith(".network"):
                first = os.path.basename(path) < f"10-netplan-{netdev}.network"
                if first and network_matches(content, netdev, mac):
                    paths[path] = False
            elif profile_matches(content, netdev, mac):
                paths[path] = False
        settings += [{"path": path, "netdev": netdev, "netplan": netplan} for path, netplan in paths.items()]
    return settings


def bound_to_carrier(generated: dict[str, FileState], netdevs: set[str]) -> list[str]:
    """Of these NICs those whose address goes with the carrier, by what netplan makes of its files.

    To NetworkManager only its own configuration says otherwise.
    """
    kept = {
        netplan_generator.file_owner_of(path)
        for path, state in generated.items()
        if ("Network", "ConfigureWithoutCarrier", "yes") in netplan_generator.ini_items(state["content"])
    }
    settings = [job.read_state(path) for path in glob.glob("/etc/NetworkManager/conf.d/*.conf")]
    if any("ignore-carrier" in state["content"] for state in settings if state):
        kept |= {netplan_generator.file_owner_of(path) for path in generated if path.endswith(".nmconnection")}
    return sorted(netdevs - kept)


def configured_addresses(contents: list[str]) -> set[str]:
    """Addresses that networkd files or NetworkManager profiles give a NIC."""
    addresses = set()
    for content in contents:
        for section, key, value in netplan_generator.ini_items(content):
            if (section, key) in (("Network", "Address"), ("Address", "Address")) or (
                section in ("ipv4", "ipv6") and re.fullmatch(r"address\d*|addresses\d*", key)
            ):
                addresses |= {word.partition(",")[0] for word in value.split(";")}
    return {normal_address(address) for address in addresses if address}


def normal_address(address: str) -> str:
    try:
        interface = ipaddress.ip_interface(address)
    except ValueError:
        return address
    return f"{interface.ip}/{interface.network.prefixlen}"


def runtime_addresses(
    live: dict[str, dict[str, Any]], generated: dict[str, FileState], static: dict[str, str], ours: set[str]
) -> list[dict[str, str]]:
    """Addresses on other NICs that no file gives them though files configure the NIC: an apply would drop them.

    A NIC that no file takes (docker0, a bridge somebody made) is left alone by the network services, and an address
    with a lifetime comes from DHCP or a router.
    """
    addresses = []
    files = {**{path: state["content"] for path, state in generated.items()}, **static}
    for name, link in live.items():
        if name in ours or name == "lo":
            continue
        contents = [
            content
            for path, content in files.items()
            if (path.endswith(".network") and network_matches(content, name, link["mac"]))
            or (path.endswith(".nmconnection") and profile_matches(content, name, link["mac"]))
        ]
        if not contents:
            continue
        known = configured_addresses(contents)
        for address, item in link["addresses"].items():
            if item["scope"] == "global" and not item["dynamic"] and normal_address(address) not in known:
                addresses.append({"netdev": name, "address": address})
    return addresses


def aside_name(path: str) -> str:
    """Under which name a file is set aside: hidden among NetworkManager's profiles, since it reads all others."""
    folder, name = os.path.split(path)
    return f"{folder}/{'.' if folder in PROFILE_FOLDERS else ''}{name}{ASIDE}"


def set_aside(path: str) -> dict[str, list[str]]:
    """Files that stand aside on this host: original path → copies, for netplan, networkd and NetworkManager."""
    asides: dict[str, list[str]] = {}
    for folder in sorted({os.path.dirname(path), *netplan_generator.SOURCES, NETWORKD_FOLDERS[0], PROFILE_FOLDERS[0]}):
        hidden = "." if folder in PROFILE_FOLDERS else ""
        for copy in sorted(glob.glob(f"{glob.escape(folder)}/{hidden}*{ASIDE}*")):
            original, _suffix, number = copy.rpartition(ASIDE)
            if re.fullmatch(r"(\.\d+)?", number):
                original = f"{folder}/{os.path.basename(original).removeprefix(hidden)}"
                asides.setdefault(original, []).append(copy)
    return asides


def nics_of(path: str, content: str, live: dict[str, dict[str, Any]]) -> set[str]:
    """NICs that one file configures, by the names and addresses in it; ``*`` where a profile of it takes any."""
    if not path.endswith(".yaml"):
        return named_nics(content, live)
    found: set[str] = set()
    for name, state in netplan_generator.generate({path: content}).items():
        if netplan_generator.file_owner_of(name):
            found |= named_nics(state["content"], live) or {"*"}
    return found


def named_nics(content: str, live: dict[str, dict[str, Any]]) -> set[str]:
    """NICs that a networkd file or a NetworkManager profile names, by name or by address."""
    macs = {link["mac"].lower(): name for name, link in live.items() if link["mac"]}
    nics: set[str] = set()
    for _section, key, value in netplan_generator.ini_items(content):
        if key in ("Name", "OriginalName", "interface-name"):
            nics |= set(re.split(r"[;,\s]+", value)) - {""}
        elif key in ("MACAddress", "PermanentMACAddress", "mac-address"):
            nics |= {macs.get(word.lower(), word) for word in value.split()}
    return nics
