# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planned fabric of a few hosts, as verify measures along it."""

from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import fabric_plan

HOSTS = ("a", "b", "c")
MANAGEMENT = {host: f"192.168.1.{index}/24" for index, host in enumerate("abcd", 11)}


def plan(topology, hosts=HOSTS, **more):
    nics = dict.fromkeys(hosts, "enP7s7")
    management = {host: MANAGEMENT[host] for host in hosts}
    return fabric_plan(
        list(hosts), topology, "10.100.0.0/16", more.get("cage", 1), None, management, more.get("kinds"), nics
    )
