# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A LAN of network namespaces: two heads, each with keepalived, our firewall and something on the API's port, and a
stranger."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.unit import firewall_machine
from tests.unit.plugins.plugin_utils._plan.conftest import variables
from tests.unit.plugins.plugin_utils._plan.test_virtual_address import CONFIG, PROGRAM
from tests.unit.plugins.plugin_utils._plan.vllm_plan import files, plan
from tests.unit.role_state import ROLES

__all__ = ["variables"]

ROOT = os.environ.get("KEEPALIVED_ROOT", "")
LIBRARIES = ":".join(f"{ROOT}{folder}/{os.uname().machine}-linux-gnu" for folder in ("/lib", "/usr/lib"))
HEADS, STRANGER, LAN = ("a", "b"), "c", "lan"
ADDRESSES = {"a": "10.9.0.1", "b": "10.9.0.2", STRANGER: "10.9.0.3", LAN: "10.9.0.254"}
NETDEV, VIRTUAL, PORT = "eth0", "10.9.0.100", 8000
#: a front proxy whose own model is away, and which says so
FRONT = """
import http.server, sys
class Front(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if self.path == "/health" else 200)
        self.end_headers()
        self.wfile.write(sys.argv[1].encode())
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[2])), Front).serve_forever()
"""
#: asks the virtual address, once
CLIENT = f"import urllib.request as u; print(u.urlopen('http://{VIRTUAL}:{PORT}/', timeout=1).read().decode())"
#: on a host: what keepalived asks with, the users and /run of that host alone
HOST = """
set -e
mount -t tmpfs -o mode=755 run /run
mkdir -p /run/sparkthor/address
mount -t tmpfs -o mode=755 lib /usr/local/lib
cp -r {folder}/lib/. /usr/local/lib/
mount --bind {folder}/passwd /etc/passwd
exec setpriv --no-new-privs --bounding-set=-all,{capabilities} -- {command}
"""


def program(name: str) -> str:
    """A program of the distribution's package, installed or unpacked below KEEPALIVED_ROOT."""
    return f"{ROOT}/usr/sbin/{name}" if ROOT else shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") or ""


def within(what: str, holds: Callable[[], Any], seconds: float = 60.0) -> float:
    """Wait until something holds; the seconds that it took."""
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() - begun < seconds, f"{what}: not within {seconds:g} s"
        time.sleep(0.05)
    took = time.monotonic() - begun
    print(f"{what}: after {took:.2f} s", flush=True)
    return took


@dataclass
class Net:
    folder: Path
    planned: dict[str, dict[str, str]]
    prefix: str = field(default_factory=lambda: f"va{os.getpid()}")
    running: dict[tuple[str, str], subprocess.Popen[bytes]] = field(default_factory=dict)

    def command(self, host: str, *words: str) -> list[str]:
        return ["ip", "netns", "exec", f"{self.prefix}{host}", *words]

    def on(self, host: str, *words: str, check: bool = True) -> str:
        environment = {**os.environ, **({"LD_LIBRARY_PATH": LIBRARIES} if words[0].startswith(ROOT or "//") else {})}
        done = subprocess.run(
            self.command(host, *words), check=False, capture_output=True, text=True, timeout=60, env=environment
        )
        assert done.returncode == 0 or not check, f"{host}: {words}: {done.stderr}"
        return done.stdout

    def start(self, host: str, what: str, *words: str, environment: dict[str, str] | None = None) -> None:
        # the process has the file open for itself
        with (self.folder / f"{host}.{what}.log").open("ab") as log:
            self.running[host, what] = subprocess.Popen(
                self.command(host, *words),
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def end(self, host: str, what: str, number: int = signal.SIGTERM) -> None:
        """One that is killed takes along what it started, as its unit's control group does."""
        process = self.running.pop((host, what))
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8").split()
        process.send_signal(number)
        for child in children if number == signal.SIGKILL else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), number)
        process.wait(30)

    def lay(self) -> None:
        for host in (LAN, *HEADS, STRANGER):
            subprocess.run(["ip", "netns", "add", f"{self.prefix}{host}"], check=True)
            self.on(host, "ip", "link", "set", "lo", "up")
        self.on(LAN, "ip", "link", "add", "br0", "type", "bridge")
        self.on(LAN, "ip", "address", "add", f"{ADDRESSES[LAN]}/24", "dev", "br0")
        self.on(LAN, "ip", "link", "set", "br0", "up")
        for host in (*HEADS, STRANGER):
            end = ["peer", "name", NETDEV, "netns", f"{self.prefix}{host}"]
            self.on(LAN, "ip", "link", "add", f"to-{host}", "type", "veth", *end)
            self.on(LAN, "ip", "link", "set", f"to-{host}", "master", "br0", "up")
            self.on(host, "ip", "address", "add", f"{ADDRESSES[host]}/24", "dev", NETDEV)
            self.on(host, "ip", "link", "set", NETDEV, "up")
        for host in HEADS:
            rules = self.folder / f"{host}.nft"
            peers = [ADDRESSES[other] for other in HEADS if other != host]
            holders = [{"host": "one", "address": ADDRESSES[host]}]
            holders += [{"host": name, "address": peer} for name, peer in zip(("two", "three"), peers, strict=False)]
            cluster = {"head": "one", "virtual": {"holders": holders}}
            text = firewall_machine.ruleset(firewall_api_port=PORT, sparkthor_cluster=cluster)
            rules.write_text(text, encoding="utf-8")
            self.on(host, program("nft"), "-f", str(rules))

    def front(self, host: str) -> None:
        self.start(host, "front", sys.executable, "-c", FRONT, host, str(PORT))

    def keepalived(self, host: str) -> None:
        """As the unit runs it: its command, and no more rights than it has."""
        config = self.folder / f"{host}.conf"
        config.write_text(self.planned[host][CONFIG], encoding="utf-8")
        unit = self.planned[host]["/etc/systemd/system/sparkthor-address.service"]
        words = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
        may = re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
        assert words, unit
        assert may, unit
        command = words[1].replace("/usr/sbin/keepalived", program("keepalived"))
        capabilities = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in may[1].split())
        script = HOST.format(
            folder=self.folder,
            capabilities=capabilities,
            command=command.replace(CONFIG, str(config)),
        )
        libraries = {"LD_LIBRARY_PATH": LIBRARIES} if ROOT else {}
        self.start(host, "keepalived", "unshare", "--mount", "sh", "-c", script, environment=libraries)

    def holders(self, address: str = VIRTUAL) -> list[str]:
        return [
            host for host in HEADS if f" {address}/24 " in self.on(host, "ip", "-4", "address", "show", "dev", NETDEV)
        ]

    def answers(self) -> str:
        """Whose front proxy a client in the LAN reaches at the virtual address."""
        return self.on(LAN, sys.executable, "-c", CLIENT, check=False).strip()

    def remove(self) -> None:
        for host, what in list(self.running):
            with contextlib.suppress(OSError):
                self.end(host, what, signal.SIGKILL)
        for host in (LAN, *HEADS, STRANGER):
            subprocess.run(["ip", "netns", "delete", f"{self.prefix}{host}"], check=False, capture_output=True)


def planned(given: dict[str, Any]) -> dict[str, dict[str, str]]:
    """By head its files, as the role has them planned."""
    holders = [{"host": host, "interface": NETDEV, "address": ADDRESSES[host]} for host in HEADS]
    virtual = {"address": f"{VIRTUAL}/24", "router_id": 51, "holders": holders}
    found = {}
    for host in HEADS:
        cluster = {**given["sparkthor_cluster"], "head": host, "virtual": virtual}
        own = {**given, "sparkthor_cluster": cluster, "inventory_hostname": host, "vllm_serve_api_port": PORT}
        found[host] = files(plan(own))
    return found


@pytest.fixture
def net(tmp_path: Path, variables: dict[str, Any]) -> Iterator[Net]:
    """Two heads with the address between them, the first of which has it."""
    tmp_path.chmod(0o755)
    program_path = tmp_path / "lib" / Path(PROGRAM).relative_to("/usr/local/lib")
    program_path.parent.mkdir(parents=True)
    program_path.write_text((ROLES / "vllm_serve/files/front-answers.py").read_text(encoding="utf-8"), encoding="utf-8")
    users = Path("/etc/passwd").read_text(encoding="utf-8")
    users += "sparkthor-front:x:65533:65534::/nonexistent:/usr/sbin/nologin\n"
    (tmp_path / "passwd").write_text(users, encoding="utf-8")
    found = Net(tmp_path, planned(variables))
    try:
        found.lay()
        for host in HEADS:
            found.front(host)
            found.keepalived(host)
            within("the first head has the address", lambda: found.holders() == ["a"])
        within("a client reaches it", lambda: found.answers() == "a")
        yield found
    finally:
        found.remove()
        for log in sorted(tmp_path.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text(errors='replace')}", flush=True)
