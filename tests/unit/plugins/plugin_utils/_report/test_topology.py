# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drawing of the cluster's cables: a line for each half, and in red what is wrong."""

from __future__ import annotations

from itertools import combinations

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import fabric_plan
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import page as _report
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import topology

from tests.unit.plugins.plugin_utils._report.captured_cluster import captured


def topology_svg(status):
    return _report._templates().get_template("topology.svg.j2").render(drawing=topology.drawing(status))


@pytest.mark.parametrize(("shape", "lines"), [("3spark_ring", 6), ("4spark", 8), ("2spark_2thor", 4)])
def test_a_line_for_every_half_of_every_cable(shape, lines):
    svg = topology_svg(captured(shape)["status"])
    assert svg.count("<line ") == lines
    assert svg.count("<rect ") == len(captured(shape)["status"]["hosts"]) + (shape != "3spark_ring")


def test_a_wrong_link_is_red_and_says_so_in_words():
    data = captured("4spark")
    # captured with this half cut
    link = data["status"]["hosts"]["spark-02"]["links"][1]
    svg = topology_svg(data["status"])
    assert svg.count('class="broken"') == 1
    assert "half 1: no carrier" in svg
    link.update(state="up", mtu=1500)
    assert "MTU 1500, not 9000" in topology_svg(data["status"])
    link.update(mtu=9000, problems=[])
    assert 'class="broken"' not in topology_svg(data["status"])


def test_the_far_end_of_a_ring_cable_counts():
    data = captured("3spark_ring")
    link = data["status"]["hosts"]["spark-03"]["links"][0]
    link.update(state="down", problems=[["down", "up"]])
    assert topology_svg(data["status"]).count('class="broken"') == 1


def planned(topology_name, count, **more):
    hosts = [f"h{number}" for number in range(count)]
    kind = more.pop("kind", "spark")
    management = {host: f"192.168.1.{number}/24" for number, host in enumerate(hosts, 11)}
    return fabric_plan(
        hosts,
        topology_name,
        "10.100.0.0/16",
        management=management,
        kinds=dict.fromkeys(hosts, kind),
        nics=dict.fromkeys(hosts, "enP7s7"),
        **more,
    )


@pytest.mark.parametrize(
    ("shape", "count", "more", "lines"),
    [
        ("direct", 2, {}, 2),
        ("direct", 2, {"cage": [0, 1]}, 4),
        ("direct", 2, {"kind": "thor"}, 4),
        ("switch", 4, {"cage": [0, 1]}, 16),
        ("line", 6, {}, 10),
        *(("ring", count, {}, 2 * count) for count in range(3, 13)),
    ],
)
def test_nothing_is_drawn_over_another(shape, count, more, lines):
    drawn = topology.planned_drawing(shape, "h0", planned(shape, count, **more))
    assert len({tuple(cable["line"]) for cable in drawn["cables"]}) == len(drawn["cables"]) == lines
    labels = [cable["label"][:2] for cable in drawn["cables"]]
    assert all(abs(x - far_x) > 20 or abs(y - far_y) > 12 for (x, y), (far_x, far_y) in combinations(labels, 2))
    boxes = [(box["x"], box["y"]) for box in drawn["boxes"]]
    width, height = drawn["box_width"], drawn["box_height"]
    assert all(abs(x - far_x) >= width or abs(y - far_y) >= height for (x, y), (far_x, far_y) in combinations(boxes, 2))


@pytest.mark.parametrize(("shape", "count"), [("direct", 2), ("switch", 3)])
def test_with_both_cages_each_half_says_whose_it_is(shape, count):
    fabric = planned(shape, count, cage=[0, 1])
    live = {"state": "up", "rate_gbits": 200, "planned_mtu": 9000, "problems": []}
    hosts = {
        host: {
            **{"reachable": True, "kind": "spark", "role": "worker", "control_address": "192.168.1.1"},
            "links": [{**link, **live} for link in own["links"]],
        }
        for host, own in fabric.items()
    }
    drawn = topology.drawing({"cluster": {"hosts": list(hosts), "topology": shape}, "hosts": hosts})
    texts = {cable.label.text for cable in drawn["cables"]}
    assert texts == {f"cage {cage} half {half}: 200G MTU 9000" for cage in (0, 1) for half in (0, 1)}


@pytest.mark.parametrize("topology_name", ["ring", "switch", "lan"])
def test_every_box_is_within_the_drawing(topology_name):
    for count in range(3, 9):
        drawn = topology.planned_drawing(topology_name, "h0", planned(topology_name, count))
        half = drawn["box_height"] / 2
        assert all(half <= box["y"] <= drawn["height"] - half for box in drawn["boxes"])
