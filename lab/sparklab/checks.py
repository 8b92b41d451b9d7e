# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether this machine can hold a lab: found out in throw-away name spaces, nothing is changed."""

from __future__ import annotations

import os
import shutil
import subprocess

from .system import LabError

COMMANDS = ("ip", "tc", "unshare", "nsenter", "mount", "umount", "mkfs.ext4", "ssh", "ssh-keygen", "bash", "chroot")

# Each step names what it needs; the name spaces and all in them are gone with the shell.
TRIAL = """
step() { what=$1; shift; "$@" >/dev/null 2>&1 || { echo "$what"; exit 1; }; }
step "tmpfs" mount -t tmpfs none /mnt
mkdir /mnt/l /mnt/u /mnt/w /mnt/r /mnt/c
step "overlayfs" mount -t overlay overlay -o lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w /mnt/r
step "cgroup2" mount -t cgroup2 none /mnt/c
step "veth" ip link add name a type veth peer name b
step "bridge" ip link add name c type bridge
step "ifb" ip link add name d type ifb
step "token bucket (tbf) queueing" tc qdisc add dev a root tbf rate 10mbit burst 100000 latency 50ms
"""


def require() -> None:
    """One clear line if something is missing."""
    if os.geteuid() != 0:
        raise LabError("root is needed to make simulated hosts (name spaces, mounts): run it as root or with sudo")
    with open("/proc/self/uid_map", encoding="ascii") as handle:
        if handle.read().split() != ["0", "0", "4294967295"]:
            raise LabError("this root is root of a user name space only: run it as root of the machine itself")
    missing = [name for name in COMMANDS if not shutil.which(name)]
    if missing:
        packages = "iproute2, util-linux, e2fsprogs, openssh-client"
        raise LabError(f"commands missing on this machine: {', '.join(missing)} (packages {packages})")
    if not os.path.exists("/dev/loop-control"):
        raise LabError("this kernel has no loop devices (/dev/loop-control), which hold the hosts' disks")
    done = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "bash", "-c", TRIAL],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lacking = done.stdout.strip() or f"name spaces ({done.stderr.strip()})"
        raise LabError(f"this kernel lacks {lacking}, or it may not be used here; nothing was changed")
