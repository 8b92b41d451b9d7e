# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles for NetworkManager, for every host of each topology, as netplan's generators 0.106 and 1.1.2 made them."""

from __future__ import annotations

import configparser
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    netplan_generator,
    netplan_others,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import fabric_plan

FIXTURES = Path(__file__).parents[4] / "fixtures" / "netplan"
VERSIONS = ("0.106", "1.1.2")
HOSTS = {"direct": 2, "ring": 3, "switch": 4}
EVERY = [
    (version, topology, f"spark-{number:02d}")
    for version in VERSIONS
    for topology, count in HOSTS.items()
    for number in range(1, count + 1)
]
FOLDER = "/run/NetworkManager/system-connections"


def plan(topology: str) -> dict[str, Any]:
    names = [f"spark-{number:02d}" for number in range(1, HOSTS[topology] + 1)]
    management = {name: f"192.168.1.{11 + index}/24" for index, name in enumerate(names)}
    return dict(fabric_plan(names, topology=topology, cidr="10.100.0.0/16", management=management))


def made(version: str, topology: str, host: str) -> dict[str, str]:
    return json.loads((FIXTURES / f"profiles-{version}.json").read_text())["made"][f"{topology} {host}"]


@pytest.mark.parametrize(("version", "topology", "host"), EVERY)
def test_each_link_has_one_profile_that_says_what_the_plan_says(version: str, topology: str, host: str) -> None:
    links = {link["netdev"]: link for link in plan(topology)[host]["links"]}
    files = made(version, topology, host)
    profiles = {path: text for path, text in files.items() if path.startswith(FOLDER)}
    assert set(profiles) == {f"{FOLDER}/netplan-{netdev}.nmconnection" for netdev in links}
    for netdev, link in links.items():
        profile = configparser.ConfigParser(interpolation=None)
        profile.read_string(profiles[f"{FOLDER}/netplan-{netdev}.nmconnection"])
        assert profile["connection"]["interface-name"] == netdev
        assert profile["connection"]["type"] == "ethernet"
        assert profile["ethernet"]["mtu"] == "9000"
        assert dict(profile["ipv4"]) == {"method": "manual", "address1": link["address"]}, "no route, gateway or name"
        assert profile["ipv6"]["method"] == "disabled", "or the kernel listens to routers"
        assert profile["connection"]["autoconnect-priority"] == "999"
    assert not [path for path in files if path.endswith(".network")], "networkd gets none of these NICs"


@pytest.mark.parametrize(("version", "topology", "host"), EVERY)
def test_the_profiles_are_taken_for_ours_and_for_what_the_plan_wants(version: str, topology: str, host: str) -> None:
    links = plan(topology)[host]["links"]
    generated = {
        path: {"content": text, "mode": 0o600, "uid": 0, "gid": 0}
        for path, text in made(version, topology, host).items()
        if path.startswith(("/run/NetworkManager", "/run/udev"))
    }
    names = {link["netdev"] for link in links}
    assert {netplan_generator.file_owner_of(path) for path in generated if path.startswith(FOLDER)} == names
    assert netplan_generator.pending_edits(generated, {}, names) == []
    contents = [state["content"] for path, state in generated.items() if path.startswith(FOLDER)]
    assert netplan_others.configured_addresses(contents) == {link["address"] for link in links}
    for netdev in names:
        text = generated[f"{FOLDER}/netplan-{netdev}.nmconnection"]["content"]
        assert [other for other in names if netplan_others.profile_matches(text, other, "")] == [netdev]


def test_a_lan_has_no_file_to_make_profiles_of() -> None:
    management = {"a": "192.168.1.1/24", "b": "192.168.1.2/24"}
    lan = fabric_plan(["a", "b"], topology="lan", management=management, nics={"a": "x0", "b": "x0"})
    assert {entry["addressing"] for entry in lan.values()} == {"adopted"}
