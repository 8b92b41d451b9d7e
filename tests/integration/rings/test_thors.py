# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two Thors, lane to lane: wrong lanes stop a run before a change, right ones are converged once, and hold."""

from __future__ import annotations

from typing import Any

import yaml
from sparklab.plan import LANES

from tests.integration.rings.test_cables import refused
from tests.integration.sites import TOP, Maker, lost_pings, within

#: 28 bytes of headers below a Thor's 8966
FULL = 8938


def inventory(name: str, **more: Any) -> str:
    folder = TOP / ".lab" / "rings" / name
    groups = {"ray_head": {"hosts": {"thor-01": None}}, "ray_workers": {"hosts": {"thor-02": None}}}
    variables = {"ansible_user": "nvidia", "fabric_topology": "direct", "fabric_cidr": "10.100.0.0/24", **more}
    (folder / "group_vars").mkdir(parents=True, exist_ok=True)
    document = {"cluster": {"children": groups}, "thors": {"children": {"cluster": None}}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(document))
    (folder / "group_vars/cluster.yml").write_text(yaml.safe_dump(variables))
    return str(folder)


def test_crossed_lanes_stop_a_run_before_a_change(site: Maker) -> None:
    crossed = {"swap": [["thor-02:mgbe0_0", "thor-02:mgbe1_0"]]}
    pair = site("mol-thor-x", inventory("thors"), 25, wiring=crossed)
    refused(pair, "thor-01", "NIC mgbe0_0 is cabled to thor-02 mgbe1_0", "swap the two cables at thor-01 alone")
    pair.lab.destroy()
    del site.sites["mol-thor-x"]


def test_a_pair_is_converged_once_and_a_cut_lane_is_named(site: Maker) -> None:
    pair = site("mol-thors", inventory("thors"), 25)
    run = pair.play()
    assert run.rc == 0, run.output
    assert lost_pings(pair, FULL) == []
    again = pair.play()
    assert (again.rc, set(again.changed.values())) == (0, {0}), again.output
    assert pair.on("thor-01", "cat /sys/class/net/mgbe*/mtu").split() == ["8966"] * len(LANES)
    env = pair.on("thor-02", "cat /etc/sparkthor/fabric.env")
    assert f"NCCL_SOCKET_IFNAME=={','.join(LANES)}" in env
    assert "NCCL_NET=Socket" in env

    pair.lab.cut("thor-01", "mgbe2_0")
    refused(pair, "thor-01", "NIC mgbe2_0 has no carrier", "fabric_lanes")
    pair.lab.fix("thor-01", "mgbe2_0")
    within(45, lambda: lost_pings(pair, FULL) == [])
    back = pair.play()
    assert (back.rc, set(back.changed.values())) == (0, {0}), back.output

    pair.lab.reboot()
    within(60, lambda: lost_pings(pair, FULL) == [])
    after = pair.play()
    assert (after.rc, set(after.changed.values())) == (0, {0}), after.output
    pair.lab.destroy()
    del site.sites["mol-thors"]
