# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host layer on hosts of NetworkManager's: the desktop, a second run, reboots, and cables that come and go."""

from __future__ import annotations

import time

from tests.integration.nm.conftest import addresses
from tests.integration.sites import lost_pings, within

#: seconds after which NetworkManager gives up on a NIC without a carrier, with some to spare
GIVEN_UP = 12
#: a login on the desktop, as logind sees it
LOGIN = (
    "systemd-run --quiet --collect --unit=login --property=User=nvidia --property=PAMName=login"
    " --setenv=XDG_SESSION_TYPE=x11 --setenv=XDG_SESSION_CLASS=user sleep 3600"
)
DESKTOP = "systemctl is-active display-manager.service"
SETTINGS = "/etc/NetworkManager/conf.d/60-sparkthor-fabric.conf"
#: a router on the fabric: its advertisement as an Ethernet frame, since IPv6 is off on the sender's own NIC
ROUTER = r"""
import socket, struct, sys
source, target = socket.inet_pton(socket.AF_INET6, "fe80::1"), socket.inet_pton(socket.AF_INET6, "ff02::1")
prefix = struct.pack("!BBBBIII16s", 3, 4, 64, 0xC0, 86400, 14400, 0, socket.inet_pton(socket.AF_INET6, "2001:db8::"))
body = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + prefix
pseudo = source + target + struct.pack("!II", len(body), 58) + body
total = sum(struct.unpack(f"!{len(pseudo) // 2}H", pseudo))
while total >> 16:
    total = (total & 0xFFFF) + (total >> 16)
body = body[:2] + struct.pack("!H", ~total & 0xFFFF) + body[4:]
frame = bytes.fromhex("333300000001 020000000001 86dd") + struct.pack("!IHBB", 6 << 28, len(body), 58, 255)
port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
port.bind((sys.argv[1], 0))
for _ in range(3):
    port.send(frame + source + target + body)
"""


def test_a_desktop_ends_at_once_unless_somebody_is_logged_in_on_it(pair, virgin):
    assert "unmanaged" not in virgin["spark-01"], virgin
    for host in pair.hosts:
        assert pair.on(host, DESKTOP).strip() == "active"
    pair.on("spark-02", LOGIN)
    run = pair.play()
    assert run.rc == 0, run.output
    assert pair.on("spark-01", DESKTOP, check=False).strip() == "inactive"
    assert pair.on("spark-02", DESKTOP).strip() == "active"
    text = " ".join(run.output.split())
    assert "greetd.service goes on, because nvidia is logged in on the desktop: reboot this host" in text
    again = pair.play()
    assert (again.rc, again.changed) == (0, dict.fromkeys(pair.hosts, 0)), again.output
    assert "greetd.service goes on" in " ".join(again.output.split()), "as long as it does"
    advice = ("--tags", "os_hardening", "-e", "os_hardening_headless_isolate=true")
    asked = pair.play(*advice)
    assert asked.rc == 0, asked.output
    assert pair.on("spark-02", DESKTOP, check=False).strip() == "inactive"
    pair.on("spark-02", "systemctl stop login")


def test_a_second_run_changes_nothing(live):
    run = live.play()
    assert (run.rc, run.changed) == (0, dict.fromkeys(live.hosts, 0)), run.output
    assert "WARNING" not in run.output
    assert lost_pings(live, 8972) == []
    for host in live.hosts:
        names = live.on(host, "nmcli -g NAME,DEVICE connection show --active").splitlines()
        for nic in ("enp1s0f1np1", "enP2p1s0f1np1"):
            assert f"netplan-{nic}:{nic}" in names


def test_a_reboot_changes_nothing(live):
    before = addresses(live)
    live.lab.reboot()
    live.lab.wait()
    within(30, lambda: addresses(live) == before)
    run = live.play()
    assert (run.rc, run.changed) == (0, dict.fromkeys(live.hosts, 0)), run.output
    for host in live.hosts:
        assert live.on(host, DESKTOP, check=False).strip() == "inactive"


def test_addresses_outlast_the_carrier(live):
    before = addresses(live)
    live.lab.cut("spark-01")
    try:
        time.sleep(GIVEN_UP)
        assert live.on("spark-02", "cat /sys/class/net/enp1s0f1np1/carrier").strip() == "0"
        assert addresses(live) == before
    finally:
        live.lab.fix("spark-01")
    within(20, lambda: lost_pings(live, 8972) == [])
    assert addresses(live) == before


def test_a_host_that_boots_alone_has_its_addresses(live):
    before = addresses(live)
    live.lab.off("spark-02")
    try:
        live.lab.reboot("spark-01")
        live.lab.wait("spark-01")
        within(30, lambda: addresses(live, "spark-01")["spark-01"] == before["spark-01"])
        assert live.on("spark-01", "cat /sys/class/net/enp1s0f1np1/carrier").strip() == "0"
    finally:
        live.lab.boot("spark-02")
        live.lab.wait("spark-02")
    within(30, lambda: lost_pings(live, 8972) == [])


def test_a_router_on_the_fabric_is_not_heard(live):
    nic = "enp1s0f1np1"
    routes = "ip -6 route show default; ip -6 -br address show dev enp1s0f1np1"
    before = live.on("spark-01", routes)
    live.lab.exec("spark-02", ["python3", "-", nic], stdin=ROUTER)
    time.sleep(3)
    assert live.on("spark-01", routes) == before
    # the same frame does reach a NIC that listens
    key = f"net.ipv6.conf.{nic}"
    live.on("spark-01", f"sysctl -q -w {key}.accept_ra=1 {key}.disable_ipv6=0; sleep 3")
    try:
        live.lab.exec("spark-02", ["python3", "-", nic], stdin=ROUTER)
        within(10, lambda: f"default via fe80::1 dev {nic}" in live.on("spark-01", routes))
    finally:
        live.on("spark-01", f"sysctl -q -w {key}.disable_ipv6=1 {key}.accept_ra=0")
