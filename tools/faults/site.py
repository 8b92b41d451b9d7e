# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A serving lab: what runs on its hosts, stopping and starting all of it, and filling a disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sparklab import Lab

from tools.faults.observe import Endpoint
from tools.playbooks import TOP

UNITS = ("sparkthor-watchdog", "sparkthor-front", "sparkthor-vllm", "sparkthor-ray")
RAY = "sparkthor-ray.service"
VLLM = "sparkthor-vllm.service"
WATCHDOG = "sparkthor-watchdog.service"
FRONT = "sparkthor-front.service"
#: titles of a rank, and of what the head alone has; SGLang has no more there than its rank
RANK, CORE = r"VLLM::Worker|sglang::scheduler", r"VLLM::EngineCore|sglang::scheduler"
#: where our files lie; a torn one among them would be found by its hash
OURS = "/etc/sparkthor /usr/local/lib/sparkthor /etc/systemd/system /etc/tmpfiles.d"

#: process ids of a unit, or of a container, whose title matches $2, newest last
_FIND = r"""
cd /sys/fs/cgroup/system.slice
for pid in $(find "$1" docker-*.scope -name cgroup.procs -exec cat {} + 2>/dev/null | sort -n); do
  title=$(tr '\0' ' ' </proc/$pid/cmdline 2>/dev/null)
  if printf %s "$title" | grep -qE -- "$2"; then echo "$pid"; fi
done
"""
_FILL = r"""
n=0
for size in 1G 100M 10M 1M 64K 4K; do
  while fallocate -l $size /var/fill.$n 2>/dev/null; do n=$((n+1)); done
done
! dd if=/dev/zero of=/var/fill.probe bs=4k count=4 2>/dev/null
"""
_FREE = "rm -f /var/fill.*"
_FILL_SHM = (
    "dd if=/dev/zero of=/dev/shm/fill bs=1M 2>/dev/null; ! dd if=/dev/zero of=/dev/shm/fill.probe bs=64k count=1"
)
#: empty files, until the root disk has an inode for no more
_FILL_INODES = """
mkdir -p /var/fill.inodes && python3 - <<'END'
import itertools, os
try:
    for number in itertools.count():
        if number % 10000 == 0:
            os.mkdir(f"/var/fill.inodes/{number // 10000}")
        os.mknod(f"/var/fill.inodes/{number // 10000}/{number}")
except OSError as error:
    print(number, error.strerror)
END
! touch /var/fill.probe 2>/dev/null
"""


class FaultError(Exception):
    """A run that cannot be measured; the message says what was missing."""


@dataclass
class Site:
    """The lab, the inventories it was converged by, and who is who."""

    lab: Lab
    inventories: list[Path]
    model: str = "tiny-qwen3"

    @classmethod
    def open(cls, name: str, inventory: str = "lab_tiny") -> Site:
        lab = Lab(name, home=TOP / ".lab")
        return cls(lab, [TOP / "inventories" / inventory, TOP / ".lab" / name / "inventory.yml"])

    @property
    def hosts(self) -> list[str]:
        return [host.name for host in self.lab.plan.hosts]

    @property
    def head(self) -> str:
        return self.hosts[0]

    @property
    def worker(self) -> str:
        return self.hosts[-1]

    @property
    def secrets(self) -> Path:
        """The folder of this lab's secrets on the controller."""
        return self.lab.folder / "secrets"

    @property
    def endpoint(self) -> Endpoint:
        key = (self.secrets / "api_key").read_text(encoding="utf-8").strip()
        return Endpoint(self.lab.plan.host(self.head).address, 8000, key, self.model)

    def on(self, host: str, command: str, *arguments: str, check: bool = True, timeout: float = 120) -> str:
        """A shell line on a host, as root, without its network."""
        words = ["bash", "-c", command, "faults", *arguments]
        return self.lab.exec(host, words, check=check, timeout=timeout).stdout

    def everywhere(self, command: str, hosts: Iterable[str] | None = None) -> dict[str, str]:
        chosen = list(hosts or self.hosts)
        with ThreadPoolExecutor(len(chosen)) as pool:
            return dict(zip(chosen, pool.map(lambda host: self.on(host, command), chosen), strict=True))

    def leader(self) -> int | None:
        return self.lab.machine(self.head).leader()

    # -- processes --------------------------------------------------------------------------------------------------

    def processes(self, host: str, unit: str, pattern: str) -> list[int]:
        return [int(line) for line in self.on(host, _FIND, unit, pattern, check=False).split()]

    def process(self, host: str, unit: str, pattern: str) -> int:
        found = self.processes(host, unit, pattern)
        if not found:
            raise FaultError(f"{host}: no process of {unit} matches {pattern}")
        return found[-1]

    def signal(self, host: str, pid: int, name: str) -> None:
        self.on(host, f"kill -{name} {pid}")

    def shown(self, host: str, unit: str, prop: str) -> str:
        return self.on(host, f"systemctl show -p {prop} --value {unit}").strip()

    def ranks_on(self, host: str) -> list[int]:
        """Worker processes of the engine, stopped ones included."""
        return self.processes(host, RAY, r"ray::RayWorker") or self.processes(host, VLLM, RANK)

    def ranks(self) -> dict[str, int]:
        """How many, by host."""
        return {host: len(self.ranks_on(host)) for host in self.hosts}

    def surplus(self) -> list[str]:
        """What is not one rank a host and one engine core on the head."""
        counts = {f"ranks on {host}": count for host, count in self.ranks().items()}
        counts[f"engine cores on {self.head}"] = len(self.processes(self.head, VLLM, CORE))
        return [f"{count} {what}" for what, count in counts.items() if count != 1]

    # -- all of ours ------------------------------------------------------------------------------------------------

    def stop_all(self) -> None:
        self.everywhere("systemctl stop " + " ".join(f"{unit}.service" for unit in UNITS[:3]) + " 2>/dev/null; true")
        # without Ray there may be no such unit
        self.everywhere(f"systemctl stop {RAY} || ! systemctl cat {RAY} >/dev/null 2>&1")

    def start_all(self) -> None:
        units = " ".join(f"{unit}.service" for unit in UNITS)
        self.everywhere(
            f"for unit in {units}; do if systemctl -q is-enabled $unit 2>/dev/null; then "
            "systemctl --no-block start $unit; fi; done"
        )

    def clean_start(self, limit: float = 900) -> float:
        """Seconds from all of ours stopped to the first completion through the front proxy."""
        self.stop_all()
        endpoint = self.endpoint
        begun = time.monotonic()
        self.start_all()
        wait(lambda: endpoint.complete(1, stream=False, timeout=120) == "", limit, "a completion after a clean start")
        return time.monotonic() - begun

    def hashes(self, host: str) -> dict[str, str]:
        text = self.on(host, f"find {OURS} -xdev -type f -print0 | sort -z | xargs -0 sha256sum")
        return {line.split("  ", 1)[1]: line.split("  ", 1)[0] for line in text.splitlines()}

    def fill_disk(self, host: str) -> None:
        self.on(host, _FILL)

    def free_disk(self, host: str) -> None:
        self.on(host, _FREE)

    def fill_shm(self, host: str) -> None:
        self.on(host, _FILL_SHM)

    def free_shm(self, host: str) -> None:
        self.on(host, "rm -f /dev/shm/fill*")

    def fill_inodes(self, host: str) -> None:
        self.on(host, _FILL_INODES, timeout=300)

    def free_inodes(self, host: str) -> None:
        self.on(host, "rm -rf /var/fill.inodes /var/fill.probe", timeout=300)


def wait(holds: Callable[[], bool], seconds: float, what: str, every: float = 0.3) -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise FaultError(f"waited {seconds:.0f} s for {what}")
        time.sleep(every)


def differing(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Files that are not what they were, temporary ones that stayed included."""
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


def sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def shuffled(hosts: Sequence[str], pick: Callable[[list[str]], None]) -> list[str]:
    order = list(hosts)
    pick(order)
    return order
