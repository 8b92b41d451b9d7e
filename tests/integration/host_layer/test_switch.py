# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/switch.yml as an owner types it, against a recorded configuration; no lab has such a switch.

What it shows is applied to the configuration by the rules of RouterOS that these commands need, and the new
configuration is shown to it again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.routeros import parse

from tests.integration.conftest import TOP

EXPORT = TOP / "tests/fixtures/routeros/crs812.rsc"
GIVEN: dict[str, Any] = {
    "switch_ports": ["qsfp56-dd-1-1", "spark-02"],
    "switch_links": ["qsfp56-1-1"],
    "switch_uplinks": ["ether1"],
    "switch_vlan": 100,
    "switch_speed": 200,
}
ETHERNET, QOS = "/interface ethernet", "/interface ethernet switch qos"
#: commands for GIVEN, in the order in which each is safe by itself
COMMANDS = [
    "/export file=before-sparkthor",
    "/interface ethernet set [find name=spark-02] l2mtu=9216 mtu=9000 auto-negotiation=no speed=200G-baseCR4",
    "/interface ethernet set [find name=qsfp56-1-1] l2mtu=9216 mtu=9000 auto-negotiation=no speed=200G-baseCR4",
    "/interface bridge port set [find interface=qsfp56-dd-1-1] pvid=100",
    "/interface bridge port set [find interface=spark-02] pvid=100 edge=yes",
    "/interface bridge port set [find interface=qsfp56-1-1] pvid=100",
    "/interface bridge port set [find interface=ether1] path-cost=200000000",
    "/interface bridge vlan add bridge=bridge untagged=qsfp56-dd-1-1,spark-02,qsfp56-1-1 vlan-ids=100",
    "/interface bridge set [find name=bridge] vlan-filtering=yes",
]


@dataclass
class Item:
    """One item of a switch: what it is by itself, which an export shows as its selector, and what was set."""

    own: dict[str, str]
    values: dict[str, str] = field(default_factory=dict)
    added: bool = False

    def has(self, wanted: dict[str, str]) -> bool:
        return all({**self.own, **self.values}.get(key) == value for key, value in wanted.items())


class Switch:
    """The items of a switch by path, as far as the commands need them."""

    def __init__(self, export: str) -> None:
        ports = ("ether1", "qsfp56-1-1", "qsfp56-dd-1-1", "qsfp56-dd-1-5")
        self.items: dict[str, list[Item]] = {
            ETHERNET: [Item({"default-name": port, "name": port}) for port in ports],
            "/interface ethernet switch": [Item({"number": "0", "name": "switch1"})],
            f"{QOS} tx-manager queue": [Item({"traffic-class": str(number)}) for number in range(8)],
        }
        for path, rows in parse(export).items():
            for row in rows:
                selector = dict(word.split("=", 1) for word in row.selector.split() if "=" in word)
                if found := [item for item in self.items.get(path, ()) if selector and item.has(selector)]:
                    found[0].values.update(row.values)
                else:
                    self.items.setdefault(path, []).append(Item({}, dict(row.values), added=not row.selector))
        names = [{**item.own, **item.values}["name"] for item in self.items[ETHERNET]]
        self.items[f"{QOS} port"] = [Item({"name": name}) for name in names]

    def type(self, command: str) -> None:
        if command.startswith("/export file="):
            return
        match = re.fullmatch(
            r"(/[a-z -]+?) (add|set) (?:\[find ([^\]]+)\] |(switch1) )?(\S+=\S+(?: \S+=\S+)*)", command
        )
        assert match, f"no command of RouterOS that is known here: {command}"
        path, verb, found, name, settings = match.groups()
        values = dict(word.split("=", 1) for word in settings.split())
        if verb == "add":
            self.items.setdefault(path, []).append(Item({}, values, added=True))
            return
        selector = dict(word.split("=", 1) for word in found.split()) if found else {"name": name}
        items = [item for item in self.items.get(path, ()) if item.has(selector)]
        assert items, f"finds nothing, and the switch would say nothing: {command}"
        for item in items:
            item.values.update(values)

    def export(self) -> str:
        lines = []
        for path, items in self.items.items():
            rows = [item for item in items if item.values]
            lines += [path] if rows else []
            for item in rows:
                settings = " ".join(f"{key}={value}" for key, value in sorted(item.values.items()))
                own = next(iter(item.own.items()), None)
                lines.append(f"set [ find {own[0]}={own[1]} ] {settings}" if own else f"add {settings}")
        return "\n".join(lines) + "\n"


def run(folder: Path, export: str, **given: Any) -> tuple[int, str]:
    """From the folder that the configuration was saved in."""
    playbook = TOP / "playbooks/switch.yml"
    command = ["ansible-playbook", playbook, "-e", f"switch_export={export}", "-e", json.dumps(given)]
    # an owner's: molecule sets a dozen of its own, colours among them
    own = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    environment = {**own, "PWD": str(folder), "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode, done.stdout + done.stderr


def shown(folder: Path, export: str, **given: Any) -> list[str]:
    rc, output = run(folder, export, **given)
    assert rc == 0, output
    return [line.strip() for line in output.partition("msg: |-")[2].partition("\n\n")[0].splitlines() if line.strip()]


@pytest.mark.parametrize("qos", [False, True], ids=["", "qos"])
def test_the_commands_are_what_the_configuration_lacks_and_nothing_more(tmp_path: Path, qos: bool) -> None:
    (tmp_path / "switch.rsc").write_text(EXPORT.read_text())
    commands = shown(tmp_path, "switch.rsc", **GIVEN, switch_qos=qos)
    assert commands[: len(COMMANDS)] == COMMANDS
    assert bool(commands[len(COMMANDS) :]) == qos
    switch = Switch(EXPORT.read_text())
    for command in commands:
        switch.type(command)
    (tmp_path / "after.rsc").write_text(switch.export())
    rc, output = run(tmp_path, "after.rsc", **GIVEN, switch_qos=qos)
    assert rc == 0, output
    assert "msg: nothing is lacking" in output


@pytest.mark.parametrize(
    ("export", "given", "words"),
    [
        ("switch.rsc", {"switch_ports": ["spark-2"]}, "switch_ports: spark-2 is nowhere in the export (did you mean"),
        ("switch.rsc", {"switch_ports": ["qsfp56-dd-1-5"]}, "switch_ports: qsfp56-dd-1-5 is called spark-02"),
        ("switch.rsc", {"switch_vlan": 4095}, "switch_vlan: 4095 is not a whole number from 1 to 4094"),
        ("notes.txt", {}, "switch_export: 'spark-02 on port 5' is no line of an export; give what /export printed"),
        ("nowhere.rsc", {}, "nowhere.rsc is not a file; save what /export printed on the switch there"),
    ],
)
def test_bad_input_stops_with_variable_value_and_fix(
    tmp_path: Path, export: str, given: dict[str, Any], words: str
) -> None:
    (tmp_path / "switch.rsc").write_text(EXPORT.read_text())
    (tmp_path / "notes.txt").write_text("spark-02 on port 5\n")
    rc, output = run(tmp_path, export, **{**GIVEN, **given})
    assert rc != 0
    assert words in " ".join(output.replace("''", "'").split())
    assert "before-sparkthor" not in output
