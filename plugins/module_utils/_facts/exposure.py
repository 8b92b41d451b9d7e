# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What somebody would miss: listeners that the firewall closes, and a way in that ends with the desktop.

Read as root, before the first change. Of a NetworkManager connection only its name, owners and flags are kept: the file
may hold the password itself.
"""

from __future__ import annotations

import configparser
import glob
import json
import os
import re
from collections.abc import Callable
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.firewall_watch import RULES, TABLE, find_nft

Runner = Callable[[list[str]], tuple[int, str, str]]

#: where NetworkManager keeps what is active, what is permanent and what a package brings
_PROFILES = tuple(
    f"{folder}/NetworkManager/system-connections/*.nmconnection" for folder in ("/run", "/etc", "/usr/lib")
)
#: who keeps each secret of a Wi-Fi connection: 0 is the system
_FLAGS = (
    *(("wifi-security", name) for name in ("psk-flags", "leap-password-flags", "wep-key-flags")),
    *(("802-1x", name) for name in ("password-flags", "private-key-password-flags")),
)


def parse_listeners(text: str) -> list[dict[str, Any]]:
    """``ss -Hltnp``, or ``-Hlunp``, as ``{address, port, program}``; a scope such as ``%lo`` is dropped."""
    listeners = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 4:
            continue
        address, _colon, port = fields[3].rpartition(":")
        if not port.isdigit():
            continue
        names = re.search(r'users:\(\("([^"]+)"', line)
        listeners.append(
            {
                "address": address.split("%")[0].strip("[]") or "*",
                "port": int(port),
                "program": names[1] if names else "",
            }
        )
    return listeners


def parse_chains(text: str) -> list[str]:
    """Tables of ``nft --json list chains``, not ours, that close the host's own ports.

    By the policy of a chain, as ufw's; firewalld's refuses by its last rule.
    """
    try:
        chains = [item["chain"] for item in json.loads(text)["nftables"] if "chain" in item]
    except (ValueError, KeyError, TypeError):
        return []
    return sorted(
        {
            f"{chain['family']} {chain['table']}"
            for chain in chains
            if (chain.get("type"), chain.get("hook")) == ("filter", "input")
            and chain["table"] != TABLE
            and (chain.get("policy") == "drop" or chain["table"] == "firewalld")
        }
    )


def parse_profile(text: str) -> dict[str, Any]:
    """A keyfile of NetworkManager as ``{uuid, name, users, asks}``; empty for what is no connection.

    ``users``: whose sessions it is bound to. ``asks``: whether a secret of it is not the system's own.
    """
    file = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",))
    try:
        file.read_string(text)
    except configparser.Error:
        return {}
    uuid = file.get("connection", "uuid", fallback="")
    if not uuid:
        return {}
    users = re.findall(r"user:([^:;]+)", file.get("connection", "permissions", fallback=""))
    flags = (file.get(section, name, fallback="0").strip() for section, name in _FLAGS)
    # 1: an agent of a session keeps it; 2: it is asked for each time
    asks = any(flag.isdigit() and int(flag) & 3 for flag in flags)
    return {"uuid": uuid, "name": file.get("connection", "id", fallback=uuid), "users": users, "asks": asks}


class ExposureReader(files.Below):
    """Reads one host; root folder and command runner are injectable for tests."""

    def __init__(self, run: Runner, root: str = "/") -> None:
        super().__init__(root)
        self._run = run

    def listeners(self, kind: str) -> list[dict[str, Any]]:
        """``kind`` is ``t`` for TCP, ``u`` for UDP; a socket of the kernel's, as WireGuard's, has no program."""
        rc, out, _err = self._run(["ss", f"-Hl{kind}np"])
        return parse_listeners(out) if rc == 0 else []

    def others(self) -> list[str]:
        """Tables of another firewall that is active."""
        rc, out, _err = self._run([find_nft() or "nft", "--json", "list", "chains"])
        return parse_chains(out) if rc == 0 else []

    def wifi(self, netdev: str) -> dict[str, Any]:
        """The NetworkManager connection of a wireless NIC; empty for any other NIC and where it is not known."""
        marks = (f"/sys/class/net/{netdev}/{mark}" for mark in ("wireless", "phy80211"))
        if not netdev or not any(os.path.exists(self._path(mark)) for mark in marks):
            return {}
        rc, out, _err = self._run(["nmcli", "--terse", "--fields", "UUID,DEVICE", "connection", "show", "--active"])
        rows = (line.partition(":") for line in out.splitlines()) if rc == 0 else ()
        active = {device: uuid for uuid, _colon, device in rows}
        for pattern in _PROFILES:
            for path in sorted(glob.glob(self._path(pattern))):
                try:
                    with open(path, encoding="utf-8", errors="replace") as file:
                        profile = parse_profile(file.read())
                except OSError:
                    continue
                if profile and profile["uuid"] == active.get(netdev):
                    return {"netdev": netdev, **profile}
        return {}

    def read(self, netdev: str) -> dict[str, Any]:
        """``netdev`` is the NIC that the controller comes in by."""
        # where our firewall stands already, nothing is closed any more
        firewall = os.path.exists(self._path(RULES))
        return {
            "firewall": firewall,
            "listeners": [] if firewall else self.listeners("t"),
            "udp": [] if firewall else self.listeners("u"),
            "others": self.others(),
            "wifi": self.wifi(netdev),
        }


def read_now(netdev: str, timeout: int = 10) -> dict[str, Any]:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited

    return ExposureReader(lambda argv: run_limited(argv, timeout)).read(netdev)
