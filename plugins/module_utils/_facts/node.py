# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host is and has, read once per run.

Parsers are pure (text in, plain data out); :class:`NodeReader` ties them to a root folder and a command runner, so
that tests feed it a captured machine.  Only read-only commands are run, each with a time limit.  Nothing here may
return a secret: of netplan files only NIC names and addresses are kept (Wi-Fi entries carry passwords), of our own
secret files only which there are.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import machine, own_secrets
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import environment_file, files, foreign, ssh
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import generation, gpu_state, places
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import hub_caches

#: (rc, stdout, stderr); rc 127 stands for "not installed", 124 for "ran past its time limit"
CommandResult = tuple[int, str, str]
Runner = Callable[[list[str]], CommandResult]

#: what serving consists of, from the bottom up
SERVING_UNITS = (
    "sparkthor-ray.service",
    "sparkthor-vllm.service",
    "sparkthor-front.service",
    "sparkthor-watchdog.service",
)
#: what some hosts have beside it
FRONT_UNITS = ("sparkthor-address.service", "sparkthor-tokens.service", "sparkthor-on-demand.service")
#: programs the roles ask for; their paths are facts so that no role needs a task to find them
BINARIES = (
    "apt-get",
    "docker",
    "earlyoom",
    "ethtool",
    "ibdev2netdev",
    "jetson_clocks",
    "keepalived",
    "netplan",
    "networkctl",
    "nft",
    "nginx",
    "nmcli",
    "nvidia-ctk",
    "nvidia-smi",
    "nvpmodel",
    "openssl",
    "ptxas",
    "rdma",
    "rsync",
    "systemctl",
    "uv",
    "zstd",
)

#: of nginx, as Debian and Ubuntu package it: the front proxy routes by it where there are several serving groups
NGINX_JS = "/usr/lib/nginx/modules/ngx_http_js_module.so"

_VIRTUAL_PREFIXES = (
    *("lo", "docker", "br-", "veth", "virbr", "tailscale", "tun", "tap"),
    *("l4tbr", "usb", "cni", "flannel"),
)


def parse_meminfo(text: str) -> dict[str, int]:
    """``/proc/meminfo`` as bytes by key (``MemTotal``, ``MemAvailable``, ``SwapTotal`` …).

    Source: proc_meminfo(5); every size line ends in ``kB`` and means KiB.
    """
    values: dict[str, int] = {}
    for line in text.splitlines():
        match = re.match(r"^(\S+):\s+(\d+)(?:\s+(kB))?\s*$", line)
        if match:
            values[match.group(1)] = int(match.group(2)) * (1024 if match.group(3) else 1)
    return values


#: characters of /etc/dgx-release that leave a host
_RELEASE_LENGTH = 2000
#: parameters of the kernel's command line by which sound and sick machines of one kind have differed
KERNEL_PARAMETERS = (
    *("kho", "cma", "iommu", "iommu.passthrough", "iommu.strict", "pci", "pcie_aspm"),
    *("hugepages", "hugepagesz", "default_hugepagesz"),
)


def parse_cmdline(text: str) -> dict[str, str]:
    """Those of :data:`KERNEL_PARAMETERS` that ``/proc/cmdline`` sets; the last one counts, as for the kernel.

    Source: bootparam(7).
    """
    words = (word.partition("=") for word in text.split(" -- ")[0].split())
    return {name: value for name, _sign, value in words if name in KERNEL_PARAMETERS}


def parse_nvidia_smi_list(text: str) -> list[str]:
    """GPU names out of ``nvidia-smi -L``: one line ``GPU 0: NVIDIA GB10 (UUID: GPU-…)`` per GPU."""
    return [
        match.group(1).strip() for match in re.finditer(r"^GPU \d+: (.+?)(?: \(UUID: .*\))?\s*$", text, re.MULTILINE)
    ]


def parse_ip_address(text: str) -> list[dict[str, Any]]:
    """``ip -j -d address show`` as a list of interfaces.

    Each: ``name, altnames, mac, mtu, up (administrative), carrier, operstate, kind, master, lower, addresses``;
    ``lower`` is the NIC below a VLAN or the like.  Addresses are ``{address 'a.b.c.d/len', family, scope, dynamic}``;
    ``address`` keeps the host bits, as the kernel shows them.
    """
    interfaces = []
    for link in json.loads(text or "[]"):
        if "ifname" not in link:
            continue
        flags = link.get("flags") or []
        kind = (link.get("linkinfo") or {}).get("info_kind", "")
        interfaces.append(
            {
                "name": link["ifname"],
                "altnames": [str(name) for name in link.get("altnames") or []],
                "mac": link.get("address", ""),
                "mtu": int(link.get("mtu", 0)),
                "max_mtu": int(link.get("max_mtu") or 0),
                "up": "UP" in flags,
                "carrier": "LOWER_UP" in flags,
                "operstate": str(link.get("operstate", "UNKNOWN")).lower(),
                "kind": kind,
                "master": link.get("master", ""),
                "lower": link.get("link") or "" if kind not in ("", "veth") else "",
                "addresses": [
                    {
                        "address": f"{item['local']}/{item['prefixlen']}",
                        "family": item.get("family", "inet"),
                        "scope": item.get("scope", ""),
                        "dynamic": bool(item.get("dynamic", False)),
                    }
                    for item in link.get("addr_info") or []
                    if "local" in item
                ],
            }
        )
    return interfaces


def parse_neighbours(text: str) -> list[dict[str, str]]:
    """``ip -j -4 neighbour show`` as ``{netdev, address, mac}`` of those that have answered."""
    return [
        {"netdev": entry["dev"], "address": entry["dst"], "mac": entry["lladdr"]}
        for entry in json.loads(text or "[]")
        if entry.get("lladdr")
    ]


def parse_ip_route(text: str) -> list[dict[str, str]]:
    """``ip -j -4 route show`` as ``{dst, dev, gateway, prefsrc, protocol}`` (empty strings where absent)."""
    return [
        {
            "dst": str(route.get("dst", "")),
            "dev": str(route.get("dev", "")),
            "gateway": str(route.get("gateway", "")),
            "prefsrc": str(route.get("prefsrc", "")),
            "protocol": str(route.get("protocol", "")),
        }
        for route in json.loads(text or "[]")
    ]


def management_of(
    server_address: str, interfaces: list[dict[str, Any]], routes: list[dict[str, str]], floating: str = ""
) -> dict[str, str]:
    """The interface the controller came in by: ``{netdev, address, cidr}``, empty strings when none is found.

    ``server_address`` is the local end of the ssh connection; without one (local connection) the interface of the
    default route counts, since that is where a person would reach the host.  Without one, ``floating`` does not count,
    which is another host's the next moment.
    """
    default_dev = next((route["dev"] for route in routes if route["dst"] == "default"), "")
    fallback: dict[str, str] = {}
    for link in interfaces:
        for item in link["addresses"]:
            host, _unused, length = item["address"].partition("/")
            entry = {"netdev": link["name"], "address": host, "cidr": f"{host}/{length}"}
            if server_address and host == server_address:
                return entry
            if not fallback and item["family"] == "inet" and link["name"] == default_dev and host != floating:
                fallback = entry
    return fallback or {"netdev": "", "address": "", "cidr": ""}


def hostname_on_loopback(hosts_text: str, hostname: str) -> bool:
    """Whether ``/etc/hosts`` maps the host's own name to 127/8: Gloo then binds there and peers are refused."""
    for line in hosts_text.splitlines():
        fields = line.split("#", 1)[0].split()
        if len(fields) > 1 and fields[0].startswith("127.") and hostname in fields[1:]:
            return True
    return False


def names_beside(root: str = "/") -> list[str]:
    """Names of the serving groups that a run has put beside the host's own one."""
    try:
        return sorted(os.listdir(os.path.join(root, f"{places.ETC}/{places.BESIDE}".lstrip("/"))))
    except OSError:
        return []


def units_beside(root: str = "/") -> list[str]:
    """Units of those groups: the engine and the watchdog of each."""
    return [unit for own in map(places.Places, names_beside(root)) for unit in (own.unit, own.watchdog)]


class NodeReader(files.Below):
    """Reads one host.  ``root``, ``run`` and ``system`` are injectable, so that tests replay a captured host."""

    def __init__(self, run: Runner, root: str = "/", system: Mapping[str, str] | None = None) -> None:
        super().__init__(root)
        self._run = run
        #: what uname tells
        self._system = system or platform.uname()._asdict()

    def _read(self, path: str, default: str = "") -> str:
        try:
            return files.read_plain(self._path(path)).decode("utf-8", "replace").replace("\0", "")
        except OSError:
            return default

    def _exists(self, path: str) -> bool:
        return os.path.exists(self._path(path))

    def _json(self, argv: list[str], parse: Callable[[str], Any]) -> Any:
        rc, out, _err = self._run(argv)
        if rc != 0:
            return parse("[]")
        try:
            return parse(out)
        except ValueError:
            return parse("[]")

    def gpus(self) -> dict[str, Any]:
        """``{names, driver, count, problem}``; a Thor without a working nvidia-smi still counts its one GPU."""
        rc, out, err = self._run(["nvidia-smi", "-L"])
        names = parse_nvidia_smi_list(out) if rc == 0 else []
        said = next((line.strip() for line in (out + "\n" + err).splitlines() if line.strip()), "")
        problem = "" if names else "it is not installed" if rc == 127 else said[:200] or f"nothing, and ended with {rc}"
        driver = self._read("/sys/module/nvidia/version").strip()
        if names and not driver:
            rc, out, _err = self._run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
            driver = out.splitlines()[0].strip() if rc == 0 and out.strip() else ""
        return {"names": names, "driver": driver, "count": len(names), "problem": problem}

    def gpu_facts(self, gpus: Mapping[str, Any]) -> dict[str, Any]:
        """How many there are, why none answers, and the limit of the clock in MHz (0 for none)."""
        return {
            "gpus": gpus["count"],
            "gpu_names": gpus["names"],
            "gpu_problem": gpus["problem"],
            "gpu_clock_limit": gpu_state.clock_limit(self._read(gpu_state.LIMIT_UNIT)),
            "driver": gpus["driver"],
        }

    def nvidia_pci(self) -> list[str]:
        """NVIDIA's PCI functions as ``vendor:device``: they are there with any driver, or none."""
        devices = set()
        for path in glob.glob(self._path("/sys/bus/pci/devices/*/vendor")):
            with contextlib.suppress(OSError), open(path, encoding="ascii") as vendor:
                if vendor.read().strip() == "0x10de":
                    with open(f"{os.path.dirname(path)}/device", encoding="ascii") as device:
                        devices.add(f"10de:{device.read().strip().removeprefix('0x')}")
        return sorted(devices)

    def interfaces(self) -> list[dict[str, Any]]:
        links: list[dict[str, Any]] = self._json(["ip", "-j", "-d", "address", "show"], parse_ip_address)
        for link in links:
            base = f"/sys/class/net/{link['name']}"
            for key in ("phys_port_name", "phys_switch_id", "speed"):
                link[key] = self._read(f"{base}/{key}").strip()
            place = re.search(r"^PCI_SLOT_NAME=(\S+)$", self._read(f"{base}/device/uevent"), re.MULTILINE)
            link["pci"] = place[1] if place else ""
            link["virtual"] = link["name"].startswith(_VIRTUAL_PREFIXES) or bool(link["kind"] not in ("", "veth"))
        return links

    def secrets(self) -> list[str]:
        """Names of our secrets that this host holds. Not even a digest leaves it: a person's own may be guessed."""
        return [name for name in own_secrets.NAMES if self._read(f"/etc/sparkthor/secrets/{name}").strip()]

    def dgx_release(self) -> str:
        """The release of DGX OS, without the serial number of the machine that stands beside it.

        Each update adds lines at the end, so of a long file the newest are kept.
        """
        lines = [line for line in self._read("/etc/dgx-release").splitlines() if "SERIAL" not in line.upper()]
        kept = "\n".join(lines).strip()
        return kept if len(kept) <= _RELEASE_LENGTH else kept[-_RELEASE_LENGTH:].partition("\n")[2]

    def ota_torn(self, driver: str) -> float | None:
        """How incomplete an update of DGX OS is; asked only for the driver that does not survive it."""
        if driver != machine.TORN_DRIVER:
            return None
        rc, out, _err = self._run(["nvidia-spark-ota-check", "torn-score"])
        return machine.torn_score(out) if rc == 0 else None

    def serving(self) -> bool:
        """Whether an engine of ours holds this host's memory: its control group exists while its unit runs."""
        beside = (places.Places(name).unit for name in self.beside())
        units = ("sparkthor-vllm.service", "sparkthor-ray.service", *beside)
        return any(self._exists(f"/sys/fs/cgroup/system.slice/{unit}") for unit in units)

    def identifiers(self) -> dict[str, str]:
        return {
            "machine": machine.identity(self._read("/etc/machine-id")),
            "boot_id": self._read("/proc/sys/kernel/random/boot_id").strip(),
        }

    def groups_here(self) -> dict[str, Any]:
        return {"serving": self.serving(), "beside": self.beside()}

    def beside(self) -> list[str]:
        return names_beside(self._path("/"))

    def declared(self) -> dict[str, Any]:
        """As whom the newest play declared this host, whom head, which declaration of which cluster that was, its
        hosts, which machines they are, its topology, what starts its ranks, and the newest one that this host has heard
        of since; empty before the first."""
        data = self._object(places.DECLARED)
        if not isinstance(data.get("head"), str):
            return {}
        heard, machines = self._object("/var/lib/sparkthor/superseded.json"), data.get("machines")
        numbers = (one.get("generation") for one in (data, heard))
        own, later = (generation.known(number) for number in numbers)
        return {
            "host": str(data.get("host") or ""),
            "head": data["head"],
            "generation": own,
            "seen": max(own, later),
            "cluster": str(data.get("cluster") or ""),
            "hosts": sorted(data.get("peers") or ()),
            "machines": machines if isinstance(machines, dict) else {},
            "topology": str(data.get("topology") or ""),
            "executor": str(data.get("executor") or ""),
            "virtual": str(data.get("virtual_address") or ""),
            "hostname": str(data.get("hostname") or ""),
        }

    def models(self) -> dict[str, str]:
        """By the model's name the folder of the revision that its link in the model store leads to."""
        links = {}
        for path in glob.glob(self._path(f"{places.folders(self._object(places.DECLARED))['models']}/*")):
            with contextlib.suppress(OSError):
                name, target = os.path.basename(path), os.readlink(path)
                if target.startswith(f"{name}@"):
                    links[name] = target
        return links

    def hub_models(self) -> dict[str, int]:
        """Bytes of each model that the hub's own tools have brought here, as far as this user sees them."""
        return hub_caches.sizes([self._path(pattern) for pattern in hub_caches.DEFAULT])

    def reboot(self) -> str:
        """Why the host asks for a reboot; empty if it does not."""
        if self._exists("/run/reboot-required"):
            asking = sorted(set(self._read("/run/reboot-required.pkgs").split()))
            return ", ".join(asking[:5]) or "an update"
        try:
            newest = os.path.basename(os.readlink(self._path("/boot/vmlinuz"))).removeprefix("vmlinuz-")
        except OSError:
            return ""
        running = str(self._system["release"])
        # a link that leads to what was removed since says nothing
        known = self._exists(f"/lib/modules/{newest}")
        return f"kernel {newest} is installed, {running} runs" if known and newest != running else ""

    def binaries(self) -> dict[str, str]:
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/cuda/bin"
        if self._root != "/":
            path = ":".join(self._path(item) for item in path.split(":"))
        found = {name: shutil.which(name, path=path) or "" for name in BINARIES}
        return {**found, "nginx_js": NGINX_JS if self._exists(NGINX_JS) else ""}

    def way_in(self, interfaces: list[dict[str, Any]], routes: list[dict[str, str]], floating: str) -> dict[str, Any]:
        """By which interface and which port of ssh the controller came in; no port without ssh."""
        connection = ssh.connection(self._path("/proc")) or ["", "", "", "0"]
        return {
            "management": management_of(connection[2], interfaces, routes, floating),
            "ssh_port": int(connection[3]),
        }

    def toolchain(self) -> dict[str, Any]:
        """What compiles at the engine's first start: C compiler, Python's headers, CUDA."""
        path = ":".join(self._path(item) for item in ("/usr/local/bin", "/usr/bin", "/usr/local/cuda/bin"))
        headers = f"/usr/include/python{sys.version_info[0]}.{sys.version_info[1]}/Python.h"
        try:
            cuda = str(json.loads(self._read("/usr/local/cuda/version.json"))["cuda"]["version"])
        except (ValueError, KeyError, TypeError):
            cuda = ""
        return {
            "cc": shutil.which("cc", path=path) or shutil.which("gcc", path=path) or "",
            "python_headers": self._exists(headers),
            "nvcc": shutil.which("nvcc", path=path) or "",
            "cuda": cuda,
        }

    def time_sync(self) -> dict[str, Any]:
        """``systemd-timesyncd`` and chrony leave marks; asking timedated over D-Bus would cost 100 ms a run."""
        return {"synchronized": self._exists("/run/systemd/timesync/synchronized") or self._exists("/run/chrony")}

    def kernel(self, memory: Mapping[str, int]) -> dict[str, Any]:
        """Its name, how it was started, and its contiguous memory in bytes, where it says something of that."""
        return {
            "kernel": self._system["release"],
            "kernel_parameters": parse_cmdline(self._read("/proc/cmdline")),
            "cma": {name: memory[key] for name, key in (("total", "CmaTotal"), ("free", "CmaFree")) if key in memory},
        }

    def read(self) -> dict[str, Any]:
        """The whole ``sparkthor_node`` fact."""
        os_release = environment_file.parse(self._read("/etc/os-release"))
        memory = parse_meminfo(self._read("/proc/meminfo"))
        gpus = self.gpus()
        interfaces = self.interfaces()
        routes = self._json(["ip", "-j", "-4", "route", "show"], parse_ip_route)
        product = self._read("/sys/class/dmi/id/product_name").strip()
        hostname = self._system["node"]
        tegra = self._read("/etc/nv_tegra_release")
        model, family = (self._read(path) for path in ("/proc/device-tree/model", "/sys/class/dmi/id/product_family"))
        kind = machine.detect_kind(product, gpus["names"], bool(tegra), model, self.nvidia_pci(), family)
        if kind == "thor" and gpus["count"] == 0:
            gpus["count"] = 1
        disk, declared = os.statvfs(self._path("/var/lib")), self.declared()
        return {
            "kind": kind,
            "hostname": hostname,
            "hostname_on_loopback": hostname_on_loopback(self._read("/etc/hosts"), hostname),
            "product": product,
            **self.identifiers(),
            "os": {
                "id": os_release.get("ID", ""),
                "version": os_release.get("VERSION_ID", ""),
                "codename": os_release.get("VERSION_CODENAME", ""),
                "pretty": os_release.get("PRETTY_NAME", ""),
                "dgx": self.dgx_release(),
                "ota_torn": self.ota_torn(gpus["driver"]),
                "tegra": machine.tegra_version(tegra),
            },
            "arch": self._system["machine"],
            **self.kernel(memory),
            "reboot": self.reboot(),
            "python": {
                "version": platform.python_version(),
                "tag": f"cp{sys.version_info[0]}{sys.version_info[1]}",
                "platform": f"linux_{self._system['machine']}",
            },
            "glibc": platform.libc_ver()[1],
            "cpus": os.cpu_count() or 1,
            "mem_total_bytes": memory.get("MemTotal", 0),
            "mem_available_bytes": memory.get("MemAvailable", 0),
            **self.groups_here(),
            "swap_total_bytes": memory.get("SwapTotal", 0),
            "disk_free_bytes": disk.f_bavail * disk.f_frsize,
            **self.gpu_facts(gpus),
            "interfaces": interfaces,
            "routes": routes,
            **self.way_in(interfaces, routes, str(declared.get("virtual", ""))),
            "binaries": self.binaries(),
            "toolchain": self.toolchain(),
            "secrets": self.secrets(),
            "declared": declared,
            "models": self.models(),
            "hub_models": self.hub_models(),
            "time": self.time_sync(),
        }


def read_now(timeout: int) -> dict[str, Any]:
    """This host, with its clock as the last thing that is read."""
    from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited

    node = NodeReader(lambda argv: run_limited(argv, timeout)).read()
    return {**foreign.tellable(node), "clock": time.time()}
