# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base images: one read-only Debian tree per suite, shared by all hosts, cached for good.

The bootstrap tools are unpacked beside the cache, nothing is installed on the machine. A tree's name carries a digest
of its recipe, so a changed recipe makes a new tree and never edits one that running hosts stand on. A half-made tree
has a scratch name and is thrown away by the next attempt.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from .system import LabError, locked, run, say, words, write

SUITES = ("bookworm", "trixie")
USER = "nvidia"

PACKAGES = words("""
    systemd systemd-sysv systemd-resolved systemd-timesyncd libpam-systemd dbus dbus-user-session udev kmod procps
    util-linux passwd netbase iproute2 iputils-ping iputils-arping ethtool nftables iptables openssh-server sudo
    netplan.io
    python3 python3-apt python3-yaml python3-venv ca-certificates curl less jq rsync zstd acl iperf3 openssl
    nginx-light libnuma1 libgomp1 unattended-upgrades
""")

#: what the layer "clock" adds to the time of day, in seconds, and who reads it there
CLOCK = "/run/sparklab-clock"
CLOCKED = ("watchdog", "front", "exporter")
LAYERS = {
    "docker": ["docker.io", "docker-cli", "crun", "iptables"],
    "networkmanager": ["network-manager"],
    # greetd starts sessions as login does, by its rules for PAM
    "desktop": ["greetd", "login"],
    "firewalls": ["ufw", "firewalld"],
    "door": ["libnginx-mod-http-js"],
    "address": ["keepalived"],
    "prometheus": ["prometheus"],
    "clock": ["gcc", "libc6-dev"],
    # what torch.compile needs without a GPU
    "compiler": ["g++", "python3-dev"],
}
LAYER_FILES = {
    # The hosts share the machine's clock.  These programs of ours read one of the host's own beside it.
    "clock": {
        "usr/src/sparklab-clock.c": (Path(__file__).parent / "onhost" / "clock.c").read_text(encoding="utf-8"),
        **{
            f"etc/systemd/system/sparkthor-{name}.service.d/sparklab.conf": (
                "[Service]\nEnvironment=LD_PRELOAD=/usr/lib/sparklab-clock.so\n"
            )
            for name in CLOCKED
        },
    },
    "networkmanager": {
        # It does without udev where it may not write to /sys, as in nspawn; a remount in its own name space helps.
        "etc/systemd/system/NetworkManager.service.d/sparklab.conf": """\
[Service]
PrivateMounts=yes
CapabilityBoundingSet=CAP_SYS_ADMIN
ExecStart=
ExecStart=/bin/sh -c 'mount -o remount,bind,rw /sys && exec /usr/sbin/NetworkManager --no-daemon'
""",
        # Debian's own rule leaves veth NICs to others; the simulated ones are no such NICs
        "etc/udev/rules.d/86-sparklab.rules": 'SUBSYSTEM=="net", ENV{ID_NET_DRIVER}=="veth", ENV{NM_UNMANAGED}=""\n',
        # in Ubuntu's package, not in Debian's
        "usr/lib/NetworkManager/conf.d/10-globally-managed-devices.conf": (
            "[keyfile]\nunmanaged-devices=*,except:type:wifi,except:type:gsm,except:type:cdma\n"
        ),
    },
    # A login manager without a screen: what matters is its alias display-manager.service, and that it runs.
    "desktop": {
        "etc/greetd/config.toml": (
            '[terminal]\nvt = "none"\n[default_session]\ncommand = "sleep infinity"\nuser = "_greetd"\n'
        ),
    },
    # A host with a GPU for containers by CDI, as the NVIDIA toolkit describes one. There is no GPU here, so the
    # description only says that it was followed.
    "docker": {
        "etc/docker/daemon.json": '{"features": {"cdi": true}}\n',
        "etc/cdi/nvidia.yaml": """\
cdiVersion: 0.6.0
kind: nvidia.com/gpu
devices:
  - name: all
    containerEdits:
      env: [SPARKLAB_GPU=cdi]
""",
    },
}
# Run in a layer once its packages and files are there
LAYER_BUILD = {"clock": "gcc -shared -fPIC -o /usr/lib/sparklab-clock.so /usr/src/sparklab-clock.c"}
# Units that a layer's packages, or the base, start at boot, and that its hosts do not
LAYER_OFF = {
    "docker": ["docker.service", "docker.socket", "containerd.service"],
    "firewalls": ["ufw.service", "firewalld.service"],
    "prometheus": ["prometheus.service"],
    # netplan's generator starts networkd where a file asks for it
    "networkmanager": ["systemd-networkd.service"],
}
# docker-cli is a package of its own only from trixie on
LAYER_SKIP = {("docker", "bookworm"): {"docker-cli"}}

# Units that cannot work in a simulated host, or that only cost time at boot
MASKED = words("""
    systemd-networkd-wait-online.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer
    fstrim.timer man-db.timer systemd-firstboot.service console-getty.service systemd-modules-load.service
    modprobe@.service
    sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount systemd-ask-password-console.path
    systemd-ask-password-wall.path
""")

# udevd refuses to run on nspawn's read-only /sys; netplan apply needs it. sparklab-early makes writable what it wants.
UDEV_UNITS = (
    "systemd-udevd.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
    "systemd-udev-trigger.service",
)

EARLY_UNIT = """\
[Unit]
Description=Simulated host: devices that are not there
DefaultDependencies=no
Before=systemd-udevd.service systemd-udevd-control.socket systemd-udev-trigger.service
Before=systemd-networkd.service sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/sparklab-early

[Install]
WantedBy=sysinit.target
"""


def cache_root() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "sparkthor-lab"


@dataclass(frozen=True)
class Tools:
    """mmdebstrap and systemd-nspawn: the machine's own, or unpacked copies."""

    root: Path | None

    def _tool(self, name: str) -> str:
        return str(self.root / "usr/bin" / name) if self.root else name

    @property
    def mmdebstrap(self) -> str:
        return self._tool("mmdebstrap")

    @property
    def nspawn(self) -> str:
        return self._tool("systemd-nspawn")

    @property
    def env(self) -> dict[str, str]:
        if not self.root:
            return {}
        folders = [str(found.parent) for found in sorted(self.root.glob("usr/lib/*/systemd/libsystemd-shared*"))]
        return {
            "LD_LIBRARY_PATH": ":".join(folders),
            "PATH": f"{self.root}/usr/bin:{self.root}/usr/sbin:{os.environ.get('PATH', os.defpath)}",
        }

    @property
    def keyrings(self) -> list[str]:
        return [f"--keyring={self.root}/usr/share/keyrings"] if self.root else []


def tools(*, bootstrap: bool = True) -> Tools:
    """The unpacked tools, fetched once. Whoever makes no base image (bootstrap=False) needs nspawn alone."""
    if shutil.which("systemd-nspawn") and (not bootstrap or shutil.which("mmdebstrap")):
        return Tools(None)
    root = cache_root() / "tools"
    if (root / ".whole").exists():
        return Tools(root)
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise LabError("mmdebstrap and systemd-nspawn are missing: install them (here apt-get cannot fetch them)")
    with locked(cache_root() / "tools.lock", waiting="waiting for another run that fetches the tools"):
        if (root / ".whole").exists():
            return Tools(root)
        say("fetching mmdebstrap and systemd-nspawn (unpacked beside the cache, not installed)")
        scratch = cache_root() / "tools.part"
        shutil.rmtree(scratch, ignore_errors=True)
        debs = scratch / "debs"
        debs.mkdir(parents=True)
        names = ["mmdebstrap", "systemd-container", "libsystemd-shared", "debian-archive-keyring"]
        # as root apt would drop to its own user for the download and complain about the folder
        fetch = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *names]
        if run(fetch, cwd=debs, check=False, timeout=600).returncode:
            run(["apt-get", "-q", "update"], timeout=600)
            run(fetch, cwd=debs, timeout=600)
        for deb in sorted(debs.glob("*.deb")):
            run(["dpkg", "-x", deb, scratch])
        shutil.rmtree(debs)
        (scratch / ".whole").touch()
        shutil.rmtree(root, ignore_errors=True)
        scratch.rename(root)
    return Tools(root)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:10]


def base_name(suite: str) -> str:
    return f"{suite}-{_digest(*PACKAGES, *MASKED, *UDEV_UNITS, EARLY_UNIT, PREPARE_VERSION)}"


# Raise when prepare() changes in a way that its inputs do not show
PREPARE_VERSION = "2"


def base(suite: str) -> Path:
    """The tree of a suite; made if it is lacking (about a minute and 300 MB)."""
    if suite not in SUITES:
        raise LabError(f"unknown suite {suite!r}: one of {', '.join(SUITES)}")
    root = cache_root() / "base" / base_name(suite)
    if (root / "etc/sparklab-base").exists():
        return root
    with locked(cache_root() / f"base-{suite}.lock", waiting=f"waiting for another run that makes the {suite} base"):
        if (root / "etc/sparklab-base").exists():
            return root
        say(f"making the {suite} base image (once, about a minute)")
        kit = tools()
        scratch = root.with_name(f".{root.name}.part")
        _remove_tree(scratch)
        scratch.parent.mkdir(parents=True, exist_ok=True)
        run(
            [
                kit.mmdebstrap,
                "--quiet",
                "--mode=root",
                "--variant=apt",
                f"--include={','.join(PACKAGES)}",
                '--aptopt=Acquire::Languages "none"',
                '--aptopt=APT::Install-Recommends "false"',
                "--dpkgopt=path-exclude=/usr/share/man/*",
                "--dpkgopt=path-exclude=/usr/share/doc/*",
                "--dpkgopt=path-exclude=/usr/share/locale/*",
                *kit.keyrings,
                suite,
                scratch,
            ],
            env=kit.env,
            timeout=1800,
        )
        prepare(scratch)
        scratch.rename(root)
        say(f"{suite} base image ready")
    return root


def prepare(root: Path) -> None:
    """Turn a bootstrapped tree into the lower layer of all hosts: no identity of its own, quick to boot."""
    run(["chroot", root, "useradd", "-m", "-s", "/bin/bash", "-G", "sudo", USER])
    write(root / f"etc/sudoers.d/90-{USER}", f"{USER} ALL=(ALL) NOPASSWD:ALL\n", 0o440)
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    write(root / "etc/machine-id", "", 0o444)
    units = root / "etc/systemd/system"
    for unit in MASKED:
        link = units / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    for unit in UDEV_UNITS:
        write(units / f"{unit}.d/sparklab.conf", "[Unit]\nConditionPathIsReadWrite=\n")
    with (units / "systemd-udev-trigger.service.d/sparklab.conf").open("a") as handle:
        trigger = "-/usr/bin/udevadm trigger --action=add --subsystem-match=net"
        handle.write(f"[Service]\nExecStart=\nExecStart={trigger}\n")
    write(units / "sparklab-early.service", EARLY_UNIT)
    off = ["nginx.service", "systemd-timesyncd.service", "e2scrub_reap.service", "nftables.service", "iperf3.service"]
    run(["chroot", root, "systemctl", "disable", *off], check=False)
    run(["chroot", root, "systemctl", "enable", "systemd-networkd.service", "ssh.service", "sparklab-early.service"])
    # what Ubuntu has and Debian has not
    write(root / "etc/environment", 'PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"\n')
    write(root / "etc/sysctl.d/50-ping.conf", "net.ipv4.ping_group_range = 0 2147483647\n")
    (root / "var/lib/sparklab").mkdir(parents=True, exist_ok=True)
    (root / "etc/.updated").touch()
    (root / "var/.updated").touch()
    write(root / "etc/sparklab-base", root.name + "\n")


def layer(name: str, suite: str) -> Path:
    """An extra read-only layer over a suite's base, such as docker, or a folder that somebody made as one."""
    if os.path.isabs(name):
        if not os.path.isdir(name):
            raise LabError(f"the layer {name} is not a folder")
        return Path(name)
    if name not in LAYERS:
        raise LabError(f"unknown layer {name!r}: one of {', '.join(sorted(LAYERS))}")
    if suite not in SUITES:
        raise LabError(f"the layer {name} is for {' and '.join(SUITES)}: install its packages on this machine instead")
    lower = base(suite)
    packages = [word for word in LAYERS[name] if word not in LAYER_SKIP.get((name, suite), set())]
    files = LAYER_FILES.get(name, {})
    contents = [f"{path}\n{text}" for path, text in sorted(files.items())]
    off = LAYER_OFF.get(name, [])
    build = [LAYER_BUILD[name]] if name in LAYER_BUILD else []
    root = cache_root() / "base" / f"{suite}-{name}-{_digest(lower.name, *packages, *contents, *off, *build)}"
    if root.exists():
        return root
    lock = cache_root() / f"layer-{name}-{suite}.lock"
    with locked(lock, waiting=f"waiting for another run that makes the {name} layer"):
        if root.exists():
            return root
        say(f"making the {name} layer over {suite} (once)")
        work = root.with_name(f".{root.name}.part")
        _remove_tree(work)
        for folder in ("upper", "work", "root"):
            (work / folder).mkdir(parents=True)
        # everything mounted lives in a private mount namespace and is gone with it
        script = """
            set -e
            mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
            off=$3
            cd "$2/root"; shift 3
            mount -t proc proc proc
            touch etc/resolv.conf.sparklab
            mount --bind /dev dev
            saved=$(readlink etc/resolv.conf || true)
            rm -f etc/resolv.conf; cat /etc/resolv.conf >etc/resolv.conf
            printf '#!/bin/sh\nexit 101\n' >usr/sbin/policy-rc.d; chmod 755 usr/sbin/policy-rc.d
            export DEBIAN_FRONTEND=noninteractive
            chroot . apt-get -q update
            chroot . apt-get -qy --no-install-recommends install "$@"
            chroot . apt-get clean
            rm -rf var/lib/apt/lists/* usr/sbin/policy-rc.d etc/resolv.conf etc/resolv.conf.sparklab
            [ -z "$saved" ] || ln -s "$saved" etc/resolv.conf
            [ -z "$off" ] || chroot . systemctl disable --quiet $off
        """
        run(["unshare", "-m", "bash", "-c", script, "layer", lower, work, " ".join(off), *packages], timeout=1800)
        for path, text in files.items():
            write(work / "upper" / path, text)
        for command in build:
            script = 'mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"'
            script += ' && chroot "$2/root" sh -c "$3"'
            run(["unshare", "-m", "bash", "-c", script, "layer", lower, work, command])
        (work / "upper").rename(root)
        _remove_tree(work)
        say(f"{name} layer ready")
    return root


def _remove_tree(path: Path) -> None:
    """Remove a scratch tree, but never reach through a mount that a dead run may have left."""
    if path.exists():
        run(["rm", "-rf", "--one-file-system", path], timeout=600)
