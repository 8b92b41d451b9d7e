# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fast run still checks everything: many kinds of drift at once, one run fixes them, another finds nothing.

Each drift is a shell line that makes it and one that succeeds only while it is there.  They lie on different hosts, so
that one that is overlooked is not fixed by the way.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.integration.conftest import Cluster
from tools.playbooks import run_playbook

NIC = "enp1s0f1np1"
SITE = "/opt/sparkthor/venv/lib/python3*/site-packages"


@dataclass(frozen=True)
class Drift:
    """``host`` counts from the head; ``there`` ends with 0 while the drift is there."""

    name: str
    host: int
    make: str
    there: str


DRIFTS = (
    Drift(
        "a file has another line",
        0,
        "echo '* - maxlogins 99' >>/etc/security/limits.d/60-sparkthor.conf",
        "grep -q maxlogins /etc/security/limits.d/60-sparkthor.conf",
    ),
    Drift("a file is gone", 1, "rm /etc/sysctl.d/60-sparkthor.conf", "! test -e /etc/sysctl.d/60-sparkthor.conf"),
    Drift(
        "a secret is open to all",
        0,
        "chmod 0644 /etc/sparkthor/secrets/api_key",
        "test $(stat -c %a /etc/sparkthor/secrets/api_key) = 644",
    ),
    Drift(
        "a folder has another owner",
        2,
        "chown root /var/lib/sparkthor/cache",
        "test $(stat -c %U /var/lib/sparkthor/cache) = root",
    ),
    Drift(
        "a folder is open to all",
        1,
        "chmod 0755 /etc/sparkthor/secrets",
        "test $(stat -c %a /etc/sparkthor/secrets) = 755",
    ),
    Drift("a sysctl has another value", 2, "sysctl -qw vm.swappiness=60", "test $(sysctl -n vm.swappiness) = 60"),
    Drift(
        "a link leads elsewhere",
        1,
        "ln -sfn /usr/lib/systemd/system/graphical.target /etc/systemd/system/default.target",
        "readlink /etc/systemd/system/default.target | grep -q graphical",
    ),
    Drift(
        "a unit is no longer masked",
        2,
        "systemctl -q unmask suspend.target",
        "test $(systemctl is-enabled suspend.target) != masked",
    ),
    Drift(
        "a unit is not enabled",
        1,
        "systemctl -q disable sparkthor-ray.service",
        "! systemctl -q is-enabled sparkthor-ray.service",
    ),
    Drift(
        "a unit is stopped",
        0,
        "systemctl stop sparkthor-watchdog.service",
        "! systemctl -q is-active sparkthor-watchdog.service",
    ),
    Drift(
        "a unit file is edited",
        0,
        "sed -i s/^RestartSec=.*/RestartSec=77/ /etc/systemd/system/sparkthor-front.service && systemctl daemon-reload",
        "grep -q RestartSec=77 /etc/systemd/system/sparkthor-front.service",
    ),
    Drift(
        "a user is out of a group",
        2,
        "gpasswd -d sparkthor video",
        "! id -nG sparkthor | grep -qw video",
    ),
    Drift(
        "NCCL is told to leave RoCE alone",
        1,
        "echo NCCL_IB_DISABLE=1 >>/etc/nccl.conf",
        "grep -q NCCL_IB_DISABLE=1 /etc/nccl.conf",
    ),
    Drift(
        "a fabric address is gone at run time",
        2,
        f"ip address flush dev {NIC}",
        f"! ip -4 -br address show dev {NIC} | grep -q 10.100",
    ),
    Drift(
        "a fabric NIC has a smaller MTU",
        1,
        f"ip link set {NIC} mtu 1500",
        f"test $(cat /sys/class/net/{NIC}/mtu) = 1500",
    ),
    Drift(
        "the netplan file is edited",
        0,
        "sed -i 's/mtu:.*/mtu: 4000/' /etc/netplan/40-cx7.yaml",
        "grep -q 'mtu: 4000' /etc/netplan/40-cx7.yaml",
    ),
    Drift(
        "the firewall's table is gone",
        1,
        # the watch would bring it back by itself
        "systemctl stop sparkthor-firewall-watch.service && nft delete table inet sparkthor",
        "! nft list table inet sparkthor",
    ),
    Drift(
        "the firewall lets more in",
        2,
        "systemctl stop sparkthor-firewall-watch.service && nft insert rule inet sparkthor input tcp dport 9999 accept",
        "nft list table inet sparkthor | grep -q 9999",
    ),
    Drift(
        "the firewall does not come back after a boot",
        0,
        "systemctl -q disable sparkthor-firewall.service",
        "! systemctl -q is-enabled sparkthor-firewall.service",
    ),
    Drift(
        "nobody watches over the firewall",
        1,
        "systemctl stop sparkthor-firewall-watch.service",
        "! systemctl -q is-active sparkthor-firewall-watch.service",
    ),
    Drift(
        "a program on the host is edited",
        1,
        "echo '# x' >>/usr/local/lib/sparkthor/sparkthor_host/_onhost/ray_health.py",
        "tail -1 /usr/local/lib/sparkthor/sparkthor_host/_onhost/ray_health.py | grep -q '# x'",
    ),
    Drift(
        "an environment is edited",
        2,
        "sed -i s/^GLOO_SOCKET_IFNAME=.*/GLOO_SOCKET_IFNAME=eth0/ /etc/sparkthor/fabric.env",
        "grep -q IFNAME=eth0 /etc/sparkthor/fabric.env",
    ),
    Drift(
        "a package of the engine is gone",
        2,
        f"rm -rf {SITE}/cachetools-*.dist-info",
        f"! ls -d {SITE}/cachetools-*.dist-info",
    ),
    Drift(
        "a model's file is cut short",
        1,
        "truncate -s 100 $(readlink -f /var/lib/sparkthor/models/tiny-qwen3/config.json)",
        "test $(stat -L -c %s /var/lib/sparkthor/models/tiny-qwen3/config.json) = 100",
    ),
)


def test_one_run_fixes_every_kind_of_drift(cluster: Cluster) -> None:
    assert len({drift.name for drift in DRIFTS}) >= 20
    for drift in DRIFTS:
        host = cluster.hosts[drift.host]
        cluster.run(host, drift.make)
        cluster.run(host, drift.there)

    arguments, variables = ["--check"], {"drift_fail": True}
    told = run_playbook(
        "playbooks/drift.yml", cluster.inventories, extra_vars=variables, arguments=arguments, name="told"
    )
    assert told.rc == 2, told.output[-3000:]
    assert "differences from the plan" in told.output
    for host, role, what in (
        (0, "os_hardening", "/etc/security/limits.d/60-sparkthor.conf"),
        (2, "os_hardening", "sysctl vm.swappiness"),
        (1, "nccl_conf", "/etc/nccl.conf"),
        (0, "roce_network", "/etc/netplan/40-cx7.yaml"),
        (1, "firewall", "loaded table inet sparkthor"),
    ):
        lines = [line for line in told.output.splitlines() if f"{cluster.hosts[host]}: {role}: " in line]
        assert any(what in line for line in lines), (host, role, lines)

    fixed = run_playbook("site.yml", cluster.inventories, name="drift")
    print(f"fixing {len(DRIFTS)} drifts: {fixed.seconds:.1f} s, {fixed.stages}")
    assert fixed.rc == 0, fixed.failures
    left = []
    for drift in DRIFTS:
        # the shell line ends with 0 only while the drift is there
        answer = cluster.run(cluster.hosts[drift.host], f"if {drift.there}; then echo there; fi", check=False)
        if answer.strip().endswith("there"):
            left.append(drift.name)
    assert left == []
    # an engine that was installed anew is the one that Ray runs from
    engine = cluster.run(cluster.hosts[2], "readlink -f /opt/sparkthor/venv").strip()
    ray = cluster.run(cluster.hosts[2], "cat /proc/$(systemctl show -P MainPID sparkthor-ray)/cmdline")
    assert ray.startswith(f"{engine}/bin/")

    again = run_playbook("site.yml", cluster.inventories, name="after-drift")
    assert again.rc == 0, again.failures
    assert set(again.changed.values()) == {0}, again.changed
