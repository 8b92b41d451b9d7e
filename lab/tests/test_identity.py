# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who made a simulated host, and who configures its management NIC."""

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


def test_the_sparks_of_a_lab_are_of_several_makers():
    wishes = [Wish(f"spark-{number:02}") for number in range(1, 10)] + [Wish("thor-01", "thor"), Wish("pc", "generic")]
    told = {host.name: identity.firmware_says(host) for host in allot(wishes, "10.77.0.0/24")}
    assert [told[f"spark-0{number}"]["sys_vendor"].split()[0] for number in range(1, 10)] == [
        *("NVIDIA", "ASUSTeK", "HP", "MSI", "Dell", "LENOVO", "GIGABYTE", "Acer"),
        "NVIDIA",
    ]
    assert told["spark-01"]["product_name"] == "NVIDIA_DGX_Spark\n"
    assert {told[name]["product_family"] for name in told if name.startswith("spark")} == {"DGX Spark\n"}
    assert all(text.strip() for files in told.values() for text in files.values())
    assert "product_family" not in {**told["thor-01"], **told["pc"]}


def test_dgx_release_names_the_maker_s_platform_and_one_release():
    hosts = allot([Wish(f"spark-0{number}") for number in range(1, 9)], "10.77.0.0/24")
    texts = [identity.dgx_release(host) for host in hosts]
    assert [text.partition("DGX_PLATFORM=")[2].splitlines()[0] for text in texts[:4]] == [
        *('"DGX Server for KVM"', '"GX10"', "HP ZGX Nano G1n AI Station", '"DGX Server for KVM"'),
    ]
    assert all("7.2.3" in text for text in texts)
