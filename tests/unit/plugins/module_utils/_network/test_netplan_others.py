# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who else configures our NICs."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    netplan_generator,
    netplan_others,
)

from tests.unit.netplan import BOTH, GLOBAL, MAC, RENDERERS, files, live_link


@pytest.mark.parametrize(
    ("content", "matches"),
    [
        ("[Match]\nName=enp1s0f1np1\n", True),
        ("[Match]\nName=eth0 enp1s0*\n", True),
        ("[Match]\nName=!enp1s0f1np1 eth0\n", False),
        ("[Match]\nName=!eth0\n", True),
        ("[Match]\nName=eth0\n", False),
        ("[Match]\nMACAddress=02:00:00:00:00:01\n", True),
        ("[Match]\nPermanentMACAddress=02-00-00-00-00-01\n", True),
        ("[Match]\nMACAddress=02:00:00:00:00:02\nName=enp1s0f1np1\n", False),
        ("[Match]\nType=ether\n", True),
        ("[Match]\nType=wlan\n", False),
        ("[Match]\nDriver=mlx5_core\n", False),
        ("[Match]\n", False),
        ("[Network]\nName=enp1s0f1np1\n", False),
    ],
)
def test_networkd_match(content: str, matches: bool) -> None:
    assert netplan_others.network_matches(content, "enp1s0f1np1", MAC) is matches


@pytest.mark.parametrize(
    ("content", "matches"),
    [
        ("[connection]\ninterface-name=enp1s0f1np1\n", True),
        ("[connection]\ninterface-name=enp1s0f1np10\n", False),
        ("[match]\ninterface-name=en*;\n", True),
        ("[ethernet]\nmac-address=02:00:00:00:00:01\n", True),
        ("[connection]\nid=Wired connection 1\n", False),
    ],
)
def test_profile_match(content: str, matches: bool) -> None:
    assert netplan_others.profile_matches(content, "enp1s0f1np1", MAC) is matches


@pytest.mark.parametrize(("version", "renderer"), BOTH)
def test_wildcard_of_another_file_takes_our_nic(version: str, renderer: str) -> None:
    sources = {"/etc/netplan/01-m.yaml": "enP7s7:\n", "/etc/netplan/02-all.yaml": "    all-en:\n"}
    found = netplan_others.foreign_settings({"enp1s0f1np1": MAC}, files(version, renderer, "wildcard"), sources, {})
    assert [(item["path"], item["netplan"]) for item in found] == [("/etc/netplan/02-all.yaml", True)]
    assert (
        netplan_others.foreign_settings({"enp1s0f1np1": MAC}, files(version, renderer, "management"), sources, {}) == []
    )


OVERRIDE = """\
[connection]
id=netplan-enp1s0f1np1
type=ethernet
uuid=11111111-2222-5333-8444-555555555555

[ethernet]
wake-on-lan=0
mtu=1500
"""


def test_an_override_of_our_own_profile_names_no_nic_and_is_found_by_its_key() -> None:
    """As netplan 1.1.2 makes it of what Ubuntu's NetworkManager writes when somebody edits our profile."""
    sources = {"/etc/netplan/90-NM-1.yaml": "    enp1s0f1np1:\n      match: {}\n"}
    state = {"content": OVERRIDE, "mode": 0o600, "uid": 0, "gid": 0}
    made = {"/run/NetworkManager/system-connections/netplan-enp1s0f1np1.nmconnection": state}
    found = netplan_others.foreign_settings({"enp1s0f1np1": MAC, "fab1": ""}, made, sources, {})
    assert found == [{"path": "/etc/netplan/90-NM-1.yaml", "netdev": "enp1s0f1np1", "netplan": True}]


def test_static_networkd_file_counts_only_when_it_comes_first() -> None:
    static = {
        "/etc/systemd/network/05-fabric.network": "[Match]\nName=enp1s0f1np1\n",
        "/usr/lib/systemd/network/80-ethernet.network": "[Match]\nType=ether\n",
        "/etc/NetworkManager/system-connections/hand.nmconnection": "[connection]\ninterface-name=enp1s0f1np1\n",
    }
    found = netplan_others.foreign_settings({"enp1s0f1np1": MAC}, {}, {}, static)
    assert sorted(item["path"] for item in found) == [
        "/etc/NetworkManager/system-connections/hand.nmconnection",
        "/etc/systemd/network/05-fabric.network",
    ]
    assert not any(item["netplan"] for item in found)


@pytest.mark.parametrize(("version", "renderer"), BOTH)
def test_addresses_at_run_time_only(version: str, renderer: str) -> None:
    live = {
        "lo": live_link({"127.0.0.1/8": {**GLOBAL, "scope": "host"}}),
        "enP7s7": live_link(
            {
                "10.83.0.11/24": GLOBAL,
                "10.83.0.212/24": GLOBAL,
                "10.83.0.50/24": {**GLOBAL, "dynamic": True},
                "fe80::1/64": {"scope": "link", "dynamic": False, "family": "inet6"},
            }
        ),
        "docker0": live_link({"172.17.0.1/16": GLOBAL}),
        "enp1s0f1np1": live_link({"10.9.9.9/24": GLOBAL}),
    }
    found = netplan_others.runtime_addresses(live, files(version, renderer, "planned"), {}, {"enp1s0f1np1"})
    assert found == [{"netdev": "enP7s7", "address": "10.83.0.212/24"}]


def test_address_of_a_static_file_is_no_run_time_address() -> None:
    static = {
        "/etc/systemd/network/x.network": "[Match]\nName=eth0\n[Network]\nAddress=10.1.0.1/24\n"
        "[Address]\nAddress=2001:db8:0::1/64\n"
    }
    live = {"eth0": live_link({"10.1.0.1/24": GLOBAL, "2001:db8::1/64": {**GLOBAL, "family": "inet6"}})}
    assert netplan_others.runtime_addresses(live, {}, static, set()) == []


def test_what_stands_aside_is_found_by_its_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netplan_generator, "SOURCES", ())
    monkeypatch.setattr(netplan_others, "NETWORKD_FOLDERS", (str(tmp_path / "network"),))
    monkeypatch.setattr(netplan_others, "PROFILE_FOLDERS", (str(tmp_path / "profiles"),))
    names = (
        *("profiles/.qsfp.nmconnection.sparkthor-aside", "profiles/seen.nmconnection.sparkthor-aside"),
        *("netplan/40-cx7.yaml", "netplan/40-cx7.yaml.sparkthor-aside", "netplan/40-cx7.yaml.sparkthor-aside.2"),
        *("network/05-x.network.sparkthor-aside", "network/05-x.network.sparkthor-aside.bak", "network/10-y.network"),
    )
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    path = str(tmp_path / "netplan/40-cx7.yaml")
    network = str(tmp_path / "network/05-x.network")
    assert netplan_others.set_aside(path) == {
        path: [f"{path}.sparkthor-aside", f"{path}.sparkthor-aside.2"],
        network: [f"{network}.sparkthor-aside"],
        str(tmp_path / "profiles/qsfp.nmconnection"): [str(tmp_path / "profiles/.qsfp.nmconnection.sparkthor-aside")],
    }
    for original in netplan_others.set_aside(path):
        assert netplan_others.aside_name(original) in netplan_others.set_aside(path)[original]


@pytest.mark.parametrize("renderer", RENDERERS)
def test_the_nics_of_one_file(monkeypatch: pytest.MonkeyPatch, renderer: str) -> None:
    monkeypatch.setattr(netplan_generator, "generate", lambda given: files("1.1.2", renderer, "management"))
    assert netplan_others.nics_of("/etc/netplan/01-m.yaml", "x", {}) == {"enP7s7"}


@pytest.mark.parametrize(
    ("content", "nics"),
    [
        ("[Match]\nName=fab0\n[Network]\nDHCP=no\n", {"fab0"}),
        ("[connection]\nid=a\ninterface-name=fab1\n", {"fab1"}),
        ("[ethernet]\nmac-address=02:00:00:00:00:01\n", {"fab0"}),
        ("[ethernet]\nmac-address=02:00:00:00:00:09\n", {"02:00:00:00:00:09"}),
        ("[match]\ninterface-name=en*;fab0;\n", {"en*", "fab0"}),
        ("[connection]\nid=a\n", set()),
    ],
)
def test_nics_are_named_by_name_or_address(content: str, nics: set[str]) -> None:
    assert netplan_others.nics_of("/etc/x/a", content, {"fab0": live_link(), "lo": live_link(mac="")}) == nics


def test_network_managers_folder_is_read_as_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netplan_others, "NETWORKD_FOLDERS", ())
    monkeypatch.setattr(netplan_others, "PROFILE_FOLDERS", (str(tmp_path),))
    names = ("Wired connection 1", "netplan-enp1s0f1np1.nmconnection", ".hidden", "backup~", "x.sparkthor-aside")
    for name in names:
        (tmp_path / name).write_text("[connection]\n")
    assert sorted(Path(path).name for path in netplan_others.static_settings()) == sorted(
        {*names} - {".hidden", "backup~"}
    )
