# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has the virtual address, by a real keepalived with the planned configuration, behind our firewall.

It needs no lab, but root, and keepalived and nft with their libraries, installed or unpacked below ``KEEPALIVED_ROOT``:
python -m pytest -q tests/integration/keepalived
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from tests.integration.keepalived.conftest import ADDRESSES, HEADS, LAN, NETDEV, STRANGER, VIRTUAL, Net, within

OTHER = "10.9.0.101"
#: says once in VRRP that it is the router 51 and gives the address up
GIVES_UP = """
import socket, struct, sys
body = struct.pack("!BBBBHH4s", 0x31, 51, 0, 1, 50, 0, socket.inet_aton("10.9.0.100"))
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, 112)
raw.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 255)
for _ in range(5):
    raw.sendto(body, (sys.argv[1], 0))
"""
#: from whom VRRP comes in within two seconds
LISTENS = """
import socket, time
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, 112)
raw.settimeout(0.2)
print("ready", flush=True)
until, found = time.monotonic() + 2, set()
while time.monotonic() < until:
    try:
        found.add(raw.recvfrom(2000)[1][0])
    except TimeoutError:
        pass
print(*sorted(found))
"""


def stays(net: Net, host: str, seconds: float = 5.0) -> None:
    """Longer than a head waits before it claims the address."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert net.holders() == [host]
        time.sleep(0.1)


def test_a_front_proxy_that_ends_gives_the_address_away_and_does_not_get_it_back(net: Net) -> None:
    net.end("a", "front")
    within("the second head has the address, the first not", lambda: net.holders() == ["b"])
    within("a client reaches the second head", lambda: net.answers() == "b")
    net.front("a")
    stays(net, "b")
    # its model is away as well, and it is not asked for that
    assert net.answers() == "b"
    # yet the first head could take it again
    net.end("b", "front")
    within("the first head has the address again", lambda: net.holders() == ["a"])


def test_a_head_that_loses_its_power_and_comes_back(net: Net) -> None:
    net.on(LAN, "ip", "link", "set", "to-a", "down")
    net.end("a", "keepalived", signal.SIGKILL)
    within("the second head has the address", lambda: "b" in net.holders())
    within("a client reaches the second head", lambda: net.answers() == "b")
    # power is back, and with it an interface without the address
    net.on("a", "ip", "address", "delete", f"{VIRTUAL}/24", "dev", NETDEV, check=False)
    net.on(LAN, "ip", "link", "set", "to-a", "up")
    net.keepalived("a")
    stays(net, "b")


def test_a_keepalived_that_is_stopped_hands_over_at_once(net: Net) -> None:
    net.end("a", "keepalived")
    within("the second head has the address", lambda: net.holders() == ["b"])


def test_another_address_takes_a_reload_alone(net: Net) -> None:
    for host in HEADS:
        config = net.folder / f"{host}.conf"
        config.write_text(config.read_text(encoding="utf-8").replace(VIRTUAL, OTHER), encoding="utf-8")
        net.running[host, "keepalived"].send_signal(signal.SIGHUP)
    within("the new address is on one head", lambda: len(net.holders(OTHER)) == 1)
    within("the former one is on none", lambda: net.holders() == [])
    assert all(net.running[host, "keepalived"].poll() is None for host in HEADS)


def test_nobody_else_has_a_say(net: Net) -> None:
    ears = net.command("b", sys.executable, "-c", LISTENS)
    with subprocess.Popen(ears, stdout=subprocess.PIPE, text=True) as listening:
        assert listening.stdout is not None
        assert listening.stdout.readline() == "ready\n"
        net.on(STRANGER, sys.executable, "-c", GIVES_UP, ADDRESSES["b"])
        heard = listening.stdout.read().split()
    # the holder's word passes the firewall, a stranger's does not
    assert heard == [ADDRESSES["a"]]
    stays(net, "a", 2.0)
