# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles of others for fabric NICs, in the styles of Debian's and Ubuntu's NetworkManager, and networkd beside it.

Ubuntu's NetworkManager writes to netplan's folder; the texts are what libnetplan 1.1.2 makes of such profiles.
"""

from __future__ import annotations

import time

import pytest

from tests.integration.nm.conftest import addresses, comes_back, state
from tests.integration.sites import lost_pings, within

NIC = "enp1s0f1np1"
FOLDER = "/etc/NetworkManager/system-connections"
UUID = "11111111-2222-5333-8444-666666666666"
HAND = f"""\
[connection]
id=qsfp
uuid={UUID}
type=ethernet
interface-name={NIC}
autoconnect-priority=10

[ipv4]
method=manual
address1=192.168.177.2/24
"""
UBUNTU = f"""\
network:
  version: 2
  ethernets:
    NM-{UUID}:
      renderer: NetworkManager
      match:
        name: "{NIC}"
      addresses:
      - "192.168.177.2/24"
      networkmanager:
        uuid: "{UUID}"
        name: "qsfp"
        passthrough:
          connection.autoconnect-priority: "10"
          proxy._: ""
"""
OVERRIDE = f"""\
network:
  version: 2
  ethernets:
    {NIC}:
      renderer: NetworkManager
      match: {{}}
      addresses:
      - "ADDRESS"
      mtu: 1500
      networkmanager:
        uuid: "{UUID}"
        name: "netplan-{NIC}"
        passthrough:
          connection.autoconnect-priority: "999"
          ipv6.method: "disabled"
          proxy._: ""
"""
#: style → path, content; every file takes the NIC away or changes it
STYLES = {
    "profile": (f"{FOLDER}/qsfp.nmconnection", HAND),
    "netplan": (f"/etc/netplan/90-NM-{UUID}.yaml", UBUNTU),
    "netplan-override": (f"/etc/netplan/90-NM-{UUID}.yaml", OVERRIDE),
}


def raised(live, path: str, text: str) -> None:
    """As after somebody's click in the settings: written, and up."""
    own = live.on("spark-02", f"ip -br -4 address show dev {NIC} | awk '{{print $3}}'").strip()
    live.lab.exec("spark-02", ["sh", "-c", f"umask 077; cat >'{path}'"], stdin=text.replace("ADDRESS", own))
    live.on("spark-02", "netplan generate; nmcli connection reload")
    live.on("spark-02", f"nmcli connection up {UUID}")


@pytest.mark.parametrize("style", STYLES)
def test_a_profile_of_somebody_else_is_named_and_can_be_set_aside(live, style):
    path, text = STYLES[style]
    before = addresses(live)
    raised(live, path, text)
    refused = live.play()
    assert refused.rc != 0, refused.output
    words = " ".join(refused.output.split())
    assert f"{path} also configures fabric NIC {NIC}" in words, refused.output
    assert "roce_network_replace_foreign: true" in words, refused.output
    run = live.play("-e", "roce_network_replace_foreign=true")
    assert run.rc == 0, run.output
    assert live.on("spark-02", f"test -e {path} && echo yes", check=False) == ""
    assert UUID not in live.on("spark-02", "nmcli -g UUID connection show")
    # what is set aside must not come back with the cable
    live.lab.cut("spark-02")
    time.sleep(2)
    live.lab.fix("spark-02")
    live.on("spark-02", "nmcli connection reload")
    within(20, lambda: addresses(live) == before and lost_pings(live, 8972) == [])
    again = live.play()
    assert (again.rc, again.changed) == (0, dict.fromkeys(live.hosts, 0)), again.output
    live.on("spark-02", f"rm $(dirname '{path}')/*{UUID}*.sparkthor-aside {FOLDER}/.qsfp*", check=False)


def test_our_profile_edited_by_hand(live):
    """As ``nmcli`` keeps it without netplan: a file of its own that hides ours. It is ours, and goes without a word."""
    folder = live.on("spark-02", f"ls -A {FOLDER}")
    before = addresses(live)
    live.on("spark-02", f"nmcli connection modify netplan-{NIC} 802-3-ethernet.mtu 1500")
    live.on("spark-02", f"nmcli connection up netplan-{NIC}")
    assert f"netplan-{NIC}.nmconnection" in live.on("spark-02", f"ls -A {FOLDER}")
    run = live.play()
    assert run.rc == 0, run.output
    assert live.on("spark-02", f"ls -A {FOLDER}") == folder
    within(20, lambda: addresses(live) == before and lost_pings(live, 8972) == [])
    again = live.play()
    assert (again.rc, again.changed) == (0, dict.fromkeys(live.hosts, 0)), again.output


def test_a_profile_for_any_nic_does_not_take_ours(live):
    before = addresses(live)
    add = "type ethernet con-name any connection.autoconnect-priority 5 ipv4.method auto"
    live.on("spark-02", f"nmcli connection add {add} ifname '*'")
    try:
        live.lab.cut("spark-02")
        time.sleep(2)
        live.lab.fix("spark-02")
        time.sleep(10)
        assert addresses(live) == before
        assert f"netplan-{NIC}:{NIC}" in live.on("spark-02", "nmcli -g NAME,DEVICE connection show --active")
    finally:
        live.on("spark-02", "nmcli connection delete any")


def test_networkd_for_the_fabric_alone_and_back(live):
    networkd = ("-e", "roce_network_renderer=networkd")
    before, whole = addresses(live), state(live)
    run = live.play(*networkd)
    assert run.rc == 0, run.output
    time.sleep(15)  # NetworkManager's DHCP would have taken the addresses by now
    for look in ("now", "after a reboot"):
        within(30, lambda: addresses(live) == before and lost_pings(live, 8972) == [])
        for host in live.hosts:
            devices = live.on(host, "nmcli -g DEVICE,STATE device").splitlines()
            assert f"{NIC}:unmanaged" in devices, look
            assert "enP7s7:connected" in devices, look
        again = live.play(*networkd)
        assert (again.rc, again.changed) == (0, dict.fromkeys(live.hosts, 0)), again.output
        if look == "now":
            live.lab.reboot()
            live.lab.wait()
    back = live.play()
    assert back.rc == 0, back.output
    comes_back(live, whole)


@pytest.mark.parametrize("renderer", ["networkd", ""])
def test_the_teardown_gives_the_hosts_back(live, virgin, renderer):
    """Last of all; after a reboot, when NetworkManager has never seen the NICs without our profiles."""
    run = live.play("-e", f"roce_network_renderer={renderer}")
    assert run.rc == 0, run.output
    if not renderer:  # an edit that no run has seen, which hides our profile also from a teardown
        live.on("spark-02", f"nmcli connection modify netplan-{NIC} 802-3-ethernet.mtu 1500")
    live.lab.reboot()
    live.lab.wait()
    parts = ("-e", "teardown_parts=serving,network,hardening", "-e", "teardown_acknowledged=true")
    taken = live.play(*parts, playbook="teardown.yml")
    assert taken.rc == 0, taken.output
    comes_back(live, virgin)
