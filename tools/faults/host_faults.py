# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What befalls the memory, clock, disk and addresses of a simulated host, laid from outside of it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from sparklab import Lab, LabError
from sparklab.base import CLOCK
from sparklab.machine import DISK
from sparklab.system import run

#: where a machine has the memory controller as a hierarchy of its own, beside the one that the hosts' systemd uses
MEMORY = Path("/sys/fs/cgroup/memory")


def _leader(lab: Lab, host: str) -> int:
    leader = lab.machine(host).leader()
    if leader is None:
        raise LabError(f"{host} is off")
    return leader


def out_of_memory(lab: Lab, host: str, pid: int) -> None:
    """Have the kernel's own OOM killer end a process of the host: the next page that it asks for is one too many."""
    if not (MEMORY / "cgroup.procs").exists():
        raise LabError(f"there is no {MEMORY}: this machine has no memory controller that a fault could use")
    group = MEMORY / f"sparklab-{lab.plan.tag}"
    group.mkdir(exist_ok=True)
    (group / "memory.limit_in_bytes").write_text("4096")
    # process ids are read as those of the writer's name space
    words = ["nsenter", "--target", str(_leader(lab, host)), "--pid", "--", "sh", "-c", 'echo "$1" >"$2"', "oom"]
    run([*words, str(pid), str(group / "cgroup.procs")])


def spare_memory(lab: Lab) -> None:
    """Remove what :func:`out_of_memory` left."""
    group = MEMORY / f"sparklab-{lab.plan.tag}"
    if group.exists():
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (MEMORY / "cgroup.procs").write_text(pid)
        group.rmdir()


def fail_disk(lab: Lab, host: str) -> None:
    """An error of the host's file system, after which it is read-only until the next boot."""
    image = lab.machine(host).folder / "disk.img"
    device = run(["losetup", "--noheadings", "--output", "NAME", "--associated", image]).stdout.split()[0]
    # as Ubuntu mounts its root
    lab.exec(host, ["mount", "-o", "remount,errors=remount-ro", DISK])
    (Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error").write_text("1")


def check_disk(lab: Lab, host: str) -> None:
    """What a host's boot does after such an error."""
    done = run(["e2fsck", "-f", "-y", lab.machine(host).folder / "disk.img"], check=False, timeout=300)
    # 1 = errors were corrected
    if done.returncode > 1:
        raise LabError(f"{host}: e2fsck ended with {done.returncode}: {done.stdout[-300:]}")


def set_clock(lab: Lab, seconds: int) -> None:
    """Step the time of day that our own programs read on all hosts, to so many seconds beside the machine's."""
    for host in lab.plan.hosts:
        root = Path(f"/proc/{_leader(lab, host.name)}/root")
        if not (root / "usr/lib/sparklab-clock.so").exists():
            raise LabError(f"{host.name} has the machine's clock: the lab needs the layer clock")
        path = root / CLOCK.removeprefix("/")
        part = path.with_suffix(".part")
        part.write_text(f"{seconds:+d}\n")
        part.rename(path)


def addresses(lab: Lab, host: str, nic: str) -> list[str]:
    """IPv4 addresses of a NIC, each with its prefix length."""
    shown = json.loads(lab.exec(host, ["ip", "-j", "-4", "address", "show", "dev", nic]).stdout)
    return [f"{one['local']}/{one['prefixlen']}" for link in shown for one in link.get("addr_info", ())]


def change_address(lab: Lab, host: str, nic: str, old: str, new: str) -> None:
    """Replace an address as a DHCP client does whose lease came back with another one: the new, then the old."""
    lab.exec(host, ["ip", "address", "add", new, "dev", nic])
    lab.exec(host, ["ip", "address", "del", old, "dev", nic])


def halves(lab: Lab, host: str) -> tuple[str, str]:
    """The NIC with the control address, and the other half of the same cable."""
    control = lab.exec(host, ["sh", "-c", ". /etc/sparkthor/fabric.env; echo $GLOO_SOCKET_IFNAME"]).stdout.strip()
    planned = lab.plan.host(host)
    others = [nic for nic in planned.nics if nic not in (control, planned.management) and addresses(lab, host, nic)]
    if len(others) != 1:
        raise LabError(f"{host}: one other half with an address, beside {control}: {', '.join(others) or 'none'}")
    return control, others[0]


def claim_address(lab: Lab, owner: str, other: str) -> None:
    """Give a host the control address of another one as well; it tells everybody at once that the address is its."""
    address = addresses(lab, owner, halves(lab, owner)[0])[0].partition("/")[0]
    nic = halves(lab, other)[0]
    lab.exec(other, ["ip", "address", "replace", f"{address}/32", "dev", nic])
    lab.exec(other, ["arping", "-q", "-c", "3", "-U", "-I", nic, address], check=False)


def give_up_address(lab: Lab, other: str) -> None:
    """Undo :func:`claim_address`."""
    nic = halves(lab, other)[0]
    for one in addresses(lab, other, nic):
        if one.endswith("/32"):
            lab.exec(other, ["ip", "address", "del", one, "dev", nic])
