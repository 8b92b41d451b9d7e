# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would go wrong with a change."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    netplan,
    netplan_generator,
    netplan_inspect,
    netplan_others,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job

from tests.unit.netplan import GLOBAL, LINK, MAC, RENDERERS, files, live_link


class Host:
    """A host whose netplan answers from the fixtures, chosen by which files it is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, renderer: str = "networkd") -> None:
        self.renderer = renderer
        self.sources: dict[str, str] = {"/etc/netplan/01-m.yaml": "    enP7s7:\n"}
        self.run = files("1.1.2", renderer, "management")
        self.live = {"enP7s7": live_link({"10.83.0.11/24": GLOBAL}), "enp1s0f1np1": live_link(mtu=1500, up=False)}
        self.management = "management"
        self.error: netplan_generator.NetplanError | None = None
        monkeypatch.setattr(netplan_generator, "source_files", lambda: dict(self.sources))
        monkeypatch.setattr(netplan_generator, "generate", self.generate)
        monkeypatch.setattr(netplan_others, "static_settings", dict)
        monkeypatch.setattr(job, "live_links", lambda: self.live)
        monkeypatch.setattr(job, "generated_files", lambda root="": dict(self.run))

    def generate(self, given: dict[str, str]) -> dict[str, Any]:
        if self.error and self.error.path in given:
            raise self.error
        own = given.get("/etc/netplan/40-cx7.yaml")
        if own is None:
            return files("1.1.2", self.renderer, self.management)
        return files("1.1.2", self.renderer, {"by hand": "by_hand", "guide": "guide"}.get(own, "planned"))

    def kinds(self, **options: Any) -> list[str]:
        return [item.id for item in netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [LINK], **options)["findings"]]


@pytest.mark.parametrize("renderer", RENDERERS)
def test_inspect_a_virgin_host(monkeypatch: pytest.MonkeyPatch, renderer: str) -> None:
    Host(monkeypatch, renderer)
    seen = netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [LINK])
    assert seen["findings"] == []
    assert seen["renderer"] == renderer
    assert seen["ids"] == {"enp1s0f1np1"}
    assert seen["foreign"] is False


def test_inspect_finds_a_pending_edit_and_names_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.management = "edited"
    monkeypatch.setattr(host, "generate", lambda given: files("1.1.2", "networkd", "edited"))
    monkeypatch.setattr(netplan_generator, "generate", host.generate)
    findings = netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [])["findings"]
    assert [(f.id, f.where) for f in findings] == [("pending_edit", "/etc/netplan/01-m.yaml")]
    assert "+Address=10.83.0.99/24" in findings[0].what


def test_inspect_finds_invalid_yaml_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.sources["/etc/netplan/99-x.yaml"] = "broken"
    host.error = netplan_generator.NetplanError("/etc/netplan/99-x.yaml:3:1: Invalid YAML", "/etc/netplan/99-x.yaml")
    findings = netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [LINK])["findings"]
    assert [(f.id, f.where) for f in findings] == [("invalid_yaml", "/etc/netplan/99-x.yaml")]


def test_inspect_names_a_link_that_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)

    def source_files() -> dict[str, str]:
        raise netplan_generator.NetplanError("/etc/netplan/30-c.yaml is a link to /gone", "/etc/netplan/30-c.yaml")

    monkeypatch.setattr(netplan_generator, "source_files", source_files)
    assert host.kinds() == ["invalid_yaml"]


def test_inspect_of_a_host_without_netplan_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.error = netplan_generator.NoNetplanError("netplan is not installed", "/etc/netplan/01-m.yaml")
    (finding,) = netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [LINK])["findings"]
    assert (finding.id, finding.what) == ("no_netplan", "netplan is not installed")
    assert finding.fix == "install the package netplan.io (sudo apt install netplan.io)"


@pytest.mark.parametrize(("runs", "found"), [(False, ["no_network_manager"]), (True, [])])
def test_network_manager_is_wanted_where_it_runs_alone(
    monkeypatch: pytest.MonkeyPatch, runs: bool, found: list[str]
) -> None:
    host = Host(monkeypatch, "NetworkManager")
    monkeypatch.setattr(job, "unit_active", lambda unit: runs and unit == "NetworkManager.service")
    assert host.kinds(renderer="NetworkManager") == found


def test_inspect_adopts_or_names_a_foreign_file_at_our_path(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.sources["/etc/netplan/40-cx7.yaml"] = "by hand"
    seen = netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [LINK])
    assert (seen["foreign"], seen["adoptable"]) == (True, True)
    (warning,) = seen["findings"]
    assert (warning.id, warning.severity) == ("carrier_bound", "warning")
    assert "enp1s0f1np1 loses its address" in warning.what
    assert "roce_network_replace_foreign: true" in warning.fix
    host.sources["/etc/netplan/40-cx7.yaml"] = "guide"
    assert host.kinds() == ["foreign_file"]


@pytest.mark.parametrize(
    ("renderer", "key", "settings", "bound"),
    [
        ("networkd", "by_hand", "", True),
        ("networkd", "planned", "", False),
        ("NetworkManager", "by_hand", "", True),
        ("NetworkManager", "by_hand", "[device-x]\nignore-carrier=yes\n", False),
    ],
)
def test_whose_address_goes_with_the_carrier(
    monkeypatch: pytest.MonkeyPatch, renderer: str, key: str, settings: str, bound: bool
) -> None:
    monkeypatch.setattr(netplan_others.glob, "glob", lambda pattern: ["/etc/NetworkManager/conf.d/x.conf"])
    monkeypatch.setattr(job, "read_state", lambda path: {"content": settings})
    found = netplan_others.bound_to_carrier(files("1.1.2", renderer, key), {"enp1s0f1np1"})
    assert found == ["enp1s0f1np1"] * bound


def test_inspect_finds_run_time_and_foreign_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.live["enP7s7"]["addresses"]["10.83.0.212/24"] = GLOBAL
    host.live["enp1s0f1np1"]["addresses"].update(
        {"10.99.0.2/24": GLOBAL, "10.100.0.1/25": GLOBAL, "169.254.3.4/16": {**GLOBAL, "scope": "link"}}
    )
    findings = netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [LINK])["findings"]
    assert [(f.id, f.where) for f in findings] == [
        ("runtime_address", "enP7s7"),
        ("foreign_address", "enp1s0f1np1"),
    ]
    assert "enP7s7 has 10.83.0.212/24 at run time only" in findings[0].what
    assert "enp1s0f1np1 has 10.99.0.2/24, which is neither planned" in findings[1].what


@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("links", [[LINK], []], ids=["present", "absent"])
def test_inspect_takes_a_floating_address_for_ours(
    monkeypatch: pytest.MonkeyPatch, renderer: str, links: list[dict[str, Any]]
) -> None:
    """It is in nobody's file, on the management NIC or wherever the inventory puts it."""
    host = Host(monkeypatch, renderer)
    host.live["enP7s7"]["addresses"]["10.83.0.100/24"] = GLOBAL
    host.live["enp1s0f1np1"]["addresses"]["10.83.0.100/24"] = GLOBAL
    path = "/etc/netplan/40-cx7.yaml"
    assert netplan_inspect.inspect(path, links)["findings"]
    assert netplan_inspect.inspect(path, links, "", ["10.83.0.100/24"])["findings"] == []
    monkeypatch.setattr(netplan_inspect.floating_addresses, "known", lambda given: {"10.83.0.100"})
    assert netplan_inspect.inspect(path, links)["findings"] == [], "as the newest play declared on the host"


def test_inspect_knows_addresses_of_our_former_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.sources["/etc/netplan/40-cx7.yaml"] = netplan.render([LINK])
    host.run = files("1.1.2", "networkd", "planned")
    host.live["enp1s0f1np1"]["addresses"]["10.100.0.1/25"] = GLOBAL
    moved = {**LINK, "address": "10.100.0.7/25"}
    assert netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [moved])["findings"] == []


HAND = """\
[connection]
id=qsfp
uuid=11111111-2222-5333-8444-666666666666
interface-name=enp1s0f1np1
"""


@pytest.mark.parametrize(
    ("identity", "content", "alone"),
    [
        ("NM-1", HAND, True),
        ("enp1s0f1np1", HAND.replace("interface-name=enp1s0f1np1\n", ""), True),
        ("NM-1", HAND.replace("interface-name=enp1s0f1np1", "\n[match]\ninterface-name=en*;"), False),
    ],
)
def test_a_profile_by_ubuntus_network_manager_can_be_set_aside(
    monkeypatch: pytest.MonkeyPatch, identity: str, content: str, alone: bool
) -> None:
    host = Host(monkeypatch, "NetworkManager")
    host.sources["/etc/netplan/90-NM-1.yaml"] = f"    {identity}:\n"
    path = f"/run/NetworkManager/system-connections/netplan-{identity}.nmconnection"
    real = host.generate

    def generate(given: dict[str, str]) -> dict[str, Any]:
        theirs = {path: {"content": content, "mode": 0o600, "uid": 0, "gid": 0}}
        if list(given) == ["/etc/netplan/90-NM-1.yaml"]:
            return theirs
        return {**real(given), **(theirs if "/etc/netplan/90-NM-1.yaml" in given else {})}

    monkeypatch.setattr(netplan_generator, "generate", generate)
    host.run = {**host.run, **generate({"/etc/netplan/90-NM-1.yaml": ""})}
    seen = netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [LINK])
    assert [(f.id, f.where) for f in seen["findings"]] == [
        ("foreign_file" if alone else "foreign_settings", "enp1s0f1np1")
    ]
    assert "/etc/netplan/90-NM-1.yaml also configures fabric NIC enp1s0f1np1" in seen["findings"][0].what
    assert (identity in seen["ids"]) is alone or identity == "enp1s0f1np1"
    assert seen["planned"][netplan.NM_CONF] is not None, "the host's default counts"


def test_a_profile_of_network_managers_own_is_named_by_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Host(monkeypatch, "NetworkManager")
    path = "/etc/NetworkManager/system-connections/netplan-enp1s0f1np1.nmconnection"
    monkeypatch.setattr(netplan_others, "static_settings", lambda: {path: HAND})
    (finding,) = netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [LINK])["findings"]
    assert (finding.id, path in finding.what) == ("foreign_file", True)


def test_our_own_profile_edited_by_hand_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address counts as ours as well, so that the next run puts all of it right."""
    host = Host(monkeypatch, "NetworkManager")
    ours, nic = "/etc/netplan/40-cx7.yaml", LINK["netdev"]
    planned = netplan.files(ours, [LINK], "")
    monkeypatch.setattr(job, "read_state", planned.get)
    assert netplan_inspect.written(ours, [LINK], "") == planned
    path = f"/etc/NetworkManager/system-connections/netplan-{nic}.nmconnection"
    edit = f"[connection]\nid=netplan-{nic}\nautoconnect-priority=999\n[ipv4]\naddress1=10.7.0.1/24\n"
    monkeypatch.setattr(netplan_others, "static_settings", lambda: {path: edit})
    host.live[nic]["addresses"] = {"10.7.0.1/24": GLOBAL}
    found = netplan_inspect.inspect(ours, [LINK])
    assert found["findings"] == []
    assert found["edited"] == {path: nic}
    assert found["aside"] == []
    assert nic in netplan_inspect.inspect(ours, [])["previous"], "a teardown takes it away"
    assert netplan_inspect.written(ours, [LINK], "") == {}


@pytest.mark.parametrize(
    ("name", "text", "others", "asked", "holds"),
    [
        ("/etc/netplan/50-x.yaml", "    enP7s7:\n", "management", False, True),
        # only words about it
        ("/etc/netplan/50-x.yaml", "    # enp1s0f1np1: not yet\n", "management", True, True),
        ("/etc/netplan/50-x.yaml", "    enp1s0f1np1:\n", "by_hand", True, False),
        ("/etc/netplan/50-x.yaml", "    x:\n      match: {name: 'enp1s0f*'}\n", "by_hand", True, False),
        ("/etc/netplan/50-x.yaml", f"    x:\n      match: {{macaddress: {MAC.upper()}}}\n", "by_hand", True, False),
        ("/run/netplan/40-cx7.yaml", "", "management", True, False),
        # ours hides it
        ("/usr/lib/netplan/40-cx7.yaml", "", "management", False, True),
    ],
)
def test_our_file_does_not_hold_where_another_is_about_our_nic(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, others: str, asked: bool, holds: bool
) -> None:
    host, ours = Host(monkeypatch), "/etc/netplan/40-cx7.yaml"
    planned = netplan.files(ours, [LINK], "")
    monkeypatch.setattr(job, "read_state", planned.get)
    host.sources |= {ours: str((planned[ours] or {})["content"]), name: text}
    host.management = others
    generated: list[bool] = []
    monkeypatch.setattr(netplan_generator, "generate", lambda given: generated.append(True) or host.generate(given))
    assert netplan_inspect.written(ours, [LINK], "") == (planned if holds else {})
    assert bool(generated) is asked


def test_our_file_does_not_hold_beside_one_that_netplan_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    Host(monkeypatch)
    planned = netplan.files("/etc/netplan/40-cx7.yaml", [LINK], "")
    monkeypatch.setattr(job, "read_state", planned.get)

    def source_files() -> dict[str, str]:
        raise netplan_generator.NetplanError("/etc/netplan/30-c.yaml is a link to /gone", "/etc/netplan/30-c.yaml")

    monkeypatch.setattr(netplan_generator, "source_files", source_files)
    assert netplan_inspect.written("/etc/netplan/40-cx7.yaml", [LINK], "") == {}


def test_inspect_finds_a_file_that_hides_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.sources["/run/netplan/40-cx7.yaml"] = "network: {version: 2}\n"
    assert host.kinds() == ["shadowed"]
