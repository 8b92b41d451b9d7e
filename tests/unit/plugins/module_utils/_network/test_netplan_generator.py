# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What netplan makes of files: captured from the generators of 0.106 and 1.1.2 (tests/fixtures/netplan)."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    netplan_generator,
)

from tests.unit.netplan import BOTH, VERSIONS, captured, files


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
    assert netplan_generator.file_owner_of(path) == owner


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


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    (tmp_path / "10-a.yaml").write_text("network: {}\n")
    (tmp_path / "20-b.yaml").symlink_to("10-a.yaml")
    assert list(netplan_generator.source_files((str(tmp_path),)).values()) == ["network: {}\n"] * 2
    (tmp_path / "30-c.yaml").symlink_to("/opt/site/gone.yaml")
    with pytest.raises(netplan_generator.NetplanError, match=r"30-c\.yaml is a link to /opt/site/gone\.yaml") as caught:
        netplan_generator.source_files((str(tmp_path),))
    assert caught.value.path == str(tmp_path / "30-c.yaml")
