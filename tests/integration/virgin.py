# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that a run may leave on a host, to be held against what was there before the first one."""

from __future__ import annotations

import re
from collections.abc import Callable

#: what to ask, by what it is about; one thing a line
ASKED = {
    "files": r"find /etc /opt /srv /usr/local /var/lib -xdev ! -type d -printf '%p %y %m %u:%g %l\n'",
    "folders": r"find /etc /opt /srv /usr/local /var/lib -xdev -type d -printf '%p %m %u:%g\n'",
    "contents": "find /etc /opt /srv /usr/local -xdev -type f -print0 | xargs -0 sha256sum",
    "units": "systemctl list-unit-files --no-legend --no-pager | awk '{print $1, $2}'",
    "running": "systemctl list-units --state=active --no-legend --plain --type=service,target,timer,path,socket,mount"
    " | awk '{print $1}'",
    "accounts": "getent passwd; getent group",
    # by name: some of the kernel's files do work when they are read, and many change by themselves
    "sysctls": "cd /proc/sys && grep -s . vm/{swappiness,overcommit_memory,max_map_count,watermark_scale_factor}"
    " net/core/{r,w}mem_{default,max} net/ipv4/tcp_{r,w}mem kernel/{core_pattern,numa_balancing}"
    " net/ipv4/{ip_forward,conf/*/{rp_filter,arp_ignore,arp_announce}}; true",
    "nftables": "nft list ruleset",
    "netplan": "netplan get 2>/dev/null; true",
    "addresses": 'ip -br -4 address show | awk \'{sub(/@.*/, "", $1); $2=""; print}\'; grep . /sys/class/net/*/mtu',
    "packages": "dpkg-query --show",
}
#: what changes by itself, or is the system's own memory of what was done (docs/changes.md lists it)
ALLOWED = re.compile(
    r"/var/lib/(systemd|dpkg|apt|private|misc|logrotate|NetworkManager|chrony|ucf|containerd|docker)(/| )"
    r"|/etc/(\.pwd\.lock|(passwd|group|shadow|gshadow|subuid|subgid)-|ld\.so\.cache|\.updated)"
    # reached once in a boot, whoever asked for the time or the network, or whichever was the default then
    r"|^(time-(set|sync)|network-online|graphical)\.target$"
    r"|^(session-|user-runtime-dir@|user@|run-|systemd-tmpfiles-clean|apt-daily|systemd-timedated|systemd-hostnamed)"
)
Known = dict[str, set[str]]


def of(ask: Callable[[str], str]) -> Known:
    """What a host has now; ``ask`` runs a shell line on it."""
    return {
        about: {line.strip() for line in ask(command).splitlines() if line.strip() and not ALLOWED.search(line)}
        for about, command in ASKED.items()
    }


def differences(before: Known, after: Known) -> list[str]:
    """What came and what is gone, with what it is about."""
    return [
        *(f"{about}: + {line}" for about in before for line in sorted(after[about] - before[about])),
        *(f"{about}: - {line}" for about in before for line in sorted(before[about] - after[about])),
    ]
