# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What single roles left on converged hosts, and what netplan would give NetworkManager for this very topology."""

from __future__ import annotations

import configparser
import ipaddress
import json

from tests.integration.host_layer.conftest import addresses, mtus

#: netplan's own generator on a copy of the host's files, our file with NetworkManager as its NICs' renderer
GENERATE = r"""
set -e
root=$(mktemp -d)
trap 'rm -rf $root' EXIT
mkdir -p $root/etc/netplan $root/usr/lib
ln -s usr/lib $root/lib
cp -p /etc/netplan/*.yaml $root/etc/netplan/
sed -i 's/^      dhcp4: false/      renderer: NetworkManager\n&/' $root/etc/netplan/40-cx7.yaml
cd /usr
generator=$(ls libexec/netplan/configure libexec/netplan/generate lib/netplan/generate 2>/dev/null | head -1)
/usr/$generator --root-dir $root 2>/dev/null
cd $root/run
python3 - <<END
import json, pathlib, stat
found = {}
for path in pathlib.Path('.').rglob('*'):
    if path.is_file() and not path.is_symlink():
        found[str(path)] = [stat.S_IMODE(path.stat().st_mode), path.read_text()]
print(json.dumps(found))
END
"""


def fabric(cluster, host: str) -> list[str]:
    return [netdev for segment in cluster.lab.plan.segments for name, netdev in segment.ends if name == host]


def test_networkmanager_would_get_a_profile_for_each_link(cluster):
    """Only generated; the scenario nm raises such profiles. With no fabric there is nothing to generate."""
    if not cluster.lab.plan.segments:
        for host in cluster.hosts:
            assert cluster.run(host, "ls /etc/netplan/40-cx7.yaml 2>&1", check=False).startswith("ls: cannot access")
        return
    for host in cluster.hosts:
        made = json.loads(cluster.run(host, GENERATE))
        live = addresses(cluster, host)
        profiles = {path.rpartition("/")[2]: entry for path, entry in made.items() if path.endswith(".nmconnection")}
        assert set(profiles) == {f"netplan-{netdev}.nmconnection" for netdev in fabric(cluster, host)}
        for netdev in fabric(cluster, host):
            mode, text = profiles[f"netplan-{netdev}.nmconnection"]
            assert mode == 0o600
            profile = configparser.ConfigParser(interpolation=None)
            profile.read_string(text)
            assert profile["connection"]["type"] == "ethernet"
            assert profile["connection"]["interface-name"] == netdev
            assert profile["ethernet"]["mtu"] == "9000"
            assert profile["ipv4"]["method"] == "manual"
            assert profile["ipv4"]["address1"] == live[netdev][0]
            assert not [key for key in profile["ipv4"] if key.startswith(("route", "gateway", "dns"))]
            assert profile["ipv6"]["method"] in ("ignore", "disabled")
        # networkd keeps the management NIC and gets none of ours (a .link file is udev's: it gives the MTU)
        networks = [path for path in made if path.endswith(".network")]
        assert networks, "the management NIC stays with networkd"
        assert not [path for path in networks if any(netdev in path for netdev in fabric(cluster, host))]


def environment(cluster, host: str) -> dict[str, str]:
    lines = cluster.run(host, "cat /etc/sparkthor/fabric.env").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_each_host_has_its_own_environment_and_all_one_transport(cluster):
    found = {host: environment(cluster, host) for host in cluster.hosts}
    for host, values in found.items():
        nic = values["GLOO_SOCKET_IFNAME"]
        assert values["NCCL_SOCKET_IFNAME"] == f"={nic}"
        assert values["VLLM_HOST_IP"] in [one.partition("/")[0] for one in addresses(cluster, host)[nic]]
    assert len({values["VLLM_HOST_IP"] for values in found.values()}) == len(cluster.hosts)
    (transport,) = {(values["NCCL_NET"], values["NCCL_IB_DISABLE"]) for values in found.values()}
    mixed = not cluster.lab.plan.segments
    assert transport == (("Socket", "1") if mixed else ("IB", "0"))
    for host in cluster.hosts:
        disabled = cluster.run(host, "grep -s NCCL_IB_DISABLE /etc/nccl.conf", check=False).strip()
        assert disabled == ("NCCL_IB_DISABLE=1" if mixed else ""), host


def test_limits_are_declared_for_sessions_and_units(cluster):
    """Declared, not proven: hard limits and OOM scores of a simulated host are the machine's own."""
    for host in cluster.hosts:
        assert "* - memlock unlimited" in cluster.run(host, "cat /etc/security/limits.d/60-sparkthor.conf")
        assert "DefaultLimitMEMLOCK=infinity" in cluster.run(host, "cat /etc/systemd/system.conf.d/60-sparkthor.conf")
        scores = cluster.run(
            host, "systemctl show --property=OOMScoreAdjust --value ssh.service systemd-journald.service"
        )
        assert scores.split() == ["-500", "-900"], host


def test_a_thor_has_full_power_after_every_boot(cluster):
    """Runs after the reboot of test_converged, and asks the stand-ins of the board's tools."""
    kinds = {host.name: host.kind for host in cluster.lab.plan.hosts}
    for host, kind in kinds.items():
        unit = cluster.run(host, "systemctl show --property=ActiveState --value sparkthor-jetson-power.service").strip()
        if kind != "thor":
            assert unit == "inactive", host
            continue
        assert unit == "active", host
        assert cluster.run(host, "nvpmodel -q").splitlines()[-1] == "0", host
        assert "MinFreq=1575000000" in cluster.run(host, "jetson_clocks --show"), host


def test_management_stays_out_of_the_fabric(cluster):
    """The way in keeps its MTU and address, and no fabric subnet touches its network."""
    for host in cluster.hosts:
        nic = cluster.lab.plan.host(host).management
        assert mtus(cluster, host)[nic] == 1500
        way_in = ipaddress.ip_interface(addresses(cluster, host)[nic][0]).network
        for netdev in fabric(cluster, host):
            assert not ipaddress.ip_interface(addresses(cluster, host)[netdev][0]).network.overlaps(way_in)
