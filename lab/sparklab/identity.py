# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes a simulated host look like a Spark or a Thor: the first files on its disk, and its own /proc/sys."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import NamedTuple

from . import gpu
from .plan import Host, Plan
from .system import run, words, write

ONHOST = Path(__file__).parent / "onhost"

MEMORY_MB = 122584
# What a headless, freshly booted Spark has to spare
AVAILABLE_MB = 117800


class Maker(NamedTuple):
    """What the firmware of one maker's machine says of it in /sys/class/dmi/id; "" is not known."""

    sys_vendor: str
    product_name: str
    board_name: str = ""
    bios_version: str = ""
    product_family: str = ""


# They all sell the same machine; a lab's Sparks are of these makers in turn. As owners' machines print it, but for
# Acer's name, which is the trade's, and the family, which was seen on HP's alone.
SPARKS = (
    Maker("NVIDIA", "NVIDIA_DGX_Spark", "P4242", "5.36_0ACUM027", "DGX Spark"),
    Maker("ASUSTeK COMPUTER INC.", "GX10", "GX10", "GX10DGX.0105.2026.0505.1153", "DGX Spark"),
    Maker("HP", "HP ZGX Nano G1n AI Station", product_family="DGX Spark"),
    Maker("MSI", "MS-C931", "EdgeXpert (MS-C931)", "5.36_1.5.0", "DGX Spark"),
    Maker("Dell  Inc.", "Dell Pro Max with GB10 FCM1253", "", "5.36_4.0.0", "DGX Spark"),
    Maker("LENOVO", "30KLS02X00", "", "S0QKT0EA", "DGX Spark"),
    Maker("GIGABYTE", "AI TOP ATOM", "", "5.36_0ACUM07", "DGX Spark"),
    Maker("Acer", "Veriton GN100", product_family="DGX Spark"),
)
OTHERS = {
    "thor": Maker("NVIDIA", "NVIDIA Jetson AGX Thor Developer Kit", "P3834"),
    "generic": Maker("NVIDIA", "Simulated machine", "none"),
}
STANDINS = {
    "spark": ("nvidia-smi", "ibdev2netdev", "rdma"),
    "thor": ("nvidia-smi", "nvpmodel", "jetson_clocks"),
    "generic": (),
}

OS_RELEASE = """\
PRETTY_NAME="Ubuntu 24.04.3 LTS"
NAME="Ubuntu"
VERSION_ID="24.04"
VERSION="24.04.3 LTS (Noble Numbat)"
VERSION_CODENAME=noble
ID=ubuntu
ID_LIKE=debian
UBUNTU_CODENAME=noble
"""
LSB_RELEASE = """\
DISTRIB_ID=Ubuntu
DISTRIB_RELEASE=24.04
DISTRIB_CODENAME=noble
DISTRIB_DESCRIPTION="Ubuntu 24.04.3 LTS"
"""
DGX_RELEASE = """\
DGX_NAME="DGX Spark"
DGX_PRETTY_NAME="NVIDIA DGX Spark"
DGX_SWBUILD_DATE="2025-09-10-13-50-03"
DGX_SWBUILD_VERSION="7.2.3"
DGX_COMMIT_ID="833b4a7"
DGX_PLATFORM="DGX Server for KVM"
DGX_SERIAL_NUMBER="simulated"
"""
# where an owner showed another maker's file: its platform and build, and HP's has no quotes
DGX_RELEASES = {
    "GX10": DGX_RELEASE.replace("DGX Server for KVM", "GX10"),
    "HP ZGX Nano G1n AI Station": DGX_RELEASE.replace("DGX Server for KVM", "HP ZGX Nano G1n AI Station")
    .replace("833b4a7", "03dc741")
    .replace('"', ""),
}
TEGRA_RELEASE = "# R38 (release), REVISION: 2.0, GCID: 41844464, BOARD: generic, EABI: aarch64\n"


def maker(host: Host) -> Maker:
    return SPARKS[host.index % len(SPARKS)] if host.kind == "spark" else OTHERS[host.kind]


def firmware_says(host: Host) -> dict[str, str]:
    """The files of /sys/class/dmi/id."""
    return {name: value + "\n" for name, value in maker(host)._asdict().items() if value}


def dgx_release(host: Host) -> str:
    return DGX_RELEASES.get(maker(host).product_name, DGX_RELEASE)


def netplan(host: Host, plan: Plan) -> str:
    return (
        "network:\n  version: 2\n  renderer: networkd\n  ethernets:\n"
        f"    {host.management}:\n      dhcp4: false\n"
        f"      addresses: [{host.address}/{plan.prefix}]\n"
        f"      routes: [{{to: default, via: {plan.controller}}}]\n"
    )


def desktop_netplan(host: Host, plan: Plan) -> dict[str, str]:
    """The same where NetworkManager is netplan's renderer: its profile as Ubuntu's NetworkManager keeps it."""
    identity = str(uuid.uuid5(uuid.NAMESPACE_DNS, host.name))
    address = f"{host.address}/{plan.prefix}"
    return {
        "01-network-manager-all.yaml": "network:\n  version: 2\n  renderer: NetworkManager\n",
        f"90-NM-{identity}.yaml": f"""\
network:
  version: 2
  ethernets:
    NM-{identity}:
      renderer: NetworkManager
      match:
        name: "{host.management}"
      addresses:
      - "{address}"
      networkmanager:
        uuid: "{identity}"
        name: "Wired connection 1"
        passthrough:
          ethernet._: ""
          ipv4.address1: "{address},{plan.controller}"
          ipv4.method: "manual"
          ipv6.method: "disabled"
          proxy._: ""
""",
    }


def meminfo(available_mb: int = AVAILABLE_MB) -> str:
    """/proc/meminfo of a Spark. A file: it does not follow what processes use; `sparklab memory` rewrites it."""
    cached = min(3200, MEMORY_MB - available_mb)
    rows = {
        "MemTotal": MEMORY_MB,
        "MemFree": max(available_mb - cached, 0),
        "MemAvailable": available_mb,
        "Buffers": 96,
        "Cached": cached,
        "SwapCached": 0,
        "Active": 2100,
        "Inactive": 1800,
        "SwapTotal": 16384,
        "SwapFree": 16384,
        "Dirty": 1,
        "Writeback": 0,
        "AnonPages": 1400,
        "Mapped": 420,
        "Shmem": 24,
        "Slab": 610,
        "SReclaimable": 240,
        "SUnreclaim": 370,
        "KernelStack": 12,
        "PageTables": 18,
        "CommitLimit": MEMORY_MB // 2 + 16384,
        "Committed_AS": 4100,
    }
    lines = [f"{key + ':':<16}{value * 1024:>8} kB" for key, value in rows.items()]
    lines += [f"{'HugePages_Total:':<16}{0:>8}", f"{'HugePages_Free:':<16}{0:>8}", f"{'Hugepagesize:':<16}{2048:>8} kB"]
    return "\n".join(lines) + "\n"


def stage(root: Path, host: Host, plan: Plan, public_key: str, host_key: Path) -> None:
    """Lay out the upper layer of a new host below `root`."""
    etc = root / "etc"
    write(etc / "hostname", host.name + "\n")
    write(etc / "machine-id", uuid.uuid4().hex + "\n", 0o444)
    write(etc / "hosts", f"127.0.0.1 localhost\n127.0.1.1 {host.name}\n::1 localhost ip6-localhost ip6-loopback\n")
    management = {"01-management.yaml": netplan(host, plan)}
    if "networkmanager" in plan.layers:
        management = desktop_netplan(host, plan)
    for name, text in management.items():
        write(etc / "netplan" / name, text, 0o600)
    if host.kind != "generic":
        write(etc / "lsb-release", LSB_RELEASE)
        write(etc / "debian_version", "trixie/sid\n")
        write(root / "usr/lib/os-release", OS_RELEASE)
    if host.kind == "spark":
        write(etc / "dgx-release", dgx_release(host))
    elif host.kind == "thor":
        write(etc / "nv_tegra_release", TEGRA_RELEASE)
    for suffix, mode in (("", 0o600), (".pub", 0o644)):
        write(etc / f"ssh/ssh_host_ed25519_key{suffix}", Path(f"{host_key}{suffix}").read_text(), mode)
    keys = root / "home/nvidia/.ssh"
    write(keys / "authorized_keys", public_key, 0o600)
    # the base's first ordinary user; its home in the upper layer must carry the same owner
    for path in (root / "home/nvidia", keys, keys / "authorized_keys"):
        os.chown(path, 1000, 1000)
    (root / "home/nvidia").chmod(0o750)
    keys.chmod(0o700)
    state = root / "var/lib/sparklab"
    for name, text in firmware_says(host).items():
        write(state / "class/dmi/id" / name, text)
    if host.kind == "spark":
        (state / "class/infiniband").mkdir()
    for folder in ("sys", "live"):
        (state / folder).mkdir()
    for source, target, mode in (
        (ONHOST / "sparklab-early", "usr/local/sbin/sparklab-early", 0o755),
        *((ONHOST / "standin", f"usr/bin/{name}", 0o755) for name in STANDINS[host.kind]),
    ):
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, root / target)
        (root / target).chmod(mode)
    number = plan.gpu(host)
    if number is not None:
        stage_gpu(root, number)


#: Images lie on the host's own disk, where containerd's do not, and containers have the host's network
DOCKER = """\
{"features": {"cdi": true, "containerd-snapshotter": false}, "bridge": "none", "iptables": false, "ip6tables": false}
"""


def stage_gpu(root: Path, number: int) -> None:
    """The driver's own tool at its usual place, and the GPU's description for container engines."""
    found = shutil.which("nvidia-smi")
    tools = [found] if found else []
    if found and found != "/usr/bin/nvidia-smi":
        (root / "usr/bin").mkdir(parents=True, exist_ok=True)
        (root / "usr/bin/nvidia-smi").symlink_to(found)
    write(root / "etc/cdi/nvidia.yaml", gpu.container_device(number, gpu.libraries(), tools))
    write(root / "etc/docker/daemon.json", DOCKER)


# /proc/sys/{vm,fs,net/core} and these keys of kernel are shared by all name spaces. Each host gets plain files in their
# place, made anew at each boot: sysctl works, is seen by that host alone, and is forgotten by a reboot unless
# persisted. Plain files accept any value.
KERNEL_KEYS = words("""
    numa_balancing panic panic_on_oops perf_event_paranoid threads-max pid_max core_pattern core_pipe_limit
    core_uses_pid kptr_restrict dmesg_restrict sched_autogroup_enabled shmmax shmall shmmni msgmax msgmnb sem
    nmi_watchdog hung_task_timeout_secs sysrq unprivileged_bpf_disabled
""")
SYSCTL_FOLDERS = ("vm", "fs", "net/core")


def fake_sysctls(root: Path) -> list[str]:
    """Write the host's own copy of shared sysctls below `root`; answers which paths to lay over /proc/sys."""
    shutil.rmtree(root, ignore_errors=True)
    for folder in SYSCTL_FOLDERS:
        for path, _unused, names in os.walk(f"/proc/sys/{folder}"):
            if path.endswith("binfmt_misc"):
                continue
            target = root / os.path.relpath(path, "/proc/sys")
            target.mkdir(parents=True, exist_ok=True)
            for name in names:
                try:
                    text = Path(path, name).read_text()
                except OSError:
                    text = "0\n"  # write-only, like drop_caches
                (target / name).write_text(text)
    (root / "fs/binfmt_misc").mkdir(exist_ok=True)
    (root / "vm/swappiness").write_text("60\n")
    (root / "kernel").mkdir()
    paths = list(SYSCTL_FOLDERS)
    for key in KERNEL_KEYS:
        source = Path("/proc/sys/kernel", key)
        if source.exists():
            (root / "kernel" / key).write_text(source.read_text())
            paths.append(f"kernel/{key}")
    return paths


def make_disk(image: Path, size: int, upper: Path) -> None:
    """A sparse ext4 file whose folder `upper` holds the staged files."""
    scratch = image.with_suffix(".part")
    scratch.unlink(missing_ok=True)
    with scratch.open("wb") as handle:
        handle.truncate(size)
    options = ["-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard,root_owner=0:0"]
    run(["mkfs.ext4", *options, "-d", upper, scratch])
    scratch.rename(image)
