# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/sys/class/infiniband as a host with these NICs would show it.

Pure: from `ip -j address` to a table of files. The host's supervisor renders it whenever a link or an address changes,
into a folder that the host sees under /sys/class, so the tree follows the NICs within a fraction of a second. There is
no RDMA behind it: counters stand still and nothing can be opened. Not shown, because a veth has no such files and
sysfs takes no new ones: /sys/class/net/*/{device,phys_port_name,phys_switch_id}; a veth's speed is always 10000.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from .system import words

# netdev → (RoCE device, PCI address)
ROCE = {
    "enp1s0f0np0": ("rocep1s0f0", "0000:01:00.0"),
    "enp1s0f1np1": ("rocep1s0f1", "0000:01:00.1"),
    "enP2p1s0f0np0": ("roceP2p1s0f0", "0002:01:00.0"),
    "enP2p1s0f1np1": ("roceP2p1s0f1", "0002:01:00.1"),
}
FIRMWARE = "28.45.4028"
BOARD = "SIM0000000007"
COUNTERS = words("""
    excessive_buffer_overrun_errors link_downed link_error_recovery local_link_integrity_errors
    port_rcv_constraint_errors port_rcv_data port_rcv_errors port_rcv_packets port_rcv_remote_physical_errors
    port_xmit_constraint_errors port_xmit_data port_xmit_discards port_xmit_packets port_xmit_wait symbol_error
    VL15_dropped
""")
GID_SLOTS = 8


def gid(address: str) -> str:
    """A GID as sysfs writes it; an IPv4 address becomes an IPv4-mapped one."""
    parsed = ipaddress.ip_address(address)
    number = int(parsed) if parsed.version == 6 else 0xFFFF << 32 | int(parsed)
    digits = f"{number:032x}"
    return ":".join(digits[at : at + 4] for at in range(0, 32, 4))


def default_gid(mac: str) -> str:
    """The link-local GID that every RoCE port has from its MAC, also where the netdev has no link-local address."""
    octets = [int(part, 16) for part in mac.split(":")]
    parts = [octets[0] ^ 2, *octets[1:3], 0xFF, 0xFE, *octets[3:6]]
    return gid("fe80::" + ":".join(f"{parts[i]:02x}{parts[i + 1]:02x}" for i in range(0, 8, 2)))


def _guid(mac: str) -> str:
    digits = mac.replace(":", "")
    whole = digits[:6] + "0003" + digits[6:]
    return ":".join(whole[i : i + 4] for i in range(0, 16, 4))


def tree(nics: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Files of /sys/class/infiniband, by their path below it."""
    files: dict[str, str] = {}
    for nic in nics:
        name = nic.get("ifname", "")
        if name not in ROCE:
            continue
        device, pci = ROCE[name]
        mac = nic.get("address", "02:00:00:00:00:00")
        up = "LOWER_UP" in nic.get("flags", ())
        files |= {
            f"{device}/fw_ver": FIRMWARE,
            f"{device}/hca_type": "MT4129",
            f"{device}/board_id": BOARD,
            f"{device}/node_type": "1: CA",
            f"{device}/node_desc": device,
            f"{device}/node_guid": _guid(mac),
            f"{device}/sys_image_guid": _guid(mac),
            f"{device}/device/uevent": f"DRIVER=mlx5_core\nPCI_SLOT_NAME={pci}",
            f"{device}/device/vendor": "0x15b3",
            f"{device}/device/device": "0x1021",
            f"{device}/device/net/{name}/address": mac,
        }
        port = f"{device}/ports/1"
        files |= {
            f"{port}/state": "4: ACTIVE" if up else "1: DOWN",
            f"{port}/phys_state": "5: LinkUp" if up else "3: Disabled",
            f"{port}/link_layer": "Ethernet",
            f"{port}/rate": "200 Gb/sec (4X HDR)" if up else "40 Gb/sec (4X QDR)",
        }
        files |= {f"{port}/counters/{counter}": "0" for counter in COUNTERS}
        gids = [default_gid(mac)]
        for address in nic.get("addr_info", ()):
            text = gid(address["local"])
            if text not in gids:
                gids.append(text)
        # each address is there twice: as RoCE v1 and as RoCE v2
        slots = [(text, kind) for text in gids for kind in ("IB/RoCE v1", "RoCE v2")][:GID_SLOTS]
        for number in range(GID_SLOTS):
            text, kind = slots[number] if number < len(slots) else (gid("::"), "")
            files[f"{port}/gids/{number}"] = text
            if kind:
                files[f"{port}/gid_attrs/types/{number}"] = kind
                files[f"{port}/gid_attrs/ndevs/{number}"] = name
    return files
