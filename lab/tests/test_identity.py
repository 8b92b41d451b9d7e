# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who configures a simulated host's management NIC."""

from __future__ import annotations

import yaml
from sparklab import base, identity
from sparklab.plan import Plan, Wish, allot

HOSTS = allot([Wish("spark-01")], "10.77.0.0/24")


def test_management_as_a_desktop_keeps_it():
    plan = Plan("lab", "ab12", "10.77.0.0/24", "trixie", "4G", ("networkmanager",), HOSTS)
    files = identity.desktop_netplan(HOSTS[0], plan)
    assert yaml.safe_load(files["01-network-manager-all.yaml"])["network"]["renderer"] == "NetworkManager"
    ((name, own),) = yaml.safe_load(files[sorted(files)[1]])["network"]["ethernets"].items()
    assert f"90-{name}.yaml" in files
    assert own["match"] == {"name": "enP7s7"}
    assert own["networkmanager"]["passthrough"]["ipv4.address1"] == "10.77.0.11/24,10.77.0.1"
    assert identity.desktop_netplan(HOSTS[0], plan) == files, "the same at every creation"


def test_every_file_and_unit_of_a_layer_belongs_to_a_layer():
    assert set(base.LAYER_FILES) | set(base.LAYER_OFF) <= set(base.LAYERS)
