# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drawing of the cluster's cables: a line for each half, and in red what is wrong."""

from __future__ import annotations

import pytest
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
