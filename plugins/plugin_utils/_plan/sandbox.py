# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd keeps a unit of ours from, as lines for its file: one text, so that no unit is forgotten."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

#: of every unit. Nothing of what we run changes the kernel, gains rights, or makes name spaces of its own.
EVERY = (
    "NoNewPrivileges=yes",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "LockPersonality=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    "SystemCallErrorNumber=EPERM",
)
#: of all but the engine, which needs GPUs, RDMA devices, and memory that compilers write and run
PROGRAM = (
    "MemoryDenyWriteExecute=yes",
    "PrivateDevices=yes",
    "PrivateTmp=yes",
    "ProtectSystem=strict",
    "SystemCallFilter=@system-service",
)
#: CUDA, RDMA and compilers need more system calls than a list of allowed ones would name for long, and variables put
#: caches and models into any folder that the serving user may write
ENGINE = (
    "ProtectSystem=full",
    "SystemCallFilter=~@clock @cpu-emulation @keyring @module @mount @obsolete @raw-io @reboot @swap bpf",
)
NETWORK = ("AF_UNIX", "AF_INET", "AF_INET6")
#: the kernel's list of interfaces and RDMA devices comes over netlink
ENGINE_NETWORK = (*NETWORK, "AF_NETLINK")
_HOME = re.compile(r"(?<![\w./-])/(?:home|root|run/user)(?![\w.-])")


def sandbox(
    *,
    families: Sequence[str] = (),
    capabilities: Sequence[str] = (),
    writable: Sequence[str] = (),
    hidden: Sequence[str] = (),
    refused: Sequence[str] = ("@privileged", "@resources"),
    without: Sequence[str] = (),
    home: str = "yes",
    engine: bool = False,
) -> str:
    """Lines of a section Service.

    ``families`` are the kinds of sockets (AF_UNIX, or those of an ``engine``), ``writable`` the folders that are not
    read-only (those of RuntimeDirectory= and its like need no mention), ``hidden`` those that it does not see,
    ``refused`` the groups of system calls without which a program gets by, ``without`` the directives that would keep
    it from its work, ``home`` what ProtectHome= says.
    """
    lines = [*EVERY, *(ENGINE if engine else PROGRAM)]
    if refused and not engine:
        lines.append(f"SystemCallFilter=~{' '.join(refused)}")
    lines += [
        f"CapabilityBoundingSet={' '.join(capabilities)}",
        f"RestrictAddressFamilies={' '.join(families or (ENGINE_NETWORK if engine else NETWORK[:1]))}",
        f"ProtectHome={home}",
    ]
    if writable:
        # one that is not there yet is no reason not to start
        lines.append(f"ReadWritePaths={' '.join(f'-{path}' for path in writable)}")
    if hidden:
        lines.append(f"InaccessiblePaths={' '.join(f'-{path}' for path in hidden)}")
    return "\n".join(line for line in sorted(lines) if line.partition("=")[0] not in without)


def engine_home(*values: Any) -> str:
    """What ProtectHome= says of Ray and the engine; ``values`` are settings that may lead below somebody's home."""
    return "no" if _HOME.search(json.dumps(values, default=str)) else "yes"
