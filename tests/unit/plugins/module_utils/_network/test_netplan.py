# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What netplan made of files is captured from the real generators of 0.106 and 1.1.2 (tests/fixtures/netplan)."""

from __future__ import annotations

import json
import os
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    link_state,
    netplan,
    netplan_generator,
    netplan_inspect,
    netplan_others,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job
from hypothesis import given
from hypothesis import strategies as st

FIXTURES = Path(__file__).parents[4] / "fixtures" / "netplan"
VERSIONS = ("0.106", "1.1.2")
RENDERERS = ("networkd", "NetworkManager")
BOTH = [(version, renderer) for version in VERSIONS for renderer in RENDERERS]
LINK = {"netdev": "enp1s0f1np1", "address": "10.100.0.1/25", "mtu": 9000, "peers": []}
MAC = "02:00:00:00:00:01"


def captured(version: str) -> dict[str, Any]:
    return json.loads((FIXTURES / f"generated-{version}.json").read_text())


def files(version: str, renderer: str, key: str) -> dict[str, Any]:
    return {
        path: {"content": content, "mode": 0o640, "uid": 0, "gid": 0}
        for path, content in captured(version)[renderer][key]["files"].items()
    }


# --- our file ---


def test_render_is_what_the_fixtures_were_made_of() -> None:
    text = netplan.render([LINK])
    assert text == (
        "# Ansible managed: sparkthor.cluster\nnetwork:\n  version: 2\n  ethernets:\n    enp1s0f1np1:\n"
        "      dhcp4: false\n      dhcp6: false\n      accept-ra: false\n      link-local: []\n      optional: true\n"
        "      ignore-carrier: true\n      mtu: 9000\n      addresses:\n        - 10.100.0.1/25\n"
    )
    assert netplan.is_ours(text)
    assert not netplan.is_ours("network:\n# Ansible managed: sparkthor.cluster\n")


def test_render_sets_a_renderer_per_nic_only_and_no_mtu_unless_planned() -> None:
    text = netplan.render([{**LINK, "mtu": 0}], "networkd")
    assert "\n      renderer: networkd\n" in text
    assert "\n  renderer:" not in text
    assert "mtu" not in text


def test_links_of_finds_everybody_on_the_subnet() -> None:
    fabric = {
        "a": {
            "links": [
                {"netdev": "x", "address": "10.0.0.1/25", "mtu": 9000},
                {"netdev": "y", "address": "10.0.0.129/25", "mtu": 9000},
            ]
        },
        "b": {"links": [{"netdev": "x", "address": "10.0.0.2/25", "mtu": None}]},
        "c": {"links": [{"netdev": "y", "address": "10.0.0.131/25", "mtu": 1500}, {"netdev": "z", "address": ""}]},
    }
    assert netplan.links_of(fabric, "a") == [
        {
            "netdev": "x",
            "address": "10.0.0.1/25",
            "mtu": 9000,
            "peers": [{"host": "b", "address": "10.0.0.2", "mtu": 0}],
        },
        {
            "netdev": "y",
            "address": "10.0.0.129/25",
            "mtu": 9000,
            "peers": [{"host": "c", "address": "10.0.0.131", "mtu": 1500}],
        },
    ]
    assert netplan.links_of(fabric, "nobody") == []


def test_links_of_a_host_cost_one_look_at_every_other() -> None:
    """A host's links are worked out on their own, so what one of them costs counts once for each of 256."""

    class Counting(dict):
        looks = 0

        def get(self, key: str, default: Any = None) -> Any:
            Counting.looks += key == "links"
            return super().get(key, default)

    fabric = {
        f"h{number}": Counting(
            links=[
                {"netdev": f"n{half}", "address": f"10.{half}.0.{number}/16", "subnet": f"10.{half}.0.0/16"}
                for half in (0, 1)
            ]
        )
        for number in range(1, 255)
    }
    links = netplan.links_of(fabric, "h7")
    assert [len(link["peers"]) for link in links] == [253, 253]
    assert Counting.looks == len(fabric)


def test_environment_quotes_only_where_systemd_would_misread() -> None:
    text = netplan.render_environment({"B": "=rocep1s0f1,roceP2p1s0f1", "A": 'two "words" $x', "C": 0})
    assert text == f'{netplan.MARKER}\nA="two \\"words\\" \\$x"\nB==rocep1s0f1,roceP2p1s0f1\nC=0\n'


@pytest.mark.parametrize(("key", "value"), [("A", "one\ntwo"), ("A B", "x"), ("1A", "x"), ("", "x")])
def test_environment_refuses_what_it_cannot_hold(key: str, value: str) -> None:
    with pytest.raises(ValueError, match="not a variable"):
        netplan.render_environment({key: value})


# --- netplan's answers ---


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("tab", "99-x.yaml:3:1: Invalid YAML: tabs are not allowed for indent"),
        ("address", "address '1.2.3.4' is missing /prefixlength"),
        ("mapping", "99-x.yaml:4:13: Error in network definition: expected mapping"),
        ("key", "unknown key 'adresses'"),
    ],
)
def test_generator_error_names_the_real_file(version: str, case: str, words: str) -> None:
    stderr = captured(version)["errors"][case]["stderr"].replace("@SCRATCH@", "/tmp/sparkthor-netplan-abc")
    warning = "\n** (generate:103): WARNING **: 01:29:11.732: Permissions for /tmp/x.yaml are too open. Netplan …\n"
    error = netplan_generator.parse_generator_error(warning + stderr, "/tmp/sparkthor-netplan-abc")
    assert error.path == "/etc/netplan/99-x.yaml"
    assert words in str(error)
    assert "/tmp/" not in str(error)
    assert "WARNING" not in str(error)


def test_generator_error_without_a_file_or_a_word() -> None:
    assert netplan_generator.parse_generator_error("something: odd\n", "/tmp/s").path == ""
    assert "without a message" in str(netplan_generator.parse_generator_error("", "/tmp/s"))


def test_generate_runs_the_generator_on_a_private_copy(tmp_path: Path) -> None:
    program = tmp_path / "generate"
    program.write_text(
        "#!/bin/sh\nset -e\nmkdir -p $2/run/systemd/network\n"
        "cat $2/etc/netplan/*.yaml $2/lib/netplan/0.yaml >$2/run/systemd/network/10-netplan-x.network\n"
    )
    program.chmod(0o755)
    made = netplan_generator.generate(
        {"/etc/netplan/a.yaml": "one\n", "/usr/lib/netplan/0.yaml": "two\n"}, str(program)
    )
    assert {path: state["content"] for path, state in made.items()} == {
        "/run/systemd/network/10-netplan-x.network": "one\ntwo\n"
    }
    program.write_text("#!/bin/sh\necho $2/etc/netplan/a.yaml:1:1: Error: no >&2\nexit 1\n")
    with pytest.raises(netplan_generator.NetplanError, match=r"^/etc/netplan/a\.yaml:1:1: Error: no$") as caught:
        netplan_generator.generate({"/etc/netplan/a.yaml": "one\n"}, str(program))
    assert caught.value.path == "/etc/netplan/a.yaml"


def test_generate_without_netplan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netplan_generator, "GENERATORS", ("/nonexistent/generate",))
    with pytest.raises(netplan_generator.NoNetplanError, match="not installed"):
        netplan_generator.generate({})


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("/run/systemd/network/10-netplan-enp1s0f1np1.network", "enp1s0f1np1"),
        ("/run/systemd/network/10-netplan-enp1s0f1np1.link", "enp1s0f1np1"),
        ("/run/NetworkManager/system-connections/netplan-enP7s7.nmconnection", "enP7s7"),
        ("/run/udev/rules.d/90-netplan.rules", ""),
        ("/run/NetworkManager/conf.d/10-globally-managed-devices.conf", ""),
    ],
)
def test_owner(path: str, owner: str) -> None:
    assert netplan_generator.owner_of(path) == owner


@pytest.mark.parametrize(("version", "renderer"), BOTH)
def test_rules_change_for_our_nics_only(version: str, renderer: str) -> None:
    without = files(version, renderer, "management")[netplan_generator.SHARED_RULES]["content"]
    with_ours = files(version, renderer, "planned")[netplan_generator.SHARED_RULES]["content"]
    live = without.replace("enP7s7", "someone")
    merged = netplan_generator.merge_rules(live, with_ours, {"enp1s0f1np1"})
    assert live in merged
    assert "enP7s7" not in merged
    assert merged.count('"enp1s0f1np1"') == 1
    assert netplan_generator.merge_rules(merged, "", {"enp1s0f1np1"}) == live
    assert netplan_generator.merge_rules(without, with_ours, {"enp1s0f1np1"}) == with_ours


@pytest.mark.parametrize(("version", "renderer"), BOTH)
def test_a_file_by_hand_with_the_same_addresses_is_equal_in_meaning(version: str, renderer: str) -> None:
    planned = files(version, renderer, "planned")
    assert netplan_generator.same_meaning(files(version, renderer, "by_hand"), planned)
    assert not netplan_generator.same_meaning(files(version, renderer, "guide"), planned)
    assert not netplan_generator.same_meaning(files(version, renderer, "merged"), planned)
    assert not netplan_generator.same_meaning(files(version, renderer, "management"), planned)


@pytest.mark.parametrize(("version", "renderer"), BOTH)
def test_pending_edit_of_somebody_else_is_seen_and_ours_is_not(version: str, renderer: str) -> None:
    live = files(version, renderer, "management")
    assert netplan_generator.pending_edits(live, live, set()) == []
    assert netplan_generator.pending_edits(files(version, renderer, "planned"), live, {"enp1s0f1np1"}) == []
    found = netplan_generator.pending_edits(files(version, renderer, "edited"), live, {"enp1s0f1np1"})
    assert [item["id"] for item in found] == ["enP7s7"]
    if renderer == "networkd":
        assert found[0]["detail"] == "-Address=10.83.0.11/24; +Address=10.83.0.99/24"
    else:
        assert found[0]["detail"] == "would change"


def test_pending_edit_of_a_profile_hides_its_content_and_allows_what_networkmanager_adds() -> None:
    live = files("1.1.2", "NetworkManager", "management")
    path = "/run/NetworkManager/system-connections/netplan-enP7s7.nmconnection"
    touched = dict(live)
    touched[path] = {
        **live[path],
        "content": live[path]["content"].replace("type=ethernet", "type=ethernet\nuuid=abc\ntimestamp=1"),
    }
    assert netplan_generator.pending_edits(live, touched, set()) == []
    secret = dict(live)
    secret[path] = {**live[path], "content": live[path]["content"] + "\n[wifi-security]\npsk=geheim\n"}
    assert netplan_generator.pending_edits(secret, live, set())[0]["detail"] == "would change"


def test_pending_removal_and_addition() -> None:
    live = files("1.1.2", "networkd", "wildcard")
    now = files("1.1.2", "networkd", "management")
    assert [(i["id"], i["detail"]) for i in netplan_generator.pending_edits(now, live, set()) if i["id"]] == [
        ("all-en", "would be removed")
    ]
    assert [(i["id"], i["detail"]) for i in netplan_generator.pending_edits(live, now, set()) if i["id"]] == [
        ("all-en", "would be added")
    ]


def test_files_defining() -> None:
    sources = {
        "/a.yaml": "    enP7s7:\n",
        "/b.yaml": "{ethernets: {enP7s7: {}}}",
        "/c.yaml": "    enP7s70:\n",
        "/d.yaml": '    "enP7s7":\n',
        "/e.yaml": "  xenP7s7:\n",
    }
    assert netplan_generator.files_defining("enP7s7", sources) == ["/a.yaml", "/b.yaml", "/d.yaml"]


# --- who else configures our NICs ---


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


def live_link(addresses: dict[str, dict[str, Any]] | None = None, **over: Any) -> dict[str, Any]:
    return {"mtu": 9000, "up": True, "carrier": True, "mac": MAC, "addresses": addresses or {}, **over}


GLOBAL = {"scope": "global", "dynamic": False, "family": "inet"}


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


# --- looking at a host ---


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
        return [
            item["kind"] for item in netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [LINK], **options)["findings"]
        ]


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
    assert [(f["kind"], f["path"]) for f in findings] == [("pending_edit", "/etc/netplan/01-m.yaml")]
    assert "+Address=10.83.0.99/24" in findings[0]["message"]


def test_inspect_finds_invalid_yaml_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.sources["/etc/netplan/99-x.yaml"] = "broken"
    host.error = netplan_generator.NetplanError("/etc/netplan/99-x.yaml:3:1: Invalid YAML", "/etc/netplan/99-x.yaml")
    findings = netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [LINK])["findings"]
    assert [(f["kind"], f["path"]) for f in findings] == [("invalid_yaml", "/etc/netplan/99-x.yaml")]


def test_inspect_of_a_host_without_netplan_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.error = netplan_generator.NoNetplanError("netplan is not installed", "/etc/netplan/01-m.yaml")
    (finding,) = netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [LINK])["findings"]
    assert (finding["kind"], finding["message"]) == ("no_netplan", "netplan is not installed")
    assert finding["mend"] == "install the package netplan.io (sudo apt install netplan.io)"


def test_what_stands_aside_is_found_by_its_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netplan_generator, "SOURCES", ())
    monkeypatch.setattr(netplan_others, "NETWORKD_FOLDERS", (str(tmp_path / "network"),))
    monkeypatch.setattr(netplan_others, "PROFILE_FOLDERS", (str(tmp_path / "absent"),))
    names = (
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
    }


@pytest.mark.parametrize("renderer", RENDERERS)
def test_the_nics_of_one_file(monkeypatch: pytest.MonkeyPatch, renderer: str) -> None:
    monkeypatch.setattr(netplan_generator, "generate", lambda given: files("1.1.2", renderer, "management"))
    assert netplan_others.nics_of("/etc/netplan/01-m.yaml", "x") == {"enP7s7"}
    assert netplan_others.nics_of("/etc/systemd/network/a.network", "[Match]\nName=fab0\n[Network]\nDHCP=no\n") == {
        "fab0"
    }
    assert netplan_others.nics_of("/etc/x/a.nmconnection", "[connection]\nid=a\ninterface-name=fab1\n") == {"fab1"}
    assert netplan_others.nics_of("/etc/x/a.nmconnection", "[ethernet]\nmac-address=02:00:00:00:00:01\n") == set()


def test_inspect_adopts_or_names_a_foreign_file_at_our_path(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.sources["/etc/netplan/40-cx7.yaml"] = "by hand"
    seen = netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [LINK])
    assert (seen["foreign"], seen["adoptable"], seen["findings"]) == (True, True, [])
    host.sources["/etc/netplan/40-cx7.yaml"] = "guide"
    assert host.kinds() == ["foreign_file"]


def test_inspect_finds_run_time_and_foreign_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.live["enP7s7"]["addresses"]["10.83.0.212/24"] = GLOBAL
    host.live["enp1s0f1np1"]["addresses"].update(
        {"10.99.0.2/24": GLOBAL, "10.100.0.1/25": GLOBAL, "169.254.3.4/16": {**GLOBAL, "scope": "link"}}
    )
    findings = netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [LINK])["findings"]
    assert [(f["kind"], f["netdev"], f["address"]) for f in findings] == [
        ("runtime_address", "enP7s7", "10.83.0.212/24"),
        ("foreign_address", "enp1s0f1np1", "10.99.0.2/24"),
    ]


def test_inspect_knows_addresses_of_our_former_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.sources["/etc/netplan/40-cx7.yaml"] = netplan.render([LINK])
    host.run = files("1.1.2", "networkd", "planned")
    host.live["enp1s0f1np1"]["addresses"]["10.100.0.1/25"] = GLOBAL
    moved = {**LINK, "address": "10.100.0.7/25"}
    assert netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [moved])["findings"] == []


def test_inspect_finds_a_file_that_hides_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.sources["/run/netplan/40-cx7.yaml"] = "network: {version: 2}\n"
    assert host.kinds() == ["shadowed"]


# --- links as they are ---

ROUTES = {("10.100.0.0/25", "enp1s0f1np1")}
GOOD = {"enp1s0f1np1": live_link({"10.100.0.1/25": GLOBAL})}


def test_link_as_planned_has_no_problems() -> None:
    assert link_state.link_problems([LINK], GOOD, ROUTES) == {"enp1s0f1np1": []}


@pytest.mark.parametrize(
    ("live", "routes", "words"),
    [
        ({}, ROUTES, "does not exist"),
        ({"enp1s0f1np1": live_link({"10.100.0.1/25": GLOBAL}, up=False)}, ROUTES, "administratively down"),
        ({"enp1s0f1np1": live_link({"10.100.0.1/24": GLOBAL})}, ROUTES, "does not have 10.100.0.1/25"),
        ({"enp1s0f1np1": live_link({"10.100.0.1/25": GLOBAL}, mtu=1500)}, ROUTES, "MTU 1500 instead of 9000"),
        (GOOD, set(), "no connected route to 10.100.0.0/25"),
        (GOOD, {*ROUTES, ("10.100.0.0/25", "enP2p1s0f1np1")}, "one NIC per subnet"),
    ],
)
def test_link_problems(live: dict[str, Any], routes: set[tuple[str, str]], words: str) -> None:
    found = link_state.link_problems([LINK], live, routes)["enp1s0f1np1"]
    assert any(words in problem for problem in found)


def test_connected_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "10.100.0.0/25 dev enp1s0f1np1 proto kernel scope link src 10.100.0.1 linkdown \n"
    monkeypatch.setattr(job, "run", lambda argv, limit=20: (0, text, ""))
    assert link_state.connected_routes() == ROUTES


@pytest.mark.parametrize(
    ("link", "peer", "live_mtu", "size"),
    [
        (9000, 9000, 9000, 8972),
        (9000, 0, 9000, 8972),
        (9000, 1500, 9000, 1472),
        (8966, 9000, 8966, 8938),
        (0, 0, 1500, 1472),
        (0, 0, 9000, 1472),
        (0, 0, 1280, 1252),
    ],
)
def test_payload_fills_the_smaller_mtu(link: int, peer: int, live_mtu: int, size: int) -> None:
    assert link_state.payload_size({"mtu": link}, {"mtu": peer}, live_mtu) == size


@given(st.binary(max_size=200))
def test_checksum_makes_the_whole_sum_to_zero(data: bytes) -> None:
    data += b"\0" * (len(data) % 2)
    assert link_state.checksum(data + struct.pack("!H", link_state.checksum(data))) == 0


def test_ping_over_loopback() -> None:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
    except PermissionError:
        # without the capability every peer is reported with the reason instead of raising
        answers = link_state.ping_links([{"netdev": "lo", "mtu": 1500, "peers": [{"address": "127.0.0.1"}]}], {}, 0.1)
        assert answers[0]["error"] == os.strerror(1)
        return
    links = [{"netdev": "lo", "mtu": 9000, "peers": [{"address": "127.0.0.1"}, {"address": "127.0.0.2"}]}]
    answers = link_state.ping_links(links, {"lo": live_link(mtu=65536)}, 1.0)
    assert [(item["address"], item["payload"], item["reachable"]) for item in answers] == [
        ("127.0.0.1", 8972, True),
        ("127.0.0.2", 8972, True),
    ]


def test_ping_over_a_nic_that_is_not_there_is_an_answer_too() -> None:
    answers = link_state.ping_links(
        [{"netdev": "nonesuch0", "mtu": 1500, "peers": [{"address": "127.0.0.1"}]}], {}, 0.1
    )
    assert [item["reachable"] for item in answers] == [False]
    assert answers[0]["error"]


def test_verify_asks_again_until_the_peer_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    link = {**LINK, "peers": [{"host": "b", "address": "10.100.0.2"}]}
    tries: list[int] = []

    def ping(links: list[dict[str, Any]], live: Any) -> list[dict[str, Any]]:
        tries.append(1)
        return [
            {
                "netdev": "enp1s0f1np1",
                "host": "b",
                "address": "10.100.0.2",
                "payload": 8972,
                "reachable": len(tries) > 1,
                "rtt_ms": None,
                "error": "no answer",
                "_sent": 1.0,
            }
        ]

    monkeypatch.setattr(job, "live_links", lambda: GOOD)
    monkeypatch.setattr(link_state, "connected_routes", lambda: ROUTES)
    monkeypatch.setattr(link_state, "ping_links", ping)
    monkeypatch.setattr(link_state.time, "sleep", lambda seconds: None)
    first = link_state.verify([link])
    assert first[0]["ok"] is False
    assert "does not reach b 10.100.0.2 with 8972 bytes unfragmented" in first[0]["problems"][0]
    tries.clear()
    second = link_state.verify([link], wait=5)
    assert (second[0]["ok"], len(tries)) == (True, 2)
    assert "_sent" not in second[0]["peers"][0]
