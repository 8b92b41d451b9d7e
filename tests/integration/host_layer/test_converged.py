# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that host_layer.yml was run on twice: what was promised, and what a reboot leaves of it."""

from __future__ import annotations

import json

from tests.integration.host_layer.conftest import addresses, eventually, mtus, unreachable, ways

#: what check mode names and converge does not, with the reason
PREDICTED_ONLY = {
    # roce_network makes the folder first when it writes fabric.env; check mode writes nothing, so it is still to make
    "/etc/sparkthor": "a folder that an earlier role of the same run makes",
    # likewise os_hardening, when it writes sparkthor-drop-caches
    "/usr/local/lib/sparkthor": "a folder that an earlier role of the same run makes",
}

MASKED = ("sleep.target", "suspend.target", "hibernate.target", "hybrid-sleep.target", "suspend-then-hibernate.target")

STATE = r"""
echo "target $(systemctl get-default)"
echo "swappiness $(cat /proc/sys/vm/swappiness)"
echo "memlock $(systemctl show --property=DefaultLimitMEMLOCK --value)"
echo "ssh-oom $(systemctl show --property=OOMScoreAdjust --value ssh.service)"
echo "journald-oom $(systemctl show --property=OOMScoreAdjust --value systemd-journald.service)"
for unit in sleep.target suspend.target hibernate.target hybrid-sleep.target suspend-then-hibernate.target; do
  echo "$unit $(systemctl show --property=UnitFileState --value $unit)"
done
echo "firewall-unit $(systemctl show --property=ActiveState,UnitFileState --value sparkthor-firewall.service | xargs)"
echo "files $(sha256sum /etc/netplan/*.yaml /etc/sparkthor/* /etc/security/limits.d/60* 2>/dev/null | sha256sum)"
echo "failed $(systemctl list-units --state=failed --no-legend --plain | xargs)"
nft --stateless list table inet sparkthor
"""


def state(cluster, host: str) -> list[str]:
    lines = cluster.run(host, STATE).splitlines()
    fabric = {netdev: found for netdev, found in addresses(cluster, host).items() if netdev != "lo"}
    return [*lines, f"addresses {json.dumps(fabric, sort_keys=True)}", f"mtu {json.dumps(mtus(cluster, host))}"]


def changes(record) -> set[tuple[str, str, str]]:
    """(host, role, file or unit) of everything a run changed or said it would."""
    found = set()
    for task in record["tasks"]:
        if not task["changed"]:
            continue
        role = task["task"].partition(" : ")[0].rpartition(".")[2]
        for path in {*task["paths"], *task["files"]} or {task["task"]}:
            found.add((task["host"], role, path))
    return found


def test_check_mode_predicted_what_converge_changed(records):
    predicted = next(record for record in records if record["check"])
    made = next(record for record in records if not record["check"])
    assert not any(predicted["failed"].values())
    assert not any(made["failed"].values())
    assert changes(made), "converge changed nothing, so this proves nothing"
    assert changes(made) - changes(predicted) == set(), "changed, but not predicted"
    only = changes(predicted) - changes(made)
    assert {entry for entry in only if entry[2] not in PREDICTED_ONLY} == set(), "predicted, but not changed"
    said = {(task["host"], task["task"]) for task in predicted["tasks"] if task["changed"]}
    done = {(task["host"], task["task"]) for task in made["tasks"] if task["changed"]}
    assert said == done
    print(f"\n{len(changes(made))} changes on {len(made['changed'])} hosts predicted; converge {made['seconds']} s")


def test_second_run_changed_nothing(records):
    again = [record for record in records if not record["check"]][1]
    assert set(again["changed"].values()) == {0}, [task for task in again["tasks"] if task["changed"]]
    assert not any(again["failed"].values())
    print(f"\nsecond run {again['seconds']} s")


def test_every_neighbour_answers_on_each_half_with_full_frames(cluster):
    plan = cluster.lab.plan
    for way in ways(plan):
        if plan.segments:
            assert mtus(cluster, way.host)[way.netdev] == 9000
    assert unreachable(cluster) == []
    print(f"\n{len(ways(plan))} ways, {ways(plan)[0].payload} bytes each")


def test_each_link_has_a_subnet_of_its_own(cluster):
    plan = cluster.lab.plan
    where = {host: addresses(cluster, host) for host in cluster.hosts}
    seen: dict[str, str] = {}
    for segment in plan.segments:
        for host, netdev in segment.ends:
            (address,) = where[host][netdev]
            assert seen.setdefault(address, f"{host} {netdev}") == f"{host} {netdev}"
    for host in cluster.hosts:
        planned = [netdev for segment in plan.segments for name, netdev in segment.ends if name == host]
        routes = json.loads(cluster.run(host, "ip -json -4 route show scope link"))
        for netdev in planned:
            assert len([route for route in routes if route["dev"] == netdev]) == 1
        subnets = [route["dst"] for route in routes if route["dev"] in planned]
        assert len(subnets) == len(set(subnets)) == len(planned)


def test_all_of_it_holds_after_a_reboot_of_all_hosts(cluster):
    before = {host: state(cluster, host) for host in cluster.hosts}
    for host, lines in before.items():
        assert "target multi-user.target" in lines, host
        assert "swappiness 1" in lines, host
        for unit in MASKED:
            assert f"{unit} masked" in lines, host
        assert "firewall-unit active enabled" in lines or "firewall-unit enabled active" in lines, host
    cluster.lab.reboot()
    cluster.lab.wait()
    assert eventually(lambda: unreachable(cluster), 45) == []

    def differing() -> list[str]:
        after = {host: state(cluster, host) for host in cluster.hosts}
        return [
            f"{host}: {line}"
            for host in cluster.hosts
            for line in sorted(set(before[host]) ^ set(after[host]))
            if not line.startswith("memlock ")
        ]

    assert eventually(differing, 20) == []
    for host in cluster.hosts:
        # the manager reads its configuration when it starts, so this holds from the first boot on
        assert "memlock infinity" in state(cluster, host), host
