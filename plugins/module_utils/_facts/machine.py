# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machine a host is, of what kind, and which release of its vendor's system it runs: text in, plain data
out."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import environment_file

#: the PCI id of a GB10's GPU: all DGX Sparks have it, whoever sells them and whatever their DMI product is called
GB10 = "10de:2e12"
#: RTX Spark N1X: the same family by name, and no DGX Spark (no ConnectX-7, another system)
N1X = ("10de:2e03", "10de:2e06")

#: operating systems of hosts that were tried, as /etc/os-release says (``ID``, ``VERSION_ID``): name and C library
SYSTEMS = {
    ("ubuntu", "24.04"): ("Ubuntu 24.04", "2.39"),
    ("debian", "12"): ("Debian 12", "2.36"),
    ("debian", "13"): ("Debian 13", "2.41"),
}

#: does not start the GPU with the firmware of an older update
TORN_DRIVER = "580.173.02"


#: what a machine-id is hashed with, so that the result is of no use to anybody else (machine-id(5) asks for that)
_APPLICATION = b"sparkthor.cluster"


def identity(machine_id: str) -> str:
    """What a machine keeps under any name and address, 32 digits; empty where its installation has no machine-id yet.

    A machine that was installed anew is another one.
    """
    text = machine_id.strip()
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        return ""
    return hmac.new(bytes.fromhex(text), _APPLICATION, "sha256").hexdigest()[:32]


def read_identity(path: str = "/etc/machine-id") -> str:
    """Of the machine that runs this."""
    try:
        with open(path, encoding="ascii") as file:
            return identity(file.read())
    except (OSError, UnicodeDecodeError):
        return ""


def told_apart(machines: Mapping[str, str]) -> dict[str, str]:
    """Identity by host, without those that are unknown or that several hosts have because one is a clone."""
    found = list(machines.values())
    return {host: one for host, one in machines.items() if one and found.count(one) == 1}


def detect_kind(
    product: str,
    gpus: Iterable[str],
    has_tegra_release: bool,
    device_tree_model: str,
    pci: Iterable[str] = (),
    family: str = "",
) -> str:
    """``spark``, ``thor`` or ``generic``.

    A Thor says so in ``/etc/nv_tegra_release`` or its device-tree model.  A Spark is known by its GPU's PCI id, also
    without a working driver; where that cannot be read, by the GPU's name, NVIDIA's own DMI product name or DMI's
    product family, which HP leaves as NVIDIA has it.
    """
    if has_tegra_release or "thor" in device_tree_model.lower():
        return "thor"
    ids, names = {item.lower() for item in pci}, list(gpus)
    if ids.intersection(N1X) or any("N1X" in name for name in [*names, product, family]):
        return "generic"
    named = any("GB10" in name for name in names) or re.search(r"DGX[ _]Spark", f"{product}\n{family}", re.IGNORECASE)
    return "spark" if GB10 in ids or named else "generic"


def dgx_version(text: str) -> str:
    """The release of DGX OS out of ``/etc/dgx-release``: of its updates the last one, else the installed build.

    Values may lack quotes, and every update adds its lines at the end.
    """
    values = environment_file.parse(text)
    return values.get("DGX_OTA_VERSION") or values.get("DGX_SWBUILD_VERSION") or ""


def torn_score(text: str) -> float | None:
    """What ``nvidia-spark-ota-check torn-score`` says: 0 where the update was applied in full.

    It may name the update (``OTA2607``) before the score.
    """
    numbers = re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", text)
    return float(numbers[-1]) if numbers else None


def tegra_version(text: str) -> str:
    """The release of Jetson Linux: ``# R38 (release), REVISION: 2.2, …`` is 38.2.2."""
    match = re.search(r"^# R(\d+) \(release\), REVISION: ([\d.]+)", text, re.MULTILINE)
    return f"{match[1]}.{match[2]}" if match else ""
