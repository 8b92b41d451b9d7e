# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine's own system as the base of its hosts (``lab_suite: machine``), read-only under a layer of ours.

Hosts then have the machine's Python, compilers, libraries and GPU driver. The layer takes away what is the machine's
alone: enabled units, network settings, users, keys, home folders, schedules. Folders below /usr and /opt that are file
systems of their own, such as a driver's, do not come with an overlay and are bound into each host.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
from pathlib import Path

from . import base
from .plan import Plan
from .system import LabError, locked, run, say, write

SUITE = "machine"
STATUS = Path("/var/lib/dpkg/status")
#: kept, but without their contents
EMPTIED = (
    *("home", "root", "tmp", "srv", "mnt", "media", "var/tmp", "var/spool/cron", "var/cache/apt", "var/lib/docker"),
    *("etc/systemd/system", "etc/systemd/network", "etc/netplan", "etc/cron.d", "etc/sudoers.d", "etc/ssh"),
)
#: the top of a system; any other folder there is the machine's own
TOP = frozenset(
    [
        "bin",
        "boot",
        "dev",
        "etc",
        "home",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "media",
        "mnt",
        "opt",
        "proc",
        "root",
        "run",
        "sbin",
        "srv",
        "sys",
        "tmp",
        "usr",
        "var",
    ]
)
#: what a host of a base image has enabled
ENABLED = ("systemd-networkd.service", "systemd-resolved.service", "ssh.service", "unattended-upgrades.service")
VERSION = "1"


def mounts(text: str) -> list[str]:
    """File systems of their own below /usr and /opt, out of /proc/self/mountinfo."""
    points = (line.split()[4].encode().decode("unicode_escape") for line in text.splitlines())
    return sorted({point for point in points if point.startswith(("/usr/", "/opt/"))})


def bound() -> list[str]:
    return mounts(Path("/proc/self/mountinfo").read_text())


def missing(installed: str, wanted: list[str]) -> list[str]:
    """Packages of a host that the machine lacks."""
    there = set(installed.split())
    return [name for name in wanted if name not in there]


def trees(plan: Plan) -> list[Path]:
    """What the hosts of a lab stand on; the layer over the machine's root begins each host's disk (see stage)."""
    if plan.suite == SUITE:
        layer()
        return [Path("/")]
    if plan.gpus:
        raise LabError(f"lab_suite {plan.suite}: hosts with lab_gpu stand on this machine's own system: leave it out")
    return [base.base(plan.suite)]


def layer() -> Path:
    """The layer over the machine's own root, made anew whenever its packages changed."""
    if not STATUS.exists():
        raise LabError(f"lab_suite {SUITE}: this machine has no dpkg: use {' or '.join(base.SUITES)}")
    listing = run(["dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Package}\\n"]).stdout
    there = "\n".join(line[3:] for line in listing.splitlines() if line.startswith("ii "))
    lacking = missing(there, [*base.PACKAGES, "systemd-container"])
    if lacking:
        raise LabError(f"lab_suite {SUITE}: this machine lacks packages: apt-get install {' '.join(lacking)}")
    made_by = "\0".join((*base.PACKAGES, *base.MASKED, *EMPTIED, *ENABLED, base.EARLY_UNIT, VERSION))
    digest = hashlib.sha256(made_by.encode() + STATUS.read_bytes()).hexdigest()[:10]
    root = base.cache_root() / "base" / f"{SUITE}-{digest}"
    if (root / "etc/sparklab-base").exists():
        return root
    with locked(base.cache_root() / f"base-{SUITE}.lock", waiting="waiting for another run that makes the layer"):
        if not (root / "etc/sparklab-base").exists():
            say("making the layer over this machine's own system")
            work = root.with_name(f".{root.name}.part")
            run(["rm", "-rf", "--one-file-system", work], timeout=600)
            for folder in ("upper", "work", "root"):
                (work / folder).mkdir(parents=True)
            # the overlay is mounted in a name space of its own and gone with it
            words = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "sparklab.own", str(work)]
            run(words, env={"PYTHONPATH": str(Path(__file__).resolve().parent.parent)}, timeout=600)
            (work / "upper").rename(root)
            run(["rm", "-rf", "--one-file-system", work], timeout=600)
    return root


def hide(upper: Path, root: Path = Path("/")) -> None:
    """Leave out the machine's own folders: overlayfs takes a device 0/0 for "not there", and a mark for "empty"."""
    for path in root.iterdir():
        if path.name not in TOP and not path.name.startswith("."):
            os.mknod(upper / path.name, stat.S_IFCHR | 0o600, os.makedev(0, 0))
    for name in EMPTIED:
        if (root / name).is_dir() and not (root / name).is_symlink():
            (upper / name).mkdir(parents=True)
            os.setxattr(upper / name, "trusted.overlay.opaque", b"y")
    # a folder made on the way has the mode it has on the machine
    for folder in [path for path in upper.rglob("*") if path.is_dir()]:
        here = (root / folder.relative_to(upper)).stat()
        folder.chmod(stat.S_IMODE(here.st_mode))
        os.chown(folder, here.st_uid, here.st_gid)


def stage(upper: Path) -> None:
    """Begin a host's upper layer. overlayfs takes no two lower layers of which one lies in the other, as ours in /."""
    run(["cp", "-a", f"{layer()}/.", upper], timeout=600)


def ordinary_users(passwd: str) -> list[str]:
    rows = [line.split(":") for line in passwd.splitlines() if line.count(":") >= 6]
    return [row[0] for row in rows if 1000 <= int(row[2]) < 60000]


def prepare(work: Path) -> None:
    """Runs in a mount name space of its own: lay the overlay over / and make it a base."""
    root = work / "root"
    hide(work / "upper")
    for path in Path("/etc/ssh").glob("*_config"):
        shutil.copy(path, work / "upper/etc/ssh")
    options = f"lowerdir=/,upperdir={work}/upper,workdir={work}/work"
    run(["mount", "-t", "overlay", "overlay", "-o", options, root])
    for point in bound():
        (root / point[1:]).mkdir(parents=True, exist_ok=True)
        run(["mount", "--rbind", point, root / point[1:]])
    for user in ordinary_users((root / "etc/passwd").read_text()):
        run(["chroot", root, "userdel", user], check=False)
    for name in ("etc/fstab", "etc/resolv.conf", "etc/crontab", "etc/ld.so.preload"):
        (root / name).unlink(missing_ok=True)
    (root / "etc/resolv.conf").symlink_to("../run/systemd/resolve/stub-resolv.conf")
    # /etc/passwd of an image may know no first group, or one that a removed user had
    run(["chroot", root, "groupadd", "-f", "sudo"])
    base.prepare(root)
    run(["chroot", root, "systemctl", "enable", *ENABLED], check=False)
    run(["chroot", root, "ldconfig"], check=False)
    write(root / "etc/sparklab-base", f"{SUITE}\n")


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
