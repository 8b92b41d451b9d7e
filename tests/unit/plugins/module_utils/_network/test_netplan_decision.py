# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    link_state,
    netplan,
    netplan_decision,
    netplan_generator,
    netplan_inspect,
    netplan_others,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job

GLOBAL = {"scope": "global", "dynamic": False, "family": "inet"}
LINK = {"netdev": "fab0", "address": "10.9.0.1/24", "mtu": 9000, "peers": []}
NETWORK = "/run/systemd/network/10-netplan-fab0.network"
OURS, ASIDE = "/etc/netplan/40-cx7.yaml", "/etc/netplan/40-cx7.yaml.sparkthor-aside"
OLD_NETWORK = "/run/systemd/network/10-netplan-fab1.network"


def state(content: str, mode: int = 0o600) -> dict[str, Any]:
    return {"content": content, "mode": mode, "uid": 0, "gid": 0}


class Host:
    def __init__(self) -> None:
        self.file: dict[str, Any] | None = None
        self.live = {
            "mgmt0": {"mtu": 1500, "up": True, "carrier": True, "mac": "", "addresses": {"10.0.0.1/24": GLOBAL}},
            "fab0": {"mtu": 1500, "up": False, "carrier": True, "mac": "", "addresses": {}},
            "fab1": {"mtu": 9000, "up": True, "carrier": True, "mac": "", "addresses": {}},
        }
        self.routes: set[tuple[str, str]] = set()
        self.seen: dict[str, Any] = {
            "findings": [],
            "own": None,
            "sources": {},
            "live": self.live,
            "run": {},
            "wanted": {NETWORK: state("[Match]\nName=fab0\n[Link]\nMTUBytes=9000\n")},
            "generated": {},
            "others": {},
            "renderer": "networkd",
            "ids": {"fab0"},
            "previous": set(),
            "planned": netplan.files("/etc/netplan/40-cx7.yaml", [LINK], ""),
            "aside": [],
            "edited": {},
            "floating": set(),
            "adoptable": False,
            "foreign": False,
        }

    def as_planned(self) -> None:
        self.live["fab0"] = {"mtu": 9000, "up": True, "carrier": True, "mac": "", "addresses": {"10.9.0.1/24": GLOBAL}}
        self.routes.add(("10.9.0.0/24", "fab0"))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host()
    monkeypatch.setattr(job, "read_state", lambda path: made.file if path == "/etc/netplan/40-cx7.yaml" else None)
    monkeypatch.setattr(job, "live_links", lambda: made.live)
    monkeypatch.setattr(link_state, "connected_routes", lambda: made.routes)
    monkeypatch.setattr(netplan_inspect, "inspect", lambda *args, **options: made.seen)
    monkeypatch.setattr(netplan_others, "set_aside", lambda path: {})
    monkeypatch.setattr(job, "generated_files", lambda root="": made.seen["run"])
    return made


def present(**over: Any) -> netplan_decision.NetplanDecision:
    params = {
        "path": "/etc/netplan/40-cx7.yaml",
        "links": [LINK],
        "renderer": "",
        "accept": [],
        "floating": [],
        "replace_foreign": False,
        **over,
    }
    return netplan_decision.decide_present(params, "mgmt0")


def test_virgin_host_is_written_and_applied(host: Host) -> None:
    decision = present()
    assert decision.changed
    assert decision.needs_apply
    assert decision.after["/etc/netplan/40-cx7.yaml"] == state(netplan.render([LINK]))
    assert NETWORK in decision.after
    assert decision.netdevs == ["fab0"]
    assert decision.expect == [{"netdev": "fab0", "address": "10.9.0.1/24", "mtu": 9000}]
    assert [item["before_header"] for item in decision.diff] == ["/etc/netplan/40-cx7.yaml", "live links"]
    assert "fab0 has MTU 1500 instead of 9000" in decision.diff[1]["before"]


def test_host_as_planned_is_not_even_inspected(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.file = state(netplan.render([LINK]))
    host.as_planned()
    monkeypatch.setattr(netplan_inspect, "inspect", lambda *args: pytest.fail("inspected"))
    decision = present()
    assert not decision.changed
    assert not decision.needs_apply


def test_wrong_mode_is_fixed_without_touching_the_network(host: Host) -> None:
    host.file = state(netplan.render([LINK]), 0o644)
    host.as_planned()
    decision = present()
    assert decision.changed
    assert not decision.needs_apply
    assert decision.after == {"/etc/netplan/40-cx7.yaml": state(netplan.render([LINK]))}


def test_drift_of_the_live_links_is_applied_again(host: Host) -> None:
    host.file = state(netplan.render([LINK]))
    decision = present()
    assert decision.needs_apply
    assert [item["before_header"] for item in decision.diff] == ["live links"]


PROFILE = "/run/NetworkManager/system-connections/netplan-fab0.nmconnection"


def by_network_manager(host: Host, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A host of NetworkManager's, and its files by path."""
    planned = netplan.files(OURS, [LINK], "NetworkManager")
    host.seen.update(planned=planned, renderer="NetworkManager", wanted={PROFILE: state("x")})
    files: dict[str, Any] = {}
    monkeypatch.setattr(job, "read_state", files.get)
    return files


def test_network_manager_gets_its_settings_with_the_netplan_file(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    files = by_network_manager(host, monkeypatch)
    decision = present()
    assert {path: decision.after[path] for path in host.seen["planned"]} == host.seen["planned"]
    assert netplan.NM_CONF in [item["before_header"] for item in decision.diff]
    files.update(host.seen["planned"])
    host.seen["run"] = {PROFILE: state("x")}
    host.as_planned()
    assert not present().changed
    files[OURS] = state(netplan.render([LINK]))
    assert present().needs_apply, "the file of a networkd host, or of an earlier version"
    files[OURS] = host.seen["planned"][OURS]
    del files[netplan.NM_CONF]
    assert present().needs_apply, "without it the address goes with the carrier"


def test_the_settings_go_with_the_file_or_after_it(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    files = by_network_manager(host, monkeypatch)
    files[netplan.NM_CONF] = host.seen["planned"][netplan.NM_CONF]
    decision = absent()
    assert (decision.changed, decision.needs_apply, decision.after) == (True, False, {netplan.NM_CONF: None})
    files[OURS] = host.seen["planned"][OURS]
    decision = absent()
    assert decision.needs_apply
    assert decision.after == {OURS: None, netplan.NM_CONF: None}


def test_a_former_plan_is_cleared_away(host: Host) -> None:
    former = state("[Match]\nName=fab1\n[Link]\nMTUBytes=9000\n[Network]\nAddress=10.8.0.1/24\n")
    host.file = state(netplan.render([{**LINK, "netdev": "fab1", "address": "10.8.0.1/24"}]))
    host.live["fab1"]["addresses"]["10.8.0.1/24"] = GLOBAL
    former_files = {OLD_NETWORK: former}
    host.seen.update(ids={"fab0", "fab1"}, previous={"fab1"}, generated=former_files, run=former_files)
    decision = present()
    assert decision.after[OLD_NETWORK] is None
    assert decision.drop == [{"netdev": "fab1", "address": "10.8.0.1/24"}]
    assert decision.reset_mtu == ["fab1"]
    assert decision.netdevs == ["fab0", "fab1"]


def test_foreign_file_of_the_same_meaning_is_left_as_it_is(host: Host) -> None:
    host.file = state("by hand", 0o644)
    host.as_planned()
    host.seen.update(foreign=True, adoptable=True)
    decision = present()
    assert decision.adopted
    assert not decision.changed
    assert decision.after == {}


def test_a_file_that_goes_with_the_carrier_is_adopted_unless_it_is_to_be_replaced(host: Host) -> None:
    host.file = state("by hand", 0o644)
    host.as_planned()
    told = dataclasses.replace(finding("carrier_bound"), severity="warning")
    host.seen.update(foreign=True, adoptable=True, findings=[told])
    decision = present()
    assert (decision.adopted, decision.changed, decision.findings) == (True, False, [told])
    decision = present(replace_foreign=True)
    assert (decision.adopted, decision.needs_apply, decision.backup) == (False, True, ASIDE)
    assert decision.after[OURS] == state(netplan.render([LINK]))


def test_adopted_but_not_live_is_applied_from_the_foreign_file(host: Host) -> None:
    host.file = state("by hand", 0o644)
    host.seen.update(foreign=True, adoptable=True, generated={NETWORK: state("theirs")})
    decision = present()
    assert decision.needs_apply
    assert "/etc/netplan/40-cx7.yaml" not in decision.after
    assert decision.after[NETWORK] == state("theirs")


def finding(kind: str) -> Finding:
    return Finding(kind, f"there is {kind}", "fix it")


@pytest.mark.parametrize(
    "kind",
    [
        "pending_edit",
        "runtime_address",
        "invalid_yaml",
        "foreign_file",
        "foreign_address",
        "foreign_settings",
        "shadowed",
        "invalid_plan",
    ],
)
def test_every_finding_stops_before_anything_is_written(host: Host, kind: str) -> None:
    host.seen["findings"] = [finding(kind)]
    with pytest.raises(netplan_decision.ChangeError, match=f"there is {kind} \\(fix it\\)"):
        present()


@pytest.mark.parametrize(
    ("kind", "options", "stops"),
    [
        ("pending_edit", {"accept": ["pending_edit"]}, False),
        ("runtime_address", {"accept": ["runtime_address"]}, False),
        ("runtime_address", {"accept": ["pending_edit"]}, True),
        ("invalid_yaml", {"accept": ["invalid_yaml", "pending_edit", "runtime_address"]}, True),
        ("foreign_file", {"replace_foreign": True}, False),
        ("foreign_address", {"replace_foreign": True}, False),
        ("foreign_settings", {"replace_foreign": True}, True),
        ("shadowed", {"replace_foreign": True}, True),
    ],
)
def test_what_the_user_may_accept(kind: str, options: dict[str, Any], stops: bool) -> None:
    arguments = {"accept": [], "replace_foreign": False, **options}
    assert bool(netplan_decision.blocking([finding(kind)], **arguments)) is stops


def test_replacing_keeps_what_was_there(host: Host) -> None:
    host.file = state("guide", 0o644)
    host.seen.update(foreign=True, findings=[finding("foreign_file")])
    decision = present(replace_foreign=True)
    assert decision.backup == "/etc/netplan/40-cx7.yaml.sparkthor-aside"
    assert decision.after[decision.backup] == state("guide", 0o600)
    assert decision.after["/etc/netplan/40-cx7.yaml"] == state(netplan.render([LINK]))


def test_links_are_set_aside_and_kept_as_links(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of somebody's configuration management, linked into netplan's folder: what it leads to stays as it is."""
    link = {**state("by hand", 0o644), "link": "/opt/site/fabric.yaml"}
    other = "/etc/netplan/90-other.yaml"
    files = {OURS: link, other: {**link, "link": "../site/other.yaml"}}
    monkeypatch.setattr(job, "read_state", files.get)
    monkeypatch.setattr(netplan_decision.os.path, "lexists", lambda path: False)
    host.seen.update(foreign=True, aside=[other], findings=[finding("foreign_file")])
    decision = present(replace_foreign=True)
    assert decision.after[ASIDE] == link
    assert decision.after[other] is None
    assert decision.after[f"{other}.sparkthor-aside"] == files[other]
    assert "link" not in decision.after[OURS]


def test_a_link_to_a_copy_of_our_file_becomes_our_file(host: Host) -> None:
    host.file = {**state(netplan.render([LINK])), "link": "/opt/site/40-cx7.yaml"}
    host.as_planned()
    decision = present()
    assert decision.after == {OURS: state(netplan.render([LINK]))}
    assert "a link to /opt/site/40-cx7.yaml" in decision.diff[0]["before"]


def test_a_floating_address_is_not_dropped(host: Host) -> None:
    """It is the front proxies', on one head after the other, whatever NIC it is on."""
    host.as_planned()
    host.live["fab0"]["addresses"].update({"10.7.0.100/24": GLOBAL, "10.7.0.9/24": GLOBAL})
    host.seen.update(floating={"10.7.0.100"}, previous={"fab0"})
    decision = present()
    assert decision.drop == [{"netdev": "fab0", "address": "10.7.0.9/24"}]
    assert decision.floating == ["10.7.0.100"], "the rollback has to know it as well"
    host.file = state(netplan.render([LINK]))
    assert absent().floating == ["10.7.0.100"]


def test_the_way_in_is_never_a_fabric_nic(host: Host) -> None:
    with pytest.raises(netplan_decision.ChangeError, match="mgmt0 carries the connection"):
        present(links=[{**LINK, "netdev": "mgmt0"}])


def absent(management: str = "mgmt0") -> netplan_decision.NetplanDecision:
    return netplan_decision.decide_absent(
        {"path": "/etc/netplan/40-cx7.yaml", "accept": [], "floating": []}, management
    )


def test_absent_takes_our_file_addresses_and_mtu_away(host: Host) -> None:
    ours = state("[Match]\nName=fab0\n[Link]\nMTUBytes=9000\n[Network]\nAddress=10.9.0.1/24\n")
    host.file = state(netplan.render([LINK]))
    host.as_planned()
    host.seen.update(
        previous={"fab0"},
        generated={NETWORK: ours},
        run={
            NETWORK: ours,
            netplan_generator.SHARED_RULES: state(
                "# netplan: network.ethernets.mgmt0 (on NetworkManager deny-list)\nx\n"
                "# netplan: network.ethernets.fab0 (on NetworkManager deny-list)\ny\n"
            ),
        },
    )
    decision = absent()
    assert decision.after["/etc/netplan/40-cx7.yaml"] is None
    assert decision.after[NETWORK] is None
    rules = decision.after[netplan_generator.SHARED_RULES]
    assert rules is not None
    assert "fab0" not in rules["content"]
    assert "mgmt0" in rules["content"]
    assert decision.drop == [{"netdev": "fab0", "address": "10.9.0.1/24"}]
    assert decision.reset_mtu == ["fab0"]


OVERRIDE = "/etc/netplan/90-NM-1.yaml"
NAMED = "/run/NetworkManager/system-connections/netplan-NM-1.nmconnection"
GUIDE = "[Match]\nName=fab0\n[Link]\nMTUBytes=9000\n[Network]\nAddress=10.9.0.1/24\n"


@pytest.fixture
def aside(host: Host, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Files by path on a host whose fabric is ours; a netplan file stands here as what netplan makes of it."""
    own = state("[Match]\nName=fab0\n[Link]\nMTUBytes=9000\n[Network]\nAddress=10.9.0.1/24\n")
    host.as_planned()
    host.seen.update(previous={"fab0"}, generated={NETWORK: own}, run={NETWORK: own})
    files = {OURS: state(netplan.render([LINK])), ASIDE: state(GUIDE)}

    def generate(sources: dict[str, str]) -> dict[str, Any]:
        made = {}
        for path, text in sources.items():
            if "refused" in text:
                raise netplan_generator.NetplanError("refused", path)
            name = text.partition("Name=")[2].partition("\n")[0]
            made[f"/run/systemd/network/10-netplan-{name}.network"] = state(text)
        return made

    monkeypatch.setattr(job, "read_state", files.get)
    monkeypatch.setattr(netplan_generator, "generate", generate)
    monkeypatch.setattr(netplan_others, "set_aside", lambda path: {OURS: [ASIDE]})
    return files


@pytest.mark.usefixtures("aside")
def test_what_stood_in_our_files_place_comes_back_by_the_same_change() -> None:
    decision = absent()
    assert (decision.restored, decision.kept) == ([OURS], [])
    assert decision.after == {OURS: state(GUIDE), ASIDE: None, NETWORK: state(GUIDE)}
    assert decision.netdevs == ["fab0"]
    assert decision.drop == [], "the address is theirs, too"
    assert decision.reset_mtu == []
    assert [item["after_header"] for item in decision.diff] == [OURS, OURS]
    assert "Name=fab0" not in decision.diff[1]["after"], "profiles hold secrets"


def test_what_our_file_gave_and_theirs_does_not_goes(aside: dict[str, Any]) -> None:
    aside[ASIDE] = state("[Match]\nName=fab0\n[Network]\nAddress=10.7.0.1/24\n")
    decision = absent()
    assert decision.drop == [{"netdev": "fab0", "address": "10.9.0.1/24"}]
    assert decision.reset_mtu == ["fab0"]


def test_a_networkd_file_comes_back_as_it_is(
    aside: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    original = str(tmp_path / "05-fab.network")
    aside[f"{original}.sparkthor-aside"] = state(GUIDE)
    monkeypatch.setattr(netplan_others, "set_aside", lambda path: {original: [f"{original}.sparkthor-aside"]})
    decision = absent()
    assert decision.restored == [original]
    assert decision.after == {
        OURS: None,
        NETWORK: None,
        original: state(GUIDE),
        f"{original}.sparkthor-aside": None,
    }
    assert (decision.drop, decision.reset_mtu) == ([], [])
    Path(original).write_text("theirs by now")
    assert (absent().restored, absent().kept) == ([], [f"{original}.sparkthor-aside"])


@pytest.mark.parametrize(
    "content",
    [
        GUIDE.replace("fab0", "mgmt0"),  # the way in
        GUIDE.replace("fab0", "enp9s9"),  # not there any more
        GUIDE.replace("fab0", "fab1"),  # somebody else's by now
        GUIDE + "refused",
        "",
    ],
)
def test_what_could_hurt_stays_aside(host: Host, aside: dict[str, Any], content: str) -> None:
    aside[ASIDE] = state(content)
    host.seen["others"] = {OLD_NETWORK: state("theirs")}
    decision = absent()
    assert (decision.restored, decision.kept) == ([], [ASIDE])
    assert decision.after == {OURS: None, NETWORK: None}
    assert decision.drop == [{"netdev": "fab0", "address": "10.9.0.1/24"}]


def test_an_override_of_our_profile_stays_aside(
    host: Host, aside: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without our file it names no NIC, so it would take any."""
    monkeypatch.setattr(netplan_others, "set_aside", lambda path: {OVERRIDE: [f"{OVERRIDE}.sparkthor-aside"]})
    aside[f"{OVERRIDE}.sparkthor-aside"] = state("key: fab0")
    monkeypatch.setattr(
        netplan_generator, "generate", lambda sources: {PROFILE: state("[connection]\nid=netplan-fab0\n")}
    )
    assert absent().kept == [f"{OVERRIDE}.sparkthor-aside"]
    monkeypatch.setattr(
        netplan_generator, "generate", lambda sources: {NAMED: state("[connection]\ninterface-name=fab0\n")}
    )
    decision = absent()
    assert decision.restored == [OVERRIDE]
    assert decision.after[NAMED] == state("[connection]\ninterface-name=fab0\n"), "its id is no NIC's"
    host.seen["others"] = {NAMED: state("[connection]\ninterface-name=fab0\n")}
    assert absent().restored == [], "somebody else's by now"


EDITED = "/etc/NetworkManager/system-connections/netplan-fab0.nmconnection"
HIDDEN = "/etc/NetworkManager/system-connections/.netplan-fab0.nmconnection.sparkthor-aside"
#: our profile after somebody's ``nmcli connection modify``
EDIT = "[connection]\nid=netplan-fab0\nautoconnect-priority=999\ninterface-name=fab0\n[ethernet]\nmtu=1500\n"


def test_an_edit_of_our_own_profile_goes_with_the_next_run(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """NetworkManager keeps it as a file of its own, which hides ours."""
    files = by_network_manager(host, monkeypatch)
    files.update({**host.seen["planned"], EDITED: state(EDIT)})
    host.as_planned()
    monkeypatch.setattr(netplan_others, "static_settings", lambda: {EDITED: EDIT})
    host.seen["edited"] = {EDITED: "fab0"}
    decision = present()
    assert decision.needs_apply
    assert decision.after[EDITED] is None
    assert "mtu" not in str([item for item in decision.diff if EDITED in item["before_header"]]), (
        "a profile holds secrets"
    )


def test_an_edit_of_our_own_profile_goes_with_our_file(
    host: Host, aside: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is, and as an earlier run set it aside: nobody had it before us, so nobody gets it back."""
    aside[HIDDEN] = state(EDIT)
    aside[f"{OVERRIDE}.sparkthor-aside"] = state("key: fab0")
    monkeypatch.setattr(
        netplan_others,
        "set_aside",
        lambda path: {EDITED: [HIDDEN], OVERRIDE: [f"{OVERRIDE}.sparkthor-aside"], OURS: [ASIDE]},
    )
    made = netplan_generator.generate

    def generate(sources: dict[str, str]) -> dict[str, Any]:
        if list(sources) == [OVERRIDE]:
            return {PROFILE: state(EDIT.replace("interface-name=fab0\n", ""))}
        return made(sources)

    monkeypatch.setattr(netplan_generator, "generate", generate)
    host.seen["edited"] = {EDITED: "fab0"}
    decision = absent()
    assert (decision.restored, decision.kept) == ([OURS], [])
    gone = {EDITED: None, HIDDEN: None, f"{OVERRIDE}.sparkthor-aside": None}
    assert decision.after == {OURS: state(GUIDE), ASIDE: None, NETWORK: state(GUIDE), **gone}


@pytest.mark.parametrize(
    "content",
    [
        EDIT.replace("999", "10"),
        EDIT.replace("id=netplan-fab0", "id=qsfp"),
        EDIT.replace("face-name=fab0", "face-name=x"),
    ],
)
def test_a_profile_of_somebody_else_comes_back(
    aside: dict[str, Any], monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    aside[HIDDEN] = state(content)
    monkeypatch.setattr(netplan_others, "set_aside", lambda path: {EDITED: [HIDDEN]})
    decision = absent()
    assert decision.restored + decision.kept in ([EDITED], [HIDDEN])


def test_of_two_copies_none_is_chosen(aside: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    aside[f"{ASIDE}.2"] = state(GUIDE)
    monkeypatch.setattr(netplan_others, "set_aside", lambda path: {OURS: [ASIDE, f"{ASIDE}.2"]})
    assert (absent().restored, absent().kept) == ([], [ASIDE, f"{ASIDE}.2"])


@pytest.mark.usefixtures("aside")
def test_the_way_in_is_not_taken_away() -> None:
    with pytest.raises(netplan_decision.ChangeError, match="configures fab0, by which this host is reached"):
        absent("fab0")


def test_absent_leaves_nothing_and_foreign_files_alone(host: Host) -> None:
    assert not absent().changed
    host.file = state("by hand")
    decision = absent()
    assert (decision.changed, decision.adopted) == (False, True)


@pytest.mark.parametrize(
    ("address", "routes", "netdev"),
    [
        ("10.0.0.1", [], "mgmt0"),
        ("10.0.0.1/24", [], "mgmt0"),
        ("192.0.2.1", ["-4 default via 10.0.0.254 dev eth7 proto static"], "eth7"),
        ("10.0.0.2", ["-4 default via 10.0.0.254 dev eth7 proto static"], "wlan0"),
        ("", ["-4 10.5.0.0/16 via 10.0.0.9 dev x", "-4 default via 1.1.1.1 dev eth7"], "eth7"),
        ("", [], ""),
    ],
)
def test_management_nic(address: str, routes: list[str], netdev: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netplan_decision.ssh, "connection", list)
    live = {
        "lo": {"addresses": {}},
        "mgmt0": {"addresses": {"10.0.0.1/24": GLOBAL}},
        "wlan0": {"addresses": {"10.0.0.2/24": GLOBAL}},
    }
    assert netplan_decision.management_netdev(address, live, routes) == netdev


@pytest.mark.parametrize(
    ("address", "server", "netdev"),
    [
        ("", "10.0.0.1", "mgmt0"),
        ("", "fe80::1%mgmt0", "mgmt0"),  # not the only one with that address
        ("10.0.0.2", "10.0.0.1", "wlan0"),  # what is said outright counts
        ("192.0.2.1", "10.0.0.1", "mgmt0"),
        ("", "203.0.113.5", "wlan0"),
    ],
)
def test_without_an_address_the_way_in_is_sshs(
    address: str, server: str, netdev: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netplan_decision.ssh, "connection", lambda: ["10.0.0.9", "50000", server, "22"])
    live = {
        "mgmt0": {"addresses": {"10.0.0.1/24": GLOBAL, "fe80::1/64": GLOBAL}},
        "wlan0": {"addresses": {"10.0.0.2/24": GLOBAL, "fe80::1/64": GLOBAL}},
    }
    assert netplan_decision.management_netdev(address, live, ["-4 default via 10.0.0.254 dev wlan0"]) == netdev


def test_environment_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/etc/sparkthor/fabric.env"
    current: list[Any] = [None]
    monkeypatch.setattr(job, "read_state", lambda name: current[0])
    files, diff = netplan_decision.decide_environment(path, {"A": "1"})
    assert files[path]["mode"] == 0o644
    assert (diff["before"], diff["after"]) == ("", f"{netplan.MARKER}\nA=1\n")
    current[0] = files[path]
    assert netplan_decision.decide_environment(path, {"A": "1"}) == ({}, {})
