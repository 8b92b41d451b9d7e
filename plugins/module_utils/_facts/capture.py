# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What our readers read on a host, as it is: files and the output of commands, for tests that have no such machine.

Commands are read-only, each with a time limit.  Files are those of this list alone; no secret and no netplan file is
among them, since those may hold a Wi-Fi password.  Everything is masked before it leaves the host.
"""

from __future__ import annotations

import glob
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import evidence, node, own_secrets
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import mask
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.anonymous import Anonymous
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_plain
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import neighbors, rdma
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import gpu_state

Runner = Callable[[list[str]], tuple[int, str, str]]

VERSION = 1
FILES = (
    *("/etc/os-release", "/etc/dgx-release", "/etc/fastos-release", "/etc/nv_tegra_release", "/etc/nccl.conf"),
    *("/etc/hosts", "/proc/meminfo", "/proc/device-tree/model", "/sys/module/nvidia/version"),
    "/proc/sys/kernel/random/boot_id",
    *(
        f"/sys/class/dmi/id/{name}"
        for name in (
            *("sys_vendor", "product_name", "product_family", "product_version", "board_name"),
            *("bios_version", "bios_date"),
        )
    ),
    *(
        f"/sys/class/net/*/{name}"
        for name in (
            *("carrier", "operstate", "mtu", "speed", "phys_port_name", "phys_switch_id", "dev_port"),
            *("device/uevent", "device/current_link_speed", "device/max_link_speed"),
            *("device/current_link_width", "device/max_link_width"),
        )
    ),
    *(f"/sys/class/infiniband/*/{name}" for name in ("fw_ver", "board_id", "device/uevent")),
    *(f"/sys/class/infiniband/*/ports/*/{name}" for name in ("state", "phys_state", "link_layer", "rate")),
    *(f"/sys/class/infiniband/*/ports/*/{name}/*" for name in ("gids", "gid_attrs/types", "gid_attrs/ndevs")),
    *(f"/sys/bus/pci/devices/*/{name}" for name in ("vendor", "device", "class")),
)
#: beyond what the readers ask: what tells why a reader is wrong
MORE = (
    *(["ibdev2netdev"], ["ibdev2netdev", "-v"], ["rdma", "-j", "link", "show"], gpu_state.COMMAND),
    *(["nvidia-smi", "-q"], ["nvidia-smi"], ["nvidia-spark-ota-check", "torn-score"], ["lldpctl", "-f", "json0"]),
    *(["nmcli", "--terse", "--fields=DEVICE,TYPE,STATE", "device", "status"], ["ip", "-j", "-6", "route", "show"]),
    *(["nvpmodel", "-q"], ["apt-mark", "showhold"], ["systemctl", "--failed", "--plain", "--no-legend"]),
    *(["ethtool", name] for name in neighbors.SPARK_PORTS),
)
_LIMIT = 100_000
_COUNT = 4000


def _lines(text: str) -> str:
    """Without the lines that hold a serial number, which some of these files have."""
    return "\n".join(line for line in text.split("\n") if "SERIAL" not in line.upper())


def capture(
    run: Runner, anonymous: Anonymous, root: str = "/", patterns: Sequence[str] = FILES, hidden: Sequence[str] = ()
) -> dict[str, Any]:
    """``{version, platform, files, links, commands}``; ``hidden`` are this host's secrets."""
    commands: list[dict[str, Any]] = []

    def recorded(argv: list[str]) -> tuple[int, str, str]:
        rc, out, err = run(argv)
        if not any(item["argv"] == argv for item in commands):
            commands.append({"argv": argv, "rc": rc, "out": _lines(out)[:_LIMIT], "err": err[:2000]})
        return rc, out, err

    node.NodeReader(recorded, root).read()
    rdma.read_links(recorded, root)
    for argv in MORE:
        recorded(list(argv))
    files, links = _files(root, patterns)
    system = platform.uname()
    found = {
        "version": VERSION,
        "platform": {"node": system.node, "release": system.release, "machine": system.machine},
        "files": files,
        "links": links,
        "commands": [item for item in commands if item["rc"] != 127],
    }

    return dict(anonymous.data(mask.masked(found, hidden)))


def _files(root: str, patterns: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    for pattern in patterns:
        for path in sorted(glob.glob(os.path.join(root, pattern.lstrip("/"))))[:_COUNT]:
            name = "/" + os.path.relpath(path, root)
            try:
                text = read_plain(path, _LIMIT).decode("utf-8", "replace")
                files[name] = _lines(text).replace("\0", "")
            except (OSError, ValueError):
                continue  # sysfs answers some reads with EINVAL
    for path in glob.glob(os.path.join(root, "sys/class/infiniband/*/device")):
        # the folder's name is the PCI address
        links["/" + os.path.relpath(path, root)] = os.path.basename(os.path.realpath(path))
    return files, links


def read_now(timeout: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """This host: ``bundle`` to replay, and ``evidence`` as the doctor judges it."""
    names = [*given["names"], platform.node()] if given["hide_names"] else []
    anonymous = Anonymous(given["key"] or "", names)

    def text_of(path: str) -> str | None:
        try:
            return read_plain(path, 64_000).decode("utf-8", "replace")
        except OSError:
            return None

    hidden = mask.forms(own_secrets.values(text_of))
    bundle = capture(lambda argv: run_limited(argv, timeout), anonymous, hidden=hidden)
    seen = evidence.read_now(timeout, [], given["since"], given["journal_lines"], given["ray"], "")
    # even their lengths are nobody's business
    seen.pop("secrets", None)
    return {"bundle": bundle, "evidence": anonymous.data(seen)}
