# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real GPUs for simulated hosts: one for each, and nothing of the others.

A host sees its own device node beside the driver's common ones. Without CAP_MKNOD nothing in it can make the missing
nodes, which the driver's tools otherwise do for every GPU that /proc names.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from .system import LabError, run

DEV = Path("/dev")
PCI = Path("/sys/bus/pci/devices")
#: beside each GPU's own node
COMMON = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps")
#: what containers need of the driver, as ldconfig names it
LIBRARIES = re.compile(r"^lib(cuda|nvidia-ml|nvidia-ptxjitcompiler|nvidia-nvvm|cudadebugger)\.so\.\d+$")


def numbers(dev: Path = DEV) -> tuple[int, ...]:
    """The GPUs that have a device node, by its number."""
    found = (re.fullmatch(r"nvidia(\d+)", path.name) for path in dev.glob("nvidia*"))
    return tuple(sorted(int(match[1]) for match in found if match))


def cards(pci: Path = PCI) -> int:
    """NVIDIA GPUs on the bus, whether or not there is a driver for them."""
    count = 0
    for device in pci.glob("*"):
        try:
            vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
        except OSError:
            continue
        count += vendor == "0x10de" and kind.startswith(("0x0300", "0x0302"))
    return count


def allot(
    hosts: int, taken: Iterable[int], *, named: Sequence[int] = (), dev: Path = DEV, pci: Path = PCI
) -> tuple[int, ...]:
    """A GPU for each host, one that nobody has or the named ones; raises with one line where that cannot be."""
    present = numbers(dev)
    if not present or not (dev / "nvidiactl").exists() or not shutil.which("nvidia-smi"):
        if cards(pci) or present:
            raise LabError("lab_gpu: this machine has an NVIDIA GPU and no working driver: install the driver first")
        raise LabError("lab_gpu: this machine has no NVIDIA GPU: take lab_gpu out of the inventory")
    done = run(["nvidia-smi", "-L"], check=False)
    if done.returncode:
        words = (done.stdout or done.stderr).strip().splitlines()
        raise LabError(f"lab_gpu: the driver does not answer: nvidia-smi -L: {words[-1] if words else 'no word'}")
    if named:
        lacking = [number for number in named if number not in present]
        if lacking or len(named) != hosts:
            raise LabError(f"lab_gpu {list(named)}: {hosts} hosts, and GPUs {', '.join(map(str, present))} are there")
        return tuple(named)
    others = set(taken)
    free = [number for number in present if number not in others]
    if len(free) < hosts:
        used = f", {len(others)} of them in use by other labs" if others else ""
        raise LabError(f"lab_gpu: {hosts} hosts, and this machine has {len(present)} GPUs{used}: take fewer hosts")
    return tuple(free[:hosts])


def owned(folder: Path) -> tuple[int, ...]:
    """The GPUs of a lab's hosts, by its record."""
    record = folder / "lab.json"
    return tuple(json.loads(record.read_text()).get("gpus", ())) if record.exists() else ()


def of_lab(folder: Path, registry: Path, hosts: int, wanted: bool | tuple[int, ...] = True) -> tuple[int, ...]:
    """A GPU for each host: named ones, or such that no other lab's hosts own; a lab that is there keeps its own."""
    kept = owned(folder)
    if len(kept) == hosts:
        return kept
    others = (Path(json.loads(path.read_text())["folder"]) for path in registry.glob("*.lab"))
    taken = [number for other in others if other != folder for number in owned(other)]
    return allot(hosts, taken, named=wanted if isinstance(wanted, tuple) else ())


def nodes(number: int, dev: Path = DEV) -> list[str]:
    """Device nodes of a host that owns this GPU."""
    return [str(dev / name) for name in (f"nvidia{number}", *COMMON) if (dev / name).exists()]


def binds(number: int) -> list[str]:
    """nspawn's words for a host that owns this GPU."""
    return ["--drop-capability=CAP_MKNOD", *(f"--bind={node}" for node in nodes(number))]


def libraries() -> list[str]:
    """The driver's libraries for programs that compute, as the loader finds them."""
    found: dict[str, str] = {}
    for line in run(["ldconfig", "-p"], check=False).stdout.splitlines():
        name, _unused, path = line.strip().partition(" => ")
        if LIBRARIES.match(name.split(" ")[0]):
            found.setdefault(name.split(" ")[0], path)
    return sorted(found.values())


def container_device(number: int, paths: Iterable[str], tools: Iterable[str], dev: Path = DEV) -> str:
    """The description by which a container engine hands the GPU to a container (CDI); JSON is YAML."""
    mounts = [
        {"hostPath": path, "containerPath": path, "options": ["ro", "nosuid", "nodev", "bind"]}
        for path in (*paths, *tools)
    ]
    edits = {"deviceNodes": [{"path": node} for node in nodes(number, dev) if not Path(node).is_dir()]}
    document = {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": name, "containerEdits": edits} for name in ("0", "all")],
        "containerEdits": {"mounts": mounts, "env": ["NVIDIA_VISIBLE_DEVICES=void"]},
    }
    return json.dumps(document, indent=1) + "\n"
