# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab on which copies are measured: fabric addresses, rate limits, contents, the CPU's idle share.

The store of a measured copy lies on a tmpfs of the host, because the simulated disks share one real one, whose
write-back would be measured instead of the network. Everything else of a copy is as the role does it.
"""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import json
import mmap
import os
import secrets
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import fanout_job
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fanout_routes
from sparklab import Lab, LabError

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
GIB = 1 << 30
#: a run with less of the CPU idle measures the machine, not the network
IDLE_NEEDED = 0.20
HALVES = ("enp1s0f1np1", "enP2p1s0f1np1")
PORT = 29870


@dataclass
class Figure:
    """What one measured copy came to."""

    engine: str
    hosts: int
    size: int
    mbit: float
    seconds: float
    idle: float
    cpu_seconds: float
    notes: str = ""

    @property
    def ideal(self) -> float:
        return self.size * 8 / (2 * self.mbit * 1e6)

    @property
    def factor(self) -> float:
        return self.seconds / self.ideal

    @property
    def cpu_per_gib(self) -> float:
        return self.cpu_seconds / (self.size * self.hosts / GIB)

    @property
    def valid(self) -> bool:
        return self.idle >= IDLE_NEEDED

    def line(self) -> str:
        return (
            f"{self.engine:<26} {self.hosts:>2} hosts {self.size / GIB:5.2f} GiB at {self.mbit:4.0f} Mbit/s a port: "
            f"{self.seconds:7.1f} s = {self.factor:5.2f} x size/link rate, idle {self.idle:4.0%}, "
            f"{self.cpu_per_gib:5.2f} CPU s a GiB{'' if self.valid else '  INVALID: too little idle'} {self.notes}"
        )

    def document(self) -> dict[str, Any]:
        return {**self.__dict__, "ideal": self.ideal, "factor": self.factor, "cpu_per_gib": self.cpu_per_gib,
                "valid": self.valid}  # fmt: skip


def cpu() -> tuple[float, float]:
    """Seconds of all processors so far: idle, and busy."""
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(word) for word in file.readline().split()[1:9]]
    tick = os.sysconf("SC_CLK_TCK")
    idle = fields[3] + fields[4]
    return idle / tick, (sum(fields) - idle) / tick


@dataclass
class Meter:
    began: float = 0.0
    seconds: float = 0.0
    idle: float = 0.0
    busy: float = 0.0


def warm(size: int) -> None:
    """Touch so much memory and give it back, so that the store's tmpfs is made of memory that really is there.

    A virtual machine may get its memory from the host at the first touch of a page, which was seen to cost up to
    10 microseconds of CPU time a page: more than all the rest of a copy, and no cost of any copy on a real disk.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE) as memory:
        assert memory[size - page] == 0


@contextmanager
def metered() -> Iterator[Meter]:
    meter = Meter(time.monotonic())
    idle, busy = cpu()
    yield meter
    meter.seconds = time.monotonic() - meter.began
    idle_after, busy_after = cpu()
    meter.busy = busy_after - busy
    meter.idle = (idle_after - idle) / max(idle_after - idle + meter.busy, 1e-9)


def inventory(folder: Path, count: int, topology: str = "switch") -> Path:
    """An inventory of that many Sparks."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"s{number:02d}" for number in range(1, count + 1)]
    document = {
        "cluster": {
            "vars": {"fabric_topology": topology, "fabric_cidr": "10.100.0.0/16", "ansible_user": "nvidia"},
            "children": {
                "ray_head": {"hosts": {names[0]: {}}},
                "ray_workers": {"hosts": {name: {} for name in names[1:]}},
            },
        },
        "sparks": {"children": {"cluster": {}}},
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump(document, sort_keys=False))
    return folder


@dataclass
class Rig:
    """A lab whose hosts have fabric addresses and nothing else."""

    lab: Lab
    topology: str
    fabric: dict[str, dict[str, Any]] = field(default_factory=dict)
    mbit: float = 0.0

    @classmethod
    def make(cls, name: str, count: int, subnet: str, topology: str = "switch", suite: str = "trixie") -> Rig:
        folder = inventory(TOP / ".lab" / f"{name}-inventory", count, topology)
        try:
            Lab(name, TOP / ".lab").destroy()
        except LabError as error:  # it is not there, or creating it says what is wrong
            print(f"{name}: {error}")
        lab = Lab.create([folder], home=TOP / ".lab", name=name, subnet=subnet, suite=suite)
        rig = cls(lab, topology)
        rig.address()
        return rig

    @property
    def hosts(self) -> list[str]:
        return [host.name for host in self.lab.plan.hosts]

    def on(self, host: str, command: str, *, check: bool = True, timeout: float = 300, stdin: str | None = None) -> str:
        return self.lab.exec(host, ["bash", "-c", command], check=check, timeout=timeout, stdin=stdin).stdout

    def each(self, hosts: Sequence[str], command: str, timeout: float = 300) -> list[str]:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            return list(pool.map(lambda host: self.on(host, command, timeout=timeout), hosts))

    def address(self) -> None:
        """Fabric addresses as the role gives them: a subnet for each half, or for each half of each cable of a ring."""
        links: dict[str, list[dict[str, Any]]] = {host: [] for host in self.hosts}
        if self.topology == "switch":
            for number, host in enumerate(self.hosts, 1):
                for half, nic in enumerate(HALVES):
                    links[host].append({"netdev": nic, "half": half, "address": f"10.100.{128 * half}.{number}/17"})
        else:
            for cable, segment in enumerate(s for s in self.lab.plan.segments if s.kind == "cable"):
                for end, (host, nic) in enumerate(segment.ends, 1):
                    half = 1 if nic.startswith("enP2p") else 0
                    links[host].append({"netdev": nic, "half": half, "address": f"10.100.{cable}.{end}/24"})
        for host, entries in links.items():
            lines = []
            for link in entries:
                lines.append(f"ip link set {link['netdev']} mtu 9000 up; "
                             f"ip address replace {link['address']} dev {link['netdev']}")  # fmt: skip
            self.on(host, "; ".join(lines))
            self.fabric[host] = {"links": entries}

    def rate(self, mbit: float) -> None:
        self.mbit = mbit
        for host in self.hosts:
            self.lab.rate(host, [link["netdev"] for link in self.fabric[host]["links"]], mbit)

    # -- contents ------------------------------------------------------------------------------------------------------

    def fill(self, host: str, folder: str, size: int, files: int = 4) -> list[list[Any]]:
        """A model in the hub's layout of random safetensors; the contents by digest, with their parts."""
        program = f"""
import hashlib, json, os, struct
folder, size, files = {folder!r}, {size}, {files}
part = {fanout_routes.part_size(size)}
blobs = os.path.join(folder, "blobs"); commit = "0" * 40
snapshot = os.path.join(folder, "snapshots", commit)
os.makedirs(blobs, exist_ok=True); os.makedirs(snapshot, exist_ok=True)
found = []
for number in range(files):
    length = size // files
    head = json.dumps({{"w": {{"dtype": "U8", "shape": [length - 4096], "data_offsets": [0, length - 4096]}}}}).encode()
    head += b" " * (4096 - 8 - len(head))
    scratch = os.path.join(blobs, "new"); whole = hashlib.sha256(); parts = []
    with open(scratch, "wb") as file:
        left, data = length, struct.pack("<Q", len(head)) + head
        while left:
            block = (data + os.urandom(min(part, left) - len(data)))[:left]; data = b""
            file.write(block); whole.update(block); parts.append(hashlib.sha256(block).hexdigest()); left -= len(block)
    name = f"model-{{number + 1:05d}}-of-{{files:05d}}.safetensors"
    os.replace(scratch, os.path.join(blobs, whole.hexdigest()))
    os.symlink(os.path.join("../../blobs", whole.hexdigest()), os.path.join(snapshot, name))
    found.append([whole.hexdigest(), length, parts])
print(json.dumps(found))
"""
        return json.loads(self.on(host, "python3 -", stdin=program, timeout=600))

    def part_digests(self, host: str, path: str, size: int) -> list[str]:
        program = f"""
import hashlib
with open({path!r}, "rb") as file:
    while block := file.read({size}):
        print(hashlib.sha256(block).hexdigest())
"""
        return self.on(host, "python3 -", stdin=program).split()

    def mount(self, hosts: Sequence[str], place: str = "/mnt/store") -> None:
        self.each(hosts, f"mkdir -p {place}; mountpoint -q {place} || mount -t tmpfs -o size=90% store {place}")

    def digests(self, hosts: Sequence[str], folder: str) -> dict[str, list[str]]:
        command = f"cd {folder} && find . -type f | sort | xargs sha256sum | cut -d' ' -f1"
        return dict(zip(hosts, [text.split() for text in self.each(hosts, command)], strict=True))

    # -- our own engine ------------------------------------------------------------------------------------------------

    def start(
        self,
        order: Sequence[str],
        contents: list[list[Any]],
        blobs: str,
        *,
        store: str = "/mnt/store",
        shape: str = "chain",
        streams: int = 2,
        patience: int = 60,
        keys: dict[str, str] | None = None,
        spare: dict[str, list[str]] | None = None,
    ) -> str:
        """One job a host, as the module writes it; returns the run's name."""
        plan = fanout_routes.routes(self.fabric, order, shape)
        run, key = secrets.token_hex(8), secrets.token_hex(32)
        peers = [address for host in order for address in fanout_routes.addresses(self.fabric[host]["links"])]
        size = fanout_routes.part_size(sum(entry[1] for entry in contents))
        engine = base64.b64encode(fanout_job.program()).decode()

        def deliver(host: str) -> None:
            whole = {entry[0]: f"{blobs}/{entry[0]}" for entry in contents} if host == order[0] else {}
            job = {
                "run": run, "node": host, "hosts": list(order), "key": (keys or {}).get(host, key),
                "port": PORT, "part_size": size, "peers": peers, "names": {},
                "listen": fanout_routes.addresses(self.fabric[host]["links"]),
                "upstreams": plan[host].upstreams, "behind": plan[host].behind, "streams": streams,
                "patience": patience, "contents": contents, "local": whole, "spare": (spare or {}).get(host, []),
                "incoming": f"{store}/.incoming", "status": "/run/fanout/status.json",
            }  # fmt: skip
            text = f"{json.dumps(job)}\n\0{engine}"
            self.on(
                host,
                f"systemctl stop fanout 2>/dev/null; mkdir -p -m 700 /run/fanout {store}/.incoming; cd /run/fanout;"
                " rm -f status.json; umask 077; IFS= read -r -d '' job; printf %s \"$job\" > job.json;"
                " base64 -d > fanout.pyz",
                stdin=text,
            )

        def begin(host: str) -> None:
            program = "/run/fanout/fanout.pyz /run/fanout/job.json"
            self.on(host, f"systemd-run --quiet --collect --unit=fanout python3 {program}")

        # every job lies on its host before the first one begins: what is measured is the copy
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for step in (deliver, begin):
                list(pool.map(step, order))
        return run

    def status(self, host: str) -> dict[str, Any]:
        text = self.on(host, "cat /run/fanout/status.json 2>/dev/null", check=False)
        return json.loads(text)["nodes"] if text else {}

    def wait(self, order: Sequence[str], seconds: float) -> dict[str, dict[str, Any]]:
        """Until every host is done or has failed, as the first host knows it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            nodes = self.status(order[0])
            if all(nodes.get(host, {}).get("state") in ("done", "failed") for host in order):
                return nodes
            time.sleep(0.3)
        raise AssertionError(f"not done after {seconds} s: {self.status(order[0])}")

    def measure(self, count: int, contents: list[list[Any]], blobs: str, **settings: Any) -> Figure:
        order = self.hosts[: count + 1]
        size = sum(entry[1] for entry in contents)
        warm(size * count)
        with metered() as meter:
            self.start(order, contents, blobs, **settings)
            nodes = self.wait(order, 300)
        assert all(entry["state"] == "done" for entry in nodes.values()), nodes
        # from the first process that began to the last host that had everything, verified
        seconds = max(entry["ended"] for entry in nodes.values()) - min(entry["began"] for entry in nodes.values())
        return Figure(
            "sparkthor fan-out " + settings.get("shape", "chain"), len(order) - 1, size, self.mbit, seconds, meter.idle,
            meter.busy, f"(with starting and asking: {meter.seconds:.1f} s)",
        )  # fmt: skip


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def shell(argv: Sequence[str], timeout: float = 300) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=timeout).stdout
