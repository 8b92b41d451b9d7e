# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this run would take from somebody: ports that the firewall closes, and Wi-Fi that ends with the desktop."""

from __future__ import annotations

import shlex
import typing as t
from collections.abc import Collection, Mapping

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import WARNING, Finding
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import role_specs
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight.facts import Node, interfaces_of

#: the inventory's variables that decide what is lost
READS: t.Final = (
    *("firewall_enabled", "firewall_sources", "firewall_interfaces", "firewall_tcp_ports", "firewall_ssh_ports"),
    *("firewall_api_port", "vllm_serve_api_port", "ansible_port", "os_hardening_headless"),
)
#: a container engine hands these on before the firewall's table sees them
_FORWARDED = ("docker-proxy",)
#: names of neighbours without a DNS, which systemd-resolved answers on every host whether anybody asks or not
_LLMNR = 5355
_BRIDGES = ("docker", "br-", "podman", "cni")


def exposure_problems(
    host: str,
    exposure: Mapping[str, t.Any],
    node: Node,
    variables: Mapping[str, t.Any],
    roles: Collection[str],
    head: bool = False,
) -> list[Finding]:
    """``exposure`` as the host read it, ``variables`` of :data:`READS`, ``roles`` that this run has."""
    problems = []
    if "firewall" in roles and not exposure.get("firewall", True) and _is_on(variables, "firewall_enabled"):
        problems += _closed(host, exposure["listeners"], node, variables, head)
    if "os_hardening" in roles and _is_on(variables, "os_hardening_headless"):
        problems += _lost_wifi(host, exposure.get("wifi") or {})
    return problems


def _is_on(variables: Mapping[str, t.Any], name: str) -> bool:
    try:
        return bool(boolean(variables.get(name, True)))
    except TypeError:
        # what is wrong with the value is told by the check of the roles' arguments
        return True


def _ports(variables: Mapping[str, t.Any], name: str, default: t.Any = ()) -> set[int]:
    values = variables.get(name, default)
    values = values if isinstance(values, (list, tuple)) else [values]
    return {int(value) for value in values if str(value).isdigit()}


def _closed(
    host: str, listeners: t.Iterable[Mapping[str, t.Any]], node: Node, variables: Mapping[str, t.Any], head: bool
) -> list[Finding]:
    """One finding for all that would be closed; none where the inventory says by address who may reach every port."""
    if variables.get("firewall_sources"):
        return []
    kept = _ports(variables, "firewall_tcp_ports") | _ports(variables, "firewall_ssh_ports", [22])
    kept |= _ports(variables, "ansible_port", 22)
    if head:
        kept |= _ports(
            variables,
            "firewall_api_port",
            variables.get("vllm_serve_api_port", role_specs.defaults()["vllm_serve_api_port"]),
        )
    trusted = set(variables.get("firewall_interfaces") or ())
    nics = interfaces_of(node)
    by_address = {
        item["address"].partition("/")[0]: name for name, nic in nics.items() for item in nic.get("addresses", ())
    }
    programs: dict[int, str] = {}
    if (node.get("management") or {}).get("netdev") not in trusted:
        for listener in listeners:
            address, port, program = listener["address"], int(listener["port"]), listener["program"]
            local = address.removeprefix("::ffff:").startswith("127.") or address == "::1"
            if local or port in kept or port == _LLMNR or program in _FORWARDED or by_address.get(address) in trusted:
                continue
            programs.setdefault(port, program)
    bridges = sorted(
        name for name, nic in nics.items() if name.startswith(_BRIDGES) and nic.get("carrier") and name not in trusted
    )
    if not programs and not bridges:
        return []
    what, fixes = [], []
    if programs:
        ports = ", ".join(f"{port} ({programs[port]})" if programs[port] else str(port) for port in sorted(programs))
        what.append(f"the firewall will close {ports}")
        fixes.append(
            "list in firewall_tcp_ports what is to stay open to everybody, or in firewall_sources who may reach all "
            "ports"
        )
    if bridges:
        what.append(f"containers on {', '.join(bridges)} will no longer reach the host's own ports")
        fixes.append(f"firewall_interfaces: [{', '.join(bridges)}] keeps them open for containers")
    return [
        Finding(
            "closed_ports",
            " and ".join(what),
            "; ".join([*fixes, "firewall_enabled: false leaves the host's firewall alone"]),
            host,
            "TCP ports" if programs else "firewall_interfaces",
            sorted(programs) or sorted(trusted),
            severity=WARNING,
        )
    ]


def _lost_wifi(host: str, wifi: Mapping[str, t.Any]) -> list[Finding]:
    if not wifi or not (wifi["users"] or wifi["asks"]):
        return []
    name, causes = repr(wifi["name"]), []
    if wifi["users"]:
        causes.append(f"belongs to the desktop session of {', '.join(wifi['users'])}")
    if wifi["asks"]:
        causes.append("gets its password from a desktop session")
    return [
        Finding(
            "wifi",
            f"the controller comes in by Wi-Fi {wifi['netdev']}, whose connection {name} {' and '.join(causes)}: "
            "without a desktop it does not connect after a reboot",
            f"give it to the system (sudo nmcli connection modify {shlex.quote(wifi['name'])} "
            "connection.permissions '' wifi-sec.psk-flags 0 wifi-sec.psk PASSWORD), use the wired port, set "
            "os_hardening_headless: false, or list wifi in preflight_accept",
            host,
            "os_hardening_headless",
            True,
        )
    ]
